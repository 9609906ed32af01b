//! What a fake source holds, and how it answers.

use std::collections::{BTreeMap, VecDeque};
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tokio::sync::mpsc;

use super::{FakeWatch, Sent};
use crate::cache::decode::{Decoded, decode};
use crate::cache::list_watch::{ListOptions, Listed, Page, Version, WatchEvent, WatchOptions, WatchStart};
use crate::cache::{Cached, Object, ObjectName, Store};
use crate::client::{Cause, Error};
use crate::testing::status_error;

pub(super) struct Served<K> {
    pub(super) version: u64,
    pub(super) objects: BTreeMap<ObjectName, Arc<Value>>,
    /// All changes, with their versions and whether watches are told of them.
    history: Vec<(u64, Change, bool)>,
    /// Watches cannot start at versions below this one.
    compacted: u64,
    /// Number of uids so far.
    uids: u64,
    pub(super) watchers: Vec<mpsc::UnboundedSender<Result<Sent<K>, Error>>>,
    pub(super) page_size: Option<usize>,
    pub(super) page_delay: Duration,
    pub(super) list_errors: VecDeque<Option<Error>>,
    pub(super) watch_errors: VecDeque<Error>,
    pub(super) can_stream_lists: bool,
    /// Whether a streaming list ends; if not, the test sends the bookmark.
    pub(super) ends_initial_events: bool,
    pub(super) requests: Vec<String>,
}

/// A change of one object.
#[derive(Clone)]
pub(super) enum Change {
    Added(Arc<Value>),
    Modified(Arc<Value>),
    Deleted(Arc<Value>),
}

/// A page that has been asked for: the version of its list, and how many objects precede it.
pub(super) struct PageRequest {
    version: u64,
    from: usize,
    size: usize,
}

// === impl Served ===

impl<K: Object> Served<K> {
    pub(super) fn new() -> Self {
        Self {
            version: 0,
            objects: BTreeMap::new(),
            history: Vec::new(),
            compacted: 0,
            uids: 0,
            watchers: Vec::new(),
            page_size: None,
            page_delay: Duration::ZERO,
            list_errors: VecDeque::new(),
            watch_errors: VecDeque::new(),
            can_stream_lists: false,
            ends_initial_events: true,
            requests: Vec::new(),
        }
    }

    // --- changes ---

    pub(super) fn put(&mut self, mut object: Value, is_seen: bool) {
        self.version += 1;
        let name = name_of(&object);
        let before = self.objects.get(&name).cloned();
        let metadata = &mut object["metadata"];
        if metadata["uid"].is_null() {
            metadata["uid"] = match &before {
                Some(before) => before["metadata"]["uid"].clone(),
                None => self.new_uid(),
            };
        }
        metadata["resourceVersion"] = self.version.to_string().into();
        let object = Arc::new(object);
        let change = if before.is_some() { Change::Modified } else { Change::Added };
        self.apply(change(object), is_seen);
    }

    pub(super) fn delete(&mut self, name: &ObjectName, is_seen: bool) {
        if let Some(last) = self.objects.get(name) {
            let mut last = Value::clone(last);
            self.version += 1;
            last["metadata"]["resourceVersion"] = self.version.to_string().into();
            self.apply(Change::Deleted(Arc::new(last)), is_seen);
        }
    }

    pub(super) fn recreate(&mut self, name: &ObjectName, is_seen: bool) {
        if let Some(object) = self.objects.get(name) {
            let mut object = Value::clone(object);
            object["metadata"]["uid"] = self.new_uid();
            self.delete(name, is_seen);
            self.put(object, is_seen);
        }
    }

    fn new_uid(&mut self) -> Value {
        self.uids += 1;
        format!("uid-{}", self.uids).into()
    }

    fn apply(&mut self, change: Change, is_seen: bool) {
        store(&mut self.objects, &change);
        if is_seen {
            self.send(|| Ok(Sent::Change(change.clone())));
        }
        self.history.push((self.version, change, is_seen));
    }

    // --- faults ---

    pub(super) fn send<E: Into<Sent<K>>>(&mut self, event: impl Fn() -> Result<E, Error>) {
        self.watchers.retain(|watcher| watcher.send(event().map(Into::into)).is_ok());
    }

    pub(super) fn repeat(&mut self, count: usize) {
        let from = self.history.len().saturating_sub(count);
        let repeated: Vec<Change> = self.history[from..]
            .iter()
            .filter(|(.., seen)| *seen)
            .map(|(_, change, _)| change.clone())
            .collect();
        for change in repeated {
            self.send(|| Ok(Sent::Change(change.clone())));
        }
    }

    pub(super) fn compact(&mut self) {
        self.compacted = self.version;
    }

    pub(super) fn restore(&mut self, count: usize) {
        self.watchers.clear();
        self.history.truncate(self.history.len().saturating_sub(count));
        self.version = self.history.last().map_or(0, |(version, ..)| *version);
        self.compacted = self.compacted.min(self.version);
        self.objects = self.objects_at(self.version);
    }

    fn objects_at(&self, version: u64) -> BTreeMap<ObjectName, Arc<Value>> {
        let mut objects = BTreeMap::new();
        for (_, change, _) in self.history.iter().take_while(|(at, ..)| *at <= version) {
            store(&mut objects, change);
        }
        objects
    }

    // --- answers ---

    pub(super) fn begin_list(&mut self, options: &ListOptions) -> Result<PageRequest, Error> {
        self.requests.push(match (&options.continue_token, &options.version) {
            (Some(_), _) => "list next".to_owned(),
            (None, Version::Newest) => "list newest".to_owned(),
            (None, Version::NotOlderThan(version)) => format!("list >={version}"),
        });
        if let Some(Some(error)) = self.list_errors.pop_front() {
            return Err(error);
        }
        let size = self.page_size.filter(|_| options.limit.is_some()).unwrap_or(usize::MAX);
        let token = options.continue_token.as_deref().and_then(|token| token.split_once(':'));
        if let Some((version, from)) = token {
            return Ok(PageRequest { version: number(version), from: from.parse().unwrap_or(0), size });
        }
        if let Version::NotOlderThan(version) = &options.version {
            self.exists(version)?;
        }
        Ok(PageRequest { version: self.version, from: 0, size })
    }

    pub(super) fn page(&self, page: &PageRequest, stored: &Store<K>) -> Result<Page<K>, Error> {
        let PageRequest { version, from, size } = *page;
        let is_first = from == 0;
        if version < self.compacted && !is_first || version > self.version {
            return Err(status_error(410, "Expired"));
        }
        let objects = match version == self.version {
            true => None,
            false => Some(self.objects_at(version)),
        };
        let objects = objects.as_ref().unwrap_or(&self.objects);
        let page = objects.values().skip(from).take(size);
        let items = page.map(|object| Ok(Listed::of(Cached::new(decoded(object)?), stored)));
        let end = from.saturating_add(size);
        let continue_token = (end < objects.len()).then(|| format!("{version}:{end}"));
        Ok(Page {
            items: items.collect::<Result<_, Error>>()?,
            resource_version: version.to_string(),
            continue_token,
        })
    }

    pub(super) fn watch(&mut self, options: &WatchOptions) -> Result<FakeWatch<K>, Error> {
        self.requests.push(match &options.start {
            WatchStart::After(version) => format!("watch {version}"),
            WatchStart::InitialEvents(Version::Newest) => "stream newest".to_owned(),
            WatchStart::InitialEvents(Version::NotOlderThan(version)) => format!("stream >={version}"),
        });
        if let Some(error) = self.watch_errors.pop_front() {
            return Err(error);
        }
        let (sender, events) = mpsc::unbounded_channel();
        let mut first = Vec::new();
        match &options.start {
            WatchStart::After(version) => {
                let from = number(version);
                if from < self.compacted {
                    return Err(status_error(410, "Expired"));
                }
                let later = self.history.iter().filter(|(version, _, seen)| *seen && *version > from);
                first.extend(later.map(|(_, change, _)| Sent::Change(change.clone())));
            }
            WatchStart::InitialEvents(version) => {
                if let Version::NotOlderThan(version) = version {
                    self.exists(version)?;
                }
                let objects = self.objects.values();
                first.extend(objects.map(|object| Sent::Change(Change::Added(object.clone()))));
                first.extend(self.ends_initial_events.then(|| {
                    let resource_version = self.version.to_string();
                    Sent::Event(WatchEvent::Bookmark { resource_version, ends_initial_events: true })
                }));
            }
        }
        for event in first {
            drop(sender.send(Ok(event)));
        }
        self.watchers.push(sender);
        Ok(FakeWatch { events, _kind: PhantomData })
    }

    /// Fails if the source has not reached a version.
    fn exists(&self, version: &str) -> Result<(), Error> {
        if number(version) <= self.version {
            return Ok(());
        }
        let mut error = status_error(504, "Timeout");
        if let Error::Status { status, .. } = &mut error {
            let (reason, message) =
                ("ResourceVersionTooLarge".to_owned(), "Too large resource version".to_owned());
            status.causes.push(Cause { reason, message, ..Cause::default() });
        }
        Err(error)
    }
}

fn store(objects: &mut BTreeMap<ObjectName, Arc<Value>>, change: &Change) {
    match change {
        Change::Added(object) | Change::Modified(object) => {
            objects.insert(name_of(object), object.clone());
        }
        Change::Deleted(last) => {
            objects.remove(&name_of(last));
        }
    }
}

impl<K> From<WatchEvent<K>> for Sent<K> {
    fn from(event: WatchEvent<K>) -> Self {
        Self::Event(event)
    }
}

/// Decodes a change as a watch does.
pub(super) fn event_of<K: Object>(change: &Change) -> Result<WatchEvent<K>, Error> {
    Ok(match change {
        Change::Added(object) => WatchEvent::Added(decoded(object)?),
        Change::Modified(object) => WatchEvent::Modified(decoded(object)?),
        Change::Deleted(object) => WatchEvent::Deleted(decoded(object)?),
    })
}

pub(super) fn decoded<K: Object>(object: &Value) -> Result<Decoded<K>, Error> {
    decode(object.to_string().as_bytes())
        .map_err(|source| Error::Decode { request: "test".to_owned(), source })
}

pub(super) fn version_of(object: &Value) -> String {
    object["metadata"]["resourceVersion"].as_str().unwrap_or_default().to_owned()
}

fn name_of(object: &Value) -> ObjectName {
    let metadata = &object["metadata"];
    let name = metadata["name"].as_str().expect("metadata.name is missing: name the object");
    ObjectName::new(metadata["namespace"].as_str(), name)
}

fn number(text: &str) -> u64 {
    text.parse().unwrap_or(0)
}
