//! The initial objects of a cluster, and the lifecycle of namespaces and CRDs.

use std::sync::Arc;

use serde_json::{Value, json};

use super::super::core::Core;
use super::super::custom;
use super::super::kinds::{BuiltIn, Catalogue};
use super::super::request::{items, text};
use super::is_deleting;

impl Core {
    /// Creates the objects of a new cluster.
    pub(in super::super) fn populate(&mut self) {
        for name in ["default", "kube-node-lease", "kube-public", "kube-system"] {
            self.make(BuiltIn::Namespace, json!({"metadata": {"name": name}}));
        }
        let spec = json!({"clusterIP": "10.0.0.1", "clusterIPs": ["10.0.0.1"], "ipFamilies": ["IPv4"],
            "ipFamilyPolicy": "SingleStack", "ports": [{"name": "https", "port": 443, "targetPort": 6443}]});
        let labels = json!({"component": "apiserver", "provider": "kubernetes"});
        let metadata = json!({"name": "kubernetes", "namespace": "default", "labels": labels});
        self.make(BuiltIn::Service, json!({"metadata": metadata, "spec": spec}));
        self.make_node();
    }

    /// Gives a namespace its default ServiceAccount, or empties one being deleted.
    pub(super) fn sync_namespace(&mut self, name: &str) {
        let key = (String::new(), name.to_owned());
        let Some((kind, namespace)) = self.find(BuiltIn::Namespace, &key) else { return };
        if !is_deleting(&namespace) {
            self.make(BuiltIn::ServiceAccount, json!({"metadata": {"name": "default", "namespace": name}}));
            return;
        }
        let content: Vec<_> = self
            .store
            .everything()
            .filter(|(resource, key, _)| key.0 == name && self.kind_of(resource).is_some())
            .map(|(resource, _, object)| (resource.clone(), object.clone()))
            .collect();
        if content.is_empty() {
            let mut changed = Value::clone(&namespace);
            changed["spec"]["finalizers"] = json!([]);
            self.amend(&kind, changed, &namespace);
            return;
        }
        for (resource, object) in content.into_iter().filter(|(_, object)| !is_deleting(object)) {
            if let Some(kind) = self.kind_of(&resource) {
                self.start_deletion(&kind, &object, "Background", None, false);
            }
        }
    }

    /// Serves the kind of a CRD and marks the CRD as established, or ends a CRD being deleted.
    pub(super) fn sync_definition(&mut self, name: &str) {
        let key = (String::new(), name.to_owned());
        let Some((kind, crd)) = self.find(BuiltIn::CustomResourceDefinition, &key) else { return };
        if is_deleting(&crd) {
            return self.end_definition(&crd);
        }
        match custom::kind_of(&crd) {
            Some(custom) => self.catalogue.insert(Arc::new(custom)),
            // The CRD serves no version any more.
            None => self.undefine(&crd),
        }
        let mut changed = Value::clone(&crd);
        let is_new = !custom::is_established(&crd);
        let now = self.stamp();
        if is_new {
            changed["status"] = custom::established(&crd, &now);
        } else {
            changed["status"]["acceptedNames"] = crd["spec"]["names"].clone();
        }
        self.amend(&kind, changed, &crd);
    }

    fn end_definition(&mut self, crd: &Arc<Value>) {
        let definitions = self.catalogue.built_in(BuiltIn::CustomResourceDefinition);
        let (group, plural) = (text(crd, "/spec/group"), text(crd, "/spec/names/plural"));
        if let Some(kind) = self.catalogue.get(group, plural) {
            let all: Vec<_> =
                self.store.collection(&kind.resource).map(|(_, object)| object.clone()).collect();
            for object in all.iter().filter(|object| !is_deleting(object)) {
                self.start_deletion(&kind, object, "Background", None, false);
            }
            if self.store.collection(&kind.resource).next().is_some() {
                // Finalizers keep some objects; each removal triggers this again.
                return;
            }
        }
        let mut changed = Value::clone(crd);
        let kept = items(crd, "/metadata/finalizers").iter().filter(|f| *f != custom::CLEANUP).cloned();
        super::super::delete::set_finalizers(&mut changed, kept.collect());
        self.amend(&definitions, changed, crd);
    }

    /// Stops serving the kind of a CRD and ends its watches.
    pub(super) fn undefine(&mut self, crd: &Value) {
        let (group, plural) = (text(crd, "/spec/group"), text(crd, "/spec/names/plural"));
        if let Some(kind) = self.catalogue.remove(group, plural) {
            self.watchers.cut(|watcher| watcher.kind.resource == kind.resource);
        }
    }

    /// Rebuilds the catalogue from the established CRDs in the store.
    pub(super) fn redefine(&mut self) {
        self.catalogue = Catalogue::new();
        let definitions = self.catalogue.built_in(BuiltIn::CustomResourceDefinition);
        for (_, crd) in self.store.collection(&definitions.resource) {
            if let Some(kind) = custom::kind_of(crd).filter(|_| custom::is_established(crd)) {
                self.catalogue.insert(Arc::new(kind));
            }
        }
    }
}
