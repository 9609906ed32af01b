//! Notices a key that asks for itself again and again although nothing changes.
//!
//! A sync handler that always ends with "look again soon" costs the API server as much as a user who never
//! stops typing, and nobody sees it. Here each pass that only the key's own timer asked for fills a bucket,
//! which leaks slowly; when it overflows, the key is hot: named once, and slowed down until it cools.
//!
//! # Guarantees
//! - A key is hot after [`BURST`] passes that only its timer asked for, and not before. (test: `a_timer_that_never_rests_is_noticed`)
//! - Passes that something else asked for do not count. (test: `changes_do_not_count`)
//! - A key that has cooled is forgotten. (test: `a_key_that_rests_is_forgotten`)
//!
//! # Differences from client-go
//! It has nothing like it.

use std::collections::HashMap;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::cache::ObjectName;
use crate::workqueue::{Reason, Reasons};

/// How many passes a timer may ask for at once.
pub const BURST: u32 = 60;
/// How long it takes until one more may be asked for; also the least time between passes of a hot key.
pub const PACE: Duration = Duration::from_secs(5);

/// The keys that ask for themselves.
#[derive(Debug, Default)]
pub struct HotLoops {
    keys: Mutex<HashMap<ObjectName, Heat, foldhash::fast::RandomState>>,
}

#[derive(Clone, Copy, Debug)]
struct Heat {
    passes: u32,
    /// When the bucket was looked at; what has leaked since is not taken off yet.
    at: Instant,
    is_hot: bool,
}

/// What is to be done about a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Temperature {
    /// Nothing.
    Cool,
    /// It has become hot with this pass: it is to be named.
    JustHot,
    /// It is hot: its timer is to wait for [`PACE`] at least.
    Hot,
}

impl HotLoops {
    /// Counts a pass for these reasons that asks for another after `next`.
    #[must_use]
    pub fn passed(&self, key: &ObjectName, reasons: &Reasons, next: Option<Duration>) -> Temperature {
        let mut keys = self.keys.lock();
        let is_own = reasons.iter().eq([&Reason::Timer]);
        if next.is_none() || !is_own {
            keys.remove(key);
            return Temperature::Cool;
        }
        let now = Instant::now();
        let heat = keys.entry(key.clone()).or_insert(Heat { passes: 0, at: now, is_hot: false });
        let paces = now.duration_since(heat.at).as_nanos() / PACE.as_nanos();
        if let Ok(leaked) = u32::try_from(paces)
            && leaked > 0
        {
            heat.passes = heat.passes.saturating_sub(leaked);
            heat.at += PACE * leaked;
        }
        heat.passes += 1;
        if heat.passes <= 1 {
            heat.is_hot = false;
        }
        match (heat.passes > BURST, heat.is_hot) {
            (_, true) => Temperature::Hot,
            (true, false) => {
                heat.is_hot = true;
                Temperature::JustHot
            }
            (false, false) => Temperature::Cool,
        }
    }

    /// Forgets a key.
    pub fn forget(&self, key: &ObjectName) {
        self.keys.lock().remove(key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key() -> ObjectName {
        ObjectName::new(Some("ns"), "a")
    }

    async fn passes(hot: &HotLoops, every: Duration, count: u32) -> Vec<Temperature> {
        let mut found = Vec::new();
        for _ in 0..count {
            found.push(hot.passed(&key(), &Reason::Timer.into(), Some(every)));
            tokio::time::advance(every).await;
        }
        found
    }

    #[tokio::test(start_paused = true)]
    async fn a_timer_that_never_rests_is_noticed() {
        let hot = HotLoops::default();
        let found = passes(&hot, Duration::from_millis(10), 70).await;
        let first = found.iter().position(|t| *t != Temperature::Cool);
        assert_eq!(first, Some(BURST as usize));
        assert_eq!(found.iter().filter(|t| **t == Temperature::JustHot).count(), 1, "it is named once");
        assert_eq!(found.last(), Some(&Temperature::Hot));
    }

    #[tokio::test(start_paused = true)]
    async fn changes_do_not_count() {
        let hot = HotLoops::default();
        for round in 0..1000 {
            let mut reasons = Reasons::from(Reason::Timer);
            if round % 50 == 0 {
                reasons.add(Reason::Changed);
            }
            assert_eq!(hot.passed(&key(), &reasons, Some(Duration::ZERO)), Temperature::Cool);
        }
        assert_eq!(passes(&hot, PACE, 1000).await, [Temperature::Cool; 1000], "a calm timer is none");
    }

    #[tokio::test(start_paused = true)]
    async fn a_key_that_rests_is_forgotten() {
        let hot = HotLoops::default();
        passes(&hot, Duration::ZERO, 100).await;
        assert_eq!(hot.passed(&key(), &Reason::Timer.into(), None), Temperature::Cool);
        assert!(hot.keys.lock().is_empty());
        passes(&hot, Duration::ZERO, 100).await;
        tokio::time::advance(PACE * 200).await;
        assert_eq!(passes(&hot, Duration::ZERO, 1).await, [Temperature::Cool], "it has cooled");
    }
}
