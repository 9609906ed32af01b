//! Metrics of controllers.

use std::time::Duration;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use super::{Counters, Histograms, Labels};
use crate::workqueue::{Reason, Reasons};

/// Creates a histogram with the buckets of controller-runtime.
fn passes() -> Histogram {
    const SECONDS: [f64; 40] = [
        0.005, 0.01, 0.025, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0,
        1.25, 1.5, 1.75, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 15.0, 20.0, 25.0, 30.0,
        40.0, 50.0, 60.0,
    ];
    Histogram::new(SECONDS)
}

/// Why a sync is retried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retry {
    /// Another client wrote in between.
    Conflict,
    /// The server was not reached, or did not respond.
    Connection,
    /// The server answered 429.
    Throttled,
    /// Any other error.
    Error,
    /// The sync handler panicked.
    Panic,
}

impl Retry {
    pub(super) const ALL: [Self; 5] =
        [Self::Conflict, Self::Connection, Self::Throttled, Self::Error, Self::Panic];

    /// Returns the value of the label `cause`.
    #[must_use]
    pub fn as_label(self) -> &'static str {
        match self {
            Self::Conflict => "conflict",
            Self::Connection => "connection",
            Self::Throttled => "throttled",
            Self::Error => "error",
            Self::Panic => "panic",
        }
    }
}

/// The effect of a sync.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// The sync wrote something.
    Changed,
    /// The sync had nothing to write.
    Nothing,
    /// The sync failed.
    Error,
}

impl Effect {
    pub(super) const LABELS: [&str; 3] = ["changed", "nothing", "error"];
}

/// The metric families of controllers.
#[derive(Debug)]
pub(super) struct Controllers {
    total: Counters,
    time: Histograms,
    errors: Counters,
    panics: Counters,
    timeouts: Counters,
    workers: Family<Labels, Gauge>,
    active: Family<Labels, Gauge>,
    retries: Counters,
    reasons: Counters,
    stale: Counters,
    failed_open: Counters,
    contended: Counters,
    passes: Counters,
    worker_changes: Counters,
}

/// The metrics of one controller.
#[derive(Clone, Debug)]
pub struct ControllerMetrics {
    name: &'static str,
    success: Counter,
    error: Counter,
    requeue_after: Counter,
    time: Histogram,
    errors: Counter,
    panics: Counter,
    timeouts: Counter,
    workers: Gauge,
    active: Gauge,
    retries: Counters,
    /// By reason, in the order of [`Reason::LABELS`], and effect.
    reasons: [[Counter; 3]; Reason::LABELS.len()],
    stale: Counters,
    failed_open: Counter,
    contended: Counter,
    passes: [Counter; 3],
    worker_changes: Counters,
}

fn labels(name: &'static str) -> Labels {
    vec![("controller", name.to_owned())]
}

fn with(name: &'static str, key: &'static str, value: &str) -> Labels {
    vec![("controller", name.to_owned()), (key, value.to_owned())]
}

// === impl Controllers ===

impl Controllers {
    pub(super) fn register(registry: &mut Registry) -> Self {
        let this = Self {
            total: Counters::default(),
            time: Histograms::new_with_constructor(passes),
            errors: Counters::default(),
            panics: Counters::default(),
            timeouts: Counters::default(),
            workers: Family::default(),
            active: Family::default(),
            retries: Counters::default(),
            reasons: Counters::default(),
            stale: Counters::default(),
            failed_open: Counters::default(),
            contended: Counters::default(),
            passes: Counters::default(),
            worker_changes: Counters::default(),
        };
        let counters = [
            ("controller_runtime_reconcile", "Passes by result", &this.total),
            ("controller_runtime_reconcile_errors", "Passes that failed", &this.errors),
            ("controller_runtime_reconcile_panics", "Passes that panicked", &this.panics),
            ("controller_runtime_reconcile_timeouts", "Passes that took too long", &this.timeouts),
            ("windlass_retries", "Passes that are retried, by cause", &this.retries),
            (
                "windlass_reasons",
                "Reasons of passes, by effect of the pass; at most 8 reasons of a pass are counted",
                &this.reasons,
            ),
            (
                "windlass_stale_sync_skips",
                "Passes delayed until the caches show the key's own writes, by the resource that they lag in",
                &this.stale,
            ),
            (
                "windlass_consistency_failed_open",
                "Passes made with live reads because the caches did not show the key's own writes in time",
                &this.failed_open,
            ),
            ("windlass_contended", "Children reverted repeatedly by another client", &this.contended),
            ("windlass_passes", "Passes by effect: changed something, nothing, error", &this.passes),
            (
                "windlass_worker_changes",
                "Changes of a number of workers that follows the load, by direction",
                &this.worker_changes,
            ),
        ];
        for (name, help, family) in counters {
            registry.register(name, help, family.clone());
        }
        registry.register(
            "controller_runtime_reconcile_time_seconds",
            "Duration of a pass in seconds",
            this.time.clone(),
        );
        let help = "Maximum number of concurrent passes";
        registry.register("controller_runtime_max_concurrent_reconciles", help, this.workers.clone());
        registry.register("controller_runtime_active_workers", "Passes in progress", this.active.clone());
        this
    }

    pub(super) fn of(&self, name: &'static str) -> ControllerMetrics {
        let (labels, result) = (labels(name), |result| with(name, "result", result));
        for retry in Retry::ALL {
            drop(self.retries.get_or_create(&with(name, "cause", retry.as_label())));
        }
        ControllerMetrics {
            name,
            success: self.total.get_or_create_owned(&result("success")),
            error: self.total.get_or_create_owned(&result("error")),
            requeue_after: self.total.get_or_create_owned(&result("requeue_after")),
            time: self.time.get_or_create_owned(&labels),
            errors: self.errors.get_or_create_owned(&labels),
            panics: self.panics.get_or_create_owned(&labels),
            timeouts: self.timeouts.get_or_create_owned(&labels),
            workers: self.workers.get_or_create_owned(&labels),
            active: self.active.get_or_create_owned(&labels),
            retries: self.retries.clone(),
            reasons: Reason::LABELS.map(|reason| {
                Effect::LABELS.map(|effect| {
                    let labels = vec![
                        ("controller", name.to_owned()),
                        ("reason", reason.to_owned()),
                        ("effect", effect.to_owned()),
                    ];
                    self.reasons.get_or_create_owned(&labels)
                })
            }),
            stale: self.stale.clone(),
            failed_open: self.failed_open.get_or_create_owned(&labels),
            contended: self.contended.get_or_create_owned(&labels),
            passes: Effect::LABELS
                .map(|effect| self.passes.get_or_create_owned(&with(name, "effect", effect))),
            worker_changes: self.worker_changes.clone(),
        }
    }
}

// === impl ControllerMetrics ===

impl ControllerMetrics {
    /// Creates metrics that are not exported.
    #[must_use]
    pub fn unread(name: &'static str) -> Self {
        super::Metrics::new().controller(name)
    }

    /// Sets the number of workers.
    pub fn workers(&self, workers: usize) {
        self.workers.set(i64::try_from(workers).unwrap_or(i64::MAX));
    }

    /// Counts a change of a number of workers that follows the load.
    pub fn workers_changed(&self, from: usize, to: usize) {
        let direction = if to > from { "up" } else { "down" };
        self.worker_changes.get_or_create(&with(self.name, "direction", direction)).inc();
    }

    /// Counts a sync as active until the returned guard is dropped.
    #[must_use]
    pub fn active(&self) -> impl Drop + use<> {
        super::counted(&self.active)
    }

    /// Counts a successful sync, and whether it requeued its key.
    pub fn succeeded(&self, took: Duration, is_to_be_repeated: bool) {
        if is_to_be_repeated { &self.requeue_after } else { &self.success }.inc();
        self.time.observe(took.as_secs_f64());
    }

    /// Counts a failed sync. A conflict counts as a requeue, not as an error.
    pub fn failed(&self, took: Duration, retry: Retry) {
        if retry == Retry::Conflict {
            self.requeue_after.inc();
        } else {
            self.error.inc();
            self.errors.inc();
        }
        if retry == Retry::Panic {
            self.panics.inc();
        }
        self.time.observe(took.as_secs_f64());
        self.retried(retry);
    }

    /// Counts a sync that was ended because it took too long, beside its failure.
    pub fn timed_out(&self) {
        self.timeouts.inc();
    }

    /// Counts a retry.
    pub fn retried(&self, retry: Retry) {
        self.retries.get_or_create(&with(self.name, "cause", retry.as_label())).inc();
    }

    /// Counts a sync that waits for the cache of this resource to show its key's own writes. The labels are those of
    /// Kubernetes' own controllers.
    pub fn waits_for_own_writes(&self, group: &str, resource: &str) {
        let mut labels = labels(self.name);
        labels.extend([("group", group.to_owned()), ("resource", resource.to_owned())]);
        self.stale.get_or_create(&labels).inc();
    }

    /// Counts a sync that no longer waits for its key's own writes.
    pub fn failed_open(&self) {
        self.failed_open.inc();
    }

    /// Counts the effect of a sync with these reasons.
    pub fn effect(&self, effect: Effect, reasons: &Reasons) {
        self.passes[effect as usize].inc();
        for reason in reasons.iter() {
            self.reasons[reason.label_index()][effect as usize].inc();
        }
    }

    /// Counts a child that another client keeps reverting.
    pub fn contended(&self) {
        self.contended.inc();
    }
}
