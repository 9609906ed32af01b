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
//! | of an earlier life of the same owner | wait for its collection |
//! | anybody else's | report, do not touch |
//!
//! A 409 shows that the cache is late: it costs a live read of the child, one of the owner, and one more try. What the
//! server refuses, or a name that is taken, is not tried again at each pass: see [`obstacles`](super::obstacles).
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
//! [`consistency`](super::consistency) holds a key until the caches have seen its own writes, and a cache that is
//! late all the same costs a POST that is answered 409, never a second child.
//!
//! # Locks and tasks
//! None of its own; the memory of repairs is behind one lock, that of obstacles behind another.

use std::fmt;
use std::sync::Arc;

use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::consistency::Consistency;
use super::contention::{self, Contention, Verdict};
pub use super::difference::{Difference, describe};
pub use super::ensured::Ensured;
use super::fields::Field;
use super::guarded::Precondition;
use super::lags::Lags;
use super::obstacles::{Attempt, Obstacle, Obstacles, place};
pub use super::owner::Owner;
pub(super) use super::owner::Ownership;
use super::patch;
use super::renames::Renames;
use super::summary::{EXISTS_RETRY, REFUSED_RETRY, Summary};
use crate::cache::{Cached, Object};
use crate::client::{ApiClient, Error, ServerStatus};

/// A child as its owner wants it.
pub trait Wanted: Send + Sync {
    /// The projection of such a child in the cache.
    type Observed: Object + Clone;

    /// Whose each field of such a child is.
    const FIELDS: &'static [Field];

    /// Its name, in the owner's namespace.
    fn name(&self) -> &str;
    /// The fields of ours that are not as wanted, by meaning.
    fn differences(&self, observed: &Self::Observed) -> Vec<Difference>;
    /// Writes the fields of ours into a live object, or into an empty one; the rest stays.
    fn apply(&self, live: &mut Value);

    /// Whether to write these differences takes something away that serves users: a replica, a port, a host.
    fn destroys(&self, _observed: &Self::Observed, _differences: &[Difference]) -> bool {
        false
    }

    /// Whether the patch that writes these differences has to be made from the whole live object.
    fn patches_live(&self, _differences: &[Difference]) -> bool {
        false
    }

    /// Whether a child would be ready, were its `observedGeneration` not behind.
    fn only_lags(&self, _observed: &Self::Observed) -> bool {
        false
    }

    /// Adds to a patch what no field of the table tells.
    fn amend_patch(&self, _observed: &Self::Observed, _patch: &mut Value) {}

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
    pub(super) lags: Lags,
    pub(super) renames: Renames,
    pub(super) owners: Relist,
}

/// Has the owners' informer list anew.
#[derive(Clone, Default)]
pub(super) struct Relist(Option<Arc<dyn Fn() + Send + Sync>>);

impl Relist {
    pub(super) fn ask(&self) {
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
        let (contention, obstacles) = (Contention::default(), Obstacles::default());
        let (lags, renames) = (Lags::default(), Renames::default());
        Self { client, consistency, contention, obstacles, lags, renames, owners: Relist::default() }
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
    pub async fn ensure<W: Wanted>(
        &self,
        owner: &Owner,
        wanted: &W,
        cached: Option<&Cached<W::Observed>>,
        is_applied: bool,
    ) -> Result<Ensured<W::Observed>, Error> {
        match cached {
            None => self.create_child(owner, wanted, is_applied).await,
            Some(Cached::Readable(observed)) => {
                let found = Found { observed: W::Observed::clone(observed), live: None };
                self.repair(owner, wanted, found, is_applied).await
            }
            Some(Cached::Unreadable(_)) => self.ensure_live(owner, wanted).await,
        }
    }

    /// Makes the child as wanted, believing no cache.
    ///
    /// # Errors
    /// As [`ensure`](Self::ensure).
    pub async fn ensure_live<W: Wanted>(
        &self,
        owner: &Owner,
        wanted: &W,
    ) -> Result<Ensured<W::Observed>, Error> {
        match self.live(owner, wanted).await? {
            Some(live) => self.repair(owner, wanted, Found::decode(live, wanted.name())?, true).await,
            None => self.create_child(owner, wanted, true).await,
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

    /// Creates the child. One that was there before is created behind a live read of the owner: a stale cache must not
    /// feed the garbage collector in a loop.
    async fn create_child<W: Wanted>(
        &self,
        owner: &Owner,
        wanted: &W,
        was_there: bool,
    ) -> Result<Ensured<W::Observed>, Error> {
        let body = new_body(owner, wanted);
        let attempt = Attempt::create(owner, &body);
        match self.obstacles.in_the_way(&place_of(owner, wanted), attempt) {
            Some((Obstacle::Refused(status), again_in)) => {
                return Ok(Ensured::Refused { observed: None, status, again_in });
            }
            Some((Obstacle::Exists, again_in)) => return Ok(Ensured::ResourceExists { again_in }),
            None => {}
        }
        let write = match was_there {
            true => self.checked(owner, Precondition::AsDecidedOn).await?,
            false => Some(self.unchecked(owner)),
        };
        let Some(write) = write else { return Ok(Ensured::OwnerMovedOn) };
        let error = match write.create::<W::Observed>(&body).await {
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
        let found = Found::decode(live, wanted.name())?;
        let ensured = match self.repair(owner, wanted, found, true).await? {
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

    /// Decides on the object of that name, whose it may be. After a conflict it is read live, and looked at once more.
    async fn repair<W: Wanted>(
        &self,
        owner: &Owner,
        wanted: &W,
        found: Found<W::Observed>,
        checks_owner: bool,
    ) -> Result<Ensured<W::Observed>, Error> {
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
    ) -> Result<Ensured<W::Observed>, Error> {
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
        let (observed, live) = match live {
            None if wanted.patches_live(&differences) => match self.live(owner, wanted).await? {
                Some(live) => (decode(&live, wanted.name())?, Some(live)),
                None => return Ok(Ensured::Leaving(None)),
            },
            live => (observed, live),
        };
        let differences = owner.differences(wanted, &observed);
        let write = match checks_owner || wanted.destroys(&observed, &differences) {
            true => self.checked(owner, Precondition::AsDecidedOn).await?,
            false => Some(self.unchecked(owner)),
        };
        let Some(write) = write else { return Ok(Ensured::OwnerMovedOn) };
        let patch = patch::strategic(owner, wanted, &observed, live.as_ref(), &differences);
        let observed: W::Observed = match write.patch(wanted.name(), &patch).await {
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
    wanted.apply(&mut body);
    body
}

fn place_of<W: Wanted>(owner: &Owner, wanted: &W) -> String {
    place(owner, &W::Observed::resource().kind, wanted.name())
}

pub(super) fn decode<O: DeserializeOwned>(live: &Value, name: &str) -> Result<O, Error> {
    O::deserialize(live).map_err(|source| Error::Decode { request: format!("read {name}"), source })
}

#[cfg(test)]
mod tests;
