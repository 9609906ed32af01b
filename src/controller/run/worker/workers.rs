//! Controls the workers of a controller from outside.
//!
//! # Guarantees
//! - The number of workers can change while they run. (test: `worker_count_can_change_at_runtime`)
//! - The passes in progress are listed. (test: `passes_in_progress_are_listed`)

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::cache::ObjectName;
use crate::workqueue::Reasons;

/// Sets the number of workers of a controller and lists their passes. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Workers {
    wanted: watch::Sender<usize>,
    /// By index of the worker.
    passes: Arc<Mutex<BTreeMap<usize, RunningPass>>>,
}

/// A pass in progress.
#[derive(Clone, Debug)]
pub struct RunningPass {
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
        Self { wanted: watch::Sender::new(workers), passes: Arc::default() }
    }

    /// Sets the number of workers. Surplus workers end after their current sync; with zero, keys wait in the queue.
    pub fn set(&self, workers: usize) {
        self.wanted.send_replace(workers);
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

    /// Lists a pass of `worker` until the returned guard is dropped.
    pub(super) fn begin(&self, worker: usize, pass: RunningPass) -> impl Drop + use<> {
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
