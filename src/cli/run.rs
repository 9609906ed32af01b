//! `windlass run`: sets up a [`Manager`] as the flags say, runs it until a signal, and turns its end into an exit code.
//!
//! A second signal exits at once: syncs in flight are aborted, and the Lease is left to expire.

mod dry_run;
mod election;
mod flags;
#[cfg(not(feature = "otlp"))]
mod no_traces;
#[cfg(feature = "otlp")]
mod traces;
mod worker_count;

use std::fmt;
use std::io;
use std::sync::Arc;

use tokio::runtime::{Builder, Handle, Runtime};
use tokio::sync::mpsc;

use super::{Failure, endpoints, logging, version};
use crate::client::{ApiClient, Clock, Config, ConfigError, ConfigSource};
use crate::controller::{Manager, PassObserver, RunError, Runnable, Signals};
use crate::debug::Debug;
use crate::metrics::Metrics;
use crate::operators;
use crate::operators::webapp::TaskEntry;
use crate::operators::webapp::tasks::{self, TaskSpec};
use crate::traces::Tracer;
pub(super) use flags::Args;
use flags::Settings;
#[cfg(feature = "demo")]
pub(super) use flags::{BindAddress, bind_address};
#[cfg(not(feature = "otlp"))]
use no_traces as traces;
use traces::TraceSettings;

/// Runs the operator, or makes a dry run; returns the exit code.
pub(super) fn run(args: &Args) -> Result<u8, Failure> {
    let settings = Settings::of(args)?;
    let is_dry = settings.dry_run.is_some();
    // The log says "Created child" of a write that is not stored.
    logging::start(&args.logging, if is_dry { "warn" } else { "info" })?;
    let no_runtime = |error| Failure::Running(format!("could not start the runtime: {error}"));
    let runtime = runtime(args.threads).map_err(no_runtime)?;
    let takes_part = settings.election.is_some() && !is_dry;
    let election = takes_part.then(election_runtime).transpose().map_err(no_runtime)?;
    let handle = election.as_ref().map(|election| election.handle().clone());
    let outcome = runtime.block_on(find_and_operate(settings, handle));
    // A thread that is still blocked (an exec plugin, a frozen disk) must not delay the exit.
    runtime.shutdown_background();
    election.into_iter().for_each(Runtime::shutdown_background);
    // 1 says that something would change.
    if is_dry { outcome.map_err(Failure::into_incomplete) } else { outcome }
}

/// Starts the threads that run the operator; those that block (name look-ups, files) are others.
fn runtime(threads: u16) -> io::Result<Runtime> {
    Builder::new_multi_thread().worker_threads(usize::from(threads)).enable_all().build()
}

/// Starts the thread that renews the Lease, whatever the others do.
fn election_runtime() -> io::Result<Runtime> {
    Builder::new_multi_thread().worker_threads(1).thread_name("election").enable_all().build()
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
    /// For the leader election; `None` for the runtime of the caller.
    pub(crate) election: Option<Handle>,
    /// In place of that of the flags.
    pub(crate) debug: Option<Debug>,
    /// Is told of every pass, if there is no `debug`.
    pub(crate) passes: Option<Arc<dyn PassObserver>>,
}

impl InProcess {
    /// Creates an operator's surroundings that are those of a process of its own, but for the seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self {
            metrics: Metrics::new(),
            clock: Clock::system(),
            tasks: None,
            seed,
            election: None,
            debug: None,
            passes: None,
        }
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
    operate(settings, client, given, Signals::Channel(signals)).await
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
    let flags = flags.map_err(|error| {
        super::not_a_number(&error).unwrap_or_else(|| {
            // What follows the first paragraph is clap's own hint.
            let text = error.to_string();
            let cause = text.trim_start_matches("error: ").split("\n\n").next().unwrap_or_default();
            Failure::Usage { cause: cause.to_owned(), remedy: "See windlass run --help.".to_owned() }
        })
    })?;
    Settings::of(&flags.args)
}

async fn find_and_operate(settings: Settings, election: Option<Handle>) -> Result<u8, Failure> {
    let mut signals = listen()?;
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
    let seed = fastrand::u64(..);
    match settings.dry_run {
        Some(how) => dry_run::run(how, settings, client, seed, &mut signals).await,
        None => {
            let given = InProcess { election, ..InProcess::new(seed) };
            operate(settings, client, given, signals).await.map(|()| 0)
        }
    }
}

/// Runs the operator until a signal or a failure, and stops it.
async fn operate(
    mut settings: Settings,
    client: ApiClient,
    given: InProcess,
    signals: Signals,
) -> Result<(), Failure> {
    tracing::info!(
        version = env!("CARGO_PKG_VERSION"),
        namespaces =
            if settings.namespaces.is_empty() { "all".to_owned() } else { settings.namespaces.join(",") },
        controllers = settings.controllers.join(","),
        "Starting"
    );
    let (tracer, exporting) = TraceSettings::start(settings.traces.take(), &given.metrics)?;
    let manager = manager(settings, client, given, tracer)?;
    exporting.beside(manager.run_until(signals)).await.map_err(failure)
}

/// Sets up a manager with the chosen controllers and the endpoints.
fn manager(
    settings: Settings,
    client: ApiClient,
    given: InProcess,
    tracer: Tracer,
) -> Result<Manager, Failure> {
    let InProcess { metrics, clock, tasks, seed, election, debug, passes } = given;
    metrics.observe_process(version::BUILD.to_vec());
    let debug = debug.or_else(|| settings.debug.map(|listener| Debug::new(listener, clock)));
    let client = client
        .with_streamed_lists(settings.streams_lists)
        .with_protobuf(settings.reads_protobuf)
        .with_compressed_lists(settings.compresses_lists)
        .with_limits(settings.requests);
    let client = debug.as_ref().map_or(client.clone(), |debug| debug.observe(client));
    let mut manager = Manager::new(client, settings.limits)
        .with_namespaces(settings.namespaces)
        .with_resync_period(settings.resync_period)
        .with_event_qps(settings.event_qps)
        .with_shutdown_timeout(settings.shutdown_timeout)
        .with_metrics(metrics)
        .with_tracer(tracer)
        .with_clock(clock)
        .with_seed(seed);
    if settings.dry_run.is_some() {
        manager = manager.without_events();
    } else if let Some(flags) = settings.election {
        manager = flags.set_up(manager)?;
        if let Some(runtime) = election {
            manager = manager.with_election_runtime(runtime);
        }
    }
    let tasks = tasks.map_or_else(|| build_tasks(&settings.webapp_tasks, clock), Ok)?;
    for name in settings.controllers {
        let workers = settings.workers_of.get(name).copied().unwrap_or(settings.workers);
        let added = manager.add(|shared| {
            let controller = operators::controller(name, shared, &tasks)?;
            let controller: Runnable = controller.expect("the name was chosen from the list of all");
            Ok(workers.set(controller))
        });
        added.map_err(|error| Failure::Running(error.to_string()))?;
    }
    let (client, health) = (manager.client().clone(), manager.health());
    let mut servers = endpoints::servers(settings.listeners, &client, manager.metrics(), health)?;
    if let Some(debug) = debug {
        let election = (manager.leadership(), manager.shards());
        servers.push(debug.server(manager.views(), manager.caches(), election, &client)?);
    } else if let Some(observer) = passes {
        manager.views().iter().for_each(|view| view.workers.observe(observer.clone()));
    }
    servers.into_iter().for_each(|server| manager.add_server(|stop| server.run(stop)));
    Ok(manager)
}

/// Names the flag that a failure is about.
fn failure(error: RunError) -> Failure {
    match error {
        RunError::Interrupted => Failure::AtOnce(error.to_string()),
        RunError::DrainTimedOut { timeout, keys } => {
            let flag = "--shutdown-timeout";
            Failure::Running(format!("syncs in flight did not finish within {flag} ({timeout:?}): {keys}"))
        }
        error => Failure::Running(error.to_string()),
    }
}

fn build_tasks(tasks: &[TaskSpec], clock: Clock) -> Result<Vec<TaskEntry>, Failure> {
    tasks::build(tasks, clock).map_err(|error| Failure::Usage {
        cause: format!("--webapp-tasks: task {:?}: {}", error.task, error.cause),
        remedy: "Run `windlass schema webapp-tasks` to see the fields of a task.".to_owned(),
    })
}

pub(crate) async fn connect(source: &ConfigSource) -> Result<ApiClient, Failure> {
    let config = Config::load(source).await.map_err(|error| usage(&error))?;
    tracing::info!(server = config.server(), "Connecting to the API server");
    ApiClient::connect(config).await.map_err(|error| usage(&error))
}

/// Listens for the signals that stop the process.
pub(crate) fn listen() -> Result<Signals, Failure> {
    Signals::listen().map_err(|error| failure(RunError::Signals(error.to_string())))
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
        ConfigError::Proxy { .. } => {
            "Correct the kubeconfig's proxy-url or HTTPS_PROXY, or except the server with NO_PROXY."
        }
        ConfigError::OtherServer { .. } => "Restart the process.",
    };
    Failure::Usage { cause: error.to_string(), remedy: remedy.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::capture_log;

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
