//! Buffers events for the sink: Warnings and Normal events apart, with one bound for both.

use std::collections::VecDeque;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::{Event, EventType};

/// A bounded buffer of events; see the module.
#[derive(Debug)]
pub(super) struct Lane {
    size: usize,
    state: Mutex<Buffered>,
    /// Only the sink waits here.
    changed: Notify,
}

#[derive(Debug, Default)]
struct Buffered {
    warnings: VecDeque<Event>,
    normals: VecDeque<(Event, Instant)>,
    is_closed: bool,
}

/// The result of taking an event from the lane.
#[derive(Debug)]
pub(super) enum Taken {
    Event(Box<Event>),
    /// Only Normal events are left, and they have to wait.
    Held,
    Empty,
}

// === impl Lane ===

impl Lane {
    pub(super) fn new(size: usize) -> Self {
        Self { size, state: Mutex::default(), changed: Notify::new() }
    }

    /// Adds an event; if the lane is full or closed, returns the event that was dropped.
    pub(super) fn push(&self, event: Event) -> Option<Event> {
        let dropped = {
            let mut state = self.state.lock();
            if state.is_closed {
                return Some(event);
            }
            let is_full = state.warnings.len() + state.normals.len() >= self.size;
            let dropped = if is_full { state.normals.pop_front().map(|(event, _)| event) } else { None };
            if is_full && dropped.is_none() {
                return Some(event); // Only Warnings are left: the first of them show where the trouble began.
            }
            match event.event_type {
                EventType::Warning => state.warnings.push_back(event),
                EventType::Normal => state.normals.push_back((event, Instant::now())),
            }
            dropped
        };
        self.changed.notify_one();
        dropped
    }

    /// Takes the first Warning, or else the first Normal event if `may_go` allows it, given the time it was
    /// recorded.
    pub(super) fn take(&self, may_go: impl FnOnce(Instant) -> bool) -> Taken {
        let recorded = {
            let mut state = self.state.lock();
            if let Some(event) = state.warnings.pop_front() {
                return Taken::Event(Box::new(event));
            }
            let Some((_, recorded)) = state.normals.front() else { return Taken::Empty };
            *recorded
        };
        if !may_go(recorded) {
            return Taken::Held;
        }
        let first = self.state.lock().normals.pop_front();
        first.map_or(Taken::Empty, |(event, _)| Taken::Event(Box::new(event)))
    }

    /// Rejects all further events.
    pub(super) fn close(&self) {
        self.state.lock().is_closed = true;
    }

    /// Waits until an event was added since the last call.
    ///
    /// # Cancel safety
    /// Safe.
    pub(super) async fn changed(&self) {
        self.changed.notified().await;
    }
}
