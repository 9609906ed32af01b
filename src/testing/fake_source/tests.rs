use k8s_openapi::api::core::v1::ConfigMap;
use serde::Deserialize;
use serde_json::json;

use super::*;
use crate::api::ApiResource;
use crate::cache::list_watch::{Version, WatchStart};
use crate::cache::{Cached, Indexers, Meta, store};
use crate::testing::{config_map, connection_error};

#[derive(Deserialize)]
struct Keys {
    metadata: Meta,
    #[serde(default)]
    data: BTreeMap<String, String>,
}

crate::object_by_metadata!(Keys, ApiResource::new("", "v1", "ConfigMap", "configmaps"));

fn key(name: &str) -> ObjectName {
    ObjectName::new(Some("ns"), name)
}

async fn page<K: Object>(source: &FakeSource<K>, token: Option<String>) -> Result<Page<K>, Error> {
    let options =
        ListOptions { version: Version::Newest, limit: Some(500), continue_token: token, shards: None };
    source.list(&options, &store::pair(Indexers::default()).0).await
}

async fn watch<K: Object>(source: &FakeSource<K>, start: WatchStart) -> Result<FakeWatch<K>, Error> {
    source.watch(&WatchOptions { start, timeout: Duration::from_secs(300), shards: None }).await
}

/// Returns the names and versions of the events that a watch has.
async fn events<K: Object>(mut watch: FakeWatch<K>) -> Vec<String> {
    let mut events = Vec::new();
    while !watch.events.is_empty() {
        let (sign, object) = match watch.next().await.unwrap().unwrap() {
            WatchEvent::Added(object) => ("+", object),
            WatchEvent::Modified(object) => ("~", object),
            WatchEvent::Deleted(object) => ("-", object),
            WatchEvent::Bookmark { resource_version, .. } => {
                events.push(format!("bookmark {resource_version}"));
                continue;
            }
        };
        events.push(format!("{sign}{:?}", Cached::new(object)));
    }
    events
}

#[tokio::test]
async fn projection_of_a_full_object_is_decoded() {
    let source = FakeSource::<Keys>::new();
    let mut full = config_map("ns", "a", 0);
    full.data = Some([("key".to_owned(), "value".to_owned())].into());
    source.put(&full);
    let read = source.get(&key("a")).unwrap().unwrap();
    assert_eq!((&*read.metadata.uid, read.data["key"].as_str()), ("uid-of-ns-a", "value"));
    source.put(json!({"metadata": {"namespace": "ns", "name": "b"}, "data": 7}));
    let unreadable = source.get(&key("b")).unwrap().err().expect("its data does not decode");
    assert_eq!((&*unreadable.meta.uid, &*unreadable.meta.resource_version), ("uid-1", "2"));
    assert!(source.get(&key("c")).err().expect("there is none").is_not_found());
    assert_eq!(page(&source, None).await.unwrap().items.len(), 2);
}

#[tokio::test(start_paused = true)]
async fn pages_show_one_version_or_fail() {
    let source = FakeSource::<ConfigMap>::new();
    source.page_size(2);
    for name in ["a", "b", "c"] {
        source.put(config_map("ns", name, 0));
    }
    let first = page(&source, None).await.unwrap();
    source.delete(&key("c"));
    source.put(config_map("ns", "b", 0));
    let second = page(&source, first.continue_token.clone()).await.unwrap();
    assert_eq!((first.items.len(), second.items.len()), (2, 1));
    assert_eq!((second.resource_version.as_str(), second.continue_token), ("3", None));
    source.delay_pages(Duration::from_secs(1));
    let (late, ()) = tokio::join!(page(&source, first.continue_token), async { source.compact() });
    assert!(late.unwrap_err().is_expired(), "it was compacted while the page was on its way");
    source.script_lists([Some(connection_error())]);
    assert!(page(&source, None).await.is_err());
}

#[tokio::test]
async fn watch_replays_changes_or_fails() {
    let source = FakeSource::<ConfigMap>::new();
    source.put(json!({"metadata": {"namespace": "ns", "name": "a"}}));
    let open = watch(&source, WatchStart::After("1".to_owned())).await.unwrap();
    source.put_unseen(config_map("ns", "hidden", 0));
    source.recreate(&key("a"));
    source.repeat(2);
    let recreated = ["-ns/a@3", "+ns/a@4"];
    assert_eq!(events(open).await, [recreated, recreated].concat());
    assert_eq!(source.get(&key("a")).unwrap().unwrap().metadata.uid.as_deref(), Some("uid-2"));
    let start = WatchStart::InitialEvents(Version::Newest);
    assert_eq!(events(watch(&source, start).await.unwrap()).await, ["+ns/a@4", "+ns/hidden@2", "bookmark 4"]);
    let again = watch(&source, WatchStart::After("1".to_owned())).await.unwrap();
    assert_eq!(events(again).await, recreated);
    source.compact();
    let error = watch(&source, WatchStart::After("3".to_owned())).await.unwrap_err();
    assert!(error.is_expired());
    watch(&source, WatchStart::After("4".to_owned())).await.unwrap();
}

#[tokio::test]
async fn restored_source_refuses_later_versions() {
    let source = FakeSource::<ConfigMap>::new();
    for name in ["a", "b"] {
        source.put(config_map("ns", name, 0));
    }
    source.delete(&key("a"));
    let _open = watch(&source, WatchStart::After("3".to_owned())).await.unwrap();
    source.restore(2);
    assert_eq!(source.open_watches(), 0);
    assert_eq!(source.objects(), [(key("a"), "1".to_owned())].into());
    let version = Version::NotOlderThan("3".to_owned());
    let options = ListOptions { version: version.clone(), limit: None, continue_token: None, shards: None };
    let error = source.list(&options, &store::pair(Indexers::default()).0).await.unwrap_err();
    assert!(error.is_too_large_resource_version());
    let error = watch(&source, WatchStart::InitialEvents(version)).await.unwrap_err();
    assert!(error.is_too_large_resource_version());
    source.end_faults();
    source.put(config_map("ns", "c", 0));
    assert_eq!(source.objects()[&key("c")], "2", "the version of a lost change");
}
