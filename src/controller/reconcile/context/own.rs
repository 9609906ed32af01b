//! Writes to the object itself besides its status: finalizers and annotations.
//!
//! A refused write is not repeated on every pass: see [`retry_holds`](crate::controller::children::retry_holds).
//!
//! # Guarantees
//! - A refused finalizer becomes a condition. (test: `refused_finalizer_sets_condition_and_backs_off`)
//! - A refused removal of a finalizer becomes a condition. (test: `refused_finalizer_removal_sets_condition`)
//! - A failing annotation write does not hold up the status, and is retried rarely. (test: `failing_annotation_write_does_not_block_ready`)

use super::{ReconcileContext, StopReason};
use crate::cache::{Meta, Object};
use crate::client::Error;
use crate::controller::children::owner::Owner;
use crate::controller::children::retry_holds::{Attempt, HoldReason, deletion_hold_key, hold_key};
use crate::controller::kinds::health::{ChildHealth, HealthPhase, REFUSED_RETRY, UNDONE_RETRY};
use crate::controller::reconcile::custom_resource::CustomResource;
use crate::controller::run::outcome::Outcome;

/// The longest annotation value that is written. Kubernetes allows 256 KiB for all annotations together.
const ANNOTATION_MAX: usize = 128 * 1024;

/// The kinds in a [`hold_key`].
const FINALIZER: &str = "finalizer";
const ANNOTATION: &str = "annotation";

/// A write of a finalizer.
struct Write {
    /// What the server may refuse, for messages.
    what: String,
    hold_key: String,
    attempt: Attempt,
}

impl<K: CustomResource> ReconcileContext<'_, K> {
    /// Adds a finalizer to the object; call this before the first effect that has to be undone. The successful write
    /// proves that the cached object was current.
    ///
    /// # Errors
    /// [`StopReason`], when the write failed or the object has changed.
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
            // The cache does not show the newer object yet.
            Ok(None) => Err(StopReason::Outcome(Outcome::RequeueAfter(UNDONE_RETRY))),
            Err(error) => Err(self.could_not(write, error)),
        }
    }

    /// Sets an annotation of the object if it differs and no child is stalled or failing. Nothing may depend on the
    /// annotation: a refusal is logged and retried as for a child; any other error fails the pass after its status is
    /// written.
    pub async fn annotate(&mut self, key: &str, value: &str) {
        #[derive(serde::Deserialize)]
        struct Written {
            metadata: Meta,
        }
        let stored = Object::annotations(&*self.object).and_then(|all| all.get(key)).map(String::as_str);
        let is_stalled = self.reports.iter().any(|health| health.phase == HealthPhase::Stalled);
        if stored == Some(value)
            || self.is_paused
            || is_stalled
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
                self.version = written.metadata.resource_version.into();
                self.owner.wrote(&self.tools.consistency, &self.version);
                return;
            }
            Err(error) => error,
        };
        match self.tools.children.refusal(error) {
            Ok(status) => {
                tracing::warn!(
                    annotation = key,
                    %status,
                    "The API server refused an annotation; nothing depends on it, retrying later"
                );
                retry_holds.record(hold_key, attempt, HoldReason::Refused(status));
                self.reports.push(unwritten(key).requeue_after(REFUSED_RETRY));
            }
            Err(error) => self.fails_after_its_status(error),
        }
    }

    /// Removes a finalizer from the object; call this after the last effect was undone.
    ///
    /// # Errors
    /// [`StopReason`], when the write failed, or when a live read shows that the object is not being deleted.
    pub async fn remove_finalizer(&mut self, finalizer: &str) -> Result<(), StopReason> {
        let write = Write {
            what: format!("to remove the finalizer {finalizer}"),
            hold_key: deletion_hold_key(&self.owner, FINALIZER, finalizer),
            attempt: Attempt::set(&self.owner, finalizer),
        };
        self.unless_refused_before(&write)?;
        match self.tools.children.remove_finalizer(&self.owner, finalizer).await {
            Ok(true) => {
                // No status write follows, so the deferred events are recorded here.
                self.record_left();
                tracing::info!(finalizer, "Removed the finalizer; cleanup of this object is complete");
                Ok(())
            }
            Ok(false) => Err(StopReason::Outcome(Outcome::RequeueAfter(UNDONE_RETRY))),
            Err(error) => Err(self.could_not(write, error)),
        }
    }

    /// Ends the pass while a retry hold covers the same write.
    fn unless_refused_before(&mut self, write: &Write) -> Result<(), StopReason> {
        match self.tools.children.retry_holds.active(&write.hold_key, write.attempt) {
            Some((HoldReason::Refused(status), requeue_after)) => {
                self.report(ChildHealth::refused(&write.what, &status).requeue_after(requeue_after));
                Err(StopReason::KeepStatus)
            }
            Some((HoldReason::Exists, _)) | None => Ok(()),
        }
    }

    /// Reports a failed write and returns how the pass ends.
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
            Err(error) => match self.fails_at("the finalizer of this object", error) {
                Ok(()) => StopReason::KeepStatus,
                Err(reason) => reason,
            },
        }
    }
}

/// Returns the health for a refused annotation, which is Ready: the annotation is retried, and nothing depends on it.
fn unwritten(key: &str) -> ChildHealth {
    ChildHealth::ready(format!("The annotation {key} could not be written; retrying"))
}
