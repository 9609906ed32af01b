//! `windlass demo`: the operator at work, without a cluster.
//!
//! It starts the embedded API server (or takes a cluster by `--kubeconfig`), applies the definitions and
//! samples of all kinds, runs the operator as `run` does, and shows what happens.
//!
//! ```text
//! Sim ◀─InProcessTransport── operator (run_over)          ┌─▶ Board ─▶ rows ─▶ table or lines on standard output
//!  ▲ ◀─InProcessTransport── setup: definitions, samples   │     └─▶ Scaling: a Redis, up and down
//!  └──https── kubectl in another terminal   └─ informers of its own
//! ```
//!
//! | file | holds |
//! |---|---|
//! | `kinds.rs` | the list of kinds: a new one is an entry there |
//! | `setup.rs`, `place.rs` | definitions and samples, and the server that they are created on |
//! | `seen.rs`, `row.rs` | what is read of an object of any kind, and what its row says |
//! | `board.rs`, `table.rs` | all rows, and how they are printed |
//! | `scaling.rs` | what happens by itself |
//!
//! - It ends with 0 when all samples are Ready (`--once`) or when somebody stops it, with 1 when `--once` is not
//!   met (test: `once_ends_with_0_when_all_samples_are_ready`, `once_ends_with_1_and_the_reasons_when_they_are_not`)
//! - A taken port and a bad file are the user's to mend (test: `a_taken_port_and_a_bad_file_are_refused`)
//! - What is broken with kubectl is repaired (test: `what_is_broken_from_outside_is_repaired`)
//! - A Redis is scaled up and down by itself, but for `--once` (test: `a_redis_is_scaled_by_itself`)

mod board;
mod kinds;
mod place;
mod row;
mod scaling;
mod seen;
mod setup;
mod table;

use std::path::PathBuf;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::task::{JoinError, JoinSet};
use tokio::time::Instant;

use self::board::{Board, Verdict};
use self::place::Place;
use self::scaling::Scaling;
use super::run::Signals;
use super::{Failure, duration, logging, print};

/// How long the operator may take to stop.
const STOPPING: &str = "5s";

#[derive(Debug, clap::Args)]
#[command(after_help = "The embedded server is a stand-in for kube-apiserver and what stands behind it: no \
    containers run, nothing is kept when it ends.\n\nA few seconds after all samples are Ready, the first Redis \
    that was created is scaled up by two, and then down again, once; each time a line says so, with the command \
    that does the same. With --once nothing is scaled.\n\nDURATION is a number with a unit: 20s, 2m.")]
pub(super) struct Args {
    /// Run against this cluster instead of an embedded server: definitions and samples are created there,
    /// and stay
    #[arg(long, env = "WINDLASS_KUBECONFIG", value_name = "FILE", help_heading = "Where")]
    kubeconfig: Option<PathBuf>,

    /// Port of the embedded server on 127.0.0.1; a free one when left out or 0
    #[arg(long, env = "WINDLASS_PORT", value_name = "PORT", help_heading = "Where")]
    port: Option<u16>,

    /// Custom resources of any of our kinds to start with, as YAML; the samples of this program when left out
    #[arg(short = 'f', long, env = "WINDLASS_SAMPLES", value_name = "FILE", help_heading = "What")]
    samples: Option<PathBuf>,

    /// End when all samples are Ready: with 0, or with 1 and the reasons when they are not within --timeout
    #[arg(long, env = "WINDLASS_ONCE", help_heading = "What")]
    once: bool,

    /// How long --once waits, from the start on. Too short: nothing can be Ready yet
    #[arg(long, env = "WINDLASS_TIMEOUT", value_name = "DURATION", default_value = "60s",
          value_parser = duration::parse, help_heading = "What")]
    timeout: Duration,

    #[command(flatten)]
    logging: logging::QuietLogArgs,
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
    let deadline = args.once.then(|| Instant::now() + args.timeout);
    let mut signals = Signals::listen()?;
    let stopped = || {
        if args.once {
            Err(Failure::Running("stopped before all samples were Ready".to_owned()))
        } else {
            Ok(())
        }
    };
    let prepared = async {
        let place = Place::find(args.kubeconfig.as_deref(), args.port).await?;
        print(&place.introduction(samples))?;
        let created = place.create(samples).await?;
        Ok::<_, Failure>((place, created))
    };
    let (mut place, created) = tokio::select! {
        biased;
        _ = signals.next() => return stopped(),
        () = at(deadline) => {
            return Err(Failure::Running(format!("the server was not ready within --timeout ({:?})", args.timeout)));
        }
        prepared = prepared => prepared?,
    };
    let (stop, signal) = mpsc::channel(2);
    let mut operator = JoinSet::new();
    let client = place.operator.clone();
    let shutdown_timeout = format!("--shutdown-timeout={STOPPING}");
    operator.spawn(async move {
        // Nobody asks a demo whether it is ready, and its ports may be another's.
        let flags = [shutdown_timeout.as_str(), "--metrics-bind-address=0", "--health-probe-bind-address=0"];
        super::run_over(client, &flags, fastrand::u64(..), signal).await
    });
    let board = Board::new(&place.client, place.clock, samples, args.logging.is_silent());
    let scaling = if args.once { None } else { Scaling::of(&place.client, &created) };
    let verdict = tokio::select! {
        biased;
        _ = signals.next() => Ok(Verdict::Stopped),
        ended = operator.join_next() => Err(operator_ended(ended).err().unwrap_or_else(ended_by_itself)),
        failure = place.failed() => Err(failure),
        shown = board.show(deadline, scaling) => shown,
    };
    // Nobody listens when it has ended by itself.
    stop.try_send("SIGTERM").ok();
    let drained = tokio::select! {
        biased;
        _ = signals.next() => Err(Failure::Running("stopped by a second signal".to_owned())),
        ended = operator.join_next() => operator_ended(ended),
    };
    print(&place.farewell(&created))?;
    match verdict? {
        Verdict::Ready => drained,
        Verdict::Stopped => stopped().and(drained),
        Verdict::NotReady(reasons) => Err(Failure::Running(format!(
            "not all samples are Ready within {:?}:\n{}",
            args.timeout,
            reasons.join("\n")
        ))),
    }
}

/// Waits for a time, or for ever.
async fn at(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => tokio::time::sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}

fn ended_by_itself() -> Failure {
    Failure::Running("the operator ended by itself".to_owned())
}

/// How the operator's task ended: its own outcome, or a panic; nothing when it was taken before.
type Ended = Option<Result<Result<(), (u8, String)>, JoinError>>;

fn operator_ended(ended: Ended) -> Result<(), Failure> {
    match ended {
        None | Some(Ok(Ok(()))) => Ok(()),
        Some(Ok(Err((_, message)))) => {
            let cause = message.trim_start_matches("error: ");
            Err(Failure::Running(format!("the operator ended: {cause}")))
        }
        Some(Err(_)) => Err(Failure::Running("the operator panicked".to_owned())),
    }
}
