//! The state of a reflector: logged once per change with at most one reminder a minute, and read by metrics and `/debug`.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::client::Error;

const REMINDER: Duration = Duration::from_secs(60);

/// What a reflector is doing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReflectorPhase {
    /// It has not started.
    #[default]
    Idle,
    /// It is listing.
    Listing,
    /// It is opening a watch.
    Connecting,
    /// A watch is open.
    Watching,
    /// It waits until this time before the next request.
    BackingOff(Instant),
}

/// A handler of an informer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HandlerState {
    /// The handler's type, without its modules.
    pub name: String,
    /// Number of notifications that wait for the handler.
    pub pending: usize,
}

/// The progress of a reflector.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// What the reflector is doing.
    pub phase: ReflectorPhase,
    /// Number of completed lists.
    pub lists: u64,
    /// Number of watch events, without bookmarks.
    pub events: u64,
    /// When the last event or bookmark arrived.
    pub last_event: Option<Instant>,
}

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
    /// Version of the last change in the store; empty before the first list.
    pub resource_version: Arc<str>,
    /// The progress of the reflector.
    pub progress: Progress,
    /// Number of changes in the FIFO.
    pub queued: usize,
    /// The handlers, in the order in which they were added.
    pub handlers: Vec<HandlerState>,
}

/// The state of a reflector, shared with readers.
#[derive(Clone, Debug, Default)]
pub(crate) struct Shared(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    /// Why the kind currently cannot be listed or watched.
    trouble: Option<String>,
    progress: Progress,
}

impl Shared {
    pub(crate) fn trouble(&self) -> Option<String> {
        self.0.lock().trouble.clone()
    }

    pub(crate) fn progress(&self) -> Progress {
        self.0.lock().progress.clone()
    }
}

/// Tracks and logs the failures of one kind's list and watch.
#[derive(Debug)]
pub(crate) struct Health {
    /// The kind, `plural.group`.
    kind: String,
    /// The last cause that was logged, and when.
    logged: Option<(String, Instant)>,
    shared: Shared,
}

impl Health {
    pub(crate) fn new(kind: String, shared: Shared) -> Self {
        Self { kind, logged: None, shared }
    }

    /// Records what the reflector is doing from now on.
    pub(crate) fn is(&self, phase: ReflectorPhase) {
        self.shared.0.lock().progress.phase = phase;
    }

    /// Records a completed list.
    pub(crate) fn listed(&self) {
        self.shared.0.lock().progress.lists += 1;
    }

    /// Records a watch event.
    pub(crate) fn received(&self, is_bookmark: bool) {
        let now = Instant::now();
        let progress = &mut self.shared.0.lock().progress;
        progress.events += u64::from(!is_bookmark);
        progress.last_event = Some(now);
    }

    /// Records that a list succeeded or a watch was opened.
    pub(crate) fn works(&mut self) {
        self.shared.0.lock().trouble = None;

        if self.logged.take().is_some() {
            tracing::info!(kind = self.kind, "Listing and watching this kind works again");
        }
    }

    /// Records a failure and logs it, except lost connections: the client logs these once for all kinds.
    pub(crate) fn failed(&mut self, error: &Error, again_in: Duration) {
        let retry_seconds = again_in.as_secs();
        self.shared.0.lock().trouble = Some(cause(error));

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
        let mut health = Health::new("foos".to_owned(), Shared::default());
        let start = Instant::now();
        let mut is_logged = |cause, seconds| health.should_log(cause, start + Duration::from_secs(seconds));
        assert!(is_logged("404", 0));
        assert!(!is_logged("404", 30));
        assert!(is_logged("403", 31));
        assert!(!is_logged("403", 90));
        assert!(is_logged("403", 91));
    }
}
