//! How far a sync trusts the caches, whether it writes, and what a write requires of the owner.
//!
//! Mirrors kubernetes `RecheckDeletionTimestamp` (`pkg/controller/controller_ref_manager.go`), which in-tree
//! controllers call before they adopt; their deletes trust the cache.
//!
//! # How it works
//! A write that carries uid and resourceVersion succeeds only on the state it was decided from, so it needs no live
//! read of the child. The version of the *child* does not tell whether the *owner* has changed. What destroys, lowers
//! or re-creates needs a [`Checked`], which a live read of the owner's metadata gives; one read serves many writes.
//!
//! | the write requires | the live owner |
//! |---|---|
//! | [`Precondition::AsDecidedOn`] | has this uid and generation, is not being deleted, is not paused |
//! | [`Precondition::DeletingWithChildren`] | has this uid, is being deleted, does not orphan its children |
//!
//! An owner that does not meet the precondition ends the sync, and its key waits until the cache shows that state of the
//! owner.
//!
//! # Guarantees
//! - Each precondition is checked against the live owner. (test: `precondition_is_checked_against_the_live_owner`)
//! - An owner that cannot be read permits no write. (test: `unreadable_owner_permits_no_write`)
//! - One read serves 64 writes within a second of its sending, including concurrent ones.
//!   (test: `one_owner_read_serves_64_writes`, `slow_owner_read_serves_no_write`)
//! - A write that its read no longer covers when it passes the gate is not sent; the owner is read again, and the write
//!   follows on that read. (test: `rate_limit_does_not_age_the_read_of_an_owner`)
//! - A live owner that is older than the cached one permits no write, and its kind is relisted.
//!   (test: `r18_older_live_owner_relists_its_kind`)
//! - A key whose owner has changed waits for the cache. (test: `changed_owner_holds_its_key`)

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::time::Duration;

use parking_lot::Mutex;
use serde::Deserialize;
use tokio::sync::Semaphore;
use tokio::time::Instant;

use super::Pass;
use super::custom_resource::CustomResource;
use super::owner::Owner;
use crate::api::annotations;
use crate::cache::{Meta, Object, compare_versions};
use crate::client::{ApiClient, Error};

/// The number of writes that one live read of the owner serves.
const READ_SERVES: u32 = 64;
/// How long a live read of the owner is valid.
pub(in crate::controller) const READ_LASTS: Duration = Duration::from_secs(1);
/// How often a write is tried whose read of the owner expires while the write waits.
const TRIES: u32 = 3;

/// Whether a sync writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::controller) enum Mode {
    /// Children are written.
    Write,
    /// The user has paused the object: children are compared and not written.
    Observe,
}

/// What a write requires of the live owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::controller) enum Precondition {
    /// The owner is unchanged since the write was decided on.
    AsDecidedOn,
    /// The owner is being deleted, and its children with it.
    DeletingWithChildren,
}

/// Permits one write, for a while: a live read has shown that the owner meets the precondition.
#[derive(Debug)]
pub(in crate::controller) struct Checked {
    /// The write must be sent by then.
    pub(super) until: Instant,
    /// Sends the write: at once, if the owner was read for it.
    pub(super) client: ApiClient,
}

/// The last live read of the owner, which many writes share.
#[derive(Debug)]
pub(super) struct OwnerRead {
    /// Held while the owner is read, so that concurrent writes share one read.
    reading: Semaphore,
    last: Mutex<Option<LastRead>>,
}

#[derive(Debug)]
struct LastRead {
    meta: LiveMeta,
    sent_at: Instant,
    writes_left: u32,
}

/// The fields of the owner that the check needs.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(in crate::controller) struct LiveMeta {
    pub(in crate::controller) uid: String,
    pub(in crate::controller) resource_version: String,
    pub(in crate::controller) generation: i64,
    pub(in crate::controller) deletion_timestamp: Option<String>,
    pub(in crate::controller) finalizers: Vec<String>,
    pub(in crate::controller) annotations: BTreeMap<String, String>,
}

/// An object of which only the metadata is decoded.
#[derive(Deserialize)]
pub(in crate::controller) struct PartialObject<M = Meta> {
    pub(in crate::controller) metadata: M,
}

// === impl Mode ===

impl Mode {
    /// Returns the mode that an object asks for. A deletion goes on despite a pause.
    pub(super) fn of<K: Object>(object: &K) -> Self {
        let asks_for_pause = object.annotations().is_some_and(annotations::ask_for_pause);
        if asks_for_pause && !object.is_deleting() { Self::Observe } else { Self::Write }
    }
}

// === impl LiveMeta ===

impl LiveMeta {
    /// Whether the live owner is older than the cached one.
    fn is_older(&self, owner: &Owner) -> bool {
        self.uid == owner.uid
            && compare_versions(&self.resource_version, &owner.version) == Some(Ordering::Less)
    }

    pub(super) fn meets(&self, precondition: Precondition, owner: &Owner) -> bool {
        let is_deleting = self.deletion_timestamp.is_some();
        let is_met = match precondition {
            Precondition::AsDecidedOn => {
                !is_deleting
                    && self.generation == owner.generation
                    && !annotations::ask_for_pause(&self.annotations)
            }
            Precondition::DeletingWithChildren => {
                is_deleting && !self.finalizers.iter().any(|held| held == "orphan")
            }
        };
        is_met && self.uid == owner.uid
    }
}

// === impl OwnerRead ===

impl Default for OwnerRead {
    fn default() -> Self {
        Self { reading: Semaphore::new(1), last: Mutex::default() }
    }
}

impl OwnerRead {
    /// Returns the last read and when it was sent, and counts one write against it.
    fn take(&self) -> Option<(LiveMeta, Instant)> {
        let mut last = self.last.lock();
        let read = last.as_mut().filter(|read| read.sent_at.elapsed() < READ_LASTS)?;
        read.writes_left = read.writes_left.checked_sub(1)?;
        Some((read.meta.clone(), read.sent_at))
    }

    fn put(&self, meta: LiveMeta, sent_at: Instant) {
        *self.last.lock() = Some(LastRead { meta, sent_at, writes_left: READ_SERVES - 1 });
    }
}

// === impl Pass ===

impl<K: CustomResource> Pass<'_, K> {
    /// Sends a write with a [`Checked`]; returns `None`, and sends nothing, if the live owner does not meet the
    /// precondition. If the read of the owner expires while the write waits at the gate, the owner is read again.
    ///
    /// # Errors
    /// [`Error`], if the owner cannot be read, or of `send`.
    pub(super) async fn checked<T, F>(
        &self,
        precondition: Precondition,
        send: impl Fn(Checked) -> F,
    ) -> Result<Option<T>, Error>
    where
        F: Future<Output = Result<T, Error>>,
    {
        let mut tries = TRIES;
        loop {
            let Some(checked) = self.check_owner(precondition).await? else { return Ok(None) };
            tries -= 1;
            match send(checked).await {
                Err(error) if error.is_stale() && tries > 0 => {}
                sent => return sent.map(Some),
            }
        }
    }

    /// Reads the owner live, unless the last read still serves, and permits a write if it meets the precondition.
    ///
    /// # Errors
    /// [`Error`], if the owner cannot be read.
    pub(super) async fn check_owner(&self, precondition: Precondition) -> Result<Option<Checked>, Error> {
        let Ok(_reading) = self.owner_read.reading.acquire().await else { return Ok(None) };
        let (live, sent_at, client) = match self.owner_read.take() {
            Some((live, sent_at)) => (Some(live), sent_at, self.tools.client.clone()),
            None => {
                let (reads, writes) = self.tools.client.turn().await?;
                let sent_at = Instant::now();
                let live = self.writer_through(&reads).live().await?;
                (live.inspect(|live| self.owner_read.put(live.clone(), sent_at)), sent_at, writes)
            }
        };
        match live {
            Some(live) if live.is_older(&self.owner) => {
                tracing::warn!("The live object is older than the cached one; relisting its kind");
                self.tools.relist.ask();
                Ok(None)
            }
            Some(live) if live.meets(precondition, &self.owner) => {
                Ok(Some(Checked { until: sent_at + READ_LASTS, client }))
            }
            live => {
                tracing::debug!(
                    ?precondition,
                    "Skipping the write: a live read shows that the owner has changed"
                );
                self.writer().awaits(live.as_ref());
                Ok(None)
            }
        }
    }
}

#[cfg(test)]
#[cfg(feature = "sim")]
mod tests;
