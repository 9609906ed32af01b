//! Traces of syncs for OpenTelemetry: the wait of a key in the queue, its sync, and each request of the sync.
//!
//! client-go and controller-runtime start no spans. The names of attributes are OpenTelemetry's semantic conventions.
//! Flow: worker, client, hooks -> **traces** -> buffer -> collector
//!
//! ```text
//! foo                    from the event that woke the key to the end of its sync
//! ├── wait               in the queue
//! └── sync
//!     ├── GET foos       each request; the API server gets its identifiers in the header traceparent
//!     ├── POST deployments
//!     └── hook           of a WebApp's task, which may outlast the sync
//!         └── POST       the call of an `http` task, with the header, too
//! ```
//!
//! The parent of a request is the context that is current while its future is polled, as in OpenTelemetry's API, so
//! that neither clients nor sync handlers pass spans along. Without the feature `otlp` everything here is empty.
//!
//! # Guarantees
//! - A sampled sync is one trace: its wait, its sync and its requests, under one span. (test: `a_sync_is_one_trace`)
//! - A sync that is not sampled, or that nobody asked to trace, has neither spans nor the header.
//!   (test: `unsampled_sync_has_neither_spans_nor_header`)
//! - The wait of a key begins with its first event, however often the key is put off. (test: `wait_begins_with_the_first_event`)
//! - A full buffer drops spans and delays nobody. (test: `full_buffer_drops_spans_and_counts_them`)
//! - Spans hold names, codes and classes of errors: never a message, which may quote an object.
//!   (test: `failed_sync_and_request_tell_the_class_alone`)

#[cfg(feature = "otlp")]
mod export;
#[cfg(not(feature = "otlp"))]
mod off;
#[cfg(feature = "otlp")]
mod on;

use std::time::Duration;

#[cfg(feature = "otlp")]
pub use export::{Endpoint, EndpointError, Exporter, start};
#[cfg(not(feature = "otlp"))]
use off as spans;
#[cfg(feature = "otlp")]
use on as spans;
pub use spans::Tracer;
#[cfg(feature = "http-tasks")]
pub(crate) use spans::call;
pub(crate) use spans::{Carried, Scope, SyncTrace, answered, event, hook, request};

/// What the spans of a sync tell of its key.
#[derive(Debug)]
#[cfg_attr(not(feature = "otlp"), expect(dead_code, reason = "nothing reads it without spans"))]
pub(crate) struct Woken<'a> {
    pub(crate) controller: &'static str,
    pub(crate) kind: &'a str,
    pub(crate) namespace: Option<&'a str>,
    pub(crate) name: &'a str,
    /// Why the key is synced.
    pub(crate) reasons: Vec<String>,
    /// The failures of the key until now.
    pub(crate) failures: u32,
}

/// How a sync, a request or a hook failed, without its message.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(not(feature = "otlp"), expect(dead_code, reason = "nothing reads it without spans"))]
pub(crate) struct Failed {
    pub(crate) class: &'static str,
    /// The code of the server's answer, if there was one.
    pub(crate) code: Option<u16>,
}

/// How a key came to its sync.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(not(feature = "otlp"), expect(dead_code, reason = "nothing reads it without spans"))]
pub(crate) struct PutOff {
    /// How long it has waited since it was added to the queue.
    pub(crate) waited: Duration,
    pub(crate) why: &'static str,
}

#[cfg(all(test, feature = "cli", feature = "otlp"))]
mod tests;
