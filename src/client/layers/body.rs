//! Reads the body of an answer, so that a request has ended when its layers have.
//!
//! # Guarantees
//! - What a server sends without end takes bounded memory. (test: `overlong_answer_is_an_error`)

use bytes::Bytes;
use http::Response;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use tower::layer::layer_fn;
use tower::{Layer, ServiceExt, service_fn};

use super::{AnswerBody, Answers, Outgoing};
use crate::client::error::{Error, broken};
use crate::metrics::RequestMetrics;

/// Maximum length of an answer: a page of 500 large objects.
pub(super) const BODY_MAX: usize = 256 << 20;

pub(super) fn layer<S>(
    metrics: RequestMetrics,
    max: usize,
) -> impl Layer<S, Service = impl Answers<Outgoing, Bytes>>
where
    S: Answers<Outgoing, Response<AnswerBody>>,
{
    layer_fn(move |inner: S| {
        let metrics = metrics.clone();
        service_fn(move |request| read(metrics.clone(), max, inner.clone(), request))
    })
}

async fn read(
    metrics: RequestMetrics,
    max: usize,
    inner: impl Answers<Outgoing, Response<AnswerBody>>,
    request: Outgoing,
) -> Result<Bytes, Error> {
    let (name, method) = (request.name.clone(), request.http.method().clone());
    let answer = inner.oneshot(request).await?;
    let body = collect(&name, answer.into_body(), max).await?;
    metrics.received(method.as_str(), body.len());
    Ok(body)
}

/// Reads a body of at most `max` bytes.
pub(super) async fn collect(name: &str, body: AnswerBody, max: usize) -> Result<Bytes, Error> {
    match Limited::new(body, max).collect().await {
        Ok(collected) => Ok(collected.to_bytes()),
        Err(error) if error.is::<LengthLimitError>() => Err(Error::TooLong { request: name.to_owned(), max }),
        Err(error) => Err(broken(name, error)),
    }
}

#[cfg(test)]
mod tests {
    use std::future::ready;
    use std::time::Duration;

    use http::Request;
    use kube_client::client::Body;

    use super::super::whole;
    use super::*;

    #[tokio::test]
    async fn overlong_answer_is_an_error() {
        let server = service_fn(|_: Outgoing| ready(Ok::<_, Error>(Response::new(whole(vec![b' '; 10])))));
        for (max, is_read) in [(10, true), (9, false)] {
            let http = Request::get("/").body(Body::empty()).unwrap();
            let request = Outgoing { http, name: "GET /".to_owned(), timeout: Duration::MAX };
            let answer = layer(RequestMetrics::unread(), max).layer(server).oneshot(request).await;
            assert_eq!(answer.is_ok(), is_read, "{max}");
            assert!(is_read || matches!(answer, Err(Error::TooLong { max: 9, .. })));
        }
    }
}
