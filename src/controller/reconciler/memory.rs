//! What is remembered of an object from one pass to the next: since when its passes fail.
//!
//! # Guarantees
//! - A failure is told when it lasts, and its end ends it. (test: `a_failure_is_told_when_it_lasts`)
//! - Of an object that has nothing to be remembered nothing is. (test: `what_is_over_is_not_remembered`)

use std::collections::HashMap;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::cache::ObjectName;
use crate::controller::turn::LASTS;

/// What is remembered, by object. A process begins without.
#[derive(Debug, Default)]
pub(super) struct Memory {
    failing_since: Mutex<HashMap<ObjectName, Instant>>,
}

impl Memory {
    /// A pass has come to its end, and a child has failed in it, or none: whether its status is to be written.
    /// `asked_to_wait` is how long the server wants no other try.
    pub(super) fn is_to_be_told(&self, key: &ObjectName, is_failing: bool, asked_to_wait: Duration) -> bool {
        let mut failing = self.failing_since.lock();
        if !is_failing {
            failing.remove(key);
            return true;
        }
        let since = *failing.entry(key.clone()).or_insert_with(Instant::now);
        since.elapsed() + asked_to_wait >= LASTS
    }

    /// The object is gone.
    pub(super) fn forget(&self, key: &ObjectName) {
        self.failing_since.lock().remove(key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key() -> ObjectName {
        ObjectName::new(Some("ns"), "one")
    }

    #[tokio::test(start_paused = true)]
    async fn a_failure_is_told_when_it_lasts() {
        let memory = Memory::default();
        for _ in 0..2 {
            assert!(!memory.is_to_be_told(&key(), true, Duration::ZERO));
            tokio::time::advance(LASTS / 2).await;
            assert!(!memory.is_to_be_told(&key(), true, Duration::ZERO));
            assert!(memory.is_to_be_told(&key(), true, LASTS / 2), "there is no other try before");
            tokio::time::advance(LASTS / 2).await;
            assert!(memory.is_to_be_told(&key(), true, Duration::ZERO));
            assert!(memory.is_to_be_told(&key(), false, Duration::ZERO), "and that it is over");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_over_is_not_remembered() {
        let memory = Memory::default();
        memory.is_to_be_told(&key(), true, Duration::ZERO);
        memory.is_to_be_told(&key(), false, Duration::ZERO);
        assert!(memory.failing_since.lock().is_empty());
        memory.is_to_be_told(&key(), true, Duration::ZERO);
        memory.forget(&key());
        assert!(memory.failing_since.lock().is_empty());
    }
}
