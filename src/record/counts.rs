//! Counts written, failed and dropped events, and logs the losses at most once a minute.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::client::Error;

/// How often a line about failed, or about dropped, events is logged at most.
const LINE_EVERY: Duration = Duration::from_secs(60);

/// The counts of events since the process started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EventCounts {
    /// Requests that the server accepted: new events and series.
    pub written: u64,
    /// Requests that the server refused, or that never reached it.
    pub failed: u64,
    /// Events that were dropped: too many waited, or too many were about one object.
    pub dropped: u64,
}

/// Counts events; see the module.
#[derive(Debug, Default)]
pub(super) struct Counts {
    written: AtomicU64,
    failed: AtomicU64,
    dropped: AtomicU64,
    lines: Mutex<Lines>,
}

#[derive(Debug, Default)]
struct Lines {
    failed: Line,
    dropped: Line,
}

#[derive(Debug, Default)]
struct Line {
    last: Option<Instant>,
    /// The number of events since the last line.
    untold: u64,
}

impl Line {
    /// Counts an event; returns the number to log if a line is due.
    fn add(&mut self) -> Option<u64> {
        self.untold += 1;
        let now = Instant::now();
        if self.last.is_some_and(|last| now - last < LINE_EVERY) {
            return None;
        }
        self.last = Some(now);
        Some(std::mem::take(&mut self.untold))
    }
}

// === impl Counts ===

impl Counts {
    pub(super) fn read(&self) -> EventCounts {
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        EventCounts { written: read(&self.written), failed: read(&self.failed), dropped: read(&self.dropped) }
    }

    pub(super) fn written(&self) {
        self.written.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn failed(&self, reason: &str, error: &Error) {
        self.failed.fetch_add(1, Ordering::Relaxed);
        let line = self.lines.lock().failed.add();
        if let Some(events) = line {
            let error = error as &dyn std::error::Error;
            tracing::warn!(events, reason, error, "Could not write events");
        }
    }

    pub(super) fn dropped(&self, cause: &'static str) {
        self.dropped.fetch_add(1, Ordering::Relaxed);
        let line = self.lines.lock().dropped.add();
        if let Some(events) = line {
            tracing::warn!(events, cause, "Dropped events");
        }
    }
}
