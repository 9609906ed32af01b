//! The layer of a dry run: sends each write marked, so that the server answers it and stores nothing.
//!
//! Mirrors `kubectl diff`: a read of the live object, and the write with `dryRun=All`.
//! Flow: client -> **dry run** -> connections
//!
//! # Guarantees
//! - No write is sent unmarked; events and Leases are not sent at all.
//!   (test: `every_write_of_a_dry_run_is_marked`, `a_dry_run_writes_no_events_or_leases`)

use std::task::{Context, Poll};

use bytes::Bytes;
use futures_util::future::BoxFuture;
use http::{Method, Request, Response, StatusCode, Uri};
use http_body_util::BodyExt;
use kube_client::client::Body;
use serde_json::{Value, json};
use tower::{BoxError, Service, ServiceExt};

use super::{Change, Effect, Write, changes, push};
use crate::api::ApiResource;
use crate::client::error::{Error, ServerStatus};
use crate::client::layers::{AnswerBody, RoundTripper, whole};

/// Marks writes, and records each as an [`Effect`] of the sync that sends it. It reads the live object before each update,
/// which the client's limits do not count.
#[derive(Clone)]
pub(in crate::client) struct DryRunService(pub(in crate::client) RoundTripper);

impl Service<Request<Body>> for DryRunService {
    type Response = Response<AnswerBody>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Response<AnswerBody>, BoxError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let round_tripper = self.0.clone();
        Box::pin(async move {
            match Kind::of(&request) {
                Kind::Question => round_tripper.oneshot(request).await,
                Kind::AboutOurselves => Ok(refused()),
                Kind::Write => write(&round_tripper, request).await,
            }
        })
    }
}

/// What a dry run does with a request.
enum Kind {
    /// A read, or a review, which is never stored: sent as it is.
    Question,
    /// An event or a Lease, which concerns nobody: not sent.
    AboutOurselves,
    /// Any other write: marked.
    Write,
}

impl Kind {
    fn of(request: &Request<Body>) -> Self {
        let path = request.uri().path();
        let is_of = |group: &str| path.starts_with(&format!("/apis/{group}/"));
        if request.method() == Method::GET || is_of("authentication.k8s.io") || is_of("authorization.k8s.io")
        {
            Self::Question
        } else if is_of("events.k8s.io") || is_of("coordination.k8s.io") {
            Self::AboutOurselves
        } else {
            Self::Write
        }
    }
}

/// Sends a write marked, after a read of the object that an update changes: the write carries a version, so it fails if
/// the object has changed since.
async fn write(
    round_tripper: &RoundTripper,
    request: Request<Body>,
) -> Result<Response<AnswerBody>, BoxError> {
    let (mut parts, body) = request.into_parts();
    let sent: Value = serde_json::from_slice(&body.collect().await?.to_bytes()).unwrap_or_default();
    let resource = parts.extensions.get::<ApiResource>().cloned();
    let written = resource.map(|resource| draft(&parts.method, parts.uri.path(), &resource, &sent));
    let is_update = parts.method == Method::PATCH || parts.method == Method::PUT;
    let live = if is_update { live(round_tripper, parts.uri.path()).await } else { None };
    let separator = if parts.uri.query().is_some() { '&' } else { '?' };
    parts.uri = Uri::try_from(format!("{}{separator}dryRun=All", parts.uri))?;
    let method = parts.method.clone();
    let mut marked = sent.clone();
    if method == Method::DELETE {
        // A server ignores the query of a delete that has a body.
        marked["dryRun"] = json!(["All"]);
    }
    let marked = Request::from_parts(parts, Body::from(marked.to_string().into_bytes()));
    let answer = round_tripper.clone().oneshot(marked).await?;
    let (head, body) = answer.into_parts();
    let body = body.collect().await?.to_bytes();
    let outcome = outcome(&method, &sent, live.as_ref(), head.status, &body);
    if let (Some(written), Some(outcome)) = (written, outcome) {
        push(|| Effect::Write(Write { outcome, ..written }));
    }
    Ok(Response::from_parts(head, whole(body)))
}

/// Describes a write, without its outcome.
fn draft(method: &Method, path: &str, resource: &ApiResource, sent: &Value) -> Write {
    let namespace = path.split_once("/namespaces/").and_then(|(_, rest)| rest.split('/').next());
    let object = path.strip_prefix(&resource.path(namespace)).unwrap_or_default().trim_start_matches('/');
    let (name, is_status) = match object.strip_suffix("/status") {
        Some(name) => (name, true),
        None => (object, false),
    };
    let of_body = sent.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default();
    Write {
        verb: match *method {
            Method::POST => "create",
            Method::DELETE => "delete",
            _ => "patch",
        },
        kind: resource.kind.to_string(),
        namespace: namespace.map(str::to_owned),
        name: if name.is_empty() { of_body.to_owned() } else { unescaped(name) },
        is_status,
        outcome: Ok(Vec::new()),
    }
}

/// Returns the text of an escaped segment of a URL path.
fn unescaped(segment: &str) -> String {
    let mut pairs = form_urlencoded::parse(segment.as_bytes());
    pairs.next().map(|(name, _)| name.into_owned()).unwrap_or_default()
}

/// Reads the object at this path; `None` if that fails.
async fn live(round_tripper: &RoundTripper, path: &str) -> Option<Value> {
    let path = path.strip_suffix("/status").unwrap_or(path);
    let answer = round_tripper.clone().oneshot(Request::get(path).body(Body::empty()).ok()?).await.ok()?;
    if !answer.status().is_success() {
        return None;
    }
    let body = answer.into_body().collect().await.ok()?.to_bytes();
    serde_json::from_slice(&body).ok()
}

/// Returns what an answered write would change, or the refusal; `None` if the sync itself deals with the answer: it
/// reads again and decides anew, or fails.
fn outcome(
    method: &Method,
    sent: &Value,
    before: Option<&Value>,
    code: StatusCode,
    body: &Bytes,
) -> Option<Result<Vec<Change>, ServerStatus>> {
    if !code.is_success() {
        let status = ServerStatus::parse(code.as_u16(), None, body);
        let error = Error::Status { request: String::new(), status: Box::new(status.clone()) };
        return error.is_refused().then_some(Err(status));
    }
    let answer: Value = serde_json::from_slice(body).unwrap_or_default();
    Some(Ok(match before {
        _ if *method == Method::DELETE => Vec::new(),
        Some(before) => changes::of_update(before, &answer),
        None => changes::of_create(sent, &answer),
    }))
}

/// Answers for the server that this is not written.
fn refused() -> Response<AnswerBody> {
    let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 403, "reason": "Forbidden",
        "message": "a dry run writes no events and no Leases"});
    let mut answer = Response::new(whole(status.to_string()));
    *answer.status_mut() = StatusCode::FORBIDDEN;
    answer
}
