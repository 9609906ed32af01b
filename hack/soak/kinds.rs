//! The kinds: where the server has them, specs at random, and the children that a spec asks for.

use std::fmt;

use fastrand::Rng;
use serde_json::{Value, json};

use crate::text;

/// A kind of object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Kind {
    pub(crate) name: &'static str,
    pub(crate) group: &'static str,
    pub(crate) version: &'static str,
    pub(crate) plural: &'static str,
}

const fn kind(name: &'static str, group: &'static str, version: &'static str, plural: &'static str) -> Kind {
    Kind { name, group, version, plural }
}

/// The five custom resources.
pub(crate) const OURS: [Kind; 5] = [
    kind("Foo", "samplecontroller.k8s.io", "v1alpha1", "foos"),
    kind("Myapp", "myapp.timd.cn", "v1", "myapps"),
    kind("AppService", "batch.schwarzeni.github.com", "v1alpha1", "appservices"),
    kind("Redis", "myapp.tangx.in", "v1", "redis"),
    kind("WebApp", "jiajunhuang.com", "v1", "webapps"),
];

pub(crate) const DEPLOYMENT: Kind = kind("Deployment", "apps", "v1", "deployments");
pub(crate) const SERVICE: Kind = kind("Service", "", "v1", "services");
pub(crate) const INGRESS: Kind = kind("Ingress", "networking.k8s.io", "v1", "ingresses");
pub(crate) const POD: Kind = kind("Pod", "", "v1", "pods");
/// The kinds of their children.
pub(crate) const CHILDREN: [Kind; 4] = [DEPLOYMENT, SERVICE, INGRESS, POD];

pub(crate) const CONFIG_MAP: Kind = kind("ConfigMap", "", "v1", "configmaps");
pub(crate) const NAMESPACE: Kind = kind("Namespace", "", "v1", "namespaces");
pub(crate) const SERVICE_ACCOUNT: Kind = kind("ServiceAccount", "", "v1", "serviceaccounts");
pub(crate) const QUOTA: Kind = kind("ResourceQuota", "", "v1", "resourcequotas");
pub(crate) const DEFINITION: Kind =
    kind("CustomResourceDefinition", "apiextensions.k8s.io", "v1", "customresourcedefinitions");
pub(crate) const WEBHOOK: Kind = kind(
    "ValidatingWebhookConfiguration",
    "admissionregistration.k8s.io",
    "v1",
    "validatingwebhookconfigurations",
);
pub(crate) const BINDING: Kind =
    kind("ClusterRoleBinding", "rbac.authorization.k8s.io", "v1", "clusterrolebindings");

impl Kind {
    /// Returns the API path of the kind, of all namespaces if `namespace` is empty.
    pub(crate) fn path(&self, namespace: &str) -> String {
        let Self { group, version, plural, .. } = self;
        let root =
            if group.is_empty() { format!("/api/{version}") } else { format!("/apis/{group}/{version}") };
        if namespace.is_empty() {
            format!("{root}/{plural}")
        } else {
            format!("{root}/namespaces/{namespace}/{plural}")
        }
    }

    pub(crate) fn api_version(&self) -> String {
        if self.group.is_empty() {
            self.version.to_owned()
        } else {
            format!("{}/{}", self.group, self.version)
        }
    }

    /// Returns the name of the kind's definition.
    pub(crate) fn definition(&self) -> String {
        format!("{}.{}", self.plural, self.group)
    }

    /// Returns the name of an object in the churn: `foo-3`.
    pub(crate) fn numbered(&self, number: usize) -> String {
        format!("{}-{number}", self.name.to_lowercase())
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

/// Returns a valid spec at random. A field that is null is one that a merge patch removes.
pub(crate) fn random_spec(kind: Kind, name: &str, rng: &mut Rng) -> Value {
    let tag = format!("1.{}", rng.u8(20..30));
    match kind.name {
        // Another deploymentName renames the child.
        "Foo" => {
            let suffix = ["a", "b"][rng.usize(..2)];
            json!({"deploymentName": format!("{name}-{suffix}"), "replicas": rng.u8(1..4)})
        }
        // The Ingress comes and goes with the host.
        "Myapp" => json!({
            "image": format!("nginx:{tag}"),
            "replicas": rng.u8(1..4),
            "containerPort": rng.u16(8000..8010),
            "servicePort": rng.u16(80..90),
            "host": rng.bool().then(|| format!("{name}.example.com")),
            "env": [{"name": "GREETING", "value": tag}],
        }),
        // The Service comes and goes with the ports.
        "AppService" => {
            let ports: Vec<Value> = (0..rng.u16(..3))
                .map(|at| json!({"name": format!("port-{at}"), "port": rng.u16(80..90) + 10 * at}))
                .collect();
            json!({"image": format!("nginx:{tag}"), "replicas": rng.u8(..4), "ports": ports})
        }
        "Redis" => json!({"image": format!("redis:{tag}"), "replicas": rng.u8(..4), "port": 6379}),
        "WebApp" => json!({"version": tag, "replicas": rng.u8(..4)}),
        other => unreachable!("{other} is not one of the five kinds"),
    }
}

/// Removes fields that are null, for a creation.
pub(crate) fn without_nulls(mut spec: Value) -> Value {
    if let Some(fields) = spec.as_object_mut() {
        fields.retain(|_, value| !value.is_null());
    }
    spec
}

/// A child that an object asks for: the live child must have these fields.
#[derive(Debug)]
pub(crate) struct Wanted {
    pub(crate) kind: Kind,
    pub(crate) name: String,
    pub(crate) spec: Value,
}

/// Returns the children that an object asks for.
pub(crate) fn wanted(object: &Value) -> Vec<Wanted> {
    let (name, spec) = (text(object, "/metadata/name"), &object["spec"]);
    let child = |kind, name: &str, spec| Wanted { kind, name: name.to_owned(), spec };
    let deployment = |name: &str, image: &str| {
        let containers = json!([{"image": image}]);
        child(
            DEPLOYMENT,
            name,
            json!({"replicas": spec["replicas"], "template": {"spec": {"containers": containers}}}),
        )
    };
    let image = text(spec, "/image");
    match text(object, "/kind") {
        "Foo" => vec![deployment(text(spec, "/deploymentName"), "nginx:latest")],
        "Myapp" => {
            let port = json!({"port": spec["servicePort"], "targetPort": spec["containerPort"]});
            let mut all = vec![deployment(name, image), child(SERVICE, name, json!({"ports": [port]}))];
            if spec["host"].is_string() {
                all.push(child(INGRESS, name, json!({"rules": [{"host": spec["host"]}]})));
            }
            all
        }
        "AppService" => {
            let mut all = vec![deployment(name, image)];
            let ports = spec["ports"].as_array().map(Vec::as_slice).unwrap_or_default();
            if !ports.is_empty() {
                let ports: Vec<Value> = ports.iter().map(|port| json!({"port": port["port"]})).collect();
                all.push(child(SERVICE, name, json!({"type": "NodePort", "ports": ports})));
            }
            all
        }
        "Redis" => {
            let pod = |at| child(POD, &format!("{name}-{at}"), json!({"containers": [{"image": image}]}));
            (0..spec["replicas"].as_u64().unwrap_or(1)).map(pod).collect()
        }
        "WebApp" => vec![deployment(name, &format!("nginx:{}", text(spec, "/version")))],
        _ => Vec::new(),
    }
}

/// Returns the condition `Ready`.
pub(crate) fn ready_condition(object: &Value) -> Option<&Value> {
    object["status"]["conditions"].as_array()?.iter().find(|condition| condition["type"] == "Ready")
}

/// Whether an object is Ready at its current generation.
pub(crate) fn is_ready(object: &Value) -> bool {
    ready_condition(object).is_some_and(|ready| {
        ready["status"] == "True" && ready["observedGeneration"] == object["metadata"]["generation"]
    })
}

/// Returns reason and message of an object's Ready condition.
pub(crate) fn why_not_ready(object: &Value) -> String {
    ready_condition(object).map_or("no condition".to_owned(), |condition| {
        format!("{}: {}", text(condition, "/reason"), text(condition, "/message"))
    })
}
