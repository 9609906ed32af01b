//! Tells an observer of each request: when it comes to the gate, and how it ended.
//!
//! Flow: request -> **observe** -> gate, which tells when it is sent

use std::sync::Arc;

use bytes::Bytes;
use tower::layer::layer_fn;
use tower::{Layer, ServiceExt, service_fn};

use super::{Answers, GatedRequest};
use crate::client::error::Error;
use crate::client::observer::{ObservedRequest, RequestObserver};

pub(super) fn layer<S>(
    observer: Option<Arc<dyn RequestObserver>>,
) -> impl Layer<S, Service = impl Answers<GatedRequest, Bytes>>
where
    S: Answers<GatedRequest, Bytes>,
{
    layer_fn(move |inner: S| {
        let observer = observer.clone();
        service_fn(move |request| observe(observer.clone(), inner.clone(), request))
    })
}

async fn observe(
    observer: Option<Arc<dyn RequestObserver>>,
    inner: impl Answers<GatedRequest, Bytes>,
    request: GatedRequest,
) -> Result<Bytes, Error> {
    let Some(observer) = observer else { return inner.oneshot(request).await };
    let http = &request.outgoing.http;
    let observed = ObservedRequest::began(observer, http.method().as_str(), http.uri().path());
    let sent_signal = Some(observed.sent_signal());
    let outcome = inner.oneshot(GatedRequest { sent_signal, ..request }).await;
    observed.answered(&outcome);
    outcome
}
