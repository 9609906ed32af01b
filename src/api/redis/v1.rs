//! `Redis`: numbered Pods, without a Deployment.
//!
//! Mirrors `api/v1/redis_types.go` of the tutorial. Unlike there, a name leaves room for a Pod's number in its host
//! name, so there are at most 100000 Pods, `<name>-0` to `<name>-99999`.

#![expect(unreachable_pub, reason = "the schema derive repeats the struct inside a function")]

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube_derive::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::api::conditions::{self, OtherFields};
use crate::api::schema;

/// Desired state of a Redis: numbered Pods of one image.
#[derive(CustomResource, KubeSchema, Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[kube(
    group = "myapp.tangx.in",
    version = "v1",
    kind = "Redis",
    plural = "redis",
    singular = "redis",
    shortname = "rd",
    category = "windlass",
    namespaced,
    status = "RedisStatus",
    derive = "PartialEq",
    doc = "A Redis manages Pods named after it: NAME-0, NAME-1 and so on.",
    scale(
        spec_replicas_path = ".spec.replicas",
        status_replicas_path = ".status.replicas",
        label_selector_path = ".status.selector"
    ),
    printcolumn(name = "Replicas", type_ = "integer", json_path = ".spec.replicas"),
    printcolumn(
        name = "Ready",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Ready\")].status"
    ),
    printcolumn(name = "ImageName", type_ = "string", json_path = ".spec.image"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(
        name = "Reason",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Ready\")].reason",
        priority = 1
    ),
    printcolumn(name = "Uuid", type_ = "string", json_path = ".metadata.uid", priority = 1),
    validation = schema::names_hosts_by_number(),
    attr = "x_kube(crates(kube_core = \"::kube_core\"))",
    crates(kube = "::kube_derive", kube_core = "::kube_core")
)]
#[x_kube(crates(kube_core = "::kube_core"))]
#[serde(rename_all = "camelCase")]
pub struct RedisSpec {
    /// Number of Pods, 0 to 100000; 1 by default. Pods are numbered 0 to replicas - 1; scaling adds and removes
    /// the highest numbers.
    #[serde(default = "schema::default_replicas")]
    #[schemars(range(min = 0, max = 100_000))]
    pub replicas: i32,

    /// Port on which the container listens, TCP, 1234 to 54321. A change replaces the Pods one at a time.
    #[schemars(range(min = 1234, max = 54321))]
    pub port: i32,

    /// Image of the container, such as `redis:7.4`: 1 to 1000 characters without spaces. It is pulled when the
    /// node does not have it. A change replaces the Pods one at a time, the highest number first.
    #[schemars(length(min = 1, max = 1000), regex(pattern = schema::IMAGE))]
    pub image: String,
}

/// Observed state of a Redis' Pods.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RedisStatus {
    /// Number of Pods.
    #[serde(default)]
    pub replicas: i32,

    /// Pods that are ready.
    #[serde(default)]
    pub ready_replicas: i32,

    /// Every Pod with a lower number has existed at some time since the last scale-down.
    #[serde(default)]
    pub reached_replicas: i32,

    /// The selector of the Pods as text: what `kubectl scale` and autoscalers read.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub selector: String,

    /// Generation of the spec that this status describes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,

    /// `Ready` (all Pods are there, of this spec and ready), `Reconciling` (they are on their way) and `Stalled`
    /// (only a person can help; the message says how).
    #[serde(default, skip_serializing_if = "Vec::is_empty", deserialize_with = "conditions::read_compact")]
    #[schemars(schema_with = "schema::conditions")]
    pub conditions: Vec<Condition>,

    /// Fields that other versions of the operator have written: kept as they are.
    #[serde(flatten)]
    #[schemars(skip)]
    pub other: OtherFields,
}
