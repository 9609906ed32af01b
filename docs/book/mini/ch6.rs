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
    // [when]
    /// Counts a failure, and returns how long to wait.
    pub fn when(&self, key: &Key) -> Duration {
        let mut failures = self.failures.lock();
        let count = failures.entry(key.clone()).or_default();
        let wait = FIRST.saturating_mul(2_u32.saturating_pow(*count)).min(LONGEST);
        *count += 1;
        wait
    }

    /// Forgets the failures of a key that has succeeded.
    pub fn forget(&self, key: &Key) {
        self.failures.lock().remove(key);
    }
    // [/when]

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

    // [add_after]
    /// Adds a key after this time. A key that waits already keeps the earlier time.
    pub fn add_after(&self, key: Key, wait: Duration) {
        let due = Instant::now() + wait;
        let mut waiting = self.waiting.lock();
        let earliest = waiting.get(&key).map_or(due, |known| due.min(*known));
        waiting.insert(key, earliest);
        self.changed.notify_one();
    }
    // [/add_after]

    // [run]
    /// Adds keys when they are due, until dropped.
    pub async fn run(&self) {
        loop {
            let next = self.waiting.lock().values().min().copied();
            let due = async {
                match next {
                    Some(due) => tokio::time::sleep_until(due).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = due => self.release(),
                () = self.changed.notified() => {}
            }
        }
    }

    fn release(&self) {
        let (now, mut waiting) = (Instant::now(), self.waiting.lock());
        let due: Vec<Key> =
            waiting.iter().filter(|(_, due)| **due <= now).map(|(key, _)| key.clone()).collect();
        for key in due {
            waiting.remove(&key);
            self.queue.add(key);
        }
    }
    // [/run]
}
