//! A member: renews its Lease, takes its share of the shards, gives up what is too much; see the module.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::board::{Board, Record, duration, holder, version};
use super::plan::{Plan, plan};
use crate::client::shards::{Change, Shards};
use crate::client::{ApiClient, Clock, Error, Moment};
use crate::leader_election::elector::LeaderState;
use crate::leader_election::{Ending, InvalidConfig, LeaderElectionConfig, Leadership};
use crate::metrics::LeaderElectionMetrics;

/// A member's Lease that nobody has renewed for this many lease durations is deleted.
const FORGOTTEN: u32 = 20;
/// Time limit of a release, as the process is about to end.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(5);

/// Takes part in the election of many shards; see the [module](super).
pub struct ShardElector {
    board: Board,
    /// The name of this member's Lease.
    member: String,
    identity: String,
    config: LeaderElectionConfig,
    /// How long a shard that is given up waits for its syncs in flight.
    drain_timeout: Duration,
    shards: Shards,
    clock: Clock,
    metrics: LeaderElectionMetrics,
    /// When the last successful renewal of this member's Lease was sent.
    renewed: Option<Moment>,
    /// Whether the Lease of this member had been there for a retry period: others know it.
    is_known: bool,
    set: SetLease,
    /// When the shards are lost without another renewal.
    deadline: Option<Moment>,
    /// Other members, and holders without a member's Lease.
    others: BTreeMap<String, Observed>,
    /// When the shards began to be given up.
    draining: BTreeMap<u16, Instant>,
    /// The shards whose fence is closed already, as they are being released.
    releasing: BTreeSet<u16>,
    state: watch::Sender<LeaderState>,
}

/// What is known of the set's own Lease.
#[derive(Debug, Default)]
struct SetLease {
    /// Its version, and when this process first saw it.
    seen: Option<(String, Instant)>,
    /// When the last list that succeeded was sent.
    listed: Option<Moment>,
    /// A time before which the last renewal by a member was not made.
    renewed: Option<Moment>,
}

/// A version of a member's Lease, and when this process first saw it.
#[derive(Debug)]
struct Observed {
    /// `None` while there is no such Lease.
    version: Option<String>,
    at: Instant,
    lease_duration: Duration,
    /// Whether it knows of other shards.
    is_foreign: bool,
}

impl Observed {
    /// Whether the member may write no more, judged by a list that was sent at this time.
    fn is_over(&self, sent: Instant) -> bool {
        self.is_foreign || sent >= self.at + self.lease_duration
    }
}

// === impl ShardElector ===

impl ShardElector {
    /// Creates a member that holds no shard, and closes the gate of the client. `id` is random, and part of no other
    /// member's name.
    ///
    /// # Errors
    /// [`InvalidConfig`].
    pub fn new(
        client: ApiClient,
        (namespace, name): (String, String),
        (identity, id): (String, u64),
        config: LeaderElectionConfig,
        shards: Shards,
        metrics: LeaderElectionMetrics,
    ) -> Result<Self, InvalidConfig> {
        config.validate()?;
        metrics.leads(false);
        let board = Board::new(client, namespace, name, shards.sharding());
        let nothing = Arc::new(shards.sharding().set([]));
        let gate = board.client().gate();
        gate.open_shards_until(gate.now(), nothing);
        Ok(Self {
            member: board.member_name(id),
            board,
            identity,
            config,
            drain_timeout: config.lease_duration,
            shards,
            clock: Clock::system(),
            metrics,
            renewed: None,
            is_known: false,
            set: SetLease::default(),
            deadline: None,
            others: BTreeMap::new(),
            draining: BTreeMap::new(),
            releasing: BTreeSet::new(),
            state: watch::Sender::new(LeaderState::default()),
        })
    }

    /// Stamps Leases with this clock. Nothing else depends on it.
    #[must_use]
    pub fn with_clock(self, clock: Clock) -> Self {
        Self { clock, ..self }
    }

    /// Sets how long a shard that is given up waits for its syncs in flight.
    #[must_use]
    pub fn with_drain_timeout(self, drain_timeout: Duration) -> Self {
        Self { drain_timeout, ..self }
    }

    /// Returns a handle that tells whether this process holds any shard.
    #[must_use]
    pub fn leadership(&self) -> Leadership {
        Leadership::new(self.state.subscribe(), self.config.lease_duration)
    }

    /// Takes part until `release`; then gives up all shards. From `stopping` on no shard is taken. Cancel `release` after
    /// the work has ended: from then on other processes may write.
    ///
    /// # Cancel safety
    /// Not cancel-safe: dropped, it leaves the gate open until the renew deadline, and the Leases to expire.
    pub async fn run(mut self, stopping: CancellationToken, release: CancellationToken) -> Ending {
        let mut changes = self.shards.changes();
        loop {
            let next = Instant::now() + self.config.retry_period;
            let is_stopped = tokio::select! {
                biased;
                () = release.cancelled() => true,
                () = self.round(stopping.is_cancelled()) => false,
            };
            if is_stopped {
                break;
            }
            let is_stopped = loop {
                let deadline = self.deadline.map_or(next, |deadline| deadline.at.max(Instant::now()));
                tokio::select! {
                    biased;
                    () = release.cancelled() => break true,
                    () = tokio::time::sleep_until(next.min(deadline)) => {
                        self.lose_if_late();
                        if Instant::now() >= next {
                            break false;
                        }
                        self.deadline = None;
                    }
                    () = changes.next() => {
                        if self.may_release() {
                            break false;
                        }
                    }
                }
            };
            if is_stopped {
                break;
            }
        }
        self.leave().await;
        Ending::Stopped
    }

    /// Renews, looks at who is there, and acts on it, in limited time.
    async fn round(&mut self, is_stopping: bool) {
        let limit = self.config.request_timeout();
        let outcome = tokio::time::timeout(limit, self.try_round(is_stopping)).await;
        let error = match outcome {
            Ok(Ok(())) => None,
            Ok(Err(error)) => Some(error.to_string()),
            Err(_) => Some(format!("no answer within {limit:?}")),
        };
        if let Some(error) = &error {
            let is_new = self.state.borrow().error.as_ref() != Some(error);
            let lease = self.board.describe();
            if is_new {
                tracing::warn!(lease, error, "Could not renew the membership of the shards; retrying");
            } else {
                tracing::debug!(lease, error, "Could not renew the membership of the shards; retrying");
            }
        }
        let holds = !self.shards.held().is_empty();
        let holder = if holds { self.identity.clone() } else { self.holder_of_set() };
        if !holds
            && holder != self.board.set_identity()
            && self.state.borrow().holder != holder
            && !holder.is_empty()
        {
            tracing::info!(
                lease = self.board.describe(),
                holder,
                shards = %self.shards.sharding(),
                "Standing by: another process leads, or others have other shards"
            );
        }
        self.metrics.leads(holds);
        self.state.send_modify(|state| {
            state.is_known |= error.is_none();
            state.error = error;
            state.is_leader = holds;
            state.holder = holder;
            state.renewed = self.renewed.map(|renewed| renewed.at);
        });
    }

    async fn try_round(&mut self, is_stopping: bool) -> Result<(), Error> {
        self.renew().await?;
        let (sent, sent_at) = (self.now(), Instant::now());
        self.board.read().await?;
        self.observe();
        let holds_set = self.hold_set(sent).await;
        self.set.listed = Some(sent);
        if !holds_set? {
            self.lose_all();
            self.shards.saw_holders(None);
            return Ok(());
        }
        self.extend();
        self.check_held();
        self.release_drained().await;
        let was_known = std::mem::replace(&mut self.is_known, true);
        if was_known && !is_stopping {
            self.settle(sent_at).await;
        }
        self.forget_members().await
    }

    /// Renews this member's Lease.
    async fn renew(&mut self) -> Result<(), Error> {
        let sent = self.now();
        let (identity, now) = (self.identity.clone(), self.clock.now());
        let record = Record {
            holder: &identity,
            lease_duration: Some(self.config.lease_duration),
            renewed: Some(now),
            now,
        };
        let member = self.member.clone();
        match self.board.put(&member, &record).await {
            Ok(()) => self.renewed = Some(sent),
            // A write that seemed to fail, or somebody's edit. The list of this round has the version.
            Err(error) if error.is_conflict() || error.is_not_found() || error.is_already_exists() => {
                self.metrics.slow_path();
                self.board.read().await?;
                let sent = self.now();
                self.board.put(&member, &record).await?;
                self.renewed = Some(sent);
            }
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// Notes which members' Leases have changed since the last list.
    fn observe(&mut self) {
        let now = Instant::now();
        let mut seen: BTreeMap<String, (Option<String>, Option<Duration>, bool)> = BTreeMap::new();
        for shard in 0..self.shards.of() {
            seen.insert(self.board.holder_of(shard).to_owned(), (None, None, false));
        }
        for member in self.board.members() {
            let is_foreign = !self.board.is_of_this_set(member);
            seen.insert(holder(member).to_owned(), (Some(version(member)), duration(member), is_foreign));
        }
        seen.remove("");
        seen.remove(&self.identity);
        let mut before = std::mem::take(&mut self.others);
        for (name, (version, lease_duration, is_foreign)) in seen {
            let known = before.remove(&name);
            let lease_duration = lease_duration
                .or(known.as_ref().map(|known| known.lease_duration))
                .unwrap_or(self.config.lease_duration);
            let at = known.filter(|known| known.version == version).map_or(now, |known| known.at);
            self.others.insert(name, Observed { version, at, lease_duration, is_foreign });
        }
    }

    /// Holds the set's Lease together with the other members; returns whether it is held.
    async fn hold_set(&mut self, sent: Moment) -> Result<bool, Error> {
        let (name, ours) = (self.board.set_name(), self.board.set_identity());
        let (now, retry) = (Instant::now(), self.config.retry_period);
        let lease = self.board.lease(&name);
        let current = lease.map(version);
        let is_held_by = lease.map(holder).unwrap_or_default().to_owned();
        let lease_duration = lease.and_then(duration).unwrap_or(self.config.lease_duration);
        let is_seen =
            matches!((&self.set.seen, &current), (Some((seen, _)), Some(version)) if seen == version);
        if !is_seen {
            // It was written since the last list was sent.
            let since = self.set.listed.filter(|_| self.set.seen.is_some());
            let known = self.set.renewed.filter(|known| since.is_none_or(|since| since.min(*known) == since));
            self.set.renewed = known.or(since).filter(|_| is_held_by == ours);
            self.set.seen = current.map(|version| (version, now));
        }
        if !is_held_by.is_empty() && is_held_by != ours {
            let unchanged_for = self
                .set
                .seen
                .as_ref()
                .map_or(Duration::ZERO, |(_, at)| sent.at.saturating_duration_since(*at));
            if unchanged_for < lease_duration {
                self.set.renewed = None;
                return Ok(false);
            }
        }
        let is_fresh = self.set.renewed.is_some_and(|renewed| self.gate_is_before(renewed + 2 * retry));
        if is_held_by == ours && is_fresh {
            return Ok(true);
        }
        let (written_from, stamp) = (self.now(), self.clock.now());
        let record = Record {
            holder: &ours,
            lease_duration: Some(self.config.lease_duration),
            renewed: Some(stamp),
            now: stamp,
        };
        match self.board.put(&name, &record).await {
            Ok(()) => {
                self.set.renewed = Some(written_from);
                self.set.seen = self.board.lease(&name).map(|lease| (version(lease), Instant::now()));
                if is_held_by != ours {
                    tracing::info!(
                        lease = self.board.describe(),
                        holder = ours,
                        "The set of shards holds the Lease"
                    );
                }
                Ok(true)
            }
            // Another member was first.
            Err(error) if error.is_conflict() || error.is_already_exists() => {
                Ok(is_held_by == ours && self.set.renewed.is_some())
            }
            Err(error) => Err(error),
        }
    }

    /// Extends the fence after successful renewals of this member's Lease and of the set's.
    fn extend(&mut self) {
        self.lose_if_late();
        let (Some(member), Some(set)) = (self.renewed, self.set.renewed) else { return };
        self.deadline = Some(member.min(set) + self.config.renew_deadline);
        self.fence();
    }

    /// Opens the gate for what is held, until the deadline.
    fn fence(&self) {
        let Some(deadline) = self.deadline else { return };
        let open = self.shards.held();
        let open = open.iter().filter(|shard| !self.releasing.contains(shard));
        let open = Arc::new(self.shards.sharding().set(open));
        self.board.client().gate().open_shards_until(deadline, open);
    }

    /// Gives up all shards if the deadline is over: others may have taken them.
    fn lose_if_late(&mut self) {
        if self.deadline.is_some_and(|deadline| !self.gate_is_before(deadline)) {
            self.lose_all();
        }
    }

    fn lose_all(&mut self) {
        let held: Vec<u16> = self.shards.held().iter().collect();
        self.lose(&held);
    }

    fn lose(&mut self, lost: &[u16]) {
        if lost.is_empty() {
            return;
        }
        tracing::warn!(lease = self.board.describe(), shards = ?lost, "Lost shards: another process may hold them");
        self.shards.gone(lost, Change::Lost);
        for shard in lost {
            self.draining.remove(shard);
            self.releasing.remove(shard);
        }
        self.fence();
    }

    /// Gives up the shards that another process has taken, and forgets those that were released by a write whose answer
    /// was lost.
    fn check_held(&mut self) {
        let held = self.shards.held();
        let not_ours: Vec<u16> =
            held.iter().filter(|shard| self.board.holder_of(*shard) != self.identity).collect();
        let (released, lost): (Vec<u16>, Vec<u16>) =
            not_ours.into_iter().partition(|shard| self.releasing.contains(shard));
        self.released(&released);
        self.lose(&lost);
    }

    /// Takes and gives up what the plan says, judged by a list that was sent at this time.
    async fn settle(&mut self, sent: Instant) {
        let others: BTreeMap<&str, &Observed> =
            self.others.iter().map(|(name, other)| (name.as_str(), other)).collect();
        let may_write =
            |name: &str| name == self.identity || others.get(name).is_some_and(|other| !other.is_over(sent));
        let is_member = |other: &Observed| other.version.is_some() && !other.is_over(sent);
        let mut members: BTreeSet<&str> =
            others.iter().filter(|(_, other)| is_member(other)).map(|(name, _)| *name).collect();
        members.insert(&self.identity);
        let held = self.shards.held();
        let holders: Vec<Option<&str>> = (0..self.shards.of())
            .map(|shard| Some(self.board.holder_of(shard)).filter(|name| !name.is_empty() && may_write(name)))
            .collect();
        let Plan { mut take, give_up } = plan(&self.identity, &members, &holders);
        // Shards that were lost, and writes whose answers were: another write tells whether they are still ours.
        let is_ours_by_name =
            |shard: &u16| holders[usize::from(*shard)] == Some(&*self.identity) && !held.has(*shard);
        let (surplus, ours): (Vec<u16>, Vec<u16>) =
            (0..self.shards.of()).filter(is_ours_by_name).partition(|shard| give_up.contains(shard));
        take.extend(ours);
        let known = (0..).zip(&holders).filter_map(|(shard, holder)| Some((shard, (*holder)?.to_owned())));
        let known: BTreeMap<u16, String> = known.collect();
        let begun =
            give_up.into_iter().filter(|shard| held.has(*shard) && !self.draining.contains_key(shard));
        let begun: Vec<u16> = begun.collect();
        // A sync that was in flight when its shard was lost has to end first.
        let take: Vec<u16> = take.into_iter().filter(|shard| self.shards.is_idle(*shard)).collect();
        self.shards.saw_holders(Some(known));
        if !begun.is_empty() {
            tracing::info!(lease = self.board.describe(), shards = ?begun, "Giving up shards: other members have fewer");
        }
        for shard in begun {
            self.draining.insert(shard, Instant::now());
            self.shards.drain(shard);
        }
        self.write_released(&surplus).await;
        if !take.is_empty() {
            let (identity, now) = (self.identity.clone(), self.clock.now());
            let record = Record { holder: &identity, lease_duration: None, renewed: None, now };
            let taken = self.board.put_shards(&take, &record).await;
            if !taken.is_empty() {
                tracing::info!(lease = self.board.describe(), shards = ?taken, "Took shards");
            }
            if self.deadline.is_some_and(|deadline| self.gate_is_before(deadline)) {
                self.shards.acquired(&taken);
                self.fence();
            }
        }
        self.release_drained().await;
    }

    /// Whether a shard that is given up has no sync in flight, so that it can be released.
    fn may_release(&self) -> bool {
        self.draining.keys().any(|shard| self.shards.is_idle(*shard) && !self.releasing.contains(shard))
    }

    /// Releases the shards that are given up and have no sync in flight any more.
    async fn release_drained(&mut self) {
        let mut ready = Vec::new();
        for (shard, since) in &self.draining {
            let (is_idle, waited) = (self.shards.is_idle(*shard), since.elapsed());
            // A request that is cut may still arrive: as long as a lost leader's.
            let is_over = waited >= self.drain_timeout + self.config.lease_duration;
            if is_idle || waited >= self.drain_timeout {
                self.releasing.insert(*shard);
            }
            if is_idle || is_over {
                ready.push(*shard);
            }
        }
        self.fence();
        if ready.is_empty() {
            return;
        }
        let released = self.write_released(&ready).await;
        self.released(&released);
    }

    async fn write_released(&mut self, shards: &[u16]) -> Vec<u16> {
        let now = self.clock.now();
        let record = Record { holder: "", lease_duration: None, renewed: None, now };
        self.board.put_shards(shards, &record).await
    }

    fn released(&mut self, shards: &[u16]) {
        if shards.is_empty() {
            return;
        }
        tracing::info!(lease = self.board.describe(), ?shards, "Released shards");
        self.shards.gone(shards, Change::Released);
        for shard in shards {
            self.draining.remove(shard);
            self.releasing.remove(shard);
        }
        self.fence();
    }

    /// Deletes the Leases of members that ended long ago without doing so.
    async fn forget_members(&mut self) -> Result<(), Error> {
        let is_long_gone = |other: &Observed| {
            other.version.is_some() && other.at.elapsed() >= FORGOTTEN * other.lease_duration
        };
        let gone =
            self.board.members().filter(|member| self.others.get(holder(member)).is_some_and(is_long_gone));
        let gone: Vec<String> = gone.filter_map(|member| member.metadata.name.clone()).collect();
        for name in gone {
            match self.board.delete(&name).await {
                // It lives, or another member was first.
                Err(error) if error.is_conflict() => {}
                outcome => outcome?,
            }
        }
        Ok(())
    }

    /// Gives up everything, and the set's Lease if nobody else is left.
    async fn leave(mut self) {
        let held: Vec<u16> = self.shards.held().iter().collect();
        self.shards.gone(&held, Change::Released);
        self.board.client().gate().close();
        self.metrics.leads(false);
        self.state.send_modify(|state| state.is_leader = false);
        if !self.config.release_on_cancel {
            return;
        }
        let lease = self.board.describe();
        match tokio::time::timeout(RELEASE_TIMEOUT, self.try_leave()).await {
            Ok(Ok(())) => tracing::info!(lease, shards = ?held, "Released all shards"),
            Ok(Err(error)) => tracing::warn!(lease, %error, "The shards could not be released; they expire"),
            Err(_) => tracing::warn!(lease, "The shards could not be released in time; they expire"),
        }
    }

    async fn try_leave(&mut self) -> Result<(), Error> {
        let (member, set) = (self.member.clone(), self.board.set_name());
        self.board.read().await?;
        self.release_by_name().await;
        self.board.delete(&member).await?;
        let sent = Instant::now();
        self.board.read().await?;
        self.release_by_name().await;
        self.observe();
        let is_alone = self.others.values().all(|other| other.is_over(sent));
        if is_alone && self.board.lease(&set).map(holder) == Some(&*self.board.set_identity()) {
            let now = self.clock.now();
            let record =
                Record { holder: "", lease_duration: Some(Duration::from_secs(1)), renewed: Some(now), now };
            match self.board.put(&set, &record).await {
                // Another member leaves or comes at the same time.
                Err(error) if error.is_conflict() => {}
                outcome => outcome?,
            }
        }
        Ok(())
    }

    /// Releases all shards whose Leases name this member: also those of which it has not heard that it took them.
    async fn release_by_name(&mut self) {
        let is_ours = |shard: &u16| self.board.holder_of(*shard) == self.identity;
        let ours: Vec<u16> = (0..self.shards.of()).filter(is_ours).collect();
        self.write_released(&ours).await;
    }

    /// Returns who holds the set's Lease, as last seen; empty for nobody.
    fn holder_of_set(&self) -> String {
        self.board.lease(&self.board.set_name()).map(holder).unwrap_or_default().to_owned()
    }

    fn now(&self) -> Moment {
        self.board.client().gate().now()
    }

    fn gate_is_before(&self, deadline: Moment) -> bool {
        self.board.client().gate().is_before(deadline)
    }
}

impl fmt::Debug for ShardElector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ShardElector").field("identity", &self.identity).finish_non_exhaustive()
    }
}
