//! The ways to delete a child, each after a live read of its owner.
//!
//! Mirrors `DeletePod` and the like of in-tree controllers, which trust their caches here.
//!
//! # How it works
//! A delete carries the uid and resource version of the cached child, so it succeeds only on that state and needs no
//! read of the child. The owner is read live first; see [`trust`](super::trust). A conflict costs one read of the child,
//! and one retry if it is the same object and still ours.
//!
//! # Guarantees
//! - Nothing is deleted if the owner has changed or was paused.
//!   (test: `delete_is_skipped_when_owner_has_changed`, `stored_pause_blocks_destructive_writes`)
//! - Nothing is deleted if its replacement does not exist. (test: `delete_is_skipped_without_a_matching_replacement`)
//! - Another object of the same name, or a released child, is not deleted.
//!   (test: `recreated_child_with_same_name_is_not_deleted`, `child_without_controller_reference_is_not_deleted`)
//! - After a conflict the child is read once, and deleted if it is still ours.
//!   (test: `conflicting_delete_is_retried_once`)
//! - A child is no longer replaced if each replacement differs again.
//!   (test: `pod_altered_by_webhook_is_not_replaced_forever`)
//! - A refused deletion is not resent in every sync. (test: `refused_delete_is_not_retried_on_every_pass`)
//! - When the owner is being deleted, its children are deleted only if they are not orphaned.
//!   (test: `deleted_owner_deletes_children_unless_orphaned`)

use std::time::Duration;

use super::Pass;
use super::apply::decode;
use super::custom_resource::CustomResource;
use super::owner::Ownership;
use super::trust::{PartialObject, Precondition};
use crate::api::ApiResource;
use crate::cache::{Cached, Meta, Object, TypedObject};
use crate::client::{Error, ServerStatus};
use crate::controller::key::holds::{HoldReason, Request, Verb};
use crate::controller::key::repairs::{self, ChildId, Decision};
use crate::controller::kinds::Wanted;
use crate::controller::kinds::difference::Difference;
use crate::controller::kinds::health::{ChildHealth, REFUSED_RETRY};

/// The result of deleting a child.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Deletion {
    /// The server accepted the deletion.
    Deleted,
    /// Nothing to do: the child is gone, being deleted, or not ours to delete.
    NothingToDo,
    /// The owner or the child's replacement has changed since the decision; decide again in the next sync.
    NotNow,
    /// The server refuses the deletion, or recently refused it.
    Refused {
        /// Why.
        status: ServerStatus,
        /// When to retry.
        requeue_after: Duration,
    },
}

/// The state of a child that a delete needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChildRef {
    /// The name, in the owner's namespace.
    pub name: String,
    /// The uid.
    pub uid: String,
    /// The resource version that was observed.
    pub version: String,
    /// Whether the child is already being deleted.
    pub is_deleting: bool,
    /// Whether its owner is its controller; no other child is deleted.
    pub is_controlled: bool,
}

// === impl ChildRef ===

impl ChildRef {
    /// Returns the reference of a cached child.
    #[must_use]
    pub fn of<O: TypedObject>(child: &Cached<O>) -> Self {
        Self {
            name: child.object_name().name().to_owned(),
            uid: child.uid().to_owned(),
            version: child.resource_version().to_owned(),
            is_deleting: child.is_deleting(),
            is_controlled: child.controller().is_some(),
        }
    }

    pub(in crate::controller) fn of_meta(meta: Meta) -> Self {
        Self {
            is_deleting: meta.deletion_timestamp.is_some(),
            is_controlled: meta.controller().is_some(),
            name: meta.name.name().to_owned(),
            uid: meta.uid.into(),
            version: meta.resource_version.into(),
        }
    }
}

impl<K: CustomResource> Pass<'_, K> {
    /// Deletes a child that `replacement` replaces. Unless the response to a write has just proven that the replacement
    /// exists, reads it live and deletes nothing if it is missing or differs.
    ///
    /// # Errors
    /// [`Error`], to be retried.
    pub async fn delete_replaced<W: Wanted>(
        &self,
        (replacement, is_proven): (&W, bool),
        child: &ChildRef,
    ) -> Result<Deletion, Error> {
        if !is_proven && !self.is_there(replacement).await? {
            tracing::debug!(
                child = child.name,
                "Skipping the deletion: the replacement does not exist or differs"
            );
            return Ok(Deletion::NotNow);
        }
        self.delete_surplus(&ApiResource::of::<W::Observed>(), child).await
    }

    async fn is_there<W: Wanted>(&self, wanted: &W) -> Result<bool, Error> {
        let Some(live) = self.live(wanted).await? else { return Ok(false) };
        let live: W::Observed = decode(&live, wanted.name())?;
        let is_ours = self.owner.ownership(&live) == Ownership::Ours && !live.is_deleting();
        Ok(is_ours && self.owner.differences(wanted, &live).is_empty())
    }

    /// Deletes a child that is surplus or no longer usable.
    ///
    /// # Errors
    /// [`Error`], to be retried.
    pub async fn delete_surplus(&self, resource: &ApiResource, child: &ChildRef) -> Result<Deletion, Error> {
        self.delete_child(resource, child, Precondition::AsDecidedOn).await
    }

    /// Deletes a child that cannot be updated in place, so that a new one is created. If each new child is stored with
    /// the same differences, for instance by an admission webhook, the child is contended and the returned duration
    /// says when to retry.
    ///
    /// # Errors
    /// [`Error`], to be retried.
    pub async fn delete_outdated(
        &self,
        resource: &ApiResource,
        child: &ChildRef,
        differences: &[Difference],
    ) -> Result<(Deletion, Option<Duration>), Error> {
        let (id, asked) = (ChildId::Name(child.name.clone()), self.owner.reconcile_at.as_deref());
        let decision = self.state().repairs.decide(&id, differences, asked);
        if let Decision::Wait(requeue_after) = decision {
            return Ok((Deletion::NothingToDo, Some(requeue_after)));
        }
        let deletion = self.delete_surplus(resource, child).await?;
        if deletion == Deletion::Deleted {
            self.state().repairs.repaired(&id, differences, asked);
        }
        Ok((deletion, (decision == Decision::Retry).then_some(repairs::RETRY)))
    }

    /// Returns how much longer a child that now matches stays contended.
    #[must_use]
    pub fn contended_for(&self, name: &str) -> Option<Duration> {
        self.state().repairs.same(|| ChildId::Name(name.to_owned()))
    }

    /// Reports that the server refuses to delete a child, to be retried after `requeue_after`.
    pub fn refused_deletion(&mut self, child: &str, status: &ServerStatus, requeue_after: Duration) {
        self.report(ChildHealth::refused(&format!("to delete {child}"), status).requeue_after(requeue_after));
    }

    /// Deletes a child of an owner that is being deleted and does not orphan its children.
    ///
    /// # Errors
    /// [`Error`], to be retried.
    pub async fn delete_of_deleted(
        &self,
        resource: &ApiResource,
        child: &ChildRef,
    ) -> Result<Deletion, Error> {
        self.delete_child(resource, child, Precondition::DeletingWithChildren).await
    }

    /// Deletes the child, unless the server recently refused the same deletion.
    async fn delete_child(
        &self,
        resource: &ApiResource,
        child: &ChildRef,
        precondition: Precondition,
    ) -> Result<Deletion, Error> {
        if child.is_deleting || !child.is_controlled {
            return Ok(Deletion::NothingToDo);
        }
        let attempt = self.attempt(&child.uid);
        let request = || Request::of(Verb::Delete, resource.kind.clone(), &child.name);
        if let Some((HoldReason::Refused(status), requeue_after)) =
            self.state().holds.active(&request(), attempt)
        {
            return Ok(Deletion::Refused { status, requeue_after });
        }
        let mut version = child.version.clone();
        for is_last in [false, true] {
            let state = (child.uid.as_str(), version.as_str());
            let send = |checked| self.send_delete(checked, resource, &child.name, state);
            let error = match self.checked(precondition, send).await {
                Ok(Some(())) => {
                    self.state().holds.clear(request);
                    return Ok(Deletion::Deleted);
                }
                Ok(None) => return Ok(Deletion::NotNow),
                Err(error) => error,
            };
            if error.is_not_found() {
                return Ok(Deletion::NothingToDo);
            }
            if is_last || !error.is_conflict() {
                let status = self.refusal(error)?;
                self.state().holds.record(request(), attempt, HoldReason::Refused(status.clone()));
                return Ok(Deletion::Refused { status, requeue_after: REFUSED_RETRY });
            }
            match self.same_child(resource, child).await? {
                Some(live) => version = live,
                None => return Ok(Deletion::NothingToDo),
            }
        }
        Ok(Deletion::NotNow)
    }

    /// Returns the live version of a child if it is the same object, still ours and not being deleted.
    async fn same_child(&self, resource: &ApiResource, child: &ChildRef) -> Result<Option<String>, Error> {
        let namespace = self.owner.name.namespace();
        let live = self.tools.client.get_metadata::<PartialObject>(resource, namespace, &child.name).await?;
        Ok(live.map(|live| live.metadata).and_then(|live| {
            let is_same = *live.uid == child.uid
                && live.deletion_timestamp.is_none()
                && self.owner.ownership_of_meta(&live) == Ownership::Ours;
            is_same.then(|| live.resource_version.into())
        }))
    }
}
