//! What the Go types of built-in kinds say and the OpenAPI of `k8s-openapi` does not: the types of lists and maps, and
//! the members that Go writes even if they are empty.
//!
//! Read from the OpenAPI specification of Kubernetes, and from its types.

use serde_json::{Map, Value, json};

use super::super::kinds::BuiltIn;

/// The lists that merge by keys, as type, field and keys; without keys they are sets. All others are replaced whole.
#[rustfmt::skip]
const LISTS: [(&str, &str, &[&str]); 44] = [
    ("Container", "env", &["name"]),
    ("Container", "ports", &["containerPort", "protocol"]),
    ("Container", "volumeDevices", &["devicePath"]),
    ("Container", "volumeMounts", &["mountPath"]),
    ("ContainerRestartRuleOnExitCodes", "values", &[]),
    ("ContainerStatus", "allocatedResourcesStatus", &["name"]),
    ("ContainerStatus", "volumeMounts", &["mountPath"]),
    ("CustomResourceDefinitionStatus", "conditions", &["type"]),
    ("DeploymentStatus", "conditions", &["type"]),
    ("EphemeralContainer", "env", &["name"]),
    ("EphemeralContainer", "ports", &["containerPort", "protocol"]),
    ("EphemeralContainer", "volumeDevices", &["devicePath"]),
    ("EphemeralContainer", "volumeMounts", &["mountPath"]),
    ("HorizontalPodAutoscalerStatus", "conditions", &["type"]),
    ("JSONSchemaProps", "x-kubernetes-validations", &["rule"]),
    ("NamespaceStatus", "conditions", &["type"]),
    ("NodeAllocatableResourceClaimStatus", "containers", &[]),
    ("NodeAllocatableResourceClaimStatus", "mapping", &["name"]),
    ("NodeAllocatableResourceClaimStatus", "overhead", &["name"]),
    ("ObjectMeta", "finalizers", &[]),
    ("ObjectMeta", "ownerReferences", &["uid"]),
    ("PodSpec", "containers", &["name"]),
    ("PodSpec", "ephemeralContainers", &["name"]),
    ("PodSpec", "evictionResponders", &["name"]),
    ("PodSpec", "hostAliases", &["ip"]),
    ("PodSpec", "imagePullSecrets", &["name"]),
    ("PodSpec", "initContainers", &["name"]),
    ("PodSpec", "resourceClaims", &["name"]),
    ("PodSpec", "schedulingGates", &["name"]),
    ("PodSpec", "topologySpreadConstraints", &["topologyKey", "whenUnsatisfiable"]),
    ("PodSpec", "volumes", &["name"]),
    ("PodStatus", "conditions", &["type"]),
    ("PodStatus", "nodeAllocatableResourceClaimStatuses", &["resourceClaimName"]),
    ("PodStatus", "podIPs", &["ip"]),
    ("PodStatus", "resourceClaimStatuses", &["name"]),
    ("PodStatus", "volumeHealth", &["name"]),
    ("PodVolumeHealth", "healthConditions", &["status", "reason"]),
    ("ReplicaSetStatus", "conditions", &["type"]),
    ("ResourceRequirements", "claims", &["name"]),
    ("ResourceStatus", "resources", &["resourceID"]),
    ("ServiceAccount", "secrets", &["name"]),
    ("ServiceSpec", "ports", &["port", "protocol"]),
    ("ServiceStatus", "conditions", &["type"]),
    ("VolumeMount", "bindMountOptions", &[]),
];

/// The objects that are replaced whole.
const ATOMIC_TYPES: [&str; 15] = [
    "ConfigMapKeySelector",
    "EvictionResponder",
    "FileKeySelector",
    "LabelSelector",
    "LocalObjectReference",
    "NodeSelector",
    "NodeSelectorTerm",
    "ObjectFieldSelector",
    "ObjectReference",
    "OwnerReference",
    "ResourceFieldSelector",
    "ScopeSelector",
    "SecretKeySelector",
    "ServiceBackendPort",
    "TypedLocalObjectReference",
];

/// The maps that are replaced whole, by type and field.
const ATOMIC_MAPS: [(&str, &str); 2] = [("PodSpec", "nodeSelector"), ("ServiceSpec", "selector")];

/// Adds the types of lists and maps to the schema of a type.
pub(in super::super) fn annotate(type_: &str, schema: &mut Value) {
    let type_ = type_.rsplit('.').next().unwrap_or_default();
    if ATOMIC_TYPES.contains(&type_) {
        schema["x-kubernetes-map-type"] = json!("atomic");
    }
    let Some(properties) = schema.get_mut("properties").and_then(Value::as_object_mut) else { return };
    for (_, field, keys) in LISTS.iter().filter(|(of, _, _)| *of == type_) {
        let Some(list) = properties.get_mut(*field) else { continue };
        list["x-kubernetes-list-type"] = json!(if keys.is_empty() { "set" } else { "map" });
        if !keys.is_empty() {
            list["x-kubernetes-list-map-keys"] = json!(keys);
        }
    }
    for (_, field) in ATOMIC_MAPS.iter().filter(|(of, _)| *of == type_) {
        if let Some(map) = properties.get_mut(*field) {
            map["x-kubernetes-map-type"] = json!("atomic");
        }
    }
    if matches!(type_, "ContainerPort" | "ServicePort")
        && let Some(protocol) = properties.get_mut("protocol")
    {
        protocol["default"] = json!("TCP");
    }
}

/// Returns an empty object of a kind, as Go writes it.
pub(super) fn empty(of: BuiltIn) -> Value {
    let template = json!({"metadata": {}, "spec": {"containers": null}});
    let rest = match of {
        BuiltIn::ConfigMap | BuiltIn::Secret | BuiltIn::ServiceAccount => json!({}),
        BuiltIn::Event | BuiltIn::EventV1 => json!({}),
        BuiltIn::Namespace | BuiltIn::ResourceQuota => json!({"spec": {}, "status": {}}),
        BuiltIn::Pod => json!({"spec": {"containers": null}, "status": {}}),
        BuiltIn::Service => json!({"spec": {}, "status": {"loadBalancer": {}}}),
        BuiltIn::CustomResourceDefinition => json!({
            "spec": {"group": "", "names": {"plural": "", "kind": ""}, "scope": "", "versions": null},
            "status": {"conditions": null, "acceptedNames": {"plural": "", "kind": ""}, "storedVersions": null},
        }),
        BuiltIn::Deployment => {
            json!({"spec": {"selector": null, "template": template, "strategy": {}}, "status": {}})
        }
        BuiltIn::ReplicaSet => {
            json!({"spec": {"selector": null, "template": template}, "status": {"replicas": 0}})
        }
        BuiltIn::HorizontalPodAutoscaler => json!({
            "spec": {"scaleTargetRef": {"kind": "", "name": ""}, "maxReplicas": 0},
            "status": {"desiredReplicas": 0, "currentMetrics": null},
        }),
        BuiltIn::Lease => json!({"spec": {}}),
        BuiltIn::Node => json!({"spec": {}, "status": {
            "daemonEndpoints": {"kubeletEndpoint": {"Port": 0}},
            "nodeInfo": {
                "machineID": "", "systemUUID": "", "bootID": "", "kernelVersion": "", "osImage": "",
                "containerRuntimeVersion": "", "kubeletVersion": "", "kubeProxyVersion": "", "operatingSystem": "",
                "architecture": "",
            },
        }}),
        BuiltIn::Ingress => json!({"spec": {}, "status": {"loadBalancer": {}}}),
    };
    let mut object = rest;
    object["metadata"] = json!({});
    object
}

/// Adds the empty members that Go writes in a stored object, such as a container's `resources`.
pub(super) fn fill(of: BuiltIn, object: &mut Value) {
    let spec = match of {
        BuiltIn::Pod => "/spec",
        BuiltIn::Deployment | BuiltIn::ReplicaSet => "/spec/template/spec",
        _ => return,
    };
    let Some(spec) = object.pointer_mut(spec).and_then(Value::as_object_mut) else { return };
    for list in ["containers", "initContainers"] {
        let containers = spec.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten();
        for container in containers.filter_map(Value::as_object_mut) {
            container.entry("resources").or_insert_with(|| Value::Object(Map::new()));
        }
    }
}
