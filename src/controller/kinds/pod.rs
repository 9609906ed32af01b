//! The wanted and the observed state of a Pod that an operator manages directly.
//!
//! Only a Pod's labels are updated in place. Hardly anything else is mutable: a Pod whose container differs is
//! *outdated*, and its operator has to replace it. (The image alone could be changed in place, but while restarting the
//! Pod would be neither the old nor the new one.)
//!
//! A Pod that is outdated as soon as it is created was changed by an admission webhook. Replacing it would never end,
//! so call [`WantedPod::is_outdated`] on the response to a create, too.
//!
//! # Guarantees
//! - Writing a Pod again changes nothing, whatever was there before. (test: `writing_a_pod_again_changes_nothing`)
//! - Only labels of an existing Pod are written. (test: `only_labels_are_written_in_place`)
//! - A Pod with another image, with other ports or without the container is outdated.
//!   (test: `changed_container_outdates_a_pod`)
//! - Additions by server, scheduler and admission are not differences and do not outdate a Pod.
//!   (test: `server_additions_to_a_pod_are_no_difference`, `written_pod_reads_back_and_is_not_outdated`)
//! - An evicted Pod is finished. (test: `ready_and_finished_follow_the_status`)

use serde::{Deserialize, Deserializer, Serialize};

use super::Wanted;
use super::container::{self, Additions, ObservedContainer, WantedContainer};
use super::diff::Changes;
use super::difference::{Difference, describe};
use super::health::{ChildHealth, reason};
use super::observed::{ObservedCondition, Part};
use super::protobuf;
use crate::api::ApiResource;
use crate::api::labels::Labels;
use crate::cache::{Meta, Text};

/// The API resource of Pods.
pub const PODS: ApiResource = ApiResource::new("", "v1", "Pod", "pods");

/// A Pod as a custom resource wants it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct WantedPod {
    /// The name.
    pub name: String,
    /// The labels.
    pub labels: Labels,
    /// Our container.
    pub container: WantedContainer,
}

/// The fields of a Pod that the cache keeps.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(default)]
pub struct ObservedPod {
    /// Name, uid, labels, owners.
    pub metadata: Meta,
    /// The containers, and the node.
    pub spec: ObservedPodSpec,
    /// The status, from the kubelet.
    #[serde(skip_serializing)]
    pub status: ObservedPodStatus,
}

/// The spec of a Pod.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ObservedPodSpec {
    /// The containers, ours and others'.
    #[serde(deserialize_with = "container::shared")]
    pub containers: Part<[ObservedContainer]>,
    /// Whether the Pod gets a token of its service account.
    pub automount_service_account_token: Option<bool>,
    /// The node; empty until the Pod is scheduled.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub node_name: Text,
}

/// The status of a Pod.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct ObservedPodStatus {
    /// `Pending`, `Running`, `Succeeded`, `Failed`, `Unknown`.
    pub phase: Text,
    /// The reason, in one word, such as `Evicted`.
    pub reason: Text,
    /// The message, for people.
    pub message: Text,
    /// The condition `Ready`; other conditions are not kept.
    #[serde(rename = "conditions", deserialize_with = "only_ready")]
    pub ready: Option<ObservedCondition>,
}

fn only_ready<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<ObservedCondition>, D::Error> {
    let all = Vec::<ObservedCondition>::deserialize(deserializer)?;
    Ok(all.into_iter().find(|condition| condition.type_ == "Ready"))
}

crate::object_by_metadata!(ObservedPod, PODS, protobuf::POD);

// === impl ObservedPod ===

impl ObservedPod {
    /// Whether the condition `Ready` is `True`, which it may be even while the Pod is being deleted.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.status.ready.as_ref().is_some_and(|ready| ready.status == "True")
    }

    /// Whether the Pod has ended, successfully or not; it is never restarted. An evicted Pod is `Failed`.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        matches!(self.status.phase.as_str(), "Succeeded" | "Failed")
    }
}

// === impl WantedPod ===

impl WantedPod {
    /// Returns the differences that cannot be written in place; if there are any, the Pod has to be replaced.
    #[must_use]
    pub fn is_outdated(&self, observed: &ObservedPod) -> Vec<Difference> {
        let mut desired = observed.spec.containers.clone();
        self.container.write_into(&mut desired, Additions::Stay);
        if desired == observed.spec.containers {
            return Vec::new();
        }
        let spec = ObservedPodSpec { containers: desired, ..observed.spec.clone() };
        let desired = ObservedPod { spec, ..observed.clone() };
        Changes::between(&PODS, observed, &desired).differences
    }
}

impl Wanted for WantedPod {
    type Observed = ObservedPod;

    fn name(&self) -> &str {
        &self.name
    }

    /// Writes the labels; the rest only into a new Pod. See [`WantedPod::is_outdated`].
    fn write_into(&self, child: &mut ObservedPod) {
        child.metadata.labels.merge(&self.labels);
        if child.metadata.uid.is_empty() {
            child.spec.automount_service_account_token = Some(false);
            self.container.write_into(&mut child.spec.containers, Additions::Go);
        }
    }

    fn progress(&self, observed: &ObservedPod) -> ChildHealth {
        let name = &self.name;
        let outdated = self.is_outdated(observed);
        if !outdated.is_empty() {
            let message = format!("Pod {name:?} is outdated and will be replaced: {}", describe(&outdated));
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
        let said = [&status.phase, why, message].map(Text::as_str);
        let said: Vec<&str> = said.into_iter().filter(|said| !said.is_empty()).collect();
        ChildHealth::reconciling(
            reason::PROGRESSING,
            format!("Pod {name:?} is not ready: {}", said.join(", ")),
        )
    }
}

#[cfg(test)]
#[cfg(feature = "sim")]
mod tests;
