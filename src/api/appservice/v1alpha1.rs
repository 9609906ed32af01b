//! `AppService`: one resource for a Deployment and a NodePort Service.
//!
//! Mirrors `api/v1alpha1/appservice_types.go` of the tutorial. Unlike there, the status has the fields of a
//! Deployment's status but conditions of the standard type, and ports that no Service can have are refused.
//!
//! # Guarantees
//! - Ports that cannot coexist in one Service are refused. (test: `appservice_schema_bounds_are_exact`)

#![expect(unreachable_pub, reason = "the schema derive repeats the struct inside a function")]

use k8s_openapi::api::core::v1::{EnvVar, ResourceRequirements, ServicePort};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube_derive::{CustomResource, KubeSchema};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

use crate::api::conditions::{self, OtherFields};
use crate::api::schema;

/// Desired state of an AppService: Pods of one image and, with ports, a Service of type NodePort.
#[derive(CustomResource, KubeSchema, Clone, Debug, PartialEq, Deserialize, Serialize)]
#[kube(
    group = "batch.schwarzeni.github.com",
    version = "v1alpha1",
    kind = "AppService",
    plural = "appservices",
    shortname = "appsvc",
    category = "windlass",
    namespaced,
    status = "AppServiceStatus",
    derive = "PartialEq",
    doc = "An AppService manages a Deployment and, with ports, a NodePort Service, both of the same name as the AppService.",
    scale(
        spec_replicas_path = ".spec.replicas",
        status_replicas_path = ".status.replicas",
        label_selector_path = ".status.selector"
    ),
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
    printcolumn(name = "Image", type_ = "string", json_path = ".spec.image", priority = 1),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    validation = schema::names_a_service(),
    attr = "x_kube(crates(kube_core = \"::kube_core\"))",
    crates(kube = "::kube_derive", kube_core = "::kube_core")
)]
#[x_kube(crates(kube_core = "::kube_core"))]
#[serde(rename_all = "camelCase")]
pub struct AppServiceSpec {
    /// Number of Pods that the Deployment runs, 0 or more. If somebody scales the Deployment by hand, it is
    /// scaled back.
    #[schemars(range(min = 0, max = 2_147_483_647))]
    pub replicas: i32,

    /// Image of the container, such as `nginx:1.27`: 1 to 1000 characters without spaces. It is pulled when
    /// the node does not have it. A change replaces the Pods step by step.
    #[schemars(length(min = 1, max = 1000), regex(pattern = schema::IMAGE))]
    pub image: String,

    /// Resource limits and requests of the container; none if omitted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::resources")]
    pub resources: Option<ResourceRequirements>,

    /// Environment variables of the container, at most 1024; none when left out. A variable that somebody adds
    /// to the Deployment by hand is removed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::environment")]
    pub envs: Vec<EnvVar>,

    /// Ports of the NodePort Service, at most 64. Without ports there is no Service; when the last port is
    /// removed, the Service is deleted. Several ports need unique names and unique pairs of number and protocol.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "ports")]
    pub ports: Vec<ServicePort>,
}

/// Observed state of an AppService: the fields of its Deployment's own status.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AppServiceStatus {
    /// Number of Pods of the Deployment.
    #[serde(default)]
    pub replicas: i32,

    /// Pods of the current template.
    #[serde(default)]
    pub updated_replicas: i32,

    /// Pods that are ready.
    #[serde(default)]
    pub ready_replicas: i32,

    /// Pods that are available.
    #[serde(default)]
    pub available_replicas: i32,

    /// Pods still missing until all desired replicas are available.
    #[serde(default)]
    pub unavailable_replicas: i32,

    /// Pods that are marked for deletion but not gone yet; absent on a server that does not count them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub terminating_replicas: Option<i32>,

    /// Number of name collisions of new ReplicaSets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub collision_count: Option<i32>,

    /// The selector of the Pods as text: what `kubectl scale` and autoscalers read.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub selector: String,

    /// Generation of the spec that this status describes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,

    /// `Ready` (the children follow the spec and all replicas are available), `Reconciling` (they are on their
    /// way) and `Stalled` (only a person can help; the message says how); and those of the Deployment:
    /// `Available`, `Progressing`, `ReplicaFailure`.
    #[serde(default, skip_serializing_if = "Vec::is_empty", deserialize_with = "conditions::read_compact")]
    #[schemars(schema_with = "schema::conditions")]
    pub conditions: Vec<Condition>,

    /// Fields that other versions of the operator have written: kept as they are.
    #[serde(flatten)]
    #[schemars(skip)]
    pub other: OtherFields,
}

/// `[]ServicePort`.
fn ports(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "maxItems": 64,
        "x-kubernetes-list-type": "atomic",
        "items": {
            "type": "object",
            "description": "One port of the Service.",
            "required": ["port"],
            "properties": {
                "name": {
                    "type": "string", "maxLength": 63, "pattern": schema::DNS_LABEL,
                    "description": "Name of the port: a DNS label of at most 63 characters. Required if there are several ports.",
                },
                "protocol": {
                    "type": "string", "enum": ["TCP", "UDP", "SCTP"], "default": "TCP",
                    "description": "TCP, UDP or SCTP; TCP when left out.",
                },
                "port": {
                    "type": "integer", "format": "int32", "minimum": 1, "maximum": 65535,
                    "description": "Port of the Service inside the cluster, 1 to 65535.",
                },
                "targetPort": {
                    "x-kubernetes-int-or-string": true, "nullable": false,
                    "minimum": 1, "maximum": 65535,
                    "maxLength": 15, "pattern": PORT_NAME,
                    "description": "Where the container listens: a number of 1 to 65535, or a name for the number `port`, with at most 15 characters (lower-case letters, digits and single hyphens, at least one letter). `port` when left out.",
                },
                "nodePort": {
                    "type": "integer", "format": "int32", "minimum": 1, "maximum": 65535,
                    "description": "Port on every node, within the server's range, usually 30000 to 32767. Assigned by the server if omitted.",
                },
                "appProtocol": {
                    "type": "string", "maxLength": 317, "pattern": QUALIFIED_NAME,
                    "description": "Hint at the protocol spoken, such as `http` or `kubernetes.io/h2c`.",
                },
            },
        },
        // The server's cost estimate charges `+` for the longest possible string, and nothing for `format`.
        "x-kubernetes-validations": [
            {
                "rule": "size(self) < 2 || self.all(a, has(a.name))",
                "messageExpression": "'port %d has no name: where there are several ports, give each a name'.format([self.filter(a, !has(a.name))[0].port])",
            },
            {
                "rule": format!("self.all(a, {NAME_IS_UNIQUE})"),
                "messageExpression": format!(
                    "'more than one port has the name %s: give each a name of its own'.format([{}.name])",
                    first_without(NAME_IS_UNIQUE),
                ),
            },
            {
                "rule": format!("self.all(a, {NUMBER_IS_UNIQUE})"),
                "messageExpression": format!(
                    "'more than one port is %d/%s: give each another port or protocol'.format([{0}.port, {0}.protocol])",
                    first_without(NUMBER_IS_UNIQUE),
                ),
            },
            {
                "rule": format!("self.all(a, {NODE_PORT_IS_UNIQUE})"),
                "messageExpression": format!(
                    "'nodePort %d is used by ports with different numbers: give each its own nodePort, or none'.format([{}.nodePort])",
                    first_without(NODE_PORT_IS_UNIQUE),
                ),
            },
        ],
    })
}

/// Returns the expression for the first port that breaks a rule.
fn first_without(rule: &str) -> String {
    format!("self.filter(a, !({rule}))[0]")
}

const NAME_IS_UNIQUE: &str = "!has(a.name) || self.exists_one(b, has(b.name) && b.name == a.name)";

/// Every port has a protocol: the schema sets a default.
const NUMBER_IS_UNIQUE: &str = "self.exists_one(b, b.port == a.port && b.protocol == a.protocol)";

/// Ports with the same number and different protocols may share a node port. With different numbers a server accepts
/// sharing in an existing Service but not in a new one, so the Service could not be re-created.
const NODE_PORT_IS_UNIQUE: &str =
    "!has(a.nodePort) || self.all(b, !has(b.nodePort) || b.nodePort != a.nodePort || b.port == a.port)";

/// The name of a container's port, without its length limit: only single hyphens inside, at least one letter.
const PORT_NAME: &str = "^([0-9]+-)*[0-9]*[a-z][a-z0-9]*(-[a-z0-9]+)*$";

/// A name with an optional DNS name as prefix.
const QUALIFIED_NAME: &str = r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?([A-Za-z0-9][-A-Za-z0-9_.]{0,61})?[A-Za-z0-9]$";
