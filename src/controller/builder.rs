//! Builds a controller from the kind it reconciles, the child kinds it owns, and its reconciler.
//!
//! Mirrors controller-runtime `pkg/builder` (`For`, `Owns`, `Complete`) and sample-controller's `NewController`.
//!
//! # How it works
//! [`Builder::new`] creates the informers of the objects, one per namespace, with an index by child name, the queue with its rate
//! limits, and the guard of a key's own writes. Each [`owns`](Builder::owns) adds an informer of children with a
//! handler that enqueues their owners, and returns the lister for the reconciler. [`build`](Builder::build) wraps
//! the kind's [`Reconcile`] in a [`Reconciler`].
//!
//! Each part can be the caller's own: the queue with its limits ([`Builder::with_queue`]), the number of workers
//! ([`Builder::with_workers`]), informers and handlers ([`Builder::watches`]). With a [`SyncHandler`] in place of a
//! [`Reconcile`], use [`Controller::new`].
//!
//! # Guarantees
//! - Workers start only after all caches have synced and all handlers have seen the first list.
//!   (test: `workers_wait_for_the_caches`)
//! - A key waits until the caches of all its kinds have seen its own writes. (test: `a_key_waits_for_its_own_writes`)
//! - Given parts replace those of the builder. (test: `given_queue_workers_and_handlers_are_used`)

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::api::{ApiResource, labels};
use crate::cache::factory::Watched;
use crate::cache::{
    Cached, Ended, EventHandler, Indexers, InformerError, Lister, NamespacedInformers, ObjectName,
    SharedInformer, SharedInformerFactory, Synced, Transform, TypedObject, UnknownIndex,
};
use crate::client::shards::Shards;
use crate::client::{ApiClient, Clock};
use crate::controller::key::Keys;
use crate::controller::pass::custom_resource::CustomResource;
use crate::controller::pass::reconciler::{Reconcile, Reconciler};
use crate::controller::pass::{Relist, Tools};
use crate::controller::run::audit::Audits;
use crate::controller::run::handlers::{CHILD_NAME, EnqueueOwner, EnqueueSelf};
use crate::controller::run::takeover::Takeover;
use crate::controller::run::worker::Controller;
#[cfg(doc)]
use crate::controller::run::worker::SyncHandler;
use crate::leader_election::Leadership;
use crate::metrics::Metrics;
use crate::record::EventRecorder;
use crate::traces::Tracer;
use crate::workqueue::{Ageing, FairBucket, ItemExponentialFailure, MaxOf, QueueOptions, RateLimitingQueue};

/// What the controllers of a process share.
#[derive(Debug)]
pub struct ControllerContext<'a> {
    /// Sends requests to the API server.
    pub client: ApiClient,
    /// Hands out informers, one per kind and namespace for all controllers.
    pub informers: &'a SharedInformerFactory,
    /// Records events.
    pub recorder: EventRecorder,
    /// Provides the time stamps of conditions.
    pub clock: Clock,
    /// The number of workers and the limits of their queues.
    pub limits: Limits,
    /// Provides the metrics of each controller.
    pub metrics: Metrics,
    /// Traces syncs.
    pub tracer: Tracer,
    /// Collects the kinds to audit.
    pub audits: &'a Audits,
    /// Tells whether this process leads; `None` without leader election.
    pub leadership: Option<Leadership>,
    /// The shards that this process holds; `None` to work on all objects while it leads.
    pub shards: Option<Shards>,
}

/// Limits how many syncs run at once, and how fast failed ones are retried.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Number of workers per controller.
    pub workers: usize,
    /// Delay after the first failure of a key; doubles with each further failure.
    pub base_delay: Duration,
    /// Longest delay of a key.
    pub max_delay: Duration,
    /// Retries per second, over all keys of a controller, shared equally among namespaces with failing keys.
    pub qps: f64,
    /// Retries allowed at once before `qps` applies.
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
    /// Combines rate limiters like the two of sample-controller; the longer delay wins. But namespaces share the bucket:
    /// the failures of one do not delay the retries of others.
    pub(crate) fn limiter(&self) -> MaxOf<ObjectName> {
        let Self { base_delay, max_delay, qps, burst, .. } = *self;
        let namespace = |key: &ObjectName| key.namespace().unwrap_or_default().to_owned();
        MaxOf::new(vec![
            Box::new(ItemExponentialFailure::new(base_delay, max_delay)),
            Box::new(FairBucket::new(qps, burst, max_delay, namespace)),
        ])
    }
}

/// Builds the controller of one kind; see the module.
pub struct Builder<'a, K: CustomResource> {
    context: &'a ControllerContext<'a>,
    name: &'static str,
    objects: NamespacedInformers<K>,
    queue: RateLimitingQueue<ObjectName>,
    keys: Arc<Keys>,
    caches: Vec<Synced>,
    workers: usize,
    sync_timeout: Option<Duration>,
}

/// A controller that cannot be built.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    /// An informer cannot be had as the controller needs it.
    #[error("controller {controller}: {source}")]
    Informer {
        /// The controller's name.
        controller: &'static str,
        /// The cause.
        source: InformerError,
    },
    /// The informer of the objects has no index of child names.
    #[error("controller {controller}: {source}")]
    Index {
        /// The controller's name.
        controller: &'static str,
        /// The missing index.
        source: UnknownIndex,
    },
    /// An informer has ended already.
    #[error("controller {controller}: {kind}: {source}; build controllers before running the informers")]
    Ended {
        /// The controller's name.
        controller: &'static str,
        /// The kind of the informer.
        kind: String,
        /// The cause.
        source: Ended,
    },
}

/// The child names of an object whose children all share its name, for [`Builder::new`].
#[must_use]
pub fn own_name<K: TypedObject>(object: &Cached<K>) -> Vec<String> {
    vec![object.object_name().to_string()]
}

// === impl Builder ===

impl<'a, K: CustomResource> Builder<'a, K> {
    /// Starts building a controller called `name` in logs and metrics. `child_names` returns the children that an
    /// object wants, as `namespace/name`: the deletion of an object with that name enqueues it, whoever owned the
    /// child.
    ///
    /// # Errors
    /// [`BuildError`].
    pub fn new(
        context: &'a ControllerContext<'a>,
        name: &'static str,
        child_names: impl Fn(&Cached<K>) -> Vec<String> + Clone + Send + Sync + 'static,
    ) -> Result<Self, BuildError> {
        let options =
            QueueOptions { ageing: Some(Ageing::default()), metrics: Some(context.metrics.queue(name)) };
        let queue = RateLimitingQueue::with(context.limits.limiter(), options);
        Self::with_queue(context, name, child_names, queue)
    }

    /// Like [`new`](Self::new), with the caller's own queue: its own rate limiter, or other sources of keys.
    ///
    /// # Errors
    /// [`BuildError`].
    pub fn with_queue(
        context: &'a ControllerContext<'a>,
        name: &'static str,
        child_names: impl Fn(&Cached<K>) -> Vec<String> + Clone + Send + Sync + 'static,
        queue: RateLimitingQueue<ObjectName>,
    ) -> Result<Self, BuildError> {
        let watched = || Watched {
            transform: Some(Transform::new(K::trim)),
            indexers: Indexers::default().with(CHILD_NAME, child_names.clone()),
            ..Watched::default()
        };
        let objects = context.informers.informers(watched);
        let objects = objects.map_err(|source| BuildError::Informer { controller: name, source })?;
        context.metrics.observe_queue(name, queue.clone());
        let mut builder = Self {
            context,
            name,
            objects,
            queue,
            keys: Arc::default(),
            caches: Vec::new(),
            workers: context.limits.workers,
            sync_timeout: None,
        };
        for (_, informer) in builder.objects.clone().informers() {
            context.audits.add_owner(informer, builder.queue.clone(), builder.keys.clone());
            builder.watches(informer, EnqueueSelf::new(builder.queue.clone()))?;
        }
        Ok(builder)
    }

    /// Sets the number of workers, in place of [`Limits::workers`].
    #[must_use]
    pub fn with_workers(mut self, workers: usize) -> Self {
        self.workers = workers;
        self
    }

    /// Ends a sync that takes longer, and retries it; see [`Controller::with_sync_timeout`].
    #[must_use]
    pub fn with_sync_timeout(mut self, timeout: Duration) -> Self {
        self.sync_timeout = Some(timeout);
        self
    }

    /// Declares that the objects own children of kind `O`: a changed child enqueues its owner. Returns the
    /// children's lister.
    ///
    /// The informer selects children by our label, so that it neither decodes nor caches other people's objects. A
    /// name that is taken by an object without the label shows up as a 409 on create.
    ///
    /// # Errors
    /// [`BuildError`].
    pub fn owns<O: TypedObject>(&mut self) -> Result<Lister<O>, BuildError> {
        self.owns_with(|handler| handler)
    }

    /// Like [`owns`](Self::owns), for children with too many possible names to index: `known_by` maps the name of a
    /// child to the name to look up instead.
    ///
    /// # Errors
    /// [`BuildError`].
    pub fn owns_named<O: TypedObject>(
        &mut self,
        known_by: fn(&ObjectName) -> Option<ObjectName>,
    ) -> Result<Lister<O>, BuildError> {
        self.owns_with(|handler| handler.known_by(known_by))
    }

    fn owns_with<O: TypedObject>(
        &mut self,
        refine: impl Fn(EnqueueOwner<K>) -> EnqueueOwner<K>,
    ) -> Result<Lister<O>, BuildError> {
        let controller = self.name;
        let selector = labels::selector(self.context.client.manager());
        let watched = || Watched { label_selector: Some(selector.clone()), ..Watched::default() };
        let children = self.context.informers.informers::<O>(watched);
        let children = children.map_err(|source| BuildError::Informer { controller, source })?;
        for (_, informer) in children.informers() {
            self.context.audits.add_child(informer);
            let handler = EnqueueOwner::new(self.objects.lister(), self.queue.clone());
            let handler = handler.map_err(|source| BuildError::Index { controller, source })?;
            self.watches(informer, refine(handler))?;
        }
        Ok(children.lister())
    }

    /// Calls `handler` for each change that this informer sees, to add keys to the [`queue`](Self::queue). Workers wait until the
    /// handler has seen the first list, and a key waits until this cache has seen its own writes.
    ///
    /// # Errors
    /// [`BuildError::Ended`].
    pub fn watches<O: TypedObject>(
        &mut self,
        informer: &SharedInformer<O>,
        handler: impl EventHandler<O>,
    ) -> Result<(), BuildError> {
        let (controller, kind) = (self.name, ApiResource::of::<O>().to_string());
        let registration = informer.add_event_handler(handler);
        let registration = registration.map_err(|source| BuildError::Ended { controller, kind, source })?;
        self.caches.push(registration.synced());
        let namespace = informer.selection().namespace.clone();
        self.keys.observe_in(namespace, ApiResource::of::<O>(), informer.clone());
        Ok(())
    }

    /// Returns the queue of the controller's keys.
    #[must_use]
    pub fn queue(&self) -> RateLimitingQueue<ObjectName> {
        self.queue.clone()
    }

    /// Builds the controller around the kind's reconciler.
    #[must_use]
    pub fn build<R: Reconcile<Resource = K>>(self, kind: R) -> Controller<Reconciler<R>> {
        let ControllerContext {
            client, informers, recorder, clock, metrics, tracer, leadership, shards, ..
        } = self.context;
        let metrics = metrics.controller(self.name);
        let objects = self.objects.clone();
        let tools = Tools {
            client: client.clone(),
            objects: self.objects.lister(),
            relist: Relist::by(move || objects.relist()),
            recorder: recorder.clone(),
            clock: *clock,
            metrics: metrics.clone(),
        };
        let controller = Controller::new(self.name, self.queue, Reconciler::new(tools, kind))
            .with_keys(self.keys)
            .with_workers(self.workers)
            .with_objects(self.objects.lister())
            .with_metrics(metrics)
            .with_tracer(tracer.clone())
            .with_shards(shards.clone());
        let controller = self.caches.into_iter().fold(controller, Controller::waits_for);
        let controller = self.sync_timeout.into_iter().fold(controller, Controller::with_sync_timeout);
        let namespaces = informers.namespaces().to_vec();
        // A shard is worked when its caches have been listed since it was acquired: nothing is left to catch up with.
        match leadership.clone().filter(|_| shards.is_none()) {
            Some(leadership) => {
                controller.with_takeover(Takeover::new(client.clone(), namespaces, leadership))
            }
            None => controller,
        }
    }
}

impl<K: CustomResource> fmt::Debug for Builder<'_, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builder").field("name", &self.name).finish_non_exhaustive()
    }
}
