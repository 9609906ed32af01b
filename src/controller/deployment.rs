//! What is wanted and what is observed of a Deployment, and the difference by meaning.
//!
//! | field | whose | list key | when the server fills it in |
//! |---|---|---|---|
//! | `metadata.labels` | ours by key, others' stay | | |
//! | `spec.replicas` | ours | | 1 |
//! | `spec.selector.matchLabels` | ours whole; immutable | | |
//! | `spec.template.metadata.labels` | ours by key, others' stay | | |
//! | `spec.template.metadata.annotations` | others' (`kubectl rollout restart` writes there) | | |
//! | `spec.template.spec.containers` | ours by name, others' stay | `name` | |
//! | `.. .image` | ours | | |
//! | `.. .env` | ours whole | order counts | `valueFrom.fieldRef.apiVersion: v1`, `valueFrom.resourceFieldRef.divisor: "0"` |
//! | `.. .ports` | ours whole | order counts | `protocol: TCP` |
//! | everything else | others' | | |
//!
//! # Guarantees
//! - What we write has no difference from what we want, whatever was there before. (test: `after_applying_nothing_differs`)
//! - Applying twice changes nothing the second time. (test: `after_applying_nothing_differs`)
//! - What is not ours stays. (test: `what_is_not_ours_stays`)
//! - What a real server fills in is no difference. (test: `what_is_written_reads_back_without_a_difference`)
//! - The value of an environment variable is shown to nobody. (test: `the_values_of_an_environment_are_not_shown`)

use std::collections::BTreeMap;
use std::hash::BuildHasher;

use k8s_openapi::api::core::v1::{ContainerPort, EnvVar};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::children::{Difference, Wanted};
use super::summary::{Summary, reason};
use crate::api::ApiResource;
use crate::api::labels::Labels;
use crate::cache::{ControllerRef, Meta, Object, ObjectName};

/// Where Deployments live.
pub const DEPLOYMENTS: ApiResource = ApiResource::new("apps", "v1", "Deployment", "deployments");

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

/// A container as a custom resource wants it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct WantedContainer {
    /// Its name.
    pub name: String,
    /// Its image.
    pub image: String,
    /// Its whole environment.
    pub env: Vec<EnvVar>,
    /// All its ports.
    pub ports: Vec<ContainerPort>,
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

/// A container.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct ObservedContainer {
    /// Its name.
    pub name: String,
    /// Its image.
    pub image: String,
    /// Its environment.
    pub env: Vec<EnvVar>,
    /// Its ports.
    pub ports: Vec<ContainerPort>,
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
    /// `Available`, `Progressing`, `ReplicaFailure`.
    pub conditions: Vec<ObservedCondition>,
}

/// A condition of a Deployment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct ObservedCondition {
    /// Which one.
    #[serde(rename = "type")]
    pub type_: String,
    /// `True`, `False` or `Unknown`.
    pub status: String,
    /// Why, in one word.
    pub reason: String,
    /// Why, for a person.
    pub message: String,
}

// === impl ObservedDeployment ===

impl ObservedDeployment {
    /// Whether its rollout is done: the numbers are about the present spec, and all Pods are made
    /// from the present template and available.
    #[must_use]
    pub fn is_available(&self) -> bool {
        let wanted = self.spec.replicas.unwrap_or(1);
        let status = &self.status;
        status.observed_generation >= self.metadata.generation
            && status.updated_replicas >= wanted
            && status.replicas <= status.updated_replicas
            && status.available_replicas >= wanted
    }

    /// The condition of this type, if it has this status.
    #[must_use]
    pub fn condition(&self, type_: &str, status: &str) -> Option<&ObservedCondition> {
        self.status.conditions.iter().find(|condition| condition.type_ == type_ && condition.status == status)
    }
}

impl Object for ObservedDeployment {
    fn resource() -> ApiResource {
        DEPLOYMENTS
    }

    fn object_name(&self) -> ObjectName {
        self.metadata.object_name()
    }

    fn uid(&self) -> &str {
        &self.metadata.uid
    }

    fn resource_version(&self) -> &str {
        &self.metadata.resource_version
    }

    fn generation(&self) -> i64 {
        self.metadata.generation
    }

    fn is_deleting(&self) -> bool {
        self.metadata.deletion_timestamp.is_some()
    }

    fn labels(&self) -> Option<&BTreeMap<String, String>> {
        Some(&self.metadata.labels)
    }

    fn controller(&self) -> Option<ControllerRef<'_>> {
        self.metadata.controller()
    }
}

// === impl WantedDeployment ===

impl Wanted for WantedDeployment {
    type Observed = ObservedDeployment;

    fn name(&self) -> &str {
        &self.name
    }

    fn differences(&self, observed: &ObservedDeployment) -> Vec<Difference> {
        let spec = &observed.spec;
        let mut found = Vec::new();
        labels_differ(&mut found, "metadata.labels", &self.labels, &observed.metadata.labels);
        differs(&mut found, "spec.replicas", &spec.replicas.unwrap_or(1), &self.replicas);
        differs(&mut found, "spec.selector.matchLabels", &spec.selector.match_labels, &self.selector);
        let template = &spec.template;
        labels_differ(
            &mut found,
            "spec.template.metadata.labels",
            &self.pod_labels,
            &template.metadata.labels,
        );
        for wanted in &self.containers {
            let path = format!("spec.template.spec.containers[{}]", wanted.name);
            match template.spec.containers.iter().find(|container| container.name == wanted.name) {
                Some(observed) => wanted.differences(&path, observed, &mut found),
                None => found.push(difference(path, "none".to_owned(), "there".to_owned())),
            }
        }
        found
    }

    fn progress(&self, observed: &ObservedDeployment) -> Summary {
        let progress =
            format!("{} of {} replicas are available", observed.status.available_replicas, self.replicas);
        if observed.is_available() {
            return Summary::ready(progress);
        }
        let failure =
            observed.condition("ReplicaFailure", "True").or(observed.condition("Progressing", "False"));
        let message = match failure {
            Some(condition) => format!("{progress}; {}: {}", condition.reason, condition.message),
            None => progress,
        };
        Summary::reconciling(reason::PROGRESSING, message)
    }

    fn apply(&self, live: &mut Value) {
        merge_labels(live, &["metadata", "labels"], &self.labels);
        let spec = object_at(live, &["spec"]);
        spec.insert("replicas".to_owned(), self.replicas.into());
        object_at(live, &["spec", "selector"]).insert("matchLabels".to_owned(), json!(self.selector));
        merge_labels(live, &["spec", "template", "metadata", "labels"], &self.pod_labels);
        let pod = object_at(live, &["spec", "template", "spec"]);
        let containers = pod.entry("containers").or_insert_with(|| json!([]));
        if !containers.is_array() {
            *containers = json!([]);
        }
        let containers = containers.as_array_mut().expect("it was made an array just now");
        for wanted in &self.containers {
            match containers.iter_mut().find(|container| container["name"] == *wanted.name) {
                Some(container) => wanted.apply(container),
                None => {
                    let mut container = json!({"name": wanted.name});
                    wanted.apply(&mut container);
                    containers.push(container);
                }
            }
        }
    }
}

impl WantedContainer {
    fn differences(&self, path: &str, observed: &ObservedContainer, found: &mut Vec<Difference>) {
        differs(found, &format!("{path}.image"), &observed.image, &self.image);
        let env = |env: &[EnvVar]| env.iter().map(env_with_defaults).collect::<Vec<_>>();
        list_differs(found, format!("{path}.env"), &env(&observed.env), &env(&self.env));
        let ports = |ports: &[ContainerPort]| ports.iter().map(port_with_defaults).collect::<Vec<_>>();
        list_differs(found, format!("{path}.ports"), &ports(&observed.ports), &ports(&self.ports));
    }

    fn apply(&self, container: &mut Value) {
        let fields = object_at(container, &[]);
        fields.insert("image".to_owned(), json!(self.image));
        replace_list(fields, "env", &self.env);
        replace_list(fields, "ports", &self.ports);
    }
}

fn env_with_defaults(variable: &EnvVar) -> EnvVar {
    let mut variable = variable.clone();
    if let Some(source) = &mut variable.value_from {
        if let Some(field) = &mut source.field_ref {
            field.api_version.get_or_insert_with(|| "v1".to_owned());
        }
        if let Some(field) = &mut source.resource_field_ref {
            field.divisor.get_or_insert_with(|| Quantity("0".to_owned()));
        }
    }
    // An empty value and none mean the same, unless the value comes from elsewhere.
    if variable.value_from.is_none() {
        variable.value.get_or_insert_default();
    }
    variable
}

fn port_with_defaults(port: &ContainerPort) -> ContainerPort {
    let mut port = port.clone();
    port.protocol.get_or_insert_with(|| "TCP".to_owned());
    port
}

/// A scalar, which is shown.
fn differs<T: PartialEq + Serialize>(found: &mut Vec<Difference>, field: &str, live: &T, wanted: &T) {
    if live != wanted {
        let text = |value: &T| serde_json::to_string(value).unwrap_or_default();
        found.push(difference(field.to_owned(), text(live), text(wanted)));
    }
}

/// A list, whose values are not shown: an environment may hold secrets.
fn list_differs<T: PartialEq + Serialize>(found: &mut Vec<Difference>, field: String, live: &T, wanted: &T) {
    if live != wanted {
        let text = |value: &T| serde_json::to_string(value).unwrap_or_default();
        let shown = difference(field, text(live), text(wanted));
        found.push(Difference { live: None, wanted: None, ..shown });
    }
}

fn labels_differ(found: &mut Vec<Difference>, field: &str, wanted: &Labels, live: &Labels) {
    for (key, value) in wanted {
        let live = live.get(key);
        if live != Some(value) {
            let live = live.map_or_else(|| "none".to_owned(), |live| format!("{live:?}"));
            found.push(difference(format!("{field}[{key}]"), live, format!("{value:?}")));
        }
    }
}

fn difference(field: String, live: String, wanted: String) -> Difference {
    let fingerprint = foldhash::fast::FixedState::default().hash_one(&wanted);
    Difference { field, live: Some(live), wanted: Some(wanted), fingerprint }
}

/// The object at this path, made where it is missing.
fn object_at<'a>(value: &'a mut Value, path: &[&str]) -> &'a mut Map<String, Value> {
    let mut at = value;
    for step in path {
        if !at.is_object() {
            *at = json!({});
        }
        at = at.as_object_mut().expect("it was made an object just now").entry(*step).or_insert(Value::Null);
    }
    if !at.is_object() {
        *at = json!({});
    }
    at.as_object_mut().expect("it was made an object just now")
}

fn merge_labels(live: &mut Value, path: &[&str], wanted: &Labels) {
    let labels = object_at(live, path);
    for (key, value) in wanted {
        labels.insert(key.clone(), json!(value));
    }
}

fn replace_list<T: Serialize>(fields: &mut Map<String, Value>, name: &str, wanted: &[T]) {
    if wanted.is_empty() {
        fields.remove(name);
    } else {
        fields.insert(name.to_owned(), json!(wanted));
    }
}

#[cfg(test)]
mod tests;
