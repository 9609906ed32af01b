//! The one place from which children and finalizers are written, behind the check of the owner that a write needs.
//!
//! Mirrors kubernetes `RecheckDeletionTimestamp` (`pkg/controller/controller_ref_manager.go`), which in-tree controllers
//! ask before they adopt; their deletes trust the cache.
//!
//! # How it works
//! A write that carries uid and resourceVersion succeeds only on the state from which it was decided, so the version is
//! its live read. What the version of the *child* cannot tell is whether the *owner* has moved on. Before a write that
//! destroys or re-creates, [`Children::checked`] reads the owner's metadata; one read serves `EVIDENCE_WRITES` writes
//! within `EVIDENCE_AGE`. All other writes are [`Children::unchecked`].
//!
//! | the write needs | the live owner is |
//! |---|---|
//! | [`Precondition::AsDecidedOn`] | of this uid and generation, not being deleted, not paused |
//! | [`Precondition::DeletingWithChildren`] | of this uid, being deleted, and its children are not orphaned |
//!
//! An owner that does not meet the precondition ends the pass, and the guard of [`consistency`](crate::controller::run::consistency) holds
//! the key until the cache shows that state of the owner.
//!
//! # Guarantees
//! - Every row of the table. (test: `each_precondition_is_met_by_the_live_owner_alone`)
//! - An owner that cannot be read permits nothing. (test: `an_owner_that_cannot_be_read_permits_nothing`)
//! - One read serves 64 writes within a second, also of writes that are sent at once. (test: `one_read_of_the_owner_serves_64_writes`)
//! - An owner that is older than the cache has it permits nothing, and its kind is listed anew. (test: `r18_an_older_owner_relists_its_kind`)
//! - A key whose owner has moved on waits for the cache. (test: `a_moved_owner_holds_its_key`)
//! - Every write is awaited in the caches. (test: `whatever_is_written_is_waited_for`)
//! - Nothing is written elsewhere. (test: `each_write_has_one_door`)

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::time::Duration;

use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::Value;
use tokio::sync::Semaphore;
use tokio::time::Instant;

use super::apply::Children;
use super::owner::Owner;
use crate::api::{ApiResource, annotations};
use crate::cache::{Meta, Object, ObjectName, compare_versions};
use crate::client::Error;

/// How many writes one live read of the owner serves.
const EVIDENCE_WRITES: u32 = 64;
/// For how long it does.
const EVIDENCE_AGE: Duration = Duration::from_secs(1);

/// What the live owner must be for a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::controller) enum Precondition {
    /// As it was when the write was decided on.
    AsDecidedOn,
    /// Being deleted, and its children with it.
    DeletingWithChildren,
}

/// A write that may be sent.
pub(in crate::controller) struct GuardedWrite<'a> {
    children: &'a Children,
    owner: &'a Owner,
    checked: Option<Precondition>,
}

/// The last live read of an owner, for one pass.
#[derive(Debug)]
pub(in crate::controller) struct OwnerEvidence {
    /// Held while the owner is read, so that writes that are sent at once share one read.
    reading: Semaphore,
    last: Mutex<Option<Evidence>>,
}

#[derive(Debug)]
struct Evidence {
    meta: LiveMeta,
    read_at: Instant,
    writes_left: u32,
}

/// The fields of the owner that decide.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(in crate::controller) struct LiveMeta {
    pub(in crate::controller) uid: String,
    pub(in crate::controller) resource_version: String,
    pub(in crate::controller) generation: i64,
    pub(in crate::controller) deletion_timestamp: Option<String>,
    pub(in crate::controller) finalizers: Vec<String>,
    annotations: BTreeMap<String, String>,
}

/// An object of which only the metadata is read.
#[derive(Deserialize)]
pub(in crate::controller) struct PartialObject<M = Meta> {
    pub(in crate::controller) metadata: M,
}

// === impl LiveMeta ===

impl LiveMeta {
    /// Whether it is the same object as at the decision, alive and not paused.
    pub(in crate::controller) fn is_living(&self, owner: &Owner) -> bool {
        self.uid == owner.uid
            && self.deletion_timestamp.is_none()
            && !annotations::ask_for_pause(&self.annotations)
    }

    /// Whether the server's store has gone back behind the cache.
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

// === impl OwnerEvidence ===

impl Default for OwnerEvidence {
    fn default() -> Self {
        Self { reading: Semaphore::new(1), last: Mutex::default() }
    }
}

impl OwnerEvidence {
    /// The last read, for one more write.
    fn take(&self) -> Option<LiveMeta> {
        let mut last = self.last.lock();
        let evidence = last.as_mut()?;
        if evidence.read_at.elapsed() > EVIDENCE_AGE {
            return None;
        }
        evidence.writes_left = evidence.writes_left.checked_sub(1)?;
        Some(evidence.meta.clone())
    }

    fn put(&self, meta: LiveMeta) {
        let writes_left = EVIDENCE_WRITES - 1;
        *self.last.lock() = Some(Evidence { meta, read_at: Instant::now(), writes_left });
    }
}

// === impl Children ===

impl Children {
    /// A write that carries all that it depends on: a create, or a patch with uid and version that lowers nothing.
    pub(in crate::controller) fn unchecked<'a>(&'a self, owner: &'a Owner) -> GuardedWrite<'a> {
        GuardedWrite { children: self, owner, checked: None }
    }

    /// A write for an owner that a live read shows to meet the precondition; `None` when it does not.
    ///
    /// # Errors
    /// [`Error`]: an owner that cannot be read permits nothing.
    pub(in crate::controller) async fn checked<'a>(
        &'a self,
        owner: &'a Owner,
        precondition: Precondition,
    ) -> Result<Option<GuardedWrite<'a>>, Error> {
        let write = GuardedWrite { children: self, owner, checked: Some(precondition) };
        let Ok(_reading) = owner.evidence.reading.acquire().await else { return Ok(None) };
        let known = match owner.evidence.take() {
            Some(known) => Some(known),
            None => self.live_owner(owner).await?.inspect(|live| owner.evidence.put(live.clone())),
        };
        match known {
            Some(live) if live.is_older(owner) => {
                tracing::warn!(
                    "The server has an older version of this object than the cache: lists its kind anew"
                );
                self.owners.ask();
                Ok(None)
            }
            Some(live) if live.meets(precondition, owner) => Ok(Some(write)),
            live => {
                tracing::debug!(
                    ?precondition,
                    "Writes nothing: a live read shows that the owner has moved on"
                );
                self.await_owner(owner, live.as_ref());
                Ok(None)
            }
        }
    }

    /// The owner's metadata, from the server; `None` when there is no object of its name.
    pub(in crate::controller) async fn live_owner(&self, owner: &Owner) -> Result<Option<LiveMeta>, Error> {
        let (namespace, name) = (owner.name.namespace(), owner.name.name());
        let live = self.client.get_metadata::<PartialObject<LiveMeta>>(&owner.resource, namespace, name);
        Ok(live.await?.map(|live| live.metadata))
    }

    /// Has the key wait until the cache shows this state of its owner, or that it is gone.
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
    pub(in crate::controller) async fn create<O: Object>(self, body: &Value) -> Result<O, Error> {
        let namespace = self.owner.name.namespace();
        let created = self.children.client.create::<O>(&O::resource(), namespace, body).await?;
        self.children.consistency.wrote(&self.owner.name, &created);
        Ok(created)
    }

    /// Patches a child; the patch carries the uid and the version that it was made from.
    pub(in crate::controller) async fn patch<O: Object>(self, name: &str, patch: &Value) -> Result<O, Error> {
        let namespace = self.owner.name.namespace();
        let patched =
            self.children.client.patch_strategic::<O>(&O::resource(), namespace, name, patch).await?;
        self.children.consistency.wrote(&self.owner.name, &patched);
        Ok(patched)
    }

    /// Deletes a child of this uid and version.
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
        consistency.deleted(&self.owner.name, resource, ObjectName::new(namespace, name), uid);
        Ok(())
    }

    /// Sets the finalizers of the owner of this version; returns the version that was written.
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
        Ok(written.metadata.resource_version)
    }
}

#[cfg(test)]
mod tests;
