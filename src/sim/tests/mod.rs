//! Tests of the whole server through its in-process transport, under a paused clock.

mod applying;
mod children;
mod faults;
mod kubectl;
mod limits;
mod reading;
mod refusals;
#[cfg(feature = "cli")]
// Only the binary parses YAML.
mod samples;
mod services;
mod shards;
mod world;
mod writing;

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Response, header};
use http_body_util::{BodyExt, Full};
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tower_service::Service;

use super::transport::ReplyBody;
use super::{ConnectionError, InProcessTransport, Settings, Sim};

/// A running server, with helpers for requests.
struct Bed {
    sim: Sim,
    user: &'static str,
    server: usize,
    /// Drives the server's time; ends only by a panic.
    driver: JoinSet<()>,
}

const FOOS: &str = "/apis/example.com/v1/namespaces/default/foos";
const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";
const CRDS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const PODS: &str = "/api/v1/namespaces/default/pods";

impl Bed {
    fn new() -> Self {
        Self::with(Settings::default())
    }

    fn with(settings: Settings) -> Self {
        Self::of(Sim::new(settings))
    }

    fn of(sim: Sim) -> Self {
        let mut driver = JoinSet::new();
        let driven = sim.clone();
        driver.spawn(async move { driven.run().await });
        Self { sim, user: "me", server: 0, driver }
    }

    async fn send(
        &self,
        verb: &str,
        path: &str,
        media: &str,
        body: Vec<u8>,
    ) -> Result<Response<ReplyBody>, ConnectionError> {
        let mut request = http::Request::new(Full::new(Bytes::from(body)));
        *request.method_mut() = Method::from_bytes(verb.as_bytes()).unwrap();
        *request.uri_mut() = path.parse().unwrap();
        let mut headers = HeaderMap::new();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_str(media).unwrap());
        *request.headers_mut() = headers;
        InProcessTransport::new(&self.sim, self.user).to_server(self.server).call(request).await
    }

    async fn call(&self, verb: &str, path: &str, body: Value) -> (u16, Value) {
        let media = match verb {
            "PATCH" => "application/merge-patch+json",
            _ => "application/json",
        };
        let body = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
        let response = self.send(verb, path, media, body).await.unwrap();
        let code = response.status().as_u16();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        (code, serde_json::from_slice(&body).unwrap_or_else(|_| json!(String::from_utf8_lossy(&body))))
    }

    async fn get(&self, path: &str) -> (u16, Value) {
        self.call("GET", path, Value::Null).await
    }

    /// Sends a request that must succeed; returns the body of the answer.
    async fn ok(&self, verb: &str, path: &str, body: Value) -> Value {
        let (code, answer) = self.call(verb, path, body).await;
        assert!((200..300).contains(&code), "{verb} {path}: {code} {answer}");
        answer
    }

    async fn watch(&self, path: &str) -> Watch {
        let response = self.send("GET", path, "application/json", Vec::new()).await.unwrap();
        assert_eq!(response.status(), 200);
        Watch { body: response.into_body() }
    }

    /// Defines the kind Foo of example.com, with bounds and a CEL rule.
    async fn define_foos(&self) {
        let crd = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": "foos.example.com"},
            "spec": {"group": "example.com", "scope": "Namespaced",
                "names": {"plural": "foos", "kind": "Foo", "shortNames": ["fo"]},
                "versions": [{"name": "v1", "served": true, "storage": true, "subresources": {
                        "status": {}, "scale": {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"}},
                    "additionalPrinterColumns": [{"name": "Replicas", "type": "integer", "jsonPath": ".spec.replicas"}],
                    "schema": {"openAPIV3Schema": {"type": "object", "properties": {
                        "spec": {"type": "object", "required": ["name"], "properties": {
                            "name": {"type": "string",
                                "x-kubernetes-validations": [{"rule": "self == oldSelf", "message": "name is immutable"}]},
                            "replicas": {"type": "integer", "minimum": 1, "maximum": 10, "default": 1}}},
                        "status": {"type": "object", "properties": {"replicas": {"type": "integer"}}}}}}}]}});
        self.ok("POST", CRDS, crd).await;
        settle().await;
    }
}

/// Waits until the simulated cluster is at rest.
async fn settle() {
    tokio::time::sleep(Duration::from_secs(2)).await;
}

fn foo(name: &str) -> Value {
    json!({"apiVersion": "example.com/v1", "kind": "Foo", "metadata": {"name": name}, "spec": {"name": name}})
}

fn map(name: &str) -> Value {
    json!({"metadata": {"name": name, "labels": {"app": name}}, "data": {"a": "1"}})
}

fn deployment(name: &str, replicas: i64) -> Value {
    json!({"metadata": {"name": name}, "spec": {"replicas": replicas, "selector": {"matchLabels": {"app": name}},
        "template": {"metadata": {"labels": {"app": name}}, "spec": {"containers": [{"name": "c", "image": "nginx"}]}}}})
}

fn reason(answer: &(u16, Value)) -> (u16, &str) {
    (answer.0, answer.1["reason"].as_str().unwrap_or_default())
}

fn names(list: &Value) -> Vec<&str> {
    list["items"].as_array().unwrap().iter().map(|item| item["metadata"]["name"].as_str().unwrap()).collect()
}

/// An open watch.
struct Watch {
    body: ReplyBody,
}

impl Watch {
    /// Returns type and object of the next event; `None` at the end.
    async fn next(&mut self) -> Option<(String, Value)> {
        let line = self.line().await?;
        let event: Value = serde_json::from_slice(&line).unwrap();
        Some((event["type"].as_str().unwrap().to_owned(), event["object"].clone()))
    }

    async fn line(&mut self) -> Option<Bytes> {
        let frame = self.body.frame().await?;
        Some(frame.unwrap().into_data().unwrap())
    }

    /// Returns the next event's type and object name.
    async fn event(&mut self) -> (String, String) {
        let (type_, object) = self.next().await.expect("the watch is open");
        (type_, object["metadata"]["name"].as_str().unwrap_or_default().to_owned())
    }

    /// Returns whether the next thing is a broken connection.
    async fn is_broken(&mut self) -> bool {
        matches!(self.body.frame().await, Some(Err(ConnectionError::Reset)))
    }

    /// Returns whether nothing arrives within `time`.
    async fn is_silent_for(&mut self, time: Duration) -> bool {
        tokio::time::timeout(time, self.body.frame()).await.is_err()
    }
}

fn event(type_: &str, name: &str) -> (String, String) {
    (type_.to_owned(), name.to_owned())
}

/// Runs everything random or timed (a Deployment is created, scaled, loses a Pod) and returns the trace.
async fn run(seed: u64) -> Vec<String> {
    let bed = Bed::with(Settings { seed, ..Settings::default() });
    bed.ok("POST", DEPLOYMENTS, deployment("web", 3)).await;
    settle().await;
    bed.ok("PATCH", &format!("{DEPLOYMENTS}/web"), json!({"spec": {"replicas": 5}})).await;
    settle().await;
    let pods = bed.ok("GET", PODS, Value::Null).await;
    bed.ok("DELETE", &format!("{PODS}/{}", names(&pods)[0]), Value::Null).await;
    settle().await;
    // When watches of several kinds end together, the clients reconnect in the order of the cuts.
    let mut clients = JoinSet::new();
    for plural in ["configmaps", "events", "pods", "secrets", "services"] {
        let mut watch = bed.watch(&format!("/api/v1/namespaces/default/{plural}?watch=true")).await;
        let (sim, path) = (bed.sim.clone(), format!("/api/v1/namespaces/default/{plural}"));
        clients.spawn(async move {
            while watch.next().await.is_some() {}
            let request = http::Request::get(path).body(Full::new(Bytes::new())).unwrap();
            drop(InProcessTransport::new(&sim, plural).call(request).await.unwrap());
        });
    }
    settle().await;
    bed.sim.cut_watches("", "");
    clients.join_all().await;
    let mut trace: Vec<String> = bed.sim.ledger().iter().map(ToString::to_string).collect();
    trace.push(bed.ok("GET", PODS, Value::Null).await.to_string());
    trace
}

#[tokio::test(start_paused = true)]
async fn the_same_seed_gives_the_same_trace() {
    let first = run(7).await;
    assert_eq!(first, run(7).await);
    assert_ne!(first, run(8).await);
}
