//! Read your own writes: holds a key until the caches have seen the writes of its last sync.
//!
//! Mirrors kubernetes `pkg/controller/util/consistency` (`ConsistencyStore`, KEP-5647).
//! Flow: sync handler -> children, status -> **consistency** -> workers, before the next sync of the key
//!
//! # How it works
//! Each write is recorded under its key with the resource, the uid and the resource version in the server's
//! response. Before the key is synced, the version is compared with that of the resource's store: versions of one
//! resource grow, so a store that has reached the version has seen the write. The response to a delete carries no
//! version: the delete is seen when the store no longer holds the uid, or holds it as deleting.
//!
//! # Guarantees
//! - A key waits until the store has reached the versions of its writes. (test: `a_key_waits_for_its_writes`)
//! - Of the stores of a resource, those of the key's namespace are asked. (test: `stores_of_other_namespaces_are_not_asked`)
//! - A key waits for every kind it wrote: new and changed children, and its own status.
//!   (test: `key_waits_for_every_kind_it_wrote`, `every_write_is_awaited_in_the_cache`, `key_waits_for_its_own_status_write`)
//! - A delete is seen when the object is gone or deleting, an awaited end only when the object is gone.
//!   (test: `delete_is_seen_once_object_is_deleting`, `awaited_end_needs_the_object_to_be_gone`)
//! - A write that others superseded or deleted before the cache saw it does not block the key.
//!   (test: `superseded_write_does_not_block_the_key`)
//! - The guard fails open after 30 s: it counts and logs the unseen writes, ten at most, and passes read live until the
//!   caches have caught up.
//!   (test: `guard_fails_open_after_thirty_seconds`, `warning_names_unseen_writes_by_uid_and_version`, `warning_names_at_most_ten_writes`)
//! - A version that is not a number fails open. (test: `incomparable_versions_fail_open`)
//! - N deletes, shown by N events, cost 2 N lookups in the cache. (test: `seen_deletions_are_not_checked_again`)
//!
//! # Differences from client-go
//! Deletes are recorded, too. Of other writes, only the newest of each resource is kept. The records of an owner
//! are dropped when the caches have caught up, not when the owner is deleted. The event of its own write enqueues a
//! waiting key; the retry after [`RETRY`] covers events that never come.
//!
//! # Locks and tasks
//! One lock guards the recorded writes and is taken before those of the stores; another guards the writes of passes
//! in progress.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering as Atomic};
use std::time::Duration;

use parking_lot::{Mutex, RwLock};
use tokio::time::Instant;

use crate::api::ApiResource;
use crate::cache::{ObjectName, Store, TypedObject, compare_versions};
use crate::workqueue::has_spare_room;

/// How soon a waiting key is checked again if no event enqueues it.
pub(crate) const RETRY: Duration = Duration::from_secs(1);
/// How long a key waits at most.
const PATIENCE: Duration = Duration::from_secs(30);
/// How many writes the warning names at most.
const UNSEEN_MAX: usize = 10;

/// The guard's view of a store.
pub trait StoreView: Send + Sync {
    /// Returns the resource version of the last change in the store.
    fn resource_version(&self) -> Arc<str>;
    /// Returns whether the object with this uid is in the store, and whether it is being deleted.
    fn presence(&self, name: &ObjectName, uid: &str) -> Presence;
}

/// The state of an object in a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Presence {
    /// The object is in the store.
    Alive,
    /// The object is in the store and being deleted.
    Deleting,
    /// The object is not in the store.
    Gone,
}

/// A cache that receives no more events.
#[cfg(all(test, feature = "sim"))]
pub(crate) struct Frozen;

#[cfg(all(test, feature = "sim"))]
impl StoreView for Frozen {
    fn resource_version(&self) -> Arc<str> {
        "1".into()
    }

    fn presence(&self, _: &ObjectName, _: &str) -> Presence {
        Presence::Alive
    }
}

impl<K: TypedObject> StoreView for Store<K> {
    fn resource_version(&self) -> Arc<str> {
        Self::resource_version(self)
    }

    fn presence(&self, name: &ObjectName, uid: &str) -> Presence {
        match self.get(name).filter(|object| object.uid() == uid) {
            Some(object) if object.is_deleting() => Presence::Deleting,
            Some(_) => Presence::Alive,
            None => Presence::Gone,
        }
    }
}

/// Whether a key may be synced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Readiness {
    /// The caches have seen all writes of the key.
    Ready,
    /// The caches lag the key's writes.
    Waits,
    /// The caches have lagged for too long: the key is synced anyway, without trusting them.
    FailedOpen,
}

/// Records writes by key; see the module.
#[derive(Default)]
pub struct Consistency {
    stores: RwLock<HashMap<ApiResource, Vec<Observed>>>,
    writes: Mutex<HashMap<ObjectName, Writes>>,
    /// The writes of the passes in progress, by key.
    of_passes: Mutex<HashMap<ObjectName, Vec<Write>>>,
    failed_open: AtomicU64,
}

/// A store, and the namespace of its objects; `None` for all.
struct Observed {
    namespace: Option<String>,
    store: Box<dyn StoreView>,
}

/// A write of an object: a create, change or delete.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Write {
    /// The object's kind.
    pub kind: Cow<'static, str>,
    /// The object's name.
    pub name: ObjectName,
    /// The object's uid.
    pub uid: String,
}

/// The writes of one key that the caches may not have seen.
struct Writes {
    since: Instant,
    /// Whether the warning has been logged.
    is_reported: bool,
    /// The newest write of each resource: a store that has seen it has seen the earlier ones.
    newest: HashMap<ApiResource, Newest>,
    /// Deletions, oldest first.
    deleted: VecDeque<AwaitedDelete>,
}

/// A deleted object, and the presence that a store has to show.
#[derive(PartialEq, Eq)]
struct AwaitedDelete {
    resource: ApiResource,
    write: Write,
    /// [`Presence::Deleting`] or later, or [`Presence::Gone`].
    until: Presence,
}

/// The newest write of one resource.
#[derive(Default)]
struct Newest {
    /// Uid of the written object.
    uid: String,
    version: String,
}

// === impl Consistency ===

impl Consistency {
    /// Creates a guard without stores, which holds no key.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds the store that shows the writes of `resource`.
    #[must_use]
    pub fn with(self, resource: ApiResource, store: impl StoreView + 'static) -> Self {
        self.observe(resource, store);
        self
    }

    /// Adds a store that shows the writes of `resource`.
    pub fn observe(&self, resource: ApiResource, store: impl StoreView + 'static) {
        self.observe_in(None, resource, store);
    }

    /// Adds a store that shows the writes of `resource` in one namespace, or in all with `None`.
    pub fn observe_in(
        &self,
        namespace: Option<String>,
        resource: ApiResource,
        store: impl StoreView + 'static,
    ) {
        let observed = Observed { namespace, store: Box::new(store) };
        self.stores.write().entry(resource).or_default().push(observed);
    }

    /// Begins a pass of `key`, whose writes are kept for [`end_pass`](Self::end_pass).
    pub(in crate::controller) fn begin_pass(&self, key: &ObjectName) {
        self.of_passes.lock().insert(key.clone(), Vec::new());
    }

    /// Ends a pass of `key`; returns its writes.
    pub(in crate::controller) fn end_pass(&self, key: &ObjectName) -> Vec<Write> {
        self.of_passes.lock().remove(key).unwrap_or_default()
    }

    /// Records a write by a sync of `key`; `object` is the server's response.
    pub fn wrote<O: TypedObject>(&self, key: &ObjectName, object: &O) {
        let state = (object.uid(), object.resource_version());
        self.wrote_state(key, &O::resource(), object.object_name(), state);
    }

    /// Makes `key` wait for the version of its object that a live read has shown.
    pub(in crate::controller) fn awaits(
        &self,
        key: &ObjectName,
        resource: &ApiResource,
        (uid, version): (&str, &str),
    ) {
        let mut writes = self.writes.lock();
        let entry = writes.entry(key.clone()).or_insert_with(Writes::new);
        entry.wrote(resource, (uid, version));
    }

    /// Makes `key` wait until the cache shows that its object is gone, after a live read or a response has shown
    /// it.
    pub(in crate::controller) fn awaits_end(&self, key: &ObjectName, resource: &ApiResource, uid: &str) {
        let write = Write { kind: resource.kind.clone(), name: key.clone(), uid: uid.to_owned() };
        let mut writes = self.writes.lock();
        let entry = writes.entry(key.clone()).or_insert_with(Writes::new);
        let deletion = AwaitedDelete { resource: resource.clone(), write, until: Presence::Gone };
        if !entry.deleted.contains(&deletion) {
            entry.deleted.push_back(deletion);
        }
    }

    /// Records a write by a sync of `key` of which only uid and version are known.
    pub(in crate::controller) fn wrote_state(
        &self,
        key: &ObjectName,
        resource: &ApiResource,
        name: ObjectName,
        (uid, version): (&str, &str),
    ) {
        self.remember(key, Write { kind: resource.kind.clone(), name, uid: uid.to_owned() }, |writes, _| {
            writes.wrote(resource, (uid, version));
        });
    }

    /// Records that a sync of `key` deleted the object with this uid.
    pub fn deleted(&self, key: &ObjectName, resource: &ApiResource, name: ObjectName, uid: &str) {
        let write = Write { kind: resource.kind.clone(), name, uid: uid.to_owned() };
        self.remember(key, write, |writes, write| {
            let (resource, write) = (resource.clone(), write.clone());
            writes.deleted.push_back(AwaitedDelete { resource, write, until: Presence::Deleting });
        });
    }

    fn remember(&self, key: &ObjectName, write: Write, await_it: impl FnOnce(&mut Writes, &Write)) {
        let mut writes = self.writes.lock();
        let entry = writes.entry(key.clone()).or_insert_with(Writes::new);
        await_it(entry, &write);
        (entry.since, entry.is_reported) = (Instant::now(), false);
        drop(writes);

        if let Some(writes) = self.of_passes.lock().get_mut(key) {
            writes.push(write);
        }
    }

    /// Whether `key` may be synced; forgets the writes that the caches have seen.
    #[must_use]
    pub fn is_ready(&self, key: &ObjectName) -> bool {
        self.look(key) != Readiness::Waits
    }

    /// Returns the readiness of `key`; forgets the writes that the caches have seen.
    #[must_use]
    pub fn look(&self, key: &ObjectName) -> Readiness {
        let mut writes = self.writes.lock();
        let Some(entry) = writes.get_mut(key) else { return Readiness::Ready };
        let stores = self.stores.read();
        entry.newest.retain(|resource, write| {
            let mut stores = stores.get(resource).into_iter().flatten();
            stores.any(|one| one.covers(key.namespace()) && one.is_behind(&write.version))
        });
        drop(stores);
        // Stop at the first unseen deletion: the event of each deletion enqueues the key, and checking all of them
        // every time would be quadratic.
        while entry.deleted.front().is_some_and(|deletion| !self.is_unseen(deletion)) {
            entry.deleted.pop_front();
        }
        let is_ready = entry.newest.is_empty() && entry.deleted.is_empty();
        let is_over = entry.since.elapsed() >= PATIENCE;
        let is_news = is_over && !is_ready && !std::mem::replace(&mut entry.is_reported, true);
        let unseen = is_news.then(|| {
            entry.deleted.retain(|deletion| self.is_unseen(deletion));
            entry.describe()
        });
        if is_ready {
            writes.remove(key);
            if has_spare_room(writes.len(), writes.capacity()) {
                let wanted = 2 * writes.len();
                writes.shrink_to(wanted);
            }
        }
        drop(writes);

        if let Some(unseen) = unseen {
            self.failed_open.fetch_add(1, Atomic::Relaxed);
            tracing::warn!(
                unseen,
                "The caches have not observed this key's own writes within 30 s; continuing with live reads"
            );
        }
        match (is_ready, is_over) {
            (true, _) => Readiness::Ready,
            (false, true) => Readiness::FailedOpen,
            (false, false) => Readiness::Waits,
        }
    }

    /// Drops the writes of a key whose object is gone, on the server and in the cache: after a restore of the store, the
    /// caches may not reach their versions, and nothing would look at the key again.
    pub(in crate::controller) fn forget(&self, key: &ObjectName) {
        self.writes.lock().remove(key);
    }

    /// Returns the number of keys with writes that the caches have not shown.
    #[must_use]
    pub fn len(&self) -> usize {
        self.writes.lock().len()
    }

    /// Whether no key has recorded writes left.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns how often the guard has failed open.
    #[must_use]
    pub fn failed_open(&self) -> u64 {
        self.failed_open.load(Atomic::Relaxed)
    }

    fn is_unseen(&self, AwaitedDelete { resource, write, until }: &AwaitedDelete) -> bool {
        let stores = self.stores.read();
        stores.get(resource).into_iter().flatten().any(|one| {
            one.covers(write.name.namespace()) && one.store.presence(&write.name, &write.uid) < *until
        })
    }

    /// The resources whose stores are observed, in a fixed order.
    pub(super) fn resources(&self) -> Vec<ApiResource> {
        let mut all: Vec<ApiResource> = self.stores.read().keys().cloned().collect();
        all.sort_by_key(ToString::to_string);
        all
    }

    /// Whether a store of this resource has not reached `version`.
    pub(super) fn is_behind(&self, resource: &ApiResource, version: &str) -> bool {
        self.stores.read().get(resource).into_iter().flatten().any(|one| one.is_behind(version))
    }
}

impl Observed {
    fn covers(&self, namespace: Option<&str>) -> bool {
        self.namespace.is_none() || self.namespace.as_deref() == namespace
    }

    fn is_behind(&self, version: &str) -> bool {
        compare_versions(&self.store.resource_version(), version) == Some(Ordering::Less)
    }
}

impl Writes {
    fn new() -> Self {
        Self { since: Instant::now(), is_reported: false, newest: HashMap::new(), deleted: VecDeque::new() }
    }

    fn wrote(&mut self, resource: &ApiResource, (uid, version): (&str, &str)) {
        let newest = self.newest.entry(resource.clone()).or_default();
        if compare_versions(version, &newest.version) != Some(Ordering::Less) {
            uid.clone_into(&mut newest.uid);
            version.clone_into(&mut newest.version);
        }
    }

    /// Describes the unseen writes: `deployments uid 7c0a at version 12, pods web-0 uid 9d1e deleted`.
    fn describe(&self) -> String {
        let newest = self.newest.iter().map(|(resource, Newest { uid, version })| {
            format!("{} uid {uid} at version {version}", resource.plural)
        });
        let deleted =
            self.deleted.iter().map(|AwaitedDelete { resource, write: Write { name, uid, .. }, .. }| {
                format!("{} {} uid {uid} deleted", resource.plural, name.name())
            });
        let all = self.newest.len() + self.deleted.len();
        let more = all.checked_sub(UNSEEN_MAX).filter(|more| *more > 0).map(|more| format!("{more} more"));
        newest.chain(deleted).take(UNSEEN_MAX).chain(more).collect::<Vec<_>>().join(", ")
    }
}

impl fmt::Debug for Consistency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Consistency").field("keys", &self.writes.lock().len()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::store::StoreWriter;
    use crate::cache::{Cached, Indexers, store};
    use crate::testing::config_map;
    use k8s_openapi::api::core::v1::ConfigMap;

    const MAPS: ApiResource = ApiResource::new("", "v1", "ConfigMap", "configmaps");

    fn rig() -> (Consistency, StoreWriter<ConfigMap>, ObjectName) {
        let (store, writer) = store::pair(Indexers::default());
        (Consistency::new().with(MAPS, store), writer, ObjectName::new(Some("ns"), "owner"))
    }

    fn name(name: &str) -> ObjectName {
        ObjectName::new(Some("ns"), name)
    }

    fn map(name: &str, version: u64) -> Cached<ConfigMap> {
        Cached::new(Ok(config_map("ns", name, version)))
    }

    #[test]
    fn a_key_waits_for_its_writes() {
        let (guard, mut writer, key) = rig();
        writer.set_resource_version("10");
        assert!(guard.is_ready(&key), "nothing was written");
        guard.wrote_state(&key, &MAPS, name("written"), ("uid", "12"));
        guard.wrote_state(&key, &MAPS, name("written"), ("uid", "11"));
        writer.upsert(map("a", 11));
        assert!(!guard.is_ready(&key));
        assert!(guard.is_ready(&ObjectName::new(Some("ns"), "other")), "another key does not wait");
        writer.upsert(map("b", 12));
        assert!(guard.is_ready(&key));
        assert!(guard.writes.lock().is_empty(), "seen writes are forgotten");
    }

    #[test]
    fn key_waits_for_every_kind_it_wrote() {
        const OTHERS: ApiResource = ApiResource::new("", "v1", "Other", "others");
        let (guard, mut maps, key) = rig();
        let (store, mut others) = store::pair::<ConfigMap>(Indexers::default());
        guard.observe(OTHERS, store);
        maps.set_resource_version("10");
        others.set_resource_version("10");
        guard.wrote_state(&key, &MAPS, name("written"), ("uid", "12"));
        guard.wrote_state(&key, &OTHERS, name("written"), ("uid", "13"));
        maps.set_resource_version("20");
        assert!(!guard.is_ready(&key), "the cache of the other kind is late");
        others.set_resource_version("13");
        assert!(guard.is_ready(&key));
    }

    #[test]
    fn stores_of_other_namespaces_are_not_asked() {
        let guard = Consistency::new();
        let [mut own, mut other] = ["ns", "other"].map(|namespace| {
            let (store, writer) = store::pair::<ConfigMap>(Indexers::default());
            guard.observe_in(Some(namespace.to_owned()), MAPS, store);
            writer
        });
        let key = ObjectName::new(Some("ns"), "owner");
        own.set_resource_version("10");
        other.set_resource_version("10");
        guard.wrote_state(&key, &MAPS, name("written"), ("uid", "12"));
        other.set_resource_version("12");
        assert!(!guard.is_ready(&key));
        own.set_resource_version("12");
        other.set_resource_version("10");
        assert!(guard.is_ready(&key));
    }

    /// The object is changed again, or deleted before the cache saw it, so that only a bookmark comes.
    #[test]
    fn superseded_write_does_not_block_the_key() {
        let (guard, mut writer, key) = rig();
        writer.set_resource_version("10");
        guard.wrote_state(&key, &MAPS, name("written"), ("uid", "12"));
        writer.upsert(map("a", 15));
        assert!(guard.is_ready(&key));
        guard.wrote_state(&key, &MAPS, name("written"), ("uid", "16"));
        writer.set_resource_version("17");
        assert!(guard.is_ready(&key));
    }

    #[test]
    fn delete_is_seen_once_object_is_deleting() {
        let (guard, mut writer, key) = rig();
        let name = ObjectName::new(Some("ns"), "a");
        writer.upsert(map("a", 5));
        guard.deleted(&key, &MAPS, name.clone(), "uid-of-ns-a");
        assert!(!guard.is_ready(&key));
        let mut marked = config_map("ns", "a", 6);
        marked.metadata.deletion_timestamp =
            Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(jiff::Timestamp::UNIX_EPOCH));
        writer.upsert(Cached::new(Ok(marked)));
        assert!(guard.is_ready(&key));

        guard.deleted(&key, &MAPS, name.clone(), "previous uid");
        assert!(guard.is_ready(&key), "the name belongs to another uid");
        writer.upsert(map("a", 7));
        guard.deleted(&key, &MAPS, name.clone(), "uid-of-ns-a");
        assert!(!guard.is_ready(&key));
        writer.delete(&name, "8");
        assert!(guard.is_ready(&key));
    }

    #[test]
    fn awaited_end_needs_the_object_to_be_gone() {
        let (guard, mut writer, _) = rig();
        let key = ObjectName::new(Some("ns"), "a");
        let mut marked = config_map("ns", "a", 6);
        marked.metadata.deletion_timestamp =
            Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(jiff::Timestamp::UNIX_EPOCH));
        writer.upsert(Cached::new(Ok(marked)));
        guard.awaits_end(&key, &MAPS, "uid-of-ns-a");
        assert!(!guard.is_ready(&key), "a deleting object is not gone");
        writer.delete(&key, "8");
        assert!(guard.is_ready(&key));
    }

    #[tokio::test(start_paused = true)]
    async fn guard_fails_open_after_thirty_seconds() {
        let (guard, mut writer, key) = rig();
        writer.set_resource_version("10");
        guard.wrote_state(&key, &MAPS, name("written"), ("uid", "12"));
        tokio::time::advance(PATIENCE - Duration::from_millis(1)).await;
        assert!(!guard.is_ready(&key));
        tokio::time::advance(Duration::from_millis(1)).await;
        for _ in 0..2 {
            assert_eq!((guard.look(&key), guard.failed_open()), (Readiness::FailedOpen, 1));
        }
        writer.upsert(map("a", 12));
        assert_eq!(guard.look(&key), Readiness::Ready);
        assert!(guard.writes.lock().is_empty());
    }

    #[test]
    fn warning_names_unseen_writes_by_uid_and_version() {
        let (guard, mut writer, key) = rig();
        writer.put(map("a", 5));
        writer.set_resource_version("10");
        guard.wrote_state(&key, &MAPS, name("written"), ("uid-of-ns-b", "11"));
        guard.wrote_state(&key, &MAPS, name("written"), ("uid-of-ns-c", "12"));
        guard.wrote_state(&key, &MAPS, name("written"), ("uid-of-ns-d", "9"));
        guard.deleted(&key, &MAPS, ObjectName::new(Some("ns"), "a"), "uid-of-ns-a");
        assert_eq!(
            guard.writes.lock()[&key].describe(),
            "configmaps uid uid-of-ns-c at version 12, configmaps a uid uid-of-ns-a deleted"
        );
    }

    #[test]
    fn warning_names_at_most_ten_writes() {
        let (guard, _, key) = rig();
        for at in 0..12 {
            guard.deleted(&key, &MAPS, name(&at.to_string()), "uid");
        }
        let text = guard.writes.lock()[&key].describe();
        assert!(text.contains("configmaps 9 uid") && text.ends_with(", 2 more"), "{text}");
    }

    /// Shows a given number of deletions, and counts lookups.
    #[derive(Clone, Default)]
    struct Counting(Arc<(AtomicU64, AtomicU64)>);

    impl StoreView for Counting {
        fn resource_version(&self) -> Arc<str> {
            "1".into()
        }

        fn presence(&self, name: &ObjectName, _: &str) -> Presence {
            let (shown, looks) = &*self.0;
            looks.fetch_add(1, Atomic::Relaxed);
            match name.name().parse::<u64>().unwrap() >= shown.load(Atomic::Relaxed) {
                true => Presence::Alive,
                false => Presence::Gone,
            }
        }
    }

    #[test]
    fn seen_deletions_are_not_checked_again() {
        for count in [1_000, 100_000] {
            let store = Counting::default();
            let guard = Consistency::new().with(MAPS, store.clone());
            let key = ObjectName::new(Some("ns"), "owner");
            for at in 0..count {
                guard.deleted(&key, &MAPS, name(&at.to_string()), "uid");
            }
            for shown in 1..=count {
                assert!(!guard.is_ready(&key));
                store.0.0.store(shown, Atomic::Relaxed);
            }
            assert!(guard.is_ready(&key));
            let looks = store.0.1.load(Atomic::Relaxed);
            assert!(looks <= 2 * count + 1, "{looks} looks for {count} deletions");
            assert!(guard.is_empty());
        }
    }

    /// Many keys write while the caches are late.
    #[test]
    fn memory_of_a_write_burst_is_released() {
        let (guard, mut writer, straggler) = rig();
        guard.wrote_state(&straggler, &MAPS, name("written"), ("uid", "99"));
        for keys in [1_000, 100_000] {
            writer.set_resource_version("10");
            let key = |at: usize| ObjectName::new(Some("ns"), &at.to_string());
            (0..keys).for_each(|at| guard.wrote_state(&key(at), &MAPS, name("written"), ("uid", "12")));
            writer.set_resource_version("12");
            assert!((0..keys).all(|at| guard.is_ready(&key(at))));
            assert_eq!(guard.len(), 1);
            assert!(
                guard.writes.lock().capacity() <= 1_024 * 2,
                "the capacity of the burst is still held for one key"
            );
        }
    }

    #[test]
    fn end_pass_returns_only_writes_of_that_pass() {
        let (guard, _, key) = rig();
        guard.wrote(&key, &config_map("ns", "a", 1));
        guard.begin_pass(&key);
        guard.wrote(&key, &config_map("ns", "b", 2));
        let named = |writes: Vec<Write>| writes.into_iter().map(|write| write.name).collect::<Vec<_>>();
        assert_eq!(named(guard.end_pass(&key)), [name("b")]);
        guard.wrote(&key, &config_map("ns", "c", 3));
        assert!(guard.of_passes.lock().is_empty());
    }

    #[test]
    fn incomparable_versions_fail_open() {
        let (guard, mut writer, key) = rig();
        guard.wrote_state(&key, &MAPS, name("written"), ("uid", "12"));
        assert!(guard.is_ready(&key), "the store has no version yet");
        writer.set_resource_version("10");
        guard.wrote_state(&key, &MAPS, name("written"), ("uid", "not a number"));
        assert!(guard.is_ready(&key));
        let secrets = ApiResource::new("", "v1", "Secret", "secrets");
        guard.wrote_state(&key, &secrets, name("written"), ("uid", "99"));
        assert!(guard.is_ready(&key), "secrets have no store");
    }
}
