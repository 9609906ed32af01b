//! The catalogue of kinds: names, scope, subresources.
//!
//! Built-in kinds are in the table below; custom kinds come and go with their CRDs.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::custom::Definition;

/// Group and plural: the key of a collection, the same for all API versions.
pub(super) type Resource = (Arc<str>, Arc<str>);

/// A kind of object.
#[derive(Debug)]
pub(super) struct Kind {
    pub(super) group: String,
    /// Served versions, preferred first.
    pub(super) versions: Vec<String>,
    pub(super) kind: String,
    pub(super) plural: String,
    pub(super) singular: String,
    pub(super) short_names: Vec<String>,
    pub(super) categories: Vec<String>,
    pub(super) is_namespaced: bool,
    pub(super) has_status: bool,
    pub(super) of: Of,
    /// The key of its collection in the store.
    pub(super) resource: Resource,
}

/// The source of a kind's rules.
#[derive(Debug)]
pub(super) enum Of {
    BuiltIn(BuiltIn),
    Custom(Arc<Definition>),
}

/// The kinds that need no CRD.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BuiltIn {
    ConfigMap,
    CustomResourceDefinition,
    Deployment,
    Event,
    EventV1,
    HorizontalPodAutoscaler,
    Ingress,
    Lease,
    Namespace,
    Node,
    Pod,
    ReplicaSet,
    ResourceQuota,
    Secret,
    Service,
    ServiceAccount,
}

impl BuiltIn {
    /// How many there are.
    pub(super) const COUNT: usize = BUILT_IN.len();
}

struct Row {
    of: BuiltIn,
    group: &'static str,
    version: &'static str,
    kind: &'static str,
    plural: &'static str,
    short_names: &'static [&'static str],
    /// Whether `kubectl get all` shows it.
    in_all: bool,
    is_namespaced: bool,
    has_status: bool,
}

const fn row(
    of: BuiltIn,
    group: &'static str,
    version: &'static str,
    kind: &'static str,
    plural: &'static str,
) -> Row {
    Row {
        of,
        group,
        version,
        kind,
        plural,
        short_names: &[],
        in_all: false,
        is_namespaced: true,
        has_status: false,
    }
}

const EXTENSIONS: &str = "apiextensions.k8s.io";
const CRD: &str = "CustomResourceDefinition";
const HPA: &str = "HorizontalPodAutoscaler";

#[rustfmt::skip]
const BUILT_IN: [Row; 16] = [
    Row { short_names: &["cm"], ..row(BuiltIn::ConfigMap, "", "v1", "ConfigMap", "configmaps") },
    Row { short_names: &["ev"], ..row(BuiltIn::Event, "", "v1", "Event", "events") },
    Row { short_names: &["ns"], is_namespaced: false, has_status: true, ..row(BuiltIn::Namespace, "", "v1", "Namespace", "namespaces") },
    Row { short_names: &["no"], is_namespaced: false, has_status: true, ..row(BuiltIn::Node, "", "v1", "Node", "nodes") },
    Row { short_names: &["po"], in_all: true, has_status: true, ..row(BuiltIn::Pod, "", "v1", "Pod", "pods") },
    Row { short_names: &["quota"], has_status: true, ..row(BuiltIn::ResourceQuota, "", "v1", "ResourceQuota", "resourcequotas") },
    row(BuiltIn::Secret, "", "v1", "Secret", "secrets"),
    Row { short_names: &["sa"], ..row(BuiltIn::ServiceAccount, "", "v1", "ServiceAccount", "serviceaccounts") },
    Row { short_names: &["svc"], in_all: true, has_status: true, ..row(BuiltIn::Service, "", "v1", "Service", "services") },
    Row { short_names: &["crd", "crds"], is_namespaced: false, has_status: true, ..row(BuiltIn::CustomResourceDefinition, EXTENSIONS, "v1", CRD, "customresourcedefinitions") },
    Row { short_names: &["deploy"], in_all: true, has_status: true, ..row(BuiltIn::Deployment, "apps", "v1", "Deployment", "deployments") },
    Row { short_names: &["rs"], in_all: true, has_status: true, ..row(BuiltIn::ReplicaSet, "apps", "v1", "ReplicaSet", "replicasets") },
    Row { short_names: &["hpa"], in_all: true, has_status: true, ..row(BuiltIn::HorizontalPodAutoscaler, "autoscaling", "v2", HPA, "horizontalpodautoscalers") },
    row(BuiltIn::Lease, "coordination.k8s.io", "v1", "Lease", "leases"),
    Row { short_names: &["ev"], ..row(BuiltIn::EventV1, "events.k8s.io", "v1", "Event", "events") },
    Row { short_names: &["ing"], has_status: true, ..row(BuiltIn::Ingress, "networking.k8s.io", "v1", "Ingress", "ingresses") },
];

/// Returns the key of a resource.
pub(super) fn resource(group: &str, plural: &str) -> Resource {
    (Arc::from(group), Arc::from(plural))
}

// === impl Kind ===

impl Kind {
    fn built_in(row: &Row) -> Self {
        // Both API groups of Events share one collection.
        let stored = if row.of == BuiltIn::EventV1 { "" } else { row.group };
        let words = |words: &[&str]| words.iter().map(|&word| word.to_owned()).collect();
        Self {
            group: row.group.to_owned(),
            versions: vec![row.version.to_owned()],
            kind: row.kind.to_owned(),
            plural: row.plural.to_owned(),
            singular: row.kind.to_lowercase(),
            short_names: words(row.short_names),
            categories: words(if row.in_all { &["all"] } else { &[] }),
            is_namespaced: row.is_namespaced,
            has_status: row.has_status,
            of: Of::BuiltIn(row.of),
            resource: resource(stored, row.plural),
        }
    }

    /// Returns `plural.group`, its name in messages.
    pub(super) fn qualified(&self) -> String {
        if self.group.is_empty() { self.plural.clone() } else { format!("{}.{}", self.plural, self.group) }
    }

    /// Returns `group/version`.
    pub(super) fn api_version(&self, version: &str) -> String {
        if self.group.is_empty() { version.to_owned() } else { format!("{}/{version}", self.group) }
    }

    pub(super) fn serves(&self, group: &str, version: &str) -> bool {
        self.group == group && self.versions.iter().any(|v| v == version)
    }

    pub(super) fn is(&self, built_in: BuiltIn) -> bool {
        matches!(self.of, Of::BuiltIn(of) if of == built_in)
    }

    /// Returns whether this kind has the subresource `scale` in this version.
    pub(super) fn has_scale(&self, version: &str) -> bool {
        match &self.of {
            Of::BuiltIn(of) => matches!(of, BuiltIn::Deployment | BuiltIn::ReplicaSet),
            Of::Custom(definition) => definition.version(version).is_some_and(|v| v.scale.is_some()),
        }
    }

    /// Returns whether this kind has the subresource `status` in this version.
    pub(super) fn serves_status(&self, version: &str) -> bool {
        match &self.of {
            Of::BuiltIn(_) => self.has_status,
            Of::Custom(definition) => definition.version(version).is_some_and(|v| v.has_status),
        }
    }
}

/// All kinds, by group and plural.
#[derive(Clone, Debug)]
pub(super) struct Catalogue {
    kinds: BTreeMap<(String, String), Arc<Kind>>,
}

// === impl Catalogue ===

impl Catalogue {
    pub(super) fn new() -> Self {
        let kinds = BUILT_IN.iter().map(Kind::built_in);
        Self { kinds: kinds.map(|k| ((k.group.clone(), k.plural.clone()), Arc::new(k))).collect() }
    }

    pub(super) fn get(&self, group: &str, plural: &str) -> Option<Arc<Kind>> {
        self.kinds.get(&(group.to_owned(), plural.to_owned())).cloned()
    }

    pub(super) fn built_in(&self, of: BuiltIn) -> Arc<Kind> {
        self.iter().find(|kind| kind.is(of)).cloned().expect("every built-in kind is in the table")
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Arc<Kind>> {
        self.kinds.values()
    }

    pub(super) fn serves(&self, group: &str, version: &str) -> bool {
        self.iter().any(|kind| kind.serves(group, version))
    }

    /// Returns whether a group and version has built-in kinds.
    pub(super) fn has_built_in(&self, group: &str, version: &str) -> bool {
        self.iter().any(|kind| matches!(kind.of, Of::BuiltIn(_)) && kind.serves(group, version))
    }

    /// Adds a custom kind; built-in kinds are never replaced.
    pub(super) fn insert(&mut self, kind: Arc<Kind>) {
        let is_built_in = |kind: &Arc<Kind>| matches!(kind.of, Of::BuiltIn(_));
        if self.get(&kind.group, &kind.plural).as_ref().is_some_and(is_built_in) {
            return;
        }
        self.kinds.insert((kind.group.clone(), kind.plural.clone()), kind);
    }

    pub(super) fn remove(&mut self, group: &str, plural: &str) -> Option<Arc<Kind>> {
        let kind = self.get(group, plural)?;
        if matches!(kind.of, Of::BuiltIn(_)) {
            return None;
        }
        self.kinds.remove(&(group.to_owned(), plural.to_owned()))
    }
}
