//! The way from one operator to its API server: calls are counted, one may be held, a view may be old.
//!
//! Known-bad operators are made here: what they send is changed on its way.

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

/// More than any plan needs; who sends more is in a loop, and nothing more of it passes.
const CALLS_MAX: usize = 5_000;

/// How long a request is under way: two operators that disagree answer each other no faster.
const LATENCY: Duration = Duration::from_millis(20);

/// How an operator is worse than the program's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Flaw {
    None,
    /// Deletes carry no preconditions, and what changes a built-in object carries neither uid nor version.
    WritesBlindly,
    /// Live reads of the owner are answered by the cache of the server.
    ReadsOldOwner,
}

/// How the sender of a held call fares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Hold {
    /// All of the operator stands still: nothing that it sends arrives, and its watches are silent.
    Operator,
    /// Only the call is held.
    Call,
}

/// See the module.
#[derive(Clone)]
pub(super) struct Gate {
    /// What it is called by the server.
    user: &'static str,
    sim: Sim,
    door: InProcessTransport,
    /// The way of a call that was held.
    late: InProcessTransport,
    flaw: Flaw,
    /// The plural of the owners.
    owners: &'static str,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Calls count.
    is_open: bool,
    made: Vec<Made>,
    /// All that was sent, watches included.
    sent: usize,
    seen: BTreeMap<(&'static str, String, String), usize>,
    /// All that is no watch: while this grows, it is not quiet.
    activity: usize,
    planned: Option<(Call, Hold)>,
    was_reached: bool,
    held: Option<Held>,
    /// Of which resource the first list is as of which version.
    listed_at: Option<(&'static str, u64)>,
    has_listed_the_past: bool,
}

struct Held {
    request: Sent,
    reply: oneshot::Sender<Result<Reply, ConnectionError>>,
}

// === impl Gate ===

impl Gate {
    pub(super) fn new(
        sim: &Sim,
        user: &'static str,
        server: usize,
        owners: &'static str,
        flaw: Flaw,
    ) -> Self {
        let door = InProcessTransport::new(sim, user).to_server(server);
        let late = InProcessTransport::new(sim, "late").to_server(server);
        Self { user, sim: sim.clone(), door, late, flaw, owners, shared: Arc::default() }
    }

    /// From now on calls count, and this one is held.
    pub(super) fn open(&self, planned: Option<(Call, Hold)>) {
        let mut state = self.shared.state.lock();
        state.is_open = true;
        state.planned = planned;
    }

    /// The first list of a resource is as if it was made at this version.
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

    /// Writes so far, Events left out.
    pub(super) fn writes(&self) -> usize {
        let state = self.shared.state.lock();
        state.made.iter().filter(|made| made.call.is_write() && !made.call.is_for_events()).count()
    }

    /// Whether it has sent more than it can have a reason for.
    pub(super) fn is_in_a_loop(&self) -> bool {
        self.shared.state.lock().sent > CALLS_MAX
    }

    /// Carries out the held call, before anything that its sender has sent since.
    pub(super) async fn release(&self) {
        let held = self.shared.state.lock().held.take();
        if let Some(Held { request, reply }) = held {
            let answer = self.late.clone().call(request).await;
            // Its sender may have given up.
            drop(reply.send(answer));
        }
        self.sim.suspend(self.user, false);
    }

    /// Notes a call; returns its place, and whether it is the planned one.
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

    /// The request as it arrives: changed by the flaw, or asking for the past.
    fn changed(&self, head: &mut http::request::Parts, body: Bytes, call: &Call) -> Bytes {
        let is_live_read = call.verb == "get" && call.resource == self.owners;
        if self.flaw == Flaw::ReadsOldOwner && is_live_read {
            ask_for(head, "resourceVersion=0");
        }
        let mut state = self.shared.state.lock();
        let is_first_list = |(plural, _): &mut (&str, u64)| call.verb == "list" && call.resource == *plural;
        // Later pages follow from the first.
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
            None => self.door.clone().call(request).await,
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
    head.uri = format!("{}{separator}{parameters}", head.uri).parse().expect("it is a path and a query");
}

/// The body without what makes the server refuse it for another state than was read. Custom resources are
/// replaced with a version or not at all.
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

impl<B> Service<http::Request<B>> for Gate
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
