//! What is remembered of an object from one pass to the next: since when its passes fail, and which name was taken.
//!
//! The text of a taken name tells no kind, so that a condition does not say which child it is about.
//!
//! # Guarantees
//! - A failure is told when it lasts, and its end ends it. (test: `a_failure_is_told_when_it_lasts`)
//! - The taken name of one child is told from that of another. (test: `another_taken_name_is_told_from_the_first`)
//! - Progress waits a second after the last write of a status. (test: `progress_waits_a_second_after_the_last_write`)
//! - A status that somebody else writes over each time is written seldom. (test: `a_status_that_is_written_over_is_written_seldom`)
//! - Of an object that has nothing to be remembered nothing is. (test: `what_is_over_is_not_remembered`)

use std::collections::HashMap;
use std::hash::BuildHasher;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::cache::ObjectName;
use crate::controller::turn::LASTS;

/// How often a status is written of which only progress moves.
const PROGRESS: Duration = Duration::from_secs(1);
/// How often a status is written that somebody else writes over, another process with an older view say.
const FIGHT: Duration = Duration::from_secs(10);
/// After this many times.
const FIGHT_AFTER: u32 = 5;
/// How long a written status is remembered.
const REPORT: Duration = Duration::from_secs(60);

/// What is remembered, by object. A process begins without.
#[derive(Debug, Default)]
pub(super) struct Memory {
    failing_since: Mutex<HashMap<ObjectName, Instant>>,
    taken: Mutex<HashMap<ObjectName, String>>,
    /// The statuses that were written within the last [`REPORT`], and some older ones.
    written: Mutex<Written>,
}

#[derive(Debug, Default)]
struct Written {
    by_object: HashMap<ObjectName, Report>,
    swept: Option<Instant>,
}

/// The last status of an object that was written.
#[derive(Clone, Copy, Debug)]
struct Report {
    at: Instant,
    fingerprint: u64,
    /// How often in a row somebody else has written another one since.
    overwritten: u32,
}

/// Tells one status from another.
pub(super) fn fingerprint(status: &impl serde::Serialize) -> u64 {
    let json = serde_json::to_vec(status).unwrap_or_default();
    foldhash::fast::FixedState::default().hash_one(json)
}

impl Memory {
    /// A status was written in place of the stored one.
    pub(super) fn status_written(&self, key: &ObjectName, stored: u64, written: u64) {
        let now = Instant::now();
        let Written { by_object, swept } = &mut *self.written.lock();
        // Each entry is looked at once or twice: what is swept was written since the last sweep.
        if swept.is_none_or(|swept| now - swept >= REPORT) {
            *swept = Some(now);
            by_object.retain(|_, report| now - report.at < REPORT);
            by_object.shrink_to(2 * by_object.len());
        }
        let last = by_object.get(key);
        let overwritten =
            last.filter(|last| last.fingerprint != stored).map_or(0, |last| last.overwritten + 1);
        by_object.insert(key.clone(), Report { at: now, fingerprint: written, overwritten });
    }

    /// How long a status waits before it is written in place of the stored one; `None`: it may be written. Progress waits a
    /// second after the last write. A status that somebody else writes over each time waits for [`FIGHT`].
    pub(super) fn status_waits(&self, key: &ObjectName, stored: u64, is_progress: bool) -> Option<Duration> {
        let last = *self.written.lock().by_object.get(key)?;
        let is_fight = last.fingerprint != stored && last.overwritten >= FIGHT_AFTER;
        let least = match (is_fight, is_progress) {
            (true, _) => FIGHT,
            (false, true) => PROGRESS,
            (false, false) => return None,
        };
        least.checked_sub(last.at.elapsed()).filter(|left| !left.is_zero())
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
    async fn progress_waits_a_second_after_the_last_write() {
        let memory = Memory::default();
        assert_eq!(memory.status_waits(&key(), 1, true), None);
        memory.status_written(&key(), 1, 2);
        assert_eq!(memory.status_waits(&key(), 2, true), Some(PROGRESS));
        assert_eq!(memory.status_waits(&key(), 2, false), None, "more than progress");
        tokio::time::advance(PROGRESS).await;
        assert_eq!(memory.status_waits(&key(), 2, true), None);
        tokio::time::advance(REPORT).await;
        memory.status_written(&ObjectName::new(Some("ns"), "other"), 1, 2);
        assert_eq!(memory.written.lock().by_object.len(), 1, "an old report is forgotten");
    }

    /// Two processes, one of which sees the children as they were.
    #[tokio::test(start_paused = true)]
    async fn a_status_that_is_written_over_is_written_seldom() {
        let memory = Memory::default();
        let (ours, theirs) = (1, 2);
        let mut writes = 0;
        for _ in 0..3000 {
            if memory.status_waits(&key(), theirs, false).is_none() {
                memory.status_written(&key(), theirs, ours);
                writes += 1;
            }
            tokio::time::advance(Duration::from_millis(100)).await;
        }
        assert!((30..=40).contains(&writes), "{writes} in five minutes");
        tokio::time::advance(FIGHT).await;
        memory.status_written(&key(), ours, 3);
        assert_eq!(memory.status_waits(&key(), 3, false), None, "nobody has written over it");
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
