//! Writes to the object itself besides its status: finalizers and annotations.
//!
//! A refused write is not repeated in every sync: see [`holds`](crate::controller::key::holds).
//!
//! # Guarantees
//! - A refused finalizer becomes a condition. (test: `refused_finalizer_sets_condition_and_backs_off`)
//! - A refused removal of a finalizer becomes a condition. (test: `refused_finalizer_removal_sets_condition`)
//! - A failing annotation write does not hold up the status, and is retried rarely. (test: `failing_annotation_write_does_not_block_ready`)

use super::custom_resource::CustomResource;
use super::owner::Owner;
use super::trust::PartialObject;
use super::{Pass, StopReason};
use crate::cache::Object;
use crate::client::Error;
use crate::controller::key::holds::{Attempt, HoldReason, Request, Verb};
use crate::controller::kinds::health::{ChildHealth, HealthPhase, REFUSED_RETRY, UNDONE_RETRY};
use crate::controller::run::outcome::Outcome;

/// The longest annotation value that is written. Kubernetes allows 256 KiB for all annotations together.
const ANNOTATION_MAX: usize = 128 * 1024;

/// A write of a finalizer.
struct Write {
    /// What the server may refuse, for messages.
    what: String,
    request: Request,
    attempt: Attempt,
}

impl<K: CustomResource> Pass<'_, K> {
    /// Adds a finalizer to the object, before the first effect that has to be undone. The successful write proves that
    /// the cached object was current.
    ///
    /// # Errors
    /// [`StopReason`], when the write failed or the object has changed.
    pub(super) async fn add_finalizer(&mut self, finalizer: &str) -> Result<(), StopReason> {
        if self.has_finalizer(finalizer) || self.is_paused() {
            return Ok(());
        }
        let write = Write {
            what: format!("the finalizer {finalizer}"),
            request: Request::of_owner(Verb::AddFinalizer, finalizer),
            attempt: self.attempt(finalizer),
        };
        self.unless_refused_before(&write)?;
        match self.writer().add_finalizer(finalizer).await {
            Ok(Some(version)) => {
                self.state().holds.clear(|| write.request);
                self.owner.finalizers.push(finalizer.to_owned());
                self.owner.version = version;
                Ok(())
            }
            // The cache does not show the newer object yet.
            Ok(None) => Err(StopReason::Outcome(Outcome::RequeueAfter(UNDONE_RETRY))),
            Err(error) => Err(self.could_not(write, error)),
        }
    }

    /// Sets an annotation of the object if it differs and no child is stalled or failing. Nothing may depend on the
    /// annotation: a refusal is logged and retried as for a child; any other error fails the sync after its status is
    /// written.
    pub async fn annotate(&mut self, key: &str, value: &str) {
        let stored = Object::annotations(&*self.object).and_then(|all| all.get(key)).map(String::as_str);
        let is_stalled = self.reports.iter().any(|health| health.phase == HealthPhase::Stalled);
        if stored == Some(value)
            || self.is_paused()
            || is_stalled
            || self.is_failing()
            || value.len() > ANNOTATION_MAX
        {
            return;
        }
        let request = Request::of_owner(Verb::Annotate, key);
        let attempt = self.attempt((key, value));
        let held = self.state().holds.active(&request, attempt);
        if let Some((_, requeue_after)) = held {
            self.reports.push(unwritten(key).requeue_after(requeue_after));
            return;
        }
        let Owner { resource, name, version, .. } = &self.owner;
        let object = (name.namespace(), name.name());
        let client = &self.tools.client;
        let error = match client.annotate::<PartialObject>(resource, object, version, (key, value)).await {
            Ok(written) => {
                self.owner.version = written.metadata.resource_version.into();
                self.writer().wrote(&self.owner.version);
                return;
            }
            Err(error) => error,
        };
        match self.refusal(error) {
            Ok(status) => {
                tracing::warn!(
                    annotation = key,
                    %status,
                    "The API server refused an annotation; nothing depends on it, retrying later"
                );
                self.state().holds.record(request, attempt, HoldReason::Refused(status));
                self.reports.push(unwritten(key).requeue_after(REFUSED_RETRY));
            }
            Err(error) => self.fails_after_its_status(error),
        }
    }

    /// Removes a finalizer from the object, after the last effect was undone.
    ///
    /// # Errors
    /// [`StopReason`], when the write failed, or when a live read shows that the object is not being deleted.
    pub(super) async fn remove_finalizer(&mut self, finalizer: &str) -> Result<(), StopReason> {
        let write = Write {
            what: format!("to remove the finalizer {finalizer}"),
            request: Request::of_owner(Verb::RemoveFinalizer, finalizer),
            attempt: self.attempt(finalizer),
        };
        self.unless_refused_before(&write)?;
        match self.writer().remove_finalizer(finalizer).await {
            Ok(true) => {
                // No status write follows, so the deferred events are recorded here.
                self.record_deferred();
                tracing::info!(finalizer, "Removed the finalizer; cleanup of this object is complete");
                Ok(())
            }
            Ok(false) => Err(StopReason::Outcome(Outcome::RequeueAfter(UNDONE_RETRY))),
            Err(error) => Err(self.could_not(write, error)),
        }
    }

    /// Ends the sync while a retry hold covers the same write.
    fn unless_refused_before(&mut self, write: &Write) -> Result<(), StopReason> {
        let held = self.state().holds.active(&write.request, write.attempt);
        match held {
            Some((HoldReason::Refused(status), requeue_after)) => {
                self.report(ChildHealth::refused(&write.what, &status).requeue_after(requeue_after));
                Err(StopReason::KeepStatus)
            }
            Some((HoldReason::Exists, _)) | None => Ok(()),
        }
    }

    /// Reports a failed write and returns how the sync ends.
    fn could_not(&mut self, write: Write, error: Error) -> StopReason {
        match self.refusal(error) {
            Ok(status) => {
                self.report(ChildHealth::refused(&write.what, &status));
                self.state().holds.record(write.request, write.attempt, HoldReason::Refused(status));
                StopReason::KeepStatus
            }
            Err(error) => match self.fails_at("the finalizer of this object", error) {
                Ok(_) => StopReason::KeepStatus,
                Err(reason) => reason,
            },
        }
    }
}

/// Returns the health for a refused annotation, which is Ready: the annotation is retried, and nothing depends on it.
fn unwritten(key: &str) -> ChildHealth {
    ChildHealth::ready(format!("The annotation {key} could not be written; retrying"))
}
