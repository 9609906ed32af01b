//! `windlass run`: wires everything, runs it, ends it in order.
//!
//! Stop order: informers and workers (syncs in flight end), then what events are left. A second signal
//! exits at once.

mod flags;

use std::time::Duration;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc;
use tokio::task::{JoinError, JoinSet};
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

use super::{Failure, endpoints, logging};
use crate::cache::{SharedInformerFactory, Synced};
use crate::client::{ApiClient, Clock, Config, ConfigError, ConfigSource};
use crate::controller::builder::Shared;
use crate::controller::run::audit::Audits;
use crate::metrics::Metrics;
use crate::operators::webapp::tasks;
use crate::operators::{self, Context};
use crate::record;
pub(super) use flags::Args;
use flags::Settings;

/// How long it takes to end what does nothing.
const MOMENT: Duration = Duration::from_millis(250);
/// How long the last events may take.
const EVENTS_FLUSH: Duration = Duration::from_secs(5);

pub(super) fn run(args: &Args) -> Result<(), Failure> {
    let settings = Settings::of(args)?;
    logging::start(&args.logging)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let runtime = runtime.map_err(|error| Failure::Running(format!("start the runtime: {error}")))?;
    let outcome = runtime.block_on(find_and_operate(settings));
    // What is still blocked (an exec plugin, a frozen disk) must not hold the exit.
    runtime.shutdown_background();
    outcome
}

/// Runs the operator over a client that is made elsewhere, with the flags of `run` that concern the machine;
/// `signals` stands for the process's. Ends as the process would: with the message and the exit code of a
/// failure.
pub(super) async fn run_over(
    client: ApiClient,
    flags: &[&str],
    seed: u64,
    signals: mpsc::Receiver<&'static str>,
) -> Result<(), Failure> {
    #[derive(clap::Parser)]
    struct Flags {
        #[command(flatten)]
        args: Args,
    }
    let flags = std::iter::once("run").chain(flags.iter().copied());
    // The environment is for the process's own flags.
    let command = <Flags as clap::CommandFactory>::command().mut_args(|arg| arg.env(None::<&str>));
    let matches = command.try_get_matches_from(flags);
    let flags = matches.and_then(|matches| <Flags as clap::FromArgMatches>::from_arg_matches(&matches));
    let flags = flags.map_err(|error| Failure::Usage {
        cause: error.to_string().trim_start_matches("error: ").to_owned(),
        remedy: "See windlass run --help.".to_owned(),
    })?;
    operate(Settings::of(&flags.args)?, client, seed, &mut Signals::Channel(signals)).await
}

async fn find_and_operate(settings: Settings) -> Result<(), Failure> {
    let mut signals = Signals::listen()?;
    // An exec plugin of a kubeconfig may take its time.
    let client = tokio::select! {
        biased;
        name = signals.next() => {
            tracing::info!(signal = name, "Stopped before it started");
            return Ok(());
        }
        client = connect(&settings.source) => client?,
    };
    operate(settings, client, fastrand::u64(..), &mut signals).await
}

/// The machine from end to end.
async fn operate(
    settings: Settings,
    client: ApiClient,
    seed: u64,
    signals: &mut Signals,
) -> Result<(), Failure> {
    tracing::info!(
        version = env!("CARGO_PKG_VERSION"),
        namespace = settings.namespace.as_deref().unwrap_or("all"),
        controllers = settings.controllers.join(","),
        "Starting"
    );
    let metrics = Metrics::new();
    let client = client.with_limits(settings.requests).with_metrics(&metrics);
    let clock = Clock::system();
    let informers =
        SharedInformerFactory::new(client.clone(), settings.namespace, settings.resync_period, seed);
    let (recorder, sink) = record::pair(client.clone(), clock, record::instance());
    let queues = metrics.clone();
    let sink = sink.with_qps(settings.event_qps).waits_while(move || queues.has_queued_keys());
    endpoints::observe_events(&metrics, recorder.read_counts());
    let shared = Shared {
        client: client.clone(),
        informers: &informers,
        recorder,
        clock,
        limits: settings.limits,
        metrics: metrics.clone(),
        audits: Audits::default(),
    };
    let mut context = Context {
        shared,
        webapp_tasks: tasks::build(&settings.webapp_tasks, clock).map_err(|error| Failure::Usage {
            cause: format!("--webapp-tasks: task {:?}: {}", error.task, error.cause),
            remedy: "`windlass schema webapp-tasks` tells what a task may have.".to_owned(),
        })?,
    };

    let shutdown = CancellationToken::new();
    let mut machine = JoinSet::new();
    let mut controllers = Vec::new();
    for name in settings.controllers {
        context.shared.limits.workers =
            settings.workers_of.get(name).copied().unwrap_or(settings.limits.workers);
        controllers.push(operators::wire(name, &context).expect("the name was chosen from the list of all"));
    }
    let audits = std::mem::take(&mut context.shared.audits);
    drop(context);
    let caches = informers.states();
    endpoints::observe(&metrics, caches.clone());
    let started: Vec<Synced> = controllers.iter().map(|wired| wired.started.clone()).collect();
    let servers = endpoints::servers(settings.listeners, &metrics, caches, started, shutdown.clone())?;
    for wired in controllers {
        machine.spawn((wired.run)(shutdown.child_token()).in_current_span());
    }
    if let Some(period) = settings.limits.audit_period {
        let (namespace, stop) = (informers.namespace().map(str::to_owned), shutdown.child_token());
        let audits = audits.run(client.clone(), namespace, period, metrics.clone(), stop);
        machine.spawn(audits.in_current_span());
    }
    let stop = shutdown.child_token();
    machine.spawn(async move { informers.run(stop).await }.in_current_span());
    // Events and endpoints outlive the machine.
    let (mut others, last) = (JoinSet::new(), CancellationToken::new());
    others.spawn(sink.run(last.clone()).in_current_span());
    for server in servers {
        others.spawn(server.run(last.clone()).in_current_span());
    }

    let outcome = until_stopped(&mut machine, &mut others, signals).await;
    shutdown.cancel();
    client.gate().shut_down();
    stop_all(outcome, machine, others, &last, settings.shutdown_timeout, signals).await
}

/// Lets syncs in flight end, then events; a second signal, or too long a time, is a failure.
async fn stop_all(
    outcome: Result<(), Failure>,
    mut machine: JoinSet<()>,
    mut others: JoinSet<()>,
    last: &CancellationToken,
    limit: Duration,
    signals: &mut Signals,
) -> Result<(), Failure> {
    let drained = tokio::select! {
        biased;
        _ = signals.next() => {
            tracing::warn!("Exiting at once");
            return Err(Failure::Running("stopped by a second signal, with syncs in flight".to_owned()));
        }
                // What is idle needs a moment to end, too.
        drained = tokio::time::timeout(limit.max(MOMENT), drain(&mut machine)) => drained,
    };
    let drained = drained.unwrap_or_else(|_| {
        Err(Failure::Running(format!("syncs in flight did not end within --shutdown-timeout ({limit:?})")))
    });
    last.cancel();
    // Events are a courtesy: a server that hangs must not hold the exit, nor make it a failure.
    let flushed = tokio::select! {
        biased;
        _ = signals.next() => {
            tracing::warn!("Exiting at once, with events that are not written");
            return outcome.and(drained);
        }
        flushed = tokio::time::timeout(EVENTS_FLUSH.min(limit.max(MOMENT)), drain(&mut others)) => flushed,
    };
    let flushed = flushed.unwrap_or_else(|_| {
        tracing::warn!("The last events could not be written");
        Ok(())
    });
    outcome.and(drained).and(flushed)?;
    tracing::info!("Stopped");
    Ok(())
}

pub(super) async fn connect(source: &ConfigSource) -> Result<ApiClient, Failure> {
    let config = Config::load(source).await.map_err(|error| usage(&error))?;
    tracing::info!(server = config.server(), "Found the cluster");
    ApiClient::connect(config).await.map_err(|error| usage(&error))
}

/// Returns at the first signal, or when a part ends that should not.
async fn until_stopped(
    machine: &mut JoinSet<()>,
    events: &mut JoinSet<()>,
    signals: &mut Signals,
) -> Result<(), Failure> {
    let ended = tokio::select! {
        biased;
        name = signals.next() => {
            tracing::info!(signal = name, "Stopping: what is in flight ends first; a second signal exits at once");
            return Ok(());
        }
        ended = machine.join_next() => ended,
        ended = events.join_next() => ended,
    };
    Err(failed(ended))
}

/// Waits for all; a panic of one is the failure of the whole.
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
        Some(Err(error)) if error.is_panic() => {
            "a part of the machinery panicked; the log says where".to_owned()
        }
        _ => "a part of the machinery ended by itself".to_owned(),
    })
}

/// Where signals come from.
pub(super) enum Signals {
    Process { interrupt: Signal, terminate: Signal, hangup: Signal },
    Channel(mpsc::Receiver<&'static str>),
}

impl Signals {
    pub(super) fn listen() -> Result<Self, Failure> {
        let listen =
            |kind| signal(kind).map_err(|error| Failure::Running(format!("listen for signals: {error}")));
        Ok(Self::Process {
            interrupt: listen(SignalKind::interrupt())?,
            terminate: listen(SignalKind::terminate())?,
            hangup: listen(SignalKind::hangup())?,
        })
    }

    pub(super) async fn next(&mut self) -> &'static str {
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
            "Name a kubeconfig that `kubectl --kubeconfig FILE get namespaces` accepts."
        }
        ConfigError::NotConfigured => {
            "Name a kubeconfig with --kubeconfig or KUBECONFIG, or run in a Pod with a service account."
        }
        ConfigError::Client { .. } => "Check certificates, keys and plugins that the kubeconfig names.",
    };
    Failure::Usage { cause: error.to_string(), remedy: remedy.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::capture_log;

    /// The others are waited for.
    #[tokio::test]
    async fn a_panic_in_the_machinery_is_a_failure_of_the_whole() {
        let mut machine = JoinSet::new();
        let (ended, others) = tokio::sync::oneshot::channel();
        machine.spawn(async { std::panic::resume_unwind(Box::new("a part panicked")) });
        machine.spawn(async move { ended.send(()).unwrap() });
        let failure = drain(&mut machine).await.unwrap_err();
        assert_eq!(failure.to_string(), "error: a part of the machinery panicked; the log says where");
        others.await.unwrap();
    }

    /// The whole machine, over a connection that panics in the task that reads a kind's list.
    #[tokio::test(start_paused = true)]
    async fn a_panic_of_the_machinery_ends_the_process_with_1() {
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
        let flags = ["--metrics-bind-address=0", "--health-probe-bind-address=0"];
        let ended = super::super::run_over(client, &flags, 1, received).await;
        let message = "error: a part of the machinery panicked; the log says where".to_owned();
        assert_eq!(ended, Err((1, message)));
        let lines = log.lines();
        assert!(lines.iter().any(|line| line.starts_with("INFO Starting")), "{lines:?}");
        assert!(!lines.iter().any(|line| line == "INFO Stopped"), "{lines:?}");
    }
}
