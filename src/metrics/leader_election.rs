//! Metrics of leader election, under client-go's names.

use std::sync::atomic::AtomicI64;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use super::{Counters, Labels};

/// The metric families of leader elections.
#[derive(Debug)]
pub(super) struct LeaderElections {
    master_status: Family<Labels, Gauge<i64, AtomicI64>>,
    slowpath: Counters,
}

/// The metrics of one Lease.
#[derive(Clone, Debug)]
pub struct LeaderElectionMetrics {
    master_status: Gauge<i64, AtomicI64>,
    slowpath: Counter,
}

// === impl LeaderElections ===

impl LeaderElections {
    pub(super) fn register(registry: &mut Registry) -> Self {
        let this = Self { master_status: Family::default(), slowpath: Counters::default() };
        let help = "Whether this process leads: 1 for the leader, 0 for a standby";
        registry.register("leader_election_master_status", help, this.master_status.clone());
        let help = "Renewals of the own Lease that needed an extra read";
        registry.register("leader_election_slowpath", help, this.slowpath.clone());
        this
    }

    pub(super) fn of(&self, lease: &str) -> LeaderElectionMetrics {
        let labels: Labels = vec![("name", lease.to_owned())];
        LeaderElectionMetrics {
            master_status: self.master_status.get_or_create_owned(&labels),
            slowpath: self.slowpath.get_or_create_owned(&labels),
        }
    }
}

// === impl LeaderElectionMetrics ===

impl LeaderElectionMetrics {
    /// Creates metrics that are not exported.
    #[must_use]
    pub fn unread() -> Self {
        Self { master_status: Gauge::default(), slowpath: Counter::default() }
    }

    /// Sets whether this process leads.
    pub fn leads(&self, is_leader: bool) {
        self.master_status.set(i64::from(is_leader));
    }

    /// Counts a renewal that had to read the lease.
    pub fn slow_path(&self) {
        self.slowpath.inc();
    }
}
