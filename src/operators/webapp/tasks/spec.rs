//! Which tasks there are: the operator's configuration, and how executors are made of it.

use std::sync::Arc;
use std::time::Duration;

use super::super::TaskEntry;
#[cfg(feature = "http-tasks")]
use super::http::{HttpSpec, HttpTask};
use super::{DEFAULT_TIMEOUT, LogTask};
use crate::client::Clock;

/// One task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskSpec {
    /// A DNS label, its own within a list.
    pub name: String,
    /// How long each hook may take.
    pub timeout: Duration,
    /// What it does.
    pub kind: TaskKind,
}

/// What a task does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TaskKind {
    /// Logs each hook.
    Log,
    /// Keeps the Deployment of the WebApp. A list has one at most: it is where `availableReplicas` comes from.
    Deployment,
    /// Calls an endpoint for each hook.
    #[cfg(feature = "http-tasks")]
    Http(HttpSpec),
}

/// A task that cannot be made here.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("task {task:?}: {cause}")]
pub struct BuildError {
    /// Its name.
    pub task: String,
    /// What is missing, and what to do about it.
    pub cause: String,
}

/// The tasks when nobody has said otherwise: a log line, the Deployment, a log line.
#[must_use]
pub fn default_tasks() -> Vec<TaskSpec> {
    let task = |name: &str, kind| TaskSpec { name: name.to_owned(), timeout: DEFAULT_TIMEOUT, kind };
    vec![
        task("prepare", TaskKind::Log),
        task("workload", TaskKind::Deployment),
        task("announce", TaskKind::Log),
    ]
}

/// Makes what is run, in the order of the list; `clock` is for dates in answers.
///
/// # Errors
/// [`BuildError`] for a task that cannot be made.
pub fn build(tasks: &[TaskSpec], clock: Clock) -> Result<Vec<TaskEntry>, BuildError> {
    #[cfg(not(feature = "http-tasks"))]
    let _ = clock;
    let one = |task: &TaskSpec| -> Result<TaskEntry, BuildError> {
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
