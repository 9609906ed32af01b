//! The wanted and the observed state of a Deployment.
//!
//! # Guarantees
//! - Writing a Deployment again changes nothing, whatever was there before.
//!   (test: `writing_a_deployment_again_changes_nothing`)
//! - Equal containers of two Deployments are kept once. (test: `equal_containers_are_shared`)
//! - Fields and containers that are not ours are kept. (test: `foreign_deployment_fields_are_kept`)
//! - Defaults of a real server are not differences. (test: `written_deployment_reads_back_without_differences`)

use serde::{Deserialize, Serialize};

use super::Wanted;
use super::container::{self, Additions};
pub use super::container::{ObservedContainer, WantedContainer};
use super::health::{ChildHealth, reason};
pub use super::observed::ObservedCondition;
use super::observed::Part;
use super::protobuf;
use crate::api::ApiResource;
use crate::api::labels::Labels;
use crate::cache::{Meta, TextMap};

/// The API resource of Deployments.
pub const DEPLOYMENTS: ApiResource = ApiResource::new("apps", "v1", "Deployment", "deployments");

/// A Deployment as a custom resource wants it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct WantedDeployment {
    /// The name.
    pub name: String,
    /// The labels.
    pub labels: Labels,
    /// The labels that select the Deployment's Pods.
    pub selector: Labels,
    /// The labels of the Pods: those of the selector, and more.
    pub pod_labels: Labels,
    /// The number of Pods.
    pub replicas: i32,
    /// Our containers.
    pub containers: Vec<WantedContainer>,
}

/// The fields of a Deployment that the cache keeps.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(default)]
pub struct ObservedDeployment {
    /// Name, uid, labels, owners.
    pub metadata: Meta,
    /// The spec.
    pub spec: ObservedSpec,
    /// The status, from the Deployment controller.
    #[serde(skip_serializing)]
    pub status: ObservedStatus,
}

/// The spec of a Deployment.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(default)]
pub struct ObservedSpec {
    /// The number of Pods; the server defaults it to 1.
    pub replicas: Option<i32>,
    /// How the Deployment selects its Pods.
    pub selector: ObservedSelector,
    /// The template of its Pods.
    pub template: ObservedTemplate,
}

/// The selector of a Deployment.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ObservedSelector {
    /// The labels to match.
    #[serde(skip_serializing_if = "TextMap::is_empty")]
    pub match_labels: TextMap,
}

/// The template of Pods.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(default)]
pub struct ObservedTemplate {
    /// The metadata of the Pods.
    pub metadata: ObservedTemplateMeta,
    /// The spec of the Pods.
    pub spec: ObservedPodSpec,
}

/// The metadata of a template.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(default)]
pub struct ObservedTemplateMeta {
    /// The labels of the Pods.
    #[serde(skip_serializing_if = "TextMap::is_empty")]
    pub labels: TextMap,
}

/// The spec of a Pod in a template.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ObservedPodSpec {
    /// The containers, ours and others'.
    #[serde(deserialize_with = "container::shared")]
    pub containers: Part<[ObservedContainer]>,
    /// Whether the Pods get a token of their service account.
    pub automount_service_account_token: Option<bool>,
}

/// The status that the Deployment controller reports.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ObservedStatus {
    /// The generation that the counts below refer to.
    pub observed_generation: i64,
    /// All Pods.
    pub replicas: i32,
    /// Pods made from the current template.
    pub updated_replicas: i32,
    /// Pods that are ready.
    pub ready_replicas: i32,
    /// Pods that have been ready long enough.
    pub available_replicas: i32,
    /// Pods that are wanted but not available.
    pub unavailable_replicas: i32,
    /// Pods that are terminating, if the server counts them.
    pub terminating_replicas: Option<i32>,
    /// How often the name of a new ReplicaSet was already taken.
    pub collision_count: Option<i32>,
    /// `Available`, `Progressing`, `ReplicaFailure`.
    pub conditions: Box<[ObservedCondition]>,
}

// === impl ObservedDeployment ===

impl ObservedDeployment {
    /// Whether the rollout is complete: the counts refer to the current spec, and exactly the wanted number of Pods
    /// exist, all made from the current template and available.
    #[must_use]
    pub fn is_available(&self) -> bool {
        self.status.observed_generation >= self.metadata.generation && self.has_available_replicas()
    }

    /// Like [`is_available`](Self::is_available), but by the counts alone, whichever spec they refer to.
    fn has_available_replicas(&self) -> bool {
        let wanted = self.spec.replicas.unwrap_or(1);
        let status = &self.status;
        status.updated_replicas >= wanted && status.replicas <= wanted && status.available_replicas >= wanted
    }

    /// Whether a rollout is in progress: the Deployment controller has not seen the current spec, or has not yet
    /// reported that all Pods of the current template were available once. Pods that come and go later do not count.
    #[must_use]
    pub fn is_rolling_out(&self) -> bool {
        let progress = self.condition("Progressing", "True");
        self.status.observed_generation < self.metadata.generation
            || progress.is_none_or(|condition| condition.reason != "NewReplicaSetAvailable")
    }

    /// Whether the Deployment controller reports that the rollout cannot finish by itself.
    #[must_use]
    pub fn has_failed(&self) -> bool {
        self.condition("ReplicaFailure", "True").or(self.condition("Progressing", "False")).is_some()
    }

    /// Returns the condition of this type if it has this status.
    #[must_use]
    pub fn condition(&self, type_: &str, status: &str) -> Option<&ObservedCondition> {
        self.status.conditions.iter().find(|condition| condition.type_ == type_ && condition.status == status)
    }
}

crate::object_by_metadata!(ObservedDeployment, DEPLOYMENTS, protobuf::DEPLOYMENT);

// === impl WantedDeployment ===

impl Wanted for WantedDeployment {
    type Observed = ObservedDeployment;

    fn name(&self) -> &str {
        &self.name
    }

    fn write_into(&self, child: &mut ObservedDeployment) {
        child.metadata.labels.merge(&self.labels);
        let is_new = child.metadata.uid.is_empty();
        let spec = &mut child.spec;
        if is_new || spec.replicas.unwrap_or(1) != self.replicas {
            spec.replicas = Some(self.replicas);
        }
        spec.selector.match_labels.replace(&self.selector);
        spec.template.metadata.labels.merge(&self.pod_labels);
        let pod = &mut spec.template.spec;
        for container in &self.containers {
            container.write_into(&mut pod.containers, Additions::Go);
        }
        if is_new {
            // Never changed later, so that no Pod restarts for it.
            pod.automount_service_account_token = Some(false);
        }
    }

    fn only_lags(&self, observed: &ObservedDeployment) -> bool {
        !observed.is_available() && observed.has_available_replicas()
    }

    fn destroys(&self, observed: &ObservedDeployment) -> bool {
        self.replicas < observed.spec.replicas.unwrap_or(1)
    }

    fn progress(&self, observed: &ObservedDeployment) -> ChildHealth {
        // The live replica count: during a pause it may differ from the wanted one.
        let wanted = observed.spec.replicas.unwrap_or(1);
        let progress = format!("{} of {wanted} replicas are available", observed.status.available_replicas);
        if observed.is_available() {
            return ChildHealth::ready(progress);
        }
        let failure =
            observed.condition("ReplicaFailure", "True").or(observed.condition("Progressing", "False"));
        let message = match failure {
            Some(condition) => format!("{progress}; {}: {}", condition.reason, condition.message),
            None => progress,
        };
        ChildHealth::reconciling(reason::PROGRESSING, message)
    }
}

#[cfg(test)]
#[cfg(feature = "sim")]
mod tests;
