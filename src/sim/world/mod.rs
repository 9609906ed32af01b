//! The simulated cluster behind the server: controllers, scheduler and kubelets.
//!
//! | file | plays | switch |
//! |---|---|---|
//! | `collector.rs` | the garbage collector: background, foreground, orphan | `collector` |
//! | `autoscaler.rs` | the horizontal Pod autoscaler | `autoscalers` |
//! | `workloads.rs` | Deployment → ReplicaSet → Pods, or the status alone | `workloads`, `status_of_workloads` |
//! | `pods.rs` | scheduler and kubelet | `pods` |
//! | `quotas.rs` | object count quotas | `quotas` |
//! | `events.rs` | the events that these write | `events` |
//! | `namespaces.rs` | the lifecycle of namespaces and CRDs | |
//! | `services.rs` | cluster IPs and node ports of Services | |
//!
//! Each part is level-triggered: a change schedules a sync of the objects concerned, which then acts on their
//! current state. Writes bypass requests: no fault hits them, and they do not appear in the ledger.

mod autoscaler;
mod collector;
mod events;
mod namespaces;
mod pods;
mod quotas;
mod services;
mod workloads;

use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use super::core::{Core, Task};
use super::kinds::{BuiltIn, Kind, Resource};
use super::request::{at, items, member, text};
use super::store::{Change, Key};

/// The delay of a sync after a change, before jitter.
const REACTION: Duration = Duration::from_millis(5);

/// How long Events are kept.
const EVENT_LIFE: Duration = Duration::from_secs(3600);

/// The number of removed owners to remember.
const GONE_MAX: usize = 500;

/// The parts of the cluster to simulate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Switches {
    /// The garbage collector.
    pub collector: bool,
    /// Deployments create ReplicaSets, which create Pods.
    pub workloads: bool,
    /// In place of that, only the status of a Deployment is kept, as if it had its Pods: for runs with thousands of them.
    pub status_of_workloads: bool,
    /// Pods are scheduled, become Ready and terminate.
    pub pods: bool,
    /// Quotas count objects and refuse new ones.
    pub quotas: bool,
    /// Autoscalers scale their targets.
    pub autoscalers: bool,
    /// The simulated controllers write events; off by default.
    pub events: bool,
}

impl Default for Switches {
    fn default() -> Self {
        Self {
            collector: true,
            workloads: true,
            status_of_workloads: false,
            pods: true,
            quotas: true,
            autoscalers: true,
            events: false,
        }
    }
}

/// A pending sync.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Work {
    /// The sync of an object with owners, which may all be gone.
    Owned(Resource, Key),
    /// The sync of an owner that is being deleted: it waits for its dependents, or orphans them.
    Waiting(Resource, Key),
    Deployment(Key),
    /// A paced Deployment's turn to be observed.
    Observe(Key),
    /// A paced Deployment's turn to become available.
    Complete(Key),
    ReplicaSet(Key),
    Pod(Key),
    Namespace(String),
    Quotas(String),
    Autoscaler(Key),
    Definition(String),
    /// The removal of an expired Event.
    OldEvent(Key),
}

/// The state of the simulated cluster.
#[derive(Clone, Debug, Default)]
pub(super) struct World {
    planned: HashSet<Work>,
    /// The location of each object, by uid.
    alive: HashMap<String, (Resource, Key)>,
    /// The dependents of each owner, by the owner's uid.
    dependents: HashMap<String, BTreeSet<(Resource, Key)>>,
    /// Pods and ReplicaSets without a controller, which a workload may adopt.
    orphans: BTreeSet<(Resource, Key)>,
    /// The namespaces and uids of recently removed owners, whose kinds may be gone, too.
    gone: VecDeque<(String, String)>,
    /// The time between two turns of paced rollouts, zero without pacing, and the next free turn.
    turns: (Duration, Duration),
}

/// Sets the value at a pointer, creating missing objects.
pub(super) fn set(object: &mut Value, pointer: &str, value: Value) {
    let mut at = object;
    for part in pointer.split('/').skip(1) {
        if !at.is_object() {
            *at = json!({});
        }
        at = &mut at[part];
    }
    *at = value;
}

/// Returns kind, name and uid of an object's controller.
fn controller_of(object: &Value) -> Option<(&str, &str, &str)> {
    let owners = items(object, "/metadata/ownerReferences");
    let owner = owners.iter().find(|owner| owner["controller"] == true)?;
    Some((text(owner, "/kind"), text(owner, "/name"), text(owner, "/uid")))
}

fn is_deleting(object: &Value) -> bool {
    at(object, "/metadata/deletionTimestamp").is_some()
}

impl Core {
    /// Schedules a sync after the reaction time.
    fn plan(&mut self, work: Work) {
        let jitter = Duration::from_micros(self.random(2000));
        self.plan_in(REACTION + jitter, work);
    }

    fn plan_in(&mut self, after: Duration, work: Work) {
        if self.world.planned.insert(work.clone()) {
            self.schedule(after, Task::World(work));
        }
    }

    /// Paces rollouts, each of which takes two turns.
    pub(super) fn pace_rollouts(&mut self, interval: Duration) {
        self.world.turns = (interval / 2, self.now);
    }

    pub(super) fn work(&mut self, work: Work) {
        self.world.planned.remove(&work);
        let switches = self.settings.world;
        match work {
            Work::Owned(resource, key) if switches.collector => self.collect(&resource, &key),
            Work::Waiting(resource, key) if switches.collector => self.advance_deletion(&resource, &key),
            Work::Deployment(key) if switches.status_of_workloads => self.pretend_pods(&key, false),
            Work::Observe(key) => self.plan_turn(Work::Complete(key)),
            Work::Complete(key) => self.pretend_pods(&key, true),
            Work::Deployment(key) if switches.workloads => self.sync_deployment(&key),
            Work::ReplicaSet(key) if switches.workloads => self.sync_replica_set(&key),
            Work::Pod(key) if switches.pods => self.sync_pod(&key),
            Work::Namespace(name) => self.sync_namespace(&name),
            Work::Quotas(namespace) if switches.quotas => self.count_quotas(&namespace),
            Work::Autoscaler(key) if switches.autoscalers => self.sync_autoscaler(&key),
            Work::Definition(name) => self.sync_definition(&name),
            Work::OldEvent(key) => {
                let events = self.catalogue.built_in(BuiltIn::Event);
                self.remove(&events, &key);
            }
            _ => {}
        }
    }

    /// Schedules the syncs that a change triggers.
    pub(super) fn react(&mut self, change: &Change) {
        self.index(change);
        let (resource, key) = (change.resource.clone(), change.key.clone());
        let Some(object) = change.after.clone().or_else(|| change.before.clone()) else { return };
        let is_there = change.after.is_some();
        if is_there && !items(&object, "/metadata/ownerReferences").is_empty() {
            self.plan(Work::Owned(resource.clone(), key.clone()));
        }
        if is_there && is_deleting(&object) {
            self.plan(Work::Waiting(resource.clone(), key.clone()));
        }
        if !is_there {
            self.react_to_removal(&object, &resource, &key);
        }
        self.plan_autoscalers(change);
        let core = resource.0.is_empty();
        match (&*resource.0, &*resource.1) {
            ("apps", "deployments") if is_there => self.plan(Work::Deployment(key.clone())),
            ("apps", "replicasets") => {
                if is_there {
                    self.plan(Work::ReplicaSet(key.clone()));
                }
                if let Some(("Deployment", owner, _)) = controller_of(&object) {
                    self.plan(Work::Deployment((key.0.clone(), owner.to_owned())));
                }
            }
            ("", "pods") => {
                if is_there {
                    self.plan(Work::Pod(key.clone()));
                }
                if let Some(("ReplicaSet", owner, _)) = controller_of(&object) {
                    self.plan(Work::ReplicaSet((key.0.clone(), owner.to_owned())));
                }
            }
            ("", "nodes") => self.plan_waiting_pods(),
            ("", "events") if is_there => self.plan_in(EVENT_LIFE, Work::OldEvent(key.clone())),
            ("", "namespaces") if is_there => self.plan(Work::Namespace(key.1.clone())),
            ("apiextensions.k8s.io", "customresourcedefinitions") if is_there => {
                self.plan(Work::Definition(key.1.clone()));
            }
            ("apiextensions.k8s.io", "customresourcedefinitions") => self.undefine(&object),
            _ => {}
        }
        let has_quotas = self.has_quotas(&key.0);
        if has_quotas || core && &*resource.1 == "resourcequotas" {
            self.plan(Work::Quotas(key.0));
        }
    }

    fn react_to_removal(&mut self, object: &Value, resource: &Resource, key: &Key) {
        let uid = text(object, "/metadata/uid").to_owned();
        let dependents = self.dependents_of(&uid);
        if !dependents.is_empty() {
            self.world.gone.truncate(GONE_MAX - 1);
            self.world.gone.push_front((key.0.clone(), uid));
        }
        for (resource, key) in dependents {
            self.plan(Work::Owned(resource, key));
        }
        for owner in items(object, "/metadata/ownerReferences") {
            if let Some((resource, key)) = self.world.alive.get(text(owner, "/uid")).cloned() {
                self.plan(Work::Waiting(resource, key));
            }
        }
        let definition = format!("{}.{}", resource.1, resource.0);
        let definitions = self.catalogue.built_in(BuiltIn::CustomResourceDefinition);
        if self.store.get(&definitions.resource, "", &definition).is_some_and(|crd| is_deleting(crd)) {
            self.plan(Work::Definition(definition));
        }
        let namespaces = self.catalogue.built_in(BuiltIn::Namespace);
        if self.store.get(&namespaces.resource, "", &key.0).is_some_and(|n| is_deleting(n)) {
            self.plan(Work::Namespace(key.0.clone()));
        }
    }

    /// Updates the indexes after a change.
    fn index(&mut self, change: &Change) {
        let object_key = (change.resource.clone(), change.key.clone());
        let owners = |object: &Option<Arc<Value>>| -> BTreeSet<String> {
            let object = object.as_deref().unwrap_or(&Value::Null);
            let owners = items(object, "/metadata/ownerReferences").iter();
            owners.map(|owner| text(owner, "/uid").to_owned()).collect()
        };
        let (before, after) = (owners(&change.before), owners(&change.after));
        for uid in before.difference(&after) {
            if let Some(dependents) = self.world.dependents.get_mut(uid) {
                dependents.remove(&object_key);
                if dependents.is_empty() {
                    self.world.dependents.remove(uid);
                }
            }
        }
        for uid in after.difference(&before) {
            self.world.dependents.entry(uid.clone()).or_default().insert(object_key.clone());
        }
        // An owner being deleted is synced again: a dependent may no longer block it.
        for uid in before.union(&after) {
            let owner = self.world.alive.get(uid).cloned();
            if let Some((resource, key)) = owner
                && self.store.get(&resource, &key.0, &key.1).is_some_and(|owner| is_deleting(owner))
            {
                self.plan(Work::Waiting(resource, key));
            }
        }
        if matches!((&*change.resource.0, &*change.resource.1), ("", "pods") | ("apps", "replicasets")) {
            if change.after.as_ref().is_some_and(|object| controller_of(object).is_none()) {
                self.world.orphans.insert(object_key.clone());
            } else {
                self.world.orphans.remove(&object_key);
            }
        }
        match (&change.before, &change.after) {
            (None, Some(object)) => {
                self.world.alive.insert(text(object, "/metadata/uid").to_owned(), object_key);
            }
            (Some(object), None) => {
                self.world.alive.remove(text(object, "/metadata/uid"));
            }
            _ => {}
        }
    }

    /// Rebuilds all state derived from the store.
    pub(super) fn reindex(&mut self) {
        self.redefine();
        self.world.alive.clear();
        self.world.dependents.clear();
        self.world.orphans.clear();
        self.world.gone.clear();
        let all: Vec<(Resource, Key, Arc<Value>)> = self
            .store
            .everything()
            .map(|(resource, key, object)| (resource.clone(), key.clone(), object.clone()))
            .collect();
        for (resource, key, object) in all {
            let change = Change { version: 0, resource, key, before: None, after: Some(object) };
            self.react(&change);
        }
    }

    fn dependents_of(&self, uid: &str) -> Vec<(Resource, Key)> {
        self.world.dependents.get(uid).into_iter().flatten().cloned().collect()
    }

    /// Returns the kind stored under a resource.
    fn kind_of(&self, resource: &Resource) -> Option<Arc<Kind>> {
        self.catalogue.get(&resource.0, &resource.1)
    }

    /// Stores an object that a controller changed, unless it is equal.
    fn amend(&mut self, kind: &Kind, mut object: Value, stored: &Arc<Value>) {
        self.record_status(kind, &mut object, stored);
        self.store_update(kind, object, stored, false);
    }

    /// Returns an object of a built-in kind, and the kind.
    fn find(&self, of: BuiltIn, key: &Key) -> Option<(Arc<Kind>, Arc<Value>)> {
        let kind = self.catalogue.built_in(of);
        let object = self.store.get(&kind.resource, &key.0, &key.1)?.clone();
        Some((kind, object))
    }

    /// Creates an object as a controller does; `None` if it is refused or exists.
    fn make(&mut self, of: BuiltIn, mut object: Value) -> Option<Arc<Value>> {
        let kind = self.catalogue.built_in(of);
        let key = super::core::key_of(&object);
        if self.check_quota(&kind, &object).is_err()
            || self.store.get(&kind.resource, &key.0, &key.1).is_some()
        {
            return None;
        }
        object["kind"] = json!(kind.kind);
        object["apiVersion"] = json!(kind.api_version(&kind.versions[0]));
        let mut unknown = Vec::new();
        super::builtin::decode(of, &mut object, &mut unknown).ok()?;
        super::builtin::default(of, &mut object);
        let (now, uid, suffix) = (self.stamp(), self.new_uid(), self.suffix());
        super::meta::before_create(&mut object, &now, &uid, &suffix);
        if super::builtin::generation_changes(of, &object, &object).is_some() {
            object["metadata"]["generation"] = json!(1);
        }
        if let Some(status) = super::builtin::initial_status(of, &object) {
            object["status"] = status;
        }
        Some(self.put(&kind, object))
    }
}

/// Sets a condition; its transition time changes only with its status. Those of Deployments have a time of the last
/// update, too.
fn set_condition(object: &mut Value, type_: &str, status: &str, reason: &str, message: &str, now: &str) {
    let is_deployment = object["kind"] == "Deployment";
    let conditions = &mut member(object, "status")["conditions"];
    if !conditions.is_array() {
        *conditions = json!([]);
    }
    let Value::Array(conditions) = conditions else { return };
    let known = conditions.iter().position(|condition| text(condition, "/type") == type_);
    let at = known.unwrap_or_else(|| {
        conditions.push(json!({"type": type_}));
        conditions.len() - 1
    });
    let condition = &mut conditions[at];
    let turns = text(condition, "/status") != status;
    if is_deployment && (turns || text(condition, "/reason") != reason) {
        condition["lastUpdateTime"] = json!(now);
    }
    if turns {
        condition["lastTransitionTime"] = json!(now);
    }
    for (key, value) in [("status", status), ("reason", reason), ("message", message)] {
        if value.is_empty() {
            condition.as_object_mut().map(|condition| condition.remove(key));
        } else {
            condition[key] = json!(value);
        }
    }
}
