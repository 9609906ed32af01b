//! What is promised of every kind, shown for each of them. Each file is about one chapter of these promises.

mod annotations;
mod children;
mod deletion;
mod in_the_way;
mod kubectl;
mod status;

use futures_util::future::join_all;
use serde_json::{Value, json};

use crate::support::{LedgerEntry, Scene};

/// A kind, and what the cases have to know of it.
#[derive(Debug)]
struct Kind {
    name: &'static str,
    /// Its plural and its group, by which kubectl finds it, whatever else there is.
    plural: &'static str,
    short: &'static str,
    /// A spec with two replicas, and with all children; NAME stands for the object's name.
    spec: &'static str,
    /// Its children in the order in which they are made, and what stands behind the object's name in theirs.
    children: &'static [(&'static str, &'static str)],
    /// What holds it until its operator has done its part.
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

/// A finalizer of nobody who would ever take it off.
const HOLD: &str = "windlass.dev/hold-for-the-test";

/// The kinds of all children.
const CHILDREN: [&str; 4] = ["deployments", "services", "ingresses", "pods"];

impl Kind {
    /// The name of its object in a scene that has one of each kind.
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

    /// The children of its object of this name, as the server has them: kind, name, object.
    async fn children(&self, scene: &Scene, name: &str) -> Vec<(&'static str, String, Value)> {
        let mut children = Vec::new();
        for (kind, suffix) in self.children {
            let child = format!("{name}{suffix}");
            let found = scene.look(kind, &child).await;
            let found = found.unwrap_or_else(|| panic!("{} {name} has its {kind} {child}", self.name));
            children.push((*kind, child, found));
        }
        children
    }

    /// Its Pods, by the selector in its status.
    async fn pods(&self, scene: &Scene, name: &str) -> Vec<Value> {
        let object = scene.look(self.name, name).await.unwrap();
        scene.matching("Pod", object["status"]["selector"].as_str().unwrap()).await
    }
}

/// Runs a case for every kind, all at once.
async fn for_every_kind(case: impl AsyncFn(&'static Kind)) {
    let mut cases = Vec::new();
    for kind in &KINDS {
        cases.push(case(kind));
    }
    join_all(cases).await;
}

/// Keeps an object from going when it is deleted, or lets it go.
async fn hold(scene: &Scene, kind: &str, name: &str, is_held: bool) {
    let finalizers = if is_held { json!([HOLD]) } else { Value::Null };
    scene.change(kind, name, json!({"metadata": {"finalizers": finalizers}})).await;
}

/// Whether a request is about the objects of a kind themselves: their names are often those of their children.
fn is_about(write: &LedgerEntry, kind: &Kind) -> bool {
    kind.plural.split('.').next() == Some(&write.resource)
}

fn uid(object: &Value) -> &str {
    object["metadata"]["uid"].as_str().unwrap()
}

/// The owner of an object that is its controller.
fn controller(object: &Value) -> Option<&Value> {
    object["metadata"]["ownerReferences"].as_array()?.iter().find(|owner| owner["controller"] == true)
}

/// How many events about an object have this reason.
async fn count(scene: &Scene, kind: &str, name: &str, reason: &str) -> usize {
    scene.events_about(kind, name).await.iter().filter(|(found, _)| found == reason).count()
}
