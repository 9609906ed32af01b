//! The answers of `/debug`, as types: written by the process, read by `windlass debug`.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// `/debug`: an overview.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Overview {
    pub(super) version: String,
    /// The paths to look at.
    pub(super) paths: Vec<String>,
    /// Absent without leader election.
    pub(super) leader: Option<Leader>,
    pub(super) queues: Vec<Queue>,
    pub(super) caches: Vec<Cache>,
    pub(super) requests_in_flight: usize,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Leader {
    pub(super) is_leader: bool,
    /// Empty if no process leads.
    pub(super) holder: String,
    /// Whether the last attempt to read or write the Lease failed.
    pub(super) has_failed: bool,
}

/// `/debug/stream`: all that the page shows, but the life of a key.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Snapshot {
    pub(super) time: Timestamp,
    /// Time since `/debug` was prepared, which no change of the clock moves.
    pub(super) uptime_seconds: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) leader: Option<Leader>,
    pub(super) caches: Vec<Cache>,
    pub(super) queues: Vec<Pipeline>,
    pub(super) in_flight: usize,
    /// Those of the requests in flight that are not sent yet.
    pub(super) held: usize,
    pub(super) requests: Vec<Answered>,
    /// The positions of the switches; absent without switches.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) switches: Option<serde_json::Value>,
}

/// The queue of a controller with some of its keys, and the counts of its passes.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Pipeline {
    #[serde(flatten)]
    pub(super) queue: Queue,
    /// Number of waiting keys of each priority, the highest first.
    pub(super) by_priority: Vec<(i32, usize)>,
    pub(super) oldest_seconds: f64,
    pub(super) passes: Passes,
    /// The last pass of each worker.
    pub(super) lanes: Vec<Lane>,
}

/// The last pass of a worker.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Lane {
    pub(super) worker: usize,
    pub(super) key: String,
    /// How long ago it ended.
    pub(super) ended_seconds: f64,
    pub(super) took_seconds: f64,
    pub(super) result: String,
    pub(super) has_failed: bool,
}

/// The passes of a controller since it started.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Passes {
    pub(super) begun: u64,
    /// Those that have ended.
    pub(super) count: u64,
    pub(super) failed: u64,
    /// The sum of what the keys of all begun passes waited in the queue.
    pub(super) waited_seconds: f64,
    pub(super) took_seconds: f64,
}

/// The requests with one method and one answer since the start.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Answered {
    pub(super) method: String,
    /// `ok`, a status code, or `none`.
    pub(super) answer: String,
    pub(super) count: u64,
}

/// A queue: its counts, and some of its keys.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Queue {
    pub(super) controller: String,
    pub(super) workers: usize,
    pub(super) processing: usize,
    /// Keys that wait for a worker.
    pub(super) waiting: usize,
    /// Keys that wait for a time, including those that back off.
    pub(super) delayed: usize,
    pub(super) backing_off: usize,
    /// Absent in the overview; at most `limit`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) keys: Vec<Key>,
}

/// Where a key is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum KeyState {
    /// A worker has it.
    Processing,
    /// It was added while a worker has it, and is queued again afterwards.
    AddedWhileProcessing,
    /// It waits for a worker.
    Waiting,
    /// It has failed, and waits for the end of its backoff.
    BackingOff,
    /// It waits for a time without having failed.
    Delayed,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Key {
    pub(super) key: String,
    pub(super) state: KeyState,
    /// How long it has been in this state.
    pub(super) age_seconds: f64,
    /// When a delay or backoff ends.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) until: Option<Timestamp>,
    /// Absent while it is processed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) priority: Option<i32>,
    pub(super) reasons: String,
    /// Failures since the last success.
    pub(super) failures: u32,
    /// The worker that has it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) worker: Option<usize>,
    /// The requests that its pass waits for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) requests: Vec<Request>,
}

/// A request in flight.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Request {
    pub(super) method: String,
    pub(super) path: String,
    /// Whether it still waits for the client's limits, the server's Retry-After, or leadership.
    pub(super) is_held: bool,
    pub(super) age_seconds: f64,
    /// The controller and the key of the pass that made it; absent for events, audits and Leases.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) controller: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) key: Option<String>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Cache {
    pub(super) kind: String,
    pub(super) phase: Phase,
    /// When the next request is sent, while the reflector backs off.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) until: Option<Timestamp>,
    /// Why the kind currently cannot be listed or watched.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) trouble: Option<String>,
    pub(super) resource_version: String,
    pub(super) objects: usize,
    /// Lists after the first.
    pub(super) relists: u64,
    /// Watch events, without bookmarks.
    pub(super) events: u64,
    /// Time since the last event or bookmark; absent before the first.
    pub(super) last_event_seconds: Option<f64>,
    /// Changes in the FIFO.
    pub(super) queued: usize,
    pub(super) handlers: Vec<Handler>,
}

/// What a reflector is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum Phase {
    Idle,
    Listing,
    Connecting,
    Watching,
    BackingOff,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Handler {
    pub(super) name: String,
    /// Notifications that wait for it.
    pub(super) pending: usize,
}

/// `/debug/keys`: where a key is in each queue, and its last events.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Life {
    pub(super) key: String,
    pub(super) controllers: Vec<InController>,
    /// The newest events, oldest first.
    pub(super) events: Vec<Entry>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct InController {
    pub(super) controller: String,
    /// The version of the object in the cache; absent if there is no such object.
    pub(super) resource_version: Option<String>,
    pub(super) failures: u32,
    /// Empty for a key at rest.
    pub(super) states: Vec<Key>,
}

/// An event in the life of a key.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Entry {
    /// Counts the events of the process.
    pub(super) number: u64,
    pub(super) time: Timestamp,
    pub(super) controller: String,
    pub(super) key: String,
    #[serde(flatten)]
    pub(super) event: Event,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub(super) enum Event {
    /// A worker took the key.
    Began {
        worker: usize,
        reasons: String,
        priority: i32,
        waited_seconds: f64,
        /// The version of the object in the cache; absent if there is no such object.
        resource_version: Option<String>,
    },
    /// The caches did not show the key's own writes yet.
    Held,
    /// A request of the pass ended.
    Request {
        method: String,
        path: String,
        /// `ok`, a status code, or `none`.
        answer: String,
        took_seconds: f64,
        /// The part of that time before the request was sent.
        held_seconds: f64,
    },
    /// The pass ended.
    Ended {
        worker: usize,
        took_seconds: f64,
        /// `Done`, `RequeueAfter`, `Deferred`, `WaitForUser`, or the class of the failure.
        result: String,
        has_failed: bool,
        /// Code and reason of the server, if it caused the failure.
        status: Option<String>,
        /// Kinds and names, in order.
        writes: Vec<String>,
        failures: u32,
        /// Time until the next pass, if one is due.
        next_seconds: Option<f64>,
    },
}
