//! The one place through which requests pass before they are sent: leadership, limits, what a server asks for.
//!
//! Mirrors client-go `util/flowcontrol` and the throttling of `rest/request.go`; the leadership gate is ours.
//! Flow: sync handlers -> children, status -> **gate** -> API server. Lists and watches of the cache have a
//! pace of their own and do not pass here.
//!
//! # Guarantees
//! - While it is closed, no write is sent. (test: `a_closed_gate_lets_no_write_pass`)
//! - Also what waits for its turn is held then. (test: `what_waits_for_its_turn_is_held_by_a_pause_and_a_closed_gate`)
//! - No more writes are under way than the limit. (test: `writes_in_flight_are_limited`)
//! - A server that is overloaded (429 with Retry-After from itself, not from an admission webhook) is left alone
//!   by all until that has passed, 10 min at most. (test: `what_a_server_asks_of_one_holds_for_all`, `a_webhooks_429_is_no_overload`)
//! - With a rate, requests are not faster than that. (test: `requests_keep_the_rate`)
//! - Events wait for no other write, and no other write for them; a closed gate and an overloaded server hold them, too.
//!   (test: `events_pass_beside_all_others`)
//! - At a shutdown nobody waits here, but for a turn that is near: what would have to is not sent. (test: `at_a_shutdown_nobody_waits`)
//!
//! # Differences from client-go
//! No rate by default: the server's priority and fairness rules. client-go repeats a request that was answered
//! with Retry-After; ours is an error, and its key waits.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{Semaphore, SemaphorePermit, watch};
use tokio::time::Instant;

use super::error::RETRY_AFTER_MAX;
use crate::workqueue::{Bucket, RateLimiter};

/// How long a request waits for the rate when the process is stopping.
const LAST_WAIT: Duration = Duration::from_secs(1);
/// The longest that a request waits for the rate.
const RATE_WAIT_MAX: Duration = Duration::from_secs(3600);

/// How many requests a client sends.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RequestLimits {
    /// Requests a second, without lists and watches of the cache; `None` for as many as come.
    pub qps: Option<f64>,
    /// Requests at once before `qps` counts.
    pub burst: u32,
    /// Writes under way at once. By default as many as a kube-apiserver takes from all its clients.
    pub writes_in_flight: usize,
}

impl Default for RequestLimits {
    fn default() -> Self {
        Self { qps: None, burst: 10, writes_in_flight: 200 }
    }
}

/// See the module.
#[derive(Debug)]
pub struct Gate {
    state: watch::Sender<State>,
    in_flight: Semaphore,
    rate: Option<Bucket>,
    /// A server has asked for this.
    not_before: Mutex<Option<Instant>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Open,
    Closed,
    ShuttingDown,
}

/// The process is stopping, and the request would have had to wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stopping;

/// What kind of request wants to pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Passage {
    Read,
    Write,
    /// A write of an event: its sender has a limit and a rate of its own.
    Event,
}

// === impl Gate ===

impl Gate {
    /// An open gate with these limits.
    ///
    /// # Panics
    /// When `qps` is not above zero, or no write may be under way.
    #[must_use]
    pub fn new(limits: RequestLimits) -> Self {
        assert!(limits.writes_in_flight > 0, "at least one write must be let through");
        Self {
            state: watch::Sender::new(State::Open),
            in_flight: Semaphore::new(limits.writes_in_flight),
            rate: limits.qps.map(|qps| Bucket::new(qps, limits.burst, RATE_WAIT_MAX)),
            not_before: Mutex::new(None),
        }
    }

    /// Lets writes pass: this process leads.
    pub fn open(&self) {
        self.change(State::Open);
    }

    /// Lets no write pass until it is opened again. What is under way is not touched.
    pub fn close(&self) {
        self.change(State::Closed);
    }

    /// Makes nobody wait any more: what would have to is not sent.
    pub fn shut_down(&self) {
        self.state.send_replace(State::ShuttingDown);
    }

    fn change(&self, to: State) {
        self.state.send_if_modified(|state| {
            let changes = *state != State::ShuttingDown && *state != to;
            if changes {
                *state = to;
            }
            changes
        });
    }

    /// A server is overloaded, and has asked for this.
    pub(super) fn asked_to_wait(&self, time: Duration) {
        let until = Instant::now() + time.min(RETRY_AFTER_MAX);
        let mut not_before = self.not_before.lock();
        *not_before = Some(not_before.map_or(until, |known| known.max(until)));
    }

    /// Waits until a request may be sent; a write holds its place until the permit is dropped.
    ///
    /// # Cancel safety
    /// Safe; what the rate has counted stays counted.
    pub(super) async fn pass(&self, passage: Passage) -> Result<Option<SemaphorePermit<'_>>, Stopping> {
        let permit = match passage {
            Passage::Read | Passage::Event => None,
            Passage::Write => Some(self.place().await?),
        };
        let rate = self.rate.as_ref().filter(|_| passage != Passage::Event);
        loop {
            self.open_and_unpaused(passage).await?;
            let Some(rate) = rate else { return Ok(permit) };
            self.wait(RateLimiter::when(rate, &()), LAST_WAIT).await?;
            // A turn that came while nothing may be sent is lost: they must not pile up.
            if self.pause_left().is_none() && !self.is_closed_for(passage) {
                return Ok(permit);
            }
        }
    }

    /// How long a server is still to be left alone.
    fn pause_left(&self) -> Option<Duration> {
        let until = (*self.not_before.lock())?;
        until.checked_duration_since(Instant::now()).filter(|left| !left.is_zero())
    }

    fn is_closed_for(&self, passage: Passage) -> bool {
        passage != Passage::Read && *self.state.borrow() == State::Closed
    }

    /// A place among the writes that are under way.
    async fn place(&self) -> Result<SemaphorePermit<'_>, Stopping> {
        if let Ok(permit) = self.in_flight.try_acquire() {
            return Ok(permit);
        }
        let mut state = self.state.subscribe();
        tokio::select! {
            biased;
            _ = state.wait_for(|state| *state == State::ShuttingDown) => Err(Stopping),
            // It is never closed.
            permit = self.in_flight.acquire() => permit.map_err(|_| Stopping),
        }
    }

    async fn open_and_unpaused(&self, passage: Passage) -> Result<(), Stopping> {
        loop {
            if let Some(left) = self.pause_left() {
                self.wait(left, Duration::ZERO).await?;
            } else if self.is_closed_for(passage) {
                let mut state = self.state.subscribe();
                let state = state.wait_for(|state| *state != State::Closed).await.map_err(|_| Stopping)?;
                if *state == State::ShuttingDown {
                    return Err(Stopping);
                }
            } else {
                return Ok(());
            }
        }
    }

    /// Waits; during a shutdown for `at_most` in all.
    async fn wait(&self, time: Duration, at_most: Duration) -> Result<(), Stopping> {
        let mut state = self.state.subscribe();
        let stopping = async {
            let stopped = state.wait_for(|state| *state == State::ShuttingDown).await.is_ok();
            if !stopped {
                std::future::pending::<()>().await;
            }
            tokio::time::sleep(at_most).await;
        };
        tokio::select! {
            biased;
            () = tokio::time::sleep(time) => Ok(()),
            () = stopping => Err(Stopping),
        }
    }
}

impl Default for Gate {
    fn default() -> Self {
        Self::new(RequestLimits::default())
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    async fn passes_after(gate: &Gate, passage: Passage) -> Duration {
        let started = Instant::now();
        drop(gate.pass(passage).await.unwrap());
        started.elapsed()
    }

    #[tokio::test(start_paused = true)]
    async fn a_closed_gate_lets_no_write_pass() {
        let gate = Gate::default();
        gate.close();
        assert!(tokio::time::timeout(600 * SECOND, gate.pass(Passage::Write)).await.is_err());
        assert_eq!(passes_after(&gate, Passage::Read).await, Duration::ZERO);
        let mut write = Box::pin(gate.pass(Passage::Write));
        assert!(write.as_mut().now_or_never().is_none());
        gate.open();
        assert!(write.await.is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn writes_in_flight_are_limited() {
        let gate = Gate::new(RequestLimits { writes_in_flight: 2, ..RequestLimits::default() });
        let first = gate.pass(Passage::Write).await.unwrap();
        let _second = gate.pass(Passage::Write).await.unwrap();
        assert!(gate.pass(Passage::Write).now_or_never().is_none());
        assert!(gate.pass(Passage::Read).now_or_never().is_some());
        drop(first);
        assert!(gate.pass(Passage::Write).now_or_never().is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn events_pass_beside_all_others() {
        let limits = RequestLimits { qps: Some(1.0), burst: 1, writes_in_flight: 1 };
        let gate = Gate::new(limits);
        let _write = gate.pass(Passage::Write).await.unwrap();
        for _ in 0..10 {
            assert_eq!(passes_after(&gate, Passage::Event).await, Duration::ZERO);
        }
        gate.asked_to_wait(5 * SECOND);
        assert_eq!(passes_after(&gate, Passage::Event).await, 5 * SECOND);
        gate.close();
        assert!(gate.pass(Passage::Event).now_or_never().is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn what_a_server_asks_of_one_holds_for_all() {
        let gate = Gate::default();
        gate.asked_to_wait(5 * SECOND);
        gate.asked_to_wait(2 * SECOND);
        assert_eq!(passes_after(&gate, Passage::Read).await, 5 * SECOND);
        gate.asked_to_wait(3600 * SECOND);
        assert_eq!(passes_after(&gate, Passage::Write).await, 600 * SECOND);
        assert_eq!(passes_after(&gate, Passage::Write).await, Duration::ZERO);
    }

    #[tokio::test(start_paused = true)]
    async fn requests_keep_the_rate() {
        let gate = Gate::new(RequestLimits { qps: Some(10.0), burst: 3, ..RequestLimits::default() });
        let started = Instant::now();
        for _ in 0..13 {
            drop(gate.pass(Passage::Read).await.unwrap());
        }
        assert_eq!(started.elapsed(), SECOND, "three at once, then ten a second");
    }

    #[tokio::test(start_paused = true)]
    async fn at_a_shutdown_nobody_waits() {
        let gate = Gate::default();
        gate.close();
        let mut write = Box::pin(gate.pass(Passage::Write));
        assert!(write.as_mut().now_or_never().is_none());
        gate.shut_down();
        assert_eq!(write.await.err(), Some(Stopping));
        gate.asked_to_wait(5 * SECOND);
        assert_eq!(gate.pass(Passage::Read).now_or_never().unwrap().err(), Some(Stopping));
        let gate = Gate::default();
        gate.shut_down();
        assert!(gate.pass(Passage::Write).now_or_never().unwrap().is_ok(), "a sync under way may end");

        let limits = RequestLimits { qps: Some(10.0), burst: 1, writes_in_flight: 1 };
        let gate = Gate::new(limits);
        gate.shut_down();
        let first = gate.pass(Passage::Write).await.unwrap();
        assert_eq!(
            gate.pass(Passage::Write).now_or_never().unwrap().err(),
            Some(Stopping),
            "no place is free"
        );
        drop(first);
        assert!(gate.pass(Passage::Write).await.is_ok(), "its turn is near");
        let turns = futures_util::future::join_all((0..20).map(|_| gate.pass(Passage::Read))).await;
        assert_eq!(turns.iter().filter(|turn| turn.is_ok()).count(), 10, "those of the next second");
    }

    #[tokio::test(start_paused = true)]
    async fn what_waits_for_its_turn_is_held_by_a_pause_and_a_closed_gate() {
        let gate = Gate::new(RequestLimits { qps: Some(1.0), burst: 1, ..RequestLimits::default() });
        drop(gate.pass(Passage::Write).await);
        let started = Instant::now();
        let held = async {
            tokio::time::sleep(SECOND / 2).await;
            gate.asked_to_wait(10 * SECOND);
            gate.close();
            tokio::time::sleep(20 * SECOND).await;
            gate.open();
        };
        let (read, write, ()) = tokio::join!(
            async { gate.pass(Passage::Read).await.map(|_| started.elapsed()) },
            async { gate.pass(Passage::Write).await.map(|_| started.elapsed()) },
            held,
        );
        assert!(read.unwrap() >= SECOND * 21 / 2, "after the pause: {read:?}");
        assert!(write.unwrap() >= SECOND * 41 / 2, "after the gate was opened: {write:?}");
    }

    /// A pause must not save up turns that all come at once when it ends.
    #[tokio::test(start_paused = true)]
    async fn after_a_pause_requests_keep_the_rate() {
        let gate = Gate::new(RequestLimits { qps: Some(10.0), burst: 1, ..RequestLimits::default() });
        gate.asked_to_wait(30 * SECOND);
        let started = Instant::now();
        futures_util::future::join_all((0..11).map(|_| gate.pass(Passage::Read))).await;
        assert_eq!(started.elapsed(), 31 * SECOND);
    }
}
