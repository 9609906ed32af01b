//! `Foo`: one Deployment, with a name and a number of replicas.
//!
//! Mirrors sample-controller `pkg/apis/samplecontroller/v1alpha1/types.go`.

#![expect(unreachable_pub, reason = "the schema derive repeats the struct inside a function")]

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube_derive::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::api::conditions::{self, OtherFields};
use crate::api::schema;

/// Desired state of a Foo: one Deployment of nginx, under a name of your choice.
#[derive(CustomResource, KubeSchema, Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[kube(
    group = "samplecontroller.k8s.io",
    version = "v1alpha1",
    kind = "Foo",
    plural = "foos",
    shortname = "fo",
    category = "windlass",
    namespaced,
    status = "FooStatus",
    derive = "PartialEq",
    doc = "A Foo manages one Deployment of nginx.",
    annotation("api-approved.kubernetes.io", "unapproved, the group of the Go sample-controller"),
    scale(
        spec_replicas_path = ".spec.replicas",
        status_replicas_path = ".status.replicas",
        label_selector_path = ".status.selector"
    ),
    printcolumn(name = "Deployment", type_ = "string", json_path = ".spec.deploymentName"),
    printcolumn(name = "Replicas", type_ = "integer", json_path = ".spec.replicas"),
    printcolumn(name = "Available", type_ = "integer", json_path = ".status.availableReplicas"),
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
    validation = Rule::new("size(self.metadata.name) <= 63")
        .message("metadata.name must have at most 63 characters: it becomes the value of a label on the Deployment and its Pods; choose a shorter name"),
    attr = "x_kube(crates(kube_core = \"::kube_core\"))",
    crates(kube = "::kube_derive", kube_core = "::kube_core")
)]
#[x_kube(crates(kube_core = "::kube_core"))]
#[serde(rename_all = "camelCase")]
pub struct FooSpec {
    /// Name of the Deployment to create and keep, in the namespace of this Foo: a DNS label of 1 to 63
    /// characters (lower-case letters, digits and hyphens). When it changes, a Deployment of the new
    /// name is created first and the old one is deleted after.
    #[schemars(length(min = 1, max = 63), regex(pattern = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"))]
    pub deployment_name: String,

    /// Number of Pods that the Deployment runs, 1 to 10; 1 by default. If somebody scales the Deployment by
    /// hand, it is scaled back.
    #[serde(default = "schema::default_replicas")]
    #[schemars(range(min = 1, max = 10))]
    pub replicas: i32,
}

/// Observed state of a Foo's Deployment.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FooStatus {
    /// Available Pods of the Deployment.
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

    /// `Ready` (the Deployment follows the spec and all replicas are available), `Reconciling` (it is
    /// on its way) and `Stalled` (only a person can help; the message says how).
    #[serde(default, skip_serializing_if = "Vec::is_empty", deserialize_with = "conditions::read_compact")]
    #[schemars(schema_with = "schema::conditions")]
    pub conditions: Vec<Condition>,

    /// Fields that other versions of the operator have written: kept as they are.
    #[serde(flatten)]
    #[schemars(skip)]
    pub other: OtherFields,
}
