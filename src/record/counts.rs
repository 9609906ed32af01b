//! Counts written, failed and dropped events, and logs the losses at most once a minute. The sink calls
//! [`Counts::log_due`], so that each loss is logged within a minute and before the process ends.

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
    /// The number of losses since the last line.
    unlogged: u64,
    /// The cause of the latest loss.
    cause: String,
}

impl Line {
    fn add(&mut self, cause: String) {
        self.unlogged += 1;
        self.cause = cause;
    }

    /// Logs the losses if a line is due; `is_last`: no other line will follow. Returns when the next one is due.
    fn log_due(&mut self, message: &'static str, is_last: bool) -> Option<Instant> {
        if self.unlogged == 0 {
            return None;
        }
        let due = self.last.map(|last| last + LINE_EVERY);
        let now = Instant::now();
        if let Some(due) = due.filter(|due| *due > now && !is_last) {
            return Some(due);
        }
        self.last = Some(now);
        let events = std::mem::take(&mut self.unlogged);
        tracing::warn!(events, cause = std::mem::take(&mut self.cause), "{message}");
        None
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
        self.lines.lock().failed.add(format!("{reason}: {error}"));
        self.log_due(false);
    }

    pub(super) fn dropped(&self, cause: &'static str) {
        self.dropped.fetch_add(1, Ordering::Relaxed);
        self.lines.lock().dropped.add(cause.to_owned());
        self.log_due(false);
    }

    /// Logs the losses for which a line is due; `is_last`: all of them. Returns when to call it again, if at all.
    pub(super) fn log_due(&self, is_last: bool) -> Option<Instant> {
        let Lines { failed, dropped } = &mut *self.lines.lock();
        let due =
            [failed.log_due("Could not write events", is_last), dropped.log_due("Dropped events", is_last)];
        due.into_iter().flatten().min()
    }
}
