//! Tests that a key waits until the caches have shown its own writes.

use super::*;
use crate::cache::{Cached, Indexers, store};

#[tokio::test(start_paused = true)]
async fn a_key_waits_for_its_own_writes() {
    let (reader, mut writer) = store::pair(Indexers::default());
    let child = |version| config_map("ns", "child", version);
    writer.upsert(Cached::new(Ok(child(10))));
    let keys = Arc::new(Keys::new().with(crate::api::ApiResource::of::<ConfigMap>(), reader));
    let queue = RateLimitingQueue::new(ItemExponentialFailure::new(10 * MS, 1000 * MS));
    let mut rig = start_with(keys.clone(), queue, 1, MS, |_, _, _| Ok(Outcome::Done));
    rig.caches.set();

    let key = ObjectName::new(Some("ns"), "a");
    keys.at(&key, |state| state.own_writes.wrote(&child(11)));
    rig.add("a");
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(rig.started(), 0);
    writer.upsert(Cached::new(Ok(child(11))));
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(rig.started(), 1);
    // The key was checked once a second.
    assert_eq!(counted(&rig), [5, 0]);
    // After the timeout the key is synced with live reads.
    keys.at(&key, |state| state.own_writes.wrote(&child(12)));
    rig.add("a");
    tokio::time::sleep(Duration::from_secs(35)).await;
    assert_eq!(rig.log.lock().live, [false, true]);
    assert_eq!(counted(&rig), [35, 1]);
    writer.upsert(Cached::new(Ok(child(12))));
    rig.add("a");
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(rig.log.lock().live, [false, true, false]);
    assert_eq!(counted(&rig), [35, 1]);
    rig.stop().await;
}

/// Returns how often a sync waited, and how often the guard failed open.
fn counted(rig: &Rig) -> [u32; 2] {
    let text = rig.metrics.encode();
    [
        r#"windlass_stale_sync_skips_total{controller="test",group="",resource="configmaps"} "#,
        r#"windlass_consistency_failed_open_total{controller="test"} "#,
    ]
    .map(|series| text.lines().find_map(|line| line.strip_prefix(series)?.parse().ok()).unwrap())
}
