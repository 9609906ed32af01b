//! The task of one handler: calls it with what its buffer has, one notification at a time.
//!
//! Mirrors client-go `tools/cache/shared_informer.go` (`processorListener`).
//! Flow: API server -> reflector -> fifo -> pump -> processor -> **listener** -> handler -> workqueue
//!
//! # Guarantees
//! - A handler that panics is named, and stops no other. (test: `panicking_handler_stops_no_other`)
//! - What it was told when it panicked it is told again, after a while. (test: `handler_that_panicked_is_told_again`)
//! - A slow handler is named. (test: `slow_handler_is_named_in_log_and_state`)
//!
//! # Differences from client-go
//! A panic ends no process, and the registration of the handler still becomes synced. A notification that comes again
//! after a panic comes after later ones: handlers queue keys, so its order does not matter.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::handlers::{EventHandler, Notification};
use crate::cache::object::Object;
use crate::cache::synctrack::SyncedSetter;

/// A call that takes this long is slow.
const SLOW: Duration = Duration::from_millis(100);
/// How often a slow handler is named in the log.
const REMINDER: Duration = Duration::from_secs(60);

/// How long a notification waits after its handler panicked, the first time and at most; doubled each time.
const AGAIN: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(300)];
/// How many notifications wait so; more are lost.
const AGAIN_MAX: usize = 1000;

/// The counts of one handler; shared by both ends of its buffer.
#[derive(Debug, Default)]
pub(super) struct Counts {
    /// The kind, `plural.group`.
    pub(super) kind: String,
    pub(super) name: String,
    /// Number of buffered notifications.
    pub(super) pending: AtomicUsize,
    pub(super) slow: AtomicU64,
    pub(super) panics: AtomicU64,
}

/// The task of one handler.
pub(crate) struct Listener<K: Object> {
    pub(super) handler: Box<dyn EventHandler<K>>,
    pub(super) notifications: mpsc::UnboundedReceiver<Notification<K>>,
    pub(super) setter: SyncedSetter,
    pub(super) removed: CancellationToken,
    pub(super) counts: Arc<Counts>,
    pub(super) running: watch::Sender<bool>,
    /// When the handler was last called slow in the log.
    pub(super) complained: Option<Instant>,
    /// What the handler is told again after a panic.
    pub(super) again: Vec<Again<K>>,
}

/// A notification whose handler panicked.
pub(super) struct Again<K: Object> {
    notification: Notification<K>,
    at: Instant,
    delay: Duration,
}

// === impl Listener ===

impl<K: Object> Listener<K> {
    /// Calls the handler until the informer ends or the handler is removed.
    pub(crate) async fn run(mut self) {
        if self.removed.is_cancelled() {
            return;
        }
        self.running.send_replace(true);
        loop {
            let due = self.again.iter().map(|again| again.at).min();
            let notification = tokio::select! {
                biased;
                () = self.removed.cancelled() => return,
                () = until(due) => {
                    self.deliver_again();
                    continue;
                }
                notification = self.notifications.recv() => notification,
            };
            let Some(notification) = notification else { return };
            if !self.deliver(&notification) {
                self.keep(notification, AGAIN[0]);
            }
            self.counts.pending.fetch_sub(1, Ordering::Relaxed);
            tokio::task::coop::consume_budget().await;
        }
    }

    /// Keeps a notification, to deliver it again after `delay`.
    fn keep(&mut self, notification: Notification<K>, delay: Duration) {
        if self.again.len() < AGAIN_MAX {
            self.again.push(Again { notification, at: Instant::now() + delay, delay });
        }
    }

    /// Delivers what is due once more.
    fn deliver_again(&mut self) {
        let now = Instant::now();
        let (due, later) = std::mem::take(&mut self.again).into_iter().partition(|again| again.at <= now);
        self.again = later;
        let due: Vec<Again<K>> = due;
        for Again { notification, delay, .. } in due {
            if !self.deliver(&notification) {
                self.keep(notification, (2 * delay).min(AGAIN[1]));
            }
        }
    }

    /// Calls the handler, and names it if it panics or is slow. Returns whether it did not panic.
    fn deliver(&mut self, notification: &Notification<K>) -> bool {
        let started = Instant::now();
        let outcome = catch_unwind(AssertUnwindSafe(|| self.call(notification)));
        let took = started.elapsed();
        let (kind, handler) = (self.counts.kind.as_str(), self.counts.name.as_str());
        let is_done = outcome.is_ok();
        if let Err(panic) = outcome {
            self.counts.panics.fetch_add(1, Ordering::Relaxed);
            let object = notification.object_name();
            let object = object.as_ref().map(tracing::field::display);
            let panic = text_of(&*panic);
            tracing::error!(
                kind,
                handler,
                object,
                panic,
                "Event handler panicked; it is told the same again after a while"
            );
        }
        if took >= SLOW {
            self.counts.slow.fetch_add(1, Ordering::Relaxed);
            if self.complained.is_none_or(|at| at.elapsed() >= REMINDER) {
                self.complained = Some(Instant::now());
                let (took, pending) = (took.as_secs_f32(), self.counts.pending.load(Ordering::Relaxed));
                tracing::warn!(
                    kind,
                    handler,
                    took,
                    pending,
                    "Event handler was slow; it should only queue keys"
                );
            }
        }
        is_done
    }

    fn call(&mut self, notification: &Notification<K>) {
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

/// Waits until a point in time; forever if there is none.
pub(crate) async fn until(time: Option<Instant>) {
    match time {
        Some(time) => tokio::time::sleep_until(time).await,
        None => std::future::pending().await,
    }
}

/// Returns the message of a panic.
pub(crate) fn text_of(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("payload is not a string")
}
