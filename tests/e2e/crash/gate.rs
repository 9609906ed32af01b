//! The gate through which one process sends its requests. It kills the process at a planned call.
//!
//! The tasks of a dead process may live a moment longer; the gate never forwards or answers their requests.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures_util::future::BoxFuture;
use http_body_util::{BodyExt, Full};
use parking_lot::Mutex;
use serde_json::Value;
use tokio::sync::Notify;
use tower::Service;
use windlass::sim::{Action, ConnectionError, Fault, InProcessTransport, Sim, When};

use crate::plans::call::{Call, Made, Reply, Sent};

/// A disturbance at a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Act {
    /// The process dies before it sends the request.
    CutBefore,
    /// The request is applied, and the process dies before it reads the response.
    CutUnread,
    /// The process reads the response and dies before its next request.
    CutAfter,
    /// The process dies while the request is in flight; the server applies the request later.
    Late(Late),
    /// The call fails once.
    Fails(Action),
}

/// When the in-flight request of a dead process is applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Late {
    /// After its successor's first call.
    AfterFirstCall,
    /// Just before its successor's first write, after the reads that led to it.
    BeforeFirstWrite,
    /// After its successor's last call.
    AfterLastCall,
}

/// A deliberate defect of the process, which the plan must detect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Flaw {
    None,
    /// The process is not restarted.
    StaysDead,
    /// Deletes carry no preconditions.
    DeletesBlindly,
}

/// See the module.
#[derive(Clone)]
pub(super) struct CrashGate {
    transport: InProcessTransport,
    sim: Sim,
    user: &'static str,
    flaw: Flaw,
    shared: Arc<Shared>,
}

struct Shared {
    state: Mutex<State>,
    died: Notify,
}

#[derive(Default)]
struct State {
    is_dead: bool,
    /// Whether calls are recorded and the planned disturbance may happen.
    is_open: bool,
    made: Vec<Made>,
    seen: BTreeMap<(&'static str, String, String), usize>,
    /// The number of requests other than watches; it grows while the process is busy.
    activity: usize,
    planned: Option<(Call, Act)>,
    dies_at_next: bool,
    was_reached: bool,
    /// The request that was in flight when the process died.
    in_flight: Option<(Late, Sent)>,
}

/// How the gate handles a call.
enum Fate {
    Parked,
    Goes(Option<Act>, Option<usize>),
}

// === impl CrashGate ===

impl CrashGate {
    pub(super) fn new(sim: &Sim, user: &'static str, flaw: Flaw) -> Self {
        let shared = Shared { state: Mutex::default(), died: Notify::new() };
        Self {
            transport: InProcessTransport::new(sim, user),
            sim: sim.clone(),
            user,
            flaw,
            shared: Arc::new(shared),
        }
    }

    /// Starts to record calls, and arms the planned disturbance.
    pub(super) fn open(&self, planned: Option<(Call, Act)>) {
        let mut state = self.shared.state.lock();
        state.is_open = true;
        state.planned = planned;
    }

    /// Waits until the process dies.
    pub(super) async fn died(&self) {
        self.shared.died.notified().await;
    }

    /// Stops forwarding requests.
    pub(super) fn close(&self) {
        self.shared.state.lock().is_dead = true;
    }

    /// Whether the process is to die at its next call but has not made one.
    pub(super) fn is_doomed(&self) -> bool {
        let state = self.shared.state.lock();
        state.dies_at_next && !state.is_dead
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

    /// Takes over the in-flight request of a dead process, to apply it while this process runs.
    pub(super) fn inherit(&self, dead: &Self) {
        self.shared.state.lock().in_flight = dead.shared.state.lock().in_flight.take();
    }

    /// Applies the in-flight request of a dead process if it is `due`; returns whether it did.
    pub(super) async fn release(&self, due: impl Fn(Late) -> bool) -> bool {
        let request = {
            let mut state = self.shared.state.lock();
            state.in_flight.take_if(|(late, _)| due(*late))
        };
        let Some((_, request)) = request else { return false };
        // The sender is dead, so no one reads the response.
        drop(self.forward(request).await);
        true
    }

    async fn forward(&self, request: Sent) -> Result<Reply, ConnectionError> {
        self.transport.clone().call(request).await
    }

    /// Records a call and decides how to handle it.
    fn consider(&self, mut call: Call) -> Fate {
        let mut state = self.shared.state.lock();
        if state.is_dead || state.dies_at_next {
            drop(state);
            self.die();
            return Fate::Parked;
        }
        if call.verb != "watch" {
            state.activity += 1;
        }
        if !state.is_open {
            return Fate::Goes(None, None);
        }
        let seen = state.seen.entry((call.verb, call.resource.clone(), call.name.clone())).or_default();
        *seen += 1;
        call.nth = *seen;
        let act = state.planned.take_if(|(planned, _)| *planned == call).map(|(_, act)| act);
        state.was_reached |= act.is_some();
        state.made.push(Made { call, code: 0 });
        let at = state.made.len() - 1;
        Fate::Goes(act, Some(at))
    }

    fn die(&self) {
        self.shared.state.lock().is_dead = true;
        self.shared.died.notify_one();
    }

    async fn pass<B>(self, request: http::Request<B>) -> Result<Reply, ConnectionError>
    where
        B: http_body::Body<Data = Bytes>,
    {
        let (head, body) = request.into_parts();
        let mut body = body.collect().await.map_err(|_| ConnectionError::Reset)?.to_bytes();
        if self.flaw == Flaw::DeletesBlindly && head.method == http::Method::DELETE {
            body = without_preconditions(&body);
        }
        let request = http::Request::from_parts(head, Full::new(body.clone()));
        let call = Call::of(&request, &body);
        let is_write = call.is_write() && !call.is_for_events();
        let Fate::Goes(act, at) = self.consider(call) else { return std::future::pending().await };
        match act {
            Some(Act::CutBefore) => {
                self.die();
                return std::future::pending().await;
            }
            Some(Act::Late(late)) => {
                self.shared.state.lock().in_flight = Some((late, request));
                self.die();
                return std::future::pending().await;
            }
            Some(Act::Fails(ref action)) => {
                // The request reaches the server at once, so the fault cannot hit another request.
                let when = When::any().user(self.user).times(1);
                self.sim.fault(Fault::new(when, action.clone()));
            }
            Some(Act::CutUnread | Act::CutAfter) | None => {}
        }
        if is_write {
            self.release(|late| late == Late::BeforeFirstWrite).await;
        }
        let reply = self.forward(request).await;
        if let (Some(at), Ok(reply)) = (at, &reply) {
            self.shared.state.lock().made[at].code = reply.status().as_u16();
        }
        self.release(|late| late == Late::AfterFirstCall).await;
        match act {
            Some(Act::CutUnread) => {
                self.die();
                std::future::pending().await
            }
            Some(Act::CutAfter) => {
                self.shared.state.lock().dies_at_next = true;
                reply
            }
            Some(Act::CutBefore | Act::Late(_) | Act::Fails(_)) | None => reply,
        }
    }
}

fn without_preconditions(body: &Bytes) -> Bytes {
    let Ok(mut options) = serde_json::from_slice::<Value>(body) else { return body.clone() };
    options.as_object_mut().map(|options| options.remove("preconditions"));
    options.to_string().into()
}

impl<B> Service<http::Request<B>> for CrashGate
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
