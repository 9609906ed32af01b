//! `WebApp`: a version of an image, a number of replicas, and the state of its tasks.
//!
//! # Guarantees
//! - Each bound of the schema accepts the last valid value and refuses the next. (test: `schema_enforces_each_bound`)
//! - The version replaces the image's own tag; a registry's port is not a tag. (test: `version_replaces_the_image_tag`)
//! - A status has the field names of the source document. (test: `a_status_is_written_as_documented`)
//!
//! # Differences from the source document
//! `status.conditions` holds the source's `phase`, `reason`, `message` and `lastTransitionTime` beside the standard
//! fields, so that `kubectl wait` works. `status.steps` is ours: it records across restarts which hooks have run.

#![expect(unreachable_pub, reason = "the schema derive repeats the struct inside a function")]

use std::fmt;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube_derive::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::api::conditions::{self, OtherFields};

/// Desired state of a WebApp: image version and number of replicas.
#[derive(CustomResource, KubeSchema, Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[kube(
    group = "jiajunhuang.com",
    version = "v1",
    kind = "WebApp",
    plural = "webapps",
    shortname = "webapp",
    category = "windlass",
    namespaced,
    status = "WebAppStatus",
    derive = "PartialEq",
    doc = "A WebApp runs a list of tasks for a version of a web application, in order on creation and in reverse order on deletion.",
    scale(
        spec_replicas_path = ".spec.replicas",
        status_replicas_path = ".status.replicas",
        label_selector_path = ".status.selector"
    ),
    printcolumn(name = "Replicas", type_ = "integer", json_path = ".spec.replicas"),
    printcolumn(name = "Version", type_ = "string", json_path = ".spec.version"),
    printcolumn(
        name = "Ready",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Ready\")].status"
    ),
    printcolumn(
        name = "Reason",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Ready\")].reason",
        priority = 1
    ),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    validation = Rule::new("size(self.metadata.name) <= 63 && !self.metadata.name.contains('.')")
        .message("metadata.name must be a DNS label of at most 63 characters (lower-case letters, digits and hyphens, no dots): it names the container and becomes the value of a label; choose another name"),
    attr = "x_kube(crates(kube_core = \"::kube_core\"))",
    crates(kube = "::kube_derive", kube_core = "::kube_core")
)]
#[x_kube(crates(kube_core = "::kube_core"))]
#[serde(rename_all = "camelCase")]
pub struct WebAppSpec {
    /// The version to run: it is used as the tag of the image (at most 128 letters, digits, `_`, `.` and `-`, not
    /// starting with `.` or `-`).
    #[schemars(length(min = 1, max = 128), regex(pattern = r"^[A-Za-z0-9_][-A-Za-z0-9_.]*$"))]
    pub version: String,

    /// Number of Pods that the Deployment runs, 0 or more. As with any change of the spec, all tasks are run again.
    #[schemars(range(min = 0, max = 2_147_483_647))]
    pub replicas: i32,

    /// Image without a digest; `nginx` by default. Its tag is ignored: spec.version is the tag.
    #[serde(default = "default_image")]
    #[schemars(
        length(min = 1, max = 1000),
        regex(
            pattern = r"^((\[[0-9A-Fa-f:]+\]|[A-Za-z0-9][-A-Za-z0-9.]*)(:[0-9]+)?/)?[a-z0-9]+([._-]+[a-z0-9]+)*(/[a-z0-9]+([._-]+[a-z0-9]+)*)*(:[A-Za-z0-9_][-A-Za-z0-9_.]*)?(@.*)?$"
        )
    )]
    #[x_kube(validation = Rule::new("!self.contains('@')")
        .message("spec.image must not have a digest, which would override the tag given by spec.version; remove the @ and what follows it"))]
    pub image: String,
}

/// Observed state of a WebApp: its Deployment, and the tasks that were run for it.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WebAppStatus {
    /// Available Pods of the Deployment; 0 if no task manages a Deployment.
    #[serde(default)]
    pub available_replicas: i32,

    /// Number of Pods of the Deployment, according to its status.
    #[serde(default)]
    pub replicas: i32,

    /// The selector of the Deployment's Pods, as text: what `kubectl scale` and autoscalers read.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub selector: String,

    /// Generation of the spec that this status describes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,

    /// `Ready` (all tasks have succeeded for this spec and all replicas are available), `Reconciling` (on the way)
    /// and `Stalled` (only a person can help; the message says how).
    #[serde(default, skip_serializing_if = "Vec::is_empty", deserialize_with = "conditions::read_compact")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<WebAppCondition>,

    /// Value of the annotation `windlass.dev/reconcile-at` at the last failure or retry of a hook; another value
    /// triggers a retry at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub handled_reconcile_at: Option<String>,

    /// The tasks, in the order in which they are run on creation.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub steps: Vec<WebAppStep>,

    /// Fields that other versions of the operator have written: kept as they are.
    #[serde(flatten)]
    #[schemars(skip)]
    pub other: OtherFields,
}

/// A standard condition, and the phase of the task that it is about.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WebAppCondition {
    /// The fields that every kind's conditions have.
    #[serde(flatten)]
    pub condition: Condition,

    /// Phase of the current or most recent task.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Phase")]
    pub phase: Option<Phase>,
}

/// One task of a WebApp: how far it is, and the last of its hooks.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WebAppStep {
    /// The task's name.
    pub name: String,

    /// Progress of the task.
    #[serde(default)]
    pub phase: Phase,

    /// The current or most recent hook.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Hook")]
    pub hook: Option<Hook>,

    /// Operation ID of the hook, shared by its retries and by no other operation.
    #[serde(default, rename = "operationID", skip_serializing_if = "String::is_empty")]
    pub operation_id: String,

    /// Generation of the WebApp for which the hook runs.
    #[serde(default)]
    pub generation: i64,

    /// Number of attempts of the hook.
    #[serde(default)]
    pub attempts: i32,

    /// When the first attempt started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Time>,

    /// When the last attempt finished.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finished_at: Option<Time>,

    /// Earliest time of the next attempt, as requested by the called server (Retry-After).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_before: Option<Time>,

    /// Why the last attempt failed, or what the hook waits for; empty otherwise.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,

    /// Whether the last attempt failed permanently: no retry until the spec or the annotation
    /// `windlass.dev/reconcile-at` changes; hooks of a deletion are retried every 2 min.
    #[serde(default, skip_serializing_if = "is_false")]
    pub permanent: bool,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_false(value: &bool) -> bool {
    !value
}

/// Progress of a task.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Deserialize, Serialize, JsonSchema)]
pub enum Phase {
    /// No hook has run yet for this generation.
    #[default]
    Pending,
    /// A creation hook is running.
    Running,
    /// All creation hooks have succeeded.
    Succeeded,
    /// A hook has failed: it will be retried, or waits for a user.
    Failed,
    /// A deletion hook is running.
    Undoing,
    /// All deletion hooks have succeeded.
    Undone,
}

/// One of a task's six hooks, in the order in which they are run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Hook {
    /// Before the creation.
    PreCreate,
    /// The creation, or the change to a new spec.
    Create,
    /// After the creation.
    PostCreate,
    /// Before the deletion.
    PreDelete,
    /// The deletion.
    Delete,
    /// After the deletion.
    PostDelete,
}

// === impl Hook ===

impl Hook {
    /// The hooks that a new generation runs for each task.
    pub const CREATION: [Self; 3] = [Self::PreCreate, Self::Create, Self::PostCreate];
    /// The hooks that a deletion runs for each task.
    pub const DELETION: [Self; 3] = [Self::PreDelete, Self::Delete, Self::PostDelete];

    /// Returns the hook's name as in status, operation IDs, requests and logs.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::PreCreate => "pre_create",
            Self::Create => "create",
            Self::PostCreate => "post_create",
            Self::PreDelete => "pre_delete",
            Self::Delete => "delete",
            Self::PostDelete => "post_delete",
        }
    }

    /// Whether the hook belongs to the deletion.
    #[must_use]
    pub const fn is_undo(self) -> bool {
        matches!(self, Self::PreDelete | Self::Delete | Self::PostDelete)
    }

    /// Returns the next hook of the same task and direction.
    ///
    /// ```
    /// use windlass::api::webapp::v1::Hook;
    /// assert_eq!(Hook::PreCreate.next(), Some(Hook::Create));
    /// assert_eq!(Hook::PostCreate.next(), None);
    /// ```
    #[must_use]
    pub const fn next(self) -> Option<Self> {
        match self {
            Self::PreCreate => Some(Self::Create),
            Self::Create => Some(Self::PostCreate),
            Self::PreDelete => Some(Self::Delete),
            Self::Delete => Some(Self::PostDelete),
            Self::PostCreate | Self::PostDelete => None,
        }
    }
}

impl fmt::Display for Hook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

// === free functions ===

/// Returns the image to run: the repository of `spec.image`, with `spec.version` as its tag.
///
/// ```
/// use windlass::api::webapp::v1::{WebAppSpec, image_reference};
/// let spec = WebAppSpec { version: "1.2".to_owned(), replicas: 1, image: "localhost:5000/nginx:latest".to_owned() };
/// assert_eq!(image_reference(&spec), "localhost:5000/nginx:1.2");
/// ```
#[must_use]
pub fn image_reference(spec: &WebAppSpec) -> String {
    // The schema refuses a digest; a digest stored by an older version is ignored.
    let image = spec.image.split_once('@').map_or(spec.image.as_str(), |(image, _)| image);
    // A colon before the last slash belongs to a registry's port.
    let last_part = image.rfind('/').map_or(0, |slash| slash + 1);
    let repository = match image[last_part..].find(':') {
        Some(colon) => &image[..last_part + colon],
        None => image,
    };
    format!("{repository}:{}", spec.version)
}

fn default_image() -> String {
    "nginx".to_owned()
}

#[cfg(test)]
mod tests;
