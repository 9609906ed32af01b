//! `windlass tune sweep`: tries settings under a load, on all cores, and reports.
//!
//! # Guarantees
//! - A mistake in a flag is found before anything runs. (test: `flags_that_run_refuses_are_refused_first`)
//! - Of a recording that is long or has many changes the busiest stretch is replayed, so that it takes minutes.
//!   (test: `of_a_long_recording_the_busiest_stretch_is_replayed`)
//! - The same load and seed give the same report, on any number of cores. (test: `report_is_the_same_on_any_number_of_cores`)

use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use tokio::sync::mpsc;

use super::busiest::busiest;
use super::load::{Load, Profile, Span};
use super::observed;
use super::program::Program;
use super::queue_trial;
use super::report::{self, Report, Subject};
use super::setting::{Combine, Dimension, FlagValue, Setting, expand, settings};
use super::trial::{Trial, Trials};
use super::verdict::Verdict;
use super::workload::Workload;
use crate::cli::run;
use crate::cli::{Failure, print};
use crate::duration;

/// The most settings of a sweep.
const SETTINGS_MAX: usize = 1000;
/// The workers to try when no flag is varied.
const WORKERS: &str = "1..32";
/// The most creations and changes of a recording that are replayed unless --busiest asks for more: a trial takes about a
/// millisecond for each.
const REPLAYED_MAX: usize = 20_000;
/// The length of the stretch that is replayed of a longer recording, and its smallest part.
const STRETCH: (Duration, Duration) = (Duration::from_secs(600), Duration::from_secs(1));

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Runs the operator, wired as in `windlass run`, on the embedded API server in virtual time, once for each setting, and \
says which flags to take and why.

VALUES is a list (1,2,4), a range that doubles (1..16) or one with steps (10..50/10); durations as 5ms,1s. \
Without any, --workers=1..32 is tried.

  windlass tune sweep --profile startup
  windlass tune sweep --profile outage --queue-max-delay 5s,30s,120s --queue-qps 10,50,200
  windlass tune sweep --profile steady --print-load > load.yaml    # a file to start from
  windlass tune sweep --load load.yaml --workers 1..16 --report report.html
  windlass tune sweep --load day.yaml --busiest 10m                # of a recording (`windlass tune record`)
  windlass tune sweep --from http://127.0.0.1:8080/metrics --target-p99 2s
  windlass tune sweep --from calm.txt busy.txt                     # two scrapes: latencies grow with what is in flight
  windlass tune sweep --metrics http://127.0.0.1:8080/metrics --for 5m    # an operator in Go, as it runs
  windlass tune sweep --metrics http://127.0.0.1:8080/metrics --metrics-objects 300 --from calm.txt busy.txt

Virtual time has no processor time but the one that the load gives each request (operator.cpuPerRequest) and each pass \
(operator.cpuPerPass, --cpu-per-pass), so the result is a prediction for a machine on which that is true. \
docs/tuning.md says how close it comes.")]
pub(crate) struct Args {
    /// A load by name
    #[arg(long, value_enum, value_name = "NAME", default_value = "startup", conflicts_with_all = ["load", "from"],
          help_heading = "Load")]
    profile: Profile,

    /// File with a load, in YAML; `windlass schema tune-load` prints its schema
    #[arg(long, value_name = "FILE", conflicts_with = "from", help_heading = "Load")]
    load: Option<PathBuf>,

    /// Replay only the busiest stretch of this length of a recorded load [default: all of it, or if it lasts longer than
    /// --limit or has more than 20000 changes, 10m or less]
    #[arg(long, value_name = "DURATION", value_parser = duration::parse, requires = "load", help_heading = "Load")]
    busiest: Option<Duration>,

    /// Take latencies, objects and rates from the metrics of a running operator: a URL, or a file with one scrape. From
    /// two scrapes, one while few and one while many requests are in flight, follows how they slow each other down; with
    /// --metrics, how syncs do
    #[arg(long, value_name = "URL|FILE", num_args = 1..=2, help_heading = "Load")]
    from: Vec<String>,

    /// Try settings for any operator with client-go's or controller-runtime's metrics: a URL, which is read each second,
    /// or two or more files with one scrape each, in the order of their times. Its keys come as they came, and its
    /// syncs take as long; only --workers and the --queue flags can be varied
    #[arg(long, value_name = "URL|FILE", num_args = 1.., help_heading = "Load",
          conflicts_with_all = ["profile", "load", "objects", "cpu_per_pass", "print_load"])]
    metrics: Vec<String>,

    /// How long to look at --metrics; for files, the time between the first and the last
    #[arg(long, value_name = "DURATION", default_value = "60s", value_parser = duration::parse, requires = "metrics",
          help_heading = "Load")]
    r#for: Duration,

    /// The number of workers with which --metrics were measured, if they do not say so (client-go's do not): from it follows
    /// how closely keys came together
    #[arg(long, value_name = "N", requires = "metrics", value_parser = clap::value_parser!(u16).range(1..),
          help_heading = "Load")]
    metrics_workers: Option<u16>,

    /// How many objects were created or changed while --metrics were measured: adds of the same object then merge in the
    /// queue, and recur after its first sync. Without it, every add is of a different object
    #[arg(long, value_name = "N", requires = "metrics", value_parser = clap::value_parser!(u32).range(1..),
          help_heading = "Load")]
    metrics_objects: Option<u32>,

    /// Number of objects, in place of the load's
    #[arg(long, value_name = "N", help_heading = "Load")]
    objects: Option<usize>,

    /// Processor time of a pass that sends requests, besides that of the requests, in place of the load's
    #[arg(long, value_name = "DURATION", value_parser = duration::parse, help_heading = "Load")]
    cpu_per_pass: Option<Duration>,

    /// Print the load as YAML and exit
    #[arg(long, help_heading = "Load")]
    print_load: bool,

    #[command(flatten)]
    varied: Varied,

    /// How the values of several flags are combined
    #[arg(long, value_enum, default_value = "cross", help_heading = "Settings")]
    combine: Combine,

    /// Flag of `windlass run` for all settings, such as workers=8; may be repeated
    #[arg(long, value_name = "FLAG=VALUE", help_heading = "Settings")]
    with: Vec<String>,

    /// The time within which 99 % of all changes have to converge
    #[arg(long, value_name = "DURATION", value_parser = duration::parse, help_heading = "Report")]
    target_p99: Option<Duration>,

    /// Format of the result on standard output
    #[arg(short, long, value_enum, default_value = "table", help_heading = "Report")]
    output: Output,

    /// Write a page with plots, which needs no network
    #[arg(long, value_name = "FILE.html", help_heading = "Report")]
    report: Option<PathBuf>,

    /// Seed of everything random
    #[arg(long, value_name = "N", default_value_t = 1, help_heading = "Run")]
    seed: u64,

    /// Seeds with which the recommended setting, and those beside it, are tried: the report then says which differences are
    /// noise
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..=100),
          help_heading = "Run")]
    seeds: u16,

    /// Virtual time after which a trial ends although changes have not converged
    #[arg(long, value_name = "DURATION", default_value = "30m", value_parser = duration::parse, help_heading = "Run")]
    limit: Duration,

    /// Trials at once; default: as many as there are cores
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024), help_heading = "Run")]
    jobs: Option<u16>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Output {
    Table,
    Json,
    /// The flags to set, as arguments of `windlass run`
    Flags,
    /// The flags to set, as values of the Helm chart
    Helm,
    /// The flags to set, as environment variables
    Env,
}

/// The flags that can be varied.
#[derive(Debug, Default, clap::Args)]
#[command(next_help_heading = "Settings")]
struct Varied {
    /// Values of --workers
    #[arg(long, value_name = "VALUES")]
    workers: Option<String>,
    /// Values of --concurrent-foo-syncs
    #[arg(long, value_name = "VALUES")]
    concurrent_foo_syncs: Option<String>,
    /// Values of --concurrent-myapp-syncs
    #[arg(long, value_name = "VALUES")]
    concurrent_myapp_syncs: Option<String>,
    /// Values of --concurrent-appservice-syncs
    #[arg(long, value_name = "VALUES")]
    concurrent_appservice_syncs: Option<String>,
    /// Values of --concurrent-redis-syncs
    #[arg(long, value_name = "VALUES")]
    concurrent_redis_syncs: Option<String>,
    /// Values of --concurrent-webapp-syncs
    #[arg(long, value_name = "VALUES")]
    concurrent_webapp_syncs: Option<String>,
    /// Values of --queue-base-delay
    #[arg(long, value_name = "VALUES")]
    queue_base_delay: Option<String>,
    /// Values of --queue-max-delay
    #[arg(long, value_name = "VALUES")]
    queue_max_delay: Option<String>,
    /// Values of --queue-qps
    #[arg(long, value_name = "VALUES")]
    queue_qps: Option<String>,
    /// Values of --queue-burst
    #[arg(long, value_name = "VALUES")]
    queue_burst: Option<String>,
    /// Values of --kube-api-qps
    #[arg(long, value_name = "VALUES")]
    kube_api_qps: Option<String>,
    /// Values of --kube-api-burst
    #[arg(long, value_name = "VALUES")]
    kube_api_burst: Option<String>,
}

impl Varied {
    /// Returns the flags with their values, in the order of the help.
    fn dimensions(&self) -> Result<Vec<Dimension>, Failure> {
        let all: [(&'static str, &Option<String>); 12] = [
            ("workers", &self.workers),
            ("concurrent-foo-syncs", &self.concurrent_foo_syncs),
            ("concurrent-myapp-syncs", &self.concurrent_myapp_syncs),
            ("concurrent-appservice-syncs", &self.concurrent_appservice_syncs),
            ("concurrent-redis-syncs", &self.concurrent_redis_syncs),
            ("concurrent-webapp-syncs", &self.concurrent_webapp_syncs),
            ("queue-base-delay", &self.queue_base_delay),
            ("queue-max-delay", &self.queue_max_delay),
            ("queue-qps", &self.queue_qps),
            ("queue-burst", &self.queue_burst),
            ("kube-api-qps", &self.kube_api_qps),
            ("kube-api-burst", &self.kube_api_burst),
        ];
        let given = all.into_iter().filter_map(|(flag, values)| Some((flag, values.as_deref()?)));
        let dimensions = given.map(|(flag, values)| {
            let values = expand(values).map_err(|cause| Failure::Usage {
                cause: format!("--{flag}: {cause}"),
                remedy: "Give a list or a range of values of this flag of `windlass run`.".to_owned(),
            })?;
            Ok(Dimension { flag, values })
        });
        let mut dimensions = dimensions.collect::<Result<Vec<_>, Failure>>()?;
        if dimensions.is_empty() {
            dimensions.push(Dimension { flag: "workers", values: expand(WORKERS).unwrap_or_default() });
        }
        Ok(dimensions)
    }
}

/// What the trials simulate.
pub(super) enum Source {
    Load(Trials),
    Workload(Workload),
}

/// What to try.
#[derive(Clone)]
pub(super) struct Plan {
    pub(super) source: Arc<Source>,
    /// Settings with their seeds.
    pub(super) runs: Vec<(Setting, u64)>,
    pub(super) limit: Duration,
    pub(super) jobs: usize,
}

pub(super) fn run(args: &Args) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime =
        runtime.map_err(|error| Failure::Running(format!("could not start the runtime: {error}")))?;
    let mut source = runtime.block_on(source_of(args))?;
    if let Source::Workload(workload) = &mut source {
        let found = queue_trial::fit(workload, args.limit).map_err(Failure::Running)?;
        found.iter().for_each(|words| eprintln!("{words}"));
    }
    let source = Arc::new(source);
    if args.print_load
        && let Source::Load(trials) = &*source
    {
        return print(&trials.load.to_yaml().map_err(Failure::Running)?);
    }
    if let Some(path) = &args.report {
        check_folder(path)?;
    }
    let dimensions = args.varied.dimensions()?;
    let settings = checked(args, &dimensions)?;
    let all = settings.len();
    let plan = Plan {
        source: source.clone(),
        runs: with_seeds(settings, args.seed, 1),
        limit: args.limit,
        jobs: args.jobs.map_or_else(cores, usize::from),
    };
    let run = |plan| runtime.block_on(interruptible(plan));
    let (trials, verdict) = plan.judge(&dimensions, args.target_p99, (args.seed, args.seeds), run)?;
    let is_whole = trials.len() == all;
    let report =
        Report { subject: source.subject(), seed: args.seed, settings: all, trials: &trials, verdict };
    match args.output {
        Output::Table => print(&report::table(&report, &dimensions))?,
        Output::Json => print(&format!("{:#}\n", report::json(&report)))?,
        Output::Flags | Output::Helm | Output::Env => {
            let Some(verdict) = &report.verdict else {
                return Err(Failure::Running("no trial has ended, so there is nothing to set".to_owned()));
            };
            print(&verdict.take.to_apply(args.output))?;
        }
    }
    if let Some(path) = &args.report {
        write(path, &report::html(&report, &dimensions))?;
    }
    if is_whole {
        Ok(())
    } else {
        Err(Failure::Running(format!("stopped after {} of {all} settings", trials.len())))
    }
}

// === impl Plan ===

impl Plan {
    /// Runs all trials, and those close to the recommendation with further seeds, unless the first were interrupted.
    pub(super) fn judge<E>(
        self,
        dimensions: &[Dimension],
        target: Option<Duration>,
        (seed, seeds): (u64, u16),
        run: impl Fn(Self) -> Result<Vec<Trial>, E>,
    ) -> Result<(Vec<Trial>, Option<Verdict>), E> {
        let trials = run(self.clone())?;
        let verdict = Verdict::of(&trials, dimensions, target.map(|target| target.as_secs_f64()));
        let verdict = match verdict {
            Some(verdict) if seeds > 1 && trials.len() == self.runs.len() => {
                let runs = with_seeds(verdict.close_calls(&trials), seed.wrapping_add(1), seeds - 1);
                Some(verdict.with_repeats(&trials, &run(Self { runs, ..self })?))
            }
            verdict => verdict,
        };
        Ok((trials, verdict))
    }
}

// === impl Source ===

impl Source {
    pub(super) fn subject(&self) -> Subject<'_> {
        match self {
            Self::Load(trials) => Subject::Load(&trials.load),
            Self::Workload(workload) => Subject::Workload(workload),
        }
    }

    fn trial(&self, setting: &Setting, seed: u64, limit: Duration) -> Result<Trial, String> {
        match self {
            Self::Load(trials) => trials.run(setting, seed, limit),
            Self::Workload(workload) => queue_trial::run(workload, setting, seed, limit),
        }
    }
}

async fn source_of(args: &Args) -> Result<Source, Failure> {
    if args.metrics.is_empty() {
        let load = load_of(args).await?;
        let program = Program::ours(&load.kinds).map_err(Failure::Running)?;
        return Ok(Source::Load(Trials::new(program, load)));
    }
    workload_of(args).await.map(Source::Workload)
}

/// Reads the metrics of another operator.
async fn workload_of(args: &Args) -> Result<Workload, Failure> {
    if args.r#for < Duration::from_secs(1) {
        return Err(Failure::Usage {
            cause: format!("--for ({:?}) is below 1s", args.r#for),
            remedy: "Look for at least a second; a minute gives steadier figures.".to_owned(),
        });
    }
    let mut workload = Workload::read(&args.metrics, args.r#for).await?;
    if let Some(workers) = args.metrics_workers {
        workload.controllers.iter_mut().for_each(|work| work.workers = Some(usize::from(workers)));
    }
    let unknown = workload.controllers.iter().find(|work| work.workers.is_none());
    let unknown = unknown.filter(|_| args.metrics_objects.is_some() || !args.from.is_empty());
    if let Some(work) = unknown {
        return Err(Failure::Usage {
            cause: format!("the metrics do not say how many workers {} had", work.name),
            remedy: "Give their number with --metrics-workers: --metrics-objects and --from need it."
                .to_owned(),
        });
    }
    if let Some(objects) = args.metrics_objects {
        workload.assign_to_objects(usize::try_from(objects).unwrap_or(usize::MAX)).map_err(|cause| {
            Failure::Usage {
                cause: format!("--metrics-objects={objects}: {cause}"),
                remedy: "Give the number of objects that were created or changed meanwhile, or leave it out."
                    .to_owned(),
            }
        })?;
    }
    if !args.from.is_empty() {
        workload.growth = observed::growth_of_syncs(&args.from).await?;
    }
    Ok(workload)
}

async fn load_of(args: &Args) -> Result<Load, Failure> {
    let mut load = match (&args.load, args.from.as_slice()) {
        (Some(path), _) => {
            let wrong = |cause: String| Failure::Usage {
                cause: format!("--load={}: {cause}", path.display()),
                remedy: "`windlass tune sweep --profile steady --print-load` prints a load to start from."
                    .to_owned(),
            };
            let text = std::fs::read_to_string(path).map_err(|error| wrong(error.to_string()))?;
            Load::parse(&text).map_err(wrong)?
        }
        (None, []) => Load::of(args.profile),
        (None, from) => observed::load(from).await?,
    };
    let whole = load.end();
    match (args.busiest, load.recorded()) {
        (Some(length), _) => load = stretch_of(&load, length)?,
        (None, Some(count)) if count > REPLAYED_MAX || whole >= args.limit => {
            load = stretch_of(&load, length_to_replay(&load))?;
            let minutes = Duration::from_secs(60 * (whole.as_secs() / 60 + 1));
            let [all, limit] = [minutes, minutes + args.limit].map(text);
            eprintln!("--busiest={all} --limit={limit} replays all of them.");
        }
        (None, _) => {}
    }
    if let Some(count) = args.objects {
        load.objects.count = count;
    }
    if let Some(cost) = args.cpu_per_pass {
        load.operator.cpu_per_pass = Span(cost);
    }
    load.check().map_err(|cause| Failure::Usage { cause, remedy: "Change the load.".to_owned() })?;
    let end = load.end();
    if end >= args.limit {
        return Err(Failure::Usage {
            cause: format!(
                "the load lasts {}, and a trial ends after --limit ({})",
                text(end),
                text(args.limit)
            ),
            remedy: "Raise --limit, or shorten the load.".to_owned(),
        });
    }
    Ok(load)
}

fn text(span: Duration) -> String {
    Span(span).into()
}

/// Returns the length of the stretch of a long recording that can be replayed within minutes.
fn length_to_replay(load: &Load) -> Duration {
    let (mut length, shortest) = STRETCH;
    while length > shortest && busiest(load, length).is_ok_and(|stretch| stretch.arrivals.0 > REPLAYED_MAX) {
        length /= 2;
    }
    length
}

/// Returns the busiest stretch of a recording, and prints which one it is.
fn stretch_of(load: &Load, length: Duration) -> Result<Load, Failure> {
    let stretch = busiest(load, length).map_err(|cause| Failure::Usage {
        cause: format!("--busiest: {cause}"),
        remedy: "`windlass tune record` writes one.".to_owned(),
    })?;
    let (some, all) = stretch.arrivals;
    let [length, from] = [length, Duration::from_secs(stretch.from.as_secs())].map(text);
    eprintln!("Replaying {some} of {all} creations and changes: {length}, from {from} on.");
    Ok(stretch.load)
}

/// Returns the settings, each of which `run` accepts.
fn checked(args: &Args, dimensions: &[Dimension]) -> Result<Vec<Setting>, Failure> {
    let base = args.with.iter().map(|text| {
        let (flag, value) = text.trim_start_matches('-').split_once('=').ok_or_else(|| Failure::Usage {
            cause: format!("--with {text:?} has no value"),
            remedy: "Write --with workers=8.".to_owned(),
        })?;
        Ok(FlagValue { flag: flag.to_owned(), value: value.to_owned() })
    });
    let base = Setting(base.collect::<Result<_, Failure>>()?);
    let settings = settings(&base, dimensions, args.combine);
    if settings.len() > SETTINGS_MAX {
        return Err(Failure::Usage {
            cause: format!("{} settings are more than {SETTINGS_MAX}", settings.len()),
            remedy: "Give fewer values, or --combine=one-at-a-time.".to_owned(),
        });
    }
    let check = |setting: &Setting| {
        let arguments = setting.arguments();
        run::check(&arguments.iter().map(String::as_str).collect::<Vec<_>>())
    };
    // One by one first: an error then names what the user wrote.
    for (given, flag) in args.with.iter().zip(&base.0) {
        check(&Setting(vec![flag.clone()])).map_err(|failure| match failure {
            Failure::Usage { cause, remedy } => {
                Failure::Usage { cause: format!("--with {given}: {cause}"), remedy }
            }
            other => other,
        })?;
    }
    settings.iter().try_for_each(check)?;
    let mut flags = settings.iter().flat_map(|setting| &setting.0).map(|entry| entry.flag.as_str());
    let unknown = flags.find(|flag| !args.metrics.is_empty() && !queue_trial::FLAGS.contains(flag));
    if let Some(flag) = unknown {
        return Err(Failure::Usage {
            cause: format!("--{flag} cannot be tried with --metrics"),
            remedy: format!("Vary one of --{}.", queue_trial::FLAGS.join(", --")),
        });
    }
    Ok(settings)
}

/// Returns each setting with so many seeds, from `first` on.
pub(super) fn with_seeds(settings: Vec<Setting>, first: u64, seeds: u16) -> Vec<(Setting, u64)> {
    let seeds = (0..u64::from(seeds)).map(|nth| first.wrapping_add(nth));
    settings.into_iter().flat_map(|setting| seeds.clone().map(move |seed| (setting.clone(), seed))).collect()
}

pub(super) fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Runs the trials until they have ended or a signal comes, and returns those that have ended, in order.
async fn interruptible(plan: Plan) -> Result<Vec<Trial>, Failure> {
    let mut signals = run::listen()?;
    let bar = bar(plan.runs.len());
    let mut ended = start(plan);
    let mut trials = Vec::new();
    loop {
        tokio::select! {
            biased;
            _ = signals.next() => break,
            next = ended.recv() => match next {
                Some((at, trial)) => {
                    trials.push((at, trial.map_err(Failure::Running)?));
                    bar.inc(1);
                }
                None => break,
            },
        }
    }
    bar.finish_and_clear();
    trials.sort_by_key(|(at, _)| *at);
    Ok(trials.into_iter().map(|(_, trial)| trial).collect())
}

/// Starts threads that run the trials; each result has the number of its setting.
pub(super) fn start(plan: Plan) -> mpsc::UnboundedReceiver<(usize, Result<Trial, String>)> {
    let (done, ended) = mpsc::unbounded_channel();
    let jobs = plan.jobs.min(plan.runs.len());
    let (plan, next) = (Arc::new(plan), Arc::new(AtomicUsize::new(0)));
    for _ in 0..jobs {
        let (plan, next, done) = (plan.clone(), next.clone(), done.clone());
        // Nobody joins these threads: a signal ends the process in the middle of a trial.
        std::thread::spawn(move || {
            loop {
                let at = next.fetch_add(1, Ordering::Relaxed);
                let Some((setting, seed)) = plan.runs.get(at) else { return };
                let trial = plan.source.trial(setting, *seed, plan.limit);
                let trial = trial.map_err(|cause| format!("{setting}: {cause}"));
                if done.send((at, trial)).is_err() {
                    return;
                }
            }
        });
    }
    ended
}

/// Shows the progress on a terminal.
fn bar(settings: usize) -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::new(u64::try_from(settings).unwrap_or(u64::MAX));
    let style = ProgressStyle::with_template(
        "{bar:30} {pos}/{len} trials, {elapsed} (about {eta} left; Ctrl-C shows what there is)",
    );
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar.enable_steady_tick(Duration::from_millis(200));
    bar
}

fn not_written(path: &Path, cause: &str) -> Failure {
    Failure::Usage {
        cause: format!("--report={}: {cause}", path.display()),
        remedy: "Give a file in a folder that exists and that you may write to.".to_owned(),
    }
}

/// Says before a long run that its report could not be written.
fn check_folder(path: &Path) -> Result<(), Failure> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    if path.is_dir() {
        return Err(not_written(path, "this is a folder"));
    }
    if !folder.is_dir() {
        return Err(not_written(path, &format!("there is no folder {}", folder.display())));
    }
    Ok(())
}

fn write(path: &Path, page: &str) -> Result<(), Failure> {
    std::fs::write(path, page).map_err(|error| not_written(path, &error.to_string()))?;
    eprintln!("Wrote {}", path.display());
    Ok(())
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::super::load::{Arrivals, Objects};
    use super::*;

    #[derive(clap::Parser)]
    struct Flags {
        #[command(flatten)]
        args: Args,
    }

    fn args(flags: &[&str]) -> Args {
        Flags::parse_from(std::iter::once(&"sweep").chain(flags)).args
    }

    fn settings_of(flags: &[&str]) -> Result<Vec<String>, Failure> {
        let args = args(flags);
        let settings = checked(&args, &args.varied.dimensions()?)?;
        Ok(settings.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn flags_that_run_refuses_are_refused_first() {
        assert_eq!(settings_of(&[]).unwrap().len(), 6);
        let both = settings_of(&["--workers=2,4", "--with=queue-qps=7", "--queue-base-delay=5ms"]).unwrap();
        assert_eq!(both[0], "--queue-qps=7 --workers=2 --queue-base-delay=5ms");
        for (flags, cause) in [
            (["--workers=0", "--limit=1m"], "0 is not in 1..=1000"),
            (["--queue-base-delay=1h", "--limit=1m"], "--queue-max-delay"),
            (["--with=frobs=3", "--limit=1m"], "--frobs"),
            (["--with=workers", "--limit=1m"], "has no value"),
            (["--workers=1..1000/1", "--queue-qps=1,2"], "2000 settings"),
        ] {
            let failure = settings_of(&flags).unwrap_err().to_string();
            assert!(failure.contains(cause), "{flags:?}: {failure}");
        }
    }

    #[tokio::test]
    async fn loads_that_cannot_be_replayed_are_refused() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let load = format!("--load={}", file.path().display());
        let day = "objects: {count: 3, converged: true}\n\
                   changes: [{shape: recorded, at: [0, 7200000, 7200500], objects: [0, 1, 2]}]\n";
        std::fs::write(&file, day).unwrap();
        let failure = load_of(&args(&[&load, "--busiest=3h"])).await.unwrap_err().to_string();
        assert!(
            failure.contains("the load lasts 2h500ms, and a trial ends after --limit (30m)"),
            "{failure}"
        );
        assert!(load_of(&args(&[&load, "--limit=3h"])).await.is_ok());
        let stretch = load_of(&args(&[&load, "--busiest=1m"])).await.unwrap();
        assert_eq!((stretch.objects.count, stretch.end()), (2, Duration::from_millis(500)));

        std::fs::write(&file, Load::of(Profile::Steady).to_yaml().unwrap()).unwrap();
        let failure = load_of(&args(&[&load, "--busiest=1m"])).await.unwrap_err().to_string();
        assert!(failure.contains("--busiest: the load is not a recording"), "{failure}");
    }

    #[tokio::test]
    async fn of_a_long_recording_the_busiest_stretch_is_replayed() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let replayed = async |times: Vec<u64>, more: &[&str]| {
            let (at, objects) = (times, Objects { count: 3, converged: true });
            let changes = vec![Arrivals::Recorded { at, objects: Vec::new() }];
            let load = Load { objects, changes, ..Load::default() };
            std::fs::write(&file, load.to_yaml().unwrap()).unwrap();
            let path = format!("--load={}", file.path().display());
            load_of(&args(&[&[path.as_str()], more].concat())).await.unwrap()
        };
        let count = |load: &Load| load.recorded().unwrap();

        let hours: Vec<u64> = (0..7200).map(|at| at * 1000).collect();
        let load = replayed(hours, &[]).await;
        assert_eq!((count(&load), load.end()), (600, Duration::from_secs(599)), "ten minutes of two hours");
        let dense: Vec<u64> = (0..60_000).map(|at| at * 10).collect();
        assert_eq!(count(&replayed(dense.clone(), &[]).await), 15_000, "two and a half minutes of ten");
        let all = replayed(dense, &["--busiest=11m", "--limit=41m"]).await;
        assert_eq!(count(&all), 60_000);
        assert_eq!(count(&replayed((0..600).map(|at| at * 1000).collect(), &[]).await), 600);
    }

    #[test]
    fn report_is_the_same_on_any_number_of_cores() {
        let reports = [1, 3].map(|jobs| {
            let load = Load { objects: Objects { count: 20, converged: false }, ..Load::default() };
            let program = Program::ours(&load.kinds).unwrap();
            let dimensions = [Dimension { flag: "workers", values: expand("1..4").unwrap() }];
            let settings = settings(&Setting::default(), &dimensions, Combine::Cross);
            let plan = Plan {
                source: Arc::new(Source::Load(Trials::new(program, load.clone()))),
                runs: with_seeds(settings, 3, 1),
                limit: Duration::from_secs(600),
                jobs,
            };
            let mut ended = start(plan);
            let mut trials = Vec::new();
            while let Some((at, trial)) = ended.blocking_recv() {
                trials.push((at, trial.unwrap()));
            }
            trials.sort_by_key(|(at, _)| *at);
            let trials: Vec<Trial> = trials.into_iter().map(|(_, trial)| trial).collect();
            let verdict = Verdict::of(&trials, &dimensions, None);
            let report =
                Report { subject: Subject::Load(&load), seed: 3, settings: 3, trials: &trials, verdict };
            (report::json(&report).to_string(), report::html(&report, &dimensions))
        });
        assert!(reports[0].0.contains("--workers") || reports[0].0.contains("\"workers\""));
        assert_eq!(reports[0], reports[1]);
    }
}
