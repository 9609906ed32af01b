//! The shards that this process holds, and how far it is with each: what election, caches and workers share.
//!
//! client-go has no counterpart; a leader there works on everything.
//! Flow: shard election -> **shards** -> caches list what is held, workers sync what the caches have
//!
//! ```text
//! acquired ─▶ caches list anew, with the new range ─▶ worked ─▶ draining: syncs in flight end ─▶ released
//! ```
//! Each change of the set begins an *epoch*. A cache reports the epoch whose set it has listed, with a list that began
//! after the change. A shard is worked once every cache has reached the epoch of its acquisition: the former holder had
//! stopped writing before it, so the caches have all of its writes.
//!
//! # Guarantees
//! - A shard is worked only when every cache has listed it since it was acquired.
//!   (test: `shard_is_worked_once_every_cache_has_listed_it_anew`)
//! - No sync begins while a shard drains, and it is idle once those in flight have ended.
//!   (test: `draining_shard_begins_no_sync_and_waits_for_those_in_flight`)
//! - The last moves are kept, and no more. (test: `last_moves_are_kept`)

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::Arc;

use tokio::sync::watch;
use tokio::time::Instant;

use crate::api::shards::{ShardSet, Sharding};

/// How many moves of shards are remembered.
const MOVES_MAX: usize = 64;

/// The shards of this process. Cheap to clone: all clones are one.
#[derive(Clone)]
pub struct Shards {
    sharding: Sharding,
    state: watch::Sender<State>,
}

#[derive(Debug, Default)]
struct State {
    held: BTreeMap<u16, Held>,
    /// How many syncs of each shard are in flight; none for zero. Those of a shard that was lost are among them.
    in_flight: BTreeMap<u16, usize>,
    epoch: u64,
    /// The epoch that each cache has listed.
    caches: Vec<u64>,
    /// Who holds each shard, as last seen; `None` while the shards are not these processes'.
    holders: Option<BTreeMap<u16, String>>,
    moves: VecDeque<Move>,
    /// How many moves there were of each kind, since the start.
    counts: BTreeMap<Change, u64>,
}

#[derive(Debug)]
struct Held {
    /// The epoch of its acquisition.
    epoch: u64,
    is_draining: bool,
}

/// What a process does with a shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// The caches are listing it.
    Listing,
    /// Its objects are synced.
    Working,
    /// Its syncs in flight are ending; then it is released.
    Draining,
}

/// A shard that came or went.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Move {
    /// The shard.
    pub shard: u16,
    /// What happened.
    pub change: Change,
    /// When.
    pub at: Instant,
}

/// What happened to a shard of this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Change {
    /// It was taken.
    Acquired,
    /// It was given up in order.
    Released,
    /// Its Lease could not be renewed in time, or another process took it.
    Lost,
}

/// Whether a key may be synced by this process.
#[derive(Debug)]
pub enum Admission {
    /// Yes, while this value lives.
    Now(InFlight),
    /// When the caches have its shard.
    Later,
    /// No: another process holds its shard, or shall.
    Never,
}

/// Counts a sync as in flight until it is dropped.
pub struct InFlight {
    shards: Shards,
    shard: u16,
}

/// The objects that a cache is to have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scope {
    epoch: u64,
    /// The epoch in which each of its shards was acquired.
    acquired: BTreeMap<u16, u64>,
    /// The shards of the objects.
    pub set: Arc<ShardSet>,
}

/// The part that a cache has in the shards.
#[derive(Clone, Debug)]
pub struct CacheShards {
    shards: Shards,
    index: usize,
}

impl Phase {
    /// All phases.
    pub const ALL: [Self; 3] = [Self::Listing, Self::Working, Self::Draining];

    /// Returns the phase in one word, as a label.
    #[must_use]
    pub fn as_label(self) -> &'static str {
        match self {
            Self::Listing => "listing",
            Self::Working => "working",
            Self::Draining => "draining",
        }
    }
}

impl Change {
    /// All changes.
    pub const ALL: [Self; 3] = [Self::Acquired, Self::Released, Self::Lost];

    /// Returns the change in one word, as a label.
    #[must_use]
    pub fn as_label(self) -> &'static str {
        match self {
            Self::Acquired => "acquired",
            Self::Released => "released",
            Self::Lost => "lost",
        }
    }
}

// === impl Shards ===

impl Shards {
    /// Creates a process that holds no shard.
    #[must_use]
    pub fn new(sharding: Sharding) -> Self {
        Self { sharding, state: watch::Sender::new(State::default()) }
    }

    /// Returns the number of shards altogether.
    #[must_use]
    pub fn of(&self) -> u16 {
        self.sharding.of
    }

    /// Returns how the namespaces are divided.
    #[must_use]
    pub fn sharding(&self) -> Sharding {
        self.sharding
    }

    /// Adds a cache, without which no shard is worked from now on.
    #[must_use]
    pub fn add_cache(&self) -> CacheShards {
        let mut index = 0;
        self.state.send_modify(|state| {
            index = state.caches.len();
            state.caches.push(0);
        });
        CacheShards { shards: self.clone(), index }
    }

    /// Returns the shards that this process holds, those that it is giving up included.
    #[must_use]
    pub fn held(&self) -> ShardSet {
        self.sharding.set(self.state.borrow().held.keys().copied())
    }

    /// Returns the phases of the shards that this process holds.
    #[must_use]
    pub fn phases(&self) -> BTreeMap<u16, Phase> {
        let state = self.state.borrow();
        state.held.iter().map(|(shard, held)| (*shard, state.phase(held))).collect()
    }

    /// Returns who holds each shard that somebody holds, as last seen; `None` before that, and while this process stands by
    /// for a single leader, or for others with other shards.
    #[must_use]
    pub fn holders(&self) -> Option<BTreeMap<u16, String>> {
        self.state.borrow().holders.clone()
    }

    /// Returns the last moves of this process, oldest first.
    #[must_use]
    pub fn moves(&self) -> Vec<Move> {
        self.state.borrow().moves.iter().cloned().collect()
    }

    /// Returns how many moves of each kind there were since the start.
    #[must_use]
    pub fn counts(&self) -> BTreeMap<Change, u64> {
        self.state.borrow().counts.clone()
    }

    /// Returns a receiver that is notified of each change but the beginning and end of syncs.
    pub(crate) fn changes(&self) -> Changes {
        Changes(self.state.subscribe())
    }

    /// Begins a sync of an object in this namespace.
    pub(crate) fn admit(&self, namespace: &str) -> Admission {
        let shard = self.sharding.shard_of(namespace);
        let mut admission = Admission::Never;
        self.state.send_if_modified(|state| {
            match state.held.get(&shard).map(|held| state.phase(held)) {
                Some(Phase::Working) => {
                    *state.in_flight.entry(shard).or_default() += 1;
                    admission = Admission::Now(InFlight { shards: self.clone(), shard });
                }
                Some(Phase::Listing) => admission = Admission::Later,
                Some(Phase::Draining) | None => {}
            }
            false
        });
        admission
    }

    /// Whether the caches are listing the shard of this namespace.
    pub(crate) fn is_listing(&self, namespace: &str) -> bool {
        let state = self.state.borrow();
        let held = state.held.get(&self.sharding.shard_of(namespace));
        held.is_some_and(|held| state.phase(held) == Phase::Listing)
    }

    pub(crate) fn acquired(&self, shards: &[u16]) {
        if shards.is_empty() {
            return;
        }
        self.state.send_modify(|state| {
            state.epoch += 1;
            for shard in shards {
                state.held.insert(*shard, Held { epoch: state.epoch, is_draining: false });
                state.moved(*shard, Change::Acquired);
            }
        });
    }

    /// Records that shards are no longer held.
    pub(crate) fn gone(&self, shards: &[u16], change: Change) {
        if shards.is_empty() {
            return;
        }
        self.state.send_modify(|state| {
            state.epoch += 1;
            for shard in shards {
                state.held.remove(shard);
                state.moved(*shard, change);
            }
        });
    }

    pub(crate) fn drain(&self, shard: u16) {
        self.state.send_modify(|state| {
            if let Some(held) = state.held.get_mut(&shard) {
                held.is_draining = true;
            }
        });
    }

    /// Whether no sync of this shard is in flight.
    pub(crate) fn is_idle(&self, shard: u16) -> bool {
        !self.state.borrow().in_flight.contains_key(&shard)
    }

    pub(crate) fn saw_holders(&self, holders: Option<BTreeMap<u16, String>>) {
        self.state.send_if_modified(|state| {
            let is_new = state.holders != holders;
            state.holders = holders;
            is_new
        });
    }
}

impl fmt::Debug for Shards {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shards").field("held", &self.held()).finish_non_exhaustive()
    }
}

// === impl State ===

impl State {
    fn phase(&self, held: &Held) -> Phase {
        if held.is_draining {
            Phase::Draining
        } else if self.caches.iter().all(|listed| *listed >= held.epoch) {
            Phase::Working
        } else {
            Phase::Listing
        }
    }

    fn moved(&mut self, shard: u16, change: Change) {
        if self.moves.len() == MOVES_MAX {
            self.moves.pop_front();
        }
        *self.counts.entry(change).or_default() += 1;
        self.moves.push_back(Move { shard, change, at: Instant::now() });
    }
}

// === impl InFlight ===

impl Drop for InFlight {
    fn drop(&mut self) {
        self.shards.state.send_if_modified(|state| {
            let Some(count) = state.in_flight.get_mut(&self.shard) else { return false };
            *count -= 1;
            if *count == 0 {
                state.in_flight.remove(&self.shard);
                // Whoever waits for the end of a shard's syncs.
                return state.held.get(&self.shard).is_none_or(|held| held.is_draining);
            }
            false
        });
    }
}

impl fmt::Debug for InFlight {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InFlight").field("shard", &self.shard).finish_non_exhaustive()
    }
}

/// Waits for changes of [`Shards`].
pub(crate) struct Changes(watch::Receiver<State>);

impl Changes {
    /// Waits for a change since the last call.
    ///
    /// # Cancel safety
    /// Cancel-safe.
    pub(crate) async fn next(&mut self) {
        if self.0.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

// === impl Scope ===

impl Scope {
    /// Whether the shard of this namespace is in both scopes, but was given up and acquired again after the earlier one.
    #[must_use]
    pub fn has_regained(&self, namespace: &str, earlier: &Self) -> bool {
        let shard = self.set.shard_of(namespace);
        let in_both = self.acquired.get(&shard).zip(earlier.acquired.get(&shard));
        in_both.is_some_and(|(now, before)| now != before)
    }
}

// === impl CacheShards ===

impl CacheShards {
    /// Returns what the cache is to have now.
    #[must_use]
    pub fn scope(&self) -> Scope {
        let state = self.shards.state.borrow();
        let acquired: BTreeMap<u16, u64> =
            state.held.iter().map(|(shard, held)| (*shard, held.epoch)).collect();
        let set = self.shards.sharding.set(acquired.keys().copied());
        Scope { epoch: state.epoch, acquired, set: Arc::new(set) }
    }

    /// Waits until the cache is to have something else than `scope`, or what it has is to be listed anew.
    ///
    /// # Cancel safety
    /// Cancel-safe.
    pub async fn changed(&self, scope: &Scope) {
        let mut state = self.shards.state.subscribe();
        if state.wait_for(|state| state.epoch != scope.epoch).await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    /// Whether the cache is known to have listed `scope`.
    #[must_use]
    pub fn is_listed(&self, scope: &Scope) -> bool {
        self.shards.state.borrow().caches[self.index] == scope.epoch
    }

    /// Records that the cache has listed `scope`, by a list that began after [`scope`](Self::scope) was called.
    pub fn has_listed(&self, scope: &Scope) {
        self.shards.state.send_if_modified(|state| {
            std::mem::replace(&mut state.caches[self.index], scope.epoch) != scope.epoch
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::shards::Division;

    const FOUR: Sharding = Sharding { of: 4, by: Division::Hash };

    fn phase(shards: &Shards, shard: u16) -> Option<Phase> {
        shards.phases().get(&shard).copied()
    }

    /// A namespace of the shard.
    fn namespace(shard: u16) -> String {
        (0..).map(|n| format!("n{n}")).find(|name| FOUR.shard_of(name) == shard).expect("each shard has some")
    }

    #[test]
    fn shard_is_worked_once_every_cache_has_listed_it_anew() {
        let shards = Shards::new(FOUR);
        let caches = [shards.add_cache(), shards.add_cache()];
        shards.acquired(&[1, 2]);
        let (first, second) = (caches[0].scope(), caches[1].scope());
        caches[0].has_listed(&first);
        assert_eq!(phase(&shards, 1), Some(Phase::Listing));
        assert!(matches!(shards.admit(&namespace(1)), Admission::Later));
        caches[1].has_listed(&second);
        assert_eq!((phase(&shards, 1), phase(&shards, 0)), (Some(Phase::Working), None));
        assert!(matches!(shards.admit(&namespace(1)), Admission::Now(_)));
        assert!(matches!(shards.admit(&namespace(0)), Admission::Never));
        // Lost and taken again: another process may have written meanwhile.
        shards.gone(&[1], Change::Lost);
        shards.acquired(&[1]);
        assert_eq!((phase(&shards, 1), phase(&shards, 2)), (Some(Phase::Listing), Some(Phase::Working)));
        let again = caches[0].scope();
        assert!(again.set == first.set && again != first, "it is to be listed anew");
        let regained = |shard| again.has_regained(&namespace(shard), &first);
        assert_eq!([0, 1, 2, 3].map(regained), [false, true, false, false]);
    }

    #[tokio::test(start_paused = true)]
    async fn draining_shard_begins_no_sync_and_waits_for_those_in_flight() {
        let shards = Shards::new(FOUR);
        shards.acquired(&[3]);
        let Admission::Now(sync) = shards.admit(&namespace(3)) else {
            panic!("there is no cache to wait for")
        };
        let mut changes = shards.changes();
        shards.drain(3);
        changes.next().await;
        assert!(phase(&shards, 3) == Some(Phase::Draining) && !shards.is_idle(3));
        assert!(matches!(shards.admit(&namespace(3)), Admission::Never));
        drop(sync);
        changes.next().await;
        assert!(shards.is_idle(3));
        assert_eq!(shards.held().iter().collect::<Vec<_>>(), [3], "it is held until it is released");
        shards.gone(&[3], Change::Released);
        assert!(shards.held().is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn last_moves_are_kept() {
        let shards = Shards::new(FOUR);
        for _ in 0..MOVES_MAX {
            shards.acquired(&[1]);
            shards.gone(&[1], Change::Released);
        }
        let moves = shards.moves();
        assert_eq!(moves.len(), MOVES_MAX);
        assert_eq!(moves.last().map(|last| last.change), Some(Change::Released));
    }
}
