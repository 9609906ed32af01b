//! What a pass does about an error of one child: it looks after the others, and is made again.
//!
//! | error | the pass | its status |
//! |---|---|---|
//! | no connection, or a server that asks all of us for less | ends | not written |
//! | any other: 5xx, 429, a conflict, no answer in time, a read that is not allowed, what does not decode | goes on | not written at first; `ChildFailing` when it lasts |
//!
//! Either way it fails in the end, and is made again after the backoff. A failure lasts when the passes of an object have
//! failed so for `FAILURE_LASTS`, or when the server asks for a wait as long: what is over in a moment is no news, and would
//! cost two writes.
//!
//! # Guarantees
//! - The others are looked after, and it is told when it lasts. (test: `a_failing_child_holds_up_no_other_and_is_reported`)
//! - It is not told when it is over soon. (test: `a_failure_that_is_over_soon_is_not_reported`)
//! - A long wait is told at once and kept to. (test: `a_long_retry_after_is_reported_at_once_and_obeyed`)
//! - A read that is not allowed is told as well. (test: `a_child_that_may_not_be_read_is_reported`)
//! - So is a delete, and what is created in a batch. (test: `a_child_that_cannot_be_deleted_now_is_reported_when_it_lasts`, `a_pod_that_cannot_be_created_now_is_reported_when_it_lasts`)
//! - It fails no task of a WebApp. (test: `a_deployment_that_fails_is_reported_when_it_lasts_and_fails_no_task`)
//! - A connection that breaks ends the pass. (test: `a_broken_connection_ends_the_pass`)
//! - No spec is recorded as applied meanwhile. (test: `a_spec_that_has_not_reached_all_is_not_recorded_as_applied`)
//! - The server's words are not told: they may hold anything. (test: `a_failure_is_reported_in_words_of_our_own`)

use std::time::Duration;

use super::{ReconcileContext, StopReason};
use crate::cache::{Cached, Object};
use crate::client::Error;
use crate::controller::children::owner::Ownership;
use crate::controller::kinds::health::ChildHealth;
use crate::controller::reconcile::reconciler::CustomResource;

impl<K: CustomResource> ReconcileContext<'_, K> {
    /// An error met `what`, a child or what else there is to see to; the pass goes on where the table says so.
    pub(super) fn fails_at(&mut self, what: &str, error: Error) -> Result<(), StopReason> {
        let Some(why) = in_words(&error) else { return Err(error.into()) };
        tracing::debug!(what, %error, "Goes on without it");
        self.report(ChildHealth::failing(what, &why));
        self.is_failing = true;
        self.fails_after_its_status(error);
        Ok(())
    }

    /// Whether a child has failed.
    pub(in crate::controller) fn is_failing(&self) -> bool {
        self.is_failing
    }

    /// How long the server has asked to wait, of what has failed.
    pub(in crate::controller) fn asked_to_wait(&self) -> Duration {
        self.failure.as_ref().and_then(Error::retry_after).unwrap_or_default()
    }

    /// A child as the cache shows it, if it is this object's.
    pub(super) fn ours<O: Object + Clone>(&self, cached: &Cached<O>) -> Option<O> {
        let child = cached.readable()?;
        (self.owner.ownership(&**child) == Ownership::Ours).then(|| O::clone(child))
    }
}

/// What kind of error it is; `None` for one that is not of one child alone.
fn in_words(error: &Error) -> Option<String> {
    if error.is_overload() {
        return None;
    }
    Some(match error {
        Error::Status { status, .. } => match status.code {
            401 | 403 => "the operator may not do that".to_owned(),
            409 => "somebody else writes it at the same time".to_owned(),
            429 => "the API server asks for less".to_owned(),
            code => format!("the API server answers {code}"),
        },
        Error::Timeout { .. } => "the API server does not answer in time".to_owned(),
        Error::Decode { .. } => "what the API server has does not decode".to_owned(),
        Error::Transport { .. } | Error::NotSent { .. } | Error::LineTooLong { .. } => return None,
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
    fn a_failure_is_reported_in_words_of_our_own() {
        let source = serde_json::from_str::<u8>("secret").unwrap_err();
        let timeout = Error::Timeout { request: "r".to_owned(), after: Duration::from_secs(1) };
        let errors = [400, 401, 403, 404, 409, 429, 500, 503].map(|code| answer(code, true));
        for error in errors.into_iter().chain([Error::Decode { request: "r".to_owned(), source }, timeout]) {
            let words = in_words(&error).unwrap();
            assert!(!words.contains("secret"), "{words}");
        }
        let cut = Error::Transport { request: "r".to_owned(), source: "cut".into() };
        for error in [answer(429, false), cut, Error::NotSent { request: "r".to_owned() }] {
            assert_eq!(in_words(&error), None, "{error}: not of one child");
        }
    }
}
