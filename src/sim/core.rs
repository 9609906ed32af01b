//! The server as a state machine: requests and time go in, answers and events come out.
//!
//! There is no socket, no thread, no wall clock and no randomness but the seed's: two runs with the same
//! seed and the same requests at the same times give the same trace
//! (test: `the_same_seed_gives_the_same_trace`).

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;
use tokio::sync::{mpsc, oneshot};

use super::Settings;
use super::failure::{Failure, Outcome};
use super::fault::{Action, Faults, Subject};
use super::kinds::{Catalogue, Kind, Resource};
use super::ledger::Ledger;
use super::request::{Call, MAX_BODY, Request};
use super::store::{Key, Store};
use super::watch::{self, Watchers};
use super::world::{Work, World};

/// How many warnings an answer has at most.
const MAX_WARNINGS: usize = 40;

/// Nothing is planned for later than this: ten years.
const FOREVER: Duration = Duration::from_secs(10 * 365 * 86_400);

/// What a request is answered.
#[derive(Debug)]
pub(super) enum Reply {
    /// Code, media type, headers, body.
    Whole { code: u16, media: &'static str, headers: Vec<(&'static str, String)>, body: Bytes },
    /// Lines, until the channel closes.
    Stream(mpsc::Receiver<Bytes>),
    /// Nobody listens.
    Refused,
    /// The connection breaks without an answer.
    Lost,
}

/// An answer that is JSON, with its warnings.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) code: u16,
    pub(super) body: Value,
    pub(super) warnings: Vec<String>,
}

/// Something to be done at a time.
#[derive(Debug)]
pub(super) enum Task {
    World(Work),
    Bookmark(u64),
    EndWatch(u64),
    /// A server has seen everything of a resource up to a version.
    Seen(usize, Resource, u64),
    Resume(u64),
}

/// A request that waits: for time, for its release, for a frozen server or sender.
#[derive(Debug)]
struct Held {
    ticket: u64,
    server: usize,
    request: Request,
    reply: oneshot::Sender<Reply>,
    /// Faults have had their say.
    is_past_faults: bool,
    waits_for_release: bool,
}

/// Whether a server answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Up,
    Frozen,
    Down,
}

/// One of the API servers in front of the store.
#[derive(Debug)]
pub(super) struct Server {
    state: State,
    /// What its cache has seen of a resource, where that is not everything.
    seen: BTreeMap<Resource, u64>,
    /// How late its cache is; without an entry in `seen` it is not.
    lag: Option<Duration>,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Core {
    pub(super) settings: Settings,
    now: Duration,
    pub(super) store: Store,
    pub(super) catalogue: Catalogue,
    pub(super) watchers: Watchers,
    pub(super) faults: Faults,
    pub(super) ledger: Ledger,
    pub(super) world: World,
    rng: fastrand::Rng,
    agenda: BTreeMap<(Duration, u64), Task>,
    agenda_entries: u64,
    servers: Vec<Server>,
    held: VecDeque<Held>,
    tickets: u64,
    suspended: BTreeSet<String>,
}

// === impl Core ===

impl Core {
    pub(super) fn new(settings: Settings) -> Self {
        let up = || Server { state: State::Up, seen: BTreeMap::new(), lag: None };
        let mut core = Self {
            now: Duration::ZERO,
            store: Store::new(settings.window),
            catalogue: Catalogue::new(),
            watchers: Watchers::default(),
            faults: Faults::default(),
            ledger: Ledger::default(),
            world: World::default(),
            rng: fastrand::Rng::with_seed(settings.seed),
            agenda: BTreeMap::new(),
            agenda_entries: 0,
            servers: vec![up(), up()],
            held: VecDeque::new(),
            tickets: 0,
            suspended: BTreeSet::new(),
            settings,
        };
        core.populate();
        core
    }

    // --- time ---

    /// When something is to be done next.
    pub(super) fn next_due(&self) -> Option<Duration> {
        self.agenda.first_key_value().map(|((due, _), _)| *due)
    }

    /// Lets time pass until `now`, and does what is due on the way.
    pub(super) fn advance(&mut self, now: Duration) {
        while let Some(entry) = self.agenda.first_entry() {
            let (due, _) = *entry.key();
            if due > now {
                break;
            }
            let task = entry.remove();
            self.now = self.now.max(due);
            self.perform(task);
        }
        self.now = self.now.max(now);
    }

    pub(super) fn schedule(&mut self, after: Duration, task: Task) {
        self.agenda_entries += 1;
        let due = self.now.saturating_add(after.min(FOREVER));
        self.agenda.insert((due, self.agenda_entries), task);
    }

    fn perform(&mut self, task: Task) {
        match task {
            Task::World(work) => self.work(work),
            Task::Bookmark(id) => self.send_bookmark(id),
            Task::EndWatch(id) => self.watchers.cut(|watcher| watcher.id == id),
            Task::Seen(server, resource, version) => {
                if let Some(seen) = self.servers[server].seen.get_mut(&resource) {
                    *seen = (*seen).max(version);
                    self.deliver(&resource);
                }
            }
            Task::Resume(ticket) => self.resume(|held| held.ticket == ticket),
        }
    }

    /// The time of day, to the second, as metadata carries it.
    pub(super) fn stamp(&self) -> String {
        self.stamp_in(Duration::ZERO)
    }

    pub(super) fn stamp_in(&self, after: Duration) -> String {
        let elapsed = SignedDuration::try_from(self.now + after).unwrap_or(SignedDuration::MAX);
        let time = self.settings.epoch.checked_add(elapsed).unwrap_or(Timestamp::MAX);
        time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
    }

    /// A number from the seed.
    pub(super) fn random(&mut self, below: u64) -> u64 {
        self.rng.u64(..below.max(1))
    }

    pub(super) fn new_uid(&mut self) -> String {
        let (a, b) = (self.rng.u64(..), self.rng.u64(..));
        format!(
            "{:08x}-{:04x}-4{:03x}-8{:03x}-{:012x}",
            a >> 32,
            (a >> 16) & 0xffff,
            a & 0xfff,
            (b >> 48) & 0xfff,
            b & 0xffff_ffff_ffff
        )
    }

    /// Five letters and digits, of those that make no words.
    pub(super) fn suffix(&mut self) -> String {
        const LETTERS: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
        (0..5).map(|_| char::from(LETTERS[self.rng.usize(..LETTERS.len())])).collect()
    }

    // --- requests ---

    /// Takes a request for one of the servers; the answer comes through the channel, perhaps later.
    pub(super) fn request(&mut self, server: usize, request: Request) -> oneshot::Receiver<Reply> {
        let (reply, answer) = oneshot::channel();
        self.tickets += 1;
        let ticket = self.tickets;
        let held = Held { ticket, server, request, reply, is_past_faults: false, waits_for_release: false };
        self.consider(held);
        answer
    }

    fn consider(&mut self, mut held: Held) {
        match self.servers[held.server].state {
            State::Down => return drop(held.reply.send(Reply::Refused)),
            State::Frozen => return self.held.push_back(held),
            State::Up if self.suspended.contains(&held.request.user) => return self.held.push_back(held),
            State::Up => {}
        }
        let call = if held.request.body.len() > MAX_BODY {
            Err(Failure::too_large_body())
        } else {
            held.request.call(&self.catalogue)
        };
        let mut fault = None;
        if let (Ok(Some(call)), false) = (&call, held.is_past_faults) {
            fault = self.faults.on_request(&Subject {
                verb: call.verb,
                resource: &call.kind.plural,
                subresource: &call.subresource,
                namespace: &call.namespace,
                name: &call.name,
                user: &held.request.user,
            });
        }
        match fault {
            Some(Action::Delay(delay)) => {
                held.is_past_faults = true;
                self.schedule(delay, Task::Resume(held.ticket));
                self.held.push_back(held);
            }
            Some(Action::Hold) => {
                held.is_past_faults = true;
                held.waits_for_release = true;
                self.held.push_back(held);
            }
            fault => self.carry_out(held, call, fault.as_ref()),
        }
    }

    fn carry_out(&mut self, held: Held, call: Outcome<Option<Call>>, fault: Option<&Action>) {
        let Held { server, request, reply, .. } = held;
        if matches!(fault, Some(Action::DropBefore)) {
            self.ledger.add(self.now, &request, call.ok().flatten().as_ref(), 0);
            return drop(reply.send(Reply::Lost));
        }
        let outcome = match (&call, fault) {
            (_, Some(Action::Refuse { code, reason, message, retry_after })) => {
                let failure = Failure::new(*code, reason, message.clone());
                Err(match retry_after {
                    Some(seconds) => failure.retry_after(*seconds),
                    None => failure,
                })
            }
            (Err(failure), _) => Err(failure.clone()),
            (Ok(Some(call)), _) if call.verb == "watch" => {
                self.open_watch(server, &request.user, call, fault).map(Reply::Stream)
            }
            (Ok(Some(call)), _) => self.serve(server, call).map(|answer| Reply::of(&answer)),
            (Ok(None), _) => self.serve_other(&request),
        };
        let answer = outcome.unwrap_or_else(|failure| Reply::failure(&failure));
        self.ledger.add(self.now, &request, call.ok().flatten().as_ref(), answer.code());
        let answer = if matches!(fault, Some(Action::DropAfter)) { Reply::Lost } else { answer };
        // Who has asked may be gone; what was asked is done all the same.
        drop(reply.send(answer));
    }

    /// Carries out what is no watch.
    fn serve(&mut self, server: usize, call: &Call) -> Outcome<Answer> {
        call.check_write_options()?;
        match (call.verb, call.subresource.as_str()) {
            ("get", "") => self.get(server, call),
            ("list", "") => self.list(server, call),
            ("create", "") => self.create(call),
            ("update" | "patch", "") => self.update(call),
            ("delete", "") => self.delete(call),
            ("deletecollection", "") => self.delete_collection(call),
            ("get", "status") if call.kind.serves_status(&call.version) => self.get(server, call),
            ("update" | "patch", "status") if call.kind.serves_status(&call.version) => self.update(call),
            ("get" | "update" | "patch", "scale") if call.kind.has_scale(&call.version) => self.scale(call),
            _ => Err(if call.subresource.is_empty() {
                Failure::method_not_allowed()
            } else {
                Failure::no_such_resource()
            }),
        }
    }

    // --- holding and releasing ---

    fn resume(&mut self, mut is_due: impl FnMut(&Held) -> bool) {
        let (due, rest): (VecDeque<Held>, VecDeque<Held>) =
            std::mem::take(&mut self.held).into_iter().partition(|held| is_due(held));
        self.held = rest;
        for held in due {
            self.consider(held);
        }
    }

    /// Carries out the requests that a fault holds.
    pub(super) fn release(&mut self) {
        self.resume(|held| held.waits_for_release);
    }

    pub(super) fn held(&self) -> usize {
        self.held.iter().filter(|held| held.waits_for_release).count()
    }

    pub(super) fn set_state(&mut self, server: usize, state: State) {
        self.servers[server].state = state;
        match state {
            State::Down => {
                self.watchers.cut(|watcher| watcher.server == server);
                // What it had taken and not answered is lost with it.
                self.held.retain(|held| held.server != server);
            }
            State::Up => {
                self.resume(|held| held.server == server && !held.waits_for_release);
                self.deliver_all();
            }
            State::Frozen => {}
        }
    }

    /// Stops a user's process, as SIGSTOP does: what it sends waits, what it watches waits too.
    pub(super) fn suspend(&mut self, user: &str, is_suspended: bool) {
        if is_suspended {
            self.suspended.insert(user.to_owned());
        } else {
            self.suspended.remove(user);
            self.resume(|held| held.request.user == user && !held.waits_for_release);
            self.deliver_all();
        }
    }

    pub(super) fn is_suspended(&self, user: &str) -> bool {
        self.suspended.contains(user)
    }

    pub(super) fn is_up(&self, server: usize) -> bool {
        self.servers[server].state == State::Up
    }

    // --- lagging caches ---

    /// Stops what a server's cache sees of a resource, or lets it catch up.
    pub(super) fn freeze_cache(&mut self, server: usize, resource: &Resource, is_frozen: bool) {
        let version = self.store.version();
        let seen = &mut self.servers[server].seen;
        if is_frozen {
            seen.entry(resource.clone()).or_insert(version);
        } else {
            seen.remove(resource);
            self.deliver(resource);
        }
    }

    /// Makes a server's cache late by so much, for all resources; zero ends it.
    pub(super) fn set_lag(&mut self, server: usize, lag: Duration) {
        self.servers[server].lag = (!lag.is_zero()).then_some(lag);
        if lag.is_zero() {
            self.servers[server].seen.clear();
            self.deliver_all();
        }
    }

    /// The version up to which a server's cache has seen a resource.
    pub(super) fn seen(&self, server: usize, resource: &Resource) -> u64 {
        let version = self.store.version();
        self.servers[server].seen.get(resource).copied().unwrap_or(version)
    }

    // --- changes ---

    /// Stores an object and tells everyone.
    pub(super) fn put(&mut self, kind: &Kind, object: Value) -> Arc<Value> {
        let key = key_of(&object);
        let before = self.store.version();
        let object = self.store.put(&kind.resource, key, object);
        self.changed(&kind.resource, before);
        object
    }

    /// Removes an object and tells everyone.
    pub(super) fn remove(&mut self, kind: &Kind, key: &Key) -> Option<Arc<Value>> {
        let before = self.store.version();
        let last = self.store.remove(&kind.resource, key)?;
        self.changed(&kind.resource, before);
        Some(last)
    }

    fn changed(&mut self, resource: &Resource, before: u64) {
        for server in 0..self.servers.len() {
            if let Some(lag) = self.servers[server].lag {
                self.servers[server].seen.entry(resource.clone()).or_insert(before);
                let version = self.store.version();
                self.schedule(lag, Task::Seen(server, resource.clone(), version));
            }
        }
        if let Some(change) = self.store.last_change().cloned() {
            self.react(&change);
        }
        self.deliver(resource);
    }

    pub(super) fn deliver_all(&mut self) {
        for resource in self.watchers.resources() {
            self.deliver(&resource);
        }
    }

    /// Sends a watch that it is up to date, and plans the next time.
    fn send_bookmark(&mut self, id: u64) {
        let Some(watcher) = self.watchers.find(id) else { return };
        let (server, resource, user) = (watcher.server, watcher.kind.resource.clone(), watcher.user.clone());
        let is_quiet = watcher.is_frozen || !self.is_up(server) || self.is_suspended(&user);
        let seen = self.seen(server, &resource);
        self.schedule(watch::BOOKMARK_PERIOD, Task::Bookmark(id));
        if let Some(watcher) = self.watchers.find(id).filter(|_| !is_quiet) {
            let line = watch::bookmark(&watcher.kind, &watcher.version, seen.max(watcher.position), false);
            // Who does not read is cut at the next event.
            drop(watcher.sender.try_send(line));
        }
    }
}

/// Namespace and name.
pub(super) fn key_of(object: &Value) -> Key {
    let text = |pointer| super::request::text(object, pointer).to_owned();
    (text("/metadata/namespace"), text("/metadata/name"))
}

// === impl Answer ===

impl Answer {
    pub(super) fn ok(body: Value) -> Self {
        Self { code: 200, body, warnings: Vec::new() }
    }
}

// === impl Reply ===

impl Reply {
    pub(super) fn of(answer: &Answer) -> Self {
        // Clients take only so many headers.
        let headers = answer
            .warnings
            .iter()
            .take(MAX_WARNINGS)
            .map(|text| ("warning", format!("299 - \"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))))
            .collect();
        let body = serde_json::to_vec(&answer.body).expect("JSON can be written to memory");
        Self::Whole { code: answer.code, media: "application/json", headers, body: body.into() }
    }

    pub(super) fn text(code: u16, text: impl Into<String>) -> Self {
        let body = text.into().into_bytes().into();
        Self::Whole { code, media: "text/plain; charset=utf-8", headers: Vec::new(), body }
    }

    pub(super) fn failure(failure: &Failure) -> Self {
        let (body, is_json) = failure.body();
        let mut reply = Self::text(failure.code, body);
        if let Self::Whole { media, headers, .. } = &mut reply {
            if is_json {
                *media = "application/json";
            }
            headers.extend(failure.retry_after.map(|seconds| ("retry-after", seconds.to_string())));
        }
        reply
    }

    fn code(&self) -> u16 {
        match self {
            Self::Whole { code, .. } => *code,
            Self::Stream(_) => 200,
            Self::Refused | Self::Lost => 0,
        }
    }
}
