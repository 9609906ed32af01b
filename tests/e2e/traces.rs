//! Traces, sent to a collector in the test: a sync with its wait, its requests and its hooks, and what the API server
//! and the endpoint of a task see of them.

use std::sync::Arc;
use std::time::Duration;

use http::Request;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube_client::api::PostParams;
use kube_client::client::Body;
use kube_client::core::CustomResourceExt;
use kube_client::{Api, Client};
use macro_rules_attribute::apply;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::KeyValue;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::trace::v1::Span;
use parking_lot::Mutex;
use prost::Message as _;
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tower::{Service as _, service_fn};
use windlass::api::samplecontroller::v1alpha1::{Foo, FooSpec};
use windlass::api::webapp::v1::{WebApp, WebAppSpec};
use windlass::cli::InProcess;
use windlass::client::ApiClient;
use windlass::sim::{InProcessTransport, Settings, Sim};

use crate::support::{no_bed, seed, wait_until};

/// A request that the API server has seen: method, path, and the header.
type Seen = (String, String, Option<String>);

/// An embedded server, and an operator of Foos and WebApps that is traced to a collector.
struct Rig {
    sim: Sim,
    seen: Arc<Mutex<Vec<Seen>>>,
    collector: Collector,
    signals: mpsc::Sender<&'static str>,
    operator: JoinSet<Result<(), (u8, String)>>,
    _server: JoinSet<()>,
}

/// A server that records requests, and answers each of them with 200 if it answers.
struct Collector {
    address: String,
    requests: Arc<Mutex<Vec<Got>>>,
    _tasks: JoinSet<()>,
}

struct Got {
    head: String,
    body: Vec<u8>,
}

impl Collector {
    async fn start(answers: bool) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let requests = Arc::<Mutex<Vec<Got>>>::default();
        let (recorded, mut tasks) = (requests.clone(), JoinSet::new());
        tasks.spawn(async move {
            let mut connections = JoinSet::new();
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                connections.spawn(serve(stream, recorded.clone(), answers));
            }
        });
        Self { address, requests, _tasks: tasks }
    }

    /// All spans so far, and the attributes of the process that sent them.
    fn spans(&self) -> (Vec<Span>, Vec<KeyValue>) {
        let requests = self.requests.lock();
        let traces = requests.iter().filter(|got| got.head.starts_with("POST /v1/traces "));
        let sent = traces.map(|got| ExportTraceServiceRequest::decode(&*got.body).unwrap());
        let sent: Vec<_> = sent.flat_map(|request| request.resource_spans).collect();
        let resource = sent.first().and_then(|spans| spans.resource.clone()).unwrap_or_default();
        let scopes = sent.into_iter().flat_map(|spans| spans.scope_spans);
        (scopes.flat_map(|scope| scope.spans).collect(), resource.attributes)
    }
}

/// Serves one request.
async fn serve(mut stream: TcpStream, requests: Arc<Mutex<Vec<Got>>>, answers: bool) {
    let mut bytes = Vec::new();
    let length = |head: &str| {
        let line = head.lines().find(|line| line.to_lowercase().starts_with("content-length:"));
        line.and_then(|line| line.split_once(':')?.1.trim().parse::<usize>().ok()).unwrap_or_default()
    };
    loop {
        if let Some(end) = bytes.windows(4).position(|window| window == b"\r\n\r\n") {
            let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
            if bytes.len() >= end + 4 + length(&head) {
                requests.lock().push(Got { head, body: bytes.split_off(end + 4) });
                break;
            }
        }
        if stream.read_buf(&mut bytes).await.unwrap_or_default() == 0 {
            return;
        }
    }
    if !answers {
        return std::future::pending().await;
    }
    let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
    stream.write_all(answer).await.unwrap();
}

/// A client of the embedded server that records what it sends.
fn recording(sim: &Sim, seen: Arc<Mutex<Vec<Seen>>>) -> Client {
    let transport = InProcessTransport::new(sim, "operator");
    let service = service_fn(move |request: Request<Body>| {
        let header = request.headers().get("traceparent").map(|value| value.to_str().unwrap().to_owned());
        seen.lock().push((request.method().to_string(), request.uri().path().to_owned(), header));
        transport.clone().call(request)
    });
    Client::new(service, "default")
}

impl Rig {
    /// Starts an operator with these flags; `TRACED` in one stands for the collector's address.
    async fn start(flags: &[&str], answers: bool) -> Self {
        let (sim, seen) = (Sim::new(Settings::default()), Arc::default());
        let (driven, mut server) = (sim.clone(), JoinSet::new());
        server.spawn(async move { driven.run().await });
        let admin = Client::new(InProcessTransport::new(&sim, "admin"), "default");
        for crd in [Foo::crd(), WebApp::crd()] {
            let crds: Api<CustomResourceDefinition> = Api::all(admin.clone());
            crds.create(&PostParams::default(), &crd).await.unwrap();
        }
        let collector = Collector::start(answers).await;
        let client = ApiClient::new(recording(&sim, Arc::clone(&seen)));
        let always = [
            "--controllers=foo,webapp",
            "--leader-elect=false",
            "--metrics-bind-address=0",
            "--health-probe-bind-address=0",
        ];
        let flags = [&always, flags].concat();
        let flags: Vec<String> =
            flags.iter().map(|flag| flag.replace("TRACED", &collector.address)).collect();
        let (signals, received) = mpsc::channel(1);
        let mut operator = JoinSet::new();
        operator.spawn(async move {
            let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
            windlass::cli::run_over(client, &flags, InProcess::new(seed()), received).await
        });
        let rig = Self { sim, seen, collector, signals, operator, _server: server };
        // From here on an object is new, not part of the first list.
        rig.create_foo("first").await;
        rig.header_of_create(0).await;
        rig
    }

    fn admin(&self) -> Client {
        Client::new(InProcessTransport::new(&self.sim, "admin"), "default")
    }

    async fn create_foo(&self, name: &str) {
        let foos: Api<Foo> = Api::namespaced(self.admin(), "default");
        let foo = Foo::new(name, FooSpec { deployment_name: name.to_owned(), replicas: 1 });
        foos.create(&PostParams::default(), &foo).await.unwrap();
    }

    /// Waits for this create of a Deployment, and returns the header of the request.
    async fn header_of_create(&self, which: usize) -> Option<String> {
        wait_until("a Deployment is created", async || {
            let seen = self.seen.lock();
            let mut creates = seen.iter().filter(|seen| seen.0 == "POST" && seen.1.ends_with("/deployments"));
            creates.nth(which).map(|create| create.2.clone()).ok_or_else(|| seen.clone())
        })
        .await
    }

    /// Stops the operator, and returns how long that took.
    async fn stop(&mut self) -> Duration {
        let before = tokio::time::Instant::now();
        self.signals.send("SIGTERM").await.unwrap();
        assert_eq!(self.operator.join_next().await.unwrap().unwrap(), Ok(()));
        before.elapsed()
    }
}

fn text(attributes: &[KeyValue], key: &str) -> String {
    let found = attributes.iter().find(|attribute| attribute.key == key);
    let found = found.unwrap_or_else(|| panic!("no {key} in {attributes:?}"));
    match found.value.as_ref().and_then(|value| value.value.as_ref()) {
        Some(Value::StringValue(text)) => text.clone(),
        Some(Value::IntValue(number)) => number.to_string(),
        Some(Value::ArrayValue(array)) => {
            let texts = array.values.iter().map(|value| match &value.value {
                Some(Value::StringValue(text)) => text.clone(),
                other => format!("{other:?}"),
            });
            texts.collect::<Vec<_>>().join(", ")
        }
        other => format!("{other:?}"),
    }
}

/// The span that a header names.
#[track_caller]
fn named_by<'a>(header: &str, spans: &'a [Span]) -> &'a Span {
    let span =
        spans.iter().find(|span| header == format!("00-{}-{}-01", hex(&span.trace_id), hex(&span.span_id)));
    span.unwrap_or_else(|| panic!("no span for {header} in {spans:#?}"))
}

#[track_caller]
fn parent<'a>(span: &Span, spans: &'a [Span]) -> &'a Span {
    let found = spans.iter().find(|one| one.trace_id == span.trace_id && one.span_id == span.parent_span_id);
    found.unwrap_or_else(|| panic!("no parent of {span:?} in {spans:#?}"))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

const TRACED: [&str; 2] = ["--otlp-endpoint=http://TRACED", "--otlp-sample-ratio=1"];

#[apply(no_bed)]
#[why = "the case brings its own server, in real time because of the collector's socket"]
async fn created_foo_is_one_trace_that_the_api_server_sees() {
    let mut rig = Rig::start(&TRACED, true).await;
    rig.create_foo("web").await;
    let header = rig.header_of_create(1).await.expect("a header");
    rig.stop().await;
    let (spans, resource) = rig.collector.spans();
    let request = named_by(&header, &spans);
    let sync = parent(request, &spans);
    let root = parent(sync, &spans);
    assert_eq!([&*request.name, &*sync.name, &*root.name], ["POST deployments", "sync", "foo"]);
    assert!(root.parent_span_id.is_empty(), "{root:?}");
    let wait = spans.iter().find(|span| span.parent_span_id == root.span_id && span.name == "wait").unwrap();
    assert_eq!(wait.start_time_unix_nano, root.start_time_unix_nano);
    assert!(wait.end_time_unix_nano <= sync.start_time_unix_nano, "{wait:?} {sync:?}");
    for (attributes, key, value) in [
        (&root.attributes, "windlass.controller", "foo"),
        (&root.attributes, "windlass.reasons", "created"),
        (&root.attributes, "k8s.namespace.name", "default"),
        (&root.attributes, "windlass.name", "web"),
        (&request.attributes, "http.request.method", "POST"),
        (&request.attributes, "url.path", "/apis/apps/v1/namespaces/default/deployments"),
        (&request.attributes, "http.response.status_code", "201"),
        (&resource, "service.name", "windlass"),
        (&resource, "service.version", env!("CARGO_PKG_VERSION")),
    ] {
        assert_eq!(text(attributes, key), value, "{key}");
    }
    assert_eq!(request.events[0].name, "sent");
    // The caches' lists and watches are not part of a sync.
    let is_cache = |seen: &&Seen| seen.0 == "GET" && seen.1.ends_with("/foos");
    let seen = rig.seen.lock();
    assert!(seen.iter().any(|one| is_cache(&one)) && seen.iter().filter(is_cache).all(|one| one.2.is_none()));
}

#[apply(no_bed)]
#[why = "the case brings its own server, in real time because of the collector's socket"]
async fn hook_and_its_call_are_in_the_trace_of_their_sync() {
    let dir = tempfile::tempdir().unwrap();
    // The collector answers calls of tasks, too.
    let endpoint = Collector::start(true).await;
    let file = dir.path().join("tasks.json");
    let url = format!("http://{}/hook", endpoint.address);
    let tasks = json!({"tasks": [{"name": "notify", "type": "http", "url": url}]});
    std::fs::write(&file, tasks.to_string()).unwrap();
    let tasks = format!("--webapp-tasks={}", file.display());
    let mut rig = Rig::start(&[TRACED[0], TRACED[1], &tasks], true).await;
    let apps: Api<WebApp> = Api::namespaced(rig.admin(), "default");
    let spec: WebAppSpec =
        serde_json::from_value(json!({"replicas": 1, "version": "stable-alpine"})).unwrap();
    apps.create(&PostParams::default(), &WebApp::new("web", spec)).await.unwrap();
    let header = wait_until("the task is called", async || {
        let requests = endpoint.requests.lock();
        let head = &requests.first().ok_or("not yet")?.head;
        let header = head.lines().find_map(|line| line.strip_prefix("traceparent: "));
        Ok::<_, &str>(header.expect("a header").to_owned())
    })
    .await;
    rig.stop().await;
    let (spans, _) = rig.collector.spans();
    let call = named_by(&header, &spans);
    let hook = parent(call, &spans);
    let (sync, root) = (parent(hook, &spans), parent(parent(hook, &spans), &spans));
    assert_eq!([&*call.name, &*hook.name, &*sync.name, &*root.name], ["POST", "hook", "sync", "webapp"]);
    assert_eq!(text(&hook.attributes, "windlass.task"), "notify");
    assert_eq!(text(&call.attributes, "http.response.status_code"), "200");
    assert!(!format!("{call:?}").contains("/hook"), "the address may be a secret: {call:?}");
}

#[apply(no_bed)]
#[why = "the case brings its own server, in real time because of the collector's socket"]
async fn without_an_endpoint_or_a_sample_nothing_is_sent() {
    for flags in [&[][..], &["--otlp-endpoint=http://TRACED", "--otlp-sample-ratio=0"]] {
        let mut rig = Rig::start(flags, true).await;
        assert_eq!(rig.header_of_create(0).await, None, "{flags:?}");
        rig.stop().await;
        assert!(rig.seen.lock().iter().all(|seen| seen.2.is_none()), "{flags:?}");
        assert_eq!(rig.collector.requests.lock().len(), 0, "{flags:?}");
    }
}

/// Without the bound, the end would wait for the answer to the spans: 10 s.
#[apply(no_bed)]
#[why = "the case brings its own server, in real time because of the collector's socket"]
async fn hanging_collector_delays_neither_syncs_nor_the_end() {
    let mut rig = Rig::start(&TRACED, false).await;
    rig.header_of_create(0).await.expect("a header");
    let took = rig.stop().await;
    assert!(took < Duration::from_secs(9), "{took:?}");
    assert!(!rig.collector.requests.lock().is_empty(), "spans were on their way");
}
