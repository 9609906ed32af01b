//! The workloads of each kind: sequences of a user's steps.

use kube_client::core::CustomResourceExt;
use serde_json::{Value, json};
use windlass::api::{appservice, myapp, redis, samplecontroller, webapp};

/// The name of a run's custom resource.
pub(crate) const NAME: &str = "web";
/// The name of a custom resource beside it.
pub(crate) const NEIGHBOUR: &str = "neighbour";

/// A kind and its workloads.
pub(crate) struct Kind {
    pub(crate) kind: &'static str,
    /// As `--controllers` names it.
    pub(crate) controller: &'static str,
    /// Below `/apis`: group and version.
    pub(crate) group_version: &'static str,
    pub(crate) plural: &'static str,
    /// The CRD.
    pub(crate) definition: Value,
    /// The spec with which workloads begin.
    pub(crate) spec: Value,
    pub(crate) workloads: Vec<Workload>,
}

impl Kind {
    /// Returns the spec of a custom resource of this name, whose children have names of their own.
    pub(crate) fn spec_of(&self, name: &str) -> Value {
        let mut spec = self.spec.clone();
        for (field, own) in [("deploymentName", name.to_owned()), ("host", format!("{name}.example.com"))] {
            if let Some(value) = spec.get_mut(field) {
                *value = json!(own);
            }
        }
        spec
    }
}

/// A sequence of steps. Each step begins when the previous one has settled.
pub(crate) struct Workload {
    pub(crate) name: &'static str,
    /// Steps taken before calls are recorded.
    pub(crate) before: Vec<Step>,
    pub(crate) steps: Vec<Step>,
    /// Whether no object is left at the end.
    pub(crate) ends_empty: bool,
}

impl Workload {
    /// Returns the workload that ends after this many steps.
    pub(crate) fn first(&self, steps: usize) -> Self {
        let before = self.before[..steps.min(self.before.len())].to_vec();
        let steps = self.steps[..steps.saturating_sub(self.before.len())].to_vec();
        Self::of(self.name, before, steps)
    }

    /// Returns the workload with one more step.
    pub(crate) fn and(&self, step: Option<&Step>) -> Self {
        Self::of(self.name, self.before.clone(), self.steps.iter().chain(step).cloned().collect())
    }

    fn of(name: &'static str, before: Vec<Step>, steps: Vec<Step>) -> Self {
        let ends_empty = matches!(before.iter().chain(&steps).next_back(), None | Some(Step::Delete));
        Self { name, before, steps, ends_empty }
    }
}

/// One action of a user on the custom resource.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    /// Creates the resource with this spec.
    Create(Value),
    /// Applies a merge patch to the spec.
    Change(Value),
    /// Deletes the resource.
    Delete,
    /// Deletes the resource and creates it with this spec as soon as its name is free.
    Recreate(Value),
}

fn workload(name: &'static str, before: &[Step], steps: &[Step]) -> Workload {
    Workload::of(name, before.to_vec(), steps.to_vec())
}

/// Returns the workloads common to all kinds, followed by `more`.
fn workloads(spec: &Value, update: Value, more: Vec<Workload>) -> Vec<Workload> {
    let create = [Step::Create(spec.clone())];
    let replicas = |replicas: i32| Step::Change(json!({"replicas": replicas}));
    let mut all = vec![
        workload("create", &[], &create),
        workload("update", &create, &[Step::Change(update)]),
        workload("scale 2-4-1", &create, &[replicas(4), replicas(1)]),
        workload("delete", &create, &[Step::Delete]),
        workload("delete and create again", &create, &[Step::Recreate(spec.clone())]),
    ];
    all.extend(more);
    all
}

fn definition<K: CustomResourceExt>() -> Value {
    serde_json::to_value(K::crd()).expect("a CRD serializes")
}

pub(crate) fn foo() -> Kind {
    let spec = json!({"deploymentName": "web", "replicas": 2});
    let rename = Step::Change(json!({"deploymentName": "other"}));
    let more = vec![workload("rename", &[Step::Create(spec.clone())], &[rename])];
    Kind {
        kind: "Foo",
        controller: "foo",
        group_version: "samplecontroller.k8s.io/v1alpha1",
        plural: "foos",
        definition: definition::<samplecontroller::v1alpha1::Foo>(),
        workloads: workloads(&spec, json!({"replicas": 3}), more),
        spec,
    }
}

pub(crate) fn myapp() -> Kind {
    let spec = json!({
        "replicas": 2, "image": "nginx:1.27", "containerPort": 80, "servicePort": 80, "host": "a.example.com",
    });
    let update =
        json!({"image": "nginx:1.28", "containerPort": 81, "servicePort": 81, "host": "b.example.com"});
    let host = |host: Value| Step::Change(json!({"host": host}));
    let toggle = [host(Value::Null), host(json!("c.example.com"))];
    let more = vec![workload("host off and on", &[Step::Create(spec.clone())], &toggle)];
    Kind {
        kind: "Myapp",
        controller: "myapp",
        group_version: "myapp.timd.cn/v1",
        plural: "myapps",
        definition: definition::<myapp::v1::Myapp>(),
        workloads: workloads(&spec, update, more),
        spec,
    }
}

pub(crate) fn appservice() -> Kind {
    let ports = |port: u16| json!([{"port": port, "targetPort": 8080}]);
    let spec = json!({"replicas": 2, "image": "nginx:1.27", "ports": ports(80)});
    let change = |ports: Value| Step::Change(json!({"ports": ports}));
    let toggle = [change(json!([])), change(ports(82))];
    let more = vec![workload("ports off and on", &[Step::Create(spec.clone())], &toggle)];
    Kind {
        kind: "AppService",
        controller: "appservice",
        group_version: "batch.schwarzeni.github.com/v1alpha1",
        plural: "appservices",
        definition: definition::<appservice::v1alpha1::AppService>(),
        workloads: workloads(&spec, json!({"image": "nginx:1.28", "ports": ports(81)}), more),
        spec,
    }
}

pub(crate) fn redis() -> Kind {
    let spec = json!({"replicas": 2, "port": 6379, "image": "redis:7.4"});
    Kind {
        kind: "Redis",
        controller: "redis",
        group_version: "myapp.tangx.in/v1",
        plural: "redis",
        definition: definition::<redis::v1::Redis>(),
        workloads: workloads(&spec, json!({"image": "redis:8.0"}), Vec::new()),
        spec,
    }
}

pub(crate) fn webapp() -> Kind {
    let spec = json!({"replicas": 2, "version": "1.27", "image": "nginx"});
    Kind {
        kind: "WebApp",
        controller: "webapp",
        group_version: "jiajunhuang.com/v1",
        plural: "webapps",
        definition: definition::<webapp::v1::WebApp>(),
        workloads: workloads(&spec, json!({"version": "1.28"}), Vec::new()),
        spec,
    }
}
