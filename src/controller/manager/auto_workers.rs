//! Lets the number of workers follow the load.
//!
//! Mirrors nothing in client-go or controller-runtime, where the number is fixed at the start.
//! Flow: workers, queue, gate -> **auto_workers** -> workers
//!
//! # How it works
//! Once per window, one step, by the rules of the verdict in `docs/tuning.md`:
//!
//! | the workers were busy | step |
//! |---|---|
//! | for more than 85 % of the window | one more, unless something else is the bottleneck |
//! | so little, ten windows in a row, that one less would have been busy for at most 70 %, and no key waited | one less |
//! | for any time, but the last step was one more, and now over 2 % of the requests are answered with 429 | one less; the next rise waits for ten windows, then for twenty, and so on |
//! | otherwise | none |
//!
//! # Guarantees
//! - Busy workers get another one, up to the maximum. (test: `busy_workers_get_another_one_up_to_the_maximum`)
//! - More workers never add to the load of a server or webhook that answers 429 or slowly, nor wait for the client's own
//!   rate. (test: `another_bottleneck_keeps_the_number`)
//! - The number falls only after ten quiet windows, and not if keys waited for a worker: a burst that comes now and then
//!   keeps its workers. (test: `number_falls_after_ten_quiet_windows`, `bursts_keep_their_workers`)
//! - A worker too many for the server goes again, and is tried ever more seldom.
//!   (test: `worker_that_leads_to_refusals_goes_again`, `more_workers_are_tried_ever_more_seldom_on_a_full_server`)
//! - Under a constant load the number settles. (test: `number_does_not_oscillate`)
//! - A manager changes the number only while it leads. (test: `number_of_workers_follows_the_load`)

use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::client::{ApiClient, HeldBack};
use crate::controller::run::worker::ControllerView;
use crate::leader_election::Leadership;
use crate::metrics::ControllerMetrics;

/// Workers that are busy for more than this share of the time have no reserve.
const BUSY: f64 = 0.85;
/// Workers that are busy for less are too many.
const IDLE: f64 = 0.6;
/// How busy one worker less may be.
const ROOM: f64 = 0.7;
/// Keys that wait in no more than this share of the samples do not matter.
const SELDOM: f64 = 0.05;
/// How many quiet windows there must be before the number falls.
const QUIET_WINDOWS: u32 = 10;
/// How often the queue is looked at in a window.
const SAMPLES: u32 = 60;
/// A server that answers more than this percentage of the requests with 429 has too many of them.
const REFUSED_PERCENT: u64 = 2;
/// How many windows the next rise waits after a worker too many: at first, and at most.
const BACKOFF: (u32, u32) = (10, 24 * 60);

/// How a number of workers follows the load; see [`Runnable::with_auto_workers`](super::Runnable::with_auto_workers).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AutoWorkers {
    /// The largest number; the smallest is 1.
    pub max: usize,
    /// How long the load is observed before each step.
    pub window: Duration,
}

/// What was observed in a window.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Load {
    /// Time in syncs as a share of the workers' time; above 1 while workers stand in for slow syncs.
    utilization: f64,
    /// The share of the samples in which a key waited while all workers were busy.
    queued: f64,
    /// Requests that were answered, those with 429 included.
    answered: u64,
    held_back: HeldBack,
    /// Syncs that wait for a slow answer at the end of the window.
    slow: usize,
}

/// Decides on the steps.
#[derive(Debug)]
struct Rule {
    max: usize,
    quiet: u32,
    /// Whether the last step was one more.
    has_risen: bool,
    /// How many windows are left of the backoff.
    backoff: u32,
    /// The length of the next one.
    next_backoff: u32,
}

/// What follows from a window.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Step {
    To(usize, String),
    Keep,
    /// The workers are busy, but there will be no more of them, for this reason.
    Hold(&'static str),
}

// === impl AutoWorkers ===

impl AutoWorkers {
    /// The largest number of `--workers=auto`.
    pub const DEFAULT_MAX: usize = 16;

    /// Returns a number of workers from 1 to `max`, which changes at most once a minute.
    #[must_use]
    pub fn up_to(max: usize) -> Self {
        Self { max, window: Duration::from_secs(60) }
    }

    /// Follows the load until `stop`.
    pub(super) async fn run(
        self,
        view: ControllerView,
        client: ApiClient,
        leadership: Option<Leadership>,
        metrics: ControllerMetrics,
        stop: CancellationToken,
    ) {
        if let Some(leadership) = leadership
            && stop.run_until_cancelled(leadership.acquired()).await.is_none()
        {
            return;
        }
        let mut rule = Rule::up_to(self.max.max(1));
        let mut held = None;
        while let Some(load) = stop.run_until_cancelled(self.observe(&view, &client)).await {
            let workers = view.workers.count();
            let reason = match rule.step(&load, workers) {
                Step::To(number, why) => {
                    view.workers.set_because(number, why);
                    metrics.workers_changed(workers, number);
                    None
                }
                Step::Keep => None,
                Step::Hold(reason) => Some(reason),
            };
            if let Some(why) = reason
                && held != reason
            {
                tracing::info!(
                    controller = view.name,
                    workers,
                    why,
                    "The workers are busy, but their number stays"
                );
            }
            held = reason;
        }
    }

    async fn observe(&self, view: &ControllerView, client: &ApiClient) -> Load {
        let (busy, before) = (view.workers.busy(), client.gate().held_back());
        let answered = client.gate().answered();
        let (mut queued, mut time_of_workers) = (0, Duration::ZERO);
        let interval = (self.window / SAMPLES).max(Duration::from_millis(1));
        for _ in 0..SAMPLES {
            let workers = view.workers.count();
            tokio::time::sleep(interval).await;
            time_of_workers += interval * u32::try_from(workers).unwrap_or(u32::MAX);
            if !view.queue.is_empty() && view.workers.running() >= workers {
                queued += 1;
            }
        }
        let after = client.gate().held_back();
        let busy = view.workers.busy().saturating_sub(busy);
        Load {
            utilization: match time_of_workers.is_zero() {
                true => 0.0,
                false => busy.div_duration_f64(time_of_workers),
            },
            queued: f64::from(queued) / f64::from(SAMPLES),
            answered: client.gate().answered() - answered,
            held_back: HeldBack {
                refused: after.refused - before.refused,
                delayed: after.delayed - before.delayed,
            },
            slow: view.workers.standing_in(),
        }
    }
}

// === impl Rule ===

impl Rule {
    fn up_to(max: usize) -> Self {
        Self { max, quiet: 0, has_risen: false, backoff: 0, next_backoff: BACKOFF.0 }
    }

    fn step(&mut self, load: &Load, workers: usize) -> Step {
        let step = self.decide(load, workers);
        if let Step::To(number, _) = step {
            self.has_risen = number > workers;
        }
        step
    }

    fn decide(&mut self, load: &Load, workers: usize) -> Step {
        self.backoff = self.backoff.saturating_sub(1);
        let is_quiet = load.is_quiet(workers);
        self.quiet = if is_quiet { self.quiet + 1 } else { 0 };
        // Somebody has set the number to zero, so that keys wait.
        if workers == 0 {
            return Step::Keep;
        }
        let refused = load.held_back.refused;
        if self.has_risen && workers > 1 && 100 * refused > REFUSED_PERCENT * load.answered {
            self.backoff = self.next_backoff;
            self.next_backoff = (2 * self.backoff).min(BACKOFF.1);
            let answered = load.answered;
            return Step::To(workers - 1, format!("{refused} of {answered} requests were answered with 429"));
        }
        let busy = 100.0 * load.utilization;
        if load.utilization > BUSY {
            if workers >= self.max {
                return Step::Hold("their number is the maximum");
            }
            return match load.other_bottleneck() {
                Some(reason) => Step::Hold(reason),
                None if self.backoff > 0 => Step::Hold("with more of them, requests were answered with 429"),
                None => Step::To(workers + 1, format!("{workers} were busy for {busy:.0} % of the time")),
            };
        }
        if workers > self.max || self.quiet >= QUIET_WINDOWS {
            self.quiet = 0;
            self.next_backoff = BACKOFF.0;
            return Step::To(workers - 1, format!("{workers} were busy for only {busy:.0} % of the time"));
        }
        Step::Keep
    }
}

// === impl Load ===

impl Load {
    /// Whether one worker less would have been enough.
    fn is_quiet(&self, workers: usize) -> bool {
        let workers = f64::from(u32::try_from(workers).unwrap_or(u32::MAX));
        self.queued <= SELDOM
            && self.utilization < IDLE
            && workers > 1.0
            && self.utilization * workers <= ROOM * (workers - 1.0)
    }

    /// Returns what keys wait for besides workers.
    fn other_bottleneck(&self) -> Option<&'static str> {
        if self.held_back.refused > 0 {
            Some("requests are answered with 429")
        } else if self.held_back.delayed > 0 {
            Some("requests wait for --kube-api-qps")
        } else if self.slow > 0 {
            Some("syncs wait for slow answers, and other workers stand in")
        } else {
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(utilization: f64) -> Load {
        Load { utilization, ..Load::default() }
    }

    fn to(step: &Step) -> Option<usize> {
        match step {
            Step::To(number, _) => Some(*number),
            Step::Keep | Step::Hold(_) => None,
        }
    }

    fn rule() -> Rule {
        Rule::up_to(4)
    }

    /// A window in which this share of a thousand requests was answered with 429.
    fn refused(refused: u64) -> Load {
        Load { answered: 1000, held_back: HeldBack { refused, delayed: 0 }, ..load(1.0) }
    }

    #[test]
    fn busy_workers_get_another_one_up_to_the_maximum() {
        let steps = [1, 2, 3, 4].map(|workers| to(&rule().step(&load(0.9), workers)));
        assert_eq!(steps, [Some(2), Some(3), Some(4), None]);
        assert_eq!(to(&rule().step(&load(0.84), 1)), None);
        let why = Step::To(3, "2 were busy for 90 % of the time".to_owned());
        assert_eq!(rule().step(&load(0.9), 2), why);
        assert_eq!(
            to(&rule().step(&load(0.7), 6)),
            Some(5),
            "a maximum below the present number is approached"
        );
        assert_eq!(to(&rule().step(&load(0.0), 0)), None, "workers that were paused stay so");
    }

    #[test]
    fn another_bottleneck_keeps_the_number() {
        let busy = load(1.0);
        for (load, reason) in [
            (Load { held_back: HeldBack { refused: 1, delayed: 0 }, ..busy }, "429"),
            (Load { held_back: HeldBack { refused: 0, delayed: 1 }, ..busy }, "--kube-api-qps"),
            (Load { slow: 1, ..busy }, "slow answers"),
        ] {
            let Step::Hold(text) = rule().step(&load, 2) else { panic!("{load:?}") };
            assert!(text.contains(reason), "{text}");
        }
    }

    #[test]
    fn worker_that_leads_to_refusals_goes_again() {
        let mut rule = rule();
        assert_eq!(to(&rule.step(&refused(500), 2)), None, "no step has led to these");
        assert_eq!(to(&rule.step(&load(1.0), 2)), Some(3));
        assert_eq!(to(&rule.step(&refused(20), 3)), None, "a few keep the number");
        let why = "30 of 1000 requests were answered with 429".to_owned();
        assert_eq!(rule.step(&refused(30), 3), Step::To(2, why));
        assert_eq!(to(&rule.step(&refused(500), 2)), None, "one step back for one forth");
        // The server has room again.
        let rise = (0..20).position(|_| to(&rule.step(&load(1.0), 2)) == Some(3));
        assert_eq!(rise, Some(8), "ten windows after the step");
        assert_eq!(to(&rule.step(&load(1.0), 3)), Some(4));
    }

    /// A server that takes what two workers send, under a load for four.
    #[test]
    fn more_workers_are_tried_ever_more_seldom_on_a_full_server() {
        let (mut rule, mut workers, mut rises) = (rule(), 2, Vec::new());
        for window in 0..24 * 60 {
            let load = if workers > 2 { refused(200) } else { load(1.0) };
            match to(&rule.step(&load, workers)) {
                Some(next) if next > workers => {
                    rises.push(window);
                    workers = next;
                }
                Some(next) => workers = next,
                None => {}
            }
        }
        assert_eq!(rises, [0, 11, 32, 73, 154, 315, 636, 1277]);
    }

    #[test]
    fn number_falls_after_ten_quiet_windows() {
        let mut rule = rule();
        let steps: Vec<_> = (0..20).map(|_| to(&rule.step(&load(0.3), 3))).collect();
        let falls: Vec<_> = (0..20).filter(|at| steps[*at] == Some(2)).collect();
        assert_eq!(falls, [9, 19]);
        // One worker would be busy for 90 %.
        assert!((0..20).all(|_| to(&rule.step(&load(0.45), 2)).is_none()));
    }

    #[test]
    fn bursts_keep_their_workers() {
        let mut rule = rule();
        let burst = Load { utilization: 0.2, queued: 0.2, ..Load::default() };
        let falls = (0..100).filter(|at| {
            let load = if at % 5 == 0 { burst } else { Load::default() };
            to(&rule.step(&load, 3)).is_some()
        });
        assert_eq!(falls.count(), 0);
    }

    /// Poisson arrivals of syncs that take the same time; what is not done in a window is done in the next one.
    #[test]
    fn number_does_not_oscillate() {
        const WINDOWS: usize = 24 * 60;
        for seed in 0..200 {
            let mut random = fastrand::Rng::with_seed(seed);
            let offered = 0.1 + 6.0 * random.f64();
            let sync = Duration::from_millis(random.u64(10..200)).as_secs_f64();
            let (mut rule, mut workers, mut backlog) = (Rule::up_to(16), 2_usize, 0.0);
            let mut steps = Vec::new();
            for window in 0..WINDOWS {
                // The normal approximation of so many arrivals.
                let mean = offered * 60.0 / sync;
                let arrived = mean + mean.sqrt() * normal(&mut random);
                let wanted = backlog + arrived.max(0.0) * sync;
                let room = 60.0 * f64::from(u32::try_from(workers).unwrap());
                backlog = f64::max(wanted - room, 0.0);
                let queued = if backlog > 0.0 { 1.0 } else { 0.0 };
                let load = Load { utilization: f64::min(wanted / room, 1.0), queued, ..Load::default() };
                if let Some(next) = to(&rule.step(&load, workers)) {
                    steps.push((window, next > workers));
                    workers = next;
                }
            }
            let turns = steps.windows(2).filter(|pair| pair[0].1 != pair[1].1).count();
            assert!(turns <= 1, "seed {seed}, {offered:.2} workers' load of {sync:.3} s: {steps:?}");
            let settled = f64::from(u32::try_from(workers).unwrap());
            assert!(offered / settled <= 0.87, "seed {seed}: {offered:.2} on {settled} workers");
            assert!(
                workers == 1 || offered / (settled - 1.0) > 0.67 || offered / settled > 0.58,
                "seed {seed}"
            );
        }
    }

    fn normal(random: &mut fastrand::Rng) -> f64 {
        let (radius, angle) =
            ((-2.0 * (1.0 - random.f64()).ln()).sqrt(), std::f64::consts::TAU * random.f64());
        radius * angle.cos()
    }
}
