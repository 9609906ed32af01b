//! `windlass demo`: the operator at work, without a cluster.
//!
//! It starts the embedded API server (or takes a cluster by `--kubeconfig`), applies the definitions and
//! samples, runs the operator as `run` does, and shows what happens.
//!
//! ```text
//! Sim ◀─Door── operator (run_over)          ┌─▶ Board ─▶ table or lines on standard output
//!  ▲ ◀─Door── setup: definitions, samples   │
//!  └──https── kubectl in another terminal   └─ informers of its own
//! ```

mod board;
mod setup;

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use kube_client::Client;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use self::board::{Board, Verdict};
use super::run::{Signals, connect};
use super::{Failure, duration, logging, print};
use crate::client::{ApiClient, Clock, ConfigSource};
use crate::sim::{Door, HttpError, HttpServer, Settings, Sim};

/// How long the operator may take to stop.
const STOPPING: Duration = Duration::from_secs(5);

#[derive(Debug, clap::Args)]
#[command(after_help = "The embedded server is a stand-in for kube-apiserver and what stands behind it: no \
    containers run, nothing is kept when it ends.\n\nDURATION is a number with a unit: 20s, 2m.")]
pub(super) struct Args {
    /// Run against this cluster instead of an embedded server: definitions and samples are created there,
    /// in the namespace `default`, and stay
    #[arg(long, env = "WINDLASS_KUBECONFIG", value_name = "FILE", conflicts_with = "port")]
    kubeconfig: Option<PathBuf>,

    /// Port of the embedded server on 127.0.0.1; a free one when left out
    #[arg(long, env = "WINDLASS_PORT", value_name = "PORT")]
    port: Option<u16>,

    /// Custom resources to start with, as YAML; the samples of this program when left out
    #[arg(long, env = "WINDLASS_SAMPLES", value_name = "FILE")]
    samples: Option<PathBuf>,

    /// End when all samples are Ready: with 0, or with 1 and the reasons when they are not within --timeout
    #[arg(long, env = "WINDLASS_ONCE")]
    once: bool,

    /// How long --once waits
    #[arg(long, env = "WINDLASS_TIMEOUT", value_name = "DURATION", default_value = "60s",
          value_parser = duration::parse)]
    timeout: Duration,

    #[command(flatten)]
    logging: logging::QuietLogArgs,
}

/// Where the operator works, and what keeps that place alive.
struct Place {
    client: ApiClient,
    clock: Clock,
    operator: ApiClient,
    embedded: Option<Embedded>,
}

struct Embedded {
    /// Holds the kubeconfig; it goes with the demo.
    dir: tempfile::TempDir,
    address: SocketAddr,
    /// The server's time and its connections.
    _tasks: JoinSet<()>,
}

pub(super) fn run(args: &Args) -> Result<(), Failure> {
    let samples = setup::read_samples(args.samples.as_deref())?;
    logging::start_quietly(&args.logging)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime = runtime.map_err(|error| Failure::Running(format!("start the runtime: {error}")))?;
    let outcome = runtime.block_on(show(args, &samples));
    runtime.shutdown_background();
    outcome
}

async fn show(args: &Args, samples: &[setup::Sample]) -> Result<(), Failure> {
    let mut signals = Signals::listen()?;
    let place = tokio::select! {
        biased;
        _ = signals.next() => return Ok(()),
        place = place(args) => place?,
    };
    print(&place.introduction())?;
    tokio::select! {
        biased;
        _ = signals.next() => return Ok(()),
        created = setup::create(&place.client, samples) => created?,
    }
    let (stop, stopped) = mpsc::channel(2);
    let mut operator = JoinSet::new();
    let client = place.operator.clone();
    operator.spawn(async move { super::run_over(client, &[], stopped).await });
    let board = Board::new(&place.client, place.clock, samples);
    let verdict = tokio::select! {
        biased;
        _ = signals.next() => Ok(Verdict::Stopped),
        ended = operator.join_next() => Err(operator_failed(ended)),
        shown = board.show(args.once.then_some(args.timeout)) => shown,
    };
    // Nobody listens when it has ended by itself.
    stop.try_send("SIGTERM").ok();
    tokio::select! {
        biased;
        _ = signals.next() => {}
        _ = tokio::time::timeout(STOPPING, operator.join_next()) => {}
    }
    place.farewell()?;
    match verdict? {
        Verdict::Stopped | Verdict::Ready => Ok(()),
        Verdict::NotReady(reasons) => Err(Failure::Running(format!(
            "not all samples are Ready within {:?}:\n{}",
            args.timeout,
            reasons.join("\n")
        ))),
    }
}

/// How the operator's task ends: its own outcome, or a panic.
type Ended = Option<Result<Result<(), (u8, String)>, tokio::task::JoinError>>;

fn operator_failed(ended: Ended) -> Failure {
    match ended {
        Some(Ok(Err((_, message)))) => Failure::Running(format!("the operator ended: {message}")),
        _ => Failure::Running("the operator ended".to_owned()),
    }
}

async fn place(args: &Args) -> Result<Place, Failure> {
    let clock = Clock::system();
    if args.kubeconfig.is_some() {
        let source = ConfigSource { kubeconfig: args.kubeconfig.clone(), context: None };
        let client = connect(&source).await?;
        return Ok(Place { operator: client.clone(), client, clock, embedded: None });
    }
    let sim = Sim::new(Settings { seed: fastrand::u64(..), epoch: clock.now(), ..Settings::default() });
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, args.port.unwrap_or(0)));
    let server = HttpServer::bind(&sim, address).await.map_err(|error| match error {
        HttpError::Listen { .. } => Failure::Usage {
            cause: error.to_string(),
            remedy: "Choose another port with --port, or leave it out for a free one.".to_owned(),
        },
        HttpError::Certificates(_) => Failure::Running(error.to_string()),
    })?;
    let failed = |error: &dyn std::fmt::Display| Failure::Running(format!("write a kubeconfig: {error}"));
    let kubeconfig = server.kubeconfig("you").map_err(|error| failed(&error))?;
    // The kubeconfig holds a token.
    let owner_alone = std::os::unix::fs::PermissionsExt::from_mode(0o700);
    let dir = tempfile::Builder::new().prefix("windlass-demo-").permissions(owner_alone).tempdir();
    let dir = dir.map_err(|error| failed(&error))?;
    std::fs::write(dir.path().join("kubeconfig"), format!("{kubeconfig:#}\n")).map_err(|e| failed(&e))?;
    let client = |user| ApiClient::new(Client::new(Door::new(&sim, user), "default"));
    let (client, operator) = (client("demo"), client("windlass"));
    let address = server.address();
    let mut tasks = JoinSet::new();
    tasks.spawn(server.run());
    tasks.spawn(async move { sim.run().await });
    Ok(Place { client, clock, operator, embedded: Some(Embedded { dir, address, _tasks: tasks }) })
}

// === impl Place ===

impl Place {
    /// What a person reads first.
    fn introduction(&self) -> String {
        let (server, export) = match &self.embedded {
            Some(embedded) => (
                format!("Embedded Kubernetes API server at https://{}; Ctrl-C ends it.", embedded.address),
                format!("  export KUBECONFIG={}\n", embedded.dir.path().join("kubeconfig").display()),
            ),
            None => (
                "Running on the cluster of the kubeconfig; Ctrl-C ends the operator.".to_owned(),
                String::new(),
            ),
        };
        format!(
            "{server}\nIn a second terminal:\n{export}  \
             kubectl scale deployment/example-foo --replicas=9   # put back at once\n  \
             kubectl delete deployment example-foo               # comes back\n  \
             kubectl describe foo example                        # tells what happened\n\n"
        )
    }

    fn farewell(&self) -> Result<(), Failure> {
        match &self.embedded {
            Some(_) => Ok(()),
            None => print("The definitions and the samples are still there: kubectl delete foo --all\n"),
        }
    }
}
