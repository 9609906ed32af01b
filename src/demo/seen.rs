//! The fields that the board reads of any kind of object: metadata, replicas and status.
//!
//! ```text
//! informer of Seen<Foo>, Seen<Redis>, Seen<Pod> ... ─▶ Lister<Seen<K>> ─▶ Shelf ─▶ Seen of no type: Shown
//! ```
//! Custom resources and children are read alike, so a new kind needs no code here.
//!
//! # Guarantees
//! - An object of any kind is decoded, with and without a status. (test: `objects_of_any_kind_are_read`)

use std::marker::PhantomData;
use std::sync::Arc;

use serde::Deserialize;
use tokio::sync::Notify;

use crate::api::{ApiResource, HasResource};
use crate::cache::factory::Watched;
use crate::cache::{
    Cached, Deleted, EventHandler, Lister, Meta, Object, ObjectName, SharedInformerFactory, TypedObject,
};

/// An object of the kind `K`.
#[derive(Debug, Deserialize)]
#[serde(bound = "")]
pub(crate) struct Seen<K> {
    #[serde(default)]
    metadata: Meta,
    #[serde(default)]
    spec: Spec,
    #[serde(default)]
    status: Option<Status>,
    #[serde(skip)]
    kind: PhantomData<fn() -> K>,
}

/// The part of a spec that the board shows.
#[derive(Clone, Debug, Default, Deserialize)]
pub(super) struct Spec {
    pub(super) replicas: Option<i64>,
}

/// The part of a status that the board shows.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Status {
    #[cfg(feature = "tune")]
    observed_generation: Option<i64>,
    pub(super) ready_replicas: Option<i64>,
    pub(super) available_replicas: Option<i64>,
    pub(super) conditions: Vec<Condition>,
    /// The tasks of a WebApp.
    pub(super) steps: Vec<WebAppStep>,
}

/// A condition; a Pod's condition lacks some of the fields.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Condition {
    #[serde(rename = "type")]
    pub(super) type_: String,
    pub(super) status: String,
    pub(super) reason: String,
    pub(super) message: String,
    pub(super) observed_generation: Option<i64>,
}

/// A task, with its running or last hook.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct WebAppStep {
    pub(super) name: String,
    pub(super) phase: String,
    pub(super) hook: Option<String>,
    pub(super) attempts: i64,
}

/// An object of any kind.
#[derive(Clone, Debug)]
pub(super) struct Shown {
    /// The kind in lower case.
    pub(super) kind: String,
    pub(super) name: ObjectName,
    pub(super) uid: String,
    pub(super) generation: i64,
    pub(super) is_deleting: bool,
    /// Spec and status; `None` when they cannot be read.
    pub(super) body: Option<(Spec, Option<Status>)>,
}

/// The cached objects of one kind.
pub(super) trait Shelf: Send + Sync {
    /// Returns all objects, sorted by name.
    fn all(&self) -> Vec<Shown>;
    /// Returns the objects controlled by the owner with this uid, sorted by name.
    fn controlled_by(&self, uid: &str) -> Vec<Shown>;
}

/// Watches a kind (only objects that match the label selector, if given), and wakes the board on changes.
pub(super) type WatchKind = fn(&SharedInformerFactory, Option<&str>, &Arc<Notify>) -> Box<dyn Shelf>;

/// See [`WatchKind`].
pub(super) fn watch<K>(
    informers: &SharedInformerFactory,
    labels: Option<&str>,
    changed: &Arc<Notify>,
) -> Box<dyn Shelf>
where
    K: kube_core::Resource<DynamicType = ()> + 'static,
{
    let watched = Watched::<Seen<K>> { label_selector: labels.map(str::to_owned), ..Watched::default() };
    let informer = informers.informer(watched).expect("all requests for this kind are the same");
    // Adding a handler fails only on a stopped informer, and this one has not started.
    drop(informer.add_event_handler(Wake(changed.clone())));
    Box::new(informer.lister())
}

/// Wakes the board.
pub(super) struct Wake(pub(super) Arc<Notify>);

impl<K: TypedObject> EventHandler<K> for Wake {
    fn on_add(&mut self, _: &Cached<K>, _: bool) {
        self.0.notify_one();
    }

    fn on_update(&mut self, _: &Cached<K>, _: &Cached<K>) {
        self.0.notify_one();
    }

    fn on_delete(&mut self, _: &Deleted<K>) {
        self.0.notify_one();
    }
}

// === impl Shown ===

impl Shown {
    fn of<K>(object: &Cached<Seen<K>>) -> Self
    where
        K: kube_core::Resource<DynamicType = ()> + 'static,
    {
        Self {
            kind: K::kind(&()).to_lowercase(),
            name: object.object_name(),
            uid: object.uid().to_owned(),
            generation: object.generation(),
            is_deleting: object.is_deleting(),
            body: object.readable().map(|object| (object.spec.clone(), object.status.clone())),
        }
    }

    /// Returns the status, if the object has a readable one.
    pub(super) fn status(&self) -> Option<&Status> {
        self.body.as_ref().and_then(|(_, status)| status.as_ref())
    }
}

impl<K> Shelf for Lister<Seen<K>>
where
    K: kube_core::Resource<DynamicType = ()> + 'static,
{
    fn all(&self) -> Vec<Shown> {
        let mut all: Vec<Shown> =
            self.list(None, &kube_core::Selector::default()).iter().map(Shown::of).collect();
        all.sort_by(|a, b| a.name.cmp(&b.name));
        all
    }

    fn controlled_by(&self, uid: &str) -> Vec<Shown> {
        Lister::controlled_by(self, uid).iter().map(Shown::of).collect()
    }
}

// === impl Seen ===

#[cfg(feature = "tune")]
impl<K> Seen<K> {
    /// Returns the generation for which the object is Ready, if it is.
    pub(crate) fn ready_generation(&self) -> Option<i64> {
        let conditions = &self.status.as_ref()?.conditions;
        let ready = conditions.iter().find(|condition| condition.type_ == "Ready")?;
        (ready.status == "True").then(|| ready.observed_generation.unwrap_or(self.metadata.generation))
    }

    /// Returns the generation that the status observes.
    pub(crate) fn observed_generation(&self) -> Option<i64> {
        self.status.as_ref()?.observed_generation
    }
}

impl<K> TypedObject for Seen<K> where K: kube_core::Resource<DynamicType = ()> + 'static {}

impl<K> HasResource for Seen<K>
where
    K: kube_core::Resource<DynamicType = ()> + 'static,
{
    fn resource() -> ApiResource {
        ApiResource::of::<K>()
    }
}

impl<K> Object for Seen<K>
where
    K: kube_core::Resource<DynamicType = ()> + 'static,
{
    crate::object_by_meta!(self, self.metadata);
}

#[cfg(test)]
impl Shown {
    /// Decodes an object from its JSON.
    pub(super) fn read<K>(object: &serde_json::Value) -> Self
    where
        K: kube_core::Resource<DynamicType = ()> + 'static,
    {
        let mut object = object.clone();
        object["metadata"]["resourceVersion"] = "1".into();
        let decoded = crate::cache::decode::decode::<Seen<K>>(object.to_string().as_bytes());
        Self::of(&Cached::new(decoded.expect("the object has a name")))
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::{Pod, Service};
    use serde_json::json;

    use super::*;
    use crate::api::redis::v1::Redis;

    #[test]
    fn objects_of_any_kind_are_read() {
        let metadata = json!({"name": "a", "namespace": "ns", "uid": "u", "generation": 3});
        let redis = json!({"metadata": metadata, "spec": {"replicas": 4, "port": 6379}});
        let redis = Shown::read::<Redis>(&redis);
        assert_eq!((redis.kind.as_str(), redis.name.to_string().as_str()), ("redis", "ns/a"));
        assert_eq!((redis.uid.as_str(), redis.generation, redis.is_deleting), ("u", 3, false));
        assert_eq!(redis.body.as_ref().unwrap().0.replicas, Some(4));
        assert!(redis.status().is_none());
        let pod = json!({"metadata": metadata, "spec": {}, "status": {"phase": "Running",
            "conditions": [{"type": "Ready", "status": "True", "lastProbeTime": null}]}});
        assert_eq!(Shown::read::<Pod>(&pod).status().unwrap().conditions[0].type_, "Ready");
        let service = json!({"metadata": metadata, "spec": {"ports": []}, "status": {"loadBalancer": {}}});
        assert!(Shown::read::<Service>(&service).status().is_some());
        let odd = json!({"metadata": metadata, "spec": {"replicas": "many"}});
        assert!(Shown::read::<Redis>(&odd).body.is_none());
    }
}
