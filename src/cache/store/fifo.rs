//! An ordered queue of changes between reflector and pump; it knows when the initial list is delivered.
//!
//! Mirrors client-go `tools/cache/the_real_fifo.go` (`RealFIFO`, the default since 1.33; atomic and with batches since 1.36).
//! Flow: API server -> reflector -> **fifo** -> pump -> store, handlers
//! Chapter 3 of `docs/book` builds this from nothing.
//!
//! One producer, the reflector, pushes changes, and waits while [`CAPACITY`] are queued. One consumer, the pump, pops
//! batches: changes to distinct objects, or one change to all objects: a relist ([`Delta::ReplacedAll`]) or a
//! bookmark. The queue is *synced* once the pump has reported the first relist as applied.
//! `docs/cache.md` compares this queue with `DeltaFIFO`.
//!
//! # Guarantees
//! - Changes are delivered in the order of arrival. (test: `every_change_is_delivered_in_order`)
//! - A batch contains each object once and never spans a relist. (test: `batch_ends_at_repeated_object_or_global_change`)
//! - A queue that starts with a relist, as the reflector's does, is synced only after the relist is
//!   applied, even if the relist is empty. (test: `synced_only_after_the_first_relist_is_applied`)
//! - The producer waits while the queue is full. (test: `full_queue_blocks_the_producer`)
//! - The producer can wait until all queued changes are applied. (test: `queue_is_drained_once_all_is_applied`)
//! - Changes queued before a close are still delivered. (test: `close_delivers_queued_changes_then_ends`)
//!
//! # Differences from client-go
//! There is only atomic mode. A resync does not pass through the queue: the pump makes it from the store. The transform
//! runs once per object, where it is decoded. A full queue makes the producer wait; no lock is held during processing.

use std::collections::{HashSet, VecDeque};
use std::fmt;

use parking_lot::Mutex;
use tokio::sync::Notify;

use super::Store;
use crate::cache::object::Object;
use crate::cache::object::cached::Cached;
use crate::cache::object::object_name::ObjectName;
use crate::cache::synctrack::{self, Synced, SyncedSetter};

/// Maximum number of changes in one batch.
pub const BATCH_MAX: usize = 1000;
/// Number of queued changes at which the producer waits.
pub const CAPACITY: usize = 2 * BATCH_MAX;

/// An object in a list.
#[derive(Debug)]
pub enum Listed<K: Object> {
    /// The store has the object with this uid and version, so it is not decoded again.
    Unchanged(ObjectName),
    /// The store has no such object, or another version of it.
    Changed(Cached<K>),
}

/// One change.
#[derive(Debug)]
pub enum Delta<K: Object> {
    /// The watch reported an addition; the store decides whether the object is new.
    Added(Cached<K>),
    /// The watch reported a modification.
    Updated(Cached<K>),
    /// The watch reported a deletion, with the last state.
    Deleted(Cached<K>),
    /// A complete list.
    ReplacedAll {
        /// All objects.
        objects: Vec<Listed<K>>,
        /// Version of the list.
        resource_version: String,
        /// Whether the list was a consistent read, which replaces even newer cached versions.
        authoritative: bool,
    },
    /// Nothing changed up to this version.
    Bookmark(String),
}

/// Changes to apply together.
#[derive(Debug)]
pub struct Batch<K: Object> {
    /// In the order of arrival.
    pub deltas: Vec<Delta<K>>,
    /// Whether the batch is the first relist.
    pub is_initial_list: bool,
}

/// The queue; see the module.
pub struct Fifo<K: Object> {
    state: Mutex<Pending<K>>,
    filled: Notify,
    emptied: Notify,
    synced: Synced,
}

struct Pending<K: Object> {
    queue: VecDeque<Delta<K>>,
    population: Population,
    setter: SyncedSetter,
    closed: bool,
    /// Whether the consumer has a batch that it has not reported yet.
    is_applying: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Population {
    /// Nothing has been queued yet.
    Empty,
    /// The first relist is queued or being applied.
    Initial,
    /// The first relist is applied, or another change was queued first.
    Done,
}

// === impl Fifo ===

impl<K: Object> Fifo<K> {
    /// Creates an empty queue; `name` identifies it to those that wait for its sync.
    #[must_use]
    pub fn new(name: &str) -> Self {
        let (setter, synced) = synctrack::pair(name);
        let state = Pending {
            queue: VecDeque::new(),
            population: Population::Empty,
            setter,
            closed: false,
            is_applying: false,
        };
        Self { state: Mutex::new(state), filled: Notify::new(), emptied: Notify::new(), synced }
    }

    /// Queues a change, waiting while the queue is full. After a close, the change is dropped.
    ///
    /// # Cancel safety
    /// Safe: the change is queued in the last step or not at all.
    pub async fn push(&self, delta: Delta<K>) {
        let mut delta = Some(delta);
        loop {
            let emptied = self.emptied.notified();
            tokio::pin!(emptied);
            emptied.as_mut().enable();
            if self.state.lock().try_push(&mut delta) {
                break;
            }
            emptied.await;
        }
        self.filled.notify_one();
    }

    /// Returns the next batch, or `None` once the queue is closed and empty. The single consumer must
    /// report each batch with [`processed`](Self::processed) before popping the next.
    ///
    /// # Cancel safety
    /// Safe: the batch is taken in the last step or not at all.
    pub async fn pop_batch(&self) -> Option<Batch<K>> {
        loop {
            let filled = self.filled.notified();
            tokio::pin!(filled);
            filled.as_mut().enable();
            let popped = self.state.lock().try_pop();
            match popped {
                Some(Some(batch)) => {
                    self.emptied.notify_one();
                    return Some(batch);
                }
                Some(None) => return None,
                None => filled.await,
            }
        }
    }

    /// Reports that a batch has been applied.
    pub fn processed(&self, batch_was_initial_list: bool) {
        let mut state = self.state.lock();
        state.is_applying = false;
        if batch_was_initial_list {
            state.population = Population::Done;
            state.setter.set();
        }
        drop(state);
        self.emptied.notify_one();
    }

    /// Waits until every change that was queued is applied, or the queue is closed: the producer then knows what the
    /// store has.
    ///
    /// # Cancel safety
    /// Safe: it changes nothing.
    pub async fn drained(&self) {
        loop {
            let emptied = self.emptied.notified();
            tokio::pin!(emptied);
            emptied.as_mut().enable();
            let is_drained = {
                let state = self.state.lock();
                state.closed || state.queue.is_empty() && !state.is_applying
            };
            if is_drained {
                return;
            }
            emptied.await;
        }
    }

    /// Drops further changes; queued changes are still delivered.
    pub fn close(&self) {
        self.state.lock().closed = true;
        self.filled.notify_one();
        self.emptied.notify_one();
    }

    /// Returns a handle that is synced once the first relist is applied.
    #[must_use]
    pub fn synced(&self) -> Synced {
        self.synced.clone()
    }

    /// Returns the number of queued changes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.state.lock().queue.len()
    }

    /// Returns whether no change is queued.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl<K: Object> fmt::Debug for Fifo<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fifo").field("len", &self.len()).finish_non_exhaustive()
    }
}

// === impl Pending ===

impl<K: Object> Pending<K> {
    /// Takes the change if there is room; `false` means that the producer must wait.
    fn try_push(&mut self, delta: &mut Option<Delta<K>>) -> bool {
        if self.closed {
            return true;
        }
        if self.queue.len() >= CAPACITY {
            return false;
        }
        let Some(delta) = delta.take() else { return true };
        if self.population == Population::Empty {
            match delta {
                Delta::ReplacedAll { .. } => self.population = Population::Initial,
                Delta::Added(_) | Delta::Updated(_) | Delta::Deleted(_) => {
                    self.population = Population::Done;
                    self.setter.set();
                }
                Delta::Bookmark(_) => {}
            }
        }
        self.queue.push_back(delta);
        true
    }

    /// Returns `None` if the queue is empty, `Some(None)` if it is also closed.
    #[expect(clippy::option_option, reason = "the two absences differ, and only the caller above sees them")]
    fn try_pop(&mut self) -> Option<Option<Batch<K>>> {
        let Some(first) = self.queue.pop_front() else {
            return self.closed.then_some(None);
        };
        let is_list = matches!(first, Delta::ReplacedAll { .. });
        let is_initial_list = is_list && self.population == Population::Initial;
        let mut seen = HashSet::new();
        let mut deltas = Vec::new();
        if let Some(name) = first.object_name() {
            seen.insert(name);
            deltas.push(first);
            while deltas.len() < BATCH_MAX
                && let Some(name) = self.queue.front().and_then(Delta::object_name)
                && seen.insert(name)
                && let Some(next) = self.queue.pop_front()
            {
                deltas.push(next);
            }
        } else {
            deltas.push(first);
        }
        self.is_applying = true;
        Some(Some(Batch { deltas, is_initial_list }))
    }
}

impl<K: Object> Delta<K> {
    /// Returns the object that changed; `None` for a change that concerns all objects.
    fn object_name(&self) -> Option<ObjectName> {
        match self {
            Self::Added(object) | Self::Updated(object) | Self::Deleted(object) => Some(object.object_name()),
            Self::ReplacedAll { .. } | Self::Bookmark(_) => None,
        }
    }
}

// === impl Listed ===

impl<K: Object> Listed<K> {
    /// Compares a decoded object with the store.
    #[must_use]
    pub fn of(object: Cached<K>, stored: &Store<K>) -> Self {
        let name = object.object_name();
        let before = stored.get(&name);
        match before.is_some_and(|before| before.is_same_version(&object)) {
            true => Self::Unchanged(name),
            false => Self::Changed(object),
        }
    }

    /// Returns the namespace and name.
    #[must_use]
    pub fn object_name(&self) -> ObjectName {
        match self {
            Self::Unchanged(name) => name.clone(),
            Self::Changed(object) => object.object_name(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::config_map;
    use futures_util::FutureExt;
    use k8s_openapi::api::core::v1::ConfigMap;

    fn object(name: &str, version: u64) -> Cached<ConfigMap> {
        Cached::new(Ok(config_map("ns", name, version)))
    }

    fn relist(objects: Vec<Cached<ConfigMap>>) -> Delta<ConfigMap> {
        let objects = objects.into_iter().map(Listed::Changed).collect();
        Delta::ReplacedAll { objects, resource_version: "9".to_owned(), authoritative: true }
    }

    /// Formats the changes of a batch: `+a@1`, `~a@2`, `-a@3`, `all`, `bookmark`.
    fn text(batch: &Batch<ConfigMap>) -> Vec<String> {
        let short = |object: &Cached<ConfigMap>| {
            format!("{}@{}", object.object_name().name(), object.resource_version())
        };
        let delta = |delta: &Delta<ConfigMap>| match delta {
            Delta::Added(object) => format!("+{}", short(object)),
            Delta::Updated(object) => format!("~{}", short(object)),
            Delta::Deleted(object) => format!("-{}", short(object)),
            Delta::ReplacedAll { .. } => "all".to_owned(),
            Delta::Bookmark(_) => "bookmark".to_owned(),
        };
        batch.deltas.iter().map(delta).collect()
    }

    async fn pop(fifo: &Fifo<ConfigMap>) -> Vec<String> {
        let batch = fifo.pop_batch().await.unwrap();
        fifo.processed(batch.is_initial_list);
        text(&batch)
    }

    /// client-go: `TestRealFIFO_addUpdate`, `TestRealFIFO_replaceWithDeleteDeltaIn`
    #[tokio::test]
    async fn every_change_is_delivered_in_order() {
        let fifo = Fifo::new("t");
        fifo.push(Delta::Added(object("a", 1))).await;
        fifo.push(Delta::Updated(object("a", 2))).await;
        fifo.push(Delta::Deleted(object("a", 3))).await;
        fifo.push(Delta::Added(object("a", 4))).await;
        for expected in ["+a@1", "~a@2", "-a@3", "+a@4"] {
            assert_eq!(pop(&fifo).await, [expected]);
        }
    }

    /// client-go: `TestRealFIFO_PopMultipleDeltaInBatch`
    #[tokio::test]
    async fn batch_ends_at_repeated_object_or_global_change() {
        let fifo = Fifo::new("t");
        for (name, version) in [("a", 1), ("b", 2), ("a", 3), ("c", 4)] {
            fifo.push(Delta::Added(object(name, version))).await;
        }
        fifo.push(relist(vec![])).await;
        fifo.push(Delta::Bookmark("12".to_owned())).await;
        fifo.push(Delta::Deleted(object("c", 13))).await;
        assert_eq!(pop(&fifo).await, ["+a@1", "+b@2"]);
        assert_eq!(pop(&fifo).await, ["+a@3", "+c@4"]);
        assert_eq!(pop(&fifo).await, ["all"]);
        assert_eq!(pop(&fifo).await, ["bookmark"]);
        assert_eq!(pop(&fifo).await, ["-c@13"]);
    }

    #[tokio::test]
    async fn batch_size_is_limited() {
        let fifo = Fifo::new("t");
        for n in 0..=BATCH_MAX {
            fifo.push(Delta::Added(object(&format!("n{n}"), 1))).await;
        }
        assert_eq!(pop(&fifo).await.len(), BATCH_MAX);
        assert_eq!(pop(&fifo).await.len(), 1);
    }

    /// client-go: `TestRealFIFO_HasSynced`
    #[tokio::test]
    async fn synced_only_after_the_first_relist_is_applied() {
        let fifo = Fifo::<ConfigMap>::new("t");
        let synced = fifo.synced();
        fifo.push(Delta::Bookmark("1".to_owned())).await;
        pop(&fifo).await;
        assert!(!synced.is_synced());
        fifo.push(relist(vec![])).await;
        let batch = fifo.pop_batch().await.unwrap();
        assert!(batch.is_initial_list && !synced.is_synced());
        fifo.processed(batch.is_initial_list);
        assert!(synced.is_synced());
        fifo.push(relist(vec![])).await;
        assert!(!fifo.pop_batch().await.unwrap().is_initial_list);
    }

    #[tokio::test]
    async fn full_queue_blocks_the_producer() {
        let fifo = Fifo::new("t");
        for n in 0..CAPACITY {
            fifo.push(Delta::Added(object(&format!("n{n}"), 1))).await;
        }
        let mut waiting = Box::pin(fifo.push(Delta::Added(object("late", 1))));
        assert!(waiting.as_mut().now_or_never().is_none());
        assert_eq!(fifo.len(), CAPACITY);
        fifo.pop_batch().await.unwrap();
        waiting.await;
        assert_eq!(fifo.len(), CAPACITY - BATCH_MAX + 1);
    }

    #[tokio::test]
    async fn queue_is_drained_once_all_is_applied() {
        let fifo = Fifo::new("t");
        assert!(fifo.drained().now_or_never().is_some());
        fifo.push(Delta::Added(object("a", 1))).await;
        let mut drained = Box::pin(fifo.drained());
        assert!(drained.as_mut().now_or_never().is_none());
        let batch = fifo.pop_batch().await.unwrap();
        assert!(drained.as_mut().now_or_never().is_none(), "it is not applied yet");
        fifo.processed(batch.is_initial_list);
        drained.await;
        fifo.push(Delta::Added(object("b", 2))).await;
        fifo.close();
        assert!(fifo.drained().now_or_never().is_some(), "nobody waits for a closed queue");
    }

    /// client-go: `TestRealFIFO_PopShouldUnblockWhenClosed`
    #[tokio::test]
    async fn close_delivers_queued_changes_then_ends() {
        let fifo = Fifo::new("t");
        fifo.push(Delta::Added(object("a", 1))).await;
        fifo.close();
        fifo.push(Delta::Added(object("b", 1))).await;
        assert_eq!(pop(&fifo).await, ["+a@1"]);
        assert!(fifo.pop_batch().await.is_none());

        let fifo = Fifo::<ConfigMap>::new("t");
        let mut waiting = Box::pin(fifo.pop_batch());
        assert!(waiting.as_mut().now_or_never().is_none());
        fifo.close();
        assert!(waiting.await.is_none());
    }
}
