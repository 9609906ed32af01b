//! What can go wrong with a request, by what the caller can do about it.

use std::fmt;
use std::time::Duration;

use kube_core::Status;

/// The longest wait that a server may ask for.
pub(super) const RETRY_AFTER_MAX: Duration = Duration::from_secs(600);

/// A request that did not succeed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The server answered, and the answer was no.
    #[error("{request}: {status}")]
    Status {
        /// Verb and path.
        request: String,
        /// What the server said.
        status: Box<ServerStatus>,
    },
    /// The server could not be reached, or the connection broke: whether a write was applied is unknown.
    #[error("{request}: connection to the API server")]
    Transport {
        /// Verb and path.
        request: String,
        /// The cause.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// Nothing came for so long: whether a write was applied is unknown.
    #[error("{request}: no answer within {after:?}")]
    Timeout {
        /// Verb and path.
        request: String,
        /// How long it was waited for.
        after: Duration,
    },
    /// The process is stopping, and the request would have had to wait: it was not sent.
    #[error("{request}: not sent, as the process is stopping")]
    NotSent {
        /// Verb and path.
        request: String,
    },
    /// The answer is not what was asked for.
    #[error("{request}: answer does not decode")]
    Decode {
        /// Verb and path.
        request: String,
        /// Where and why.
        #[source]
        source: serde_json::Error,
    },
    /// A line of a watch stream is longer than any object can be.
    #[error("{request}: a line of the watch stream is longer than {max} bytes")]
    LineTooLong {
        /// Verb and path.
        request: String,
        /// The limit.
        max: usize,
    },
}

impl Error {
    /// The server's answer, if it gave one.
    #[must_use]
    pub fn status(&self) -> Option<&ServerStatus> {
        match self {
            Self::Status { status, .. } => Some(status),
            Self::Transport { .. }
            | Self::Timeout { .. }
            | Self::NotSent { .. }
            | Self::Decode { .. }
            | Self::LineTooLong { .. } => None,
        }
    }

    /// The object or the kind does not exist.
    #[must_use]
    pub fn is_not_found(&self) -> bool {
        self.has(404, "NotFound")
    }

    /// A create met an object of the same name.
    #[must_use]
    pub fn is_already_exists(&self) -> bool {
        self.status().is_some_and(|status| status.reason == "AlreadyExists")
    }

    /// Somebody else wrote in between, or a precondition did not hold. After a restore of the store versions repeat, and
    /// only the uid tells: a patch with another uid is answered 422.
    #[must_use]
    pub fn is_conflict(&self) -> bool {
        self.has(409, "Conflict") && !self.is_already_exists() || self.is_about_uid()
    }

    fn is_about_uid(&self) -> bool {
        let causes = self.status().filter(|status| status.code == 422).map(|status| &status.causes);
        causes.is_some_and(|causes| causes.iter().any(|cause| cause.field == "metadata.uid"))
    }

    /// Not allowed: permission, quota, policy.
    #[must_use]
    pub fn is_forbidden(&self) -> bool {
        self.has(403, "Forbidden")
    }

    /// The version asked for is no longer kept: list again.
    #[must_use]
    pub fn is_expired(&self) -> bool {
        self.has(410, "Expired") || self.has(410, "Gone")
    }

    /// The version asked for is newer than what this server has.
    #[must_use]
    pub fn is_too_large_resource_version(&self) -> bool {
        self.status().is_some_and(|status| {
            status.causes.iter().any(|cause| {
                cause.reason == "ResourceVersionTooLarge" || cause.message == "Too large resource version"
            })
        })
    }

    /// The server asks for less.
    #[must_use]
    pub fn is_too_many_requests(&self) -> bool {
        self.has(429, "TooManyRequests")
    }

    /// The server itself asks for less, and not an admission webhook for one object: then there is no `Status`.
    #[must_use]
    pub fn is_overload(&self) -> bool {
        self.status().is_some_and(|status| status.code == 429 && !status.is_object)
    }

    /// The server refuses this object as it is: the same request would be refused again.
    #[must_use]
    pub fn is_refused(&self) -> bool {
        self.status().is_some_and(|status| matches!(status.code, 400 | 403 | 413 | 422))
            && !self.is_about_uid()
    }

    /// No answer came, or a broken one: nothing is known of the server's state.
    #[must_use]
    pub fn is_connection(&self) -> bool {
        matches!(self, Self::Transport { .. } | Self::Timeout { .. })
    }

    /// The server may have done what it was asked, or may not: no answer came, or that of a failure.
    #[must_use]
    pub fn is_outcome_unknown(&self) -> bool {
        self.is_connection() || self.status().is_some_and(|status| status.code >= 500)
    }

    /// How long the server asked to wait, ten minutes at most.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        self.status().and_then(|status| status.retry_after).map(|asked| asked.min(RETRY_AFTER_MAX))
    }

    fn has(&self, code: u16, reason: &str) -> bool {
        self.status().is_some_and(|status| status.code == code || status.reason == reason)
    }
}

/// What the server said: its Status object, or what can be told without one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServerStatus {
    /// HTTP code.
    pub code: u16,
    /// Machine-readable reason; empty when the server gave none.
    pub reason: String,
    /// The server's words.
    pub message: String,
    /// One entry for each field that was refused.
    pub causes: Vec<Cause>,
    /// How long the server asked to wait.
    pub retry_after: Option<Duration>,
    /// Whether it was a Status object.
    pub is_object: bool,
}

/// One field that the server refused, and why.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cause {
    /// Path of the field.
    pub field: String,
    /// Machine-readable reason.
    pub reason: String,
    /// The server's words.
    pub message: String,
}

impl ServerStatus {
    /// Reads an answer of this code. A body that is no Status object is not repeated: it comes from
    /// something between us and the server, and may hold anything.
    pub(crate) fn parse(code: u16, retry_after: Option<Duration>, body: &[u8]) -> Self {
        match serde_json::from_slice::<Status>(body) {
            Ok(status) if status.is_failure() => Self::from_status(status, code, retry_after),
            _ => Self {
                code,
                message: format!("the answer {code} came without a Status object"),
                retry_after,
                ..Self::default()
            },
        }
    }

    /// Takes over a Status object; `code` and `retry_after` of the answer fill what it leaves out.
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
    fn errors_keep_what_the_server_said() {
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
    fn a_webhooks_429_is_no_overload() {
        assert!(error(429, "Too many requests, please try again later.").is_overload());
        for reason in ["", r#""reason":"TooManyRequests","#] {
            let body = format!(r#"{{"status":"Failure","code":429,{reason}"message":"later"}}"#);
            let error = error(429, &body);
            assert!(error.is_too_many_requests() && !error.is_overload());
        }
    }

    #[test]
    fn a_server_may_not_ask_for_more_than_ten_minutes() {
        let body = r#"{"status":"Failure","code":429,"reason":"TooManyRequests","message":"m",
            "details":{"retryAfterSeconds":4000000000}}"#;
        assert_eq!(error(429, body).retry_after(), Some(RETRY_AFTER_MAX));
    }

    #[test]
    fn an_answer_without_a_status_object_is_judged_by_its_code_and_not_repeated() {
        let e = error(404, "<html>token=secret</html>");
        assert!(e.is_not_found());
        assert!(!e.to_string().contains("secret"));
    }

    #[test]
    fn a_conflict_and_an_existing_name_are_reported_apart() {
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
    fn a_version_from_the_future_is_recognised_in_both_spellings() {
        for cause in [r#""reason":"ResourceVersionTooLarge""#, r#""message":"Too large resource version""#] {
            let body = format!(
                r#"{{"status":"Failure","code":504,"reason":"Timeout","message":"m","details":{{"causes":[{{{cause}}}]}}}}"#
            );
            assert!(error(504, &body).is_too_large_resource_version(), "{cause}");
        }
    }
}
