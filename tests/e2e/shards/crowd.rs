//! Users who create, change and delete custom resources of all five kinds in several namespaces, and what comes of it.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Namespace;
use kube_client::Client;
use kube_client::api::{Api, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use super::team;
use crate::plans::workloads::{self, Kind};
use crate::support::{is_ready, resource_of};

const TEAMS: usize = 12;

/// Fields that depend on how an object came to be as it is.
const HISTORY: [&str; 20] = [
    "deployment.kubernetes.io/revision",
    "clusterIP",
    "clusterIPs",
    "creationTimestamp",
    "generation",
    "hostIP",
    "hostIPs",
    "lastTransitionTime",
    "lastUpdateTime",
    "managedFields",
    "nodeName",
    "nodePort",
    "observedGeneration",
    "podIP",
    "podIPs",
    "resourceVersion",
    "startTime",
    "startedAt",
    "steps",
    "uid",
];

/// A custom resource that exists.
struct Resource {
    kind: usize,
    namespace: String,
    name: String,
}

/// See the module.
pub(super) struct Crowd {
    admin: Client,
    kinds: [Kind; 5],
    live: Vec<Resource>,
    created: usize,
}

fn forget_history(value: &mut Value) {
    match value {
        Value::Object(members) => {
            members.retain(|key, _| !HISTORY.contains(&key.as_str()));
            members.values_mut().for_each(forget_history);
        }
        Value::Array(items) => items.iter_mut().for_each(forget_history),
        _ => {}
    }
}

impl Crowd {
    /// Creates the namespaces.
    pub(super) async fn on(admin: Client) -> Self {
        for at in 0..TEAMS {
            let namespace = serde_json::from_value(json!({"metadata": {"name": team(at)}})).unwrap();
            Api::<Namespace>::all(admin.clone()).create(&PostParams::default(), &namespace).await.unwrap();
        }
        let kinds = [
            workloads::foo(),
            workloads::myapp(),
            workloads::appservice(),
            workloads::redis(),
            workloads::webapp(),
        ];
        Self { admin, kinds, live: Vec::new(), created: 0 }
    }

    fn api(&self, kind: usize, namespace: &str) -> Api<DynamicObject> {
        Api::namespaced_with(self.admin.clone(), namespace, &resource_of(self.kinds[kind].kind))
    }

    /// Creates, changes or deletes a custom resource.
    pub(super) async fn change_something(&mut self, random: &mut fastrand::Rng) {
        let chosen = (!self.live.is_empty()).then(|| random.usize(..self.live.len()));
        match (random.u8(..6), chosen) {
            (0, Some(chosen)) => {
                let Resource { kind, namespace, name } = self.live.swap_remove(chosen);
                drop(self.api(kind, &namespace).delete(&name, &DeleteParams::default()).await.unwrap());
            }
            (1..4, Some(chosen)) => {
                let Resource { kind, namespace, name } = &self.live[chosen];
                let patch = Patch::Merge(json!({"spec": {"replicas": random.u8(1..4)}}));
                self.api(*kind, namespace).patch(name, &PatchParams::default(), &patch).await.unwrap();
            }
            _ => {
                let (kind, namespace) = (random.usize(..self.kinds.len()), team(random.usize(..TEAMS)));
                let name = format!("app-{}", self.created);
                self.created += 1;
                let spec = self.kinds[kind].spec_of(&name);
                self.create(Resource { kind, namespace, name }, &spec).await;
            }
        }
    }

    async fn create(&mut self, resource: Resource, spec: &Value) {
        let Resource { kind, namespace, name } = &resource;
        let Kind { kind: type_, group_version, .. } = &self.kinds[*kind];
        let object = json!({
            "kind": type_, "apiVersion": group_version, "metadata": {"name": name}, "spec": spec,
        });
        let object: DynamicObject = serde_json::from_value(object).expect("an object");
        self.api(*kind, namespace).create(&PostParams::default(), &object).await.expect("the name is new");
        self.live.push(resource);
    }

    /// Creates the custom resources of another cluster as they are in the end.
    pub(super) async fn repeat(&mut self, other: &Self) {
        for Resource { kind, namespace, name } in &other.live {
            let object = other.api(*kind, namespace).get(name).await.expect("it was not deleted");
            let resource = Resource { kind: *kind, namespace: namespace.clone(), name: name.clone() };
            self.create(resource, &object.data["spec"]).await;
        }
    }

    /// Returns the custom resources and their children without their history, and those that are not Ready.
    pub(super) async fn outcome(&self) -> (BTreeMap<String, Value>, Vec<String>) {
        let (mut objects, mut unready) = (BTreeMap::new(), Vec::new());
        let own = self.kinds.iter().map(|kind| kind.kind);
        for kind in own.clone().chain(["Deployment", "Service", "Ingress", "Pod"]) {
            let all = Api::<DynamicObject>::all_with(self.admin.clone(), &resource_of(kind));
            for object in all.list(&ListParams::default()).await.expect("the kind is listed").items {
                // The Deployment's status says how many Pods of a ReplicaSet there are.
                if object.metadata.generate_name.is_some() {
                    continue;
                }
                let mut object = json!(object);
                let text = |key: &str| object["metadata"][key].as_str().unwrap_or_default();
                let name = format!("{kind} {}/{}", text("namespace"), text("name"));
                if own.clone().any(|own| own == kind) && !is_ready(&object) {
                    unready.push(object.to_string());
                }
                forget_history(&mut object);
                objects.insert(name, object);
            }
        }
        (objects, unready)
    }
}
