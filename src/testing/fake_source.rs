//! A fake source for lists and watches, without a server; each fault is a method.
//!
//! Mirrors client-go `tools/cache/testing/fake_controller_source.go` (`FakeControllerSource`).
//!
//! # How it works
//! Objects are kept as JSON and decoded for each answer, as they are from a server: a source of full objects serves
//! projections and metadata, too, and may hold an object that does not decode. Every change has a version; a list is
//! read in pages from a snapshot, which a compaction expires.
//!
//! # Guarantees
//! - An object is decoded into the type of the source, and one that does not decode keeps its identity. (test: `projection_of_a_full_object_is_decoded`)
//! - Pages show the objects at the version of the first page, or fail. (test: `pages_show_one_version_or_fail`)
//! - A watch replays the changes after its version, or fails when they are compacted. (test: `watch_replays_changes_or_fails`)
//! - A store that went back in time has no later version. (test: `restored_source_refuses_later_versions`)

mod state;

use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use serde::Serialize;
use serde_json::Value;
use tokio::sync::{Notify, mpsc};
use tokio::time::Instant;

use self::state::{Change, Served, event_of};
use super::status_error;
use crate::api::ApiResource;
use crate::cache::decode::Decoded;
use crate::cache::list_watch::{ListOptions, ListerWatcher, Page, WatchEvent, WatchOptions, WatchStream};
use crate::cache::{Object, ObjectName, Store, TypedObject};
use crate::client::Error;

/// Holds objects, assigns versions, and answers lists and watches as a server would. Cheap to clone; all
/// clones are the same source.
pub struct FakeSource<K> {
    state: Arc<Mutex<Served<K>>>,
    resource: Arc<ApiResource>,
    back: Arc<Notify>,
}

// === impl FakeSource ===

impl<K: Object> FakeSource<K> {
    /// Creates an empty source of the type's kind.
    #[must_use]
    pub fn new() -> Self
    where
        K: TypedObject,
    {
        Self::of(ApiResource::of::<K>())
    }

    /// Creates an empty source of a kind that is known at run time.
    #[must_use]
    pub fn of(resource: ApiResource) -> Self {
        Self {
            state: Arc::new(Mutex::new(Served::new())),
            resource: Arc::new(resource),
            back: Arc::default(),
        }
    }

    // --- objects ---

    /// Adds or changes an object, gives it the next version and notifies the watches. `object` is anything that has
    /// the JSON of an object. One without a uid keeps its uid, or gets a new one.
    ///
    /// # Panics
    /// If the object has no name.
    pub fn put(&self, object: impl Serialize) {
        self.state.lock().put(json(&object), true);
    }

    /// Like [`put`](Self::put), but hides the change from all watches.
    pub fn put_unseen(&self, object: impl Serialize) {
        self.state.lock().put(json(&object), false);
    }

    /// Removes an object and notifies the watches.
    pub fn delete(&self, name: &ObjectName) {
        self.state.lock().delete(name, true);
    }

    /// Like [`delete`](Self::delete), but hides the change from all watches.
    pub fn delete_unseen(&self, name: &ObjectName) {
        self.state.lock().delete(name, false);
    }

    /// Removes an object and creates it again, with another uid.
    pub fn recreate(&self, name: &ObjectName) {
        self.state.lock().recreate(name, true);
    }

    /// Like [`recreate`](Self::recreate), but hides both changes from all watches.
    pub fn recreate_unseen(&self, name: &ObjectName) {
        self.state.lock().recreate(name, false);
    }

    /// Reads one object live, as a sync handler does before it destroys something.
    ///
    /// # Errors
    /// 404 if there is no such object.
    pub fn get(&self, name: &ObjectName) -> Result<Decoded<K>, Error> {
        let state = self.state.lock();
        let object = state.objects.get(name).ok_or_else(|| status_error(404, "NotFound"))?;
        state::decoded(object)
    }

    /// Returns the names and versions of all objects.
    #[must_use]
    pub fn objects(&self) -> BTreeMap<ObjectName, String> {
        let state = self.state.lock();
        state.objects.iter().map(|(name, object)| (name.clone(), state::version_of(object))).collect()
    }

    // --- faults of watches ---

    /// Sends any event to the open watches, such as a duplicate, an old event or a bookmark.
    pub fn send(&self, event: impl Fn() -> WatchEvent<K>) {
        self.state.lock().send(|| Ok(event()));
    }

    /// Sends the last `count` changes to the open watches again, oldest first.
    pub fn repeat(&self, count: usize) {
        self.state.lock().repeat(count);
    }

    /// Ends all open watches as a server does at their timeout.
    pub fn close_watches(&self) {
        self.state.lock().watchers.clear();
    }

    /// Ends all open watches with an error.
    pub fn break_watches(&self, error: impl Fn() -> Error) {
        for watcher in self.state.lock().watchers.drain(..) {
            // A watch that has already ended needs no error.
            drop(watcher.send(Err(error())));
        }
    }

    /// Fails the next watch requests with these errors, in order.
    pub fn fail_watches(&self, errors: impl IntoIterator<Item = Error>) {
        self.state.lock().watch_errors.extend(errors);
    }

    /// Tells all that wait for a lost server that it answers again.
    pub fn come_back(&self) {
        self.back.notify_waiters();
    }

    // --- faults of lists ---

    /// Splits lists into pages of this size.
    pub fn page_size(&self, size: usize) {
        self.state.lock().page_size = Some(size);
    }

    /// Answers each page after this time.
    pub fn delay_pages(&self, time: Duration) {
        self.state.lock().page_delay = time;
    }

    /// Scripts the next list requests, in order: `Some` fails, `None` succeeds.
    pub fn script_lists(&self, answers: impl IntoIterator<Item = Option<Error>>) {
        self.state.lock().list_errors.extend(answers);
    }

    /// Lets lists be streamed; without this, they are read in pages.
    pub fn stream_lists(&self) {
        self.state.lock().can_stream_lists = true;
    }

    /// Leaves out the bookmark that ends a streaming list: [`send`](Self::send) it.
    pub fn hold_initial_events(&self) {
        self.state.lock().ends_initial_events = false;
    }

    // --- faults of the store ---

    /// Compacts the history: watches that start before the current version, and pages of lists that have begun, fail
    /// with 410.
    pub fn compact(&self) {
        self.state.lock().compact();
    }

    /// Takes the last `count` changes back, as a restored backup does, and ends all watches. Later changes have the
    /// versions of those that were lost; a list of a version that no longer exists fails.
    pub fn restore(&self, count: usize) {
        self.state.lock().restore(count);
    }

    /// Ends what [`script_lists`](Self::script_lists), [`fail_watches`](Self::fail_watches),
    /// [`delay_pages`](Self::delay_pages) and [`hold_initial_events`](Self::hold_initial_events) have ordered.
    pub fn end_faults(&self) {
        let state = &mut *self.state.lock();
        state.list_errors.clear();
        state.watch_errors.clear();
        state.page_delay = Duration::ZERO;
        state.ends_initial_events = true;
    }

    // --- observations ---

    /// Returns the requests so far: `list newest`, `list >=7`, `list next`, `stream newest`, `watch 7`.
    #[must_use]
    pub fn requests(&self) -> Vec<String> {
        self.state.lock().requests.clone()
    }

    /// Returns the number of open watches.
    #[must_use]
    pub fn open_watches(&self) -> usize {
        let state = &mut *self.state.lock();
        state.watchers.retain(|watcher| !watcher.is_closed());
        state.watchers.len()
    }
}

fn json(object: &impl Serialize) -> Value {
    serde_json::to_value(object).expect("an object serializes")
}

impl<K: TypedObject> Default for FakeSource<K> {
    fn default() -> Self {
        Self::new()
    }
}

impl<K> Clone for FakeSource<K> {
    fn clone(&self) -> Self {
        Self { state: self.state.clone(), resource: self.resource.clone(), back: self.back.clone() }
    }
}

impl<K> fmt::Debug for FakeSource<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FakeSource").field("version", &self.state.lock().version).finish_non_exhaustive()
    }
}

/// An event on its way to a watch: a change is decoded when it is read.
enum Sent<K> {
    Event(WatchEvent<K>),
    Change(Change),
}

/// An open watch on a [`FakeSource`].
pub struct FakeWatch<K> {
    events: mpsc::UnboundedReceiver<Result<Sent<K>, Error>>,
    _kind: PhantomData<fn() -> K>,
}

impl<K> fmt::Debug for FakeWatch<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FakeWatch").finish_non_exhaustive()
    }
}

impl<K: Object> WatchStream<K> for FakeWatch<K> {
    async fn next(&mut self) -> Option<Result<WatchEvent<K>, Error>> {
        Some(match self.events.recv().await? {
            Ok(Sent::Event(event)) => Ok(event),
            Ok(Sent::Change(change)) => event_of(&change),
            Err(error) => Err(error),
        })
    }
}

impl<K: Object> ListerWatcher<K> for FakeSource<K> {
    type Watch = FakeWatch<K>;

    fn resource(&self) -> ApiResource {
        ApiResource::clone(&self.resource)
    }

    async fn list(&self, options: &ListOptions, stored: &Store<K>) -> Result<Page<K>, Error> {
        let (answer, delay) = {
            let state = &mut *self.state.lock();
            (state.begin_list(options), state.page_delay)
        };
        let page = answer?;
        if !delay.is_zero() {
            tokio::time::sleep(delay).await;
        }
        self.state.lock().page(&page, stored)
    }

    fn can_stream_lists(&self) -> bool {
        self.state.lock().can_stream_lists
    }

    fn cannot_stream_lists(&self) {
        self.state.lock().can_stream_lists = false;
    }

    async fn server_is_back(&self, _: Instant) {
        self.back.notified().await;
    }

    async fn watch(&self, options: &WatchOptions) -> Result<FakeWatch<K>, Error> {
        self.state.lock().watch(options)
    }
}

#[cfg(test)]
mod tests;
