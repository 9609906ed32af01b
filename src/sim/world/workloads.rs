//! The Deployment and ReplicaSet controllers.
//!
//! Rollouts obey `maxSurge` and `maxUnavailable`, or `Recreate`; returning to an old template makes its
//! ReplicaSet the newest revision. Not implemented: progress deadlines, and expectations (no cache can lag here).

use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use super::super::core::{Core, LETTERS};
use super::super::kinds::BuiltIn;
use super::super::request::{items, member, number, text};
use super::super::selectors::selector_matches;
use super::super::store::Key;
use super::{Work, controller_of, is_deleting, set, set_condition};

/// The maximum number of Pods created by one sync of a ReplicaSet.
const BURST: usize = 500;
/// The delay before a failed creation is retried.
const RETRY: Duration = Duration::from_secs(1);
/// How long pretended Pods take to become ready: about as long as simulated ones.
const START: Duration = Duration::from_millis(25);
/// The polling interval of a rollout that waits for Pods to end.
const ENDING: Duration = Duration::from_millis(100);
const HASH: &str = "pod-template-hash";
const REVISION: &str = "deployment.kubernetes.io/revision";

/// Returns the hash of a template, stable across runs.
fn hash_of(template: &Value) -> String {
    let hasher = BuildHasherDefault::<DefaultHasher>::new();
    let hash = hasher.hash_one(template.to_string());
    let letter = |at: u32| {
        let digit = (hash >> (at * 6)) % LETTERS.len() as u64;
        char::from(LETTERS[usize::try_from(digit).unwrap_or_default()])
    };
    (0..10).map(letter).collect()
}

/// Resolves a percentage of `of`, such as `25%`, or an absolute number.
fn share(value: Option<&Value>, of: i64, rounds_up: bool) -> i64 {
    match value {
        Some(Value::String(text)) => {
            let percent: i64 = text.trim_end_matches('%').parse().unwrap_or_default();
            let hundredfold = percent.saturating_mul(of);
            if rounds_up { hundredfold.saturating_add(99) / 100 } else { hundredfold / 100 }
        }
        Some(value) => value.as_i64().unwrap_or_default(),
        None => 0,
    }
}

/// Returns the revision of a ReplicaSet; 0 if it has none.
fn revision_of(set: &Value) -> i64 {
    set["metadata"]["annotations"][REVISION].as_str().and_then(|text| text.parse().ok()).unwrap_or_default()
}

/// Returns whether the status says that the last rollout has finished.
fn is_rolled_out(deployment: &Value) -> bool {
    let mut conditions = items(deployment, "/status/conditions").iter();
    conditions.any(|condition| {
        text(condition, "/type") == "Progressing" && text(condition, "/reason") == "NewReplicaSetAvailable"
    })
}

fn controller_reference(kind: &str, owner: &Value) -> Value {
    json!([{
        "apiVersion": "apps/v1",
        "kind": kind,
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
        "controller": true,
        "blockOwnerDeletion": true,
    }])
}

impl Core {
    /// Returns the objects of a built-in kind that `owner` controls, oldest first.
    fn controlled(&self, of: BuiltIn, owner: &Value) -> Vec<Arc<Value>> {
        let kind = self.catalogue.built_in(of);
        let uid = text(owner, "/metadata/uid");
        let owned = self.dependents_of(uid).into_iter().filter(|(resource, _)| *resource == kind.resource);
        let mut found: Vec<Arc<Value>> = owned
            .filter_map(|(resource, key)| self.store.get(&resource, &key.0, &key.1).cloned())
            .filter(|object| controller_of(object).is_some_and(|(_, _, owner)| owner == uid))
            .collect();
        found.sort_by_key(|object| {
            let created = text(object, "/metadata/creationTimestamp").to_owned();
            (created, text(object, "/metadata/name").to_owned())
        });
        found
    }

    /// Adopts objects that match the selector and have no controller.
    fn adopt(&mut self, of: BuiltIn, owner_kind: &str, owner: &Value) {
        let kind = self.catalogue.built_in(of);
        let namespace = text(owner, "/metadata/namespace");
        let orphans = self.world.orphans.iter();
        let orphans: Vec<Arc<Value>> = orphans
            .filter(|(resource, key)| *resource == kind.resource && key.0 == namespace)
            .filter_map(|(resource, key)| self.store.get(resource, &key.0, &key.1).cloned())
            .filter(|object| !is_deleting(object) && selector_matches(&owner["spec"]["selector"], object))
            .collect();
        for orphan in orphans {
            let mut changed = Value::clone(&orphan);
            let mut references = items(&orphan, "/metadata/ownerReferences").to_vec();
            references.extend(items(&controller_reference(owner_kind, owner), "").to_vec());
            changed["metadata"]["ownerReferences"] = Value::Array(references);
            self.amend(&kind, changed, &orphan);
        }
    }

    /// Removes the owner reference from controlled objects that no longer match the selector.
    fn let_go(&mut self, of: BuiltIn, owner: &Value) {
        let kind = self.catalogue.built_in(of);
        for object in self.controlled(of, owner) {
            if is_deleting(&object) || selector_matches(&owner["spec"]["selector"], &object) {
                continue;
            }
            let mut changed = Value::clone(&object);
            let mut references = items(&object, "/metadata/ownerReferences").to_vec();
            references.retain(|reference| reference["uid"] != owner["metadata"]["uid"]);
            match references.is_empty() {
                true => drop(
                    member(&mut changed, "metadata").as_object_mut().map(|it| it.remove("ownerReferences")),
                ),
                false => changed["metadata"]["ownerReferences"] = Value::Array(references),
            }
            self.amend(&kind, changed, &object);
        }
    }

    pub(super) fn sync_deployment(&mut self, key: &Key) {
        let Some((kind, deployment)) = self.find(BuiltIn::Deployment, key) else { return };
        if is_deleting(&deployment) {
            return;
        }
        self.adopt(BuiltIn::ReplicaSet, "Deployment", &deployment);
        self.let_go(BuiltIn::ReplicaSet, &deployment);
        let hash = hash_of(&deployment["spec"]["template"]);
        let sets = self.controlled(BuiltIn::ReplicaSet, &deployment);
        let (mut new, old): (Vec<_>, Vec<_>) =
            sets.into_iter().partition(|set| set["metadata"]["labels"][HASH] == json!(hash));
        let revision = old.iter().map(|set| revision_of(set)).max().unwrap_or_default().saturating_add(1);
        let is_new = new.is_empty();
        let is_paused = deployment["spec"]["paused"] == true;
        let waits = deployment["spec"]["strategy"]["type"] == "Recreate" && self.run_pods(&old);
        if waits {
            self.plan_in(ENDING, Work::Deployment(key.clone()));
        }
        if new.is_empty() && !waits && !is_paused {
            let replicas = first_replicas(&deployment, &old);
            match self.make_replica_set(&deployment, &hash, revision, replicas) {
                Some(made) => {
                    self.report_scaling(&deployment, text(&made, "/metadata/name"), 0, replicas);
                    new.push(made);
                }
                // A quota refuses it, or its name is taken: both may change.
                None => self.plan_in(RETRY, Work::Deployment(key.clone())),
            }
        }
        let new = new.first().map(|new| self.annotate(&deployment, new, revision));
        if is_paused {
            self.scale_paused(&deployment, new.iter().chain(&old));
        } else {
            self.roll(&deployment, new.as_ref(), &old);
            self.forget_old_sets(&deployment, &old);
        }
        // The rollout has changed the sets: read them again.
        let sets = self.controlled(BuiltIn::ReplicaSet, &deployment);
        let mut changed = Value::clone(&deployment);
        if let Some(new) = &new {
            let revision = new["metadata"]["annotations"][REVISION].clone();
            member(member(&mut changed, "metadata"), "annotations")[REVISION] = revision;
        }
        self.tell(&mut changed, &sets, &hash, is_new);
        self.amend(&kind, changed, &deployment);
    }

    /// Keeps the status of a Deployment as if a ReplicaSet had its Pods: they exist at once and are ready after [`START`].
    /// If rollouts are paced, both wait until the Deployment `has_turn`.
    pub(super) fn pretend_pods(&mut self, key: &Key, has_turn: bool) {
        let Some((kind, deployment)) = self.find(BuiltIn::Deployment, key) else { return };
        if is_deleting(&deployment) {
            return;
        }
        let desired = number(&deployment, "/spec/replicas");
        let is_new =
            number(&deployment, "/status/observedGeneration") != number(&deployment, "/metadata/generation");
        let has_all = ["replicas", "updatedReplicas", "readyReplicas", "availableReplicas"]
            .iter()
            .all(|count| deployment["status"][count].as_i64().unwrap_or_default() == desired);
        if !is_new && has_all && is_rolled_out(&deployment) {
            // The status says so already.
            return;
        }
        let is_waiting = is_new && !has_turn;
        let ready =
            if is_waiting { number(&deployment, "/status/readyReplicas").min(desired) } else { desired };
        if ready < desired {
            if !self.world.turns.0.is_zero() {
                return self.plan_turn(Work::Observe(key.clone()));
            }
            self.plan_in(START, Work::Deployment(key.clone()));
        }
        let hash = hash_of(&deployment["spec"]["template"]);
        let name = format!("{}-{hash}", text(&deployment, "/metadata/name"));
        let status = json!({"replicas": desired, "readyReplicas": ready, "availableReplicas": ready});
        let set = json!({
            "metadata": {"name": name, "labels": {HASH: hash}},
            "spec": {"replicas": desired},
            "status": status,
        });
        let mut changed = Value::clone(&deployment);
        self.tell(&mut changed, &[Arc::new(set)], &hash, is_new);
        self.amend(&kind, changed, &deployment);
    }

    /// Plans work for the next free turn, unless it already has one.
    pub(super) fn plan_turn(&mut self, work: Work) {
        if !self.world.planned.contains(&work) {
            let (length, next) = self.world.turns;
            let at = (self.now + START).max(next);
            self.world.turns.1 = at + length;
            self.plan_in(at - self.now, work);
        }
    }

    fn make_replica_set(
        &mut self,
        deployment: &Value,
        hash: &str,
        revision: i64,
        replicas: i64,
    ) -> Option<Arc<Value>> {
        let mut template = deployment["spec"]["template"].clone();
        member(member(&mut template, "metadata"), "labels")[HASH] = json!(hash);
        let mut selector = deployment["spec"]["selector"].clone();
        member(&mut selector, "matchLabels")[HASH] = json!(hash);
        let mut annotations = inherited(deployment);
        annotations[REVISION] = json!(revision.to_string());
        set_desired(deployment, &mut annotations);
        let name = format!("{}-{hash}", text(deployment, "/metadata/name"));
        let mut spec = json!({"replicas": replicas, "selector": selector, "template": template});
        if let Some(seconds) = deployment.pointer("/spec/minReadySeconds") {
            spec["minReadySeconds"] = seconds.clone();
        }
        let metadata = json!({
            "name": name,
            "namespace": deployment["metadata"]["namespace"],
            "labels": template["metadata"]["labels"],
            "annotations": annotations,
            "ownerReferences": controller_reference("Deployment", deployment),
        });
        self.make(BuiltIn::ReplicaSet, json!({"metadata": metadata, "spec": spec}))
    }

    /// Gives a set the annotations of its Deployment, and the newest revision, as when a Deployment returns to its
    /// template.
    fn annotate(&mut self, deployment: &Value, set: &Arc<Value>, revision: i64) -> Arc<Value> {
        let mut changed = Value::clone(set);
        let annotations = member(member(&mut changed, "metadata"), "annotations");
        for (key, value) in super::super::request::members(&inherited(deployment), "").into_iter().flatten() {
            annotations[key] = value.clone();
        }
        if revision_of(set) < revision {
            annotations[REVISION] = json!(revision.to_string());
        }
        let kind = self.catalogue.built_in(BuiltIn::ReplicaSet);
        self.store_update(&kind, changed, set, false)
    }

    /// Returns whether these sets still have running or terminating Pods.
    fn run_pods(&self, sets: &[Arc<Value>]) -> bool {
        let has_ended = |pod: &Value| matches!(text(pod, "/status/phase"), "Failed" | "Succeeded");
        sets.iter().any(|set| self.controlled(BuiltIn::Pod, set).iter().any(|pod| !has_ended(pod)))
    }

    /// Scales the new set up and the old sets down as far as the strategy allows.
    fn roll(&mut self, deployment: &Value, new: Option<&Arc<Value>>, old: &[Arc<Value>]) {
        let desired = number(deployment, "/spec/replicas");
        let is_recreate = deployment["spec"]["strategy"]["type"] == "Recreate";
        let rolling = &deployment["spec"]["strategy"]["rollingUpdate"];
        let surge = surge_of(deployment);
        let mut unavailable = share(rolling.get("maxUnavailable"), desired, false);
        if surge == 0 && unavailable == 0 {
            unavailable = 1;
        }
        let old_pods: i64 = old.iter().map(|set| number(set, "/spec/replicas")).sum();
        let Some(new) = new else {
            if is_recreate {
                old.iter().for_each(|set| self.scale_set(deployment, set, 0));
            }
            return;
        };
        let wanted = number(new, "/spec/replicas");
        // `Recreate` starts new Pods after the last old Pod has ended.
        let is_over = !self.run_pods(old);

        let room = match (is_recreate, is_over) {
            (true, true) => desired,
            (true, false) => 0,
            (false, _) => (desired + surge - old_pods).max(0),
        };
        let next = if wanted > desired { desired } else { desired.min(room.max(wanted)) };
        self.scale_set(deployment, new, next);
        if is_recreate {
            return old.iter().for_each(|set| self.scale_set(deployment, set, 0));
        }
        // Old Pods may go only while enough Pods remain available.
        let new_unavailable = (next - number(new, "/status/availableReplicas")).max(0);
        let mut may_go = (old_pods + next - (desired - unavailable) - new_unavailable).max(0);
        for set in old {
            let has = number(set, "/spec/replicas");
            let goes = has.min(may_go);
            may_go -= goes;
            self.scale_set(deployment, set, has - goes);
        }
    }

    /// Scales the one active set of a paused Deployment; a rollout that was paused halfway stays as it is.
    fn scale_paused<'a>(&mut self, deployment: &Value, sets: impl Iterator<Item = &'a Arc<Value>>) {
        let sets: Vec<&Arc<Value>> = sets.collect();
        let active: Vec<_> = sets.iter().filter(|set| number(set, "/spec/replicas") > 0).collect();
        let newest = sets.iter().max_by_key(|set| revision_of(set));
        if let Some(set) = active.first().copied().or(newest).filter(|_| active.len() < 2) {
            self.scale_set(deployment, set, number(deployment, "/spec/replicas"));
        }
    }

    fn scale_set(&mut self, deployment: &Value, set: &Arc<Value>, replicas: i64) {
        let key = super::super::core::key_of(set);
        let Some((kind, stored)) = self.find(BuiltIn::ReplicaSet, &key) else { return };
        let before = number(&stored, "/spec/replicas");
        if before == replicas {
            return;
        }
        let mut changed = Value::clone(&stored);
        set_number(&mut changed, "/spec/replicas", replicas);
        let generation = number(&stored, "/metadata/generation").saturating_add(1);
        set_number(&mut changed, "/metadata/generation", generation);
        set_desired(deployment, member(member(&mut changed, "metadata"), "annotations"));
        self.amend(&kind, changed, &stored);
        self.report_scaling(deployment, &key.1, before, replicas);
    }

    fn report_scaling(&mut self, deployment: &Value, set: &str, before: i64, after: i64) {
        if before != after {
            let way = if before < after { "up" } else { "down" };
            let words = format!("Scaled {way} replica set {set} from {before} to {after}");
            self.report(deployment, "deployment-controller", "ScalingReplicaSet", &words);
        }
    }

    fn forget_old_sets(&mut self, deployment: &Value, old: &[Arc<Value>]) {
        let limit = usize::try_from(number(deployment, "/spec/revisionHistoryLimit")).unwrap_or_default();
        let empty: Vec<&Arc<Value>> = old
            .iter()
            .filter(|set| number(set, "/spec/replicas") == 0 && number(set, "/status/replicas") == 0)
            .collect();
        let kind = self.catalogue.built_in(BuiltIn::ReplicaSet);
        for set in empty.iter().take(empty.len().saturating_sub(limit)) {
            self.start_deletion(&kind, set, "Background", None, false);
        }
    }

    /// Sets the status of a Deployment from its ReplicaSets; `is_new` if a rollout has just begun.
    fn tell(&self, deployment: &mut Value, sets: &[Arc<Value>], hash: &str, is_new: bool) {
        let sum = |pointer: &str| sets.iter().map(|set| number(set, pointer)).sum::<i64>();
        let new = sets.iter().find(|set| set["metadata"]["labels"][HASH] == json!(hash));
        let updated = new.map_or(0, |set| number(set, "/status/replicas"));
        let (replicas, available) = (sum("/status/replicas"), sum("/status/availableReplicas"));
        let desired = number(deployment, "/spec/replicas");
        let generation = number(deployment, "/metadata/generation");
        set_number(deployment, "/status/observedGeneration", generation);
        for (name, value) in [
            ("replicas", replicas),
            ("updatedReplicas", updated),
            ("readyReplicas", sum("/status/readyReplicas")),
            ("availableReplicas", available),
            ("unavailableReplicas", (sum("/spec/replicas").max(desired) - available).max(0)),
        ] {
            let status = member(deployment, "status");
            if value == 0 {
                status.as_object_mut().map(|status| status.remove(name));
            } else {
                status[name] = json!(value);
            }
        }
        set_number(deployment, "/status/terminatingReplicas", sum("/status/terminatingReplicas"));
        let now = self.stamp();
        let rolling = deployment.pointer("/spec/strategy/rollingUpdate/maxUnavailable");
        let least = desired - share(rolling, desired, false);
        if available >= least {
            let words = "Deployment has minimum availability.";
            set_condition(deployment, "Available", "True", "MinimumReplicasAvailable", words, &now);
        } else {
            let words = "Deployment does not have minimum availability.";
            set_condition(deployment, "Available", "False", "MinimumReplicasUnavailable", words, &now);
        }
        if deployment["spec"]["paused"] == true {
            let words = "Deployment is paused";
            return set_condition(deployment, "Progressing", "Unknown", "DeploymentPaused", words, &now);
        }
        let name = new.map_or("", |set| text(set, "/metadata/name")).to_owned();
        if updated == desired && replicas == desired && available == desired {
            let words = format!("ReplicaSet \"{name}\" has successfully progressed.");
            set_condition(deployment, "Progressing", "True", "NewReplicaSetAvailable", &words, &now);
        } else if is_new || updated != replicas || !is_rolled_out(deployment) {
            // Otherwise the last rollout is complete, and lost Pods affect only `Available`.
            let words = format!("ReplicaSet \"{name}\" is progressing.");
            set_condition(deployment, "Progressing", "True", "ReplicaSetUpdated", &words, &now);
        }
    }

    pub(super) fn sync_replica_set(&mut self, key: &Key) {
        let Some((kind, set)) = self.find(BuiltIn::ReplicaSet, key) else { return };
        if is_deleting(&set) {
            return;
        }
        let is_active = |pod: &&Arc<Value>| {
            !is_deleting(pod) && !matches!(text(pod, "/status/phase"), "Succeeded" | "Failed")
        };
        self.adopt(BuiltIn::Pod, "ReplicaSet", &set);
        self.let_go(BuiltIn::Pod, &set);
        let pods = self.controlled(BuiltIn::Pod, &set);
        let active: Vec<&Arc<Value>> = pods.iter().filter(is_active).collect();
        let desired = usize::try_from(number(&set, "/spec/replicas")).unwrap_or_default();
        let missing = desired.saturating_sub(active.len());
        let made = (0..missing.min(BURST)).take_while(|_| self.make_pod(&set)).count();
        if made < missing {
            // A quota refused some, or there are too many for one sync.
            self.plan_in(RETRY, Work::ReplicaSet(key.clone()));
        }
        if active.len() > desired {
            let pod_kind = self.catalogue.built_in(BuiltIn::Pod);
            let mut order = active.clone();
            // Pods that are not Ready go first, then the youngest.
            order.sort_by_key(|pod| super::pods::is_ready(pod));
            let surplus = active.len() - desired;
            let (unready, ready): (Vec<_>, Vec<_>) =
                order.into_iter().partition(|p| !super::pods::is_ready(p));
            for pod in unready.into_iter().rev().chain(ready.into_iter().rev()).take(surplus) {
                self.start_deletion(&pod_kind, pod, "", None, false);
                let words = format!("Deleted pod: {}", text(pod, "/metadata/name"));
                self.report(&set, "replicaset-controller", "SuccessfulDelete", &words);
            }
        }
        let pods = self.controlled(BuiltIn::Pod, &set);
        let active: Vec<&Arc<Value>> = pods.iter().filter(is_active).collect();
        let ready = active.iter().filter(|pod| super::pods::is_ready(pod)).count();
        let terminating = pods.iter().filter(|pod| is_deleting(pod)).count();
        let labelled = active.iter().filter(|pod| selector_matches(&set["spec"]["selector"], pod)).count();
        let mut changed = Value::clone(&set);
        let count = |n: usize| i64::try_from(n).unwrap_or(i64::MAX);
        set_number(&mut changed, "/status/replicas", count(active.len()));
        set_number(&mut changed, "/status/terminatingReplicas", count(terminating));
        set_number(&mut changed, "/status/observedGeneration", number(&set, "/metadata/generation"));
        for (name, value) in
            [("fullyLabeledReplicas", labelled), ("readyReplicas", ready), ("availableReplicas", ready)]
        {
            let status = member(&mut changed, "status");
            if value == 0 {
                status.as_object_mut().map(|status| status.remove(name));
            } else {
                status[name] = json!(value);
            }
        }
        self.amend(&kind, changed, &set);
    }

    fn make_pod(&mut self, set: &Value) -> bool {
        let template = &set["spec"]["template"];
        let name = format!("{}-{}", text(set, "/metadata/name"), self.suffix());
        let mut metadata = template["metadata"].clone();
        metadata["name"] = json!(name);
        metadata["generateName"] = json!(format!("{}-", text(set, "/metadata/name")));
        metadata["namespace"] = set["metadata"]["namespace"].clone();
        metadata["ownerReferences"] = controller_reference("ReplicaSet", set);
        let spec = template["spec"].clone();
        let is_made = self.make(BuiltIn::Pod, json!({"metadata": metadata, "spec": spec})).is_some();
        if is_made {
            let words = format!("Created pod: {name}");
            self.report(set, "replicaset-controller", "SuccessfulCreate", &words);
        }
        is_made
    }
}

/// Returns how many Pods a new set may have at once.
fn first_replicas(deployment: &Value, old: &[Arc<Value>]) -> i64 {
    let desired = number(deployment, "/spec/replicas");
    if deployment["spec"]["strategy"]["type"] == "Recreate" {
        return desired;
    }
    let old_pods: i64 = old.iter().map(|set| number(set, "/spec/replicas")).sum();
    (desired + surge_of(deployment) - old_pods).clamp(0, desired.max(0))
}

fn surge_of(deployment: &Value) -> i64 {
    let surge = deployment.pointer("/spec/strategy/rollingUpdate/maxSurge");
    share(surge, number(deployment, "/spec/replicas"), true)
}

/// Returns the annotations that a set has from its Deployment.
fn inherited(deployment: &Value) -> Value {
    let all = super::super::request::members(deployment, "/metadata/annotations").into_iter().flatten();
    let own = all.filter(|(key, _)| {
        *key != "kubectl.kubernetes.io/last-applied-configuration"
            && !key.starts_with("deployment.kubernetes.io/")
    });
    Value::Object(own.map(|(key, value)| (key.clone(), value.clone())).collect())
}

/// Notes in a set's annotations how many Pods its Deployment wants, and may have during a rollout.
fn set_desired(deployment: &Value, annotations: &mut Value) {
    let desired = number(deployment, "/spec/replicas");
    annotations["deployment.kubernetes.io/desired-replicas"] = json!(desired.to_string());
    let most = desired + surge_of(deployment);
    annotations["deployment.kubernetes.io/max-replicas"] = json!(most.to_string());
}

fn set_number(object: &mut Value, pointer: &str, value: i64) {
    set(object, pointer, json!(value));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn surge_rounds_up_and_unavailable_rounds_down() {
        assert_eq!(share(Some(&json!("25%")), 3, true), 1);
        assert_eq!(share(Some(&json!("25%")), 3, false), 0);
        assert_eq!(share(Some(&json!(2)), 3, true), 2);
    }
}
