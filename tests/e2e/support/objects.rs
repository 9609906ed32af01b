//! `Scene` helpers that create, change and wait for objects of any kind, as JSON.

use std::time::Duration;

use kube_client::api::{
    Api, ApiResource, DeleteParams, DynamicObject, GroupVersionKind, ListParams, Patch, PatchParams,
    PostParams,
};
use serde_json::{Value, json};

use super::runs::{Mode, run_mode};
use super::{Scene, canary, pass, wait_until};

/// The kinds that cases use: kind, group, version, plural.
const KINDS: [(&str, &str, &str, &str); 11] = [
    ("Foo", "samplecontroller.k8s.io", "v1alpha1", "foos"),
    ("Myapp", "myapp.timd.cn", "v1", "myapps"),
    ("AppService", "batch.schwarzeni.github.com", "v1alpha1", "appservices"),
    ("Redis", "myapp.tangx.in", "v1", "redis"),
    ("WebApp", "jiajunhuang.com", "v1", "webapps"),
    ("Deployment", "apps", "v1", "deployments"),
    ("Service", "", "v1", "services"),
    ("Ingress", "networking.k8s.io", "v1", "ingresses"),
    ("Pod", "", "v1", "pods"),
    ("ResourceQuota", "", "v1", "resourcequotas"),
    ("ServiceAccount", "", "v1", "serviceaccounts"),
];

/// The event types, each with its reasons.
const EVENT_TYPES: [(&str, &[&str]); 2] = [
    (
        "Normal",
        &[
            "ChildCreated",
            "ChildRepaired",
            "ChildDeleted",
            "Paused",
            "Resumed",
            "Synced",
            "ScaledUp",
            "ScaledDown",
            "PodRecreated",
            "Deleting",
            "TaskSucceeded",
            "TaskUndone",
        ],
    ),
    ("Warning", &["ErrResourceExists", "ChildRefused", "Contended", "TaskFailed"]),
];

/// Returns the condition of this type.
pub(crate) fn condition_of<'a>(object: &'a Value, type_: &str) -> Option<&'a Value> {
    object["status"]["conditions"].as_array()?.iter().find(|condition| condition["type"] == type_)
}

/// Returns the status of the condition of this type, or `absent` if there is none.
pub(crate) fn condition_status<'a>(object: &'a Value, type_: &str) -> &'a str {
    condition_of(object, type_).map_or("absent", |condition| condition["status"].as_str().expect("a text"))
}

/// Whether an object is Ready at its current generation.
pub(crate) fn is_ready(object: &Value) -> bool {
    condition_of(object, "Ready").is_some_and(|ready| {
        ready["status"] == "True" && ready["observedGeneration"] == object["metadata"]["generation"]
    })
}

/// Returns the resource of one of the kinds that cases use.
pub(crate) fn resource_of(kind: &str) -> ApiResource {
    let known = KINDS.iter().find(|(known, ..)| *known == kind);
    let (kind, group, version, plural) = known.expect("the kind is in the table");
    ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, version, kind), plural)
}

impl Scene {
    /// Returns the API for a kind in the scene's namespace.
    pub(crate) fn of(&self, kind: &str) -> Api<DynamicObject> {
        Api::namespaced_with(self.bed.client(), &self.namespace, &resource_of(kind))
    }

    /// Creates an object with this spec.
    pub(crate) async fn make(&self, kind: &str, name: &str, spec: Value) -> Value {
        self.make_whole(kind, json!({"metadata": {"name": name}, "spec": spec})).await
    }

    /// Creates an object.
    pub(crate) async fn make_whole(&self, kind: &str, mut object: Value) -> Value {
        let (_, group, version, _) = KINDS.iter().find(|(known, ..)| *known == kind).expect("a known kind");
        object["kind"] = json!(kind);
        object["apiVersion"] =
            json!(if group.is_empty() { (*version).to_owned() } else { format!("{group}/{version}") });
        canary::plant(kind, &mut object);
        let object: DynamicObject = serde_json::from_value(object).expect("the JSON is an object");
        let made = self.of(kind).create(&PostParams::default(), &object).await;
        let made = made.unwrap_or_else(|error| panic!("cannot create {kind}: {error}"));
        serde_json::to_value(made).expect("an object serializes")
    }

    /// Returns an object as the server stores it, if it exists.
    pub(crate) async fn look(&self, kind: &str, name: &str) -> Option<Value> {
        let found = self.of(kind).get_opt(name).await.expect("the object can be read");
        found.map(|object| serde_json::to_value(object).expect("an object serializes"))
    }

    /// Returns the sorted names of all objects of a kind.
    pub(crate) async fn names(&self, kind: &str) -> Vec<String> {
        let all = self.of(kind).list(&ListParams::default()).await.expect("the kind can be listed");
        let mut names: Vec<String> =
            all.items.into_iter().filter_map(|object| object.metadata.name).collect();
        names.sort();
        names
    }

    /// Returns every object of the kinds that cases use, and the number of events, to compare them later.
    pub(crate) async fn snapshot(&self) -> (Vec<Value>, usize) {
        let mut all = Vec::new();
        for (kind, ..) in KINDS {
            all.extend(self.matching(kind, "").await);
        }
        (all, self.all_events().await.len())
    }

    /// Returns a snapshot in which nothing has changed for two seconds: the cluster's own controllers may lag behind.
    pub(crate) async fn snapshot_at_rest(&self) -> (Vec<Value>, usize) {
        let mut last = self.snapshot().await;
        let look = async || {
            pass(Duration::from_secs(2)).await;
            let before = std::mem::replace(&mut last, self.snapshot().await);
            if before == last { Ok(before) } else { Err("it still changes") }
        };
        wait_until("nothing changes in the namespace", look).await
    }

    /// Returns the objects of a kind that match a label selector.
    pub(crate) async fn matching(&self, kind: &str, selector: &str) -> Vec<Value> {
        let found = self.of(kind).list(&ListParams::default().labels(selector)).await;
        let found = found.expect("the kind can be listed").items.into_iter();
        found.map(|object| serde_json::to_value(object).expect("an object serializes")).collect()
    }

    /// Applies a merge patch to an object.
    pub(crate) async fn change(&self, kind: &str, name: &str, patch: Value) {
        let patched = self.of(kind).patch(name, &PatchParams::default(), &Patch::Merge(patch)).await;
        drop(patched.unwrap_or_else(|error| panic!("cannot patch {kind} {name}: {error}")));
    }

    /// Deletes an object.
    pub(crate) async fn unmake(&self, kind: &str, name: &str, how: DeleteParams) {
        drop(self.of(kind).delete(name, &how).await.expect("the object can be deleted"));
    }

    /// Waits until an object satisfies `test`, and returns it.
    #[track_caller]
    pub(crate) fn until(
        &self,
        kind: &str,
        name: &str,
        what: &str,
        test: impl Fn(&Value) -> bool,
    ) -> impl Future<Output = Value> {
        let api = self.of(kind);
        wait_until(&format!("{kind} {name}: {what}"), async move || {
            let object = api.get_opt(name).await.map_err(|e| e.to_string())?;
            let object = serde_json::to_value(object).expect("an object serializes");
            canary::clean("a status", object["status"].to_string());
            if test(&object) { Ok(object) } else { Err(object.to_string()) }
        })
    }

    /// Waits until an object is Ready at its current generation.
    #[track_caller]
    pub(crate) fn until_ready(&self, kind: &str, name: &str) -> impl Future<Output = Value> {
        self.until(kind, name, "is Ready", is_ready)
    }

    /// Waits until an object's Ready condition has this reason.
    #[track_caller]
    pub(crate) fn until_reason(&self, kind: &str, name: &str, reason: &str) -> impl Future<Output = Value> {
        self.until(kind, name, reason, move |object| {
            condition_of(object, "Ready").is_some_and(|ready| ready["reason"] == reason)
        })
    }

    /// Waits until no object has this name.
    #[track_caller]
    pub(crate) fn until_gone(&self, kind: &str, name: &str) -> impl Future<Output = ()> {
        let api = self.of(kind);
        wait_until(&format!("{kind} {name} is gone"), async move || match api.get_opt(name).await {
            Ok(None) => Ok(()),
            seen => Err(format!("{seen:?}")),
        })
    }

    /// Waits until the objects of a kind have exactly these names.
    #[track_caller]
    pub(crate) fn until_names(&self, kind: &str, names: &[&str]) -> impl Future<Output = ()> {
        wait_until(&format!("{kind}: {names:?}"), async move || {
            let found = self.names(kind).await;
            if found == names { Ok(()) } else { Err(found) }
        })
    }

    /// Returns reasons and notes of an object's events, oldest first; checks each event's type against its reason.
    pub(crate) async fn events_about(&self, kind: &str, name: &str) -> Vec<(String, String)> {
        let events = self.all_events().await.into_iter().filter(|event| {
            let regarding = event.regarding.as_ref();
            regarding.is_some_and(|r| r.kind.as_deref() == Some(kind) && r.name.as_deref() == Some(name))
        });
        let emitted = events.map(|event| {
            let reason = event.reason.unwrap_or_default();
            let known = EVENT_TYPES.iter().find(|(_, reasons)| reasons.contains(&reason.as_str()));
            let (expected, _) =
                known.unwrap_or_else(|| panic!("event {reason} about {kind} {name} is not in EVENT_TYPES"));
            assert_eq!(event.type_.as_deref(), Some(*expected), "event {reason} about {kind} {name}");
            (reason, event.note.unwrap_or_default())
        });
        emitted.collect()
    }

    /// Waits for an event about an object with this reason and returns its note.
    #[track_caller]
    pub(crate) fn until_event(&self, kind: &str, name: &str, reason: &str) -> impl Future<Output = String> {
        wait_until(&format!("event {reason} about {kind} {name}"), async move || {
            let events = self.events_about(kind, name).await;
            let found = events.iter().find(|(found, _)| found == reason).map(|(_, note)| note.clone());
            found.ok_or(events)
        })
    }

    /// Waits for an event about an object with this reason and with these words in its note.
    #[track_caller]
    pub(crate) fn until_note(
        &self,
        kind: &str,
        name: &str,
        reason: &str,
        words: &str,
    ) -> impl Future<Output = ()> {
        wait_until(&format!("event {reason} about {kind} {name}: {words}"), async move || {
            let events = self.events_about(kind, name).await;
            let is_it = |(found, note): &(String, String)| found == reason && note.contains(words);
            if events.iter().any(is_it) { Ok(()) } else { Err(events) }
        })
    }

    /// Lets a day pass, or five seconds on a bed that runs in real time.
    pub(crate) async fn rest(&self) {
        pass(if is_virtual() { Duration::from_hours(24) } else { Duration::from_secs(5) }).await;
    }

    /// Lets a minute pass, or five seconds on a bed that runs in real time.
    pub(crate) async fn rest_for_a_while(&self) {
        pass(Duration::from_secs(if is_virtual() { 60 } else { 5 })).await;
    }

    /// Triggers the retry of a refused request: by waiting two minutes or, in real time, by an annotation.
    pub(crate) async fn tried_again(&self, kind: &str, name: &str) {
        if is_virtual() {
            return pass(Duration::from_secs(121)).await;
        }
        let object = self.look(kind, name).await.expect("the object exists");
        let note = json!({"windlass.dev/reconcile-at": object["metadata"]["resourceVersion"]});
        self.change(kind, name, json!({"metadata": {"annotations": note}})).await;
    }
}

/// Whether the clock is paused, so that waiting takes no time.
pub(crate) fn is_virtual() -> bool {
    run_mode() == Mode::Embedded
}
