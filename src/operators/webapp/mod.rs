//! WebApp: tasks in order on creation, in reverse on deletion, each of three hooks; and a Deployment.
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
//! | [`tasks`] | what a task is, those that ship, and the file that lists them |
//! | `steps` | which hook is next: a pure function of what is recorded |
//! | `hooks` | runs hooks beside the workers |
//! | `workload` | the Deployment and its task |
//! | `sync`, `status` | as in every operator |
//!
//! The table of the conditions stands in `status`; those of a Deployment that is refused, not ours or contended are as
//! for every kind.
//!
//! # Differences from the source document
//! - Steps are recorded: the start of a hook before it is run, its end after. There, every step runs on every event, and
//!   nothing is remembered.
//! - Every hook has an operation ID that a retry repeats, a timeout, and an end that is tried again or not.
//! - A new spec runs all tasks anew, after the hook of the old one has ended.
//! - A deletion in mid-creation undoes what was started, and nothing else.
//! - `version` wins over the tag in `image`.

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
use super::{Context, Wired, child_of_its_name};
use crate::controller::builder::Builder;

pub use sync::WebAppSync;

/// The operator's name, as `--controllers` takes it.
pub const NAME: &str = "webapp";

/// Keeps a WebApp until its tasks are undone.
pub const FINALIZER: &str = "webapp.jiajunhuang.com/finalizer";

/// One entry of the list of tasks. Cheap to clone.
#[derive(Clone)]
pub enum TaskEntry {
    /// The task that makes the Deployment, under this name.
    Workload(String),
    /// Any other.
    Executor(Arc<dyn TaskExecutor>),
}

impl TaskEntry {
    /// The task's name.
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

/// Puts the controller together, and what runs the hooks beside it.
pub(super) fn wire(context: &Context<'_>) -> Wired {
    let mut webapps = Builder::new(&context.shared, NAME, child_of_its_name);
    let deployments = webapps.owns();
    let (hooks, runner) = hooks::pair(webapps.queue());
    let tasks = context.webapp_tasks.iter().map(|entry| match entry {
        TaskEntry::Workload(name) => OneTask::Workload(name.clone()),
        TaskEntry::Executor(executor) => OneTask::Executor(Task::new(executor.clone())),
    });
    let sync =
        WebAppSync { client: context.shared.client.clone(), deployments, tasks: tasks.collect(), hooks };
    let controller = webapps.build(sync);
    Wired {
        started: controller.started(),
        workers: controller.workers(),
        run: Box::new(move |shutdown| {
            Box::pin(async move {
                tokio::join!(controller.run(shutdown.clone()), runner.run(shutdown));
            })
        }),
    }
}
