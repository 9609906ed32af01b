//! Leader election: of several processes, one at a time may write.
//!
//! Mirrors client-go `tools/leaderelection` with a Lease as its lock; coordinated election is left out.
//!
//! # How it works
//! ```text
//! candidate ─ GET Lease ─┬─ missing, released or expired ─ write own identity ─▶ leader ─ renew every retry period ─┐
//!        ▲               └─ held: wait a retry period      (conflict: wait)        ▲                                │
//!        └──────────────────────────────────────────────────────────────────────────┴── in time ◀──────────────────┤
//!                       process ends ◀─ lost ◀─ another holder, or no success within the renew deadline ◀───────────┘
//! ```
//! A candidate measures on its own monotonic clock how long the record has not changed; times written by others are
//! never compared, so wall clocks may differ. The [`Gate`](crate::client::Gate) of the client is the fence: each success opens it
//! until the renew deadline, and nothing but the next success extends that.
//!
//! # Guarantees
//! - No write begins after the renew deadline, also when the process was frozen. (test: `no_write_begins_after_the_renew_deadline`, `write_held_past_the_deadline_is_not_sent`)
//! - Two processes never may write at once, whatever is delayed or lost. (test: `never_two_write_and_one_eventually_does`)
//! - A lease that is held is taken over after it has not changed for its whole duration. (test: `expired_lease_is_taken_over`)
//! - A released lease is taken over at the next try. (test: `released_lease_is_taken_over_at_once`)
//! - Renewing costs one request per retry period. (test: `renewal_is_one_update`)
//! - Only the holder releases its lease. (test: `successors_lease_is_not_released`)
//!
//! # Differences from client-go
//! Leadership is fenced: client-go's leader may still write after the deadline. Another holder ends leadership at once,
//! without waiting for the deadline. Release checks who holds the lease, and comes after the work has ended.

mod elector;
mod lease_lock;
pub mod shards;
#[cfg(test)]
#[cfg(feature = "sim")]
mod tests;

pub use elector::{Ending, InvalidConfig, LeaderElectionConfig, LeaderElector, Leadership};
pub use lease_lock::{LeaderElectionRecord, LeaseLock};

/// Returns an identity for this process: host name and process id, with a random part that no other process has.
#[must_use]
pub fn identity() -> String {
    format!("{}_{:016x}", crate::record::instance(), fastrand::u64(..))
}
