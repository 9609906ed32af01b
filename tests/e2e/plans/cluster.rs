//! The cluster of one run: an embedded server with a namespace and a CRD, and its administrator.

use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt;
use http_body_util::{BodyExt, Full};
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tower::Service;
use windlass::cli::InProcess;
use windlass::client::{ApiClient, Clock};
use windlass::sim::{InProcessTransport, Settings, Sim};

use super::workloads::{Kind, NAME, Step};

/// The interval at which a create is retried while its name is taken.
const RETRY: Duration = Duration::from_millis(20);
/// The interval of the later half of the retries.
const RETRY_LATER: Duration = Duration::from_secs(2);
/// The maximum number of retries, which last longer than five audits: four hidden events may be noticed one by one.
const RETRIES: usize = 10_000;
pub(crate) const NAMESPACE: &str = "plans";
/// The flags of an operator that acts at once, without audits that repair what should not need a repair.
pub(crate) const ALONE: [&str; 2] = ["--leader-elect=false", "--audit-period=0"];

/// See the module; clones are the same cluster.
#[derive(Clone)]
pub(crate) struct Cluster<'a> {
    pub(crate) kind: &'a Kind,
    pub(crate) sim: Sim,
    /// The time in the cluster.
    pub(crate) clock: Clock,
    admin: InProcessTransport,
}

/// An open watch.
pub(crate) type Watch = <InProcessTransport as Service<http::Request<Full<Bytes>>>>::Response;

/// Returns the events that a watch has received since the last call.
pub(crate) fn heard(watch: &mut Watch) -> Vec<Value> {
    let mut text = Vec::new();
    while let Some(Some(Ok(frame))) = watch.frame().now_or_never() {
        text.extend_from_slice(&frame.into_data().unwrap_or_default());
    }
    let lines = text.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    lines.map(|line| serde_json::from_slice(line).expect("an event is JSON")).collect()
}

impl<'a> Cluster<'a> {
    /// Creates a server, whose timers the caller drives.
    pub(crate) fn new(kind: &'a Kind, seed: u64) -> Self {
        let clock = Clock::system();
        let sim = Sim::new(Settings { seed, epoch: clock.now(), ..Settings::default() });
        let admin = InProcessTransport::new(&sim, "admin");
        Self { kind, sim, clock, admin }
    }

    async fn send(&self, method: &str, path: &str, body: Option<&Value>) -> Watch {
        let media = if method == "PATCH" { "application/merge-patch+json" } else { "application/json" };
        let body = body.map(|body| Bytes::from(body.to_string())).unwrap_or_default();
        let request = http::Request::builder().method(method).uri(path).header("content-type", media);
        let request = request.body(Full::new(body)).expect("the request is valid");
        self.admin.clone().call(request).await.expect("the administrator is answered")
    }

    pub(crate) async fn ask(&self, method: &str, path: &str, body: Option<&Value>) -> (u16, Value) {
        let answer = self.send(method, path, body).await;
        let code = answer.status().as_u16();
        let body = answer.into_body().collect().await.expect("the body is complete").to_bytes();
        (code, serde_json::from_slice(&body).unwrap_or_default())
    }

    /// Sends a request as [`ask`](Self::ask) does, and asserts that it succeeds.
    pub(crate) async fn must(&self, method: &str, path: &str, body: Option<&Value>) -> Value {
        let (code, answer) = self.ask(method, path, body).await;
        assert!(code < 300, "{method} {path}: {code} {answer}");
        answer
    }

    /// Creates the namespace and the CRD.
    pub(crate) async fn furnish(&self) {
        self.must("POST", "/api/v1/namespaces", Some(&json!({"metadata": {"name": NAMESPACE}}))).await;
        let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
        self.must("POST", path, Some(&self.kind.definition)).await;
        tokio::time::sleep(Duration::from_secs(1)).await;
    }

    /// Returns the collections of objects: kind and path.
    pub(crate) fn paths(&self) -> [(&'static str, String); 6] {
        let Kind { kind, group_version, plural, .. } = self.kind;
        let at = |prefix: &str, plural: &str| format!("{prefix}/namespaces/{NAMESPACE}/{plural}");
        [
            (kind, at(&format!("/apis/{group_version}"), plural)),
            ("Deployment", at("/apis/apps/v1", "deployments")),
            ("ReplicaSet", at("/apis/apps/v1", "replicasets")),
            ("Pod", at("/api/v1", "pods")),
            ("Service", at("/api/v1", "services")),
            ("Ingress", at("/apis/networking.k8s.io/v1", "ingresses")),
        ]
    }

    pub(crate) async fn watch(&self) -> Vec<Watch> {
        let mut watches = Vec::new();
        for (_, path) in self.paths() {
            watches.push(self.send("GET", &format!("{path}?watch=true&timeoutSeconds=86400"), None).await);
        }
        watches
    }

    pub(crate) async fn objects(&self) -> Vec<Value> {
        let mut all = Vec::new();
        for (kind, path) in self.paths() {
            let mut list = self.must("GET", &path, None).await;
            let Some(items) = list["items"].as_array_mut() else { continue };
            for item in items {
                item["kind"] = json!(kind);
                all.push(item.take());
            }
        }
        all
    }

    // --- the operator ---

    /// Creates an operator that uses this transport, and the sender of its signals.
    pub(crate) fn operator<S>(
        &self,
        way: S,
        given: InProcess,
        flags: &'static [&'static str],
    ) -> (impl Future<Output = Result<(), (u8, String)>> + Send + use<S>, mpsc::Sender<&'static str>)
    where
        S: Service<http::Request<kube_client::client::Body>, Response = super::call::Reply>
            + Send
            + Clone
            + 'static,
        S::Future: Send,
        S::Error: Into<tower::BoxError>,
    {
        let client = ApiClient::new(kube_client::Client::new(way, NAMESPACE));
        let controllers = format!("--controllers={}", self.kind.controller);
        let (signals, received) = mpsc::channel(1);
        let run = async move {
            let namespace = format!("--namespace={NAMESPACE}");
            let others = ["--metrics-bind-address=0", "--health-probe-bind-address=0"];
            let flags = [&[namespace.as_str(), controllers.as_str()][..], &others, flags].concat();
            windlass::cli::run_over(client, &flags, given, received).await
        };
        (run, signals)
    }

    // --- the user ---

    /// Takes a step; calls `wait` between retries while a name is taken.
    pub(crate) async fn take(&self, step: &Step, mut wait: impl AsyncFnMut(Duration)) -> Result<(), String> {
        let Kind { kind, group_version, .. } = self.kind;
        let [(_, all), ..] = self.paths();
        let one = format!("{all}/{NAME}");
        let object = |spec: &Value| {
            json!({
                "kind": kind,
                "apiVersion": group_version,
                "metadata": {"name": NAME, "namespace": NAMESPACE},
                "spec": spec,
            })
        };
        match step {
            Step::Create(spec) => drop(self.must("POST", &all, Some(&object(spec))).await),
            Step::Change(spec) => drop(self.must("PATCH", &one, Some(&json!({"spec": spec}))).await),
            Step::Delete => drop(self.must("DELETE", &one, None).await),
            Step::Recreate(spec) => {
                self.must("DELETE", &one, None).await;
                let mut tries = 0;
                while self.ask("POST", &all, Some(&object(spec))).await.0 != 201 {
                    tries += 1;
                    if tries > RETRIES {
                        return Err("the name stays taken".to_owned());
                    }
                    wait(if tries > RETRIES / 2 { RETRY_LATER } else { RETRY }).await;
                }
            }
        }
        Ok(())
    }
}
