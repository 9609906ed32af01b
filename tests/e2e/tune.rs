//! `windlass tune`: sweeps in virtual time, and a diagnosis of a running operator.

use std::time::Duration;

use macro_rules_attribute::apply;
use serde_json::{Value, json};

use crate::endpoints::address_of;
use crate::support::{Scene, no_bed, pass, real_bed, run_to_end};

/// Runs `windlass tune` to its end and returns what it prints.
fn tune(arguments: &[&str]) -> String {
    let all: Vec<&str> = ["tune"].iter().chain(arguments).copied().collect();
    let output = run_to_end(&all, &[]);
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("the output is text")
}

#[apply(no_bed)]
#[why = "it brings its own server"]
async fn sweep_names_the_flags_and_the_bottleneck() {
    let folder = tempfile::tempdir().unwrap();
    let page = folder.path().join("report.html");
    let page = page.to_str().expect("the path is text");
    let text = tune(&["sweep", "--objects=60", "--workers=1,4", "--report", page]);
    let header = ["--workers", "p50", "p99", "max", "drained", "requests", "retries"];
    let first = text.lines().next().unwrap_or_default();
    assert!(header.iter().all(|column| first.contains(column)), "{text}");
    assert!(text.contains("\nTake --workers=4: half of 60 changes converge within "), "{text}");
    assert!(text.contains("\nThe bottleneck is the number of workers: "), "{text}");
    assert!(text.contains("--workers=1 instead of 4: p99 "), "{text}");

    let html = std::fs::read_to_string(page).unwrap();
    assert!(html.starts_with("<!doctype html>") && html.contains("<svg"), "a page with plots");
    assert!(!html.contains("src=") && !html.contains("href="), "it needs nothing but itself");
}

#[apply(no_bed)]
#[why = "it brings its own server"]
async fn sweep_with_the_same_seed_prints_the_same() {
    let sweep = |seed| {
        tune(&["sweep", "--profile=startup", "--objects=40", "--workers=2", "--output=json", "--seed", seed])
    };
    let report = sweep("7");
    assert_eq!(report, sweep("7"));
    assert_ne!(report, sweep("8"));
    let trials: Value = serde_json::from_str(&report).unwrap();
    let trial = &trials["trials"][0];
    assert_eq!(trial["setting"], json!([{"flag": "workers", "value": "2"}]));
    assert!(trial["converged"]["p99"].as_f64() > trial["converged"]["p50"].as_f64(), "{trial}");
}

#[apply(no_bed)]
#[why = "nothing runs"]
async fn sweep_refuses_a_load_by_its_field() {
    let folder = tempfile::tempdir().unwrap();
    let load = folder.path().join("load.yaml");
    std::fs::write(&load, "kinds: [foo]\nobjects: {cuont: 5}\n").unwrap();
    let output = run_to_end(&["tune", "sweep", "--load", load.to_str().unwrap()], &[]);
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{text}");
    assert!(text.contains("cuont") && text.contains("load.yaml"), "{text}");
}

#[apply(real_bed)]
#[why = "sockets do not work with the embedded bed's paused clock"]
async fn changes_are_recorded_and_replayed() {
    let mut scene = Scene::new("record").await;
    scene.start_operator_with(&["--debug-bind-address=127.0.0.1:0"]);
    scene.ready_foo("web", 1).await;
    let address = address_of(scene.operator(), "/ /debug").await;
    let url = format!("http://{address}");
    let recorded = std::thread::spawn(move || tune(&["record", &url, "--for=8s"]));
    // The recording begins within its first second.
    pass(Duration::from_secs(3)).await;
    scene.ready_foo("example", 1).await;
    scene.patch_foo("web", json!({"spec": {"replicas": 2}})).await;
    scene.patch_foo("example", json!({"spec": {"replicas": 2}})).await;
    let load = recorded.join().expect("the recorder ends");
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("load.yaml");
    std::fs::write(&file, &load).unwrap();
    let text =
        tune(&["sweep", "--load", file.to_str().unwrap(), "--workers=2", "--output=json", "--seeds=1"]);
    let report: Value = serde_json::from_str(&text).unwrap();
    let trial = &report["trials"][0];
    assert_eq!((&trial["changes"], &trial["pending"]), (&json!(3), &json!(0)), "{load}");
    let syncs = report["load"]["history"]["syncs"].as_array().expect("the syncs are kept").iter();
    let reasons: Vec<&Value> = syncs.map(|syncs| &syncs["reasons"][0]).collect();
    assert!(reasons.contains(&&json!("created")) && reasons.contains(&&json!("spec")), "{reasons:?}");
    assert!(!load.contains(&scene.namespace) && !load.contains("example"), "it has no names: {load}");
    assert_eq!(
        tune(&["sweep", "--load", file.to_str().unwrap(), "--workers=2", "--output=json", "--seeds=1"]),
        text
    );
}

/// What an operator in Go says after so many seconds of ten keys a second, whose syncs take 150 ms.
fn scrape_of_another_operator(seconds: u32) -> String {
    let syncs = 10 * seconds;
    format!(
        "workqueue_adds_total{{controller=\"widget\",name=\"widget\"}} {syncs}\n\
         workqueue_retries_total{{controller=\"widget\",name=\"widget\"}} 0\n\
         controller_runtime_max_concurrent_reconciles{{controller=\"widget\"}} 2\n\
         controller_runtime_reconcile_time_seconds_bucket{{controller=\"widget\",le=\"0.1\"}} 0\n\
         controller_runtime_reconcile_time_seconds_bucket{{controller=\"widget\",le=\"0.2\"}} {syncs}\n\
         controller_runtime_reconcile_time_seconds_bucket{{controller=\"widget\",le=\"+Inf\"}} {syncs}\n\
         controller_runtime_reconcile_time_seconds_sum{{controller=\"widget\"}} {}\n\
         controller_runtime_reconcile_time_seconds_count{{controller=\"widget\"}} {syncs}\n",
        f64::from(syncs) * 0.15
    )
}

#[apply(no_bed)]
#[why = "it brings its own server"]
async fn sweep_predicts_another_operator_from_its_metrics() {
    let folder = tempfile::tempdir().unwrap();
    let files: Vec<String> = (0..=30)
        .map(|at| {
            let path = folder.path().join(format!("{at:02}.txt"));
            std::fs::write(&path, scrape_of_another_operator(at)).unwrap();
            path.to_str().unwrap().to_owned()
        })
        .collect();
    let sweep = |more: &[&str]| {
        let mut all = vec!["tune", "sweep", "--for=30s"];
        all.extend(more);
        all.push("--metrics");
        all.extend(files.iter().map(String::as_str));
        run_to_end(&all, &[])
    };
    let output = sweep(&["--workers=1,2,4"]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(text.contains("\nTake --workers=4: half of 300 changes converge within "), "{text}");
    assert!(text.contains("widget: "), "{text}");
    let notes = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(notes.contains("widget: the mean time of a sync is exact (150 ms)"), "{notes}");

    let output = sweep(&["--workers=1,4", "--metrics-objects=100"]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(text.contains("\nTake --workers=4: half of 100 changes converge within "), "{text}");
    let notes = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(notes.contains("of 100 objects are added ") && notes.contains("3.0 do not merge"), "{notes}");

    for (flag, why) in [
        ("--kube-api-qps=5,10", "--kube-api-qps cannot be tried"),
        ("--metrics-objects=301", "--metrics-objects=301: only 300 keys were added for widget"),
        (format!("--from={}", files[30]).as_str(), "this is one scrape"),
    ] {
        let output = sweep(&[flag]);
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.code() == Some(2) && text.contains(why), "{text}");
    }
    let of_client_go = |at: u32| {
        let path = folder.path().join(format!("client-go-{at}.txt"));
        let workers = "controller_runtime_max_concurrent_reconciles";
        std::fs::write(&path, scrape_of_another_operator(at).replace(workers, "another")).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let [first, last] = [0, 30].map(of_client_go);
    for (given, why) in [
        (&["--metrics", &files[0]][..], "one file has no rates"),
        (&["--metrics-objects=100", "--metrics", &first, &last], "do not say how many workers widget had"),
    ] {
        let output = run_to_end(&[&["tune", "sweep"], given].concat(), &[]);
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.code() == Some(2) && text.contains(why), "{text}");
    }
}

#[apply(real_bed)]
#[why = "sockets do not work with the embedded bed's paused clock"]
async fn diagnosis_reads_a_running_operator() {
    let mut scene = Scene::new("diagnose").await;
    scene.start_operator();
    let address = address_of(scene.operator(), "/metrics").await;
    let url = format!("http://{address}/metrics");
    let report: Value = serde_json::from_str(&tune(&["diagnose", &url, "--for=2s", "--output=json"]))
        .expect("the report is JSON");
    let controllers = report["figures"]["controllers"].as_array().unwrap();
    let names: Vec<_> = controllers.iter().map(|controller| controller["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["appservice", "foo", "myapp", "redis", "webapp"]);
    assert!(controllers.iter().all(|controller| controller["workers"] == 2.0), "{controllers:?}");
    assert!(!report["verdict"].as_array().unwrap().is_empty());
}
