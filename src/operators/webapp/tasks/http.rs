//! A task that calls an external endpoint: one POST for each hook, with `traceparent` if its sync is traced.
//!
//! ```text
//! POST <url>
//! Content-Type: application/json
//! Idempotency-Key: <operationID>
//! Authorization: Bearer <contents of tokenFile>
//!
//! {"operationID": "...", "task": "notify", "hook": "create", "webapp": {namespace, name, uid, generation, spec}}
//! ```
//!
//! | the endpoint answers | outcome |
//! |---|---|
//! | 2xx; 409 with JSON that holds the same `operationID` (an earlier attempt had its effect) | done |
//! | 408, 425, 429, 5xx, a broken connection | retried, not before Retry-After (10 min at most) |
//! | nothing within the task's timeout | retried: [`run`](super::run) ends the call |
//! | 401 to a token that `tokenFile` no longer holds | retried: the token is being rotated |
//! | anything else, such as another 409, or 3xx (redirects are not followed) | permanent failure |
//!
//! An endpoint must apply an operation ID once, and refuse (409) a `generation` lower than the last of that `uid`.
//!
//! # Guarantees
//! - A hook is one POST, with that body and that key. (test: `hook_is_one_post_with_body_and_key`)
//! - Each row of the table holds. (test: `each_status_code_maps_to_its_outcome`, `a_conflict_is_judged_by_its_operation_id`, `broken_connection_is_retried`, `hanging_endpoint_times_out`, `unauthorized_with_a_rotated_token_is_retried`, `redirects_are_not_followed`)
//! - Retry-After is obeyed in seconds and as a date, ten minutes at most. (test: `retry_after_is_read_in_all_its_forms`, `retry_after_reaches_the_caller`)
//! - At most `maxResponseBytes` of an answer are read; its code decides. (test: `an_endless_answer_is_judged_by_its_code`)
//! - Certificates are verified, against the CA file alone if there is one. (test: `server_certificate_is_verified`)
//! - A rotated CA or token file is used at the next call; while it is missing or broken, its last contents stay in use.
//!   (test: `a_rotated_ca_file_is_used_at_once`, `a_rotated_token_file_is_used_at_once`, `missing_or_empty_file_keeps_the_last_value`)
//! - Tokens, answers and addresses never appear in errors or in the log. (test: `errors_and_logs_hold_no_secrets`)

mod rotating;
mod transport;

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderName, HeaderValue, Method, Request, Response, StatusCode, Uri};
use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use serde::{Deserialize, Serialize};

use self::rotating::{Held, RotatingFile};
use self::transport::ReqwestTransport;
pub use self::transport::{SendError, Transport};
use super::{HookCall, HookError, HookFuture, RETRY_AFTER_MAX, TaskBuildError, TaskExecutor};
use crate::api::webapp::v1::WebAppSpec;
use crate::client::Clock;
use crate::traces::{self, Failed};

/// How much of an answer is read if the task sets no limit.
pub const DEFAULT_MAX_RESPONSE_BYTES: usize = 65_536;
const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");

/// The endpoint of a task, and the files for calling it.
#[derive(Clone, PartialEq, Eq)]
pub struct HttpSpec {
    url: Uri,
    /// Certificates (PEM) of the authorities to trust, instead of the system's.
    pub ca_file: Option<PathBuf>,
    /// A file with a bearer token.
    pub token_file: Option<PathBuf>,
    /// How many bytes of an answer are read at most.
    pub max_response_bytes: usize,
}

/// A URL that a task cannot call. The error does not quote the URL, which may contain a password.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct UrlError(&'static str);

impl HttpSpec {
    /// Creates a spec for this URL: http or https, without user info.
    ///
    /// # Errors
    /// [`UrlError`] if the URL cannot be called.
    pub fn new(url: &str) -> Result<Self, UrlError> {
        let parsed = reqwest::Url::parse(url)
            .map_err(|_| UrlError("it is not a URL; write http://HOST/PATH or https://HOST/PATH"))?;
        if !matches!(parsed.scheme(), "http" | "https") {
            return Err(UrlError("the scheme must be http or https"));
        }
        if !parsed.username().is_empty() || parsed.password().is_some() {
            return Err(UrlError("user info (the part before the @) is not allowed; use tokenFile instead"));
        }
        let url = parsed
            .as_str()
            .parse()
            .map_err(|_| UrlError("it contains characters that are not allowed in a request"))?;
        Ok(Self { url, ca_file: None, token_file: None, max_response_bytes: DEFAULT_MAX_RESPONSE_BYTES })
    }

    /// Whether the connection is encrypted.
    #[must_use]
    pub fn is_https(&self) -> bool {
        self.url.scheme_str() == Some("https")
    }
}

/// Path and query are left out: they may contain secrets.
impl fmt::Debug for HttpSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpSpec")
            .field("scheme", &self.url.scheme_str().unwrap_or_default())
            .field("host", &self.url.host().unwrap_or_default())
            .field("ca_file", &self.ca_file)
            .field("token_file", &self.token_file)
            .field("max_response_bytes", &self.max_response_bytes)
            .finish_non_exhaustive()
    }
}

/// Calls an endpoint for each hook; see the [module](self).
pub struct HttpTask {
    name: String,
    timeout: Duration,
    url: Uri,
    token: Option<RotatingFile<HeaderValue>>,
    max_response_bytes: usize,
    transport: Arc<dyn Transport>,
    clock: Clock,
}

/// The body of a request.
#[derive(Debug, Serialize)]
struct Body<'a> {
    #[serde(rename = "operationID")]
    operation_id: &'a str,
    task: &'a str,
    hook: &'a str,
    webapp: Subject<'a>,
}

/// The WebApp in the body.
#[derive(Debug, Serialize)]
struct Subject<'a> {
    namespace: &'a str,
    name: &'a str,
    uid: &'a str,
    generation: i64,
    spec: &'a WebAppSpec,
}

/// The part of a 409's body that counts.
#[derive(Deserialize)]
struct Conflict {
    #[serde(rename = "operationID")]
    operation_id: String,
}

// === impl HttpTask ===

impl HttpTask {
    /// Creates a task that calls over the network. `clock` is for dates in answers.
    ///
    /// # Errors
    /// [`TaskBuildError`] if the system has no certificates to trust and the task names none.
    pub fn new(name: &str, timeout: Duration, spec: &HttpSpec, clock: Clock) -> Result<Self, TaskBuildError> {
        let transport = ReqwestTransport::new(name, spec)
            .map_err(|cause| TaskBuildError { task: name.to_owned(), cause: cause.to_owned() })?;
        if spec.token_file.is_some() && !spec.is_https() {
            tracing::warn!(
                task = name,
                "The task sends its token without TLS, readable by anyone on the network; use https"
            );
        }
        Ok(Self::with_transport(name, timeout, spec, clock, Arc::new(transport)))
    }

    /// Creates a task that calls over `transport`.
    #[must_use]
    pub fn with_transport(
        name: &str,
        timeout: Duration,
        spec: &HttpSpec,
        clock: Clock,
        transport: Arc<dyn Transport>,
    ) -> Self {
        let token = spec.token_file.as_ref().map(|path| RotatingFile::new(name, "tokenFile", path, bearer));
        Self {
            name: name.to_owned(),
            timeout,
            url: spec.url.clone(),
            token,
            max_response_bytes: spec.max_response_bytes,
            transport,
            clock,
        }
    }

    async fn post(&self, call: &HookCall) -> Result<(), HookError> {
        let token = self.token()?.map(|held| held.value);
        let mut request = self.request(call, token.as_ref());
        let trace = traces::call(request.headers_mut());
        let send = async {
            let response = self.transport.send(request, self.max_response_bytes).await;
            response.inspect(|response| traces::answered(response.status()))
        };
        let response = trace.run(send).await;
        trace.ended(|| failed(&response));
        let response = response.map_err(|error| {
            tracing::debug!(
                task = call.task(),
                operation_id = call.operation_id(),
                error = &error as &dyn std::error::Error,
                "Could not call the endpoint of a task"
            );
            HookError::retry(error.to_string())
        })?;
        if response.status() == StatusCode::UNAUTHORIZED && self.is_rotated(token.as_ref())? {
            return Err(HookError::retry(
                "the task's endpoint answered 401 Unauthorized to a token that is being rotated",
            ));
        }
        let after = retry_after(&response, self.clock.now());
        let is_same = response.body().as_ref().is_some_and(|body| is_same_operation(body, call));
        hook_result(response.status(), after, is_same)
    }

    /// Whether the token file no longer holds the token that was sent.
    fn is_rotated(&self, sent: Option<&HeaderValue>) -> Result<bool, HookError> {
        let held = self.token()?;
        Ok(held.is_some_and(|held| !held.is_current || Some(&held.value) != sent))
    }

    fn token(&self) -> Result<Option<Held<HeaderValue>>, HookError> {
        let token = self.token.as_ref().map(RotatingFile::current).transpose();
        token.map_err(|cause| HookError::retry(format!("the task's tokenFile cannot be used: {cause}")))
    }

    fn request(&self, call: &HookCall, token: Option<&HeaderValue>) -> Request<Bytes> {
        let body = Body {
            operation_id: call.operation_id(),
            task: call.task(),
            hook: call.hook().as_str(),
            webapp: Subject {
                namespace: call.namespace(),
                name: call.name(),
                uid: call.uid(),
                generation: call.generation(),
                spec: call.spec(),
            },
        };
        let body = serde_json::to_vec(&body).expect("texts and numbers can be written as JSON");
        let key = HeaderValue::from_str(call.operation_id()).expect("an operation ID is hexadecimal");
        let mut request = Request::new(Bytes::from(body));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = self.url.clone();
        let headers = request.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(IDEMPOTENCY_KEY, key);
        if let Some(token) = token {
            headers.insert(AUTHORIZATION, token.clone());
        }
        request
    }
}

impl TaskExecutor for HttpTask {
    fn name(&self) -> &str {
        &self.name
    }

    fn timeout(&self) -> Duration {
        self.timeout
    }

    fn pre_create<'a>(&'a self, call: &'a HookCall) -> HookFuture<'a> {
        Box::pin(self.post(call))
    }

    fn create<'a>(&'a self, call: &'a HookCall) -> HookFuture<'a> {
        Box::pin(self.post(call))
    }

    fn post_create<'a>(&'a self, call: &'a HookCall) -> HookFuture<'a> {
        Box::pin(self.post(call))
    }

    fn pre_delete<'a>(&'a self, call: &'a HookCall) -> HookFuture<'a> {
        Box::pin(self.post(call))
    }

    fn delete<'a>(&'a self, call: &'a HookCall) -> HookFuture<'a> {
        Box::pin(self.post(call))
    }

    fn post_delete<'a>(&'a self, call: &'a HookCall) -> HookFuture<'a> {
        Box::pin(self.post(call))
    }
}

impl fmt::Debug for HttpTask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpTask").field("name", &self.name).finish_non_exhaustive()
    }
}

// === free functions ===

/// Returns what the span of a call tells of its end.
fn failed<T>(response: &Result<Response<T>, SendError>) -> Option<Failed> {
    match response {
        Ok(response) => {
            let code = response.status();
            let is_error = code.is_client_error() || code.is_server_error();
            is_error.then(|| Failed { class: "status", code: Some(code.as_u16()) })
        }
        Err(_) => Some(Failed { class: "connection", code: None }),
    }
}

/// Maps a status code to the result of the hook. The messages never quote the endpoint.
fn hook_result(code: StatusCode, after: Option<Duration>, is_same_operation: bool) -> Result<(), HookError> {
    let said = format!("the task's endpoint answered {}", code.as_u16());
    let said = code.canonical_reason().map_or_else(|| said.clone(), |reason| format!("{said} {reason}"));
    match code.as_u16() {
        200..300 => Ok(()),
        409 if is_same_operation => Ok(()),
        409 => Err(HookError::permanent(format!("{said}, without this operation's ID in the body"))),
        300..400 => Err(HookError::permanent(format!(
            "{said}: redirects are not followed; the tasks file must name the address itself"
        ))),
        // An invalid code from 600 on counts as a 5xx, as RFC 9110 asks.
        408 | 425 | 429 | 500.. => Err(HookError::Retry { message: said, after }),
        _ => Err(HookError::permanent(said)),
    }
}

fn is_same_operation(body: &[u8], call: &HookCall) -> bool {
    serde_json::from_slice::<Conflict>(body).is_ok_and(|found| found.operation_id == call.operation_id())
}

/// Returns the wait that an answer asks for: seconds, or a date in one of the three forms of RFC 9110.
fn retry_after<T>(response: &Response<T>, now: Timestamp) -> Option<Duration> {
    let text = response.headers().get(RETRY_AFTER)?.to_str().ok()?.trim();
    if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
        // A number that does not fit exceeds the longest wait.
        return Some(text.parse().map_or(RETRY_AFTER_MAX, Duration::from_secs).min(RETRY_AFTER_MAX));
    }
    let forms = ["%a, %d %b %Y %H:%M:%S GMT", "%A, %d-%b-%y %H:%M:%S GMT", "%a %b %e %H:%M:%S %Y"];
    let date = forms.iter().find_map(|form| DateTime::strptime(form, text).ok())?;
    let date = TimeZone::UTC.to_timestamp(date).ok()?;
    // A date that has passed asks for no wait.
    Some(Duration::try_from(date.duration_since(now)).unwrap_or_default().min(RETRY_AFTER_MAX))
}

/// Builds the header for a token, which may end with a line break.
fn bearer(contents: &[u8]) -> Result<HeaderValue, &'static str> {
    let token = contents.trim_ascii();
    if token.is_empty() {
        return Err("it is empty");
    }
    if !token.iter().all(u8::is_ascii_graphic) {
        return Err("it contains more than one token, or characters that are not allowed in a header");
    }
    let mut value = HeaderValue::from_bytes(&[b"Bearer ", token].concat())
        .map_err(|_| "it contains characters that are not allowed in a header")?;
    value.set_sensitive(true);
    Ok(value)
}

#[cfg(test)]
#[cfg(all(feature = "cli", feature = "sim"))]
mod tests;
