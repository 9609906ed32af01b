//! The operators: one folder per kind of custom resource, all with the same layout.
//!
//! | file | holds |
//! |---|---|
//! | `mod.rs` | a diagram of the children, and the wiring of informers, handlers and controller |
//! | `wanted.rs` | the children as a pure function of the custom resource |
//! | `sync.rs` | the sync handler: its steps, in order |
//! | `status.rs` | the status as a pure function of custom resource and children |
//!
//! The [`Reconciler`](crate::controller::Reconciler) calls these steps. Code that several kinds share
//! lives in [`controller`](crate::controller).

pub mod appservice;
pub mod foo;
pub mod myapp;
pub mod redis;
pub mod webapp;

use std::fmt;

use tokio_util::sync::CancellationToken;

use crate::cache::Synced;
use crate::controller::{BuildError, Controller, ControllerView, Shared, SyncHandler};

use webapp::TaskEntry;

/// The names of all operators, as `--controllers` takes them.
pub const NAMES: [&str; 5] = [foo::NAME, myapp::NAME, appservice::NAME, redis::NAME, webapp::NAME];

/// The inputs for wiring the operators.
#[derive(Debug)]
pub struct Context<'a> {
    /// Resources shared by all controllers.
    pub shared: Shared<'a>,
    /// The tasks that run for each WebApp, in order.
    pub webapp_tasks: Vec<TaskEntry>,
}

/// A controller that is wired but not yet running.
pub struct Wired {
    /// Resolves when the workers have started.
    pub started: Synced,
    /// Shows the controller's queue and workers.
    pub view: ControllerView,
    /// Runs the controller until its token is cancelled.
    pub run: RunController,
}

impl fmt::Debug for Wired {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Wired").field("started", &self.started).finish_non_exhaustive()
    }
}

/// Runs a controller until the token is cancelled.
pub type RunController =
    Box<dyn FnOnce(CancellationToken) -> futures_util::future::BoxFuture<'static, ()> + Send>;

/// Wires the named operator; `None` for a name that is not in [`NAMES`].
///
/// # Errors
/// [`BuildError`].
pub fn wire(name: &str, context: &Context<'_>) -> Result<Option<Wired>, BuildError> {
    Ok(Some(match name {
        foo::NAME => wired(foo::controller(&context.shared)?),
        myapp::NAME => wired(myapp::controller(&context.shared)?),
        appservice::NAME => wired(appservice::controller(&context.shared)?),
        redis::NAME => wired(redis::controller(&context.shared)?),
        webapp::NAME => webapp::wire(context)?,
        _ => return Ok(None),
    }))
}

fn wired<H: SyncHandler>(controller: Controller<H>) -> Wired {
    Wired {
        started: controller.started(),
        view: controller.view(),
        run: Box::new(move |shutdown| Box::pin(controller.run(shutdown))),
    }
}
