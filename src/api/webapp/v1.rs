//! `WebApp`: a version of an image, so many times, and the tasks that were run for it.
//!
//! # Guarantees
//! - Each bound of the schema holds just inside and just outside. (test: `each_bound_holds_just_inside_and_just_outside`)
//! - The version wins over the image's own tag, and a registry's port is no tag. (test: `the_version_is_the_tag`)
//! - A status is stored and read with the names of the source document. (test: `a_status_is_written_as_documented`)
//!
//! # Differences from the source document
//! `status.conditions` holds the source's `phase`, `reason`, `message` and `lastTransitionTime` beside the standard
//! fields, so that `kubectl wait` works. `status.steps` is ours: without it nothing knows after a restart what has run.

#![expect(unreachable_pub, reason = "the schema derive repeats the struct inside a function")]

use std::fmt;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube_derive::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What a WebApp asks for: a version of an image, so many times.
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
    doc = "A WebApp asks for a version of a web application; several tasks are run for it, in order on creation and in reverse order on deletion.",
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

    /// How many Pods the Deployment keeps running, 0 or more. As with any change of the spec, all tasks are run again.
    #[schemars(range(min = 0, max = 2_147_483_647))]
    pub replicas: i32,

    /// The image, without a digest; `nginx` when left out. Its tag does not count: the version is the tag.
    #[serde(default = "default_image")]
    #[schemars(
        length(min = 1, max = 1000),
        regex(
            pattern = r"^((\[[0-9A-Fa-f:]+\]|[A-Za-z0-9][-A-Za-z0-9.]*)(:[0-9]+)?/)?[a-z0-9]+([._-]+[a-z0-9]+)*(/[a-z0-9]+([._-]+[a-z0-9]+)*)*(:[A-Za-z0-9_][-A-Za-z0-9_.]*)?(@.*)?$"
        )
    )]
    #[x_kube(validation = Rule::new("!self.contains('@')")
        .message("spec.image must not have a digest: spec.version is the tag of the image, and a digest would win over it; leave out the @ and what follows it"))]
    pub image: String,
}

/// What was observed of a WebApp: its Deployment, and the tasks that were run for it.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WebAppStatus {
    /// How many Pods of the Deployment are available; 0 when no task makes a Deployment.
    #[serde(default)]
    pub available_replicas: i32,

    /// How many Pods the Deployment has, as its own status says.
    #[serde(default)]
    pub replicas: i32,

    /// The selector of the Deployment's Pods, as text: what `kubectl scale` and autoscalers read.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub selector: String,

    /// The generation of this WebApp that this status is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,

    /// `Ready` (all tasks have succeeded for this spec and all replicas are available), `Reconciling` (on the way)
    /// and `Stalled` (only a person can help; the message says how).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<WebAppCondition>,

    /// The value of the annotation `windlass.dev/reconcile-at` when a hook failed or was tried again: another value
    /// asks for another try at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub handled_reconcile_at: Option<String>,

    /// The tasks, in the order in which they are run on creation.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub steps: Vec<WebAppStep>,
}

/// A standard condition, and the phase of the task that it is about.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WebAppCondition {
    /// The fields that every kind's conditions have.
    #[serde(flatten)]
    pub condition: Condition,

    /// The phase of the task that is or was run last.
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

    /// How far the task is.
    #[serde(default)]
    pub phase: Phase,

    /// The hook that runs, or the last that did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Hook")]
    pub hook: Option<Hook>,

    /// The operation ID of that hook: a retry has the same, nothing else has it.
    #[serde(default, rename = "operationID", skip_serializing_if = "String::is_empty")]
    pub operation_id: String,

    /// The generation of this WebApp that the hook is for.
    #[serde(default)]
    pub generation: i64,

    /// How often the hook was tried.
    #[serde(default)]
    pub attempts: i32,

    /// When the hook was tried first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Time>,

    /// When the hook was done, or given up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finished_at: Option<Time>,

    /// Until when a hook that has failed is not tried again, as the server that it calls has asked for (Retry-After).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_before: Option<Time>,

    /// What became of the last try, in words.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,

    /// Whether the last try has failed for good: it is not repeated until the spec or the annotation
    /// `windlass.dev/reconcile-at` changes; of a deletion it is, every 2 minutes.
    #[serde(default, skip_serializing_if = "is_false")]
    pub permanent: bool,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_false(value: &bool) -> bool {
    !value
}

/// How far a task is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Deserialize, Serialize, JsonSchema)]
pub enum Phase {
    /// None of its hooks was run yet for this generation.
    #[default]
    Pending,
    /// A hook of its creation runs.
    Running,
    /// All hooks of its creation are done.
    Succeeded,
    /// A hook has failed: it is tried again, or was given up.
    Failed,
    /// A hook of its deletion runs.
    Undoing,
    /// All hooks of its deletion are done.
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
    /// What a new generation runs of each task.
    pub const CREATION: [Self; 3] = [Self::PreCreate, Self::Create, Self::PostCreate];
    /// What a deletion runs of each task.
    pub const DELETION: [Self; 3] = [Self::PreDelete, Self::Delete, Self::PostDelete];

    /// Its spelling, everywhere: status, operation IDs, requests, log.
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

    /// Whether it belongs to the deletion.
    #[must_use]
    pub const fn is_undo(self) -> bool {
        matches!(self, Self::PreDelete | Self::Delete | Self::PostDelete)
    }

    /// The one after it, of the same task and the same direction.
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

/// The image to run: the repository of `spec.image`, with `spec.version` as its tag.
///
/// ```
/// use windlass::api::webapp::v1::{WebAppSpec, image_reference};
/// let spec = WebAppSpec { version: "1.2".to_owned(), replicas: 1, image: "localhost:5000/nginx:latest".to_owned() };
/// assert_eq!(image_reference(&spec), "localhost:5000/nginx:1.2");
/// ```
#[must_use]
pub fn image_reference(spec: &WebAppSpec) -> String {
    // The schema refuses a digest; one that was stored before does not count.
    let image = spec.image.split_once('@').map_or(spec.image.as_str(), |(image, _)| image);
    // A colon before the last slash is that of a registry's port.
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
