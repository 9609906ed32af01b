//! What a reflector says in the log: one line when something changes, a reminder a minute at most.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::client::Error;

const REMINDER: Duration = Duration::from_secs(60);

/// How the cache of one kind is.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CacheState {
    /// The kind, `plural.group`.
    pub kind: String,
    /// Whether the first list is in the store. It stays so, whatever is lost later.
    pub is_synced: bool,
    /// Why the kind cannot be listed or watched at present: a code and a reason, or that no answer came.
    pub trouble: Option<String>,
    /// How many objects there are in the store.
    pub objects: usize,
}

/// Why a kind cannot be listed or watched at present, for those who ask.
#[derive(Clone, Debug, Default)]
pub(crate) struct Trouble(Arc<Mutex<Option<String>>>);

impl Trouble {
    pub(crate) fn get(&self) -> Option<String> {
        self.0.lock().clone()
    }
}

/// The state of one kind's list and watch, as far as the log has told it.
#[derive(Debug)]
pub(crate) struct Health {
    /// The kind, `plural.group`.
    kind: String,
    told: Option<(String, Instant)>,
    trouble: Trouble,
}

impl Health {
    pub(crate) fn new(kind: String, trouble: Trouble) -> Self {
        Self { kind, told: None, trouble }
    }

    /// A list succeeded, or a watch was opened.
    pub(crate) fn works(&mut self) {
        *self.trouble.0.lock() = None;

        if self.told.take().is_some() {
            tracing::info!(kind = self.kind, "List and watch work again");
        }
    }

    /// Something failed; lost connections are told once for all kinds, by the client.
    pub(crate) fn failed(&mut self, error: &Error, again_in: Duration) {
        let delay = again_in.as_secs_f32();
        *self.trouble.0.lock() = Some(cause(error));

        if error.is_connection() || !self.worth_a_line(&cause(error), Instant::now()) {
            tracing::debug!(kind = self.kind, error = error as &dyn std::error::Error, delay, "Trying again");
            return;
        }
        let advice = if error.is_not_found() {
            "The API server does not know this kind: install its CRD; trying again until it is there"
        } else if error.is_forbidden() {
            "Not allowed to list and watch this kind: grant list and watch; trying again until allowed"
        } else {
            "Could not list and watch this kind; trying again"
        };
        tracing::warn!(kind = self.kind, error = error as &dyn std::error::Error, delay, "{advice}");
    }

    fn worth_a_line(&mut self, cause: &str, now: Instant) -> bool {
        match &self.told {
            Some((told, at)) if told == cause && now - *at < REMINDER => false,
            _ => {
                self.told = Some((cause.to_owned(), now));
                true
            }
        }
    }
}

/// What makes two failures the same: not their words, which may carry versions and times.
fn cause(error: &Error) -> String {
    match error.status() {
        Some(status) => format!("{} {}", status.code, status.reason),
        None if error.is_connection() => "no answer".to_owned(),
        None => "an answer that does not decode".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lasting_cause_is_reported_once_a_minute() {
        let mut health = Health::new("foos".to_owned(), Trouble::default());
        let start = Instant::now();
        let mut told = |cause, seconds| health.worth_a_line(cause, start + Duration::from_secs(seconds));
        assert!(told("404", 0));
        assert!(!told("404", 30));
        assert!(told("403", 31));
        assert!(!told("403", 90));
        assert!(told("403", 91));
    }
}
