//! Makes a child as it is wanted, and writes nothing when it is.
//!
//! Mirrors kubernetes `pkg/controller/controller_utils.go` and controller-runtime's `controllerutil`.
//!
//! # How it works
//! A child is *wanted* (computed from the custom resource) and *observed* (the projection in the cache).
//! No difference, no request. A child that the cache lacks is created by POST: a name that is taken is a 409 and never an
//! overwrite. A difference becomes one strategic merge patch of the fields that differ, made by `patch.rs`. It
//! carries uid and version of the state from which it was made, so no read comes before it.
//!
//! | the child in the cache | what happens |
//! |---|---|
//! | none | POST; if this spec had created it already, behind a live read of the owner |
//! | ours by uid, as wanted | nothing |
//! | ours by uid, different, also in our owner reference | PATCH; behind a live read of the owner if it lowers something, or if this spec had been applied already |
//! | ours by uid, being deleted | wait for its end |
//! | of a previous incarnation of the same owner | wait for its collection |
//! | anybody else's | report, do not touch |
//!
//! A 409 shows that the cache is late: it costs a live read of the child, one of the owner, and one more try. What the
//! server refuses, or a name that is taken, is not tried again at each pass: see [`retry_holds`](super::retry_holds).
//!
//! # Guarantees
//! - Nothing differs, nothing is sent. (test: `no_difference_sends_nothing`)
//! - A create whose answer is lost is not sent again: a live read tells. (test: `a_create_whose_answer_is_lost_is_not_sent_again`)
//! - Somebody else's object is never written. (test: `what_is_not_ours_is_not_touched`)
//! - Every update is one patch with uid and version. (test: `an_update_is_one_patch_with_uid_and_version`)
//! - What destroys or repairs is not written for an owner that has moved on. (test: `repairs_and_scale_downs_need_the_owner_as_it_is`)
//! - A refusal is an answer with its cause, and is not taken for a free name. (test: `a_refusal_is_an_answer`, `w10_a_refusal_does_not_hide_what_is_there`)
//! - A child that is changed back each time is not fought over. (test: `a_child_changed_back_each_time_is_contended`)
//!
//! # Differences from client-go
//! Nothing is ever adopted, see [`owner`](super::owner). There are no expectations: the guard of
//! [`consistency`](crate::controller::run::consistency) holds a key until the caches have seen its own writes, and a cache that is
//! late all the same costs a POST that is answered 409, never a second child.
//!
//! # Locks and tasks
//! None of its own; the memory of repairs is behind one lock, that of retry holds behind another.

use std::fmt;
use std::sync::Arc;

use serde::de::DeserializeOwned;
use serde_json::{Value, json};

pub use super::apply_outcome::ApplyOutcome;
use super::contention::{self, Contention, Verdict};
use super::guarded_write::Precondition;
use super::object_state::ObjectStates;
pub use super::owner::Owner;
pub(in crate::controller) use super::owner::Ownership;
use super::patch;
use super::retry_holds::{Attempt, HoldReason, RetryHolds, hold_key};
use crate::cache::{Cached, Object};
use crate::client::{ApiClient, Error, ServerStatus};
use crate::controller::kinds::Wanted;
pub use crate::controller::kinds::difference::{Difference, describe};
use crate::controller::kinds::health::{EXISTS_RETRY, REFUSED_RETRY};
use crate::controller::run::consistency::Consistency;

/// Writes children. One for each controller.
#[derive(Debug)]
pub struct Children {
    pub(in crate::controller) client: ApiClient,
    pub(in crate::controller) consistency: Arc<Consistency>,
    pub(in crate::controller) contention: Contention,
    pub(in crate::controller) retry_holds: RetryHolds,
    pub(in crate::controller) states: ObjectStates,
    pub(in crate::controller) owners: Relist,
}

/// Has the owners' informer list anew.
#[derive(Clone, Default)]
pub(in crate::controller) struct Relist(Option<Arc<dyn Fn() + Send + Sync>>);

impl Relist {
    pub(in crate::controller) fn ask(&self) {
        if let Some(relist) = &self.0 {
            relist();
        }
    }
}

impl fmt::Debug for Relist {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Relist").field(&self.0.is_some()).finish()
    }
}

// === impl Children ===

impl Children {
    /// Writes through this client, and tells the guard of each write.
    #[must_use]
    pub fn new(client: ApiClient, consistency: Arc<Consistency>) -> Self {
        let (contention, retry_holds) = (Contention::default(), RetryHolds::default());
        Self {
            client,
            consistency,
            contention,
            retry_holds,
            states: ObjectStates::default(),
            owners: Relist::default(),
        }
    }

    /// Has the owners listed anew by this when a live read shows an older owner than the cache has: the server's store was
    /// restored from a backup.
    #[must_use]
    pub fn relists_owners(self, relist: impl Fn() + Send + Sync + 'static) -> Self {
        Self { owners: Relist(Some(Arc::new(relist))), ..self }
    }

    /// Makes the child as wanted; `cached` is the child of its name in the cache. `is_applied` says that the present spec had
    /// reached the child before: then it was there, and a write repairs or re-creates it behind a live read of the owner.
    ///
    /// # Errors
    /// [`Error`], to be tried again: lost connections, conflicts, a child that does not decode.
    ///
    /// # Cancel safety
    /// A write that is cut is found again by its name: call it once more.
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
                let found = Found { observed: W::Observed::clone(observed), live: None };
                self.repair(owner, wanted, found, is_applied).await
            }
            Some(Cached::Unreadable(_)) => self.apply_live(owner, wanted).await,
        }
    }

    /// Makes the child as wanted, believing no cache.
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

    /// What [`apply`](Self::apply) would find, by the cache alone and writing nothing: for an owner that is
    /// paused. `is_applied` tells whether the present spec had reached the child already.
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
            Ownership::Ours if observed.is_deleting() => {
                ApplyOutcome::Terminating(Some(W::Observed::clone(observed)))
            }
            Ownership::Ours => {
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

    /// Creates the child. One that was there before is created behind a live read of the owner: a stale cache must not
    /// feed the garbage collector in a loop.
    async fn create_child<W: Wanted>(
        &self,
        owner: &Owner,
        wanted: &W,
        was_there: bool,
    ) -> Result<ApplyOutcome<W::Observed>, Error> {
        let body = new_body(owner, wanted);
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
        // A refusal does not say that the name is free: quota is checked before existence. A lost answer does not say
        // that nothing was stored.
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

    /// Decides on the object of that name, whose it may be. After a conflict it is read live, and looked at once more.
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
        // The cache was late about the child, so it may be about the owner, too.
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
        match owner.ownership(&observed) {
            Ownership::Foreign => {
                // One that the cache shows is missed there as soon as it goes.
                self.retry_holds.clear(|| hold_key_of(owner, wanted));
                return Ok(ApplyOutcome::ResourceExists { requeue_after: EXISTS_RETRY });
            }
            Ownership::PreviousIncarnation => return Ok(ApplyOutcome::Terminating(None)),
            Ownership::Ours if observed.is_deleting() => {
                return Ok(ApplyOutcome::Terminating(Some(observed)));
            }
            Ownership::Ours => {}
        }
        let differences = owner.differences(wanted, &observed);
        if differences.is_empty() {
            return Ok(self.as_wanted(owner, wanted, observed));
        }
        if let Some(refused) = self.refused_before(owner, wanted, &observed, &differences) {
            return Ok(refused);
        }
        let asked = owner.reconcile_at.as_deref();
        let verdict = self.contention.verdict(observed.uid(), &differences, asked);
        let contended = self.contention.contended(observed.uid(), &differences);
        let difference = describe(&contended);
        if let Verdict::Wait(requeue_after) = verdict {
            return Ok(ApplyOutcome::Contended { observed, difference, repaired: Vec::new(), requeue_after });
        }
        let (observed, live) = match live {
            None if wanted.patches_live(&differences) => match self.live(owner, wanted).await? {
                Some(live) => (decode(&live, wanted.name())?, Some(live)),
                None => return Ok(ApplyOutcome::Terminating(None)),
            },
            live => (observed, live),
        };
        let differences = owner.differences(wanted, &observed);
        let write = match checks_owner || wanted.destroys(&observed, &differences) {
            true => self.checked(owner, Precondition::AsDecidedOn).await?,
            false => Some(self.unchecked(owner)),
        };
        let Some(write) = write else { return Ok(ApplyOutcome::OwnerChanged) };
        let patch = patch::strategic(owner, wanted, &observed, live.as_ref(), &differences);
        let observed: W::Observed = match write.patch(wanted.name(), &patch).await {
            Ok(observed) => observed,
            Err(error) => {
                let attempt = Attempt::update(owner, observed.uid(), &differences);
                return self.refused(owner, wanted, attempt, error, Some(observed));
            }
        };
        self.contention.repaired(observed.uid(), &differences, asked);
        self.retry_holds.clear(|| hold_key_of(owner, wanted));
        let left = owner.differences(wanted, &observed);
        if left.is_empty() && verdict != Verdict::Retry {
            return Ok(ApplyOutcome::Updated(observed, differences));
        }
        let mut repaired = differences;
        repaired.retain(|one| !left.iter().chain(&contended).any(|other| other.field == one.field));
        Ok(match verdict {
            Verdict::Retry => {
                ApplyOutcome::Contended { observed, difference, repaired, requeue_after: contention::RETRY }
            }
            Verdict::Repair | Verdict::Wait(_) => {
                ApplyOutcome::StoredOtherwise { observed, is_new: false, repaired }
            }
        })
    }

    /// What is as wanted may still be contended: the last repair has not held long enough.
    fn as_wanted<W: Wanted>(
        &self,
        owner: &Owner,
        wanted: &W,
        observed: W::Observed,
    ) -> ApplyOutcome<W::Observed> {
        self.retry_holds.clear(|| hold_key_of(owner, wanted));
        match self.contention.same(observed.uid()) {
            Some(requeue_after) => {
                let difference = "the last repair has not held long enough yet".to_owned();
                ApplyOutcome::Contended { observed, difference, repaired: Vec::new(), requeue_after }
            }
            None => ApplyOutcome::Unchanged(observed),
        }
    }

    /// What became of the same update a short while ago, if the server has refused it.
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

    /// What a refused write of a child comes to.
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

    /// A refusal is an answer, anything else an error; so is a 403 of a server that is still starting.
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

/// A child of which a decision is made.
struct Found<O> {
    observed: O,
    /// The whole object, if it was read live.
    live: Option<Value>,
}

impl<O: Object> Found<O> {
    fn decode(live: Value, name: &str) -> Result<Self, Error> {
        Ok(Self { observed: decode(&live, name)?, live: Some(live) })
    }
}

/// A child that is not there yet.
fn new_body<W: Wanted>(owner: &Owner, wanted: &W) -> Value {
    let resource = W::Observed::resource();
    let mut body = json!({
        "apiVersion": resource.api_version(),
        "kind": resource.kind,
        "metadata": {"name": wanted.name(), "namespace": owner.name.namespace()},
    });
    owner.refer(&mut body);
    wanted.write_into(&mut body);
    body
}

fn hold_key_of<W: Wanted>(owner: &Owner, wanted: &W) -> String {
    hold_key(owner, &W::Observed::resource().kind, wanted.name())
}

pub(in crate::controller) fn decode<O: DeserializeOwned>(live: &Value, name: &str) -> Result<O, Error> {
    O::deserialize(live).map_err(|source| Error::Decode { request: format!("read {name}"), source })
}

#[cfg(test)]
mod tests;
