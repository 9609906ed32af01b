//! Watches: each has a position in the history and is sent what lies between it and what its server has seen.
//!
//! So a watch that is frozen, or whose server lags, loses nothing: it goes on from its position, or is told
//! 410 when the window has moved past it.
//!
//! A watch that does not read is cut: beside what there was at its beginning, its channel holds [`BUFFER`]
//! events and no more.

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

/// How many events wait for a watcher that does not read.
pub(super) const BUFFER: usize = 1000;
/// How often a watch hears that it is up to date.
pub(super) const BOOKMARK_PERIOD: Duration = Duration::from_secs(60);

/// How long before its end a watch hears that once more.
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
    /// What a table's rows carry.
    pub(super) include: String,
    /// Everything up to this version has been sent.
    pub(super) position: u64,
    pub(super) is_frozen: bool,
    /// Its time has come, while its server was frozen.
    pub(super) is_over: bool,
    /// Ends after so many more events.
    pub(super) events_left: Option<usize>,
    pub(super) sender: mpsc::Sender<Piece>,
}

/// All open watches, by what they watch.
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

    /// The watches of a resource, to be worked on and put back.
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

/// What a change means to one watch: an event's type and object. A change may bring an object into the
/// selection, or take it out.
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

/// One line of a watch.
pub(super) fn line(type_: &str, object: &Value) -> Bytes {
    let mut line = format!("{{\"type\":{},\"object\":", Value::from(type_)).into_bytes();
    serde_json::to_writer(&mut line, object).expect("JSON can be written to memory");
    line.extend_from_slice(b"}\n");
    line.into()
}

/// A bookmark; `ends_initial` marks the end of a streamed list.
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

/// What a watch is told whose position is forgotten.
pub(super) fn gone(wanted: u64, oldest: u64) -> Bytes {
    let failure = Failure::expired(format!("too old resource version: {wanted} ({oldest})"));
    line("ERROR", &failure.status())
}
