//! Controls the workers of a controller from outside.
//!
//! # Guarantees
//! - The number of workers can change while they run. (test: `worker_count_can_change_at_runtime`)
//! - The syncs in progress are listed. (test: `passes_in_progress_are_listed`)
//! - While syncs wait for slow answers, other workers stand in for theirs. (test: `workers_stand_in_for_slow_passes`)
//! - No more than [`STAND_INS`] stand in for each worker, and one namespace leaves some of them to others.
//!   (test: `number_of_stand_ins_is_limited`, `hanging_namespace_leaves_stand_ins_to_others`)

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::Instant;

use super::super::observer::PassObserver;
use crate::cache::ObjectName;
use crate::client::slow_calls::OnSlow;
use crate::workqueue::{RateLimitingQueue, Reasons};

/// How many workers may stand in for each wanted one.
pub(super) const STAND_INS: usize = 8;

/// Sets the number of workers of a controller and lists their syncs. Cheap to clone.
#[derive(Clone)]
pub struct Workers {
    count: watch::Sender<Count>,
    /// The syncs that wait for a slow answer, by namespace.
    waiting: Arc<Mutex<BTreeMap<String, usize>>>,
    /// By index of the worker.
    passes: Arc<Mutex<BTreeMap<usize, RunningPass>>>,
    observer: Arc<OnceLock<Arc<dyn PassObserver>>>,
}

/// How many workers run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Count {
    pub(super) wanted: usize,
    /// Passes that wait for a slow answer.
    waiting: usize,
}

/// Handles on the parts of a controller, to read its state while it runs.
#[derive(Clone)]
pub struct ControllerView {
    /// The controller's name in logs and metrics.
    pub name: &'static str,
    /// Its queue.
    pub queue: RateLimitingQueue<ObjectName>,
    /// Its workers.
    pub workers: Workers,
    /// Returns the resource version of a key's object in the cache.
    pub version_of: VersionOf,
}

/// Returns the resource version of a key's object in the cache, if the object is there.
pub(super) type VersionOf = Arc<dyn Fn(&ObjectName) -> Option<String> + Send + Sync>;

impl fmt::Debug for Workers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Workers").field("count", &*self.count.borrow()).finish_non_exhaustive()
    }
}

impl fmt::Debug for ControllerView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ControllerView").field("name", &self.name).finish_non_exhaustive()
    }
}

/// A sync in progress.
#[derive(Clone, Debug)]
pub struct RunningPass {
    /// The index of the worker.
    pub worker: usize,
    /// The worker's task, by which the requests of the sync are found.
    pub task: Option<tokio::task::Id>,
    /// The object's key.
    pub key: ObjectName,
    /// Why the sync is made.
    pub reasons: Reasons,
    /// When the sync began.
    pub since: Instant,
}

// === impl Workers ===

impl Workers {
    pub(super) fn new(workers: usize) -> Self {
        let count = watch::Sender::new(Count { wanted: workers, waiting: 0 });
        Self { count, waiting: Arc::default(), passes: Arc::default(), observer: Arc::default() }
    }

    /// Sets the number of workers. Surplus workers end after their current sync; with zero, keys wait in the queue.
    pub fn set(&self, workers: usize) {
        self.count.send_modify(|count| count.wanted = workers);
    }

    /// Returns the wanted number of workers. More run while syncs wait for slow answers.
    #[must_use]
    pub fn count(&self) -> usize {
        self.count.borrow().wanted
    }

    /// Is to be called when the sync of this key begins or ceases to wait for a slow answer.
    pub(super) fn on_slow(&self, key: &ObjectName) -> OnSlow {
        let (count, waiting, key) = (self.count.clone(), self.waiting.clone(), key.clone());
        Box::new(move |waits| {
            let namespace = key.namespace().unwrap_or_default();
            let mut waiting = waiting.lock();
            let of_namespace = waiting.entry(namespace.to_owned()).or_default();
            *of_namespace = if waits { *of_namespace + 1 } else { *of_namespace - 1 };
            if *of_namespace == 0 {
                waiting.remove(namespace);
            }
            let all = waiting.values().sum();
            count.send_modify(|count| count.waiting = all);
        })
    }

    /// Whether to leave the stand-ins that are left to other namespaces: as many passes of this one wait for slow
    /// answers.
    pub(super) fn are_crowded_by(&self, namespace: &str) -> bool {
        let count = *self.count.borrow();
        let left = (count.wanted * STAND_INS).saturating_sub(count.waiting);
        self.waiting.lock().get(namespace).is_some_and(|waiting| *waiting >= left)
    }

    /// Tells `observer` of each sync from now on. A controller has one observer: another is ignored.
    pub fn observe(&self, observer: Arc<dyn PassObserver>) {
        self.observer.set(observer).ok();
    }

    pub(super) fn observer(&self) -> Option<&dyn PassObserver> {
        self.observer.get().map(|observer| &**observer)
    }

    /// Returns the syncs in progress. For the keys that wait, see
    /// [`RateLimitingQueue::list`](crate::workqueue::RateLimitingQueue::list).
    #[must_use]
    pub fn passes(&self) -> Vec<RunningPass> {
        self.passes.lock().values().cloned().collect()
    }

    /// Returns a receiver of the number of workers.
    pub(super) fn counted(&self) -> watch::Receiver<Count> {
        self.count.subscribe()
    }

    /// Lists a sync until the returned guard is dropped.
    pub(super) fn begin(&self, pass: RunningPass) -> impl Drop + use<> {
        let worker = pass.worker;
        self.passes.lock().insert(worker, pass);
        Listed { worker, passes: self.passes.clone() }
    }
}

// === impl Count ===

impl Count {
    /// Returns how many workers run.
    pub(super) fn running(self) -> usize {
        self.wanted + self.waiting.min(self.wanted * STAND_INS)
    }
}

struct Listed {
    worker: usize,
    passes: Arc<Mutex<BTreeMap<usize, RunningPass>>>,
}

impl Drop for Listed {
    fn drop(&mut self) {
        self.passes.lock().remove(&self.worker);
    }
}
