//! The wanted and the observed state of a Deployment, and their differences in meaning.
//!
//! [`FIELDS`] says who owns each field.
//!
//! # Guarantees
//! - A written Deployment has no differences, whatever was there before.
//!   (test: `applied_deployment_has_no_differences`)
//! - Writing it again changes nothing. (test: `applied_deployment_has_no_differences`)
//! - Equal containers of two Deployments are kept once. (test: `equal_containers_are_shared`)
//! - Fields that are not ours are kept. (test: `foreign_deployment_fields_are_kept`)
//! - Defaults of a real server are not differences. (test: `written_deployment_reads_back_without_differences`)

use std::sync::Arc;

use serde::Deserialize;
use serde_json::{Value, json};

use super::container;
pub use super::container::{ObservedContainer, WantedContainer};
use super::difference::{Difference, all_labels_differ, differs, labels_differ, merge_keys, object_at};
use super::fields::Field;
use super::health::{ChildHealth, reason};
pub use super::observed::ObservedCondition;
use super::{AUTOMOUNT, Wanted};
use crate::api::ApiResource;
use crate::api::labels::Labels;
use crate::cache::{Meta, Object, TextMap};

/// The API resource of Deployments.
pub const DEPLOYMENTS: ApiResource = ApiResource::new("apps", "v1", "Deployment", "deployments");

/// The owner of each field of a Deployment; fields that are not named belong to others.
pub const FIELDS: &[Field] = &[
    Field::keys("metadata.labels"),
    Field::others("metadata.annotations"),
    Field::value("spec.replicas").or("1"),
    // Immutable on the server.
    Field::whole("spec.selector.matchLabels"),
    Field::keys("spec.template.metadata.labels"),
    // `kubectl rollout restart` writes there.
    Field::others("spec.template.metadata.annotations"),
    Field::items("spec.template.spec.containers", "name", container::FIELDS),
];

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
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct ObservedDeployment {
    /// Name, uid, labels, owners.
    pub metadata: Meta,
    /// The spec.
    pub spec: ObservedSpec,
    /// The status, from the Deployment controller.
    pub status: ObservedStatus,
}

/// The spec of a Deployment.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
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
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ObservedSelector {
    /// The labels to match.
    pub match_labels: TextMap,
}

/// The template of Pods.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct ObservedTemplate {
    /// The metadata of the Pods.
    pub metadata: ObservedTemplateMeta,
    /// The spec of the Pods.
    pub spec: ObservedPodSpec,
}

/// The metadata of a template.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct ObservedTemplateMeta {
    /// The labels of the Pods.
    pub labels: TextMap,
}

/// The spec of a Pod in a template.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct ObservedPodSpec {
    /// The containers, ours and others'.
    #[serde(deserialize_with = "container::shared")]
    pub containers: Arc<[ObservedContainer]>,
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

crate::object_by_metadata!(ObservedDeployment, DEPLOYMENTS);

// === impl WantedDeployment ===

impl Wanted for WantedDeployment {
    type Observed = ObservedDeployment;

    const FIELDS: &'static [Field] = FIELDS;

    fn name(&self) -> &str {
        &self.name
    }

    fn differences(&self, observed: &ObservedDeployment) -> Vec<Difference> {
        let spec = &observed.spec;
        let mut found = Vec::new();
        labels_differ(&mut found, "metadata.labels", |key| observed.label(key), &self.labels);
        differs(&mut found, "spec.replicas", &spec.replicas.unwrap_or(1), &self.replicas);
        let live = &spec.selector.match_labels;
        all_labels_differ(&mut found, "spec.selector.matchLabels", live, &self.selector);
        let template = &spec.template;
        let labels = &template.metadata.labels;
        labels_differ(&mut found, "spec.template.metadata.labels", |key| labels.get(key), &self.pod_labels);
        for wanted in &self.containers {
            wanted.differences("spec.template.spec.containers", &template.spec.containers, &mut found);
        }
        found
    }

    fn only_lags(&self, observed: &ObservedDeployment) -> bool {
        !observed.is_available() && observed.has_available_replicas()
    }

    fn destroys(&self, observed: &ObservedDeployment, _: &[Difference]) -> bool {
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

    fn write_into(&self, live: &mut Value) {
        merge_keys(live, &["metadata", "labels"], &self.labels);
        let spec = object_at(live, &["spec"]);
        spec.insert("replicas".to_owned(), self.replicas.into());
        object_at(live, &["spec", "selector"]).insert("matchLabels".to_owned(), json!(self.selector));
        merge_keys(live, &["spec", "template", "metadata", "labels"], &self.pod_labels);
        let pod = object_at(live, &["spec", "template", "spec"]);
        if !pod.contains_key("containers") {
            pod.insert(AUTOMOUNT.to_owned(), false.into());
        }
        let containers = pod.entry("containers").or_insert_with(|| json!([]));
        if !containers.is_array() {
            *containers = json!([]);
        }
        let containers = containers.as_array_mut().expect("made an array above");
        for wanted in &self.containers {
            wanted.apply_to(containers);
        }
    }
}

#[cfg(test)]
mod tests;
