//! Dry runs: what syncs would write, answered by the server and not stored.
//!
//! Mirrors `kubectl diff` and `--dry-run=server`: the write passes validation, defaults and admission but not the store.
//! Flow: sync handler -> client -> **dry run** -> report
//!
//! # How it works
//! A client [`with_dry_run`](super::ApiClient::with_dry_run) has one layer more, which marks each write. Within
//! [`recorded`], which runs a sync, each write also becomes an [`Effect`]: the fields that would change, or the server's
//! refusal. The answer to a dry-run update has the stored resource version, so the writes that follow it in the same
//! sync are decided from a state that still exists.
//!
//! A conflict, a missing object and a taken name are no effects: the sync reads again and decides anew, or fails.
//!
//! # Guarantees
//! - A sync has the effects of its own writes. (test: `each_sync_has_its_own_effects`)

mod changes;
mod layer;

use parking_lot::Mutex;

pub use self::changes::{Change, HIDDEN};
pub(super) use self::layer::DryRunService;
use super::error::ServerStatus;

tokio::task_local! {
    /// The effects of the sync that runs.
    static EFFECTS: Mutex<Vec<Effect>>;
}

/// One thing that a sync would do.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    /// A write.
    Write(Write),
    /// A call of something outside the cluster, which a dry run does not make.
    Call {
        /// The name of the task.
        task: String,
        /// The name of its hook.
        hook: &'static str,
    },
}

/// A write that would be sent.
#[derive(Clone, Debug, PartialEq)]
pub struct Write {
    /// `create`, `patch` or `delete`.
    pub verb: &'static str,
    /// The kind of the written object.
    pub kind: String,
    /// Its namespace, if it has one.
    pub namespace: Option<String>,
    /// Its name.
    pub name: String,
    /// Whether only the status is written.
    pub is_status: bool,
    /// The fields that would change, or the server's refusal.
    pub outcome: Result<Vec<Change>, ServerStatus>,
}

/// Runs a sync, and returns what it would do as well. Effects of tasks that the sync spawns are lost.
///
/// # Cancel safety
/// Dropping the future drops the sync and its steps.
pub async fn recorded<F: Future>(pass: F) -> (F::Output, Vec<Effect>) {
    let both = async {
        let ended = pass.await;
        (ended, EFFECTS.with(|effects| std::mem::take(&mut *effects.lock())))
    };
    EFFECTS.scope(Mutex::default(), both).await
}

/// Notes that a hook would be called, if a sync is recorded.
pub fn would_call(task: &str, hook: &'static str) {
    push(|| Effect::Call { task: task.to_owned(), hook });
}

pub(super) fn push(effect: impl FnOnce() -> Effect) {
    // Without a recorded sync there is nobody to tell.
    EFFECTS.try_with(|effects| effects.lock().push(effect())).ok();
}

#[cfg(test)]
#[cfg(feature = "sim")]
mod tests;
