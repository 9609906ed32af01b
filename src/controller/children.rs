//! Makes a child as it is wanted, and writes nothing when it is.
//!
//! Mirrors kubernetes `pkg/controller/controller_utils.go` and controller-runtime's `controllerutil`.
//!
//! # How it works
//! A child is *wanted* (computed from the custom resource) and *observed* (what the cache keeps of it).
//! No difference, no request. A child that the cache does not have is created by POST: a name that is
//! taken is a 409 and never an overwrite. A difference leads to a live read, from which the body of a
//! PUT is made as JSON, so that fields newer than our types survive; it carries uid and version.
//!
//! | live object of that name | what happens |
//! |---|---|
//! | none | live read of the owner, then POST |
//! | ours by uid, as wanted | nothing |
//! | ours by uid, different, also in our owner reference | live read of the owner, then PUT |
//! | ours by uid, being deleted | wait for its end |
//! | of an earlier life of the same owner | wait for its collection |
//! | anybody else's | report, do not touch |
//!
//! What the server refuses, or a name that is taken, is not tried again at each pass: see
//! [`obstacles`](super::obstacles).
//!
//! # Guarantees
//! - Nothing differs, nothing is sent. (test: `no_difference_sends_nothing`)
//! - A create whose answer is lost is not sent again: a live read tells. (test: `a_create_whose_answer_is_lost_is_not_sent_again`)
//! - Somebody else's object is never written. (test: `what_is_not_ours_is_not_touched`)
//! - Every update carries uid and version. (test: `an_update_is_made_from_a_live_read`)
//! - Nothing is written for an owner that is gone or has another spec by now. (test: `nothing_is_written_for_an_owner_that_has_moved_on`)
//! - Nor for one that was paused, and the cache does not know yet. (test: `a_pause_that_the_cache_has_not_seen_holds`)
//! - A refusal is not taken for a free name. (test: `w10_a_refusal_does_not_hide_what_is_there`)
//! - What the server refuses is reported with its cause, not retried at once. (test: `a_refusal_is_an_answer`)
//! - Nor is it retried at each pass, unless something else is to be written. (test: `a_refused_update_is_not_sent_again_at_each_pass`)
//! - A write that an admission webhook changes is noticed. (test: `w13_a_write_that_a_webhook_undoes_is_noticed`)
//! - A child that is changed back each time is not fought over. (test: `a_child_changed_back_each_time_is_contended`)
//!
//! # Differences from client-go
//! Nothing is ever adopted, see [`owner`](super::owner). There are no expectations: the guard of
//! [`consistency`](super::consistency) holds a key until the caches have seen its own writes, and a cache that is
//! late all the same costs a POST that is answered 409, never a second child.
//!
//! # Locks and tasks
//! None of its own; the memory of repairs is behind one lock, that of obstacles behind another.

use std::sync::Arc;

use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::consistency::Consistency;
use super::contention::{self, Contention, Verdict};
pub use super::difference::{Difference, describe};
pub use super::ensured::Ensured;
use super::obstacles::{Attempt, Obstacle, Obstacles, place};
pub use super::owner::Owner;
pub(super) use super::owner::Ownership;
use super::permit::Need;
use super::summary::{EXISTS_RETRY, REFUSED_RETRY, Summary};
use crate::cache::{Cached, Object};
use crate::client::{ApiClient, Error, ServerStatus};

/// A child as its owner wants it.
pub trait Wanted: Send + Sync {
    /// What the cache keeps of such a child.
    type Observed: Object + Clone;

    /// Its name, in the owner's namespace.
    fn name(&self) -> &str;
    /// What is ours and not as wanted, by meaning.
    fn differences(&self, observed: &Self::Observed) -> Vec<Difference>;
    /// Writes what is ours into a live object, or into an empty one; the rest stays.
    fn apply(&self, live: &mut Value);

    /// How far a child has come that is as wanted: one that is there is ready, if its kind knows nothing more.
    fn progress(&self, _observed: &Self::Observed) -> Summary {
        Summary::ready(format!("{} {:?} is as wanted", Self::Observed::resource().kind, self.name()))
    }
}

/// Writes children. One for each controller.
#[derive(Debug)]
pub struct Children {
    pub(super) client: ApiClient,
    pub(super) consistency: Arc<Consistency>,
    pub(super) contention: Contention,
    pub(super) obstacles: Obstacles,
}

// === impl Children ===

impl Children {
    /// Writes through this client, and tells the guard of each write.
    #[must_use]
    pub fn new(client: ApiClient, consistency: Arc<Consistency>) -> Self {
        Self { client, consistency, contention: Contention::default(), obstacles: Obstacles::default() }
    }

    /// Makes the child as wanted; `cached` is what the cache has under its name.
    ///
    /// # Errors
    /// [`Error`], to be tried again: lost connections, conflicts, a child that does not decode.
    ///
    /// # Cancel safety
    /// A write that is cut is found again by its name: call it once more.
    pub async fn ensure<W: Wanted>(
        &self,
        owner: &Owner,
        wanted: &W,
        cached: Option<&Cached<W::Observed>>,
    ) -> Result<Ensured<W::Observed>, Error> {
        match cached {
            None => self.create(owner, wanted).await,
            Some(Cached::Readable(observed))
                if owner.ownership(&**observed) == Ownership::Ours && !observed.is_deleting() =>
            {
                let differences = owner.differences(wanted, observed);
                if differences.is_empty() {
                    return Ok(self.as_wanted(owner, wanted, W::Observed::clone(observed)));
                }
                match self.refused_before(owner, wanted, observed, &differences) {
                    Some(refused) => Ok(refused),
                    None => self.audit(owner, wanted).await,
                }
            }
            Some(_) => self.audit(owner, wanted).await,
        }
    }

    /// Makes the child as wanted, believing no cache: for a pass that looks for what caches have missed.
    ///
    /// # Errors
    /// As [`ensure`](Self::ensure).
    pub async fn audit<W: Wanted>(&self, owner: &Owner, wanted: &W) -> Result<Ensured<W::Observed>, Error> {
        match self.live(owner, wanted).await? {
            Some(live) => self.repair(owner, wanted, live).await,
            None => self.create(owner, wanted).await,
        }
    }

    /// What [`ensure`](Self::ensure) would find, by the cache alone and writing nothing: for an owner that is
    /// paused. `is_applied` tells whether the present spec had reached the child already.
    #[must_use]
    pub fn look<W: Wanted>(
        &self,
        owner: &Owner,
        wanted: &W,
        cached: Option<&Cached<W::Observed>>,
        is_applied: bool,
    ) -> Ensured<W::Observed> {
        let Some(Cached::Readable(observed)) = cached else {
            return Ensured::Held { observed: None, differences: Vec::new(), is_applied };
        };
        match owner.ownership(&**observed) {
            Ownership::Foreign => Ensured::ResourceExists { again_in: EXISTS_RETRY },
            Ownership::EarlierLife => Ensured::Leaving(None),
            Ownership::Ours if observed.is_deleting() => Ensured::Leaving(Some(W::Observed::clone(observed))),
            Ownership::Ours => {
                let (observed, differences) =
                    (W::Observed::clone(observed), owner.differences(wanted, observed));
                if differences.is_empty() {
                    Ensured::Unchanged(observed)
                } else {
                    Ensured::Held { observed: Some(observed), differences, is_applied }
                }
            }
        }
    }

    /// Creates the child, for an owner that a live read shows to be as it was decided on: a stale cache
    /// must not feed the garbage collector.
    async fn create<W: Wanted>(&self, owner: &Owner, wanted: &W) -> Result<Ensured<W::Observed>, Error> {
        let resource = W::Observed::resource();
        let mut body = json!({
            "apiVersion": resource.api_version(),
            "kind": resource.kind,
            "metadata": {
                "name": wanted.name(),
                "namespace": owner.name.namespace(),
            },
        });
        owner.refer(&mut body);
        wanted.apply(&mut body);
        let attempt = Attempt::create(owner, &body);
        match self.obstacles.in_the_way(&place_of(owner, wanted), attempt) {
            Some((Obstacle::Refused(status), again_in)) => {
                return Ok(Ensured::Refused { observed: None, status, again_in });
            }
            Some((Obstacle::Exists, again_in)) => return Ok(Ensured::ResourceExists { again_in }),
            None => {}
        }
        let Some(permit) = self.permit(owner, Need::AsDecidedOn).await?.granted() else {
            return Ok(Ensured::OwnerMovedOn);
        };
        let error = match permit.create::<W::Observed>(&body).await {
            Ok(observed) => {
                self.obstacles.gone(|| place_of(owner, wanted));
                let is_as_wanted = owner.differences(wanted, &observed).is_empty();
                return Ok(match is_as_wanted {
                    true => Ensured::Created(observed),
                    false => Ensured::Undone { observed, is_new: true, repaired: Vec::new() },
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
        let ensured = match self.repair(owner, wanted, live).await? {
            Ensured::Unchanged(observed) if is_unknown => {
                self.consistency.wrote(&owner.name, &observed);
                Ensured::Created(observed)
            }
            ensured => ensured,
        };
        if matches!(ensured, Ensured::ResourceExists { .. }) {
            self.obstacles.met(place_of(owner, wanted), attempt, Obstacle::Exists);
        }
        Ok(ensured)
    }

    /// Decides on the live object of that name, whose it may be.
    async fn repair<W: Wanted>(
        &self,
        owner: &Owner,
        wanted: &W,
        mut live: Value,
    ) -> Result<Ensured<W::Observed>, Error> {
        let observed: W::Observed = decode(&live, wanted.name())?;
        match owner.ownership(&observed) {
            Ownership::Foreign => {
                // One that the cache shows is missed there as soon as it goes.
                self.obstacles.gone(|| place_of(owner, wanted));
                return Ok(Ensured::ResourceExists { again_in: EXISTS_RETRY });
            }
            Ownership::EarlierLife => return Ok(Ensured::Leaving(None)),
            Ownership::Ours if observed.is_deleting() => return Ok(Ensured::Leaving(Some(observed))),
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
        if let Verdict::Wait(again_in) = verdict {
            return Ok(Ensured::Contended { observed, difference, repaired: Vec::new(), again_in });
        }
        // A stale cache of the owner must not scale down what a newer spec has scaled up.
        let Some(permit) = self.permit(owner, Need::AsDecidedOn).await?.granted() else {
            return Ok(Ensured::OwnerMovedOn);
        };
        wanted.apply(&mut live);
        owner.refer(&mut live);
        let observed: W::Observed = match permit.update(wanted.name(), &live).await {
            Ok(observed) => observed,
            Err(error) => {
                let attempt = Attempt::update(owner, observed.uid(), &differences);
                return self.refused(owner, wanted, attempt, error, Some(observed));
            }
        };
        self.contention.repaired(observed.uid(), &differences, asked);
        self.obstacles.gone(|| place_of(owner, wanted));
        let left = owner.differences(wanted, &observed);
        if left.is_empty() && verdict != Verdict::Retry {
            return Ok(Ensured::Updated(observed, differences));
        }
        let mut repaired = differences;
        repaired.retain(|one| !left.iter().chain(&contended).any(|other| other.field == one.field));
        Ok(match verdict {
            Verdict::Retry => {
                Ensured::Contended { observed, difference, repaired, again_in: contention::RETRY }
            }
            Verdict::Repair | Verdict::Wait(_) => Ensured::Undone { observed, is_new: false, repaired },
        })
    }

    /// What is as wanted may still be contended: the last repair has not held long enough.
    fn as_wanted<W: Wanted>(&self, owner: &Owner, wanted: &W, observed: W::Observed) -> Ensured<W::Observed> {
        self.obstacles.gone(|| place_of(owner, wanted));
        match self.contention.same(observed.uid()) {
            Some(again_in) => {
                let difference = "the last repair has not held long enough yet".to_owned();
                Ensured::Contended { observed, difference, repaired: Vec::new(), again_in }
            }
            None => Ensured::Unchanged(observed),
        }
    }

    /// The children of this owner as the server has them, whatever their labels say: what lost its
    /// label is not in the cache.
    ///
    /// # Errors
    /// [`Error`]: an error is never "there are none".
    pub async fn live_children<O: Object>(&self, owner: &Owner) -> Result<Vec<O>, Error> {
        let all: Vec<Value> = self.client.list(&O::resource(), owner.name.namespace()).await?;
        let of_owner = |child: &O| owner.ownership(child) == Ownership::Ours;
        // What does not decode is not ours to judge; it is left alone.
        Ok(all.into_iter().filter_map(|child| serde_json::from_value(child).ok()).filter(of_owner).collect())
    }

    /// What became of the same update a short while ago, if the server has refused it.
    fn refused_before<W: Wanted>(
        &self,
        owner: &Owner,
        wanted: &W,
        observed: &W::Observed,
        differences: &[Difference],
    ) -> Option<Ensured<W::Observed>> {
        let attempt = Attempt::update(owner, observed.uid(), differences);
        match self.obstacles.in_the_way(&place_of(owner, wanted), attempt)? {
            (Obstacle::Refused(status), again_in) => {
                Some(Ensured::Refused { observed: Some(observed.clone()), status, again_in })
            }
            (Obstacle::Exists, _) => None,
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
    ) -> Result<Ensured<W::Observed>, Error> {
        let status = self.refusal(error)?;
        self.obstacles.met(place_of(owner, wanted), attempt, Obstacle::Refused(status.clone()));
        Ok(Ensured::Refused { observed, status, again_in: REFUSED_RETRY })
    }

    /// A refusal is an answer, anything else an error; so is a 403 of a server that is still starting.
    pub(super) fn refusal(&self, error: Error) -> Result<ServerStatus, Error> {
        let is_early = error.is_forbidden() && self.client.is_settling();
        match error {
            Error::Status { ref status, .. } if error.is_refused() && !is_early => {
                Ok(ServerStatus::clone(status))
            }
            error => Err(error),
        }
    }

    pub(super) async fn live<W: Wanted>(&self, owner: &Owner, wanted: &W) -> Result<Option<Value>, Error> {
        self.client.get(&W::Observed::resource(), owner.name.namespace(), wanted.name()).await
    }
}

fn place_of<W: Wanted>(owner: &Owner, wanted: &W) -> String {
    place(owner, &W::Observed::resource().kind, wanted.name())
}

pub(super) fn decode<O: DeserializeOwned>(live: &Value, name: &str) -> Result<O, Error> {
    O::deserialize(live).map_err(|source| Error::Decode { request: format!("read {name}"), source })
}

#[cfg(test)]
mod tests;
