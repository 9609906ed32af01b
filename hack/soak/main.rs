//! A soak test: the operator on a real control plane, for hours, under churn and random faults.
//!
//! `hack/soak.sh` builds what this needs and starts it. The parts share a [`Run`], and work side by side until the time
//! is over: [`churn`], [`neighbour`], [`faults`], and [`watch`] for progress and figures. Then everything settles, and
//! [`check`] compares what is in the cluster with what should be there. [`report`] prints it.

#![allow(clippy::print_stdout, reason = "the report is the result")]

mod check;
mod churn;
mod cluster;
mod faults;
mod figures;
mod foreign;
mod kinds;
mod log;
mod neighbour;
mod operator;
mod proxy;
mod report;

use std::cell::RefCell;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use clap::{Parser, ValueEnum};
use serde_json::Value;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::{Instant, MissedTickBehavior};
use tokio_util::sync::CancellationToken;

use check::View;
use cluster::{Launcher, Refusal, Server};
use foreign::Foreign;
use operator::{Operator, Writes};
use proxy::Proxy;
use report::Report;

/// How long everything may take to settle after the last fault.
const SETTLE_MAX: Duration = Duration::from_secs(300);
/// How long nothing may be written at rest.
const REST: Duration = Duration::from_secs(60);
/// How often progress is printed, and figures are taken.
const TICK: Duration = Duration::from_secs(10);

/// `hack/soak.sh --help` explains the flags.
#[derive(Parser)]
#[command(name = "soak")]
struct Cli {
    #[arg(default_value = "1", value_parser = hours)]
    hours: Duration,
    #[arg(long, short, value_enum, default_value_t = Output::Text)]
    output: Output,
    /// The operator's program.
    #[arg(long)]
    windlass: PathBuf,
    /// The control plane's launcher.
    #[arg(long)]
    launcher: PathBuf,
    #[arg(long, env = "SOAK_SEED")]
    seed: Option<u64>,
    #[arg(long, value_enum)]
    sabotage: Option<check::Sabotage>,
    /// Keeps the operator's logs also if it passes.
    #[arg(long)]
    keep_logs: bool,
}

#[derive(Clone, Copy, ValueEnum)]
enum Output {
    Text,
    Json,
}

fn hours(text: &str) -> Result<Duration, String> {
    let length = text.parse().ok().and_then(|hours: f64| Duration::try_from_secs_f64(hours * 3600.0).ok());
    let is_enough = |length: &Duration| *length >= Duration::from_secs(60);
    length.filter(is_enough).ok_or_else(|| "give a number of hours of at least 0.02, such as 0.5".to_owned())
}

/// What the parts of a run share.
struct Run {
    server: Server,
    seed: u64,
    length: Duration,
    /// When churn began.
    began: Instant,
    /// Is cancelled when the time is over: no part begins anything new.
    over: CancellationToken,
    operator: RefCell<Operator>,
    book: RefCell<Book>,
}

/// What a run writes down for the report.
#[derive(Default)]
struct Book {
    changes: churn::Counts,
    episodes: Vec<faults::Episode>,
    times: Vec<neighbour::Measured>,
    /// What went wrong, beside the checks at the end.
    failures: Vec<String>,
}

impl Run {
    fn fail(&self, what: String) {
        say(&format!("FAILURE: {what}"));
        self.book.borrow_mut().failures.push(what);
    }

    /// Waits for this long, or until the time is over; returns whether there is time left.
    async fn pause(&self, time: Duration) -> bool {
        tokio::time::timeout(time, self.over.cancelled()).await.is_err()
    }

    fn rng(&self, part: u64) -> fastrand::Rng {
        fastrand::Rng::with_seed(self.seed.wrapping_mul(31).wrapping_add(part))
    }
}

/// Prints a line of progress with the time of day, which is UTC as in the operator's log.
fn say(line: &str) {
    eprintln!("{} {line}", jiff::Timestamp::now().strftime("%H:%M:%S"));
}

fn main() -> ExitCode {
    let mut arguments = std::env::args_os().skip(1);
    if arguments.next().is_some_and(|first| first == operator::WITH_PARENT) {
        eprintln!("soak: start the operator: {}", operator::exec_with_parent(arguments));
        return ExitCode::FAILURE;
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let outcome =
        runtime.context("start the runtime").and_then(|runtime| runtime.block_on(run(&Cli::parse())));
    match outcome {
        Ok(Some(true)) => ExitCode::SUCCESS,
        Ok(Some(false)) => ExitCode::FAILURE,
        Ok(None) => ExitCode::from(130),
        Err(error) => {
            eprintln!("soak: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Returns whether the operator has passed, or `None` after a signal. In any case, nothing that was started still runs:
/// the operator is killed on drop, and the launcher is waited for. After a SIGKILL of this process, both end by themselves.
async fn run(cli: &Cli) -> anyhow::Result<Option<bool>> {
    let mut signals = [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()].map(signal);
    let [Ok(interrupt), Ok(terminate), Ok(hangup)] = &mut signals else {
        anyhow::bail!("signals cannot be listened for");
    };
    let mut launcher = Launcher::start(&cli.launcher)?;
    let outcome = tokio::select! {
        biased;
        _ = interrupt.recv() => Ok(None),
        _ = terminate.recv() => Ok(None),
        _ = hangup.recv() => Ok(None),
        outcome = soak(cli, &mut launcher) => outcome.map(Some),
    };
    launcher.stop().await;
    outcome
}

async fn soak(cli: &Cli, launcher: &mut Launcher) -> anyhow::Result<bool> {
    let seed = cli.seed.unwrap_or_else(|| fastrand::u64(..1_000_000));
    let ready = launcher.ready().await?;
    let server = Server::of(&ready).await?;
    server.install_definitions().await?;
    let identity = cluster::operators_kubeconfig(&server, launcher).await?;
    let (proxy, kubeconfig) = Proxy::before(&identity, &ready.dir).await?;
    let operator = Operator::start(&cli.windlass, &kubeconfig)?;
    say(&format!(
        "soak: {:.2} h, SOAK_SEED={seed}, {}, {}; logs of the operator in {}",
        cli.hours.as_secs_f64() / 3600.0,
        operator.version,
        server.version().await?,
        operator.logs().display()
    ));
    let foreign = Foreign::plant(&server).await?;
    let run = Run {
        server,
        seed,
        length: cli.hours,
        began: Instant::now(),
        over: CancellationToken::new(),
        operator: RefCell::new(operator),
        book: RefCell::default(),
    };
    let clock = async {
        tokio::time::sleep(run.length).await;
        run.over.cancel();
    };
    let stopped = CancellationToken::new();
    let work = async {
        let ended = tokio::join!(
            clock,
            churn::churn(&run),
            neighbour::create_and_measure(&run),
            faults::inject(&run, &foreign, &proxy, launcher),
        );
        if let Err(error) = ended.3 {
            run.fail(format!("a fault could not be made or ended: {error:#}"));
        }
        let settled = settle(&run, &foreign, cli.sabotage).await;
        stopped.cancel();
        settled
    };
    let (settled, ()) = tokio::join!(work, watch(&run, &stopped));
    let report = Report::of(&run, settled);
    let passed = report.passed;
    match cli.output {
        Output::Text => print!("{report}"),
        Output::Json => println!("{}", serde_json::to_string(&report)?),
    }
    let operator = run.operator.into_inner();
    if passed && !cli.keep_logs {
        operator.remove_logs()?;
    } else {
        eprintln!("The operator's logs are kept in {}.", operator.logs().display());
    }
    Ok(passed)
}

/// Takes figures of the operator and prints a line of progress every ten seconds.
async fn watch(run: &Run, stopped: &CancellationToken) {
    let mut ticks = tokio::time::interval(TICK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    loop {
        tokio::select! {
            _ = ticks.tick() => {}
            () = stopped.cancelled() => return,
        }
        let sample = run.operator.borrow_mut().sample();
        revive(run);
        let objects = tokio::time::timeout(Duration::from_secs(3), run.server.list_all(&kinds::OURS)).await;
        let objects = match objects {
            Ok(Ok(all)) => {
                let all: Vec<&Value> = all.iter().filter(|object| !foreign::is_taken(object)).collect();
                let ready = all.iter().filter(|object| kinds::is_ready(object)).count();
                format!("{ready} of {} objects Ready", all.len())
            }
            Ok(Err(Refusal::Missing)) => "a kind is not served".to_owned(),
            Ok(Err(Refusal::Exists | Refusal::Invalid(_) | Refusal::Other(_))) | Err(_) => {
                "the API server does not answer".to_owned()
            }
        };
        let book = run.book.borrow();
        let sample = sample.map_or_else(|| "no operator".to_owned(), |sample| sample.to_string());
        let fault = book.episodes.last().filter(|episode| episode.ended.is_none());
        say(&format!(
            "{:5.1} min: {objects}, {} changes, {} faults{}, {sample}",
            run.began.elapsed().as_secs_f64() / 60.0,
            book.changes.made,
            book.episodes.len(),
            fault.map(|fault| format!(" (now: {})", fault.fault)).unwrap_or_default(),
        ));
    }
}

/// Starts the operator again if it has ended by itself, which fails the run.
fn revive(run: &Run) {
    let mut operator = run.operator.borrow_mut();
    if let Some(death) = operator.died() {
        run.fail(format!("the operator ended by itself: {death}"));
        if let Err(error) = operator.start_again() {
            run.fail(format!("the operator does not start again: {error:#}"));
        }
    }
}

/// How a run ended after its faults.
struct Settled {
    /// How long it took, or `None` if something was still wrong after [`SETTLE_MAX`].
    after: Option<Duration>,
    /// The view at the end.
    view: anyhow::Result<View>,
    /// The operator's writes at rest, if its metrics could be read.
    writes: anyhow::Result<AtRest>,
}

/// What the operator wrote while nothing was wrong.
struct AtRest {
    /// Writes of anything but events. There must be none.
    of_objects: f64,
    /// Writes of events: a series of events is ended some minutes after the last of them, with one write.
    of_events: f64,
}

/// Waits until nothing is wrong any more, and then counts the writes at rest.
async fn settle(run: &Run, foreign: &Foreign, sabotage: Option<check::Sabotage>) -> Settled {
    say("The time is over and no fault is under way; everything settles now.");
    let began = Instant::now();
    let look = async || View::of(&run.server, foreign).await;
    let mut after = None;
    while began.elapsed() < SETTLE_MAX {
        match look().await {
            Ok(view) if view.is_clean() => {
                after = Some(began.elapsed());
                break;
            }
            Ok(view) => {
                let first = view.checks().into_iter().find_map(|check| check.problems.into_iter().next());
                say(&format!("Not settled yet: {}", first.unwrap_or_default()));
            }
            Err(error) => say(&format!("Not settled yet: {error:#}")),
        }
        tokio::time::sleep(Duration::from_secs(5)).await;
    }
    say(&format!("Counting writes at rest for {} s.", REST.as_secs()));
    let writes = writes_at_rest(run).await;
    if let Some(sabotage) = sabotage {
        say(&format!("Sabotage, to see a check fail: {sabotage:?}"));
        if let Err(error) = sabotage.commit(&run.server).await {
            run.fail(format!("the sabotage failed: {error:#}"));
        }
    }
    Settled { after, view: look().await, writes }
}

/// Counts the operator's requests that are not reads, by its metrics.
async fn writes_at_rest(run: &Run) -> anyhow::Result<AtRest> {
    let address = run.operator.borrow().metrics_address()?;
    let before = Writes::read(&address).await?;
    tokio::time::sleep(REST).await;
    let after = Writes::read(&address).await?;
    for (method, count) in &after.by_method {
        let more = count - before.by_method.get(method).unwrap_or(&0.0);
        if more > 0.0 {
            say(&format!("written at rest: {more} {method}"));
        }
    }
    Ok(AtRest {
        of_objects: after.of_objects() - before.of_objects(),
        of_events: after.of_events - before.of_events,
    })
}

/// Returns the text of a field, or an empty one.
fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}
