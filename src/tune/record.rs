//! `windlass tune record`: what an operator met, as a load that a sweep replays.
//!
//! ```text
//! /debug/events of an operator ─┐
//! audit log of an API server ───┴▶ Collector ─▶ Load ─▶ YAML
//! ```
//! Objects are numbered as they are first seen: no name leaves the cluster unless `--names` asks for it.
//!
//! # Guarantees
//! - Creations and changes keep their times and objects, whoever tells of them. (test: `audit_log_becomes_a_load`,
//!   `events_of_an_operator_become_a_load`)
//! - The syncs of these objects are kept with their reasons and times. (test: `syncs_are_kept_with_reasons_and_times`)
//! - Latencies are those of the operator's requests, by verb, and its share of answers 429 is kept.
//!   (test: `audit_log_becomes_a_load`)
//! - Names are listed only if asked for. (test: `names_are_listed_if_asked_for`)
//! - A log of any length is read line by line; lines that cannot be read are counted. (test: `broken_lines_are_counted`)

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::time::Duration;

use jiff::Timestamp;
use serde::Deserialize;

use super::history::{History, Syncs};
use super::load::{Arrivals, Failures, Latency, Load, Objects, Span, Which};
use super::program::{Kind, Program};
use crate::cli::{Failure, print};
use crate::debug::report::{Entry, Event};
use crate::duration;
use crate::operators;
use crate::workqueue::Reason;

/// How often an operator is asked for its events.
const INTERVAL: Duration = Duration::from_millis(500);
/// How many events one answer has at most.
const AT_ONCE: usize = 1000;
/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(10);
/// The least requests that make a distribution.
const FEW: u64 = 20;

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Prints a load for `windlass tune sweep --load`: when custom resources were created and changed, how long requests took by \
verb, and the share that was answered with 429. Of an operator also the syncs of these, with their reasons and times, which \
the sweep compares with those of its trial. Objects are numbers in it.

  windlass tune record http://127.0.0.1:6060 --for 10m > load.yaml     # an operator with --debug-bind-address
  windlass tune record --from-audit audit.log --user system:serviceaccount:windlass:windlass > load.yaml
  windlass tune sweep --load load.yaml --workers 1..16

An audit log is that of a kube-apiserver (--audit-log-path), level Metadata or above.")]
pub(crate) struct Args {
    /// URL of the operator's /debug
    #[arg(value_name = "URL", required_unless_present = "from_audit", conflicts_with = "from_audit")]
    url: Option<String>,

    /// How long to listen to the operator
    #[arg(long, value_name = "DURATION", default_value = "60s", value_parser = duration::parse)]
    r#for: Duration,

    /// Read this audit log instead
    #[arg(long, value_name = "FILE", requires = "user")]
    from_audit: Option<PathBuf>,

    /// List which object each number is, in comments: their names leave the cluster with the file
    #[arg(long)]
    names: bool,

    /// The operator's user in the audit log: its requests have the latencies, all others' make the changes
    #[arg(long, value_name = "NAME", requires = "from_audit")]
    user: Option<String>,
}

/// A request in an audit log.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Audited {
    stage: String,
    verb: String,
    user: User,
    object_ref: Option<ObjectRef>,
    response_status: Option<Status>,
    request_received_timestamp: Timestamp,
    stage_timestamp: Timestamp,
}

#[derive(Deserialize)]
struct User {
    username: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[derive(Default)]
struct ObjectRef {
    resource: String,
    api_group: String,
    namespace: String,
    name: String,
    subresource: String,
}

#[derive(Deserialize)]
struct Status {
    #[serde(default)]
    code: u16,
}

/// Puts a load together.
#[derive(Default)]
struct Collector {
    began: Option<Timestamp>,
    kinds: Vec<&'static str>,
    objects: HashMap<u64, Object>,
    /// Created objects whose names are not known yet, by kind and namespace.
    unnamed: HashMap<u64, VecDeque<u32>>,
    existing: u32,
    /// In milliseconds from the beginning.
    creations: Vec<u64>,
    changes: Vec<(u64, Object)>,
    /// When the keys of the syncs that have begun were added, and why, by the hash of the key.
    begun: HashMap<u64, (u64, Vec<usize>)>,
    /// By the indices of their reasons' labels.
    syncs: BTreeMap<Vec<usize>, Vec<Sync>>,
    workers: usize,
    /// What each object is called; `None` unless asked for.
    names: Option<Vec<(Object, String)>>,
    latencies: BTreeMap<&'static str, Latencies>,
    requests: u64,
    refused: u64,
}

#[derive(Clone, Copy, Debug)]
enum Object {
    /// The nth of those that were there before.
    Existing(u32),
    /// The nth that was created.
    Created(u32),
}

/// A finished sync.
struct Sync {
    /// When its key was added, in milliseconds from the beginning.
    at: u64,
    /// The hash of its key.
    key: u64,
    micros: u64,
}

/// A histogram whose buckets are a twentieth wide.
#[derive(Default)]
struct Latencies {
    counts: BTreeMap<i32, u64>,
    all: u64,
}

pub(super) fn run(args: &Args) -> Result<(), Failure> {
    let collector = Collector { names: args.names.then(Vec::new), ..Collector::default() };
    let collector = match (&args.from_audit, &args.user, &args.url) {
        (Some(file), Some(user), _) => of_audit_log(collector, file, user)?,
        (_, _, Some(url)) => {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            let runtime =
                runtime.map_err(|error| Failure::Running(format!("could not start the runtime: {error}")))?;
            runtime.block_on(of_operator(collector, url, args.r#for))?
        }
        // The parser has refused it.
        _ => collector,
    };
    let names = collector.names();
    let load = collector.finish().map_err(|cause| Failure::Usage {
        cause,
        remedy: "Record for longer, or at a busier time; with --from-audit check --user.".to_owned(),
    })?;
    print(&(load.to_yaml().map_err(Failure::Running)? + &names))
}

fn of_audit_log(mut collector: Collector, file: &Path, user: &str) -> Result<Collector, Failure> {
    let wrong = |cause: String| Failure::Usage {
        cause: format!("--from-audit={}: {cause}", file.display()),
        remedy: "Give the audit log of a kube-apiserver, a line of JSON for each request.".to_owned(),
    };
    let log = std::fs::File::open(file).map_err(|error| wrong(error.to_string()))?;
    let program = Program::ours(&operators::NAMES.map(str::to_owned)).map_err(Failure::Running)?;
    let (mut lines, mut broken) = (0_u64, 0_u64);
    for line in BufReader::new(log).split(b'\n') {
        let line = line.map_err(|error| wrong(error.to_string()))?;
        lines += 1;
        match serde_json::from_slice::<Audited>(&line) {
            Ok(request) if request.stage == "ResponseComplete" => {
                collector.audited(&request, user, &program.kinds)
            }
            Ok(_) => {}
            Err(_) => broken += 1,
        }
    }
    if broken == lines {
        return Err(wrong("no line of it is a request of an audit log".to_owned()));
    }
    if broken > 0 {
        eprintln!("{}: {broken} of {lines} lines are no requests of an audit log", file.display());
    }
    Ok(collector)
}

async fn of_operator(mut collector: Collector, url: &str, time: Duration) -> Result<Collector, Failure> {
    let base = url.trim_end_matches('/').trim_end_matches("/debug");
    let unreachable = |error: reqwest::Error| Failure::Usage {
        cause: format!("{url}: {}", crate::demo::setup::chain(&error.without_url())),
        remedy: "Give the URL of an operator that runs with --debug-bind-address.".to_owned(),
    };
    let client = reqwest::Client::builder().no_proxy().timeout(PATIENCE).build().map_err(unreachable)?;
    let events = async |since: u64| -> Result<Vec<Entry>, Failure> {
        let request = client.get(format!("{base}/debug/events?since={since}&limit={AT_ONCE}"));
        let answer = request.send().await.and_then(reqwest::Response::error_for_status);
        let text = answer.map_err(unreachable)?.text().await.map_err(unreachable)?;
        serde_json::from_str(&text).map_err(|error| Failure::Usage {
            cause: format!("{url}: the answer has no events: {error}"),
            remedy: "Give the URL of an operator of this version that runs with --debug-bind-address."
                .to_owned(),
        })
    };
    eprintln!("Listening to {url} for {time:?}");
    let (mut next, mut missed) = (0, 0);
    let mut ticks = tokio::time::interval(INTERVAL);
    let end = tokio::time::Instant::now() + time;
    // What happened before the first round is not recorded.
    for round in 0_u64.. {
        ticks.tick().await;
        loop {
            let some = events(next).await?;
            if let (Some(first), Some(last)) = (some.first(), some.last()) {
                if round > 0 {
                    missed += first.number - next;
                    some.iter().for_each(|entry| collector.met(entry));
                }
                next = last.number + 1;
            }
            if some.len() < AT_ONCE {
                break;
            }
        }
        if tokio::time::Instant::now() >= end {
            break;
        }
    }
    if missed > 0 {
        eprintln!("{missed} events were gone before they could be read: the load has too few changes");
    }
    Ok(collector)
}

/// Returns namespace and name of an event's object.
fn name_of(entry: &Entry) -> (&str, &str) {
    entry.key.split_once('/').unwrap_or(("", &entry.key))
}

/// Returns the indices of the labels of reasons that are written as text, in order.
fn labels(reasons: &str) -> Vec<usize> {
    let label = |reason: &str| {
        let label = match reason {
            text if text.starts_with("spec changed") => "spec",
            text if text.starts_with("retry ") => "retry",
            text if text.ends_with(" changed") => "child",
            text => text,
        };
        Reason::LABELS.iter().position(|known| *known == label)
    };
    let mut labels: Vec<usize> = reasons.split(", ").filter_map(label).collect();
    labels.sort_unstable();
    labels.dedup();
    labels
}

fn hash_of(parts: impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    parts.hash(&mut hasher);
    hasher.finish()
}

// === impl Collector ===

impl Collector {
    /// Takes a request of an audit log.
    fn audited(&mut self, request: &Audited, user: &str, kinds: &[Kind]) {
        let code = request.response_status.as_ref().map_or(0, |status| status.code);
        if request.user.username == user {
            let took = request.stage_timestamp.duration_since(request.request_received_timestamp);
            self.asked(&request.verb, took.as_secs_f64(), code);
            return;
        }
        let Some(object) = &request.object_ref else { return };
        let is_ours = (200..300).contains(&code) && matches!(object.subresource.as_str(), "" | "scale");
        let is_of =
            |kind: &&Kind| kind.resource.group == object.api_group && kind.resource.plural == object.resource;
        let Some(Kind { controller, .. }) = kinds.iter().find(is_of).filter(|_| is_ours) else { return };
        let name = (!object.name.is_empty()).then_some(object.name.as_str());
        match request.verb.as_str() {
            "create" => self.created(controller, &object.namespace, name, request.stage_timestamp),
            "update" | "patch" => {
                let name = name.unwrap_or_default();
                self.changed(controller, &object.namespace, name, request.stage_timestamp);
            }
            _ => {}
        }
    }

    /// Takes an event of an operator.
    fn met(&mut self, entry: &Entry) {
        let Some(controller) = operators::NAMES.into_iter().find(|name| *name == entry.controller) else {
            return;
        };
        match &entry.event {
            Event::Began { reasons, waited_seconds, worker, .. } => {
                let waited = jiff::SignedDuration::try_from_secs_f64(*waited_seconds).unwrap_or_default();
                let came = entry.time.checked_sub(waited).unwrap_or(entry.time);
                let (namespace, name) = name_of(entry);
                let labels = labels(reasons);
                for label in &labels {
                    match Reason::LABELS[*label] {
                        "created" => self.created(controller, namespace, Some(name), came),
                        "spec" => self.changed(controller, namespace, name, came),
                        _ => {}
                    }
                }
                let at = self.millis(came);
                self.begun.insert(hash_of((controller, namespace, name)), (at, labels));
                self.workers = self.workers.max(worker + 1);
            }
            Event::Ended { took_seconds, .. } => {
                let (namespace, name) = name_of(entry);
                let key = hash_of((controller, namespace, name));
                // Of one that had begun before, nobody knows why.
                let Some((at, labels)) = self.begun.remove(&key) else { return };
                let micros = Duration::try_from_secs_f64(*took_seconds).unwrap_or_default().as_micros();
                let micros = u64::try_from(micros).unwrap_or(u64::MAX);
                self.syncs.entry(labels).or_default().push(Sync { at, key, micros });
            }
            Event::Request { method, answer, took_seconds, held_seconds, .. } => {
                let code = if answer == "ok" { 200 } else { answer.parse().unwrap_or_default() };
                let verb = match method.as_str() {
                    "GET" => "get",
                    "POST" => "create",
                    "PUT" => "update",
                    "PATCH" => "patch",
                    _ => "delete",
                };
                self.asked(verb, took_seconds - held_seconds, code);
            }
            Event::Held => {}
        }
    }

    fn asked(&mut self, verb: &str, seconds: f64, code: u16) {
        let known = ["get", "create", "update", "patch", "delete"].into_iter().find(|known| *known == verb);
        let Some(verb) = known else { return };
        self.requests += 1;
        if code == 429 {
            self.refused += 1;
        } else {
            self.latencies.entry(verb).or_default().add(seconds);
        }
    }

    fn created(&mut self, controller: &'static str, namespace: &str, name: Option<&str>, at: Timestamp) {
        let number = u32::try_from(self.creations.len()).unwrap_or(u32::MAX);
        self.note_kind(controller);
        let at = self.millis(at);
        self.creations.push(at);
        match name {
            Some(name) => {
                self.objects.insert(hash_of((controller, namespace, name)), Object::Created(number));
                self.call(Object::Created(number), controller, namespace, name);
            }
            // An audit log names the object of a creation only if the client did so in the URL. The first change of an
            // object that is not known is one of the oldest of these.
            None => self.unnamed.entry(hash_of((controller, namespace))).or_default().push_back(number),
        }
    }

    fn changed(&mut self, controller: &'static str, namespace: &str, name: &str, at: Timestamp) {
        self.note_kind(controller);
        let at = self.millis(at);
        let hash = hash_of((controller, namespace, name));
        let object = self.objects.get(&hash).copied().unwrap_or_else(|| {
            let unnamed = self.unnamed.get_mut(&hash_of((controller, namespace)));
            let created = unnamed.and_then(VecDeque::pop_front).map(Object::Created);
            let object = created.unwrap_or_else(|| {
                self.existing += 1;
                Object::Existing(self.existing - 1)
            });
            self.objects.insert(hash, object);
            self.call(object, controller, namespace, name);
            object
        });
        self.changes.push((at, object));
    }

    /// Notes the name of an object, if asked for.
    fn call(&mut self, object: Object, controller: &str, namespace: &str, name: &str) {
        if let Some(names) = &mut self.names {
            names.push((object, format!("{controller} {namespace}/{name}")));
        }
    }

    /// Returns the names by number, as comments; empty unless asked for.
    fn names(&self) -> String {
        let Some(names) = self.names.as_ref().filter(|names| !names.is_empty()) else { return String::new() };
        let mut lines: Vec<_> = names.iter().map(|(object, name)| (self.number(*object), name)).collect();
        lines.sort();
        let lines = lines.iter().map(|(number, name)| format!("#   {number}: {name}\n"));
        lines.fold("# Objects by number:\n".to_owned(), |text, line| text + &line)
    }

    /// Returns the number that an object has in the load.
    fn number(&self, object: Object) -> u32 {
        match object {
            Object::Existing(nth) => nth,
            Object::Created(nth) => self.existing + nth,
        }
    }

    fn note_kind(&mut self, controller: &'static str) {
        if !self.kinds.contains(&controller) {
            self.kinds.push(controller);
        }
    }

    /// Returns the time from the beginning, which is the first one that is asked for.
    fn millis(&mut self, at: Timestamp) -> u64 {
        let began = *self.began.get_or_insert(at);
        u64::try_from(at.duration_since(began).as_millis()).unwrap_or_default()
    }

    /// Returns the syncs of the objects that were created or changed, if any was seen.
    fn history(&mut self) -> Option<History> {
        let all = std::mem::take(&mut self.syncs).into_iter().map(|(labels, mut all)| {
            all.sort_by_key(|sync| sync.at);
            let reasons = labels.iter().map(|label| Reason::LABELS[*label].to_owned()).collect();
            let mut syncs = Syncs { reasons, ..Syncs::default() };
            for Sync { at, key, micros } in all {
                if let Some(object) = self.objects.get(&key) {
                    syncs.at.push(at);
                    syncs.objects.push(self.number(*object));
                    syncs.took.push(micros);
                }
            }
            syncs
        });
        let syncs: Vec<Syncs> = all.filter(|syncs| !syncs.at.is_empty()).collect();
        (!syncs.is_empty()).then_some(History { workers: self.workers, syncs })
    }

    fn finish(mut self) -> Result<Load, String> {
        if self.creations.is_empty() && self.changes.is_empty() {
            return Err("no creation or change of a custom resource of ours was seen".to_owned());
        }
        self.creations.sort_unstable();
        self.changes.sort_by_key(|(at, _)| *at);
        let recorded = |at: Vec<u64>, objects: Vec<u32>| match at.is_empty() {
            true => Vec::new(),
            false => vec![Arrivals::Recorded { at, objects }],
        };
        let history = self.history();
        let mut load = Load {
            kinds: self.kinds.iter().map(|kind| (*kind).to_owned()).collect(),
            objects: Objects { count: usize::try_from(self.existing).unwrap_or(usize::MAX), converged: true },
            creations: recorded(self.creations.clone(), Vec::new()),
            changes: recorded(
                self.changes.iter().map(|(at, _)| *at).collect(),
                self.changes.iter().map(|(_, object)| self.number(*object)).collect(),
            ),
            history,
            ..Load::default()
        };
        let mut latencies: Vec<Latency> = self
            .latencies
            .iter()
            .filter(|(_, latencies)| latencies.all >= FEW)
            .map(|(verb, latencies)| {
                let span = |share| Span(Duration::from_secs_f64(latencies.quantile(share)));
                let which = Which { verb: (*verb).to_owned(), ..Which::default() };
                Latency { which, median: span(0.5), p99: Some(span(0.99)) }
            })
            .collect();
        // What was not seen, such as lists, takes as long as the default says.
        latencies.append(&mut load.server.latency);
        load.server.latency = latencies;
        if self.refused > 0 {
            let share = share(self.refused, self.requests);
            let which = Which::default();
            load.server.failures =
                vec![Failures { which, share, code: 429, from: Span::default(), r#for: None }];
        }
        load.check()?;
        Ok(load)
    }
}

#[expect(clippy::cast_precision_loss, reason = "counts are far below 2^52")]
fn share(part: u64, all: u64) -> f64 {
    part as f64 / all as f64
}

// === impl Latencies ===

impl Latencies {
    const STEP: f64 = 1.05;

    #[expect(clippy::cast_possible_truncation, reason = "a logarithm of seconds is small")]
    fn add(&mut self, seconds: f64) {
        let bucket = (seconds.max(1e-6).ln() / Self::STEP.ln()).floor() as i32;
        *self.counts.entry(bucket).or_default() += 1;
        self.all += 1;
    }

    /// Returns the middle of the bucket with this quantile, in seconds.
    fn quantile(&self, quantile: f64) -> f64 {
        let mut below = 0;
        for (bucket, count) in &self.counts {
            below += count;
            if share(below, self.all) >= quantile {
                return Self::STEP.powf(f64::from(*bucket) + 0.5);
            }
        }
        0.0
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn line(user: &str, verb: &str, path: &str, (at, took): (u64, u64), code: u16) -> String {
        let [resource, name, sub] = path.split('/').collect::<Vec<_>>()[..] else { panic!("{path}") };
        let group = if resource == "foos" { "samplecontroller.k8s.io" } else { "apps" };
        let time = |millis: u64| Timestamp::from_millisecond(i64::try_from(millis).unwrap()).unwrap();
        serde_json::json!({
            "kind": "Event", "stage": "ResponseComplete", "verb": verb, "user": {"username": user},
            "objectRef": {"resource": resource, "apiGroup": group, "namespace": "team", "name": name, "subresource": sub},
            "responseStatus": {"code": code},
            "requestReceivedTimestamp": time(at), "stageTimestamp": time(at + took),
        })
        .to_string()
    }

    fn read(collector: Collector, lines: &[String]) -> Result<Collector, String> {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(lines.join("\n").as_bytes()).unwrap();
        of_audit_log(collector, file.path(), "operator").map_err(|failure| failure.to_string())
    }

    fn load_of(lines: &[String]) -> Result<Load, String> {
        read(Collector::default(), lines)?.finish()
    }

    #[test]
    fn names_are_listed_if_asked_for() {
        let lines = [
            line("jane", "create", "foos//", (500, 0), 201),
            line("jane", "patch", "foos/first/", (1000, 0), 200),
            line("jane", "patch", "foos/old/", (1500, 0), 200),
            line("jane", "create", "foos/named/", (2000, 0), 201),
            line("jane", "patch", "foos/old/", (2500, 0), 200),
        ];
        let asked = read(Collector { names: Some(Vec::new()), ..Collector::default() }, &lines).unwrap();
        let names =
            "# Objects by number:\n#   0: foo team/old\n#   1: foo team/first\n#   2: foo team/named\n";
        assert_eq!(asked.names(), names);
        let load = asked.finish().unwrap();
        assert_eq!(load.changes, [Arrivals::Recorded { at: vec![500, 1000, 2000], objects: vec![1, 0, 0] }]);
        assert_eq!(Load::parse(&(load.to_yaml().unwrap() + names)), Ok(load));
        assert_eq!(read(Collector::default(), &lines).unwrap().names(), "");
    }

    #[test]
    fn audit_log_becomes_a_load() {
        let mut lines = vec![
            line("jane", "patch", "foos/old/", (1000, 0), 200),
            line("jane", "create", "foos//", (1500, 0), 201),
            line("jane", "patch", "foos/new/scale", (2500, 0), 200),
            line("jane", "update", "foos/old/", (3000, 0), 200),
            // Refused, no change of ours, not a spec.
            line("jane", "update", "foos/old/", (3100, 0), 409),
            line("jane", "update", "deployments/old/", (3200, 0), 200),
            line("jane", "update", "foos/old/status", (3300, 0), 200),
        ];
        lines.extend((0..30).map(|_| line("operator", "update", "foos/old/status", (3400, 20), 200)));
        lines.extend((0..10).map(|_| line("operator", "update", "foos/old/status", (3400, 1), 429)));
        let load = load_of(&lines).unwrap();
        assert_eq!((load.kinds.as_slice(), load.objects.count), (&["foo".to_owned()][..], 1));
        assert_eq!(load.creations, [Arrivals::Recorded { at: vec![500], objects: Vec::new() }]);
        assert_eq!(load.changes, [Arrivals::Recorded { at: vec![0, 1500, 2000], objects: vec![0, 1, 0] }]);
        let latency = &load.server.latency[0];
        assert_eq!((latency.which.verb.as_str(), load.server.latency.len()), ("update", 2));
        let median = latency.median.0.as_secs_f64();
        assert!((0.019..0.021).contains(&median), "{median}");
        assert!((load.server.failures[0].share - 0.25).abs() < 1e-9);
        let text = load.to_yaml().unwrap();
        assert!(!text.contains("old") && !text.contains("team") && !text.contains("jane"), "{text}");
        assert_eq!(Load::parse(&text).unwrap().changes, load.changes);
    }

    fn entry(number: u64, millis: i64, key: &str, event: Event) -> Entry {
        Entry {
            number,
            time: Timestamp::from_millisecond(millis).unwrap(),
            controller: "foo".to_owned(),
            key: key.to_owned(),
            event,
        }
    }

    fn began(reasons: &str, waited_seconds: f64) -> Event {
        Event::Began {
            worker: 1,
            reasons: reasons.to_owned(),
            priority: 0,
            waited_seconds,
            resource_version: None,
        }
    }

    #[test]
    fn syncs_are_kept_with_reasons_and_times() {
        let mut collector = Collector::default();
        let ended = |took_seconds: f64| Event::Ended {
            worker: 1,
            took_seconds,
            result: "Done".to_owned(),
            has_failed: false,
            status: None,
            writes: Vec::new(),
            failures: 0,
            next_seconds: None,
        };
        collector.met(&entry(0, 1000, "ns/old", ended(0.5)));
        for (millis, key, reasons) in [
            (2000, "ns/a", "Deployment ns/a changed, spec changed (generation 1 to 2)"),
            (2500, "ns/b", "Pod ns/x changed, Pod ns/y changed, and 3 more"),
            (3000, "ns/c", "created"),
            (5000, "ns/a", "spec changed (generation 2 to 3), Deployment ns/a changed, retry 2"),
            (6000, "ns/a", "Deployment ns/a changed, spec changed (generation 3 to 4)"),
        ] {
            collector.met(&entry(1, millis, key, began(reasons, 0.25)));
            collector.met(&entry(2, millis + 30, key, ended(0.03)));
        }
        let load = collector.finish().unwrap();
        let syncs = |reasons: &[&str], at: &[u64], objects: &[u32]| Syncs {
            reasons: reasons.iter().map(|reason| (*reason).to_owned()).collect(),
            at: at.to_vec(),
            objects: objects.to_vec(),
            took: vec![30_000; at.len()],
        };
        // a was there before, c was created; b has not changed.
        let wanted = vec![
            syncs(&["created"], &[1000], &[1]),
            syncs(&["spec", "child"], &[0, 4000], &[0, 0]),
            syncs(&["spec", "child", "retry"], &[3000], &[0]),
        ];
        assert_eq!(load.history, Some(History { workers: 2, syncs: wanted }));
        assert_eq!((load.objects.count, load.recorded()), (1, Some(4)));
        assert_eq!(Load::parse(&load.to_yaml().unwrap()), Ok(load));
    }

    #[test]
    fn events_of_an_operator_become_a_load() {
        let mut collector = Collector::default();
        collector.met(&entry(0, 1000, "ns/a", began("initial", 0.0)));
        collector.met(&entry(
            1,
            2000,
            "ns/a",
            began("spec changed (generation 1 to 2), Deployment a changed", 0.5),
        ));
        collector.met(&entry(2, 4500, "ns/b", began("created", 1.0)));
        collector.met(&entry(3, 9500, "ns/b", began("spec changed (generation 1 to 2)", 0.0)));
        for number in 0..20 {
            let request = Event::Request {
                method: "PUT".to_owned(),
                path: "/apis/x".to_owned(),
                answer: "ok".to_owned(),
                took_seconds: 0.3,
                held_seconds: 0.2,
            };
            collector.met(&entry(4 + number, 9600, "ns/b", request));
        }
        let load = collector.finish().unwrap();
        assert_eq!(load.creations, [Arrivals::Recorded { at: vec![2500], objects: Vec::new() }]);
        assert_eq!(load.changes, [Arrivals::Recorded { at: vec![500, 8500], objects: vec![0, 1] }]);
        let median = load.server.latency[0].median.0.as_secs_f64();
        assert!((0.095..0.105).contains(&median), "{median}");
    }

    #[test]
    fn broken_lines_are_counted() {
        let good = line("jane", "patch", "foos/old/", (1000, 0), 200);
        assert_eq!(load_of(&["{".to_owned(), good.clone()]).unwrap().objects.count, 1);
        assert!(load_of(&["{".to_owned()]).unwrap_err().contains("no line of it"));
        let others = line("jane", "patch", "deployments/old/", (1000, 0), 200);
        assert!(load_of(&[others]).unwrap_err().contains("no creation or change"));
    }
}
