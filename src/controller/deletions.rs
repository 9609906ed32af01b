//! The ways to delete a child: nothing goes on the word of a cache.
//!
//! Mirrors in-tree controllers' `DeletePod` and the like, which trust their caches here.
//!
//! # Guarantees
//! - Replacement, child and owner are read live before; uid and version are preconditions. (test: `a_delete_reads_replacement_child_and_owner_live_first`)
//! - Nothing goes when the owner has moved on. (test: `a_delete_is_given_up_when_the_owner_has_moved_on`)
//! - Nor when it was paused, and the cache does not know yet. (test: `a_pause_that_the_cache_has_not_seen_holds`)
//! - Nothing goes when what replaces it is not there. (test: `a_delete_is_given_up_when_the_replacement_is_not_there`)
//! - What was judged by what it is goes only if it is still that one, and not another of its name. (test: `another_life_of_the_name_is_not_deleted_for_the_former_one`)
//! - One that is replaced in vain, again and again, is left. (test: `a_pod_that_a_webhook_changes_is_not_replaced_for_ever`)
//! - A deletion that the server refuses is not asked for again at each pass. (test: `a_refused_delete_is_not_sent_again_at_each_pass`)
//! - For an owner that is being deleted a child goes only if it is not orphaned. (test: `a_child_goes_with_its_owner_unless_it_is_orphaned`)

use std::time::Duration;

use super::children::{Children, Owner, Ownership, Wanted, decode};
use super::contention::{self, Verdict};
use super::difference::Difference;
use super::obstacles::{self, Attempt, Obstacle};
use super::permit::Need;
use super::summary::REFUSED_RETRY;
use crate::cache::Object;
use crate::client::{Error, ServerStatus};

/// What became of a child that was to go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Deletion {
    /// It was there, and the server has taken the deletion.
    Deleted,
    /// There was nothing to do: it is gone or on its way, or it is not ours.
    NothingToDo,
    /// The owner, or what replaces the child, is not as it was decided on: to be looked at again.
    NotNow,
    /// The server refuses it, or has refused it a short while ago; not tried again before that time has passed.
    Refused {
        /// Why.
        status: ServerStatus,
        /// When to try again.
        again_in: Duration,
    },
}

impl Children {
    /// Deletes a child that is no longer wanted, now that `replacement` is there.
    ///
    /// Reads replacement, child and owner live first: nothing is deleted when the owner is gone, is being
    /// deleted, or has another spec than the one that the decision was based on, when the replacement is
    /// not as wanted, or when the child is not ours or on its way out already.
    ///
    /// # Errors
    /// [`Error`], to be tried again.
    pub async fn delete_replaced<W: Wanted>(
        &self,
        owner: &Owner,
        replacement: &W,
        name: &str,
    ) -> Result<Deletion, Error> {
        let is_there = match self.live(owner, replacement).await? {
            Some(live) => {
                let live: W::Observed = decode(&live, replacement.name())?;
                owner.ownership(&live) == Ownership::Ours
                    && !live.is_deleting()
                    && replacement.differences(&live).is_empty()
            }
            None => false,
        };
        if !is_there {
            tracing::debug!(child = name, "Deletes nothing: what replaces it is not there");
            return Ok(Deletion::NotNow);
        }
        self.delete_child::<W::Observed>(owner, (name, None), Need::AsDecidedOn).await
    }

    /// Deletes a child that is one too many: a scale-down. Or one that is no good, of this `life` (uid): one that has
    /// come in its place meanwhile is another.
    ///
    /// Reads child and owner live first, as [`delete_replaced`](Self::delete_replaced) does: on the word of a
    /// cache that does not know yet that more are wanted again, nothing is deleted.
    ///
    /// # Errors
    /// [`Error`], to be tried again.
    pub async fn delete_surplus<O: Object>(
        &self,
        owner: &Owner,
        name: &str,
        life: Option<&str>,
    ) -> Result<Deletion, Error> {
        self.delete_child::<O>(owner, (name, life), Need::AsDecidedOn).await
    }

    /// Deletes a child that cannot be written as it is wanted, so that a new one follows. When the new ones are each
    /// time stored with these differences again, by an admission webhook say, they are contended: the time is
    /// when to try again.
    ///
    /// Reads child and owner live first, as [`delete_surplus`](Self::delete_surplus) does.
    ///
    /// # Errors
    /// [`Error`], to be tried again.
    pub async fn delete_outdated<O: Object>(
        &self,
        owner: &Owner,
        (name, life): (&str, Option<&str>),
        differences: &[Difference],
    ) -> Result<(Deletion, Option<Duration>), Error> {
        let (place, asked) = (place(owner, name), owner.reconcile_at.as_deref());
        let verdict = self.contention.verdict(&place, differences, asked);
        if let Verdict::Wait(again_in) = verdict {
            return Ok((Deletion::NothingToDo, Some(again_in)));
        }
        let deletion = self.delete_surplus::<O>(owner, name, life).await?;
        if deletion == Deletion::Deleted {
            self.contention.repaired(&place, differences, asked);
        }
        Ok((deletion, (verdict == Verdict::Retry).then_some(contention::RETRY)))
    }

    /// How long a child that is as wanted by now has still to stay so, after it was contended.
    #[must_use]
    pub fn contended_for(&self, owner: &Owner, name: &str) -> Option<Duration> {
        self.contention.same(&place(owner, name))
    }

    /// Deletes a child of an owner that is being deleted and does not orphan it.
    ///
    /// Reads child and owner live first: nothing is deleted for an owner that lives, or is another.
    ///
    /// # Errors
    /// [`Error`], to be tried again.
    pub async fn delete_of_deleted<O: Object>(&self, owner: &Owner, name: &str) -> Result<Deletion, Error> {
        self.delete_child::<O>(owner, (name, None), Need::GoingWithChildren).await
    }

    /// What all deletions have in common: the child is read live, and then its owner. What the server has refused a
    /// short while ago is told without another look at the owner.
    async fn delete_child<O: Object>(
        &self,
        owner: &Owner,
        (name, life): (&str, Option<&str>),
        need: Need,
    ) -> Result<Deletion, Error> {
        let (namespace, resource) = (owner.name.namespace(), O::resource());
        let child: Option<O> = self.client.get(&resource, namespace, name).await?;
        let is_it = |child: &O| {
            owner.ownership(child) == Ownership::Ours
                && !child.is_deleting()
                && life.is_none_or(|life| child.uid() == life)
        };
        let Some(child) = child.filter(is_it) else {
            return Ok(Deletion::NothingToDo);
        };
        let attempt = Attempt::delete(owner, child.uid());
        let place = obstacles::place_of_deletion(owner, &resource.kind, name);
        if let Some((Obstacle::Refused(status), again_in)) = self.obstacles.in_the_way(&place, attempt) {
            return Ok(Deletion::Refused { status, again_in });
        }
        let Some(permit) = self.permit(owner, need).await?.granted() else {
            return Ok(Deletion::NotNow);
        };
        match permit.delete(&child).await {
            Ok(()) => {
                self.obstacles.gone(|| place);
                Ok(Deletion::Deleted)
            }
            Err(error) if error.is_not_found() => Ok(Deletion::NothingToDo),
            Err(error) => {
                let status = self.refusal(error)?;
                self.obstacles.met(place, attempt, Obstacle::Refused(status.clone()));
                Ok(Deletion::Refused { status, again_in: REFUSED_RETRY })
            }
        }
    }
}

/// What stays the same of a child that is replaced: its uid does not.
fn place(owner: &Owner, name: &str) -> String {
    format!("{}/{name}", owner.uid)
}
