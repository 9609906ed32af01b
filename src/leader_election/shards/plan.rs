//! Which shards a member takes and gives up: a pure function of who is there and who holds what.
//!
//! All members compute the same from the same state, so they do not compete for the same shards; where they have seen
//! different states, the Leases decide.
//!
//! # Guarantees
//! - In the end each shard has one holder, and shares differ by at most one. (test: `shares_differ_by_at_most_one`)
//! - A shard moves only if its holder has more than its share. (test: `no_more_shards_move_than_needed`)

use std::collections::{BTreeMap, BTreeSet};

use crate::api::shards::{hash, mixed};

/// What one member shall do.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Plan {
    /// The shards to take: nobody holds them.
    pub(super) take: BTreeSet<u16>,
    /// The shards to give up.
    pub(super) give_up: BTreeSet<u16>,
}

/// Plans for `me`, one of the `members`. `holders` has the member that holds each shard, or `None` if it is free.
pub(super) fn plan(me: &str, members: &BTreeSet<&str>, holders: &[Option<&str>]) -> Plan {
    let shares = shares(members, holders);
    let mut plan = Plan::default();
    let mine: Vec<u16> =
        (0..).zip(holders).filter(|(_, holder)| **holder == Some(me)).map(|(shard, _)| shard).collect();
    if let Some(surplus) = mine.len().checked_sub(shares.get(me).copied().unwrap_or_default()) {
        let mut by_weight = mine;
        by_weight.sort_by_key(|shard| weight(me, *shard));
        plan.give_up = by_weight.into_iter().take(surplus).collect();
    }
    let mut wanted: BTreeMap<&str, usize> = BTreeMap::new();
    for (member, share) in &shares {
        wanted.insert(member, share.saturating_sub(held(member, holders)));
    }
    for (shard, _) in (0..).zip(holders).filter(|(_, holder)| holder.is_none()) {
        let heaviest = wanted.iter_mut().filter(|(_, wanted)| **wanted > 0);
        let Some((member, wanted)) = heaviest.max_by_key(|(member, _)| weight(member, shard)) else { break };
        *wanted -= 1;
        if *member == me {
            plan.take.insert(shard);
        }
    }
    plan
}

/// Returns how many shards each member shall hold. Those that hold most have one more than others, if the number does not
/// divide evenly.
fn shares<'a>(members: &BTreeSet<&'a str>, holders: &[Option<&str>]) -> BTreeMap<&'a str, usize> {
    let (share, rest) = (holders.len() / members.len().max(1), holders.len() % members.len().max(1));
    let mut by_number: Vec<&str> = members.iter().copied().collect();
    // The order of names decides between equals.
    by_number.sort_by_key(|member| std::cmp::Reverse(held(member, holders)));
    let one_more = |place: usize| usize::from(place < rest);
    by_number.into_iter().enumerate().map(|(place, member)| (member, share + one_more(place))).collect()
}

/// Returns how many shards a member holds.
fn held(member: &str, holders: &[Option<&str>]) -> usize {
    holders.iter().filter(|holder| **holder == Some(member)).count()
}

/// Returns how much a member wants a shard, by rendezvous hashing: each shard has another order of members.
fn weight(member: &str, shard: u16) -> u64 {
    mixed(mixed(hash(member)) ^ u64::from(shard))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lets all members act on one state after the other until nothing is left to do; returns the number of moves.
    fn settle(members: &BTreeSet<&str>, holders: &mut [Option<String>]) -> usize {
        let mut moves = 0;
        for _ in 0..10 {
            let seen: Vec<Option<&str>> = holders.iter().map(Option::as_deref).collect();
            let plans: Vec<(&str, Plan)> =
                members.iter().map(|member| (*member, plan(member, members, &seen))).collect();
            if plans.iter().all(|(_, plan)| *plan == Plan::default()) {
                return moves;
            }
            for (member, Plan { take, give_up }) in plans {
                for shard in give_up {
                    assert_eq!(holders[usize::from(shard)].take().as_deref(), Some(member));
                }
                for shard in take {
                    moves += 1;
                    let before = holders[usize::from(shard)].replace(member.to_owned());
                    assert_eq!(before, None, "two members take shard {shard}");
                }
            }
        }
        panic!("it does not settle: {holders:?}");
    }

    fn counts(members: &BTreeSet<&str>, holders: &[Option<String>]) -> Vec<usize> {
        let count =
            |member: &&str| holders.iter().filter(|holder| holder.as_deref() == Some(*member)).count();
        members.iter().map(count).collect()
    }

    #[test]
    fn shares_differ_by_at_most_one() {
        let mut random = fastrand::Rng::with_seed(7);
        for _ in 0..500 {
            let shards = random.usize(1..=64);
            let names: Vec<String> = (0..random.usize(1..=9)).map(|n| format!("pod-{n}")).collect();
            let members: BTreeSet<&str> = names.iter().map(String::as_str).collect();
            // Some are free, and somebody may have all.
            let greedy = random.usize(..names.len());
            let mut holders: Vec<Option<String>> = (0..shards)
                .map(|_| (random.u8(..3) > 0).then(|| names[random.usize(greedy..names.len())].clone()))
                .collect();
            settle(&members, &mut holders);
            let counts = counts(&members, &holders);
            let (least, most) = (counts.iter().min().unwrap(), counts.iter().max().unwrap());
            assert!(most - least <= 1 && counts.iter().sum::<usize>() == shards, "{counts:?} of {shards}");
        }
    }

    #[test]
    fn no_more_shards_move_than_needed() {
        let two: BTreeSet<&str> = ["a", "b"].into();
        let mut holders = vec![None; 16];
        settle(&two, &mut holders);
        let three: BTreeSet<&str> = ["a", "b", "c"].into();
        assert_eq!(settle(&three, &mut holders), 5, "a new member takes its share");
        // One is gone: its share moves and nothing else.
        for holder in holders.iter_mut().filter(|holder| holder.as_deref() == Some("b")) {
            *holder = None;
        }
        let freed = holders.iter().filter(|holder| holder.is_none()).count();
        assert_eq!(settle(&["a", "c"].into(), &mut holders), freed);
    }
}
