//! Reads the metrics of a running operator, and makes a load of them.
//!
//! # Guarantees
//! - Latencies are those of the operator's requests; what the metrics do not have keeps its default.
//!   (test: `load_has_the_latencies_of_the_metrics`)

use std::path::Path;
use std::time::Duration;

use super::load::{Arrivals, Latency, Load, Objects, Span, Which};
use super::scrape::Scrape;
use super::server_model::Z99;
use crate::cli::Failure;
use crate::operators;

/// How long the operator may take to answer.
const PATIENCE: Duration = Duration::from_secs(10);
/// The HTTP methods in the label `verb`, and the verbs of a load.
const VERBS: [(&str, &str); 5] =
    [("GET", "get"), ("POST", "create"), ("PUT", "update"), ("PATCH", "patch"), ("DELETE", "delete")];
/// The least observations that make a distribution.
const FEW: f64 = 20.0;

/// Reads one scrape from a URL or a file, and returns it with its time in seconds since 1970.
pub(super) async fn scrape(from: &str) -> Result<(Scrape, f64), Failure> {
    let wrong = |cause: String| Failure::Usage {
        cause: format!("{from}: {cause}"),
        remedy: "Give the URL of an operator's /metrics, or a file with its text.".to_owned(),
    };
    let now = || jiff::Timestamp::now().as_duration().as_secs_f64();
    let (text, at) = if from.starts_with("http://") || from.starts_with("https://") {
        (fetch(from).await.map_err(wrong)?, now())
    } else {
        let text = std::fs::read_to_string(from).map_err(|error| wrong(error.to_string()))?;
        let changed = std::fs::metadata(Path::new(from)).and_then(|data| data.modified()).ok();
        let changed = changed.and_then(|at| at.duration_since(std::time::UNIX_EPOCH).ok());
        (text, changed.map_or_else(now, |at| at.as_secs_f64()))
    };
    let scrape = Scrape::parse(&text);
    if !scrape.has("workqueue_adds_total") {
        return Err(wrong("there is no workqueue_adds_total, so this is no operator's metrics".to_owned()));
    }
    Ok((scrape, at))
}

async fn fetch(url: &str) -> Result<String, String> {
    let client = reqwest::Client::builder().timeout(PATIENCE).build().map_err(|error| error.to_string())?;
    let mut request = client.get(url);
    if let Ok(token) = std::env::var("WINDLASS_METRICS_TOKEN") {
        request = request.bearer_auth(token);
    }
    let answer = request.send().await.and_then(reqwest::Response::error_for_status);
    let answer = answer.map_err(|error| crate::demo::setup::chain(&error.without_url()))?;
    answer.text().await.map_err(|error| error.without_url().to_string())
}

/// Makes a load of what an operator has met since its start.
pub(super) async fn load(from: &str) -> Result<Load, Failure> {
    let (scrape, at) = scrape(from).await?;
    let started = scrape.sum("process_start_time_seconds", &[]);
    let (load, missing) = of(&scrape, at - started);
    for missing in missing {
        eprintln!("{from}: {missing}");
    }
    Ok(load)
}

/// Returns the load, and what is missing in the metrics.
fn of(scrape: &Scrape, uptime: f64) -> (Load, Vec<String>) {
    let mut load = Load::default();
    let mut missing = Vec::new();
    let none = Scrape::default();
    let mut latencies = Vec::new();
    for (method, verb) in VERBS {
        let observed =
            scrape.observed_since(&none, "rest_client_request_duration_seconds", &[("verb", method)]);
        let (Some(mean), Some(p50), Some(p99)) =
            (observed.mean(), observed.quantile(0.5), observed.quantile(0.99))
        else {
            continue;
        };
        if observed.count < FEW || p50 <= 0.0 || mean <= 0.0 {
            continue;
        }
        // Buckets are coarse, but the mean is exact: they give the shape, the mean the scale.
        let spread = (p99 / p50).max(1.0);
        let sigma = spread.ln() / Z99;
        let median = mean / (sigma * sigma / 2.0).exp();
        let span = |seconds: f64| Span(Duration::from_micros(micros(seconds)));
        let which = Which { verb: verb.to_owned(), ..Which::default() };
        latencies.push(Latency { which, median: span(median), p99: Some(span(median * spread)) });
    }
    if latencies.is_empty() {
        missing.push("no latencies of requests: the default is taken".to_owned());
    } else {
        // What was not seen, such as lists, takes as long as the default says.
        latencies.append(&mut load.server.latency);
        load.server.latency = latencies;
    }
    let names: Vec<String> = scrape.values("workqueue_adds_total", "name");
    let ours: Vec<String> =
        names.iter().filter(|name| operators::NAMES.contains(&name.as_str())).cloned().collect();
    if ours.is_empty() {
        missing.push(format!(
            "none of its controllers ({}) is ours: Foos stand for its objects",
            names.join(", ")
        ));
    } else {
        load.kinds = ours;
    }
    let objects = scrape.sum("windlass_objects", &[]);
    let count = if objects > 0.0 {
        objects
    } else {
        missing.push("no number of objects: 500 are taken".to_owned());
        500.0
    };
    load.objects = Objects { count: usize::try_from(micros(count / 1e6)).unwrap_or(500), converged: true };
    let specs = scrape.sum("windlass_reasons_total", &[("reason", "spec")]);
    let adds = scrape.sum("workqueue_adds_total", &[]);
    let changes = if specs > 0.0 { specs } else { adds };
    let rate = if uptime > 1.0 { changes / uptime } else { 0.0 };
    if rate <= 0.0 {
        missing.push("no rate of changes (process_start_time_seconds is missing): 10/s are taken".to_owned());
    }
    let rate = if rate > 0.0 { rate } else { 10.0 };
    load.changes =
        vec![Arrivals::Steady { rate, from: Span::default(), r#for: Span(Duration::from_secs(60)) }];
    (load, missing)
}

/// Converts seconds to whole microseconds.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "positive, and far below 2^53")]
fn micros(seconds: f64) -> u64 {
    (seconds * 1e6).round() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn load_has_the_latencies_of_the_metrics() {
        let text = "rest_client_request_duration_seconds_bucket{verb=\"PATCH\",le=\"0.005\"} 0\n\
            rest_client_request_duration_seconds_bucket{verb=\"PATCH\",le=\"0.025\"} 100\n\
            rest_client_request_duration_seconds_bucket{verb=\"PATCH\",le=\"+Inf\"} 100\n\
            rest_client_request_duration_seconds_count{verb=\"PATCH\"} 100\n\
            rest_client_request_duration_seconds_sum{verb=\"PATCH\"} 1.5\n\
            workqueue_adds_total{name=\"foo\"} 300\nworkqueue_adds_total{name=\"redis\"} 300\n\
            windlass_reasons_total{controller=\"foo\",reason=\"spec\",effect=\"changed\"} 200\n";
        let (load, missing) = of(&Scrape::parse(text), 100.0);
        assert_eq!(load.kinds, ["foo", "redis"]);
        assert_eq!(load.server.latency[0].which.verb, "patch");
        let median = load.server.latency[0].median.0.as_secs_f64();
        assert!((0.0145..=0.015).contains(&median), "{median}");
        assert_eq!(load.server.latency.len(), 2);
        assert!(matches!(load.changes[0], Arrivals::Steady { rate, .. } if (rate - 2.0).abs() < 1e-9));
        assert_eq!(missing, ["no number of objects: 500 are taken"]);
        assert!(Load::parse(&load.to_yaml().unwrap()).is_ok());
        let (load, missing) = of(&Scrape::parse("workqueue_adds_total{name=\"theirs\"} 3\n"), 0.0);
        assert_eq!((load.kinds, missing.len()), (vec!["foo".to_owned()], 4));
    }
}
