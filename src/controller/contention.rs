//! Notices that somebody changes a child back each time, so that we stop fighting and say so.
//!
//! # Guarantees
//! - The same difference may come back four times and is repaired; the fifth return is contention. (test: `the_fifth_return_is_contention`)
//! - Contention is tried again after two minutes, and ends when the repair holds that long. (test: `contention_ends_when_a_repair_holds`)
//! - Another difference, or the same one much later, starts anew. (test: `another_difference_starts_anew`)
//!
//! Mirrors nothing in client-go: no other framework notices this.

use std::collections::HashMap;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// After this many returns of one difference nothing more is written at once.
const RETURNS_MAX: u32 = 5;
/// How soon a contended child is tried again.
pub const RETRY: Duration = Duration::from_secs(120);
/// A difference that comes back later than this is a new one.
const MEMORY: Duration = Duration::from_secs(600);

/// What was repaired, by child. Entries go with time.
#[derive(Debug, Default)]
pub struct Contention {
    repairs: Mutex<HashMap<String, Repair>>,
}

#[derive(Debug)]
struct Repair {
    difference: String,
    /// How often it was written away in a row.
    times: u32,
    last: Instant,
}

/// Whether a difference may be written away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Yes; it was counted.
    Repair,
    /// No: somebody changes it back each time. Try again after this time.
    Contended(Duration),
}

impl Contention {
    /// A difference was found on the child of this uid.
    pub fn differs(&self, child_uid: &str, difference: &str) -> Verdict {
        let now = Instant::now();
        let mut repairs = self.repairs.lock();
        repairs.retain(|_, repair| now - repair.last < MEMORY);
        let entry = repairs.entry(child_uid.to_owned()).or_insert_with(|| Repair {
            difference: difference.to_owned(),
            times: 0,
            last: now,
        });
        if entry.difference != difference {
            *entry = Repair { difference: difference.to_owned(), times: 0, last: now };
        }
        let since = now - entry.last;
        if entry.times >= RETURNS_MAX && since < RETRY {
            return Verdict::Contended(RETRY - since);
        }
        entry.times += 1;
        entry.last = now;
        Verdict::Repair
    }

    /// Nothing differs on this child. `Some` while a contended difference has not stayed away long
    /// enough, with the time that is missing.
    pub fn same(&self, child_uid: &str) -> Option<Duration> {
        let now = Instant::now();
        let mut repairs = self.repairs.lock();
        let repair = repairs.get(child_uid).filter(|repair| repair.times > RETURNS_MAX)?;
        let since = now - repair.last;
        if since < RETRY {
            return Some(RETRY - since);
        }
        repairs.remove(child_uid);
        None
    }

    /// Which difference a contended child has.
    #[must_use]
    pub fn difference(&self, child_uid: &str) -> Option<String> {
        self.repairs.lock().get(child_uid).map(|repair| repair.difference.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_fifth_return_is_contention() {
        let contention = Contention::default();
        for _ in 0..RETURNS_MAX {
            assert_eq!(contention.differs("u", "replicas"), Verdict::Repair);
            tokio::time::advance(Duration::from_secs(1)).await;
            assert_eq!(contention.same("u"), None);
        }
        assert_eq!(contention.differs("u", "replicas"), Verdict::Contended(RETRY - Duration::from_secs(1)));
        assert_eq!(contention.differs("other", "replicas"), Verdict::Repair);
    }

    #[tokio::test(start_paused = true)]
    async fn contention_ends_when_a_repair_holds() {
        let contention = Contention::default();
        while contention.differs("u", "image") == Verdict::Repair {}
        tokio::time::advance(RETRY).await;
        assert_eq!(contention.differs("u", "image"), Verdict::Repair, "one try each two minutes");
        assert_eq!(contention.same("u"), Some(RETRY), "too early to call it over");
        assert_eq!(contention.differs("u", "image"), Verdict::Contended(RETRY));
        tokio::time::advance(RETRY).await;
        assert_eq!(contention.differs("u", "image"), Verdict::Repair);
        tokio::time::advance(RETRY).await;
        assert_eq!(contention.same("u"), None);
        assert_eq!(contention.differs("u", "image"), Verdict::Repair, "it starts anew");
        assert_eq!(contention.same("u"), None);
    }

    #[tokio::test(start_paused = true)]
    async fn another_difference_starts_anew() {
        let contention = Contention::default();
        while contention.differs("u", "image") == Verdict::Repair {}
        assert_eq!(contention.differs("u", "replicas"), Verdict::Repair);
        while contention.differs("u", "replicas") == Verdict::Repair {}
        tokio::time::advance(MEMORY).await;
        assert_eq!(contention.differs("u", "replicas"), Verdict::Repair);
        assert_eq!(contention.repairs.lock()["u"].times, 1);
    }
}
