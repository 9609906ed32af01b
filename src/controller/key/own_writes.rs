//! Read your own writes: holds a key until the caches have seen the writes of its last sync.
//!
//! Mirrors kubernetes `pkg/controller/util/consistency` (`ConsistencyStore`, KEP-5647).
//! Flow: sync handler -> API server -> **own writes** -> worker, before the next sync of the key
//! Chapter 8 of `docs/book` builds this from nothing.
//!
//! # How it works
//! Each write is recorded with the resource, the uid and the resource version in the server's response, in order.
//! Before the key is synced again, the [`Stores`] are asked for them. The response to a delete carries no version: the
//! delete is seen when the store no longer holds the uid, or holds it as deleting.
//!
//! # Guarantees
//! - A key waits for every kind it wrote: new and changed children, and its own status.
//!   (test: `a_key_waits_for_its_writes`, `key_waits_for_every_kind_it_wrote`, `every_write_is_awaited_in_the_cache`, `key_waits_for_its_own_status_write`)
//! - A delete is seen when the object is gone or deleting, an awaited end only when the object is gone.
//!   (test: `delete_is_seen_once_object_is_deleting`, `awaited_end_needs_the_object_to_be_gone`)
//! - A write that others superseded or deleted before the cache saw it does not block the key.
//!   (test: `superseded_write_does_not_block_the_key`)
//! - After 30 s the key is synced with live reads, and the unseen writes are logged, ten at most.
//!   (test: `guard_fails_open_after_thirty_seconds`, `warning_names_unseen_writes_by_uid_and_version`, `warning_names_at_most_ten_writes`)
//! - Then the stores that lack them list again, each at most once in 5 min: an event may be lost.
//!   (test: `stores_that_miss_a_write_list_again`)
//! - N writes, shown by N events, cost 2 N look-ups in the caches. (test: `seen_writes_are_not_checked_again`)
//!
//! # Differences from client-go
//! Deletes are recorded, too. The records of an owner are dropped when the caches have caught up, not when the owner is
//! deleted. The event of its own write enqueues a waiting key; the retry after [`RETRY`] covers events that never come.

use std::cmp::Ordering;
use std::collections::VecDeque;
use std::time::Duration;

use tokio::time::Instant;

pub(crate) use super::stores::Write;
use super::stores::{Awaited, Presence, Stores, Until};
use crate::api::ApiResource;
use crate::cache::{ObjectName, TypedObject, compare_versions};

/// How soon a waiting key is checked again if no event enqueues it.
pub(crate) const RETRY: Duration = Duration::from_secs(1);
/// How long a key waits at most.
const PATIENCE: Duration = Duration::from_secs(30);
/// How many writes the warning names at most.
const UNSEEN_MAX: usize = 10;

/// Whether a key may be synced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::controller) enum Readiness {
    /// The caches have seen all writes of the key.
    Ready,
    /// The caches lag the key's writes.
    Waits,
    /// The caches have lagged for too long: the key is synced anyway, without trusting them.
    FailedOpen,
}

/// The writes of one key that the caches may not have seen.
#[derive(Debug, Default)]
pub(in crate::controller) struct OwnWrites {
    /// Oldest first.
    awaited: VecDeque<Awaited>,
    /// When the last one was recorded.
    since: Option<Instant>,
    /// Whether the warning has been logged.
    is_reported: bool,
    /// The writes of the current sync.
    of_sync: Vec<Write>,
}

// === impl OwnWrites ===

impl OwnWrites {
    /// Records a write by the current sync; `object` is the server's response.
    pub(in crate::controller) fn wrote<O: TypedObject>(&mut self, object: &O) {
        let state = (object.uid(), object.resource_version());
        self.wrote_state(&ApiResource::of::<O>(), object.object_name(), state);
    }

    /// Records a write by the current sync of which only uid and version are known.
    pub(in crate::controller) fn wrote_state(
        &mut self,
        resource: &ApiResource,
        name: ObjectName,
        (uid, version): (&str, &str),
    ) {
        let write = Write::of(resource, name, uid);
        self.of_sync.push(write.clone());
        self.until_version(resource, write, version);
        self.waits_anew();
    }

    /// Records that the current sync deleted the object with this uid.
    pub(in crate::controller) fn deleted(&mut self, resource: &ApiResource, name: ObjectName, uid: &str) {
        let write = Write::of(resource, name, uid);
        self.of_sync.push(write.clone());
        self.await_presence(resource, write, Presence::Deleting);
        self.waits_anew();
    }

    /// Makes the key wait for a version of an object that a live read has shown.
    pub(in crate::controller) fn awaits(
        &mut self,
        resource: &ApiResource,
        name: &ObjectName,
        (uid, version): (&str, &str),
    ) {
        self.until_version(resource, Write::of(resource, name.clone(), uid), version);
        self.since.get_or_insert_with(Instant::now);
    }

    /// Makes the key wait until the cache shows that an object is gone, after a live read or a response has shown it.
    pub(in crate::controller) fn awaits_end(&mut self, resource: &ApiResource, name: &ObjectName, uid: &str) {
        let awaited =
            |known: &Awaited| known.until == Until::Presence(Presence::Gone) && known.write.uid == uid;
        if !self.awaited.iter().any(awaited) {
            self.await_presence(resource, Write::of(resource, name.clone(), uid), Presence::Gone);
        }
        self.since.get_or_insert_with(Instant::now);
    }

    /// Of one object, only the newest version is kept.
    fn until_version(&mut self, resource: &ApiResource, write: Write, version: &str) {
        let of_object = |known: &&mut Awaited| known.write == write && known.resource == *resource;
        for known in self.awaited.iter_mut().rev().filter(of_object) {
            if let Until::Version(newest) = &mut known.until {
                if compare_versions(version, newest) != Some(Ordering::Less) {
                    version.clone_into(newest);
                }
                return;
            }
        }
        let (resource, until) = (resource.clone(), Until::Version(version.to_owned()));
        self.awaited.push_back(Awaited { resource, write, until });
    }

    fn await_presence(&mut self, resource: &ApiResource, write: Write, presence: Presence) {
        let (resource, until) = (resource.clone(), Until::Presence(presence));
        self.awaited.push_back(Awaited { resource, write, until });
    }

    fn waits_anew(&mut self) {
        (self.since, self.is_reported) = (Some(Instant::now()), false);
    }

    /// Takes the writes of the current sync.
    pub(in crate::controller) fn end_sync(&mut self) -> Vec<Write> {
        std::mem::take(&mut self.of_sync)
    }

    /// Returns whether the key may be synced; forgets the writes that the caches have seen.
    pub(in crate::controller) fn readiness(&mut self, stores: &Stores) -> Readiness {
        self.forget_seen(stores);
        let Some(since) = self.since.filter(|_| !self.awaited.is_empty()) else { return Readiness::Ready };
        if since.elapsed() < PATIENCE {
            return Readiness::Waits;
        }
        if !std::mem::replace(&mut self.is_reported, true) {
            self.awaited.retain(|awaited| !stores.show(awaited));
            self.awaited.iter().for_each(|missed| stores.relist(missed));
            tracing::warn!(
                unseen = self.describe(),
                "The caches have not observed this key's own writes within 30 s; continuing with live reads"
            );
        }
        Readiness::FailedOpen
    }

    /// Returns the resource of the oldest write that the caches may not have seen.
    pub(in crate::controller) fn oldest_unseen(&self) -> Option<&ApiResource> {
        self.awaited.front().map(|awaited| &awaited.resource)
    }

    /// Forgets the writes that the caches have seen, up to the first unseen one: the event of each write enqueues the
    /// key, and checking all of them every time would be quadratic.
    pub(super) fn forget_seen(&mut self, stores: &Stores) {
        while self.awaited.front().is_some_and(|awaited| stores.show(awaited)) {
            self.awaited.pop_front();
        }
        if self.awaited.is_empty() {
            *self = Self { of_sync: std::mem::take(&mut self.of_sync), ..Self::default() };
        }
    }

    /// Drops the writes of a key whose object is gone, on the server and in the cache: after a restore of the store, the
    /// caches may not reach their versions, and nothing would look at the key again.
    pub(in crate::controller) fn forget(&mut self) {
        self.awaited.clear();
    }

    pub(super) fn is_empty(&self) -> bool {
        self.awaited.is_empty()
    }

    /// Describes the unseen writes: `deployments web uid 7c0a at version 12, pods web-0 uid 9d1e deleted`.
    fn describe(&self) -> String {
        let all = self.awaited.iter().map(|Awaited { resource, write, until }| {
            let object = format!("{} {} uid {}", resource.plural, write.name.name(), write.uid);
            match until {
                Until::Version(version) => format!("{object} at version {version}"),
                Until::Presence(_) => format!("{object} deleted"),
            }
        });
        let more = self.awaited.len().checked_sub(UNSEEN_MAX).filter(|more| *more > 0);
        let more = more.map(|more| format!("{more} more"));
        all.take(UNSEEN_MAX).chain(more).collect::<Vec<_>>().join(", ")
    }
}

#[cfg(test)]
mod tests;
