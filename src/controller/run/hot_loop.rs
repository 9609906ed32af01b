//! Detects keys that requeue themselves endlessly although nothing changes.
//!
//! A sync handler that always requeues after a short delay, or that rewrites its status in every pass and is
//! enqueued by that write, loads the API server without anybody noticing. Each pass that the key itself has caused
//! fills a leaky bucket. When the bucket overflows, the key is hot: it is logged once, and its passes are spaced
//! out until it has cooled.
//!
//! A key has caused its own pass if the timer is the only reason, or if every reason names an object that the
//! previous pass wrote and this pass writes again: the key's own object or a child. Changes of children that the
//! pass does not rewrite do not count: a rollout brings hundreds of them, each is news, and the status follows. The
//! contents of writes are not compared: more than `BURST` writes of one object in a few seconds, each caused by
//! the one before, are a loop. An add without a reason may come from anybody and does not count.
//!
//! # Guarantees
//! - A key becomes hot after `BURST` passes caused by its timer alone, and not before.
//!   (test: `endless_timer_requeues_make_a_key_hot`)
//! - A key that keeps enqueueing itself by writing its own object becomes hot.
//!   (test: `key_that_keeps_rewriting_itself_becomes_hot`)
//! - A key that keeps rewriting one child, or many, becomes hot.
//!   (test: `key_that_keeps_rewriting_a_child_becomes_hot`, `key_that_keeps_rewriting_many_children_becomes_hot`)
//! - A rollout is not a hot loop, although each pass writes another object. (test: `rollout_is_not_a_hot_loop`)
//! - Passes with another cause neither heat nor cool a key.
//!   (test: `external_changes_neither_heat_nor_cool_a_key`, `writes_caused_by_others_are_no_hot_loop`)
//! - A cooled key is forgotten, even if it is never synced again.
//!   (test: `cooled_key_is_forgotten`, `key_that_is_never_synced_again_is_forgotten`)
//!
//! # Differences from client-go
//! client-go has no counterpart.

use std::collections::HashSet;
use std::time::Duration;

use tokio::time::Instant;

use super::consistency::Write;
use crate::cache::ObjectName;
use crate::controller::recent::Recent;
use crate::workqueue::{Reason, Reasons};

/// How many passes a key may cause by itself in one burst.
const BURST: u32 = 60;
/// How long the bucket takes to leak one pass; also the least time between passes of a hot key.
pub(crate) const PACE: Duration = Duration::from_secs(5);
/// How long a hot key takes to cool without causing passes.
const COOLED: Duration = Duration::from_secs(5 * (BURST as u64 + 1));

/// Tracks keys that requeue themselves.
#[derive(Debug)]
pub(crate) struct HotLoops {
    keys: Recent<ObjectName, Heat>,
}

#[derive(Debug)]
struct Heat {
    passes: u32,
    /// Up to when leaked passes have been taken off.
    at: Instant,
    is_hot: bool,
    /// The writes of the last pass.
    wrote: Vec<Write>,
}

/// Whether this pass of `key` was caused only by objects that the previous pass `wrote` and this pass `writes`
/// again.
fn wakes_itself(key: &ObjectName, reasons: &Reasons, wrote: &[Write], writes: &[Write]) -> bool {
    if wrote.is_empty() || writes.is_empty() || reasons.is_empty() {
        return false;
    }
    let before: HashSet<&str> = wrote.iter().map(|write| write.uid.as_str()).collect();
    let again: Vec<&Write> = writes.iter().filter(|write| before.contains(write.uid.as_str())).collect();
    let is_its_own = |reason: &Reason| match reason {
        Reason::Timer => !again.is_empty(),
        Reason::Changed => again.iter().any(|write| write.name == *key),
        Reason::Child { kind, name } => name
            .parse::<ObjectName>()
            .is_ok_and(|name| again.iter().any(|write| write.kind == *kind && write.name == name)),
        _ => false,
    };
    // Surplus reasons are not kept: assume that each named one more of the rewritten objects.
    let count = reasons.iter().count() + reasons.more() as usize;
    (reasons.more() == 0 || again.len() >= count) && reasons.iter().all(is_its_own)
}

impl Heat {
    /// Takes off the passes that have leaked by `now`.
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

    /// Counts a pass if the key itself has caused it.
    fn passed(&mut self, now: Instant, is_own: bool) -> Temperature {
        self.cool(now);
        if !is_own {
            return if self.is_hot { Temperature::Hot } else { Temperature::Cool };
        }
        self.passes += 1;
        match (self.passes > BURST, self.is_hot) {
            (_, true) => Temperature::Hot,
            (true, false) => {
                self.is_hot = true;
                Temperature::JustHot
            }
            (false, false) => Temperature::Cool,
        }
    }
}

/// How hot a key is after a pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Temperature {
    /// The key is not hot.
    Cool,
    /// The key became hot with this pass: log it.
    JustHot,
    /// The key is hot: delay its next pass by at least [`PACE`].
    Hot,
}

impl HotLoops {
    /// Counts a pass with these reasons and writes, whose next pass comes after `next`.
    #[must_use]
    pub(crate) fn passed(
        &self,
        key: &ObjectName,
        reasons: &Reasons,
        next: Option<Duration>,
        writes: Vec<Write>,
    ) -> Temperature {
        if next.is_none() && writes.is_empty() {
            // The key has stopped requeueing itself.
            drop(self.keys.at(key, |slot| slot.remove()));
            return Temperature::Cool;
        }
        let now = Instant::now();
        self.keys.at(key, |slot| {
            let heat = slot.renewed(|| Heat { passes: 0, at: now, is_hot: false, wrote: Vec::new() });
            let is_own =
                reasons.iter().eq([&Reason::Timer]) || wakes_itself(key, reasons, &heat.wrote, &writes);
            heat.wrote = writes;
            heat.passed(now, is_own)
        })
    }

    #[cfg(test)]
    pub(in crate::controller) fn len(&self) -> usize {
        self.keys.len()
    }
}

impl Default for HotLoops {
    fn default() -> Self {
        Self { keys: Recent::new(COOLED) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workqueue::reasons::MAX;

    fn key() -> ObjectName {
        ObjectName::new(Some("ns"), "a")
    }

    async fn passes(hot: &HotLoops, every: Duration, count: u32) -> Vec<Temperature> {
        let mut found = Vec::new();
        for _ in 0..count {
            found.push(hot.passed(&key(), &Reason::Timer.into(), Some(every), vec![]));
            tokio::time::advance(every).await;
        }
        found
    }

    #[tokio::test(start_paused = true)]
    async fn endless_timer_requeues_make_a_key_hot() {
        let hot = HotLoops::default();
        let found = passes(&hot, Duration::from_millis(10), 70).await;
        let first = found.iter().position(|t| *t != Temperature::Cool);
        assert_eq!(first, Some(BURST as usize));
        assert_eq!(found.iter().filter(|t| **t == Temperature::JustHot).count(), 1, "reported once");
        assert_eq!(found.last(), Some(&Temperature::Hot));
    }

    fn object(kind: &'static str, name: &str, nth: u32) -> Write {
        Write { kind: kind.into(), name: ObjectName::new(Some("ns"), name), uid: format!("{name}-{nth}") }
    }

    /// A write of the object itself, for example of its status.
    fn itself() -> Write {
        object("Foo", "a", 1)
    }

    fn child(name: &str) -> Reason {
        Reason::Child { kind: "Pod".into(), name: format!("ns/{name}").into() }
    }

    #[tokio::test(start_paused = true)]
    async fn key_that_keeps_rewriting_itself_becomes_hot() {
        let hot = HotLoops::default();
        let pass = |writes| hot.passed(&key(), &Reason::Changed.into(), None, writes);
        for _ in 0..=BURST {
            assert_eq!(pass(vec![itself()]), Temperature::Cool);
        }
        assert_eq!(pass(vec![itself()]), Temperature::JustHot);
        assert_eq!(pass(vec![]), Temperature::Cool, "a pass without writes causes no other");
    }

    #[tokio::test(start_paused = true)]
    async fn key_that_keeps_rewriting_a_child_becomes_hot() {
        let hot = HotLoops::default();
        let mut reasons = Reasons::from(child("p"));
        reasons.add(Reason::Changed);
        let pass = || hot.passed(&key(), &reasons, None, vec![object("Pod", "p", 1), itself()]);
        let found: Vec<_> = (0..100).map(|_| pass()).collect();
        assert_eq!(found.iter().position(|t| *t == Temperature::JustHot), Some(BURST as usize + 1));
        reasons.add(child("another"));
        let hot = HotLoops::default();
        for _ in 0..100 {
            let now = hot.passed(&key(), &reasons, None, vec![object("Pod", "p", 1)]);
            assert_eq!(now, Temperature::Cool, "another child changed, too");
        }
    }

    /// A pass that writes many children has more reasons than are kept.
    #[tokio::test(start_paused = true)]
    async fn key_that_keeps_rewriting_many_children_becomes_hot() {
        let many = 3 * MAX;
        let of_all = |count: usize| {
            let mut reasons = Reasons::default();
            (0..count).for_each(|at| reasons.add(child(&at.to_string())));
            reasons
        };
        let writes =
            |count: usize| (0..count).map(|at| object("Pod", &at.to_string(), 1)).collect::<Vec<_>>();
        let hot = HotLoops::default();
        let found: Vec<_> = (0..100).map(|_| hot.passed(&key(), &of_all(many), None, writes(many))).collect();
        assert!(found.contains(&Temperature::JustHot));
        let hot = HotLoops::default();
        for _ in 0..100 {
            let now = hot.passed(&key(), &of_all(many), None, writes(many - 1));
            assert_eq!(now, Temperature::Cool, "one of the changes may be somebody else's");
        }
    }

    /// Somebody keeps changing the object, and passes write its two children in turn.
    #[tokio::test(start_paused = true)]
    async fn writes_caused_by_others_are_no_hot_loop() {
        let hot = HotLoops::default();
        for at in 0..1000 {
            let writes = vec![object("Pod", &(at % 2).to_string(), 1)];
            assert_eq!(hot.passed(&key(), &Reason::Changed.into(), None, writes), Temperature::Cool);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn rollout_is_not_a_hot_loop() {
        let hot = HotLoops::default();
        let pass = |reasons: &Reasons, writes| hot.passed(&key(), reasons, None, writes);
        for nth in 0..1000 {
            // A grandchild changes, and the status follows.
            assert_eq!(pass(&child("web").into(), vec![itself()]), Temperature::Cool);
            // A pod is deleted, its event leads to a replacement, and the status follows each step.
            let mut reasons = Reasons::from(child("p-0"));
            reasons.add(Reason::Changed);
            assert_eq!(pass(&reasons, vec![object("Pod", "p-0", nth), itself()]), Temperature::Cool);
            assert_eq!(pass(&reasons, vec![object("Pod", "p-0", nth + 1), itself()]), Temperature::Cool);
            assert_eq!(pass(&reasons, vec![itself()]), Temperature::Cool);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn external_changes_neither_heat_nor_cool_a_key() {
        let hot = HotLoops::default();
        let mut both = Reasons::from(Reason::Timer);
        both.add(Reason::Changed);
        for _ in 0..1000 {
            assert_eq!(hot.passed(&key(), &both, Some(Duration::ZERO), vec![]), Temperature::Cool);
        }
        assert_eq!(passes(&hot, PACE, 1000).await, [Temperature::Cool; 1000], "a slow timer is no hot loop");
        assert_eq!(passes(&hot, Duration::ZERO, 100).await.last(), Some(&Temperature::Hot));
        let changed = hot.passed(&key(), &Reason::Changed.into(), Some(Duration::ZERO), vec![]);
        assert_eq!(changed, Temperature::Hot, "a change does not cool the key");
    }

    #[tokio::test(start_paused = true)]
    async fn cooled_key_is_forgotten() {
        let hot = HotLoops::default();
        passes(&hot, Duration::ZERO, 100).await;
        assert_eq!(hot.passed(&key(), &Reason::Timer.into(), None, vec![]), Temperature::Cool);
        assert_eq!(hot.len(), 0);
        passes(&hot, Duration::ZERO, 100).await;
        tokio::time::advance(PACE * 200).await;
        assert_eq!(passes(&hot, Duration::ZERO, 1).await, [Temperature::Cool], "the key has cooled");
    }

    #[tokio::test(start_paused = true)]
    async fn key_that_is_never_synced_again_is_forgotten() {
        for keys in [1_000, 100_000] {
            let hot = HotLoops::default();
            for at in 0..keys {
                let key = ObjectName::new(Some("ns"), &at.to_string());
                assert_eq!(hot.passed(&key, &Reason::Changed.into(), Some(PACE), vec![]), Temperature::Cool);
            }
            assert_eq!(hot.len(), keys);
            tokio::time::advance(2 * COOLED).await;
            assert_eq!(hot.passed(&key(), &Reason::Changed.into(), None, vec![]), Temperature::Cool);
            assert_eq!(hot.len(), 0);
        }
    }
}
