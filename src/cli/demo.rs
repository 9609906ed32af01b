//! `windlass demo`: runs the operator as `run` does, on the server of [`demo`](crate::demo), and shows what happens.

use std::path::PathBuf;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::task::{JoinError, JoinSet};
use tokio::time::Instant;

use super::run::{BindAddress, InProcess, bind_address, listen};
use super::{Failure, duration, endpoints, logging, print};
use crate::client::Clock;
use crate::debug::Debug;
use crate::demo::board::{Board, DemoEnd, at};
use crate::demo::scaling::Scaling;
use crate::demo::server::DemoServer;
use crate::demo::setup;

/// How long the operator may take to stop.
const STOPPING: &str = "5s";

#[derive(Debug, clap::Args)]
#[command(after_help = "The embedded server stands in for kube-apiserver and the controllers behind it: no \
    containers run, and nothing is kept when it exits.\n\nA few seconds after all samples are Ready, the \
    demo scales the first Redis that it created up by two and later down again, once. A line reports each \
    change, with the equivalent command. With --once nothing is scaled.\n\n  \
    windlass demo --open                                    see the operator work, in the browser\n  \
    windlass demo --port 6443                               with kubectl in a second terminal: the first lines say how\n  \
    windlass demo --metrics-bind-address 127.0.0.1:8080     and in a second terminal:\n  \
    windlass tune diagnose http://127.0.0.1:8080/metrics --for 30s\n\nDURATION is a number with a \
    unit: 20s, 2m.")]
pub(super) struct Args {
    /// Run on this cluster instead of an embedded server; definitions and samples are created there and not removed
    #[arg(long, value_name = "FILE", help_heading = "Where")]
    kubeconfig: Option<PathBuf>,

    /// Port of the embedded server on 127.0.0.1; default: a free port, also for 0
    #[arg(long, env = "WINDLASS_PORT", value_name = "PORT", help_heading = "Where")]
    port: Option<u16>,

    /// Address of the page and of /debug, ADDRESS:PORT, or 0 to disable; default: a free port on 127.0.0.1. Anybody who
    /// reaches it sees the names of objects
    #[arg(long, env = "WINDLASS_DEBUG_BIND_ADDRESS", value_name = "ADDRESS", default_value = "127.0.0.1:0",
          value_parser = bind_address, help_heading = "Where")]
    debug_bind_address: BindAddress,

    /// Address of /metrics, such as 127.0.0.1:8080, for `windlass tune diagnose`; 0 for none
    #[arg(long, env = "WINDLASS_METRICS_BIND_ADDRESS", value_name = "ADDRESS", default_value = "0",
          value_parser = checked_address, help_heading = "Where")]
    metrics_bind_address: String,

    /// Open the page in the browser
    #[arg(long, env = "WINDLASS_OPEN", help_heading = "What")]
    open: bool,

    /// YAML file with the custom resources to start with, of any kind of this operator; default: built-in samples
    #[arg(short = 'f', long, env = "WINDLASS_SAMPLES", value_name = "FILE", help_heading = "What")]
    samples: Option<PathBuf>,

    /// Exit with 0 once all samples are Ready, or with 1 and the reasons if they are not within --timeout
    #[arg(long, env = "WINDLASS_ONCE", help_heading = "What")]
    once: bool,

    /// How long --once waits, measured from the start. Too short: nothing can be Ready yet
    #[arg(long, env = "WINDLASS_TIMEOUT", value_name = "DURATION", default_value = "60s",
          value_parser = duration::parse, help_heading = "What")]
    timeout: Duration,

    #[command(flatten)]
    logging: logging::QuietLogArgs,
}

pub(super) fn run(args: &Args) -> Result<(), Failure> {
    if args.open && args.debug_bind_address.is_none() {
        return Err(Failure::Usage {
            cause: "--open with --debug-bind-address=0".to_owned(),
            remedy: "Leave out one of them: the page is served on that address.".to_owned(),
        });
    }
    let samples = setup::read_samples(args.samples.as_deref())?;
    logging::start_quietly(&args.logging)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime =
        runtime.map_err(|error| Failure::Running(format!("could not start the runtime: {error}")))?;
    let outcome = runtime.block_on(show(args, &samples));
    runtime.shutdown_background();
    outcome
}

/// Checks an address, and leaves it as it is written.
fn checked_address(text: &str) -> Result<String, String> {
    bind_address(text).map(|_| text.to_owned())
}

/// The demo before the operator starts.
struct Prepared<'a> {
    server: DemoServer,
    created: Vec<&'a setup::Sample>,
    debug: Option<Debug>,
    /// The load, and the browser.
    others: JoinSet<()>,
}

async fn prepare<'a>(
    args: &Args,
    samples: &'a [setup::Sample],
    debug: Option<Debug>,
) -> Result<Prepared<'a>, Failure> {
    let server = DemoServer::find(args.kubeconfig.as_deref(), args.port).await?;
    let (load, panel) = server.playground().unzip();
    let debug = match panel {
        Some(panel) => debug.map(|debug| debug.with_switches(panel)).transpose()?,
        None => debug,
    };
    let page = debug.as_ref().map(Debug::url);
    print(&server.introduction(samples, page.as_deref()))?;
    let created = server.create(samples).await?;
    let mut others = JoinSet::new();
    if let Some(load) = load {
        others.spawn(load.run());
    }
    if let Some(page) = page.filter(|_| args.open) {
        others.spawn_blocking(move || open(&page));
    }
    Ok(Prepared { server, created, debug, others })
}

async fn show(args: &Args, samples: &[setup::Sample]) -> Result<(), Failure> {
    let debug = endpoints::take("--debug-bind-address", args.debug_bind_address)?;
    let debug = debug.map(|listener| Debug::new(listener, Clock::system()));
    let deadline = args.once.then(|| Instant::now() + args.timeout);
    let mut signals = listen()?;
    let stopped = || {
        if args.once {
            Err(Failure::Running("stopped before all samples were Ready".to_owned()))
        } else {
            Ok(())
        }
    };
    let Prepared { mut server, created, debug, others: _others } = tokio::select! {
        biased;
        _ = signals.next() => return stopped(),
        () = at(deadline) => {
            return Err(Failure::Running(format!("the server was not ready within --timeout ({:?})", args.timeout)));
        }
        prepared = prepare(args, samples, debug) => prepared?,
    };
    let (stop, signal) = mpsc::channel(2);
    let mut operator = JoinSet::new();
    let client = server.operator.clone();
    let shutdown_timeout = format!("--shutdown-timeout={STOPPING}");
    let metrics = format!("--metrics-bind-address={}", args.metrics_bind_address);
    operator.spawn(async move {
        // A demo needs no other endpoints, and their ports may be in use.
        let flags = [&shutdown_timeout, "--leader-elect=false", &metrics, "--health-probe-bind-address=0"];
        let given = InProcess { debug, ..InProcess::new(fastrand::u64(..)) };
        super::run::run_over(client, &flags, given, signal).await
    });
    let board = Board::new(&server.client, server.clock, samples, args.logging.is_silent());
    let scaling = if args.once { None } else { Scaling::of(&server.client, &created) };
    let end = tokio::select! {
        biased;
        _ = signals.next() => Ok(DemoEnd::Stopped),
        ended = operator.join_next() => Err(operator_ended(ended).err().unwrap_or_else(ended_by_itself)),
        failure = server.failed() => Err(failure),
        shown = board.show(deadline, scaling) => shown,
    };
    // The channel is closed if the operator has already ended.
    stop.try_send("SIGTERM").ok();
    let drained = tokio::select! {
        biased;
        _ = signals.next() => Err(Failure::Running("stopped by a second signal".to_owned())),
        ended = operator.join_next() => operator_ended(ended),
    };
    print(&server.farewell(&created))?;
    match end? {
        DemoEnd::Ready => drained,
        DemoEnd::Stopped => stopped().and(drained),
        DemoEnd::NotReady(reasons) => Err(Failure::Running(format!(
            "not all samples are Ready within {:?}:\n{}",
            args.timeout,
            reasons.join("\n")
        ))),
    }
}

/// Opens a URL in the browser, and says so if that fails.
fn open(url: &str) {
    let opener = if cfg!(target_os = "macos") { "open" } else { "xdg-open" };
    let opened = std::process::Command::new(opener)
        .arg(url)
        .stdin(std::process::Stdio::null())
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null())
        .status();
    if !opened.is_ok_and(|status| status.success()) {
        tracing::warn!("Could not run {opener}; open the URL by hand");
    }
}

fn ended_by_itself() -> Failure {
    Failure::Running("the operator ended unexpectedly".to_owned())
}

/// How the operator's task ended: its outcome or a panic; `None` if the task was joined before.
type Ended = Option<Result<Result<(), Failure>, JoinError>>;

fn operator_ended(ended: Ended) -> Result<(), Failure> {
    match ended {
        None | Some(Ok(Ok(()))) => Ok(()),
        Some(Ok(Err(failure))) => {
            let message = failure.to_string();
            let cause = message.trim_start_matches("error: ");
            Err(Failure::Running(format!("the operator ended: {cause}")))
        }
        Some(Err(_)) => Err(Failure::Running("the operator panicked".to_owned())),
    }
}
