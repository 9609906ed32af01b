//! Holds a request until the [`Gate`] lets it pass, and cuts a write under way when the gate closes.
//!
//! Flow: request -> **gate** -> connections; the answer says whether the server is overloaded
//!
//! # Guarantees
//! - A write that is still queued or connecting when the gate closes is not sent.
//!   (test: `write_held_past_the_deadline_is_not_sent`)
//! - A write that is decided on an old read is not sent. (test: `write_on_an_old_read_is_not_sent`)
//! - An overloaded server pauses all requests, one that serves some does not. (test: `overloaded_server_pauses_all_requests`)

use std::sync::Arc;

use bytes::Bytes;
use tokio::time::Instant;
use tower::layer::layer_fn;
use tower::{Layer, ServiceExt, service_fn};

use super::{Answers, GatedRequest, Outgoing};
use crate::client::error::Error;
use crate::client::gate::{Gate, Refusal};
use crate::metrics::RequestMetrics;
use crate::traces;

pub(super) fn layer<S>(
    gate: Arc<Gate>,
    metrics: RequestMetrics,
) -> impl Layer<S, Service = impl Answers<GatedRequest, Bytes>>
where
    S: Answers<Outgoing, Bytes>,
{
    layer_fn(move |inner: S| {
        let (gate, metrics) = (gate.clone(), metrics.clone());
        service_fn(move |request| hold(gate.clone(), metrics.clone(), inner.clone(), request))
    })
}

async fn hold(
    gate: Arc<Gate>,
    metrics: RequestMetrics,
    inner: impl Answers<Outgoing, Bytes>,
    held: GatedRequest,
) -> Result<Bytes, Error> {
    let GatedRequest { outgoing, passage, turn, not_after, sent_signal } = held;
    let (name, method) = (outgoing.name.clone(), outgoing.http.method().clone());
    let arrived = Instant::now();
    let namespace = namespace_in(outgoing.http.uri().path()).to_owned();
    let permit = match gate.pass(passage, &namespace, turn, not_after).await {
        Ok(permit) => permit,
        Err(Refusal::Stopping) => return Err(Error::NotSent { request: name }),
        Err(Refusal::Stale) => return Err(Error::Stale { request: name }),
        Err(Refusal::NotHeld) => return Err(Error::NotHeld { request: name }),
    };
    metrics.waited(method.as_str(), arrived.elapsed());
    traces::event("sent");
    if let Some(sent_signal) = sent_signal {
        sent_signal.sent();
    }
    let _in_flight = permit.is_some().then(|| metrics.write_in_flight());
    let outcome = tokio::select! {
        biased;
        // A request that is still queued or connecting must not be sent; if it was sent, its outcome is unknown.
        () = gate.closed(passage, &namespace) => Err(Error::Timeout { request: name, after: arrived.elapsed() }),
        outcome = inner.oneshot(outgoing) => outcome,
    };
    if matches!(outcome, Ok(_) | Err(Error::Status { .. })) {
        gate.has_answered();
    }
    if outcome.as_ref().is_err_and(Error::is_too_many_requests) {
        gate.refused();
    }
    match &outcome {
        Err(error) if error.is_overload() => {
            error.retry_after().into_iter().for_each(|time| gate.asked_to_wait(time));
        }
        Ok(_) | Err(Error::Status { .. }) => gate.served(),
        Err(_) => {}
    }
    outcome
}

/// Returns the namespace in a path, or an empty string.
fn namespace_in(path: &str) -> &str {
    let after = path.split_once("/namespaces/").map(|(_, after)| after);
    after.and_then(|after| after.split('/').next()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_share_the_slots_by_namespace() {
        for (path, namespace) in [
            ("/api/v1/namespaces/a/pods", "a"),
            ("/apis/apps/v1/namespaces/b-1/deployments/x", "b-1"),
            ("/api/v1/namespaces/c", "c"),
            ("/api/v1/nodes/namespaces", ""),
        ] {
            assert_eq!(namespace_in(path), namespace, "{path}");
        }
    }
}
