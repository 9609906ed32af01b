//! Who holds which shards, for people: read from the Leases, without taking part.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;

use super::board::{Board, duration, holder};
use crate::api::shards::{Division, SHARDS_MAX, Sharding};
use crate::client::{ApiClient, Error};

/// The members of a set, and its shards.
#[derive(Clone, Debug)]
pub struct Overview {
    /// The number of shards.
    pub shards: u16,
    /// Who holds each shard; a shard that is missing has no holder.
    pub holders: BTreeMap<u16, String>,
    /// The members, by identity.
    pub members: BTreeMap<String, Renewal>,
}

/// When a member has renewed its Lease.
#[derive(Clone, Copy, Debug, Default)]
pub struct Renewal {
    /// On the member's clock.
    pub renewed: Option<Timestamp>,
    /// How long the Lease is valid after it.
    pub seconds: u64,
}

/// Returns the shards that the holder of a set's Lease has; `None` for a single leader.
#[must_use]
pub fn shards_of_holder(holder: &str) -> Option<Sharding> {
    let (number, what) = holder.split_once('-')?;
    let by = match what {
        "shards" => Division::Hash,
        "ranges" => Division::Range,
        _ => return None,
    };
    Some(Sharding { of: number.parse().ok().filter(|of| (1..=SHARDS_MAX).contains(of))?, by })
}

/// Reads the Leases of the set of this Lease, which has these shards.
///
/// # Errors
/// [`Error`].
pub async fn overview(
    client: &ApiClient,
    namespace: &str,
    name: &str,
    sharding: Sharding,
) -> Result<Overview, Error> {
    let shards = sharding.of;
    let mut board = Board::new(client.clone(), namespace.to_owned(), name.to_owned(), sharding);
    board.read().await?;
    let holders = (0..shards).map(|shard| (shard, board.holder_of(shard).to_owned()));
    let renewal = |lease: &k8s_openapi::api::coordination::v1::Lease| {
        let renewed = lease.spec.as_ref().and_then(|spec| spec.renew_time.clone());
        let seconds = duration(lease).map_or(0, |duration| duration.as_secs());
        Renewal { renewed: renewed.map(|MicroTime(time)| time), seconds }
    };
    let members = board.members().filter(|member| board.is_of_this_set(member));
    Ok(Overview {
        shards,
        holders: holders.filter(|(_, holder)| !holder.is_empty()).collect(),
        members: members.map(|member| (holder(member).to_owned(), renewal(member))).collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holder_of_a_set_says_how_many_shards_it_has() {
        for sharding in [Sharding { of: 16, by: Division::Hash }, Sharding { of: 3, by: Division::Range }] {
            assert_eq!(shards_of_holder(&sharding.to_string()), Some(sharding));
        }
        for other in ["", "pod-a_1", "0-shards", "9999-shards", "16-shard", "x-shards"] {
            assert_eq!(shards_of_holder(other), None, "{other}");
        }
    }
}
