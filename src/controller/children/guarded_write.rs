//! The only place that writes children and finalizers, behind the check of the owner that each write requires.
//!
//! Mirrors kubernetes `RecheckDeletionTimestamp` (`pkg/controller/controller_ref_manager.go`), which in-tree
//! controllers call before they adopt; their deletes trust the cache.
//!
//! # How it works
//! A write that carries uid and resourceVersion succeeds only on the state it was decided from, so it needs no live
//! read of the child. The version of the *child* does not tell whether the *owner* has changed. Before a write that
//! destroys or re-creates, [`Children::checked`] reads the owner's metadata; one read serves many writes (see
//! `owner_evidence`). All other writes are [`Children::unchecked`].
//!
//! | the write requires | the live owner |
//! |---|---|
//! | [`Precondition::AsDecidedOn`] | has this uid and generation, is not being deleted, is not paused |
//! | [`Precondition::DeletingWithChildren`] | has this uid, is being deleted, does not orphan its children |
//!
//! An owner that does not meet the precondition ends the pass, and the guard of
//! [`consistency`](crate::controller::run::consistency) holds the key until the cache shows that state of the owner.
//!
//! # Guarantees
//! - Each precondition is checked against the live owner. (test: `precondition_is_checked_against_the_live_owner`)
//! - An owner that cannot be read permits no write. (test: `unreadable_owner_permits_no_write`)
//! - One read serves 64 writes within a second, including concurrent writes. (test: `one_owner_read_serves_64_writes`)
//! - A live owner that is older than the cached one permits no write, and its kind is relisted.
//!   (test: `r18_older_live_owner_relists_its_kind`)
//! - A key whose owner has changed waits for the cache. (test: `changed_owner_holds_its_key`)
//! - Every write is awaited in the caches. (test: `every_write_is_awaited_in_the_cache`)
//! - Nothing is written elsewhere. (test: `each_write_is_sent_from_one_file`)

use std::cmp::Ordering;

use serde_json::Value;

use super::Children;
use super::owner::Owner;
use super::owner_evidence::{LiveMeta, PartialObject};
use crate::api::{ApiResource, annotations};
use crate::cache::{ObjectName, TypedObject, compare_versions};
use crate::client::Error;
use crate::controller::kinds::diff::Patch;

/// What a write requires of the live owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::controller) enum Precondition {
    /// The owner is unchanged since the write was decided on.
    AsDecidedOn,
    /// The owner is being deleted, and its children with it.
    DeletingWithChildren,
}

/// A permitted write.
pub(in crate::controller) struct GuardedWrite<'a> {
    children: &'a Children,
    owner: &'a Owner,
    checked: Option<Precondition>,
}

// === impl LiveMeta ===

impl LiveMeta {
    /// Whether this is the same object as at the decision, not being deleted and not paused.
    pub(in crate::controller) fn is_living(&self, owner: &Owner) -> bool {
        self.uid == owner.uid
            && self.deletion_timestamp.is_none()
            && !annotations::ask_for_pause(&self.annotations)
    }

    /// Whether the live owner is older than the cached one.
    fn is_older(&self, owner: &Owner) -> bool {
        self.uid == owner.uid
            && compare_versions(&self.resource_version, &owner.version) == Some(Ordering::Less)
    }

    pub(in crate::controller) fn meets(&self, precondition: Precondition, owner: &Owner) -> bool {
        match precondition {
            Precondition::AsDecidedOn => self.is_living(owner) && self.generation == owner.generation,
            Precondition::DeletingWithChildren => {
                self.uid == owner.uid
                    && self.deletion_timestamp.is_some()
                    && !self.finalizers.iter().any(|held| held == "orphan")
            }
        }
    }
}

// === impl Children ===

impl Children {
    /// Permits a write that carries all it depends on: a create, a patch with uid and version that lowers nothing, or
    /// a change of finalizers.
    pub(in crate::controller) fn unchecked<'a>(&'a self, owner: &'a Owner) -> GuardedWrite<'a> {
        GuardedWrite { children: self, owner, checked: None }
    }

    /// Permits a write if a live read shows that the owner meets the precondition; returns `None` if not.
    ///
    /// # Errors
    /// [`Error`], if the owner cannot be read.
    pub(in crate::controller) async fn checked<'a>(
        &'a self,
        owner: &'a Owner,
        precondition: Precondition,
    ) -> Result<Option<GuardedWrite<'a>>, Error> {
        let write = GuardedWrite { children: self, owner, checked: Some(precondition) };
        let Ok(_reading) = owner.evidence.reading().await else { return Ok(None) };
        let known = match owner.evidence.take() {
            Some(known) => Some(known),
            None => self.live_owner(owner).await?.inspect(|live| owner.evidence.put(live.clone())),
        };
        match known {
            Some(live) if live.is_older(owner) => {
                tracing::warn!("The live object is older than the cached one; relisting its kind");
                self.owners.ask();
                Ok(None)
            }
            Some(live) if live.meets(precondition, owner) => Ok(Some(write)),
            live => {
                tracing::debug!(
                    ?precondition,
                    "Skipping the write: a live read shows that the owner has changed"
                );
                self.await_owner(owner, live.as_ref());
                Ok(None)
            }
        }
    }

    /// Reads the owner's metadata from the server; `None` if no object has its name.
    pub(in crate::controller) async fn live_owner(&self, owner: &Owner) -> Result<Option<LiveMeta>, Error> {
        let (namespace, name) = (owner.name.namespace(), owner.name.name());
        let live = self.client.get_metadata::<PartialObject<LiveMeta>>(&owner.resource, namespace, name);
        Ok(live.await?.map(|live| live.metadata))
    }

    /// Holds the key until the cache shows this state of its owner, or the owner's deletion.
    pub(in crate::controller) fn await_owner(&self, owner: &Owner, live: Option<&LiveMeta>) {
        match live {
            Some(live) => {
                self.consistency.awaits(&owner.name, &owner.resource, (&owner.uid, &live.resource_version))
            }
            None => self.consistency.awaits_end(&owner.name, &owner.resource, &owner.uid),
        }
    }
}

// === impl GuardedWrite ===

impl GuardedWrite<'_> {
    /// Creates a child.
    pub(in crate::controller) async fn create<O: TypedObject>(self, body: &Value) -> Result<O, Error> {
        let namespace = self.owner.name.namespace();
        let resource = O::resource();
        let created = self.children.client.create::<O>(&resource, namespace, body).await?;
        tracing::info!(kind = %resource.kind, child = %created.object_name(), "Created child");
        self.children.consistency.wrote(&self.owner.name, &created);
        Ok(created)
    }

    /// Patches a child; the patch carries the uid and version that it was computed from.
    pub(in crate::controller) async fn patch<O: TypedObject>(
        self,
        name: &str,
        Patch { body, is_strategic, .. }: &Patch,
    ) -> Result<O, Error> {
        let (client, namespace) = (&self.children.client, self.owner.name.namespace());
        let resource = O::resource();
        let patched: O = match is_strategic {
            true => client.patch_strategic(&resource, namespace, name, body).await?,
            false => client.patch_merge(&resource, namespace, name, body).await?,
        };
        tracing::info!(kind = %resource.kind, child = %patched.object_name(), "Updated child");
        self.children.consistency.wrote(&self.owner.name, &patched);
        Ok(patched)
    }

    /// Deletes the child of this uid and version.
    pub(in crate::controller) async fn delete(
        self,
        resource: &ApiResource,
        name: &str,
        (uid, version): (&str, &str),
    ) -> Result<(), Error> {
        assert!(self.checked.is_some(), "a delete needs a live read of the owner");
        let Children { client, consistency, .. } = self.children;
        let namespace = self.owner.name.namespace();
        client.delete(resource, namespace, name, uid, version).await?;
        let child = ObjectName::new(namespace, name);
        tracing::info!(kind = %resource.kind, %child, "Deleted child");
        consistency.deleted(&self.owner.name, resource, child, uid);
        Ok(())
    }

    /// Sets the finalizers of the owner at this version, and returns the new version.
    pub(in crate::controller) async fn set_finalizers(
        self,
        version: &str,
        finalizers: &[String],
    ) -> Result<String, Error> {
        let Owner { resource, name, uid, .. } = self.owner;
        let Children { client, consistency, .. } = self.children;
        let object = (name.namespace(), name.name());
        let written: PartialObject =
            client.set_finalizers(resource, object, (uid, version), finalizers).await?;
        self.owner.wrote(consistency, &written.metadata.resource_version);
        Ok(written.metadata.resource_version.into())
    }
}

#[cfg(test)]
#[cfg(feature = "sim")]
mod tests;
