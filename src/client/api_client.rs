//! The client that every request goes through.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Method, Request, Response, header};
use http_body_util::BodyExt;
use kube_client::Client;
use kube_client::client::Body;
use parking_lot::Mutex;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::time::Instant;
use tower::util::BoxCloneSyncService;
use tower::{ServiceExt, service_fn};

use super::config::{Config, ConfigError};
use super::dry_run::DryRunService;
use super::error::Error;
use super::gate::{Gate, Passage, RequestLimits, Turn};
use super::json_error::without_values;
use super::layers::{AnswerBody, GatedRequest, Layers, Outgoing, RoundTripper, boxed};
use super::observer::RequestObserver;
use super::rotation::Rotation;
use super::transport::Lane;
use crate::api::{ApiResource, labels};
use crate::metrics::{Metrics, RequestMetrics};

/// How long a read may take.
const READ_TIMEOUT: Duration = Duration::from_secs(30);
/// How long a write may take: API servers wait up to 30 s for an admission webhook, and their answer then names it.
const WRITE_TIMEOUT: Duration = Duration::from_secs(35);
/// How long until streamed lists are tried again after a server could not stream one, and compressed lists after one
/// arrived damaged.
const ASK_AGAIN: Duration = Duration::from_secs(30 * 60);
const JSON: &str = "application/json";
const MERGE_PATCH: &str = "application/merge-patch+json";

/// A request, before it passes the gate.
struct Call<'a> {
    passage: Passage,
    method: Method,
    path: &'a str,
    body: Option<&'a Value>,
    content_type: &'static str,
    accept: &'static str,
    /// What a write writes: an extension of the HTTP request.
    resource: Option<&'a ApiResource>,
}

/// Talks to one API server. Cheap to clone; all clones share the connections.
///
/// Every write is a single conditional request: [`create`](Self::create) never overwrites, each patch (but for events)
/// carries the resource version it was computed from, [`delete`](Self::delete) takes uid and resource version as
/// preconditions. The field manager of every write is the operator's name; see [`with_manager`](Self::with_manager).
///
/// # Cancel safety
/// Dropping the future of a write leaves it unknown whether the server applied the write: read before deciding.
#[derive(Clone)]
pub struct ApiClient {
    layers: Layers,
    /// Label of the metrics.
    host: Arc<str>,
    manager: &'static str,
    streams_lists: bool,
    /// Until when lists of a kind are not streamed, because the server has refused it; shared by all clones.
    no_streams_until: Arc<Mutex<HashMap<String, Instant>>>,
    reads_protobuf: bool,
    compresses_lists: bool,
    /// Until when lists are not compressed, because one arrived damaged; shared by all clones.
    plain_until: Arc<Mutex<Option<Instant>>>,
    not_after: Option<Instant>,
    turn: Turn,
}

impl<'a> Call<'a> {
    fn new(passage: Passage, method: Method, path: &'a str, body: Option<&'a Value>) -> Self {
        Self { passage, method, path, body, content_type: JSON, accept: JSON, resource: None }
    }
}

impl std::fmt::Debug for ApiClient {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ApiClient").finish_non_exhaustive()
    }
}

// === impl ApiClient ===

impl ApiClient {
    /// Builds the client, without sending a request.
    ///
    /// # Errors
    /// [`ConfigError::Client`] when certificates, keys or an exec plugin do not work.
    pub async fn connect(config: Config) -> Result<Self, ConfigError> {
        let host = config.host();
        let connections = Rotation::connect(config).await?;
        // Without kube-client's own client, where each request waits for a task of the runtime that made the client: the
        // election may have another runtime.
        let round_tripper = connections.map_response(boxed);
        Ok(Self { host: host.into(), ..Self::over(BoxCloneSyncService::new(round_tripper)) })
    }

    /// Wraps a client built elsewhere, for example over a `tower` service in tests.
    ///
    /// Turn the built-in retry of `inner` off: it repeats POSTs.
    #[must_use]
    pub fn new(inner: Client) -> Self {
        let round_tripper = service_fn(move |request| {
            let client = inner.clone();
            async move { Ok(client.send(request).await?.map(BodyExt::boxed_unsync)) }
        });
        Self::over(BoxCloneSyncService::new(round_tripper))
    }

    fn over(round_tripper: RoundTripper) -> Self {
        let layers = Layers {
            observer: None,
            gate: Arc::default(),
            metrics: RequestMetrics::unread(),
            reachability: Arc::default(),
            warnings: Arc::default(),
            user_agent: HeaderValue::from_str(&user_agent()).expect("the user agent is plain ASCII"),
            round_tripper,
        };
        Self {
            layers,
            host: "".into(),
            manager: labels::MANAGER,
            streams_lists: false,
            no_streams_until: Arc::default(),
            reads_protobuf: true,
            compresses_lists: false,
            plain_until: Arc::default(),
            not_after: None,
            turn: Turn::Waits,
        }
    }

    /// Sets whether the caches ask for lists as the beginning of a watch, where the server can do that, instead of in
    /// pages. It spares servers before Kubernetes 1.34, which read each page from etcd; later ones spend more processor
    /// time on it, because a watch copies each object and encodes it twice.
    #[must_use]
    pub fn with_streamed_lists(self, streams_lists: bool) -> Self {
        Self { streams_lists, ..self }
    }

    /// Sets whether the caches ask for built-in kinds as [protobuf](super::protobuf), which they do unless told otherwise.
    #[must_use]
    pub fn with_protobuf(self, reads_protobuf: bool) -> Self {
        Self { reads_protobuf, ..self }
    }

    /// Whether the caches ask for built-in kinds as protobuf.
    pub(crate) fn reads_protobuf(&self) -> bool {
        self.reads_protobuf
    }

    /// Sets whether the caches' lists ask for compressed answers: a tenth of the bytes over the network, for 2 ms of
    /// processor time for each megabyte. A server compresses streamed lists since Kubernetes 1.37; audits, and watches
    /// that do not begin with a list, are never compressed.
    #[must_use]
    pub fn with_compressed_lists(self, compresses_lists: bool) -> Self {
        Self { compresses_lists, ..self }
    }

    /// Lets the answer to the request of a list be compressed, if that is wanted.
    pub(crate) fn accept_compressed(&self, request: &mut Request<Body>) {
        if self.compresses_lists && self.plain_until.lock().is_none_or(|until| Instant::now() >= until) {
            request.headers_mut().insert(header::ACCEPT_ENCODING, HeaderValue::from_static("gzip"));
        }
    }

    /// Asks for plain lists for [`ASK_AGAIN`]: something on the way damages compressed ones.
    pub(crate) fn compressed_was_damaged(&self) {
        *self.plain_until.lock() = Some(Instant::now() + ASK_AGAIN);
    }

    /// Replaces the gate with a new one that has these limits.
    #[must_use]
    pub fn with_limits(mut self, limits: RequestLimits) -> Self {
        self.layers.gate = Arc::new(Gate::new(limits));
        self
    }

    /// Counts requests in `metrics`.
    #[must_use]
    pub fn with_metrics(mut self, metrics: &Metrics) -> Self {
        self.layers.metrics = metrics.requests(&self.host);
        self
    }

    /// Tells `observer` of each request but the lists and watches of the caches.
    #[must_use]
    pub fn with_observer(mut self, observer: Arc<dyn RequestObserver>) -> Self {
        self.layers.observer = Some(observer);
        self
    }

    /// Sets the name of the operator: the field manager of every write, and the value of the label
    /// [`MANAGED_BY`](labels::MANAGED_BY) by which controllers find their children. `windlass` by default.
    ///
    /// # Panics
    /// If the name cannot be a label's value: 1 to 63 letters, digits, `-`, `_` and `.`, with a letter or digit at both
    /// ends.
    #[must_use]
    pub fn with_manager(mut self, manager: &'static str) -> Self {
        assert!(labels::is_value(manager), "manager name {manager:?} is not a valid label value");
        self.manager = manager;
        self
    }

    /// Returns the name of the operator.
    #[must_use]
    pub fn manager(&self) -> &'static str {
        self.manager
    }

    /// Makes every write a dry run, which the server answers and does not store; see [`dry_run`](super::dry_run).
    #[must_use]
    pub fn with_dry_run(mut self) -> Self {
        self.layers.round_tripper = BoxCloneSyncService::new(DryRunService(self.layers.round_tripper));
        self
    }

    /// Returns a client whose requests are sent until this time only, and fail with [`Error::Stale`] after it. For writes
    /// that are decided on a live read: take the time before the read begins, so that the read is never older than the
    /// caller thinks; the time that it waits for the limits counts.
    #[must_use]
    pub fn not_after(&self, time: Instant) -> Self {
        Self { not_after: Some(time), ..self.clone() }
    }

    /// Waits for the turn of a read, and returns a client that sends the read at once, and one whose writes follow on it
    /// without waiting for the rate again; later requests wait longer for them. For a write that is decided on the read:
    /// under a low rate, the read would be too old by the write's turn, again and again.
    ///
    /// # Errors
    /// [`Error::NotSent`], during a shutdown.
    ///
    /// # Cancel safety
    /// Safe; a turn already taken from the rate stays taken.
    pub async fn turn(&self) -> Result<(Self, Self), Error> {
        let taken = self.layers.gate.turn().await;
        taken.map_err(|_| Error::NotSent { request: "wait for a turn".to_owned() })?;
        let with = |turn| Self { turn, ..self.clone() };
        Ok((with(Turn::Taken), with(Turn::Follows)))
    }

    /// Returns the gate that requests pass before they are sent.
    #[must_use]
    pub fn gate(&self) -> &Gate {
        &self.layers.gate
    }

    /// Reads one object from the API server, not from a cache: a *live read*.
    ///
    /// # Errors
    /// [`Error`]; a missing object is `Ok(None)`, a missing kind is an error.
    pub async fn get<T: DeserializeOwned>(
        &self,
        resource: &ApiResource,
        namespace: Option<&str>,
        name: &str,
    ) -> Result<Option<T>, Error> {
        self.read(resource, namespace, name, JSON).await
    }

    async fn read<T: DeserializeOwned>(
        &self,
        resource: &ApiResource,
        namespace: Option<&str>,
        name: &str,
        accept: &'static str,
    ) -> Result<Option<T>, Error> {
        let path = resource.object_path(namespace, name);
        match self.get_as(&path, accept).await {
            Ok(body) => self::decode(&body, || format!("GET {path}")).map(Some),
            // A 404 for an object names the object; a 404 for a kind does not.
            Err(e) if e.is_not_found() && names_an_object(&e, name) => Ok(None),
            Err(e) => Err(e),
        }
    }

    /// Lists the objects of one namespace (all, with `None`) live, without a selector.
    ///
    /// # Errors
    /// [`Error`]: an error is never an empty list, and an answer without `items` is an error.
    pub async fn list<T: DeserializeOwned + Send>(
        &self,
        resource: &ApiResource,
        namespace: Option<&str>,
    ) -> Result<Vec<T>, Error> {
        let mut objects = Vec::new();
        self.each_object(resource, namespace, "", |object| objects.push(object)).await?;
        Ok(objects)
    }

    /// Creates an object. A name that is taken is an error; nothing is overwritten.
    ///
    /// # Errors
    /// [`Error`]; see [`Error::is_already_exists`] and [`Error::is_refused`].
    pub async fn create<T: DeserializeOwned>(
        &self,
        resource: &ApiResource,
        namespace: Option<&str>,
        object: &Value,
    ) -> Result<T, Error> {
        let target = Target { resource, namespace, name: None, is_status: false };
        self.write(Method::POST, target, object, JSON).await
    }

    /// Replaces an object with one built from a live read. The uid and resource version in `object` make the server
    /// refuse the write if the object has changed since.
    ///
    /// # Errors
    /// [`Error`]; see [`Error::is_conflict`] and [`Error::is_refused`].
    pub async fn replace<T: DeserializeOwned>(
        &self,
        resource: &ApiResource,
        namespace: Option<&str>,
        name: &str,
        object: &Value,
    ) -> Result<T, Error> {
        debug_assert!(
            object.pointer("/metadata/resourceVersion").is_some_and(Value::is_string),
            "an update carries a version"
        );
        self.write(Method::PUT, Target::object(resource, namespace, name), object, JSON).await
    }

    /// Applies a strategic merge patch to an object of a built-in kind. The patch carries uid and resource version, so
    /// the server refuses it if the object has changed since.
    ///
    /// # Errors
    /// [`Error`]; see [`Error::is_conflict`] and [`Error::is_refused`].
    pub async fn patch_strategic<T: DeserializeOwned>(
        &self,
        resource: &ApiResource,
        namespace: Option<&str>,
        name: &str,
        patch: &Value,
    ) -> Result<T, Error> {
        debug_assert!(
            patch.pointer("/metadata/resourceVersion").is_some_and(Value::is_string),
            "an update carries a version"
        );
        let target = Target::object(resource, namespace, name);
        self.write(Method::PATCH, target, patch, "application/strategic-merge-patch+json").await
    }

    /// Applies a merge patch, in which a list is replaced as a whole, to an object of any kind; as
    /// [`patch_strategic`](Self::patch_strategic).
    ///
    /// # Errors
    /// [`Error`]; see [`Error::is_conflict`] and [`Error::is_refused`].
    pub async fn patch_merge<T: DeserializeOwned>(
        &self,
        resource: &ApiResource,
        namespace: Option<&str>,
        name: &str,
        patch: &Value,
    ) -> Result<T, Error> {
        debug_assert!(
            patch.pointer("/metadata/resourceVersion").is_some_and(Value::is_string),
            "an update carries a version"
        );
        self.write(Method::PATCH, Target::object(resource, namespace, name), patch, MERGE_PATCH).await
    }

    /// Replaces the finalizers of the object with this uid and resource version.
    ///
    /// # Errors
    /// [`Error`]; see [`Error::is_conflict`].
    pub async fn set_finalizers<T: DeserializeOwned>(
        &self,
        resource: &ApiResource,
        (namespace, name): (Option<&str>, &str),
        (uid, resource_version): (&str, &str),
        finalizers: &[String],
    ) -> Result<T, Error> {
        let metadata = json!({"uid": uid, "resourceVersion": resource_version, "finalizers": finalizers});
        let patch = json!({"metadata": metadata});
        self.write(Method::PATCH, Target::object(resource, namespace, name), &patch, MERGE_PATCH).await
    }

    /// Replaces the status of the object with this uid and resource version, as client-go's `UpdateStatus` does; the rest
    /// of the object is neither sent nor changed.
    ///
    /// # Errors
    /// [`Error`]; see [`Error::is_conflict`].
    pub async fn update_status<T: DeserializeOwned>(
        &self,
        resource: &ApiResource,
        (namespace, name): (Option<&str>, &str),
        (uid, resource_version): (&str, &str),
        status: &Value,
    ) -> Result<T, Error> {
        let metadata =
            json!({"name": name, "namespace": namespace, "uid": uid, "resourceVersion": resource_version});
        let object = json!({"apiVersion": resource.api_version(), "kind": resource.kind, "metadata": metadata,
            "status": status});
        let target = Target { is_status: true, ..Target::object(resource, namespace, name) };
        self.write(Method::PUT, target, &object, JSON).await
    }

    /// Sets one annotation of the object at this resource version.
    ///
    /// # Errors
    /// [`Error`]; see [`Error::is_conflict`].
    pub async fn annotate<T: DeserializeOwned>(
        &self,
        resource: &ApiResource,
        object: (Option<&str>, &str),
        resource_version: &str,
        (key, value): (&str, &str),
    ) -> Result<T, Error> {
        let patch = json!({"metadata": {"resourceVersion": resource_version, "annotations": {key: value}}});
        self.write(Method::PATCH, Target::object(resource, object.0, object.1), &patch, MERGE_PATCH).await
    }

    /// Deletes the object with this uid and resource version, with background propagation.
    ///
    /// # Errors
    /// [`Error`]; a conflict if the object has changed, not found if it is gone.
    pub async fn delete(
        &self,
        resource: &ApiResource,
        namespace: Option<&str>,
        name: &str,
        uid: &str,
        resource_version: &str,
    ) -> Result<(), Error> {
        let options = json!({
            "kind": "DeleteOptions",
            "apiVersion": "v1",
            "preconditions": {"uid": uid, "resourceVersion": resource_version},
            "propagationPolicy": "Background",
        });
        let target = Target::object(resource, namespace, name);
        self.send_write(Method::DELETE, target, &options, JSON).await.map(drop)
    }

    /// Whether the server returned only moments ago, so that a 403 may mean "not loaded yet".
    #[must_use]
    pub fn is_settling(&self) -> bool {
        self.layers.reachability.is_settling()
    }

    /// Waits until a server that was lost for a while serves a request of any clone, if none has been since `asked`.
    pub(crate) async fn is_back(&self, asked: Instant) {
        self.layers.reachability.is_back(asked).await;
    }

    async fn get_as(&self, path: &str, accept: &'static str) -> Result<Bytes, Error> {
        self.call(Call { accept, ..Call::new(Passage::Read, Method::GET, path, None) }).await
    }

    /// Sends a request through all layers, and returns the answer's body.
    async fn call(&self, call: Call<'_>) -> Result<Bytes, Error> {
        let Call { passage, method, path, body, content_type, accept, resource } = call;
        let name = format!("{method} {path}");
        let body = body.map(Value::to_string).unwrap_or_default();
        let http = Request::builder()
            .method(method)
            .uri(path)
            .header(header::CONTENT_TYPE, HeaderValue::from_static(content_type))
            .header(header::ACCEPT, HeaderValue::from_static(accept))
            // Bytes are cheap inside a cluster.
            .header(header::ACCEPT_ENCODING, HeaderValue::from_static("identity"))
            .body(Body::from(body.into_bytes()));
        let mut http = http.map_err(|e| Error::Transport { request: name.clone(), source: Box::new(e) })?;
        if let Some(resource) = resource {
            http.extensions_mut().insert(resource.clone());
        }
        let lane = if passage == Passage::Election { Lane::Election } else { Lane::Sync };
        http.extensions_mut().insert(lane);
        let outgoing = Outgoing { http, name, timeout: timeout_of(passage) };
        let (turn, not_after) = (self.turn, self.not_after);
        self.layers.call(GatedRequest { outgoing, passage, turn, not_after, sent_signal: None }).await
    }

    /// Sends a request and returns the answer with its body unread; `timeout` covers the head alone.
    ///
    /// # Errors
    /// [`Error`]; an answer other than success is [`Error::Status`].
    pub(crate) async fn open(
        &self,
        name: &str,
        http: Request<Body>,
        timeout: Duration,
    ) -> Result<Response<AnswerBody>, Error> {
        self.layers.open(Outgoing { http, name: name.to_owned(), timeout }).await
    }

    /// Records the size of an answer's body.
    pub(in crate::client) fn received(&self, method: &Method, bytes: usize) {
        self.layers.metrics.received(method.as_str(), bytes);
    }

    /// Whether a list is to be the beginning of a watch, which the server can do for a kind, as far as known.
    pub(crate) fn can_stream_lists(&self, of: &ApiResource) -> bool {
        self.streams_lists
            && self.no_streams_until.lock().get(&of.to_string()).is_none_or(|until| Instant::now() >= *until)
    }

    /// Remembers for [`ASK_AGAIN`] that the server cannot stream lists of a kind: it may be upgraded. Another kind may
    /// be served by another program.
    pub(crate) fn cannot_stream_lists(&self, of: &ApiResource) {
        self.no_streams_until.lock().insert(of.to_string(), Instant::now() + ASK_AGAIN);
    }

    /// The error of an answer that ceased to arrive.
    pub(in crate::client) fn timed_out(&self, name: &str, after: Duration) -> Error {
        self.layers.reachability.timed_out(name.to_owned(), after)
    }
}

/// How long a request may be without its answer.
fn timeout_of(passage: Passage) -> Duration {
    match passage {
        Passage::Read | Passage::Election => READ_TIMEOUT,
        Passage::Write | Passage::Event => WRITE_TIMEOUT,
    }
}

fn decode<T: DeserializeOwned>(body: &[u8], request: impl FnOnce() -> String) -> Result<T, Error> {
    let decoded = serde_json::from_slice(body).map_err(|error| without_values(&error));
    decoded.map_err(|source| Error::Decode { request: request(), source })
}

/// Whether a 404 is about this object. A 404 about the whole resource (its CRD is gone) does not
/// mean that the object is absent.
fn names_an_object(error: &Error, name: &str) -> bool {
    error.status().is_some_and(|status| status.message.contains(&format!("\"{name}\"")))
}

/// Returns `windlass/<version> (<os>/<arch>)`, with Go's names for OS and architecture.
fn user_agent() -> String {
    let os = match std::env::consts::OS {
        "macos" => "darwin",
        other => other,
    };
    let arch = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    };
    format!("windlass/{} ({os}/{arch})", env!("CARGO_PKG_VERSION"))
}

mod conveniences;
mod discovery;
mod events;
mod leases;
mod metadata;
mod reviews;
mod writes;

pub use discovery::ServedKind;
pub(crate) use metadata::{METADATA_OF_LIST, METADATA_OF_ONE};
use writes::Target;

#[cfg(test)]
mod tests;
