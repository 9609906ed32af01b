//! The parts that a sync handler works with.

use std::sync::Arc;

use crate::cache::Lister;
use crate::client::{ApiClient, Clock};
use crate::controller::children::Children;
use crate::controller::run::consistency::Consistency;
use crate::metrics::ControllerMetrics;
use crate::record::EventRecorder;

/// The clients, caches and recorders that a sync handler of kind `K` works with.
#[derive(Debug)]
pub struct Tools<K> {
    /// Sends requests to the API server.
    pub client: ApiClient,
    /// Lists the objects of the kind, from the cache.
    pub objects: Lister<K>,
    /// Writes their children.
    pub children: Children,
    /// Tracks own writes until the caches show them.
    pub consistency: Arc<Consistency>,
    /// Records events.
    pub recorder: EventRecorder,
    /// Supplies the times in conditions.
    pub clock: Clock,
    /// Counts events such as contended children.
    pub metrics: ControllerMetrics,
}
