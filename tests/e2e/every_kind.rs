//! Behaviour that all five kinds share, tested for each of them. Each file covers one topic.

mod annotations;
mod children;
mod deletion;
mod in_the_way;
mod kubectl;
mod permissions;
mod status;

use futures_util::future::join_all;
use serde_json::{Value, json};

use crate::support::{LedgerEntry, Scene};

/// A custom resource kind and the facts that the cases need.
#[derive(Debug)]
struct Kind {
    name: &'static str,
    /// Plural and group, which identify the kind for kubectl unambiguously.
    plural: &'static str,
    short: &'static str,
    /// A spec with two replicas and with all children; `NAME` stands for the object's name.
    spec: &'static str,
    /// The children in order of creation: kind, and suffix after the object's name.
    children: &'static [(&'static str, &'static str)],
    /// The operator's finalizer on the custom resource.
    finalizer: Option<&'static str>,
    /// The columns of `kubectl get`.
    columns: &'static str,
}

#[rustfmt::skip]
static KINDS: [Kind; 5] = [
    Kind { name: "Foo", plural: "foos.samplecontroller.k8s.io", short: "fo", spec: r#"{"replicas": 2, "deploymentName": "NAME"}"#, children: &[("Deployment", "")], finalizer: None, columns: "NAME DEPLOYMENT REPLICAS AVAILABLE READY AGE" },
    Kind { name: "Myapp", plural: "myapps.myapp.timd.cn", short: "ma", spec: r#"{"replicas": 2, "image": "nginx:1.27", "containerPort": 80, "servicePort": 8080, "host": "NAME.example.com"}"#, children: &[("Deployment", ""), ("Service", ""), ("Ingress", "")], finalizer: None, columns: "NAME HOST REPLICAS STATUS READY AGE" },
    Kind { name: "AppService", plural: "appservices.batch.schwarzeni.github.com", short: "appsvc", spec: r#"{"replicas": 2, "image": "nginx:1.27", "ports": [{"port": 80}]}"#, children: &[("Deployment", ""), ("Service", "")], finalizer: None, columns: "NAME REPLICAS AVAILABLE READY AGE" },
    Kind { name: "Redis", plural: "redis.myapp.tangx.in", short: "rd", spec: r#"{"replicas": 2, "port": 6379, "image": "redis:7.4"}"#, children: &[("Pod", "-0"), ("Pod", "-1")], finalizer: Some("redis.myapp.tangx.in/pods"), columns: "NAME REPLICAS READY IMAGENAME AGE" },
    Kind { name: "WebApp", plural: "webapps.jiajunhuang.com", short: "webapp", spec: r#"{"replicas": 2, "version": "1.27"}"#, children: &[("Deployment", "")], finalizer: Some("webapp.jiajunhuang.com/finalizer"), columns: "NAME REPLICAS VERSION READY AGE" },
];

/// A finalizer that only the cases remove.
const HOLD: &str = "windlass.dev/hold-for-the-test";

/// The plurals of all child kinds.
const CHILDREN: [&str; 4] = ["deployments", "services", "ingresses", "pods"];

impl Kind {
    /// Returns the name of the kind's object in a scene with one object per kind.
    fn object(&self) -> String {
        self.name.to_lowercase()
    }

    async fn make(&self, scene: &Scene, name: &str) -> Value {
        let spec = self.spec.replace("NAME", name);
        scene.make(self.name, name, serde_json::from_str(&spec).unwrap()).await
    }

    async fn ready(&self, scene: &Scene, name: &str) -> Value {
        self.make(scene, name).await;
        scene.until_ready(self.name, name).await
    }

    /// Returns the children of the object with this name: kind, name, stored object.
    async fn children(&self, scene: &Scene, name: &str) -> Vec<(&'static str, String, Value)> {
        let mut children = Vec::new();
        for (kind, suffix) in self.children {
            let child = format!("{name}{suffix}");
            let found = scene.look(kind, &child).await;
            let found = found.unwrap_or_else(|| panic!("{} {name} has no {kind} {child}", self.name));
            children.push((*kind, child, found));
        }
        children
    }

    /// Returns the Pods that the selector in the object's status matches.
    async fn pods(&self, scene: &Scene, name: &str) -> Vec<Value> {
        let object = scene.look(self.name, name).await.unwrap();
        scene.matching("Pod", object["status"]["selector"].as_str().unwrap()).await
    }
}

/// Runs a case for every kind concurrently.
async fn for_every_kind(case: impl AsyncFn(&'static Kind)) {
    let mut cases = Vec::new();
    for kind in &KINDS {
        cases.push(case(kind));
    }
    join_all(cases).await;
}

/// Adds a finalizer that delays the object's deletion, or removes it.
async fn hold(scene: &Scene, kind: &str, name: &str, is_held: bool) {
    let finalizers = if is_held { json!([HOLD]) } else { Value::Null };
    scene.change(kind, name, json!({"metadata": {"finalizers": finalizers}})).await;
}

/// Whether a request targets a kind's own objects, not their children, which often have the same name.
fn is_about(write: &LedgerEntry, kind: &Kind) -> bool {
    kind.plural.split('.').next() == Some(&write.resource)
}

fn uid(object: &Value) -> &str {
    object["metadata"]["uid"].as_str().unwrap()
}

/// Returns the controller reference of an object.
fn controller(object: &Value) -> Option<&Value> {
    object["metadata"]["ownerReferences"].as_array()?.iter().find(|owner| owner["controller"] == true)
}

/// Counts the events about an object with this reason.
async fn count(scene: &Scene, kind: &str, name: &str, reason: &str) -> usize {
    scene.events_about(kind, name).await.iter().filter(|(found, _)| found == reason).count()
}
