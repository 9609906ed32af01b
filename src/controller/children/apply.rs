//! Brings a child to its wanted state, and sends nothing when the child already matches.
//!
//! Mirrors kubernetes `pkg/controller/controller_utils.go` and controller-runtime's `controllerutil`.
//!
//! # How it works
//! The *wanted* child is computed from the custom resource; the *observed* child is its projection in the cache. If
//! they match, nothing is sent. A child that the cache lacks is created by POST, so a taken name is answered with a 409
//! and never overwritten. A child differs if [`Wanted::write_into`] changes a copy of it. The difference of the two
//! ([`diff`](crate::controller::kinds::diff)) becomes one patch, a strategic one where a list is merged by key. The
//! patch carries the uid and resource version of the state it was computed from, so no read precedes it, unless it
//! replaces a list of which the server may have more than we know.
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
//! A 409 means that the cache is stale; it costs a live read of the child, one of the owner, and one retry. A refused
//! write or a taken name is not retried on every pass: see [`retry_holds`](super::retry_holds).
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
//!
//! # Differences from client-go
//! Nothing is ever adopted, see [`owner`](super::owner). There are no expectations: the guard of
//! [`consistency`](crate::controller::run::consistency) holds a key until the caches have seen its own writes, and a
//! cache that is still stale costs a POST that is answered with a 409, never a second child.
//!
//! # Locks and tasks
//! None of its own; the repair history is behind one lock, the retry holds behind another.

use std::sync::Arc;

use serde::de::DeserializeOwned;
use serde_json::Value;

use super::Children;
pub(crate) use super::apply_outcome::ApplyOutcome;
use super::contention::{self, Decision};
use super::guarded_write::Precondition;
pub(crate) use super::owner::Owner;
pub(in crate::controller) use super::owner::Ownership;
use super::retry_holds::{Attempt, HoldReason, hold_key};
use crate::cache::{Cached, Object, TypedObject};
use crate::client::json_error::without_values;
use crate::client::{Error, ServerStatus};
use crate::controller::kinds::Wanted;
use crate::controller::kinds::diff::Changes;
pub(crate) use crate::controller::kinds::difference::{Difference, describe};
use crate::controller::kinds::health::{EXISTS_RETRY, REFUSED_RETRY};

// === impl Children ===

impl Children {
    /// Brings the child to its wanted state; `cached` is the cached object of that name. `is_applied` says that this
    /// spec was applied before: then a write repairs or re-creates the child, after a live read of the owner.
    ///
    /// # Errors
    /// [`Error`], to be retried: lost connections, conflicts, a child that does not decode.
    ///
    /// # Cancel safety
    /// Call it again: an interrupted write is found by the child's name.
    pub async fn apply<W: Wanted>(
        &self,
        owner: &Owner,
        wanted: &W,
        cached: Option<&Cached<W::Observed>>,
        is_applied: bool,
    ) -> Result<ApplyOutcome<W::Observed>, Error> {
        match cached {
            None => self.create_child(owner, wanted, is_applied).await,
            Some(Cached::Readable(observed)) => {
                let found = Found { observed: observed.clone(), live: None };
                self.repair(owner, wanted, found, is_applied).await
            }
            Some(Cached::Unreadable(_)) => self.apply_live(owner, wanted).await,
        }
    }

    /// Brings the child to its wanted state without trusting the cache.
    ///
    /// # Errors
    /// As [`apply`](Self::apply).
    pub async fn apply_live<W: Wanted>(
        &self,
        owner: &Owner,
        wanted: &W,
    ) -> Result<ApplyOutcome<W::Observed>, Error> {
        match self.live(owner, wanted).await? {
            Some(live) => self.repair(owner, wanted, Found::decode(live, wanted.name())?, true).await,
            None => self.create_child(owner, wanted, true).await,
        }
    }

    /// Returns what [`apply`](Self::apply) would find, from the cache alone and without writing: for a paused owner.
    /// `is_applied` says that this spec was applied before.
    #[must_use]
    pub fn look<W: Wanted>(
        &self,
        owner: &Owner,
        wanted: &W,
        cached: Option<&Cached<W::Observed>>,
        is_applied: bool,
    ) -> ApplyOutcome<W::Observed> {
        let Some(Cached::Readable(observed)) = cached else {
            return ApplyOutcome::Paused { observed: None, differences: Vec::new(), is_applied };
        };
        match owner.ownership(&**observed) {
            Ownership::Foreign => ApplyOutcome::ResourceExists { requeue_after: EXISTS_RETRY },
            Ownership::PreviousIncarnation => ApplyOutcome::Terminating(None),
            Ownership::Ours | Ownership::Released if observed.is_deleting() => {
                ApplyOutcome::Terminating(Some(W::Observed::clone(observed)))
            }
            Ownership::Ours | Ownership::Released => {
                let (observed, differences) =
                    (W::Observed::clone(observed), owner.differences(wanted, observed));
                if differences.is_empty() {
                    ApplyOutcome::Unchanged(observed)
                } else {
                    ApplyOutcome::Paused { observed: Some(observed), differences, is_applied }
                }
            }
        }
    }

    /// Creates the child. A child that existed before is re-created only after a live read of the owner: with a stale
    /// cache, the garbage collector would delete each new child in a loop.
    async fn create_child<W: Wanted>(
        &self,
        owner: &Owner,
        wanted: &W,
        was_there: bool,
    ) -> Result<ApplyOutcome<W::Observed>, Error> {
        let body = owner.body_of(wanted);
        let attempt = Attempt::create(owner, &body);
        match self.retry_holds.active(&hold_key_of(owner, wanted), attempt) {
            Some((HoldReason::Refused(status), requeue_after)) => {
                return Ok(ApplyOutcome::Refused { observed: None, status, requeue_after });
            }
            Some((HoldReason::Exists, requeue_after)) => {
                return Ok(ApplyOutcome::ResourceExists { requeue_after });
            }
            None => {}
        }
        let write = match was_there {
            true => self.checked(owner, Precondition::AsDecidedOn).await?,
            false => Some(self.unchecked(owner)),
        };
        let Some(write) = write else { return Ok(ApplyOutcome::OwnerChanged) };
        let error = match write.create::<W::Observed>(&body).await {
            Ok(observed) => {
                self.retry_holds.clear(|| hold_key_of(owner, wanted));
                let is_as_wanted = owner.differences(wanted, &observed).is_empty();
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
        let live = match self.live(owner, wanted).await {
            Ok(live) => live,
            Err(of_read) => return Err(if is_unknown { error } else { of_read }),
        };
        let Some(live) = live else {
            return self.refused(owner, wanted, attempt, error, None);
        };
        let found = Found::decode(live, wanted.name())?;
        let applied = match self.repair(owner, wanted, found, true).await? {
            ApplyOutcome::Unchanged(observed) if is_unknown => {
                self.consistency.wrote(&owner.name, &observed);
                ApplyOutcome::Created(observed)
            }
            applied => applied,
        };
        if matches!(applied, ApplyOutcome::ResourceExists { .. }) {
            self.retry_holds.record(hold_key_of(owner, wanted), attempt, HoldReason::Exists);
        }
        Ok(applied)
    }

    /// Decides what to do with the object of that name, ours or not. After a conflict, reads it live and retries once.
    async fn repair<W: Wanted>(
        &self,
        owner: &Owner,
        wanted: &W,
        found: Found<W::Observed>,
        checks_owner: bool,
    ) -> Result<ApplyOutcome<W::Observed>, Error> {
        let error = match self.try_repair(owner, wanted, found, checks_owner).await {
            Err(error) if error.is_conflict() => error,
            outcome => return outcome,
        };
        // The cache was stale for the child, so it may be stale for the owner, too.
        match self.live(owner, wanted).await? {
            Some(live) => self.try_repair(owner, wanted, Found::decode(live, wanted.name())?, true).await,
            None => Err(error),
        }
    }

    async fn try_repair<W: Wanted>(
        &self,
        owner: &Owner,
        wanted: &W,
        Found { observed, live }: Found<W::Observed>,
        checks_owner: bool,
    ) -> Result<ApplyOutcome<W::Observed>, Error> {
        match owner.ownership(&*observed) {
            Ownership::Foreign => {
                // The cache reports the deletion of an object that it holds, so no hold is needed.
                self.retry_holds.clear(|| hold_key_of(owner, wanted));
                return Ok(ApplyOutcome::ResourceExists { requeue_after: EXISTS_RETRY });
            }
            Ownership::PreviousIncarnation => return Ok(ApplyOutcome::Terminating(None)),
            Ownership::Ours | Ownership::Released if observed.is_deleting() => {
                return Ok(ApplyOutcome::Terminating(Some(Arc::unwrap_or_clone(observed))));
            }
            Ownership::Ours | Ownership::Released => {}
        }
        let desired = owner.desired(wanted, &observed);
        let changes = Changes::between(&W::Observed::resource(), &*observed, &desired);
        if changes.differences.is_empty() {
            return Ok(self.as_wanted(owner, wanted, desired));
        }
        let patch = changes.patch(live.as_ref());
        let Changes { differences, .. } = changes;
        if let Some(refused) = self.refused_before(owner, wanted, &observed, &differences) {
            return Ok(refused);
        }
        let asked = owner.reconcile_at.as_deref();
        let decision = self.contention.decide(observed.uid(), &differences, asked);
        let contended = self.contention.contended(observed.uid(), &differences);
        let difference = describe(&contended);
        if let Decision::Wait(requeue_after) = decision {
            let observed = Arc::unwrap_or_clone(observed);
            return Ok(ApplyOutcome::Contended { observed, difference, repaired: Vec::new(), requeue_after });
        }
        if patch.needs_live {
            let Some(live) = self.live(owner, wanted).await? else {
                return Ok(ApplyOutcome::Terminating(None));
            };
            // Decides anew: the live object may be another one.
            let found = Found::decode(live, wanted.name())?;
            return Box::pin(self.try_repair(owner, wanted, found, checks_owner)).await;
        }
        let write = match checks_owner || wanted.destroys(&observed) {
            true => self.checked(owner, Precondition::AsDecidedOn).await?,
            false => Some(self.unchecked(owner)),
        };
        let Some(write) = write else { return Ok(ApplyOutcome::OwnerChanged) };
        let observed: W::Observed = match write.patch(wanted.name(), &patch).await {
            Ok(observed) => observed,
            Err(error) => {
                let attempt = Attempt::update(owner, observed.uid(), &differences);
                return self.refused(owner, wanted, attempt, error, Some(Arc::unwrap_or_clone(observed)));
            }
        };
        self.contention.repaired(observed.uid(), &differences, asked);
        self.retry_holds.clear(|| hold_key_of(owner, wanted));
        let left = owner.differences(wanted, &observed);
        if left.is_empty() && decision != Decision::Retry {
            return Ok(ApplyOutcome::Updated(observed, differences));
        }
        let mut repaired = differences;
        repaired.retain(|one| !left.iter().chain(&contended).any(|other| other.field == one.field));
        Ok(match decision {
            Decision::Retry => {
                ApplyOutcome::Contended { observed, difference, repaired, requeue_after: contention::RETRY }
            }
            Decision::Repair | Decision::Wait(_) => {
                ApplyOutcome::StoredOtherwise { observed, is_new: false, repaired }
            }
        })
    }

    /// Returns the outcome for a child that matches, which is contended until its last repair has held long enough.
    fn as_wanted<W: Wanted>(
        &self,
        owner: &Owner,
        wanted: &W,
        observed: W::Observed,
    ) -> ApplyOutcome<W::Observed> {
        self.retry_holds.clear(|| hold_key_of(owner, wanted));
        match self.contention.same(observed.uid()) {
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
        owner: &Owner,
        wanted: &W,
        observed: &W::Observed,
        differences: &[Difference],
    ) -> Option<ApplyOutcome<W::Observed>> {
        let attempt = Attempt::update(owner, observed.uid(), differences);
        match self.retry_holds.active(&hold_key_of(owner, wanted), attempt)? {
            (HoldReason::Refused(status), requeue_after) => {
                Some(ApplyOutcome::Refused { observed: Some(observed.clone()), status, requeue_after })
            }
            (HoldReason::Exists, _) => None,
        }
    }

    /// Turns a refused write into an outcome and puts the attempt on hold; returns any other error.
    fn refused<W: Wanted>(
        &self,
        owner: &Owner,
        wanted: &W,
        attempt: Attempt,
        error: Error,
        observed: Option<W::Observed>,
    ) -> Result<ApplyOutcome<W::Observed>, Error> {
        let status = self.refusal(error)?;
        self.retry_holds.record(hold_key_of(owner, wanted), attempt, HoldReason::Refused(status.clone()));
        Ok(ApplyOutcome::Refused { observed, status, requeue_after: REFUSED_RETRY })
    }

    /// Returns the status of a refusal; any other error, and a 403 from a server that is still starting, is returned.
    pub(in crate::controller) fn refusal(&self, error: Error) -> Result<ServerStatus, Error> {
        let is_early = error.is_forbidden() && self.client.is_settling();
        match error {
            Error::Status { ref status, .. } if error.is_refused() && !is_early => {
                Ok(ServerStatus::clone(status))
            }
            error => Err(error),
        }
    }

    pub(in crate::controller) async fn live<W: Wanted>(
        &self,
        owner: &Owner,
        wanted: &W,
    ) -> Result<Option<Value>, Error> {
        self.client.get(&W::Observed::resource(), owner.name.namespace(), wanted.name()).await
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

fn hold_key_of<W: Wanted>(owner: &Owner, wanted: &W) -> String {
    hold_key(owner, &W::Observed::resource().kind, wanted.name())
}

pub(in crate::controller) fn decode<O: DeserializeOwned>(live: &Value, name: &str) -> Result<O, Error> {
    let decoded = O::deserialize(live).map_err(|error| without_values(&error));
    decoded.map_err(|source| Error::Decode { request: format!("read {name}"), source })
}

#[cfg(test)]
#[cfg(feature = "sim")]
mod tests;
