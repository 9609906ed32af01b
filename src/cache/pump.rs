//! The pump: takes changes from the FIFO, applies them to the store, then tells the processor.
//!
//! Mirrors client-go `tools/cache/controller.go` (`processLoop`, `processDeltas`). client-go calls it
//! *Controller*; it is no controller in the sense of this project's `controller` module.
//! Flow: API server -> reflector -> fifo -> **pump** -> store, handlers
//!
//! # Guarantees
//! - Added or updated is decided by the store, not by the event. (test: `the_store_decides_between_add_and_update`)
//! - A handler finds the object in the store before it hears of it. (test: `a_handler_finds_the_object_in_the_store`)
//! - A relist tells what vanished first, then what came and changed; what did not change is silent.
//!   (test: `a_relist_tells_the_difference`)
//! - An event older than what is stored of the same object is ignored. (test: `an_older_event_is_ignored`)
//!
//! # Differences from client-go
//! An unchanged object of a relist reaches no handler (client-go passes it to those that resync).
//! Older events are ignored. The delete of an unknown object reaches no handler.
//!
//! # Locks and tasks
//! Works under the delivery gate (see [`Processor`]), so that a handler that joins meanwhile misses and
//! doubles nothing; no await happens under it.

use super::fifo::{Batch, Delta};
use super::object::{Cached, Object};
use super::processor::{Deleted, Notification, Processor};
use super::store::{Store, StoreWriter};
use super::version;

/// Applies batches; see the module.
pub(crate) struct Pump<K: Object> {
    store: Store<K>,
    writer: StoreWriter<K>,
}

// === impl Pump ===

impl<K: Object> Pump<K> {
    pub(crate) fn new(store: Store<K>, writer: StoreWriter<K>) -> Self {
        Self { store, writer }
    }

    /// Applies one batch and tells the processor, which the caller has locked.
    pub(crate) fn apply(&mut self, batch: Batch<K>, processor: &mut Processor<K>) {
        let is_initial_list = batch.is_initial_list;
        for delta in batch.deltas {
            match delta {
                Delta::Added(object) | Delta::Updated(object) => self.upsert(object, processor),
                Delta::Deleted(object) => self.delete(object, processor),
                Delta::ReplacedAll { objects, resource_version, authoritative } => {
                    self.replace(objects, &resource_version, authoritative, is_initial_list, processor);
                }
                Delta::SyncAll => {
                    let mut objects = self.store.list();
                    objects.sort_by_key(Cached::object_name);
                    for object in objects {
                        processor.distribute(&Notification::Update { old: object.clone(), new: object });
                    }
                }
                Delta::Bookmark(version) => self.writer.bookmark(&version),
            }
        }
        if is_initial_list {
            processor.upstream_synced();
        }
    }

    fn upsert(&mut self, object: Cached<K>, processor: &mut Processor<K>) {
        let stored = self.store.get(&object.object_name());
        if stored.is_some_and(|stored| is_stale(&object, &stored)) {
            tracing::debug!(kind = %K::resource(), object = ?object, "Ignored an event older than the cache");
            return;
        }
        let old = self.writer.upsert(object.clone());
        processor.distribute(&match old {
            Some(old) => Notification::Update { old, new: object },
            None => Notification::Add { object, is_in_initial_list: false },
        });
    }

    fn delete(&mut self, last: Cached<K>, processor: &mut Processor<K>) {
        let name = last.object_name();
        let Some(stored) = self.store.get(&name) else {
            self.writer.bookmark(last.resource_version());
            return;
        };
        if is_stale(&last, &stored) {
            tracing::debug!(kind = %K::resource(), object = ?last, "Ignored the deletion of a previous incarnation");
            return;
        }
        self.writer.delete(&name, last.resource_version());
        processor.distribute(&Notification::Delete(Deleted::Observed(last)));
    }

    fn replace(
        &mut self,
        objects: Vec<Cached<K>>,
        resource_version: &str,
        authoritative: bool,
        is_in_initial_list: bool,
        processor: &mut Processor<K>,
    ) {
        let before: Vec<Option<Cached<K>>> =
            objects.iter().map(|object| self.store.get(&object.object_name())).collect();
        let mut listed = objects;
        if !authoritative {
            for (object, before) in listed.iter_mut().zip(&before) {
                if let Some(before) = before
                    && is_stale(object, before)
                {
                    *object = before.clone();
                }
            }
        }
        for last_known in self.writer.replace(&listed, resource_version) {
            processor.distribute(&Notification::Delete(Deleted::FinalStateUnknown { last_known }));
        }
        for (object, before) in listed.into_iter().zip(before) {
            match before {
                None => processor.distribute(&Notification::Add { object, is_in_initial_list }),
                Some(old)
                    if old.uid() == object.uid() && old.resource_version() == object.resource_version() => {}
                Some(old) => processor.distribute(&Notification::Update { old, new: object }),
            }
        }
    }
}

/// Whether this is an older state than the stored one, of the same life or of an earlier one.
fn is_stale<K: Object>(event: &Cached<K>, stored: &Cached<K>) -> bool {
    version::is_older(event.resource_version(), stored.resource_version())
}

impl<K: Object> std::fmt::Debug for Pump<K> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pump").finish_non_exhaustive()
    }
}
