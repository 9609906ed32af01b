use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::ConfigMap;
use proptest::prelude::*;

use super::*;

const BY_COLOUR: &str = "colour";

/// Returns a config map in namespace `ns` with a list of colours, each an index value.
fn object(name: &str, version: u64, colours: &[&str]) -> Cached<ConfigMap> {
    let mut map = ConfigMap::default();
    map.metadata.name = Some(name.to_owned());
    map.metadata.namespace = Some("ns".to_owned());
    map.metadata.resource_version = Some(version.to_string());
    map.data = Some(BTreeMap::from([("colours".to_owned(), colours.join(","))]));
    Cached::new(Ok(map))
}

fn colours(object: &Cached<ConfigMap>) -> Vec<String> {
    let data = object.readable().and_then(|map| map.data.as_ref());
    let text = data.and_then(|data| data.get("colours")).map(String::as_str).unwrap_or_default();
    text.split(',').filter(|colour| !colour.is_empty()).map(str::to_owned).collect()
}

fn store() -> (Store<ConfigMap>, StoreWriter<ConfigMap>) {
    pair(Indexers::default().with(BY_COLOUR, colours))
}

fn names(objects: &[Cached<ConfigMap>]) -> Vec<String> {
    objects.iter().map(|object| object.object_name().name().to_owned()).collect()
}

/// client-go: `TestThreadSafeStoreDeleteRemovesEmptySetsFromIndex`
#[test]
fn delete_removes_empty_sets_from_the_index() {
    let (store, mut writer) = store();
    writer.upsert(object("a", 1, &["red"]));
    writer.delete(&"ns/a".parse().unwrap(), "2");
    assert!(store.index_values(BY_COLOUR).unwrap().is_empty());
}

/// client-go: `TestThreadSafeStoreAddKeepsNonEmptySetPostDeleteFromIndex`
#[test]
fn delete_keeps_other_objects_in_the_index() {
    let (store, mut writer) = store();
    writer.upsert(object("a", 1, &["red"]));
    writer.upsert(object("b", 2, &["red"]));
    writer.delete(&"ns/a".parse().unwrap(), "3");
    assert_eq!(names(&store.by_index(BY_COLOUR, "red").unwrap()), ["b"]);
}

/// client-go: `TestThreadSafeStoreIndexingFunctionsWithMultipleValues`, `TestMultiIndexKeys`
#[test]
fn an_object_may_have_several_values() {
    let (store, mut writer) = store();
    writer.upsert(object("a", 1, &["red", "blue"]));
    writer.upsert(object("b", 2, &["blue"]));
    assert_eq!(names(&store.by_index(BY_COLOUR, "blue").unwrap()), ["a", "b"]);
    writer.upsert(object("a", 3, &["green", "red"]));
    assert_eq!(names(&store.by_index(BY_COLOUR, "blue").unwrap()), ["b"]);
    assert_eq!(names(&store.by_index(BY_COLOUR, "red").unwrap()), ["a"]);
    assert_eq!(names(&store.by_index(BY_COLOUR, "green").unwrap()), ["a"]);
    writer.upsert(object("a", 4, &[]));
    assert!(store.by_index(BY_COLOUR, "red").unwrap().is_empty());
}

#[test]
fn an_unknown_index_is_an_error() {
    let (store, _writer) = store();
    let error = store.by_index("shape", "round").unwrap_err();
    assert_eq!(error.to_string(), "index with name shape does not exist");
}

/// client-go: `TestThreadSafeStoreRV`
#[test]
fn the_version_follows_the_last_change() {
    let (store, mut writer) = store();
    assert_eq!(&*store.resource_version(), "");
    writer.put(object("a", 3, &[]));
    assert_eq!(&*store.resource_version(), "");
    writer.set_resource_version("10");
    assert_eq!(&*store.resource_version(), "10");
    writer.upsert(object("a", 12, &[]));
    assert_eq!(&*store.resource_version(), "12");
    writer.set_resource_version("20");
    assert_eq!(&*store.resource_version(), "20");
    writer.delete(&"ns/a".parse().unwrap(), "21");
    assert_eq!(&*store.resource_version(), "21");
}

/// One thread switches an object between two values; another looks up each value in turn.
#[test]
fn lookup_returns_only_objects_with_the_value() {
    let (store, mut writer) = store();
    writer.upsert(object("a", 1, &["red", "kept"]));
    std::thread::scope(|scope| {
        let reader = scope.spawn(move || {
            for round in 0..20_000 {
                let colour = ["red", "blue"][round % 2];
                for found in store.by_index(BY_COLOUR, colour).unwrap() {
                    assert!(colours(&found).iter().any(|c| c == colour), "round {round}");
                }
                assert_eq!(store.by_index(BY_COLOUR, "kept").unwrap().len(), 1, "round {round}");
            }
        });
        let mut version = 2;
        while !reader.is_finished() {
            let colour = if version % 2 == 0 { "red" } else { "blue" };
            writer.upsert(object("a", version, &[colour, "kept"]));
            version += 1;
        }
        reader.join().unwrap();
    });
}

#[derive(Clone, Debug)]
enum StoreChange {
    Upsert(u8, Vec<u8>),
    Delete(u8),
}

fn step() -> impl Strategy<Value = StoreChange> {
    let entry = || (0..6u8, prop::collection::vec(0..4u8, 0..3));
    prop_oneof![
        4 => entry().prop_map(|(name, values)| StoreChange::Upsert(name, values)),
        2 => (0..6u8).prop_map(StoreChange::Delete),
    ]
}

fn generated(name: u8, values: &[u8]) -> Cached<ConfigMap> {
    let values: Vec<String> = values.iter().map(|v| format!("v{v}")).collect();
    let values: Vec<&str> = values.iter().map(String::as_str).collect();
    object(&format!("n{name}"), 1, &values)
}

proptest! {
    /// The model is a map from name to values; the indexes are recomputed from it after every step.
    #[test]
    fn the_store_agrees_with_a_naive_model(steps in prop::collection::vec(step(), 1..40)) {
        let (store, mut writer) = store();
        let mut model: BTreeMap<u8, BTreeSet<u8>> = BTreeMap::new();
        for step in steps {
            match step {
                StoreChange::Upsert(name, values) => {
                    writer.upsert(generated(name, &values));
                    model.insert(name, values.into_iter().collect());
                }
                StoreChange::Delete(name) => {
                    writer.delete(&format!("ns/n{name}").parse().unwrap(), "2");
                    model.remove(&name);
                }
            }
            prop_assert_eq!(store.len(), model.len());
            for value in 0..4u8 {
                let expected: Vec<String> = model
                    .iter()
                    .filter(|(_, values)| values.contains(&value))
                    .map(|(name, _)| format!("n{name}"))
                    .collect();
                prop_assert_eq!(names(&store.by_index(BY_COLOUR, &format!("v{value}")).unwrap()), expected);
            }
            let live = model.values().flatten().collect::<BTreeSet<_>>().len();
            prop_assert_eq!(store.index_values(BY_COLOUR).unwrap().len(), live);
        }
    }
}

#[test]
fn for_each_visits_every_object_once() {
    let (store, mut writer) = store();
    let all: Vec<_> = (0..1000).map(|at| object(&format!("o{at:04}"), at, &[])).collect();
    for object in &all {
        writer.put(object.clone());
    }
    let mut visited = Vec::new();
    store.for_each(|name, object| {
        assert_eq!(*name, object.object_name());
        visited.push(name.clone());
    });
    visited.sort();
    assert_eq!(visited, all.iter().map(Cached::object_name).collect::<Vec<_>>());
}
