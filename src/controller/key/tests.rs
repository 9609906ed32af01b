use super::*;
use crate::testing::config_map;
use k8s_openapi::api::core::v1::ConfigMap;

fn key(name: &str) -> ObjectName {
    ObjectName::new(Some("ns"), name)
}

#[tokio::test(start_paused = true)]
async fn untouched_records_are_swept() {
    let (store, mut writer) = crate::cache::store::pair::<ConfigMap>(crate::cache::Indexers::default());
    let keys = Keys::new().with(ApiResource::of::<ConfigMap>(), store);
    writer.set_resource_version("1");
    for at in 0..1000 {
        keys.at(&key(&at.to_string()), |state| match at % 2 {
            0 => state.own_writes.wrote(&config_map("ns", "a", 5)),
            _ => state.reported.status_written(1, 2),
        });
    }
    assert_eq!(keys.len(), 1000);
    tokio::time::advance(SWEEP).await;
    keys.at(&key("another"), |_| {});
    assert_eq!(keys.len(), 500, "the caches have not seen the writes");
    writer.set_resource_version("5");
    keys.at(&key("another"), |_| {});
    assert_eq!(keys.len(), 500, "records are looked at once a minute");
    tokio::time::advance(SWEEP).await;
    keys.at(&key("another"), |_| {});
    assert_eq!(keys.len(), 0);
    assert!(keys.records.lock().by_key.capacity() < 64, "the room of the records is given back");
}

#[tokio::test(start_paused = true)]
async fn recreated_object_starts_without_a_record() {
    let mut state = KeyState::default();
    state.begin("first");
    state.reported.rename_begun();
    state.own_writes.wrote(&config_map("ns", "a", 5));
    state.begin("first");
    assert!(state.reported.is_renaming());
    state.begin("second");
    assert!(!state.reported.is_renaming());
    assert!(!state.own_writes.is_empty(), "the caches still have to show the writes");
}

#[tokio::test(start_paused = true)]
async fn distrust_lasts_until_a_sync_succeeds() {
    let keys = Keys::new();
    keys.distrust(&key("a"));
    let state = keys.take(&key("a"));
    assert!(state.is_distrusted());
    keys.put_back(&key("a"), state);
    let mut state = keys.take(&key("a"));
    assert!(state.is_distrusted(), "the sync has failed");
    state.trust_again();
    keys.distrust(&key("a"));
    keys.put_back(&key("a"), state);
    assert!(keys.take(&key("a")).is_distrusted(), "an audit has found something during the sync");
    assert!(keys.is_empty());
}
