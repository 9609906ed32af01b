//! The operators: one folder for each kind of custom resource, all of the same shape.
//!
//! | file | holds |
//! |---|---|
//! | `mod.rs` | the picture of the children, wiring: which informers, which handlers, the controller |
//! | `wanted.rs` | the children as a pure function of the custom resource |
//! | `sync.rs` | the sync handler: its steps, in order |
//! | `status.rs` | the status as a pure function of custom resource and children |
//!
//! The frame around the steps is [`reconciler`](crate::controller::reconciler). What two kinds share lives in
//! [`controller`](crate::controller); what they watch is chosen here.

/// Implements [`CommonStatus`](crate::controller::CommonStatus) for a status that has conditions of the standard type.
macro_rules! common_status {
    ($status:ty) => {
        impl $crate::controller::CommonStatus for $status {
            fn observed_generation(&self) -> Option<i64> {
                self.observed_generation
            }

            fn conditions(&self) -> Vec<k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition> {
                self.conditions.clone()
            }

            fn set_common(
                &mut self,
                observed_generation: Option<i64>,
                conditions: Vec<k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition>,
            ) {
                self.observed_generation = observed_generation;
                self.conditions = conditions;
            }
        }
    };
}

pub mod appservice;
pub mod foo;
pub mod myapp;
pub mod redis;
pub mod webapp;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::api::labels;
use crate::cache::factory::Watched;
use crate::cache::{
    Cached, Indexers, Object, ObjectName, SharedInformer, SharedInformerFactory, Synced, object,
};
use crate::client::{ApiClient, Clock};
use crate::controller::audit::Audits;
use crate::controller::deployment::ObservedDeployment;
use crate::controller::handlers::{CHILD_NAME, EnqueueOwner, EnqueueSelf};
use crate::controller::{
    Children, Consistency, Controller, CustomResource, Reconcile, Reconciler, SyncHandler, Tools, Workers,
};
use crate::metrics::Metrics;
use crate::record::EventRecorder;
use crate::workqueue::{Ageing, Bucket, ItemExponentialFailure, MaxOf, QueueOptions, RateLimitingQueue};

use webapp::TaskEntry;

/// The names of all operators, as `--controllers` takes them.
pub const NAMES: [&str; 5] = [foo::NAME, myapp::NAME, appservice::NAME, redis::NAME, webapp::NAME];

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
    /// Counts.
    pub metrics: Metrics,
    /// What is run for each WebApp, in order.
    pub webapp_tasks: Vec<TaskEntry>,
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

/// A controller that is wired and waits to be run.
pub struct Wired {
    /// Tells when its workers have started.
    pub started: Synced,
    /// Changes how many they are.
    pub workers: Workers,
    /// Runs it until the token.
    pub run: RunController,
}

impl fmt::Debug for Wired {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Wired").field("started", &self.started).finish_non_exhaustive()
    }
}

/// Runs a controller until the token.
pub type RunController =
    Box<dyn FnOnce(CancellationToken) -> futures_util::future::BoxFuture<'static, ()> + Send>;

/// Wires the operator of this name; `None` for a name that is not in [`NAMES`].
#[must_use]
pub fn wire(name: &str, context: &Context<'_>) -> Option<Wired> {
    match name {
        foo::NAME => Some(wired(foo::controller(context))),
        myapp::NAME => Some(wired(myapp::controller(context))),
        appservice::NAME => Some(wired(appservice::controller(context))),
        redis::NAME => Some(wired(redis::controller(context))),
        webapp::NAME => Some(webapp::wire(context)),
        _ => None,
    }
}

fn wired<H: SyncHandler>(controller: Controller<H>) -> Wired {
    Wired {
        started: controller.started(),
        workers: controller.workers(),
        run: Box::new(move |shutdown| Box::pin(controller.run(shutdown))),
    }
}

/// The child names of a custom resource all of whose children have its own name.
fn child_of_its_name<K: Object>(object: &Cached<K>) -> Vec<String> {
    vec![object.object_name().to_string()]
}

/// The parts that every operator is made of, for one kind.
struct Operator<'a, K: CustomResource> {
    context: &'a Context<'a>,
    name: &'static str,
    objects: SharedInformer<K>,
    queue: RateLimitingQueue<ObjectName>,
    consistency: Arc<Consistency>,
}

impl<K: CustomResource> Operator<'_, K> {
    /// The controller around what the kind brings. It watches the objects; children are to be added.
    fn controller<R: Reconcile<Resource = K>>(&self, kind: R) -> Controller<Reconciler<R>> {
        let Context { client, recorder, clock, limits, .. } = self.context;
        let metrics = self.context.metrics.controller(self.name);
        let tools = Tools {
            client: client.clone(),
            objects: self.objects.lister(),
            children: Children::new(client.clone(), self.consistency.clone()).relists_owners({
                let objects = self.objects.clone();
                move || objects.relist()
            }),
            consistency: self.consistency.clone(),
            recorder: recorder.clone(),
            clock: *clock,
            metrics: metrics.clone(),
        };
        let reconciler = Reconciler::new(tools, kind);
        Controller::new(self.name, self.queue.clone(), reconciler, self.consistency.clone())
            .watches(&self.objects, EnqueueSelf::new(self.queue.clone()))
            .with_workers(limits.workers)
            .with_metrics(metrics)
    }

    /// Where its keys wait.
    fn queue(&self) -> RateLimitingQueue<ObjectName> {
        self.queue.clone()
    }

    /// The handler of a child kind.
    fn enqueue_owner(&self) -> EnqueueOwner<K> {
        EnqueueOwner::new(self.objects.store(), self.queue.clone())
    }
}

impl Context<'_> {
    /// The parts of the operator of this name; `child_names` are those that an object wants, `namespace/name`.
    fn operator<K: CustomResource>(
        &self,
        name: &'static str,
        child_names: fn(&Cached<K>) -> Vec<String>,
    ) -> Operator<'_, K> {
        let objects = self.informers.informer(|| Watched {
            transform: Some(object::trim),
            indexers: Indexers::default().with(CHILD_NAME, child_names),
            ..Watched::default()
        });
        let queue = self.queue(name);
        self.audits.add_owner(&objects, queue.clone());
        Operator { context: self, name, objects, queue, consistency: Arc::default() }
    }

    /// A queue with priorities and the sample-controller's two limits, longest wins.
    fn queue(&self, name: &'static str) -> RateLimitingQueue<ObjectName> {
        let Limits { base_delay, max_delay, qps, burst, .. } = self.limits;
        let limiter = MaxOf::new(vec![
            Box::new(ItemExponentialFailure::new(base_delay, max_delay)),
            Box::new(Bucket::new(qps, burst, max_delay)),
        ]);
        let options =
            QueueOptions { ageing: Some(Ageing::default()), metrics: Some(self.metrics.queue(name)) };
        let queue = RateLimitingQueue::with(limiter, options);
        self.metrics.observe_queue(name, queue.clone());
        queue
    }

    /// Our Deployments, as a projection.
    fn deployments(&self) -> SharedInformer<ObservedDeployment> {
        self.children()
    }

    /// Our children of one kind, as a projection. Only those that carry our label are listed and watched: in a
    /// big cluster we neither cache nor decode other people's. What the selector hides is met at the
    /// write, where a name that is taken is a 409.
    fn children<O: Object>(&self) -> SharedInformer<O> {
        let watched = || Watched { label_selector: Some(labels::SELECTOR.to_owned()), ..Watched::default() };
        let informer = self.informers.informer(watched);
        self.audits.add_child(&informer);
        informer
    }
}

#[cfg(test)]
#[cfg(feature = "sim")]
mod tests;
