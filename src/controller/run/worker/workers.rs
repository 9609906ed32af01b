//! Controls the workers of a controller from outside.
//!
//! # Guarantees
//! - The number of workers can change while they run. (test: `worker_count_can_change_at_runtime`)
//! - The passes in progress are listed. (test: `passes_in_progress_are_listed`)

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::Instant;

use super::super::observer::PassObserver;
use crate::cache::ObjectName;
use crate::workqueue::{RateLimitingQueue, Reasons};

/// Sets the number of workers of a controller and lists their passes. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Workers {
    wanted: watch::Sender<usize>,
    /// By index of the worker.
    passes: Arc<Mutex<BTreeMap<usize, RunningPass>>>,
    observer: Arc<OnceLock<Arc<dyn PassObserver>>>,
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

impl fmt::Debug for ControllerView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ControllerView").field("name", &self.name).finish_non_exhaustive()
    }
}

/// A pass in progress.
#[derive(Clone, Debug)]
pub struct RunningPass {
    /// The index of the worker.
    pub worker: usize,
    /// The worker's task, by which the requests of the pass are found.
    pub task: Option<tokio::task::Id>,
    /// The object's key.
    pub key: ObjectName,
    /// Why the pass is made.
    pub reasons: Reasons,
    /// When the pass began.
    pub since: Instant,
}

// === impl Workers ===

impl Workers {
    pub(super) fn new(workers: usize) -> Self {
        Self { wanted: watch::Sender::new(workers), passes: Arc::default(), observer: Arc::default() }
    }

    /// Sets the number of workers. Surplus workers end after their current sync; with zero, keys wait in the queue.
    pub fn set(&self, workers: usize) {
        self.wanted.send_replace(workers);
    }

    /// Returns the wanted number of workers.
    #[must_use]
    pub fn count(&self) -> usize {
        *self.wanted.borrow()
    }

    /// Tells `observer` of each pass from now on. A controller has one observer: another is ignored.
    pub fn observe(&self, observer: Arc<dyn PassObserver>) {
        self.observer.set(observer).ok();
    }

    pub(super) fn observer(&self) -> Option<&dyn PassObserver> {
        self.observer.get().map(|observer| &**observer)
    }

    /// Returns the passes in progress. For the keys that wait, see
    /// [`RateLimitingQueue::list`](crate::workqueue::RateLimitingQueue::list).
    #[must_use]
    pub fn passes(&self) -> Vec<RunningPass> {
        self.passes.lock().values().cloned().collect()
    }

    /// Returns a receiver of the wanted number of workers.
    pub(super) fn wanted(&self) -> watch::Receiver<usize> {
        self.wanted.subscribe()
    }

    /// Lists a pass until the returned guard is dropped.
    pub(super) fn begin(&self, pass: RunningPass) -> impl Drop + use<> {
        let worker = pass.worker;
        self.passes.lock().insert(worker, pass);
        Listed { worker, passes: self.passes.clone() }
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
