//! What is remembered of an object from one pass to the next: since when its passes fail, and which name was taken.
//!
//! The text of a taken name tells no kind, so that a condition does not say which child it is about.
//!
//! # Guarantees
//! - A failure is told when it lasts, and its end ends it. (test: `a_failure_is_told_when_it_lasts`)
//! - The taken name of one child is told from that of another. (test: `another_taken_name_is_told_from_the_first`)
//! - Numbers wait a second after the last write. (test: `numbers_wait_a_second_after_the_last_write`)
//! - Of an object that has nothing to be remembered nothing is. (test: `what_is_over_is_not_remembered`)

use std::collections::HashMap;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::cache::ObjectName;
use crate::controller::turn::LASTS;

/// How often the status of an object is written of which only numbers move.
const NUMBERS: Duration = Duration::from_secs(1);

/// What is remembered, by object. A process begins without.
#[derive(Debug, Default)]
pub(super) struct Memory {
    failing_since: Mutex<HashMap<ObjectName, Instant>>,
    taken: Mutex<HashMap<ObjectName, String>>,
    /// When a status was written, within the last [`NUMBERS`].
    written: Mutex<Written>,
}

#[derive(Debug, Default)]
struct Written {
    by_object: HashMap<ObjectName, Instant>,
    swept: Option<Instant>,
}

impl Memory {
    /// A status was written.
    pub(super) fn status_written(&self, key: &ObjectName) {
        let now = Instant::now();
        let Written { by_object, swept } = &mut *self.written.lock();
        // Each entry is looked at once or twice: what is swept was written since the last sweep.
        if swept.is_none_or(|swept| now - swept >= NUMBERS) {
            *swept = Some(now);
            by_object.retain(|_, at| now - *at < NUMBERS);
            by_object.shrink_to(2 * by_object.len());
        }
        by_object.insert(key.clone(), now);
    }

    /// How long a status waits of which only numbers have moved; `None`: it may be written.
    pub(super) fn numbers_wait(&self, key: &ObjectName) -> Option<Duration> {
        let at = *self.written.lock().by_object.get(key)?;
        NUMBERS.checked_sub(at.elapsed()).filter(|left| !left.is_zero())
    }

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

    /// Whether the name that is taken now is another child's than that which was taken at the last pass, as far as this
    /// process knows. `None`: none is.
    pub(super) fn is_of_another(&self, key: &ObjectName, taken: Option<&str>) -> bool {
        let mut all = self.taken.lock();
        let Some(taken) = taken else {
            all.remove(key);
            return false;
        };
        if all.get(key).is_some_and(|known| known == taken) {
            return false;
        }
        all.insert(key.clone(), taken.to_owned()).is_some()
    }

    /// The object is gone.
    pub(super) fn forget(&self, key: &ObjectName) {
        self.failing_since.lock().remove(key);
        self.taken.lock().remove(key);
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
    async fn numbers_wait_a_second_after_the_last_write() {
        let memory = Memory::default();
        assert_eq!(memory.numbers_wait(&key()), None);
        memory.status_written(&key());
        assert_eq!(memory.numbers_wait(&key()), Some(NUMBERS));
        tokio::time::advance(NUMBERS / 4).await;
        assert_eq!(memory.numbers_wait(&key()), Some(NUMBERS * 3 / 4));
        tokio::time::advance(NUMBERS).await;
        assert_eq!(memory.numbers_wait(&key()), None);
        memory.status_written(&ObjectName::new(Some("ns"), "other"));
        assert_eq!(memory.written.lock().by_object.len(), 1, "what is over is swept");
    }

    #[test]
    fn another_taken_name_is_told_from_the_first() {
        let memory = Memory::default();
        for (taken, expected) in [
            (Some("a"), false),
            (Some("a"), false),
            (Some("b"), true),
            (Some("b"), false),
            (None, false),
            (Some("a"), false),
        ] {
            assert_eq!(memory.is_of_another(&key(), taken), expected, "{taken:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_over_is_not_remembered() {
        let memory = Memory::default();
        memory.is_to_be_told(&key(), true, Duration::ZERO);
        memory.is_to_be_told(&key(), false, Duration::ZERO);
        assert!(memory.failing_since.lock().is_empty());
        memory.is_of_another(&key(), Some("a"));
        memory.is_of_another(&key(), None);
        assert!(memory.taken.lock().is_empty());
        memory.is_to_be_told(&key(), true, Duration::ZERO);
        memory.is_of_another(&key(), Some("a"));
        memory.forget(&key());
        assert!(memory.failing_since.lock().is_empty() && memory.taken.lock().is_empty());
    }
}
