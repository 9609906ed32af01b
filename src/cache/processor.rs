//! Fans each notification out to every handler, in order, without one slow handler stopping the rest.
//!
//! Mirrors client-go `tools/cache/shared_informer.go` (`sharedProcessor`, `processorListener`).
//! Flow: API server -> reflector -> fifo -> pump -> **processor** -> handlers -> workqueue
//!
//! # How it works
//! Each handler has a buffer and a task that calls it, one notification at a time. *Synced* travels
//! through the buffers as a notification of its own, behind the adds of the initial list: a
//! registration is synced when its own handler has returned from all of them.
//!
//! # Guarantees
//! - One handler's notifications come in order, one at a time. (test: `a_slow_handler_delays_no_other`)
//! - A slow handler delays no other. (test: `a_slow_handler_delays_no_other`)
//! - A registration is synced only after its handler returned from every initial add. (test: `a_registration_syncs_after_its_own_handler`)
//! - A removed handler is called no more once its present call returns; what it had buffered is dropped.
//!   (test: `a_removed_handler_hears_nothing_more`)
//!
//! # Locks and tasks
//! The processor sits behind the informer's *delivery gate* (client-go's `blockDeltas`): whoever holds
//! it may distribute or add a listener. No handler runs under it. Buffers have no bound, as in
//! client-go: a bound would let one handler stop the store. A handler only queues keys, so the buffer
//! stays short; [`Registration::pending`] is its gauge.

use std::fmt;
use std::sync::Arc;

use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::object::{Cached, Object};
use super::object_name::ObjectName;
use super::synctrack::{self, Synced, SyncedSetter};

/// Hears of changes. Each method is called in order and must be quick: find the key of whom it
/// concerns, queue it, return.
///
/// Mirrors `ResourceEventHandler`. A panic in a handler ends the informer.
pub trait EventHandler<K: Object>: Send + 'static {
    /// It is there: from the first list, for a late handler from the store, or new.
    fn on_add(&mut self, object: &Cached<K>, is_in_initial_list: bool) {
        let _ = (object, is_in_initial_list);
    }

    /// It changed; on a resync `old` and `new` are the same. A new life under the old name comes as an
    /// update too: compare the uids.
    fn on_update(&mut self, old: &Cached<K>, new: &Cached<K>) {
        let _ = (old, new);
    }

    /// It is gone.
    fn on_delete(&mut self, object: &Deleted<K>) {
        let _ = object;
    }
}

/// What is known of an object that is gone.
#[derive(Debug)]
pub enum Deleted<K: Object> {
    /// The watch saw it go: this is its last state.
    Observed(Cached<K>),
    /// A relist did not have it: this is the last state that was seen, and it may have changed since.
    ///
    /// Mirrors `DeletedFinalStateUnknown`.
    FinalStateUnknown {
        /// The last state that was seen.
        last_known: Cached<K>,
    },
}

impl<K: Object> Clone for Deleted<K> {
    fn clone(&self) -> Self {
        match self {
            Self::Observed(object) => Self::Observed(object.clone()),
            Self::FinalStateUnknown { last_known } => {
                Self::FinalStateUnknown { last_known: last_known.clone() }
            }
        }
    }
}

impl<K: Object> Clone for Notification<K> {
    fn clone(&self) -> Self {
        match self {
            Self::Add { object, is_in_initial_list } => {
                Self::Add { object: object.clone(), is_in_initial_list: *is_in_initial_list }
            }
            Self::Update { old, new } => Self::Update { old: old.clone(), new: new.clone() },
            Self::Delete(deleted) => Self::Delete(deleted.clone()),
            Self::UpstreamSynced => Self::UpstreamSynced,
        }
    }
}

impl<K: Object> Deleted<K> {
    /// The last state that was seen.
    #[must_use]
    pub fn last_known(&self) -> &Cached<K> {
        match self {
            Self::Observed(object) | Self::FinalStateUnknown { last_known: object } => object,
        }
    }

    /// Namespace and name.
    #[must_use]
    pub fn object_name(&self) -> ObjectName {
        self.last_known().object_name()
    }
}

/// One change, on its way to the handlers.
#[derive(Debug)]
pub(crate) enum Notification<K: Object> {
    Add {
        object: Cached<K>,
        is_in_initial_list: bool,
    },
    Update {
        old: Cached<K>,
        new: Cached<K>,
    },
    Delete(Deleted<K>),
    /// The initial list is complete.
    UpstreamSynced,
}

/// A handler's place in the informer.
#[derive(Clone, Debug)]
pub struct Registration {
    synced: Synced,
    removed: CancellationToken,
    pending: PendingGauge,
}

/// How many notifications wait; shared by both ends of a buffer.
type PendingGauge = Arc<std::sync::atomic::AtomicUsize>;

impl Registration {
    /// Whether this handler has returned from every add of the initial list. Workers wait for this,
    /// not for the informer, when they depend on what their handlers have queued.
    #[must_use]
    pub fn synced(&self) -> Synced {
        self.synced.clone()
    }

    /// How many notifications wait for this handler.
    #[must_use]
    pub fn pending(&self) -> usize {
        self.pending.load(std::sync::atomic::Ordering::Relaxed)
    }
}

/// The task of one handler.
pub(crate) struct Listener<K: Object> {
    handler: Box<dyn EventHandler<K>>,
    notifications: mpsc::UnboundedReceiver<Notification<K>>,
    setter: SyncedSetter,
    removed: CancellationToken,
    pending: PendingGauge,
}

struct Sender<K: Object> {
    notifications: mpsc::UnboundedSender<Notification<K>>,
    pending: PendingGauge,
}

/// All handlers of one informer; see the module.
pub(crate) struct Processor<K: Object> {
    senders: Vec<Sender<K>>,
    upstream_synced: bool,
    /// The informer has ended: nobody will run another listener.
    closed: bool,
}

// === impl Processor ===

impl<K: Object> Processor<K> {
    pub(crate) fn new() -> Self {
        Self { senders: Vec::new(), upstream_synced: false, closed: false }
    }

    /// Adds a handler that starts with these objects; `None` when the informer has ended. The caller runs
    /// the listener.
    pub(crate) fn add(
        &mut self,
        name: &str,
        handler: Box<dyn EventHandler<K>>,
        stored: Vec<Cached<K>>,
    ) -> Option<(Registration, Listener<K>)> {
        if self.closed {
            return None;
        }
        let (sender, receiver) = mpsc::unbounded_channel();
        let (setter, synced) = synctrack::pair(name);
        let (removed, pending) = (CancellationToken::new(), PendingGauge::default());
        let sender = Sender { notifications: sender, pending: pending.clone() };
        for object in stored {
            sender.send(Notification::Add { object, is_in_initial_list: true });
        }
        if self.upstream_synced {
            sender.send(Notification::UpstreamSynced);
        }
        self.senders.push(sender);
        let registration = Registration { synced, removed: removed.clone(), pending: pending.clone() };
        let listener = Listener { handler, notifications: receiver, setter, removed, pending };
        Some((registration, listener))
    }

    /// Removes a handler of this informer; that of another one is left alone.
    pub(crate) fn remove(&mut self, registration: &Registration) {
        let at = self.senders.iter().position(|sender| Arc::ptr_eq(&sender.pending, &registration.pending));
        if let Some(at) = at {
            registration.removed.cancel();
            self.senders.remove(at);
        }
    }

    pub(crate) fn distribute(&self, notification: &Notification<K>) {
        for sender in &self.senders {
            sender.send(notification.clone());
        }
    }

    /// The initial list is distributed.
    pub(crate) fn upstream_synced(&mut self) {
        if !self.upstream_synced {
            self.upstream_synced = true;
            self.distribute(&Notification::UpstreamSynced);
        }
    }

    /// Ends all listeners once they have delivered what they hold.
    pub(crate) fn close(&mut self) {
        self.closed = true;
        self.senders.clear();
    }
}

impl<K: Object> Sender<K> {
    /// A listener that is gone does not hear it.
    fn send(&self, notification: Notification<K>) {
        self.pending.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        if self.notifications.send(notification).is_err() {
            self.pending.store(0, std::sync::atomic::Ordering::Relaxed);
        }
    }
}

impl<K: Object> Listener<K> {
    /// Calls the handler until the informer ends or the handler is removed.
    pub(crate) async fn run(mut self) {
        loop {
            let notification = tokio::select! {
                biased;
                () = self.removed.cancelled() => return,
                notification = self.notifications.recv() => notification,
            };
            let Some(notification) = notification else { return };
            self.deliver(&notification);
            self.pending.fetch_sub(1, std::sync::atomic::Ordering::Relaxed);
            tokio::task::coop::consume_budget().await;
        }
    }

    fn deliver(&mut self, notification: &Notification<K>) {
        match notification {
            Notification::Add { object, is_in_initial_list } => {
                self.handler.on_add(object, *is_in_initial_list);
            }
            Notification::Update { old, new } => self.handler.on_update(old, new),
            Notification::Delete(deleted) => self.handler.on_delete(deleted),
            Notification::UpstreamSynced => self.setter.set(),
        }
    }
}

impl<K: Object> fmt::Debug for Processor<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Processor").field("handlers", &self.senders.len()).finish_non_exhaustive()
    }
}
