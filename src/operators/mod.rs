//! The operators: one folder for each kind of custom resource, all of the same shape.
//!
//! | file | holds |
//! |---|---|
//! | `mod.rs` | the picture of the children, wiring: which informers, which handlers, the controller |
//! | `wanted.rs` | the children as a pure function of the custom resource |
//! | `sync.rs` | the sync handler |
//! | (observed) | what is seen of a child kind is shared: [`deployment`](crate::controller::deployment) |
//! | `status.rs` | the status as a pure function of custom resource and children |
//!
//! What two kinds share lives in [`controller`](crate::controller); what they watch is chosen here.

pub mod foo;

use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::api::labels;
use crate::cache::factory::Watched;
use crate::cache::{ObjectName, SharedInformer, SharedInformerFactory};
use crate::client::{ApiClient, Clock};
use crate::controller::deployment::ObservedDeployment;
use crate::record::EventRecorder;
use crate::workqueue::{Bucket, ItemExponentialFailure, MaxOf, RateLimitingQueue};

/// The names of all operators, as `--controllers` takes them.
pub const NAMES: [&str; 1] = [foo::NAME];

/// What every operator works with.
#[derive(Debug)]
pub struct Context<'a> {
    /// The way to the API server.
    pub client: ApiClient,
    /// Informers, shared among operators.
    pub informers: &'a SharedInformerFactory,
    /// Records events.
    pub recorder: EventRecorder,
    /// Stamps conditions.
    pub clock: Clock,
    /// Workers and limits.
    pub limits: Limits,
}

/// How many syncs run at once, and how fast failures are tried again.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Workers of each controller.
    pub workers: usize,
    /// A key's first delay; it doubles with each failure.
    pub base_delay: Duration,
    /// A key's longest delay.
    pub max_delay: Duration,
    /// Retries a second, over all keys of a controller.
    pub qps: f64,
    /// Retries at once before `qps` counts.
    pub burst: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            workers: 2,
            base_delay: Duration::from_millis(5),
            max_delay: Duration::from_secs(120),
            qps: 50.0,
            burst: 300,
        }
    }
}

/// A controller that is wired and waits to be run.
pub type RunController =
    Box<dyn FnOnce(CancellationToken) -> futures_util::future::BoxFuture<'static, ()> + Send>;

/// Wires the operator of this name; `None` for a name that is not in [`NAMES`].
#[must_use]
pub fn wire(name: &str, context: &Context<'_>) -> Option<RunController> {
    match name {
        foo::NAME => {
            let controller = foo::controller(context);
            Some(Box::new(move |shutdown| Box::pin(controller.run(shutdown))))
        }
        _ => None,
    }
}

impl Context<'_> {
    /// A queue with the sample-controller's two limits, longest wins.
    fn queue(&self) -> RateLimitingQueue<ObjectName> {
        let Limits { base_delay, max_delay, qps, burst, .. } = self.limits;
        RateLimitingQueue::new(MaxOf::new(vec![
            Box::new(ItemExponentialFailure::new(base_delay, max_delay)),
            Box::new(Bucket::new(qps, burst, max_delay)),
        ]))
    }

    /// Our Deployments, as a projection. Only those that carry our label are listed and watched: in a
    /// big cluster we neither cache nor decode other people's. What the selector hides is met at the
    /// write, where a name that is taken is a 409.
    fn deployments(&self) -> SharedInformer<ObservedDeployment> {
        self.informers
            .informer(|| Watched { label_selector: Some(labels::SELECTOR.to_owned()), ..Watched::default() })
    }
}
