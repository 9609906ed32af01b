//! Tells an observer what the workers do with each key.
//!
//! client-go has no counterpart: its workers keep no history.
//! Flow: workers -> **observer** -> `/debug`
//!
//! A controller without an observer, the default, builds none of these values.
//!
//! # Guarantees
//! - An observer is told when a key is taken, held for its own writes, and how its sync ended.
//!   (test: `observer_is_told_the_life_of_a_key`)

use std::borrow::Cow;
use std::fmt;
use std::time::Duration;

use super::outcome::{Outcome, SyncError};
use crate::cache::ObjectName;
use crate::controller::key::own_writes::Write;
use crate::metrics::Retry;
use crate::workqueue::Reasons;

/// Is told what the workers of one controller do. The methods are called by the worker's task and must be quick.
pub trait PassObserver: fmt::Debug + Send + Sync + 'static {
    /// A worker begins a sync of a key that waited this long in the queue.
    fn began(&self, worker: usize, key: &ObjectName, reasons: &Reasons, priority: i32, waited: Duration);
    /// The caches do not show the key's own writes yet, so the key is looked at again later.
    fn held(&self, key: &ObjectName);
    /// A sync ended; a retry or the next sync is already in the queue.
    fn ended(&self, worker: usize, key: &ObjectName, end: PassEnd);
}

/// How a sync ended.
#[derive(Clone, Debug, PartialEq)]
pub struct PassEnd {
    /// How long the sync took.
    pub took: Duration,
    /// Its outcome, or how it failed.
    pub result: Result<Outcome, PassFailure>,
    /// The kinds and names of the objects that it wrote, in order.
    pub writes: Vec<(Cow<'static, str>, ObjectName)>,
}

/// How a sync failed, without the message, which may quote an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PassFailure {
    /// The class of the failure.
    pub retry: Retry,
    /// Code and reason of the server's response, if there was one.
    pub status: Option<(u16, String)>,
}

impl PassEnd {
    pub(super) fn of<P>(
        took: Duration,
        ended: &Result<Result<Outcome, SyncError>, P>,
        writes: &[Write],
    ) -> Self {
        let result = match ended {
            Ok(Ok(outcome)) => Ok(*outcome),
            Ok(Err(error)) => Err(PassFailure::of(error)),
            Err(_) => Err(PassFailure { retry: Retry::Panic, status: None }),
        };
        let writes = writes.iter().map(|write| (write.kind.clone(), write.name.clone())).collect();
        Self { took, result, writes }
    }
}

impl PassFailure {
    fn of(error: &SyncError) -> Self {
        let status = error.of_client().and_then(|error| error.status());
        let status = status.map(|status| (status.code, status.reason.clone()));
        Self { retry: error.retry(), status }
    }
}
