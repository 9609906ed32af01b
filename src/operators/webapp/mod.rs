//! WebApp: runs tasks of three hooks, in order on creation and in reverse on deletion; one keeps a Deployment.
//!
//! ```text
//! WebApp "web" { image, version, replicas }                finalizer webapp.jiajunhuang.com/finalizer
//!  │   creation  ──▶  task 1: pre_create create post_create  ──▶  task 2 ..  ──▶  task 3 ..
//!  │   deletion  ◀──  task 1: pre_delete delete post_delete  ◀──  task 2 ..  ◀──  task 3 ..
//!  └─ Deployment "web"    made by the task of type `deployment`; the image's repository, `version` as the tag
//! ```
//!
//! | module | holds |
//! |---|---|
//! | [`tasks`] | the trait of a task, the built-in tasks, and the file that lists them |
//! | `steps` | which hook is next: a pure function of the recorded steps |
//! | `hooks` | runs hooks outside the workers |
//! | `workload` | the Deployment and its task |
//! | `sync`, `status` | as in every operator |
//!
//! `status` has the table of conditions; a Deployment that is refused, foreign or contended is reported as for every
//! kind.
//!
//! # Differences from the source document
//! - The status records each hook's start before it runs and its end after. There, every step runs on every event, and
//!   nothing is recorded.
//! - Every hook has a timeout and an operation ID that its retries share; a failure is either retryable or permanent.
//! - A new spec runs all tasks again, after the running hook of the old spec has ended.
//! - A deletion during creation undoes only the tasks that were started.
//! - `version` replaces the tag in `image`.

mod hooks;
mod status;
mod steps;
mod sync;
pub mod tasks;
mod workload;

use std::fmt;
use std::sync::Arc;

use self::hooks::Task;
use self::sync::OneTask;
use self::tasks::TaskExecutor;
use crate::controller::{BuildError, Builder, ControllerContext, Runnable, own_name};

pub use sync::WebAppSync;

/// The operator's name, as `--controllers` takes it.
pub const NAME: &str = "webapp";

/// Keeps a WebApp until its tasks are undone.
pub const FINALIZER: &str = "webapp.jiajunhuang.com/finalizer";

/// One task of the list. Cheap to clone.
#[derive(Clone)]
pub enum TaskEntry {
    /// The task that keeps the Deployment, under this name.
    Workload(String),
    /// Any other task.
    Executor(Arc<dyn TaskExecutor>),
}

impl TaskEntry {
    /// Returns the task's name.
    #[must_use]
    pub fn name(&self) -> &str {
        match self {
            Self::Workload(name) => name,
            Self::Executor(executor) => executor.name(),
        }
    }
}

impl fmt::Debug for TaskEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("TaskEntry").field(&self.name()).finish()
    }
}

/// Builds the WebApp controller, with the runner of its hooks.
///
/// # Errors
/// [`BuildError`].
pub fn controller(context: &ControllerContext<'_>, tasks: &[TaskEntry]) -> Result<Runnable, BuildError> {
    let mut webapps = Builder::new(context, NAME, own_name)?;
    let deployments = webapps.owns()?;
    let (hooks, runner) = hooks::pair(webapps.queue());
    let tasks = tasks.iter().map(|entry| match entry {
        TaskEntry::Workload(name) => OneTask::Workload(name.clone()),
        TaskEntry::Executor(executor) => OneTask::Executor(Task::new(executor.clone())),
    });
    let sync = WebAppSync { client: context.client.clone(), deployments, tasks: tasks.collect(), hooks };
    Ok(Runnable::from(webapps.build(sync)).beside(|stop| runner.run(stop)))
}
