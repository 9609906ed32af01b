//! An embedded Kubernetes API server with a simulated cluster behind it, enough to run an operator against.
//!
//! `docs/embedded-server.md` lists the differences from a real server; any other difference is a bug.
//!
//! ```text
//!  kube_client::Client ─▶ InProcessTransport (tower service) ─┐            ┌─ Store: objects, versions, past changes
//!  kubectl, operators ──▶ http (TLS, tokens) ─────────────────┴─▶ Core ────┼─ Watchers
//!                                                        faults ──┘ ▲      └─ World: collector, workloads, Pods, quotas
//!                                                          time ────┘
//! ```
//!
//! | part | plays |
//! |---|---|
//! | `core`, `servers` | the state machine: requests and time in, answers and events out; the two API servers |
//! | `store`, `watch` | etcd and the watch cache |
//! | `read`, `watching`, `write`, `body`, `scale`, `delete`, `patch`, `apply`, `meta`, `selectors`, `shards` | the verbs, field managers, selectors |
//! | `builtin`, `custom`, `field` | defaulting and validation of each kind, paths of fields |
//! | `discovery`, `openapi`, `table`, `review`, `protobuf`, `absent` | what kubectl needs beside the verbs |
//! | `world` | controllers, scheduler, kubelets |
//! | `fault`, `ledger` | injected faults, the log of requests |
//! | `transport`, `http` | the transport for a client in the same process; the HTTPS endpoint |
//!
//! # Guarantees
//! - The same seed and requests give the same trace; a snapshot begins others (test: `the_same_seed_gives_the_same_trace`, `server_goes_on_from_a_snapshot`)
//! - Resource versions behave as on a real server (test: `resource_versions_behave_as_on_a_real_server`, `unchanged_write_keeps_the_version`)
//! - History is bounded, and reads of a forgotten version fail with 410 (test: `past_version_is_readable_until_forgotten`, `watch_fails_with_410_only_after_missing_changes`, `a_continue_token_lasts_five_minutes`)
//! - Deletion honours finalizers and owner references (test: `finalizer_makes_deletion_two_phase`, `collector_follows_owner_references`)
//! - Invalid input is refused with its field, and no request panics (test: `invalid_input_is_reported_by_field`, `no_request_panics_the_server`)
//! - Faults hit requests, watches and servers exactly as declared (test: `fault_hits_only_the_nth_match_and_prints`, `connection_drops_before_or_after_execution`, `events_are_skipped_repeated_or_truncated`, `server_stops_restarts_freezes_and_thaws`)
//! - Generated request sequences get the answers of a real server (test: `generated_sequences_get_equivalent_answers`)

mod absent;
mod apply;
mod body;
mod builtin;
mod core;
mod custom;
mod delete;
mod discovery;
mod duplicates;
mod failure;
mod fault;
mod field;
mod http;
mod kinds;
mod ledger;
mod meta;
mod openapi;
mod patch;
mod protobuf;
mod read;
mod reply;
mod request;
mod review;
mod scale;
mod selectors;
mod servers;
mod shards;
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
#[cfg(feature = "tune")]
pub(crate) use transport::ReplyBody;
pub use transport::{ConnectionError, InProcessTransport};
pub use world::Switches;

use self::core::Core;
use self::reply::Reply;
use self::servers::Availability;

/// Settings of a new [`Sim`].
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// The seed of all randomness: uids, generated names, delays in the simulated cluster.
    pub seed: u64,
    /// The wall-clock time at the start.
    pub epoch: Timestamp,
    /// The number of past changes kept; older versions are answered with 410.
    pub window: usize,
    /// The number of requests kept in the ledger, which may be none.
    pub ledger: usize,
    /// The parts of the cluster to simulate.
    pub world: Switches,
    /// Whether `managedFields` are recorded from an object's creation, as on a real server. Otherwise they are recorded
    /// from its first server-side apply, which keeps other objects small and their writes fast.
    pub tracks_managers: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            seed: 0,
            epoch: Timestamp::UNIX_EPOCH,
            window: 10_000,
            ledger: 100_000,
            world: Switches::default(),
            tracks_managers: false,
        }
    }
}

/// A handle to an embedded API server; clones share the server. See the module.
///
/// Time is tokio's: under a paused clock a run takes no time. Bookmarks, timeouts and the simulated cluster
/// advance only while [`run`](Self::run) runs.
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
    shared: Arc<Machine>,
}

/// The captured state of a server.
#[cfg(feature = "tune")]
pub(crate) struct Snapshot(Box<Core>);

struct Machine {
    core: Mutex<Core>,
    started: Instant,
    /// The server's time when it started: zero, unless it began with a snapshot.
    began: Duration,
    /// Notified when a task may have become due sooner.
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
    /// Creates a server with the objects of a new cluster: four namespaces, the Service `kubernetes` and a node.
    #[must_use]
    pub fn new(settings: Settings) -> Self {
        Self::start_with(Core::new(settings))
    }

    fn start_with(core: Core) -> Self {
        let shared = Machine {
            seed: core.settings.seed,
            began: core.now,
            core: Mutex::new(core),
            started: Instant::now(),
            changed: Notify::new(),
        };
        Self { shared: Arc::new(shared) }
    }

    /// Captures the objects, their history and the simulated cluster; [`restore`](Self::restore) starts servers from it.
    #[cfg(feature = "tune")]
    pub(crate) fn snapshot(&self) -> Snapshot {
        Snapshot(Box::new(self.with(|core| core.copy(self.shared.seed))))
    }

    /// Creates a server that goes on from a snapshot, at its time, with random numbers of its own.
    #[cfg(feature = "tune")]
    pub(crate) fn restore(snapshot: &Snapshot, seed: u64) -> Self {
        Self::start_with(snapshot.0.copy(seed))
    }

    /// Advances the server's time until the future is dropped.
    ///
    /// # Cancel safety
    /// Nothing is lost: tasks that become due meanwhile run at the next request, or when this is called again.
    pub async fn run(&self) {
        loop {
            let due = self.with(|core| core.next_due());
            let changed = self.shared.changed.notified();
            match due {
                Some(due) => {
                    tokio::select! {
                        biased;
                        () = changed => {}
                        () = tokio::time::sleep_until(self.shared.started + due.saturating_sub(self.shared.began)) => {}
                    }
                }
                None => changed.await,
            }
        }
    }

    /// Advances the core to the present, then calls `act` on it.
    fn with<T>(&self, act: impl FnOnce(&mut Core) -> T) -> T {
        let mut core = self.shared.core.lock();
        core.advance(self.elapsed());
        act(&mut core)
    }

    /// Like [`with`](Self::with), but wakes [`run`](Self::run): the change may make a task due sooner.
    fn change<T>(&self, act: impl FnOnce(&mut Core) -> T) -> T {
        let done = self.with(act);
        self.shared.changed.notify_one();
        done
    }

    fn request(&self, server: usize, request: Request) -> oneshot::Receiver<Reply> {
        self.change(|core| core.request(server, request))
    }

    // --- observation ---

    /// Returns the last [`Settings::ledger`] requests, oldest first.
    #[must_use]
    pub fn ledger(&self) -> Vec<LedgerEntry> {
        self.with(|core| core.ledger.entries().cloned().collect())
    }

    /// Returns the text with which a failed run can be repeated: the seed, and each fault or command with its time.
    #[must_use]
    pub fn recipe(&self) -> String {
        let journal = self.with(|core| core.journal.join("; "));
        format!(
            "seed {}: {}",
            self.shared.seed,
            if journal.is_empty() { "no faults or commands" } else { &journal }
        )
    }

    /// Calls `act` on the core and records it in the journal.
    fn inflict<T>(&self, what: impl fmt::Display, act: impl FnOnce(&mut Core) -> T) -> T {
        self.change(|core| {
            core.note(&what);
            act(core)
        })
    }

    /// Returns the time since the start.
    #[must_use]
    pub fn elapsed(&self) -> Duration {
        self.shared.began + self.shared.started.elapsed()
    }

    /// Returns the number of open watches.
    #[must_use]
    pub fn watches(&self) -> usize {
        self.with(|core| core.watchers.count())
    }

    /// Returns the number of requests that [`Action::Hold`] holds.
    #[must_use]
    pub fn held(&self) -> usize {
        self.with(|core| core.held())
    }

    /// Returns the resource version of the last change.
    #[must_use]
    pub fn version(&self) -> u64 {
        self.with(|core| core.store.version())
    }

    // --- features ---

    /// Enables or disables sharded lists and watches on a server, as the feature gate `ShardedListAndWatch` does. They
    /// are disabled at first: the server ignores `shardSelector`. Open watches are unaffected.
    pub fn set_sharding(&self, server: usize, is_enabled: bool) {
        self.inflict(format_args!("sharding {server} {is_enabled}"), |core| {
            core.servers[server].is_sharding = is_enabled;
        });
    }

    // --- faults ---

    /// Enables a fault.
    #[expect(clippy::must_use_candidate, reason = "most faults stay on, or end by themselves")]
    pub fn fault(&self, fault: Fault) -> FaultId {
        self.inflict(format_args!("fault {}", fault.clone()), |core| core.faults.add(fault))
    }

    /// Disables a fault. Returns whether it has acted.
    #[expect(clippy::must_use_candidate, reason = "most faults act in any case")]
    pub fn heal(&self, id: FaultId) -> bool {
        self.inflict(format_args!("heal {id}"), |core| core.faults.remove(id))
    }

    /// Executes the requests that [`Action::Hold`] holds, in order of arrival.
    pub fn release(&self) {
        self.inflict("release", Core::release);
    }

    /// Stops a server (0 or 1): connections are refused, watches break.
    pub fn stop(&self, server: usize) {
        self.inflict(format_args!("stop {server}"), |core| core.set_state(server, Availability::Down));
    }

    /// Starts a stopped server with an empty watch cache: watches cannot resume from earlier versions.
    pub fn start(&self, server: usize) {
        self.inflict(format_args!("start {server}"), |core| {
            core.forget_history(server);
            core.set_state(server, Availability::Up);
        });
    }

    /// Freezes a server as SIGSTOP does: connections stay open, but nothing is answered.
    pub fn freeze(&self, server: usize) {
        self.inflict(format_args!("freeze {server}"), |core| core.set_state(server, Availability::Frozen));
    }

    /// Thaws a frozen server, which then answers the requests that arrived meanwhile.
    pub fn thaw(&self, server: usize) {
        self.inflict(format_args!("thaw {server}"), |core| core.set_state(server, Availability::Up));
    }

    /// Suspends a client as SIGSTOP does, or resumes it. A client in this process is only cut off from the server:
    /// its own time goes on, and requests that it abandons meanwhile are never sent.
    pub fn suspend(&self, user: &str, is_suspended: bool) {
        self.inflict(format_args!("suspend {user} {is_suspended}"), |core| core.suspend(user, is_suspended));
    }

    /// Freezes a server's cache of a resource, or lets it catch up.
    pub fn freeze_cache(&self, server: usize, group: &str, plural: &str, is_frozen: bool) {
        let resource = kinds::resource(group, plural);
        let what = format_args!("freeze cache {server} {plural}.{group} {is_frozen}");
        self.inflict(what, |core| core.freeze_cache(server, &resource, is_frozen));
    }

    /// Sets a server's cache of a resource back to an earlier version and freezes it there until
    /// [`freeze_cache`](Self::freeze_cache) thaws it. Returns false if that version is forgotten. Reads without a
    /// version still come from the store.
    #[must_use]
    pub fn freeze_cache_at(&self, server: usize, group: &str, plural: &str, version: u64) -> bool {
        let resource = kinds::resource(group, plural);
        let what = format_args!("freeze cache {server} {plural}.{group} at {version}");
        self.inflict(what, |core| core.freeze_cache_at(server, &resource, version))
    }

    /// Delays a server's caches by `lag`; zero ends the delay.
    pub fn set_lag(&self, server: usize, lag: Duration) {
        self.inflict(format_args!("lag {server} {lag:?}"), |core| core.set_lag(server, lag));
    }

    /// Makes one Deployment available per `interval`, like a Deployment controller with a rate limit. Its queue is first
    /// in, first out, and a Deployment passes it twice: once to be observed, once to become available. A burst of new
    /// Deployments is therefore observed completely before the first of them is available. Zero removes the limit. Takes
    /// effect only with [`Switches::status_of_workloads`].
    pub fn pace_rollouts(&self, interval: Duration) {
        self.inflict(format_args!("pace rollouts {interval:?}"), |core| core.pace_rollouts(interval));
    }

    /// Ends the open watches of a user on a resource (its plural); an empty argument matches all.
    pub fn cut_watches(&self, user: &str, plural: &str) {
        let is = |wanted: &str, found: &str| wanted.is_empty() || wanted == found;
        self.inflict(format_args!("cut watches {user:?} {plural:?}"), |core| {
            core.watchers.cut(|watcher| is(user, &watcher.user) && is(plural, &watcher.kind.plural));
        });
    }

    /// Restores the store of an earlier version, as from a backup, and ends all watches. New changes reuse the
    /// versions after it. Returns false if that version is forgotten.
    #[must_use]
    pub fn roll_back(&self, version: u64) -> bool {
        self.inflict(format_args!("roll back to {version}"), |core| core.roll_back(version))
    }

    /// Forgets the history: earlier versions are answered with 410.
    pub fn compact(&self) {
        self.inflict("compact", |core| core.store.compact());
    }

    /// Stores an object without validation, as if an older server version had written it.
    ///
    /// # Panics
    /// If the group has no such resource.
    pub fn write_behind(&self, group: &str, plural: &str, object: &Value) {
        self.inflict(format_args!("write {plural} {object}"), |core| {
            let kind = core.catalogue.get(group, plural).expect("the kind is served");
            core.put(&kind, object.clone());
        });
    }
}
