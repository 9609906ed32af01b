//! The two API servers in front of the store, and the requests that wait: for a server or a sender that is
//! frozen, for time, for their release.

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

/// A request that waits: for time, for its release, for a frozen server or sender.
#[derive(Debug)]
pub(super) struct Held {
    pub(super) ticket: u64,
    pub(super) server: usize,
    pub(super) request: Request,
    pub(super) reply: oneshot::Sender<Reply>,
    pub(super) waits: Waits,
}

/// What a request waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Waits {
    /// Nothing yet: faults have not had their say.
    No,
    /// A sender that is suspended: it has not sent it yet.
    Sender,
    /// A server that is frozen: it has taken it.
    Thaw,
    /// A fault that delays it; it is under way, whatever becomes of its sender.
    Time,
    /// A fault that holds it; likewise.
    Release,
}

/// Whether a server answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Up,
    Frozen,
    Down,
}

/// One of the API servers in front of the store.
#[derive(Debug)]
pub(super) struct Server {
    pub(super) state: State,
    /// Resources of which its cache sees nothing new: the version, and what there was.
    pub(super) frozen: BTreeMap<Resource, (u64, Arc<Collection>)>,
    /// How late its cache is, and the version that it has seen.
    pub(super) lag: Option<(Duration, u64)>,
    /// Its watch cache began with this version: older ones cannot be followed here.
    pub(super) began: u64,
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

    /// Looks again at what waits for a server or a sender.
    pub(super) fn consider_waiting(&mut self) {
        for held in std::mem::take(&mut self.waiting) {
            self.consider(held);
        }
    }

    /// Carries out the requests that a fault holds.
    pub(super) fn release(&mut self) {
        self.resume(|held| held.waits == Waits::Release);
    }

    pub(super) fn held(&self) -> usize {
        self.held.iter().filter(|held| held.waits == Waits::Release).count()
    }

    pub(super) fn set_state(&mut self, server: usize, state: State) {
        self.servers[server].state = state;
        match state {
            State::Down => {
                // Connections break; whoever has not read for long sees no more than an end.
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
                // What it had taken and not answered is lost with it.
                self.waiting.retain(|held| held.server != server || held.waits == Waits::Sender);
            }
            State::Up => {
                self.consider_waiting();
                self.deliver_all();
                self.watchers.cut(|watcher| watcher.server == server && watcher.is_over);
            }
            State::Frozen => {}
        }
    }

    /// Stops a user's process, as SIGSTOP does: what it sends waits, what it watches waits too.
    pub(super) fn suspend(&mut self, user: &str, is_suspended: bool) {
        if is_suspended {
            self.suspended.insert(user.to_owned());
        } else {
            self.suspended.remove(user);
            // What it has given up meanwhile was never sent.
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
        self.servers[server].state == State::Up
    }

    /// Stops what a server's cache sees of a resource, or lets it catch up.
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

    /// Sets what a server's cache sees of a resource back to a version; whether that is not forgotten.
    pub(super) fn freeze_cache_at(&mut self, server: usize, resource: &Resource, version: u64) -> bool {
        let is_past = version <= self.store.version();
        let Some(collection) = self.store.collection_at(resource, version).filter(|_| is_past) else {
            return false;
        };
        self.servers[server].frozen.insert(resource.clone(), (version, Arc::new(collection)));
        true
    }

    /// Makes a server's cache late by so much, for all resources; zero ends it.
    pub(super) fn set_lag(&mut self, server: usize, lag: Duration) {
        let version = self.store.version();
        let before = self.servers[server].lag.map_or(version, |(_, seen)| seen);
        self.servers[server].lag = (!lag.is_zero()).then_some((lag, before));
        self.deliver_all();
    }

    /// The version up to which a server's cache has seen a resource.
    pub(super) fn seen(&self, server: usize, resource: &Resource) -> u64 {
        let server = &self.servers[server];
        let late = server.lag.map_or(self.store.version(), |(_, seen)| seen);
        server.frozen.get(resource).map_or(late, |(version, _)| late.min(*version))
    }

    /// What a server's cache holds of a resource; `None` when that is forgotten.
    pub(super) fn cached(&self, server: usize, resource: &Resource) -> Option<Collection> {
        let seen = self.seen(server, resource);
        match self.servers[server].frozen.get(resource) {
            Some((version, collection)) if *version == seen => Some(Collection::clone(collection)),
            _ => self.store.collection_at(resource, seen),
        }
    }

    /// The oldest version from which a server can follow changes.
    pub(super) fn oldest(&self, server: usize) -> u64 {
        self.store.oldest().max(self.servers[server].began)
    }

    /// A server that starts has no history.
    pub(super) fn forget_history(&mut self, server: usize) {
        self.servers[server].began = self.store.version();
    }

    /// Brings back the store of an earlier version, as from a backup: versions are given anew.
    pub(super) fn roll_back(&mut self, version: u64) -> bool {
        if !self.store.roll_back(version) {
            return false;
        }
        self.watchers.cut(|_| true);
        // The caches begin anew with what is there.
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
