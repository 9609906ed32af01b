//! The two API servers in front of the store, and the requests pending on a frozen server, a suspended client
//! or a fault.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;

use super::core::{Core, Task};
use super::kinds::Resource;
use super::reply::Reply;
use super::request::Request;
use super::store::Collection;
use super::transport::ConnectionError;

/// A pending request.
#[derive(Debug)]
pub(super) struct Held {
    pub(super) ticket: u64,
    pub(super) server: usize,
    pub(super) request: Request,
    pub(super) reply: oneshot::Sender<Reply>,
    pub(super) waits: Waits,
}

/// The event that a request waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Waits {
    /// Nothing: the request is new, and no fault has been applied.
    No,
    /// Its suspended client, which has not sent it yet.
    Sender,
    /// A frozen server, which has accepted it.
    Thaw,
    /// The end of a fault's delay; it is executed even if its client is gone.
    Time,
    /// The release from a fault that holds it; it is executed even if its client is gone.
    Release,
}

/// The state of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Availability {
    Up,
    Frozen,
    Down,
}

/// One of the API servers in front of the store.
#[derive(Debug)]
pub(super) struct Server {
    pub(super) state: Availability,
    /// Resources whose cache is frozen, with the version and the objects at that version.
    pub(super) frozen: BTreeMap<Resource, (u64, Arc<Collection>)>,
    /// The delay of its caches, and the version they have reached.
    pub(super) lag: Option<(Duration, u64)>,
    /// The version at which its watch cache began: no watch can resume from an older one.
    pub(super) began: u64,
    /// Whether it has the feature of shard selectors.
    pub(super) is_sharding: bool,
}

impl Core {
    pub(super) fn resume(&mut self, mut is_due: impl FnMut(&Held) -> bool) {
        let (due, rest): (VecDeque<Held>, VecDeque<Held>) =
            std::mem::take(&mut self.held).into_iter().partition(|held| is_due(held));
        self.held = rest;
        for held in due {
            self.consider(held);
        }
    }

    /// Reconsiders requests pending on a server or a client.
    pub(super) fn consider_waiting(&mut self) {
        for held in std::mem::take(&mut self.waiting) {
            self.consider(held);
        }
    }

    /// Executes the requests that a fault holds.
    pub(super) fn release(&mut self) {
        self.resume(|held| held.waits == Waits::Release);
    }

    pub(super) fn held(&self) -> usize {
        self.held.iter().filter(|held| held.waits == Waits::Release).count()
    }

    pub(super) fn set_state(&mut self, server: usize, state: Availability) {
        self.servers[server].state = state;
        match state {
            Availability::Down => {
                // Connections are reset; a client with a full buffer sees only the end of the stream.
                self.watchers.cut(|watcher| {
                    let is_cut = watcher.server == server;
                    if is_cut {
                        drop(watcher.sender.try_send(Err(ConnectionError::Reset)));
                    }
                    is_cut
                });
                self.agenda.retain(|_, task| match task {
                    Task::Trickle(rest) if rest.server == server => {
                        rest.reset();
                        false
                    }
                    _ => true,
                });
                // Requests accepted but not answered are lost.
                self.waiting.retain(|held| held.server != server || held.waits == Waits::Sender);
            }
            Availability::Up => {
                self.consider_waiting();
                self.deliver_all();
                self.watchers.cut(|watcher| watcher.server == server && watcher.is_over);
            }
            Availability::Frozen => {}
        }
    }

    /// Suspends a client as SIGSTOP does, or resumes it: its requests and its watches wait meanwhile.
    pub(super) fn suspend(&mut self, user: &str, is_suspended: bool) {
        if is_suspended {
            self.suspended.insert(user.to_owned());
        } else {
            self.suspended.remove(user);
            // Requests that it abandoned meanwhile were never sent.
            self.waiting.retain(|held| {
                held.request.user != user || held.waits != Waits::Sender || !held.reply.is_closed()
            });
            self.consider_waiting();
            self.deliver_all();
        }
    }

    pub(super) fn is_suspended(&self, user: &str) -> bool {
        self.suspended.contains(user)
    }

    pub(super) fn is_up(&self, server: usize) -> bool {
        self.servers[server].state == Availability::Up
    }

    /// Freezes a server's cache of a resource, or lets it catch up.
    pub(super) fn freeze_cache(&mut self, server: usize, resource: &Resource, is_frozen: bool) {
        if is_frozen {
            let seen = self.seen(server, resource);
            let collection = Arc::new(self.store.collection_at(resource, seen).unwrap_or_default());
            self.servers[server].frozen.entry(resource.clone()).or_insert((seen, collection));
        } else {
            self.servers[server].frozen.remove(resource);
            self.deliver(resource);
        }
    }

    /// Freezes a server's cache of a resource at a past version; returns false if that is forgotten or not reached.
    pub(super) fn freeze_cache_at(&mut self, server: usize, resource: &Resource, version: u64) -> bool {
        let is_past = version <= self.store.version();
        let Some(collection) = self.store.collection_at(resource, version).filter(|_| is_past) else {
            return false;
        };
        self.servers[server].frozen.insert(resource.clone(), (version, Arc::new(collection)));
        true
    }

    /// Delays a server's caches of all resources by `lag`; zero ends the delay.
    pub(super) fn set_lag(&mut self, server: usize, lag: Duration) {
        let version = self.store.version();
        let before = self.servers[server].lag.map_or(version, |(_, seen)| seen);
        self.servers[server].lag = (!lag.is_zero()).then_some((lag, before));
        self.deliver_all();
    }

    /// Returns the version that a server's cache of a resource has reached.
    pub(super) fn seen(&self, server: usize, resource: &Resource) -> u64 {
        let server = &self.servers[server];
        let late = server.lag.map_or(self.store.version(), |(_, seen)| seen);
        server.frozen.get(resource).map_or(late, |(version, _)| late.min(*version))
    }

    /// Returns a server's cache of a resource; `None` if its version is forgotten.
    pub(super) fn cached(&self, server: usize, resource: &Resource) -> Option<Collection> {
        let seen = self.seen(server, resource);
        match self.servers[server].frozen.get(resource) {
            Some((version, collection)) if *version == seen => Some(Collection::clone(collection)),
            _ => self.store.collection_at(resource, seen),
        }
    }

    /// Returns the oldest version from which a watch on a server can resume.
    pub(super) fn oldest(&self, server: usize) -> u64 {
        self.store.oldest().max(self.servers[server].began)
    }

    /// Drops the history of a server's watch cache, as a restart does.
    pub(super) fn forget_history(&mut self, server: usize) {
        self.servers[server].began = self.store.version();
    }

    /// Restores the store of an earlier version, as from a backup; later versions are reused.
    pub(super) fn roll_back(&mut self, version: u64) -> bool {
        if !self.store.roll_back(version) {
            return false;
        }
        self.watchers.cut(|_| true);
        // The caches start again from the restored objects.
        for server in &mut self.servers {
            server.began = server.began.min(version);
            server.frozen.clear();
            if let Some((_, seen)) = &mut server.lag {
                *seen = version;
            }
        }
        self.agenda.retain(|_, task| !matches!(task, Task::Seen(..)));
        self.reindex();
        true
    }
}
