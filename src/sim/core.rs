//! The server as a state machine: requests and time go in, answers and events come out.
//!
//! The core has no sockets, threads or wall clock, and draws all randomness from the seed: two runs with the
//! same seed and the same requests at the same times give the same trace
//! (test: `the_same_seed_gives_the_same_trace`).

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;
use tokio::sync::oneshot;

use super::Settings;
use super::absent;
use super::failure::{Failure, Outcome};
use super::fault::{Action, Faults, Subject};
use super::kinds::{Catalogue, Kind, Resource};
use super::ledger::Ledger;
use super::reply::{Answer, Reply, Trickle};
use super::request::{Call, MAX_BODY, Request};
use super::servers::{Availability, Held, Server, Waits};
use super::store::{Key, Store};
use super::watch::{self, Watchers};
use super::world::{Work, World};

/// The longest delay of a task: ten years.
const FOREVER: Duration = Duration::from_secs(10 * 365 * 86_400);

/// The letters and digits of generated names: no vowels, hence no words.
pub(super) const LETTERS: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";

/// A task on the agenda.
#[derive(Debug)]
pub(super) enum Task {
    World(Work),
    Bookmark(u64),
    EndWatch(u64),
    /// A lagging server's caches reach a version.
    Seen(usize, u64),
    Resume(u64),
    Trickle(Trickle),
}

/// The state of the server; see the module.
#[derive(Debug)]
pub(super) struct Core {
    pub(super) settings: Settings,
    pub(super) now: Duration,
    pub(super) store: Store,
    pub(super) catalogue: Catalogue,
    pub(super) watchers: Watchers,
    pub(super) faults: Faults,
    pub(super) ledger: Ledger,
    /// Faults and commands so far, with their times.
    pub(super) journal: Vec<String>,
    pub(super) world: World,
    rng: fastrand::Rng,
    pub(super) agenda: BTreeMap<(Duration, u64), Task>,
    agenda_entries: u64,
    pub(super) servers: Vec<Server>,
    /// Requests that a fault delays or holds.
    pub(super) held: VecDeque<Held>,
    /// Requests to a frozen server, or from a suspended client.
    pub(super) waiting: VecDeque<Held>,
    tickets: u64,
    pub(super) suspended: BTreeSet<String>,
}

// === impl Core ===

impl Core {
    pub(super) fn new(settings: Settings) -> Self {
        let mut core = Self::empty(settings);
        core.populate();
        core
    }

    fn empty(settings: Settings) -> Self {
        let up = || Server {
            state: Availability::Up,
            frozen: BTreeMap::new(),
            lag: None,
            began: 0,
            is_sharding: false,
        };
        Self {
            now: Duration::ZERO,
            store: Store::new(settings.window),
            catalogue: Catalogue::new(),
            watchers: Watchers::default(),
            faults: Faults::default(),
            ledger: Ledger::new(settings.ledger),
            journal: Vec::new(),
            world: World::default(),
            rng: fastrand::Rng::with_seed(settings.seed),
            agenda: BTreeMap::new(),
            agenda_entries: 0,
            servers: vec![up(), up()],
            held: VecDeque::new(),
            waiting: VecDeque::new(),
            tickets: 0,
            suspended: BTreeSet::new(),
            settings,
        }
    }

    /// Returns a copy that goes on with other random numbers, on servers that are up. Requests, watches, faults and the
    /// ledger stay here.
    #[cfg(feature = "tune")]
    pub(super) fn copy(&self, seed: u64) -> Self {
        let of_cluster = |task: &Task| match task {
            Task::World(work) => Some(Task::World(work.clone())),
            _ => None,
        };
        let agenda = self.agenda.iter().filter_map(|(due, task)| Some((*due, of_cluster(task)?)));
        Self {
            now: self.now,
            store: self.store.clone(),
            catalogue: self.catalogue.clone(),
            world: self.world.clone(),
            agenda: agenda.collect(),
            agenda_entries: self.agenda_entries,
            ..Self::empty(Settings { seed, ..self.settings })
        }
    }

    // --- time ---

    /// Returns when the next task is due.
    pub(super) fn next_due(&self) -> Option<Duration> {
        self.agenda.first_key_value().map(|((due, _), _)| *due)
    }

    /// Advances time to `now`, performing due tasks in order.
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
            Task::EndWatch(id) => self.end_watch(id),
            Task::Seen(server, version) => {
                if let Some((_, seen)) = &mut self.servers[server].lag {
                    *seen = (*seen).max(version);
                    self.deliver_all();
                }
            }
            Task::Resume(ticket) => {
                self.resume(|held| held.ticket == ticket && held.waits == Waits::Time);
            }
            Task::Trickle(rest) => self.trickle(rest),
        }
    }

    /// Returns the wall-clock time to the second, in the format of metadata.
    pub(super) fn stamp(&self) -> String {
        self.stamp_in(Duration::ZERO)
    }

    pub(super) fn stamp_in(&self, after: Duration) -> String {
        let elapsed = SignedDuration::try_from(self.now + after).unwrap_or(SignedDuration::MAX);
        let time = self.settings.epoch.checked_add(elapsed).unwrap_or(Timestamp::MAX);
        time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
    }

    /// Returns a pseudorandom number below `below`.
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

    /// Returns the random suffix of a generated name.
    pub(super) fn suffix(&mut self) -> String {
        (0..5).map(|_| char::from(LETTERS[self.rng.usize(..LETTERS.len())])).collect()
    }

    /// Records a fault or command in the journal.
    pub(super) fn note(&mut self, what: &dyn std::fmt::Display) {
        self.journal.push(format!("at {:?} {what}", self.now));
    }

    // --- requests ---

    /// Accepts a request to a server; the reply comes through the channel, perhaps later.
    pub(super) fn request(&mut self, server: usize, request: Request) -> oneshot::Receiver<Reply> {
        let (reply, answer) = oneshot::channel();
        self.tickets += 1;
        let ticket = self.tickets;
        let held = Held { ticket, server, request, reply, waits: Waits::No };
        self.consider(held);
        answer
    }

    pub(super) fn consider(&mut self, mut held: Held) {
        // A suspended client has not sent the request yet.
        let is_sent = !matches!(held.waits, Waits::No | Waits::Sender);
        if !is_sent && self.suspended.contains(&held.request.user) {
            held.waits = Waits::Sender;
            return self.waiting.push_back(held);
        }
        // A request that a fault kept has already reached the server.
        let is_under_way = matches!(held.waits, Waits::Time | Waits::Release);
        match self.servers[held.server].state {
            Availability::Down => return drop(held.reply.send(Reply::Refused)),
            Availability::Up => {}
            Availability::Frozen => {
                if !is_under_way {
                    held.waits = Waits::Thaw;
                }
                return self.waiting.push_back(held);
            }
        }
        let call = if held.request.body.len() > MAX_BODY {
            Err(Failure::too_large_body())
        } else {
            held.request.call(&self.catalogue)
        };
        let mut fault = None;
        if let (Ok(Some(call)), false) = (&call, is_under_way) {
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
                held.waits = Waits::Time;
                self.schedule(delay, Task::Resume(held.ticket));
                self.held.push_back(held);
            }
            Some(Action::Hold) => {
                held.waits = Waits::Release;
                self.held.push_back(held);
            }
            fault => self.carry_out(held, call, fault.as_ref()),
        }
    }

    fn carry_out(&mut self, held: Held, call: Outcome<Option<Call>>, fault: Option<&Action>) {
        let Held { server, request, reply, .. } = held;
        let mut call = call;
        if let (Ok(Some(call)), Some(Action::Edit(edit))) = (&mut call, fault) {
            call.edit(edit);
        }
        if matches!(fault, Some(Action::DropBefore)) {
            self.ledger.add(self.now, &request, call.ok().flatten().as_ref(), (0, 0));
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
            (_, Some(Action::Overload { retry_after })) => Ok(Reply::overloaded(*retry_after)),
            (Err(failure), _) => Err(failure.clone()),
            (Ok(Some(call)), _) if call.verb == "watch" => {
                self.open_watch(server, &request.user, call, fault).map(Reply::Stream)
            }
            (Ok(Some(call)), _) => self.serve(server, call).map(Reply::of),
            (Ok(None), _) => self.serve_other(&request),
        };
        let answer = outcome.unwrap_or_else(|failure| Reply::failure(&failure));
        self.ledger.add(self.now, &request, call.ok().flatten().as_ref(), (answer.code(), answer.size()));
        let answer = match fault {
            Some(Action::DropAfter) => Reply::Lost,
            Some(Action::FailAfter(code)) => Reply::failure(&Failure::new(
                *code,
                "",
                "the request was executed, but an injected fault reports an error",
            )),
            Some(Action::BreakBody) => answer.halved(),
            Some(Action::Trickle { bytes, every, is_endless }) => {
                let (answer, rest) = answer.trickled(server, *bytes, *every, *is_endless);
                rest.into_iter().for_each(|rest| self.trickle(rest));
                answer
            }
            _ => answer,
        };
        // The client may have gone away; the request was executed regardless.
        drop(reply.send(answer));
    }

    /// Sends the next piece of a body and schedules the one after; a frozen server sends nothing.
    fn trickle(&mut self, mut rest: Trickle) {
        let is_frozen = self.servers[rest.server].state == Availability::Frozen;
        if is_frozen || rest.send() {
            // Without a minimal delay time would never advance.
            self.schedule(rest.every.max(Duration::from_millis(1)), Task::Trickle(rest));
        }
    }

    /// Executes a request other than a watch.
    fn serve(&mut self, server: usize, call: &Call) -> Outcome<Answer> {
        call.check_write_options()?;
        if let Some(why) = absent::subresource(&call.kind, &call.subresource) {
            self.get(server, call)?;
            return Err(Failure::not_implemented(why));
        }
        match (call.verb, call.subresource.as_str()) {
            ("get", "") => self.get(server, call),
            ("list", "") => self.list(server, call),
            ("create", "") => self.create(call),
            ("update" | "patch", "") => self.update(call),
            ("delete", "") => self.delete(call),
            ("deletecollection", "") => self.delete_collection(server, call),
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

    // --- changes ---

    /// Stores an object and notifies watches and the simulated cluster.
    pub(super) fn put(&mut self, kind: &Kind, object: Value) -> Arc<Value> {
        let key = key_of(&object);
        let object = self.store.put(&kind.resource, key, object);
        self.changed(&kind.resource);
        object
    }

    /// Removes an object and notifies watches and the simulated cluster.
    pub(super) fn remove(&mut self, kind: &Kind, key: &Key) -> Option<Arc<Value>> {
        let last = self.store.remove(&kind.resource, key)?;
        self.changed(&kind.resource);
        Some(last)
    }

    fn changed(&mut self, resource: &Resource) {
        let version = self.store.version();
        for server in 0..self.servers.len() {
            if let Some((lag, _)) = self.servers[server].lag {
                self.schedule(lag, Task::Seen(server, version));
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

    /// Ends a watch that timed out; a frozen server ends it when thawed.
    fn end_watch(&mut self, id: u64) {
        let Some(watcher) = self.watchers.find(id) else { return };
        watcher.is_over = true;
        let server = watcher.server;
        if self.servers[server].state != Availability::Frozen {
            self.watchers.cut(|watcher| watcher.id == id);
        }
    }

    /// Sends a bookmark to a watch and schedules the next.
    fn send_bookmark(&mut self, id: u64) {
        // A watch whose client has gone is removed, which also ends its bookmarks.
        self.watchers.cut(|watcher| watcher.id == id && watcher.sender.is_closed());
        let Some(watcher) = self.watchers.find(id) else { return };
        let (server, resource, user) = (watcher.server, watcher.kind.resource.clone(), watcher.user.clone());
        let is_quiet = watcher.is_frozen || !self.is_up(server) || self.is_suspended(&user);
        let seen = self.seen(server, &resource);
        self.schedule(watch::BOOKMARK_PERIOD, Task::Bookmark(id));
        if let Some(watcher) = self.watchers.find(id).filter(|_| !is_quiet) {
            let line = watch::bookmark(&watcher.kind, &watcher.version, seen.max(watcher.position), false);
            // A watch with a full buffer is cut at the next event.
            drop(watcher.sender.try_send(Ok(line)));
        }
    }
}

/// Returns the namespace and name of an object.
pub(super) fn key_of(object: &Value) -> Key {
    let text = |pointer| super::request::text(object, pointer).to_owned();
    (text("/metadata/namespace"), text("/metadata/name"))
}
