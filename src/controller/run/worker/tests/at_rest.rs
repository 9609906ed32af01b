//! Tests that a controller keeps no state of converged objects.

use std::sync::atomic::AtomicU64;

use super::*;
use crate::api::ApiResource;
use crate::cache::TypedObject;
use crate::controller::children::contention::Contention;
use crate::controller::children::retry_holds::RetryHolds;
use crate::controller::kinds::difference::Difference;
use crate::controller::run::consistency::{Presence, StoreView};
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

/// Writes a child in the first pass of each key, for one key in ten after a failed pass; the write enqueues the
/// key, and the next pass finds nothing to do.
struct Converging {
    guard: Arc<Consistency>,
    seen: Seen,
    queue: RateLimitingQueue<ObjectName>,
    contention: Contention,
    retry_holds: RetryHolds,
    passes: Mutex<HashMap<ObjectName, u32>>,
}

impl SyncHandler for Converging {
    async fn sync(&self, key: &ObjectName, _: SyncRequest<'_>) -> Result<Outcome, SyncError> {
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
                self.guard.wrote(key, &config_map("ns", key.name(), version));
                self.guard.deleted(key, &ConfigMap::resource(), key.clone(), "uid");
                if is_unlucky {
                    let found =
                        [Difference::shown("image".to_owned(), "theirs".to_owned(), "ours".to_owned())];
                    self.contention.repaired(key.name(), &found, None);
                }
                self.seen.0.store(version, Ordering::Relaxed);
                self.queue.add(key.clone(), AddOptions::because(Reason::Changed));
            }
            _ => {
                assert_eq!(self.contention.same(key.name()), None);
                self.retry_holds.clear(|| key.to_string());
            }
        }
        Ok(Outcome::Done)
    }
}

async fn assert_no_state_is_left_of(objects: usize) {
    let (seen, guard) = (Seen::default(), Arc::new(Consistency::new()));
    guard.observe(ApiResource::of::<ConfigMap>(), seen.clone());
    let queue = RateLimitingQueue::with(
        ItemExponentialFailure::new(MS, 10 * MS),
        QueueOptions { ageing: Some(Ageing::default()), ..QueueOptions::default() },
    );
    let handler = Arc::new(Converging {
        guard: guard.clone(),
        seen,
        queue: queue.clone(),
        contention: Contention::default(),
        retry_holds: RetryHolds::default(),
        passes: Mutex::default(),
    });
    let controller = Controller::new("test", queue.clone(), handler.clone(), guard.clone()).with_workers(4);
    let hot = controller.hot.clone();
    let (shutdown, mut tasks) = (CancellationToken::new(), JoinSet::new());
    tasks.spawn(controller.run(shutdown.clone()));
    let keys: Vec<ObjectName> = (0..objects).map(|at| ObjectName::new(Some("ns"), &at.to_string())).collect();
    keys.iter().for_each(|key| queue.add(key.clone(), AddOptions::because(Reason::Initial)));
    tokio::time::sleep(MINUTE).await;
    let passes: u32 = handler.passes.lock().values().sum();
    assert_eq!(passes as usize, 2 * objects + objects / 10, "all objects have converged");

    assert_eq!((guard.len(), hot.len()), (0, 0));
    assert_eq!((queue.len(), queue.waiting(), queue.backing_off()), (0, 0, 0));
    assert_eq!(keys.iter().map(|key| queue.num_requeues(key)).sum::<u32>(), 0);
    assert_eq!(handler.retry_holds.len(), 0);
    assert_eq!(handler.contention.len(), objects / 10);
    tokio::time::sleep(20 * MINUTE).await;
    assert_eq!(handler.contention.same("any"), None);
    assert!(handler.contention.is_empty(), "repairs are forgotten after a while");
    shutdown.cancel();
    tasks.join_next().await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn converged_objects_leave_no_state_behind() {
    assert_no_state_is_left_of(1_000).await;
    assert_no_state_is_left_of(100_000).await;
}
