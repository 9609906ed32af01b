//! Events about objects, as `kubectl describe` shows them; recording one never blocks a sync.
//!
//! Mirrors client-go `tools/events` (`EventRecorder`, `EventBroadcaster`), the events.k8s.io/v1 side, with the
//! `EventSourceObjectSpamFilter` of `tools/record`.
//! Flow: sync handler -> **recorder** -> lane -> **correlator** -> **sink** -> API server
//!
//! # How it works
//! [`pair`] gives a recorder, which many hold, and the one sink, which its owner runs. The recorder stamps the event
//! and puts it into a bounded lane: Warnings before Normal events. The sink takes them out, has the correlator decide
//! whether an event is new, one more of a series, or too many, and writes a few at once, in a passage of their own:
//! they take no place among the writes of children and status.
//!
//! # Guarantees
//! - Recording never waits: a full lane drops its oldest Normal event. (test: `a_full_lane_drops_its_oldest_normal_event`)
//! - Warnings are written first; Normal events wait while keys are queued, 30 s at most. (test: `warnings_are_written_first`, `normal_events_wait_while_keys_are_queued`)
//! - The process writes no faster than its rate after a burst of twice that. (test: `writes_keep_the_rate`)
//! - An object gets 25 events of a type, then one in 5 min. (test: `an_object_gets_25_events_and_then_one_in_5_minutes`)
//! - Repeats become a series of the first. (test: `repeats_become_a_series`)
//! - A lost connection is tried again, an answer of the server is final; a write that hangs holds up no other.
//!   (test: `a_lost_connection_is_tried_again_and_an_answer_is_final`, `a_write_that_hangs_holds_up_no_other`)
//! - At the shutdown what is buffered is still written, each once. (test: `shutdown_writes_what_is_buffered`)
//!
//! # Differences from client-go
//! Of `tools/record` there is the spam filter alone: no aggregation of events with different notes. A series is told by
//! the note and not by the object's version: each status that we write makes another version. Everything that is dropped
//! is counted.

mod correlator;
mod counts;
mod lane;
mod sink;

use std::sync::Arc;

use jiff::Timestamp;
use tokio::sync::mpsc;

use crate::client::{ApiClient, Clock};
use counts::Counts;
pub use counts::EventCounts;
use lane::Lane;
pub use sink::EventSink;

/// How many events wait for the sink at most.
const BUFFER: usize = 1000;
/// How many events a second the process writes, unless another rate is asked for.
pub const EVENT_QPS: u32 = 50;

/// Whether somebody should look.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
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
}

/// A recorder and the sink that writes what it records through `client`, as `instance`.
#[must_use]
pub fn pair(client: ApiClient, clock: Clock, instance: String) -> (EventRecorder, EventSink) {
    let (lane, counts) = (Arc::new(Lane::new(BUFFER)), Arc::<Counts>::default());
    let sink = EventSink::new(lane.clone(), counts.clone(), client, instance);
    (EventRecorder { outlet: Outlet::Lane(lane), clock, counts }, sink)
}

/// Who writes events: the Pod's or the machine's name, and the process.
#[must_use]
pub fn instance() -> String {
    let host = std::env::var("HOSTNAME").unwrap_or_else(|_| "windlass".to_owned());
    let host: String = host.chars().take(100).collect();
    format!("{host}-{}", std::process::id())
}

// === impl EventRecorder ===

impl EventRecorder {
    /// A recorder whose events the caller takes: for tests.
    #[must_use]
    pub fn to_buffer(clock: Clock, size: usize) -> (Self, mpsc::Receiver<Event>) {
        let (sender, receiver) = mpsc::channel(size);
        (Self { outlet: Outlet::Channel(sender), clock, counts: Arc::default() }, receiver)
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
        let is_dropped = match &self.outlet {
            Outlet::Lane(lane) => lane.push(event).is_some(),
            Outlet::Channel(sender) => sender.try_send(event).is_err(),
        };
        if is_dropped {
            self.counts.dropped("too many events wait to be written");
        }
    }

    /// What has become of the events so far.
    #[must_use]
    pub fn counts(&self) -> EventCounts {
        self.counts.read()
    }

    /// Reads [`counts`](Self::counts) without keeping a recorder.
    pub fn read_counts(&self) -> impl Fn() -> EventCounts + Send + Sync + use<> {
        let counts = self.counts.clone();
        move || counts.read()
    }
}

#[cfg(test)]
mod tests;
