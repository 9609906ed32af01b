//! The workers of a controller from outside.
//!
//! # Guarantees
//! - Their number can change while they work. (test: `workers_come_and_go`)
//! - What they do can be asked. (test: `passes_that_are_under_way_are_listed`)

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::cache::ObjectName;
use crate::workqueue::Reasons;

/// The workers of a controller: how many they are, and what they do. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Workers {
    wanted: watch::Sender<usize>,
    /// By worker.
    passes: Arc<Mutex<BTreeMap<usize, UnderWay>>>,
}

/// A pass that is under way.
#[derive(Clone, Debug)]
pub struct UnderWay {
    /// The object's key.
    pub key: ObjectName,
    /// Why the pass is made.
    pub reasons: Reasons,
    /// When it began.
    pub since: Instant,
}

// === impl Workers ===

impl Workers {
    pub(super) fn new(workers: usize) -> Self {
        Self { wanted: watch::Sender::new(workers), passes: Arc::default() }
    }

    /// So many from now on. Those that are too many end after the sync that they are in; with none,
    /// keys wait.
    pub fn set(&self, workers: usize) {
        self.wanted.send_replace(workers);
    }

    /// What they do now; what waits for them is in the queue, see
    /// [`RateLimitingQueue::list`](crate::workqueue::RateLimitingQueue::list).
    #[must_use]
    pub fn passes(&self) -> Vec<UnderWay> {
        self.passes.lock().values().cloned().collect()
    }

    /// How many they are to be.
    pub(super) fn wanted(&self) -> watch::Receiver<usize> {
        self.wanted.subscribe()
    }

    /// A pass of this worker, which is listed until the answer is dropped.
    pub(super) fn begin(&self, worker: usize, pass: UnderWay) -> impl Drop + use<> {
        self.passes.lock().insert(worker, pass);
        Listed { worker, passes: self.passes.clone() }
    }
}

struct Listed {
    worker: usize,
    passes: Arc<Mutex<BTreeMap<usize, UnderWay>>>,
}

impl Drop for Listed {
    fn drop(&mut self) {
        self.passes.lock().remove(&self.worker);
    }
}
