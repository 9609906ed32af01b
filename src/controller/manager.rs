//! Runs controllers and the parts they share, until shutdown.
//!
//! Mirrors controller-runtime `pkg/manager` and sample-controller's `main`.
//!
//! The controllers come from a [`Builder`](super::Builder). The manager adds informers, audits and the event sink,
//! runs everything, and stops it in order.
//!
//! # Guarantees
//! - Events recorded during shutdown are still written. (test: `events_are_written_before_the_manager_ends`)

use std::fmt;

use futures_util::future::{self, BoxFuture};
use tokio_util::sync::CancellationToken;

use super::builder::{BuildError, Limits, Shared};
use super::run::audit::Audits;
use super::run::worker::{Controller, SyncHandler};
use crate::cache::SharedInformerFactory;
use crate::client::{ApiClient, Clock};
use crate::metrics::Metrics;
use crate::record::{self, EventSink};

type Run = Box<dyn FnOnce(CancellationToken) -> BoxFuture<'static, ()> + Send>;

/// Runs controllers and the parts they share; see the module.
///
/// ```no_run
/// # use windlass::client::ApiClient;
/// # use windlass::controller::{Limits, Manager};
/// # use windlass::operators::foo;
/// # use tokio_util::sync::CancellationToken;
/// # async fn run(client: ApiClient, stop: CancellationToken) -> Result<(), windlass::controller::BuildError> {
/// let mut manager = Manager::new(client, Limits { workers: 4, ..Limits::default() });
/// manager.add(foo::controller)?;
/// manager.run(stop).await;
/// # Ok(())
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
    /// Creates a manager for all namespaces.
    #[must_use]
    pub fn new(client: ApiClient, limits: Limits) -> Self {
        Self::of_namespace(client, limits, None)
    }

    /// Creates a manager for one namespace, or for all with `None`.
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

    /// Adds the controller that `make` builds from the shared parts.
    ///
    /// # Errors
    /// The error of `make`; controllers that were added before stay.
    pub fn add<H: SyncHandler>(
        &mut self,
        make: impl FnOnce(&Shared<'_>) -> Result<Controller<H>, BuildError>,
    ) -> Result<(), BuildError> {
        let shared = Shared {
            client: self.client.clone(),
            informers: &self.informers,
            recorder: self.recorder.clone(),
            clock: Clock::system(),
            limits: self.limits,
            metrics: self.metrics.clone(),
            audits: std::mem::take(&mut self.audits),
            leadership: None,
        };
        let controller = make(&shared);
        self.audits = shared.audits;
        let controller = controller?;
        self.controllers.push(Box::new(|stop| Box::pin(controller.run(stop))));
        Ok(())
    }

    /// Returns the metrics, for an endpoint of the caller.
    #[must_use]
    pub fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    /// Runs everything until `stop`, then waits for syncs in flight and writes the remaining events.
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
