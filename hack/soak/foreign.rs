//! Objects of somebody else, with names and labels like those of children: the operator must not touch them.
//!
//! Some have the name of a child of an object `taken-...`, which can therefore never become Ready.

use serde_json::{Value, json};

use crate::churn::NAMESPACES;
use crate::cluster::Server;
use crate::kinds::{CONFIG_MAP, DEPLOYMENT, Kind, OURS, POD, SERVICE};
use crate::{neighbour, text};

/// The objects as they were planted.
pub(crate) struct Foreign {
    planted: Vec<Value>,
}

impl Foreign {
    /// Makes the namespaces, plants the objects and creates those whose names they take.
    pub(crate) async fn plant(server: &Server) -> anyhow::Result<Self> {
        let mut planted = Vec::new();
        server.make_namespace(neighbour::NAMESPACE, "neighbour").await?;
        for namespace in NAMESPACES {
            server.make_namespace(namespace, "churn").await?;
            let owner =
                server.create(CONFIG_MAP, namespace, json!({"metadata": {"name": "somebody"}})).await?;
            for (kind, name, controller, instance) in [
                // Their names are taken.
                (DEPLOYMENT, "taken-foo", "foo", "taken-foo"),
                (SERVICE, "taken-myapp", "myapp", "taken-myapp"),
                (DEPLOYMENT, "taken-appservice", "appservice", "taken-appservice"),
                (POD, "taken-redis-0", "redis", "taken-redis"),
                (DEPLOYMENT, "taken-webapp", "webapp", "taken-webapp"),
                // These only look like children of objects in the churn.
                (DEPLOYMENT, "foo-0-c", "foo", "foo-0"),
                (SERVICE, "appservice-0-x", "appservice", "appservice-0"),
                (POD, "redis-0-9", "redis", "redis-0"),
            ] {
                let labels = json!({"app": instance, "app.kubernetes.io/name": controller,
                    "app.kubernetes.io/instance": instance, "app.kubernetes.io/managed-by": "windlass"});
                let reference = json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "somebody",
                    "uid": owner["metadata"]["uid"], "controller": true, "blockOwnerDeletion": true});
                let metadata = json!({"name": name, "labels": labels, "ownerReferences": [reference]});
                let object = json!({"metadata": metadata, "spec": spec(kind, &labels)});
                planted.push(server.create(kind, namespace, object).await?);
            }
        }
        let foreign = Self { planted };
        foreign.take_names(server).await?;
        Ok(foreign)
    }

    /// Creates the objects whose children's names are taken, where they are missing.
    pub(crate) async fn take_names(&self, server: &Server) -> anyhow::Result<()> {
        for namespace in NAMESPACES {
            for kind in OURS {
                let name = format!("taken-{}", kind.name.to_lowercase());
                let spec = match kind.name {
                    "Foo" => json!({"deploymentName": name}),
                    "Myapp" => json!({"image": "nginx", "containerPort": 80, "servicePort": 80}),
                    "AppService" => json!({"image": "nginx", "replicas": 1}),
                    "Redis" => json!({"image": "redis", "port": 6379}),
                    _ => json!({"version": "stable", "replicas": 1}),
                };
                server.insist(kind, namespace, &json!({"metadata": {"name": name}, "spec": spec})).await?;
            }
        }
        Ok(())
    }

    /// Says what differs from what was planted, given all objects of the children's kinds.
    pub(crate) fn problems(&self, live: &[Value]) -> Vec<String> {
        self.planted.iter().filter_map(|planted| problem(planted, live)).collect()
    }
}

/// Whether a child's name is taken by a foreign object, so that this object can never be Ready.
pub(crate) fn is_taken(object: &Value) -> bool {
    text(object, "/metadata/name").starts_with("taken-")
}

fn problem(planted: &Value, live: &[Value]) -> Option<String> {
    let of = |object: &Value| {
        ["/kind", "/metadata/namespace", "/metadata/name"].map(|at| text(object, at).to_owned())
    };
    let what = of(planted).join(" ");
    let Some(live) = live.iter().find(|live| of(live) == of(planted)) else {
        return Some(format!("{what} is gone"));
    };
    // Annotations and status are kept by other controllers, too.
    let kept = [
        "/metadata/uid",
        "/metadata/labels",
        "/metadata/ownerReferences",
        "/metadata/deletionTimestamp",
        "/spec",
    ];
    if let Some(changed) = kept.iter().find(|at| planted.pointer(at) != live.pointer(at)) {
        return Some(format!("{what} has another {changed}"));
    }
    let managers = live["metadata"]["managedFields"].as_array().into_iter().flatten();
    let mut ours = managers.filter(|entry| text(entry, "/manager").starts_with("windlass"));
    ours.next().map(|_| format!("{what} was written by the operator"))
}

fn spec(kind: Kind, labels: &Value) -> Value {
    let containers = json!([{"name": "c", "image": "nginx"}]);
    match kind {
        // No controller has any work with these.
        DEPLOYMENT => json!({"replicas": 0, "paused": true, "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": containers}}}),
        POD => json!({"containers": containers, "schedulingGates": [{"name": "windlass.dev/never"}]}),
        _ => json!({"ports": [{"port": 80}], "selector": labels}),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{Foreign, Value};

    fn service() -> Value {
        json!({"kind": "Service", "metadata": {"namespace": "a", "name": "b", "uid": "1"}, "spec": {"ports": []}})
    }

    #[test]
    fn a_changed_foreign_object_is_a_problem() {
        let foreign = Foreign { planted: vec![service()] };
        assert_eq!(foreign.problems(&[service()]), Vec::<String>::new());
        assert_eq!(foreign.problems(&[]), ["Service a b is gone"]);
        let changed = |at: &str, value: Value| {
            let mut live = service();
            live[at.split('/').next().unwrap_or_default()][at.split('/').nth(1).unwrap_or_default()] = value;
            foreign.problems(&[live])
        };
        assert_eq!(changed("metadata/uid", json!("2")), ["Service a b has another /metadata/uid"]);
        assert_eq!(changed("spec/ports", json!([1])), ["Service a b has another /spec"]);
        let written = json!([{"manager": "kubectl"}, {"manager": "windlass"}]);
        assert_eq!(changed("metadata/managedFields", written), ["Service a b was written by the operator"]);
    }
}
