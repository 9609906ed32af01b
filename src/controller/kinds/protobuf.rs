//! The fields of the projections as protobuf has them: their numbers, which Kubernetes never changes, and their names.
//!
//! A field that a projection begins to read is added here, too: without it, each test that decodes the kind panics. Whether
//! the numbers are right, `what_a_real_server_writes_is_the_same_from_protobuf` tells.

use crate::client::protobuf::Kind::{Flag, IntOrString, Integer, Quantity, Text};
use crate::client::protobuf::{Kind, METADATA, Message, inline, list, map, of, pointer, value};

// --- containers ---

static FIELD_REF: Message = Message::new(&[value(1, "apiVersion", Text), value(2, "fieldPath", Text)]);

static RESOURCE_FIELD_REF: Message = Message::new(&[
    value(1, "containerName", Text),
    value(2, "resource", Text),
    value(3, "divisor", Quantity),
]);

static NAMED: Message = Message::new(&[value(1, "name", Text)]);

/// A key of a ConfigMap or Secret.
static KEY_REF: Message =
    Message::new(&[inline(1, &NAMED), value(2, "key", Text), pointer(3, "optional", Flag)]);

static FILE_KEY_REF: Message = Message::new(&[
    value(1, "volumeName", Text),
    value(2, "path", Text),
    value(3, "key", Text),
    pointer(4, "optional", Flag),
]);

static VALUE_FROM: Message = Message::new(&[
    of(1, "fieldRef", &FIELD_REF),
    of(2, "resourceFieldRef", &RESOURCE_FIELD_REF),
    of(3, "configMapKeyRef", &KEY_REF),
    of(4, "secretKeyRef", &KEY_REF),
    of(5, "fileKeyRef", &FILE_KEY_REF),
]);

static VARIABLE: Message =
    Message::new(&[value(1, "name", Text), value(2, "value", Text), of(3, "valueFrom", &VALUE_FROM)]);

static PORT: Message = Message::new(&[
    value(1, "name", Text),
    value(2, "hostPort", Integer),
    value(3, "containerPort", Integer),
    value(4, "protocol", Text),
    value(5, "hostIP", Text),
]);

static CLAIM: Message = Message::new(&[value(1, "name", Text), value(2, "request", Text)]);

static RESOURCES: Message = Message::new(&[
    map(1, "limits", Quantity),
    map(2, "requests", Quantity),
    list(3, "claims", Kind::Message(&CLAIM)),
]);

static CONTAINER: Message = Message::new(&[
    value(1, "name", Text),
    value(2, "image", Text),
    list(6, "ports", Kind::Message(&PORT)),
    list(7, "env", Kind::Message(&VARIABLE)),
    of(8, "resources", &RESOURCES),
    value(14, "imagePullPolicy", Text),
]);

// --- Pods ---

static POD_SPEC: Message = Message::new(&[
    list(2, "containers", Kind::Message(&CONTAINER)),
    value(10, "nodeName", Text),
    pointer(21, "automountServiceAccountToken", Flag),
]);

static POD_CONDITION: Message = Message::new(&[
    value(1, "type", Text),
    value(2, "status", Text),
    value(5, "reason", Text),
    value(6, "message", Text),
]);

static POD_STATUS: Message = Message::new(&[
    value(1, "phase", Text),
    list(2, "conditions", Kind::Message(&POD_CONDITION)),
    value(3, "message", Text),
    value(4, "reason", Text),
]);

/// A Pod.
pub(super) static POD: Message =
    Message::new(&[of(1, "metadata", &METADATA), of(2, "spec", &POD_SPEC), of(3, "status", &POD_STATUS)]);

// --- Deployments ---

static SELECTOR: Message = Message::new(&[map(1, "matchLabels", Text)]);

static TEMPLATE: Message = Message::new(&[of(1, "metadata", &METADATA), of(2, "spec", &POD_SPEC)]);

static DEPLOYMENT_SPEC: Message = Message::new(&[
    pointer(1, "replicas", Integer),
    of(2, "selector", &SELECTOR),
    of(3, "template", &TEMPLATE),
]);

static DEPLOYMENT_CONDITION: Message = Message::new(&[
    value(1, "type", Text),
    value(2, "status", Text),
    value(4, "reason", Text),
    value(5, "message", Text),
]);

static DEPLOYMENT_STATUS: Message = Message::new(&[
    value(1, "observedGeneration", Integer),
    value(2, "replicas", Integer),
    value(3, "updatedReplicas", Integer),
    value(4, "availableReplicas", Integer),
    value(5, "unavailableReplicas", Integer),
    list(6, "conditions", Kind::Message(&DEPLOYMENT_CONDITION)),
    value(7, "readyReplicas", Integer),
    pointer(8, "collisionCount", Integer),
    pointer(9, "terminatingReplicas", Integer),
]);

/// A Deployment.
pub(super) static DEPLOYMENT: Message = Message::new(&[
    of(1, "metadata", &METADATA),
    of(2, "spec", &DEPLOYMENT_SPEC),
    of(3, "status", &DEPLOYMENT_STATUS),
]);

// --- Services ---

static SERVICE_PORT: Message = Message::new(&[
    value(1, "name", Text),
    value(2, "protocol", Text),
    value(3, "port", Integer),
    value(4, "targetPort", IntOrString),
    value(5, "nodePort", Integer),
    pointer(6, "appProtocol", Text),
]);

static SERVICE_SPEC: Message = Message::new(&[
    list(1, "ports", Kind::Message(&SERVICE_PORT)),
    map(2, "selector", Text),
    value(3, "clusterIP", Text),
    value(4, "type", Text),
    list(9, "loadBalancerSourceRanges", Text),
]);

/// A Service.
pub(super) static SERVICE: Message =
    Message::new(&[of(1, "metadata", &METADATA), of(2, "spec", &SERVICE_SPEC)]);

// --- Ingresses ---

static NAMED_OR_NUMBERED: Message = Message::new(&[value(1, "name", Text), value(2, "number", Integer)]);

static BACKEND_SERVICE: Message = Message::new(&[value(1, "name", Text), of(2, "port", &NAMED_OR_NUMBERED)]);

static BACKEND_RESOURCE: Message =
    Message::new(&[pointer(1, "apiGroup", Text), value(2, "kind", Text), value(3, "name", Text)]);

static BACKEND: Message =
    Message::new(&[of(3, "resource", &BACKEND_RESOURCE), of(4, "service", &BACKEND_SERVICE)]);

static PATH: Message =
    Message::new(&[value(1, "path", Text), of(2, "backend", &BACKEND), pointer(3, "pathType", Text)]);

static HTTP: Message = Message::new(&[list(1, "paths", Kind::Message(&PATH))]);

static RULE_VALUE: Message = Message::new(&[of(1, "http", &HTTP)]);

static RULE: Message = Message::new(&[value(1, "host", Text), inline(2, &RULE_VALUE)]);

static INGRESS_SPEC: Message =
    Message::new(&[list(3, "rules", Kind::Message(&RULE)), pointer(4, "ingressClassName", Text)]);

/// An Ingress.
pub(super) static INGRESS: Message =
    Message::new(&[of(1, "metadata", &METADATA), of(2, "spec", &INGRESS_SPEC)]);
