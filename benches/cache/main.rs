//! Compares the cache with client-go's informers, in one run on one machine.
//!
//! `cargo bench --bench cache` prints microseconds and bytes per object for both sides, and how many times faster and
//! smaller ours is. Each figure is the median of three rounds; 20,000 objects, if the row says nothing else. The Go side
//! is `hack/bench/cache`; without Go, only our figures are shown. Neither side uses the network: bodies are in memory.
//! Concurrent work is measured in processor time. Bytes are those of the heap, Go's after a collection.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "its results go to standard output")]
#![allow(clippy::unwrap_used, reason = "a benchmark that cannot go on has failed")]

mod cases;
mod objects;

use std::collections::BTreeMap;
use std::process::{Command, Stdio};

use peak_alloc::PeakAlloc;
use serde::Deserialize;

#[global_allocator]
static HEAP: PeakAlloc = PeakAlloc;

const ROUNDS: usize = 3;

/// Our case, client-go's, and what both do.
const ROWS: [(&str, &str, &str); 22] = [
    ("frame, full", "frame, JSON", "a watch's Deployment, the whole type; Go from JSON"),
    ("frame, trimmed", "frame, JSON", "the same without managedFields"),
    ("frame, projection", "frame, JSON", "the fields that the operator compares"),
    ("frame, protobuf", "frame, protobuf", "the same from protobuf; Go the whole type"),
    ("page, full", "page, JSON", "a list's Deployments, 500 a page, as above"),
    ("page, trimmed", "page, JSON", ""),
    ("page, projection", "page, JSON", ""),
    ("page, protobuf", "page, protobuf", ""),
    ("page, Foos", "page, Foos", "a list's Foos; ours as cached, Go's whole"),
    ("fifo", "fifo", "pushes and pops, 1,000 a batch"),
    ("put", "put", "new objects into a store with an index by owner; 100,000, the bytes are the store's"),
    ("get", "get", "by name, of 100,000"),
    ("by index", "by index", "by owner, of 100,000"),
    ("replace", "replace", "all 100,000 by new states"),
    ("handlers, 1", "handlers, 1", "an informer lists from memory and notifies; per notification"),
    ("handlers, 4", "handlers, 4", ""),
    ("handlers, 16", "handlers, 16", ""),
    (
        "cold start, 20,000",
        "cold start, 20,000",
        "Foos (JSON) with their Deployments (protobuf) from pages, to synced; per pair",
    ),
    ("cold start, 20,000: peak", "cold start, 20,000: peak", "the largest heap of that start"),
    ("cold start, 100,000", "cold start, 100,000", ""),
    ("cold start, 100,000: peak", "cold start, 100,000: peak", ""),
    ("relist, 20,000", "", "the same pages again, nothing has changed; the bytes are the peak"),
];

/// Microseconds, or bytes, ours by theirs.
struct Goal {
    what: &'static str,
    ours: &'static str,
    theirs: &'static str,
    value: fn(&Figures) -> f64,
    at_most: f64,
}

#[rustfmt::skip]
const GOALS: [Goal; 13] = [
    Goal { what: "time of a frame / typed JSON", ours: "frame, projection", theirs: "frame, JSON", value: nanos, at_most: 0.125 },
    Goal { what: "time of a frame / protobuf", ours: "frame, protobuf", theirs: "frame, protobuf", value: nanos, at_most: 1.0 },
    Goal { what: "time in a page / typed JSON", ours: "page, projection", theirs: "page, JSON", value: nanos, at_most: 0.125 },
    Goal { what: "time in a page / protobuf", ours: "page, protobuf", theirs: "page, protobuf", value: nanos, at_most: 1.0 },
    Goal { what: "time of a put / Go", ours: "put", theirs: "put", value: nanos, at_most: 1.0 },
    Goal { what: "time of a get / Go", ours: "get", theirs: "get", value: nanos, at_most: 1.0 },
    Goal { what: "time by index / Go", ours: "by index", theirs: "by index", value: nanos, at_most: 1.0 },
    Goal { what: "time of a replace / Go", ours: "replace", theirs: "replace", value: nanos, at_most: 1.0 },
    Goal { what: "processor time of a cold start / Go", ours: "cold start, 20,000", theirs: "cold start, 20,000", value: nanos, at_most: 0.2 },
    Goal { what: "heap of 20,000 pairs / Go", ours: "cold start, 20,000", theirs: "cold start, 20,000", value: bytes, at_most: 0.35 },
    Goal { what: "heap of 100,000 pairs / Go", ours: "cold start, 100,000", theirs: "cold start, 100,000", value: bytes, at_most: 0.35 },
    Goal { what: "peak of a cold start / steady state", ours: "cold start, 20,000: peak", theirs: OURS, value: bytes, at_most: 1.2 },
    Goal { what: "peak of a relist / steady state", ours: "relist, 20,000", theirs: OURS, value: bytes, at_most: 1.2 },
];

/// The steady state of our own cache.
const OURS: &str = "";

type Figures = (f64, f64);

fn nanos(figures: &Figures) -> f64 {
    figures.0
}

fn bytes(figures: &Figures) -> f64 {
    figures.1
}

#[derive(Deserialize)]
struct Measured {
    case: String,
    nanos: f64,
    bytes: f64,
}

fn main() {
    // `cargo test --benches` only checks that the benchmark starts.
    if std::env::args().any(|argument| argument == "--test") {
        return;
    }
    let chosen: Vec<String> =
        std::env::args().skip(1).filter(|argument| !argument.starts_with("--")).collect();
    let mut ours = Vec::new();
    for round in 1..=ROUNDS {
        eprintln!("round {round} of {ROUNDS}, ours");
        cases::run(&chosen, |case, nanos, bytes| ours.push(Measured { case: case.to_owned(), nanos, bytes }));
    }
    let theirs = if chosen.is_empty() { go_side() } else { None };
    let theirs = theirs.as_deref().map(medians).unwrap_or_default();
    let ours = medians(&ours);
    print_rows(&ours, &theirs);
    print_parts(&ours);
    print_goals(&ours, &theirs);
}

/// Builds and runs the Go side; returns `None` if Go is not installed.
fn go_side() -> Option<Vec<Measured>> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/hack/bench/cache");
    eprintln!("building the Go side in {folder}");
    let output = Command::new("go").args(["run", "."]).current_dir(folder).stderr(Stdio::inherit()).output();
    let output = output.inspect_err(|error| eprintln!("go: {error}; only ours is shown")).ok()?;
    assert!(output.status.success(), "the Go side failed");
    let lines = String::from_utf8(output.stdout).unwrap();
    Some(lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect())
}

/// Returns the medians of each case's rounds.
fn medians(measured: &[Measured]) -> BTreeMap<&str, Figures> {
    let median = |case: &str, value: fn(&Measured) -> f64| {
        let mut values: Vec<f64> = measured.iter().filter(|m| m.case == case).map(value).collect();
        values.sort_by(f64::total_cmp);
        values[values.len() / 2]
    };
    let cases = measured.iter().map(|measured| measured.case.as_str());
    cases.map(|case| (case, (median(case, |m| m.nanos), median(case, |m| m.bytes)))).collect()
}

fn print_rows(ours: &BTreeMap<&str, Figures>, theirs: &BTreeMap<&str, Figures>) {
    println!(
        "{:<25} {:>9} {:>9} {:>7}   {:>7} {:>7} {:>7}",
        "", "ours, us", "Go, us", "faster", "bytes", "Go", "smaller"
    );
    // One figure of each side and how many times larger theirs is.
    let compared = |ours: f64, theirs: Option<f64>, digits: usize| match (ours, theirs) {
        (0.0, _) => ("".to_owned(), "".to_owned(), "".to_owned()),
        (ours, None) => (format!("{ours:.digits$}"), "-".to_owned(), "".to_owned()),
        (ours, Some(theirs)) => {
            (format!("{ours:.digits$}"), format!("{theirs:.digits$}"), format!("{:.1}x", theirs / ours))
        }
    };
    for (case, against, what) in ROWS {
        let Some(&(nanos, bytes)) = ours.get(case) else { continue };
        let theirs = theirs.get(against);
        let time = compared(nanos / 1e3, theirs.map(|theirs| theirs.0 / 1e3), 2);
        let memory = compared(bytes, theirs.map(|theirs| theirs.1), 0);
        println!(
            "{case:<25} {:>9} {:>9} {:>7}   {:>7} {:>7} {:>7}   {what}",
            time.0, time.1, time.2, memory.0, memory.1, memory.2
        );
    }
}

/// Prints the bytes that each part of a cached object takes.
fn print_parts(ours: &BTreeMap<&str, Figures>) {
    let of_foo = cases::FOO_PARTS.map(|part| ("Foo", "page, Foos", part));
    let of_deployment = cases::DEPLOYMENT_PARTS.map(|part| ("Deployment", "page, projection", part));
    for (kind, case, part) in of_foo.into_iter().chain(of_deployment) {
        let without = ours.get(format!("{case} without {part}").as_str());
        let (Some(whole), Some(without)) = (ours.get(case), without) else { continue };
        // What all objects share takes nothing of each.
        let taken = (bytes(whole) - bytes(without)).max(0.0);
        println!("heap: {:<48} {taken:>5.0} of {:.0}", format!("{kind}{part}"), bytes(whole));
    }
}

fn print_goals(ours: &BTreeMap<&str, Figures>, theirs: &BTreeMap<&str, Figures>) {
    for Goal { what, ours: case, theirs: against, value, at_most } in GOALS {
        let divisor = match against {
            OURS => ours.get("cold start, 20,000"),
            against => theirs.get(against),
        };
        let (Some(figures), Some(divisor)) = (ours.get(case), divisor) else { continue };
        let ratio = value(figures) / value(divisor);
        let outcome = if ratio <= at_most { "met" } else { "MISSED" };
        println!("goal: {what:<36} {ratio:.2}, at most {at_most}: {outcome}");
    }
}
