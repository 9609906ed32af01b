//! `AppService`: a Deployment and a Service on the nodes' ports from one resource.
//!
//! Mirrors `api/v1alpha1/appservice_types.go` of the tutorial. Not as there: the status has the fields of a
//! Deployment's status, but conditions of the standard type; ports that no Service could have are refused.
//!
//! # Guarantees
//! - Ports that a Service could not have together are refused. (test: `each_bound_of_appservice_holds_just_inside_and_just_outside`)

#![expect(unreachable_pub, reason = "the schema derive repeats the struct inside a function")]

use k8s_openapi::api::core::v1::{EnvVar, ResourceRequirements, ServicePort};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube_derive::{CustomResource, KubeSchema};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

use crate::api::schema;

/// What an AppService asks for: Pods of one image and, with ports, a Service of type NodePort.
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
    doc = "An AppService asks for a Deployment and a Service of type NodePort, both of its own name, and keeps them as asked.",
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
    /// How many Pods the Deployment keeps running, 0 or more. The Deployment follows it, also after somebody
    /// has scaled the Deployment by hand.
    #[schemars(range(min = 0, max = 2_147_483_647))]
    pub replicas: i32,

    /// Image of the container, such as `nginx:1.27`: 1 to 1000 characters without spaces. It is pulled when
    /// the node does not have it. A change replaces the Pods step by step.
    #[schemars(length(min = 1, max = 1000), regex(pattern = schema::IMAGE))]
    pub image: String,

    /// What the container may use and what is set aside for it; no limits and no requests when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::resources")]
    pub resources: Option<ResourceRequirements>,

    /// Environment variables of the container, at most 1024; none when left out. A variable that somebody adds
    /// to the Deployment by hand is removed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::environment")]
    pub envs: Vec<EnvVar>,

    /// Ports of the Service, at most 64, each with a number on every node. Without ports there is no Service;
    /// when the last one is removed, the Service is deleted. Where there are several, each has a name, and no
    /// two have one name, or one number and protocol.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "ports")]
    pub ports: Vec<ServicePort>,
}

/// What was observed of an AppService's Deployment: the fields of the Deployment's own status.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AppServiceStatus {
    /// How many Pods the Deployment has.
    #[serde(default)]
    pub replicas: i32,

    /// How many of them are of the present template.
    #[serde(default)]
    pub updated_replicas: i32,

    /// How many of them are ready.
    #[serde(default)]
    pub ready_replicas: i32,

    /// How many of them are available.
    #[serde(default)]
    pub available_replicas: i32,

    /// How many are still missing until all wanted ones are available.
    #[serde(default)]
    pub unavailable_replicas: i32,

    /// How many of its Pods are marked for deletion and not gone yet; absent on a server that does not count them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub terminating_replicas: Option<i32>,

    /// How often the name of a new ReplicaSet was taken.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub collision_count: Option<i32>,

    /// The selector of the Pods as text: what `kubectl scale` and autoscalers read.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub selector: String,

    /// The generation of this AppService that this status is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,

    /// `Ready` (the children follow the spec and all replicas are available), `Reconciling` (they are on their
    /// way) and `Stalled` (only a person can help; the message says how); and those of the Deployment:
    /// `Available`, `Progressing`, `ReplicaFailure`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::conditions")]
    pub conditions: Vec<Condition>,
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
                    "description": "Its name: a DNS label, at most 63 characters. Needed where there are several ports.",
                },
                "protocol": {
                    "type": "string", "enum": ["TCP", "UDP", "SCTP"], "default": "TCP",
                    "description": "TCP, UDP or SCTP; TCP when left out.",
                },
                "port": {
                    "type": "integer", "format": "int32", "minimum": 1, "maximum": 65535,
                    "description": "Number under which the Service is reached in the cluster, 1 to 65535.",
                },
                "targetPort": {
                    "x-kubernetes-int-or-string": true, "nullable": false,
                    "minimum": 1, "maximum": 65535,
                    "maxLength": 15, "pattern": PORT_NAME,
                    "description": "Where the container listens: a number of 1 to 65535, or a name for the number `port`, with at most 15 characters (lower-case letters, digits and single hyphens, at least one letter). `port` when left out.",
                },
                "nodePort": {
                    "type": "integer", "format": "int32", "minimum": 1, "maximum": 65535,
                    "description": "Number under which it is reached on every node, in the range of the server, most often 30000 to 32767. The server chooses one when it is left out.",
                },
                "appProtocol": {
                    "type": "string", "maxLength": 317, "pattern": QUALIFIED_NAME,
                    "description": "Hint at the protocol spoken, such as `http` or `kubernetes.io/h2c`.",
                },
            },
        },
        // A server counts `+` as costly as the longest text there could be, and `format` as nothing.
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
                    "'more than one port asks for the nodePort %d: give each another one or none (protocols of one port may share it)'.format([{}.nodePort])",
                    first_without(NODE_PORT_IS_UNIQUE),
                ),
            },
        ],
    })
}

/// The first port for which a rule does not hold.
fn first_without(rule: &str) -> String {
    format!("self.filter(a, !({rule}))[0]")
}

const NAME_IS_UNIQUE: &str = "!has(a.name) || self.exists_one(b, has(b.name) && b.name == a.name)";

/// A protocol that was left out is there by default.
const NUMBER_IS_UNIQUE: &str = "self.exists_one(b, b.port == a.port && b.protocol == a.protocol)";

/// Ports of one number and two protocols may share one. Of two numbers a server takes it in a Service that is there,
/// and not in a new one: what the Service is made anew from must not depend on that.
const NODE_PORT_IS_UNIQUE: &str =
    "!has(a.nodePort) || self.all(b, !has(b.nodePort) || b.nodePort != a.nodePort || b.port == a.port)";

/// The name of a container's port, but for its length: single hyphens inside, and a letter.
const PORT_NAME: &str = "^([0-9]+-)*[0-9]*[a-z][a-z0-9]*(-[a-z0-9]+)*$";

/// A name with or without a DNS name in front.
const QUALIFIED_NAME: &str = r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?([A-Za-z0-9][-A-Za-z0-9_.]{0,61})?[A-Za-z0-9]$";
