//! Chapter 6, not now: keys that come back later, and later still if they fail again.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::ch3::Key;
use crate::ch5::Queue;

/// The wait after the first failure; each further one doubles it.
pub const FIRST: Duration = Duration::from_millis(5);
/// The longest wait.
pub const LONGEST: Duration = Duration::from_secs(1000);

/// How long a key waits after a failure.
#[derive(Debug, Default)]
pub struct Backoff {
    failures: Mutex<HashMap<Key, u32>>,
}

impl Backoff {
    /// Counts a failure, and returns how long to wait.
    pub fn when(&self, key: &Key) -> Duration {
        todo!("chapter 6: when")
    }

    /// Forgets the failures of a key that has succeeded.
    pub fn forget(&self, key: &Key) {
        todo!("chapter 6: when")
    }

    /// Returns how many keys have failures.
    pub fn len(&self) -> usize {
        self.failures.lock().len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Keys that are added to a queue later.
#[derive(Debug)]
pub struct Delays {
    queue: Arc<Queue>,
    waiting: Mutex<BTreeMap<Key, Instant>>,
    changed: Notify,
}

impl Delays {
    pub fn new(queue: Arc<Queue>) -> Self {
        Self { queue, waiting: Mutex::default(), changed: Notify::new() }
    }

    /// Adds a key after this time. A key that waits already keeps the earlier time.
    pub fn add_after(&self, key: Key, wait: Duration) {
        todo!("chapter 6: add_after")
    }

    /// Adds keys when they are due, until dropped.
    pub async fn run(&self) {
        todo!("chapter 6: run")
    }

    fn release(&self) {
        todo!("chapter 6: run")
    }
}
