//! What the spans of a sync tell of its key.

use std::fmt;

use super::{Controller, Outcome, SyncError};
use crate::cache::ObjectName;
use crate::controller::key::KeyState;
use crate::metrics::Retry;
use crate::traces::{Failed, SyncTrace, Woken};
use crate::workqueue::Processing;

impl<H> Controller<H> {
    /// Starts the spans of a sync, and names their trace in its lines of the log.
    pub(super) fn trace(&self, processing: &Processing<'_, ObjectName>, state: &mut KeyState) -> SyncTrace {
        let key = processing.key();
        let trace = self.tracer.sync(&mut state.traced, processing.waited(), || Woken {
            controller: self.name,
            kind: &self.kind,
            namespace: key.namespace(),
            name: key.name(),
            reasons: processing.reasons().iter().map(ToString::to_string).collect(),
            failures: self.queue.num_requeues(key),
        });
        if let Some(id) = trace.id() {
            tracing::Span::current().record("trace_id", id);
        }
        trace
    }
}

/// Returns what the span of a sync tells of its end.
pub(super) fn end<P>(ended: &Result<Result<Outcome, SyncError>, P>) -> Result<&dyn fmt::Debug, Failed> {
    match ended {
        Ok(Ok(outcome)) => Ok(outcome),
        Ok(Err(error)) => {
            let status = error.of_client().and_then(|error| error.status());
            Err(Failed { class: error.retry().as_label(), code: status.map(|status| status.code) })
        }
        Err(_) => Err(Failed { class: Retry::Panic.as_label(), code: None }),
    }
}
