//! Handling an error of one child: the sync continues with the other children, then fails and is retried.
//!
//! | error | the sync | its status |
//! |---|---|---|
//! | a broken connection, or an overloaded server | ends | not written |
//! | any other: 5xx, 429, conflict, timeout, forbidden read, undecodable response | continues | not written at first; `ChildFailing` once the failure lasts |
//!
//! In both cases the sync fails and is retried after the backoff. A failure lasts once the object's syncs have
//! failed for `FAILURE_LASTS`, or when the server asks for a wait that long. A shorter failure is not worth two
//! status writes.
//!
//! # Guarantees
//! - The other children are still applied, and a lasting failure is reported. (test: `failing_child_is_reported_and_blocks_no_other`)
//! - A short failure is not reported. (test: `short_failure_is_not_reported`)
//! - A long `Retry-After` is reported at once and obeyed. (test: `long_retry_after_is_reported_immediately_and_obeyed`)
//! - A forbidden read, a failing delete and a failing create in a batch are reported, too. (test: `forbidden_read_of_a_child_is_reported`, `lasting_delete_failure_of_a_child_is_reported`, `lasting_create_failure_in_a_batch_is_reported`)
//! - A broken connection ends the sync. (test: `a_broken_connection_ends_the_pass`)
//! - No spec is recorded as applied meanwhile. (test: `partly_applied_spec_is_not_recorded_as_applied`)
//! - The server's message is not repeated, because it may contain anything. (test: `failure_message_never_quotes_the_server`)

use std::time::Duration;

use super::custom_resource::CustomResource;
use super::{Pass, StopReason};
use crate::cache::{Cached, TypedObject};
use crate::client::Error;
use crate::controller::kinds::health::{ChildHealth, reason};

impl<K: CustomResource> Pass<'_, K> {
    /// Reports that `what`, usually a child, failed; returns an error where the table ends the sync.
    pub(super) fn fails_at(&mut self, what: &str, error: Error) -> Result<ChildHealth, StopReason> {
        let Some(why) = in_words(&error) else { return Err(error.into()) };
        tracing::debug!(what, %error, "Could not reconcile this part; continuing without it");
        let health = ChildHealth::failing(what, &why);
        self.report(health.clone());
        self.fails_after_its_status(error);
        Ok(health)
    }

    /// Fails the sync once its status is written. Of several errors, keeps the one with the longest `Retry-After`.
    pub fn fails_after_its_status(&mut self, error: Error) {
        if self.failure.as_ref().is_none_or(|known| known.retry_after() < error.retry_after()) {
            self.failure = Some(error);
        }
    }

    /// Whether a child has failed.
    pub(super) fn is_failing(&self) -> bool {
        self.reports.iter().any(|health| health.reason == reason::CHILD_FAILING)
    }

    /// Returns the wait that the server asked for when a child failed.
    pub(super) fn asked_to_wait(&self) -> Duration {
        self.failure.as_ref().and_then(Error::retry_after).unwrap_or_default()
    }

    /// Returns the cached child if this object owns it.
    pub(super) fn ours<O: TypedObject + Clone>(&self, cached: &Cached<O>) -> Option<O> {
        let child = cached.readable()?;
        self.owner.owns(cached).then(|| O::clone(child))
    }
}

/// Describes an error; `None` when it is not specific to one child.
fn in_words(error: &Error) -> Option<String> {
    if error.is_overload() {
        return None;
    }
    Some(match error {
        Error::Status { status, .. } => match status.code {
            401 => "the API server rejected the operator's credentials".to_owned(),
            403 => "the operator lacks permission".to_owned(),
            409 => "another client is writing it at the same time".to_owned(),
            429 => "the API server is throttling requests".to_owned(),
            code => format!("the API server returned {code}"),
        },
        Error::Timeout { .. } => "the request to the API server timed out".to_owned(),
        Error::Decode { .. } => "the API server's response could not be decoded".to_owned(),
        Error::Transport { .. }
        | Error::NotSent { .. }
        | Error::Stale { .. }
        | Error::NotHeld { .. }
        | Error::TooLong { .. } => {
            return None;
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::ServerStatus;

    fn answer(code: u16, is_object: bool) -> Error {
        let status = ServerStatus { code, message: "secret".to_owned(), is_object, ..<_>::default() };
        Error::Status { request: "create services".to_owned(), status: Box::new(status) }
    }

    #[test]
    fn failure_message_never_quotes_the_server() {
        let source = serde_json::from_str::<u8>("secret").unwrap_err();
        let timeout = Error::Timeout { request: "r".to_owned(), after: Duration::from_secs(1) };
        let errors = [400, 401, 403, 404, 409, 429, 500, 503].map(|code| answer(code, true));
        for error in errors.into_iter().chain([Error::Decode { request: "r".to_owned(), source }, timeout]) {
            let words = in_words(&error).unwrap();
            assert!(!words.contains("secret"), "{words}");
        }
        let cut = Error::Transport { request: "r".to_owned(), source: "cut".into() };
        for error in [answer(429, false), cut, Error::NotSent { request: "r".to_owned() }] {
            assert_eq!(in_words(&error), None, "{error}: not specific to one child");
        }
    }
}
