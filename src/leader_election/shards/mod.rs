//! The election of many shards: of several processes, each writes in its own share of the namespaces.
//!
//! client-go elects one leader for everything; nothing there does this. The shards are those of [`api::shards`](crate::api::shards).
//!
//! # How it works
//! ```text
//! member: renew own Lease ─▶ list all Leases ─▶ hold the set's Lease ─▶ extend the fence ─▶ take free shards, give up surplus
//!    ▲                                                                                                          │
//!    └──────────────────────────────────────── every retry period ◀─────────────────────────────────────────────┘
//! ```
//! A shard's Lease says who holds it, and is written only when that changes. It is valid as long as its holder is: a member
//! whose Lease has not changed for a lease duration, on the clock of the one who looks, may write no more, and its shards
//! are free. A member that could not renew in time gives up all its shards, and takes each by another write, with which
//! the write of whoever took it meanwhile is in conflict. The [`Gate`](crate::client::Gate) is the fence, for each namespace.
//!
//! The set's own Lease has the name of a single leader's: so one leader, and sets of another number of shards, wait for
//! each other. It is renewed by whichever member finds it old. The fence ends with the earlier of both renewals.
//!
//! # Guarantees
//! - Two processes never may write in one shard at once, whatever is delayed or lost; in the end each shard has a writer, and
//!   shares differ by at most one. (test: `never_two_write_in_a_shard_and_one_eventually_does`)
//! - The shards of a process that is gone are taken after the lease duration. (test: `shards_of_a_dead_member_are_taken`)
//! - A new member gets its share, and a shard is released when its syncs in flight have ended. (test: `new_member_gets_its_share`)
//! - Shards that are released are taken within two retry periods. (test: `released_shards_are_taken_soon`)
//! - One leader, or a set of another number of shards, stands by while this one lives.
//!   (test: `sets_and_single_leaders_wait_for_each_other`)
//! - At rest a member sends one write and one list a retry period, and the set's Lease costs at most one more.
//!   (test: `membership_costs_a_write_and_a_list`)
//! - The Lease of a member that ended without a word is deleted in the end. (test: `lease_of_a_dead_member_is_deleted`)

mod board;
mod elector;
mod overview;
mod plan;

pub use board::{COUNT, SET};
pub use elector::ShardElector;
pub use overview::{Overview, Renewal, overview, shards_of_holder};

/// Returns an identity for this process as a member, and its random part, which no other process has.
#[must_use]
pub fn member_identity() -> (String, u64) {
    let id = fastrand::u64(..);
    (format!("{}_{id:016x}", crate::record::instance()), id)
}

#[cfg(test)]
#[cfg(feature = "sim")]
mod tests;
