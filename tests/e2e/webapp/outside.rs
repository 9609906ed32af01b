//! The HTTP endpoint of a WebApp's tasks. It records operations and can lose answers, hold them back, or refuse.

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::sync::Arc;

use http::{HeaderValue, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use serde_json::Value;
use tokio::net::TcpListener;
use tokio::sync::Notify;
use tokio::task::JoinSet;

use crate::support::canary::CANARY;
use crate::support::wait_until;

#[derive(Debug, Default)]
struct Ledger {
    known: BTreeSet<String>,
    /// `task.hook@generation` of each operation, in the order in which they took effect.
    effects: Vec<String>,
    /// The number of requests to answer before one is held.
    hold: Option<usize>,
    repeats: usize,
    /// The refused hooks, as `task.hook`, and the codes of the refusals.
    refused: BTreeMap<String, StatusCode>,
    /// Chooses the answers to lose; `None` loses none.
    losses: Option<fastrand::Rng>,
    /// Notified to answer held requests.
    release: Arc<Notify>,
}

/// See the module.
pub(crate) struct Outside {
    port: u16,
    ledger: Arc<Mutex<Ledger>>,
    _server: JoinSet<()>,
}

impl Outside {
    /// Starts an endpoint that loses some answers.
    pub(crate) async fn start_with_losses(seed: u64) -> Self {
        Self::start_as(Ledger { losses: Some(fastrand::Rng::with_seed(seed)), ..Ledger::default() }).await
    }

    pub(crate) async fn start() -> Self {
        Self::start_as(Ledger::default()).await
    }

    async fn start_as(ledger: Ledger) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let ledger = Arc::new(Mutex::new(ledger));
        let mut server = JoinSet::new();
        server.spawn(serve(listener, ledger.clone()));
        Self { port, ledger, _server: server }
    }

    /// Returns the URL, with a secret.
    pub(crate) fn url(&self) -> String {
        format!("http://127.0.0.1:{}/hooks?token={CANARY}", self.port)
    }

    pub(crate) fn effects(&self) -> Vec<String> {
        self.ledger.lock().effects.clone()
    }

    /// Counts the requests for operations that had already taken effect.
    pub(crate) fn repeats(&self) -> usize {
        self.ledger.lock().repeats
    }

    /// Answers `more` requests; the next one takes effect, but its answer is held until `release`.
    pub(crate) fn hold_after(&self, more: usize) {
        self.ledger.lock().hold = Some(more);
    }

    /// Answers the held requests.
    pub(crate) fn release(&self) {
        self.ledger.lock().release.notify_waiters();
    }

    /// Refuses a hook, given as `task.hook`, from now on.
    pub(crate) fn refuse(&self, what: &str, code: StatusCode) {
        self.ledger.lock().refused.insert(what.to_owned(), code);
    }

    /// Stops refusing.
    pub(crate) fn heal(&self) {
        self.ledger.lock().refused.clear();
    }

    /// Waits until the request of `hold_after` has arrived.
    pub(crate) async fn until_held(&self) {
        wait_until("a request is held", async || {
            let left = self.ledger.lock().hold;
            if left.is_none() { Ok(()) } else { Err(left) }
        })
        .await;
    }
}

async fn serve(listener: TcpListener, ledger: Arc<Mutex<Ledger>>) {
    let mut connections = JoinSet::new();
    loop {
        let Ok((stream, _)) = listener.accept().await else { continue };
        let ledger = ledger.clone();
        let service = service_fn(move |request| answer(request, ledger.clone()));
        connections.spawn(async move {
            // A connection error is intended: it loses an answer.
            drop(http1::Builder::new().serve_connection(TokioIo::new(stream), service).await);
        });
        while connections.try_join_next().is_some() {}
    }
}

/// Answers a request. An error breaks the connection, so that the answer is lost.
async fn answer(
    request: Request<Incoming>,
    ledger: Arc<Mutex<Ledger>>,
) -> Result<Response<Full<Bytes>>, Lost> {
    let key = request.headers()["idempotency-key"].to_str().unwrap_or_default().to_owned();
    let body = request.into_body().collect().await.map_err(|_| Lost)?.to_bytes();
    let call: Value = serde_json::from_slice(&body).map_err(|_| Lost)?;
    assert_eq!(call["operationID"], key, "header and body name the same operation");
    let (answer, release) = {
        let mut ledger = ledger.lock();
        (ledger.answer(&key, &call), ledger.release.clone().notified_owned())
    };
    match answer {
        Some(answer) => answer,
        // The client may be killed meanwhile.
        None => {
            release.await;
            Ok(reply(StatusCode::OK, String::new()))
        }
    }
}

impl Ledger {
    /// Applies a request and returns the answer, or `None` to hold it.
    fn answer(&mut self, key: &str, call: &Value) -> Option<Result<Response<Full<Bytes>>, Lost>> {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let what = format!("{}.{}", text(&call["task"]), text(&call["hook"]));
        if let Some(code) = self.refused.get(&what) {
            return Some(Ok(reply(*code, String::new())));
        }
        let is_new = self.known.insert(key.to_owned());
        if is_new {
            self.effects.push(format!("{what}@{}", call["webapp"]["generation"]));
        } else {
            self.repeats += 1;
        }
        match self.hold {
            Some(0) => {
                self.hold = None;
                return None;
            }
            Some(more) => self.hold = Some(more - 1),
            None => {}
        }
        if !is_new {
            let body = serde_json::json!({"operationID": key}).to_string();
            return Some(Ok(reply(StatusCode::CONFLICT, body)));
        }
        Some(match self.losses.as_mut().map_or(3, |random| random.u8(0..4)) {
            0 => Err(Lost),
            1 => Ok(reply(StatusCode::SERVICE_UNAVAILABLE, String::new())),
            _ => Ok(reply(StatusCode::OK, String::new())),
        })
    }
}

fn reply(code: StatusCode, body: String) -> Response<Full<Bytes>> {
    let body = if body.is_empty() { CANARY.to_owned() } else { body };
    let mut response = Response::new(Full::new(Bytes::from(body)));
    *response.status_mut() = code;
    response.headers_mut().insert("x-secret", HeaderValue::from_static(CANARY));
    response
}

#[derive(Debug, thiserror::Error)]
#[error("the answer is lost on purpose")]
struct Lost;

impl From<Infallible> for Lost {
    fn from(never: Infallible) -> Self {
        match never {}
    }
}
