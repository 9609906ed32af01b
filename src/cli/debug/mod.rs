//! `/debug`: what the process is doing, as JSON, on an address of its own; and the command that prints it.
//!
//! client-go has no counterpart; the nearest are apiserver's `/debug/pprof` and kube-scheduler's cache dumper.
//!
//! ```text
//! queues, workers, caches ──(read on request)──▶ Report ─▶ Endpoint ─▶ curl, `windlass debug`
//! passes, requests ──(observers)──▶ Recorder ─────┘
//! ```
//!
//! | file | holds |
//! |---|---|
//! | `recorder.rs` | requests in flight and the last events of keys; it exists only with `--debug-bind-address` |
//! | `report.rs` | the answers, as types |
//! | `process.rs` | reads the answers from the parts of the process |
//! | `endpoint.rs` | paths, parameters, and the check of Host and Origin |
//! | `command.rs` | `windlass debug` |
//!
//! # Guarantees
//! - Without the flag nothing is recorded and nothing listens (test: `debug_is_off_unless_asked_for`)
//! - A key is shown where it is: waiting, processing and on which request, delayed, or backing off
//!   (test: `each_key_is_shown_where_it_is`)
//! - An answer has at most as many keys as asked for (test: `answers_are_bounded`)
//! - Other web pages cannot read the answers (test: `foreign_hosts_and_origins_are_refused`)
//! - No object's content and no message of a server is shown (test: `answers_have_no_object_content`)

mod command;
mod endpoint;
mod process;
mod recorder;
mod report;

use std::sync::Arc;

use super::Failure;
use crate::cache::CacheState;
use crate::client::{ApiClient, Clock};
use crate::controller::ControllerView;
use crate::leader_election::Leadership;
use crate::server::{Listener, Server};
pub(super) use command::{Args, run};
use process::Process;
use recorder::Recorder;

/// What is prepared before the operator is wired.
pub(super) struct Debug {
    listener: Listener,
    clock: Clock,
    recorder: Arc<Recorder>,
}

impl Debug {
    pub(super) fn new(listener: Listener, clock: Clock) -> Self {
        Self { listener, clock, recorder: Arc::new(Recorder::new(clock)) }
    }

    /// Returns the address that the server will listen on.
    #[cfg(feature = "demo")]
    pub(super) fn address(&self) -> std::net::SocketAddr {
        self.listener.address()
    }

    /// Returns a client whose requests are shown.
    pub(super) fn observe(&self, client: ApiClient) -> ApiClient {
        client.with_observer(self.recorder.clone())
    }

    /// Creates the server; `controllers` tell the recorder about their passes from now on.
    pub(super) fn server(
        self,
        controllers: Vec<ControllerView>,
        caches: impl Fn() -> Vec<CacheState> + Send + Sync + 'static,
        leadership: Option<Leadership>,
    ) -> Result<Server, Failure> {
        let Self { listener, clock, recorder } = self;
        for view in &controllers {
            view.workers.observe(Arc::new(recorder::OfController::new(recorder.clone(), view.clone())));
        }
        let process = Process { controllers, caches: Box::new(caches), recorder, leadership, clock };
        let server = Server::with_handler(listener, endpoint::handler(Arc::new(process)));
        let server = server.map_err(|error| Failure::Running(error.to_string()))?;
        tracing::info!(address = %server.address(), paths = "/debug", "Serving");
        Ok(server)
    }
}

#[cfg(test)]
mod tests;
