//! A fake source for lists and watches, without a server; each fault is a method.
//!
//! Mirrors client-go `tools/cache/testing/fake_controller_source.go` (`FakeControllerSource`).

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::Arc;

use kube_core::Resource;
use parking_lot::Mutex;
use tokio::sync::mpsc;

use super::status_error;
use crate::cache::list_watch::{
    ListOptions, Listed, ListerWatcher, Page, Version, WatchEvent, WatchOptions, WatchStart, WatchStream,
};
use crate::cache::{Cached, Object, ObjectName, Store};
use crate::client::Error;

/// Holds objects, assigns versions, and answers lists and watches as a server would. Cheap to clone; all
/// clones are the same source.
pub struct FakeSource<K> {
    state: Arc<Mutex<State<K>>>,
}

struct State<K> {
    version: u64,
    objects: BTreeMap<ObjectName, K>,
    /// Changes that watches replay, with their versions.
    log: Vec<(u64, Change<K>)>,
    /// Watches cannot start at versions below this one.
    compacted: u64,
    watchers: Vec<mpsc::UnboundedSender<Result<WatchEvent<K>, Error>>>,
    page_size: Option<usize>,
    list_errors: VecDeque<Option<Error>>,
    watch_errors: VecDeque<Error>,
    can_stream_lists: bool,
    /// Whether a streaming list ends; if not, the test sends the bookmark.
    ends_initial_events: bool,
    requests: Vec<String>,
}

#[derive(Clone)]
enum Change<K> {
    Added(K),
    Modified(K),
    Deleted(K),
}

impl<K> From<Change<K>> for WatchEvent<K> {
    fn from(change: Change<K>) -> Self {
        match change {
            Change::Added(object) => Self::Added(Ok(object)),
            Change::Modified(object) => Self::Modified(Ok(object)),
            Change::Deleted(object) => Self::Deleted(Ok(object)),
        }
    }
}

// === impl FakeSource ===

impl<K: Object + Resource<DynamicType = ()> + Clone> FakeSource<K> {
    /// Creates an empty source.
    #[must_use]
    pub fn new() -> Self {
        let state = State {
            version: 0,
            objects: BTreeMap::new(),
            log: Vec::new(),
            compacted: 0,
            watchers: Vec::new(),
            page_size: None,
            list_errors: VecDeque::new(),
            watch_errors: VecDeque::new(),
            can_stream_lists: false,
            ends_initial_events: true,
            requests: Vec::new(),
        };
        Self { state: Arc::new(Mutex::new(state)) }
    }

    /// Adds or changes an object, gives it the next version and notifies the watches.
    pub fn put(&self, object: K) {
        self.state.lock().put(object, true);
    }

    /// Like [`put`](Self::put), but hides the change from all watches.
    pub fn put_unseen(&self, object: K) {
        self.state.lock().put(object, false);
    }

    /// Removes an object and notifies the watches.
    pub fn delete(&self, name: &ObjectName) {
        self.state.lock().delete(name, true);
    }

    /// Like [`delete`](Self::delete), but hides the change from all watches.
    pub fn delete_unseen(&self, name: &ObjectName) {
        self.state.lock().delete(name, false);
    }

    /// Sends any event to the open watches, such as a duplicate, an old event or a bookmark.
    pub fn send(&self, event: impl Fn() -> WatchEvent<K>) {
        self.state.lock().watchers.retain(|watcher| watcher.send(Ok(event())).is_ok());
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

    /// Compacts the history: watches that start before the current version fail with 410.
    pub fn compact(&self) {
        let state = &mut *self.state.lock();
        state.compacted = state.version;
        state.log.clear();
    }

    /// Splits lists into pages of this size.
    pub fn page_size(&self, size: usize) {
        self.state.lock().page_size = Some(size);
    }

    /// Lets lists be streamed; without this, they are read in pages.
    pub fn stream_lists(&self) {
        self.state.lock().can_stream_lists = true;
    }

    /// Leaves out the bookmark that ends a streaming list: [`send`](Self::send) it.
    pub fn hold_initial_events(&self) {
        self.state.lock().ends_initial_events = false;
    }

    /// Scripts the next list requests, in order: `Some` fails, `None` succeeds.
    pub fn script_lists(&self, answers: impl IntoIterator<Item = Option<Error>>) {
        self.state.lock().list_errors.extend(answers);
    }

    /// Fails the next watch requests with these errors, in order.
    pub fn fail_watches(&self, errors: impl IntoIterator<Item = Error>) {
        self.state.lock().watch_errors.extend(errors);
    }

    /// Returns the requests so far: `list newest`, `list >=7`, `list next`, `stream newest`, `watch 7`.
    #[must_use]
    pub fn requests(&self) -> Vec<String> {
        self.state.lock().requests.clone()
    }

    /// Returns the names and versions of all objects.
    #[must_use]
    pub fn objects(&self) -> BTreeMap<ObjectName, String> {
        let state = self.state.lock();
        let version = |object: &K| object.resource_version().to_owned();
        state.objects.iter().map(|(name, object)| (name.clone(), version(object))).collect()
    }

    /// Returns the number of open watches.
    #[must_use]
    pub fn open_watches(&self) -> usize {
        let state = &mut *self.state.lock();
        state.watchers.retain(|watcher| !watcher.is_closed());
        state.watchers.len()
    }
}

impl<K: Object + Resource<DynamicType = ()> + Clone> Default for FakeSource<K> {
    fn default() -> Self {
        Self::new()
    }
}

impl<K> Clone for FakeSource<K> {
    fn clone(&self) -> Self {
        Self { state: self.state.clone() }
    }
}

impl<K> fmt::Debug for FakeSource<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FakeSource").field("version", &self.state.lock().version).finish_non_exhaustive()
    }
}

// === impl State ===

impl<K: Object + Resource<DynamicType = ()> + Clone> State<K> {
    fn put(&mut self, mut object: K, seen: bool) {
        self.version += 1;
        object.meta_mut().resource_version = Some(self.version.to_string());
        let before = self.objects.insert(object.object_name(), object.clone());
        let change = if before.is_some() { Change::Modified(object) } else { Change::Added(object) };
        self.tell(change, seen);
    }

    fn delete(&mut self, name: &ObjectName, seen: bool) {
        if let Some(mut object) = self.objects.remove(name) {
            self.version += 1;
            object.meta_mut().resource_version = Some(self.version.to_string());
            self.tell(Change::Deleted(object), seen);
        }
    }

    fn tell(&mut self, change: Change<K>, seen: bool) {
        if seen {
            self.watchers.retain(|watcher| watcher.send(Ok(change.clone().into())).is_ok());
            self.log.push((self.version, change));
        }
    }

    fn page(&mut self, options: &ListOptions, stored: &Store<K>) -> Result<Page<K>, Error> {
        self.requests.push(match (&options.continue_token, &options.version) {
            (Some(_), _) => "list next".to_owned(),
            (None, Version::Newest) => "list newest".to_owned(),
            (None, Version::NotOlderThan(version)) => format!("list >={version}"),
        });
        if let Some(Some(error)) = self.list_errors.pop_front() {
            return Err(error);
        }
        let from: usize = options.continue_token.as_deref().and_then(|t| t.parse().ok()).unwrap_or(0);
        let size = self.page_size.filter(|_| options.limit.is_some()).unwrap_or(usize::MAX);
        let listed = |object: &K| Listed::of(Cached::new(Ok(object.clone())), stored);
        let items = self.objects.values().skip(from).take(size).map(listed).collect();
        let end = from.saturating_add(size);
        let continue_token = (end < self.objects.len()).then(|| end.to_string());
        Ok(Page { items, resource_version: self.version.to_string(), continue_token })
    }

    fn watch(&mut self, options: &WatchOptions) -> Result<FakeWatch<K>, Error> {
        self.requests.push(match &options.start {
            WatchStart::After(version) => format!("watch {version}"),
            WatchStart::InitialEvents(Version::Newest) => "stream newest".to_owned(),
            WatchStart::InitialEvents(Version::NotOlderThan(version)) => format!("stream >={version}"),
        });
        if let Some(error) = self.watch_errors.pop_front() {
            return Err(error);
        }
        let (sender, events) = mpsc::unbounded_channel();
        match &options.start {
            WatchStart::After(version) => {
                let from: u64 = version.parse().unwrap_or(0);
                if from < self.compacted {
                    return Err(status_error(410, "Expired"));
                }
                for (_, change) in self.log.iter().filter(|(version, _)| *version > from) {
                    drop(sender.send(Ok(change.clone().into())));
                }
            }
            WatchStart::InitialEvents(_) => {
                for object in self.objects.values() {
                    drop(sender.send(Ok(WatchEvent::Added(Ok(object.clone())))));
                }
                if self.ends_initial_events {
                    drop(sender.send(Ok(WatchEvent::Bookmark {
                        resource_version: self.version.to_string(),
                        ends_initial_events: true,
                    })));
                }
            }
        }
        self.watchers.push(sender);
        Ok(FakeWatch { events })
    }
}

/// An open watch on a [`FakeSource`].
pub struct FakeWatch<K> {
    events: mpsc::UnboundedReceiver<Result<WatchEvent<K>, Error>>,
}

impl<K> fmt::Debug for FakeWatch<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FakeWatch").finish_non_exhaustive()
    }
}

impl<K: Object> WatchStream<K> for FakeWatch<K> {
    async fn next(&mut self) -> Option<Result<WatchEvent<K>, Error>> {
        self.events.recv().await
    }
}

impl<K: Object + Resource<DynamicType = ()> + Clone> ListerWatcher<K> for FakeSource<K> {
    type Watch = FakeWatch<K>;

    async fn list(&self, options: &ListOptions, stored: &Store<K>) -> Result<Page<K>, Error> {
        self.state.lock().page(options, stored)
    }

    fn can_stream_lists(&self) -> bool {
        self.state.lock().can_stream_lists
    }

    fn cannot_stream_lists(&self) {
        self.state.lock().can_stream_lists = false;
    }

    async fn watch(&self, options: &WatchOptions) -> Result<FakeWatch<K>, Error> {
        self.state.lock().watch(options)
    }
}
