//! The elector: acquires the lease, renews it, releases it.
//!
//! Mirrors client-go `tools/leaderelection/leaderelection.go` (`acquire`, `renew`, `tryAcquireOrRenew`, `release`) and
//! `healthzadaptor.go`.

use std::fmt;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::lease_lock::{LeaderElectionRecord, LeaseLock};
use crate::client::{Clock, Error};
use crate::metrics::LeaderElectionMetrics;
use crate::record::{EventRecorder, EventType};

/// A try to acquire comes after the retry period times 1 up to 2.2.
const JITTER: f64 = 1.2;
/// The longest time for the requests of a release: the process is about to end.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(5);
/// How often the log repeats that the lease cannot be acquired.
const REMINDER: Duration = Duration::from_secs(60);
/// How much longer than its duration the lease may go without a renewal before the process counts as unhealthy.
const HEALTH_TIMEOUT: Duration = Duration::from_secs(20);

/// The times of an election, with the defaults of Kubernetes' own components.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaderElectionConfig {
    /// How long a candidate leaves a lease alone that is not renewed, in whole seconds.
    pub lease_duration: Duration,
    /// How long the leader writes without a renewal.
    pub renew_deadline: Duration,
    /// How often the leader renews, and the least time between tries of a candidate.
    pub retry_period: Duration,
    /// Whether an orderly stop releases the lease.
    pub release_on_cancel: bool,
}

/// Times that exclude each other.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidConfig {
    /// A lease is counted in whole seconds.
    #[error("the lease duration ({0:?}) must be at least 1s, in whole seconds")]
    LeaseDuration(Duration),
    /// A leader would still write while another takes over.
    #[error("the renew deadline ({renew_deadline:?}) must be below the lease duration ({lease_duration:?})")]
    RenewDeadline {
        /// As given.
        renew_deadline: Duration,
        /// As given.
        lease_duration: Duration,
    },
    /// One failed try would lose the lease.
    #[error(
        "the retry period ({retry_period:?}) times 1.2 must be below the renew deadline ({renew_deadline:?})"
    )]
    RetryPeriod {
        /// As given.
        retry_period: Duration,
        /// As given.
        renew_deadline: Duration,
    },
    /// Tries would follow each other without a pause.
    #[error("the retry period must not be zero")]
    NoRetryPeriod,
}

/// How an election ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// As asked; the lease is released if it was held, and a release was wanted.
    Stopped,
    /// Another process leads, or may lead soon.
    Lost,
}

/// Takes part in the election of one Lease; see the [module](super).
pub struct LeaderElector {
    lock: LeaseLock,
    identity: String,
    config: LeaderElectionConfig,
    clock: Clock,
    recorder: EventRecorder,
    metrics: LeaderElectionMetrics,
    random: fastrand::Rng,
    observed: Option<Observed>,
    /// The last error that was a warning, and when.
    logged: Option<(String, Instant)>,
    state: watch::Sender<State>,
}

/// A record, and when this process saw it first.
struct Observed {
    record: LeaderElectionRecord,
    at: Instant,
}

/// What others see of the elector.
#[derive(Clone, Debug, Default)]
struct State {
    /// The holder that was observed last; empty before the first observation and after a release.
    holder: String,
    is_leader: bool,
    /// The last success of a leader.
    renewed: Option<Instant>,
    /// Whether the Lease was ever read or written.
    is_known: bool,
    /// Why the last try failed, if it did.
    error: Option<String>,
}

/// Tells whether this process leads. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Leadership {
    state: watch::Receiver<State>,
    lease_duration: Duration,
}

// === impl LeaderElectionConfig ===

impl Default for LeaderElectionConfig {
    fn default() -> Self {
        Self {
            lease_duration: Duration::from_secs(15),
            renew_deadline: Duration::from_secs(10),
            retry_period: Duration::from_secs(2),
            release_on_cancel: true,
        }
    }
}

impl LeaderElectionConfig {
    /// Checks that a leader stops before a candidate takes over, and has more than one try.
    ///
    /// # Errors
    /// [`InvalidConfig`].
    pub fn validate(&self) -> Result<(), InvalidConfig> {
        let Self { lease_duration, renew_deadline, retry_period, .. } = *self;
        if lease_duration.as_secs() == 0 || lease_duration.subsec_nanos() > 0 {
            return Err(InvalidConfig::LeaseDuration(lease_duration));
        }
        if renew_deadline >= lease_duration {
            return Err(InvalidConfig::RenewDeadline { renew_deadline, lease_duration });
        }
        if retry_period.is_zero() {
            return Err(InvalidConfig::NoRetryPeriod);
        }
        if retry_period.mul_f64(JITTER) >= renew_deadline {
            return Err(InvalidConfig::RetryPeriod { retry_period, renew_deadline });
        }
        Ok(())
    }

    /// How long one try may take, as client-go's components set it.
    fn request_timeout(&self) -> Duration {
        (self.renew_deadline / 2).max(Duration::from_secs(1)).min(self.renew_deadline)
    }
}

// === impl LeaderElector ===

impl LeaderElector {
    /// Creates a candidate of this identity, which no other process may have, and closes the gate of the lock's client:
    /// nothing is written before the lease is acquired.
    ///
    /// # Errors
    /// [`InvalidConfig`].
    pub fn new(
        lock: LeaseLock,
        identity: String,
        config: LeaderElectionConfig,
        recorder: EventRecorder,
        metrics: LeaderElectionMetrics,
        seed: u64,
    ) -> Result<Self, InvalidConfig> {
        config.validate()?;
        lock.client().gate().close();
        metrics.leads(false);
        Ok(Self {
            lock,
            identity,
            config,
            clock: Clock::system(),
            recorder,
            metrics,
            random: fastrand::Rng::with_seed(seed),
            observed: None,
            logged: None,
            state: watch::Sender::new(State::default()),
        })
    }

    /// Stamps records with this clock: for tests of clocks that are wrong.
    #[must_use]
    pub fn with_clock(self, clock: Clock) -> Self {
        Self { clock, ..self }
    }

    /// Returns a handle that tells whether this process leads.
    #[must_use]
    pub fn leadership(&self) -> Leadership {
        Leadership { state: self.state.subscribe(), lease_duration: self.config.lease_duration }
    }

    /// Acquires the lease and renews it until `stop`, or until it is lost. The gate is closed at the end. Cancel `stop`
    /// after the work has ended: from then on another process may lead.
    ///
    /// # Cancel safety
    /// Not cancel-safe: dropped, it leaves the gate open until the renew deadline, and the lease held.
    pub async fn run(mut self, stop: CancellationToken) -> Ending {
        let ending = self.acquire_and_renew(&stop).await;
        self.lock.client().gate().close();
        self.metrics.leads(false);
        self.state.send_modify(|state| state.is_leader = false);
        match ending {
            Ending::Stopped if self.config.release_on_cancel => self.release().await,
            Ending::Stopped => {}
            Ending::Lost => tracing::error!(lease = self.lock.describe(), "Lost leadership"),
        }
        ending
    }

    async fn acquire_and_renew(&mut self, stop: &CancellationToken) -> Ending {
        let started = Instant::now();
        let mut renewed = loop {
            let sent = Instant::now();
            let Some(attempt) = self.attempt(self.config.request_timeout(), stop).await else {
                return Ending::Stopped;
            };
            if attempt == Attempt::Succeeded {
                break sent;
            }
            let pause = self.config.retry_period.mul_f64(1.0 + JITTER * self.random.f64());
            if is_stopped_within(pause, stop).await {
                return Ending::Stopped;
            }
        };
        tracing::info!(
            lease = self.lock.describe(),
            identity = self.identity,
            waited = ?started.elapsed(),
            "Became the leader"
        );
        self.record_event(&format!("{} became leader", self.identity));
        loop {
            if is_stopped_within(self.config.retry_period, stop).await {
                return Ending::Stopped;
            }
            let deadline = renewed + self.config.renew_deadline;
            renewed = loop {
                let sent = Instant::now();
                let left = deadline.saturating_duration_since(sent);
                if left.is_zero() {
                    return Ending::Lost;
                }
                match self.attempt(self.config.request_timeout().min(left), stop).await {
                    None => return Ending::Stopped,
                    Some(Attempt::Succeeded) => break sent,
                    Some(Attempt::HeldByAnother) => return Ending::Lost,
                    Some(Attempt::Failed) => {}
                }
                if is_stopped_within(self.config.retry_period.min(left), stop).await {
                    return Ending::Stopped;
                }
            };
        }
    }

    /// Tries once; `None` when it is stopped meanwhile, and what it wrote is unknown.
    async fn attempt(&mut self, timeout: Duration, stop: &CancellationToken) -> Option<Attempt> {
        let outcome = tokio::select! {
            biased;
            () = stop.cancelled() => return None,
            outcome = tokio::time::timeout(timeout, self.try_acquire_or_renew()) => outcome,
        };
        let error = match outcome {
            Ok(Ok(attempt)) => {
                self.state.send_modify(|state| (state.is_known, state.error) = (true, None));
                self.logged = None;
                return Some(attempt);
            }
            Ok(Err(error)) => {
                // The client logs a lost server once for all requests.
                self.failed(&error.to_string(), !error.is_connection() && !error.is_conflict());
                error.to_string()
            }
            Err(_) => {
                let error = format!("no answer within {timeout:?}");
                self.failed(&error, false);
                error
            }
        };
        self.state.send_modify(|state| state.error = Some(error));
        Some(Attempt::Failed)
    }

    /// Logs a failed try: a warning for a new error and once a minute while it lasts.
    fn failed(&mut self, error: &str, is_worth_a_line: bool) {
        let lease = self.lock.describe();
        let is_news = |(logged, at): &(String, Instant)| logged != error || at.elapsed() >= REMINDER;
        if is_worth_a_line && self.logged.as_ref().is_none_or(is_news) {
            self.logged = Some((error.to_owned(), Instant::now()));
            tracing::warn!(lease, error, "Could not acquire or renew the lease; retrying");
        } else {
            tracing::debug!(lease, error, "Could not acquire or renew the lease; retrying");
        }
    }

    async fn try_acquire_or_renew(&mut self) -> Result<Attempt, Error> {
        // A leader renews with what it wrote last, without a read.
        if let Some(Observed { record, at }) = &self.observed
            && record.holder_identity == self.identity
            && at.elapsed() < record.lease_duration
        {
            let renewal = LeaderElectionRecord { renew_time: Some(self.clock.now()), ..record.clone() };
            let sent = Instant::now();
            match self.lock.update(&renewal).await {
                Ok(()) => return Ok(self.succeeded(renewal, sent)),
                Err(error) => tracing::debug!(%error, "Reads the lease again, as it could not be renewed"),
            }
        }
        let Some(held) = self.lock.get().await? else {
            let record = self.own_record(None);
            let sent = Instant::now();
            self.lock.create(&record).await?;
            return Ok(self.succeeded(record, sent));
        };
        let seen = Instant::now();
        let is_known = self.observed.as_ref().is_some_and(|observed| observed.record == held);
        if !is_known {
            self.observe(held.clone(), seen);
        }
        let since = self.observed.as_ref().map_or(seen, |observed| observed.at);
        let is_own = held.holder_identity == self.identity;
        if !held.holder_identity.is_empty() && !is_own && since + held.lease_duration > seen {
            return Ok(Attempt::HeldByAnother);
        }
        if is_own {
            self.metrics.slow_path();
        }
        let record = self.own_record(Some(&held));
        let sent = Instant::now();
        self.lock.update(&record).await?;
        Ok(self.succeeded(record, sent))
    }

    /// The record of this process as leader, in place of another record.
    fn own_record(&self, held: Option<&LeaderElectionRecord>) -> LeaderElectionRecord {
        let now = self.clock.now();
        let (acquire_time, leader_transitions) = match held {
            Some(held) if held.holder_identity == self.identity => {
                (held.acquire_time, held.leader_transitions)
            }
            Some(held) => (Some(now), held.leader_transitions.saturating_add(1)),
            None => (Some(now), 0),
        };
        LeaderElectionRecord {
            holder_identity: self.identity.clone(),
            lease_duration: self.config.lease_duration,
            acquire_time,
            renew_time: Some(now),
            leader_transitions,
        }
    }

    /// A write of the own record that was sent then has succeeded. Others count the lease from a later moment on.
    fn succeeded(&mut self, record: LeaderElectionRecord, sent: Instant) -> Attempt {
        self.lock.client().gate().open_until(sent + self.config.renew_deadline);
        self.metrics.leads(true);
        self.observe(record, sent);
        self.state.send_modify(|state| (state.is_leader, state.renewed) = (true, Some(sent)));
        Attempt::Succeeded
    }

    fn observe(&mut self, record: LeaderElectionRecord, at: Instant) {
        let holder = &record.holder_identity;
        if self.state.borrow().holder != *holder {
            if *holder != self.identity && !holder.is_empty() {
                tracing::info!(
                    lease = self.lock.describe(),
                    leader = holder,
                    "Standing by: another process leads"
                );
            }
            self.state.send_modify(|state| state.holder.clone_from(holder));
        }
        self.observed = Some(Observed { record, at });
    }

    /// Hands the lease over, if this process still holds it.
    async fn release(&mut self) {
        let release = async {
            loop {
                let Some(held) = self.lock.get().await? else { return Ok(false) };
                if held.holder_identity != self.identity {
                    return Ok(false);
                }
                let now = Some(self.clock.now());
                let record = LeaderElectionRecord {
                    holder_identity: String::new(),
                    lease_duration: Duration::from_secs(1),
                    acquire_time: now,
                    renew_time: now,
                    leader_transitions: held.leader_transitions,
                };
                match self.lock.update(&record).await {
                    Err(error) if error.is_conflict() => {}
                    outcome => return outcome.map(|()| true),
                }
            }
        };
        let outcome: Result<Result<bool, Error>, _> = tokio::time::timeout(RELEASE_TIMEOUT, release).await;
        let lease = self.lock.describe();
        match outcome {
            Ok(Ok(true)) => tracing::info!(lease, "Released the lease"),
            Ok(Ok(false)) => {}
            Ok(Err(error)) => tracing::warn!(lease, %error, "The lease could not be released; it expires"),
            Err(_) => tracing::warn!(lease, "The lease could not be released in time; it expires"),
        }
    }

    fn record_event(&self, note: &str) {
        self.recorder.event(
            self.lock.regarding(),
            EventType::Normal,
            "LeaderElection",
            "LeaderElection",
            note.to_owned(),
        );
    }
}

impl fmt::Debug for LeaderElector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LeaderElector").field("identity", &self.identity).finish_non_exhaustive()
    }
}

/// What came of a try.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Attempt {
    Succeeded,
    HeldByAnother,
    Failed,
}

/// Waits; returns early with `true` when it is stopped.
async fn is_stopped_within(time: Duration, stop: &CancellationToken) -> bool {
    tokio::select! {
        biased;
        () = stop.cancelled() => true,
        () = tokio::time::sleep(time) => false,
    }
}

// === impl Leadership ===

impl Leadership {
    /// Returns whether this process leads.
    #[must_use]
    pub fn is_leader(&self) -> bool {
        self.state.borrow().is_leader
    }

    /// Returns the holder that was observed last; empty if there is none.
    #[must_use]
    pub fn holder(&self) -> String {
        self.state.borrow().holder.clone()
    }

    /// Returns whether the Lease was ever read or written.
    #[must_use]
    pub fn is_known(&self) -> bool {
        self.state.borrow().is_known
    }

    /// Returns why the Lease cannot be read or written, if the last try failed.
    #[must_use]
    pub fn error(&self) -> Option<String> {
        self.state.borrow().error.clone()
    }

    /// Waits until this process leads; for ever, if it never does.
    ///
    /// # Cancel safety
    /// Cancel-safe.
    pub async fn acquired(&self) {
        let mut state = self.state.clone();
        if state.wait_for(|state| state.is_leader).await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    /// Checks that a leader renews its lease.
    ///
    /// # Errors
    /// A sentence for a person.
    pub fn check(&self) -> Result<(), String> {
        let state = self.state.borrow();
        match state.renewed.filter(|_| state.is_leader).map(|renewed| renewed.elapsed()) {
            Some(age) if age > self.lease_duration + HEALTH_TIMEOUT => {
                Err(format!("the lease is held, but was not renewed for {} s", age.as_secs()))
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
#[cfg(feature = "sim")]
mod tests;
