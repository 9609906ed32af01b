//! Counts requests, with the time until their answers begin.
//!
//! Mirrors client-go `rest/request.go`, which observes each request that it sends, but for the sizes of watches.
//!
//! # Guarantees
//! - A request that is dropped before its answer, by a timeout say, counts as one without an answer.
//!   (test: `request_without_an_answer_is_counted`)

use http::Response;
use http_body::Body as _;
use tower::layer::layer_fn;
use tower::{Layer, ServiceExt, service_fn};

use super::{AnswerBody, Answers, Outgoing};
use crate::client::error::Error;
use crate::metrics::RequestMetrics;

pub(super) fn layer<S>(
    metrics: RequestMetrics,
) -> impl Layer<S, Service = impl Answers<Outgoing, Response<AnswerBody>>>
where
    S: Answers<Outgoing, Response<AnswerBody>>,
{
    layer_fn(move |inner: S| {
        let metrics = metrics.clone();
        service_fn(move |request| count(metrics.clone(), inner.clone(), request))
    })
}

async fn count(
    metrics: RequestMetrics,
    inner: impl Answers<Outgoing, Response<AnswerBody>>,
    request: Outgoing,
) -> Result<Response<AnswerBody>, Error> {
    let method = request.http.method().clone();
    if let Some(length) = request.http.body().size_hint().exact() {
        metrics.sent(method.as_str(), usize::try_from(length).unwrap_or(usize::MAX));
    }
    let asked = metrics.asked(method.as_str());
    let answer = inner.oneshot(request).await?;
    asked.answered(answer.status().as_u16());
    Ok(answer)
}

#[cfg(test)]
mod tests {
    use std::future::pending;
    use std::time::Duration;

    use http::Request;
    use kube_client::client::Body;

    use super::*;
    use crate::metrics::Metrics;

    #[tokio::test(start_paused = true)]
    async fn request_without_an_answer_is_counted() {
        let metrics = Metrics::new();
        let silent = service_fn(|_: Outgoing| pending::<Result<Response<AnswerBody>, Error>>());
        let http = Request::put("/").body(Body::from(b"{}".to_vec())).unwrap();
        let request = Outgoing { http, name: "PUT /".to_owned(), timeout: Duration::MAX };
        let answer = layer(metrics.requests("here")).layer(silent).oneshot(request);
        tokio::time::timeout(Duration::from_secs(1), answer).await.unwrap_err();
        let text = metrics.encode();
        for line in [
            "rest_client_requests_total{code=\"<error>\",method=\"PUT\",host=\"here\"} 1",
            "rest_client_request_size_bytes_sum{verb=\"PUT\",host=\"here\"} 2.0",
        ] {
            assert!(text.contains(line), "{line} is not in {text}");
        }
    }
}
