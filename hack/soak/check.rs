//! The invariants, checked against everything that is in the cluster.

use std::collections::{BTreeMap, BTreeSet};

use clap::ValueEnum;
use serde::Serialize;
use serde_json::{Value, json};

use crate::churn::NAMESPACES;
use crate::cluster::{Refusal, Server};
use crate::foreign::{Foreign, is_taken};
use crate::kinds::{self, CHILDREN, NAMESPACE, OURS, SERVICE};
use crate::text;

/// An invariant and what is against it.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Check {
    pub(crate) name: &'static str,
    pub(crate) found: String,
    pub(crate) problems: Vec<String>,
}

/// Everything that the checks need.
#[derive(Default)]
pub(crate) struct View {
    /// The custom resources.
    ours: Vec<Value>,
    /// All objects of the children's kinds.
    children: Vec<Value>,
    namespaces: Vec<Value>,
    /// What differs in the objects of others.
    touched: Vec<String>,
}

/// Something that is spoiled by hand before the last check, to see a check fail.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Sabotage {
    /// An object of somebody else is deleted.
    Foreign,
    /// A Redis gets a child that it does not want.
    Doubled,
    /// A WebApp that is deleted gets a finalizer that nobody removes.
    Stuck,
}

impl View {
    pub(crate) async fn of(server: &Server, foreign: &Foreign) -> anyhow::Result<Self> {
        // Children first: the owner of a child in the list was created before, so a missing one is gone.
        let children = server.list_all(&CHILDREN).await?;
        let ours = server.list_all(&OURS).await?;
        let namespaces = server.list_all(&[NAMESPACE]).await?;
        let touched = foreign.problems(&children);
        Ok(Self { ours, children, namespaces, touched })
    }

    pub(crate) fn is_clean(&self) -> bool {
        self.checks().iter().all(|check| check.problems.is_empty())
    }

    pub(crate) fn checks(&self) -> Vec<Check> {
        vec![self.ready(), self.children(), self.owners(), self.deletions(), self.foreign()]
    }

    fn ready(&self) -> Check {
        let (ready, others): (Vec<&Value>, Vec<&Value>) =
            self.ours.iter().filter(|object| !is_deleted(object)).partition(|object| kinds::is_ready(object));
        let (taken, others): (Vec<&Value>, Vec<&Value>) = others.into_iter().partition(|object| {
            is_taken(object) && kinds::why_not_ready(object).starts_with("ResourceExists:")
        });
        let problem = |object: &&Value| format!("{}: {}", called(object), kinds::why_not_ready(object));
        Check {
            name: "every object is Ready",
            found: format!("{} Ready, {} with a taken name", ready.len(), taken.len()),
            problems: others.iter().map(problem).collect(),
        }
    }

    fn children(&self) -> Check {
        let mut owned = BTreeMap::<&str, Vec<&Value>>::new();
        for child in &self.children {
            if let Some(owner) = controller(child) {
                owned.entry(text(owner, "/uid")).or_default().push(child);
            }
        }
        let mut problems = Vec::new();
        for object in &self.ours {
            let children = owned.remove(text(object, "/metadata/uid")).unwrap_or_default();
            problems.extend(wrong_children(object, &children));
        }
        let count = self.children.iter().filter(|child| controller(child).is_some()).count();
        Check { name: "children are as wanted, none doubled", found: format!("{count} children"), problems }
    }

    fn owners(&self) -> Check {
        let living: BTreeSet<&str> = self.ours.iter().map(|object| text(object, "/metadata/uid")).collect();
        let is_lost =
            |child: &&Value| controller(child).is_some_and(|owner| !living.contains(text(owner, "/uid")));
        let lost = self.children.iter().filter(is_lost);
        Check {
            name: "no child has an owner that is gone",
            found: String::new(),
            problems: lost.map(|child| format!("{} has lost its owner", called(child))).collect(),
        }
    }

    fn deletions(&self) -> Check {
        let children = self.children.iter().filter(|child| controller(child).is_some());
        let all = self.ours.iter().chain(children).chain(&self.namespaces);
        let stuck = all.filter(|object| is_deleted(object));
        let problem = |object: &Value| {
            format!(
                "{} is being deleted, with finalizers {}",
                called(object),
                object["metadata"]["finalizers"]
            )
        };
        Check {
            name: "nothing is stuck in deletion",
            found: String::new(),
            problems: stuck.map(problem).collect(),
        }
    }

    fn foreign(&self) -> Check {
        Check {
            name: "objects of others are untouched",
            found: String::new(),
            problems: self.touched.clone(),
        }
    }
}

fn is_deleted(object: &Value) -> bool {
    !object["metadata"]["deletionTimestamp"].is_null()
}

/// Returns the owner that controls a child, if it is one of the five kinds.
fn controller(child: &Value) -> Option<&Value> {
    let mut owners = child["metadata"]["ownerReferences"].as_array()?.iter();
    owners.find(|owner| {
        let is_ours = |kind: &kinds::Kind| {
            owner["kind"] == kind.name && text(owner, "/apiVersion") == kind.api_version()
        };
        owner["controller"] == true && OURS.iter().any(is_ours)
    })
}

fn called(object: &Value) -> String {
    ["/kind", "/metadata/namespace", "/metadata/name"].map(|at| text(object, at)).join(" ")
}

/// Compares the children of an object with those that its spec asks for. Some may be missing if the object's names are
/// taken, or if it is being deleted.
fn wrong_children(object: &Value, children: &[&Value]) -> Vec<String> {
    let mut wrong = Vec::new();
    let wanted = kinds::wanted(object);
    for child in &wanted {
        let is_it = |live: &&&Value| {
            text(live, "/kind") == child.kind.name && text(live, "/metadata/name") == child.name
        };
        let what = format!("{} {} of {}", child.kind, child.name, called(object));
        match children.iter().find(is_it) {
            None if is_taken(object) || is_deleted(object) => {}
            None => wrong.push(format!("{what} is missing")),
            Some(live) if !covers(&live["spec"], &child.spec) => {
                wrong.push(format!("{what} is not as wanted: {}, wanted {}", live["spec"], child.spec));
            }
            Some(_) => {}
        }
    }
    let is_wanted = |live: &&&Value| {
        wanted.iter().any(|w| text(live, "/kind") == w.kind.name && text(live, "/metadata/name") == w.name)
    };
    let surplus = children.iter().filter(|live| !is_wanted(live));
    wrong.extend(surplus.map(|live| format!("{} is not wanted by {}", called(live), called(object))));
    wrong
}

/// Whether the live value has all that is wanted: further fields may be there, further items of a list may not.
fn covers(live: &Value, wanted: &Value) -> bool {
    match (live, wanted) {
        (Value::Object(live), Value::Object(wanted)) => {
            wanted.iter().all(|(key, value)| live.get(key).is_some_and(|live| covers(live, value)))
        }
        (Value::Array(live), Value::Array(wanted)) => {
            live.len() == wanted.len() && live.iter().zip(wanted).all(|(live, wanted)| covers(live, wanted))
        }
        _ => live == wanted,
    }
}

impl Sabotage {
    pub(crate) async fn commit(self, server: &Server) -> Result<(), Refusal> {
        let namespace = NAMESPACES[0];
        match self {
            Self::Foreign => server.delete(SERVICE, namespace, "appservice-0-x", "Background").await,
            Self::Doubled => {
                let redis = OURS[3];
                let owner = server.get(redis, namespace, "taken-redis").await?;
                let reference = json!({"apiVersion": redis.api_version(), "kind": redis.name, "name": "taken-redis",
                    "uid": owner["metadata"]["uid"], "controller": true});
                let metadata = json!({"name": "doubled", "ownerReferences": [reference]});
                let object = json!({"metadata": metadata, "spec": {"ports": [{"port": 80}]}});
                server.create(SERVICE, namespace, object).await.map(drop)
            }
            Self::Stuck => {
                let webapp = OURS[4];
                let metadata = json!({"name": "stuck", "finalizers": ["windlass.dev/never"]});
                let object = json!({"metadata": metadata, "spec": {"version": "1", "replicas": 0}});
                server.create(webapp, namespace, object).await?;
                server.delete(webapp, namespace, "stuck", "Background").await
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::View;

    fn redis(replicas: u64, reason: &str) -> Value {
        let ready = if reason == "Available" { "True" } else { "False" };
        json!({
            "kind": "Redis",
            "metadata": {"namespace": "a", "name": "cache", "uid": "1", "generation": 2},
            "spec": {"replicas": replicas, "image": "redis:7", "port": 6379},
            "status": {"conditions": [{"type": "Ready", "status": ready, "reason": reason, "observedGeneration": 2}]},
        })
    }

    fn pod(name: &str, owner: &str) -> Value {
        let owner =
            json!({"apiVersion": "myapp.tangx.in/v1", "kind": "Redis", "uid": owner, "controller": true});
        json!({
            "kind": "Pod",
            "metadata": {"namespace": "a", "name": name, "ownerReferences": [owner]},
            "spec": {"nodeName": "n", "containers": [{"name": "cache", "image": "redis:7"}]},
        })
    }

    fn problems(ours: Vec<Value>, children: Vec<Value>) -> Vec<String> {
        let view = View { ours, children, ..View::default() };
        view.checks().into_iter().flat_map(|check| check.problems).collect()
    }

    #[test]
    fn a_converged_cluster_has_no_problems() {
        let pods = vec![pod("cache-0", "1"), pod("cache-1", "1")];
        assert_eq!(problems(vec![redis(2, "Available")], pods), Vec::<String>::new());
    }

    #[test]
    fn missing_doubled_and_wrong_children_are_problems() {
        let live = |pods| problems(vec![redis(1, "Available")], pods);
        assert_eq!(live(vec![]), ["Pod cache-0 of Redis a cache is missing"]);
        let doubled = live(vec![pod("cache-0", "1"), pod("cache-7", "1")]);
        assert_eq!(doubled, ["Pod a cache-7 is not wanted by Redis a cache"]);
        let mut wrong = pod("cache-0", "1");
        wrong["spec"]["containers"][0]["image"] = json!("redis:6");
        assert!(live(vec![wrong])[0].starts_with("Pod cache-0 of Redis a cache is not as wanted: "));
    }

    #[test]
    fn lost_owners_and_deletions_are_problems() {
        assert_eq!(problems(vec![], vec![pod("cache-0", "9")]), ["Pod a cache-0 has lost its owner"]);
        let mut deleted = redis(1, "Deleting");
        deleted["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        deleted["metadata"]["finalizers"] = json!(["theirs"]);
        let expected = ["Redis a cache is being deleted, with finalizers [\"theirs\"]"];
        assert_eq!(problems(vec![deleted], vec![]), expected);
    }

    #[test]
    fn only_a_taken_name_excuses_an_object() {
        let exists = redis(0, "ResourceExists");
        assert_eq!(problems(vec![exists.clone()], vec![]), ["Redis a cache: ResourceExists: "]);
        let mut taken = exists;
        taken["metadata"]["name"] = json!("taken-redis");
        assert_eq!(problems(vec![taken], vec![]), Vec::<String>::new());
        let mut old = redis(0, "Available");
        old["metadata"]["generation"] = json!(3);
        assert_eq!(problems(vec![old], vec![]), ["Redis a cache: Available: "]);
    }
}
