//! The flags of leader election, by Kubernetes' names.

use std::path::Path;
use std::time::Duration;

use super::super::{Failure, duration, namespaces};
use crate::api::shards::{Division, SHARDS_MAX, Sharding};
use crate::controller::Manager;
use crate::leader_election::{InvalidConfig, LeaderElectionConfig};

/// The file with the namespace of a Pod.
pub(super) const POD_NAMESPACE: &str = "/var/run/secrets/kubernetes.io/serviceaccount/namespace";

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Leader election")]
pub(super) struct ElectionFlags {
    /// Write only while this process holds the Lease: of several processes one works, and the others stand by with full
    /// caches. If false, never run two processes for the same namespaces
    #[arg(long, env = "WINDLASS_LEADER_ELECT", value_name = "BOOL", default_value_t = true,
          action = clap::ArgAction::Set, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    leader_elect: bool,

    /// Divide the namespaces among all processes of the same Lease, so that each works on its share: the number of shards,
    /// the same for all of them, above the number of processes that will ever run, such as 16. With 1, one process leads
    #[arg(long, env = "WINDLASS_SHARDS", value_name = "COUNT", default_value_t = 1,
          value_parser = clap::value_parser!(u16).range(1..=i64::from(SHARDS_MAX)))]
    shards: u16,

    /// Divide by ranges of Kubernetes' own hash, so that a server with the feature gate ShardedListAndWatch sends each
    /// process its share alone. Even only where the names of namespaces differ early: team-10 to team-99 stay together
    #[arg(long, env = "WINDLASS_SHARD_RANGES", value_name = "BOOL", default_value_t = false,
          action = clap::ArgAction::Set, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    shard_ranges: bool,

    /// How long a Lease must go without renewal before a standby takes it over, in whole seconds, at least 1s. Too
    /// short: a slow API server costs the leadership; too long: no process works for that long after the leader crashes
    #[arg(long, env = "WINDLASS_LEADER_ELECT_LEASE_DURATION", value_name = "DURATION", default_value = "15s",
          value_parser = duration::parse)]
    leader_elect_lease_duration: Duration,

    /// How long the leader may write without renewing the Lease, less than the lease duration; then it exits with 1.
    /// Too short: a slow API server costs the leadership; too long: a write in flight may arrive after a takeover
    #[arg(long, env = "WINDLASS_LEADER_ELECT_RENEW_DEADLINE", value_name = "DURATION", default_value = "10s",
          value_parser = duration::parse)]
    leader_elect_renew_deadline: Duration,

    /// How often the leader renews the Lease, and how long a standby waits at least between checks; 1.2 times this must
    /// be below the renew deadline. Too short: more requests; too long: a released Lease is taken over late
    #[arg(long, env = "WINDLASS_LEADER_ELECT_RETRY_PERIOD", value_name = "DURATION", default_value = "2s",
          value_parser = duration::parse)]
    leader_elect_retry_period: Duration,

    /// Name of the Lease: the same for processes that stand in for each other, different for those with separate work
    #[arg(long, env = "WINDLASS_LEADER_ELECT_RESOURCE_NAME", value_name = "NAME", default_value = "windlass",
          value_parser = namespaces::label)]
    leader_elect_resource_name: String,

    /// Namespace of the Lease; default: that of the Pod, or `default` outside a Pod or with --kubeconfig or --context
    #[arg(long, env = "WINDLASS_LEADER_ELECT_RESOURCE_NAMESPACE", value_name = "NAMESPACE",
          value_parser = namespaces::label)]
    leader_elect_resource_namespace: Option<String>,

    /// Release the Lease after an orderly stop, so that a standby takes over at its next check. If false, it waits for
    /// the lease duration
    #[arg(long, env = "WINDLASS_LEADER_ELECT_RELEASE_ON_CANCEL", value_name = "BOOL", default_value_t = true,
          action = clap::ArgAction::Set, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    leader_elect_release_on_cancel: bool,
}

/// The validated flags.
#[derive(Debug)]
pub(super) struct ElectionSettings {
    config: LeaderElectionConfig,
    namespace: String,
    name: String,
    sharding: Option<Sharding>,
}

impl ElectionSettings {
    /// Validates the flags; `None` without leader election. `is_outside`: a kubeconfig or context is given, so the
    /// process does not act for its Pod.
    pub(super) fn of(flags: &ElectionFlags, is_outside: bool) -> Result<Option<Self>, Failure> {
        if flags.shard_ranges && flags.shards == 1 {
            return Err(Failure::Usage {
                cause: "--shard-ranges says how shards are divided, and there is one".to_owned(),
                remedy: "Give --shards a number above 1, such as 16.".to_owned(),
            });
        }
        if !flags.leader_elect {
            if flags.shards > 1 {
                return Err(Failure::Usage {
                    cause: format!(
                        "--shards={} needs leader election: its Leases say who has which",
                        flags.shards
                    ),
                    remedy: "Leave out --leader-elect=false, or --shards.".to_owned(),
                });
            }
            return Ok(None);
        }
        let config = LeaderElectionConfig {
            lease_duration: flags.leader_elect_lease_duration,
            renew_deadline: flags.leader_elect_renew_deadline,
            retry_period: flags.leader_elect_retry_period,
            release_on_cancel: flags.leader_elect_release_on_cancel,
        };
        config.validate().map_err(|error| usage(&error))?;
        let of_pod = || std::fs::read_to_string(Path::new(POD_NAMESPACE)).ok().filter(|_| !is_outside);
        let namespace = flags.leader_elect_resource_namespace.clone().or_else(of_pod);
        let namespace = namespace.map(|text| text.trim().to_owned()).unwrap_or_else(|| "default".to_owned());
        let by = if flags.shard_ranges { Division::Range } else { Division::Hash };
        let sharding = (flags.shards > 1).then_some(Sharding { of: flags.shards, by });
        Ok(Some(Self { config, namespace, name: flags.leader_elect_resource_name.clone(), sharding }))
    }

    /// Makes the manager take part in the election.
    pub(super) fn set_up(self, manager: Manager) -> Result<Manager, Failure> {
        let Self { config, namespace, name, sharding } = self;
        let manager = manager.with_leader_election(namespace, name, config).map_err(|error| usage(&error))?;
        Ok(sharding.into_iter().fold(manager, Manager::with_shards))
    }
}

fn usage(error: &InvalidConfig) -> Failure {
    let remedy = match error {
        InvalidConfig::LeaseDuration(_) => {
            "Give --leader-elect-lease-duration in whole seconds, such as 15s."
        }
        InvalidConfig::RenewDeadline { .. } => {
            "Raise --leader-elect-lease-duration or lower --leader-elect-renew-deadline."
        }
        InvalidConfig::RetryPeriod { .. } => {
            "Raise --leader-elect-renew-deadline or lower --leader-elect-retry-period."
        }
        InvalidConfig::NoRetryPeriod => "Give --leader-elect-retry-period at least 1ms, such as 2s.",
    };
    Failure::Usage { cause: format!("leader election: {error}"), remedy: remedy.to_owned() }
}
