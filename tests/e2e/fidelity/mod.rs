//! Fidelity: the embedded server answers as the real one does.
//!
//! Generated sequences of requests go to both, each in a namespace of its own, and codes, reasons, causes,
//! stored objects and watch events are compared under a small mask. Behind neither server a controller
//! acts: what is compared is the API.
//!
//! `WINDLASS_FIDELITY_SEQUENCES` (300) and `WINDLASS_FIDELITY_SEED` (1) say how many, and from which
//! seed; a failure prints the seed of its sequence, for the first `WINDLASS_FIDELITY_SHOWN` (5).
//!
//! # Known differences
//! | difference | why |
//! |---|---|
//! | words of messages | compared are code, reason, retry time, the object's name, and field and reason of each cause; words in `refusals` alone |
//! | order of causes, and one that is said twice | a real server collects some from maps |
//! | words of warnings | compared is how many there are |
//! | `managedFields`, `selfLink`; events that change nothing else | not kept |
//! | versions, `creationTimestamp`, `remainingItemCount` | each server's own |
//! | `deletionTimestamp` and `continue` | compared is whether they are set |
//! | `kind` and `apiVersion` of a list's items | a real one leaves them out for built-in kinds |
//! | order of what a watch begins with | it has none |
//! | bookmarks, but for the one that ends a streamed list | a matter of time |
//! | addresses and ports that a server chooses | chosen in another order |
//! | items of lists that a cache may answer (version 0, or not older than) | a real one's cache may be a moment late |
//! | members that are empty: the code's `omitempty` | a client that decodes them sees no difference |
//! | uids, also in owner references | each server's own |

mod compare;
mod generate;
mod kinds;
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

/// The object that ends a sequence.
const MARKER: &str = "marker";

/// One of the two servers, as a sequence sees it.
struct Side {
    client: Client,
    namespace: String,
    /// Versions and uids that have been seen, by the step that saw them.
    seen: Vec<Value>,
}

/// What a server said.
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
            .expect("a request");
        let response = self.client.send(request).await.expect("the server answers");
        let warnings = response.headers().get_all("warning").iter().count();
        let code = response.status().as_u16();
        let body = response.into_body().collect().await.expect("a whole body").to_bytes();
        let body = serde_json::from_slice(&body).unwrap_or_else(|_| json!(String::from_utf8_lossy(&body)));
        Said { code, body, warnings }
    }

    /// Puts this side's own namespace, versions and uids where the sequence has places for them.
    fn fill(&self, text: &str) -> String {
        let mut filled = text.replace("$ns", &self.namespace);
        for (at, object) in self.seen.iter().enumerate().rev() {
            // A list's version is of all sequences, and means something else on each server.
            let is_list = object.get("items").is_some();
            let own = |key: &str| match object["metadata"][key].as_str() {
                // What is empty on one side may be missing on the other.
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
                json_merge(&mut stored, &serde_json::from_str(&change).expect("it was JSON"));
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

    /// What a watch says in its second.
    async fn watch(&self, path: &str) -> Said {
        let request = http::Request::get(path).body(Body::empty()).expect("a request");
        let response = self.client.send(request).await.expect("the server answers");
        let code = response.status().as_u16();
        let text = response.into_body().collect().await.expect("a whole body").to_bytes();
        let lines = text.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
        let mut said: Vec<Value> = lines.map(|line| serde_json::from_slice(line).expect("JSON")).collect();
        let body = if code == 200 { json!({"events": said}) } else { said.pop().unwrap_or_default() };
        Said { code, body, warnings: 0 }
    }

    /// The events of a collection since a version, up to the marker's.
    async fn events(&self, collection: &str, since: &str) -> Result<Vec<Value>, String> {
        let path = format!("{}?watch=true&resourceVersion={since}&timeoutSeconds=20", self.fill(collection));
        let request = http::Request::get(path).body(Body::empty()).expect("a request");
        let response = self.client.send(request).await.expect("the server answers");
        if response.status() != 200 {
            return Err(format!("the watch is answered {}", response.status()));
        }
        let mut body = response.into_body();
        let (mut bytes, mut events) = (Vec::new(), Vec::<Value>::new());
        while let Some(Ok(frame)) = body.frame().await {
            bytes.extend_from_slice(frame.data_ref().expect("a frame of data"));
            while let Some(end) = bytes.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = bytes.drain(..=end).collect();
                events.push(serde_json::from_slice(&line).expect("an event"));
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

/// Runs one sequence against both; returns what differs.
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
        writeln!(report, "{at:>3} {step}").expect("a string takes all");
        if left != right {
            let difference = compare::difference(&left, &right);
            return Err(format!(
                "seed {seed}\n{report}{difference}\nreal: {}\nembedded: {}",
                wanted.body, found.body
            ));
        }
    }
    // What happened last on both.
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

/// The real API server with nothing behind it, and an embedded one with nothing behind it.
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
        // What is answered is compared, not what comes of asking again.
        config.default_retry = false;
        let real = Client::try_from(config).expect("a client");
        let world = Switches { collector: false, workloads: false, pods: false, quotas: false };
        let epoch = windlass::client::Clock::system().now();
        let sim = Sim::new(Settings { epoch, world, ..Settings::default() });
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

/// Defines the custom kind of the sequences, and waits until it is served.
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
#[why = "it compares the two"]
async fn generated_sequences_are_answered_alike() {
    let mut servers = Servers::start().await;
    let sequences = number("WINDLASS_FIDELITY_SEQUENCES", 300);
    let first = number("WINDLASS_FIDELITY_SEED", 1);
    // Not by a macro: what these print is shown for failures only.
    let say =
        |text: String| writeln!(std::io::stderr(), "fidelity: {text}").expect("standard error takes all");
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
