//! One trial of an operator that is known by its metrics alone, in virtual time.
//!
//! ```text
//! workload ─▶ arrivals ─▶ RateLimitingQueue ─▶ Controller, whose syncs take as long as measured ─▶ figures
//! ```
//! Queue, backoff and workers are our own, which behave as client-go's. There are no requests: a sync takes as long with
//! sixteen workers as with two, which is true while the API server has room.
//!
//! # Guarantees
//! - With the workers that were measured, the trial is as busy as the operator was. (test: `measured_setting_is_as_busy_as_measured`)
//! - Keys that came together come together: they wait as long as measured with the workers that were measured.
//!   (test: `keys_wait_as_long_as_measured`)
//! - Failures are as frequent as measured, and retried by the limits of the setting.
//!   (test: `failures_are_retried_with_the_limits_of_the_setting`)
//! - The same workload, setting and seed give the same result. (test: `same_seed_gives_the_same_queue_trial`)

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::samples::Samples;
use super::server_model::Counts;
use super::setting::Setting;
use super::tracker::Tracker;
use super::trial::{Trial, summary, virtual_time};
use super::verdict;
use super::workload::{ControllerWork, SyncTimes, Workload};
use crate::cache::ObjectName;
use crate::controller::{Controller, Limits, Outcome, SyncError, SyncHandler, SyncRequest};
use crate::metrics::Metrics;
use crate::workqueue::{QueueOptions, RateLimitingQueue};

/// The flags that matter without requests.
pub(super) const FLAGS: [&str; 5] =
    ["workers", "queue-base-delay", "queue-max-delay", "queue-qps", "queue-burst"];

/// How often [`fit`] halves the range of what it looks for.
const FITS: u32 = 7;

/// Syncs that take as long as those of an operator, and fail as often.
struct Measured {
    name: &'static str,
    times: SyncTimes,
    failed: f64,
    random: Mutex<fastrand::Rng>,
    tracker: Arc<Tracker>,
}

impl SyncHandler for Measured {
    async fn sync(&self, key: &ObjectName, _: SyncRequest<'_>) -> Result<Outcome, SyncError> {
        let (time, fails) = {
            let mut random = self.random.lock();
            (self.times.at(random.f64()), random.f64() < self.failed)
        };
        tokio::time::sleep(Duration::from_secs_f64(time)).await;
        if fails {
            return Err(SyncError::new("this sync fails"));
        }
        self.tracker.converged(self.name, key.name(), 1);
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

/// Finds how closely the keys of an interval arrived, by bisection: a trial with the measured number of workers must give
/// the measured mean wait. Returns what was found, in words. A controller whose number of workers is unknown is left as it
/// was.
///
/// # Errors
/// As [`run`].
pub(super) fn fit(workload: &mut Workload, limit: Duration) -> Result<Vec<String>, String> {
    let mut bounds = vec![(0.0, 1.0); workload.controllers.len()];
    for _ in 0..FITS {
        for (work, (closest, widest)) in workload.controllers.iter_mut().zip(&bounds) {
            work.spread = f64::midpoint(*closest, *widest);
        }
        let trial = run(workload, &Setting::default(), 1, limit)?;
        for (work, (closest, widest)) in workload.controllers.iter().zip(&mut bounds) {
            let modelled = trial.figures.controllers.iter().find(|figures| figures.name == work.name);
            let waited = modelled.and_then(|figures| figures.mean_wait_seconds).unwrap_or_default();
            let waits_too_little = work.wait_to_match().is_some_and(|measured| waited < measured);
            *if waits_too_little { widest } else { closest } = work.spread;
        }
    }
    let words = workload.controllers.iter_mut().zip(bounds).map(|(work, (_, widest))| {
        work.spread = widest;
        let measured = work.wait_to_match()?;
        Some(format!(
            "{}: the keys of an interval ({}) come within {}, so that they wait as long as measured ({}).",
            work.name,
            verdict::seconds(workload.interval_seconds),
            verdict::seconds(workload.interval_seconds * widest),
            verdict::seconds(measured),
        ))
    });
    Ok(words.flatten().collect())
}

async fn simulate(
    workload: &Workload,
    setting: &Setting,
    seed: u64,
    limit: Duration,
) -> Result<Trial, String> {
    let (metrics, tracker, stop) = (Metrics::new(), Arc::<Tracker>::default(), CancellationToken::new());
    let (mut controllers, mut arrivals) = (JoinSet::new(), JoinSet::new());
    let interval = Duration::from_secs_f64(workload.interval_seconds);
    for (at, work) in (0_u64..).zip(&workload.controllers) {
        let name = work.name;
        let limits = limits(setting, work)?;
        let options = QueueOptions { ageing: None, metrics: Some(metrics.queue(name)) };
        let queue = RateLimitingQueue::with(limits.limiter(), options);
        metrics.observe_queue(name, queue.clone());
        let handler = Measured {
            name,
            times: work.times.clone(),
            failed: work.failed,
            random: Mutex::new(fastrand::Rng::with_seed(seed.wrapping_add(at))),
            tracker: tracker.clone(),
        };
        let controller = Controller::new(name, queue.clone(), handler)
            .with_workers(limits.workers)
            .with_metrics(metrics.controller(name));
        controllers.spawn(controller.run(stop.clone()));
        let random = fastrand::Rng::with_seed(!seed.wrapping_add(at));
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
