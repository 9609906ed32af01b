//! A task that only logs: one line for each hook.
//!
//! Mirrors the source document's `Step1TaskExecutor` to `Step3TaskExecutor`.
//!
//! # Guarantees
//! - Each hook logs one line with task, hook, object and operation ID. (test: `log_task_writes_one_line_per_hook`)

use std::time::Duration;

use super::{DEFAULT_TIMEOUT, HookCall, HookFuture, TaskExecutor, done};

/// Logs each of its hooks.
#[derive(Clone, Debug)]
pub struct LogTask {
    name: String,
    timeout: Duration,
}

impl LogTask {
    /// Creates a task with this name.
    #[must_use]
    pub fn new(name: &str) -> Self {
        Self { name: name.to_owned(), timeout: DEFAULT_TIMEOUT }
    }

    /// Sets the timeout of each hook.
    #[must_use]
    pub fn with_timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }
}

impl TaskExecutor for LogTask {
    fn name(&self) -> &str {
        &self.name
    }

    fn timeout(&self) -> Duration {
        self.timeout
    }

    fn pre_create<'a>(&'a self, call: &'a HookCall) -> HookFuture<'a> {
        say(call)
    }

    fn create<'a>(&'a self, call: &'a HookCall) -> HookFuture<'a> {
        say(call)
    }

    fn post_create<'a>(&'a self, call: &'a HookCall) -> HookFuture<'a> {
        say(call)
    }

    fn pre_delete<'a>(&'a self, call: &'a HookCall) -> HookFuture<'a> {
        say(call)
    }

    fn delete<'a>(&'a self, call: &'a HookCall) -> HookFuture<'a> {
        say(call)
    }

    fn post_delete<'a>(&'a self, call: &'a HookCall) -> HookFuture<'a> {
        say(call)
    }
}

fn say(call: &HookCall) -> HookFuture<'_> {
    tracing::info!(
        task = call.task(),
        hook = call.hook().as_str(),
        object = %call.object(),
        operation_id = call.operation_id(),
        "Ran a hook"
    );
    done()
}
