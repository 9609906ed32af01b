//! Reads the metrics of a running operator, and makes a load of them.
//!
//! # Guarantees
//! - Latencies are those of the operator's requests; what the metrics do not have keeps its default.
//!   (test: `load_has_the_latencies_of_the_metrics`)
//! - Two scrapes say how the server gets slower with what is in flight. (test: `two_scrapes_calibrate_the_server`)
//! - They say the same of the syncs of an operator that does not measure its requests. (test: `two_scrapes_show_how_syncs_slow_each_other_down`)

use std::path::Path;
use std::time::Duration;

use super::calibrate::{Point, latency_growth};
use super::load::{Arrivals, Latency, Load, Objects, Span, Which};
use super::scrape::{Observed, Scrape};
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

/// What an operator did from one scrape, or its start, to another.
struct Period {
    before: Scrape,
    after: Scrape,
    /// When it ended, in seconds since 1970.
    end: f64,
    seconds: f64,
}

/// Reads what an operator did up to each scrape.
async fn periods(from: &[String]) -> Result<Vec<Period>, Failure> {
    let mut periods: Vec<Period> = Vec::new();
    for from in from {
        let (after, end) = scrape(from).await?;
        let period = Period::up_to(after, end, periods.last());
        periods.push(period);
    }
    Ok(periods)
}

/// Fits how the time of syncs grows with their concurrency: returns the exponent of a power law through a scrape of a calm time
/// and one of a busy time, and prints it.
pub(super) async fn growth_of_syncs(from: &[String]) -> Result<f64, Failure> {
    let wrong = |cause: String| Failure::Usage {
        cause: format!("--from {}: {cause}", from.join(" ")),
        remedy: "With --metrics, give a scrape of a calm time and one of a busy time.".to_owned(),
    };
    let periods = periods(from).await?;
    let [first, second] = &periods[..] else { return Err(wrong("this is one scrape".to_owned())) };
    let points = [first, second].map(|period| period.syncs().ok_or_else(|| {
        wrong("a scrape has no syncs, no requests (rest_client_requests_total), or no time in which they were made".to_owned())
    }));
    let [first, second] = points;
    let (first, second) = (first?, second?);
    let (calm, busy) = if first.in_flight <= second.in_flight { (first, second) } else { (second, first) };
    let growth = latency_growth(calm, busy).map_err(wrong)?;
    eprintln!(
        "Syncs take {:.1} ms for each request with {:.1} in progress, and {:.1} ms with {:.1}: their time grows by the \
         power {growth:.2}.",
        calm.time * 1e3,
        calm.in_flight,
        busy.time * 1e3,
        busy.in_flight,
    );
    Ok(growth)
}

/// Builds a load from one scrape of an operator, or from two, by which its latencies are calibrated.
pub(super) async fn load(from: &[String]) -> Result<Load, Failure> {
    let mut periods = periods(from).await?;
    // What has happened last is what the operator meets.
    let last = periods.pop().expect("there is one, as the flag has a value");
    let (mut load, mut missing) = of(&last);
    if let Some(first) = periods.pop() {
        calibrate(&mut load, &first, &last).map_or_else(
            |cause| missing.push(format!("not calibrated: {cause}")),
            |words| eprintln!("{words}"),
        );
    }
    for missing in missing {
        eprintln!("{}: {missing}", from.join(", "));
    }
    Ok(load)
}

/// Gives the load latencies that grow with what is in flight, and the operator's processor time. Returns what was found.
fn calibrate(load: &mut Load, first: &Period, last: &Period) -> Result<String, String> {
    if first.seconds <= 0.0 || last.seconds <= 0.0 {
        return Err(
            "no time has passed between the scrapes; that of a file is when it was written".to_owned()
        );
    }
    let (calm, busy) = if first.in_flight() <= last.in_flight() { (first, last) } else { (last, first) };
    let [few, many] = [calm, busy].map(Period::requests);
    // As if the verbs had been the same at both times.
    let both: Vec<(f64, &Observed)> = many
        .iter()
        .filter_map(|(verb, many)| Some((few.iter().find(|(other, _)| other == verb)?.1.mean()?, many)))
        .collect();
    let count: f64 = both.iter().map(|(_, many)| many.count).sum();
    if count <= 0.0 {
        return Err(format!("each scrape must have {FEW} requests of one verb"));
    }
    let mean = |seconds: f64| seconds / count;
    let at_first = Point {
        in_flight: calm.in_flight(),
        time: mean(both.iter().map(|(mean, many)| mean * many.count).sum()),
    };
    let at_last =
        Point { in_flight: busy.in_flight(), time: mean(both.iter().map(|(_, many)| many.sum).sum()) };
    let growth = latency_growth(at_first, at_last)?;
    load.server.latency_growth = growth;
    load.server.latency = calm.latencies(at_first.slowdown(growth));
    load.server.latency.append(&mut Load::default().server.latency);
    if let Some(cost) = busy.processor_time_of_a_request() {
        load.operator.cpu_per_request = span(cost);
    }
    Ok(format!(
        "A request takes {:.1} ms with {:.1} in flight, and {:.1} ms with {:.1}: the latency grows by the power {growth:.2}.",
        at_first.time * 1e3,
        at_first.in_flight,
        at_last.time * 1e3,
        at_last.in_flight,
    ))
}

/// Returns the load, and what is missing in the metrics.
fn of(period: &Period) -> (Load, Vec<String>) {
    let mut load = Load::default();
    let mut missing = Vec::new();
    let scrape = &period.after;
    let mut latencies = period.latencies(1.0);
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
    let specs = period.count("windlass_reasons_total", &[("reason", "spec")]);
    let adds = period.count("workqueue_adds_total", &[]);
    let changes = if specs > 0.0 { specs } else { adds };
    let rate = if period.seconds > 1.0 { changes / period.seconds } else { 0.0 };
    if rate <= 0.0 {
        missing.push("no rate of changes (process_start_time_seconds is missing): 10/s are taken".to_owned());
    }
    let rate = if rate > 0.0 { rate } else { 10.0 };
    load.changes =
        vec![Arrivals::Steady { rate, from: Span::default(), r#for: Span(Duration::from_secs(60)) }];
    (load, missing)
}

// === impl Period ===

impl Period {
    /// What is counted up to a scrape: since the one before it, if that is of the same process, or since the process started.
    fn up_to(after: Scrape, end: f64, earlier: Option<&Self>) -> Self {
        let started = |scrape: &Scrape| scrape.sum("process_start_time_seconds", &[]);
        let same = earlier.filter(|earlier| started(&earlier.after).to_bits() == started(&after).to_bits());
        match same {
            Some(earlier) => Self { before: earlier.after.clone(), after, end, seconds: end - earlier.end },
            None => Self { seconds: end - started(&after), before: Scrape::default(), after, end },
        }
    }

    fn count(&self, name: &str, with: &[(&str, &str)]) -> f64 {
        self.after.sum(name, with) - self.before.sum(name, with)
    }

    /// Returns the requests of each verb of which there are enough.
    fn requests(&self) -> Vec<(&'static str, Observed)> {
        let all = VERBS.into_iter().map(|(method, verb)| {
            let name = "rest_client_request_duration_seconds";
            (verb, self.after.observed_since(&self.before, name, &[("verb", method)]))
        });
        all.filter(|(_, observed)| observed.count >= FEW && observed.sum > 0.0).collect()
    }

    /// Returns the mean number of syncs in progress, and their time for each request: a sync with nothing to do sends none.
    fn syncs(&self) -> Option<Point> {
        let time = self.count("workqueue_work_duration_seconds_sum", &[]);
        let requests = self.count("rest_client_requests_total", &[]);
        let is_known = time > 0.0 && requests > 0.0 && self.seconds > 0.0;
        is_known.then(|| Point { in_flight: time / self.seconds, time: time / requests })
    }

    /// Returns the mean number of requests in flight (Little's law).
    fn in_flight(&self) -> f64 {
        self.requests().iter().map(|(_, observed)| observed.sum).sum::<f64>() / self.seconds
    }

    /// Returns how long a request of each verb takes alone, if it was slower by this.
    fn latencies(&self, slowdown: f64) -> Vec<Latency> {
        let latency = |(verb, observed): (&str, Observed)| {
            let (mean, p50, p99) = (observed.mean()?, observed.quantile(0.5)?, observed.quantile(0.99)?);
            if p50 <= 0.0 {
                return None;
            }
            // Buckets are coarse, but the mean is exact: they give the shape, the mean the scale.
            let spread = (p99 / p50).max(1.0);
            let sigma = spread.ln() / Z99;
            let median = mean / slowdown / (sigma * sigma / 2.0).exp();
            let which = Which { verb: verb.to_owned(), ..Which::default() };
            Some(Latency { which, median: span(median), p99: Some(span(median * spread)) })
        };
        self.requests().into_iter().filter_map(latency).collect()
    }

    /// Returns the operator's processor time of each request, in seconds; `None` if the metrics do not have it.
    fn processor_time_of_a_request(&self) -> Option<f64> {
        let used = self.count("process_cpu_seconds_total", &[]);
        let requests: f64 = self.requests().iter().map(|(_, observed)| observed.count).sum();
        (used > 0.0 && requests > 0.0).then(|| used / requests)
    }
}

/// Returns a time in whole microseconds, at least one.
fn span(seconds: f64) -> Span {
    Span(Duration::from_micros(micros(seconds).max(1)))
}

/// Converts seconds to whole microseconds.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "positive, and far below 2^53")]
fn micros(seconds: f64) -> u64 {
    (seconds * 1e6).round() as u64
}

#[cfg(test)]
mod tests {
    use super::super::load::millis;
    use super::*;

    fn since_start(text: &str, seconds: f64) -> Period {
        Period { before: Scrape::default(), after: Scrape::parse(text), end: seconds, seconds }
    }

    #[test]
    fn load_has_the_latencies_of_the_metrics() {
        let text = "rest_client_request_duration_seconds_bucket{verb=\"PATCH\",le=\"0.005\"} 0\n\
            rest_client_request_duration_seconds_bucket{verb=\"PATCH\",le=\"0.025\"} 100\n\
            rest_client_request_duration_seconds_bucket{verb=\"PATCH\",le=\"+Inf\"} 100\n\
            rest_client_request_duration_seconds_count{verb=\"PATCH\"} 100\n\
            rest_client_request_duration_seconds_sum{verb=\"PATCH\"} 1.5\n\
            workqueue_adds_total{name=\"foo\"} 300\nworkqueue_adds_total{name=\"redis\"} 300\n\
            windlass_reasons_total{controller=\"foo\",reason=\"spec\",effect=\"changed\"} 200\n";
        let (load, missing) = of(&since_start(text, 100.0));
        assert_eq!(load.kinds, ["foo", "redis"]);
        assert_eq!(load.server.latency[0].which.verb, "patch");
        let median = load.server.latency[0].median.0.as_secs_f64();
        assert!((0.0145..=0.015).contains(&median), "{median}");
        assert_eq!(load.server.latency.len(), 2);
        assert!(matches!(load.changes[0], Arrivals::Steady { rate, .. } if (rate - 2.0).abs() < 1e-9));
        assert_eq!(missing, ["no number of objects: 500 are taken"]);
        assert!(Load::parse(&load.to_yaml().unwrap()).is_ok());
        let (load, missing) = of(&since_start("workqueue_adds_total{name=\"theirs\"} 3\n", 0.0));
        assert_eq!((load.kinds, missing.len()), (vec!["foo".to_owned()], 4));
    }

    /// Returns a scrape of a process with this start, number of patches since then, and their time.
    fn patches(started: u32, count: u32, seconds: f64) -> Scrape {
        let name = "rest_client_request_duration_seconds";
        Scrape::parse(&format!(
            "process_start_time_seconds {started}\nprocess_cpu_seconds_total {}\n\
             {name}_bucket{{verb=\"PATCH\",le=\"0.1\"}} {count}\n{name}_bucket{{verb=\"PATCH\",le=\"+Inf\"}} {count}\n\
             {name}_count{{verb=\"PATCH\"}} {count}\n{name}_sum{{verb=\"PATCH\"}} {seconds}\n",
            f64::from(count) / 1000.0,
        ))
    }

    #[tokio::test]
    async fn two_scrapes_show_how_syncs_slow_each_other_down() {
        let folder = tempfile::tempdir().unwrap();
        let now = jiff::Timestamp::now().as_second();
        // Each is of a process of its own, which runs for about 100 s.
        let file = |nth: i64, requests: u32, seconds: f64| {
            let path = folder.path().join(nth.to_string());
            let text = format!(
                "process_start_time_seconds {}\nworkqueue_adds_total{{name=\"theirs\"}} 1\n\
                 rest_client_requests_total{{code=\"200\"}} {requests}\n\
                 workqueue_work_duration_seconds_sum{{name=\"theirs\"}} {seconds}\n",
                now - 100 - nth
            );
            std::fs::write(&path, text).unwrap();
            path.to_str().unwrap().to_owned()
        };
        // One in progress takes 50 ms for each request, four take 100.
        let [calm, busy, as_busy, idle] =
            [file(0, 2000, 100.0), file(1, 4000, 400.0), file(2, 4100, 410.0), file(3, 0, 0.0)];
        let growth = growth_of_syncs(&[busy.clone(), calm.clone()]).await.unwrap();
        assert!((growth - 0.5).abs() < 0.02, "{growth}");
        for (from, why) in [
            (vec![busy.clone()], "this is one scrape"),
            (vec![calm, idle], "a scrape has no syncs"),
            (vec![busy, as_busy], "too much alike"),
        ] {
            let failure = growth_of_syncs(&from).await.unwrap_err().to_string();
            assert!(failure.contains(why) && failure.contains("--from"), "{failure}");
        }
    }

    #[test]
    fn two_scrapes_calibrate_the_server() {
        // 20 requests a second take 50 ms each; 15 at once take 75 ms each.
        let first = Period::up_to(patches(1000, 2_000, 100.0), 1100.0, None);
        let calibrated = |last: &Period| {
            let mut load = Load::default();
            (calibrate(&mut load, &first, last), load)
        };
        let same = Period::up_to(patches(1000, 4_000, 250.0), 1110.0, Some(&first));
        let other = Period::up_to(patches(2000, 2_000, 150.0), 2010.0, Some(&first));
        for last in [same, other] {
            let (found, load) = calibrated(&last);
            assert_eq!(load.operator.cpu_per_request, millis(1));
            let growth = load.server.latency_growth;
            assert!((growth - 1.5_f64.ln() / 15.0_f64.ln()).abs() < 1e-6, "{growth}");
            let latency = &load.server.latency[0];
            assert_eq!(latency.which.verb, "patch");
            let median = latency.median.0.as_secs_f64();
            assert!((0.047..0.05).contains(&median), "the mean is 50 ms: {median}");
            let words = "A request takes 50.0 ms with 1.0 in flight, and 75.0 ms with 15.0: the latency grows by the power 0.15.";
            assert_eq!(found.as_deref(), Ok(words));
            // In any order.
            let mut load = Load::default();
            assert_eq!(calibrate(&mut load, &last, &first), found);
        }
        let (found, load) = calibrated(&Period::up_to(patches(3000, 10, 1.0), 3010.0, None));
        assert_eq!(found.unwrap_err(), "each scrape must have 20 requests of one verb");
        assert_eq!(load.server, Load::default().server);
        let (found, _) = calibrated(&Period::up_to(patches(3000, 2_000, 1.0), 3000.0, None));
        assert!(found.unwrap_err().starts_with("no time has passed between the scrapes"));
    }
}
