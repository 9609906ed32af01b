//! Notices a key that asks for itself again and again although nothing changes.
//!
//! A sync handler that always ends with "look again soon", or that writes its status anew in each pass and is
//! woken by that, costs the API server as much as a user who never stops typing, and nobody sees it. Here each
//! pass that only the key itself asked for fills a bucket, which leaks slowly; when it overflows, the key is hot:
//! named once, and made to rest between its passes until it cools.
//!
//! A pass was asked for by the key itself when its timer is the only reason; or when its own object changed, the
//! pass before wrote something, and so did this one. Changes of children do not count: in a roll-out they come by the
//! hundred, each is news, and the status follows it. A child that is written again and again is
//! [contended](super::contention).
//!
//! # Guarantees
//! - A key is hot after [`BURST`] passes that only its timer asked for, and not before. (test: `a_timer_that_never_rests_is_noticed`)
//! - So is one that wakes itself by writing. (test: `a_key_that_wakes_itself_is_noticed`)
//! - Passes that something else asked for do not count, nor do they cool it. (test: `changes_do_not_count`)
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
/// After what time without a pass of its own asking a key has cooled.
pub const COOLED: Duration = Duration::from_secs(5 * (BURST as u64 + 1));

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
    /// Whether the last pass has written something.
    wrote: bool,
}

fn is_its_own(reason: &Reason) -> bool {
    matches!(reason, Reason::Timer | Reason::Changed)
}

impl Heat {
    /// Takes off what has leaked since the last look.
    fn cool(&mut self, now: Instant) {
        let paces = now.duration_since(self.at).as_nanos() / PACE.as_nanos();
        if let Ok(leaked) = u32::try_from(paces)
            && leaked > 0
        {
            self.passes = self.passes.saturating_sub(leaked);
            self.at += PACE * leaked;
        }
        self.is_hot &= self.passes > 0;
    }
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
    /// Counts a pass for these reasons that asks for another after `next`, and has written or not.
    #[must_use]
    pub fn passed(
        &self,
        key: &ObjectName,
        reasons: &Reasons,
        next: Option<Duration>,
        has_written: bool,
    ) -> Temperature {
        let mut keys = self.keys.lock();
        if next.is_none() && !has_written {
            // It does not ask for itself any more.
            keys.remove(key);
            return Temperature::Cool;
        }
        let now = Instant::now();
        let heat =
            keys.entry(key.clone()).or_insert(Heat { passes: 0, at: now, is_hot: false, wrote: false });
        let wakes_itself = heat.wrote && has_written && reasons.iter().all(is_its_own);
        heat.wrote = has_written;
        let is_own = reasons.iter().eq([&Reason::Timer]) || !reasons.is_empty() && wakes_itself;
        heat.cool(now);
        if !is_own {
            return if heat.is_hot { Temperature::Hot } else { Temperature::Cool };
        }
        heat.passes += 1;
        match (heat.passes > BURST, heat.is_hot) {
            (_, true) => Temperature::Hot,
            (true, false) => {
                heat.is_hot = true;
                Temperature::JustHot
            }
            (false, false) => Temperature::Cool,
        }
    }

    /// Whether a key is hot.
    #[must_use]
    pub fn is_hot(&self, key: &ObjectName) -> bool {
        let now = Instant::now();
        self.keys.lock().get_mut(key).is_some_and(|heat| {
            heat.cool(now);
            heat.is_hot
        })
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
            found.push(hot.passed(&key(), &Reason::Timer.into(), Some(every), false));
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
    async fn a_key_that_wakes_itself_is_noticed() {
        let hot = HotLoops::default();
        let pass = |has_written| hot.passed(&key(), &Reason::Changed.into(), None, has_written);
        for _ in 0..=BURST {
            assert_eq!(pass(true), Temperature::Cool);
        }
        assert_eq!(pass(true), Temperature::JustHot);
        assert_eq!(pass(false), Temperature::Cool, "a pass that writes nothing wakes nobody");
        for _ in 0..1000 {
            // A rollout: a child's change is written down, and the event of that finds nothing to do.
            let child = Reason::Child { kind: "Pod".into(), name: "a".into() };
            assert_eq!(hot.passed(&key(), &child.into(), None, true), Temperature::Cool);
            assert_eq!(pass(false), Temperature::Cool);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn changes_do_not_count() {
        let hot = HotLoops::default();
        let mut both = Reasons::from(Reason::Timer);
        both.add(Reason::Changed);
        for _ in 0..1000 {
            assert_eq!(hot.passed(&key(), &both, Some(Duration::ZERO), false), Temperature::Cool);
        }
        assert_eq!(passes(&hot, PACE, 1000).await, [Temperature::Cool; 1000], "a calm timer is none");
        assert_eq!(passes(&hot, Duration::ZERO, 100).await.last(), Some(&Temperature::Hot));
        let changed = hot.passed(&key(), &Reason::Changed.into(), Some(Duration::ZERO), false);
        assert_eq!(changed, Temperature::Hot, "nor does a change cool it");
    }

    #[tokio::test(start_paused = true)]
    async fn a_key_that_rests_is_forgotten() {
        let hot = HotLoops::default();
        passes(&hot, Duration::ZERO, 100).await;
        assert_eq!(hot.passed(&key(), &Reason::Timer.into(), None, false), Temperature::Cool);
        assert!(hot.keys.lock().is_empty());
        passes(&hot, Duration::ZERO, 100).await;
        tokio::time::advance(PACE * 200).await;
        assert_eq!(passes(&hot, Duration::ZERO, 1).await, [Temperature::Cool], "it has cooled");
    }
}
