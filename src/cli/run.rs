//! `windlass run`: wires the operator, runs it, and stops it in order.
//!
//! Stop order: informers and workers (syncs in flight finish), then the remaining events. A second signal exits
//! at once.

mod dry_run;
mod election;
mod flags;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc;
use tokio::task::{JoinError, JoinSet};
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

use super::{Failure, endpoints, logging, version};
use crate::cache::{SharedInformerFactory, Synced};
use crate::client::{ApiClient, Clock, Config, ConfigError, ConfigSource};
use crate::controller::{Audits, ControllerView, PassObserver, Shared, Workers};
use crate::debug::Debug;
use crate::metrics::Metrics;
use crate::operators::webapp::TaskEntry;
use crate::operators::webapp::tasks::{self, TaskSpec};
use crate::operators::{self, Context, Wired};
use crate::record::{self, EventRecorder, EventSink};
use election::{Election, Running};
pub(super) use flags::Args;
use flags::Settings;
#[cfg(feature = "demo")]
pub(super) use flags::{BindAddress, bind_address};

/// How many keys a message lists.
const KEYS_LISTED: usize = 10;
/// The shortest timeout for a stop: even idle tasks need a moment to end.
const MOMENT: Duration = Duration::from_millis(250);
/// How long writing the last events may take.
const EVENTS_FLUSH: Duration = Duration::from_secs(5);

/// Runs the operator, or makes a dry run; returns the exit code.
pub(super) fn run(args: &Args) -> Result<u8, Failure> {
    let settings = Settings::of(args)?;
    let is_dry = settings.dry_run.is_some();
    // The log says "Created child" of a write that is not stored.
    logging::start(&args.logging, if is_dry { "warn" } else { "info" })?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let runtime =
        runtime.map_err(|error| Failure::Running(format!("could not start the runtime: {error}")))?;
    let outcome = runtime.block_on(find_and_operate(settings));
    // A thread that is still blocked (an exec plugin, a frozen disk) must not delay the exit.
    runtime.shutdown_background();
    // 1 says that something would change.
    if is_dry { outcome.map_err(Failure::into_incomplete) } else { outcome }
}

/// What a caller in this process gives the operator besides flags.
pub struct InProcess {
    pub(crate) metrics: Metrics,
    /// The time on the machine's clock.
    pub clock: Clock,
    /// The tasks of WebApps, in place of those of the flags.
    pub tasks: Option<Vec<TaskEntry>>,
    /// The seed of all randomness.
    pub seed: u64,
    /// In place of that of the flags.
    pub(crate) debug: Option<Debug>,
    /// Is told of every pass, if there is no `debug`.
    pub(crate) passes: Option<Arc<dyn PassObserver>>,
}

impl InProcess {
    /// Creates an operator's surroundings that are those of a process of its own, but for the seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self { metrics: Metrics::new(), clock: Clock::system(), tasks: None, seed, debug: None, passes: None }
    }
}

impl fmt::Debug for InProcess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InProcess").field("seed", &self.seed).finish_non_exhaustive()
    }
}

/// Runs the operator on an existing client; see [`run_over`](super::run_over).
pub(crate) async fn run_over(
    client: ApiClient,
    flags: &[&str],
    given: InProcess,
    signals: mpsc::Receiver<&'static str>,
) -> Result<(), Failure> {
    let settings = settings_of(flags)?;
    if settings.dry_run.is_some() {
        return Err(Failure::Usage {
            cause: "--dry-run is not a flag of a run on an existing client".to_owned(),
            remedy: "Call dry_run_over.".to_owned(),
        });
    }
    let client = client.with_compressed_lists(settings.compresses_lists);
    operate(settings, client, given, &mut Signals::Channel(signals)).await
}

/// Makes a dry run on an existing client; see [`dry_run_over`](super::dry_run_over).
pub(super) async fn dry_run_over(
    client: ApiClient,
    flags: &[&str],
    seed: u64,
) -> Result<(u8, String), Failure> {
    let settings = settings_of(&[&["--dry-run"], flags].concat())?;
    let how = settings.dry_run.expect("the flag is given");
    let (_unused, signals) = mpsc::channel(1);
    let mut signals = Signals::Channel(signals);
    let report = dry_run::report(how, settings, client, seed, &mut signals, false).await;
    report.map_err(Failure::into_incomplete)
}

/// Fails as `run` would with these flags.
#[cfg(feature = "tune")]
pub(crate) fn check(flags: &[&str]) -> Result<(), Failure> {
    let endpoints = ["--metrics-bind-address=0", "--health-probe-bind-address=0"];
    settings_of(&[&endpoints, flags].concat()).map(drop)
}

/// Parses the flags of `run`; the environment is ignored, as its variables set only the flags of the process itself.
fn settings_of(flags: &[&str]) -> Result<Settings, Failure> {
    #[derive(clap::Parser)]
    struct Flags {
        #[command(flatten)]
        args: Args,
    }
    let flags = std::iter::once("run").chain(flags.iter().copied());
    let command = <Flags as clap::CommandFactory>::command().mut_args(|arg| arg.env(None::<&str>));
    let matches = command.try_get_matches_from(flags);
    let flags = matches.and_then(|matches| <Flags as clap::FromArgMatches>::from_arg_matches(&matches));
    let flags = flags.map_err(|error| Failure::Usage {
        cause: error.to_string().trim_start_matches("error: ").to_owned(),
        remedy: "See windlass run --help.".to_owned(),
    })?;
    Settings::of(&flags.args)
}

async fn find_and_operate(settings: Settings) -> Result<u8, Failure> {
    let mut signals = Signals::listen()?;
    // An exec plugin of a kubeconfig may take long.
    let client = tokio::select! {
        biased;
        name = signals.next() => {
            if settings.dry_run.is_some() {
                return Err(Failure::Incomplete(format!("{name} ended the dry run before its report")));
            }
            tracing::info!(signal = name, "Stopped before startup finished");
            return Ok(0);
        }
        client = connect(&settings.source) => client?,
    };
    let client = client.with_compressed_lists(settings.compresses_lists);
    let seed = fastrand::u64(..);
    match settings.dry_run {
        Some(how) => dry_run::run(how, settings, client, seed, &mut signals).await,
        None => operate(settings, client, InProcess::new(seed), &mut signals).await.map(|()| 0),
    }
}

/// Wires the operator, runs it until a signal or a failure, and stops it.
async fn operate(
    settings: Settings,
    client: ApiClient,
    InProcess { metrics, clock, tasks, seed, debug, passes }: InProcess,
    signals: &mut Signals,
) -> Result<(), Failure> {
    tracing::info!(
        version = env!("CARGO_PKG_VERSION"),
        namespace = settings.namespace.as_deref().unwrap_or("all"),
        controllers = settings.controllers.join(","),
        "Starting"
    );
    metrics.observe_process(version::BUILD.to_vec());
    let debug = debug.or_else(|| settings.debug.map(|listener| Debug::new(listener, clock)));
    let client = client.with_limits(settings.requests).with_metrics(&metrics);
    let client = debug.as_ref().map_or(client.clone(), |debug| debug.observe(client));
    let informers =
        SharedInformerFactory::new(client.clone(), settings.namespace, settings.resync_period, seed);
    let (recorder, sink) = recorder(&client, clock, &metrics, settings.event_qps);
    let election = Election::of(settings.election, &client, (&recorder, clock), &metrics, seed)?;
    let shared = Shared {
        client: client.clone(),
        informers: &informers,
        recorder,
        clock,
        limits: settings.limits,
        metrics: metrics.clone(),
        audits: Audits::default(),
        leadership: election.leadership.clone(),
    };
    let webapp_tasks = tasks.map_or_else(|| build_tasks(&settings.webapp_tasks, clock), Ok)?;
    let mut context = Context { shared, webapp_tasks };

    let shutdown = CancellationToken::new();
    let mut machine = JoinSet::new();
    let controllers = wire(&settings.controllers, &settings.workers_of, &mut context)?;
    let audits = std::mem::take(&mut context.shared.audits);
    drop(context);
    let caches = informers.states();
    endpoints::observe(&metrics, caches.clone());
    let started: Vec<Synced> = controllers.iter().map(|wired| wired.started.clone()).collect();
    let views: Vec<ControllerView> = controllers.iter().map(|wired| wired.view.clone()).collect();
    let workers: Vec<Workers> = views.iter().map(|view| view.workers.clone()).collect();
    let health = endpoints::health(caches.clone(), started, election.leadership.clone(), shutdown.clone());
    let mut servers = endpoints::servers(settings.listeners, &client, &metrics, health)?;
    if let Some(debug) = debug {
        servers.push(debug.server(views, caches, election.leadership.clone(), &client)?);
    } else if let Some(observer) = passes {
        workers.iter().for_each(|workers| workers.observe(observer.clone()));
    }
    for wired in controllers {
        machine.spawn((wired.run)(shutdown.child_token()).in_current_span());
    }
    if let Some(period) = settings.limits.audit_period {
        let (namespace, stop) = (informers.namespace().map(str::to_owned), shutdown.child_token());
        let audits = audits.run(client.clone(), namespace, period, metrics.clone(), stop.clone());
        machine.spawn(election.when_leading(stop, audits).in_current_span());
    }
    let stop = shutdown.child_token();
    machine.spawn(async move { informers.run(stop).await }.in_current_span());
    // Events and endpoints outlive informers and workers.
    let (mut others, last) = (JoinSet::new(), CancellationToken::new());
    others.spawn(sink.run(last.clone()).in_current_span());
    for server in servers {
        others.spawn(server.run(last.clone()).in_current_span());
    }

    let mut election = election.start();
    let outcome = until_stopped(&mut machine, &mut others, &mut election, signals).await;
    shutdown.cancel();
    client.gate().shut_down();
    let parts = Parts { machine, workers, others, last };
    let outcome = stop_all(outcome, parts, settings.shutdown_timeout, signals).await;
    if !matches!(outcome, Err(Failure::AtOnce(_))) {
        election.stop().await;
    }
    outcome
}

/// Creates the event recorder and its sink, and adds their counts to the metrics.
fn recorder(
    client: &ApiClient,
    clock: Clock,
    metrics: &Metrics,
    event_qps: u32,
) -> (EventRecorder, EventSink) {
    let (recorder, sink) = record::pair(client.clone(), clock, record::instance());
    let queues = metrics.clone();
    let sink = sink.with_qps(event_qps).waits_while(move || queues.has_queued_keys());
    endpoints::observe_events(metrics, recorder.read_counts());
    (recorder, sink)
}

fn build_tasks(tasks: &[TaskSpec], clock: Clock) -> Result<Vec<TaskEntry>, Failure> {
    tasks::build(tasks, clock).map_err(|error| Failure::Usage {
        cause: format!("--webapp-tasks: task {:?}: {}", error.task, error.cause),
        remedy: "Run `windlass schema webapp-tasks` to see the fields of a task.".to_owned(),
    })
}

/// Puts the chosen controllers together.
fn wire(
    names: &[&str],
    workers_of: &BTreeMap<&'static str, usize>,
    context: &mut Context<'_>,
) -> Result<Vec<Wired>, Failure> {
    let usual = context.shared.limits.workers;
    let mut wire = |name: &&str| {
        context.shared.limits.workers = workers_of.get(name).copied().unwrap_or(usual);
        let wired = operators::wire(name, context).map_err(|error| Failure::Running(error.to_string()))?;
        Ok(wired.expect("the name was chosen from the list of all"))
    };
    names.iter().map(&mut wire).collect()
}

/// The tasks of a running operator, in the groups in which they stop.
struct Parts {
    /// Informers, controllers and audits.
    machine: JoinSet<()>,
    workers: Vec<Workers>,
    /// Events and endpoints, which run until `last` is cancelled.
    others: JoinSet<()>,
    last: CancellationToken,
}

/// Waits for syncs in flight, then for events. Fails on a second signal or a timeout while syncs are in flight.
async fn stop_all(
    outcome: Result<(), Failure>,
    Parts { mut machine, workers, mut others, last }: Parts,
    limit: Duration,
    signals: &mut Signals,
) -> Result<(), Failure> {
    let drained = tokio::select! {
        biased;
        _ = signals.next() => {
            tracing::warn!("Exiting at once");
            return Err(Failure::AtOnce("stopped by a second signal while syncs were in flight"));
        }
        // Idle tasks need a moment to end, too.
        drained = tokio::time::timeout(limit.max(MOMENT), drain(&mut machine)) => drained,
    };
    let drained = drained.unwrap_or_else(|_| {
        Err(Failure::Running(format!(
            "syncs in flight did not finish within --shutdown-timeout ({limit:?}): {}",
            under_way(&workers)
        )))
    });
    last.cancel();
    // Events are best effort: a hanging server must neither delay the exit nor make it a failure.
    let flushed = tokio::select! {
        biased;
        _ = signals.next() => {
            tracing::warn!("Exiting at once; some events may not have been written");
            return outcome.and(drained);
        }
        flushed = tokio::time::timeout(EVENTS_FLUSH.min(limit.max(MOMENT)), drain(&mut others)) => flushed,
    };
    let flushed = flushed.unwrap_or_else(|_| {
        tracing::warn!("Could not write the last events in time");
        Ok(())
    });
    outcome.and(drained).and(flushed)?;
    tracing::info!("Stopped");
    Ok(())
}

/// Lists the keys of passes in progress.
fn under_way(workers: &[Workers]) -> String {
    let passes: Vec<_> = workers.iter().flat_map(Workers::passes).collect();
    let mut keys: Vec<_> = passes.iter().map(|pass| pass.key.to_string()).take(KEYS_LISTED).collect();
    if passes.len() > KEYS_LISTED {
        keys.push(format!("and {} more", passes.len() - KEYS_LISTED));
    }
    keys.join(", ")
}

pub(crate) async fn connect(source: &ConfigSource) -> Result<ApiClient, Failure> {
    let config = Config::load(source).await.map_err(|error| usage(&error))?;
    tracing::info!(server = config.server(), "Found the cluster");
    ApiClient::connect(config).await.map_err(|error| usage(&error))
}

/// Waits for the first signal; fails if a task ends first.
async fn until_stopped(
    machine: &mut JoinSet<()>,
    events: &mut JoinSet<()>,
    election: &mut Running,
    signals: &mut Signals,
) -> Result<(), Failure> {
    let ended = tokio::select! {
        biased;
        name = signals.next() => {
            tracing::info!(
                signal = name,
                "Stopping: waiting for syncs in flight; a second signal exits at once"
            );
            return Ok(());
        }
        ended = machine.join_next() => ended,
        ended = events.join_next() => ended,
        lost = election.lost() => return Err(lost),
    };
    Err(failed(ended))
}

/// Waits for all tasks; fails if one of them panicked.
async fn drain(tasks: &mut JoinSet<()>) -> Result<(), Failure> {
    let mut outcome = Ok(());
    while let Some(ended) = tasks.join_next().await {
        if ended.is_err() {
            outcome = Err(failed(Some(ended)));
        }
    }
    outcome
}

fn failed(ended: Option<Result<(), JoinError>>) -> Failure {
    Failure::Running(match ended {
        Some(Err(error)) if error.is_panic() => "an internal task panicked; the log shows where".to_owned(),
        _ => "an internal task ended unexpectedly".to_owned(),
    })
}

/// The source of signals.
pub(crate) enum Signals {
    Process { interrupt: Signal, terminate: Signal, hangup: Signal },
    Channel(mpsc::Receiver<&'static str>),
}

impl Signals {
    pub(crate) fn listen() -> Result<Self, Failure> {
        let listen = |kind| {
            signal(kind).map_err(|error| Failure::Running(format!("could not listen for signals: {error}")))
        };
        Ok(Self::Process {
            interrupt: listen(SignalKind::interrupt())?,
            terminate: listen(SignalKind::terminate())?,
            hangup: listen(SignalKind::hangup())?,
        })
    }

    pub(crate) async fn next(&mut self) -> &'static str {
        match self {
            Self::Process { interrupt, terminate, hangup } => tokio::select! {
                biased;
                _ = interrupt.recv() => "SIGINT",
                _ = terminate.recv() => "SIGTERM",
                _ = hangup.recv() => "SIGHUP",
            },
            Self::Channel(signals) => match signals.recv().await {
                Some(name) => name,
                None => std::future::pending().await,
            },
        }
    }
}

fn usage(error: &ConfigError) -> Failure {
    let remedy = match error {
        ConfigError::Kubeconfig { .. } => {
            "Give a kubeconfig with which `kubectl --kubeconfig FILE get namespaces` works."
        }
        ConfigError::NotConfigured => {
            "Set --kubeconfig or KUBECONFIG, or run in a Pod with a service account."
        }
        ConfigError::Insecure { .. } => {
            "Use https:// and certificate-authority; `windlass run --allow-insecure-server` accepts the risk."
        }
        ConfigError::Client { .. } => {
            "Check the certificates, keys and plugins that the kubeconfig refers to."
        }
        ConfigError::File { .. } => {
            "Check the tokens, certificates and keys that the kubeconfig or the Pod names."
        }
        ConfigError::OtherServer { .. } => "Restart the process.",
    };
    Failure::Usage { cause: error.to_string(), remedy: remedy.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::capture_log;

    #[tokio::test]
    async fn task_panic_fails_drain_after_other_tasks_finish() {
        let mut machine = JoinSet::new();
        let (ended, others) = tokio::sync::oneshot::channel();
        machine.spawn(async { std::panic::resume_unwind(Box::new("a part panicked")) });
        machine.spawn(async move { ended.send(()).unwrap() });
        let failure = drain(&mut machine).await.unwrap_err();
        assert_eq!(failure.to_string(), "error: an internal task panicked; the log shows where");
        others.await.unwrap();
    }

    /// Runs the whole operator on a connection that panics in the task that lists a kind.
    #[tokio::test(start_paused = true)]
    async fn machinery_panic_exits_with_code_1() {
        type Request = http::Request<kube_client::client::Body>;
        let service = tower::service_fn(|_: Request| async {
            if true {
                std::panic::resume_unwind(Box::new("the machinery is broken"));
            }
            Ok::<_, std::convert::Infallible>(http::Response::new(kube_client::client::Body::empty()))
        });
        let client = ApiClient::new(kube_client::Client::new(service, "default"));
        let log = capture_log();
        let (_signals, received) = mpsc::channel(1);
        let flags = ["--metrics-bind-address=0", "--health-probe-bind-address=0", "--leader-elect=false"];
        let ended = super::super::run_over(client, &flags, InProcess::new(1), received).await;
        let message = "error: an internal task panicked; the log shows where".to_owned();
        assert_eq!(ended, Err((1, message)));
        let lines = log.lines();
        assert!(lines.iter().any(|line| line.starts_with("INFO Starting")), "{lines:?}");
        assert!(!lines.iter().any(|line| line == "INFO Stopped"), "{lines:?}");
    }
}
