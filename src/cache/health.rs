//! Logs the health of a reflector: one line per change, and at most one reminder a minute.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::client::Error;

const REMINDER: Duration = Duration::from_secs(60);

/// The state of one kind's cache.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CacheState {
    /// The kind, `plural.group`.
    pub kind: String,
    /// Whether the first list is in the store; remains true when the connection is lost later.
    pub is_synced: bool,
    /// Why the kind currently cannot be listed or watched: a status code and reason, or a description.
    pub trouble: Option<String>,
    /// Number of objects in the store.
    pub objects: usize,
}

/// Why a kind currently cannot be listed or watched; shared with readers.
#[derive(Clone, Debug, Default)]
pub(crate) struct Trouble(Arc<Mutex<Option<String>>>);

impl Trouble {
    pub(crate) fn get(&self) -> Option<String> {
        self.0.lock().clone()
    }
}

/// Tracks and logs the failures of one kind's list and watch.
#[derive(Debug)]
pub(crate) struct Health {
    /// The kind, `plural.group`.
    kind: String,
    /// The last cause that was logged, and when.
    logged: Option<(String, Instant)>,
    trouble: Trouble,
}

impl Health {
    pub(crate) fn new(kind: String, trouble: Trouble) -> Self {
        Self { kind, logged: None, trouble }
    }

    /// Records that a list succeeded or a watch was opened.
    pub(crate) fn works(&mut self) {
        *self.trouble.0.lock() = None;

        if self.logged.take().is_some() {
            tracing::info!(kind = self.kind, "Listing and watching this kind works again");
        }
    }

    /// Records a failure and logs it, except lost connections: the client logs these once for all kinds.
    pub(crate) fn failed(&mut self, error: &Error, again_in: Duration) {
        let retry_seconds = again_in.as_secs();
        *self.trouble.0.lock() = Some(cause(error));

        if error.is_connection() || !self.should_log(&cause(error), Instant::now()) {
            tracing::debug!(
                kind = self.kind,
                error = error as &dyn std::error::Error,
                retry_seconds,
                "Could not list or watch this kind; retrying"
            );
            return;
        }
        let advice = if error.is_not_found() {
            "The API server does not serve this kind: install its CRD; retrying until it is served"
        } else if error.is_forbidden() {
            "Not allowed to list and watch this kind: grant both verbs; retrying until they are granted"
        } else {
            "Could not list or watch this kind; retrying"
        };
        tracing::warn!(kind = self.kind, error = error as &dyn std::error::Error, retry_seconds, "{advice}");
    }

    /// Whether to log this failure: its cause is new, or was last logged a [`REMINDER`] ago.
    fn should_log(&mut self, cause: &str, now: Instant) -> bool {
        match &self.logged {
            Some((logged, at)) if logged == cause && now - *at < REMINDER => false,
            _ => {
                self.logged = Some((cause.to_owned(), now));
                true
            }
        }
    }
}

/// Returns what two equal failures have in common: not the message, which may contain versions and times.
fn cause(error: &Error) -> String {
    match error.status() {
        Some(status) => format!("{} {}", status.code, status.reason),
        None if error.is_connection() => "no response".to_owned(),
        None => "undecodable response".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lasting_failure_is_logged_once_a_minute() {
        let mut health = Health::new("foos".to_owned(), Trouble::default());
        let start = Instant::now();
        let mut is_logged = |cause, seconds| health.should_log(cause, start + Duration::from_secs(seconds));
        assert!(is_logged("404", 0));
        assert!(!is_logged("404", 30));
        assert!(is_logged("403", 31));
        assert!(!is_logged("403", 90));
        assert!(is_logged("403", 91));
    }
}
