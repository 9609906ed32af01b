//! What two scrapes of an operator's metrics say about the time between them.
//!
//! # Guarantees
//! - Rates, utilization and waits are those between the scrapes. (test: `figures_are_of_the_time_between_scrapes`)
//! - A metric that the operator does not have is left out, never taken for zero. (test: `missing_metrics_are_left_out`)

use serde::Serialize;

use super::scrape::Scrape;

/// The figures of an operator.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Figures {
    /// The time between the scrapes.
    pub(super) seconds: f64,
    pub(super) controllers: Vec<ControllerFigures>,
    /// Requests per second, watches included.
    pub(super) requests_per_second: Option<f64>,
    /// Requests per second that were answered with 429.
    pub(super) throttled_per_second: Option<f64>,
    /// The time that a request waits for the client's limits or a Retry-After.
    pub(super) mean_limiter_wait_seconds: Option<f64>,
    /// The time until the API server answers.
    pub(super) mean_request_seconds: Option<f64>,
}

/// The figures of one controller.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ControllerFigures {
    pub(super) name: String,
    pub(super) workers: Option<f64>,
    /// Keys added per second that were not queued already.
    pub(super) arrivals_per_second: f64,
    pub(super) passes_per_second: f64,
    pub(super) mean_wait_seconds: Option<f64>,
    pub(super) p99_wait_seconds: Option<f64>,
    pub(super) mean_pass_seconds: Option<f64>,
    pub(super) p99_pass_seconds: Option<f64>,
    /// Keys in the queue at the last scrape.
    pub(super) depth: f64,
    /// Keys that back off at the last scrape.
    pub(super) backing_off: Option<f64>,
    pub(super) retries_per_second: f64,
    pub(super) errors_per_second: Option<f64>,
    /// Passes in progress on average, as a share of the workers (Little's law).
    pub(super) utilization: Option<f64>,
}

// === impl Figures ===

impl Figures {
    /// Compares two scrapes that are this many seconds apart.
    pub(super) fn between(before: &Scrape, after: &Scrape, seconds: f64) -> Self {
        let rate =
            |name: &str, with: &[(&str, &str)]| (after.sum(name, with) - before.sum(name, with)) / seconds;
        let if_there = |name: &str, value: f64| after.has(name).then_some(value);
        let names = after.values("workqueue_adds_total", "name");
        let controllers =
            names.into_iter().map(|name| ControllerFigures::between(&name, before, after, seconds));
        let limiter = after.observed_since(before, "rest_client_rate_limiter_duration_seconds", &[]);
        let requests = after.observed_since(before, "rest_client_request_duration_seconds", &[]);
        let total = "rest_client_requests_total";
        Self {
            seconds,
            controllers: controllers.collect(),
            requests_per_second: if_there(total, rate(total, &[])),
            throttled_per_second: if_there(total, rate(total, &[("code", "429")])),
            mean_limiter_wait_seconds: limiter.mean(),
            mean_request_seconds: requests.mean(),
        }
    }

    /// Returns the figures of a controller.
    pub(super) fn of(&self, controller: &str) -> Option<&ControllerFigures> {
        self.controllers.iter().find(|figures| figures.name == controller)
    }
}

impl ControllerFigures {
    fn between(name: &str, before: &Scrape, after: &Scrape, seconds: f64) -> Self {
        let (queue, controller) = ([("name", name)], [("controller", name)]);
        let rate = |metric: &str, with: &[(&str, &str)]| {
            (after.sum(metric, with) - before.sum(metric, with)) / seconds
        };
        let if_there = |metric: &str, value: f64| after.has(metric).then_some(value);
        let wait = after.observed_since(before, "workqueue_queue_duration_seconds", &queue);
        let work = after.observed_since(before, "workqueue_work_duration_seconds", &queue);
        let of_workers = "controller_runtime_max_concurrent_reconciles";
        let workers =
            if_there(of_workers, after.sum(of_workers, &controller)).filter(|workers| *workers > 0.0);
        let errors = "controller_runtime_reconcile_errors_total";
        let backing_off = "windlass_queue_backing_off";
        Self {
            name: name.to_owned(),
            workers,
            arrivals_per_second: rate("workqueue_adds_total", &queue),
            passes_per_second: work.count / seconds,
            mean_wait_seconds: wait.mean(),
            p99_wait_seconds: wait.quantile(0.99),
            mean_pass_seconds: work.mean(),
            p99_pass_seconds: work.quantile(0.99),
            depth: after.sum("workqueue_depth", &queue),
            backing_off: if_there(backing_off, after.sum(backing_off, &queue)),
            retries_per_second: rate("workqueue_retries_total", &queue),
            errors_per_second: if_there(errors, rate(errors, &controller)),
            utilization: workers.map(|workers| work.sum / seconds / workers),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(adds: u32, work: u32) -> Scrape {
        Scrape::parse(&format!(
            "workqueue_adds_total{{name=\"foo\",controller=\"foo\"}} {adds}\n\
             workqueue_work_duration_seconds_sum{{name=\"foo\"}} {work}\n\
             workqueue_work_duration_seconds_count{{name=\"foo\"}} {adds}\n\
             workqueue_depth{{name=\"foo\"}} 7\n\
             controller_runtime_max_concurrent_reconciles{{controller=\"foo\"}} 4\n"
        ))
    }

    #[test]
    fn figures_are_of_the_time_between_scrapes() {
        let figures = Figures::between(&text(100, 10), &text(300, 30), 10.0);
        let foo = &figures.controllers[0];
        assert_eq!((foo.name.as_str(), foo.workers), ("foo", Some(4.0)));
        let found = [foo.arrivals_per_second, foo.passes_per_second, foo.depth];
        assert_eq!(found, [20.0, 20.0, 7.0]);
        assert_eq!((foo.mean_pass_seconds, foo.utilization), (Some(0.1), Some(0.5)));
    }

    #[test]
    fn missing_metrics_are_left_out() {
        let figures = Figures::between(&text(0, 0), &text(0, 0), 10.0);
        assert_eq!((figures.requests_per_second, figures.mean_limiter_wait_seconds), (None, None));
        let foo = &figures.controllers[0];
        assert_eq!((foo.backing_off, foo.errors_per_second, foo.mean_pass_seconds), (None, None, None));
    }
}
