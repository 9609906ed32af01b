//! Divides namespaces into shards, for several active replicas.
//!
//! The unit is a namespace, which an owner and its children share. Objects without one are in the shard of the empty name.
//!
//! | division | the shard of a namespace | who leaves out the objects of others |
//! |---|---|---|
//! | [`Division::Hash`] | by a hash of its name | the client |
//! | [`Division::Range`] | by a range of Kubernetes' hash of it (KEP-5866, sharded list and watch) | a server that can; else the client |
//!
//! Kubernetes' hash is the 64-bit FNV-1a, of which the last two characters of a name hardly change the upper bits: `team-10`
//! to `team-99` are in three of 16 ranges, and many ranges are empty. So ranges suit names that differ early, and are not
//! the default.
//!
//! # Guarantees
//! - Numbered namespaces are spread evenly. (test: `numbered_namespaces_are_spread_evenly`)
//! - The ranges of all shards cover each hash once, and a namespace is in the range of its shard.
//!   (test: `ranges_cover_each_hash_once`)
//! - A selector names the ranges of its shards, with neighbours joined. (test: `selector_joins_neighbours`)

use std::collections::BTreeSet;
use std::fmt;

/// The largest number of shards.
pub const SHARDS_MAX: u16 = 1024;

/// How the shard of a namespace is found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Division {
    /// By a hash that spreads all names.
    #[default]
    Hash,
    /// By ranges of the hash by which a server can filter.
    Range,
}

/// Into how many shards the namespaces are divided, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sharding {
    /// The number of shards, at least one.
    pub of: u16,
    /// How they are divided.
    pub by: Division,
}

/// Some of the shards into which all namespaces are divided.
#[derive(Clone, PartialEq, Eq)]
pub struct ShardSet {
    sharding: Sharding,
    shards: BTreeSet<u16>,
}

// === impl Sharding ===

impl Sharding {
    /// Returns the shard of a namespace; an empty one for objects without.
    #[must_use]
    pub fn shard_of(self, namespace: &str) -> u16 {
        let hash = match self.by {
            Division::Hash => mixed(hash(namespace)),
            Division::Range => hash(namespace),
        };
        let scaled = (u128::from(hash) * u128::from(self.of)) >> 64;
        u16::try_from(scaled).expect("it is below the number of shards")
    }

    /// Returns the set of these shards.
    ///
    /// # Panics
    /// If a shard is not below the number of shards.
    #[must_use]
    pub fn set(self, shards: impl IntoIterator<Item = u16>) -> ShardSet {
        let shards: BTreeSet<u16> = shards.into_iter().collect();
        let of = self.of;
        assert!(shards.iter().all(|shard| *shard < of), "shards are numbered from 0 to {of} - 1");
        ShardSet { sharding: self, shards }
    }

    /// Returns the hashes of a shard: from the first one to before the last.
    fn range(self, shard: u16) -> (u128, u128) {
        let start = |shard: u128| (shard << 64).div_ceil(u128::from(self.of));
        (start(shard.into()), start(u128::from(shard) + 1))
    }
}

impl fmt::Display for Sharding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = match self.by {
            Division::Hash => "shards",
            Division::Range => "ranges",
        };
        write!(f, "{}-{what}", self.of)
    }
}

// === impl ShardSet ===

impl ShardSet {
    /// Returns the shards, in order.
    pub fn iter(&self) -> impl Iterator<Item = u16> {
        self.shards.iter().copied()
    }

    /// Returns the number of shards in the set.
    #[must_use]
    pub fn len(&self) -> usize {
        self.shards.len()
    }

    /// Returns whether the set has no shard.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.shards.is_empty()
    }

    /// Returns whether the set has all shards.
    #[must_use]
    pub fn is_all(&self) -> bool {
        self.len() == usize::from(self.sharding.of)
    }

    /// Returns whether the set has this shard.
    #[must_use]
    pub fn has(&self, shard: u16) -> bool {
        self.shards.contains(&shard)
    }

    /// Returns the shard of this namespace, whether or not it is in the set.
    #[must_use]
    pub fn shard_of(&self, namespace: &str) -> u16 {
        self.sharding.shard_of(namespace)
    }

    /// Returns whether the set has the shard of this namespace; an empty one for objects without.
    #[must_use]
    pub fn has_namespace(&self, namespace: &str) -> bool {
        self.is_all() || self.has(self.sharding.shard_of(namespace))
    }

    /// Returns the `shardSelector` of a list or watch; `None` for all objects, and if the server cannot filter them.
    #[must_use]
    pub fn selector(&self) -> Option<String> {
        if self.is_all() || self.sharding.by == Division::Hash {
            return None;
        }
        let mut ranges: Vec<(u128, u128)> = Vec::new();
        for shard in self.iter() {
            let (start, end) = self.sharding.range(shard);
            match ranges.last_mut() {
                Some(last) if last.1 == start => last.1 = end,
                _ => ranges.push((start, end)),
            }
        }
        let range = |(start, end): &(u128, u128)| {
            format!("shardRange(object.metadata.namespace, '0x{start:016x}', '0x{end:016x}')")
        };
        Some(ranges.iter().map(range).collect::<Vec<_>>().join(" || "))
    }
}

impl fmt::Debug for ShardSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} of {}", self.shards, self.sharding)
    }
}

/// Returns the 64-bit FNV-1a hash of a text.
pub(crate) fn hash(text: &str) -> u64 {
    text.bytes()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3))
}

/// Spreads a hash over all its bits: each bit of the result depends on each bit of the hash.
pub(crate) fn mixed(mut hash: u64) -> u64 {
    for factor in [0xff51_afd7_ed55_8ccd, 0xc4ce_b9fe_1a85_ec53] {
        hash = (hash ^ (hash >> 33)).wrapping_mul(factor);
    }
    hash ^ (hash >> 33)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hash_is_fnv_1a() {
        // The vectors of the hash's own reference.
        assert_eq!(hash(""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(hash("a"), 0xaf63_dc4c_8601_ec8c);
        assert_eq!(hash("foobar"), 0x8594_4171_f739_67e8);
    }

    fn ranges(of: u16) -> Sharding {
        Sharding { of, by: Division::Range }
    }

    #[test]
    fn numbered_namespaces_are_spread_evenly() {
        let fullest = |sharding: Sharding| {
            let mut counts = [0; 16];
            (0..1000).for_each(|n| counts[usize::from(sharding.shard_of(&format!("team-{n}")))] += 1);
            (counts.iter().max().copied(), counts.iter().filter(|count| **count == 0).count())
        };
        let (most, empty) = fullest(Sharding { of: 16, by: Division::Hash });
        assert!(most <= Some(90) && empty == 0, "62 would be even: {most:?}, {empty}");
        let (most, empty) = fullest(ranges(16));
        assert!(most >= Some(200) && empty >= 9, "Kubernetes' hash does not: {most:?}, {empty}");
    }

    #[test]
    fn ranges_cover_each_hash_once() {
        for of in [1, 2, 3, 7, 16, 64, 1000, SHARDS_MAX] {
            let sharding = ranges(of);
            assert_eq!(sharding.range(0).0, 0);
            assert_eq!(sharding.range(of - 1).1, 1 << 64);
            for shard in 1..of {
                assert_eq!(sharding.range(shard - 1).1, sharding.range(shard).0);
            }
            for namespace in (0..500).map(|n| format!("team-{n}")).chain([String::new()]) {
                let (start, end) = sharding.range(sharding.shard_of(&namespace));
                assert!((start..end).contains(&u128::from(hash(&namespace))), "{namespace} of {of}");
            }
        }
    }

    #[test]
    fn selector_joins_neighbours() {
        let selector = |shards: &[u16]| ranges(4).set(shards.iter().copied()).selector();
        assert_eq!(selector(&[0, 1, 2, 3]), None);
        let by_hash = Sharding { of: 4, by: Division::Hash };
        assert_eq!(by_hash.set([0]).selector(), None, "a server knows no other hash");
        let first = "shardRange(object.metadata.namespace, '0x0000000000000000', '0x4000000000000000')";
        assert_eq!(selector(&[0]).unwrap(), first);
        let rest = "shardRange(object.metadata.namespace, '0x8000000000000000', '0x10000000000000000')";
        assert_eq!(selector(&[2, 3]).unwrap(), rest);
        assert_eq!(selector(&[3, 0, 2]).unwrap(), format!("{first} || {rest}"));
    }
}
