//! What is remembered of a key between its syncs: one record for each key, and the stores that show its writes.
//!
//! Mirrors the per-owner records of kubernetes `pkg/controller` (`ControllerExpectations`, `ConsistencyStore`), in one
//! place.
//! Flow: worker takes the record -> sync reads and changes it -> worker puts it back, unless it is empty
//!
//! | part of the record | remembers | until |
//! |---|---|---|
//! | [`own_writes`] | writes of the key | the caches have seen them |
//! | [`holds`] | refused requests | they may be sent again |
//! | [`repairs`] | repaired fields of children | ten minutes after the last repair |
//! | [`reported`] | what conditions, events and status said last | the problem, or a minute, is over |
//! | `traced` | when the key was woken, and the sync that failed, for [traces](crate::traces) | the next sync |
//!
//! # Guarantees
//! - A converged object leaves no record behind. (test: `converged_objects_leave_no_state_behind`)
//! - A record that no sync touches again is dropped once all of its parts have ended.
//!   (test: `untouched_records_are_swept`)
//! - Another object of the same name starts without a record, apart from the writes that the caches have to show.
//!   (test: `recreated_object_starts_without_a_record`)
//! - A request to distrust the caches lasts until a sync has succeeded without them.
//!   (test: `distrust_lasts_until_a_sync_succeeds`)
//!
//! # Locks and tasks
//! One lock guards the map, and is taken before those of the stores. While a sync runs, its record is not in the map.

pub(in crate::controller) mod holds;
pub(in crate::controller) mod own_writes;
pub(in crate::controller) mod repairs;
pub(in crate::controller) mod reported;
pub(in crate::controller) mod stores;

use std::collections::HashMap;
use std::fmt;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::api::ApiResource;
use crate::cache::ObjectName;
use crate::controller::kinds::difference::Difference;
use crate::traces;
use holds::Holds;
use own_writes::OwnWrites;
use repairs::{ChildId, Repairs};
use reported::Reported;
use stores::{StoreView, Stores};

/// How often records that no sync touches are looked at.
const SWEEP: Duration = Duration::from_secs(60);

/// The records of a controller's keys, and the stores that show their writes.
#[derive(Default)]
pub struct Keys {
    pub(in crate::controller) stores: Stores,
    records: Mutex<Records>,
}

#[derive(Default)]
struct Records {
    by_key: HashMap<ObjectName, Box<KeyState>>,
    swept: Option<Instant>,
}

/// What is remembered of one key.
#[derive(Debug, Default)]
pub struct KeyState {
    pub(in crate::controller) own_writes: OwnWrites,
    pub(in crate::controller) holds: Holds,
    pub(in crate::controller) repairs: Repairs,
    pub(in crate::controller) reported: Reported,
    pub(in crate::controller) traced: traces::Carried,
    /// The uid of the object that holds, repairs and reports describe.
    uid: String,
    /// Whether the next sync must not trust the caches.
    is_distrusted: bool,
}

// === impl Keys ===

impl Keys {
    /// Creates an empty map without stores.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a store that shows the writes of `resource`.
    #[must_use]
    pub fn with(self, resource: ApiResource, store: impl StoreView + 'static) -> Self {
        self.observe(resource, store);
        self
    }

    /// Adds a store that shows the writes of `resource`, in all namespaces.
    pub fn observe(&self, resource: ApiResource, store: impl StoreView + 'static) {
        self.stores.add(resource, None, store);
    }

    /// Adds a store that shows the writes of `resource` in one namespace, or in all with `None`.
    pub fn observe_in(
        &self,
        namespace: Option<String>,
        resource: ApiResource,
        store: impl StoreView + 'static,
    ) {
        self.stores.add(resource, namespace, store);
    }

    /// Makes the next sync of `key` read everything from the server.
    pub(in crate::controller) fn distrust(&self, key: &ObjectName) {
        self.records.lock().by_key.entry(key.clone()).or_default().is_distrusted = true;
    }

    /// Takes the record of `key` out of the map.
    pub(in crate::controller) fn take(&self, key: &ObjectName) -> KeyState {
        self.records.lock().by_key.remove(key).map(|state| *state).unwrap_or_default()
    }

    /// Puts a record back, unless it is empty.
    pub(in crate::controller) fn put_back(&self, key: &ObjectName, mut state: KeyState) {
        let now = Instant::now();
        state.expire(now);
        let mut records = self.records.lock();
        if let Some(meanwhile) = records.by_key.remove(key) {
            state.is_distrusted |= meanwhile.is_distrusted;
        }
        if !state.is_empty() {
            records.by_key.insert(key.clone(), Box::new(state));
        }
        records.sweep(&self.stores, now);
    }

    /// Returns the number of keys with a record.
    #[must_use]
    pub fn len(&self) -> usize {
        self.records.lock().by_key.len()
    }

    /// Whether no key has a record.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Changes the record of a key that is not being synced.
    #[cfg(test)]
    pub(crate) fn at<R>(&self, key: &ObjectName, change: impl FnOnce(&mut KeyState) -> R) -> R {
        let mut state = self.take(key);
        let result = change(&mut state);
        self.put_back(key, state);
        result
    }
}

impl Records {
    /// Drops the records whose parts have all ended, at most once per [`SWEEP`].
    fn sweep(&mut self, stores: &Stores, now: Instant) {
        if self.swept.is_some_and(|swept| now - swept < SWEEP) {
            return;
        }
        self.swept = Some(now);
        self.by_key.retain(|_, state| {
            state.expire(now);
            state.own_writes.forget_seen(stores);
            !state.is_empty()
        });
        self.by_key.shrink_to(2 * self.by_key.len());
    }
}

impl fmt::Debug for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Keys").field("records", &self.len()).finish_non_exhaustive()
    }
}

// === impl KeyState ===

impl KeyState {
    /// Drops what was remembered of an earlier object of the same name.
    pub(in crate::controller) fn begin(&mut self, uid: &str) {
        if self.uid != uid {
            self.forget();
            uid.clone_into(&mut self.uid);
        }
    }

    /// Drops what was remembered of an object that is gone.
    pub(in crate::controller) fn forget(&mut self) {
        (self.holds, self.repairs, self.reported) = <_>::default();
    }

    #[doc(hidden)] // for the benchmark of memory at rest
    pub fn repaired(&mut self, child: &str, found: &[Difference]) {
        self.repairs.repaired(&ChildId::Name(child.to_owned()), found, None);
    }

    /// Whether the next sync must not trust the caches.
    pub(in crate::controller) fn is_distrusted(&self) -> bool {
        self.is_distrusted
    }

    /// Records that a sync without the caches has succeeded.
    pub(in crate::controller) fn trust_again(&mut self) {
        self.is_distrusted = false;
    }

    fn expire(&mut self, now: Instant) {
        self.holds.expire(now);
        self.repairs.expire(now);
        self.reported.expire(now);
    }

    fn is_empty(&self) -> bool {
        let Self { own_writes, holds, repairs, reported, traced, uid: _, is_distrusted } = self;
        own_writes.is_empty()
            && holds.is_empty()
            && repairs.is_empty()
            && reported.is_empty()
            && traced.is_empty()
            && !is_distrusted
    }
}

#[cfg(test)]
mod tests;
