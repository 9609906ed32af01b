//! Errors of requests, classified by what the caller can do about them.

use std::fmt;
use std::time::Duration;

use kube_core::Status;
use serde::Deserialize;

use super::protobuf::STATUS;
use super::protobuf::envelope::object_in;

/// The longest wait that a server may ask for.
pub(super) const RETRY_AFTER_MAX: Duration = Duration::from_secs(600);

/// A request that did not succeed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The server answered with a failure.
    #[error("{request}: {status}")]
    Status {
        /// Verb and path.
        request: String,
        /// The server's answer.
        status: Box<ServerStatus>,
    },
    /// The server could not be reached, or the connection broke: whether a write was applied is unknown.
    #[error("{request}: connection to the API server failed")]
    Transport {
        /// Verb and path.
        request: String,
        /// The cause.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// No answer came in time: whether a write was applied is unknown.
    #[error("{request}: no answer within {after:?}")]
    Timeout {
        /// Verb and path.
        request: String,
        /// The timeout.
        after: Duration,
    },
    /// The request was not sent: it would have had to wait while the process is stopping.
    #[error("{request}: not sent because the process is shutting down")]
    NotSent {
        /// Verb and path.
        request: String,
    },
    /// The request was not sent: the read that it was decided on would have been too old by then.
    #[error("{request}: not sent because the read it was decided on is too old")]
    Stale {
        /// Verb and path.
        request: String,
    },
    /// The request was not sent: another process may hold the shard of its namespace.
    #[error("{request}: not sent because this process does not hold the shard of the namespace")]
    NotHeld {
        /// Verb and path.
        request: String,
    },
    /// The answer does not decode into the requested type.
    #[error("{request}: could not decode the answer")]
    Decode {
        /// Verb and path.
        request: String,
        /// The decoding error.
        #[source]
        source: serde_json::Error,
    },
    /// A part of the answer is longer than any object can be.
    #[error("{request}: an object of the answer is longer than {max} bytes")]
    TooLong {
        /// Verb and path.
        request: String,
        /// The limit.
        max: usize,
    },
}

impl Error {
    /// Returns the server's answer, if there was one.
    #[must_use]
    pub fn status(&self) -> Option<&ServerStatus> {
        match self {
            Self::Status { status, .. } => Some(status),
            Self::Transport { .. }
            | Self::Timeout { .. }
            | Self::NotSent { .. }
            | Self::Stale { .. }
            | Self::NotHeld { .. }
            | Self::Decode { .. }
            | Self::TooLong { .. } => None,
        }
    }

    /// Returns a word for the kind of error.
    pub(crate) fn class(&self) -> &'static str {
        match self {
            Self::Status { .. } => "status",
            Self::Transport { .. } => "connection",
            Self::Timeout { .. } => "timeout",
            Self::NotSent { .. } => "not sent",
            Self::Stale { .. } => "stale",
            Self::NotHeld { .. } => "not held",
            Self::Decode { .. } => "decode",
            Self::TooLong { .. } => "too long",
        }
    }

    /// Whether the request was not sent because another process may hold the shard of its namespace.
    #[must_use]
    pub fn is_not_held(&self) -> bool {
        matches!(self, Self::NotHeld { .. })
    }

    /// Whether the object or its kind does not exist.
    #[must_use]
    pub fn is_not_found(&self) -> bool {
        self.has(404, "NotFound")
    }

    /// Whether a create found an object of the same name.
    #[must_use]
    pub fn is_already_exists(&self) -> bool {
        self.status().is_some_and(|status| status.reason == "AlreadyExists")
    }

    /// Whether another client wrote in between, or a precondition failed. After a restore of etcd resource versions
    /// repeat and only the uid differs: a patch with another uid is answered 422.
    #[must_use]
    pub fn is_conflict(&self) -> bool {
        self.has(409, "Conflict") && !self.is_already_exists() || self.is_about_uid()
    }

    fn is_about_uid(&self) -> bool {
        let causes = self.status().filter(|status| status.code == 422).map(|status| &status.causes);
        causes.is_some_and(|causes| causes.iter().any(|cause| cause.field == "metadata.uid"))
    }

    /// Whether permissions, a quota or a policy forbid the request.
    #[must_use]
    pub fn is_forbidden(&self) -> bool {
        self.has(403, "Forbidden")
    }

    /// Whether the server no longer keeps the requested resource version: list again.
    #[must_use]
    pub fn is_expired(&self) -> bool {
        self.has(410, "Expired") || self.has(410, "Gone")
    }

    /// Whether the requested resource version is newer than this server's.
    #[must_use]
    pub fn is_too_large_resource_version(&self) -> bool {
        self.status().is_some_and(|status| {
            status.causes.iter().any(|cause| {
                cause.reason == "ResourceVersionTooLarge" || cause.message == "Too large resource version"
            })
        })
    }

    /// Whether the server, or a webhook, asks for fewer requests.
    #[must_use]
    pub fn is_too_many_requests(&self) -> bool {
        self.has(429, "TooManyRequests")
    }

    /// Whether the server itself is overloaded: unlike an admission webhook's 429, its answer has no `Status`.
    #[must_use]
    pub fn is_overload(&self) -> bool {
        self.status().is_some_and(|status| status.code == 429 && !status.is_object)
    }

    /// Whether the request was not sent because what it was decided on had become too old; see
    /// [`ApiClient::not_after`](super::ApiClient::not_after). Read again, and decide anew.
    #[must_use]
    pub fn is_stale(&self) -> bool {
        matches!(self, Self::Stale { .. })
    }

    /// Whether the server refuses this object: the same request would be refused again.
    #[must_use]
    pub fn is_refused(&self) -> bool {
        self.status().is_some_and(|status| matches!(status.code, 400 | 403 | 413 | 422))
            && !self.is_about_uid()
    }

    /// Whether no complete answer came: the server's state is unknown.
    #[must_use]
    pub fn is_connection(&self) -> bool {
        matches!(self, Self::Transport { .. } | Self::Timeout { .. })
    }

    /// Whether the server may have carried out the request: no answer came, or a 5xx.
    #[must_use]
    pub fn is_outcome_unknown(&self) -> bool {
        self.is_connection() || self.status().is_some_and(|status| status.code >= 500)
    }

    /// Returns how long the server asked to wait, ten minutes at most.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        self.status().and_then(|status| status.retry_after).map(|asked| asked.min(RETRY_AFTER_MAX))
    }

    fn has(&self, code: u16, reason: &str) -> bool {
        self.status().is_some_and(|status| status.code == code || status.reason == reason)
    }
}

/// A failure as the server reported it: its Status object, or the HTTP code if there is none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServerStatus {
    /// HTTP code.
    pub code: u16,
    /// Machine-readable reason; empty when the server gave none.
    pub reason: String,
    /// Human-readable message.
    pub message: String,
    /// One entry for each field that was refused.
    pub causes: Vec<Cause>,
    /// How long the server asked to wait.
    pub retry_after: Option<Duration>,
    /// Whether the answer was a Status object.
    pub is_object: bool,
}

/// One field that the server refused, and why.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cause {
    /// Path of the field.
    pub field: String,
    /// Machine-readable reason.
    pub reason: String,
    /// Human-readable message.
    pub message: String,
}

impl ServerStatus {
    /// Parses an answer with this code. A body that is not a Status object is not quoted: it comes from
    /// something between us and the server, and may contain anything.
    pub(crate) fn parse(code: u16, retry_after: Option<Duration>, body: &[u8]) -> Self {
        let status = match object_in(body) {
            Ok(object) => Status::deserialize(STATUS.read(object)),
            Err(_) => serde_json::from_slice(body),
        };
        match status {
            Ok(status) if status.is_failure() => Self::from_status(status, code, retry_after),
            _ => Self {
                code,
                message: format!("the answer {code} has no Status object"),
                retry_after,
                ..Self::default()
            },
        }
    }

    /// Returns whether the server refused to change an immutable field. Only the message shows this: the reason is that
    /// of any invalid field.
    pub(crate) fn is_immutable(&self) -> bool {
        self.causes.iter().any(|cause| cause.message.ends_with("field is immutable"))
    }

    /// Converts a Status object. `code` stands in for a missing code; `retry_after` wins over the body's.
    pub(crate) fn from_status(status: Status, code: u16, retry_after: Option<Duration>) -> Self {
        let (causes, seconds) =
            status.details.map(|details| (details.causes, details.retry_after_seconds)).unwrap_or_default();
        let in_body = (seconds > 0).then(|| Duration::from_secs(u64::from(seconds)));
        Self {
            code: if status.code == 0 { code } else { status.code },
            reason: status.reason,
            message: status.message,
            causes: causes
                .into_iter()
                .map(|c| Cause { field: c.field, reason: c.reason, message: c.message })
                .collect(),
            retry_after: retry_after.or(in_body),
            is_object: true,
        }
    }
}

/// Code, reason and message: `403 Forbidden: pods "x" is forbidden: exceeded quota`.
impl fmt::Display for ServerStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.code)?;
        if !self.reason.is_empty() {
            write!(f, " {}", self.reason)?;
        }
        write!(f, ": {}", self.message)
    }
}

/// The error of an answer whose body broke off. The server did answer: if it is lost, the next request tells.
pub(super) fn broken(name: &str, source: Box<dyn std::error::Error + Send + Sync>) -> Error {
    Error::Transport { request: name.to_owned(), source }
}

/// Replaces kube-client's errors about credentials, which quote the plugin's command line and output.
pub(super) const CREDENTIALS: &str = "could not obtain the credentials of the kubeconfig or the Pod";

pub(super) fn is_about_credentials(error: &(dyn std::error::Error + 'static)) -> bool {
    let mut cause = Some(error);
    while let Some(error) = cause {
        if error.is::<kube_client::client::AuthError>()
            || matches!(error.downcast_ref(), Some(kube_client::Error::Auth(_)))
        {
            return true;
        }
        cause = error.source();
    }
    false
}

/// Formats an error and its causes in one line.
pub(crate) fn explain(error: &(dyn std::error::Error + 'static)) -> String {
    if is_about_credentials(error) {
        return CREDENTIALS.to_owned();
    }
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let words = error.to_string();
        if !text.contains(&words) {
            text = format!("{text}: {words}");
        }
        cause = error.source();
    }
    text.lines().next().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(code: u16, body: &str) -> Error {
        Error::Status {
            request: "create deployments.apps".to_owned(),
            status: Box::new(ServerStatus::parse(code, None, body.as_bytes())),
        }
    }

    #[test]
    fn errors_keep_the_servers_status() {
        let e = error(
            422,
            r#"{"kind":"Status","status":"Failure","code":422,"reason":"Invalid","message":"it is invalid",
               "details":{"causes":[{"reason":"FieldValueInvalid","message":"must be > 0","field":"spec.replicas"}],
               "retryAfterSeconds":3}}"#,
        );
        assert!(e.is_refused());
        let status = e.status().unwrap();
        assert_eq!(status.causes[0].field, "spec.replicas");
        assert_eq!(e.retry_after(), Some(Duration::from_secs(3)));
        assert_eq!(e.to_string(), "create deployments.apps: 422 Invalid: it is invalid");
    }

    /// A webhook's answer is a Status, with a reason or without; an overloaded server's is plain text.
    #[test]
    fn webhook_429_is_not_overload() {
        assert!(error(429, "Too many requests, please try again later.").is_overload());
        for reason in ["", r#""reason":"TooManyRequests","#] {
            let body = format!(r#"{{"status":"Failure","code":429,{reason}"message":"later"}}"#);
            let error = error(429, &body);
            assert!(error.is_too_many_requests() && !error.is_overload());
        }
    }

    #[test]
    fn retry_after_is_capped_at_ten_minutes() {
        let body = r#"{"status":"Failure","code":429,"reason":"TooManyRequests","message":"m",
            "details":{"retryAfterSeconds":4000000000}}"#;
        assert_eq!(error(429, body).retry_after(), Some(RETRY_AFTER_MAX));
    }

    #[test]
    fn answer_without_status_is_judged_by_code_alone() {
        let e = error(404, "<html>token=secret</html>");
        assert!(e.is_not_found());
        assert!(!e.to_string().contains("secret"));
    }

    #[test]
    fn conflict_and_already_exists_are_distinct() {
        let exists = error(409, r#"{"status":"Failure","code":409,"reason":"AlreadyExists","message":"m"}"#);
        assert!(exists.is_already_exists() && !exists.is_conflict());
        let conflict = error(409, r#"{"status":"Failure","code":409,"reason":"Conflict","message":"m"}"#);
        assert!(conflict.is_conflict() && !conflict.is_already_exists());
    }

    #[test]
    fn a_patch_with_another_uid_is_a_conflict() {
        let causes = |field: &str| {
            let details = format!(r#"{{"causes":[{{"field":"{field}","reason":"FieldValueInvalid"}}]}}"#);
            let status = r#""status":"Failure","code":422,"reason":"Invalid","message":"m""#;
            error(422, &format!(r#"{{{status},"details":{details}}}"#))
        };
        let (uid, other) = (causes("metadata.uid"), causes("spec.replicas"));
        assert!(uid.is_conflict() && !uid.is_refused());
        assert!(!other.is_conflict() && other.is_refused());
    }

    #[test]
    fn too_large_version_is_recognised_in_both_forms() {
        for cause in [r#""reason":"ResourceVersionTooLarge""#, r#""message":"Too large resource version""#] {
            let body = format!(
                r#"{{"status":"Failure","code":504,"reason":"Timeout","message":"m","details":{{"causes":[{{{cause}}}]}}}}"#
            );
            assert!(error(504, &body).is_too_large_resource_version(), "{cause}");
        }
    }
}
