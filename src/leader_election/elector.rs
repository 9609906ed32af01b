//! The elector: acquires the lease, renews it, releases it.
//!
//! Mirrors client-go `tools/leaderelection/leaderelection.go` (`acquire`, `renew`, `tryAcquireOrRenew`, `release`) and
//! `healthzadaptor.go`.
//! Chapter 9 of `docs/book` builds this from nothing.

use std::fmt;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::lease_lock::{LeaderElectionRecord, LeaseLock};
use crate::client::{Clock, Error, Moment};
use crate::metrics::LeaderElectionMetrics;
use crate::record::{EventRecorder, EventType};

/// Jitter between attempts to acquire: a candidate waits the retry period times 1 to 2.2.
const JITTER: f64 = 1.2;
/// Time limit of a release, as the process is about to end.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(5);
/// How often the log repeats that the lease cannot be acquired.
const REMINDER: Duration = Duration::from_secs(60);
/// A leader is unhealthy if it has not renewed its lease for the lease duration plus this time.
const HEALTH_TIMEOUT: Duration = Duration::from_secs(20);

/// The times of an election, with the defaults of Kubernetes' own components.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaderElectionConfig {
    /// How long a lease must go unrenewed before a candidate takes it over, in whole seconds.
    pub lease_duration: Duration,
    /// How long the leader may write without a renewal.
    pub renew_deadline: Duration,
    /// How often the leader renews, and the minimum time between a candidate's attempts.
    pub retry_period: Duration,
    /// Whether an orderly stop releases the lease.
    pub release_on_cancel: bool,
}

/// A configuration that could elect two leaders, or none for long.
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
    /// A single failed attempt would lose the lease.
    #[error(
        "the retry period ({retry_period:?}) times 1.2 must be below the renew deadline ({renew_deadline:?})"
    )]
    RetryPeriod {
        /// As given.
        retry_period: Duration,
        /// As given.
        renew_deadline: Duration,
    },
    /// There would be no pause between attempts.
    #[error("the retry period must not be zero")]
    NoRetryPeriod,
}

/// How an election ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// The election was stopped by its token; the lease is released if the configuration says so.
    Stopped,
    /// Leadership is lost: another process leads, or may soon.
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
    /// The error that was last logged as a warning, and when.
    logged: Option<(String, Instant)>,
    state: watch::Sender<LeaderState>,
}

/// An election record, and when this process first observed it.
struct Observed {
    record: LeaderElectionRecord,
    at: Instant,
}

/// The state that [`Leadership`] shows.
#[derive(Clone, Debug, Default)]
pub(super) struct LeaderState {
    /// The last observed holder; empty before the first observation and after a release.
    pub(super) holder: String,
    pub(super) is_leader: bool,
    /// When the leader's last successful renewal was sent.
    pub(super) renewed: Option<Instant>,
    /// Whether the Lease was ever read or written.
    pub(super) is_known: bool,
    /// The error of the last attempt, if it failed.
    pub(super) error: Option<String>,
}

/// Tells whether this process leads. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Leadership {
    state: watch::Receiver<LeaderState>,
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
    /// Checks that a leader stops before a candidate takes over, and can retry a failed renewal.
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

    /// Returns the time limit of one attempt, chosen as Kubernetes' components do.
    pub(super) fn request_timeout(&self) -> Duration {
        (self.renew_deadline / 2).max(Duration::from_secs(1)).min(self.renew_deadline)
    }
}

// === impl LeaderElector ===

impl LeaderElector {
    /// Creates a candidate and closes the gate of the lock's client: nothing is written before the lease is acquired. No
    /// other process may have the same `identity`.
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
            state: watch::Sender::new(LeaderState::default()),
        })
    }

    /// Stamps records with this clock. Nothing else depends on it.
    #[must_use]
    pub fn with_clock(self, clock: Clock) -> Self {
        Self { clock, ..self }
    }

    /// Returns a handle that tells whether this process leads.
    #[must_use]
    pub fn leadership(&self) -> Leadership {
        Leadership::new(self.state.subscribe(), self.config.lease_duration)
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

    /// Attempts to acquire or renew once. Returns `None` if stopped meanwhile; the outcome of its write is then unknown.
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

    /// Logs a failed attempt: as a warning if the error is new, and once a minute while it lasts.
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
            let sent = self.lock.client().gate().now();
            match self.lock.update(&renewal).await {
                Ok(()) => return Ok(self.succeeded(renewal, sent)),
                Err(error) => tracing::debug!(%error, "Reads the lease again, as it could not be renewed"),
            }
        }
        let Some(held) = self.lock.get().await? else {
            let record = self.own_record(None);
            let sent = self.lock.client().gate().now();
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
        let sent = self.lock.client().gate().now();
        self.lock.update(&record).await?;
        Ok(self.succeeded(record, sent))
    }

    /// Returns the record that makes this process the leader, in place of `held`.
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

    /// Extends the fence after a successful write, counted from when it was sent: other candidates count from a later
    /// time.
    fn succeeded(&mut self, record: LeaderElectionRecord, sent: Moment) -> Attempt {
        self.lock.client().gate().open_until(sent + self.config.renew_deadline);
        self.metrics.leads(true);
        self.observe(record, sent.at);
        self.state.send_modify(|state| (state.is_leader, state.renewed) = (true, Some(sent.at)));
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

    /// Releases the lease if this process still holds it.
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

/// The outcome of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Attempt {
    Succeeded,
    HeldByAnother,
    Failed,
}

/// Waits; returns `true` early if stopped.
async fn is_stopped_within(time: Duration, stop: &CancellationToken) -> bool {
    tokio::select! {
        biased;
        () = stop.cancelled() => true,
        () = tokio::time::sleep(time) => false,
    }
}

// === impl Leadership ===

impl Leadership {
    pub(super) fn new(state: watch::Receiver<LeaderState>, lease_duration: Duration) -> Self {
        Self { state, lease_duration }
    }

    /// Returns whether this process leads.
    #[must_use]
    pub fn is_leader(&self) -> bool {
        self.state.borrow().is_leader
    }

    /// Returns the last observed holder; empty if there is none.
    #[must_use]
    pub fn holder(&self) -> String {
        self.state.borrow().holder.clone()
    }

    /// Returns whether the Lease was ever read or written.
    #[must_use]
    pub fn is_known(&self) -> bool {
        self.state.borrow().is_known
    }

    /// Returns the error of the last attempt, if it failed.
    #[must_use]
    pub fn error(&self) -> Option<String> {
        self.state.borrow().error.clone()
    }

    /// Waits until this process leads, forever if it never does.
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
    /// A message for `/livez`.
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
