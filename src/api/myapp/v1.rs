//! `Myapp`: one resource for a Deployment, a Service and an Ingress.
//!
//! Mirrors `api/v1/myapp_types.go` of the tutorial. Unlike there, a host is a DNS name of at most 253 characters
//! (there 1000, which no Ingress accepts), and images, environments and resources that no Pod can have are refused.

#![expect(unreachable_pub, reason = "the schema derive repeats the struct inside a function")]

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{EnvVar, ResourceRequirements};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube_derive::{CustomResource, KubeSchema};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

use crate::api::conditions::{self, OtherFields};
use crate::api::schema;

/// Desired state of a Myapp: Pods of one image, a Service in front of them and, with a host, an Ingress.
#[derive(CustomResource, KubeSchema, Clone, Debug, PartialEq, Deserialize, Serialize)]
#[kube(
    group = "myapp.timd.cn",
    version = "v1",
    kind = "Myapp",
    plural = "myapps",
    shortname = "ma",
    category = "windlass",
    namespaced,
    status = "MyappStatus",
    derive = "PartialEq",
    doc = "A Myapp manages a Deployment, a Service and, with a host, an Ingress, all of the same name as the Myapp.",
    scale(
        spec_replicas_path = ".spec.replicas",
        status_replicas_path = ".status.replicas",
        label_selector_path = ".status.selector"
    ),
    printcolumn(name = "Host", type_ = "string", json_path = ".spec.host"),
    printcolumn(name = "Replicas", type_ = "integer", json_path = ".spec.replicas"),
    printcolumn(name = "Status", type_ = "string", json_path = ".status.status"),
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
    printcolumn(name = "Image", type_ = "string", json_path = ".spec.image", priority = 1),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    validation = schema::names_a_service(),
    attr = "x_kube(crates(kube_core = \"::kube_core\"))",
    crates(kube = "::kube_derive", kube_core = "::kube_core")
)]
#[x_kube(crates(kube_core = "::kube_core"))]
#[serde(rename_all = "camelCase")]
pub struct MyappSpec {
    /// Number of Pods that the Deployment runs, 1 to 1000; 1 by default. If somebody scales the Deployment by
    /// hand, it is scaled back.
    #[serde(default = "schema::default_replicas")]
    #[schemars(range(min = 1, max = 1000))]
    pub replicas: i32,

    /// Image of the container, such as `nginx:1.27`: 3 to 1000 characters without spaces. It is pulled when
    /// the node does not have it. A change replaces the Pods step by step.
    #[schemars(length(min = 3, max = 1000), regex(pattern = schema::IMAGE))]
    pub image: String,

    /// Port on which the container listens, TCP, 1 to 65535. The Service sends there.
    #[schemars(range(min = 1, max = 65535))]
    pub container_port: i32,

    /// Resource limits and requests of the container; none if omitted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::resources")]
    pub resources: Option<ResourceRequirements>,

    /// Environment variables of the container, at most 1024; none when left out. A variable that somebody adds
    /// to the Deployment by hand is removed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::environment")]
    pub env: Vec<EnvVar>,

    /// Port of the Service, to which the Ingress forwards, TCP, 1 to 65535.
    #[schemars(range(min = 1, max = 65535))]
    pub service_port: i32,

    /// Host name of the Ingress: a lower-case DNS name of 3 to 253 characters, optionally starting with `*.`. Without
    /// a host there is no Ingress; when it is removed, the Ingress is deleted. The Ingress has the class `nginx`, which
    /// needs a controller in the cluster; a class changed by hand is reverted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "host")]
    pub host: Option<String>,
}

/// Observed state of a Myapp's children.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MyappStatus {
    /// Number of Pods of the Deployment, according to its status.
    #[serde(default)]
    pub replicas: i32,

    /// Pods that are ready.
    #[serde(default)]
    pub ready_replicas: i32,

    /// The labels by which the Deployment and the Service select the Pods.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub label_selector: BTreeMap<String, String>,

    /// Summary: `Pending` (no child exists yet, or no Pod is ready and the rollout continues), `NotReady` (fewer
    /// Pods are ready than desired), `Running`, `Failed` (the rollout has exceeded its deadline, Pods cannot be
    /// created, or a child is refused).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "MyappPhase")]
    pub status: Option<MyappPhase>,

    /// The selector of the Pods as text: what `kubectl scale` and autoscalers read.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub selector: String,

    /// Generation of the spec that this status describes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,

    /// `Ready` (the children follow the spec and all replicas are ready), `Reconciling` (they are on their way)
    /// and `Stalled` (only a person can help; the message says how).
    #[serde(default, skip_serializing_if = "Vec::is_empty", deserialize_with = "conditions::read_compact")]
    #[schemars(schema_with = "schema::conditions")]
    pub conditions: Vec<Condition>,

    /// Fields that other versions of the operator have written: kept as they are.
    #[serde(flatten)]
    #[schemars(skip)]
    pub other: OtherFields,
}

/// The state of a Myapp in one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
pub enum MyappPhase {
    /// There is no child yet, or nothing is ready and the rollout goes on.
    Pending,
    /// Fewer Pods are ready than wanted.
    NotReady,
    /// All Pods are ready.
    Running,
    /// The rollout has passed its deadline, Pods cannot be made, or a child is refused.
    Failed,
}

fn host(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "string",
        "minLength": 3,
        "maxLength": 253,
        "pattern": r"^(\*\.)?[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$",
        "x-kubernetes-validations": [{
            "rule": r"!self.matches('^[0-9]+([.][0-9]+){3}$')",
            "message": "host must be a DNS name, not an IP address: an Ingress is chosen by name",
        }],
    })
}
