//! Records Kubernetes events, as `kubectl describe` shows them, without blocking a sync.
//!
//! Mirrors client-go `tools/events` (`EventRecorder`, `EventBroadcaster`), the events.k8s.io/v1 side, with the
//! `EventSourceObjectSpamFilter` of `tools/record`.
//! Flow: sync handler -> **recorder** -> lane -> **correlator** -> **sink** -> API server
//!
//! # How it works
//! [`pair`] returns a recorder, which can be cloned, and its one sink, which the owner runs. The recorder stamps
//! each event and puts it into a bounded lane: Warnings before Normal events. The sink takes events out, lets the
//! correlator decide whether each is new, part of a series or too many, and writes a few at once. Event writes take
//! no capacity from the writes of children and status.
//!
//! # Guarantees
//! - Recording never waits: a full lane drops its oldest Normal event.
//!   (test: `a_full_lane_drops_its_oldest_normal_event`)
//! - Warnings are written first; Normal events wait while keys are queued, 30 s at most.
//!   (test: `warnings_are_written_first`, `normal_events_wait_while_keys_are_queued`)
//! - Writes stay within the rate, after a burst of twice the rate. (test: `writes_stay_within_the_rate`)
//! - An object gets a burst of 25 events per type, then one every 5 min.
//!   (test: `spam_filter_limits_events_per_object_and_type`)
//! - Repeats of an event become a series. (test: `repeats_become_a_series`)
//! - A lost connection is retried, a response is final; a hanging write does not block others.
//!   (test: `lost_connection_is_retried_but_response_is_final`, `hanging_write_does_not_block_others`)
//! - Shutdown writes the buffered events, with one try each. (test: `shutdown_writes_the_buffered_events`)
//!
//! # Differences from client-go
//! Of `tools/record`, only the spam filter is here: events with different notes are not aggregated. A series is
//! identified by the note, not by the object's version, which every status write changes. Dropped events are
//! counted.

mod correlator;
mod counts;
mod lane;
mod sink;

use std::sync::Arc;

use jiff::Timestamp;
use kube_core::Resource;
use tokio::sync::mpsc;

use crate::api::ApiResource;
use crate::client::{ApiClient, Clock};
use counts::Counts;
pub use counts::EventCounts;
use lane::Lane;
pub use sink::EventSink;

/// How many events wait for the sink at most.
const BUFFER: usize = 1000;
/// How many events per second the process writes by default.
pub const EVENT_QPS: u32 = 50;

/// The severity of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EventType {
    /// Nothing is wrong.
    Normal,
    /// Somebody may have to act.
    Warning,
}

/// The object that an event is about.
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
    /// Uid.
    pub uid: String,
    /// Resource version of the object that was synced.
    pub resource_version: String,
}

/// One event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// The object.
    pub regarding: Regarding,
    /// Normal or Warning.
    pub event_type: EventType,
    /// The reason, in one word: `ChildCreated`.
    pub reason: &'static str,
    /// The action that was taken, in one word: `Create`.
    pub action: &'static str,
    /// A message for people.
    pub note: String,
    /// When the event was recorded.
    pub time: Timestamp,
}

impl Regarding {
    /// Returns what an event about this object names.
    #[must_use]
    pub fn of<K: Resource<DynamicType = ()>>(object: &K) -> Self {
        let (resource, meta) = (ApiResource::of::<K>(), object.meta());
        let text = |field: &Option<String>| field.clone().unwrap_or_default();
        Self {
            api_version: resource.api_version(),
            kind: resource.kind.into_owned(),
            namespace: meta.namespace.clone(),
            name: text(&meta.name),
            uid: text(&meta.uid),
            resource_version: text(&meta.resource_version),
        }
    }
}

/// Records events. Cheap to clone.
#[derive(Clone, Debug)]
pub struct EventRecorder {
    outlet: Outlet,
    clock: Clock,
    counts: Arc<Counts>,
}

/// Where events go.
#[derive(Clone, Debug)]
enum Outlet {
    /// To the sink.
    Lane(Arc<Lane>),
    /// To a test.
    Channel(mpsc::Sender<Event>),
    /// Nowhere.
    Nowhere,
}

/// Creates a recorder, and the sink that writes its events through `client` as `instance`.
#[must_use]
pub fn pair(client: ApiClient, clock: Clock, instance: String) -> (EventRecorder, EventSink) {
    let (lane, counts) = (Arc::new(Lane::new(BUFFER)), Arc::<Counts>::default());
    let sink = EventSink::new(lane.clone(), counts.clone(), client, instance);
    (EventRecorder { outlet: Outlet::Lane(lane), clock, counts }, sink)
}

/// Returns the reporting instance: the name of the Pod or machine, and the process ID.
#[must_use]
pub fn instance() -> String {
    let host = std::env::var("HOSTNAME").unwrap_or_else(|_| "windlass".to_owned());
    let host: String = host.chars().take(100).collect();
    format!("{host}-{}", std::process::id())
}

// === impl EventRecorder ===

impl EventRecorder {
    /// Creates a recorder for tests, whose events the caller receives.
    #[must_use]
    pub fn to_buffer(clock: Clock, size: usize) -> (Self, mpsc::Receiver<Event>) {
        let (sender, receiver) = mpsc::channel(size);
        (Self { outlet: Outlet::Channel(sender), clock, counts: Arc::default() }, receiver)
    }

    /// Creates a recorder that drops every event, uncounted.
    #[must_use]
    pub fn discarding(clock: Clock) -> Self {
        Self { outlet: Outlet::Nowhere, clock, counts: Arc::default() }
    }

    /// Records an event without waiting.
    pub fn event(
        &self,
        regarding: Regarding,
        event_type: EventType,
        reason: &'static str,
        action: &'static str,
        note: String,
    ) {
        let event = Event { regarding, event_type, reason, action, note, time: self.clock.now() };
        let is_dropped = match &self.outlet {
            Outlet::Lane(lane) => lane.push(event).is_some(),
            Outlet::Channel(sender) => sender.try_send(event).is_err(),
            Outlet::Nowhere => false,
        };
        if is_dropped {
            self.counts.dropped("the event buffer is full");
        }
    }

    /// Returns the counts of events so far.
    #[must_use]
    pub fn counts(&self) -> EventCounts {
        self.counts.read()
    }

    /// Returns a function that reads [`counts`](Self::counts) without keeping a recorder.
    pub fn read_counts(&self) -> impl Fn() -> EventCounts + Send + Sync + use<> {
        let counts = self.counts.clone();
        move || counts.read()
    }
}

#[cfg(test)]
mod tests;
