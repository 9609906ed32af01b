//! Reads the answers of `/debug` from the parts of the process. Nothing is kept between two requests.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;
use tokio::task::Id;
use tokio::time::Instant;

use super::recorder::Recorder;
use super::report::{
    self, Cache, Entry, InController, Key, KeyState, Leader, Life, Overview, Phase, Pipeline, Queue, Request,
    ShardMove, Snapshot,
};
use crate::cache::{CacheState, ObjectName, ReflectorPhase};
use crate::client::Clock;
use crate::client::shards::Shards;
use crate::controller::{ControllerView, RunningPass};
use crate::leader_election::Leadership;
use crate::workqueue::{Listed, Stage};

/// How many workers of a controller have a lane on the page.
const LANES: usize = 32;

/// The parts of the process.
pub(super) struct Process {
    pub(super) controllers: Vec<ControllerView>,
    pub(super) caches: Box<dyn Fn() -> Vec<CacheState> + Send + Sync>,
    pub(super) recorder: Arc<Recorder>,
    pub(super) leadership: Option<Leadership>,
    pub(super) shards: Option<Shards>,
    pub(super) clock: Clock,
    pub(super) started: Instant,
    /// Returns the positions of the page's switches, in a demo.
    pub(super) switches: Option<Box<dyn Fn() -> Value + Send + Sync>>,
}

/// The requests in flight of each task.
type ByTask = BTreeMap<Id, Vec<Request>>;

impl Process {
    pub(super) fn overview(&self) -> Overview {
        Overview {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            paths: [
                "/debug/queues",
                "/debug/caches",
                "/debug/requests",
                "/debug/keys?key=",
                "/debug/events?since=",
            ]
            .map(str::to_owned)
            .into(),
            leader: self.leader(),
            shards: self.shards.as_ref().map(shards),
            queues: self.controllers.iter().map(counts).collect(),
            caches: self.caches(),
            requests_in_flight: self.recorder.requests().len(),
        }
    }

    pub(super) fn leader(&self) -> Option<Leader> {
        self.leadership.as_ref().map(|leadership| Leader {
            is_leader: leadership.is_leader(),
            holder: leadership.holder(),
            has_failed: leadership.error().is_some(),
        })
    }

    /// Returns what the page shows, with at most `limit` keys per queue.
    pub(super) fn snapshot(&self, limit: usize) -> Snapshot {
        let pipeline = |(view, queue): (&ControllerView, Queue)| {
            let state = view.queue.state();
            Pipeline {
                queue,
                by_priority: state.by_priority,
                oldest_seconds: state.oldest_waiting.as_secs_f64(),
                passes: self.recorder.passes(view.name),
                lanes: self.recorder.last(view.name, LANES),
            }
        };
        let requests = self.recorder.requests();
        Snapshot {
            time: self.clock.now(),
            uptime_seconds: self.started.elapsed().as_secs_f64(),
            leader: self.leader(),
            shards: self.shards.as_ref().map(shards),
            caches: self.caches(),
            queues: self.controllers.iter().zip(self.queues(None, limit)).map(pipeline).collect(),
            in_flight: requests.len(),
            held: requests.iter().filter(|(_, request)| request.is_held).count(),
            requests: self.recorder.answered(),
            switches: self.switches.as_ref().map(|switches| switches()),
        }
    }

    /// Returns the queues with at most `limit` keys each, or with this key alone.
    pub(super) fn queues(&self, key: Option<&ObjectName>, limit: usize) -> Vec<Queue> {
        let requests = self.requests_by_task();
        let queue = |view: &ControllerView| {
            let mut keys = self.keys(view, key, limit, &requests);
            keys.sort_by(|a, b| a.state.cmp(&b.state).then(b.age_seconds.total_cmp(&a.age_seconds)));
            keys.truncate(limit);
            Queue { keys, ..counts(view) }
        };
        self.controllers.iter().map(queue).collect()
    }

    fn keys(
        &self,
        view: &ControllerView,
        key: Option<&ObjectName>,
        limit: usize,
        requests: &ByTask,
    ) -> Vec<Key> {
        let is_wanted = |pass: &RunningPass| key.is_none_or(|key| pass.key == *key);
        let passes = view.workers.passes().into_iter().filter(is_wanted);
        let passes = passes.map(|pass| processing(view, &pass, requests));
        let listed = match key {
            Some(key) => view.queue.look_up(key),
            None => view.queue.list(limit),
        };
        passes.chain(listed.into_iter().map(|listed| self.pending(view, &listed))).collect()
    }

    fn pending(&self, view: &ControllerView, listed: &Listed<ObjectName>) -> Key {
        let Listed { key, stage, priority, reasons } = listed;
        let (state, age, left) = match *stage {
            Stage::Queued { waited } => (KeyState::Waiting, waited, None),
            Stage::Processed { waited } => (KeyState::AddedWhileProcessing, waited, None),
            Stage::Delayed { waited, left } => (KeyState::Delayed, waited, Some(left)),
            Stage::BackingOff { waited, left, .. } => (KeyState::BackingOff, waited, Some(left)),
        };
        Key {
            key: key.to_string(),
            state,
            age_seconds: age.as_secs_f64(),
            until: left.map(|left| self.after(left)),
            priority: Some(*priority),
            reasons: reasons.to_string(),
            failures: view.queue.num_requeues(key),
            worker: None,
            requests: Vec::new(),
        }
    }

    /// Returns the requests in flight, oldest first, at most `limit`.
    pub(super) fn requests(&self, limit: usize) -> Vec<Request> {
        self.recorder.requests().into_iter().take(limit).map(|(_, request)| request).collect()
    }

    fn requests_by_task(&self) -> ByTask {
        let mut found = ByTask::new();
        for (task, request) in self.recorder.requests() {
            if let Some(task) = task {
                found.entry(task).or_default().push(request);
            }
        }
        found
    }

    pub(super) fn caches(&self) -> Vec<Cache> {
        let states = (self.caches)();
        let cache = |state: &CacheState| self.cache(state.name_among(&states, " in "), state.clone());
        states.iter().map(cache).collect()
    }

    fn cache(&self, kind: String, state: CacheState) -> Cache {
        let CacheState { trouble, objects, resource_version, progress, queued, handlers, .. } = state;
        let (phase, until) = match progress.phase {
            ReflectorPhase::Idle => (Phase::Idle, None),
            ReflectorPhase::Listing => (Phase::Listing, None),
            ReflectorPhase::Connecting => (Phase::Connecting, None),
            ReflectorPhase::Watching => (Phase::Watching, None),
            ReflectorPhase::BackingOff(until) => (Phase::BackingOff, Some(until)),
        };
        Cache {
            kind,
            phase,
            until: until.map(|until| self.after(until.saturating_duration_since(Instant::now()))),
            trouble,
            resource_version: resource_version.as_ref().to_owned(),
            objects,
            relists: progress.lists.saturating_sub(1),
            events: progress.events,
            last_event_seconds: progress.last_event.map(|at| at.elapsed().as_secs_f64()),
            queued,
            handlers: handlers
                .into_iter()
                .map(|handler| report::Handler { name: handler.name, pending: handler.pending })
                .collect(),
        }
    }

    /// Returns the events of all keys from this number on, at most `limit`, oldest first.
    pub(super) fn events(&self, since: u64, limit: usize) -> Vec<Entry> {
        self.recorder.events_since(since, limit)
    }

    /// Returns where a key is in each queue, and at most `limit` of its events.
    pub(super) fn life(&self, key: &ObjectName, limit: usize) -> Life {
        let requests = self.requests_by_task();
        let in_controller = |view: &ControllerView| InController {
            controller: view.name.to_owned(),
            resource_version: (view.version_of)(key),
            failures: view.queue.num_requeues(key),
            states: self.keys(view, Some(key), limit, &requests),
        };
        let is_known = |found: &InController| found.resource_version.is_some() || !found.states.is_empty();
        let text = key.to_string();
        Life {
            controllers: self.controllers.iter().map(in_controller).filter(is_known).collect(),
            events: self.recorder.life(&text, limit),
            key: text,
        }
    }

    /// Returns the wall-clock time after this duration.
    fn after(&self, left: Duration) -> Timestamp {
        let left = SignedDuration::try_from(left).ok();
        left.and_then(|left| self.clock.now().checked_add(left).ok()).unwrap_or(Timestamp::MAX)
    }
}

/// Returns the counts of a queue without its keys.
fn counts(view: &ControllerView) -> Queue {
    Queue {
        controller: view.name.to_owned(),
        workers: view.workers.count(),
        why: view.workers.why(),
        processing: view.workers.running(),
        waiting: view.queue.len(),
        delayed: view.queue.waiting(),
        backing_off: view.queue.backing_off(),
        keys: Vec::new(),
    }
}

fn processing(view: &ControllerView, pass: &RunningPass, requests: &ByTask) -> Key {
    let of_pass = pass.task.and_then(|task| requests.get(&task)).cloned();
    Key {
        key: pass.key.to_string(),
        state: KeyState::Processing,
        age_seconds: pass.since.elapsed().as_secs_f64(),
        until: None,
        priority: None,
        reasons: pass.reasons.to_string(),
        failures: view.queue.num_requeues(&pass.key),
        worker: Some(pass.worker),
        requests: of_pass.unwrap_or_default(),
    }
}

fn shards(shards: &Shards) -> report::Shards {
    let moved = |one: crate::client::shards::Move| ShardMove {
        shard: one.shard,
        change: one.change.as_label().to_owned(),
        age_seconds: one.at.elapsed().as_secs_f64(),
    };
    report::Shards {
        of: shards.of(),
        held: shards
            .phases()
            .into_iter()
            .map(|(shard, phase)| (shard, phase.as_label().to_owned()))
            .collect(),
        holders: shards.holders(),
        moves: shards.moves().into_iter().map(moved).collect(),
    }
}
