//! The ways to delete a child, each behind a live read of its owner.
//!
//! Mirrors in-tree controllers' `DeletePod` and the like, which trust their caches here.
//!
//! # How it works
//! A delete carries uid and version of the child as the cache shows it, so it succeeds on that state only and needs no read
//! of the child. The owner is read live before; see `guarded.rs`. A conflict costs one read of the child,
//! and one more try if it is the same object and still ours.
//!
//! # Guarantees
//! - Nothing goes when the owner has moved on or was paused. (test: `a_delete_is_given_up_when_the_owner_has_moved_on`, `a_stored_pause_stops_what_destroys`)
//! - Nothing goes when its replacement is not there. (test: `a_delete_is_given_up_when_the_replacement_is_not_there`)
//! - Another object of the same name is not deleted. (test: `another_life_of_the_name_is_not_deleted_for_the_former_one`)
//! - A child that has changed meanwhile is read once, and deleted if it is still ours. (test: `a_delete_that_meets_a_conflict_is_tried_once_more`)
//! - A child that is replaced in vain each time is left. (test: `a_pod_that_a_webhook_changes_is_not_replaced_for_ever`)
//! - A deletion that the server refuses is not sent again at each pass. (test: `a_refused_delete_is_not_sent_again_at_each_pass`)
//! - For an owner that is being deleted a child goes only if it is not orphaned. (test: `a_child_goes_with_its_owner_unless_it_is_orphaned`)

use std::time::Duration;

use super::apply::{Children, decode};
use super::contention::{self, Verdict};
use super::guarded_write::{PartialObject, Precondition};
use super::owner::{Owner, Ownership};
use super::retry_holds::{self, Attempt, HoldReason};
use crate::api::ApiResource;
use crate::cache::{Cached, Meta, Object};
use crate::client::{Error, ServerStatus};
use crate::controller::kinds::Wanted;
use crate::controller::kinds::difference::Difference;
use crate::controller::kinds::health::REFUSED_RETRY;

/// What became of a child that was to go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Deletion {
    /// It was there, and the server has taken the deletion.
    Deleted,
    /// There was nothing to do: it is gone or on its way, or it is not ours.
    NothingToDo,
    /// The owner, or the child's replacement, is not as it was decided on: to be looked at again.
    NotNow,
    /// The server refuses it, or has refused it a short while ago; not tried again before that time has passed.
    Refused {
        /// Why.
        status: ServerStatus,
        /// When to try again.
        requeue_after: Duration,
    },
}

/// One state of a child: what a delete needs to know of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChildRef {
    /// Its name, in the owner's namespace.
    pub name: String,
    /// Its uid.
    pub uid: String,
    /// The version in which it was seen.
    pub version: String,
    /// Whether it is being deleted already.
    pub is_deleting: bool,
}

// === impl ChildRef ===

impl ChildRef {
    /// A child as the cache has it.
    #[must_use]
    pub fn of<O: Object>(child: &Cached<O>) -> Self {
        Self {
            name: child.object_name().name().to_owned(),
            uid: child.uid().to_owned(),
            version: child.resource_version().to_owned(),
            is_deleting: child.is_deleting(),
        }
    }

    pub(in crate::controller) fn of_meta(meta: Meta) -> Self {
        Self {
            is_deleting: meta.deletion_timestamp.is_some(),
            name: meta.name,
            uid: meta.uid,
            version: meta.resource_version,
        }
    }
}

impl Children {
    /// Deletes a child that is no longer wanted, now that `replacement` is there. Unless its presence is proven by the
    /// answer to a write, the replacement is read live: nothing is deleted when it is not there as wanted.
    ///
    /// # Errors
    /// [`Error`], to be tried again.
    pub async fn delete_replaced<W: Wanted>(
        &self,
        owner: &Owner,
        (replacement, is_proven): (&W, bool),
        child: &ChildRef,
    ) -> Result<Deletion, Error> {
        if !is_proven && !self.is_there(owner, replacement).await? {
            tracing::debug!(child = child.name, "Deletes nothing: its replacement is not there");
            return Ok(Deletion::NotNow);
        }
        self.delete_surplus(owner, &W::Observed::resource(), child).await
    }

    async fn is_there<W: Wanted>(&self, owner: &Owner, wanted: &W) -> Result<bool, Error> {
        let Some(live) = self.live(owner, wanted).await? else { return Ok(false) };
        let live: W::Observed = decode(&live, wanted.name())?;
        let is_ours = owner.ownership(&live) == Ownership::Ours && !live.is_deleting();
        Ok(is_ours && wanted.differences(&live).is_empty())
    }

    /// Deletes a child that is one too many, or no good any more.
    ///
    /// # Errors
    /// [`Error`], to be tried again.
    pub async fn delete_surplus(
        &self,
        owner: &Owner,
        resource: &ApiResource,
        child: &ChildRef,
    ) -> Result<Deletion, Error> {
        self.delete_child(owner, resource, child, Precondition::AsDecidedOn).await
    }

    /// Deletes a child that cannot be written as it is wanted, so that a new one follows. When the new ones are each
    /// time stored with these differences again, by an admission webhook say, they are contended: the time is
    /// when to try again.
    ///
    /// # Errors
    /// [`Error`], to be tried again.
    pub async fn delete_outdated(
        &self,
        owner: &Owner,
        resource: &ApiResource,
        child: &ChildRef,
        differences: &[Difference],
    ) -> Result<(Deletion, Option<Duration>), Error> {
        let (hold_key, asked) = (hold_key(owner, &child.name), owner.reconcile_at.as_deref());
        let verdict = self.contention.verdict(&hold_key, differences, asked);
        if let Verdict::Wait(requeue_after) = verdict {
            return Ok((Deletion::NothingToDo, Some(requeue_after)));
        }
        let deletion = self.delete_surplus(owner, resource, child).await?;
        if deletion == Deletion::Deleted {
            self.contention.repaired(&hold_key, differences, asked);
        }
        Ok((deletion, (verdict == Verdict::Retry).then_some(contention::RETRY)))
    }

    /// How long a child that is as wanted by now has still to stay so, after it was contended.
    #[must_use]
    pub fn contended_for(&self, owner: &Owner, name: &str) -> Option<Duration> {
        self.contention.same(&hold_key(owner, name))
    }

    /// Deletes a child of an owner that is being deleted and does not orphan it.
    ///
    /// # Errors
    /// [`Error`], to be tried again.
    pub async fn delete_of_deleted(
        &self,
        owner: &Owner,
        resource: &ApiResource,
        child: &ChildRef,
    ) -> Result<Deletion, Error> {
        self.delete_child(owner, resource, child, Precondition::DeletingWithChildren).await
    }

    /// The common part of all deletions. A deletion that the server has refused a short while ago is not sent.
    async fn delete_child(
        &self,
        owner: &Owner,
        resource: &ApiResource,
        child: &ChildRef,
        precondition: Precondition,
    ) -> Result<Deletion, Error> {
        if child.is_deleting {
            return Ok(Deletion::NothingToDo);
        }
        let attempt = Attempt::delete(owner, &child.uid);
        let hold_key = retry_holds::deletion_hold_key(owner, &resource.kind, &child.name);
        if let Some((HoldReason::Refused(status), requeue_after)) =
            self.retry_holds.active(&hold_key, attempt)
        {
            return Ok(Deletion::Refused { status, requeue_after });
        }
        let mut version = child.version.clone();
        for is_last in [false, true] {
            let Some(write) = self.checked(owner, precondition).await? else { return Ok(Deletion::NotNow) };
            let error = match write.delete(resource, &child.name, (&child.uid, &version)).await {
                Ok(()) => {
                    self.retry_holds.clear(|| hold_key);
                    return Ok(Deletion::Deleted);
                }
                Err(error) => error,
            };
            if error.is_not_found() {
                return Ok(Deletion::NothingToDo);
            }
            if is_last || !error.is_conflict() {
                let status = self.refusal(error)?;
                self.retry_holds.record(hold_key, attempt, HoldReason::Refused(status.clone()));
                return Ok(Deletion::Refused { status, requeue_after: REFUSED_RETRY });
            }
            match self.same_child(owner, resource, child).await? {
                Some(live) => version = live,
                None => return Ok(Deletion::NothingToDo),
            }
        }
        Ok(Deletion::NotNow)
    }

    /// The live version of a child, if it is the same object, still ours and not on its way out.
    async fn same_child(
        &self,
        owner: &Owner,
        resource: &ApiResource,
        child: &ChildRef,
    ) -> Result<Option<String>, Error> {
        let namespace = owner.name.namespace();
        let live = self.client.get_metadata::<PartialObject>(resource, namespace, &child.name).await?;
        Ok(live.map(|live| live.metadata).and_then(|live| {
            let is_same = live.uid == child.uid
                && live.deletion_timestamp.is_none()
                && owner.ownership_of_meta(&live) == Ownership::Ours;
            is_same.then_some(live.resource_version)
        }))
    }
}

/// What stays the same of a child that is replaced: its uid does not.
fn hold_key(owner: &Owner, name: &str) -> String {
    format!("{}/{name}", owner.uid)
}
