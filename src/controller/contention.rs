//! Notices that somebody changes a child back each time, so that we stop fighting and say so.
//!
//! # Guarantees
//! - The same difference may come back four times and is repaired; the fifth return is contention. (test: `the_fifth_return_is_contention`)
//! - Contention is tried again after two minutes, and ends when the repair holds that long. (test: `contention_ends_when_a_repair_holds`)
//! - Only what the server took counts. (test: `a_write_that_failed_does_not_count`)
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

/// What was repaired, by child: its uid, or what stays of it when it is replaced. Entries go with time.
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
    /// Yes.
    Repair,
    /// Yes, as the one try in two minutes: what comes of it stays contended until it has held.
    Retry,
    /// No: somebody changes it back each time. Try again after this time.
    Wait(Duration),
}

impl Contention {
    /// A difference was found on this child: what to do about it.
    #[must_use]
    pub fn verdict(&self, child: &str, difference: &str) -> Verdict {
        let repairs = self.repairs.lock();
        let Some(repair) = repairs.get(child).filter(|repair| repair.difference == difference) else {
            return Verdict::Repair;
        };
        let since = repair.last.elapsed();
        if repair.times < RETURNS_MAX || since >= MEMORY {
            Verdict::Repair
        } else if since >= RETRY {
            Verdict::Retry
        } else {
            Verdict::Wait(RETRY - since)
        }
    }

    /// A difference was written away, and the server took it.
    pub fn repaired(&self, child: &str, difference: &str) {
        let now = Instant::now();
        let mut repairs = self.repairs.lock();
        repairs.retain(|_, repair| now - repair.last < MEMORY);
        let repair = repairs
            .entry(child.to_owned())
            .and_modify(|repair| {
                if repair.difference != difference {
                    difference.clone_into(&mut repair.difference);
                    repair.times = 0;
                }
            })
            .or_insert_with(|| Repair { difference: difference.to_owned(), times: 0, last: now });
        repair.times += 1;
        repair.last = now;
    }

    /// Nothing differs on this child. While a contended difference has not stayed away long enough: the
    /// time that is missing.
    #[must_use]
    pub fn same(&self, child: &str) -> Option<Duration> {
        let mut repairs = self.repairs.lock();
        let repair = repairs.get(child).filter(|repair| repair.times > RETURNS_MAX)?;
        let since = repair.last.elapsed();
        if since < RETRY {
            return Some(RETRY - since);
        }
        repairs.remove(child);
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One more return of the difference, repaired if it may be.
    fn comes_back(contention: &Contention, difference: &str) -> Verdict {
        let verdict = contention.verdict("u", difference);
        if verdict == Verdict::Repair || verdict == Verdict::Retry {
            contention.repaired("u", difference);
        }
        verdict
    }

    #[tokio::test(start_paused = true)]
    async fn the_fifth_return_is_contention() {
        let contention = Contention::default();
        for _ in 0..RETURNS_MAX {
            assert_eq!(comes_back(&contention, "replicas"), Verdict::Repair);
            tokio::time::advance(Duration::from_secs(1)).await;
            assert_eq!(contention.same("u"), None);
        }
        let wait = Verdict::Wait(RETRY - Duration::from_secs(1));
        assert_eq!(comes_back(&contention, "replicas"), wait);
        assert_eq!(contention.verdict("other", "replicas"), Verdict::Repair);
    }

    #[tokio::test(start_paused = true)]
    async fn a_write_that_failed_does_not_count() {
        let contention = Contention::default();
        for _ in 0..20 {
            assert_eq!(contention.verdict("u", "replicas"), Verdict::Repair);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn contention_ends_when_a_repair_holds() {
        let contention = Contention::default();
        while comes_back(&contention, "image") == Verdict::Repair {}
        tokio::time::advance(RETRY).await;
        assert_eq!(comes_back(&contention, "image"), Verdict::Retry, "one try each two minutes");
        assert_eq!(contention.same("u"), Some(RETRY), "too early to call it over");
        assert_eq!(comes_back(&contention, "image"), Verdict::Wait(RETRY));
        tokio::time::advance(RETRY).await;
        assert_eq!(comes_back(&contention, "image"), Verdict::Retry);
        tokio::time::advance(RETRY).await;
        assert_eq!(contention.same("u"), None);
        assert_eq!(comes_back(&contention, "image"), Verdict::Repair, "it starts anew");
        assert_eq!(contention.same("u"), None);
    }

    #[tokio::test(start_paused = true)]
    async fn another_difference_starts_anew() {
        let contention = Contention::default();
        while comes_back(&contention, "image") == Verdict::Repair {}
        assert_eq!(comes_back(&contention, "replicas"), Verdict::Repair);
        while comes_back(&contention, "replicas") == Verdict::Repair {}
        tokio::time::advance(MEMORY).await;
        assert_eq!(comes_back(&contention, "replicas"), Verdict::Repair);
        assert_eq!(contention.repairs.lock()["u"].times, 1);
    }
}
