//! A custom resource with a status, and the part of the status that all kinds have.

use std::fmt;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube_core::object::{HasSpec, HasStatus};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::api::conditions::BasicStatus;
use crate::cache::{Slim, TypedObject, object};

/// A custom resource whose status has the common fields: any type that `kube_core` knows, or [`Slim`] of it, which takes
/// less memory.
pub trait CustomResource: TypedObject + fmt::Debug {
    /// The type of the status.
    type Status: CommonStatus;

    /// Returns the stored status, if any.
    fn status(&self) -> Option<&Self::Status>;
    /// Drops fields that operators do not read; called before the object is cached.
    fn trim(&mut self) {}
}

impl<K> CustomResource for K
where
    K: kube_core::Resource<DynamicType = (), Scope: 'static>
        + HasStatus<Status: CommonStatus>
        + DeserializeOwned
        + fmt::Debug
        + Send
        + Sync
        + 'static,
{
    type Status = <K as HasStatus>::Status;

    fn status(&self) -> Option<&Self::Status> {
        HasStatus::status(self)
    }

    fn trim(&mut self) {
        object::trim(self);
    }
}

impl<K> CustomResource for Slim<K>
where
    K: kube_core::Resource<DynamicType = (), Scope: 'static> + HasSpec + HasStatus + 'static,
    K::Spec: DeserializeOwned + Send + Sync,
    K::Status: CommonStatus + DeserializeOwned,
{
    type Status = K::Status;

    fn status(&self) -> Option<&Self::Status> {
        self.status.as_ref()
    }
}

crate::common_status!(BasicStatus, other);

/// The fields that every status has.
pub trait CommonStatus: Clone + Default + PartialEq + Serialize + fmt::Debug + Send + Sync + 'static {
    /// Returns the generation that the status observes.
    fn observed_generation(&self) -> Option<i64>;
    /// Returns the conditions.
    fn conditions(&self) -> Vec<Condition>;
    /// Sets observed generation and conditions.
    fn set_common(&mut self, observed_generation: Option<i64>, conditions: Vec<Condition>);

    /// Takes over the fields of the stored status that this version does not know: a status is replaced as a whole.
    fn keep_unknown(&mut self, _stored: &Self) {}
}

/// Defines a custom resource by its spec, as `#[derive(CustomResource)]` of kube-rs does, with the crates that this one
/// re-exports: a crate that uses it needs no dependency on `serde`, `schemars`, `kube` or `k8s-openapi` for it. Field names
/// are in camel case in the API.
///
/// ```
/// use windlass::prelude::*;
///
/// custom_resource! {
///     #[kube(group = "example.com", version = "v1", kind = "Greeting", namespaced, status = "BasicStatus")]
///     struct GreetingSpec {
///         text: String,
///         repeat_count: Option<u32>,
///     }
/// }
///
/// let greeting = Greeting::new("hello", GreetingSpec { text: "Hello".to_owned(), repeat_count: Some(2) });
/// assert_eq!(json!(greeting)["spec"], json!({"text": "Hello", "repeatCount": 2}));
/// assert_eq!(Greeting::crd_name(), "greetings.example.com");
/// ```
#[macro_export]
macro_rules! custom_resource {
    ($(#[$attribute:meta])* $visibility:vis struct $spec:ident $fields:tt) => {
        #[derive(
            Clone,
            Debug,
            $crate::kube_derive::CustomResource,
            $crate::serde::Deserialize,
            $crate::serde::Serialize,
            $crate::schemars::JsonSchema,
        )]
        #[serde(crate = "windlass::serde", rename_all = "camelCase")]
        #[schemars(crate = "windlass::schemars")]
        #[kube(crates(
            kube_core = "windlass::kube_core",
            k8s_openapi = "windlass::k8s_openapi",
            schemars = "windlass::schemars",
            serde = "windlass::serde",
            serde_json = "windlass::serde_json"
        ))]
        $(#[$attribute])*
        $visibility struct $spec $fields
    };
}

/// Implements [`CommonStatus`](crate::controller::CommonStatus) for a status with the fields `observed_generation`, an
/// `Option<i64>`, and `conditions`, a `Vec` of [`Condition`](crate::controller::Condition). A second argument names the
/// flattened field of what this version does not know, of the type [`OtherFields`](crate::api::conditions::OtherFields).
///
/// ```
/// use serde::Serialize;
/// use windlass::controller::{CommonStatus, Condition};
///
/// #[derive(Clone, Debug, Default, PartialEq, Serialize)]
/// struct GreetingStatus {
///     observed_generation: Option<i64>,
///     conditions: Vec<Condition>,
/// }
///
/// windlass::common_status!(GreetingStatus);
///
/// let mut status = GreetingStatus::default();
/// status.set_common(Some(3), Vec::new());
/// assert_eq!(CommonStatus::observed_generation(&status), Some(3));
/// ```
#[macro_export]
macro_rules! common_status {
    ($status:ty $(, $other:ident)?) => {
        impl $crate::controller::CommonStatus for $status {
            fn observed_generation(&self) -> Option<i64> {
                self.observed_generation
            }

            fn conditions(&self) -> Vec<$crate::controller::Condition> {
                self.conditions.clone()
            }

            fn set_common(
                &mut self,
                observed_generation: Option<i64>,
                conditions: Vec<$crate::controller::Condition>,
            ) {
                self.observed_generation = observed_generation;
                self.conditions = conditions;
            }
            $(
                fn keep_unknown(&mut self, stored: &Self) {
                    self.$other.clone_from(&stored.$other);
                }
            )?
        }
    };
}
