//! Makes an answer other than success an error, with what the server says about it, and logs its [warnings](super::warnings).
//!
//! Mirrors client-go `rest/request.go`, `transformResponse`.
//!
//! # Guarantees
//! - An error keeps the server's code, reason, causes and Retry-After.
//!   (test: `errors_keep_the_servers_status`, `overloaded_server_pauses_all_requests`)
//! - A Status that a proxy has compressed is read, too. (test: `status_in_a_compressed_failure_is_read`)

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Response, header};
use tower::layer::layer_fn;
use tower::{Layer, ServiceExt, service_fn};

use super::warnings::Warnings;
use super::{AnswerBody, Answers, Outgoing, body};
use crate::client::error::{Error, ServerStatus};
use crate::client::gzip;
use crate::traces;

/// Maximum length of a failure's body.
const BODY_MAX: usize = 1 << 20;

pub(super) fn layer<S>(
    warnings: Arc<Warnings>,
) -> impl Layer<S, Service = impl Answers<Outgoing, Response<AnswerBody>>>
where
    S: Answers<Outgoing, Response<AnswerBody>>,
{
    layer_fn(move |inner: S| {
        let warnings = warnings.clone();
        service_fn(move |request| check(warnings.clone(), inner.clone(), request))
    })
}

async fn check(
    warnings: Arc<Warnings>,
    inner: impl Answers<Outgoing, Response<AnswerBody>>,
    request: Outgoing,
) -> Result<Response<AnswerBody>, Error> {
    let name = request.name.clone();
    let answer = inner.oneshot(request).await?;
    traces::answered(answer.status());
    warnings.log(&name, answer.headers());
    if answer.status().is_success() {
        return Ok(answer);
    }
    let (head, body) = answer.into_parts();
    let body = match body::collect(&name, body, BODY_MAX).await {
        // No Status object is that long.
        Err(Error::TooLong { .. }) => Bytes::new(),
        body => body?,
    };
    let is_compressed = gzip::is_compressed(&head.headers).unwrap_or(false);
    let body = if is_compressed { gzip::decompressed(&body, BODY_MAX) } else { body };
    let status = ServerStatus::parse(head.status.as_u16(), retry_after(&head.headers), &body);
    Err(Error::Status { request: name, status: Box::new(status) })
}

/// Reads `Retry-After`: seconds, as API servers send it, or a date, which is compared with the server's own `Date`.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let text = |name| headers.get(name)?.to_str().ok();
    let date = |name| httpdate::parse_http_date(text(name)?).ok();
    if let Some(seconds) = text(header::RETRY_AFTER)?.parse().ok().map(Duration::from_secs) {
        return Some(seconds);
    }
    date(header::RETRY_AFTER)?.duration_since(date(header::DATE)?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retry_after_may_be_a_date() {
        let wait = |after: &str, date: Option<&str>| {
            let mut headers = HeaderMap::new();
            headers.insert(header::RETRY_AFTER, after.parse().unwrap());
            headers.extend(date.map(|date| (header::DATE, date.parse().unwrap())));
            retry_after(&headers)
        };
        let (now, later) = ("Sun, 06 Nov 1994 08:49:37 GMT", "Sun, 06 Nov 1994 08:50:00 GMT");
        assert_eq!(wait("7", None), Some(Duration::from_secs(7)));
        assert_eq!(wait(later, Some(now)), Some(Duration::from_secs(23)));
        assert_eq!(wait(now, Some(later)), None, "it has passed");
        assert_eq!(wait(later, None), None, "without the server's time it says nothing");
        assert_eq!(wait("soon", Some(now)), None);
    }
}
