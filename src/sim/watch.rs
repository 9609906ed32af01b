//! Open watches: each has a position in the history and is sent the changes up to its server's cache.
//!
//! A watch that was frozen, or whose server lags, loses nothing: it resumes from its position, or ends with
//! 410 if the window has moved past it.
//!
//! A watch whose client does not read is cut once [`BUFFER`] events, beside the initial ones, are waiting
//! (test: `watch_that_is_not_read_is_cut`).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::failure::Failure;
use super::kinds::{Kind, Resource};
use super::reply::Piece;
use super::selectors::Selection;
use super::store::Change;

/// The number of events buffered for a client that does not read.
pub(super) const BUFFER: usize = 1000;
/// The interval between bookmarks.
pub(super) const BOOKMARK_PERIOD: Duration = Duration::from_secs(60);

/// How long before its end a watch gets a last bookmark.
pub(super) const LAST_BOOKMARK: Duration = Duration::from_secs(2);

/// One open watch.
#[derive(Debug)]
pub(super) struct Watcher {
    pub(super) id: u64,
    pub(super) user: String,
    pub(super) server: usize,
    pub(super) kind: Arc<Kind>,
    pub(super) version: String,
    pub(super) selection: Selection,
    pub(super) is_table: bool,
    pub(super) is_metadata: bool,
    /// The object to include in each table row (`includeObject`).
    pub(super) include: String,
    /// Everything up to this version has been sent.
    pub(super) position: u64,
    pub(super) is_frozen: bool,
    /// Its timeout has passed, perhaps while its server was frozen.
    pub(super) is_over: bool,
    /// The number of events after which a fault cuts it.
    pub(super) events_left: Option<usize>,
    pub(super) sender: mpsc::Sender<Piece>,
}

/// All open watches, by resource.
#[derive(Debug, Default)]
pub(super) struct Watchers {
    by_resource: BTreeMap<Resource, Vec<Watcher>>,
    last_id: u64,
}

// === impl Watchers ===

impl Watchers {
    pub(super) fn next_id(&mut self) -> u64 {
        self.last_id += 1;
        self.last_id
    }

    pub(super) fn add(&mut self, watcher: Watcher) {
        self.by_resource.entry(watcher.kind.resource.clone()).or_default().push(watcher);
    }

    /// Takes out the watches of a resource, to be returned by [`put_back`](Self::put_back).
    pub(super) fn take(&mut self, resource: &Resource) -> Vec<Watcher> {
        self.by_resource.get_mut(resource).map(std::mem::take).unwrap_or_default()
    }

    pub(super) fn put_back(&mut self, resource: &Resource, watchers: Vec<Watcher>) {
        self.by_resource.insert(resource.clone(), watchers);
    }

    pub(super) fn resources(&self) -> Vec<Resource> {
        self.by_resource.keys().cloned().collect()
    }

    pub(super) fn find(&mut self, id: u64) -> Option<&mut Watcher> {
        self.by_resource.values_mut().flatten().find(|watcher| watcher.id == id)
    }

    /// Ends the watches for which `is_cut` holds.
    pub(super) fn cut(&mut self, mut is_cut: impl FnMut(&Watcher) -> bool) {
        for watchers in self.by_resource.values_mut() {
            watchers.retain(|watcher| !is_cut(watcher));
        }
    }

    pub(super) fn count(&self) -> usize {
        self.by_resource.values().flatten().filter(|watcher| !watcher.sender.is_closed()).count()
    }
}

/// Converts a change to an event type, object and version for a selection, which the object may enter or leave.
pub(super) fn event_of<'a>(
    change: &'a Change,
    selection: &Selection,
) -> Option<(&'static str, &'a Value, u64)> {
    let matches = |object: &Option<Arc<Value>>| object.as_deref().is_some_and(|o| selection.matches(o));
    let (was, is) = (matches(&change.before), matches(&change.after));
    let (type_, object) = match (was, is) {
        (false, true) => ("ADDED", change.after.as_deref()?),
        (true, true) => ("MODIFIED", change.after.as_deref()?),
        (true, false) => ("DELETED", change.before.as_deref()?),
        (false, false) => return None,
    };
    Some((type_, object, change.version))
}

/// Encodes one line of a watch.
pub(super) fn line(type_: &str, object: &Value) -> Bytes {
    let mut line = format!("{{\"type\":{},\"object\":", Value::from(type_)).into_bytes();
    serde_json::to_writer(&mut line, object).expect("JSON can be written to memory");
    line.extend_from_slice(b"}\n");
    line.into()
}

/// Encodes a bookmark; `ends_initial` marks the end of a streamed list.
pub(super) fn bookmark(kind: &Kind, version: &str, at: u64, ends_initial: bool) -> Bytes {
    let mut object = json!({
        "kind": kind.kind,
        "apiVersion": kind.api_version(version),
        "metadata": {"resourceVersion": at.to_string(), "creationTimestamp": null},
    });
    if ends_initial {
        object["metadata"]["annotations"] = json!({"k8s.io/initial-events-end": "true"});
    }
    line("BOOKMARK", &object)
}

/// Encodes the 410 for a watch whose position is forgotten.
pub(super) fn gone(wanted: u64, oldest: u64) -> Bytes {
    let failure = Failure::expired(format!("too old resource version: {wanted} ({oldest})"));
    line("ERROR", &failure.status())
}
