//! The operators: one folder for each kind of custom resource, all of the same shape.
//!
//! | file | holds |
//! |---|---|
//! | `mod.rs` | the picture of the children, wiring: which informers, which handlers, the controller |
//! | `wanted.rs` | the children as a pure function of the custom resource |
//! | `sync.rs` | the sync handler: its steps, in order |
//! | `status.rs` | the status as a pure function of custom resource and children |
//!
//! The frame around the steps is [`reconciler`](crate::controller::reconcile::reconciler). What two kinds share lives in
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

use tokio_util::sync::CancellationToken;

use crate::cache::{Cached, Object, Synced};
use crate::controller::builder::Shared;
use crate::controller::{Controller, SyncHandler, Workers};

use webapp::TaskEntry;

/// The names of all operators, as `--controllers` takes them.
pub const NAMES: [&str; 5] = [foo::NAME, myapp::NAME, appservice::NAME, redis::NAME, webapp::NAME];

/// What the operators are wired with.
#[derive(Debug)]
pub struct Context<'a> {
    /// What all controllers share.
    pub shared: Shared<'a>,
    /// What is run for each WebApp, in order.
    pub webapp_tasks: Vec<TaskEntry>,
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
        foo::NAME => Some(wired(foo::controller(&context.shared))),
        myapp::NAME => Some(wired(myapp::controller(&context.shared))),
        appservice::NAME => Some(wired(appservice::controller(&context.shared))),
        redis::NAME => Some(wired(redis::controller(&context.shared))),
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

#[cfg(test)]
#[cfg(feature = "sim")]
mod tests;
