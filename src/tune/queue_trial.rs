//! One trial of an operator that is known by its metrics alone, in virtual time.
//!
//! ```text
//! workload ─▶ arrivals ─▶ RateLimitingQueue ─▶ Controller, whose syncs take as long as measured ─▶ figures
//!                               ▲                    │ the first sync of an object
//!                               └──── follow-ups ◀───┘
//! ```
//! Queue, backoff and workers are our own, which behave as client-go's. There are no requests: unless it is known how syncs
//! slow each other down, one takes as long with sixteen workers as with two, which is true while the API server has room.
//!
//! Where the number of objects is known, the keys of each are added again after its first sync, as those of an operator are by
//! the events of its own writes; they merge with one that is queued.
//!
//! # Guarantees
//! - With the workers that were measured, the trial is as busy as the operator was. (test: `measured_setting_is_as_busy_as_measured`)
//! - Keys that came together come together: they wait as long as measured with the workers that were measured.
//!   (test: `keys_wait_as_long_as_measured`)
//! - The keys of an object merge in the queue: as often as measured with the workers that were measured, more often with fewer.
//!   (test: `keys_of_an_object_merge_as_often_as_measured`)
//! - Syncs slow each other down as told, and take as long as measured with the workers that were measured.
//!   (test: `syncs_slow_each_other_down`)
//! - Failures are as frequent as measured, and retried by the limits of the setting.
//!   (test: `failures_are_retried_with_the_limits_of_the_setting`)
//! - The same workload, setting and seed give the same result. (test: `same_seed_gives_the_same_queue_trial`)

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::figures::ControllerFigures;
use super::samples::Samples;
use super::server_model::Counts;
use super::setting::Setting;
use super::tracker::Tracker;
use super::trial::{Trial, summary, to_count, to_f64, virtual_time};
use super::verdict;
use super::workload::{ControllerWork, Workload};
use crate::cache::ObjectName;
use crate::controller::{Controller, Limits, Outcome, SyncError, SyncHandler, SyncRequest};
use crate::metrics::Metrics;
use crate::workqueue::{QueueOptions, RateLimitingQueue};

/// The flags that matter without requests.
pub(super) const FLAGS: [&str; 5] =
    ["workers", "queue-base-delay", "queue-max-delay", "queue-qps", "queue-burst"];

/// How often [`bisect`] halves the range of what it looks for.
const HALVINGS: u32 = 7;
/// How often [`fit`] looks for one number after the other, where they depend on each other.
const ROUNDS: u32 = 3;
/// How many adds there can be for each that is counted.
const ADDS_PER_COUNTED: (f64, f64) = (1.0, 3.0);
/// How long after an object's first sync its key is added again, at most.
const FOLLOW_UP: Duration = Duration::from_secs(1);

/// Syncs that take as long as those of an operator, and fail as often.
struct Measured {
    work: ControllerWork,
    growth: f64,
    /// Syncs in progress across all controllers.
    active: Arc<AtomicU32>,
    random: Mutex<fastrand::Rng>,
    /// Successful syncs of each object.
    syncs: Mutex<HashMap<ObjectName, usize>>,
    /// Receives each key after its first sync; `None` unless the number of objects is known.
    first_syncs: Option<mpsc::UnboundedSender<ObjectName>>,
    tracker: Arc<Tracker>,
}

impl SyncHandler for Measured {
    async fn sync(&self, key: &ObjectName, _: SyncRequest<'_>) -> Result<Outcome, SyncError> {
        let nth = self.syncs.lock().get(key).copied().unwrap_or_default();
        let (time, fails) = {
            let mut random = self.random.lock();
            (self.work.time_of(nth, random.f64()), random.f64() < self.work.failed)
        };
        let in_progress = self.active.fetch_add(1, Ordering::Relaxed) + 1;
        tokio::time::sleep(Duration::from_secs_f64(time * f64::from(in_progress).powf(self.growth))).await;
        self.active.fetch_sub(1, Ordering::Relaxed);
        if fails {
            return Err(SyncError::new("this sync fails"));
        }
        if let Some(first_syncs) = &self.first_syncs {
            self.syncs.lock().insert(key.clone(), nth + 1);
            if nth == 0 {
                // The trial ends both at once.
                drop(first_syncs.send(key.clone()));
            }
        }
        self.tracker.converged(self.work.name, key.name(), 1);
        Ok(Outcome::Done)
    }
}

/// Runs a trial on a thread of its own time.
///
/// # Errors
/// A message, if a value of the setting cannot be read.
pub(super) fn run(
    workload: &Workload,
    setting: &Setting,
    seed: u64,
    limit: Duration,
) -> Result<Trial, String> {
    virtual_time()?.block_on(simulate(workload, setting, seed, limit))
}

/// Finds by bisection what the metrics do not say, so that a trial with the measured number of workers gives what they do say:
/// how closely the keys of an interval arrived (from the mean wait), how many adds merged (from those that did not), and how
/// long syncs take alone (from their mean time). Returns what was found, in words. A controller whose number of workers is
/// unknown is left as it was.
///
/// # Errors
/// As [`run`].
pub(super) fn fit(workload: &mut Workload, limit: Duration) -> Result<Vec<String>, String> {
    let of_objects = workload.controllers.iter().any(|work| work.objects.is_some());
    let waits_too_little = |work: &ControllerWork, modelled: &ControllerFigures, _| {
        work.wait_to_match().is_some_and(|wait| modelled.mean_wait_seconds.unwrap_or_default() < wait)
    };
    let are_too_many = |work: &ControllerWork, modelled: &ControllerFigures, seconds: f64| {
        let fresh = modelled.arrivals_per_second - modelled.retries_per_second;
        fresh * seconds >= to_f64(work.adds)
    };
    let depend_on_each_other = of_objects || workload.growth > 0.0;
    workload.remove_slowdown();
    for _ in 0..if depend_on_each_other { ROUNDS } else { 1 } {
        bisect(workload, limit, (0.0, 1.0), |work| &mut work.spread, waits_too_little)?;
        if of_objects {
            bisect(workload, limit, ADDS_PER_COUNTED, |work| &mut work.adds_per_counted, are_too_many)?;
        }
        if depend_on_each_other {
            rescale(workload, limit)?;
        }
    }
    Ok(workload.controllers.iter().flat_map(|work| found(work, workload.interval_seconds)).collect())
}

/// Scales the times of syncs so that a trial is busy for as long as measured.
fn rescale(workload: &mut Workload, limit: Duration) -> Result<(), String> {
    let trial = run(workload, &Setting::default(), 1, limit)?;
    for work in &mut workload.controllers {
        let modelled = trial.figures.of(work.name);
        if let Some((modelled, mean)) =
            modelled.and_then(|figures| Some((figures, figures.mean_pass_seconds?)))
        {
            let busy_seconds = mean * modelled.passes_per_second * trial.figures.seconds;
            work.times.rescale(work.busy_seconds / busy_seconds);
        }
    }
    Ok(())
}

/// Bisects a number of each controller between these bounds. `is_too_large` judges a trial with it, by the controller's figures
/// and the trial's seconds.
fn bisect(
    workload: &mut Workload,
    limit: Duration,
    bounds: (f64, f64),
    number: impl Fn(&mut ControllerWork) -> &mut f64,
    is_too_large: impl Fn(&ControllerWork, &ControllerFigures, f64) -> bool,
) -> Result<(), String> {
    let mut bounds = vec![bounds; workload.controllers.len()];
    for _ in 0..HALVINGS {
        for (work, (low, high)) in workload.controllers.iter_mut().zip(&bounds) {
            *number(work) = f64::midpoint(*low, *high);
        }
        let trial = run(workload, &Setting::default(), 1, limit)?;
        for (work, (low, high)) in workload.controllers.iter_mut().zip(&mut bounds) {
            let modelled = trial.figures.of(work.name);
            let is_too_large =
                modelled.is_some_and(|modelled| is_too_large(work, modelled, trial.figures.seconds));
            *if is_too_large { high } else { low } = *number(work);
        }
    }
    for (work, (_, high)) in workload.controllers.iter_mut().zip(bounds) {
        *number(work) = high;
    }
    Ok(())
}

/// Says what [`fit`] has found.
fn found(work: &ControllerWork, interval_seconds: f64) -> Vec<String> {
    let mut words = Vec::new();
    if let Some(measured) = work.wait_to_match() {
        words.push(format!(
            "{}: the keys of an interval ({}) come within {}, so that they wait as long as measured ({}).",
            work.name,
            verdict::seconds(interval_seconds),
            verdict::seconds(interval_seconds * work.spread),
            verdict::seconds(measured),
        ));
    }
    if let (Some(objects), Some(adds)) = (work.objects, work.adds_per_object()) {
        words.push(format!(
            "{}: the keys of {objects} objects are added {adds:.1} times each, of which {:.1} do not merge, as measured.",
            work.name,
            to_f64(work.adds) / to_f64(objects),
        ));
    }
    words
}

async fn simulate(
    workload: &Workload,
    setting: &Setting,
    seed: u64,
    limit: Duration,
) -> Result<Trial, String> {
    let (metrics, tracker, stop) = (Metrics::new(), Arc::<Tracker>::default(), CancellationToken::new());
    let (mut controllers, mut arrivals, mut follow_ups) = (JoinSet::new(), JoinSet::new(), JoinSet::new());
    let active = Arc::<AtomicU32>::default();
    let interval = Duration::from_secs_f64(workload.interval_seconds);
    for (at, work) in (0_u64..).zip(&workload.controllers) {
        let name = work.name;
        let limits = limits(setting, work)?;
        let options = QueueOptions { ageing: None, metrics: Some(metrics.queue(name)) };
        let queue = RateLimitingQueue::with(limits.limiter(), options);
        metrics.observe_queue(name, queue.clone());
        let mut random = fastrand::Rng::with_seed(!seed.wrapping_add(at));
        let first_syncs = work.adds_per_object().map(|adds| {
            let (sender, first_syncs) = mpsc::unbounded_channel();
            follow_ups.spawn(follow_up(first_syncs, adds - 1.0, random.fork(), queue.clone()));
            sender
        });
        let handler = Measured {
            work: work.clone(),
            growth: workload.growth,
            active: active.clone(),
            random: Mutex::new(fastrand::Rng::with_seed(seed.wrapping_add(at))),
            syncs: Mutex::default(),
            first_syncs,
            tracker: tracker.clone(),
        };
        let controller = Controller::new(name, queue.clone(), handler)
            .with_workers(limits.workers)
            .with_metrics(metrics.controller(name));
        controllers.spawn(controller.run(stop.clone()));
        arrivals.spawn(play(work.clone(), interval, random, (queue, tracker.clone())));
    }

    let began = Instant::now();
    let mut samples = Samples::new(began);
    let mut counts = Counts::default();
    let mut scheduled = None;
    while (scheduled.is_none() || tracker.pending() > 0) && began.elapsed() < limit {
        tokio::select! {
            biased;
            ended = arrivals.join_next(), if scheduled.is_none() => {
                if ended.is_none() {
                    scheduled = Some(began.elapsed());
                }
            }
            () = tracker.changed(), if scheduled.is_some() => {}
            () = samples.next() => samples.take(&metrics, &counts),
        }
    }
    samples.take(&metrics, &counts);
    let lasted = began.elapsed();
    counts.peak = samples.most_active();
    stop.cancel();
    arrivals.shutdown().await;
    follow_ups.shutdown().await;
    controllers.shutdown().await;
    Ok(summary(setting, &tracker, (scheduled.unwrap_or_default(), lasted), &samples, &counts))
}

/// Adds keys, each a new one, at random times within the part of each interval in which they come.
async fn play(
    work: ControllerWork,
    interval: Duration,
    mut random: fastrand::Rng,
    (queue, tracker): (RateLimitingQueue<ObjectName>, Arc<Tracker>),
) {
    let began = Instant::now();
    let mut nth = 0_usize;
    for (at, count) in (0_u32..).zip(work.arrivals) {
        let mut times: Vec<Duration> =
            (0..count).map(|_| interval * at + interval.mul_f64(random.f64() * work.spread)).collect();
        times.sort_unstable();
        for time in times {
            tokio::time::sleep_until(began + time).await;
            nth += 1;
            let key = format!("key-{nth}");
            tracker.follow(work.name, &key, 1);
            queue.add(ObjectName::new(None, &key));
        }
    }
}

/// Adds each key again within [`FOLLOW_UP`] of its first sync, `adds` times on average.
async fn follow_up(
    mut first_syncs: mpsc::UnboundedReceiver<ObjectName>,
    adds: f64,
    mut random: fastrand::Rng,
    queue: RateLimitingQueue<ObjectName>,
) {
    let mut waiting = JoinSet::new();
    while let Some(key) = first_syncs.recv().await {
        let count = to_count((adds - 0.5 + random.f64()).max(0.0));
        for _ in 0..count {
            let (queue, key, after) = (queue.clone(), key.clone(), FOLLOW_UP.mul_f64(random.f64()));
            waiting.spawn(async move {
                tokio::time::sleep(after).await;
                queue.add(key);
            });
        }
        while waiting.try_join_next().is_some() {}
    }
}

/// Returns the limits of a setting; those that it does not name are client-go's, and the workers as measured.
fn limits(setting: &Setting, work: &ControllerWork) -> Result<Limits, String> {
    setting.limits(Limits {
        workers: work.workers.unwrap_or(1),
        base_delay: Duration::from_millis(5),
        max_delay: Duration::from_secs(1000),
        qps: 10.0,
        burst: 100,
        audit_period: None,
    })
}

#[cfg(test)]
mod tests {
    use super::super::scrape::Scrape;
    use super::*;

    const LIMIT: Duration = Duration::from_secs(600);

    /// 1,200 keys in a minute, whose syncs take 80 ms on average, two at a time.
    fn workload(failures: u32) -> Workload {
        let scrape = |keys: u32, failures: u32| {
            let syncs = keys + failures;
            Scrape::parse(&format!(
                "workqueue_adds_total{{name=\"theirs\"}} {syncs}\nworkqueue_retries_total{{name=\"theirs\"}} {failures}\n\
                 controller_runtime_reconcile_errors_total{{controller=\"theirs\"}} {failures}\n\
                 controller_runtime_reconcile_time_seconds_bucket{{controller=\"theirs\",le=\"0.05\"}} {}\n\
                 controller_runtime_reconcile_time_seconds_bucket{{controller=\"theirs\",le=\"0.15\"}} {syncs}\n\
                 controller_runtime_reconcile_time_seconds_bucket{{controller=\"theirs\",le=\"+Inf\"}} {syncs}\n\
                 controller_runtime_reconcile_time_seconds_sum{{controller=\"theirs\"}} {}\n\
                 controller_runtime_reconcile_time_seconds_count{{controller=\"theirs\"}} {syncs}\n\
                 controller_runtime_max_concurrent_reconciles{{controller=\"theirs\"}} 2\n",
                syncs / 2,
                f64::from(syncs) * 0.08
            ))
        };
        let scrapes: Vec<Scrape> = (0..=60).map(|at| scrape(20 * at, failures * at / 60)).collect();
        Workload::of(&scrapes, Duration::from_secs(60)).unwrap()
    }

    fn trial(workers: &str) -> Trial {
        run(&workload(0), &Setting::of("workers", workers), 1, LIMIT).unwrap()
    }

    #[test]
    fn measured_setting_is_as_busy_as_measured() {
        let measured = run(&workload(0), &Setting::default(), 1, LIMIT).unwrap();
        assert_eq!((measured.changes, measured.pending), (1200, 0));
        let theirs = &measured.figures.controllers[0];
        assert_eq!((theirs.name.as_str(), theirs.workers), ("theirs", Some(2.0)));
        let utilization = theirs.utilization.unwrap();
        assert!((0.75..=0.85).contains(&utilization), "{utilization}");
        let mean = theirs.mean_pass_seconds.unwrap();
        assert!((0.076..=0.084).contains(&mean), "{mean}");
        assert_eq!(measured.peak_requests_in_flight, 2);

        let [one, four] = ["1", "4"].map(trial);
        assert!(one.seconds > 90.0, "one worker needs 96 s: {}", one.seconds);
        assert!(four.converged.p99 < measured.converged.p99 && measured.converged.p99 < one.converged.p99);
        assert!(four.converged.p50 < 0.1, "keys do not wait: {:?}", four.converged);
    }

    #[test]
    fn keys_wait_as_long_as_measured() {
        let wait = |workload: &Workload| {
            let trial = run(workload, &Setting::default(), 7, LIMIT).unwrap();
            trial.figures.controllers[0].mean_wait_seconds
        };
        for spread in [1.0, 0.4, 0.1] {
            let mut workload = workload(0);
            workload.controllers[0].spread = spread;
            let measured = wait(&workload);
            workload.controllers[0].mean_wait_seconds = measured;
            workload.controllers[0].spread = 0.7;
            let words = fit(&mut workload, LIMIT).unwrap();
            let ratio = wait(&workload).unwrap() / measured.unwrap();
            assert!((0.85..=1.15).contains(&ratio), "{ratio} times as long with {spread}");
            assert!(
                words[0].starts_with("theirs: the keys of an interval (1.0 s) come within "),
                "{words:?}"
            );
        }
        let mut unknown = workload(0);
        unknown.controllers[0].workers = None;
        assert_eq!(fit(&mut unknown, LIMIT), Ok(Vec::new()));
        assert_eq!(unknown.controllers[0].spread, 1.0);
    }

    /// How many keys were added in a trial, and the mean time of a sync.
    fn adds_and_mean(workload: &Workload, workers: &str) -> (f64, f64) {
        let trial = run(workload, &Setting::of("workers", workers), 1, LIMIT).unwrap();
        let theirs = &trial.figures.controllers[0];
        (theirs.arrivals_per_second * trial.figures.seconds, theirs.mean_pass_seconds.unwrap())
    }

    #[test]
    fn keys_of_an_object_merge_as_often_as_measured() {
        let mut workload = workload(0);
        workload.assign_to_objects(400).unwrap();
        let words = fit(&mut workload, LIMIT).unwrap();
        let trial = run(&workload, &Setting::default(), 1, LIMIT).unwrap();
        assert_eq!((trial.changes, trial.pending), (400, 0), "a change for each object");
        let [one, two, eight] = ["1", "2", "8"].map(|workers| adds_and_mean(&workload, workers));
        assert!((1140.0..1260.0).contains(&two.0), "as measured: {two:?}");
        assert!((0.076..0.084).contains(&two.1), "as measured: {two:?}");
        assert!(one.0 < 0.8 * two.0, "more merge in a longer queue: {one:?} {two:?}");
        assert!(eight.0 > two.0, "fewer merge in a shorter one: {eight:?} {two:?}");
        let adds = workload.controllers[0].adds_per_object().unwrap();
        let expected = format!(
            "theirs: the keys of 400 objects are added {adds:.1} times each, of which 3.0 do not merge, as measured."
        );
        assert_eq!(words.last(), Some(&expected));
    }

    #[test]
    fn syncs_slow_each_other_down() {
        let mut workload = workload(0);
        workload.growth = 0.5;
        fit(&mut workload, LIMIT).unwrap();
        let [one, two] = ["1", "2"].map(|workers| adds_and_mean(&workload, workers).1);
        assert!((0.076..0.084).contains(&two), "as measured: {two}");
        // Two take the square root of two as long as one, and mostly there are two.
        assert!((0.058..0.068).contains(&one), "{one}");
    }

    #[test]
    fn failures_are_retried_with_the_limits_of_the_setting() {
        let trial = run(&workload(120), &Setting::default(), 1, LIMIT).unwrap();
        assert_eq!((trial.changes, trial.pending), (1200, 0));
        assert!((90.0..150.0).contains(&trial.retries), "a tenth fails: {}", trial.retries);
        let slow = Setting::of("queue-base-delay", "5s");
        assert!(run(&workload(120), &slow, 1, LIMIT).unwrap().converged.p99 > 5.0);
        let wrong = Setting::of("workers", "auto");
        assert_eq!(run(&workload(0), &wrong, 1, LIMIT), Err("--workers=auto cannot be read".to_owned()));
    }

    #[test]
    fn same_seed_gives_the_same_queue_trial() {
        let of = |seed| run(&workload(60), &Setting::default(), seed, LIMIT).unwrap();
        assert_eq!(of(7), of(7));
        assert_ne!(of(7), of(8));
    }
}
