//! The kinds used in sequences, each with a valid object and with valid and invalid changes.

use serde_json::{Value, json};

use super::refusals::{container, pod, refused_deployments};

/// A kind used in sequences.
pub(super) struct Kind {
    pub(super) group: &'static str,
    pub(super) version: &'static str,
    pub(super) kind: &'static str,
    pub(super) plural: &'static str,
    pub(super) is_custom: bool,
    /// JSON pointers to fields that the server allocates.
    pub(super) chosen_by_the_server: &'static [&'static str],
    valid: fn() -> Value,
    /// Merge patches for an object of the kind.
    pub(super) changes: fn() -> Vec<Value>,
}

pub(super) const WIDGET: Kind = Kind {
    group: "fidelity.example.com",
    version: "v1",
    kind: "Widget",
    plural: "widgets",
    is_custom: true,
    chosen_by_the_server: &[],
    valid: widget,
    changes: widget_changes,
};

pub(super) static KINDS: [Kind; 9] = [
    WIDGET,
    Kind {
        group: "",
        version: "v1",
        kind: "ConfigMap",
        plural: "configmaps",
        is_custom: false,
        chosen_by_the_server: &[],
        valid: || json!({"data": {"a": "1"}}),
        changes: || {
            vec![
                json!({"data": {"b": "2"}}),
                json!({"data": {"a": null}}),
                json!({"data": {"not a key": "x"}}),
                json!({"data": {"a": 1}}),
                json!({"immutable": true}),
                json!({"data": null}),
                json!({"other": 1}),
            ]
        },
    },
    Kind {
        group: "",
        version: "v1",
        kind: "Secret",
        plural: "secrets",
        is_custom: false,
        chosen_by_the_server: &[],
        valid: || json!({"stringData": {"a": "secret"}}),
        changes: || {
            vec![
                json!({"data": {"b": "Yg=="}}),
                json!({"type": "example.com/other"}),
                json!({"stringData": {"c": "d"}}),
                json!({"immutable": true}),
            ]
        },
    },
    Kind {
        group: "apps",
        version: "v1",
        kind: "Deployment",
        plural: "deployments",
        is_custom: false,
        chosen_by_the_server: &[],
        valid: deployment,
        changes: deployment_changes,
    },
    Kind {
        group: "",
        version: "v1",
        kind: "Service",
        plural: "services",
        is_custom: false,
        chosen_by_the_server: &[
            "/spec/clusterIP",
            "/spec/clusterIPs",
            "/spec/ports/0/nodePort",
            "/spec/ports/1/nodePort",
            // Patches merge ports.
            "/spec/ports/2/nodePort",
            "/spec/ports/3/nodePort",
        ],
        valid: || json!({"spec": {"selector": {"app": "a"}, "ports": [{"name": "http", "port": 80}]}}),
        changes: service_changes,
    },
    Kind {
        group: "networking.k8s.io",
        version: "v1",
        kind: "Ingress",
        plural: "ingresses",
        is_custom: false,
        chosen_by_the_server: &[],
        valid: || ingress("a.example.com", "/", "Prefix"),
        changes: || {
            vec![
                ingress("b.example.com", "/x", "Exact"),
                ingress("*.example.com", "/", "Prefix"),
                ingress("Not A Host", "/", "Prefix"),
                ingress("a.example.com", "relative", "Prefix"),
                ingress("a.example.com", "/", "Other"),
                json!({"spec": {"rules": null}}),
                json!({"spec": {"ingressClassName": "nginx"}}),
                json!({"metadata": {"annotations": {"a": "b"}}}),
            ]
        },
    },
    Kind {
        group: "apps",
        version: "v1",
        kind: "ReplicaSet",
        plural: "replicasets",
        is_custom: false,
        chosen_by_the_server: &[],
        valid: deployment,
        changes: || {
            let spec = |spec: Value| json!({"spec": spec});
            vec![
                spec(json!({"replicas": 3})),
                spec(json!({"replicas": -1})),
                spec(json!({"minReadySeconds": 2})),
                spec(json!({"selector": {"matchLabels": {"app": "b"}}})),
                spec(json!({"template": {"spec": {"containers": [{"name": "c", "image": "other"}]}}})),
                spec(json!({"template": {"metadata": {"labels": {"app": "b"}}}})),
            ]
        },
    },
    Kind {
        group: "autoscaling",
        version: "v2",
        kind: "HorizontalPodAutoscaler",
        plural: "horizontalpodautoscalers",
        is_custom: false,
        chosen_by_the_server: &[],
        valid: || {
            let target = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "a"});
            json!({"spec": {"scaleTargetRef": target, "maxReplicas": 3}})
        },
        changes: || {
            let spec = |spec: Value| json!({"spec": spec});
            vec![
                spec(json!({"minReplicas": 2})),
                spec(json!({"minReplicas": 0})),
                spec(json!({"minReplicas": 5})),
                spec(json!({"maxReplicas": 0})),
                spec(json!({"maxReplicas": 9})),
                spec(json!({"scaleTargetRef": {"name": ""}})),
                spec(json!({"scaleTargetRef": {"kind": null}})),
            ]
        },
    },
    Kind {
        group: "coordination.k8s.io",
        version: "v1",
        kind: "Lease",
        plural: "leases",
        is_custom: false,
        chosen_by_the_server: &[],
        valid: || json!({"spec": {"holderIdentity": "a", "leaseDurationSeconds": 15}}),
        changes: || {
            vec![
                json!({"spec": {"holderIdentity": "b"}}),
                json!({"spec": {"renewTime": "2026-01-01T00:00:00.000000Z"}}),
                json!({"spec": {"leaseDurationSeconds": 0}}),
                json!({"spec": {"leaseTransitions": -1}}),
                json!({"spec": null}),
            ]
        },
    },
];

impl Kind {
    pub(super) fn api_version(&self) -> String {
        if self.group.is_empty() {
            self.version.to_owned()
        } else {
            format!("{}/{}", self.group, self.version)
        }
    }

    /// Returns the path of the collection in the sequence's namespace.
    pub(super) fn collection(&self) -> String {
        let root = if self.group.is_empty() { "api" } else { "apis" };
        format!("/{root}/{}/namespaces/$ns/{}", self.api_version(), self.plural)
    }

    pub(super) fn valid(&self, name: &str) -> Value {
        let mut object = (self.valid)();
        object["apiVersion"] = json!(self.api_version());
        object["kind"] = json!(self.kind);
        object["metadata"] = json!({"name": name});
        object
    }
}

/// Returns merge patches that apply to every kind.
pub(super) fn changes_of_any() -> Vec<Value> {
    vec![
        json!({"metadata": {"labels": {"team": "a"}}}),
        json!({"metadata": {"labels": {"team": null, "tier": "b"}}}),
        json!({"metadata": {"annotations": {"example.com/note": "x"}}}),
        json!({"metadata": {"labels": {"team": "not a value"}}}),
        json!({"metadata": {"labels": {"not a key": "x"}}}),
        json!({"metadata": {"annotations": {"/x": "y"}}}),
        json!({"metadata": {"finalizers": ["example.com/hold"]}}),
        json!({"metadata": {"finalizers": ["example.com/hold", "example.com/more"]}}),
        json!({"metadata": {"finalizers": ["hold"]}}),
        json!({"metadata": {"finalizers": null}}),
        json!({"metadata": {"name": "Not_A_Name"}}),
        json!({"metadata": {"namespace": "elsewhere"}}),
        json!({"metadata": {"uid": "11111111-2222-3333-4444-555555555555"}}),
        json!({"metadata": {"generation": 77}}),
        json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}),
        json!({"metadata": {"creationTimestamp": "2001-01-01T00:00:00Z"}}),
        json!({"metadata": {"ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "x", "uid": "y"}]}}),
        json!({"metadata": {"ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "", "uid": "y"}]}}),
        json!({"kind": "Other"}),
        json!({"apiVersion": "example.com/v9"}),
        json!({}),
    ]
}

fn widget() -> Value {
    json!({"spec": {"name": "first", "replicas": 2}})
}

fn widget_changes() -> Vec<Value> {
    vec![
        json!({"spec": {"replicas": 3}}),
        json!({"spec": {"replicas": 10}}),
        json!({"spec": {"replicas": 0}}),
        json!({"spec": {"replicas": 11}}),
        json!({"spec": {"replicas": "2"}}),
        json!({"spec": {"replicas": 1.5}}),
        json!({"spec": {"replicas": null}}),
        json!({"spec": {"name": null}}),
        json!({"spec": {"name": "second"}}),
        json!({"spec": {"name": ""}}),
        json!({"spec": {"name": "UPPER"}}),
        json!({"spec": {"name": "much-too-long-for-this"}}),
        json!({"spec": {"mode": "Fast"}}),
        json!({"spec": {"mode": "Other"}}),
        json!({"spec": {"mode": null}}),
        json!({"spec": {"port": "http"}}),
        json!({"spec": {"port": 80}}),
        json!({"spec": {"port": true}}),
        json!({"spec": {"tags": ["a", "b"]}}),
        json!({"spec": {"tags": ["a", "a"]}}),
        json!({"spec": {"tags": ["a", "b", "c", "d"]}}),
        json!({"spec": {"tags": []}}),
        json!({"spec": {"tags": "a"}}),
        json!({"spec": {"env": [{"name": "a"}, {"name": "b", "value": "x"}]}}),
        json!({"spec": {"env": [{"name": "a"}, {"name": "a"}]}}),
        json!({"spec": {"env": [{"value": "a"}]}}),
        json!({"spec": {"free": {"any": {"thing": [1, "x"]}}}}),
        json!({"spec": {"labels": {"a": "b"}}}),
        json!({"spec": {"labels": {"a": 1}}}),
        json!({"spec": {"labels": {"a.b/c": 1}}}),
        json!({"spec": {"since": "2026-01-01T00:00:00Z"}}),
        json!({"spec": {"since": "yesterday"}}),
        json!({"spec": {"other": 1}}),
        json!({"spec": {"env": [{"name": "a", "other": 1}]}}),
        json!({"spec": null}),
        json!({"spec": []}),
        json!({"more": {"a": 1}}),
        json!({"status": {"replicas": 4}}),
    ]
}

/// Returns the CRD of the custom kind.
pub(super) fn definition() -> Value {
    let env = json!({"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"], "items": {
        "type": "object", "required": ["name"],
        "properties": {"name": {"type": "string"}, "value": {"type": "string", "default": "none"}}}});
    let spec = json!({"type": "object", "required": ["name"],
        "x-kubernetes-validations": [
            {"rule": "!has(self.mode) || self.mode != 'Fast' || self.replicas <= 5", "message": "a fast one has at most 5 replicas"}],
        "properties": {
            "name": {"type": "string", "minLength": 1, "maxLength": 12, "pattern": "^[a-z-]*$",
                "x-kubernetes-validations": [{"rule": "self == oldSelf", "message": "name is immutable"}]},
            "replicas": {"type": "integer", "minimum": 1, "maximum": 10, "default": 1},
            "mode": {"type": "string", "enum": ["Fast", "Slow"], "nullable": true},
            "port": {"x-kubernetes-int-or-string": true},
            "tags": {"type": "array", "minItems": 1, "maxItems": 3, "x-kubernetes-list-type": "set", "items": {"type": "string"}},
            "env": env,
            "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
            "labels": {"type": "object", "additionalProperties": {"type": "string"}},
            "since": {"type": "string", "format": "date-time"}}});
    let status = json!({"type": "object", "properties": {"replicas": {"type": "integer"}, "selector": {"type": "string"},
        "phase": {"type": "string", "enum": ["New", "Old"]}}});
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.fidelity.example.com"},
        "spec": {"group": "fidelity.example.com", "scope": "Namespaced", "names": {"plural": "widgets", "kind": "Widget"},
            "versions": [{"name": "v1", "served": true, "storage": true,
                "subresources": {"status": {}, "scale": {"specReplicasPath": ".spec.replicas",
                    "statusReplicasPath": ".status.replicas", "labelSelectorPath": ".status.selector"}},
                "schema": {"openAPIV3Schema": {"type": "object", "required": ["spec"], "properties": {"spec": spec, "status": status}}}}]}})
}

/// Returns a valid spec for a Deployment or a ReplicaSet.
fn deployment() -> Value {
    json!({"spec": {"replicas": 1, "selector": {"matchLabels": {"app": "a"}}, "template": {
        "metadata": {"labels": {"app": "a"}}, "spec": {"containers": [{"name": "c", "image": "nginx"}]}}}})
}

/// Returns an environment variable with the value of a resource in this unit.
fn unit(resource: &str, divisor: &str) -> Value {
    let from = json!({"containerName": "web", "resource": resource, "divisor": divisor});
    json!({"env": [{"name": "A", "valueFrom": {"resourceFieldRef": from}}]})
}

fn deployment_changes() -> Vec<Value> {
    let spec = |spec: Value| json!({"spec": spec});
    let pod = |change: Value| pod(&change);
    let container = |change: Value| container(&change);
    let mut changes = vec![
        spec(json!({"replicas": 3})),
        spec(json!({"replicas": -1})),
        spec(json!({"replicas": "many"})),
        spec(json!({"paused": true})),
        spec(json!({"minReadySeconds": 5})),
        spec(json!({"minReadySeconds": -5})),
        spec(json!({"selector": {"matchLabels": {"app": "b"}}})),
        spec(json!({"selector": null})),
        spec(json!({"strategy": {"type": "Recreate", "rollingUpdate": null}})),
        spec(json!({"strategy": {"type": "Recreate", "rollingUpdate": {"maxSurge": 1}}})),
        spec(json!({"strategy": {"type": "Other"}})),
        spec(json!({"template": {"metadata": {"labels": {"app": "b"}}}})),
        spec(json!({"template": {"metadata": {"annotations": {"restarted": "now"}}}})),
        spec(json!({"other": 1})),
        pod(json!({"containers": []})),
        pod(json!({"containers": null})),
        pod(json!({"restartPolicy": "Never"})),
        pod(json!({"restartPolicy": "Whenever"})),
        pod(json!({"terminationGracePeriodSeconds": 5})),
        pod(json!({"serviceAccountName": "someone"})),
        pod(json!({"volumes": [{"name": "v", "configMap": {"name": "m"}}, {"name": "e", "emptyDir": {}}]})),
        pod(json!({"volumes": [{"name": "v", "emptyDir": {}}, {"name": "v", "emptyDir": {}}]})),
        container(json!({})),
        container(json!({"image": ""})),
        container(json!({"name": "Not A Name"})),
        container(json!({"name": null})),
        container(json!({"ports": [{"containerPort": 80}]})),
        container(json!({"ports": [{"containerPort": 0}]})),
        container(json!({"ports": [{"containerPort": 70000}]})),
        container(
            json!({"env": [{"name": "A", "value": "b"}, {"name": "H", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}]}),
        ),
        container(json!({"env": [{"value": "b"}]})),
        container(unit("limits.memory", "1Mi")),
        container(unit("limits.memory", "1e3")),
        container(unit("limits.memory", "0.0")),
        container(unit("requests.memory", "7")),
        container(unit("limits.cpu", "1m")),
        container(unit("requests.cpu", "1Ki")),
        container(unit("limits.ephemeral-storage", "15m")),
        container(json!({"resources": {"limits": {"cpu": "1", "memory": "1Gi"}}})),
        container(
            json!({"resources": {"limits": {"cpu": "1500m", "memory": "1024Mi"}, "requests": {"cpu": 0.5}}}),
        ),
        container(json!({"resources": {"limits": {"cpu": "100u", "memory": "1.5Gi"}}})),
        container(json!({"resources": {"limits": {"cpu": "much"}}})),
        container(json!({"resources": {"limits": {"cpu": "-1"}}})),
        container(json!({"resources": {"limits": {"cpu": "1"}, "requests": {"cpu": "1001m"}}})),
        container(json!({"resources": {"limits": {"cpus": "1"}}})),
        container(json!({"readinessProbe": {"httpGet": {"port": 80}}})),
        container(json!({"livenessProbe": {"exec": {"command": ["true"]}, "periodSeconds": 3}})),
        container(json!({"imagePullPolicy": "Never"})),
        container(json!({"imagePullPolicy": "Sometimes"})),
        container(json!({"ports": [{"containerPort": 80, "protocol": "ICMP"}]})),
        container(json!({"ports": [{"containerPort": 80, "name": "-8080-"}]})),
        container(json!({"ports": [{"containerPort": 80, "name": "a"}, {"containerPort": 81, "name": "a"}]})),
        container(json!({"ports": [{"containerPort": 80, "hostPort": 70000}]})),
        pod(json!({"volumes": [{"name": "v"}]})),
        container(json!({"unknown": {"a": 1}})),
    ];
    changes.extend(refused_deployments());
    changes
}

fn service_changes() -> Vec<Value> {
    let ports = |ports: Value| json!({"spec": {"ports": ports}});
    vec![
        json!({"spec": {"selector": {"app": "b"}}}),
        json!({"spec": {"type": "NodePort"}}),
        json!({"spec": {"type": "Other"}}),
        json!({"spec": {"sessionAffinity": "Other"}}),
        ports(json!([{"name": "http", "port": 81, "targetPort": "web"}])),
        ports(json!([{"name": "a", "port": 1}, {"name": "b", "port": 2, "protocol": "UDP"}])),
        ports(json!([{"port": 1}, {"port": 2}])),
        ports(json!([{"name": "a", "port": 1}, {"name": "a", "port": 2}])),
        ports(json!([{"name": "a", "port": 1}, {"name": "b", "port": 1}])),
        ports(json!([{"name": "Not A Name", "port": 1}])),
        ports(json!([{"name": "a", "port": 0}])),
        ports(json!([{"name": "a", "port": 70000}])),
        ports(json!([{"name": "a", "port": 1, "protocol": "ICMP"}])),
        ports(json!([{"name": "a", "port": 1, "nodePort": 30123}])),
        ports(json!([])),
        json!({"spec": {"type": "NodePort", "ports": [{"name": "a", "port": 1, "nodePort": 80}]}}),
        json!({"spec": {"type": "LoadBalancer"}}),
        json!({"spec": {"type": "ClusterIP"}}),
        json!({"spec": {"externalTrafficPolicy": "Cluster"}}),
        json!({"spec": {"loadBalancerSourceRanges": ["10.0.0.0/8"]}}),
        ports(json!([{"name": "a", "port": 1, "targetPort": "much-too-long-for-it"}])),
        ports(json!([{"name": "a", "port": 1, "appProtocol": ""}])),
    ]
}

fn ingress(host: &str, path: &str, type_: &str) -> Value {
    json!({"spec": {"rules": [{"host": host, "http": {"paths": [{"path": path, "pathType": type_,
        "backend": {"service": {"name": "a", "port": {"number": 80}}}}]}}]}})
}
