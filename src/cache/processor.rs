//! Fans out notifications to all handlers, in order; a slow handler does not delay the others.
//!
//! Mirrors client-go `tools/cache/shared_informer.go` (`sharedProcessor`, `processorListener`).
//! Flow: API server -> reflector -> fifo -> pump -> **processor** -> handlers -> workqueue
//!
//! # How it works
//! Each handler has a buffer and a task that calls it, one notification at a time. A marker follows the
//! adds of the initial list through each buffer: a registration is synced when its own handler has
//! returned from all of these adds.
//!
//! # Guarantees
//! - A handler receives its notifications in order, one at a time. (test: `slow_handler_does_not_delay_others`)
//! - A slow handler does not delay the others. (test: `slow_handler_does_not_delay_others`)
//! - A registration is synced only after its handler has returned from every initial add. (test: `registration_syncs_after_its_handler_returns`)
//! - A removed handler is not called again once its current call returns; its buffer is dropped.
//!   (test: `removed_handler_is_not_called_again`)
//! - Each handler resyncs in its own period. (test: `each_handler_resyncs_in_its_own_period`)
//! - Resyncs that take longer than their periods do not starve events. (test: `long_resync_leaves_time_for_events`,
//!   `long_resyncs_of_handlers_out_of_phase_leave_time_for_events`)
//!
//! # Differences from client-go
//! A resync period is each handler's own: none raises or lowers that of another.
//!
//! # Locks and tasks
//! The informer locks the processor with its *delivery lock* (client-go's `blockDeltas`) to distribute
//! notifications and to add or remove handlers. No handler runs under the lock. Buffers are unbounded,
//! as in client-go: a bound would let one handler stop the store. A handler only queues keys, so its
//! buffer stays short; [`Registration::pending`] returns the length.

pub mod handlers;
pub(crate) mod listener;
pub(super) mod pump;
pub(super) mod resync;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use self::handlers::{EventHandler, Notification};
use self::listener::{Counts, Listener};
use self::resync::ResyncPeriod;
use super::health::HandlerState;
use super::object::Object;
use super::object::cached::Cached;
use super::synctrack::{self, Synced};

/// How a handler is called.
///
/// Mirrors `HandlerOptions`.
#[derive(Clone, Debug, Default)]
pub struct HandlerOptions {
    /// The name in log and metrics; the handler's type, without modules, if there is none.
    pub name: Option<String>,
    /// How often the handler is notified of every object again.
    pub resync: HandlerResync,
}

/// How often a handler is notified of every object again, without a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HandlerResync {
    /// As its informer is configured.
    #[default]
    OfInformer,
    /// Never.
    Never,
    /// Once in each period.
    Every(ResyncPeriod),
}

/// The registration of a handler with an informer.
#[derive(Clone, Debug)]
pub struct Registration {
    synced: Synced,
    removed: CancellationToken,
    counts: Arc<Counts>,
    /// Whether the handler's task runs.
    running: watch::Receiver<bool>,
}

impl Registration {
    /// Returns a handle that is synced once this handler has returned from every initial add. Workers
    /// that depend on the keys queued by their handlers wait for this handle, not for the informer's.
    #[must_use]
    pub fn synced(&self) -> Synced {
        self.synced.clone()
    }

    /// Returns the number of notifications that wait for this handler.
    #[must_use]
    pub fn pending(&self) -> usize {
        self.counts.pending.load(Ordering::Relaxed)
    }

    pub(crate) fn state(&self) -> HandlerState {
        let Counts { name, slow, panics, .. } = &*self.counts;
        HandlerState {
            name: name.clone(),
            pending: self.pending(),
            slow: slow.load(Ordering::Relaxed),
            panics: panics.load(Ordering::Relaxed),
        }
    }

    /// Waits until the handler's task has ended, or returns at once if it does not run.
    pub(crate) async fn ended(&self) {
        // An error means that the task has ended.
        self.running.clone().wait_for(|running| !running).await.ok();
    }

    /// Whether both are the registration of the same handler.
    pub(crate) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.counts, &other.counts)
    }
}

struct Sender<K: Object> {
    notifications: mpsc::UnboundedSender<Notification<K>>,
    counts: Arc<Counts>,
    resync: Option<Resync>,
}

struct Resync {
    period: Duration,
    next: Instant,
    /// Whether the resync in progress is for this handler.
    is_due: bool,
}

/// All handlers of one informer; see the module.
pub(crate) struct Processor<K: Object> {
    senders: Vec<Sender<K>>,
    upstream_synced: bool,
    /// Whether the informer has ended and runs no more listeners.
    closed: bool,
}

// === impl Processor ===

impl<K: Object> Processor<K> {
    pub(crate) fn new() -> Self {
        Self { senders: Vec::new(), upstream_synced: false, closed: false }
    }

    /// Adds a handler, which is first notified of the `stored` objects. Returns `None` if the informer
    /// has ended. The caller runs the listener.
    pub(crate) fn add(
        &mut self,
        kind: &str,
        name: String,
        resync: Option<ResyncPeriod>,
        handler: Box<dyn EventHandler<K>>,
        stored: Vec<Cached<K>>,
    ) -> Option<(Registration, Listener<K>)> {
        if self.closed {
            return None;
        }
        let (sender, receiver) = mpsc::unbounded_channel();
        let (setter, synced) = synctrack::pair(kind);
        let (removed, counts) =
            (CancellationToken::new(), Arc::new(Counts { kind: kind.to_owned(), name, ..Counts::default() }));
        let resync = resync.map(ResyncPeriod::get);
        let resync = resync.map(|period| Resync { period, next: Instant::now() + period, is_due: false });
        let sender = Sender { notifications: sender, counts: counts.clone(), resync };
        for object in stored {
            sender.send(Notification::Add { object, is_in_initial_list: true });
        }
        if self.upstream_synced {
            sender.send(Notification::UpstreamSynced);
        }
        self.senders.push(sender);
        let (running, is_running) = watch::channel(false);
        let registration =
            Registration { synced, removed: removed.clone(), counts: counts.clone(), running: is_running };
        let complained = None;
        let listener = Listener {
            handler,
            notifications: receiver,
            setter,
            removed,
            counts,
            running,
            complained,
            again: Vec::new(),
        };
        Some((registration, listener))
    }

    /// Removes a handler; ignores the registration of another informer.
    pub(crate) fn remove(&mut self, registration: &Registration) {
        let at = self.senders.iter().position(|sender| Arc::ptr_eq(&sender.counts, &registration.counts));
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

    /// Returns when the next resync is due.
    pub(crate) fn next_resync(&self) -> Option<Instant> {
        self.senders.iter().filter_map(|sender| Some(sender.resync.as_ref()?.next)).min()
    }

    /// Begins a resync of the handlers for which it is due; `false` if there are none.
    pub(crate) fn begin_resync(&mut self) -> bool {
        let now = Instant::now();
        let resyncs = self.senders.iter_mut().filter_map(|sender| sender.resync.as_mut());
        for resync in resyncs.filter(|resync| resync.next <= now) {
            resync.is_due = true;
            resync.next = now + resync.period;
        }
        self.senders.iter().any(Sender::is_resyncing)
    }

    /// Notifies the handlers of the resync in progress.
    pub(crate) fn resync(&self, notification: &Notification<K>) {
        for sender in self.senders.iter().filter(|sender| sender.is_resyncing()) {
            sender.send(notification.clone());
        }
    }

    /// Ends the resync in progress. No other is due at once, however long this one took: events come between. Handlers
    /// whose time came meanwhile wait for the shortest period, and then share a resync.
    pub(crate) fn end_resync(&mut self) {
        let now = Instant::now();
        let resyncs = || self.senders.iter().filter_map(|sender| sender.resync.as_ref());
        let Some(pause) = resyncs().map(|resync| resync.period).min() else { return };
        for resync in self.senders.iter_mut().filter_map(|sender| sender.resync.as_mut()) {
            let pause = if resync.is_due { resync.period } else { pause };
            resync.is_due = false;
            if resync.next <= now {
                resync.next = now + pause;
            }
        }
    }

    /// Marks the initial list as distributed.
    pub(crate) fn upstream_synced(&mut self) {
        if !self.upstream_synced {
            self.upstream_synced = true;
            self.distribute(&Notification::UpstreamSynced);
        }
    }

    /// Ends all listeners once they have delivered their buffers.
    pub(crate) fn close(&mut self) {
        self.closed = true;
        self.senders.clear();
    }
}

impl<K: Object> Sender<K> {
    /// Buffers a notification; drops it if the listener has ended.
    fn send(&self, notification: Notification<K>) {
        self.counts.pending.fetch_add(1, Ordering::Relaxed);
        if self.notifications.send(notification).is_err() {
            self.counts.pending.store(0, Ordering::Relaxed);
        }
    }

    fn is_resyncing(&self) -> bool {
        self.resync.as_ref().is_some_and(|resync| resync.is_due)
    }
}

impl<K: Object> fmt::Debug for Processor<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Processor").field("handlers", &self.senders.len()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::ConfigMap;

    struct Deaf;

    impl EventHandler<ConfigMap> for Deaf {}

    /// Each resync takes so long that another handler's is due when it ends.
    #[tokio::test(start_paused = true)]
    async fn long_resyncs_of_handlers_out_of_phase_leave_time_for_events() {
        let mut processor = Processor::<ConfigMap>::new();
        let mut add = |factor: u32| {
            let period = ResyncPeriod::new(factor * ResyncPeriod::MIN).ok();
            processor.add("ConfigMap", factor.to_string(), period, Box::new(Deaf), Vec::new())
        };
        let _first = add(1);
        tokio::time::advance(ResyncPeriod::MIN / 2).await;
        let _others = [add(1), add(10)];
        let mut resynced = [0; 3];
        for _ in 0..10 {
            tokio::time::advance(processor.next_resync().unwrap() - Instant::now()).await;
            assert!(processor.begin_resync());
            for (count, sender) in resynced.iter_mut().zip(&processor.senders) {
                *count += u32::from(sender.is_resyncing());
            }
            tokio::time::advance(5 * ResyncPeriod::MIN).await;
            processor.end_resync();
            assert!(processor.next_resync().unwrap() - Instant::now() >= ResyncPeriod::MIN);
        }
        assert_eq!(resynced, [10, 9, 4], "none is left out");
    }

    #[tokio::test(start_paused = true)]
    async fn long_resync_leaves_time_for_events() {
        let mut processor = Processor::<ConfigMap>::new();
        let period = ResyncPeriod::new(ResyncPeriod::MIN).ok();
        let _added = processor.add("ConfigMap", "handler".to_owned(), period, Box::new(Deaf), Vec::new());
        tokio::time::advance(ResyncPeriod::MIN).await;
        for (takes, next) in [(300, 700), (1_000, 1_000), (5_000, 1_000)]
            .map(|(a, b)| (Duration::from_millis(a), Duration::from_millis(b)))
        {
            assert!(processor.begin_resync());
            tokio::time::advance(takes).await;
            processor.end_resync();
            let left = processor.next_resync().unwrap() - Instant::now();
            assert_eq!(left, next, "after {takes:?}");
            tokio::time::advance(left).await;
        }
    }
}
