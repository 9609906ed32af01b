//! The report: figures and checks of a run, as a table or as JSON, and what made it fail.

use std::collections::BTreeMap;
use std::fmt;

use serde::Serialize;

use crate::check::Check;
use crate::figures::{Point, percentile, slope};
use crate::log::Log;
use crate::{Run, Settled};

/// Steeper slopes, per hour, fail a run. The number of objects is about the same all the time.
const MEGABYTES_PER_HOUR_MAX: f64 = 10.0;
const FILES_PER_HOUR_MAX: f64 = 15.0;
/// What is left out at the beginning of a series, while the process grows to its size.
const WARM_UP_HOURS: f64 = 5.0 / 60.0;
/// How long a series must be after that to be judged: noise tilts a short one.
const JUDGED_HOURS: f64 = 15.0 / 60.0;

/// See the module.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Report {
    pub(crate) passed: bool,
    failures: Vec<String>,
    seed: u64,
    hours: f64,
    operator: String,
    changes: Changes,
    faults: BTreeMap<String, usize>,
    ready_undisturbed: Times,
    ready_during_faults: Times,
    megabytes: Slope,
    files: Slope,
    operators_started: usize,
    log: Option<Log>,
    settled_seconds: Option<f64>,
    checks: Vec<Check>,
    writes_at_rest: Option<f64>,
    event_writes_at_rest: Option<f64>,
}

#[derive(Serialize)]
struct Changes {
    made: usize,
    missed: usize,
    refused: usize,
}

/// How long objects took to become Ready, in seconds.
#[derive(Serialize)]
struct Times {
    count: usize,
    p50: f64,
    p99: f64,
    max: f64,
}

/// How a figure of the longest-living process has changed.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Slope {
    minutes: f64,
    first: f64,
    last: f64,
    per_hour: f64,
    bound: f64,
    /// Whether the series is long enough.
    is_judged: bool,
}

impl Report {
    pub(crate) fn of(run: &Run, settled: Settled) -> Self {
        let (book, operator) = (run.book.borrow(), run.operator.borrow());
        let mut failures = book.failures.clone();
        let mut faults = BTreeMap::new();
        for episode in &book.episodes {
            *faults.entry(episode.fault.to_string()).or_default() += 1;
        }
        let times = |disturbed: bool| {
            let of = book.times.iter().filter(|time| time.is_disturbed(&book.episodes) == disturbed);
            Times::of(&of.map(|time| time.took.as_secs_f64()).collect::<Vec<_>>())
        };
        let last = |points: &Vec<Point>| points.last().map_or(0.0, |point| point.0);
        let longest = operator.series.iter().max_by(|a, b| last(&a.megabytes).total_cmp(&last(&b.megabytes)));
        let longest = longest.cloned().unwrap_or_default();
        let megabytes = Slope::of(&longest.megabytes, MEGABYTES_PER_HOUR_MAX);
        let files = Slope::of(&longest.files, FILES_PER_HOUR_MAX);
        failures.extend(megabytes.failure("memory", "MB"));
        failures.extend(files.failure("the number of open files", "files"));
        let log = Log::read(operator.logs());
        match &log {
            Ok(log) => {
                failures.extend(log.panics.first().map(|panic| format!("the operator panicked: {panic}")))
            }
            Err(error) => failures.push(format!("{error:#}")),
        }
        if book.changes.made == 0 {
            failures.push("nothing was changed".to_owned());
        }
        if settled.after.is_none() {
            failures.push(format!("not settled within {} s", crate::SETTLE_MAX.as_secs()));
        }
        let checks = settled.view.as_ref().map(crate::View::checks).unwrap_or_default();
        for check in &checks {
            let more = check.problems.len().saturating_sub(1);
            let more = if more > 0 { format!(" (and {more} more)") } else { String::new() };
            failures.extend(check.problems.first().map(|problem| format!("{problem}{more}")));
        }
        failures.extend(settled.view.err().map(|error| format!("the cluster cannot be read: {error:#}")));
        match &settled.writes {
            Ok(writes) if writes.of_objects > 0.0 => {
                failures.push(format!("{} writes at rest", writes.of_objects))
            }
            Ok(_) => {}
            Err(error) => failures.push(format!("writes at rest cannot be counted: {error:#}")),
        }
        let writes = settled.writes.ok();
        Self {
            passed: failures.is_empty(),
            failures,
            seed: run.seed,
            hours: run.length.as_secs_f64() / 3600.0,
            operator: operator.version.clone(),
            changes: Changes {
                made: book.changes.made,
                missed: book.changes.missed,
                refused: book.changes.refused,
            },
            faults,
            ready_undisturbed: times(false),
            ready_during_faults: times(true),
            megabytes,
            files,
            operators_started: operator.series.len(),
            log: log.ok(),
            settled_seconds: settled.after.map(|after| after.as_secs_f64()),
            checks,
            writes_at_rest: writes.as_ref().map(|writes| writes.of_objects),
            event_writes_at_rest: writes.map(|writes| writes.of_events),
        }
    }
}

impl Times {
    fn of(seconds: &[f64]) -> Self {
        let at = |share| percentile(seconds, share);
        Self { count: seconds.len(), p50: at(0.5), p99: at(0.99), max: at(1.0) }
    }
}

impl fmt::Display for Times {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { count, p50, p99, max } = self;
        write!(f, "{count} objects, p50 {p50:.2} s, p99 {p99:.2} s, max {max:.2} s")
    }
}

impl Slope {
    fn of(points: &[Point], bound: f64) -> Self {
        let end = points.last().map_or(0.0, |point| point.0);
        let is_judged = end >= WARM_UP_HOURS + JUDGED_HOURS;
        let from = if is_judged { WARM_UP_HOURS } else { 0.0 };
        let points: Vec<Point> = points.iter().copied().filter(|point| point.0 >= from).collect();
        Self {
            minutes: end * 60.0,
            first: points.first().map_or(0.0, |point| point.1),
            last: points.last().map_or(0.0, |point| point.1),
            per_hour: slope(&points),
            bound,
            is_judged,
        }
    }

    fn failure(&self, what: &str, unit: &str) -> Option<String> {
        let is_above = self.is_judged && self.per_hour > self.bound;
        is_above
            .then(|| format!("{what} grows by {:.1} {unit} an hour, more than {}", self.per_hour, self.bound))
    }
}

impl fmt::Display for Slope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { minutes, first, last, per_hour, bound, is_judged } = self;
        write!(f, "{per_hour:+.1} an hour over {minutes:.0} min, {first:.1} to {last:.1}; ")?;
        if *is_judged { write!(f, "bound {bound}") } else { f.write_str("too short to be judged") }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut row = |name: &str, value: String| writeln!(f, "{name:<40} {value}");
        row("run", format!("{:.2} h, SOAK_SEED={}, {}", self.hours, self.seed, self.operator))?;
        let Changes { made, missed, refused } = self.changes;
        row("changes", format!("{made}; {refused} refused or unanswered, {missed} without an object"))?;
        row("faults", self.faults.values().sum::<usize>().to_string())?;
        for (fault, count) in &self.faults {
            row(&format!("  {fault}"), count.to_string())?;
        }
        row("creation to Ready, no fault under way", self.ready_undisturbed.to_string())?;
        row("creation to Ready, a fault under way", self.ready_during_faults.to_string())?;
        row("operators started", self.operators_started.to_string())?;
        row("memory of the longest-living one, MB", self.megabytes.to_string())?;
        row("its open files", self.files.to_string())?;
        if let Some(log) = &self.log {
            let Log { panics, errors, warnings, messages } = log;
            row("log", format!("{} panics, {errors} ERROR, {warnings} WARN", panics.len()))?;
            for (message, count) in messages {
                row(&format!("  {message}"), count.to_string())?;
            }
        }
        let settled =
            self.settled_seconds.map_or("never".to_owned(), |seconds| format!("after {seconds:.0} s"));
        row("settled", settled)?;
        for check in &self.checks {
            let Check { name, found, problems } = check;
            let verdict = if problems.is_empty() { "yes" } else { "NO" };
            let found = if found.is_empty() { String::new() } else { format!(": {found}") };
            row(name, format!("{verdict}{found}"))?;
            for problem in problems.iter().take(10) {
                row("", problem.clone())?;
            }
        }
        let count = |writes: Option<f64>| writes.map_or("unknown".to_owned(), |writes| writes.to_string());
        row(&format!("writes at rest in {} s", crate::REST.as_secs()), count(self.writes_at_rest))?;
        row("ends of series of events meanwhile", count(self.event_writes_at_rest))?;
        if self.passed {
            writeln!(f, "soak: passed")
        } else {
            writeln!(f, "soak: FAILED: {}", self.failures.join("; "))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Point, Slope};

    /// A figure every ten seconds for these hours, which grows by so much an hour after a steep warm-up.
    fn series(hours: f64, growth: f64) -> Vec<Point> {
        let times = (0..36_000).map(|at| f64::from(at) / 360.0).take_while(|time| *time <= hours);
        times.map(|time| (time, 20.0 + growth * time + 60.0 * time.min(0.05))).collect()
    }

    #[test]
    fn growth_above_the_bound_is_a_failure() {
        let failure = |hours, growth| Slope::of(&series(hours, growth), 10.0).failure("memory", "MB");
        let grows = "memory grows by 12.0 MB an hour, more than 10";
        assert_eq!(failure(1.0, 12.0), Some(grows.to_owned()));
        assert_eq!(failure(1.0, 9.0), None, "the warm-up does not count");
        assert_eq!(failure(0.3, 12.0), None, "the series is too short");
        assert_eq!(failure(1.0, -12.0), None);
    }
}
