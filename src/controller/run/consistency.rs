//! Read your own writes: a key is not synced before the caches have seen what its last sync wrote.
//!
//! Mirrors kubernetes `pkg/controller/util/consistency` (`ConsistencyStore`, KEP-5647).
//! Flow: sync handler -> children, status -> **consistency** -> workers, before the next sync of the key
//!
//! # How it works
//! Each write is remembered for the key with its resource, uid and the version that the server answered. Before
//! a key is synced, each is compared with the version of that resource's store: versions of one resource
//! grow, so a store that has passed the version has seen the write. The answer to a delete carries no
//! version: it is seen when the store no longer holds that life of the name, or holds it as deleting.
//!
//! # Guarantees
//! - A key waits until the store has passed the versions of its writes. (test: `a_key_waits_for_its_writes`)
//! - Of every kind that it wrote: its children, new and changed, and itself. (test: `a_key_waits_for_every_kind_that_it_wrote`, `whatever_is_written_is_waited_for`, `a_status_that_is_written_is_waited_for`)
//! - A deletion is seen when the life is gone or marked, an end when it is gone. (test: `a_deletion_is_seen_when_the_life_is_gone_or_marked`, `the_end_of_an_object_is_seen_when_it_is_gone`)
//! - A write that was overtaken, or removed by others before we saw it, stalls nothing. (test: `a_write_that_was_overtaken_stalls_nothing`)
//! - It fails open after 30 s, with a warning that is counted, until the caches have caught up: passes are to read live meanwhile. (test: `it_fails_open_after_thirty_seconds`)
//! - The warning says what is waited for. (test: `what_is_waited_for_is_named_by_uid_and_version`, `no_more_than_ten_are_named`)
//! - What a pass has written is told at its end, and nothing else with it. (test: `what_is_written_outside_of_a_pass_is_not_the_next_ones`)
//! - A version that is no number fails open. (test: `versions_that_do_not_compare_fail_open`)
//! - N deletions that N events show cost 2 N looks at the cache, not N squared. (test: `each_deletion_is_looked_at_until_it_is_seen`)
//!
//! # Differences from client-go
//! Deletes are remembered too. Of other writes the newest of each resource stands for those before it. What is
//! remembered of an owner goes when its caches have caught up, not with its deletion. A key that waits is woken by the
//! event of its own write; the retry after [`RETRY`] is for events that never come.
//!
//! # Locks and tasks
//! One lock around the memory, taken before the stores' own, and one around what passes under way have written.

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
use crate::cache::{Object, ObjectName, Store, compare_versions};
use crate::workqueue::has_spare_room;

/// How soon a key that waits is looked at again when no event wakes it.
pub const RETRY: Duration = Duration::from_secs(1);
/// How long a key waits at most.
const PATIENCE: Duration = Duration::from_secs(30);
/// How many writes the warning names.
const UNSEEN_MAX: usize = 10;

/// What the guard must know of a store.
pub trait StoreView: Send + Sync {
    /// Version of the last change that is in the store.
    fn resource_version(&self) -> Arc<str>;
    /// Whether the object of this uid is there, and whether it is being deleted.
    fn presence(&self, name: &ObjectName, uid: &str) -> Presence;
}

/// What a store shows of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Presence {
    /// It is there.
    Alive,
    /// It is there, and being deleted.
    Deleting,
    /// It is not there.
    Gone,
}

/// A cache that hears of nothing any more.
#[cfg(test)]
pub(crate) struct Frozen;

#[cfg(test)]
impl StoreView for Frozen {
    fn resource_version(&self) -> Arc<str> {
        "1".into()
    }

    fn presence(&self, _: &ObjectName, _: &str) -> Presence {
        Presence::Alive
    }
}

impl<K: Object> StoreView for Store<K> {
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
    /// The caches have seen all that it wrote.
    Ready,
    /// They have not.
    Waits,
    /// They have not, and it is not waited any longer: what they show is not to be believed.
    FailedOpen,
}

/// Remembers writes by key; see the module.
#[derive(Default)]
pub struct Consistency {
    stores: RwLock<HashMap<ApiResource, Box<dyn StoreView>>>,
    writes: Mutex<HashMap<ObjectName, Writes>>,
    /// What the passes that are under way have written, by key.
    of_passes: Mutex<HashMap<ObjectName, Vec<Write>>>,
    failed_open: AtomicU64,
}

/// That an object was written: created, changed or deleted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Write {
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
    /// It was said that it has failed open.
    is_reported: bool,
    /// The newest of each resource: versions of one resource grow, so whoever has seen it has seen the others.
    newest: HashMap<ApiResource, Newest>,
    /// Deletions, the first of them first.
    deleted: VecDeque<Deletion>,
}

/// An object that was deleted, and what a store has to show of that.
#[derive(PartialEq, Eq)]
struct Deletion {
    resource: ApiResource,
    write: Write,
    /// [`Presence::Deleting`] at least, or [`Presence::Gone`].
    until: Presence,
}

/// The newest write of one resource.
#[derive(Default)]
struct Newest {
    /// Of what was written.
    uid: String,
    version: String,
}

// === impl Consistency ===

impl Consistency {
    /// A guard without stores: it lets everything pass.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Compares writes of this resource with this store.
    #[must_use]
    pub fn with(self, resource: ApiResource, store: impl StoreView + 'static) -> Self {
        self.observe(resource, store);
        self
    }

    /// Compares writes of this resource with this store from now on.
    pub fn observe(&self, resource: ApiResource, store: impl StoreView + 'static) {
        self.stores.write().insert(resource, Box::new(store));
    }

    /// A pass of `key` begins: what it writes is kept for [`end_pass`](Self::end_pass).
    pub(in crate::controller) fn begin_pass(&self, key: &ObjectName) {
        self.of_passes.lock().insert(key.clone(), Vec::new());
    }

    /// It has ended: what it has written.
    pub(in crate::controller) fn end_pass(&self, key: &ObjectName) -> Vec<Write> {
        self.of_passes.lock().remove(key).unwrap_or_default()
    }

    /// A sync of `key` wrote an object, and the server answered with this state of it.
    pub fn wrote<O: Object>(&self, key: &ObjectName, object: &O) {
        let state = (object.uid(), object.resource_version());
        self.wrote_state(key, &O::resource(), object.object_name(), state);
    }

    /// A live read showed a newer version of the object of `key` than the cache has: its key waits for that version.
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

    /// The object of `key` is gone, by a live read or by the answer to a write: its key waits until the cache shows that.
    pub(in crate::controller) fn awaits_end(&self, key: &ObjectName, resource: &ApiResource, uid: &str) {
        let write = Write { kind: resource.kind.clone(), name: key.clone(), uid: uid.to_owned() };
        let mut writes = self.writes.lock();
        let entry = writes.entry(key.clone()).or_insert_with(Writes::new);
        let deletion = Deletion { resource: resource.clone(), write, until: Presence::Gone };
        if !entry.deleted.contains(&deletion) {
            entry.deleted.push_back(deletion);
        }
    }

    /// A sync of `key` wrote an object of which uid and version are known, and nothing else.
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

    /// A sync of `key` deleted this life of a name.
    pub fn deleted(&self, key: &ObjectName, resource: &ApiResource, name: ObjectName, uid: &str) {
        let write = Write { kind: resource.kind.clone(), name, uid: uid.to_owned() };
        self.remember(key, write, |writes, write| {
            let (resource, write) = (resource.clone(), write.clone());
            writes.deleted.push_back(Deletion { resource, write, until: Presence::Deleting });
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

    /// Whether the caches have seen all that `key` wrote; what they have seen is forgotten.
    #[must_use]
    pub fn is_ready(&self, key: &ObjectName) -> bool {
        self.look(key) != Readiness::Waits
    }

    /// The same, saying which.
    #[must_use]
    pub fn look(&self, key: &ObjectName) -> Readiness {
        let mut writes = self.writes.lock();
        let Some(entry) = writes.get_mut(key) else { return Readiness::Ready };
        entry.newest.retain(|resource, write| self.is_behind(resource, &write.version));
        // Each deletion is looked at until it is seen, and the one that is not yet once a look: the event of each of
        // them wakes the key.
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
                "The caches have not shown our own writes within 30 s; going on by live reads"
            );
        }
        match (is_ready, is_over) {
            (true, _) => Readiness::Ready,
            (false, true) => Readiness::FailedOpen,
            (false, false) => Readiness::Waits,
        }
    }

    /// How many keys have writes that the caches have not shown.
    #[must_use]
    pub fn len(&self) -> usize {
        self.writes.lock().len()
    }

    /// Whether the caches have shown all writes, as far as they were asked.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How often it was not waited any longer.
    #[must_use]
    pub fn failed_open(&self) -> u64 {
        self.failed_open.load(Atomic::Relaxed)
    }

    fn is_unseen(&self, Deletion { resource, write, until }: &Deletion) -> bool {
        let stores = self.stores.read();
        stores.get(resource).is_some_and(|store| store.presence(&write.name, &write.uid) < *until)
    }

    fn is_behind(&self, resource: &ApiResource, version: &str) -> bool {
        let stores = self.stores.read();
        let Some(store) = stores.get(resource) else { return false };
        compare_versions(&store.resource_version(), version) == Some(Ordering::Less)
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

    /// What is waited for: `deployments uid 7c0a at version 12, pods web-0 uid 9d1e deleted`.
    fn describe(&self) -> String {
        let newest = self.newest.iter().map(|(resource, Newest { uid, version })| {
            format!("{} uid {uid} at version {version}", resource.plural)
        });
        let deleted =
            self.deleted.iter().map(|Deletion { resource, write: Write { name, uid, .. }, .. }| {
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
        writer.replace(&[], "10");
        assert!(guard.is_ready(&key), "nothing was written");
        guard.wrote_state(&key, &MAPS, name("written"), ("uid", "12"));
        guard.wrote_state(&key, &MAPS, name("written"), ("uid", "11"));
        writer.upsert(map("a", 11));
        assert!(!guard.is_ready(&key));
        assert!(guard.is_ready(&ObjectName::new(Some("ns"), "other")), "another key does not wait");
        writer.upsert(map("b", 12));
        assert!(guard.is_ready(&key));
        assert!(guard.writes.lock().is_empty(), "what was seen is forgotten");
    }

    #[test]
    fn a_key_waits_for_every_kind_that_it_wrote() {
        const OTHERS: ApiResource = ApiResource::new("", "v1", "Other", "others");
        let (guard, mut maps, key) = rig();
        let (store, mut others) = store::pair::<ConfigMap>(Indexers::default());
        guard.observe(OTHERS, store);
        maps.replace(&[], "10");
        others.replace(&[], "10");
        guard.wrote_state(&key, &MAPS, name("written"), ("uid", "12"));
        guard.wrote_state(&key, &OTHERS, name("written"), ("uid", "13"));
        maps.bookmark("20");
        assert!(!guard.is_ready(&key), "the other kind's cache is late");
        others.bookmark("13");
        assert!(guard.is_ready(&key));
    }

    /// R2: changed again, or gone before it was seen; only a bookmark comes.
    #[test]
    fn a_write_that_was_overtaken_stalls_nothing() {
        let (guard, mut writer, key) = rig();
        writer.replace(&[], "10");
        guard.wrote_state(&key, &MAPS, name("written"), ("uid", "12"));
        writer.upsert(map("a", 15));
        assert!(guard.is_ready(&key));
        guard.wrote_state(&key, &MAPS, name("written"), ("uid", "16"));
        writer.bookmark("17");
        assert!(guard.is_ready(&key));
    }

    #[test]
    fn a_deletion_is_seen_when_the_life_is_gone_or_marked() {
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
        assert!(guard.is_ready(&key), "the name has a new life");
        writer.upsert(map("a", 7));
        guard.deleted(&key, &MAPS, name.clone(), "uid-of-ns-a");
        assert!(!guard.is_ready(&key));
        writer.delete(&name, "8");
        assert!(guard.is_ready(&key));
    }

    #[test]
    fn the_end_of_an_object_is_seen_when_it_is_gone() {
        let (guard, mut writer, _) = rig();
        let key = ObjectName::new(Some("ns"), "a");
        let mut marked = config_map("ns", "a", 6);
        marked.metadata.deletion_timestamp =
            Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(jiff::Timestamp::UNIX_EPOCH));
        writer.upsert(Cached::new(Ok(marked)));
        guard.awaits_end(&key, &MAPS, "uid-of-ns-a");
        assert!(!guard.is_ready(&key), "to be marked is not the end");
        writer.delete(&key, "8");
        assert!(guard.is_ready(&key));
    }

    #[tokio::test(start_paused = true)]
    async fn it_fails_open_after_thirty_seconds() {
        let (guard, mut writer, key) = rig();
        writer.replace(&[], "10");
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
    fn what_is_waited_for_is_named_by_uid_and_version() {
        let (guard, mut writer, key) = rig();
        writer.replace(&[map("a", 5)], "10");
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
    fn no_more_than_ten_are_named() {
        let (guard, _, key) = rig();
        for at in 0..12 {
            guard.deleted(&key, &MAPS, name(&at.to_string()), "uid");
        }
        let text = guard.writes.lock()[&key].describe();
        assert!(text.contains("configmaps 9 uid") && text.ends_with(", 2 more"), "{text}");
    }

    /// Shows the first so many deletions, and counts who asks.
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
    fn each_deletion_is_looked_at_until_it_is_seen() {
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

    /// What many keys have written while the caches were late.
    #[test]
    fn the_room_of_a_burst_of_writes_is_given_back() {
        let (guard, mut writer, straggler) = rig();
        guard.wrote_state(&straggler, &MAPS, name("written"), ("uid", "99"));
        for keys in [1_000, 100_000] {
            writer.replace(&[], "10");
            let key = |at: usize| ObjectName::new(Some("ns"), &at.to_string());
            (0..keys).for_each(|at| guard.wrote_state(&key(at), &MAPS, name("written"), ("uid", "12")));
            writer.bookmark("12");
            assert!((0..keys).all(|at| guard.is_ready(&key(at))));
            assert_eq!(guard.len(), 1);
            assert!(
                guard.writes.lock().capacity() <= 1_024 * 2,
                "the others' room is kept beside the straggler"
            );
        }
    }

    #[test]
    fn what_is_written_outside_of_a_pass_is_not_the_next_ones() {
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
    fn versions_that_do_not_compare_fail_open() {
        let (guard, mut writer, key) = rig();
        guard.wrote_state(&key, &MAPS, name("written"), ("uid", "12"));
        assert!(guard.is_ready(&key), "the store has no version yet");
        writer.replace(&[], "10");
        guard.wrote_state(&key, &MAPS, name("written"), ("uid", "not a number"));
        assert!(guard.is_ready(&key));
        let secrets = ApiResource::new("", "v1", "Secret", "secrets");
        guard.wrote_state(&key, &secrets, name("written"), ("uid", "99"));
        assert!(guard.is_ready(&key), "nobody caches secrets");
    }
}
