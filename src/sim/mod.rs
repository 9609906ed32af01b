//! An embedded API server: enough of kube-apiserver, and of what stands behind it, to run an operator
//! against it. It serves the demo, learners who want to step through list and watch, and tests that need
//! whole-system runs in milliseconds. It is a stand-in for these uses and claims no more: wherever it differs
//! from a real server in something that it serves, it is wrong.
//!
//! ```text
//!  kube_client::Client ─▶ InProcessTransport (tower service) ─┐            ┌─ Store: objects, versions, a window of changes
//!  kubectl, operators ─▶ http (TLS, tokens) ────┴─▶ Core ────┼─ Watchers
//!                                            faults ┘  ▲     └─ World: collector, workloads, Pods, quotas
//!                                                time ─┘
//! ```
//!
//! | part | plays |
//! |---|---|
//! | `core` | the state machine: requests and time in, answers and events out |
//! | `store`, `watch` | etcd and the watch cache |
//! | `servers` | the two API servers, and requests that wait |
//! | `read`, `watching`, `write`, `body`, `scale`, `delete`, `patch`, `meta` | the verbs |
//! | `builtin`, `custom` | the rules of each kind |
//! | `discovery`, `openapi`, `table`, `review` | what kubectl asks for |
//! | `world` | controllers, scheduler, kubelets |
//! | `fault`, `ledger` | what goes wrong, and who asked what |
//! | `transport` | the way in for a client in the same process |
//! | `http` | the way in over a socket |
//!
//! # What it promises
//! - The same seed gives the same trace (test: `the_same_seed_gives_the_same_trace`)
//! - Versions mean what they mean on a real server (test: `versions_mean_what_they_mean_on_a_real_server`)
//! - History is bounded, and 410 is real (test: `a_past_version_is_what_it_was_until_it_is_forgotten`, `a_watch_resumes_and_is_reported_410_when_it_cannot`, `a_continue_token_lasts_five_minutes`)
//! - A watch that has missed nothing goes on (test: `an_open_watch_is_reported_410_only_when_it_has_missed_something`)
//! - A write that changes nothing keeps the version (test: `a_write_that_changes_nothing_keeps_the_version`)
//! - A deletion has two phases where a finalizer asks for it (test: `a_finalizer_makes_a_deletion_two_phases`)
//! - Bad input names its field, and nothing makes it panic (test: `bad_input_names_its_field`, `no_request_makes_it_panic`)
//! - A watcher that does not read is cut (test: `a_watcher_that_does_not_read_is_cut`)
//! - A fault meets what it is for, and prints as what can be read again (test: `a_fault_meets_the_nth_match_only_and_is_printed`)
//! - Faults of requests do what they say (test: `a_request_is_dropped_before_or_after_it_is_applied`, `a_request_is_delayed_or_held_until_it_is_released`)
//! - Faults of watches do what they say (test: `a_watch_is_cut_after_some_events_or_freezes`, `an_event_is_skipped_repeated_or_broken`)
//! - Faults of servers do what they say (test: `a_server_stops_starts_freezes_and_thaws`, `a_second_servers_cache_is_late_or_frozen`, `a_servers_cache_freezes_at_an_earlier_version`)
//! - What is misspelt writes nothing (test: `what_is_misspelt_writes_nothing`)
//! - Owners, and what waits for them, are followed (test: `the_collector_follows_owners`)
//! - Over a socket only who has a token is let in (test: `without_its_token_the_server_says_401`)
//! - A real server answers alike (test: `generated_sequences_are_answered_alike`)
//!
//! # Not as a real server
//! - No server-side apply (415), no `managedFields`, no protobuf (415), no admission webhooks, no RBAC: whoever is
//!   let in may do all, but for what a fault refuses.
//! - Autoscalers have one version, autoscaling/v2. The controllers of the small world write no events.
//! - It checks less of Pods and Deployments than a real server; see `builtin/pods.rs`.
//! - CEL: types and costs are not checked when a definition is created; see `custom/rules.rs`.
//! - Quantities are kept as they are written. Pods get no volume with a token.
//! - An object may have 1.5 MiB of JSON; where a real server stores protobuf it takes a little more.
//! - Defaults that a definition gains are not applied to what is stored already.
//! - A list over all namespaces is in the order of (namespace, name); etcd's keys put `team-a` before `team`.
//! - A list of a version that the server's cache has not seen is refused at once, not after 3 s.
//! - Messages about a body that does not decode are worded by this program's decoder.

mod body;
mod builtin;
mod core;
mod custom;
mod delete;
mod discovery;
mod duplicates;
mod failure;
mod fault;
mod http;
mod kinds;
mod ledger;
mod meta;
mod openapi;
mod patch;
mod read;
mod reply;
mod request;
mod review;
mod scale;
mod selectors;
mod servers;
mod store;
mod table;
#[cfg(test)]
mod tests;
mod transport;
mod watch;
mod watching;
mod world;
mod write;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use parking_lot::Mutex;
use serde_json::Value;
use tokio::sync::{Notify, oneshot};
use tokio::time::Instant;

pub use self::http::{HttpError, HttpServer};
pub use fault::{Action, Fault, FaultId, When};
pub use ledger::LedgerEntry;
#[cfg(test)]
pub(crate) use patch::strategic_merge;
pub use request::Request;
pub use transport::{ConnectionError, InProcessTransport};
pub use world::Switches;

use self::core::Core;
use self::reply::Reply;
use self::servers::State;

/// How a server is set up.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Everything random comes from it: uids, names, delays of the world.
    pub seed: u64,
    /// The time of day at the start.
    pub epoch: Timestamp,
    /// How many past changes can be followed; older versions are answered 410.
    pub window: usize,
    /// How many requests the ledger remembers.
    pub ledger: usize,
    /// Which parts of the world are there.
    pub world: Switches,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            seed: 0,
            epoch: Timestamp::UNIX_EPOCH,
            window: 10_000,
            ledger: 100_000,
            world: Switches::default(),
        }
    }
}

/// An embedded API server; all clones are the same one. See the module.
///
/// Time is tokio's: under a paused clock a run takes no time. [`run`](Self::run) must be running for
/// anything to happen that is not an answer to a request: bookmarks, timeouts, the small world.
///
/// ```
/// use windlass::sim::{InProcessTransport, Settings, Sim};
///
/// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
/// let sim = Sim::new(Settings::default());
/// let client = kube_client::Client::new(InProcessTransport::new(&sim, "me"), "default");
/// let namespaces = kube_client::Api::<k8s_openapi::api::core::v1::Namespace>::all(client);
/// assert!(namespaces.get("default").await.is_ok());
/// assert_eq!(sim.ledger()[0].verb, "get");
/// # });
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone)]
pub struct Sim {
    shared: Arc<Shared>,
}

struct Shared {
    core: Mutex<Core>,
    started: Instant,
    /// Something may now be due sooner.
    changed: Notify,
    seed: u64,
}

impl fmt::Debug for Sim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sim").field("seed", &self.shared.seed).finish_non_exhaustive()
    }
}

// === impl Sim ===

impl Sim {
    /// Makes a server with what a new cluster has: four namespaces and the Service `kubernetes`.
    #[must_use]
    pub fn new(settings: Settings) -> Self {
        let shared = Shared {
            seed: settings.seed,
            core: Mutex::new(Core::new(settings)),
            started: Instant::now(),
            changed: Notify::new(),
        };
        Self { shared: Arc::new(shared) }
    }

    /// Lets time pass for the server, until the future is dropped.
    ///
    /// # Cancel safety
    /// Nothing is lost: what is due while nobody runs it is done at the next request, or when this runs again.
    pub async fn run(&self) {
        loop {
            let due = self.with(|core| core.next_due());
            let changed = self.shared.changed.notified();
            match due {
                Some(due) => {
                    tokio::select! {
                        biased;
                        () = changed => {}
                        () = tokio::time::sleep_until(self.shared.started + due) => {}
                    }
                }
                None => changed.await,
            }
        }
    }

    /// Does something with the core, at the present time.
    fn with<T>(&self, act: impl FnOnce(&mut Core) -> T) -> T {
        let mut core = self.shared.core.lock();
        core.advance(self.shared.started.elapsed());
        act(&mut core)
    }

    /// As [`with`](Self::with), for what may bring something due forward.
    fn change<T>(&self, act: impl FnOnce(&mut Core) -> T) -> T {
        let done = self.with(act);
        self.shared.changed.notify_one();
        done
    }

    fn request(&self, server: usize, request: Request) -> oneshot::Receiver<Reply> {
        self.change(|core| core.request(server, request))
    }

    // --- what has happened ---

    /// The requests so far, oldest first, as far as [`Settings::ledger`] reaches back.
    #[must_use]
    pub fn ledger(&self) -> Vec<LedgerEntry> {
        self.with(|core| core.ledger.entries().cloned().collect())
    }

    /// What a failed run prints to be repeated: the seed, and all that was done to the server, with its time.
    #[must_use]
    pub fn recipe(&self) -> String {
        let journal = self.with(|core| core.journal.join("; "));
        format!(
            "seed {}: {}",
            self.shared.seed,
            if journal.is_empty() { "nothing was done to it" } else { &journal }
        )
    }

    /// Does something to the server, and notes it down.
    fn inflict<T>(&self, what: impl fmt::Display, act: impl FnOnce(&mut Core) -> T) -> T {
        self.change(|core| {
            core.note(&what);
            act(core)
        })
    }

    /// How many watches are open.
    #[must_use]
    pub fn watches(&self) -> usize {
        self.with(|core| core.watchers.count())
    }

    /// How many requests a fault holds.
    #[must_use]
    pub fn held(&self) -> usize {
        self.with(|core| core.held())
    }

    /// The version of the last change.
    #[must_use]
    pub fn version(&self) -> u64 {
        self.with(|core| core.store.version())
    }

    // --- what goes wrong ---

    /// Switches a fault on.
    #[expect(clippy::must_use_candidate, reason = "most faults stay on, or end by themselves")]
    pub fn fault(&self, fault: Fault) -> FaultId {
        self.inflict(format_args!("fault {}", fault.clone()), |core| core.faults.add(fault))
    }

    /// Switches a fault off.
    pub fn heal(&self, id: FaultId) {
        self.inflict(format_args!("heal {id}"), |core| core.faults.remove(id));
    }

    /// Carries out the requests that [`Action::Hold`] holds, in their order.
    pub fn release(&self) {
        self.inflict("release", Core::release);
    }

    /// Takes a server down (there are two, 0 and 1): connections are refused, watches break.
    pub fn stop(&self, server: usize) {
        self.inflict(format_args!("stop {server}"), |core| core.set_state(server, State::Down));
    }

    /// Takes it up again. Its watch cache begins anew: versions from before can no longer be followed.
    pub fn start(&self, server: usize) {
        self.inflict(format_args!("start {server}"), |core| {
            core.forget_history(server);
            core.set_state(server, State::Up);
        });
    }

    /// Stops a server as SIGSTOP does: connections stay, nothing answers.
    pub fn freeze(&self, server: usize) {
        self.inflict(format_args!("freeze {server}"), |core| core.set_state(server, State::Frozen));
    }

    /// Lets a frozen server go on: what has come in meanwhile is answered.
    pub fn thaw(&self, server: usize) {
        self.inflict(format_args!("thaw {server}"), |core| core.set_state(server, State::Up));
    }

    /// Stops a client as SIGSTOP does, or lets it go on. Of a client in this process only the way to the server
    /// is stopped: its own time goes on, and what it gives up meanwhile is never sent.
    pub fn suspend(&self, user: &str, is_suspended: bool) {
        self.inflict(format_args!("suspend {user} {is_suspended}"), |core| core.suspend(user, is_suspended));
    }

    /// Freezes what a server's cache knows of a resource, or lets it catch up.
    pub fn freeze_cache(&self, server: usize, group: &str, plural: &str, is_frozen: bool) {
        let resource = kinds::resource(group, plural);
        let what = format_args!("freeze cache {server} {plural}.{group} {is_frozen}");
        self.inflict(what, |core| core.freeze_cache(server, &resource, is_frozen));
    }

    /// Sets what a server's cache knows of a resource back to an earlier version, and freezes it there until
    /// [`freeze_cache`](Self::freeze_cache) ends it; whether the window still has that version. Reads without a
    /// version still come from the store.
    #[must_use]
    pub fn freeze_cache_at(&self, server: usize, group: &str, plural: &str, version: u64) -> bool {
        let resource = kinds::resource(group, plural);
        let what = format_args!("freeze cache {server} {plural}.{group} at {version}");
        self.inflict(what, |core| core.freeze_cache_at(server, &resource, version))
    }

    /// Makes a server's caches late by so much; zero ends it.
    pub fn set_lag(&self, server: usize, lag: Duration) {
        self.inflict(format_args!("lag {server} {lag:?}"), |core| core.set_lag(server, lag));
    }

    /// Ends the open watches of a user and of a resource, by its plural; empty means all.
    pub fn cut_watches(&self, user: &str, plural: &str) {
        let is = |wanted: &str, found: &str| wanted.is_empty() || wanted == found;
        self.inflict(format_args!("cut watches {user:?} {plural:?}"), |core| {
            core.watchers.cut(|watcher| is(user, &watcher.user) && is(plural, &watcher.kind.plural));
        });
    }

    /// Brings back the store of an earlier version, as from a backup; whether the window still has it. Versions
    /// are given anew from there on, and all watches end.
    #[must_use]
    pub fn roll_back(&self, version: u64) -> bool {
        self.inflict(format_args!("roll back to {version}"), |core| core.roll_back(version))
    }

    /// Forgets the history: versions from before are answered 410.
    pub fn compact(&self) {
        self.inflict("compact", |core| core.store.compact());
    }

    /// Stores an object as it is, unchecked: as an older version of the server, or another hand, has left it.
    ///
    /// # Panics
    /// When the group has no such resource.
    pub fn write_behind(&self, group: &str, plural: &str, object: &Value) {
        self.inflict(format_args!("write {plural} {object}"), |core| {
            let kind = core.catalogue.get(group, plural).expect("the kind is served");
            core.put(&kind, object.clone());
        });
    }
}
