//! `windlass debug`: prints what `/debug` of a running operator answers.

use std::time::Duration;

use form_urlencoded::Serializer;
use jiff::Timestamp;
use serde::de::DeserializeOwned;

use super::status::write_rows;
use super::{Failure, print};
use crate::debug::report::{Cache, Entry, Event, InController, Key, KeyState, Life, Phase, Queue};

/// How long the operator may take to answer.
const PATIENCE: Duration = Duration::from_secs(10);
/// How much of a text a cell shows.
const CELL: usize = 80;

#[derive(Debug, clap::Args)]
#[command(
    after_help = "The operator must run with --debug-bind-address. In a Pod, run this command by kubectl \
    exec, or forward the port.\n\nExit codes: 0, 1 if the operator does not answer, 2 wrong usage."
)]
pub(super) struct Args {
    #[command(subcommand)]
    what: What,

    /// Address that the operator was given as --debug-bind-address
    #[arg(
        long,
        env = "WINDLASS_DEBUG_BIND_ADDRESS",
        value_name = "ADDRESS",
        default_value = "127.0.0.1:6060",
        global = true
    )]
    address: String,

    /// Maximum number of keys per queue, or of events, 1 to 1000
    #[arg(long, value_name = "N", default_value_t = 100, global = true,
          value_parser = clap::value_parser!(u16).range(1..=1000))]
    limit: u16,

    /// Output format
    #[arg(short, long, value_name = "FORMAT", default_value = "table", global = true)]
    output: Output,
}

#[derive(Debug, clap::Subcommand)]
enum What {
    /// Show the keys of each queue: waiting, processing and on which request, delayed, backing off
    Queue,
    /// Show the cache of each kind: version, last event, objects, relists, depths
    Caches,
    /// Show where a key is and its last events
    Key {
        /// NAMESPACE/NAME of a custom resource; without a slash, the name in namespace default
        name: String,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Output {
    Table,
    Json,
}

pub(super) fn run(args: &Args) -> Result<(), Failure> {
    let limit = args.limit.to_string();
    let query = |key: Option<&str>| {
        let mut query = Serializer::new(String::new());
        query.append_pair("limit", &limit);
        if let Some(key) = key {
            query.append_pair("key", key);
        }
        query.finish()
    };
    let path = match &args.what {
        What::Queue => format!("/debug/queues?{}", query(None)),
        What::Caches => "/debug/caches".to_owned(),
        What::Key { name } if name.contains('/') => format!("/debug/keys?{}", query(Some(name))),
        What::Key { name } => format!("/debug/keys?{}", query(Some(&format!("default/{name}")))),
    };
    let text = get(&args.address, &path)?;
    if args.output == Output::Json {
        return print(&text);
    }
    let table = match &args.what {
        What::Queue => queue_table(&parse::<Vec<Queue>>(&text)?),
        What::Caches => cache_table(&parse::<Vec<Cache>>(&text)?),
        What::Key { .. } => life_table(&parse::<Life>(&text)?),
    };
    print(&table)
}

fn get(address: &str, path: &str) -> Result<String, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime =
        runtime.map_err(|error| Failure::Running(format!("could not start the runtime: {error}")))?;
    let address = host_and_port(address)?;
    runtime.block_on(async {
        let unreachable = |error: reqwest::Error| {
            let cause =
                if error.is_connect() { "nothing listens there".to_owned() } else { error.to_string() };
            Failure::Running(format!(
                "no answer at {address}: {cause}; start the operator with --debug-bind-address={address}"
            ))
        };
        let client = reqwest::Client::builder().no_proxy().timeout(PATIENCE).build().map_err(unreachable)?;
        let answer = client.get(format!("http://{address}{path}")).send().await.map_err(unreachable)?;
        let code = answer.status();
        let text = answer.text().await.map_err(unreachable)?;
        if code.is_success() { Ok(text) } else { Err(Failure::Running(text.trim_end().to_owned())) }
    })
}

/// Checks the address; without a host it is this machine.
fn host_and_port(text: &str) -> Result<String, Failure> {
    let (host, port) = text.rsplit_once(':').unwrap_or((text, ""));
    let is_host = !host.contains(['/', '@', '?', '#']) && !host.chars().any(char::is_whitespace);
    if port.parse().is_ok_and(|port: u16| port > 0) && is_host {
        return Ok(format!("{}:{port}", if host.is_empty() { "127.0.0.1" } else { host }));
    }
    Err(Failure::Usage {
        cause: format!("--address={text}: not an address with a port"),
        remedy: "Give HOST:PORT, such as 127.0.0.1:6060, or :6060.".to_owned(),
    })
}

fn parse<T: DeserializeOwned>(text: &str) -> Result<T, Failure> {
    let wrong = |error| Failure::Running(format!("the answer is not that of this version: {error}"));
    serde_json::from_str(text).map_err(wrong)
}

fn queue_table(queues: &[Queue]) -> String {
    let mut rows =
        vec![["CONTROLLER", "WORKERS", "PROCESSING", "WAITING", "DELAYED", "BACKING OFF"].map(str::to_owned)];
    for queue in queues {
        let Queue { workers, processing, waiting, delayed, backing_off, .. } = queue;
        let [a, b, c, d, e] = [workers, processing, waiting, delayed, backing_off].map(ToString::to_string);
        rows.push([queue.controller.clone(), a, b, c, d, e]);
    }
    let mut text = String::new();
    write_rows(&mut text, &rows);
    let keys: Vec<(&str, &Key)> =
        queues.iter().flat_map(|queue| queue.keys.iter().map(|key| (&*queue.controller, key))).collect();
    if !keys.is_empty() {
        text.push('\n');
        write_keys(&mut text, &keys);
    }
    text
}

fn write_keys(text: &mut String, keys: &[(&str, &Key)]) {
    let head = ["CONTROLLER", "KEY", "STATE", "AGE", "DUE IN", "PRIORITY", "FAILURES", "REASONS", "REQUEST"];
    let mut rows = vec![head.map(str::to_owned)];
    for (controller, key) in keys {
        let state = match (key.state, key.worker) {
            (KeyState::Processing, Some(worker)) => format!("processing (worker {worker})"),
            (KeyState::Processing, None) => "processing".to_owned(),
            (KeyState::AddedWhileProcessing, _) => "added while processing".to_owned(),
            (KeyState::Waiting, _) => "waiting".to_owned(),
            (KeyState::BackingOff, _) => "backing off".to_owned(),
            (KeyState::Delayed, _) => "delayed".to_owned(),
        };
        let request = key.requests.first().map(|request| {
            let held = if request.is_held { " (held by the client's limits)" } else { "" };
            format!("{} {} for {}{held}", request.method, request.path, short(request.age_seconds))
        });
        rows.push([
            (*controller).to_owned(),
            key.key.clone(),
            state,
            short(key.age_seconds),
            key.until.map(due_in).unwrap_or_default(),
            key.priority.map(|priority| priority.to_string()).unwrap_or_default(),
            key.failures.to_string(),
            cut(&key.reasons),
            request.unwrap_or_default(),
        ]);
    }
    write_rows(text, &rows);
}

fn cache_table(caches: &[Cache]) -> String {
    let head = [
        "KIND",
        "REFLECTOR",
        "VERSION",
        "OBJECTS",
        "EVENTS",
        "LAST EVENT",
        "RELISTS",
        "FIFO",
        "HANDLERS",
        "TROUBLE",
    ];
    let mut rows = vec![head.map(str::to_owned)];
    for cache in caches {
        let phase = match (cache.phase, cache.until) {
            (Phase::Idle, _) => "idle".to_owned(),
            (Phase::Listing, _) => "listing".to_owned(),
            (Phase::Connecting, _) => "connecting".to_owned(),
            (Phase::Watching, _) => "watching".to_owned(),
            (Phase::BackingOff, until) => {
                format!("backing off {}", until.map(due_in).unwrap_or_default()).trim_end().to_owned()
            }
        };
        let pending: usize = cache.handlers.iter().map(|handler| handler.pending).sum();
        rows.push([
            cache.kind.clone(),
            phase,
            cache.resource_version.clone(),
            cache.objects.to_string(),
            cache.events.to_string(),
            cache.last_event_seconds.map(|age| format!("{} ago", short(age))).unwrap_or_default(),
            cache.relists.to_string(),
            cache.queued.to_string(),
            pending.to_string(),
            cache.trouble.clone().unwrap_or_default(),
        ]);
    }
    let mut text = String::new();
    write_rows(&mut text, &rows);
    text
}

fn life_table(life: &Life) -> String {
    let mut text = String::new();
    if life.controllers.is_empty() {
        text = format!("No cache has {} and no queue does.\n", life.key);
    }
    for InController { controller, resource_version, failures, states } in &life.controllers {
        let version =
            resource_version.as_deref().map_or("not in the cache".to_owned(), |v| format!("version {v}"));
        let rest = if states.is_empty() { ", at rest" } else { "" };
        text.push_str(&format!("{controller}: {version}, failures {failures}{rest}\n"));
    }
    let states: Vec<(&str, &Key)> =
        life.controllers.iter().flat_map(|of| of.states.iter().map(|key| (&*of.controller, key))).collect();
    if !states.is_empty() {
        text.push('\n');
        write_keys(&mut text, &states);
    }
    if !life.events.is_empty() {
        text.push('\n');
        let mut rows = vec![["TIME", "CONTROLLER", "EVENT", "DETAILS"].map(str::to_owned)];
        rows.extend(life.events.iter().map(event_row));
        write_rows(&mut text, &rows);
    }
    text
}

fn event_row(entry: &Entry) -> [String; 4] {
    let (event, details) = match &entry.event {
        Event::Began { worker, reasons, priority, waited_seconds, resource_version } => {
            let version = resource_version.as_deref().unwrap_or("none");
            let waited = short(*waited_seconds);
            let details = format!(
                "worker {worker}, waited {waited}, priority {priority}, version {version}, because: {reasons}"
            );
            ("began", details)
        }
        Event::Held => ("held", "until the caches show its own writes".to_owned()),
        Event::Request { method, path, answer, took_seconds, held_seconds } => {
            let held = if *held_seconds >= 0.001 {
                format!(", held {}", short(*held_seconds))
            } else {
                String::new()
            };
            ("request", format!("{method} {path}: {answer} in {}{held}", short(*took_seconds)))
        }
        Event::Ended { took_seconds, result, status, writes, failures, next_seconds, .. } => {
            let mut details = format!("{result} after {}", short(*took_seconds));
            let more = [
                status.clone(),
                (!writes.is_empty()).then(|| format!("wrote {}", writes.join(", "))),
                (*failures > 0).then(|| format!("failures {failures}")),
                next_seconds.map(|next| format!("next in {}", short(next))),
            ];
            more.into_iter().flatten().for_each(|more| details.push_str(&format!(", {more}")));
            ("ended", details)
        }
    };
    let time = entry.time.strftime("%H:%M:%S%.3f").to_string();
    [time, entry.controller.clone(), event.to_owned(), details]
}

/// Formats a duration in one unit.
fn short(seconds: f64) -> String {
    match seconds {
        s if s < 1.0 => format!("{:.0}ms", s * 1000.0),
        s if s < 120.0 => format!("{s:.1}s"),
        s if s < 7200.0 => format!("{:.0}m", s / 60.0),
        s => format!("{:.0}h", s / 3600.0),
    }
}

fn due_in(until: Timestamp) -> String {
    short(until.duration_since(Timestamp::now()).as_secs_f64().max(0.0))
}

fn cut(text: &str) -> String {
    if text.chars().count() <= CELL {
        return text.to_owned();
    }
    text.chars().take(CELL - 1).chain(['…']).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_address_has_a_port() {
        let of = |text| host_and_port(text).map_err(|failure| failure.to_string());
        assert_eq!(of(":6060").unwrap(), "127.0.0.1:6060");
        assert_eq!(of("localhost:1").unwrap(), "localhost:1");
        assert_eq!(of("[::1]:6060").unwrap(), "[::1]:6060");
        for wrong in ["foo", "6060", "http://127.0.0.1:6060", "a:0", "a:b", "a b:1", ""] {
            let error = of(wrong).unwrap_err();
            assert!(
                error.starts_with(&format!("error: --address={wrong}: not an address with a port")),
                "{error}"
            );
        }
    }

    #[test]
    fn queue_table_shows_counts_and_keys() {
        let queues = json!([{"controller": "foo", "workers": 2, "processing": 1, "waiting": 1, "delayed": 0,
            "backingOff": 0, "keys": [
                {"key": "ns/a", "state": "processing", "ageSeconds": 1.25, "reasons": "created", "failures": 0,
                 "worker": 1, "requests": [{"method": "PATCH", "path": "/p", "isHeld": true, "ageSeconds": 0.5}]},
                {"key": "ns/b", "state": "waiting", "ageSeconds": 300, "reasons": "resync", "failures": 2,
                 "priority": -100}]}]);
        let expected = "\
CONTROLLER  WORKERS  PROCESSING  WAITING  DELAYED  BACKING OFF
foo         2        1           1        0        0

CONTROLLER  KEY   STATE                  AGE   DUE IN  PRIORITY  FAILURES  REASONS  REQUEST
foo         ns/a  processing (worker 1)  1.2s                    0         created  PATCH /p for 500ms (held by the client's limits)
foo         ns/b  waiting                5m            -100      2         resync
";
        assert_eq!(queue_table(&serde_json::from_value::<Vec<Queue>>(queues).unwrap()), expected);
    }

    #[test]
    fn key_table_shows_its_life() {
        let entry = |number: u64, event: serde_json::Value| {
            let mut entry = json!({"number": number, "time": "2026-01-01T10:00:00.5Z", "controller": "foo", "key": "ns/a"});
            entry.as_object_mut().unwrap().extend(event.as_object().unwrap().clone());
            entry
        };
        let life = json!({"key": "ns/a",
        "controllers": [{"controller": "foo", "resourceVersion": "7", "failures": 1, "states": []}],
        "events": [
            entry(1, json!({"event": "began", "worker": 0, "reasons": "created", "priority": 0,
                "waitedSeconds": 0.002, "resourceVersion": "7"})),
            entry(2, json!({"event": "request", "method": "POST", "path": "/p", "answer": "403",
                "tookSeconds": 0.1, "heldSeconds": 0.0})),
            entry(3, json!({"event": "ended", "worker": 0, "tookSeconds": 0.11, "result": "error",
                "hasFailed": true, "status": "403 Forbidden", "writes": [], "failures": 1,
                "nextSeconds": 0.005})),
            entry(4, json!({"event": "held"})),
        ]});
        let expected = "\
foo: version 7, failures 1, at rest

TIME          CONTROLLER  EVENT    DETAILS
10:00:00.500  foo         began    worker 0, waited 2ms, priority 0, version 7, because: created
10:00:00.500  foo         request  POST /p: 403 in 100ms
10:00:00.500  foo         ended    error after 110ms, 403 Forbidden, failures 1, next in 5ms
10:00:00.500  foo         held     until the caches show its own writes
";
        assert_eq!(life_table(&serde_json::from_value(life).unwrap()), expected);
    }
}
