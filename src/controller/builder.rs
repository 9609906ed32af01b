//! The public way to put a controller together: what it is for, what it owns, and what it does.
//!
//! Mirrors controller-runtime `pkg/builder` (`For`, `Owns`, `Complete`) and what sample-controller's `NewController` does
//! by hand.
//!
//! # How it works
//! [`Builder::new`] makes the informer of the objects, with the index by which a child finds the object that wants its
//! name, the queue with its limits, and the guard of own writes. Each [`owns`](Builder::owns) adds an informer of
//! children, a handler that queues their owner, and hands out their lister, which the sync handler needs.
//! [`build`](Builder::build) puts the frame around what the kind brings.
//!
//! # Guarantees
//! - No key is taken before all caches have synced and their handlers have heard of it. (test: `workers_wait_for_the_caches`)
//! - A key waits until the caches of all its kinds have seen what it wrote. (test: `a_key_waits_for_its_own_writes`)

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::api::labels;
use crate::cache::factory::Watched;
use crate::cache::{
    Cached, EventHandler, Indexers, Lister, Object, ObjectName, SharedInformer, SharedInformerFactory,
    Synced, object,
};
use crate::client::{ApiClient, Clock};
use crate::controller::children::apply::Children;
use crate::controller::reconcile::reconciler::{CustomResource, Reconcile, Reconciler, Tools};
use crate::controller::run::audit::Audits;
use crate::controller::run::consistency::Consistency;
use crate::controller::run::handlers::{CHILD_NAME, EnqueueOwner, EnqueueSelf};
use crate::controller::run::worker::Controller;
use crate::metrics::Metrics;
use crate::record::EventRecorder;
use crate::workqueue::{Ageing, Bucket, ItemExponentialFailure, MaxOf, QueueOptions, RateLimitingQueue};

/// What the controllers of a process share.
#[derive(Debug)]
pub struct Shared<'a> {
    /// The way to the API server.
    pub client: ApiClient,
    /// Informers: two controllers that watch the same kind have the same one.
    pub informers: &'a SharedInformerFactory,
    /// Records events.
    pub recorder: EventRecorder,
    /// Stamps conditions.
    pub clock: Clock,
    /// The number of workers and the limits of their queues.
    pub limits: Limits,
    /// Counts.
    pub metrics: Metrics,
    /// Collects the kinds to audit.
    pub audits: Audits,
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
    /// How often each kind's cache is compared with the server; `None` for never.
    pub audit_period: Option<Duration>,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            workers: 2,
            base_delay: Duration::from_millis(5),
            max_delay: Duration::from_secs(120),
            qps: 50.0,
            burst: 300,
            audit_period: Some(Duration::from_secs(30 * 60)),
        }
    }
}

impl Limits {
    /// The sample-controller's two limits, longest wins.
    fn limiter(&self) -> MaxOf<ObjectName> {
        let Self { base_delay, max_delay, qps, burst, .. } = *self;
        MaxOf::new(vec![
            Box::new(ItemExponentialFailure::new(base_delay, max_delay)),
            Box::new(Bucket::new(qps, burst, max_delay)),
        ])
    }
}

/// A controller of objects of one kind that is being put together; see the module.
pub struct Builder<'a, K: CustomResource> {
    shared: &'a Shared<'a>,
    name: &'static str,
    objects: SharedInformer<K>,
    queue: RateLimitingQueue<ObjectName>,
    consistency: Arc<Consistency>,
    caches: Vec<Synced>,
}

// === impl Builder ===

impl<'a, K: CustomResource> Builder<'a, K> {
    /// A controller of this name, for log and metrics. `child_names` are those that an object wants, as
    /// `namespace/name`: a child of such a name concerns it, also when it is somebody else's.
    #[must_use]
    pub fn new(
        shared: &'a Shared<'a>,
        name: &'static str,
        child_names: fn(&Cached<K>) -> Vec<String>,
    ) -> Self {
        let objects = shared.informers.informer(|| Watched {
            transform: Some(object::trim),
            indexers: Indexers::default().with(CHILD_NAME, child_names),
            ..Watched::default()
        });
        let options =
            QueueOptions { ageing: Some(Ageing::default()), metrics: Some(shared.metrics.queue(name)) };
        let queue = RateLimitingQueue::with(shared.limits.limiter(), options);
        shared.metrics.observe_queue(name, queue.clone());
        shared.audits.add_owner(&objects, queue.clone());
        let mut builder =
            Self { shared, name, objects, queue, consistency: Arc::default(), caches: Vec::new() };
        let (objects, handler) = (builder.objects.clone(), EnqueueSelf::new(builder.queue.clone()));
        builder.watch(&objects, handler);
        builder
    }

    /// The objects own children of this kind: a child that changes queues its owner, and the lister shows them.
    ///
    /// Only those that carry our label are listed and watched: in a big cluster we neither cache nor decode other
    /// people's. What the selector hides is met at the write, where a name that is taken is a 409.
    ///
    /// # Panics
    /// When the informers have ended.
    pub fn owns<O: Object>(&mut self) -> Lister<O> {
        self.owns_with(|handler| handler)
    }

    /// As [`owns`](Self::owns), with children whose names tell their owner's: `known_by` gives it.
    ///
    /// # Panics
    /// When the informers have ended.
    pub fn owns_named<O: Object>(&mut self, known_by: fn(&ObjectName) -> Option<ObjectName>) -> Lister<O> {
        self.owns_with(|handler| handler.known_by(known_by))
    }

    fn owns_with<O: Object>(&mut self, refine: impl FnOnce(EnqueueOwner<K>) -> EnqueueOwner<K>) -> Lister<O> {
        let watched = || Watched { label_selector: Some(labels::SELECTOR.to_owned()), ..Watched::default() };
        let children = self.shared.informers.informer::<O>(watched);
        self.shared.audits.add_child(&children);
        let handler = refine(EnqueueOwner::new(self.objects.store(), self.queue.clone()));
        self.watch(&children, handler);
        children.lister()
    }

    fn watch<O: Object>(&mut self, informer: &SharedInformer<O>, handler: impl EventHandler<O>) {
        let registration = informer.add_event_handler(handler).expect("an informer runs after the wiring");
        self.caches.push(registration.synced());
        self.consistency.observe(O::resource(), informer.store());
    }

    /// Where its keys wait.
    #[must_use]
    pub fn queue(&self) -> RateLimitingQueue<ObjectName> {
        self.queue.clone()
    }

    /// The controller around what the kind brings.
    #[must_use]
    pub fn build<R: Reconcile<Resource = K>>(self, kind: R) -> Controller<Reconciler<R>> {
        let Shared { client, recorder, clock, limits, metrics, .. } = self.shared;
        let metrics = metrics.controller(self.name);
        let objects = self.objects.clone();
        let children = Children::new(client.clone(), self.consistency.clone());
        let tools = Tools {
            client: client.clone(),
            objects: self.objects.lister(),
            children: children.relists_owners(move || objects.relist()),
            consistency: self.consistency.clone(),
            recorder: recorder.clone(),
            clock: *clock,
            metrics: metrics.clone(),
        };
        let controller =
            Controller::new(self.name, self.queue, Reconciler::new(tools, kind), self.consistency)
                .with_workers(limits.workers)
                .with_metrics(metrics);
        self.caches.into_iter().fold(controller, Controller::waits_for)
    }
}

impl<K: CustomResource> fmt::Debug for Builder<'_, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builder").field("name", &self.name).finish_non_exhaustive()
    }
}
