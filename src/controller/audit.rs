//! Asks for a check of every object against the server, spread evenly over a period.
//!
//! A cache can be wrong: a watch may lose an event and nobody would know. So each key is queued once in a
//! period with the reason *audit*, behind everything else, and its sync handler then reads from the server
//! what it otherwise believes the cache.
//!
//! # Guarantees
//! - Each key comes once in a period, at its own place in it. (test: `each_key_comes_once_in_a_period`)
//! - Keys are spread evenly. (test: `keys_are_spread_evenly`)
//!
//! # Differences from client-go
//! It has a resync, which shows handlers what the cache has; what the cache has not is found by nobody.

use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::cache::ObjectName;
use crate::workqueue::{AddOptions, LOW_PRIORITY, RateLimitingQueue, Reason};

/// Into how many parts a period is cut.
const SLOTS: u32 = 256;

/// Queues what is due until `shutdown`.
///
/// # Cancel safety
/// Safe: a key's turn that is missed comes again.
pub async fn run(
    keys: impl Fn() -> Vec<ObjectName>,
    queue: RateLimitingQueue<ObjectName>,
    period: Duration,
    shutdown: CancellationToken,
) {
    let mut tick = tokio::time::interval((period / SLOTS).max(Duration::from_millis(1)));
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    // The first tick is at once.
    for slot in (0..SLOTS).cycle() {
        tokio::select! {
            biased;
            () = shutdown.cancelled() => return,
            _ = tick.tick() => {}
        }
        for key in keys().into_iter().filter(|key| slot_of(key) == slot) {
            queue.add(key, AddOptions { priority: LOW_PRIORITY, ..AddOptions::because(Reason::Audit) });
        }
    }
}

/// A key's place in the period: the same in every process.
fn slot_of(key: &ObjectName) -> u32 {
    let hash = BuildHasherDefault::<DefaultHasher>::default().hash_one(key.to_string());
    u32::try_from(hash % u64::from(SLOTS)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::workqueue::ItemExponentialFailure;

    fn key(number: u32) -> ObjectName {
        ObjectName::new(Some("ns"), &format!("object-{number}"))
    }

    #[tokio::test(start_paused = true)]
    async fn each_key_comes_once_in_a_period() {
        let period = Duration::from_secs(1800);
        let queue = RateLimitingQueue::<ObjectName>::new(ItemExponentialFailure::new(period, period));
        let shutdown = CancellationToken::new();
        let keys = || (0..20).map(key).collect();
        let mut seen: BTreeMap<String, u32> = BTreeMap::new();
        let work = async {
            while let Some(processing) = queue.get().await {
                assert_eq!(processing.reasons().to_string(), "audit");
                assert_eq!(processing.priority(), LOW_PRIORITY);
                *seen.entry(processing.key().to_string()).or_default() += 1;
            }
        };
        tokio::select! {
            biased;
            () = work => {}
            () = run(keys, queue.clone(), period, shutdown.clone()) => {}
            () = tokio::time::sleep(3 * period - Duration::from_millis(1)) => {}
        }
        assert_eq!(seen.len(), 20);
        assert!(seen.values().all(|times| *times == 3), "{seen:?}");
    }

    #[test]
    fn keys_are_spread_evenly() {
        let mut slots = [0_u32; SLOTS as usize];
        for number in 0..100 * SLOTS {
            slots[slot_of(&key(number)) as usize] += 1;
        }
        let (least, most) = (slots.iter().min().unwrap(), slots.iter().max().unwrap());
        assert!(*least > 60 && *most < 150, "100 keys a slot on average: {least} to {most}");
    }
}
