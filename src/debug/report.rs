//! The answers of `/debug`, as types: written by the process, read by `windlass debug`.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// `/debug`: an overview.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Overview {
    pub(crate) version: String,
    /// The paths to look at.
    pub(crate) paths: Vec<String>,
    /// Absent without leader election.
    pub(crate) leader: Option<Leader>,
    /// `None` without shards.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) shards: Option<Shards>,
    pub(crate) queues: Vec<Queue>,
    pub(crate) caches: Vec<Cache>,
    pub(crate) requests_in_flight: usize,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Leader {
    pub(crate) is_leader: bool,
    /// Empty if no process leads.
    pub(crate) holder: String,
    /// Whether the last attempt to read or write the Lease failed.
    pub(crate) has_failed: bool,
}

/// The shards of this process, if it has shards.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Shards {
    /// The number of shards altogether.
    pub(crate) of: u16,
    /// What this process does with the shards that it holds.
    pub(crate) held: BTreeMap<u16, String>,
    /// Who holds each shard, as last seen; a shard that is missing has no holder.
    pub(crate) holders: Option<BTreeMap<u16, String>>,
    /// The last shards that came or went, oldest first.
    pub(crate) moves: Vec<ShardMove>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ShardMove {
    pub(crate) shard: u16,
    pub(crate) change: String,
    pub(crate) age_seconds: f64,
}

/// `/debug/stream`: all that the page shows, but the life of a key.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Snapshot {
    pub(crate) time: Timestamp,
    /// Time since `/debug` was prepared, which no change of the clock moves.
    pub(crate) uptime_seconds: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) leader: Option<Leader>,
    /// `None` without shards.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) shards: Option<Shards>,
    pub(crate) caches: Vec<Cache>,
    pub(crate) queues: Vec<Pipeline>,
    pub(crate) in_flight: usize,
    /// Those of the requests in flight that are not sent yet.
    pub(crate) held: usize,
    pub(crate) requests: Vec<Answered>,
    /// The positions of the switches; absent without switches.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) switches: Option<serde_json::Value>,
}

/// The queue of a controller with some of its keys, and the counts of its passes.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Pipeline {
    #[serde(flatten)]
    pub(crate) queue: Queue,
    /// Number of waiting keys of each priority, the highest first.
    pub(crate) by_priority: Vec<(i32, usize)>,
    pub(crate) oldest_seconds: f64,
    pub(crate) passes: Passes,
    /// The last pass of each worker.
    pub(crate) lanes: Vec<Lane>,
}

/// The last pass of a worker.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Lane {
    pub(crate) worker: usize,
    pub(crate) key: String,
    /// How long ago it ended.
    pub(crate) ended_seconds: f64,
    pub(crate) took_seconds: f64,
    pub(crate) result: String,
    pub(crate) has_failed: bool,
}

/// The passes of a controller since it started.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Passes {
    pub(crate) begun: u64,
    /// Those that have ended.
    pub(crate) count: u64,
    pub(crate) failed: u64,
    /// The sum of what the keys of all begun passes waited in the queue.
    pub(crate) waited_seconds: f64,
    pub(crate) took_seconds: f64,
}

/// The requests with one method and one answer since the start.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Answered {
    pub(crate) method: String,
    /// `ok`, a status code, or `none`.
    pub(crate) answer: String,
    pub(crate) count: u64,
}

/// A queue: its counts, and some of its keys.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Queue {
    pub(crate) controller: String,
    pub(crate) workers: usize,
    /// Why there are so many, if their number follows the load and has changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) why: Option<String>,
    pub(crate) processing: usize,
    /// Keys that wait for a worker.
    pub(crate) waiting: usize,
    /// Keys that wait for a time, including those that back off.
    pub(crate) delayed: usize,
    pub(crate) backing_off: usize,
    /// Absent in the overview; at most `limit`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) keys: Vec<Key>,
}

/// Where a key is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum KeyState {
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
pub(crate) struct Key {
    pub(crate) key: String,
    pub(crate) state: KeyState,
    /// How long it has been in this state.
    pub(crate) age_seconds: f64,
    /// When a delay or backoff ends.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) until: Option<Timestamp>,
    /// Absent while it is processed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) priority: Option<i32>,
    pub(crate) reasons: String,
    /// Failures since the last success.
    pub(crate) failures: u32,
    /// The worker that has it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) worker: Option<usize>,
    /// The requests that its pass waits for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) requests: Vec<Request>,
}

/// A request in flight.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Request {
    pub(crate) method: String,
    pub(crate) path: String,
    /// Whether it still waits for the client's limits, the server's Retry-After, or leadership.
    pub(crate) is_held: bool,
    pub(crate) age_seconds: f64,
    /// The controller and the key of the pass that made it; absent for events, audits and Leases.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) controller: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) key: Option<String>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Cache {
    /// With the namespace if the kind has a cache in each of several: `foos.samplecontroller.k8s.io in team-a`.
    pub(crate) kind: String,
    pub(crate) phase: Phase,
    /// When the next request is sent, while the reflector backs off.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) until: Option<Timestamp>,
    /// Why the kind currently cannot be listed or watched.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) trouble: Option<String>,
    pub(crate) resource_version: String,
    pub(crate) objects: usize,
    /// Lists after the first.
    pub(crate) relists: u64,
    /// Watch events, without bookmarks.
    pub(crate) events: u64,
    /// Time since the last event or bookmark; absent before the first.
    pub(crate) last_event_seconds: Option<f64>,
    /// Changes in the FIFO.
    pub(crate) queued: usize,
    pub(crate) handlers: Vec<Handler>,
}

/// What a reflector is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Phase {
    Idle,
    Listing,
    Connecting,
    Watching,
    BackingOff,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Handler {
    pub(crate) name: String,
    /// Notifications that wait for it.
    pub(crate) pending: usize,
}

/// `/debug/keys`: where a key is in each queue, and its last events.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Life {
    pub(crate) key: String,
    pub(crate) controllers: Vec<InController>,
    /// The newest events, oldest first.
    pub(crate) events: Vec<Entry>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct InController {
    pub(crate) controller: String,
    /// The version of the object in the cache; absent if there is no such object.
    pub(crate) resource_version: Option<String>,
    pub(crate) failures: u32,
    /// Empty for a key at rest.
    pub(crate) states: Vec<Key>,
}

/// An event in the life of a key.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Entry {
    /// Counts the events of the process.
    pub(crate) number: u64,
    pub(crate) time: Timestamp,
    pub(crate) controller: String,
    pub(crate) key: String,
    #[serde(flatten)]
    pub(crate) event: Event,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub(crate) enum Event {
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
