//! The operator's configuration of tasks, and how executors are built from it.

use std::sync::Arc;
use std::time::Duration;

use super::super::TaskEntry;
#[cfg(feature = "http-tasks")]
use super::http::{HttpSpec, HttpTask};
use super::{DEFAULT_TIMEOUT, LogTask};
use crate::client::Clock;

/// The configuration of one task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskSpec {
    /// A DNS label, unique within the list.
    pub name: String,
    /// How long each hook may take.
    pub timeout: Duration,
    /// The kind of work.
    pub kind: TaskKind,
}

/// The work of a task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TaskKind {
    /// Logs each hook.
    Log,
    /// Keeps the Deployment of the WebApp, the source of `availableReplicas`. A list has at most one such task.
    Deployment,
    /// Calls an endpoint for each hook.
    #[cfg(feature = "http-tasks")]
    Http(HttpSpec),
}

/// A task that cannot be built.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("task {task:?}: {cause}")]
pub struct TaskBuildError {
    /// The task's name.
    pub task: String,
    /// The missing part, and the remedy.
    pub cause: String,
}

/// Returns the default tasks: a log line, the Deployment, a log line.
#[must_use]
pub fn default_tasks() -> Vec<TaskSpec> {
    let task = |name: &str, kind| TaskSpec { name: name.to_owned(), timeout: DEFAULT_TIMEOUT, kind };
    vec![
        task("prepare", TaskKind::Log),
        task("workload", TaskKind::Deployment),
        task("announce", TaskKind::Log),
    ]
}

/// Builds the tasks in the order of the list; `clock` is for dates in answers.
///
/// # Errors
/// [`TaskBuildError`] for a task that cannot be built.
pub fn build(tasks: &[TaskSpec], clock: Clock) -> Result<Vec<TaskEntry>, TaskBuildError> {
    #[cfg(not(feature = "http-tasks"))]
    let _ = clock;
    let one = |task: &TaskSpec| -> Result<TaskEntry, TaskBuildError> {
        Ok(match &task.kind {
            TaskKind::Log => {
                TaskEntry::Executor(Arc::new(LogTask::new(&task.name).with_timeout(task.timeout)))
            }
            TaskKind::Deployment => TaskEntry::Workload(task.name.clone()),
            #[cfg(feature = "http-tasks")]
            TaskKind::Http(spec) => {
                TaskEntry::Executor(Arc::new(HttpTask::new(&task.name, task.timeout, spec, clock)?))
            }
        })
    };
    tasks.iter().map(one).collect()
}
