//! Dry runs: what passes would write, answered by the server and not stored.
//!
//! Mirrors `kubectl diff` and `--dry-run=server`: a read of the live object, and the write with `dryRun=All`, which
//! passes validation, defaults and admission but not the store.
//! Flow: sync handler -> client -> **dry run** -> report
//!
//! # How it works
//! A client with a [`DryRun`] marks each write. Within [`recorded`], which runs a pass, each write also becomes a
//! [`Step`]: the fields that would change, or the server's refusal. The answer to a dry-run update has the stored
//! resource version, so the writes that follow it in the same pass are decided from a state that still exists.
//!
//! A conflict, a missing object and a taken name are no steps: the pass reads again and decides anew, or fails.
//!
//! # Guarantees
//! - No write is sent unmarked; events and Leases are not written at all.
//!   (test: `every_write_of_a_dry_run_is_marked`, `a_dry_run_writes_no_events_or_leases`)
//! - A pass has the steps of its own writes. (test: `each_pass_has_its_own_steps`)

mod changes;

use std::error::Error as StdError;
use std::sync::Arc;

use http::Method;
use parking_lot::Mutex;
use serde_json::{Value, json};

pub use self::changes::{Change, HIDDEN};
use super::api_client::explain;
use super::error::{Error, ServerStatus};
use super::gate::Passage;

tokio::task_local! {
    /// The steps of the pass that runs.
    static STEPS: Mutex<Vec<Step>>;
}

/// Collects what passes would do. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct DryRun {
    passes: Arc<Mutex<Passes>>,
}

#[derive(Debug, Default)]
struct Passes {
    expected: usize,
    ended: Vec<Pass>,
}

/// What the pass of one object would do.
#[derive(Clone, Debug, PartialEq)]
pub struct Pass {
    /// The object's kind.
    pub kind: String,
    /// The object's namespace, if it has one.
    pub namespace: Option<String>,
    /// The object's name.
    pub name: String,
    /// In their order.
    pub steps: Vec<Step>,
    /// Why the pass failed, if it did.
    pub error: Option<String>,
}

/// One thing that a pass would do.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
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

// === impl DryRun ===

impl DryRun {
    /// Announces that this many passes will end.
    pub fn expect(&self, passes: usize) {
        self.passes.lock().expected += passes;
    }

    /// Adds a pass that has ended.
    pub fn ended(&self, pass: Pass) {
        self.passes.lock().ended.push(pass);
    }

    /// Returns how many passes have ended, and how many are announced.
    #[must_use]
    pub fn progress(&self) -> (usize, usize) {
        let passes = self.passes.lock();
        (passes.ended.len(), passes.expected)
    }

    /// Takes the passes that have ended.
    #[must_use]
    pub fn take(&self) -> Vec<Pass> {
        std::mem::take(&mut self.passes.lock().ended)
    }
}

// === impl Pass ===

impl Pass {
    /// Adds why the pass failed, with the causes.
    #[must_use]
    pub fn failed(self, error: &(dyn StdError + 'static)) -> Self {
        Self { error: Some(explain(error)), ..self }
    }
}

/// Runs a pass, and returns what it would do as well. Steps of tasks that the pass spawns are lost.
///
/// # Cancel safety
/// Dropping the future drops the pass and its steps.
pub async fn recorded<F: Future>(pass: F) -> (F::Output, Vec<Step>) {
    let both = async {
        let ended = pass.await;
        (ended, STEPS.with(|steps| std::mem::take(&mut *steps.lock())))
    };
    STEPS.scope(Mutex::default(), both).await
}

/// Notes that a hook would be called, if a pass is recorded.
pub fn would_call(task: &str, hook: &'static str) {
    push(|| Step::Call { task: task.to_owned(), hook });
}

pub(super) fn push(step: impl FnOnce() -> Step) {
    // Without a recorded pass there is nobody to tell.
    STEPS.try_with(|steps| steps.lock().push(step())).ok();
}

/// Marks a request, so that the server stores nothing. A delete with a body is only marked by its body.
///
/// # Errors
/// [`Error::NotSent`] for events and Leases, which concern nobody in a dry run.
pub(super) fn marked(
    passage: Passage,
    method: &Method,
    path: &str,
    body: Option<&Value>,
) -> Result<(String, Option<Value>), Error> {
    match passage {
        _ if *method == Method::GET => return Ok((path.to_owned(), None)),
        // A review is a question: it is never stored.
        Passage::Read => return Ok((path.to_owned(), body.cloned())),
        Passage::Event | Passage::Election => {
            return Err(Error::NotSent { request: format!("{method} {path}") });
        }
        Passage::Write => {}
    }
    let separator = if path.contains('?') { '&' } else { '?' };
    let mut body = body.cloned();
    if *method == Method::DELETE {
        body.get_or_insert_with(|| json!({}))["dryRun"] = json!(["All"]);
    }
    Ok((format!("{path}{separator}dryRun=All"), body))
}

/// Returns the step for an answered write, or `None` if the pass itself deals with the answer.
pub(super) fn outcome(
    method: &Method,
    sent: &Value,
    before: Option<&Value>,
    answer: Result<&[u8], &Error>,
) -> Option<Result<Vec<Change>, ServerStatus>> {
    let answer: Value = match answer {
        Ok(body) => serde_json::from_slice(body).unwrap_or_default(),
        Err(error) if error.is_refused() => return error.status().cloned().map(Err),
        Err(_) => return None,
    };
    Some(Ok(match before {
        _ if *method == Method::DELETE => Vec::new(),
        Some(before) => changes::of_update(before, &answer),
        None => changes::of_create(sent, &answer),
    }))
}

#[cfg(test)]
#[cfg(feature = "sim")]
mod tests;
