//! The cluster of the book: an API server in this process, and the few requests that a controller makes of it. This part
//! is given; there is nothing to do here.

use std::future::Future;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::BodyExt;
use http_body_util::combinators::UnsyncBoxBody;
use kube_core::CustomResourceExt;
use serde_json::{Value, json};
use tower::ServiceExt;
use windlass::api::samplecontroller::v1alpha1::Foo;
use windlass::sim::{ConnectionError, InProcessTransport, Settings, Sim};

/// Where the Foos are.
pub const FOOS: &str = "/apis/samplecontroller.k8s.io/v1alpha1/namespaces/default/foos";
/// Where the Deployments are.
pub const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";
/// Where the Leases are.
pub const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/default/leases";

/// Returns the time as the server writes it.
pub fn now() -> String {
    format!("{:.6}", jiff::Timestamp::now())
}

/// An object as the server sends it: JSON.
pub type Object = Value;

/// A request that the server refused, or that got no answer: then the code is 0.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    pub code: u16,
    pub message: String,
}

/// A cluster, whose time passes as the test's does.
pub struct Cluster {
    pub sim: Sim,
}

impl Cluster {
    /// Starts a cluster that knows Foos.
    pub async fn start() -> Self {
        Self::with(Settings::default()).await
    }

    /// Starts one that remembers this many changes.
    pub async fn with_history(window: usize) -> Self {
        Self::with(Settings { window, ..Settings::default() }).await
    }

    async fn with(settings: Settings) -> Self {
        let sim = Sim::new(settings);
        let time = sim.clone();
        drop(tokio::spawn(async move { time.run().await }));
        let cluster = Self { sim };
        let api = cluster.api("admin");
        let kinds = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
        api.post(kinds, &json!(Foo::crd())).await.expect("the kind is created");
        until(async || api.get(FOOS).await.is_ok()).await;
        cluster
    }

    /// A connection to the server as this user.
    pub fn api(&self, user: &str) -> Api {
        Api { transport: InProcessTransport::new(&self.sim, user) }
    }

    /// Creates a Foo that wants a Deployment `NAME-deployment`.
    pub async fn create_foo(&self, name: &str, replicas: u32) {
        let foo = json!({
            "apiVersion": "samplecontroller.k8s.io/v1alpha1",
            "kind": "Foo",
            "metadata": {"name": name},
            "spec": {"deploymentName": format!("{name}-deployment"), "replicas": replicas},
        });
        self.api("user").post(FOOS, &foo).await.expect("the Foo is created");
    }

    /// Changes a Foo's replicas.
    pub async fn scale_foo(&self, name: &str, replicas: u32) {
        let api = self.api("user");
        let path = format!("{FOOS}/{name}");
        let mut foo = api.get(&path).await.expect("the Foo exists");
        foo["spec"]["replicas"] = json!(replicas);
        api.put(&path, &foo).await.expect("the Foo is changed");
    }

    /// Deletes a Foo.
    pub async fn delete_foo(&self, name: &str) {
        let api = self.api("user");
        let path = format!("{FOOS}/{name}");
        let foo = api.get(&path).await.expect("the Foo exists");
        let uid = foo["metadata"]["uid"].as_str().unwrap_or_default();
        api.delete(&path, uid).await.expect("the Foo is deleted");
    }

    /// Returns the replicas that a Foo's Deployment asks for; `None` without one.
    pub async fn replicas(&self, foo: &str) -> Option<u64> {
        let found = self.api("user").get(&format!("{DEPLOYMENTS}/{foo}-deployment")).await.ok()?;
        found["spec"]["replicas"].as_u64()
    }

    /// Returns how often this user has made such a request (`create`, `update`, `list`, ...).
    pub fn count(&self, user: &str, verb: &str) -> usize {
        self.sim.ledger().iter().filter(|request| request.user == user && request.verb == verb).count()
    }
}

/// Waits, at most an hour, until this is so.
pub async fn until<F: Future<Output = bool>>(is_so: impl Fn() -> F) {
    for _ in 0..3600 {
        if is_so().await {
            return;
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    panic!("an hour has passed");
}

/// A connection to the API server.
#[derive(Clone, Debug)]
pub struct Api {
    transport: InProcessTransport,
}

impl Api {
    /// Reads an object or a list.
    pub async fn get(&self, path: &str) -> Result<Object, Refused> {
        self.send("GET", path, None).await
    }

    /// Creates an object.
    pub async fn post(&self, path: &str, object: &Object) -> Result<Object, Refused> {
        self.send("POST", path, Some(object)).await
    }

    /// Replaces an object. Its `resourceVersion` must be the newest: otherwise the answer is 409.
    pub async fn put(&self, path: &str, object: &Object) -> Result<Object, Refused> {
        self.send("PUT", path, Some(object)).await
    }

    /// Deletes the object with this uid.
    pub async fn delete(&self, path: &str, uid: &str) -> Result<Object, Refused> {
        let options = json!({"kind": "DeleteOptions", "apiVersion": "v1", "preconditions": {"uid": uid}});
        self.send("DELETE", path, Some(&options)).await
    }

    /// Opens a watch.
    pub async fn watch(&self, path: &str) -> Result<Watch, Refused> {
        let (code, body) = self.open("GET", path, None).await?;
        match code {
            200 => Ok(Watch { body, text: Vec::new() }),
            _ => Err(refused(code, body).await),
        }
    }

    async fn send(&self, method: &str, path: &str, object: Option<&Object>) -> Result<Object, Refused> {
        let (code, body) = self.open(method, path, object).await?;
        if !(200..300).contains(&code) {
            return Err(refused(code, body).await);
        }
        let text = body.collect().await.map_err(lost)?.to_bytes();
        serde_json::from_slice(&text).map_err(lost)
    }

    async fn open(&self, method: &str, path: &str, object: Option<&Object>) -> Result<(u16, Body), Refused> {
        let body = object.map(Value::to_string).unwrap_or_default();
        let request = http::Request::builder().method(method).uri(path);
        let request = request.header("content-type", "application/json");
        let request = request.body(http_body_util::Full::new(Bytes::from(body))).map_err(lost)?;
        let answer = self.transport.clone().oneshot(request).await.map_err(lost)?;
        Ok((answer.status().as_u16(), answer.into_body()))
    }
}

type Body = UnsyncBoxBody<Bytes, ConnectionError>;

fn lost(error: impl std::fmt::Display) -> Refused {
    Refused { code: 0, message: error.to_string() }
}

async fn refused(code: u16, body: Body) -> Refused {
    let text = body.collect().await.map(|body| body.to_bytes()).unwrap_or_default();
    let status: Value = serde_json::from_slice(&text).unwrap_or_default();
    Refused { code, message: status["message"].as_str().unwrap_or_default().to_owned() }
}

/// An open watch: one JSON object a line.
pub struct Watch {
    body: Body,
    text: Vec<u8>,
}

impl Watch {
    /// Returns the next event; `None` when the server has ended the watch, or the connection has broken.
    pub async fn next(&mut self) -> Option<Object> {
        loop {
            if let Some(end) = self.text.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.text.drain(..=end).collect();
                return serde_json::from_slice(&line).ok();
            }
            let frame = self.body.frame().await?.ok()?;
            if let Ok(data) = frame.into_data() {
                self.text.extend_from_slice(&data);
            }
        }
    }
}
