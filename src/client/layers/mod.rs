//! The layers that a request passes, outermost first: a file each, and one idea each.
//!
//! Mirrors client-go `rest/request.go` (throttling, timeout, status) and `transport/round_trippers.go`, where one round
//! tripper wraps the next.
//! Flow: [`ApiClient`](super::ApiClient) -> **layers** -> API server, and its answer back through them
//!
//! | layer | what it does | how a request ends here |
//! |---|---|---|
//! | [`traces`], in [`Layers`] | the span of the request, and its header | |
//! | [`observe`] | tells the observer of each request | |
//! | [`gate`] | waits for leadership, limits and the server | not sent; a write under way is cut: outcome unknown |
//! | [`slow_calls`](super::slow_calls) | tells a worker that its sync waits for an answer | |
//! | [`timeout`] | limits the time until the answer is complete | no answer in time: outcome unknown |
//! | [`body`] | reads the answer's body | too long, or broken off |
//! | [`status`] | makes an answer other than success an error, logs [`warnings`] | refused |
//! | [`metrics`] | counts requests, answers and bytes sent | |
//! | [`reachability`] | notices that the server is lost, or is back | no answer: outcome unknown |
//! | the `User-Agent`, in [`Layers`] | | |
//! | [`dry_run`](super::dry_run), if asked for | marks writes | an event or a Lease is refused |
//! | [`rotation`](super::rotation) | sends with the newest credentials | |
//! | [`transport`](super::transport) | sends over a bounded pool of connections | |
//!
//! The lists and watches of the caches begin at [`timeout`], which then limits the wait for the head of a good answer,
//! and read the body themselves: a watch has no end, and the caches have a pace of their own.
//!
//! # Cancel safety
//! Dropping a request leaves it unknown whether the server has applied it, unless it still waited at the gate.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Request, Response, header};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};
use kube_client::client::Body;
use tokio::time::Instant;
use tower::util::{BoxCloneService, BoxCloneSyncService};
use tower::{BoxError, Service, ServiceBuilder, ServiceExt};

use super::error::Error;
use super::gate::{Gate, Passage, Turn};
use super::observer::{RequestObserver, SentSignal};
use super::reachability::Reachability;
use super::slow_calls;
use super::transport::Answer;
use crate::metrics::RequestMetrics;
use crate::traces::{self, Failed};

pub(super) mod body;
pub(super) mod gate;
pub(super) mod metrics;
pub(super) mod observe;
pub(super) mod reachability;
pub(super) mod status;
pub(super) mod timeout;
mod unreachable;
pub(super) mod warnings;

/// The body of an answer. kube-client's own type is for requests: only its client can make one of what arrives.
pub(crate) type AnswerBody = UnsyncBoxBody<Bytes, kube_client::Error>;

/// What sends an HTTP request: the layers from the dry run on, or a test's server.
pub(super) type RoundTripper = BoxCloneSyncService<Request<Body>, Response<AnswerBody>, BoxError>;

/// The layers within one: answers requests of type `Q` with `A`.
pub(super) trait Answers<Q, A>:
    Service<Q, Response = A, Error = Error, Future: Send> + Clone + Send
{
}

impl<Q, A, S> Answers<Q, A> for S where S: Service<Q, Response = A, Error = Error, Future: Send> + Clone + Send
{}

/// A request on its way to the server.
#[derive(Debug)]
pub(super) struct Outgoing {
    pub(super) http: Request<Body>,
    /// What errors call it: method and path.
    pub(super) name: String,
    /// How long it may be without its answer.
    pub(super) timeout: Duration,
}

/// A request that the gate may hold.
#[derive(Debug)]
pub(super) struct GatedRequest {
    pub(super) outgoing: Outgoing,
    pub(super) passage: Passage,
    pub(super) turn: Turn,
    /// After this time it is not sent.
    pub(super) not_after: Option<Instant>,
    /// Is told when it is sent.
    pub(super) sent_signal: Option<SentSignal>,
}

/// What the layers need, and share with those of the client's clones.
#[derive(Clone)]
pub(super) struct Layers {
    pub(super) observer: Option<Arc<dyn RequestObserver>>,
    pub(super) gate: Arc<Gate>,
    pub(super) metrics: RequestMetrics,
    pub(super) reachability: Arc<Reachability>,
    pub(super) warnings: Arc<warnings::Warnings>,
    pub(super) user_agent: HeaderValue,
    pub(super) round_tripper: RoundTripper,
}

// === impl Layers ===

impl Layers {
    /// Sends a request through all layers, and returns the body of its answer.
    ///
    /// # Errors
    /// [`Error`]; an answer other than success is [`Error::Status`].
    pub(super) async fn call(&self, mut request: GatedRequest) -> Result<Bytes, Error> {
        let trace = traces::request(&mut request.outgoing.http);
        let layers = ServiceBuilder::new()
            .layer(observe::layer(self.observer.clone()))
            .layer(gate::layer(self.gate.clone(), self.metrics.clone()))
            .map_future(slow_calls::wait_for)
            .layer(timeout::layer(self.reachability.clone()))
            .layer(body::layer(self.metrics.clone(), body::BODY_MAX));
        // On the heap: 11 KiB would be a part of every future that makes requests.
        let answer = trace.run(Box::pin(layers.service(self.connection()).oneshot(request))).await;
        trace.ended(|| answer.as_ref().err().map(failed));
        answer
    }

    /// Sends the list or watch of a cache, and returns the answer with its body unread.
    ///
    /// # Errors
    /// [`Error`]; an answer other than success is [`Error::Status`].
    pub(super) async fn open(&self, request: Outgoing) -> Result<Response<AnswerBody>, Error> {
        let layers = ServiceBuilder::new().layer(timeout::layer(self.reachability.clone()));
        Box::pin(layers.service(self.connection()).oneshot(request)).await
    }

    /// The layers that all requests pass. Boxed: each further layer multiplies what the compiler has to do for the type.
    fn connection(&self) -> BoxCloneService<Outgoing, Response<AnswerBody>, Error> {
        let user_agent = self.user_agent.clone();
        let layers = ServiceBuilder::new()
            .layer(status::layer(self.warnings.clone()))
            .layer(metrics::layer(self.metrics.clone()))
            .layer(reachability::layer(self.reachability.clone()))
            .map_request(move |mut request: Request<Body>| {
                // kube-client sends none.
                request.headers_mut().insert(header::USER_AGENT, user_agent.clone());
                request
            });
        BoxCloneService::new(layers.service(self.round_tripper.clone()))
    }
}

/// Gives an answer of a connection the type of body that the layers have.
pub(super) fn boxed(answer: Answer) -> Response<AnswerBody> {
    answer.map(|body| body.map_err(|error| kube_client::Error::Service(error.into())).boxed_unsync())
}

/// Returns a body that is already here.
pub(super) fn whole(bytes: impl Into<Bytes>) -> AnswerBody {
    Full::new(bytes.into()).map_err(|never| match never {}).boxed_unsync()
}

fn failed(error: &Error) -> Failed {
    Failed { class: error.class(), code: error.status().map(|status| status.code) }
}
