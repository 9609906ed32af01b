//! The fields of the messages that kubectl sends: Go's names and numbers, in Kubernetes' `generated.proto` files.

/// A field of a message: its number, its name in JSON, and how it is read.
pub(super) struct Field(pub(super) u64, pub(super) &'static str, pub(super) As);

pub(super) enum As {
    Text,
    Number,
    /// A pointer in Go: zero is a value.
    NumberOrNone,
    Bool,
    /// A pointer in Go.
    BoolOrNone,
    /// A map of text to text.
    Map,
    /// A map of text to bytes.
    Data,
    /// A map of text to quantities.
    Quantities,
    /// A message whose first field is the text of a quantity.
    Quantity,
    /// A number or a name.
    Port,
    Message(&'static [Field]),
    /// A message whose fields belong to the outer one in JSON.
    Inline(&'static [Field]),
    /// A field that may occur more than once: a list.
    Each(&'static As),
    /// What a server ignores in an object that is created.
    Ignored,
}

const TEXTS: As = As::Each(&As::Text);

/// The type of a body.
pub(super) const TYPE: &[Field] = &[Field(1, "apiVersion", As::Text), Field(2, "kind", As::Text)];

const META: &[Field] = &[
    Field(1, "name", As::Text),
    Field(2, "generateName", As::Text),
    Field(3, "namespace", As::Text),
    Field(8, "creationTimestamp", As::Ignored),
    Field(11, "labels", As::Map),
    Field(12, "annotations", As::Map),
    Field(14, "finalizers", TEXTS),
    Field(17, "managedFields", As::Ignored),
];

pub(super) const NAMESPACE: &[Field] = &[
    Field(1, "metadata", As::Message(META)),
    Field(2, "spec", As::Message(&[Field(1, "finalizers", TEXTS)])),
    Field(3, "status", As::Ignored),
];

pub(super) const CONFIG_MAP: &[Field] = &[
    Field(1, "metadata", As::Message(META)),
    Field(2, "data", As::Map),
    Field(3, "binaryData", As::Data),
    Field(4, "immutable", As::BoolOrNone),
];

const TARGET: &[Field] =
    &[Field(1, "kind", As::Text), Field(2, "name", As::Text), Field(3, "apiVersion", As::Text)];

const METRIC_TARGET: &[Field] = &[
    Field(1, "type", As::Text),
    Field(2, "value", As::Quantity),
    Field(3, "averageValue", As::Quantity),
    Field(4, "averageUtilization", As::NumberOrNone),
];

const RESOURCE: &[Field] = &[Field(1, "name", As::Text), Field(2, "target", As::Message(METRIC_TARGET))];

const METRIC: &[Field] = &[Field(1, "type", As::Text), Field(4, "resource", As::Message(RESOURCE))];

pub(super) const AUTOSCALER: &[Field] = &[
    Field(1, "metadata", As::Message(META)),
    Field(
        2,
        "spec",
        As::Message(&[
            Field(1, "scaleTargetRef", As::Message(TARGET)),
            Field(2, "minReplicas", As::NumberOrNone),
            Field(3, "maxReplicas", As::Number),
            Field(4, "metrics", As::Each(&As::Message(METRIC))),
        ]),
    ),
    Field(3, "status", As::Ignored),
];

const PORT: &[Field] = &[
    Field(1, "name", As::Text),
    Field(2, "hostPort", As::Number),
    Field(3, "containerPort", As::Number),
    Field(4, "protocol", As::Text),
    Field(5, "hostIP", As::Text),
];

const CONTAINER: &[Field] = &[
    Field(1, "name", As::Text),
    Field(2, "image", As::Text),
    Field(3, "command", TEXTS),
    Field(4, "args", TEXTS),
    Field(6, "ports", As::Each(&As::Message(PORT))),
];

pub(super) const DEPLOYMENT: &[Field] = &[
    Field(1, "metadata", As::Message(META)),
    Field(
        2,
        "spec",
        As::Message(&[
            Field(1, "replicas", As::NumberOrNone),
            Field(2, "selector", As::Message(&[Field(1, "matchLabels", As::Map)])),
            Field(
                3,
                "template",
                As::Message(&[
                    Field(1, "metadata", As::Message(META)),
                    Field(
                        2,
                        "spec",
                        As::Message(&[Field(2, "containers", As::Each(&As::Message(CONTAINER)))]),
                    ),
                ]),
            ),
        ]),
    ),
    Field(3, "status", As::Ignored),
];

pub(super) const SECRET: &[Field] = &[
    Field(1, "metadata", As::Message(META)),
    Field(2, "data", As::Data),
    Field(3, "type", As::Text),
    Field(4, "stringData", As::Map),
    Field(5, "immutable", As::BoolOrNone),
];

pub(super) const SERVICE_ACCOUNT: &[Field] = &[
    Field(1, "metadata", As::Message(META)),
    Field(3, "imagePullSecrets", As::Each(&As::Message(&[Field(1, "name", As::Text)]))),
    Field(4, "automountServiceAccountToken", As::BoolOrNone),
];

const SERVICE_PORT: &[Field] = &[
    Field(1, "name", As::Text),
    Field(2, "protocol", As::Text),
    Field(3, "port", As::Number),
    Field(4, "targetPort", As::Port),
    Field(5, "nodePort", As::Number),
    Field(6, "appProtocol", As::Text),
];

pub(super) const SERVICE: &[Field] = &[
    Field(1, "metadata", As::Message(META)),
    Field(
        2,
        "spec",
        As::Message(&[
            Field(1, "ports", As::Each(&As::Message(SERVICE_PORT))),
            Field(2, "selector", As::Map),
            Field(3, "clusterIP", As::Text),
            Field(4, "type", As::Text),
            Field(5, "externalIPs", TEXTS),
            Field(7, "sessionAffinity", As::Text),
            Field(8, "loadBalancerIP", As::Text),
            Field(9, "loadBalancerSourceRanges", TEXTS),
            Field(10, "externalName", As::Text),
            Field(11, "externalTrafficPolicy", As::Text),
            Field(12, "healthCheckNodePort", As::Number),
            Field(13, "publishNotReadyAddresses", As::Bool),
            Field(17, "ipFamilyPolicy", As::Text),
            Field(18, "clusterIPs", TEXTS),
            Field(19, "ipFamilies", TEXTS),
            Field(20, "allocateLoadBalancerNodePorts", As::BoolOrNone),
            Field(21, "loadBalancerClass", As::Text),
            Field(22, "internalTrafficPolicy", As::Text),
            Field(23, "trafficDistribution", As::Text),
        ]),
    ),
    Field(3, "status", As::Ignored),
];

pub(super) const RESOURCE_QUOTA: &[Field] = &[
    Field(1, "metadata", As::Message(META)),
    Field(2, "spec", As::Message(&[Field(1, "hard", As::Quantities), Field(2, "scopes", TEXTS)])),
    Field(3, "status", As::Ignored),
];

const BACKEND_PORT: &[Field] = &[Field(1, "name", As::Text), Field(2, "number", As::Number)];

const BACKEND: &[Field] = &[Field(
    4,
    "service",
    As::Message(&[Field(1, "name", As::Text), Field(2, "port", As::Message(BACKEND_PORT))]),
)];

const INGRESS_PATH: &[Field] =
    &[Field(1, "path", As::Text), Field(2, "backend", As::Message(BACKEND)), Field(3, "pathType", As::Text)];

const INGRESS_HTTP: &[Field] =
    &[Field(1, "http", As::Message(&[Field(1, "paths", As::Each(&As::Message(INGRESS_PATH)))]))];

const INGRESS_RULE: &[Field] = &[Field(1, "host", As::Text), Field(2, "", As::Inline(INGRESS_HTTP))];

pub(super) const INGRESS: &[Field] = &[
    Field(1, "metadata", As::Message(META)),
    Field(
        2,
        "spec",
        As::Message(&[
            Field(1, "defaultBackend", As::Message(BACKEND)),
            Field(
                2,
                "tls",
                As::Each(&As::Message(&[Field(1, "hosts", TEXTS), Field(2, "secretName", As::Text)])),
            ),
            Field(3, "rules", As::Each(&As::Message(INGRESS_RULE))),
            Field(4, "ingressClassName", As::Text),
        ]),
    ),
    Field(3, "status", As::Ignored),
];

pub(super) const DELETE_OPTIONS: &[Field] = &[
    Field(1, "gracePeriodSeconds", As::NumberOrNone),
    Field(
        2,
        "preconditions",
        As::Message(&[Field(1, "uid", As::Text), Field(2, "resourceVersion", As::Text)]),
    ),
    Field(3, "orphanDependents", As::BoolOrNone),
    Field(4, "propagationPolicy", As::Text),
    Field(5, "dryRun", TEXTS),
];
