//! Samples of a trial, at even intervals: depths, busy workers, requests.

use std::time::Duration;

use serde::Serialize;
use tokio::time::Instant;

use super::scrape::Scrape;
use super::server_model::Counts;
use super::trial::{to_count, to_f64};
use crate::metrics::Metrics;

/// How often a sample is taken.
const INTERVAL: Duration = Duration::from_millis(100);
/// Points of a plot, at most.
const POINTS: usize = 240;

// What a sample is taken of.
const DEPTH: &str = "workqueue_depth";
const BACKING_OFF: &str = "windlass_queue_backing_off";
const ACTIVE: &str = "controller_runtime_active_workers";
const WORKERS: &str = "controller_runtime_max_concurrent_reconciles";

/// What changes over time; all lists have the same length.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Plot {
    pub(super) seconds: Vec<f64>,
    /// The deepest queue of each interval.
    pub(super) depth: Vec<f64>,
    pub(super) requests_per_second: Vec<f64>,
}

/// See the module.
pub(super) struct Samples {
    began: Instant,
    ticks: tokio::time::Interval,
    /// The metrics of the last sample.
    last: String,
    taken: Vec<Sample>,
}

#[derive(Clone, Copy, Debug)]
struct Sample {
    at: Duration,
    depth: f64,
    backing_off: f64,
    /// Busy workers, and their share of all.
    active: f64,
    busy: f64,
    /// Requests so far.
    requests: f64,
}

// === impl Samples ===

impl Samples {
    pub(super) fn new(began: Instant) -> Self {
        Self { began, ticks: tokio::time::interval(INTERVAL), last: String::new(), taken: Vec::new() }
    }

    /// Waits until the next sample is due.
    ///
    /// # Cancel safety
    /// Cancel-safe.
    pub(super) async fn next(&mut self) {
        self.ticks.tick().await;
    }

    pub(super) fn take(&mut self, metrics: &Metrics, counts: &Counts) {
        self.last = metrics.encode();
        let scrape = Scrape::parse_only(&self.last, &[DEPTH, BACKING_OFF, ACTIVE, WORKERS]);
        let of = |name: &str| scrape.sum(name, &[]);
        let requests: u64 = counts.requests.values().sum();
        self.taken.push(Sample {
            at: self.began.elapsed(),
            depth: of(DEPTH),
            backing_off: of(BACKING_OFF),
            active: of(ACTIVE),
            busy: of(ACTIVE) / of(WORKERS).max(1.0),
            requests: to_f64(usize::try_from(requests).unwrap_or(usize::MAX)),
        });
    }

    /// Returns the metrics of the last sample.
    pub(super) fn last(&self) -> Scrape {
        Scrape::parse(&self.last)
    }

    pub(super) fn deepest(&self) -> f64 {
        self.taken.iter().map(|sample| sample.depth).fold(0.0, f64::max)
    }

    /// Returns the most workers that were busy at once in a sample.
    pub(super) fn most_active(&self) -> usize {
        to_count(self.taken.iter().map(|sample| sample.active).fold(0.0, f64::max))
    }

    /// Returns the share of the samples with keys in the queue.
    pub(super) fn queued_share(&self) -> f64 {
        mean(self.taken.iter().map(|sample| f64::from(u8::from(sample.depth > 0.0))))
    }

    /// Returns the mean share of busy workers in the samples with keys in the queue.
    pub(super) fn utilization_while_queued(&self) -> f64 {
        mean(self.taken.iter().filter(|sample| sample.depth > 0.0).map(|sample| sample.busy))
    }

    pub(super) fn mean_backing_off(&self) -> f64 {
        mean(self.taken.iter().map(|sample| sample.backing_off))
    }

    pub(super) fn plot(&self) -> Plot {
        let mut plot = Plot::default();
        let mut before = (0.0, 0.0);
        for chunk in self.taken.chunks(self.taken.len().div_ceil(POINTS).max(1)) {
            let Some(last) = chunk.last() else { continue };
            let at = last.at.as_secs_f64();
            plot.seconds.push(at);
            plot.depth.push(chunk.iter().map(|sample| sample.depth).fold(0.0, f64::max));
            plot.requests_per_second.push((last.requests - before.1) / (at - before.0).max(1e-3));
            before = (at, last.requests);
        }
        plot
    }
}

fn mean(values: impl Iterator<Item = f64>) -> f64 {
    let (count, sum) = values.fold((0.0, 0.0), |(count, sum), value| (count + 1.0, sum + value));
    if count > 0.0 { sum / count } else { 0.0 }
}
