//! The fields of the projections as protobuf has them: their numbers, which Kubernetes never changes, and their names.
//!
//! A field that a projection begins to read is added here, too: without it, each test that decodes the kind panics. Whether
//! the numbers are right, `what_a_real_server_writes_is_the_same_from_protobuf` tells.

use crate::client::protobuf::Kind::{Bool, Int, IntOrString, Quantity, String};
use crate::client::protobuf::{Kind, METADATA, Message, inline, map, message, pointer, repeated, scalar};

// --- containers ---

static FIELD_REF: Message = Message::new(&[scalar(1, "apiVersion", String), scalar(2, "fieldPath", String)]);

static RESOURCE_FIELD_REF: Message = Message::new(&[
    scalar(1, "containerName", String),
    scalar(2, "resource", String),
    scalar(3, "divisor", Quantity),
]);

static NAMED: Message = Message::new(&[scalar(1, "name", String)]);

/// A key of a ConfigMap or Secret.
static KEY_REF: Message =
    Message::new(&[inline(1, &NAMED), scalar(2, "key", String), pointer(3, "optional", Bool)]);

static FILE_KEY_REF: Message = Message::new(&[
    scalar(1, "volumeName", String),
    scalar(2, "path", String),
    scalar(3, "key", String),
    pointer(4, "optional", Bool),
]);

static VALUE_FROM: Message = Message::new(&[
    message(1, "fieldRef", &FIELD_REF),
    message(2, "resourceFieldRef", &RESOURCE_FIELD_REF),
    message(3, "configMapKeyRef", &KEY_REF),
    message(4, "secretKeyRef", &KEY_REF),
    message(5, "fileKeyRef", &FILE_KEY_REF),
]);

static VARIABLE: Message = Message::new(&[
    scalar(1, "name", String),
    scalar(2, "value", String),
    message(3, "valueFrom", &VALUE_FROM),
]);

static PORT: Message = Message::new(&[
    scalar(1, "name", String),
    scalar(2, "hostPort", Int),
    scalar(3, "containerPort", Int),
    scalar(4, "protocol", String),
    scalar(5, "hostIP", String),
]);

static CLAIM: Message = Message::new(&[scalar(1, "name", String), scalar(2, "request", String)]);

static RESOURCES: Message = Message::new(&[
    map(1, "limits", Quantity),
    map(2, "requests", Quantity),
    repeated(3, "claims", Kind::Message(&CLAIM)),
]);

static CONTAINER: Message = Message::new(&[
    scalar(1, "name", String),
    scalar(2, "image", String),
    repeated(6, "ports", Kind::Message(&PORT)),
    repeated(7, "env", Kind::Message(&VARIABLE)),
    message(8, "resources", &RESOURCES),
    scalar(14, "imagePullPolicy", String),
]);

// --- Pods ---

static POD_SPEC: Message = Message::new(&[
    repeated(2, "containers", Kind::Message(&CONTAINER)),
    scalar(10, "nodeName", String),
    pointer(21, "automountServiceAccountToken", Bool),
]);

static POD_CONDITION: Message = Message::new(&[
    scalar(1, "type", String),
    scalar(2, "status", String),
    scalar(5, "reason", String),
    scalar(6, "message", String),
]);

static POD_STATUS: Message = Message::new(&[
    scalar(1, "phase", String),
    repeated(2, "conditions", Kind::Message(&POD_CONDITION)),
    scalar(3, "message", String),
    scalar(4, "reason", String),
]);

/// A Pod.
pub(super) static POD: Message = Message::new(&[
    message(1, "metadata", &METADATA),
    message(2, "spec", &POD_SPEC),
    message(3, "status", &POD_STATUS),
]);

// --- Deployments ---

static SELECTOR: Message = Message::new(&[map(1, "matchLabels", String)]);

static TEMPLATE: Message = Message::new(&[message(1, "metadata", &METADATA), message(2, "spec", &POD_SPEC)]);

static DEPLOYMENT_SPEC: Message = Message::new(&[
    pointer(1, "replicas", Int),
    message(2, "selector", &SELECTOR),
    message(3, "template", &TEMPLATE),
]);

static DEPLOYMENT_CONDITION: Message = Message::new(&[
    scalar(1, "type", String),
    scalar(2, "status", String),
    scalar(4, "reason", String),
    scalar(5, "message", String),
]);

static DEPLOYMENT_STATUS: Message = Message::new(&[
    scalar(1, "observedGeneration", Int),
    scalar(2, "replicas", Int),
    scalar(3, "updatedReplicas", Int),
    scalar(4, "availableReplicas", Int),
    scalar(5, "unavailableReplicas", Int),
    repeated(6, "conditions", Kind::Message(&DEPLOYMENT_CONDITION)),
    scalar(7, "readyReplicas", Int),
    pointer(8, "collisionCount", Int),
    pointer(9, "terminatingReplicas", Int),
]);

/// A Deployment.
pub(super) static DEPLOYMENT: Message = Message::new(&[
    message(1, "metadata", &METADATA),
    message(2, "spec", &DEPLOYMENT_SPEC),
    message(3, "status", &DEPLOYMENT_STATUS),
]);

// --- Services ---

static SERVICE_PORT: Message = Message::new(&[
    scalar(1, "name", String),
    scalar(2, "protocol", String),
    scalar(3, "port", Int),
    scalar(4, "targetPort", IntOrString),
    scalar(5, "nodePort", Int),
    pointer(6, "appProtocol", String),
]);

static SERVICE_SPEC: Message = Message::new(&[
    repeated(1, "ports", Kind::Message(&SERVICE_PORT)),
    map(2, "selector", String),
    scalar(3, "clusterIP", String),
    scalar(4, "type", String),
    repeated(9, "loadBalancerSourceRanges", String),
]);

/// A Service.
pub(super) static SERVICE: Message =
    Message::new(&[message(1, "metadata", &METADATA), message(2, "spec", &SERVICE_SPEC)]);

// --- Ingresses ---

static NAMED_OR_NUMBERED: Message = Message::new(&[scalar(1, "name", String), scalar(2, "number", Int)]);

static BACKEND_SERVICE: Message =
    Message::new(&[scalar(1, "name", String), message(2, "port", &NAMED_OR_NUMBERED)]);

static BACKEND_RESOURCE: Message =
    Message::new(&[pointer(1, "apiGroup", String), scalar(2, "kind", String), scalar(3, "name", String)]);

static BACKEND: Message =
    Message::new(&[message(3, "resource", &BACKEND_RESOURCE), message(4, "service", &BACKEND_SERVICE)]);

static PATH: Message = Message::new(&[
    scalar(1, "path", String),
    message(2, "backend", &BACKEND),
    pointer(3, "pathType", String),
]);

static HTTP: Message = Message::new(&[repeated(1, "paths", Kind::Message(&PATH))]);

static RULE_VALUE: Message = Message::new(&[message(1, "http", &HTTP)]);

static RULE: Message = Message::new(&[scalar(1, "host", String), inline(2, &RULE_VALUE)]);

static INGRESS_SPEC: Message =
    Message::new(&[repeated(3, "rules", Kind::Message(&RULE)), pointer(4, "ingressClassName", String)]);

/// An Ingress.
pub(super) static INGRESS: Message =
    Message::new(&[message(1, "metadata", &METADATA), message(2, "spec", &INGRESS_SPEC)]);
