//! Fidelity: the embedded server answers requests as the real one does.
//!
//! Generated sequences of requests are sent to both servers, each in its own namespace. Codes, reasons, causes,
//! stored objects and watch events are compared under a small mask. No controllers run, so only the API is compared.
//!
//! `WINDLASS_FIDELITY_SEQUENCES` (100) sets the number of sequences, `WINDLASS_FIDELITY_SEED` the first seed, which is
//! random by default. The first `WINDLASS_FIDELITY_SHOWN` (5) failures are printed with their seeds.
//!
//! # Known differences
//! | difference | why |
//! |---|---|
//! | texts of messages | only `refusals` compares them; elsewhere code, reason, retry time, name, and fields of causes |
//! | order of causes, and repeated causes | the real server collects some from maps |
//! | texts of warnings | only their number is compared |
//! | `selfLink`; `managedFields`, and events that change nothing else | only `managers` compares the fields: without a `fieldManager`, the two clients have other names |
//! | versions, `creationTimestamp`, `remainingItemCount` | specific to each server |
//! | `deletionTimestamp` and `continue` | only their presence is compared |
//! | `kind` and `apiVersion` of a list's items | the real server omits them for built-in kinds |
//! | order of a watch's initial events | undefined |
//! | bookmarks, except the one that ends a streamed list | depend on timing |
//! | addresses and ports that a server allocates | allocated in a different order |
//! | items of lists that a cache may answer (version 0, or `NotOlderThan`) | the real server's cache may lag |
//! | empty members (`omitempty` in Go) | a client that decodes them sees no difference |
//! | uids, also in owner references | specific to each server |

mod compare;
mod generate;
mod kinds;
mod managers;
mod refusals;

use std::fmt::Write as _;
use std::io::Write as _;

use futures_util::StreamExt;
use http_body_util::BodyExt;
use kube_client::client::Body;
use kube_client::config::{KubeConfigOptions, Kubeconfig};
use kube_client::{Client, Config};
use macro_rules_attribute::apply;
use serde_json::{Value, json};
use tokio::task::JoinSet;
use windlass::sim::{InProcessTransport, Settings, Sim, Switches};

use self::compare::masked;
use self::generate::{BodyOf, Step, sequence};
use crate::support::{Launcher, number, real_bed, wait_until};

/// How many sequences run at once.
const AT_ONCE: usize = 8;

/// The name of the object whose creation ends a sequence.
const MARKER: &str = "marker";

/// One of the two servers, as a sequence sees it.
struct Side {
    client: Client,
    namespace: String,
    /// The response bodies so far, by step; later steps refer to their versions and uids.
    seen: Vec<Value>,
}

/// A server's response.
#[derive(Clone, Debug)]
struct Said {
    code: u16,
    body: Value,
    warnings: usize,
}

impl Side {
    async fn send(&self, method: &str, path: &str, media: &str, body: Vec<u8>) -> Said {
        let request = http::Request::builder()
            .method(method)
            .uri(path)
            .header("content-type", media)
            .header("accept", "application/json")
            .body(Body::from(body))
            .expect("the request is valid");
        let response = self.client.send(request).await.expect("the server answers");
        let warnings = response.headers().get_all("warning").iter().count();
        let code = response.status().as_u16();
        let body = response.into_body().collect().await.expect("the body is complete").to_bytes();
        let body = serde_json::from_slice(&body).unwrap_or_else(|_| json!(String::from_utf8_lossy(&body)));
        Said { code, body, warnings }
    }

    /// Replaces the placeholders of a sequence by this side's namespace, versions and uids.
    fn fill(&self, text: &str) -> String {
        let mut filled = text.replace("$ns", &self.namespace);
        for (at, object) in self.seen.iter().enumerate().rev() {
            // A list's version depends on concurrent sequences, so it is not comparable between servers.
            let is_list = object.get("items").is_some();
            let own = |key: &str| match object["metadata"][key].as_str() {
                // One server may omit a value that is empty on the other.
                Some(own) if !own.is_empty() && (!is_list || key == "continue") => own.to_owned(),
                _ => "0".to_owned(),
            };
            filled = filled.replace(&format!("$rv{at}$"), &own("resourceVersion"));
            filled = filled.replace(&format!("$uid{at}$"), &own("uid"));
            let token: String = form_urlencoded::byte_serialize(own("continue").as_bytes()).collect();
            filled = filled.replace(&format!("$continue{at}$"), &token);
        }
        filled
    }

    async fn take(&mut self, step: &Step) -> Said {
        let path = self.fill(&step.path);
        if step.is_watch() {
            let said = self.watch(&path).await;
            self.seen.push(Value::Null);
            return said;
        }
        let body = match &step.body {
            BodyOf::Nothing => Vec::new(),
            BodyOf::Raw(text) => self.fill(text).into_bytes(),
            BodyOf::Json(value) => self.fill(&value.to_string()).into_bytes(),
            BodyOf::Stored { change, keeps_version } => {
                let object = path.split('?').next().unwrap_or_default().trim_end_matches("/status");
                let mut stored = self.send("GET", object, "application/json", Vec::new()).await.body;
                let change = self.fill(&change.to_string());
                json_merge(&mut stored, &serde_json::from_str(&change).expect("still valid JSON"));
                if !keeps_version
                    && let Some(meta) = stored.get_mut("metadata").and_then(Value::as_object_mut)
                {
                    meta.remove("resourceVersion");
                }
                stored.to_string().into_bytes()
            }
        };
        let said = self.send(&step.method, &path, &step.media, body).await;
        self.seen.push(said.body.clone());
        said
    }

    /// Returns the events of a watch, which lasts one second.
    async fn watch(&self, path: &str) -> Said {
        let request = http::Request::get(path).body(Body::empty()).expect("the request is valid");
        let response = self.client.send(request).await.expect("the server answers");
        let code = response.status().as_u16();
        let text = response.into_body().collect().await.expect("the body is complete").to_bytes();
        let lines = text.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
        let mut said: Vec<Value> = lines.map(|line| serde_json::from_slice(line).expect("is JSON")).collect();
        let body = if code == 200 { json!({"events": said}) } else { said.pop().unwrap_or_default() };
        Said { code, body, warnings: 0 }
    }

    /// Returns the events of a collection since a version, up to the marker's event.
    async fn events(&self, collection: &str, since: &str) -> Result<Vec<Value>, String> {
        let path = format!("{}?watch=true&resourceVersion={since}&timeoutSeconds=20", self.fill(collection));
        let request = http::Request::get(path).body(Body::empty()).expect("the request is valid");
        let response = self.client.send(request).await.expect("the server answers");
        if response.status() != 200 {
            return Err(format!("the watch is answered {}", response.status()));
        }
        let mut body = response.into_body();
        let (mut bytes, mut events) = (Vec::new(), Vec::<Value>::new());
        while let Some(Ok(frame)) = body.frame().await {
            bytes.extend_from_slice(frame.data_ref().expect("the frame is data"));
            while let Some(end) = bytes.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = bytes.drain(..=end).collect();
                events.push(serde_json::from_slice(&line).expect("events are JSON"));
            }
            if events.last().is_some_and(|event| event["object"]["metadata"]["name"] == MARKER) {
                return Ok(events);
            }
        }
        Err(format!("the watch ended before the marker: {events:?}"))
    }
}

fn json_merge(target: &mut Value, patch: &Value) {
    let (Some(members), Some(patch)) = (target.as_object_mut(), patch.as_object()) else {
        *target = patch.clone();
        return;
    };
    for (key, value) in patch {
        if value.is_null() {
            members.remove(key);
        } else {
            json_merge(members.entry(key.clone()).or_insert(Value::Null), value);
        }
    }
}

/// Runs one sequence against both servers; returns the number of steps, or a description of the first difference.
async fn run(seed: u64, real: Client, sim: Client) -> Result<usize, String> {
    let namespace = format!("fidelity-{seed:016x}");
    let side = |client| Side { client, namespace: namespace.clone(), seen: Vec::new() };
    let (mut real, mut sim) = (side(real), side(sim));
    for side in [&real, &sim] {
        let body = json!({"metadata": {"name": namespace}}).to_string().into_bytes();
        let made = side.send("POST", "/api/v1/namespaces", "application/json", body).await;
        assert_eq!(made.code, 201, "{:?}", made.body);
    }
    let started = |said: Said| said.body["metadata"]["resourceVersion"].as_str().unwrap_or("0").to_owned();
    let here = format!("/api/v1/namespaces/{namespace}/configmaps");
    let from = (
        started(real.send("GET", &here, "application/json", Vec::new()).await),
        started(sim.send("GET", &here, "application/json", Vec::new()).await),
    );
    let mut report = String::new();
    let (kind, steps) = sequence(seed);
    for (at, step) in steps.iter().enumerate() {
        let (wanted, found) = (real.take(step).await, sim.take(step).await);
        let (left, right) = (masked(&wanted, kind, step), masked(&found, kind, step));
        writeln!(report, "{at:>3} {step}").expect("infallible");
        if left != right {
            let difference = compare::difference(&left, &right);
            return Err(format!(
                "seed {seed}\n{report}{difference}\nreal: {}\nembedded: {}",
                wanted.body, found.body
            ));
        }
    }
    // The marker's event is the last one on both sides.
    let marker = Step::create(kind, kind.valid(MARKER));
    let (wanted, found) = (real.take(&marker).await, sim.take(&marker).await);
    assert_eq!((wanted.code, found.code), (201, 201), "{:?} {:?}", wanted.body, found.body);
    let watched = |why: String| format!("seed {seed}\n{report}{why}");
    let wanted = real.events(&kind.collection(), &from.0).await.map_err(watched)?;
    let found = sim.events(&kind.collection(), &from.1).await.map_err(watched)?;
    let (left, right) = (compare::events(&wanted, kind), compare::events(&found, kind));
    if left != right {
        return Err(format!("seed {seed}\n{report}events: {}", compare::difference(&left, &right)));
    }
    Ok(steps.len())
}

/// The real API server and an embedded one, both without controllers.
struct Servers {
    real: Client,
    sim: Sim,
    _launcher: Launcher,
    driver: JoinSet<()>,
}

impl Servers {
    async fn start() -> Self {
        let launcher = tokio::task::spawn_blocking(Launcher::start).await.expect("the control plane starts");
        for controller in ["kube-controller-manager", "kube-scheduler", "kwok"] {
            launcher.command(&format!("kill {controller}"));
        }
        let kubeconfig = Kubeconfig::read_from(&launcher.ready.kubeconfig).expect("a kubeconfig");
        let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await;
        let mut config = config.expect("a usable kubeconfig");
        // First responses are compared, so the client must not retry.
        config.default_retry = false;
        let real = Client::try_from(config).expect("the client is valid");
        let world = Switches {
            collector: false,
            workloads: false,
            pods: false,
            quotas: false,
            autoscalers: false,
            ..Switches::default()
        };
        let epoch = windlass::client::Clock::system().now();
        let sim = Sim::new(Settings { epoch, world, tracks_managers: true, ..Settings::default() });
        let mut driver = JoinSet::new();
        let driven = sim.clone();
        driver.spawn(async move { driven.run().await });
        let servers = Self { real, sim, _launcher: launcher, driver };
        for client in [servers.real.clone(), servers.sim()] {
            define(client).await;
        }
        servers
    }

    fn sim(&self) -> Client {
        Client::new(InProcessTransport::new(&self.sim, "fidelity"), "default")
    }
}

/// Creates the CRD of the sequences' custom kind and waits until the kind is served.
async fn define(client: Client) {
    let side = Side { client, namespace: "default".to_owned(), seen: Vec::new() };
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    let body = kinds::definition().to_string().into_bytes();
    let said = side.send("POST", definitions, "application/json", body).await;
    assert_eq!(said.code, 201, "{}", said.body);
    wait_until("the kind is served", async || {
        let said = side
            .send("GET", &kinds::WIDGET.collection().replace("$ns", "default"), "application/json", vec![])
            .await;
        if said.code == 200 { Ok(()) } else { Err(said.code) }
    })
    .await;
}

#[apply(real_bed)]
#[why = "it compares the two servers"]
async fn generated_sequences_get_equivalent_answers() {
    let mut servers = Servers::start().await;
    let sequences = number("WINDLASS_FIDELITY_SEQUENCES", 100);
    let first = number("WINDLASS_FIDELITY_SEED", fastrand::u64(..1 << 40));
    // The output of `eprintln!` would be captured and shown only for failures.
    let say =
        |text: String| writeln!(std::io::stderr(), "fidelity: {text}").expect("standard error is writable");
    say(format!("{sequences} sequences from WINDLASS_FIDELITY_SEED={first}"));
    let outcomes: Vec<Result<usize, String>> = futures_util::stream::iter(first..first + sequences)
        .map(|seed| run(seed, servers.real.clone(), servers.sim()))
        .buffer_unordered(AT_ONCE)
        .collect()
        .await;
    let requests: usize = outcomes.iter().filter_map(|outcome| outcome.as_ref().ok()).sum();
    let failures: Vec<&String> = outcomes.iter().filter_map(|outcome| outcome.as_ref().err()).collect();
    say(format!("{requests} requests answered alike"));
    let shown: Vec<&str> = failures
        .iter()
        .take(usize::try_from(number("WINDLASS_FIDELITY_SHOWN", 5)).unwrap_or(usize::MAX))
        .map(|failure| failure.as_str())
        .collect();
    assert!(servers.driver.try_join_next().is_none(), "the embedded server has panicked");
    assert!(failures.is_empty(), "{} sequences differ; the first:\n{}", failures.len(), shown.join("\n\n"));
}
