//! The embedded API server for unit tests of writes: records their requests, and hits them with faults by verb.
//!
//! It has the namespace `ns` and the kind Foo. No controllers run: objects are changed by requests and by the test only.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt;
use http::{Method, Request, StatusCode};
use http_body_util::{BodyExt, Full};
use kube_client::client::Body;
use kube_core::CustomResourceExt;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tower::ServiceExt;

use crate::api::samplecontroller::v1alpha1::Foo;
use crate::client::ApiClient;
use crate::sim::{Action, Fault, InProcessTransport, Settings, Sim, Switches, When};

const CRDS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const FOOS: &str = "/apis/samplecontroller.k8s.io/v1alpha1/namespaces/ns/foos";

/// The user whose requests are recorded and hit by faults.
const OPERATOR: &str = "operator";

/// A server and the log of its requests. Cheap to clone.
#[derive(Clone)]
pub(crate) struct TestServer {
    pub(crate) sim: Sim,
    log: Arc<Mutex<Log>>,
}

#[derive(Default)]
struct Log {
    requests: Vec<String>,
    last_body: Value,
}

impl TestServer {
    /// Starts a server; the clock must be paused.
    pub(crate) async fn start() -> Self {
        let world = Switches {
            collector: false,
            workloads: false,
            pods: false,
            quotas: false,
            ..Switches::default()
        };
        let sim = Sim::new(Settings { world, ..Settings::default() });
        let server = Self { sim, log: Arc::default() };
        let namespace = json!({"metadata": {"name": "ns"}});
        for (path, object) in [("/api/v1/namespaces", namespace), (CRDS, json!(Foo::crd()))] {
            let (code, answer) = server.ask(Method::POST, path, &object);
            assert_eq!(code, StatusCode::CREATED, "{answer}");
        }
        // The kind is served once its CRD is established.
        while server.ask(Method::GET, FOOS, &Value::Null).0 != StatusCode::OK {
            tokio::time::advance(Duration::from_millis(10)).await;
        }
        server
    }

    /// Returns a client whose requests are recorded.
    pub(crate) fn client(&self) -> ApiClient {
        let Self { sim, log } = self.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let (transport, log) = (InProcessTransport::new(&sim, OPERATOR), log.clone());
            async move {
                let (head, body) = request.into_parts();
                let body = body.collect_bytes().await.unwrap();
                log.lock().add(&head, &body);
                transport.oneshot(Request::from_parts(head, Full::new(body))).await
            }
        });
        ApiClient::new(kube_client::Client::new(service, "default"))
    }

    // --- actions of the test ---

    /// Stores an object under a collection's path, without validation, and returns it with its new version. Adds
    /// namespace, uid and generation if missing.
    pub(crate) fn store(&self, collection: &str, mut object: Value) -> Value {
        let parts: Vec<&str> = collection.split('/').collect();
        let ["", "apis", group, _, "namespaces", namespace, plural] = parts[..] else {
            panic!("{collection}")
        };
        let uid = format!("uid-{}", self.sim.version() + 1);
        let metadata = &mut object["metadata"];
        for (field, value) in [("namespace", json!(namespace)), ("uid", json!(uid)), ("generation", json!(1))]
        {
            if metadata[field].is_null() {
                metadata[field] = value;
            }
        }
        self.sim.write_behind(group, plural, &object);
        self.get(&format!("{collection}/{}", object["metadata"]["name"].as_str().unwrap())).unwrap()
    }

    pub(crate) fn get(&self, path: &str) -> Option<Value> {
        match self.ask(Method::GET, path, &Value::Null) {
            (StatusCode::OK, object) => Some(object),
            (StatusCode::NOT_FOUND, _) => None,
            answer => panic!("GET {path}: {answer:?}"),
        }
    }

    pub(crate) fn remove(&self, path: &str) {
        let (code, answer) = self.ask(Method::DELETE, path, &Value::Null);
        assert!(code.is_success(), "DELETE {path}: {answer}");
    }

    /// Sends a request of the test's own; returns the code and the body of the answer.
    fn ask(&self, method: Method, path: &str, body: &Value) -> (StatusCode, Value) {
        let body = if body.is_null() { Bytes::new() } else { body.to_string().into() };
        let request = Request::builder().method(method).uri(path).body(Full::new(body)).unwrap();
        let answer = async {
            let answer = InProcessTransport::new(&self.sim, "test").oneshot(request).await.unwrap();
            let code = answer.status();
            let body = answer.into_body().collect().await.unwrap().to_bytes();
            (code, serde_json::from_slice(&body).unwrap_or_default())
        };
        tokio::task::unconstrained(answer).now_or_never().expect("the server answers at once")
    }

    // --- faults ---

    /// Applies `action` to the next request with this verb: create, get, list, patch or delete.
    pub(crate) fn hit(&self, verb: &str, action: Action) {
        self.sim.fault(Fault::new(When::verb(verb).user(OPERATOR).times(1), action));
    }

    /// Refuses the next request with this verb.
    pub(crate) fn refuse(&self, verb: &str, code: u16, reason: &str) {
        self.hit(verb, Action::refuse(code, reason));
    }

    /// Merges `patch` into each Deployment written from now on, like an admission webhook.
    pub(crate) fn mutate(&self, patch: &Value) {
        for verb in ["create", "patch"] {
            let writes = When::verb(verb).resource("deployments").user(OPERATOR);
            self.sim.fault(Fault::new(writes, Action::Edit(patch.clone())));
        }
    }

    // --- observations ---

    /// Returns the client's requests since the last call: `GET /path`.
    pub(crate) fn requests(&self) -> Vec<String> {
        std::mem::take(&mut self.log.lock().requests)
    }

    /// Returns the last request body of the client.
    pub(crate) fn last_body(&self) -> Value {
        self.log.lock().last_body.clone()
    }
}

impl Log {
    fn add(&mut self, head: &http::request::Parts, body: &Bytes) {
        self.requests.push(format!("{} {}", head.method, head.uri.path()));
        if let Ok(body) = serde_json::from_slice(body) {
            self.last_body = body;
        }
    }
}

/// Returns the resource version of an object.
pub(crate) fn version_of(object: &Value) -> &str {
    object["metadata"]["resourceVersion"].as_str().unwrap()
}
