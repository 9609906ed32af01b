//! What is wanted and what is observed of a Pod that an operator drives by itself, and the difference by meaning.
//!
//! Whose each field is stands in [`FIELDS`].
//!
//! A Pod's labels may be changed in place, and are. Hardly anything else may: a Pod whose container is not as
//! wanted is *outdated*, and whoever drives it has to replace it. (The image alone could be changed in place; then
//! the Pod would be neither the old nor the new one while it restarts.)
//!
//! A Pod that is outdated the moment that it is created was changed by an admission webhook. To replace it would
//! never end: ask [`WantedPod::is_outdated`] of what a create answers, too.
//!
//! # Guarantees
//! - What we write has no difference from what we want, whatever was there before, and writing it twice changes nothing. (test: `after_applying_nothing_differs_in_a_pod`)
//! - Of a Pod that is there nothing is written but labels. (test: `only_labels_are_written_in_place`)
//! - A Pod with another image, other ports or no such container is outdated. (test: `another_container_outdates_a_pod`)
//! - What server, scheduler and admission add is no difference and does not outdate a Pod. (test: `what_is_added_to_a_pod_is_no_difference`, `a_pod_that_is_written_reads_back_without_a_difference_and_is_not_outdated`)
//! - An evicted Pod is finished. (test: `ready_and_finished_are_reported_by_the_status`)

use serde::{Deserialize, Deserializer};
use serde_json::{Value, json};

use super::Wanted;
use super::container::{self, ObservedContainer, WantedContainer};
use super::difference::{Difference, describe, labels_differ, merge_keys, object_at};
use super::fields::Field;
use super::health::{ChildHealth, reason};
use super::observed::{ObservedCondition, object_by_metadata};
use crate::api::ApiResource;
use crate::api::labels::Labels;
use crate::cache::Meta;

/// Where Pods live.
pub const PODS: ApiResource = ApiResource::new("", "v1", "Pod", "pods");

/// Whose each field of a Pod is; what is not named is others': scheduler, service account, tolerations, sidecars.
pub const FIELDS: &[Field] =
    &[Field::keys("metadata.labels"), Field::items("spec.containers", "name", container::FIELDS).replaces()];

/// A Pod as a custom resource wants it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct WantedPod {
    /// Its name.
    pub name: String,
    /// Its labels.
    pub labels: Labels,
    /// The container that is ours.
    pub container: WantedContainer,
}

/// What the cache keeps of a Pod.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct ObservedPod {
    /// Name, uid, labels, owners.
    pub metadata: Meta,
    /// What runs in it, and where.
    pub spec: ObservedPodSpec,
    /// What the kubelet says of it.
    pub status: ObservedPodStatus,
}

/// What runs in a Pod, and where.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ObservedPodSpec {
    /// Ours and others'.
    pub containers: Vec<ObservedContainer>,
    /// Its node; empty before it is scheduled.
    pub node_name: String,
}

/// What the kubelet says of a Pod.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct ObservedPodStatus {
    /// `Pending`, `Running`, `Succeeded`, `Failed`, `Unknown`.
    pub phase: String,
    /// Why, in one word: `Evicted` and the like.
    pub reason: String,
    /// Why, for a person.
    pub message: String,
    /// The condition `Ready`, alone of all conditions.
    #[serde(rename = "conditions", deserialize_with = "only_ready")]
    pub ready: Option<ObservedCondition>,
}

fn only_ready<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<ObservedCondition>, D::Error> {
    let all = Vec::<ObservedCondition>::deserialize(deserializer)?;
    Ok(all.into_iter().find(|condition| condition.type_ == "Ready"))
}

object_by_metadata!(ObservedPod, PODS);

// === impl ObservedPod ===

impl ObservedPod {
    /// Whether it serves: its condition `Ready` is `True`. That may be so while it is being deleted.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.status.ready.as_ref().is_some_and(|ready| ready.status == "True")
    }

    /// Whether it has ended for good, well or not: an evicted Pod is `Failed`. It is never started again.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        matches!(self.status.phase.as_str(), "Succeeded" | "Failed")
    }
}

// === impl WantedPod ===

impl WantedPod {
    /// What is not as wanted and cannot be written in place: if anything, the Pod has to be replaced.
    #[must_use]
    pub fn is_outdated(&self, observed: &ObservedPod) -> Vec<Difference> {
        let mut found = Vec::new();
        self.container.outdates("spec.containers", &observed.spec.containers, &mut found);
        found
    }
}

impl Wanted for WantedPod {
    type Observed = ObservedPod;

    const FIELDS: &'static [Field] = FIELDS;

    fn name(&self) -> &str {
        &self.name
    }

    /// What can be written in place; for the rest see [`WantedPod::is_outdated`].
    fn differences(&self, observed: &ObservedPod) -> Vec<Difference> {
        let mut found = Vec::new();
        labels_differ(&mut found, "metadata.labels", &observed.metadata.labels, &self.labels);
        found
    }

    fn write_into(&self, live: &mut Value) {
        merge_keys(live, &["metadata", "labels"], &self.labels);
        if live.pointer("/spec/containers").is_none() {
            object_at(live, &["spec"]).insert("containers".to_owned(), json!([self.container.to_json()]));
        }
    }

    fn progress(&self, observed: &ObservedPod) -> ChildHealth {
        let name = &self.name;
        let outdated = self.is_outdated(observed);
        if !outdated.is_empty() {
            let message = format!("Pod {name:?} is to be replaced: {}", describe(&outdated));
            return ChildHealth::reconciling(reason::PROGRESSING, message);
        }
        if observed.is_ready() {
            return ChildHealth::ready(format!("Pod {name:?} is ready"));
        }
        let status = &observed.status;
        let (why, message) = match &status.ready {
            Some(ready) => (&ready.reason, &ready.message),
            None => (&status.reason, &status.message),
        };
        let said = [&status.phase, why, message].map(String::as_str);
        let said: Vec<&str> = said.into_iter().filter(|said| !said.is_empty()).collect();
        ChildHealth::reconciling(
            reason::PROGRESSING,
            format!("Pod {name:?} is not ready: {}", said.join(", ")),
        )
    }
}

#[cfg(test)]
mod tests;
