//! Assembles controllers and the parts they share, runs them, and stops them in order.
//!
//! Mirrors controller-runtime `pkg/manager` (`New`, `Add`, `Start`, `engageStopProcedure`).
//!
//! # How it works
//! [`Manager::new`] and the `with_` methods set the options. The first [`add`](Manager::add) makes the shared parts from
//! them: informers, audits, the event recorder and its sink, and the leader election. [`run`](Manager::run) starts
//! everything. Informers fill the caches at once, on a standby, too; workers and audits start when this process leads.
//!
//! ```text
//! stop ─▶ readiness fails ─▶ informers and queues end ─▶ syncs in flight end ─▶ events are written, servers end
//!      ─▶ the Lease, renewed until now, is released
//! ```
//!
//! # Guarantees
//! - Events recorded during shutdown are still written. (test: `events_are_written_before_the_manager_ends`)
//! - The Lease is renewed until syncs in flight have ended, and then released. (test: `lease_is_released_after_syncs_in_flight`)
//! - With a runtime of its own the election goes on while a sync blocks all threads. (test: `blocked_thread_delays_no_renewal`)
//! - If syncs do not end within the shutdown timeout, the Lease is left to expire, as their writes may still arrive.
//!   (test: `lease_is_not_released_while_a_write_may_be_in_flight`)
//! - Lost leadership or a panic stops everything in the same order; `run` then fails.
//!   (test: `lost_leadership_stops_the_manager`, `task_panic_fails_drain_after_other_tasks_finish`, `failed_informer_ends_run_once`)
//!
//! # Differences from controller-runtime
//! Losing the leadership fences writes before another process can lead. Sync handlers are awaited, not cancelled. The
//! manager opens no port: [`health`](Manager::health) and [`metrics`](Manager::metrics) are for servers of the caller.

mod auto_workers;
mod checks;
mod readings;
mod runnable;
mod running;
mod signals;

use std::fmt;
use std::pin::pin;
use std::sync::OnceLock;
use std::time::Duration;

use futures_util::future::{self, BoxFuture};
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;

use super::builder::{BuildError, ControllerContext, Limits};
use super::run::audit::Audits;
use super::run::worker::{ControllerView, SharedObserver};
use crate::api::shards::{SHARDS_MAX, Sharding};
use crate::cache::{CacheState, ResyncPeriod, SharedInformerFactory, Synced};
use crate::client::shards::Shards;
use crate::client::{ApiClient, Clock};
use crate::health::Health;
use crate::leader_election::shards::{ShardElector, member_identity};
use crate::leader_election::{
    InvalidConfig, LeaderElectionConfig, LeaderElector, Leadership, LeaseLock, identity,
};
use crate::metrics::Metrics;
use crate::record::{self, EVENT_QPS, EventRecorder, EventSink};
use crate::traces::Tracer;
pub use auto_workers::AutoWorkers;
pub use runnable::Runnable;
pub use running::RunError;
use running::Running;
pub use signals::Signals;

/// How long a stop waits for syncs in flight. With the time to write events and to release the Lease it stays within the
/// 30 s that Kubernetes gives a Pod.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(20);

/// Runs until its token is cancelled.
type Run = Box<dyn FnOnce(CancellationToken) -> BoxFuture<'static, ()> + Send>;

/// Runs controllers and the parts they share; see the module.
///
/// ```no_run
/// # use windlass::client::ApiClient;
/// # use windlass::controller::{Limits, Manager};
/// # use windlass::leader_election::LeaderElectionConfig;
/// # use windlass::operators::foo;
/// # use tokio_util::sync::CancellationToken;
/// # async fn run(client: ApiClient, stop: CancellationToken) -> Result<(), Box<dyn std::error::Error>> {
/// let mut manager = Manager::new(client, Limits { workers: 4, ..Limits::default() })
///     .with_leader_election("default", "foo-operator", LeaderElectionConfig::default())?;
/// manager.add(foo::controller)?;
/// manager.run(stop).await?;
/// # Ok(())
/// # }
/// ```
pub struct Manager {
    options: Options,
    /// Made from the options when first needed.
    parts: OnceLock<Parts>,
    controllers: Vec<Runnable>,
    servers: Vec<Run>,
    /// Cancelled when the manager begins to stop.
    stopping: CancellationToken,
}

struct Options {
    client: ApiClient,
    limits: Limits,
    /// Empty for all.
    namespaces: Vec<String>,
    resync_period: Option<ResyncPeriod>,
    lease: Option<Lease>,
    /// `None` for the runtime of everything else.
    election_runtime: Option<Handle>,
    /// `None` for a single leader.
    sharding: Option<Sharding>,
    writes_events: bool,
    event_qps: u32,
    shutdown_timeout: Duration,
    metrics: Metrics,
    tracer: Tracer,
    clock: Clock,
    seed: u64,
}

struct Lease {
    namespace: String,
    name: String,
    config: LeaderElectionConfig,
}

/// Takes part in an election.
enum Elector {
    OfOne(Box<LeaderElector>),
    OfShards(Box<ShardElector>),
}

/// What the controllers share.
struct Parts {
    client: ApiClient,
    informers: SharedInformerFactory,
    audits: Audits,
    recorder: EventRecorder,
    /// `None` without events.
    sink: Option<EventSink>,
    /// `None` without leader election.
    elector: Option<Elector>,
    leadership: Option<Leadership>,
    /// `None` with a single leader.
    shards: Option<Shards>,
}

// === impl Manager ===

impl Manager {
    /// Creates a manager for all namespaces, without leader election. All clones of `client` share its limits, and the
    /// leader election holds their writes while this process does not lead.
    #[must_use]
    pub fn new(client: ApiClient, limits: Limits) -> Self {
        let options = Options {
            client,
            limits,
            namespaces: Vec::new(),
            resync_period: None,
            lease: None,
            election_runtime: None,
            sharding: None,
            writes_events: true,
            event_qps: EVENT_QPS,
            shutdown_timeout: SHUTDOWN_TIMEOUT,
            metrics: Metrics::new(),
            tracer: Tracer::default(),
            clock: Clock::system(),
            seed: fastrand::u64(..),
        };
        let (parts, stopping) = (OnceLock::new(), CancellationToken::new());
        Self { options, parts, controllers: Vec::new(), servers: Vec::new(), stopping }
    }

    fn with(mut self, set: impl FnOnce(&mut Options)) -> Self {
        assert!(self.parts.get().is_none(), "set the manager's options before adding controllers");
        set(&mut self.options);
        self
    }

    /// Watches these namespaces only, each with informers of its own, so that rights there suffice; all, if none is
    /// named.
    ///
    /// # Panics
    /// This and all other options: if a controller was added.
    #[must_use]
    pub fn with_namespaces(self, namespaces: impl IntoIterator<Item = impl Into<String>>) -> Self {
        let namespaces = namespaces.into_iter().map(Into::into).collect();
        self.with(|options| options.namespaces = namespaces)
    }

    /// Takes part in the election of the Lease `name` in `namespace`: controllers work only while this process leads.
    ///
    /// # Errors
    /// [`InvalidConfig`].
    pub fn with_leader_election(
        self,
        namespace: impl Into<String>,
        name: impl Into<String>,
        config: LeaderElectionConfig,
    ) -> Result<Self, InvalidConfig> {
        config.validate()?;
        let lease = Lease { namespace: namespace.into(), name: name.into(), config };
        Ok(self.with(|options| options.lease = Some(lease)))
    }

    /// Runs the election on another runtime, whose threads have nothing else to do: a thread that computes for long then
    /// delays no renewal, as Go's scheduler sees to by preemption. The runtime must outlive [`run`](Self::run).
    #[must_use]
    pub fn with_election_runtime(self, runtime: Handle) -> Self {
        self.with(|options| options.election_runtime = Some(runtime))
    }

    /// Divides the namespaces among all processes that take part in the election, in place of a single leader. Choose more
    /// shards than there will ever be processes. It has no effect without election.
    ///
    /// # Panics
    /// If the number is zero or above [`SHARDS_MAX`](crate::api::shards::SHARDS_MAX).
    #[must_use]
    pub fn with_shards(self, sharding: Sharding) -> Self {
        assert!(
            (1..=SHARDS_MAX).contains(&sharding.of),
            "the number of shards must be from 1 to {SHARDS_MAX}"
        );
        self.with(|options| options.sharding = Some(sharding))
    }

    /// Sets how long a stop waits for syncs in flight, 20 s by default.
    #[must_use]
    pub fn with_shutdown_timeout(self, timeout: Duration) -> Self {
        self.with(|options| options.shutdown_timeout = timeout)
    }

    /// Syncs every object again this often; never by default.
    #[must_use]
    pub fn with_resync_period(self, period: Option<ResyncPeriod>) -> Self {
        self.with(|options| options.resync_period = period)
    }

    /// Records no events.
    #[must_use]
    pub fn without_events(self) -> Self {
        self.with(|options| options.writes_events = false)
    }

    /// Sets the maximum rate of events, per second.
    #[must_use]
    pub fn with_event_qps(self, qps: u32) -> Self {
        self.with(|options| options.event_qps = qps)
    }

    /// Adds the metrics to those of the caller.
    #[must_use]
    pub fn with_metrics(self, metrics: Metrics) -> Self {
        self.with(|options| options.metrics = metrics)
    }

    /// Traces syncs; by default none.
    #[must_use]
    pub fn with_tracer(self, tracer: Tracer) -> Self {
        self.with(|options| options.tracer = tracer)
    }

    /// Sets the clock of conditions, events and the Lease.
    #[must_use]
    pub fn with_clock(self, clock: Clock) -> Self {
        self.with(|options| options.clock = clock)
    }

    /// Sets the seed of all random delays.
    #[must_use]
    pub fn with_seed(self, seed: u64) -> Self {
        self.with(|options| options.seed = seed)
    }

    /// Adds the controller that `make` builds from the shared parts.
    ///
    /// # Errors
    /// The error of `make`; controllers that were added before stay.
    pub fn add<C: Into<Runnable>>(
        &mut self,
        make: impl FnOnce(&ControllerContext<'_>) -> Result<C, BuildError>,
    ) -> Result<(), BuildError> {
        let (options, parts) = (&self.options, self.parts());
        let shared = ControllerContext {
            client: parts.client.clone(),
            informers: &parts.informers,
            recorder: parts.recorder.clone(),
            clock: options.clock,
            limits: options.limits,
            metrics: options.metrics.clone(),
            tracer: options.tracer.clone(),
            audits: &parts.audits,
            leadership: parts.leadership.clone(),
            shards: parts.shards.clone(),
        };
        let controller = make(&shared)?.into();
        self.controllers.push(controller);
        Ok(())
    }

    /// Adds a server, of metrics or health say, which runs until everything else has stopped.
    pub fn add_server<F: Future<Output = ()> + Send + 'static>(
        &mut self,
        run: impl FnOnce(CancellationToken) -> F + Send + 'static,
    ) {
        self.servers.push(Box::new(|stop| Box::pin(run(stop))));
    }

    /// Returns the client of the controllers.
    #[must_use]
    pub fn client(&self) -> &ApiClient {
        &self.parts().client
    }

    /// Returns the metrics.
    #[must_use]
    pub fn metrics(&self) -> &Metrics {
        &self.options.metrics
    }

    /// Returns the checks of `/livez` and `/readyz` for the controllers added so far. The process is ready once each of
    /// their kinds was listed, until it stops.
    #[must_use]
    pub fn health(&self) -> Health {
        checks::health(self.caches(), self.started(), self.leadership(), self.stopping.clone())
    }

    /// Tells whether this process leads; `None` without leader election.
    #[must_use]
    pub fn leadership(&self) -> Option<Leadership> {
        self.parts().leadership.clone()
    }

    /// Returns the shards of this process; `None` with a single leader.
    #[must_use]
    pub fn shards(&self) -> Option<Shards> {
        self.parts().shards.clone()
    }

    /// Returns a function that reads the states of the caches requested so far.
    pub fn caches(&self) -> impl Fn() -> Vec<CacheState> + Clone + Send + Sync + use<> {
        self.parts().informers.states()
    }

    /// Returns handles to read the controllers' queues and workers while they run.
    #[must_use]
    pub fn views(&self) -> Vec<ControllerView> {
        self.controllers.iter().map(|controller| controller.view.clone()).collect()
    }

    /// Returns handles that tell when the workers of each controller have started, or would if this process led.
    #[must_use]
    pub fn started(&self) -> Vec<Synced> {
        self.controllers.iter().map(|controller| controller.started.clone()).collect()
    }

    fn parts(&self) -> &Parts {
        self.parts.get_or_init(|| Parts::of(&self.options))
    }

    /// Runs everything until `stop`, and stops it in order.
    ///
    /// # Errors
    /// [`RunError`].
    ///
    /// # Cancel safety
    /// Dropping the future aborts syncs in flight, writes no more events, and leaves the Lease to expire.
    pub async fn run(self, stop: CancellationToken) -> Result<(), RunError> {
        self.parts();
        let (caches, views) = (self.caches(), self.views());
        let Self { options, parts, controllers, servers, stopping } = self;
        let Parts { client, informers, audits, recorder, sink, elector, leadership, shards } =
            parts.into_inner().expect("the parts were made above");
        readings::observe(&options.metrics, caches, recorder.read_counts());
        if let Some(shards) = shards {
            readings::observe_shards(&options.metrics, shards);
        }
        drop(recorder);

        let mut running = Running::new(client.clone(), views, stopping, options.shutdown_timeout);
        for controller in controllers {
            if let Some(auto) = controller.auto_workers {
                let (view, client, leadership) =
                    (controller.view.clone(), client.clone(), leadership.clone());
                let metrics = options.metrics.controller(view.name);
                running.start(|stop| auto.run(view, client, leadership, metrics, stop));
            }
            running.start_controller(controller);
        }
        if let Some(period) = options.limits.audit_period {
            let metrics = options.metrics;
            running.start(|stop| async move {
                if let Some(leadership) = leadership
                    && stop.run_until_cancelled(leadership.acquired()).await.is_none()
                {
                    return;
                }
                audits.run(client, period, metrics, stop).await;
            });
        }
        running.start(|stop| async move {
            informers.run(stop.clone()).await;
            // Without controllers there is no informer.
            stop.cancelled().await;
        });
        if let Some(sink) = sink {
            running.start_server(Box::new(|last| Box::pin(sink.run(last))));
        }
        servers.into_iter().for_each(|server| running.start_server(server));
        if let Some(elector) = elector {
            running.start_election(elector, options.election_runtime);
        }
        running.until(stop).await
    }

    /// Fills the caches, syncs each object once, and ends: without election, audits, and events. For a client
    /// [`with_dry_run`](ApiClient::with_dry_run), whose writes the caches never see.
    ///
    /// # Errors
    /// [`RunError`].
    ///
    /// # Cancel safety
    /// Dropping the future aborts syncs in flight.
    pub async fn run_once(self, observer: SharedObserver, stop: CancellationToken) -> Result<(), RunError> {
        self.parts();
        let views = self.views();
        let Self { options, parts, controllers, servers, stopping } = self;
        let Parts { client, informers, .. } = parts.into_inner().expect("the parts were made above");
        let mut running = Running::new(client, views, stopping, options.shutdown_timeout);
        running.start(|stop| async move { informers.run(stop).await });
        servers.into_iter().for_each(|server| running.start_server(server));
        let ended = stop.child_token();
        let all =
            controllers.into_iter().map(|controller| (controller.run_once)(observer.clone(), ended.clone()));
        // Whichever ends first ends the other: an informer that failed fills no cache.
        let syncs = async {
            future::join_all(all).await;
            ended.cancel();
        };
        let machine = async {
            let outcome = running.until(ended.clone()).await;
            ended.cancel();
            outcome
        };
        tokio::join!(machine, syncs).0
    }

    /// Runs everything until the process gets SIGINT, SIGTERM or SIGHUP, and stops it in order; a second signal ends
    /// that at once.
    ///
    /// # Errors
    /// [`RunError`].
    pub async fn run_until_signal(self) -> Result<(), RunError> {
        let signals = Signals::listen().map_err(|error| RunError::Signals(error.to_string()))?;
        self.run_until(signals).await
    }

    /// As [`run_until_signal`](Self::run_until_signal), with these signals.
    ///
    /// # Errors
    /// [`RunError`].
    pub async fn run_until(self, mut signals: Signals) -> Result<(), RunError> {
        let stop = CancellationToken::new();
        let mut running = pin!(self.run(stop.clone()));
        tokio::select! {
            biased;
            signal = signals.next() => {
                tracing::info!(signal, "Stopping: waiting for syncs in flight; a second signal exits at once");
            }
            ended = &mut running => return ended,
        }
        stop.cancel();
        tokio::select! {
            biased;
            _ = signals.next() => {
                tracing::warn!("Exiting at once");
                Err(RunError::Interrupted)
            }
            ended = &mut running => ended,
        }
    }
}

impl fmt::Debug for Manager {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Manager").field("controllers", &self.controllers.len()).finish_non_exhaustive()
    }
}

// === impl Parts ===

impl Parts {
    fn of(options: &Options) -> Self {
        let Options { metrics, clock, seed, .. } = options;
        let client = options.client.clone().with_metrics(metrics);
        let shards = options.sharding.filter(|_| options.lease.is_some()).map(Shards::new);
        let informers = SharedInformerFactory::new(
            client.clone(),
            options.namespaces.clone(),
            options.resync_period,
            *seed,
        )
        .with_shards(shards.clone());
        let (recorder, sink) = record::pair(client.clone(), *clock, record::instance());
        let queues = metrics.clone();
        let sink = sink.with_qps(options.event_qps).waits_while(move || queues.has_queued_keys());
        let (recorder, sink) = match options.writes_events {
            true => (recorder, Some(sink)),
            false => (EventRecorder::discarding(*clock), None),
        };
        let elector = options.lease.as_ref().map(|lease| {
            let metrics = metrics.leader_election(&lease.name);
            if let Some(shards) = &shards {
                let (name, (identity, id)) =
                    ((lease.namespace.clone(), lease.name.clone()), member_identity());
                let elector = ShardElector::new(
                    client.clone(),
                    name,
                    (identity, id),
                    lease.config,
                    shards.clone(),
                    metrics,
                )
                .expect("the times were validated")
                .with_clock(*clock)
                .with_drain_timeout(options.shutdown_timeout);
                return Elector::OfShards(Box::new(elector));
            }
            let lock = LeaseLock::new(client.clone(), lease.namespace.clone(), lease.name.clone());
            let elector =
                LeaderElector::new(lock, identity(), lease.config, recorder.clone(), metrics, *seed)
                    .expect("the times were validated");
            Elector::OfOne(Box::new(elector.with_clock(*clock)))
        });
        let leadership = elector.as_ref().map(|elector| match elector {
            Elector::OfOne(elector) => elector.leadership(),
            Elector::OfShards(elector) => elector.leadership(),
        });
        Self { client, informers, audits: Audits::default(), recorder, sink, elector, leadership, shards }
    }
}

#[cfg(test)]
#[cfg(feature = "sim")]
mod tests;
