//! What a sweep or a running operator shows, in words with numbers: the bottleneck, the knee, and which flag to turn.
//!
//! # Guarantees
//! - The bottleneck is the resource that keys wait for. (test: `bottleneck_is_the_resource_that_keys_wait_for`)
//! - The advice is the cheapest setting within a tenth of the best, or within the target. (test: `advice_is_the_cheapest_of_the_good_settings`)
//! - A difference that other seeds do not confirm is called noise. (test: `difference_within_the_spread_is_called_noise`)
//! - The knee is the smallest value after which nothing gets much better. (test: `knee_is_where_more_gains_little`)

use std::fmt;

use serde::Serialize;

use super::figures::{ControllerFigures, Figures};
use super::setting::{Dimension, FlagValue, Setting};
use super::trial::{Trial, to_f64};
use crate::controller::AutoWorkers;
use crate::operators;

/// A setting is as good as the best if it is within this factor.
const AS_GOOD: f64 = 1.1;
/// A resource that is busy for more than this share has no reserve.
const BUSY: f64 = 0.85;
/// Below this share of busy workers, keys do not wait for one.
const ENOUGH: f64 = 0.7;
/// Keys are queued so rarely below this share of the time that workers do not matter.
const SELDOM: f64 = 0.05;

/// The resource that keys wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum Bottleneck {
    /// The API server refuses or delays requests.
    ApiServer,
    /// `--kube-api-qps`.
    ClientLimit,
    /// Changes wait until the server is back.
    Outage,
    /// Keys that failed wait for their backoff or the bucket of `--queue-qps`.
    Retries,
    /// The operator's processors.
    Processor,
    /// All workers are busy while keys wait.
    Workers,
    /// Nothing: keys are processed as they arrive.
    Arrivals,
}

/// The verdict of a sweep.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Verdict {
    /// The flags to set.
    pub(super) take: Setting,
    /// Whether the setting meets the target, if there is one.
    pub(super) meets_target: Option<bool>,
    pub(super) bottleneck: Bottleneck,
    /// The knee of each flag that was varied.
    pub(super) knees: Vec<Knee>,
    /// How much the results of the recommended setting and of those beside it depend on the seed.
    pub(super) spreads: Vec<Spread>,
    /// The same in words.
    pub(super) text: Vec<String>,
}

/// The 99th percentiles of a setting with several seeds, ascending, in seconds.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Spread {
    pub(super) setting: Setting,
    pub(super) p99: Vec<f64>,
}

/// The smallest value of a flag after which the 99th percentile improves by less than a tenth.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Knee {
    pub(super) flag: &'static str,
    /// Value and 99th percentile, in ascending order.
    pub(super) curve: Vec<(String, f64)>,
    /// `None` if the largest value is still much better than the one before.
    pub(super) value: Option<String>,
}

impl fmt::Display for Bottleneck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::ApiServer => "the API server",
            Self::ClientLimit => "the client's limit, --kube-api-qps",
            Self::Outage => "the outage: changes wait until the server is back",
            Self::Retries => "retries: keys that failed wait for their backoff",
            Self::Processor => "the operator's processors",
            Self::Workers => "the number of workers",
            Self::Arrivals => "nothing but the arrivals themselves",
        })
    }
}

// === impl Bottleneck ===

impl Bottleneck {
    pub(super) fn of(trial: &Trial) -> Self {
        let all: u64 = trial.requests.iter().map(|request| request.count).sum();
        let throttled: u64 =
            trial.requests.iter().filter(|request| request.code == 429).map(|request| request.count).sum();
        let limiter = trial.figures.mean_limiter_wait_seconds.unwrap_or_default();
        let request = trial.figures.mean_request_seconds.unwrap_or_default();
        if throttled * 200 > all || trial.server_utilization > BUSY {
            return Self::ApiServer;
        }
        if limiter > request / 2.0 && limiter > 0.001 {
            return Self::ClientLimit;
        }
        // What was changed just before an outage waits for its end, and changes during it are few. Afterwards some keys
        // back off in any case.
        let few_back_off = trial.mean_backing_off < (trial.deepest_queue / 20.0).max(1.0);
        if trial.outage_seconds > 0.0 && trial.queued_share < 0.5 && few_back_off {
            return Self::Outage;
        }
        // Few keys that back off for long matter more than a queue that is drained between.
        if trial.mean_backing_off >= 1.0 && trial.queued_share < 0.5 {
            return Self::Retries;
        }
        // Keys that wait beside idle workers wait for the cache, or arrived this moment.
        if trial.queued_share < SELDOM || trial.utilization_while_queued < ENOUGH {
            return Self::Arrivals;
        }
        if trial.cpu_utilization > BUSY { Self::Processor } else { Self::Workers }
    }
}

// === impl Verdict ===

impl Verdict {
    /// Judges the finished trials of a sweep; `None` without any.
    pub(super) fn of(trials: &[Trial], dimensions: &[Dimension], target: Option<f64>) -> Option<Self> {
        let chosen = choose(trials, target)?;
        let knees: Vec<Knee> =
            dimensions.iter().filter_map(|dimension| knee(trials, chosen, dimension)).collect();
        let bottleneck = Bottleneck::of(chosen);
        let meets_target = target.map(|target| chosen.pending == 0 && chosen.converged.p99 <= target);
        let mut text = vec![advice(chosen, target, meets_target)];
        text.extend(knees.iter().map(ToString::to_string));
        text.push(why(chosen, bottleneck));
        for knee in &knees {
            text.extend(neighbours(trials, chosen, knee));
        }
        Some(Self {
            take: chosen.setting.clone(),
            meets_target,
            bottleneck,
            knees,
            spreads: Vec::new(),
            text,
        })
    }

    /// Returns the recommended setting, and those beside it.
    pub(super) fn close_calls(&self, trials: &[Trial]) -> Vec<Setting> {
        let Some(chosen) = trials.iter().find(|trial| trial.setting == self.take) else { return Vec::new() };
        let beside = self.knees.iter().flat_map(|knee| beside(trials, chosen, knee));
        let mut settings = vec![chosen.setting.clone()];
        settings.extend(beside.map(|(_, trial)| trial.setting.clone()));
        settings
    }

    /// Adds what trials of the close calls with other seeds say.
    #[must_use]
    pub(super) fn with_repeats(mut self, trials: &[Trial], repeats: &[Trial]) -> Self {
        let spread = |setting: &Setting| {
            let all = trials.iter().chain(repeats).filter(|trial| trial.setting == *setting);
            // What has not converged takes at least as long as the trial.
            let p99 = |trial: &Trial| if trial.pending > 0 { trial.seconds } else { trial.converged.p99 };
            let mut p99: Vec<f64> = all.map(p99).collect();
            p99.sort_by(f64::total_cmp);
            Spread { setting: setting.clone(), p99 }
        };
        self.spreads = self.close_calls(trials).iter().map(spread).collect();
        let Some((taken, others)) = self.spreads.split_first() else { return self };
        let seeds = |spread: &Spread| spread.p99.len();
        let mut text = vec![format!(
            "With {} seeds, 99 % converge within {taken} with {}.",
            seeds(taken),
            taken.setting
        )];
        text.extend(others.iter().map(|other| {
            let noise = if other.overlaps(taken) { ": the difference is within the noise" } else { "" };
            format!("With {} seeds, {other} with {}{noise}.", seeds(other), other.setting)
        }));
        self.text.extend(text);
        self
    }
}

// === impl Spread ===

impl Spread {
    fn overlaps(&self, other: &Self) -> bool {
        let (own, others) = (self.range(), other.range());
        own.0 <= others.1 && others.0 <= own.1
    }

    fn range(&self) -> (f64, f64) {
        let ends = self.p99.first().zip(self.p99.last());
        ends.map(|(low, high)| (*low, *high)).unwrap_or_default()
    }
}

impl fmt::Display for Spread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (low, high) = self.range();
        write!(f, "{} to {}", seconds(low), seconds(high))
    }
}

/// Returns the cheapest setting that meets the target or, if there is none, is within a tenth of the best.
fn choose(trials: &[Trial], target: Option<f64>) -> Option<&Trial> {
    let best = trials.iter().min_by(|a, b| {
        (a.pending, a.converged.p99)
            .partial_cmp(&(b.pending, b.converged.p99))
            .unwrap_or(std::cmp::Ordering::Equal)
    })?;
    let limit = match target {
        Some(target) if best.pending == 0 && best.converged.p99 <= target => target,
        _ => best.converged.p99 * AS_GOOD,
    };
    let good = trials.iter().filter(|trial| trial.pending == best.pending && trial.converged.p99 <= limit);
    // Workers bound what the API server gets at once; the peak of a trial depends on chance.
    good.min_by(|a, b| {
        let cost = |trial: &Trial| (requests(trial), trial.peak_requests_in_flight);
        workers(a).total_cmp(&workers(b)).then_with(|| cost(a).cmp(&cost(b)))
    })
}

/// Returns the number of workers that a setting names.
fn workers(trial: &Trial) -> f64 {
    let flags =
        trial.setting.0.iter().filter(|entry| entry.flag == "workers" || entry.flag.ends_with("-syncs"));
    flags.map(|entry| number(&entry.value)).sum()
}

pub(super) fn requests(trial: &Trial) -> u64 {
    trial.requests.iter().map(|request| request.count).sum()
}

fn knee(trials: &[Trial], chosen: &Trial, dimension: &Dimension) -> Option<Knee> {
    let flag = dimension.flag;
    let mut curve: Vec<(String, f64)> = trials
        .iter()
        .filter(|trial| trial.pending == 0 && trial.setting.differs_only_in(&chosen.setting, flag))
        .filter_map(|trial| Some((trial.setting.get(flag)?.to_owned(), trial.converged.p99)))
        .collect();
    curve.sort_by(|a, b| number(&a.0).total_cmp(&number(&b.0)));
    if curve.len() < 2 {
        return None;
    }
    let best_from = |at: usize| curve[at..].iter().map(|(_, p99)| *p99).fold(f64::INFINITY, f64::min);
    let at = (0..curve.len()).find(|at| curve[*at].1 <= AS_GOOD * best_from(*at))?;
    let value = (at + 1 < curve.len()).then(|| curve[at].0.clone());
    Some(Knee { flag, curve, value })
}

/// Returns the size of a number or a duration; a number that follows the load may become its maximum.
fn number(text: &str) -> f64 {
    if text == "auto" {
        return to_f64(AutoWorkers::DEFAULT_MAX);
    }
    let text = text.strip_prefix("auto:").unwrap_or(text);
    text.parse()
        .ok()
        .or_else(|| crate::duration::parse(text).ok().map(|time| time.as_secs_f64()))
        .unwrap_or_default()
}

impl fmt::Display for Knee {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let curve: Vec<String> =
            self.curve.iter().map(|(value, p99)| format!("{value}: {}", seconds(*p99))).collect();
        write!(f, "p99 by --{}: {}. ", self.flag, curve.join(", "))?;
        match &self.value {
            Some(value) => write!(f, "The knee is at {value}: beyond it, the gain is below a tenth."),
            None => write!(f, "There is no knee yet: the largest value is still better; try larger ones."),
        }
    }
}

fn advice(trial: &Trial, target: Option<f64>, meets_target: Option<bool>) -> String {
    let Trial { converged, changes, pending, peak_requests_in_flight, .. } = trial;
    let result = if *pending > 0 {
        format!("{pending} of {changes} changes had not converged when the trial ended")
    } else {
        format!(
            "half of {changes} changes converge within {}, 99 % within {}",
            seconds(converged.p50),
            seconds(converged.p99)
        )
    };
    let cost = format!(
        "It costs the API server {} requests, at most {peak_requests_in_flight} at once.",
        requests(trial)
    );
    let target = target.map(seconds).unwrap_or_default();
    match meets_target {
        Some(false) => format!(
            "No setting meets --target-p99 ({target}). The best is {}: {result}. {cost}",
            trial.setting
        ),
        Some(true) => format!(
            "Take {}: the cheapest that meets --target-p99 ({target}); {result}. {cost}",
            trial.setting
        ),
        None => format!("Take {}: {result}. {cost}", trial.setting),
    }
}

/// Says why the trial is not faster, with the numbers.
fn why(trial: &Trial, bottleneck: Bottleneck) -> String {
    let numbers = match bottleneck {
        Bottleneck::ApiServer => format!(
            "{:.1} requests are in flight on average ({} of what the server takes), and {} were answered with 429. \
             More workers only queue there",
            trial.mean_requests_in_flight,
            percent(trial.server_utilization),
            trial
                .requests
                .iter()
                .filter(|request| request.code == 429)
                .map(|request| request.count)
                .sum::<u64>(),
        ),
        Bottleneck::ClientLimit => format!(
            "a request waits {} for the limit and {} for its answer. Raise --kube-api-qps, or set it to 0",
            seconds(trial.figures.mean_limiter_wait_seconds.unwrap_or_default()),
            seconds(trial.figures.mean_request_seconds.unwrap_or_default()),
        ),
        Bottleneck::Outage => format!(
            "the server is away for {} of {}, and keys are queued {} of the time. No flag shortens that; \
             --queue-max-delay and --queue-qps decide how soon failed keys come back afterwards",
            seconds(trial.outage_seconds),
            seconds(trial.seconds),
            percent(trial.queued_share),
        ),
        Bottleneck::Retries => format!(
            "{:.1} keys back off on average, and {} retries were made. A shorter --queue-max-delay, or a higher \
             --queue-qps and --queue-burst, brings them back sooner; fewer failures do more",
            trial.mean_backing_off, trial.retries,
        ),
        Bottleneck::Processor => format!(
            "{} of the processors are used; more workers do not help, fewer requests or more processors do",
            percent(trial.cpu_utilization)
        ),
        Bottleneck::Workers if !trial.requests.is_empty() => format!(
            "keys are queued {} of the time, and {} of the workers are busy then, while the server uses {} of its \
             requests in flight",
            percent(trial.queued_share),
            percent(trial.utilization_while_queued),
            percent(trial.server_utilization),
        ),
        Bottleneck::Workers | Bottleneck::Arrivals => format!(
            "keys are queued {} of the time, and {} of the workers are busy then",
            percent(trial.queued_share),
            percent(trial.utilization_while_queued)
        ),
    };
    let mut text = format!("The bottleneck is {bottleneck}: {numbers}.");
    for controller in &trial.figures.controllers {
        text.push_str(&little(controller));
    }
    text
}

/// Applies Little's law: passes at once are passes per second times the time of a pass.
fn little(controller: &ControllerFigures) -> String {
    let ControllerFigures { name, passes_per_second, mean_pass_seconds, workers, .. } = controller;
    let (Some(pass), Some(workers)) = (mean_pass_seconds, workers) else { return String::new() };
    let at_once = passes_per_second * pass;
    format!(
        " {name}: {passes_per_second:.1} passes/s of {} each keep {at_once:.1} of {workers} workers busy ({}).",
        seconds(*pass),
        percent(at_once / workers),
    )
}

/// Returns the trials with the next smaller and the next larger value of a flag.
fn beside<'a>(trials: &'a [Trial], chosen: &Trial, knee: &'a Knee) -> Vec<(&'a String, &'a Trial)> {
    let Some(current) = chosen.setting.get(knee.flag) else { return Vec::new() };
    let Some(at) = knee.curve.iter().position(|(value, _)| value == current) else { return Vec::new() };
    let others = [at.checked_sub(1), (at + 1 < knee.curve.len()).then_some(at + 1)];
    let find = |at: usize| {
        let value = &knee.curve[at].0;
        let is_it = |trial: &&Trial| {
            trial.setting.get(knee.flag) == Some(value)
                && trial.setting.differs_only_in(&chosen.setting, knee.flag)
        };
        Some((value, trials.iter().find(is_it)?))
    };
    others.into_iter().flatten().filter_map(find).collect()
}

/// Says what the next smaller and the next larger value of a flag would do.
fn neighbours(trials: &[Trial], chosen: &Trial, knee: &Knee) -> Vec<String> {
    let current = chosen.setting.get(knee.flag).unwrap_or_default();
    let describe = |(value, other): (&String, &Trial)| {
        format!(
            "--{}={value} instead of {current}: p99 {} instead of {} ({}), {} requests at once instead of {}.",
            knee.flag,
            seconds(other.converged.p99),
            seconds(chosen.converged.p99),
            change(chosen.converged.p99, other.converged.p99),
            other.peak_requests_in_flight,
            chosen.peak_requests_in_flight,
        )
    };
    beside(trials, chosen, knee).into_iter().map(describe).collect()
}

/// Judges a running operator by two scrapes.
pub(super) fn diagnose(figures: &Figures) -> Vec<String> {
    let mut text: Vec<String> = figures.controllers.iter().map(diagnose_controller).collect();
    match (figures.requests_per_second, figures.throttled_per_second) {
        (Some(rate), Some(throttled)) if throttled > 0.0 => text.push(format!(
            "The API server answers {throttled:.1} of {rate:.1} requests/s with 429: it, or its priority level for this \
             client, is overloaded. Fewer workers, or a limit with --kube-api-qps, would leave it room."
        )),
        (Some(_), _) => {}
        (None, _) => text.push("rest_client_requests_total is missing, so nothing is known of requests.".to_owned()),
    }
    match (figures.mean_limiter_wait_seconds, figures.mean_request_seconds) {
        (Some(limiter), Some(request)) if limiter > request / 2.0 && limiter > 0.001 => text.push(format!(
            "A request waits {} for the client's limit, and {} for its answer: --kube-api-qps is the bottleneck.",
            seconds(limiter),
            seconds(request)
        )),
        (None, _) | (_, None) => text.push(
            "rest_client_rate_limiter_duration_seconds or rest_client_request_duration_seconds has no observations, so \
             waits for the client's limit are not known."
                .to_owned(),
        ),
        _ => {}
    }
    text
}

fn diagnose_controller(controller: &ControllerFigures) -> String {
    let ControllerFigures { name, arrivals_per_second, passes_per_second, depth, .. } = controller;
    let mut text = format!(
        "{name}: {arrivals_per_second:.2} keys/s arrive, {passes_per_second:.2} passes/s are made, {depth} are queued."
    );
    let (Some(pass), Some(workers), Some(utilization)) =
        (controller.mean_pass_seconds, controller.workers, controller.utilization)
    else {
        text.push_str(if controller.mean_pass_seconds.is_none() {
            " No pass ended in this time."
        } else {
            " controller_runtime_max_concurrent_reconciles is missing, so the utilization of workers is not known."
        });
        return text;
    };
    let needed = needed_workers(controller, pass);
    let wait = controller
        .mean_wait_seconds
        .map(|wait| format!(", after a wait of {}", seconds(wait)))
        .unwrap_or_default();
    text.push_str(&format!(
        " A pass takes {}{wait}; {workers} workers are busy {}.",
        seconds(pass),
        percent(utilization)
    ));
    let backing_off = controller.backing_off.unwrap_or_default();
    text.push_str(&if utilization > BUSY {
        format!(" Workers are the bottleneck: with {needed} of them, at most 70 % would be busy.")
    } else if is_bursty(controller, pass, utilization) {
        format!(" Arrivals come in bursts: a key waits longer than its pass takes. {} workers would halve that.", workers * 2.0)
    } else if backing_off >= 1.0 || controller.errors_per_second.unwrap_or_default() > 0.1 * passes_per_second {
        format!(
            " Retries: {backing_off} keys back off, {:.2} passes/s fail. The log names the causes; workers and limits are not \
             the bottleneck.",
            controller.errors_per_second.unwrap_or_default()
        )
    } else if needed < workers {
        format!(" Arrivals are the bottleneck; {needed} of the workers would do.")
    } else {
        " Arrivals are the bottleneck; the workers keep up.".to_owned()
    });
    text
}

/// The number of workers of which 70 % would be busy.
fn needed_workers(controller: &ControllerFigures, pass: f64) -> f64 {
    let rate = controller.passes_per_second.max(controller.arrivals_per_second);
    (rate * pass / 0.7).ceil().max(1.0)
}

fn is_bursty(controller: &ControllerFigures, pass: f64, utilization: f64) -> bool {
    controller.mean_wait_seconds.unwrap_or_default() > pass && utilization > 0.5
}

/// Returns the flags that the judgement of [`diagnose`] asks to change, for the operators of this program.
pub(super) fn advised(figures: &Figures) -> Vec<FlagValue> {
    let of_controller = |controller: &ControllerFigures| {
        let name = operators::NAMES.into_iter().find(|name| *name == controller.name)?;
        let (pass, workers) = (controller.mean_pass_seconds?, controller.workers?);
        let utilization = controller.utilization?;
        let advised = if utilization > BUSY {
            needed_workers(controller, pass)
        } else if is_bursty(controller, pass, utilization) {
            workers * 2.0
        } else {
            return None;
        };
        let value = format!("{advised:.0}");
        (advised > workers).then(|| FlagValue { flag: format!("concurrent-{name}-syncs"), value })
    };
    figures.controllers.iter().filter_map(of_controller).collect()
}

/// Formats seconds with a fitting unit.
pub(super) fn seconds(seconds: f64) -> String {
    if seconds < 0.000_95 {
        format!("{:.0} µs", seconds * 1e6)
    } else if seconds < 0.995 {
        format!("{:.0} ms", seconds * 1e3)
    } else if seconds < 99.5 {
        format!("{seconds:.1} s")
    } else {
        format!("{seconds:.0} s")
    }
}

pub(super) fn percent(share: f64) -> String {
    format!("{:.0} %", share * 100.0)
}

fn change(from: f64, to: f64) -> String {
    if from <= 0.0 { "?".to_owned() } else { format!("{:+.0} %", (to / from - 1.0) * 100.0) }
}

/// Returns the mean of the given utilizations, for a column.
pub(super) fn worker_utilization(trial: &Trial) -> f64 {
    let all: Vec<f64> =
        trial.figures.controllers.iter().filter_map(|controller| controller.utilization).collect();
    if all.is_empty() { 0.0 } else { all.iter().sum::<f64>() / to_f64(all.len()) }
}

#[cfg(test)]
pub(super) mod tests;
