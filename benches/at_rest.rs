//! Measures the memory that a controller keeps for each converged object, apart from the cache.
//!
//! `cargo bench --bench at_rest` runs 1,000 and 100,000 objects through a controller until they converge: each writes a
//! child in its first pass, one in ten fails before that, and one in ten is repaired. The benchmark prints the bytes
//! that remain on the heap, and fails if an additional object costs more than 200.

#![allow(clippy::print_stdout, reason = "its results go to standard output")]
#![allow(clippy::unwrap_used, reason = "a benchmark that cannot go on has failed")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use peak_alloc::PeakAlloc;
use tokio::runtime;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use windlass::api::ApiResource;
use windlass::cache::ObjectName;
use windlass::controller::kinds::difference::Difference;
use windlass::controller::{Controller, Keys, Outcome, SyncError, SyncHandler, SyncRequest};
use windlass::controller::{Presence, StoreView};
use windlass::workqueue::{
    AddOptions, Ageing, ItemExponentialFailure, QueueOptions, RateLimitingQueue, Reason,
};

#[global_allocator]
static HEAP: PeakAlloc = PeakAlloc;

const BYTES_MAX: f64 = 200.0;

/// A cache that has seen this version.
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

struct Converging {
    seen: Seen,
    queue: RateLimitingQueue<ObjectName>,
    /// Number of passes by object; an object's name is its index.
    passes: Vec<AtomicU32>,
    left: AtomicUsize,
    done: Notify,
}

impl SyncHandler for Converging {
    async fn sync(&self, key: &ObjectName, mut request: SyncRequest<'_>) -> Result<Outcome, SyncError> {
        let at: usize = key.name().parse().unwrap();
        let pass = self.passes[at].fetch_add(1, Ordering::Relaxed);
        let (fails, is_repaired) = (at % 10 == 7, at % 10 == 3);
        if pass == 0 && fails {
            return Err(SyncError::from(windlass::testing::connection_error()));
        }
        if pass > u32::from(fails) {
            if self.left.fetch_sub(1, Ordering::Relaxed) == 1 {
                self.done.notify_one();
            }
            return Ok(Outcome::Done);
        }
        let mut child = ConfigMap::default();
        (child.metadata.name, child.metadata.uid) = (Some(key.name().to_owned()), Some(format!("uid-{at}")));
        let version = self.seen.0.load(Ordering::Relaxed) + 1;
        child.metadata.resource_version = Some(version.to_string());
        request.wrote(&child);
        if is_repaired {
            let found = Difference { field: "image".to_owned(), live: None, wanted: None, fingerprint: 1 };
            request.state().repaired("child", &[found]);
        }
        self.seen.0.store(version, Ordering::Relaxed);
        self.queue.add_with(key.clone(), AddOptions::because(Reason::Changed));
        Ok(Outcome::Done)
    }
}

fn bytes_at_rest(objects: usize) -> usize {
    let keys: Vec<ObjectName> =
        (0..objects).map(|at| ObjectName::new(Some("default"), &at.to_string())).collect();
    let passes: Vec<AtomicU32> = keys.iter().map(|_| AtomicU32::new(0)).collect();
    let runtime = runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    runtime.block_on(async {
        let before = HEAP.current_usage();
        let (seen, records) = (Seen::default(), Arc::new(Keys::new()));
        records.observe(ApiResource::of::<ConfigMap>(), seen.clone());
        let limiter = ItemExponentialFailure::new(Duration::from_millis(5), Duration::from_secs(120));
        let options = QueueOptions { ageing: Some(Ageing::default()), ..QueueOptions::default() };
        let queue = RateLimitingQueue::with(limiter, options);
        let handler = Arc::new(Converging {
            seen,
            queue: queue.clone(),
            passes,
            left: AtomicUsize::new(objects),
            done: Notify::new(),
        });
        let controller =
            Controller::new("bench", queue.clone(), handler.clone()).with_keys(records).with_workers(4);
        let (stop, mut tasks) = (CancellationToken::new(), JoinSet::new());
        tasks.spawn(controller.run(stop.clone()));
        keys.iter().for_each(|key| queue.add_with(key.clone(), AddOptions::because(Reason::Initial)));
        handler.done.notified().await;
        // Temporary state expires with time, and with the next pass.
        for _ in 0..2 {
            tokio::time::sleep(Duration::from_secs(3600)).await;
            handler.left.store(1, Ordering::Relaxed);
            queue.add_with(keys[0].clone(), AddOptions::because(Reason::Changed));
            handler.done.notified().await;
        }
        let after = HEAP.current_usage();
        stop.cancel();
        tasks.join_all().await;
        after.saturating_sub(before)
    })
}

fn main() {
    // `cargo test --benches` only checks that the benchmark starts.
    if std::env::args().any(|argument| argument == "--test") {
        return;
    }
    let [few, many] = [1_000, 100_000].map(|objects| (objects, bytes_at_rest(objects)));
    for (objects, bytes) in [few, many] {
        println!("{objects} objects at rest: {bytes} bytes");
    }
    // Maps keep capacity for a thousand entries, however few they hold.
    let each = many.1.saturating_sub(few.1) as f64 / (many.0 - few.0) as f64;
    println!("each additional object: {each:.1} bytes");
    assert!(each <= BYTES_MAX, "the budget is {BYTES_MAX} bytes per object");
}
