//! What the metrics of a running operator say of its controllers' work: when keys came, and how long their syncs took.
//!
//! ```text
//! /metrics, again and again ─▶ arrivals in each interval, times of syncs, share of failures ─▶ queue_trial
//!                 --metrics-objects ─▶ whose keys they were         --from ─▶ how syncs slow each other down
//! ```
//! It knows the names of client-go and controller-runtime, so that the operator may be anybody's.
//!
//! # Guarantees
//! - Keys arrive as they did, without those that the queue itself added again. (test: `arrivals_are_those_of_each_interval`)
//! - The times of syncs have the measured mean, however wide the buckets are. (test: `times_have_the_measured_mean`)
//! - Where the number of objects is known, one arrives for each, and its first sync takes longest.
//!   (test: `keys_are_assigned_to_objects`)

use std::time::Duration;

use serde::Serialize;

use super::figures::Figures;
use super::observed;
use super::scrape::{Observed, Scrape};
use super::trial::{to_count, to_f64};
use super::verdict;
use crate::cli::Failure;

/// How often a URL is read.
const INTERVAL: Duration = Duration::from_secs(1);
/// Where a distribution is looked at to find its mean.
const POINTS: u32 = 1000;
/// The least syncs from which a distribution is made.
const FEW: f64 = 20.0;

/// The work of an operator.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Workload {
    /// The time between two counts of arrivals, in seconds.
    pub(super) interval_seconds: f64,
    /// With n concurrent syncs, each takes n to this power times as long as alone.
    pub(super) growth: f64,
    pub(super) controllers: Vec<ControllerWork>,
}

/// The work of one controller.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ControllerWork {
    /// A controller has its name for the life of the process.
    pub(super) name: &'static str,
    /// The number of workers that was measured, if it is known.
    pub(super) workers: Option<usize>,
    /// The keys that arrived in each interval; where the number of objects is known, one for each.
    pub(super) arrivals: Vec<usize>,
    /// How many keys were added, but for those that the queue itself added again.
    pub(super) adds: usize,
    /// The objects whose keys were added, if their number is known.
    pub(super) objects: Option<usize>,
    /// How many adds there were for each that was counted: the add of a key that is queued already is not.
    pub(super) adds_per_counted: f64,
    /// The part of an interval, from its beginning on, in which its keys come.
    pub(super) spread: f64,
    /// How long keys waited in the queue, on average.
    pub(super) mean_wait_seconds: Option<f64>,
    pub(super) times: SyncTimes,
    /// How long all syncs took together.
    pub(super) busy_seconds: f64,
    /// The share of syncs that failed.
    pub(super) failed: f64,
}

/// How long syncs take: a histogram whose times are spread log-uniformly within each bucket. The bucket that accounts for
/// most of the total time is narrowed until the mean is the measured one: syncs that do the same work take about equally
/// long, and rarely fill a bucket whose upper bound is ten times its lower one.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct SyncTimes {
    pub(super) mean_seconds: f64,
    /// How many times longer the longest times of a bucket are than its shortest: at most this is the error of a quantile.
    pub(super) widest_bucket: f64,
    /// Upper bound in seconds, and the share of the syncs that took no longer.
    buckets: Vec<(f64, f64)>,
    /// A factor for all times: what narrowing could not correct.
    scale: f64,
}

// === impl Workload ===

impl Workload {
    /// Reads a URL for this long, or files with one scrape each, evenly spread over this time. Prints what is missing.
    pub(super) async fn read(from: &[String], time: Duration) -> Result<Self, Failure> {
        let scrapes = match from {
            [url] if url.contains("://") => {
                eprintln!("Looking at {url} for {time:?}");
                let mut scrapes = vec![observed::scrape(url).await?.0];
                let mut ticks = tokio::time::interval(INTERVAL);
                ticks.tick().await;
                let end = tokio::time::Instant::now() + time;
                while tokio::time::Instant::now() < end {
                    ticks.tick().await;
                    scrapes.push(observed::scrape(url).await?.0);
                }
                scrapes
            }
            [_] => {
                return Err(Failure::Usage {
                    cause: "--metrics: one file has no rates".to_owned(),
                    remedy: "Give a URL, or two or more files and --for with the time between the first and the last."
                        .to_owned(),
                });
            }
            files => {
                let mut scrapes = Vec::new();
                for file in files {
                    scrapes.push(observed::scrape(file).await?.0);
                }
                scrapes
            }
        };
        let workload = Self::of(&scrapes, time).map_err(|cause| Failure::Usage {
            cause: format!("--metrics: {cause}"),
            remedy: "Look for longer, or at a busier time.".to_owned(),
        })?;
        let ([first, ..], [.., last]) = (&scrapes[..], &scrapes[..]) else { return Ok(workload) };
        let measured = verdict::diagnose(&Figures::between(first, last, time.as_secs_f64()));
        measured.iter().chain(&workload.precision()).for_each(|text| eprintln!("{text}"));
        Ok(workload)
    }

    /// Says how far the times can be trusted.
    fn precision(&self) -> Vec<String> {
        let of = |work: &ControllerWork| {
            let ControllerWork { name, times, .. } = work;
            format!(
                "{name}: the mean time of a sync is exact ({}); the others come from buckets of which the widest holds \
                 times that differ {:.1}-fold.",
                verdict::seconds(times.mean_seconds),
                times.widest_bucket
            )
        };
        self.controllers.iter().map(of).collect()
    }

    /// Returns the work between the first and the last scrape.
    pub(super) fn of(scrapes: &[Scrape], time: Duration) -> Result<Self, String> {
        let [first, .., last] = scrapes else { return Err("there is only one scrape".to_owned()) };
        let names = last.values("workqueue_adds_total", "name");
        let controllers: Vec<ControllerWork> =
            names.into_iter().filter_map(|name| ControllerWork::of(name, scrapes, first, last)).collect();
        if controllers.is_empty() {
            return Err(format!("no controller has made {FEW} syncs between the first scrape and the last"));
        }
        let intervals = u32::try_from(scrapes.len() - 1).unwrap_or(u32::MAX);
        Ok(Self { interval_seconds: (time / intervals).as_secs_f64(), growth: 0.0, controllers })
    }

    /// Estimates how long syncs take alone: divides their times by the slowdown at the mean concurrency.
    pub(super) fn remove_slowdown(&mut self) {
        let busy: f64 = self.controllers.iter().map(|work| work.busy_seconds).sum();
        let intervals = self.controllers.iter().map(|work| work.arrivals.len()).max().unwrap_or_default();
        let in_progress = busy / (self.interval_seconds * to_f64(intervals));
        let slower = in_progress.max(1.0).powf(self.growth);
        self.controllers.iter_mut().for_each(|work| work.times.rescale(1.0 / slower));
    }

    /// Assigns the keys to this many objects, one arrival for each.
    ///
    /// # Errors
    /// If there are several controllers, or fewer keys than objects.
    pub(super) fn assign_to_objects(&mut self, objects: usize) -> Result<(), String> {
        let [work] = &mut self.controllers[..] else {
            let names: Vec<&str> = self.controllers.iter().map(|work| work.name).collect();
            return Err(format!("the metrics are those of several controllers ({})", names.join(", ")));
        };
        if objects > work.adds {
            return Err(format!("only {} keys were added for {}", work.adds, work.name));
        }
        work.objects = Some(objects);
        let share = to_f64(objects) / to_f64(work.adds);
        let (mut all, mut before) = (0, 0);
        for count in &mut work.arrivals {
            all += *count;
            let so_far = to_count(to_f64(all) * share);
            *count = so_far - before;
            before = so_far;
        }
        Ok(())
    }
}

// === impl ControllerWork ===

impl ControllerWork {
    /// Returns how long an object's nth sync takes, from 0 on, for a random number below 1. The first one does what was asked
    /// for, and takes longest; the last ones have nothing to do.
    pub(super) fn time_of(&self, nth: usize, random: f64) -> f64 {
        let Some(objects) = self.objects else { return self.times.at(random) };
        let part = to_f64(objects) / to_f64(self.adds);
        let longest = (1.0 - to_f64(nth) * part).max(part);
        self.times.at(longest - part * random)
    }

    /// Returns how often the key of an object is added, if it is known.
    pub(super) fn adds_per_object(&self) -> Option<f64> {
        Some(to_f64(self.adds) * self.adds_per_counted / to_f64(self.objects?))
    }

    /// Returns the mean wait that a trial with the measured number of workers should have, if both are known.
    pub(super) fn wait_to_match(&self) -> Option<f64> {
        self.mean_wait_seconds.filter(|_| self.workers.is_some())
    }

    fn of(name: String, scrapes: &[Scrape], first: &Scrape, last: &Scrape) -> Option<Self> {
        let (queue, controller) = ([("name", name.as_str())], [("controller", name.as_str())]);
        // The buckets of controller-runtime are much finer than those of a workqueue.
        let fine = last.observed_since(first, "controller_runtime_reconcile_time_seconds", &controller);
        let coarse = last.observed_since(first, "workqueue_work_duration_seconds", &queue);
        let observed = if fine.count >= FEW { fine } else { coarse };
        let times = SyncTimes::of(&observed)?;
        let since = |metric: &str, with: &[(&str, &str)]| last.sum(metric, with) - first.sum(metric, with);
        let (adds, retries) =
            (since("workqueue_adds_total", &queue), since("workqueue_retries_total", &queue));
        let fresh = if adds > 0.0 { ((adds - retries) / adds).clamp(0.0, 1.0) } else { 0.0 };
        let errors = "controller_runtime_reconcile_errors_total";
        let failures = if last.has(errors) { since(errors, &controller) } else { retries };
        let workers = last.sum("controller_runtime_max_concurrent_reconciles", &controller);
        // Rounds the sum so far, so that none is lost.
        let (mut exact, mut whole) = (0.0, 0);
        let arrivals: Vec<usize> = scrapes
            .windows(2)
            .map(|pair| {
                let [before, after] = pair else { return 0 };
                let added =
                    after.sum("workqueue_adds_total", &queue) - before.sum("workqueue_adds_total", &queue);
                exact += f64::max(added, 0.0) * fresh;
                let count = to_count(exact) - whole;
                whole += count;
                count
            })
            .collect();
        Some(Self {
            adds: arrivals.iter().sum(),
            arrivals,
            objects: None,
            adds_per_counted: 1.0,
            spread: 1.0,
            mean_wait_seconds: last.observed_since(first, "workqueue_queue_duration_seconds", &queue).mean(),
            workers: (workers >= 1.0).then(|| to_count(workers)),
            busy_seconds: observed.sum,
            failed: (failures / observed.count).clamp(0.0, 0.99),
            times,
            name: Box::leak(name.into_boxed_str()),
        })
    }
}

// === impl SyncTimes ===

impl SyncTimes {
    /// Returns the times of a histogram; `None` with too few of them.
    fn of(observed: &Observed) -> Option<Self> {
        let mean = observed.mean().filter(|_| observed.count >= FEW)?;
        let buckets: Vec<(f64, f64)> =
            observed.buckets().iter().map(|(bound, count)| (*bound, count / observed.count)).collect();
        let mut times = Self { mean_seconds: mean, widest_bucket: 1.0, buckets, scale: 1.0 };
        let used = times.bounds().filter(|bucket| bucket.low > 0.0 && bucket.high.is_finite());
        times.widest_bucket = used.map(|bucket| bucket.high / bucket.low).fold(1.0, f64::max);
        times.narrow();
        let points = (0..POINTS).map(|at| times.at((f64::from(at) + 0.5) / f64::from(POINTS)));
        let modelled = points.sum::<f64>() / f64::from(POINTS);
        if modelled > 0.0 {
            times.scale = mean / modelled;
        }
        Some(times)
    }

    /// Makes all times this much longer.
    pub(super) fn rescale(&mut self, factor: f64) {
        self.scale *= factor;
    }

    /// Returns the buckets that hold some times.
    fn bounds(&self) -> impl Iterator<Item = Bucket> {
        let bounds = self.buckets.iter().scan((0.0, 0.0), |(low, below), (high, up_to)| {
            let bucket = Bucket { low: *low, high: *high, share: up_to - *below };
            (*low, *below) = (*high, *up_to);
            Some(bucket)
        });
        bounds.filter(|bucket| bucket.share > 0.0)
    }

    /// Narrows the bucket that accounts for most of the total time, so that the mean of all times is the measured one.
    fn narrow(&mut self) {
        let spent = |bucket: &Bucket| bucket.share * bucket.mean();
        let Some(most) = self.bounds().max_by(|a, b| spent(a).total_cmp(&spent(b))) else { return };
        let others = self.bounds().map(|bucket| spent(&bucket)).sum::<f64>() - spent(&most);
        let mean = (self.mean_seconds - others) / most.share;
        let is_possible = most.low > 0.0 && most.high.is_finite() && (most.low..most.high).contains(&mean);
        let Some(at) = self.buckets.iter().position(|(high, _)| *high == most.high).filter(|_| is_possible)
        else {
            return;
        };
        let narrow = most.with_mean(mean);
        let up_to = self.buckets[at].1;
        self.buckets
            .splice(at..=at, [(narrow.low, up_to - most.share), (narrow.high, up_to), (most.high, up_to)]);
    }

    /// Returns the time that this share of the syncs does not exceed, in seconds.
    pub(super) fn at(&self, share: f64) -> f64 {
        let (mut low, mut below) = (0.0, 0.0);
        for (high, up_to) in &self.buckets {
            if *up_to >= share && *up_to > below {
                let within = (share - below) / (up_to - below);
                return self.scale
                    * if high.is_infinite() {
                        low * (1.0 + within)
                    } else if low > 0.0 {
                        low * (high / low).powf(within)
                    } else {
                        high * within
                    };
            }
            (low, below) = (*high, *up_to);
        }
        self.scale * low
    }
}

/// Times between two bounds, whose logarithms are evenly spread.
#[derive(Clone, Copy, Debug)]
struct Bucket {
    low: f64,
    high: f64,
    share: f64,
}

impl Bucket {
    fn mean(&self) -> f64 {
        if self.high.is_infinite() {
            self.low * 1.5
        } else if self.low > 0.0 {
            (self.high - self.low) / (self.high / self.low).ln()
        } else {
            self.high / 2.0
        }
    }

    /// Moves the upper bound, or else the lower one, until the mean is this, which is between the two.
    fn with_mean(self, mean: f64) -> Self {
        let moves_up = mean < self.mean();
        let (mut near, mut far) = if moves_up { (self.low, self.high) } else { (self.high, self.low) };
        for _ in 0..50 {
            let middle = f64::midpoint(near, far);
            let (low, high) = if moves_up { (self.low, middle) } else { (middle, self.high) };
            let is_too_far = (Self { low, high, ..self }.mean() < mean) != moves_up;
            *if is_too_far { &mut far } else { &mut near } = middle;
        }
        if moves_up { Self { high: near, ..self } } else { Self { low: near, ..self } }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// So many keys were added and synced, each in 20 ms; some of them again.
    fn scrape(adds: u32, retries: u32) -> Scrape {
        Scrape::parse(&format!(
            "workqueue_adds_total{{name=\"theirs\"}} {adds}\nworkqueue_retries_total{{name=\"theirs\"}} {retries}\n\
             workqueue_work_duration_seconds_bucket{{name=\"theirs\",le=\"0.01\"}} 0\n\
             workqueue_work_duration_seconds_bucket{{name=\"theirs\",le=\"0.1\"}} {adds}\n\
             workqueue_work_duration_seconds_bucket{{name=\"theirs\",le=\"+Inf\"}} {adds}\n\
             workqueue_work_duration_seconds_sum{{name=\"theirs\"}} {}\n\
             workqueue_work_duration_seconds_count{{name=\"theirs\"}} {adds}\n\
             controller_runtime_max_concurrent_reconciles{{controller=\"theirs\"}} 2\n\
             workqueue_adds_total{{name=\"idle\"}} 3\n",
            f64::from(adds) * 0.02
        ))
    }

    #[test]
    fn arrivals_are_those_of_each_interval() {
        let scrapes = [scrape(100, 10), scrape(180, 30), scrape(180, 30), scrape(300, 65)];
        let workload = Workload::of(&scrapes, Duration::from_secs(6)).unwrap();
        assert!((workload.interval_seconds - 2.0).abs() < 1e-9);
        let [theirs] = &workload.controllers[..] else { panic!("{workload:?}") };
        assert_eq!((theirs.name, theirs.workers), ("theirs", Some(2)));
        // 55 of 200 adds were retries.
        assert_eq!(theirs.arrivals, [58, 0, 87]);
        assert!((theirs.failed - 0.275).abs() < 1e-9);
        let idle = Workload::of(&[scrape(100, 0), scrape(100, 0)], Duration::from_secs(6));
        assert!(idle.unwrap_err().contains("no controller has made 20 syncs"));
    }

    #[test]
    fn keys_are_assigned_to_objects() {
        let scrapes = [scrape(0, 0), scrape(90, 0), scrape(100, 0), scrape(300, 0)];
        let mut workload = Workload::of(&scrapes, Duration::from_secs(3)).unwrap();
        assert_eq!(workload.assign_to_objects(301).unwrap_err(), "only 300 keys were added for theirs");
        workload.assign_to_objects(100).unwrap();
        let theirs = &workload.controllers[0];
        assert_eq!((&theirs.arrivals[..], theirs.adds_per_object()), (&[30, 3, 67][..], Some(3.0)));
        let times = [0, 1, 2, 9].map(|nth| theirs.time_of(nth, 0.5));
        assert!(times[0] > times[1] && times[1] > times[2] && times[2] == times[3], "{times:?}");
        let all = (0..999_u32)
            .map(|at| theirs.time_of(usize::try_from(at % 3).unwrap(), (f64::from(at) + 0.5) / 999.0));
        let mean = all.sum::<f64>();
        assert!((mean / 999.0 - 0.02).abs() < 2e-4, "together they have the measured mean: {mean}");

        workload.controllers.push(theirs.clone());
        let of_two = workload.assign_to_objects(100).unwrap_err();
        assert_eq!(of_two, "the metrics are those of several controllers (theirs, theirs)");
    }

    #[test]
    fn times_have_the_measured_mean() {
        let workload = Workload::of(&[scrape(0, 0), scrape(1000, 0)], Duration::from_secs(6)).unwrap();
        let times = &workload.controllers[0].times;
        assert!((times.widest_bucket - 10.0).abs() < 1e-9);
        let mean = (0..1000).map(|at| times.at((f64::from(at) + 0.5) / 1000.0)).sum::<f64>() / 1000.0;
        assert!((mean - 0.02).abs() < 1e-6, "{mean}");
        assert!(times.at(0.01) < times.at(0.5) && times.at(0.5) < times.at(0.99));
        assert!(times.at(0.99) < 0.04, "none takes 100 ms: {}", times.at(0.99));
    }
}
