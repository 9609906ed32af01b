//! Tests that a controller keeps no state of converged objects.

use std::sync::atomic::AtomicU64;

use super::*;
use crate::api::ApiResource;
use crate::controller::key::repairs::ChildId;
use crate::controller::key::stores::{Presence, StoreView};
use crate::controller::kinds::difference::Difference;
use crate::workqueue::AddOptions;

const MINUTE: Duration = Duration::from_secs(60);

/// A cache that has reached this version.
#[derive(Clone, Default)]
struct Seen(Arc<AtomicU64>);

impl StoreView for Seen {
    fn resource_version(&self) -> Arc<str> {
        self.0.load(Ordering::Relaxed).to_string().into()
    }

    fn presence(&self, _: &ObjectName, _: &str) -> Presence {
        Presence::Gone
    }
}

/// Writes a child in the first sync of each key, for one key in ten after a failed sync; the write enqueues the
/// key, and the next sync finds nothing to do.
struct Converging {
    seen: Seen,
    queue: RateLimitingQueue<ObjectName>,
    passes: Mutex<HashMap<ObjectName, u32>>,
}

fn child() -> ChildId {
    ChildId::Name("child".to_owned())
}

impl SyncHandler for Converging {
    async fn sync(&self, key: &ObjectName, mut request: SyncRequest<'_>) -> Result<Outcome, SyncError> {
        let pass = {
            let mut passes = self.passes.lock();
            let pass = passes.entry(key.clone()).or_default();
            *pass += 1;
            *pass
        };
        let is_unlucky = key.name().ends_with('7');
        match (pass, is_unlucky) {
            (1, true) => return Err(status_error(500, "InternalError").into()),
            (1, false) | (2, true) => {
                let version = self.seen.0.load(Ordering::Relaxed) + 1;
                request.wrote(&config_map("ns", key.name(), version));
                request.deleted(&ApiResource::of::<ConfigMap>(), key.clone(), "uid");
                if is_unlucky {
                    let found =
                        [Difference::shown("image".to_owned(), "theirs".to_owned(), "ours".to_owned())];
                    request.state().repairs.repaired(&child(), &found, None);
                }
                self.seen.0.store(version, Ordering::Relaxed);
                self.queue.add_with(key.clone(), AddOptions::because(Reason::Changed));
            }
            _ => assert_eq!(request.state().repairs.same(child), None),
        }
        Ok(Outcome::Done)
    }
}

async fn assert_no_state_is_left_of(objects: usize) {
    let (seen, records) = (Seen::default(), Arc::new(Keys::new()));
    records.observe(ApiResource::of::<ConfigMap>(), seen.clone());
    let queue = RateLimitingQueue::with(
        ItemExponentialFailure::new(MS, 10 * MS),
        QueueOptions { ageing: Some(Ageing::default()), ..QueueOptions::default() },
    );
    let handler = Arc::new(Converging { seen, queue: queue.clone(), passes: Mutex::default() });
    let controller =
        Controller::new("test", queue.clone(), handler.clone()).with_keys(records.clone()).with_workers(4);
    let (shutdown, mut tasks) = (CancellationToken::new(), JoinSet::new());
    tasks.spawn(controller.run(shutdown.clone()));
    let keys: Vec<ObjectName> = (0..objects).map(|at| ObjectName::new(Some("ns"), &at.to_string())).collect();
    keys.iter().for_each(|key| queue.add_with(key.clone(), AddOptions::because(Reason::Initial)));
    tokio::time::sleep(MINUTE).await;
    let passes: u32 = handler.passes.lock().values().sum();
    assert_eq!(passes as usize, 2 * objects + objects / 10, "all objects have converged");

    assert_eq!(records.len(), objects / 10, "only repairs are remembered");
    assert_eq!((queue.len(), queue.waiting(), queue.backing_off()), (0, 0, 0));
    assert_eq!(keys.iter().map(|key| queue.num_requeues(key)).sum::<u32>(), 0);
    tokio::time::sleep(20 * MINUTE).await;
    records.at(&keys[0], |_| {});
    assert!(records.is_empty(), "repairs are forgotten after a while");
    shutdown.cancel();
    tasks.join_next().await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn converged_objects_leave_no_state_behind() {
    assert_no_state_is_left_of(1_000).await;
    assert_no_state_is_left_of(100_000).await;
}
