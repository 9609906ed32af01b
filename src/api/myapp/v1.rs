//! `Myapp`: a Deployment, a Service and an Ingress from one resource.
//!
//! Mirrors `api/v1/myapp_types.go` of the tutorial. Not as there: a host has at most 253 characters (there 1000,
//! which no Ingress takes) and the form of a DNS name; images, environments and resources that no Pod could have
//! are refused.

#![expect(unreachable_pub, reason = "the schema derive repeats the struct inside a function")]

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{EnvVar, ResourceRequirements};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube_derive::{CustomResource, KubeSchema};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

use crate::api::schema;

/// What a Myapp asks for: Pods of one image, a Service in front of them and, with a host, an Ingress.
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
    doc = "A Myapp asks for a Deployment, a Service and an Ingress, all of its own name, and keeps them as asked.",
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
    /// How many Pods the Deployment keeps running, 1 to 1000; 1 when left out. The Deployment follows it,
    /// also after somebody has scaled the Deployment by hand.
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

    /// What the container may use and what is set aside for it; no limits and no requests when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::resources")]
    pub resources: Option<ResourceRequirements>,

    /// Environment variables of the container, at most 1024; none when left out. A variable that somebody adds
    /// to the Deployment by hand is removed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::environment")]
    pub env: Vec<EnvVar>,

    /// Port of the Service, and of the Ingress' way to it, TCP, 1 to 65535.
    #[schemars(range(min = 1, max = 65535))]
    pub service_port: i32,

    /// Host name under which the Ingress is reached: a lower-case DNS name of 3 to 253 characters, `*.` allowed
    /// in front. Without it there is no Ingress; when it is removed, the Ingress is deleted. The Ingress has the class
    /// `nginx`, which the cluster must have a controller for; another class set by hand is put back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "host")]
    pub host: Option<String>,
}

/// What was observed of a Myapp's children.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MyappStatus {
    /// How many Pods the Deployment has, as its own status says.
    #[serde(default)]
    pub replicas: i32,

    /// How many of them are ready.
    #[serde(default)]
    pub ready_replicas: i32,

    /// The labels by which the Deployment and the Service select the Pods.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub label_selector: BTreeMap<String, String>,

    /// The state in one word: `Pending` (there is no child yet, or nothing is ready and the rollout goes on),
    /// `NotReady` (fewer Pods are ready than wanted), `Running`, `Failed` (the rollout has passed its deadline,
    /// Pods cannot be made, or a child is refused).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "MyappPhase")]
    pub status: Option<MyappPhase>,

    /// The selector of the Pods as text: what `kubectl scale` and autoscalers read.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub selector: String,

    /// The generation of this Myapp that this status is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,

    /// `Ready` (the children follow the spec and all replicas are ready), `Reconciling` (they are on their way)
    /// and `Stalled` (only a person can help; the message says how).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::conditions")]
    pub conditions: Vec<Condition>,
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
