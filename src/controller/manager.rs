//! Runs controllers and everything that they share, until it is stopped.
//!
//! Mirrors controller-runtime `pkg/manager`; sample-controller's `main` does it by hand.
//!
//! In: a client, and controllers put together by [`Builder`](super::Builder). Out: informers, audits, events and workers
//! that run, and end in order.
//!
//! # Guarantees
//! - Events that are recorded last are written, too. (test: `events_are_written_before_the_manager_ends`)

use std::fmt;

use futures_util::future::{self, BoxFuture};
use tokio_util::sync::CancellationToken;

use super::builder::{Limits, Shared};
use super::run::audit::Audits;
use super::run::worker::{Controller, SyncHandler};
use crate::cache::SharedInformerFactory;
use crate::client::{ApiClient, Clock};
use crate::metrics::Metrics;
use crate::record::{self, EventSink};

type Run = Box<dyn FnOnce(CancellationToken) -> BoxFuture<'static, ()> + Send>;

/// Runs controllers and what they share; see the module.
///
/// ```no_run
/// # use windlass::client::ApiClient;
/// # use windlass::controller::{Limits, Manager};
/// # use windlass::operators::foo;
/// # use tokio_util::sync::CancellationToken;
/// # async fn run(client: ApiClient, stop: CancellationToken) {
/// let mut manager = Manager::new(client, Limits { workers: 4, ..Limits::default() });
/// manager.add(foo::controller);
/// manager.run(stop).await;
/// # }
/// ```
pub struct Manager {
    client: ApiClient,
    informers: SharedInformerFactory,
    limits: Limits,
    metrics: Metrics,
    recorder: record::EventRecorder,
    sink: EventSink,
    audits: Audits,
    controllers: Vec<Run>,
}

// === impl Manager ===

impl Manager {
    /// Controllers of all namespaces with these limits.
    #[must_use]
    pub fn new(client: ApiClient, limits: Limits) -> Self {
        Self::of_namespace(client, limits, None)
    }

    /// Controllers of one namespace (of all, with `None`).
    #[must_use]
    pub fn of_namespace(client: ApiClient, limits: Limits, namespace: Option<String>) -> Self {
        let metrics = Metrics::new();
        let client = client.with_metrics(&metrics);
        let informers = SharedInformerFactory::new(client.clone(), namespace, None, fastrand::u64(..));
        let (recorder, sink) = record::pair(client.clone(), Clock::system(), record::instance());
        let queues = metrics.clone();
        let sink = sink.waits_while(move || queues.has_queued_keys());
        let (audits, controllers) = (Audits::default(), Vec::new());
        Self { client, informers, limits, metrics, recorder, sink, audits, controllers }
    }

    /// Adds the controller that `make` puts together of what all share.
    pub fn add<H: SyncHandler>(&mut self, make: impl FnOnce(&Shared<'_>) -> Controller<H>) {
        let shared = Shared {
            client: self.client.clone(),
            informers: &self.informers,
            recorder: self.recorder.clone(),
            clock: Clock::system(),
            limits: self.limits,
            metrics: self.metrics.clone(),
            audits: std::mem::take(&mut self.audits),
        };
        let controller = make(&shared);
        self.audits = shared.audits;
        self.controllers.push(Box::new(|stop| Box::pin(controller.run(stop))));
    }

    /// What it counts, for an endpoint of the caller's.
    #[must_use]
    pub fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    /// Runs all until `stop`, then waits for the syncs in flight and writes the events that are left.
    ///
    /// # Cancel safety
    /// Not cancel-safe: end it by the token.
    pub async fn run(self, stop: CancellationToken) {
        let Self { client, informers, limits, metrics, sink, audits, controllers, .. } = self;
        let last = CancellationToken::new();
        let audit = async {
            if let Some(period) = limits.audit_period {
                let namespace = informers.namespace().map(str::to_owned);
                audits.run(client, namespace, period, metrics, stop.clone()).await;
            }
        };
        let all = controllers.into_iter().map(|run| run(stop.clone()));
        let machine = async {
            tokio::join!(informers.run(stop.clone()), audit, future::join_all(all));
            last.cancel();
        };
        tokio::join!(machine, sink.run(last.clone()));
    }
}

impl fmt::Debug for Manager {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Manager").field("controllers", &self.controllers.len()).finish_non_exhaustive()
    }
}

#[cfg(test)]
#[cfg(feature = "sim")]
mod tests;
