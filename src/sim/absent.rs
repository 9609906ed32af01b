//! What a real server has and this one does not: kinds and subresources that kubectl asks for, and why they are missing.

use super::kinds::{BuiltIn, Kind};

/// The kinds of a real server that this one does not have, by group and plural.
const KINDS: [(&str, &str, &str); 19] = [
    ("", "endpoints", "Endpoints"),
    ("", "limitranges", "LimitRanges"),
    ("", "persistentvolumeclaims", "PersistentVolumeClaims"),
    ("", "persistentvolumes", "PersistentVolumes"),
    ("", "replicationcontrollers", "ReplicationControllers"),
    ("apps", "controllerrevisions", "ControllerRevisions"),
    ("apps", "daemonsets", "DaemonSets"),
    ("apps", "statefulsets", "StatefulSets"),
    ("batch", "cronjobs", "CronJobs"),
    ("batch", "jobs", "Jobs"),
    ("certificates.k8s.io", "certificatesigningrequests", "CertificateSigningRequests"),
    ("discovery.k8s.io", "endpointslices", "EndpointSlices"),
    ("policy", "poddisruptionbudgets", "PodDisruptionBudgets"),
    ("rbac.authorization.k8s.io", "clusterrolebindings", "roles and bindings"),
    ("rbac.authorization.k8s.io", "clusterroles", "roles and bindings"),
    ("rbac.authorization.k8s.io", "rolebindings", "roles and bindings"),
    ("rbac.authorization.k8s.io", "roles", "roles and bindings"),
    ("scheduling.k8s.io", "priorityclasses", "PriorityClasses"),
    ("storage.k8s.io", "storageclasses", "StorageClasses"),
];

/// Returns the name, in the plural, of a kind that only a real server has.
pub(super) fn kind(group: &str, plural: &str) -> Option<&'static str> {
    KINDS.iter().find(|(of, found, _)| (*of, *found) == (group, plural)).map(|(_, _, name)| *name)
}

/// Returns why this server lacks a subresource that a real server has.
pub(super) fn subresource(kind: &Kind, subresource: &str) -> Option<&'static str> {
    match subresource {
        "attach" | "ephemeralcontainers" | "exec" | "log" | "portforward" | "proxy"
            if kind.is(BuiltIn::Pod) =>
        {
            Some("no containers run on this server")
        }
        "token" if kind.is(BuiltIn::ServiceAccount) => {
            Some("this server issues no tokens for ServiceAccounts")
        }
        _ => None,
    }
}
