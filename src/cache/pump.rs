//! Applies changes from the FIFO to the store, then notifies the processor.
//!
//! Mirrors client-go `tools/cache/controller.go` (`processLoop`, `processDeltas`). client-go's name is
//! *Controller*; it is unrelated to this project's `controller` module.
//! Flow: API server -> reflector -> fifo -> **pump** -> store, handlers
//!
//! # Guarantees
//! - The store, not the event, decides between add and update. (test: `the_store_decides_between_add_and_update`)
//! - An object is in the store before handlers are notified of it. (test: `a_handler_finds_the_object_in_the_store`)
//! - A relist notifies of deletions first, then of additions and changes; unchanged objects are skipped.
//!   (test: `relist_notifies_only_of_differences`)
//! - An event older than the stored object is ignored. (test: `an_older_event_is_ignored`)
//!
//! # Differences from client-go
//! Handlers are not notified of an unchanged object in a relist (client-go notifies those that resync)
//! or of the deletion of an unknown object. Older events are ignored.
//!
//! # Locks and tasks
//! Runs under the delivery lock (see [`Processor`]), so that a handler added meanwhile sees each change
//! exactly once; never awaits under the lock.

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

    /// Applies one batch and notifies the processor, which the caller has locked.
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

/// Returns whether the event is older than the stored object, of this or an earlier incarnation.
fn is_stale<K: Object>(event: &Cached<K>, stored: &Cached<K>) -> bool {
    version::is_older(event.resource_version(), stored.resource_version())
}

impl<K: Object> std::fmt::Debug for Pump<K> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pump").finish_non_exhaustive()
    }
}
