//! The state of a cache: counted in place, and read by metrics and `/debug` when they are asked. Failures of list and
//! watch are logged once per change, with at most one reminder a minute.
//!
//! # Guarantees
//! - A lasting failure is logged once a minute. (test: `lasting_failure_is_logged_once_a_minute`)
//! - Each list is counted with the reason for it. (test: `lists_are_counted_by_their_reason`)
//! - An object or answer that does not decode is counted. (test: `objects_and_answers_that_do_not_decode_are_counted`)

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::api::ApiResource;
use crate::client::Error;

const REMINDER: Duration = Duration::from_secs(60);

/// What a reflector is doing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReflectorPhase {
    /// It has not started.
    #[default]
    Idle,
    /// It is listing.
    Listing,
    /// It is opening a watch.
    Connecting,
    /// A watch is open.
    Watching,
    /// It waits until this time before the next request.
    BackingOff(Instant),
}

/// Why a kind is listed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ListReason {
    /// Nothing was listed yet.
    #[default]
    First,
    /// The server no longer has the version that the watch had reached.
    Expired,
    /// The server sent an event older than the last version.
    OlderEvent,
    /// Several watches broke without an event.
    BrokenStreams,
    /// The server answered several requests for a watch with 5xx.
    Refused,
    /// [`SharedInformer::relist`](super::SharedInformer::relist) was called.
    Requested,
    /// The watch ended with another error.
    Error,
    /// The process holds other shards than before.
    Shards,
}

impl ListReason {
    /// All reasons.
    pub const ALL: [Self; 8] = [
        Self::First,
        Self::Expired,
        Self::OlderEvent,
        Self::BrokenStreams,
        Self::Refused,
        Self::Requested,
        Self::Error,
        Self::Shards,
    ];

    /// Returns the reason in one word, as a label.
    #[must_use]
    pub fn as_label(self) -> &'static str {
        match self {
            Self::First => "first",
            Self::Expired => "expired",
            Self::OlderEvent => "older_event",
            Self::BrokenStreams => "broken_streams",
            Self::Refused => "refused",
            Self::Requested => "requested",
            Self::Error => "error",
            Self::Shards => "shards",
        }
    }
}

/// A handler of an informer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct HandlerState {
    /// The handler's name; its type, without modules, unless it was given another.
    pub name: String,
    /// Number of notifications that wait for the handler.
    pub pending: usize,
    /// Number of calls that took 100 ms or longer.
    pub slow: u64,
    /// Number of calls that panicked.
    pub panics: u64,
}

/// How long the batches of a FIFO took, from the store to the buffers of the handlers.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ProcessingLatency {
    /// Number of batches up to each of [`BOUNDS`](Self::BOUNDS), and of longer ones; not cumulative.
    pub buckets: [u64; Self::BOUNDS.len() + 1],
    /// Sum of all durations in seconds.
    pub sum: f64,
}

impl ProcessingLatency {
    /// Upper bounds in seconds, as in client-go.
    pub const BOUNDS: [f64; 12] = [0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];

    fn observe(&mut self, took: Duration) {
        let seconds = took.as_secs_f64();
        let at = Self::BOUNDS.iter().position(|bound| seconds <= *bound).unwrap_or(Self::BOUNDS.len());
        self.buckets[at] += 1;
        self.sum += seconds;
    }
}

/// The progress of a reflector.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// What the reflector is doing.
    pub phase: ReflectorPhase,
    /// Number of completed lists.
    pub lists: u64,
    /// Number of completed lists by reason, in the order of [`ListReason::ALL`].
    pub lists_by_reason: [u64; ListReason::ALL.len()],
    /// Number of objects, events and lists that did not decode.
    pub decode_errors: u64,
    /// Number of watch events, without bookmarks.
    pub events: u64,
    /// When the last event or bookmark arrived.
    pub last_event: Option<Instant>,
}

/// Counts the bytes that a source has received. Cheap to clone; clones share their counts.
#[derive(Clone, Debug, Default)]
pub struct Traffic(Arc<Counts>);

#[derive(Debug, Default)]
struct Counts {
    lists: AtomicU64,
    watches: AtomicU64,
    skipped: AtomicU64,
}

/// The state of one kind's cache.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct CacheState {
    /// The informer's name.
    pub name: String,
    /// The kind.
    pub resource: ApiResource,
    /// The kind, `plural.group`.
    pub kind: String,
    /// The namespace of the objects; `None` for all.
    pub namespace: Option<String>,
    /// Whether the first list is in the store; remains true when the connection is lost later.
    pub is_synced: bool,
    /// Why the kind currently cannot be listed or watched: a status code and reason, or a description.
    pub trouble: Option<String>,
    /// Number of objects in the store.
    pub objects: usize,
    /// Version of the last change in the store; empty before the first list.
    pub resource_version: Arc<str>,
    /// The progress of the reflector.
    pub progress: Progress,
    /// Number of changes in the FIFO.
    pub queued: usize,
    /// How long the batches of the FIFO took.
    pub processing: ProcessingLatency,
    /// The bytes received.
    pub traffic: Traffic,
    /// The handlers, in the order in which they were added.
    pub handlers: Vec<HandlerState>,
}

// === impl CacheState ===

impl CacheState {
    /// Returns the kind, with the namespace after `separator` if `all` has caches of the kind in several.
    #[must_use]
    pub fn name_among(&self, all: &[Self], separator: &str) -> String {
        let is_elsewhere = |other: &Self| other.kind == self.kind && other.namespace != self.namespace;
        match &self.namespace {
            Some(namespace) if all.iter().any(is_elsewhere) => format!("{}{separator}{namespace}", self.kind),
            _ => self.kind.clone(),
        }
    }
}

/// The state of a reflector, shared with readers.
#[derive(Clone, Debug, Default)]
pub(crate) struct ReflectorHealth(Arc<Mutex<HealthParts>>);

#[derive(Debug, Default)]
struct HealthParts {
    /// Why the kind currently cannot be listed or watched.
    trouble: Option<String>,
    progress: Progress,
    processing: ProcessingLatency,
}

impl ReflectorHealth {
    pub(crate) fn trouble(&self) -> Option<String> {
        self.0.lock().trouble.clone()
    }

    pub(crate) fn progress(&self) -> Progress {
        self.0.lock().progress.clone()
    }

    pub(crate) fn processing(&self) -> ProcessingLatency {
        self.0.lock().processing.clone()
    }

    /// Records how long a batch took.
    pub(crate) fn processed(&self, took: Duration) {
        self.0.lock().processing.observe(took);
    }
}

/// Tracks and logs the failures of one kind's list and watch.
#[derive(Debug)]
pub(crate) struct Health {
    /// The kind, `plural.group`.
    kind: String,
    /// The last cause that was logged, and when.
    logged: Option<(String, Instant)>,
    shared: ReflectorHealth,
}

impl Health {
    pub(crate) fn new(kind: String, shared: ReflectorHealth) -> Self {
        Self { kind, logged: None, shared }
    }

    /// Records what the reflector is doing from now on.
    pub(crate) fn is(&self, phase: ReflectorPhase) {
        self.shared.0.lock().progress.phase = phase;
    }

    /// Records a completed list.
    pub(crate) fn listed(&self, reason: ListReason) {
        let progress = &mut self.shared.0.lock().progress;
        progress.lists += 1;
        progress.lists_by_reason[reason as usize] += 1;
    }

    /// Records objects that did not decode.
    pub(crate) fn undecodable(&self, objects: usize) {
        self.shared.0.lock().progress.decode_errors += objects as u64;
    }

    /// Records an answer that did not decode, or was too long for that.
    pub(crate) fn answered(&self, error: &Error) {
        if matches!(error, Error::Decode { .. } | Error::TooLong { .. }) {
            self.undecodable(1);
        }
    }

    /// Records a watch event.
    pub(crate) fn received(&self, is_bookmark: bool) {
        let now = Instant::now();
        let progress = &mut self.shared.0.lock().progress;
        progress.events += u64::from(!is_bookmark);
        progress.last_event = Some(now);
    }

    /// Records that a list succeeded or a watch was opened.
    pub(crate) fn works(&mut self) {
        self.shared.0.lock().trouble = None;

        if self.logged.take().is_some() {
            tracing::info!(kind = self.kind, "Listing and watching this kind works again");
        }
    }

    /// Records a failure and logs it, except lost connections: the client logs these once for all kinds.
    pub(crate) fn failed(&mut self, error: &Error, again_in: Duration) {
        let retry_seconds = again_in.as_secs();
        self.shared.0.lock().trouble = Some(cause(error));

        if error.is_connection() || !self.should_log(&cause(error), Instant::now()) {
            tracing::debug!(
                kind = self.kind,
                error = error as &dyn std::error::Error,
                retry_seconds,
                "Could not list or watch this kind; retrying"
            );
            return;
        }
        let advice = if error.is_not_found() {
            "The API server does not serve this kind: install its CRD; retrying until it is served"
        } else if error.is_forbidden() {
            "Not allowed to list and watch this kind: grant both verbs; retrying until they are granted"
        } else {
            "Could not list or watch this kind; retrying"
        };
        tracing::warn!(kind = self.kind, error = error as &dyn std::error::Error, retry_seconds, "{advice}");
    }

    /// Whether to log this failure: its cause is new, or was last logged a [`REMINDER`] ago.
    fn should_log(&mut self, cause: &str, now: Instant) -> bool {
        match &self.logged {
            Some((logged, at)) if logged == cause && now - *at < REMINDER => false,
            _ => {
                self.logged = Some((cause.to_owned(), now));
                true
            }
        }
    }
}

/// Returns what two equal failures have in common: not the message, which may contain versions and times.
fn cause(error: &Error) -> String {
    match error.status() {
        Some(status) => format!("{} {}", status.code, status.reason),
        None if error.is_connection() => "no response".to_owned(),
        None => "undecodable response".to_owned(),
    }
}

// === impl Traffic ===

impl Traffic {
    /// Returns the bytes of lists.
    #[must_use]
    pub fn of_lists(&self) -> u64 {
        self.0.lists.load(Ordering::Relaxed)
    }

    /// Returns the bytes of watches, streamed lists included.
    #[must_use]
    pub fn of_watches(&self) -> u64 {
        self.0.watches.load(Ordering::Relaxed)
    }

    /// Returns the objects and events of other shards, which a server without sharded lists and watches sends, too.
    #[must_use]
    pub fn skipped_objects(&self) -> u64 {
        self.0.skipped.load(Ordering::Relaxed)
    }

    pub(crate) fn skipped(&self) {
        self.0.skipped.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn listed(&self, bytes: usize) {
        self.0.lists.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    pub(crate) fn watched(&self, bytes: usize) {
        self.0.watches.fetch_add(bytes as u64, Ordering::Relaxed);
    }
}

impl PartialEq for Traffic {
    fn eq(&self, other: &Self) -> bool {
        (self.of_lists(), self.of_watches()) == (other.of_lists(), other.of_watches())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lasting_failure_is_logged_once_a_minute() {
        let mut health = Health::new("foos".to_owned(), ReflectorHealth::default());
        let start = Instant::now();
        let mut is_logged = |cause, seconds| health.should_log(cause, start + Duration::from_secs(seconds));
        assert!(is_logged("404", 0));
        assert!(!is_logged("404", 30));
        assert!(is_logged("403", 31));
        assert!(!is_logged("403", 90));
        assert!(is_logged("403", 91));
    }
}
