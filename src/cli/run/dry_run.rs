//! `windlass run --dry-run`: one pass over each object, whose writes the server answers and does not store; then the
//! report.
//!
//! The caches, controllers and sync handlers are those of a real run, on a client in which every write is a dry run
//! (see [`client::dry_run`](crate::client::dry_run)). There is no election and no audit, no event is sent and no hook
//! called. The running operator is not disturbed.
//!
//! | exit code | when |
//! |---|---|
//! | 0 | nothing would change |
//! | 1 | something would change |
//! | 2 | an object's pass failed or the server refused a write, or the caches did not fill |

mod report;
mod text;

use std::io::{IsTerminal, Write as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

use super::super::{Failure, duration, namespaces, print};
use super::flags::Settings;
use super::{InProcess, failure, manager};
use crate::cache::{CacheState, ObjectName, wait_for_cache_sync};
use crate::client::ApiClient;
use crate::client::dry_run::{Effect, recorded};
use crate::controller::{OnceObserver, Signals};
use crate::traces::Tracer;
use report::Report;

/// How long a dry run takes before it shows its progress.
const PATIENCE: Duration = Duration::from_secs(2);
/// How often the progress is shown.
const PROGRESS: Duration = Duration::from_millis(500);

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Dry run")]
pub(super) struct DryRunFlags {
    /// Print what the operator would change, and exit: each object has one pass, whose writes the server checks and does
    /// not store. No Lease, event or hook. Exit codes: 0 nothing would change, 1 something would, 2 errors. Logs only
    /// warnings and serves no endpoints unless flags ask for them
    #[arg(long, env = "WINDLASS_DRY_RUN")]
    dry_run: bool,

    /// Format of the report of --dry-run: text, or json with stable fields
    #[arg(
        short,
        long,
        env = "WINDLASS_OUTPUT",
        value_name = "FORMAT",
        default_value = "text",
        requires = "dry_run"
    )]
    output: Output,

    /// How long --dry-run waits for its caches to fill. Too short: large clusters cannot be listed in time; too long: a
    /// missing permission is reported late
    #[arg(long, env = "WINDLASS_DRY_RUN_TIMEOUT", value_name = "DURATION", default_value = "60s",
          value_parser = duration::parse, requires = "dry_run")]
    dry_run_timeout: Duration,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Output {
    Text,
    Json,
}

/// The settings of a dry run.
#[derive(Clone, Copy, Debug)]
pub(super) struct DryRunSettings {
    output: Output,
    timeout: Duration,
}

impl DryRunSettings {
    /// Returns the settings; `None` for a real run.
    pub(super) fn of(flags: &DryRunFlags) -> Option<Self> {
        let DryRunFlags { dry_run, output, dry_run_timeout } = *flags;
        dry_run.then_some(Self { output, timeout: dry_run_timeout })
    }
}

/// What the sync of one object would do.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Pass {
    pub(super) kind: String,
    pub(super) namespace: Option<String>,
    pub(super) name: String,
    /// In their order.
    pub(super) effects: Vec<Effect>,
    /// Why the sync failed, if it did.
    pub(super) error: Option<String>,
}

/// Collects the passes.
#[derive(Default)]
struct Passes {
    expected: AtomicUsize,
    ended: Mutex<Vec<Pass>>,
}

impl Passes {
    /// Returns how many passes have ended, and how many are announced.
    fn progress(&self) -> (usize, usize) {
        (self.ended.lock().len(), self.expected.load(Ordering::Relaxed))
    }

    fn take(&self) -> Vec<Pass> {
        std::mem::take(&mut self.ended.lock())
    }
}

impl OnceObserver for Passes {
    fn expects(&self, syncs: usize) {
        self.expected.fetch_add(syncs, Ordering::Relaxed);
    }

    fn observe<'a>(
        &'a self,
        kind: &'a str,
        key: &'a ObjectName,
        sync: BoxFuture<'a, Result<(), String>>,
    ) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            let (ended, effects) = recorded(sync).await;
            let (namespace, name) = (key.namespace().map(str::to_owned), key.name().to_owned());
            let pass = Pass { kind: kind.to_owned(), namespace, name, effects, error: ended.err() };
            self.ended.lock().push(pass);
        })
    }
}

/// Makes the dry run, prints its report, and returns the exit code.
pub(super) async fn run(
    how: DryRunSettings,
    settings: Settings,
    client: ApiClient,
    seed: u64,
    signals: &mut Signals,
) -> Result<u8, Failure> {
    let has_colours = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    let is_coloured = has_colours && std::io::stdout().is_terminal();
    let (code, text) = report(how, settings, client, seed, signals, is_coloured).await?;
    print(&text)?;
    Ok(code)
}

/// Makes the dry run; returns the exit code and the report.
pub(super) async fn report(
    how: DryRunSettings,
    settings: Settings,
    client: ApiClient,
    seed: u64,
    signals: &mut Signals,
    is_coloured: bool,
) -> Result<(u8, String), Failure> {
    let passes = Arc::<Passes>::default();
    let (reader, namespaces) = (client.clone(), settings.namespaces.clone());
    pass_over_all(how, settings, client.with_dry_run(), &passes, seed, signals).await?;
    let passes = passes.take();
    if passes.is_empty() {
        namespaces_exist(&reader, &namespaces).await?;
    }
    let report = Report::of(passes);
    let text = match how.output {
        Output::Text => text::format(&report, is_coloured),
        Output::Json => {
            let text = serde_json::to_string_pretty(&report).map_err(|error| {
                Failure::Incomplete(format!("could not encode the report of the dry run: {error}"))
            })?;
            format!("{text}\n")
        }
    };
    Ok((report.code(), text))
}

/// Refuses to report that nothing would change where there is nothing.
async fn namespaces_exist(client: &ApiClient, names: &[String]) -> Result<(), Failure> {
    let missing = namespaces::missing(client, names).await;
    if missing.is_empty() {
        return Ok(());
    }
    Err(Failure::Usage {
        cause: format!("--namespace: there is no namespace {}", missing.join(", ")),
        remedy: "Create it, or correct its name; `kubectl get namespaces` lists all.".to_owned(),
    })
}

/// Runs the operator on a client that writes nothing, until each object had its pass.
async fn pass_over_all(
    how: DryRunSettings,
    settings: Settings,
    client: ApiClient,
    passes: &Arc<Passes>,
    seed: u64,
    signals: &mut Signals,
) -> Result<(), Failure> {
    let manager = manager(settings, client, InProcess::new(seed), Tracer::default())?;
    let (caches, started, stop) = (manager.caches(), manager.started(), CancellationToken::new());
    let late = async {
        if timeout(how.timeout, wait_for_cache_sync(&started, &stop)).await.is_ok() {
            std::future::pending::<()>().await;
        }
    };
    let outcome = tokio::select! {
        biased;
        name = signals.next() => Err(Failure::Incomplete(format!("{name} ended the dry run before its report"))),
        ended = manager.run_once(passes.clone(), stop.clone()) => ended.map_err(failure),
        () = late => Err(not_synced(how, &caches())),
        () = show_progress(&caches, passes) => Ok(()),
    };
    clear_progress();
    outcome
}

/// Names the caches that have not filled, and why.
fn not_synced(how: DryRunSettings, caches: &[CacheState]) -> Failure {
    let missing = caches.iter().filter(|cache| !cache.is_synced);
    let missing = missing.map(|cache| {
        let trouble = cache.trouble.as_deref().unwrap_or("not listed yet");
        format!("{} ({trouble})", cache.name_among(caches, " in "))
    });
    Failure::Usage {
        cause: format!(
            "--dry-run: these kinds could not be listed within {:?}: {}",
            how.timeout,
            missing.collect::<Vec<_>>().join(", ")
        ),
        remedy: "no response: check the server; 403: grant list and watch; 404: install the definition, or leave its \
                 controller out with --controllers; otherwise raise --dry-run-timeout."
            .to_owned(),
    }
}

/// Shows how far the dry run is on a terminal; never ends.
async fn show_progress(caches: &(impl Fn() -> Vec<CacheState> + Sync), passes: &Passes) {
    let mut next = Instant::now() + PATIENCE;
    loop {
        tokio::time::sleep_until(next).await;
        next = Instant::now() + PROGRESS;
        if !std::io::stderr().is_terminal() {
            continue;
        }
        let line = match passes.progress() {
            (_, 0) => {
                let states = caches();
                let listed = states.iter().filter(|cache| cache.is_synced).count();
                format!("listed {listed} of {} kinds", states.len())
            }
            (ended, expected) => format!("{ended} of {expected} objects"),
        };
        progress_line(&line);
    }
}

fn clear_progress() {
    if std::io::stderr().is_terminal() {
        progress_line("");
    }
}

/// Replaces the line of the progress. A closed terminal is nobody's loss.
fn progress_line(text: &str) {
    drop(write!(std::io::stderr().lock(), "\r\x1b[K{text}"));
}
