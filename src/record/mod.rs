//! Events about objects, as `kubectl describe` shows them; recording one never blocks a sync.
//!
//! Mirrors client-go `tools/events` (`EventRecorder`, `EventBroadcaster`), the events.k8s.io/v1 side.
//! Flow: sync handler -> **recorder** -> buffer -> **sink** -> API server
//!
//! # How it works
//! [`pair`] gives a recorder, which many hold, and the one sink, which its owner runs. The recorder
//! stamps the event and puts it into a bounded buffer; the sink writes one after the other.
//!
//! # Guarantees
//! - Recording never waits: when the buffer is full the event is dropped and counted. (test: `a_full_buffer_drops_and_counts`)
//! - A lost connection is tried again, an answer of the server is final. (test: `a_lost_connection_is_tried_again_and_an_answer_is_final`)
//! - At the shutdown what is buffered is still written, each once. (test: `shutdown_writes_what_is_buffered`)
//!
//! # Differences from client-go
//! No correlation yet: each record is one event. Dropped events are counted.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::api::{ApiResource, labels};
use crate::client::{ApiClient, Clock};

/// How many events wait for the sink at most.
const BUFFER: usize = 1000;
/// How often an event is tried when the server cannot be reached, and how long to wait in between.
const TRIES: u32 = 12;
const RETRY: Duration = Duration::from_secs(10);
/// The longest note that the API server takes, in bytes.
const NOTE_MAX: usize = 1024;

/// The longest part of an object's name in an event's name: 253 less a dot and 16 digits.
const NAME_MAX: usize = 236;

const EVENTS: ApiResource = ApiResource::new("events.k8s.io", "v1", "Event", "events");

/// Whether somebody should look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventType {
    /// All is well.
    Normal,
    /// Something may need a person.
    Warning,
}

/// What an event is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Regarding {
    /// `group/version`.
    pub api_version: String,
    /// Kind.
    pub kind: String,
    /// Namespace; cluster-scoped objects have none, and their events go to `default`.
    pub namespace: Option<String>,
    /// Name.
    pub name: String,
    /// The object's one life.
    pub uid: String,
    /// The version that was looked at.
    pub resource_version: String,
}

/// One event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// What it is about.
    pub regarding: Regarding,
    /// Normal or Warning.
    pub event_type: EventType,
    /// Why, in one word: `ChildCreated`.
    pub reason: &'static str,
    /// What was being done, in one word: `Create`.
    pub action: &'static str,
    /// For a person.
    pub note: String,
    /// When.
    pub time: Timestamp,
}

/// Records events. Cheap to clone.
#[derive(Clone, Debug)]
pub struct EventRecorder {
    buffer: mpsc::Sender<Event>,
    clock: Clock,
    dropped: Arc<AtomicU64>,
}

/// Writes them; its owner runs it.
#[derive(Debug)]
pub struct EventSink {
    buffer: mpsc::Receiver<Event>,
    client: ApiClient,
    /// Who writes: the host, or the Pod.
    instance: String,
    /// The last name's number, so that two events of one moment have two names.
    last_stamp: AtomicI64,
}

/// A recorder and the sink that writes what it records through `client`, as `instance`.
#[must_use]
pub fn pair(client: ApiClient, clock: Clock, instance: String) -> (EventRecorder, EventSink) {
    let (recorder, buffer) = EventRecorder::to_buffer(clock, BUFFER);
    (recorder, EventSink { buffer, client, instance, last_stamp: AtomicI64::new(0) })
}

// === impl EventRecorder ===

impl EventRecorder {
    /// A recorder whose events the caller takes: for tests.
    #[must_use]
    pub fn to_buffer(clock: Clock, size: usize) -> (Self, mpsc::Receiver<Event>) {
        let (sender, receiver) = mpsc::channel(size);
        (Self { buffer: sender, clock, dropped: Arc::default() }, receiver)
    }

    /// Records an event, without waiting.
    pub fn event(
        &self,
        regarding: Regarding,
        event_type: EventType,
        reason: &'static str,
        action: &'static str,
        note: String,
    ) {
        let event = Event { regarding, event_type, reason, action, note, time: self.clock.now() };
        if let Err(error) = self.buffer.try_send(event) {
            self.dropped.fetch_add(1, Ordering::Relaxed);
            tracing::warn!(reason, error = &error as &dyn std::error::Error, "Dropped an event");
        }
    }

    /// How many events were dropped because the buffer was full.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }
}

// === impl EventSink ===

impl EventSink {
    /// Writes events until `shutdown`, then what is buffered, each with one try.
    ///
    /// # Cancel safety
    /// Not cancel-safe: end it by the token.
    pub async fn run(mut self, shutdown: CancellationToken) {
        loop {
            let event = tokio::select! {
                biased;
                event = self.buffer.recv() => event,
                () = shutdown.cancelled() => break,
            };
            match event {
                Some(event) => self.write(&event, &shutdown).await,
                None => return,
            }
        }
        self.buffer.close();
        while let Some(event) = self.buffer.recv().await {
            self.write(&event, &shutdown).await;
        }
    }

    async fn write(&self, event: &Event, shutdown: &CancellationToken) {
        let namespace = event.regarding.namespace.as_deref().unwrap_or("default");
        let body = self.body(event, namespace);
        for attempt in 1..=TRIES {
            let Err(error) = self.client.create::<Value>(&EVENTS, Some(namespace), &body).await else {
                return;
            };
            if error.is_already_exists() && attempt > 1 {
                return; // an earlier try got there, and only its answer was lost
            }
            let last = attempt == TRIES || shutdown.is_cancelled();
            if !error.is_connection() || last {
                let error = &error as &dyn std::error::Error;
                tracing::warn!(reason = event.reason, attempt, error, "Could not write an event");
                return;
            }
            tokio::select! {
                biased;
                () = shutdown.cancelled() => {}
                () = tokio::time::sleep(RETRY) => {}
            }
        }
    }

    fn body(&self, event: &Event, namespace: &str) -> Value {
        let stamp = i64::try_from(event.time.as_nanosecond()).unwrap_or(i64::MAX);
        let last = self.last_stamp.fetch_max(stamp, Ordering::Relaxed);
        let stamp = if last >= stamp { self.last_stamp.fetch_add(1, Ordering::Relaxed) + 1 } else { stamp };
        let Regarding { api_version, kind, name, uid, resource_version, .. } = &event.regarding;
        json!({
            "apiVersion": EVENTS.api_version(),
            "kind": EVENTS.kind,
            "metadata": {"name": format!("{}.{stamp:x}", shortened(name)), "namespace": namespace},
            "eventTime": format!("{:.6}", event.time),
            "reportingController": labels::MANAGER,
            "reportingInstance": self.instance,
            "type": match event.event_type { EventType::Normal => "Normal", EventType::Warning => "Warning" },
            "reason": event.reason,
            "action": event.action,
            "note": cut(&event.note),
            "regarding": {
                "apiVersion": api_version,
                "kind": kind,
                "namespace": event.regarding.namespace,
                "name": name,
                "uid": uid,
                "resourceVersion": resource_version,
            },
        })
    }
}

/// The part of an object's name that leaves room for the stamp in the event's, and ends as a name may.
fn shortened(name: &str) -> &str {
    name[..name.len().min(NAME_MAX)].trim_end_matches(['.', '-'])
}

fn cut(note: &str) -> &str {
    let end = (0..=NOTE_MAX.min(note.len())).rev().find(|&i| note.is_char_boundary(i)).unwrap_or(0);
    &note[..end]
}

#[cfg(test)]
mod tests;
