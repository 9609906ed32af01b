//! Applies changes from the FIFO to the store, then notifies the processor.
//!
//! Mirrors client-go `tools/cache/controller.go` (`processLoop`, `processDeltas`). client-go's name is
//! *Controller*; it is unrelated to this project's `controller` module.
//! Flow: API server -> reflector -> fifo -> **pump** -> store, handlers
//!
//! # How it works
//! A batch becomes a sequence of steps, each for one object. [`SLICE`] steps are applied under the delivery
//! lock; then the lock is released and other tasks run, also in the middle of a relist or a resync. Each
//! step compares its object with the store, so a handler that is added between two slices sees each
//! change exactly once.
//!
//! # Guarantees
//! - The store, not the event, decides between add and update. (test: `the_store_decides_between_add_and_update`)
//! - An object is in the store before handlers are notified of it. (test: `a_handler_finds_the_object_in_the_store`)
//! - A relist notifies of deletions first, then of additions and changes; unchanged objects are skipped.
//!   (test: `relist_notifies_only_of_differences`)
//! - An event older than the stored object is ignored. (test: `an_older_event_is_ignored`)
//! - An object that was deleted and created again unseen is a deletion and an addition; if that one is deleted, too,
//!   handlers are notified of the one that they know. (test: `unseen_recreation_is_a_deletion_and_an_addition`)
//! - Other tasks run while a relist or a resync is applied. (test: `other_tasks_run_while_a_relist_is_applied`)
//!
//! # Differences from client-go
//! Handlers are not notified of an unchanged object in a relist (client-go notifies those that resync)
//! or of the deletion of an unknown object. Older events are ignored. client-go shows an unseen recreation
//! as an update. client-go applies a relist in one
//! step, during which no reader is served.
//!
//! # Locks and tasks
//! Takes the delivery lock for each slice (see [`Processor`]); never awaits under the lock.

use std::collections::HashSet;

use parking_lot::Mutex;

use super::Processor;
use super::handlers::{Deleted, Notification};
use crate::cache::object::Object;
use crate::cache::object::cached::Cached;
use crate::cache::object::object_name::ObjectName;
use crate::cache::object::version;
use crate::cache::store::fifo::Listed;
use crate::cache::store::fifo::{Batch, Delta};
use crate::cache::store::{Store, StoreWriter};

/// Number of objects that are applied without a pause.
const SLICE: usize = 500;

/// Applies batches; see the module.
pub(crate) struct Pump<K: Object> {
    /// The kind, `plural.group`.
    kind: String,
    store: Store<K>,
    writer: StoreWriter<K>,
}

/// What is done with one object.
enum ObjectDelta<K: Object> {
    Upsert(Cached<K>),
    Delete(Cached<K>),
    /// An object of a relist that is new or has changed.
    Replace {
        object: Cached<K>,
        authoritative: bool,
        is_in_initial_list: bool,
    },
    /// An object that a relist no longer contains.
    Vanish(ObjectName),
    /// Notify the handlers that resync again.
    Resync(ObjectName),
}

// === impl Pump ===

impl<K: Object> Pump<K> {
    pub(crate) fn new(kind: &str, store: Store<K>, writer: StoreWriter<K>) -> Self {
        Self { kind: kind.to_owned(), store, writer }
    }

    /// Applies one batch and notifies the processor.
    pub(crate) async fn apply(&mut self, batch: Batch<K>, processor: &Mutex<Processor<K>>) {
        let Batch { deltas, is_initial_list } = batch;
        let mut steps = Vec::with_capacity(deltas.len());
        // The version that the store has after the steps; a change to one object sets it itself.
        let mut version = None;
        for delta in deltas {
            match delta {
                Delta::Added(object) | Delta::Updated(object) => steps.push(ObjectDelta::Upsert(object)),
                Delta::Deleted(object) => steps.push(ObjectDelta::Delete(object)),
                Delta::ReplacedAll { objects, resource_version, authoritative } => {
                    steps = self.relist(objects, authoritative, is_initial_list).await;
                    version = Some(resource_version);
                }
                Delta::Bookmark(bookmark) => version = Some(bookmark),
            }
        }
        self.take(steps, processor).await;
        if let Some(version) = version {
            self.writer.set_resource_version(&version);
        }
        if is_initial_list {
            processor.lock().upstream_synced();
        }
    }

    /// Notifies the handlers whose resync is due of every stored object again.
    pub(crate) async fn resync(&mut self, processor: &Mutex<Processor<K>>) {
        if !processor.lock().begin_resync() {
            return;
        }
        let steps = sorted(self.store.names()).map(ObjectDelta::Resync).collect();
        self.take(steps, processor).await;
        processor.lock().end_resync();
    }

    /// Takes steps, in slices.
    async fn take(&mut self, steps: Vec<ObjectDelta<K>>, processor: &Mutex<Processor<K>>) {
        let mut steps = steps.into_iter();
        while steps.len() > 0 {
            {
                let processor = processor.lock();
                steps.by_ref().take(SLICE).for_each(|step| self.step(step, &processor));
            }
            if steps.len() > 0 {
                tokio::task::yield_now().await;
            }
        }
    }

    /// Returns the steps of a relist: what vanished, then what is new or changed.
    async fn relist(
        &self,
        objects: Vec<Listed<K>>,
        authoritative: bool,
        is_in_initial_list: bool,
    ) -> Vec<ObjectDelta<K>> {
        let mut steps = Vec::new();
        if !self.store.is_empty() {
            let mut listed = HashSet::with_capacity(objects.len());
            for slice in objects.chunks(SLICE) {
                listed.extend(slice.iter().map(Listed::object_name));
                tokio::task::yield_now().await;
            }
            let vanished = self.store.names().into_iter().filter(|name| !listed.contains(name)).collect();
            steps.extend(sorted(vanished).map(ObjectDelta::Vanish));
        }
        steps.extend(objects.into_iter().filter_map(|listed| match listed {
            Listed::Unchanged(_) => None,
            Listed::Changed(object) => {
                Some(ObjectDelta::Replace { object, authoritative, is_in_initial_list })
            }
        }));
        steps
    }

    fn step(&mut self, step: ObjectDelta<K>, processor: &Processor<K>) {
        match step {
            ObjectDelta::Upsert(object) => self.upsert(object, processor),
            ObjectDelta::Delete(last) => self.delete(last, processor),
            ObjectDelta::Replace { object, authoritative, is_in_initial_list } => {
                self.replace(object, authoritative, is_in_initial_list, processor);
            }
            ObjectDelta::Vanish(name) => {
                if let Some(last_known) = self.writer.remove(&name) {
                    processor.distribute(&Notification::Delete(Deleted::FinalStateUnknown { last_known }));
                }
            }
            ObjectDelta::Resync(name) => {
                if let Some(object) = self.store.get(&name) {
                    processor.resync(&Notification::Update { old: object.clone(), new: object });
                }
            }
        }
    }

    fn upsert(&mut self, object: Cached<K>, processor: &Processor<K>) {
        let stored = self.store.get(&object.object_name());
        if stored.is_some_and(|stored| is_stale(&object, &stored)) {
            tracing::debug!(kind = %self.kind, object = ?object, "Ignored an event older than the cache");
            return;
        }
        let old = self.writer.upsert(object.clone());
        changed(old, object, false, processor);
    }

    fn delete(&mut self, last: Cached<K>, processor: &Processor<K>) {
        let name = last.object_name();
        let Some(stored) = self.store.get(&name) else {
            self.writer.set_resource_version(last.resource_version());
            return;
        };
        if is_stale(&last, &stored) {
            tracing::debug!(kind = %self.kind, object = ?last, "Ignored the deletion of a previous incarnation");
            return;
        }
        self.writer.delete(&name, last.resource_version());
        // Handlers do not know an incarnation that was created unseen: what they knew is gone.
        let deleted = match stored.uid() == last.uid() {
            true => Deleted::Observed(last),
            false => Deleted::FinalStateUnknown { last_known: stored },
        };
        processor.distribute(&Notification::Delete(deleted));
    }

    fn replace(
        &mut self,
        object: Cached<K>,
        authoritative: bool,
        is_in_initial_list: bool,
        processor: &Processor<K>,
    ) {
        let stored = self.store.get(&object.object_name());
        let is_old = |stored: &Cached<K>| {
            stored.is_same_version(&object) || !authoritative && is_stale(&object, stored)
        };
        if stored.as_ref().is_some_and(is_old) {
            return;
        }
        self.writer.put(object.clone());
        changed(stored, object, is_in_initial_list, processor);
    }
}

/// Notifies of an object that was written. If it is another incarnation, the deletion of the one before was missed.
fn changed<K: Object>(
    old: Option<Cached<K>>,
    new: Cached<K>,
    is_in_initial_list: bool,
    processor: &Processor<K>,
) {
    match old {
        Some(old) if old.uid() == new.uid() => processor.distribute(&Notification::Update { old, new }),
        Some(last_known) => {
            processor.distribute(&Notification::Delete(Deleted::FinalStateUnknown { last_known }));
            processor.distribute(&Notification::Add { object: new, is_in_initial_list });
        }
        None => processor.distribute(&Notification::Add { object: new, is_in_initial_list }),
    }
}

fn sorted(mut names: Vec<ObjectName>) -> impl Iterator<Item = ObjectName> {
    names.sort_unstable();
    names.into_iter()
}

/// Returns whether the event is older than the stored object, of this or an earlier incarnation.
fn is_stale<K: Object>(event: &Cached<K>, stored: &Cached<K>) -> bool {
    version::is_older(event.resource_version(), stored.resource_version())
}

impl<K: Object> std::fmt::Debug for Pump<K> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pump").finish_non_exhaustive()
    }
}
