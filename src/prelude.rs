//! What an operator names: `use windlass::prelude::*;`.
//!
//! `docs/adding-a-controller.md` shows an operator that needs nothing else.

pub use crate::api::conditions::BasicStatus;
pub use crate::api::labels::{self, Labels};
pub use crate::api::{ApiResource, HasResource};
pub use crate::cache::{Lister, ObjectName, Slim};
pub use crate::client::{ApiClient, Config, ConfigSource};
pub use crate::controller::kinds::config_map::WantedConfigMap;
pub use crate::controller::kinds::container::WantedContainer;
pub use crate::controller::kinds::deployment::{ObservedDeployment, WantedDeployment};
pub use crate::controller::kinds::ingress::{ObservedIngress, WantedIngress};
pub use crate::controller::kinds::pod::{ObservedPod, WantedPod};
pub use crate::controller::kinds::secret::WantedSecret;
pub use crate::controller::kinds::service::{ObservedService, ServiceType, WantedService};
pub use crate::controller::{
    ApplyOutcome, BuildError, Builder, ChildHealth, Condition, Controller, ControllerContext, HealthPhase,
    Limits, Manager, Pass, Reconcile, Reconciler, StopReason, SyncError, Wanted, own_name, wanted,
};
pub use crate::{common_status, custom_resource, object_by_metadata};
pub use k8s_openapi::ByteString;
pub use k8s_openapi::api::core::v1::{ConfigMap, ContainerPort, EnvVar, Secret, ServicePort};
pub use kube_core::{CustomResourceExt, ResourceExt};
pub use kube_derive::CustomResource;
pub use serde_json::json;
pub use tokio_util::sync::CancellationToken;
