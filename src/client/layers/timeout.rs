//! Limits the time until the answer: for a list or watch of a cache its head, for any other request all of it.
//!
//! # Guarantees
//! - Every request has a timeout. (test: `a_silent_server_times_out`)

use std::sync::Arc;

use tower::layer::layer_fn;
use tower::{Layer, ServiceExt, service_fn};

use super::{Answers, Outgoing};
use crate::client::error::Error;
use crate::client::reachability::Reachability;

pub(super) fn layer<S, A>(
    reachability: Arc<Reachability>,
) -> impl Layer<S, Service = impl Answers<Outgoing, A>>
where
    S: Answers<Outgoing, A>,
{
    layer_fn(move |inner: S| {
        let reachability = reachability.clone();
        service_fn(move |request| limit(reachability.clone(), inner.clone(), request))
    })
}

async fn limit<A>(
    reachability: Arc<Reachability>,
    inner: impl Answers<Outgoing, A>,
    request: Outgoing,
) -> Result<A, Error> {
    let (name, after) = (request.name.clone(), request.timeout);
    let answer = tokio::time::timeout(after, inner.oneshot(request)).await;
    answer.unwrap_or_else(|_| Err(reachability.timed_out(name, after)))
}
