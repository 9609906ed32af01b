//! Holds requests back before they are sent: without leadership, above the limits, and while a server is overloaded.
//!
//! Mirrors client-go `util/flowcontrol` and the throttling of `rest/request.go`; the leadership gate is ours.
//! Flow: sync handlers -> children, status -> **gate** -> API server. Lists and watches of the cache bypass the
//! gate and have their own pace.
//!
//! # Guarantees
//! - A closed gate holds every write, except for the leader election's. (test: `closed_gate_holds_writes_and_passes_reads`)
//! - A pause or a closed gate also holds requests that already wait for the rate.
//!   (test: `queued_requests_obey_pause_and_closed_gate`)
//! - Writes in flight never exceed their limit, and leave room for other namespaces. (test: `writes_in_flight_are_limited`)
//! - When the server itself is overloaded (429 with Retry-After, not from an admission webhook), all requests pause for
//!   that time, 10 min at most. (test: `overload_pause_applies_to_all_requests`, `webhook_429_is_not_overload`)
//! - While the server serves other requests, only the refused one waits. (test: `partial_overload_pauses_nothing`)
//! - With `qps` set, requests stay within that rate; a new rate applies at once, also to requests that wait.
//!   (test: `requests_stay_within_the_rate`, `new_rate_applies_to_waiting_requests`)
//! - Events neither wait for other writes nor delay them; a closed gate or an overloaded server holds events, too.
//!   (test: `events_bypass_write_and_rate_limits`)
//! - With shards, a write passes in a namespace of those held, until the deadline; any other is refused at once.
//!   (test: `writes_pass_in_namespaces_of_held_shards_only`)
//! - Refused, delayed and answered requests are counted.
//!   (test: `refused_and_delayed_requests_are_counted`, `overloaded_server_pauses_all_requests`)
//! - A leader whose machine was suspended writes no more after its Lease's end. (test: `time_asleep_counts_for_the_lease`)
//! - A request that is valid until a time is not sent after it, however long it waits. (test: `stale_request_is_refused`)
//! - During a shutdown a request waits at most 1 s for the rate, and for nothing else; otherwise it is not sent.
//!   (test: `shutdown_fails_waiting_requests`)
//!
//! # Differences from client-go
//! No rate limit by default: the server's priority and fairness apply. client-go repeats a request that was answered
//! with Retry-After; here the caller gets an error and requeues the key.

use std::future::poll_fn;
use std::ops::Add;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Poll;
use std::time::Duration;

use futures_util::FutureExt;
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::Instant;

use super::clock;
use super::error::RETRY_AFTER_MAX;
use super::fair_slots::{FairSlots, Slot};
use crate::api::shards::ShardSet;
use crate::workqueue::{Bucket, RateLimiter};

/// How long a request waits for the rate while the process is stopping.
const LAST_WAIT: Duration = Duration::from_secs(1);
/// How long ago a request was served by a server that has room for some.
const SERVED: Duration = Duration::from_secs(1);
/// The longest wait for the rate.
const RATE_WAIT_MAX: Duration = Duration::from_secs(3600);

/// Limits on a client's requests.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RequestLimits {
    /// Requests per second, not counting lists and watches of the cache; `None` for no limit.
    pub qps: Option<f64>,
    /// Requests that may be sent at once before `qps` applies.
    pub burst: u32,
    /// Concurrent writes; one namespace alone uses half of them. The default is kube-apiserver's own limit for all its
    /// clients.
    pub writes_in_flight: usize,
}

impl Default for RequestLimits {
    fn default() -> Self {
        Self { qps: None, burst: 10, writes_in_flight: 200 }
    }
}

/// Holds requests until leadership, limits and the server allow them to be sent.
#[derive(Debug)]
pub struct Gate {
    state: watch::Sender<Permission>,
    in_flight: FairSlots,
    rate: watch::Sender<Option<Arc<Bucket>>>,
    /// End of the pause that an overloaded server asked for.
    not_before: Mutex<Option<Instant>>,
    /// When the server last answered a request otherwise than that it has too many.
    served: Mutex<Option<Instant>>,
    /// When a deadline opened the gate, until the first write passes.
    opened: Mutex<Option<Instant>>,
    answered: AtomicU64,
    refused: AtomicU64,
    delayed: AtomicU64,
    /// Returns for how long the machine was suspended so far.
    time_asleep: fn() -> Duration,
}

/// How many requests have been held back so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HeldBack {
    /// By the server, or by a webhook: answers 429.
    pub refused: u64,
    /// By the rate of [`RequestLimits::qps`].
    pub delayed: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Permission {
    fence: Fence,
    is_stopping: bool,
}

/// Until when this process may write.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Fence {
    Open,
    /// Open until the leader has to renew its Lease.
    Until(Moment),
    /// Open until then for the namespaces of these shards. Nothing else waits: it is for another process.
    Shards(Moment, Arc<ShardSet>),
    Closed,
}

/// Why a request was not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    /// The process is stopping, and the request would have had to wait.
    Stopping,
    /// The request would have been sent after the time until which it is valid.
    Stale,
    /// Another process may hold the shard of the request's namespace.
    NotHeld,
}

/// How a request stands to the rate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Turn {
    /// It waits for its turn.
    #[default]
    Waits,
    /// The caller has waited for it, see [`Gate::turn`].
    Taken,
    /// It counts, but follows at once on a request that has had its turn; later requests wait longer for it.
    Follows,
}

/// A point in time, after which time passes even while the machine is suspended. See [`Gate::now`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    /// On tokio's clock, which stands still while the machine is suspended.
    pub at: Instant,
    /// How long the machine had been suspended by then.
    asleep: Duration,
}

/// The kind of a request at the gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Passage {
    Read,
    Write,
    /// A write of an event, whose sender has its own limit and rate.
    Event,
    /// A request for the Lease of the leader election, which opens the gate and so waits for nothing.
    Election,
}

impl Moment {
    /// Returns the earlier of two points in time.
    #[must_use]
    pub fn min(self, other: Self) -> Self {
        if self.at + self.asleep <= other.at + other.asleep { self } else { other }
    }
}

impl Add<Duration> for Moment {
    type Output = Self;

    fn add(self, time: Duration) -> Self {
        Self { at: self.at + time, ..self }
    }
}

// === impl Passage ===

impl Passage {
    /// Whether only the leader may send such a request.
    fn is_fenced(self) -> bool {
        matches!(self, Self::Write | Self::Event)
    }
}

// === impl Gate ===

impl Gate {
    /// Creates an open gate with these limits.
    ///
    /// # Panics
    /// If `qps` is not positive, or `writes_in_flight` is zero.
    #[must_use]
    pub fn new(limits: RequestLimits) -> Self {
        assert!(limits.writes_in_flight > 0, "writes_in_flight must be at least 1");
        Self {
            state: watch::Sender::new(Permission { fence: Fence::Open, is_stopping: false }),
            in_flight: FairSlots::new(limits.writes_in_flight),
            rate: watch::Sender::new(bucket(limits.qps, limits.burst)),
            not_before: Mutex::new(None),
            served: Mutex::new(None),
            opened: Mutex::new(None),
            answered: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            delayed: AtomicU64::new(0),
            time_asleep: clock::time_asleep,
        }
    }

    /// Sets the rate of requests; without `qps` there is no limit. The requests that wait for the old rate, and new
    /// ones, wait for the new one.
    ///
    /// # Panics
    /// If `qps` is not positive.
    pub fn set_rate(&self, qps: Option<f64>, burst: u32) {
        self.rate.send_replace(bucket(qps, burst));
    }

    /// Lets writes pass.
    pub fn open(&self) {
        self.fence(Fence::Open);
    }

    /// Returns the present.
    #[must_use]
    pub fn now(&self) -> Moment {
        Moment { at: Instant::now(), asleep: (self.time_asleep)() }
    }

    /// Lets writes pass until `deadline`: before that no other process can lead.
    pub fn open_until(&self, deadline: Moment) {
        if !self.is_open() {
            *self.opened.lock() = Some(Instant::now());
        }
        self.fence(Fence::Until(deadline));
    }

    /// Lets writes in the namespaces of these shards pass until `deadline`. All others are refused at once.
    pub fn open_shards_until(&self, deadline: Moment, shards: Arc<ShardSet>) {
        self.fence(Fence::Shards(deadline, shards));
    }

    /// Returns whether a write may begin now; with shards, whether one of some shard may.
    #[must_use]
    pub fn is_open(&self) -> bool {
        match &self.state.borrow().fence {
            Fence::Shards(deadline, shards) => !shards.is_empty() && self.is_before(*deadline),
            fence => self.lets_pass(fence, ""),
        }
    }

    /// Returns whether a write in this namespace may begin now.
    #[must_use]
    pub fn is_open_for(&self, namespace: &str) -> bool {
        self.lets_pass(&self.state.borrow().fence, namespace)
    }

    fn lets_pass(&self, fence: &Fence, namespace: &str) -> bool {
        match fence {
            Fence::Open => true,
            Fence::Until(deadline) => self.is_before(*deadline),
            Fence::Shards(deadline, shards) => shards.has_namespace(namespace) && self.is_before(*deadline),
            Fence::Closed => false,
        }
    }

    /// Whether a deadline has not come; the time for which the machine was suspended counts.
    pub(crate) fn is_before(&self, deadline: Moment) -> bool {
        let Moment { at, asleep } = self.now();
        at + asleep.saturating_sub(deadline.asleep) < deadline.at
    }

    /// Holds writes until the gate is opened again, and cuts those under way.
    pub fn close(&self) {
        self.fence(Fence::Closed);
    }

    /// Ends all waits: a request that would have to wait is not sent.
    pub fn shut_down(&self) {
        self.state.send_modify(|state| state.is_stopping = true);
    }

    fn fence(&self, fence: Fence) {
        self.state.send_if_modified(|state| {
            let is_new = state.fence != fence;
            state.fence = fence;
            is_new
        });
    }

    /// Returns how many requests have been held back so far.
    #[must_use]
    pub fn held_back(&self) -> HeldBack {
        HeldBack {
            refused: self.refused.load(Ordering::Relaxed),
            delayed: self.delayed.load(Ordering::Relaxed),
        }
    }

    /// Returns how many requests have been answered so far, whatever the answer.
    #[must_use]
    pub fn answered(&self) -> u64 {
        self.answered.load(Ordering::Relaxed)
    }

    /// Records an answer.
    pub(super) fn has_answered(&self) {
        self.answered.fetch_add(1, Ordering::Relaxed);
    }

    /// Records an answer 429.
    pub(super) fn refused(&self) {
        self.refused.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the wait for a turn of this bucket.
    fn when(&self, bucket: &Bucket) -> Duration {
        let time = RateLimiter::when(bucket, &());
        if !time.is_zero() {
            self.delayed.fetch_add(1, Ordering::Relaxed);
        }
        time
    }

    /// Records that the server has answered a request otherwise than that it has too many.
    pub(super) fn served(&self) {
        *self.served.lock() = Some(Instant::now());
    }

    /// Pauses all requests for the time that an overloaded server asked for, unless it serves others: it has room for
    /// some, and workers that all pause and start at once would use it once in that time.
    pub(super) fn asked_to_wait(&self, time: Duration) {
        if self.served.lock().is_some_and(|served| served.elapsed() < SERVED) {
            return;
        }
        let until = Instant::now() + time.min(RETRY_AFTER_MAX);
        let mut not_before = self.not_before.lock();
        *not_before = Some(not_before.map_or(until, |known| known.max(until)));
    }

    /// Waits until a request may be sent, `not_after` at the latest; a write holds its slot until the permit is
    /// dropped.
    ///
    /// # Cancel safety
    /// Safe; a turn already taken from the rate stays taken.
    pub(super) async fn pass(
        &self,
        passage: Passage,
        namespace: &str,
        turn: Turn,
        not_after: Option<Instant>,
    ) -> Result<Option<Slot>, Refusal> {
        let admitted = self.admit(passage, namespace, turn);
        let permit = match not_after {
            None => admitted.await?,
            Some(not_after) => {
                let admitted = tokio::time::timeout_at(not_after, admitted).await;
                let permit = admitted.map_err(|_| Refusal::Stale)??;
                // The timer of a process that was frozen fires later than the wait ends.
                if Instant::now() > not_after {
                    return Err(Refusal::Stale);
                }
                permit
            }
        };
        if passage == Passage::Write
            && let Some(opened) = self.opened.lock().take()
        {
            let after_ms = u64::try_from(opened.elapsed().as_millis()).unwrap_or(u64::MAX);
            tracing::info!(after_ms, "First write as the leader");
        }
        Ok(permit)
    }

    /// Waits for the turn of a read that the caller sends next, with [`Turn::Taken`].
    ///
    /// # Cancel safety
    /// Safe; a turn already taken from the rate stays taken.
    pub(super) async fn turn(&self) -> Result<(), Refusal> {
        self.admit(Passage::Read, "", Turn::Waits).await.map(drop)
    }

    async fn admit(&self, passage: Passage, namespace: &str, turn: Turn) -> Result<Option<Slot>, Refusal> {
        let permit = match passage {
            Passage::Election => return Ok(None),
            Passage::Read | Passage::Event => None,
            Passage::Write => Some(self.slot(namespace).await?),
        };
        let mut rate = self.rate.subscribe();
        loop {
            self.open_and_unpaused(passage, namespace).await?;
            let Some(bucket) = rate.borrow_and_update().clone().filter(|_| passage != Passage::Event) else {
                return Ok(permit);
            };
            match turn {
                Turn::Waits => {}
                Turn::Taken => return Ok(permit),
                Turn::Follows => {
                    let _: Duration = RateLimiter::when(&*bucket, &());
                    return Ok(permit);
                }
            }
            let is_replaced = tokio::select! {
                biased;
                Ok(()) = rate.changed() => true,
                waited = self.wait(self.when(&bucket), LAST_WAIT) => {
                    waited?;
                    false
                }
            };
            // A turn that comes while nothing may be sent is lost; otherwise turns would pile up.
            if !is_replaced && self.pause_left().is_none() && !self.is_closed_for(passage, namespace) {
                return Ok(permit);
            }
        }
    }

    /// Waits until a request that has passed must not be sent any more, because the gate has closed since.
    ///
    /// # Cancel safety
    /// Cancel-safe.
    pub(super) async fn closed(&self, passage: Passage, namespace: &str) {
        if !passage.is_fenced() {
            return std::future::pending().await;
        }
        let mut state = self.state.subscribe();
        let mut closing = pin!(async {
            loop {
                let fence = state.borrow_and_update().fence.clone();
                let at_deadline = async {
                    match fence {
                        Fence::Until(deadline) | Fence::Shards(deadline, _)
                            if Instant::now() < deadline.at =>
                        {
                            tokio::time::sleep_until(deadline.at).await;
                        }
                        Fence::Until(_) | Fence::Shards(..) | Fence::Open | Fence::Closed => {
                            std::future::pending().await
                        }
                    }
                };
                tokio::select! {
                    biased;
                    _ = state.changed() => {}
                    () = at_deadline => {}
                }
            }
        });
        // Check the clock at every poll: after a freeze, the timer may fire later than the request is polled.
        poll_fn(|context| match self.is_closed_for(passage, namespace) {
            true => Poll::Ready(()),
            false => closing.as_mut().poll(context),
        })
        .await;
    }

    /// Returns what is left of the pause that a server asked for.
    fn pause_left(&self) -> Option<Duration> {
        let until = (*self.not_before.lock())?;
        until.checked_duration_since(Instant::now()).filter(|left| !left.is_zero())
    }

    fn is_closed_for(&self, passage: Passage, namespace: &str) -> bool {
        passage.is_fenced() && !self.is_open_for(namespace)
    }

    /// Takes one of the slots for writes in flight.
    async fn slot(&self, namespace: &str) -> Result<Slot, Refusal> {
        let mut slot = pin!(self.in_flight.acquire(namespace));
        if let Some(slot) = slot.as_mut().now_or_never() {
            return Ok(slot);
        }
        let mut state = self.state.subscribe();
        tokio::select! {
            biased;
            _ = state.wait_for(|state| state.is_stopping) => Err(Refusal::Stopping),
            slot = slot => Ok(slot),
        }
    }

    async fn open_and_unpaused(&self, passage: Passage, namespace: &str) -> Result<(), Refusal> {
        loop {
            if let Some(left) = self.pause_left() {
                self.wait(left, Duration::ZERO).await?;
            } else if self.is_closed_for(passage, namespace) {
                let mut state = self.state.subscribe();
                let decided = state.wait_for(|state| {
                    let is_for_others = matches!(state.fence, Fence::Shards(..));
                    is_for_others || self.lets_pass(&state.fence, namespace) || state.is_stopping
                });
                let state = decided.await.map_err(|_| Refusal::Stopping)?;
                match &state.fence {
                    fence if self.lets_pass(fence, namespace) => {}
                    Fence::Shards(..) => return Err(Refusal::NotHeld),
                    Fence::Open | Fence::Until(_) | Fence::Closed => return Err(Refusal::Stopping),
                }
            } else {
                return Ok(());
            }
        }
    }

    /// Waits for `time`, but during a shutdown for `at_most` at the longest.
    async fn wait(&self, time: Duration, at_most: Duration) -> Result<(), Refusal> {
        let mut state = self.state.subscribe();
        let stopping = async {
            let stopped = state.wait_for(|state| state.is_stopping).await.is_ok();
            if !stopped {
                std::future::pending::<()>().await;
            }
            tokio::time::sleep(at_most).await;
        };
        tokio::select! {
            biased;
            () = tokio::time::sleep(time) => Ok(()),
            () = stopping => Err(Refusal::Stopping),
        }
    }
}

fn bucket(qps: Option<f64>, burst: u32) -> Option<Arc<Bucket>> {
    qps.map(|qps| Arc::new(Bucket::new(qps, burst, RATE_WAIT_MAX)))
}

impl Default for Gate {
    fn default() -> Self {
        Self::new(RequestLimits::default())
    }
}

#[cfg(test)]
mod tests;
