//! What a cluster has from the start, and what the server's own controllers keep: namespaces, the kinds of
//! definitions, addresses and ports of Services.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::{Value, json};

use super::super::builtin::{NODE_PORTS, ports};
use super::super::core::Core;
use super::super::custom;
use super::super::failure::Cause;
use super::super::kinds::{BuiltIn, Catalogue};
use super::super::request::{items, text};
use super::is_deleting;

impl Core {
    /// What a new cluster has.
    pub(in super::super) fn populate(&mut self) {
        for name in ["default", "kube-node-lease", "kube-public", "kube-system"] {
            self.make(BuiltIn::Namespace, json!({"metadata": {"name": name}}));
        }
        let spec = json!({"clusterIP": "10.0.0.1", "clusterIPs": ["10.0.0.1"],
            "ports": [{"name": "https", "port": 443, "targetPort": 6443}]});
        let labels = json!({"component": "apiserver", "provider": "kubernetes"});
        let metadata = json!({"name": "kubernetes", "namespace": "default", "labels": labels});
        self.make(BuiltIn::Service, json!({"metadata": metadata, "spec": spec}));
    }

    /// A new namespace gets an account; one that ends is emptied first.
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

    /// A definition's kind is served from the moment when its status says so.
    pub(super) fn sync_definition(&mut self, name: &str) {
        let key = (String::new(), name.to_owned());
        let Some((kind, crd)) = self.find(BuiltIn::CustomResourceDefinition, &key) else { return };
        if is_deleting(&crd) {
            return self.end_definition(&crd);
        }
        match custom::kind_of(&crd) {
            Some(custom) => self.catalogue.insert(Arc::new(custom)),
            // No version is served any more.
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
                // Somebody's finalizers hold them; the removal of each comes back here.
                return;
            }
        }
        let mut changed = Value::clone(crd);
        let kept = items(crd, "/metadata/finalizers").iter().filter(|f| *f != custom::CLEANUP).cloned();
        super::super::delete::set_finalizers(&mut changed, kept.collect());
        self.amend(&definitions, changed, crd);
    }

    /// A kind without its definition is not served, and its watches end.
    pub(super) fn undefine(&mut self, crd: &Value) {
        let (group, plural) = (text(crd, "/spec/group"), text(crd, "/spec/names/plural"));
        if let Some(kind) = self.catalogue.remove(group, plural) {
            self.watchers.cut(|watcher| watcher.kind.resource == kind.resource);
        }
    }

    /// Serves the kinds of the definitions that are stored and established, and no others.
    pub(super) fn redefine(&mut self) {
        self.catalogue = Catalogue::new();
        let definitions = self.catalogue.built_in(BuiltIn::CustomResourceDefinition);
        for (_, crd) in self.store.collection(&definitions.resource) {
            if let Some(kind) = custom::kind_of(crd).filter(|_| custom::is_established(crd)) {
                self.catalogue.insert(Arc::new(kind));
            }
        }
    }

    /// Gives a Service its address and its ports on the nodes, or says why not.
    pub(in super::super) fn allocate(
        &mut self,
        service: &mut Value,
        stored: Option<&Value>,
        is_dry_run: bool,
        causes: &mut Vec<Cause>,
    ) {
        let type_ = text(service, "/spec/type").to_owned();
        if let Some(stored) = stored {
            drop_what_the_type_has_not(service, stored, &type_);
        }
        if type_ == "ExternalName" {
            return;
        }
        let own =
            (text(service, "/metadata/namespace").to_owned(), text(service, "/metadata/name").to_owned());
        let kind = self.catalogue.built_in(BuiltIn::Service);
        let others = self.store.collection(&kind.resource).filter(|(key, _)| **key != own);
        let mut addresses = BTreeSet::new();
        let mut taken = BTreeSet::new();
        for (_, other) in others {
            addresses.insert(text(other, "/spec/clusterIP").to_owned());
            for port in ports(other) {
                taken.insert((
                    port["nodePort"].as_i64().unwrap_or_default(),
                    text(port, "/protocol").to_owned(),
                ));
            }
        }
        let before = stored.map_or("", |stored| text(stored, "/spec/clusterIP"));
        let asked = text(service, "/spec/clusterIP").to_owned();
        let address = if !asked.is_empty() {
            asked
        } else if !before.is_empty() {
            before.to_owned()
        } else {
            let free = |n: &u32| !addresses.contains(&format!("10.0.{}.{}", n >> 8, n & 0xff));
            let n = (2..65_534).find(free).unwrap_or_default();
            format!("10.0.{}.{}", n >> 8, n & 0xff)
        };
        if stored.is_none() && addresses.contains(&address) && address != "None" {
            let detail = format!("failed to allocate IP {address}: provided IP is already allocated");
            causes.push(Cause::invalid("spec.clusterIPs", &json!([address]), &detail));
        }
        service["spec"]["clusterIP"] = json!(address);
        service["spec"]["clusterIPs"] = json!([address]);
        if matches!(type_.as_str(), "NodePort" | "LoadBalancer") {
            let mut wrong = Vec::new();
            allocate_ports(service, stored, &taken, &mut wrong);
            // Who only tries is not given ports, so none can be wrong.
            if !is_dry_run {
                causes.extend(wrong);
            }
        }
    }
}

fn allocate_ports(
    service: &mut Value,
    stored: Option<&Value>,
    taken: &BTreeSet<(i64, String)>,
    causes: &mut Vec<Cause>,
) {
    let mut own: BTreeSet<(i64, String)> = BTreeSet::new();
    let count = ports(service).len();
    for at in 0..count {
        let port = service["spec"]["ports"][at].clone();
        let protocol = text(&port, "/protocol").to_owned();
        let mut asked = port["nodePort"].as_i64().unwrap_or_default();
        if asked == 0 {
            // What the same port had before it keeps.
            let same = stored
                .into_iter()
                .flat_map(ports)
                .find(|old| old["port"] == port["port"] && old["protocol"] == port["protocol"]);
            asked = same.and_then(|old| old["nodePort"].as_i64()).unwrap_or_default();
        }
        if asked != 0 {
            let key = (asked, protocol);
            if !NODE_PORTS.contains(&asked) {
                let detail =
                    "provided port is not in the valid range. The range of valid ports is 30000-32767";
                causes.push(Cause::invalid(format!("spec.ports[{at}].nodePort"), &json!(asked), detail));
            } else if taken.contains(&key) || own.contains(&key) {
                let field = format!("spec.ports[{at}].nodePort");
                causes.push(Cause::invalid(field, &json!(asked), "provided port is already allocated"));
            }
            own.insert(key);
        } else {
            let is_free = |n: &i64| {
                let key = (*n, protocol.clone());
                !taken.contains(&key) && !own.contains(&key)
            };
            asked = NODE_PORTS.into_iter().find(is_free).unwrap_or_default();
            own.insert((asked, protocol));
        }
        service["spec"]["ports"][at]["nodePort"] = json!(asked);
    }
}

/// A Service that changes its type loses what belonged to the old one, unless it is asked for anew.
fn drop_what_the_type_has_not(service: &mut Value, stored: &Value, type_: &str) {
    if type_ == "ExternalName"
        && let Some(spec) = service.get_mut("spec").and_then(Value::as_object_mut)
    {
        spec.retain(|key, value| {
            !matches!(key.as_str(), "clusterIP" | "clusterIPs") || Some(&*value) != stored["spec"].get(key)
        });
    }
    if type_ != "ClusterIP" || text(stored, "/spec/type") == "ClusterIP" {
        return;
    }
    let before: Vec<i64> = ports(stored).iter().filter_map(|port| port["nodePort"].as_i64()).collect();
    let own = service.pointer_mut("/spec/ports").and_then(Value::as_array_mut);
    for port in own.into_iter().flatten().filter_map(Value::as_object_mut) {
        if port.get("nodePort").and_then(Value::as_i64).is_some_and(|port| before.contains(&port)) {
            port.remove("nodePort");
        }
    }
}
