//! What a pass writes of the object itself, beside its status: a finalizer, an annotation.
//!
//! What the server refuses of them is not asked for at each pass, as for children: see
//! [`retry_holds`](crate::controller::children::retry_holds).
//!
//! # Guarantees
//! - A finalizer that the server refuses is a condition. (test: `a_refused_finalizer_is_reported_and_not_retried_each_pass`)
//! - So is one that may not be taken off. (test: `a_finalizer_that_may_not_be_taken_off_is_reported`)
//! - An annotation that cannot be written holds up no status, and is tried seldom. (test: `an_annotation_that_is_never_written_holds_up_nothing`)

use super::{ReconcileContext, StopReason};
use crate::cache::{Meta, Object};
use crate::client::Error;
use crate::controller::children::owner::Owner;
use crate::controller::children::retry_holds::{Attempt, HoldReason, deletion_hold_key, hold_key};
use crate::controller::kinds::health::{ChildHealth, HealthPhase, REFUSED_RETRY, UNDONE_RETRY};
use crate::controller::reconcile::reconciler::CustomResource;
use crate::controller::run::outcome::Outcome;

/// The longest value of an annotation that is written: all annotations together may have 256 KiB.
const ANNOTATION_MAX: usize = 128 * 1024;

/// Kinds of what is written, as [`hold_key`] has them.
const FINALIZER: &str = "finalizer";
const ANNOTATION: &str = "annotation";

/// A write of a finalizer.
struct Write {
    /// In words: what the server may refuse.
    what: String,
    hold_key: String,
    attempt: Attempt,
}

impl<K: CustomResource> ReconcileContext<'_, K> {
    /// Puts a finalizer on the object, before the first effect that has to be undone. The pass goes on when it is stored:
    /// the answer to the write proves that the object was as the cache shows it.
    ///
    /// # Errors
    /// [`StopReason`], when it could not be written, or the object has moved on.
    pub async fn add_finalizer(&mut self, finalizer: &str) -> Result<(), StopReason> {
        if self.has_finalizer(finalizer) || self.is_paused {
            return Ok(());
        }
        let write = Write {
            what: format!("the finalizer {finalizer}"),
            hold_key: hold_key(&self.owner, FINALIZER, finalizer),
            attempt: Attempt::set(&self.owner, finalizer),
        };
        self.unless_refused_before(&write)?;
        match self.tools.children.add_finalizer(&self.owner, finalizer).await {
            Ok(Some(version)) => {
                self.tools.children.retry_holds.clear(|| write.hold_key);
                self.owner.finalizers.push(finalizer.to_owned());
                self.owner.version.clone_from(&version);
                self.version = version;
                Ok(())
            }
            // The event that shows that the object has moved on is on its way to the cache.
            Ok(None) => Err(StopReason::Outcome(Outcome::RequeueAfter(UNDONE_RETRY))),
            Err(error) => Err(self.could_not(write, error)),
        }
    }

    /// Sets an annotation of the object, when it is not so already and nothing stands in the way of the spec. Nothing
    /// may depend on it: a refusal is a line in the log and tried again like that of a child, and anything else fails
    /// the pass after its status is written.
    pub async fn annotate(&mut self, key: &str, value: &str) {
        #[derive(serde::Deserialize)]
        struct Written {
            metadata: Meta,
        }
        let stored = Object::annotations(&*self.object).and_then(|all| all.get(key)).map(String::as_str);
        let is_in_the_way = self.reports.iter().any(|finding| finding.phase == HealthPhase::Stalled);
        if stored == Some(value)
            || self.is_paused
            || is_in_the_way
            || self.is_failing
            || value.len() > ANNOTATION_MAX
        {
            return;
        }
        let (hold_key, attempt) =
            (hold_key(&self.owner, ANNOTATION, key), Attempt::set(&self.owner, (key, value)));
        let retry_holds = &self.tools.children.retry_holds;
        if let Some((_, requeue_after)) = retry_holds.active(&hold_key, attempt) {
            self.reports.push(unwritten(key).requeue_after(requeue_after));
            return;
        }
        let Owner { resource, name, .. } = &self.owner;
        let object = (name.namespace(), name.name());
        let client = &self.tools.client;
        let error = match client.annotate::<Written>(resource, object, &self.version, (key, value)).await {
            Ok(written) => {
                self.version = written.metadata.resource_version;
                self.owner.wrote(&self.tools.consistency, &self.version);
                return;
            }
            Err(error) => error,
        };
        match self.tools.children.refusal(error) {
            Ok(status) => {
                tracing::warn!(annotation = key, %status, "The server refuses an annotation; nothing else depends on it");
                retry_holds.record(hold_key, attempt, HoldReason::Refused(status));
                self.reports.push(unwritten(key).requeue_after(REFUSED_RETRY));
            }
            Err(error) => self.fails_after_its_status(error),
        }
    }

    /// Takes a finalizer off the object, after the last effect was undone.
    ///
    /// # Errors
    /// [`StopReason`], when it failed; also when a live read shows that the object is not being deleted.
    pub async fn remove_finalizer(&mut self, finalizer: &str) -> Result<(), StopReason> {
        let write = Write {
            what: format!("to take off the finalizer {finalizer}"),
            hold_key: deletion_hold_key(&self.owner, FINALIZER, finalizer),
            attempt: Attempt::set(&self.owner, finalizer),
        };
        self.unless_refused_before(&write)?;
        match self.tools.children.remove_finalizer(&self.owner, finalizer).await {
            Ok(true) => {
                // No status is written after it: what was to be recorded with one is true now.
                self.record_left();
                tracing::info!(finalizer, "Took off the finalizer: nothing of this object is left to undo");
                Ok(())
            }
            Ok(false) => Err(StopReason::Outcome(Outcome::RequeueAfter(UNDONE_RETRY))),
            Err(error) => Err(self.could_not(write, error)),
        }
    }

    /// Ends the pass when the server has refused the same a short while ago.
    fn unless_refused_before(&mut self, write: &Write) -> Result<(), StopReason> {
        match self.tools.children.retry_holds.active(&write.hold_key, write.attempt) {
            Some((HoldReason::Refused(status), requeue_after)) => {
                self.report(ChildHealth::refused(&write.what, &status).requeue_after(requeue_after));
                Err(StopReason::KeepStatus)
            }
            Some((HoldReason::Exists, _)) | None => Ok(()),
        }
    }

    /// How the pass ends after a write that did not succeed.
    fn could_not(&mut self, write: Write, error: Error) -> StopReason {
        match self.tools.children.refusal(error) {
            Ok(status) => {
                self.report(ChildHealth::refused(&write.what, &status));
                self.tools.children.retry_holds.record(
                    write.hold_key,
                    write.attempt,
                    HoldReason::Refused(status),
                );
                StopReason::KeepStatus
            }
            Err(error) => match self.fails_at("The finalizer of this object", error) {
                Ok(()) => StopReason::KeepStatus,
                Err(halt) => halt,
            },
        }
    }
}

/// An annotation that is refused is no obstacle: it is a reason to look again.
fn unwritten(key: &str) -> ChildHealth {
    ChildHealth::ready(format!("The annotation {key} is not written"))
}
