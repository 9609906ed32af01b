//! Notices a key that asks for itself again and again although nothing changes.
//!
//! A sync handler that always ends with "look again soon", or that writes its status anew in each pass and is
//! woken by that, costs the API server as much as a user who never stops typing, and nobody sees it. Here each
//! pass that only the key itself asked for fills a bucket, which leaks slowly; when it overflows, the key is hot:
//! named once, and made to rest between its passes until it cools.
//!
//! A pass was asked for by the key itself when its timer is the only reason; or when everything that woke it is an
//! object that the pass before wrote and that it writes again: the key's own, as its name tells, or a child. Changes of children that it
//! does not write again do not count: in a roll-out they come by the hundred, each is news, and the status follows it.
//! Whoever moves one object on by more than [`BURST`] writes in a few seconds, each woken by the one before, is taken
//! for a loop: what is written is not looked at. An add without a reason may be anybody's and does not count.
//!
//! # Guarantees
//! - A key is hot after [`BURST`] passes that only its timer asked for, and not before. (test: `a_timer_that_never_rests_is_noticed`)
//! - So is one that wakes itself by writing its own object. (test: `a_key_that_wakes_itself_is_noticed`)
//! - Or by writing a child, or many. (test: `a_key_that_wakes_itself_by_a_child_is_noticed`, `a_key_that_wakes_itself_by_many_children_is_noticed`)
//! - A roll-out is none, though each pass writes an object, each another one. (test: `a_roll_out_is_no_hot_loop`)
//! - Passes that something else asked for do not count, nor do they cool it. (test: `changes_do_not_count`, `changes_by_somebody_else_that_lead_to_writes_are_no_hot_loop`)
//! - A key that has cooled is forgotten, also one that is never looked at again. (test: `a_key_that_rests_is_forgotten`, `a_key_that_never_comes_again_is_forgotten`)
//!
//! # Differences from client-go
//! It has nothing like it.

use std::collections::HashSet;
use std::time::Duration;

use tokio::time::Instant;

use super::consistency::Write;
use crate::cache::ObjectName;
use crate::controller::recent::Recent;
use crate::workqueue::{Reason, Reasons};

/// How many passes a key may ask for by itself at once.
pub const BURST: u32 = 60;
/// How long it takes until one more may be asked for; also the least time between passes of a hot key.
pub const PACE: Duration = Duration::from_secs(5);
/// After what time without a pass of its own asking a key has cooled.
pub const COOLED: Duration = Duration::from_secs(5 * (BURST as u64 + 1));

/// The keys that ask for themselves.
#[derive(Debug)]
pub struct HotLoops {
    keys: Recent<Heat>,
}

#[derive(Debug)]
struct Heat {
    passes: u32,
    /// When the bucket was looked at; what has leaked since is not taken off yet.
    at: Instant,
    is_hot: bool,
    /// What the last pass has written.
    wrote: Vec<Write>,
}

/// Whether this pass of `key` was woken by what the last one `wrote`, and nothing else, and has written these objects
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
    // Of reasons that are too many to be kept, each is taken for one more object that is written again.
    let count = reasons.iter().count() + reasons.more() as usize;
    (reasons.more() == 0 || again.len() >= count) && reasons.iter().all(is_its_own)
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

    /// Counts a pass, if the key itself asked for it.
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
    /// Counts a pass for these reasons that asks for another after `next`, and has written this.
    #[must_use]
    pub fn passed(
        &self,
        key: &ObjectName,
        reasons: &Reasons,
        next: Option<Duration>,
        writes: Vec<Write>,
    ) -> Temperature {
        if next.is_none() && writes.is_empty() {
            // It does not ask for itself any more.
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

    /// Whether a key is hot.
    #[must_use]
    pub fn is_hot(&self, key: &ObjectName) -> bool {
        let now = Instant::now();
        self.keys.at(key, |slot| {
            slot.get_mut().is_some_and(|heat| {
                heat.cool(now);
                heat.is_hot
            })
        })
    }

    /// How many keys it remembers.
    #[must_use]
    pub fn len(&self) -> usize {
        self.keys.len()
    }

    /// Whether it remembers none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
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
    async fn a_timer_that_never_rests_is_noticed() {
        let hot = HotLoops::default();
        let found = passes(&hot, Duration::from_millis(10), 70).await;
        let first = found.iter().position(|t| *t != Temperature::Cool);
        assert_eq!(first, Some(BURST as usize));
        assert_eq!(found.iter().filter(|t| **t == Temperature::JustHot).count(), 1, "it is named once");
        assert_eq!(found.last(), Some(&Temperature::Hot));
    }

    fn object(kind: &'static str, name: &str, life: u32) -> Write {
        Write { kind: kind.into(), name: ObjectName::new(Some("ns"), name), uid: format!("{name}-{life}") }
    }

    /// The object itself: its status, say.
    fn itself() -> Write {
        object("Foo", "a", 1)
    }

    fn child(name: &str) -> Reason {
        Reason::Child { kind: "Pod".into(), name: format!("ns/{name}").into() }
    }

    #[tokio::test(start_paused = true)]
    async fn a_key_that_wakes_itself_is_noticed() {
        let hot = HotLoops::default();
        let pass = |writes| hot.passed(&key(), &Reason::Changed.into(), None, writes);
        for _ in 0..=BURST {
            assert_eq!(pass(vec![itself()]), Temperature::Cool);
        }
        assert_eq!(pass(vec![itself()]), Temperature::JustHot);
        assert_eq!(pass(vec![]), Temperature::Cool, "a pass that writes nothing wakes nobody");
    }

    #[tokio::test(start_paused = true)]
    async fn a_key_that_wakes_itself_by_a_child_is_noticed() {
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
            assert_eq!(now, Temperature::Cool, "somebody else changes something, too");
        }
    }

    /// Reasons are kept up to a number; a pass that writes many children has more.
    #[tokio::test(start_paused = true)]
    async fn a_key_that_wakes_itself_by_many_children_is_noticed() {
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
            assert_eq!(now, Temperature::Cool, "somebody else's may be among them");
        }
    }

    /// Each pass writes another child, because of what somebody does to the object.
    #[tokio::test(start_paused = true)]
    async fn changes_by_somebody_else_that_lead_to_writes_are_no_hot_loop() {
        let hot = HotLoops::default();
        for at in 0..1000 {
            let writes = vec![object("Pod", &(at % 2).to_string(), 1)];
            assert_eq!(hot.passed(&key(), &Reason::Changed.into(), None, writes), Temperature::Cool);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_roll_out_is_no_hot_loop() {
        let hot = HotLoops::default();
        let pass = |reasons: &Reasons, writes| hot.passed(&key(), reasons, None, writes);
        for life in 0..1000 {
            // A child of a child moves on, and the status follows.
            assert_eq!(pass(&child("web").into(), vec![itself()]), Temperature::Cool);
            // One goes and a new one comes, as the event of the first shows; the status follows each.
            let mut reasons = Reasons::from(child("p-0"));
            reasons.add(Reason::Changed);
            assert_eq!(pass(&reasons, vec![object("Pod", "p-0", life), itself()]), Temperature::Cool);
            assert_eq!(pass(&reasons, vec![object("Pod", "p-0", life + 1), itself()]), Temperature::Cool);
            assert_eq!(pass(&reasons, vec![itself()]), Temperature::Cool);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn changes_do_not_count() {
        let hot = HotLoops::default();
        let mut both = Reasons::from(Reason::Timer);
        both.add(Reason::Changed);
        for _ in 0..1000 {
            assert_eq!(hot.passed(&key(), &both, Some(Duration::ZERO), vec![]), Temperature::Cool);
        }
        assert_eq!(passes(&hot, PACE, 1000).await, [Temperature::Cool; 1000], "a calm timer is none");
        assert_eq!(passes(&hot, Duration::ZERO, 100).await.last(), Some(&Temperature::Hot));
        let changed = hot.passed(&key(), &Reason::Changed.into(), Some(Duration::ZERO), vec![]);
        assert_eq!(changed, Temperature::Hot, "nor does a change cool it");
    }

    #[tokio::test(start_paused = true)]
    async fn a_key_that_rests_is_forgotten() {
        let hot = HotLoops::default();
        passes(&hot, Duration::ZERO, 100).await;
        assert_eq!(hot.passed(&key(), &Reason::Timer.into(), None, vec![]), Temperature::Cool);
        assert!(hot.is_empty());
        passes(&hot, Duration::ZERO, 100).await;
        tokio::time::advance(PACE * 200).await;
        assert_eq!(passes(&hot, Duration::ZERO, 1).await, [Temperature::Cool], "it has cooled");
    }
    #[tokio::test(start_paused = true)]
    async fn a_key_that_never_comes_again_is_forgotten() {
        for keys in [1_000, 100_000] {
            let hot = HotLoops::default();
            for at in 0..keys {
                let key = ObjectName::new(Some("ns"), &at.to_string());
                assert_eq!(hot.passed(&key, &Reason::Changed.into(), Some(PACE), vec![]), Temperature::Cool);
            }
            assert_eq!(hot.len(), keys);
            tokio::time::advance(2 * COOLED).await;
            assert!(!hot.is_hot(&key()));
            assert!(hot.is_empty());
        }
    }
}
