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

use crate::controller::{BuildError, ControllerContext, Runnable};
use webapp::TaskEntry;

/// The names of all operators, as `--controllers` takes them.
pub const NAMES: [&str; 5] = [foo::NAME, myapp::NAME, appservice::NAME, redis::NAME, webapp::NAME];

/// Builds the controller of the named operator; `None` for a name that is not in [`NAMES`]. `webapp_tasks` run for each
/// WebApp, in order.
///
/// # Errors
/// [`BuildError`].
pub fn controller(
    name: &str,
    context: &ControllerContext<'_>,
    webapp_tasks: &[TaskEntry],
) -> Result<Option<Runnable>, BuildError> {
    Ok(Some(match name {
        foo::NAME => foo::controller(context)?.into(),
        myapp::NAME => myapp::controller(context)?.into(),
        appservice::NAME => appservice::controller(context)?.into(),
        redis::NAME => redis::controller(context)?.into(),
        webapp::NAME => webapp::controller(context, webapp_tasks)?,
        _ => return Ok(None),
    }))
}
