//! The gate between one operator and its API server: records calls, may hold one, and may serve a stale list.
//!
//! The gate also simulates flawed operators by altering their requests.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use http_body_util::{BodyExt, Full};
use parking_lot::Mutex;
use serde_json::Value;
use tokio::sync::oneshot;
use tower::Service;
use windlass::sim::{ConnectionError, InProcessTransport, Sim};

use crate::plans::call::{Call, Made, Reply, Sent};

/// More requests than any plan needs. An operator that exceeds this number is in a loop and is cut off.
const CALLS_MAX: usize = 5_000;

/// The latency of a request, which bounds how fast two disagreeing operators react to each other.
const LATENCY: Duration = Duration::from_millis(20);

/// A deliberate defect of the operator, which the plans must detect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Flaw {
    None,
    /// Deletes carry no preconditions, and updates of built-in kinds carry neither uid nor resource version.
    WritesBlindly,
    /// Live reads of the owner are served from the server's watch cache.
    ReadsOldOwner,
}

/// The scope of a hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Hold {
    /// The whole operator is suspended: none of its requests arrive, and its watches are silent.
    Operator,
    /// Only the call is held.
    Call,
}

/// See the module.
#[derive(Clone)]
pub(super) struct OperatorGate {
    /// The operator's user name.
    user: &'static str,
    sim: Sim,
    transport: InProcessTransport,
    /// The transport of a held call.
    late: InProcessTransport,
    flaw: Flaw,
    /// The plural of the custom resource.
    owners: &'static str,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Whether calls are recorded.
    is_open: bool,
    made: Vec<Made>,
    /// The number of requests, watches included.
    sent: usize,
    seen: BTreeMap<(&'static str, String, String), usize>,
    /// The number of requests other than watches; it grows while the operator is busy.
    activity: usize,
    planned: Option<(Call, Hold)>,
    was_reached: bool,
    held: Option<Held>,
    /// The resource whose first list is answered at an earlier version, and that version.
    listed_at: Option<(&'static str, u64)>,
    has_listed_the_past: bool,
}

struct Held {
    request: Sent,
    reply: oneshot::Sender<Result<Reply, ConnectionError>>,
}

// === impl OperatorGate ===

impl OperatorGate {
    pub(super) fn new(
        sim: &Sim,
        user: &'static str,
        server: usize,
        owners: &'static str,
        flaw: Flaw,
    ) -> Self {
        let transport = InProcessTransport::new(sim, user).to_server(server);
        let late = InProcessTransport::new(sim, "late").to_server(server);
        Self { user, sim: sim.clone(), transport, late, flaw, owners, shared: Arc::default() }
    }

    /// Starts to record calls, and holds the planned one.
    pub(super) fn open(&self, planned: Option<(Call, Hold)>) {
        let mut state = self.shared.state.lock();
        state.is_open = true;
        state.planned = planned;
    }

    /// Answers the first list of a resource at this version.
    pub(super) fn list_at(&self, plural: &'static str, version: u64) {
        self.shared.state.lock().listed_at = Some((plural, version));
    }

    pub(super) fn has_listed_the_past(&self) -> bool {
        self.shared.state.lock().has_listed_the_past
    }

    pub(super) fn was_reached(&self) -> bool {
        self.shared.state.lock().was_reached
    }

    pub(super) fn made(&self) -> Vec<Made> {
        self.shared.state.lock().made.clone()
    }

    pub(super) fn activity(&self) -> usize {
        self.shared.state.lock().activity
    }

    /// Counts the writes, except those of Events.
    pub(super) fn writes(&self) -> usize {
        let state = self.shared.state.lock();
        state.made.iter().filter(|made| made.call.is_write() && !made.call.is_for_events()).count()
    }

    /// Whether the operator has exceeded `CALLS_MAX`.
    pub(super) fn is_in_a_loop(&self) -> bool {
        self.shared.state.lock().sent > CALLS_MAX
    }

    /// Sends the held call, before any later request of the same operator.
    pub(super) async fn release(&self) {
        let held = self.shared.state.lock().held.take();
        if let Some(Held { request, reply }) = held {
            let answer = self.late.clone().call(request).await;
            // The sender may have timed out.
            drop(reply.send(answer));
        }
        self.sim.suspend(self.user, false);
    }

    /// Records a call; returns its index, and the hold if the call is the planned one.
    fn note(&self, mut call: Call) -> (Option<usize>, Option<Hold>) {
        let mut state = self.shared.state.lock();
        state.sent += 1;
        if call.verb != "watch" {
            state.activity += 1;
        }
        if !state.is_open {
            return (None, None);
        }
        let seen = state.seen.entry((call.verb, call.resource.clone(), call.name.clone())).or_default();
        *seen += 1;
        call.nth = *seen;
        let hold = state.planned.take_if(|(planned, _)| *planned == call).map(|(_, hold)| hold);
        state.was_reached |= hold.is_some();
        state.made.push(Made { call, code: 0 });
        (Some(state.made.len() - 1), hold)
    }

    /// Alters a request as the flaw or the stale list demands, and returns its body.
    fn changed(&self, head: &mut http::request::Parts, body: Bytes, call: &Call) -> Bytes {
        let is_live_read = call.verb == "get" && call.resource == self.owners;
        if self.flaw == Flaw::ReadsOldOwner && is_live_read {
            ask_for(head, "resourceVersion=0");
        }
        let mut state = self.shared.state.lock();
        let is_first_list = |(plural, _): &mut (&str, u64)| call.verb == "list" && call.resource == *plural;
        // Later pages continue at the first page's version.
        if let Some((_, version)) = state.listed_at.take_if(is_first_list) {
            ask_for(head, &format!("resourceVersion={version}&resourceVersionMatch=Exact"));
            state.has_listed_the_past = true;
        }
        if self.flaw == Flaw::WritesBlindly { blindly(head, body, call, self.owners) } else { body }
    }

    async fn pass<B>(self, request: http::Request<B>) -> Result<Reply, ConnectionError>
    where
        B: http_body::Body<Data = Bytes>,
    {
        let (mut head, body) = request.into_parts();
        let body = body.collect().await.map_err(|_| ConnectionError::Reset)?.to_bytes();
        let request = http::Request::from_parts(head.clone(), Full::new(body.clone()));
        let call = Call::of(&request, &body);
        let body = self.changed(&mut head, body, &call);
        let request = http::Request::from_parts(head, Full::new(body));
        let (at, hold) = self.note(call);
        if self.is_in_a_loop() {
            return std::future::pending().await;
        }
        tokio::time::sleep(LATENCY).await;
        let reply = match hold {
            None => self.transport.clone().call(request).await,
            Some(hold) => self.hold(request, hold).await,
        };
        if let (Some(at), Ok(reply)) = (at, &reply) {
            self.shared.state.lock().made[at].code = reply.status().as_u16();
        }
        reply
    }

    async fn hold(&self, request: Sent, hold: Hold) -> Result<Reply, ConnectionError> {
        if hold == Hold::Operator {
            self.sim.suspend(self.user, true);
        }
        let (reply, answer) = oneshot::channel();
        self.shared.state.lock().held = Some(Held { request, reply });
        answer.await.unwrap_or(Err(ConnectionError::Reset))
    }
}

fn ask_for(head: &mut http::request::Parts, parameters: &str) {
    let separator = if head.uri.query().is_some() { '&' } else { '?' };
    head.uri = format!("{}{separator}{parameters}", head.uri).parse().expect("the URI is valid");
}

/// Removes preconditions from a body, so that the server accepts it for any state of the object. Replacements of
/// custom resources are left alone, because the server requires a version for them.
fn blindly(head: &http::request::Parts, body: Bytes, call: &Call, owners: &str) -> Bytes {
    let Ok(Value::Object(mut object)) = serde_json::from_slice(&body) else { return body };
    let is_update = head.method == http::Method::PUT && !call.resource.starts_with(owners);
    if head.method == http::Method::DELETE {
        object.remove("preconditions");
    } else if let (true, Some(Value::Object(metadata))) =
        (is_update || head.method == http::Method::PATCH, object.get_mut("metadata"))
    {
        metadata.remove("uid");
        metadata.remove("resourceVersion");
    }
    Value::Object(object).to_string().into()
}

impl<B> Service<http::Request<B>> for OperatorGate
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
{
    type Response = Reply;
    type Error = ConnectionError;
    type Future = BoxFuture<'static, Result<Reply, ConnectionError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<B>) -> Self::Future {
        Box::pin(self.clone().pass(request))
    }
}
