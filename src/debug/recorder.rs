//! Records what cannot be read from the parts: requests in flight, and the last events of keys.
//!
//! Flow: workers, client -> **recorder** -> process -> `/debug`
//!
//! A request belongs to the sync of the task that makes it. Of an event only names, numbers, codes and reasons are
//! kept. Passes and requests are also counted, for the page.
//!
//! # Guarantees
//! - A request is shown with the sync that made it (test: `request_is_shown_with_its_pass`)
//! - At most [`EVENTS_MAX`] events are kept, the newest (test: `recorder_keeps_the_newest_events`)

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::task::Id;
use tokio::time::Instant;

use super::report::{Answered, Entry, Event, Lane, Passes, Request};
use crate::cache::ObjectName;
use crate::client::{Answer, Clock, RequestObserver};
use crate::controller::{ControllerView, Outcome, PassEnd, PassFailure, PassObserver};
use crate::workqueue::{Reasons, Stage};

/// How many events are kept.
pub(super) const EVENTS_MAX: usize = 8192;

/// See the module.
#[derive(Debug)]
pub(super) struct Recorder {
    clock: Clock,
    state: Mutex<Recording>,
}

#[derive(Debug, Default)]
struct Recording {
    events: VecDeque<Entry>,
    /// Number of events so far.
    recorded: u64,
    /// The sync that each task makes.
    passes: HashMap<Id, (&'static str, ObjectName)>,
    requests: BTreeMap<u64, Pending>,
    /// Number of requests so far.
    asked: u64,
    /// The syncs of each controller.
    passes_of: BTreeMap<&'static str, Passes>,
    /// The last sync of each worker.
    last: BTreeMap<(&'static str, usize), LastPass>,
    /// Number of requests by method and answer.
    answered: BTreeMap<(String, String), u64>,
}

#[derive(Debug)]
struct LastPass {
    key: ObjectName,
    ended: Instant,
    took: Duration,
    result: &'static str,
    has_failed: bool,
}

#[derive(Debug)]
struct Pending {
    method: String,
    path: String,
    began: Instant,
    sent: Option<Instant>,
    pass: Option<(&'static str, ObjectName)>,
    task: Option<Id>,
}

/// Tells the recorder about the syncs of one controller.
#[derive(Debug)]
pub(super) struct OfController {
    recorder: Arc<Recorder>,
    view: ControllerView,
}

// === impl Recorder ===

impl Recorder {
    pub(super) fn new(clock: Clock) -> Self {
        Self { clock, state: Mutex::default() }
    }

    /// Returns the newest events of this key, at most `max`, oldest first.
    pub(super) fn life(&self, key: &str, max: usize) -> Vec<Entry> {
        let state = self.state.lock();
        let mut found: Vec<Entry> =
            state.events.iter().rev().filter(|entry| entry.key == key).take(max).cloned().collect();
        found.reverse();
        found
    }

    /// Returns the oldest events from this number on, at most `max`.
    pub(super) fn events_since(&self, number: u64, max: usize) -> Vec<Entry> {
        let state = self.state.lock();
        let from = state.events.partition_point(|entry| entry.number < number);
        state.events.range(from..).take(max).cloned().collect()
    }

    /// Returns the requests in flight, oldest first, each with its task.
    pub(super) fn requests(&self) -> Vec<(Option<Id>, Request)> {
        let state = self.state.lock();
        state.requests.values().map(|pending| (pending.task, pending.shown())).collect()
    }

    /// Returns the counts of a controller's syncs.
    pub(super) fn passes(&self, controller: &str) -> Passes {
        self.state.lock().passes_of.get(controller).cloned().unwrap_or_default()
    }

    /// Returns the last syncs of this controller's first workers, up to `max`.
    pub(super) fn last(&self, controller: &'static str, max: usize) -> Vec<Lane> {
        let state = self.state.lock();
        let lane = |(&(_, worker), last): (&(&'static str, usize), &LastPass)| Lane {
            worker,
            key: last.key.to_string(),
            ended_seconds: last.ended.elapsed().as_secs_f64(),
            took_seconds: last.took.as_secs_f64(),
            result: last.result.to_owned(),
            has_failed: last.has_failed,
        };
        state.last.range((controller, 0)..(controller, max)).map(lane).collect()
    }

    /// Returns the counts of answered requests, by method and answer.
    pub(super) fn answered(&self) -> Vec<Answered> {
        let state = self.state.lock();
        let answered = state.answered.iter().map(|((method, answer), count)| Answered {
            method: method.clone(),
            answer: answer.clone(),
            count: *count,
        });
        answered.collect()
    }

    fn record(&self, controller: &str, key: &ObjectName, event: Event) {
        let time = self.clock.now();
        let mut state = self.state.lock();
        let number = state.recorded;
        state.recorded += 1;
        let entry = Entry { number, time, controller: controller.to_owned(), key: key.to_string(), event };
        if state.events.len() == EVENTS_MAX {
            state.events.pop_front();
        }
        state.events.push_back(entry);
    }
}

impl Pending {
    fn shown(&self) -> Request {
        Request {
            method: self.method.clone(),
            path: self.path.clone(),
            is_held: self.sent.is_none(),
            age_seconds: self.began.elapsed().as_secs_f64(),
            controller: self.pass.as_ref().map(|(controller, _)| (*controller).to_owned()),
            key: self.pass.as_ref().map(|(_, key)| key.to_string()),
        }
    }
}

impl RequestObserver for Recorder {
    fn began(&self, method: &str, path: &str) -> u64 {
        let task = tokio::task::try_id();
        let (method, path) = (method.to_owned(), path.to_owned());
        let mut state = self.state.lock();
        let pass = task.and_then(|task| state.passes.get(&task).cloned());
        let id = state.asked;
        state.asked += 1;
        state.requests.insert(id, Pending { method, path, began: Instant::now(), sent: None, pass, task });
        id
    }

    fn sent(&self, id: u64) {
        if let Some(pending) = self.state.lock().requests.get_mut(&id) {
            pending.sent = Some(Instant::now());
        }
    }

    fn ended(&self, id: u64, answer: Answer) {
        let answer = match answer {
            Answer::Success => "ok".to_owned(),
            Answer::Code(code) => code.to_string(),
            Answer::None => "none".to_owned(),
        };
        let pending = {
            let mut state = self.state.lock();
            let Some(pending) = state.requests.remove(&id) else { return };
            *state.answered.entry((pending.method.clone(), answer.clone())).or_default() += 1;
            pending
        };
        let Some((controller, key)) = &pending.pass else { return };
        let took = pending.began.elapsed();
        let held = pending.sent.map_or(took, |sent| sent - pending.began);
        self.record(
            controller,
            key,
            Event::Request {
                answer,
                took_seconds: took.as_secs_f64(),
                held_seconds: held.as_secs_f64(),
                method: pending.method,
                path: pending.path,
            },
        );
    }
}

// === impl OfController ===

impl OfController {
    pub(super) fn new(recorder: Arc<Recorder>, view: ControllerView) -> Self {
        Self { recorder, view }
    }

    /// Returns the time until the next sync of a key, if one is due.
    fn next(&self, key: &ObjectName) -> Option<Duration> {
        let left = |stage: &Stage| match stage {
            Stage::Delayed { left, .. } | Stage::BackingOff { left, .. } => *left,
            Stage::Queued { .. } | Stage::Processed { .. } => Duration::ZERO,
        };
        self.view.queue.look_up(key).iter().map(|listed| left(&listed.stage)).min()
    }
}

impl PassObserver for OfController {
    fn began(&self, worker: usize, key: &ObjectName, reasons: &Reasons, priority: i32, waited: Duration) {
        {
            let mut state = self.recorder.state.lock();
            if let Some(task) = tokio::task::try_id() {
                state.passes.insert(task, (self.view.name, key.clone()));
            }
            let passes = state.passes_of.entry(self.view.name).or_default();
            passes.begun += 1;
            passes.waited_seconds += waited.as_secs_f64();
        }
        let event = Event::Began {
            worker,
            reasons: reasons.to_string(),
            priority,
            waited_seconds: waited.as_secs_f64(),
            resource_version: (self.view.version_of)(key),
        };
        self.recorder.record(self.view.name, key, event);
    }

    fn held(&self, key: &ObjectName) {
        self.recorder.record(self.view.name, key, Event::Held);
    }

    fn ended(&self, worker: usize, key: &ObjectName, end: PassEnd) {
        let PassEnd { took, result, writes } = end;
        {
            let mut state = self.recorder.state.lock();
            if let Some(task) = tokio::task::try_id() {
                state.passes.remove(&task);
            }
            let passes = state.passes_of.entry(self.view.name).or_default();
            passes.count += 1;
            passes.failed += u64::from(result.is_err());
            passes.took_seconds += took.as_secs_f64();
            let last = LastPass {
                key: key.clone(),
                ended: Instant::now(),
                took,
                result: name(&result),
                has_failed: result.is_err(),
            };
            state.last.insert((self.view.name, worker), last);
        }
        let status = result.as_ref().err().and_then(|failure| failure.status.as_ref());
        let event = Event::Ended {
            worker,
            took_seconds: took.as_secs_f64(),
            result: name(&result).to_owned(),
            has_failed: result.is_err(),
            status: status.map(|(code, reason)| format!("{code} {reason}")),
            writes: writes.iter().map(|(kind, name)| format!("{kind} {name}")).collect(),
            failures: self.view.queue.num_requeues(key),
            next_seconds: self.next(key).map(|next| next.as_secs_f64()),
        };
        self.recorder.record(self.view.name, key, event);
    }
}

fn name(result: &Result<Outcome, PassFailure>) -> &'static str {
    match result {
        Ok(Outcome::Done) => "Done",
        Ok(Outcome::RequeueAfter(_)) => "RequeueAfter",
        Ok(Outcome::Deferred(_)) => "Deferred",
        Ok(Outcome::WaitForUser { .. }) => "WaitForUser",
        Err(failure) => failure.retry.as_label(),
    }
}
