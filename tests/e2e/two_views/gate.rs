//! The gate between one operator and its API server: records and checks calls, may hold one or kill the operator at it,
//! and may serve a stale list.
//!
//! Flow: operator -> **gate** (`flaw` alters requests, `lint` judges them) -> server

use std::collections::BTreeMap;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use http_body_util::{BodyExt, Full};
use parking_lot::Mutex;
use tokio::sync::oneshot;
use tower::Service;
use windlass::sim::{ConnectionError, InProcessTransport, Sim};

use super::flaw::Flaw;
use super::lint::Lint;
use crate::plans::call::{Call, Made, Reply, Sent};

/// More requests than any plan needs. An operator that exceeds this number is in a loop and is cut off.
const CALLS_MAX: usize = 5_000;

/// The latency of a request, which bounds how fast two disagreeing operators react to each other.
const LATENCY: Duration = Duration::from_millis(20);

/// The scope of a hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Hold {
    /// The whole operator is suspended: none of its requests arrive, and its watches are silent.
    Operator,
    /// Only the call is held.
    Call,
    /// The operator dies: none of its requests arrive any more. The server may have carried out the call.
    Death { is_applied: bool },
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
    /// The number of recorded calls before the one at which the operator dies.
    dies_after: Option<usize>,
    is_dead: bool,
    is_suspended: bool,
    was_reached: bool,
    held: Option<Held>,
    /// The resource whose first list is answered at an earlier version, and that version.
    listed_at: Option<(&'static str, u64)>,
    has_listed_the_past: bool,
    lint: Lint,
}

struct Held {
    request: Sent,
    call: Call,
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

    /// Starts to record calls; the operator dies at the `nth`.
    pub(super) fn dies_at(&self, nth: usize) {
        self.open(None);
        self.shared.state.lock().dies_after = Some(nth - 1);
    }

    /// The operator dies at no further call.
    pub(super) fn spare(&self) {
        self.shared.state.lock().dies_after = None;
    }

    /// Forwards nothing more.
    pub(super) fn close(&self) {
        self.shared.state.lock().is_dead = true;
    }

    pub(super) fn is_dead(&self) -> bool {
        self.shared.state.lock().is_dead
    }

    pub(super) fn is_suspended(&self) -> bool {
        self.shared.state.lock().is_suspended
    }

    /// Returns the calls that no operator may make.
    pub(super) fn forbidden(&self) -> Vec<String> {
        self.shared.state.lock().lint.forbidden()
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
        if let Some(Held { request, call, reply }) = held {
            let answer = self.flaw.send(&self.late, request, &call).await;
            // The sender may have timed out.
            drop(reply.send(answer));
        }
        self.shared.state.lock().is_suspended = false;
        self.sim.suspend(self.user, false);
    }

    /// Records a call; returns its index, and the hold if the call is the planned one.
    fn note(&self, mut call: Call) -> (Option<usize>, Option<Hold>) {
        let mut state = self.shared.state.lock();
        if call.resource == "leases" {
            return (None, None);
        }
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
        let mut hold = state.planned.take_if(|(planned, _)| *planned == call).map(|(_, hold)| hold);
        if call.verb != "watch" && !call.is_for_events() {
            match &mut state.dies_after {
                Some(0) => hold = Some(Hold::Death { is_applied: false }),
                Some(left) => *left -= 1,
                None => {}
            }
        }
        state.was_reached |= hold.is_some();
        state.made.push(Made { call, code: 0 });
        (Some(state.made.len() - 1), hold)
    }

    /// Asks for an earlier version where the plan wants a stale list.
    fn ask_for_the_past(&self, head: &mut http::request::Parts, call: &Call) {
        let mut state = self.shared.state.lock();
        let is_first_list = |(plural, _): &mut (&str, u64)| call.verb == "list" && call.resource == *plural;
        // Later pages continue at the first page's version.
        if let Some((_, version)) = state.listed_at.take_if(is_first_list) {
            ask_for(head, &format!("resourceVersion={version}&resourceVersionMatch=Exact"));
            state.has_listed_the_past = true;
        }
    }

    async fn pass<B>(self, request: http::Request<B>) -> Result<Reply, ConnectionError>
    where
        B: http_body::Body<Data = Bytes>,
    {
        let (mut head, body) = request.into_parts();
        let body = body.collect().await.map_err(|_| ConnectionError::Reset)?.to_bytes();
        let call = Call::of(&http::Request::from_parts(head.clone(), Full::new(body.clone())), &body);
        let body = self.flaw.alter(&mut head, body, &call, self.owners);
        if !self.is_dead() {
            self.shared.state.lock().lint.sent(&head, &body, &call, self.owners);
        }
        self.ask_for_the_past(&mut head, &call);
        let request = http::Request::from_parts(head, Full::new(body));
        let (at, hold) = self.note(call.clone());
        if self.is_in_a_loop() || self.is_dead() {
            return std::future::pending().await;
        }
        tokio::time::sleep(LATENCY).await;
        let reply = match hold {
            None => self.flaw.send(&self.transport, request, &call).await,
            Some(hold) => self.hold(request, call.clone(), hold).await,
        };
        if let Ok(reply) = &reply {
            let mut state = self.shared.state.lock();
            let code = reply.status().as_u16();
            state.lint.answered(&call, code, self.owners);
            if let Some(at) = at {
                state.made[at].code = code;
            }
        }
        reply
    }

    async fn hold(&self, request: Sent, call: Call, hold: Hold) -> Result<Reply, ConnectionError> {
        match hold {
            Hold::Operator => {
                self.shared.state.lock().is_suspended = true;
                self.sim.suspend(self.user, true);
            }
            Hold::Call => {}
            Hold::Death { is_applied } => {
                self.close();
                if is_applied {
                    drop(self.transport.clone().call(request).await);
                }
                return std::future::pending().await;
            }
        }
        let (reply, answer) = oneshot::channel();
        self.shared.state.lock().held = Some(Held { request, call, reply });
        answer.await.unwrap_or(Err(ConnectionError::Reset))
    }
}

/// Adds parameters to a request's query.
pub(super) fn ask_for(head: &mut http::request::Parts, parameters: &str) {
    let separator = if head.uri.query().is_some() { '&' } else { '?' };
    head.uri = format!("{}{separator}{parameters}", head.uri).parse().expect("the URI is valid");
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
