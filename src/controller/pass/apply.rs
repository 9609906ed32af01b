//! Brings a child to its wanted state, and sends nothing when the child already matches.
//!
//! Mirrors kubernetes `pkg/controller/controller_utils.go` and controller-runtime's `controllerutil`.
//!
//! | the child in the cache | what happens |
//! |---|---|
//! | none | POST; after a live read of the owner if this spec had already created it |
//! | ours by uid, matches | nothing |
//! | ours by uid, differs, including in our owner reference | PATCH; after a live read of the owner if it lowers something, or if this spec had already been applied |
//! | ours by uid, being deleted | wait for the deletion |
//! | owned by a previous incarnation of the owner | wait for garbage collection |
//! | owned by anyone else | report, do not touch |
//!
//! A child differs if [`Wanted::write_into`] changes a copy of it; the difference
//! ([`diff`](crate::controller::kinds::diff)) becomes one patch. A 409 means that the cache is stale: the child and the
//! owner are read live, and the write is retried once. A refused write or a taken name is not retried in every sync
//! (see [`holds`](crate::controller::key::holds)). Unlike in client-go there are no expectations, and nothing is ever
//! adopted (see [`owner`](super::owner)): a stale cache costs a POST that gets a 409, never a second child.
//!
//! # Guarantees
//! - A child that matches causes no request. (test: `no_difference_sends_nothing`)
//! - A create whose response is lost is not resent; a live read shows whether it succeeded.
//!   (test: `create_with_lost_response_is_not_resent`)
//! - A foreign object is never written. (test: `foreign_object_is_never_written`)
//! - Every update is one patch with uid and version. (test: `update_sends_one_patch_with_uid_and_version`)
//! - Repairs and destructive writes require that the owner has not changed.
//!   (test: `repairs_and_scale_downs_require_unchanged_owner`)
//! - A refusal is returned as an outcome with its cause, and does not imply that the name is free.
//!   (test: `refused_create_returns_refused_with_status`, `w10_refused_create_still_finds_existing_object`)
//! - A child that another client keeps reverting is not fought over. (test: `repeatedly_reverted_child_is_contended`)

use std::hash::Hash;
use std::sync::Arc;

use serde::de::DeserializeOwned;
use serde_json::Value;

use super::apply_outcome::{Applied, ApplyOutcome};
use super::custom_resource::CustomResource;
use super::owner::Ownership;
use super::trust::{Checked, Precondition};
use super::{Pass, StopReason};
use crate::api::ApiResource;
use crate::api::conditions::{self, READY};
use crate::cache::{Cached, Lister, Object, ObjectName, TypedObject};
use crate::client::json_error::without_values;
use crate::client::{Error, ServerStatus};
use crate::controller::key::holds::{Attempt, HoldReason, Request, Verb};
use crate::controller::key::repairs::{self, ChildId, Decision};
use crate::controller::kinds::Wanted;
use crate::controller::kinds::diff::Changes;
use crate::controller::kinds::difference::{Difference, describe};
use crate::controller::kinds::health::{ChildHealth, EXISTS_RETRY, REFUSED_RETRY};
use crate::controller::pass::custom_resource::CommonStatus;
use crate::controller::run::outcome::{Outcome, Trust};

/// Whether the current spec had reached the children before this sync.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Spec {
    /// No: a difference is what the user asks for.
    New,
    /// Yes: a difference is somebody else's change, and a missing child was deleted.
    Known,
}

// === steps of a kind ===

impl<K: CustomResource> Pass<'_, K> {
    /// Creates or updates a child to match `wanted`, and reports its health.
    ///
    /// # Errors
    /// [`StopReason`], when the connection broke or the object has changed. Any other error is reported, and the sync
    /// continues but fails at its end.
    ///
    /// # Cancel safety
    /// The next sync finds an interrupted create by its name.
    pub async fn apply<W: Wanted>(
        &mut self,
        wanted: &W,
        lister: &Lister<W::Observed>,
    ) -> Result<Applied<W::Observed>, StopReason> {
        let spec = if self.observes_this_spec() { Spec::Known } else { Spec::New };
        self.apply_spec(wanted, lister, spec).await
    }

    /// Like [`apply`](Self::apply), for a spec that the stored status observes although it is still being applied: the
    /// status was written when the work began.
    ///
    /// # Errors
    /// As for [`apply`](Self::apply).
    pub async fn apply_new<W: Wanted>(
        &mut self,
        wanted: &W,
        lister: &Lister<W::Observed>,
    ) -> Result<Applied<W::Observed>, StopReason> {
        self.apply_spec(wanted, lister, Spec::New).await
    }

    async fn apply_spec<W: Wanted>(
        &mut self,
        wanted: &W,
        lister: &Lister<W::Observed>,
        spec: Spec,
    ) -> Result<Applied<W::Observed>, StopReason> {
        let cached = lister.get(&ObjectName::new(self.owner.name.namespace(), wanted.name()));
        let outcome = if self.is_paused() {
            self.look(wanted, lister, cached.as_ref())
        } else if !self.is_current() {
            ApplyOutcome::OwnerChanged
        } else {
            match self.apply_one(wanted, cached.as_ref(), spec).await {
                Ok(outcome) => outcome,
                Err(error) => {
                    let health = self.fails_at(&child(wanted), error)?;
                    let observed = cached.and_then(|cached| self.ours(&cached));
                    return Ok(Applied { outcome: ApplyOutcome::Failed { observed }, health });
                }
            }
        };
        self.record(wanted, &outcome, spec);
        if matches!(outcome, ApplyOutcome::OwnerChanged) {
            // The event for the changed object wakes the key.
            return Err(StopReason::Outcome(Outcome::Done));
        }
        let health = ChildHealth::of(&self.owner.resource.kind, wanted, &outcome);
        let health = self.unless_it_only_lags(wanted, &outcome, health);
        self.reports.push(health.clone());
        Ok(Applied { outcome, health })
    }

    /// Keeps an object Ready while a child's `observedGeneration` briefly lags, for example after an annotation. A
    /// write of our own ends this tolerance.
    fn unless_it_only_lags<W: Wanted>(
        &self,
        wanted: &W,
        outcome: &ApplyOutcome<W::Observed>,
        health: ChildHealth,
    ) -> ChildHealth {
        let ApplyOutcome::Unchanged(observed) = outcome else {
            self.state().reported.child_written();
            return health;
        };
        if !wanted.only_lags(observed) || !self.was_ready() {
            return health;
        }
        match self.state().reported.lag_time_left() {
            Some(left) => ChildHealth::ready(health.message).requeue_after(left).lagging(),
            None => health.lagging(),
        }
    }

    /// Whether the stored status says that the object is Ready with this spec.
    fn was_ready(&self) -> bool {
        self.observes_this_spec() && conditions::is_true(&self.stored_status().conditions(), READY)
    }
}

// === one child ===

impl<K: CustomResource> Pass<'_, K> {
    /// Brings one child to its wanted state; `cached` is the cached object of that name. With a known spec, a write
    /// repairs or re-creates the child, after a live read of the owner.
    pub(super) async fn apply_one<W: Wanted>(
        &self,
        wanted: &W,
        cached: Option<&Cached<W::Observed>>,
        spec: Spec,
    ) -> Result<ApplyOutcome<W::Observed>, Error> {
        match (self.trust, cached) {
            (Trust::Nothing, _) | (_, Some(Cached::Unreadable(_))) => self.apply_live(wanted).await,
            (Trust::OwnerLive, None) => self.create(wanted, Spec::Known).await,
            (Trust::Cache, None) => self.create(wanted, spec).await,
            (trust, Some(Cached::Readable(observed))) => {
                let spec = if trust == Trust::OwnerLive { Spec::Known } else { spec };
                let found = Found { observed: observed.clone(), live: None };
                self.update(wanted, found, spec).await
            }
        }
    }

    /// Brings the child to its wanted state without trusting the cache.
    async fn apply_live<W: Wanted>(&self, wanted: &W) -> Result<ApplyOutcome<W::Observed>, Error> {
        match self.live(wanted).await? {
            Some(live) => self.update(wanted, Found::decode(live, wanted.name())?, Spec::Known).await,
            None => self.create(wanted, Spec::Known).await,
        }
    }

    /// Creates the child. A child that existed before is re-created only after a live read of the owner: with a stale
    /// cache, the garbage collector would delete each new child in a loop.
    async fn create<W: Wanted>(&self, wanted: &W, spec: Spec) -> Result<ApplyOutcome<W::Observed>, Error> {
        let body = self.owner.body_of(wanted);
        let attempt = self.attempt(body.to_string());
        match self.state().holds.active(&write_of(wanted), attempt) {
            Some((HoldReason::Refused(status), requeue_after)) => {
                return Ok(ApplyOutcome::Refused { observed: None, status, requeue_after });
            }
            Some((HoldReason::Exists, requeue_after)) => {
                return Ok(ApplyOutcome::ResourceExists { requeue_after });
            }
            None => {}
        }
        let send = |checked: Option<Checked>| self.send_create::<W::Observed>(checked, &body);
        let created = match spec {
            Spec::New => send(None).await.map(Some),
            Spec::Known => self.checked(Precondition::AsDecidedOn, |checked| send(Some(checked))).await,
        };
        let error = match created {
            Ok(None) => return Ok(ApplyOutcome::OwnerChanged),
            Ok(Some(observed)) => {
                self.state().holds.clear(|| write_of(wanted));
                let is_as_wanted = self.owner.differences(wanted, &observed).is_empty();
                return Ok(match is_as_wanted {
                    true => ApplyOutcome::Created(observed),
                    false => ApplyOutcome::StoredOtherwise { observed, is_new: true, repaired: Vec::new() },
                });
            }
            Err(error) => error,
        };
        // A refusal does not imply that the name is free: quota is checked before existence. A lost response does not
        // imply that nothing was stored.
        let is_unknown = error.is_outcome_unknown();
        if !error.is_already_exists() && !error.is_refused() && !is_unknown {
            return Err(error);
        }
        let live = match self.live(wanted).await {
            Ok(live) => live,
            Err(of_read) => return Err(if is_unknown { error } else { of_read }),
        };
        let Some(live) = live else {
            return self.refused(wanted, attempt, error, None);
        };
        let found = Found::decode(live, wanted.name())?;
        let outcome = match self.update(wanted, found, Spec::Known).await? {
            ApplyOutcome::Unchanged(observed) if is_unknown => {
                self.state().own_writes.wrote(&observed);
                ApplyOutcome::Created(observed)
            }
            outcome => outcome,
        };
        if matches!(outcome, ApplyOutcome::ResourceExists { .. }) {
            self.state().holds.record(write_of(wanted), attempt, HoldReason::Exists);
        }
        Ok(outcome)
    }

    /// Decides what to do with the object of that name, ours or not. After a conflict, reads it live and retries once.
    async fn update<W: Wanted>(
        &self,
        wanted: &W,
        found: Found<W::Observed>,
        spec: Spec,
    ) -> Result<ApplyOutcome<W::Observed>, Error> {
        let error = match self.try_update(wanted, found, spec).await {
            Err(error) if error.is_conflict() => error,
            outcome => return outcome,
        };
        // The cache was stale for the child, so it may be stale for the owner, too.
        match self.live(wanted).await? {
            Some(live) => self.try_update(wanted, Found::decode(live, wanted.name())?, Spec::Known).await,
            None => Err(error),
        }
    }

    async fn try_update<W: Wanted>(
        &self,
        wanted: &W,
        Found { observed, live }: Found<W::Observed>,
        spec: Spec,
    ) -> Result<ApplyOutcome<W::Observed>, Error> {
        match self.owner.ownership(&*observed) {
            Ownership::Foreign => {
                // The cache reports the deletion of an object that it holds, so no hold is needed.
                self.state().holds.clear(|| write_of(wanted));
                return Ok(ApplyOutcome::ResourceExists { requeue_after: EXISTS_RETRY });
            }
            Ownership::PreviousIncarnation => return Ok(ApplyOutcome::Terminating(None)),
            Ownership::Ours | Ownership::Released if observed.is_deleting() => {
                return Ok(ApplyOutcome::Terminating(Some(Arc::unwrap_or_clone(observed))));
            }
            Ownership::Ours | Ownership::Released => {}
        }
        let desired = self.owner.desired(wanted, &observed);
        let changes = Changes::between(&ApiResource::of::<W::Observed>(), &*observed, &desired);
        if changes.differences.is_empty() {
            return Ok(self.as_wanted(wanted, desired));
        }
        let patch = changes.patch(&*observed, live.as_ref());
        let Changes { differences, .. } = changes;
        if let Some(refused) = self.refused_before(wanted, &observed, &differences) {
            return Ok(refused);
        }
        let asked = self.owner.reconcile_at.as_deref();
        let id = ChildId::Uid(observed.uid().to_owned());
        let decision = self.state().repairs.decide(&id, &differences, asked);
        let contended = self.state().repairs.contended(&id, &differences);
        let difference = describe(&contended);
        if let Decision::Wait(requeue_after) = decision {
            let observed = Arc::unwrap_or_clone(observed);
            return Ok(ApplyOutcome::Contended { observed, difference, repaired: Vec::new(), requeue_after });
        }
        if patch.needs_live {
            let Some(live) = self.live(wanted).await? else {
                return Ok(ApplyOutcome::Terminating(None));
            };
            // Decides anew: the live object may be another one.
            return Box::pin(self.try_update(wanted, Found::decode(live, wanted.name())?, spec)).await;
        }
        let needs_check = spec == Spec::Known || wanted.destroys(&observed);
        let send = |checked| self.send_patch::<W::Observed>(checked, wanted.name(), &patch);
        let patched = match needs_check {
            false => send(None).await.map(Some),
            true => self.checked(Precondition::AsDecidedOn, |checked| send(Some(checked))).await,
        };
        let observed: W::Observed = match patched {
            Ok(Some(observed)) => observed,
            Ok(None) => return Ok(ApplyOutcome::OwnerChanged),
            Err(error) => {
                let attempt = self.attempt_to_update(observed.uid(), &differences);
                return self.refused(wanted, attempt, error, Some(Arc::unwrap_or_clone(observed)));
            }
        };
        self.state().repairs.repaired(&id, &differences, asked);
        self.state().holds.clear(|| write_of(wanted));
        let left = self.owner.differences(wanted, &observed);
        if left.is_empty() && decision != Decision::Retry {
            return Ok(ApplyOutcome::Updated(observed, differences));
        }
        let mut repaired = differences;
        repaired.retain(|one| !left.iter().chain(&contended).any(|other| other.field == one.field));
        Ok(match decision {
            Decision::Retry => {
                ApplyOutcome::Contended { observed, difference, repaired, requeue_after: repairs::RETRY }
            }
            Decision::Repair | Decision::Wait(_) => {
                ApplyOutcome::StoredOtherwise { observed, is_new: false, repaired }
            }
        })
    }

    /// Returns the outcome for a child that matches, which is contended until its last repair has held long enough.
    fn as_wanted<W: Wanted>(&self, wanted: &W, observed: W::Observed) -> ApplyOutcome<W::Observed> {
        let mut state = self.state();
        state.holds.clear(|| write_of(wanted));
        match state.repairs.same(|| ChildId::Uid(observed.uid().to_owned())) {
            Some(requeue_after) => {
                let difference = "it matches for now, but has been reverted before".to_owned();
                ApplyOutcome::Contended { observed, difference, repaired: Vec::new(), requeue_after }
            }
            None => ApplyOutcome::Unchanged(observed),
        }
    }

    /// Returns the refused outcome if the server recently refused the same update.
    fn refused_before<W: Wanted>(
        &self,
        wanted: &W,
        observed: &W::Observed,
        differences: &[Difference],
    ) -> Option<ApplyOutcome<W::Observed>> {
        let attempt = self.attempt_to_update(observed.uid(), differences);
        match self.state().holds.active(&write_of(wanted), attempt)? {
            (HoldReason::Refused(status), requeue_after) => {
                Some(ApplyOutcome::Refused { observed: Some(observed.clone()), status, requeue_after })
            }
            (HoldReason::Exists, _) => None,
        }
    }

    /// An attempt to remove these differences from the child of this uid.
    fn attempt_to_update(&self, uid: &str, differences: &[Difference]) -> Attempt {
        let wanted: Vec<_> = differences.iter().map(|one| (&one.field, one.fingerprint)).collect();
        self.attempt((uid, wanted))
    }

    /// An attempt at `what` for this state of the owner.
    pub(super) fn attempt(&self, what: impl Hash) -> Attempt {
        Attempt::new(self.owner.generation, self.owner.reconcile_at.as_deref(), what)
    }

    /// Turns a refused write into an outcome and puts the attempt on hold; returns any other error.
    fn refused<W: Wanted>(
        &self,
        wanted: &W,
        attempt: Attempt,
        error: Error,
        observed: Option<W::Observed>,
    ) -> Result<ApplyOutcome<W::Observed>, Error> {
        let status = self.refusal(error)?;
        self.state().holds.record(write_of(wanted), attempt, HoldReason::Refused(status.clone()));
        Ok(ApplyOutcome::Refused { observed, status, requeue_after: REFUSED_RETRY })
    }

    /// Returns the status of a refusal; any other error, and a 403 from a server that is still starting, is returned.
    pub(super) fn refusal(&self, error: Error) -> Result<ServerStatus, Error> {
        let is_early = error.is_forbidden() && self.tools.client.is_settling();
        match error {
            Error::Status { ref status, .. } if error.is_refused() && !is_early => {
                Ok(ServerStatus::clone(status))
            }
            error => Err(error),
        }
    }

    pub(super) async fn live<W: Wanted>(&self, wanted: &W) -> Result<Option<Value>, Error> {
        let namespace = self.owner.name.namespace();
        self.tools.client.get(&ApiResource::of::<W::Observed>(), namespace, wanted.name()).await
    }
}

/// A child to decide about.
struct Found<O> {
    observed: Arc<O>,
    /// The whole object, if it was read live.
    live: Option<Value>,
}

impl<O: TypedObject> Found<O> {
    fn decode(live: Value, name: &str) -> Result<Self, Error> {
        Ok(Self { observed: Arc::new(decode(&live, name)?), live: Some(live) })
    }
}

/// Formats kind and name of a child for messages.
pub(super) fn child<W: Wanted>(wanted: &W) -> String {
    format!("{} {:?}", ApiResource::of::<W::Observed>().kind, wanted.name())
}

fn write_of<W: Wanted>(wanted: &W) -> Request {
    Request::of(Verb::Write, ApiResource::of::<W::Observed>().kind, wanted.name())
}

pub(super) fn decode<O: DeserializeOwned>(live: &Value, name: &str) -> Result<O, Error> {
    let decoded = O::deserialize(live).map_err(|error| without_values(&error));
    decoded.map_err(|source| Error::Decode { request: format!("read {name}"), source })
}

#[cfg(test)]
#[cfg(feature = "sim")]
mod tests;
