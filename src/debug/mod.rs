//! `/debug`: what the process is doing, as JSON and as a live page, on an address of its own.
//! `cli::debug` prints it as `windlass debug`.
//!
//! client-go has no counterpart; the nearest are apiserver's `/debug/pprof` and kube-scheduler's cache dumper.
//!
//! ```text
//! queues, workers, caches ──(read on request)──▶ Report ─┬▶ Endpoint ─▶ curl, `windlass debug`, the page
//! passes, requests ──(observers)──▶ Recorder ─────┘      └▶ Stream ───▶ the page
//! ```
//!
//! | file | holds |
//! |---|---|
//! | `recorder.rs` | requests in flight and the last events of keys; it exists only with `--debug-bind-address` |
//! | `report.rs` | the answers, as types |
//! | `process.rs` | reads the answers from the parts of the process |
//! | `endpoint.rs` | paths, parameters, and the check of Host and Origin |
//! | `stream.rs` | snapshots for the page, as server-sent events |
//! | `page/` | the page: one HTML file, its style, its script, and the text about each part |
//! | `switches.rs` | changes that the page of a demo asks for |
//!
//! # Guarantees
//! - Without the flag nothing is recorded and nothing listens (test: `debug_is_off_unless_asked_for`)
//! - A key is shown where it is: waiting, processing and on which request, delayed, or backing off
//!   (test: `each_key_is_shown_where_it_is`)
//! - An answer has at most as many keys as asked for (test: `answers_are_bounded`)
//! - Other web pages cannot read the answers (test: `foreign_hosts_and_origins_are_refused`)
//! - No object's content and no message of a server is shown (test: `answers_have_no_object_content`)

mod endpoint;
mod process;
mod recorder;
pub(crate) mod report;
mod stream;
#[cfg(feature = "demo")]
mod switches;

use std::sync::Arc;

use tokio::time::Instant;

use crate::cache::CacheState;
use crate::cli::Failure;
use crate::client::shards::Shards;
use crate::client::{ApiClient, Clock};
use crate::controller::ControllerView;
use crate::leader_election::Leadership;
use crate::server::{Listener, Server};
use endpoint::Site;
use process::Process;
use recorder::Recorder;
use stream::Stream;
#[cfg(feature = "demo")]
use switches::Switchboard;
#[cfg(feature = "demo")]
pub(crate) use switches::{Live, Switches};

/// What is prepared before the operator is wired.
pub(crate) struct Debug {
    listener: Listener,
    clock: Clock,
    recorder: Arc<Recorder>,
    #[cfg(feature = "demo")]
    switches: Option<switches::Given>,
}

impl Debug {
    pub(crate) fn new(listener: Listener, clock: Clock) -> Self {
        Self {
            listener,
            clock,
            recorder: Arc::new(Recorder::new(clock)),
            #[cfg(feature = "demo")]
            switches: None,
        }
    }

    /// Gives the page switches.
    #[cfg(feature = "demo")]
    pub(crate) fn with_switches(self, switches: impl Switches) -> Result<Self, Failure> {
        Ok(Self { switches: Some(switches::Given::new(switches)?), ..self })
    }

    /// Returns the URL of the page, with the token for its switches.
    #[cfg(feature = "demo")]
    pub(crate) fn url(&self) -> String {
        let token = self.switches.as_ref().map_or(String::new(), |given| format!("#token={}", given.token()));
        format!("http://{}/{token}", self.listener.address())
    }

    /// Returns a client whose requests are shown.
    pub(crate) fn observe(&self, client: ApiClient) -> ApiClient {
        client.with_observer(self.recorder.clone())
    }

    /// Creates the server; `controllers` tell the recorder about their passes from now on.
    pub(crate) fn server(
        self,
        controllers: Vec<ControllerView>,
        caches: impl Fn() -> Vec<CacheState> + Send + Sync + 'static,
        (leadership, shards): (Option<Leadership>, Option<Shards>),
        client: &ApiClient,
    ) -> Result<Server, Failure> {
        let Self { listener, clock, recorder, .. } = self;
        #[cfg(feature = "demo")]
        let switchboard = self.switches.map(|given| {
            let (controllers, client) = (controllers.clone(), client.clone());
            let live = Live { controllers, client, kinds: caches().len() };
            Switchboard::new(given, live)
        });
        #[cfg(feature = "demo")]
        let switches = switchboard.as_ref().map(Switchboard::positions);
        #[cfg(not(feature = "demo"))]
        let (switches, _) = (None, client);
        for view in &controllers {
            view.workers.observe(Arc::new(recorder::OfController::new(recorder.clone(), view.clone())));
        }
        let started = Instant::now();
        let caches = Box::new(caches);
        let process = Process { controllers, caches, recorder, leadership, shards, clock, started, switches };
        let process = Arc::new(process);
        let site = Site {
            stream: Stream::new(process.clone()),
            process,
            #[cfg(feature = "demo")]
            switchboard,
        };
        let server = Server::with_handler(listener, endpoint::handler(site));
        let server = server.map_err(|error| Failure::Running(error.to_string()))?;
        tracing::info!(address = %server.address(), paths = "/ /debug", "Serving");
        Ok(server)
    }
}

#[cfg(test)]
mod tests;
