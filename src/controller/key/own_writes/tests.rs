use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering as Atomic};

use k8s_openapi::api::core::v1::ConfigMap;

use super::*;
use crate::cache::store::StoreWriter;
use crate::cache::{Cached, Indexers, store};
use crate::controller::key::stores::StoreView;
use crate::testing::config_map;

const MAPS: ApiResource = ApiResource::new("", "v1", "ConfigMap", "configmaps");
const OTHERS: ApiResource = ApiResource::new("", "v1", "Other", "others");

/// The writes of one key, and the stores that show them.
#[derive(Default)]
struct Guard {
    writes: OwnWrites,
    stores: Stores,
}

impl Guard {
    fn with(resource: ApiResource, store: impl StoreView + 'static) -> Self {
        let guard = Self::default();
        guard.stores.add(resource, None, store);
        guard
    }

    fn wrote(&mut self, resource: &ApiResource, uid: &str, version: &str) {
        self.writes.wrote_state(resource, name("written"), (uid, version));
    }

    fn is_ready(&mut self) -> bool {
        self.writes.readiness(&self.stores) != Readiness::Waits
    }
}

fn rig() -> (Guard, StoreWriter<ConfigMap>) {
    let (store, writer) = store::pair(Indexers::default());
    (Guard::with(MAPS, store), writer)
}

fn name(name: &str) -> ObjectName {
    ObjectName::new(Some("ns"), name)
}

fn map(name: &str, version: u64) -> Cached<ConfigMap> {
    Cached::new(Ok(config_map("ns", name, version)))
}

fn marked(name: &str, version: u64) -> Cached<ConfigMap> {
    let mut marked = config_map("ns", name, version);
    marked.metadata.deletion_timestamp =
        Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(jiff::Timestamp::UNIX_EPOCH));
    Cached::new(Ok(marked))
}

#[test]
fn a_key_waits_for_its_writes() {
    let (mut guard, mut writer) = rig();
    writer.set_resource_version("10");
    assert!(guard.is_ready(), "nothing was written");
    guard.wrote(&MAPS, "uid", "12");
    guard.wrote(&MAPS, "uid", "11");
    writer.upsert(map("a", 11));
    assert!(!guard.is_ready());
    writer.upsert(map("b", 12));
    assert!(guard.is_ready());
    assert!(guard.writes.is_empty(), "seen writes are forgotten");
}

#[test]
fn key_waits_for_every_kind_it_wrote() {
    let (mut guard, mut maps) = rig();
    let (store, mut others) = store::pair::<ConfigMap>(Indexers::default());
    guard.stores.add(OTHERS, None, store);
    maps.set_resource_version("10");
    others.set_resource_version("10");
    guard.wrote(&MAPS, "uid", "12");
    guard.wrote(&OTHERS, "uid", "13");
    maps.set_resource_version("20");
    assert!(!guard.is_ready(), "the cache of the other kind is late");
    others.set_resource_version("13");
    assert!(guard.is_ready());
}

/// The object is changed again, or deleted before the cache saw it, so that only a bookmark comes.
#[test]
fn superseded_write_does_not_block_the_key() {
    let (mut guard, mut writer) = rig();
    writer.set_resource_version("10");
    guard.wrote(&MAPS, "uid", "12");
    writer.upsert(map("a", 15));
    assert!(guard.is_ready());
    guard.wrote(&MAPS, "uid", "16");
    writer.set_resource_version("17");
    assert!(guard.is_ready());
}

#[test]
fn delete_is_seen_once_object_is_deleting() {
    let (mut guard, mut writer) = rig();
    let name = name("a");
    writer.upsert(map("a", 5));
    guard.writes.deleted(&MAPS, name.clone(), "uid-of-ns-a");
    assert!(!guard.is_ready());
    writer.upsert(marked("a", 6));
    assert!(guard.is_ready());

    guard.writes.deleted(&MAPS, name.clone(), "previous uid");
    assert!(guard.is_ready(), "the name belongs to another uid");
    writer.upsert(map("a", 7));
    guard.writes.deleted(&MAPS, name.clone(), "uid-of-ns-a");
    assert!(!guard.is_ready());
    writer.delete(&name, "8");
    assert!(guard.is_ready());
}

#[test]
fn awaited_end_needs_the_object_to_be_gone() {
    let (mut guard, mut writer) = rig();
    writer.upsert(marked("a", 6));
    guard.writes.awaits_end(&MAPS, &name("a"), "uid-of-ns-a");
    guard.writes.awaits_end(&MAPS, &name("a"), "uid-of-ns-a");
    assert!(!guard.is_ready(), "a deleting object is not gone");
    assert_eq!(guard.writes.awaited.len(), 1);
    writer.delete(&name("a"), "8");
    assert!(guard.is_ready());
}

#[tokio::test(start_paused = true)]
async fn guard_fails_open_after_thirty_seconds() {
    let (mut guard, mut writer) = rig();
    writer.set_resource_version("10");
    guard.wrote(&MAPS, "uid", "12");
    tokio::time::advance(PATIENCE - Duration::from_millis(1)).await;
    assert!(!guard.is_ready());
    tokio::time::advance(Duration::from_millis(1)).await;
    for _ in 0..2 {
        assert_eq!(guard.writes.readiness(&guard.stores), Readiness::FailedOpen);
    }
    writer.upsert(map("a", 12));
    assert_eq!(guard.writes.readiness(&guard.stores), Readiness::Ready);
    assert!(guard.writes.is_empty());
}

/// A store that never gets an event, and counts how often it is to list again.
struct Missing(Arc<AtomicU64>);

impl StoreView for Missing {
    fn resource_version(&self) -> Arc<str> {
        "1".into()
    }

    fn presence(&self, _: &ObjectName, _: &str) -> Presence {
        Presence::Alive
    }

    fn relist(&self) {
        self.0.fetch_add(1, Atomic::Relaxed);
    }
}

#[tokio::test(start_paused = true)]
async fn stores_that_miss_a_write_list_again() {
    let relists = [(); 3].map(|()| Arc::<AtomicU64>::default());
    let stores = Stores::default();
    for (store, namespace) in relists.iter().zip(["ns", "other", "ns"]) {
        let resource = if Arc::ptr_eq(store, &relists[2]) { OTHERS } else { MAPS };
        stores.add(resource, Some(namespace.to_owned()), Missing(store.clone()));
    }
    let counts = || relists.each_ref().map(|count| count.load(Atomic::Relaxed));
    let fail_open = async || {
        let mut writes = OwnWrites::default();
        writes.wrote_state(&MAPS, name("a"), ("uid", "12"));
        assert_eq!(writes.readiness(&stores), Readiness::Waits);
        tokio::time::advance(PATIENCE).await;
        assert_eq!(writes.readiness(&stores), Readiness::FailedOpen);
    };
    for _ in 0..3 {
        fail_open().await;
        assert_eq!(counts(), [1, 0, 0], "the store of the write's kind and namespace, once");
    }
    tokio::time::advance(Duration::from_secs(300)).await;
    fail_open().await;
    assert_eq!(counts(), [2, 0, 0]);
}

/// Passes go on while the guard has failed open.
#[test]
fn repeated_writes_of_an_object_are_kept_once() {
    let (mut guard, mut writer) = rig();
    writer.set_resource_version("10");
    for version in 11..1000 {
        guard.wrote(&MAPS, "uid", &version.to_string());
    }
    assert_eq!(guard.writes.awaited.len(), 1);
    writer.set_resource_version("998");
    assert!(!guard.is_ready());
    writer.set_resource_version("999");
    assert!(guard.is_ready());
}

#[tokio::test(start_paused = true)]
async fn warning_names_unseen_writes_by_uid_and_version() {
    let (mut guard, mut writer) = rig();
    writer.put(map("a", 5));
    writer.set_resource_version("10");
    guard.wrote(&MAPS, "uid-of-ns-c", "12");
    guard.wrote(&MAPS, "uid-of-ns-d", "9");
    guard.writes.deleted(&MAPS, name("a"), "uid-of-ns-a");
    tokio::time::advance(PATIENCE).await;
    assert_eq!(guard.writes.readiness(&guard.stores), Readiness::FailedOpen);
    assert_eq!(
        guard.writes.describe(),
        "configmaps written uid uid-of-ns-c at version 12, configmaps a uid uid-of-ns-a deleted"
    );
}

#[test]
fn warning_names_at_most_ten_writes() {
    let (mut guard, _) = rig();
    for at in 0..12 {
        guard.writes.deleted(&MAPS, name(&at.to_string()), "uid");
    }
    let text = guard.writes.describe();
    assert!(text.contains("configmaps 9 uid") && text.ends_with(", 2 more"), "{text}");
}

/// Shows a given number of deletions, and counts look-ups.
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
fn seen_writes_are_not_checked_again() {
    for count in [1_000, 100_000] {
        let store = Counting::default();
        let mut guard = Guard::with(MAPS, store.clone());
        for at in 0..count {
            guard.writes.deleted(&MAPS, name(&at.to_string()), "uid");
        }
        for shown in 1..=count {
            assert!(!guard.is_ready());
            store.0.0.store(shown, Atomic::Relaxed);
        }
        assert!(guard.is_ready());
        let looks = store.0.1.load(Atomic::Relaxed);
        assert!(looks <= 2 * count + 1, "{looks} looks for {count} deletions");
        assert!(guard.writes.is_empty());
    }
}

#[test]
fn end_sync_returns_only_writes_of_that_sync() {
    let (mut guard, _) = rig();
    guard.writes.wrote(&config_map("ns", "a", 1));
    drop(guard.writes.end_sync());
    guard.writes.wrote(&config_map("ns", "b", 2));
    let names: Vec<ObjectName> = guard.writes.end_sync().into_iter().map(|write| write.name).collect();
    assert_eq!(names, [name("b")]);
}

#[test]
fn incomparable_versions_fail_open() {
    let (mut guard, mut writer) = rig();
    guard.wrote(&MAPS, "uid", "12");
    assert!(guard.is_ready(), "the store has no version yet");
    writer.set_resource_version("10");
    guard.wrote(&MAPS, "uid", "not a number");
    assert!(guard.is_ready());
    let secrets = ApiResource::new("", "v1", "Secret", "secrets");
    guard.wrote(&secrets, "uid", "99");
    assert!(guard.is_ready(), "secrets have no store");
}

/// Two informers of one kind, each with a selector of its own.
#[test]
fn write_is_seen_by_the_store_that_holds_the_object() {
    let (mut guard, mut first) = rig();
    let (store, mut second) = store::pair::<ConfigMap>(Indexers::default());
    guard.stores.add(MAPS, None, store);
    first.set_resource_version("10");
    second.set_resource_version("20");
    guard.writes.wrote(&config_map("ns", "a", 15));
    assert!(!guard.is_ready(), "the second store is ahead, but does not hold the object");
    first.upsert(map("a", 15));
    assert!(guard.is_ready());
    guard.writes.wrote(&config_map("ns", "a", 21));
    assert!(!guard.is_ready());
    first.upsert(map("a", 22));
    assert!(guard.is_ready(), "the second store is behind, but selects other objects");
    guard.writes.deleted(&MAPS, name("a"), "uid-of-ns-a");
    assert!(!guard.is_ready());
    first.delete(&name("a"), "23");
    assert!(guard.is_ready());
}

#[test]
fn stores_of_other_namespaces_are_not_asked() {
    let mut guard = Guard::default();
    let (store, mut ours) = store::pair::<ConfigMap>(Indexers::default());
    guard.stores.add(MAPS, Some("ns".to_owned()), store);
    let (store, mut others) = store::pair::<ConfigMap>(Indexers::default());
    guard.stores.add(MAPS, Some("other".to_owned()), store);
    ours.set_resource_version("10");
    others.set_resource_version("1");
    guard.wrote(&MAPS, "uid", "11");
    assert!(!guard.is_ready());
    ours.set_resource_version("11");
    assert!(guard.is_ready());
    others.set_resource_version("99");
    guard.wrote(&MAPS, "uid", "12");
    assert!(!guard.is_ready(), "the other namespace shows nothing of ours");
}
