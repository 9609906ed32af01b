//! Finalizers, which keep an object that is being deleted until its operator has cleaned up, and other writes to the
//! object itself.
//!
//! Mirrors controller-runtime `pkg/controller/controllerutil` (`AddFinalizer`, `RemoveFinalizer`), including the write.
//! Chapter 8 of `docs/book` builds this from nothing.
//!
//! # How it works
//! One merge patch sets the whole list of finalizers. The patch carries the uid and resource version of the object that
//! the list came from, so it succeeds only on that state and needs no read before it. After a conflict the object is
//! read live, and the patch is retried once if still needed.
//!
//! # Guarantees
//! - Only the named finalizer is added or removed; others stay, in their order. (test: `foreign_finalizers_are_kept`)
//! - No finalizer is added to an owner that is being deleted, was re-created or changed, or is paused.
//!   (test: `finalizer_is_not_added_to_a_changed_owner`)
//! - An owner that is not being deleted keeps its finalizer. (test: `finalizer_is_removed_only_from_a_deleted_owner`)
//! - After the last finalizer is removed, the key waits until the cache shows the deletion.
//!   (test: `removing_last_finalizer_waits_for_the_deletion_event`)
//! - A conflict costs one read and one retry. (test: `stale_finalizer_list_is_reread_once`)

use parking_lot::Mutex;

use super::owner::Owner;
use super::trust::{LiveMeta, PartialObject, Precondition};
use crate::client::{ApiClient, Error};
use crate::controller::key::KeyState;

/// Writes the owner itself, whose spec need not decode.
#[derive(Clone, Copy)]
pub(super) struct OwnerWriter<'p, 'a> {
    pub(super) client: &'p ApiClient,
    pub(super) owner: &'p Owner,
    pub(super) state: &'p Mutex<&'a mut KeyState>,
}

impl OwnerWriter<'_, '_> {
    /// Adds a finalizer to the owner, before the first effect that needs cleanup, and returns the version written.
    /// Returns `None`, and adds nothing, if the owner has changed since the decision.
    ///
    /// # Errors
    /// [`Error`], to be retried.
    pub(super) async fn add_finalizer(self, finalizer: &str) -> Result<Option<String>, Error> {
        let owner = self.owner;
        let mut version = owner.version.clone();
        let mut finalizers = owner.finalizers.clone();
        for is_last in [false, true] {
            if finalizers.iter().any(|known| known == finalizer) {
                return Ok(Some(version));
            }
            finalizers.push(finalizer.to_owned());
            match self.send_finalizers(&version, &finalizers).await {
                Err(error) if !is_last && (error.is_conflict() || error.is_not_found()) => {}
                outcome => return outcome.map(Some),
            }
            match self.live().await? {
                Some(live) if live.meets(Precondition::AsDecidedOn, owner) => {
                    (version, finalizers) = (live.resource_version, live.finalizers);
                }
                live => {
                    self.awaits(live.as_ref());
                    break;
                }
            }
        }
        Ok(None)
    }

    /// Removes a finalizer from an owner that is being deleted, after its last effect was undone. Returns `false`, and
    /// removes nothing, if a live read shows that the owner is not being deleted.
    ///
    /// # Errors
    /// [`Error`], to be retried.
    pub(super) async fn remove_finalizer(self, finalizer: &str) -> Result<bool, Error> {
        let owner = self.owner;
        let mut version = owner.version.clone();
        let mut finalizers = owner.finalizers.clone();
        for is_last in [false, true] {
            let before = finalizers.len();
            finalizers.retain(|known| known != finalizer);
            if finalizers.len() == before {
                return Ok(true); // already removed, and another finalizer holds the object
            }
            match self.send_finalizers(&version, &finalizers).await {
                // Ours was the last finalizer, and the object is gone by now.
                Err(error) if error.is_not_found() => break,
                Err(error) if !is_last && error.is_conflict() => {}
                Err(error) => return Err(error),
                // An unchanged version means that nothing was stored: ours was the last, and the object is gone.
                Ok(written) if written == version => break,
                Ok(_) => return Ok(true),
            }
            match self.live().await? {
                Some(live) if live.uid == owner.uid => {
                    if live.deletion_timestamp.is_none() {
                        self.awaits(Some(&live));
                        return Ok(false);
                    }
                    (version, finalizers) = (live.resource_version, live.finalizers);
                }
                Some(_) | None => break,
            }
        }
        // The cache may still show the object.
        self.awaits(None);
        Ok(true)
    }

    /// Reads the owner's metadata from the server; `None` if no object has its name.
    pub(super) async fn live(self) -> Result<Option<LiveMeta>, Error> {
        let Owner { resource, name, .. } = self.owner;
        let (namespace, name) = (name.namespace(), name.name());
        let live = self.client.get_metadata::<PartialObject<LiveMeta>>(resource, namespace, name).await?;
        Ok(live.map(|live| live.metadata))
    }

    /// Holds the key until the cache shows this state of its owner, or, with `None`, the owner's deletion.
    pub(super) fn awaits(self, live: Option<&LiveMeta>) {
        let Owner { resource, name, uid, .. } = self.owner;
        let writes = &mut self.state.lock().own_writes;
        match live {
            Some(live) => writes.awaits(resource, name, (uid, &live.resource_version)),
            None => writes.awaits_end(resource, name, uid),
        }
    }

    /// Records that this sync wrote the owner itself, and that the server returned this version.
    pub(super) fn wrote(self, version: &str) {
        let Owner { resource, name, uid, .. } = self.owner;
        self.state.lock().own_writes.wrote_state(resource, name.clone(), (uid, version));
    }
}

#[cfg(test)]
#[cfg(feature = "sim")]
mod tests;
