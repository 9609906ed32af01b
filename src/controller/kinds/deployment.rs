//! What is wanted and what is observed of a Deployment, and the difference by meaning.
//!
//! Whose each field is stands in [`FIELDS`].
//!
//! # Guarantees
//! - What we write has no difference from what we want, whatever was there before. (test: `after_applying_nothing_differs`)
//! - Applying twice changes nothing the second time. (test: `after_applying_nothing_differs`)
//! - What is not ours stays. (test: `what_is_not_ours_stays`)
//! - What a real server fills in is no difference. (test: `what_is_written_reads_back_without_a_difference`)

use serde::Deserialize;
use serde_json::{Value, json};

use super::Wanted;
use super::container;
pub use super::container::{ObservedContainer, WantedContainer};
use super::difference::{Difference, differs, labels_differ, merge_keys, object_at};
use super::fields::Field;
use super::health::{ChildHealth, reason};
pub use super::observed::ObservedCondition;
use super::observed::object_by_metadata;
use crate::api::ApiResource;
use crate::api::labels::Labels;
use crate::cache::Meta;

/// Where Deployments live.
pub const DEPLOYMENTS: ApiResource = ApiResource::new("apps", "v1", "Deployment", "deployments");

/// Whose each field of a Deployment is; what is not named is others'.
pub const FIELDS: &[Field] = &[
    Field::keys("metadata.labels"),
    Field::others("metadata.annotations"),
    Field::value("spec.replicas").or("1"),
    // The server refuses another one.
    Field::whole("spec.selector.matchLabels"),
    Field::keys("spec.template.metadata.labels"),
    // `kubectl rollout restart` writes there.
    Field::others("spec.template.metadata.annotations"),
    Field::items("spec.template.spec.containers", "name", container::FIELDS),
];

/// A Deployment as a custom resource wants it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct WantedDeployment {
    /// Its name.
    pub name: String,
    /// Its labels.
    pub labels: Labels,
    /// The labels by which it finds its Pods.
    pub selector: Labels,
    /// The labels of its Pods: the selector's and more.
    pub pod_labels: Labels,
    /// How many Pods.
    pub replicas: i32,
    /// The containers that are ours.
    pub containers: Vec<WantedContainer>,
}

/// What the cache keeps of a Deployment.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct ObservedDeployment {
    /// Name, uid, labels, owners.
    pub metadata: Meta,
    /// What it asks for.
    pub spec: ObservedSpec,
    /// What the Deployment controller says of it.
    pub status: ObservedStatus,
}

/// What a Deployment asks for.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct ObservedSpec {
    /// How many Pods; the server fills in 1.
    pub replicas: Option<i32>,
    /// How it finds its Pods.
    pub selector: ObservedSelector,
    /// What its Pods are made from.
    pub template: ObservedTemplate,
}

/// How a Deployment finds its Pods.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ObservedSelector {
    /// By these labels.
    pub match_labels: Labels,
}

/// What Pods are made from.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct ObservedTemplate {
    /// Their labels.
    pub metadata: ObservedTemplateMeta,
    /// Their containers.
    pub spec: ObservedPodSpec,
}

/// The metadata of a template.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct ObservedTemplateMeta {
    /// Labels of the Pods.
    pub labels: Labels,
}

/// What runs in a Pod.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct ObservedPodSpec {
    /// Ours and others'.
    pub containers: Vec<ObservedContainer>,
}

/// What the Deployment controller says.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ObservedStatus {
    /// The generation that the numbers below are about.
    pub observed_generation: i64,
    /// Pods.
    pub replicas: i32,
    /// Pods made from the present template.
    pub updated_replicas: i32,
    /// Pods that are ready.
    pub ready_replicas: i32,
    /// Pods that have been ready long enough.
    pub available_replicas: i32,
    /// Pods that are wanted and not available.
    pub unavailable_replicas: i32,
    /// Pods that are on their way out, where the server counts them.
    pub terminating_replicas: Option<i32>,
    /// How often the name of a ReplicaSet was taken.
    pub collision_count: Option<i32>,
    /// `Available`, `Progressing`, `ReplicaFailure`.
    pub conditions: Vec<ObservedCondition>,
}

// === impl ObservedDeployment ===

impl ObservedDeployment {
    /// Whether its rollout is done: the numbers are about the present spec, and there are as many Pods as are wanted,
    /// all made from the present template and available.
    #[must_use]
    pub fn is_available(&self) -> bool {
        self.status.observed_generation >= self.metadata.generation && self.has_available_replicas()
    }

    /// The same by the numbers alone, whichever spec they are about.
    fn has_available_replicas(&self) -> bool {
        let wanted = self.spec.replicas.unwrap_or(1);
        let status = &self.status;
        status.updated_replicas >= wanted && status.replicas <= wanted && status.available_replicas >= wanted
    }

    /// Whether its Pods are still on their way to the present template: the Deployment controller has not seen the
    /// present spec, or has not said yet that all of them were available once. Pods that come and go afterwards are no
    /// rollout.
    #[must_use]
    pub fn is_rolling_out(&self) -> bool {
        let progress = self.condition("Progressing", "True");
        self.status.observed_generation < self.metadata.generation
            || progress.is_none_or(|condition| condition.reason != "NewReplicaSetAvailable")
    }

    /// Whether the Deployment controller says that its rollout does not come to an end by itself.
    #[must_use]
    pub fn has_failed(&self) -> bool {
        self.condition("ReplicaFailure", "True").or(self.condition("Progressing", "False")).is_some()
    }

    /// The condition of this type, if it has this status.
    #[must_use]
    pub fn condition(&self, type_: &str, status: &str) -> Option<&ObservedCondition> {
        self.status.conditions.iter().find(|condition| condition.type_ == type_ && condition.status == status)
    }
}

object_by_metadata!(ObservedDeployment, DEPLOYMENTS);

// === impl WantedDeployment ===

impl Wanted for WantedDeployment {
    type Observed = ObservedDeployment;

    const FIELDS: &'static [Field] = FIELDS;

    fn name(&self) -> &str {
        &self.name
    }

    fn differences(&self, observed: &ObservedDeployment) -> Vec<Difference> {
        let (metadata, spec) = (&observed.metadata, &observed.spec);
        let mut found = Vec::new();
        labels_differ(&mut found, "metadata.labels", &metadata.labels, &self.labels);
        differs(&mut found, "spec.replicas", &spec.replicas.unwrap_or(1), &self.replicas);
        differs(&mut found, "spec.selector.matchLabels", &spec.selector.match_labels, &self.selector);
        let template = &spec.template;
        let labels = &template.metadata.labels;
        labels_differ(&mut found, "spec.template.metadata.labels", labels, &self.pod_labels);
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
        // Those that it asks for itself: while a pause lasts, these are not those that are wanted.
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
        let containers = pod.entry("containers").or_insert_with(|| json!([]));
        if !containers.is_array() {
            *containers = json!([]);
        }
        let containers = containers.as_array_mut().expect("it was made an array just now");
        for wanted in &self.containers {
            wanted.apply_to(containers);
        }
    }
}

#[cfg(test)]
mod tests;
