//! One trial: the operator of `windlass run` under a load and a setting, in virtual time.
//!
//! ```text
//! load ─▶ schedule ─▶ creations and changes ─▶ Sim ◀─ server model ◀─ operator (its flags: the setting)
//!                                               └─▶ informers of our own ─▶ when each change has converged
//! ```
//! A change has converged when the object's Ready condition is True for its generation. Virtual time stands still while
//! anything computes, so the only processor time is the one that the load gives each request.
//!
//! # Guarantees
//! - Every creation and change is followed until it has converged. (test: `every_change_is_followed_until_converged`)
//! - Deployments become available as often as the load says. (test: `rollouts_end_as_often_as_the_load_says`)
//! - The same load, setting and seed give the same result. (test: `same_seed_gives_the_same_trial`, `stand_ins_repeat_with_their_seed`)
//! - An operator that cannot converge ends the trial at its limit. (test: `a_trial_ends_at_its_limit`)

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use kube_client::Client;
use serde::Serialize;
use tokio::runtime::Runtime;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::figures::Figures;
use super::load::Load;
use super::objects::Objects;
use super::prepared::{Cluster, Prepared};
use super::process::Process;
use super::program::Program;
use super::samples::{Plot, Samples};
use super::scrape::Scrape;
use super::server_model::{Counts, ModelTransport};
use super::setting::Setting;
use super::tracker::Tracker;
use crate::sim::Sim;

/// The result of a trial.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Trial {
    pub(super) setting: Setting,
    /// Creations and changes.
    pub(super) changes: usize,
    /// Changes that had not converged when the trial ended.
    pub(super) pending: usize,
    /// From the start of the operator until all had converged, or until the limit.
    pub(super) seconds: f64,
    /// From the last creation or change until all had converged.
    pub(super) drain_seconds: f64,
    /// From a change until it has converged.
    pub(super) converged: Quantiles,
    pub(super) deepest_queue: f64,
    /// The share of the time in which keys were queued.
    pub(super) queued_share: f64,
    /// The mean share of the workers that was busy while keys were queued.
    pub(super) utilization_while_queued: f64,
    /// How long the server was away.
    pub(super) outage_seconds: f64,
    /// Keys that backed off after failures, on average.
    pub(super) mean_backing_off: f64,
    pub(super) retries: f64,
    /// How often `--workers=auto` changed the number.
    pub(super) worker_changes: f64,
    /// Requests by verb and code; none without a server.
    pub(super) requests: Vec<RequestCount>,
    /// Without a server the most syncs at once.
    pub(super) peak_requests_in_flight: usize,
    pub(super) mean_requests_in_flight: f64,
    /// Mean requests in flight as a share of what the server allows.
    pub(super) server_utilization: f64,
    /// Processor time of the operator as a share of its processors.
    pub(super) cpu_utilization: f64,
    pub(super) figures: Figures,
    pub(super) plot: Plot,
}

/// Quantiles in seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub(super) struct Quantiles {
    pub(super) p50: f64,
    pub(super) p99: f64,
    pub(super) max: f64,
}

/// How often a verb was answered with a code; 0 if the connection broke.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct RequestCount {
    pub(super) verb: String,
    pub(super) code: u16,
    pub(super) count: u64,
}

/// Returns a runtime whose time passes at once while all of its tasks wait.
pub(super) fn virtual_time() -> Result<Runtime, String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    runtime.map_err(|error| format!("could not start a runtime: {error}"))
}

/// Trials of a program under a load.
pub(super) struct Trials {
    program: Arc<Program>,
    pub(super) load: Arc<Load>,
    prepared: OnceLock<Result<Prepared, String>>,
}

// === impl Trials ===

impl Trials {
    pub(super) fn new(program: Program, load: Load) -> Self {
        Self { program: Arc::new(program), load: Arc::new(load), prepared: OnceLock::new() }
    }

    /// Runs a trial in virtual time. The first call prepares the objects of all trials; concurrent calls wait for it.
    ///
    /// # Errors
    /// A message, if the operator ends by itself or an object is refused.
    pub(super) fn run(&self, setting: &Setting, seed: u64, limit: Duration) -> Result<Trial, String> {
        let prepared = self.prepared.get_or_init(|| Prepared::new(&self.program, &self.load));
        let prepared = prepared.as_ref().map_err(String::clone)?;
        virtual_time()?.block_on(async { self.run_on(prepared.cluster(seed), setting, seed, limit).await })
    }

    async fn run_on(
        &self,
        mut cluster: Cluster,
        setting: &Setting,
        seed: u64,
        limit: Duration,
    ) -> Result<Trial, String> {
        let load = &self.load;
        let objects = Objects::new(&self.program, &cluster.client("load"), load.objects.count);
        cluster.follow(&objects, load, seed);
        if load.rollouts_per_second > 0.0 {
            cluster.sim.pace_rollouts(Duration::from_secs_f64(1.0 / load.rollouts_per_second));
        }

        let transport = ModelTransport::new(&cluster.sim, "windlass", load.clone(), seed);
        let passes = Some(Arc::new(transport.passes()) as _);
        let server = (&cluster.sim, Client::new(transport.clone(), "default"));
        let mut process = Process::start(&self.program, load, setting, server, seed, passes);
        let began = Instant::now();
        let mut schedule = JoinSet::new();
        schedule.spawn(objects.play(load.clone(), seed, cluster.tracker.clone()));
        let outages = self.outages(&cluster.sim);
        let mut samples = Samples::new(began);
        let mut scheduled = None;
        while scheduled.is_none() || cluster.tracker.pending() > 0 {
            if began.elapsed() >= limit {
                break;
            }
            tokio::select! {
                biased;
                Some(ended) = schedule.join_next() => {
                    ended.map_err(|error| error.to_string())??;
                    scheduled = Some(began.elapsed());
                }
                message = process.ended() => return Err(message),
                () = cluster.tracker.changed(), if scheduled.is_some() => {}
                () = samples.next() => samples.take(&process.metrics, &transport.counts()),
            }
        }
        let seconds = began.elapsed();
        drop(outages);
        samples.take(&process.metrics, &transport.counts());
        let times = (scheduled.unwrap_or_default(), seconds);
        let trial = self.result(setting, &cluster.tracker, times, &samples, &transport.counts());
        drop(process);
        cluster.shut_down().await;
        Ok(trial)
    }

    /// Stops and starts the server as the load says, until the returned tasks are dropped.
    fn outages(&self, sim: &Sim) -> JoinSet<()> {
        let mut tasks = JoinSet::new();
        let began = Instant::now();
        for outage in self.load.server.outages.clone() {
            let sim = sim.clone();
            tasks.spawn(async move {
                tokio::time::sleep_until(began + outage.from.0).await;
                sim.stop(0);
                tokio::time::sleep(outage.r#for.0).await;
                sim.start(0);
            });
        }
        tasks
    }

    fn result(
        &self,
        setting: &Setting,
        tracker: &Tracker,
        times: (Duration, Duration),
        samples: &Samples,
        counts: &Counts,
    ) -> Trial {
        let (_, lasted) = times;
        let seconds = lasted.as_secs_f64().max(1e-9);
        let mean_in_flight = counts.busy / seconds;
        Trial {
            outage_seconds: self.load.server.outages.iter().map(|outage| outage.r#for.0.as_secs_f64()).sum(),
            mean_requests_in_flight: mean_in_flight,
            server_utilization: mean_in_flight / to_f64(self.load.server.requests_in_flight),
            cpu_utilization: counts.cpu / to_f64(self.load.operator.cpus) / seconds,
            ..summary(setting, tracker, times, samples, counts)
        }
    }
}

/// Returns what is known without a server: the changes, of which the last was made at `scheduled`, the queues and workers.
pub(super) fn summary(
    setting: &Setting,
    tracker: &Tracker,
    (scheduled, lasted): (Duration, Duration),
    samples: &Samples,
    counts: &Counts,
) -> Trial {
    let seconds = lasted.as_secs_f64();
    let mut times: Vec<f64> = tracker.results().iter().map(Duration::as_secs_f64).collect();
    times.sort_by(f64::total_cmp);
    let quantile = |share: f64| -> f64 {
        let rank = (0..times.len()).find(|at| to_f64(at + 1) >= share * to_f64(times.len()));
        times.get(rank.unwrap_or_default()).copied().unwrap_or_default()
    };
    let scrape = samples.last();
    let requests = counts.requests.iter().map(|((verb, code), count)| RequestCount {
        verb: verb.clone(),
        code: *code,
        count: *count,
    });
    let pending = tracker.pending();
    Trial {
        setting: setting.clone(),
        changes: times.len() + pending,
        pending,
        seconds,
        drain_seconds: lasted.saturating_sub(scheduled).as_secs_f64(),
        converged: Quantiles { p50: quantile(0.5), p99: quantile(0.99), max: quantile(1.0) },
        deepest_queue: samples.deepest(),
        queued_share: samples.queued_share(),
        utilization_while_queued: samples.utilization_while_queued(),
        outage_seconds: 0.0,
        mean_backing_off: samples.mean_backing_off(),
        retries: scrape.sum("workqueue_retries_total", &[]),
        worker_changes: scrape.sum("windlass_worker_changes_total", &[]),
        requests: requests.collect(),
        peak_requests_in_flight: counts.peak,
        mean_requests_in_flight: 0.0,
        server_utilization: 0.0,
        cpu_utilization: 0.0,
        figures: Figures::between(&Scrape::default(), &scrape, seconds.max(1e-9)),
        plot: samples.plot(),
    }
}

/// Converts a count, which is far below 2^52.
#[expect(clippy::cast_precision_loss, reason = "see above")]
pub(super) fn to_f64(count: usize) -> f64 {
    count as f64
}

/// Rounds to a count.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "never negative, and far below 2^53"
)]
pub(super) fn to_count(number: f64) -> usize {
    number.round() as usize
}

#[cfg(test)]
mod tests {
    use super::super::load::{
        Arrivals, ConvergedWhen, Latency, Objects, Period, Profile, Server, Span, Which, millis,
    };
    use super::*;

    const LIMIT: Duration = Duration::from_secs(600);

    fn workers(workers: usize) -> Setting {
        Setting::of("workers", &workers.to_string())
    }

    fn trials(load: Load) -> Trials {
        Trials::new(Program::ours(&load.kinds).unwrap(), load)
    }

    fn load(count: usize) -> Load {
        Load { objects: Objects { count, converged: false }, ..Load::default() }
    }

    #[test]
    fn every_change_is_followed_until_converged() {
        let kinds = crate::operators::NAMES.map(str::to_owned).to_vec();
        let creations = vec![Arrivals::Burst { count: 5, at: millis(2000) }];
        let changes = vec![Arrivals::Burst { count: 10, at: millis(3000) }];
        let objects = Objects { count: 10, converged: true };
        let load = Load { kinds, objects, creations, changes, ..Load::default() };
        let trial = trials(load).run(&workers(4), 1, LIMIT).unwrap();
        assert_eq!((trial.changes, trial.pending), (15, 0));
        assert!(trial.converged.p50 > 0.01 && trial.converged.max < 60.0, "{trial:#?}");
        assert_eq!(trial.figures.controllers.len(), 5);
        let is_update = |verb: &str| verb == "patch" || verb == "update";
        let writes = trial.requests.iter().filter(|request| is_update(&request.verb) && request.code == 200);
        assert!(writes.map(|request| request.count).sum::<u64>() >= 15);
        assert!(trial.cpu_utilization > 0.0 && trial.mean_requests_in_flight > 0.0);
        assert_eq!(trial.plot.seconds.len(), trial.plot.depth.len());
    }

    #[test]
    fn same_seed_gives_the_same_trial() {
        let trials = trials(load(60));
        let trial = |seed| trials.run(&workers(2), seed, LIMIT).unwrap();
        assert_eq!(trial(7), trial(7));
        assert_ne!(trial(7), trial(8));
    }

    /// Requests of more than two seconds, during which other workers stand in.
    #[test]
    fn stand_ins_repeat_with_their_seed() {
        let span = |millis| Span(Duration::from_millis(millis));
        let latency = vec![Latency { which: Which::default(), median: span(1900), p99: Some(span(4000)) }];
        let server = Server { latency, requests_in_flight: 6, ..Server::default() };
        let trials = trials(Load { server, ..load(40) });
        let first = trials.run(&workers(4), 7, LIMIT).unwrap();
        assert!(first.peak_requests_in_flight > 4, "nobody stood in: {first:?}");
        for _ in 0..4 {
            assert_eq!(trials.run(&workers(4), 7, LIMIT).unwrap(), first);
        }
    }

    #[test]
    fn more_workers_converge_sooner() {
        let trials = trials(load(100));
        let [one, eight] = [1, 8].map(|count| trials.run(&workers(count), 1, LIMIT).unwrap());
        assert!(one.seconds > 3.0 * eight.seconds, "{} {}", one.seconds, eight.seconds);
        assert!(one.utilization_while_queued > 0.9 && one.deepest_queue > eight.deepest_queue * 0.9);
    }

    #[test]
    fn rollouts_end_as_often_as_the_load_says() {
        let of = |rollouts_per_second, converged_when| {
            let load = Load { rollouts_per_second, converged_when, ..load(40) };
            trials(load).run(&workers(8), 1, LIMIT).unwrap()
        };
        let slow = of(2.0, ConvergedWhen::Ready);
        assert!((19.5..21.0).contains(&slow.seconds), "40 at two a second: {}", slow.seconds);
        let updates = |trial: &Trial| {
            let of_status = trial.requests.iter().filter(|request| request.verb == "update");
            of_status.map(|request| request.count).sum::<u64>()
        };
        let [soon, late] = [0.0, 2.0].map(|rate| of(rate, ConvergedWhen::Observed));
        assert!(late.seconds < 2.0, "the operator's part does not wait for rollouts: {}", late.seconds);
        assert!(updates(&late) < 45 && updates(&soon) > 60, "{} {}", updates(&late), updates(&soon));
    }

    fn refused(trial: &Trial) -> u64 {
        let of_429 = trial.requests.iter().filter(|request| request.code == 429);
        of_429.map(|request| request.count).sum()
    }

    /// A server that takes four requests at once, of which the changes need three: two workers are too few.
    #[test]
    fn auto_workers_are_refused_less_than_the_best_fixed_number() {
        let span = |millis| Span(Duration::from_millis(millis));
        let changes = vec![Arrivals::Steady { rate: 1.5, from: span(0), r#for: span(480_000) }];
        let latency = vec![Latency { which: Which::default(), median: span(500), p99: Some(span(1000)) }];
        let server = Server { requests_in_flight: 4, latency, ..Server::default() };
        let objects = Objects { count: 150, converged: true };
        let trials = trials(Load { objects, changes, server, ..Load::default() });
        let trial = |workers: &str| trials.run(&Setting::of("workers", workers), 1, 2 * LIMIT).unwrap();
        let [fixed @ .., auto] = &["3", "4", "auto:8"].map(trial);
        let best = fixed.iter().min_by(|a, b| a.converged.p99.total_cmp(&b.converged.p99)).unwrap();
        assert!(refused(best) > 0, "{}", best.setting);
        assert!(auto.worker_changes >= 2.0, "it tries more, and takes them back: {}", auto.worker_changes);
        assert!(refused(auto) <= refused(best), "{} {}", refused(auto), refused(best));
    }

    /// The changes keep three workers busy: two are too few.
    #[test]
    fn auto_workers_settle_where_nothing_is_refused() {
        let span = |millis| Span(Duration::from_millis(millis));
        let changes = vec![Arrivals::Steady { rate: 1.9, from: span(0), r#for: span(360_000) }];
        let of_webhook = Load::of(Profile::Webhook);
        let mut server = Server { requests_in_flight: 16, ..of_webhook.server.clone() };
        server.webhooks[0].takes = span(1500);
        let objects = Objects { count: 40, converged: true };
        let trials = trials(Load { objects, changes, server, ..of_webhook });
        let trial = |workers: &str| trials.run(&Setting::of("workers", workers), 1, 2 * LIMIT).unwrap();
        let [two, auto] = ["2", "auto:16"].map(trial);
        assert_eq!((auto.pending, auto.figures.controllers[0].workers), (0, Some(4.0)));
        assert_eq!(refused(&auto), 0, "{:?}", auto.requests);
        assert!(auto.converged.p50 < two.converged.p50 / 2.0, "{:?} {:?}", auto.converged, two.converged);
    }

    #[test]
    fn a_trial_ends_at_its_limit() {
        let outages = vec![Period { from: millis(0), r#for: Span(Duration::from_secs(3600)) }];
        let load = Load { server: Server { outages, ..Server::default() }, ..load(3) };
        let trial = trials(load).run(&workers(1), 1, Duration::from_secs(20)).unwrap();
        assert_eq!((trial.pending, trial.changes), (3, 3));
        assert!((20.0..21.0).contains(&trial.seconds), "{}", trial.seconds);
    }
}
