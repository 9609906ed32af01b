//! Tests of verdicts.

use super::super::samples::Plot;
use super::super::trial::{Quantiles, RequestCount};
use super::*;

#[test]
fn only_a_change_is_advised() {
    let of = |name: &str, passes: f64, workers: f64, wait: f64| ControllerFigures {
        name: name.to_owned(),
        workers: Some(workers),
        arrivals_per_second: passes,
        passes_per_second: passes,
        mean_wait_seconds: Some(wait),
        p99_wait_seconds: None,
        mean_pass_seconds: Some(0.1),
        p99_pass_seconds: None,
        depth: 0.0,
        backing_off: None,
        retries_per_second: 0.0,
        errors_per_second: None,
        utilization: Some(passes * 0.1 / workers),
    };
    let controllers = vec![
        of("foo", 19.0, 2.0, 1.0),
        of("myapp", 12.0, 2.0, 0.2),
        of("redis", 1.0, 2.0, 0.0),
        of("somebody-elses", 19.0, 2.0, 1.0),
    ];
    let figures = Figures { controllers, ..trial(1, 1.0).figures };
    let advised = Setting(advised(&figures)).to_string();
    assert_eq!(advised, "--concurrent-foo-syncs=3 --concurrent-myapp-syncs=4", "busy, in bursts, idle");
}

/// Returns a trial with this many workers and 99th percentile.
pub(crate) fn trial(workers: usize, p99: f64) -> Trial {
    let figures = Figures {
        seconds: 10.0,
        controllers: Vec::new(),
        requests_per_second: Some(10.0),
        throttled_per_second: Some(0.0),
        mean_limiter_wait_seconds: Some(0.0),
        mean_request_seconds: Some(0.01),
    };
    Trial {
        setting: Setting(vec![FlagValue { flag: "workers".to_owned(), value: workers.to_string() }]),
        changes: 100,
        pending: 0,
        seconds: 10.0,
        drain_seconds: 1.0,
        converged: Quantiles { p50: p99 / 2.0, p99, max: p99 },
        deepest_queue: 50.0,
        queued_share: 0.9,
        utilization_while_queued: 0.99,
        outage_seconds: 0.0,
        mean_backing_off: 0.0,
        retries: 0.0,
        worker_changes: 0.0,
        requests: vec![RequestCount { verb: "patch".to_owned(), code: 200, count: 400 }],
        peak_requests_in_flight: workers,
        mean_requests_in_flight: 1.0,
        server_utilization: 0.1,
        cpu_utilization: 0.1,
        figures,
        plot: Plot { seconds: vec![1.0, 2.0], depth: vec![5.0, 0.0], requests_per_second: vec![9.0, 1.0] },
    }
}

fn dimension() -> [Dimension; 1] {
    [Dimension { flag: "workers", values: Vec::new() }]
}

#[test]
fn bottleneck_is_the_resource_that_keys_wait_for() {
    let base = trial(1, 1.0);
    assert_eq!(Bottleneck::of(&base), Bottleneck::Workers);
    let idle = Trial { queued_share: 0.01, ..base.clone() };
    assert_eq!(Bottleneck::of(&idle), Bottleneck::Arrivals);
    assert_eq!(
        Bottleneck::of(&Trial { utilization_while_queued: 0.3, ..base.clone() }),
        Bottleneck::Arrivals
    );
    assert_eq!(Bottleneck::of(&Trial { cpu_utilization: 0.95, ..base.clone() }), Bottleneck::Processor);
    assert_eq!(Bottleneck::of(&Trial { server_utilization: 0.95, ..base.clone() }), Bottleneck::ApiServer);
    let throttled = RequestCount { verb: "patch".to_owned(), code: 429, count: 40 };
    let requests = vec![base.requests[0].clone(), throttled];
    assert_eq!(Bottleneck::of(&Trial { requests, ..base.clone() }), Bottleneck::ApiServer);
    let away = Trial { outage_seconds: 5.0, ..idle.clone() };
    assert_eq!(Bottleneck::of(&away), Bottleneck::Outage);
    assert_eq!(Bottleneck::of(&Trial { mean_backing_off: 20.0, ..away }), Bottleneck::Retries);
    assert_eq!(Bottleneck::of(&Trial { mean_backing_off: 20.0, ..idle }), Bottleneck::Retries);
    let figures = Figures { mean_limiter_wait_seconds: Some(0.5), ..base.figures.clone() };
    assert_eq!(Bottleneck::of(&Trial { figures, ..base }), Bottleneck::ClientLimit);
}

#[test]
fn advice_is_the_cheapest_of_the_good_settings() {
    let trials = [trial(1, 8.0), trial(4, 2.1), trial(8, 2.0), trial(16, 1.95)];
    let take = |target| {
        let verdict = Verdict::of(&trials, &dimension(), target).unwrap();
        (verdict.take.to_string(), verdict.meets_target)
    };
    assert_eq!(take(None), ("--workers=4".to_owned(), None));
    assert_eq!(take(Some(10.0)), ("--workers=1".to_owned(), Some(true)));
    assert_eq!(take(Some(1.0)), ("--workers=4".to_owned(), Some(false)));
    let stuck = [Trial { pending: 3, ..trial(1, 0.1) }, trial(2, 5.0)];
    assert_eq!(Verdict::of(&stuck, &dimension(), None).unwrap().take.to_string(), "--workers=2");
    assert_eq!(Verdict::of(&[], &dimension(), None), None);
}

#[test]
fn knee_is_where_more_gains_little() {
    let trials = [trial(16, 1.95), trial(1, 8.0), trial(4, 2.1), trial(8, 2.0)];
    let verdict = Verdict::of(&trials, &dimension(), None).unwrap();
    assert_eq!(verdict.knees[0].value.as_deref(), Some("4"));
    let text = verdict.text.join("\n");
    assert!(text.contains("p99 by --workers: 1: 8.0 s, 4: 2.1 s, 8: 2.0 s, 16: 1.9 s."), "{text}");
    assert!(text.contains("--workers=8 instead of 4: p99 2.0 s instead of 2.1 s (-5 %)"), "{text}");
    assert!(text.contains("--workers=1 instead of 4: p99 8.0 s instead of 2.1 s (+281 %)"), "{text}");
    assert!((number("auto:8") - 8.0).abs() < 1e-9 && (number("auto") - 16.0).abs() < 1e-9);
    let rising = Verdict::of(&[trial(1, 8.0), trial(2, 4.0)], &dimension(), None).unwrap();
    assert_eq!(rising.knees[0].value, None);
}

#[test]
fn difference_within_the_spread_is_called_noise() {
    let trials = [trial(1, 8.0), trial(4, 2.1), trial(8, 2.0)];
    let verdict = Verdict::of(&trials, &dimension(), None).unwrap();
    let close: Vec<String> = verdict.close_calls(&trials).iter().map(ToString::to_string).collect();
    assert_eq!(close, ["--workers=4", "--workers=1", "--workers=8"]);
    let stuck = Trial { pending: 1, ..trial(1, 0.1) };
    let repeats = [trial(1, 7.5), trial(4, 1.9), trial(4, 2.2), trial(8, 2.05), stuck];
    let verdict = verdict.with_repeats(&trials, &repeats);
    assert_eq!(verdict.spreads[0].p99, [1.9, 2.1, 2.2]);
    let text = verdict.text.join("\n");
    for sentence in [
        "With 3 seeds, 99 % converge within 1.9 s to 2.2 s with --workers=4.",
        "With 3 seeds, 7.5 s to 10.0 s with --workers=1.",
        "With 2 seeds, 2.0 s to 2.0 s with --workers=8: the difference is within the noise.",
    ] {
        assert!(text.contains(sentence), "{text}");
    }
}

#[test]
fn busy_workers_of_a_running_operator_are_named() {
    let controller = |utilization: f64| ControllerFigures {
        name: "foo".to_owned(),
        workers: Some(4.0),
        arrivals_per_second: 40.0,
        passes_per_second: 40.0,
        mean_wait_seconds: Some(0.01),
        p99_wait_seconds: None,
        mean_pass_seconds: Some(utilization * 4.0 / 40.0),
        p99_pass_seconds: None,
        depth: 0.0,
        backing_off: None,
        retries_per_second: 0.0,
        errors_per_second: None,
        utilization: Some(utilization),
    };
    let text = |utilization| diagnose_controller(&controller(utilization));
    assert!(text(0.95).contains("Workers are the bottleneck: with 6 of them"), "{}", text(0.95));
    assert!(text(0.1).contains("Arrivals are the bottleneck; 1 of the workers would do"), "{}", text(0.1));
    let unknown = ControllerFigures { workers: None, utilization: None, ..controller(0.5) };
    assert!(diagnose_controller(&unknown).contains("max_concurrent_reconciles is missing"));
}
