//! Asks for a check of every object against the server, spread evenly over a period.
//!
//! A cache can be wrong: a watch may lose an event and nobody would know. So each key is queued once in a
//! period with the reason *audit*, behind everything else, and its sync handler then reads from the server
//! what it otherwise believes the cache.
//!
//! Which objects there are is asked of the cache at each step, and once in a period of the server: an object of which the
//! cache has never heard has its turn, too.
//!
//! # Guarantees
//! - Each key comes once in a period, at its own place in it. (test: `each_key_comes_once_in_a_period`)
//! - So does one that the cache lacks, from the second period on. (test: `a_key_that_the_cache_lacks_has_its_turn`, `audits_ask_the_server_which_objects_there_are`, `an_object_of_which_the_cache_has_never_heard_is_found`)
//! - A server that does not answer costs only those. (test: `a_list_that_fails_leaves_what_the_cache_has`)
//! - Keys are spread evenly. (test: `keys_are_spread_evenly`)
//!
//! # Differences from client-go
//! It has a resync, which shows handlers what the cache has; what the cache has not is found by nobody.

use std::collections::BTreeSet;
use std::fmt;
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio_util::sync::CancellationToken;

use crate::cache::ObjectName;
use crate::client::Error;
use crate::workqueue::{AddOptions, LOW_PRIORITY, RateLimitingQueue, Reason};

/// Into how many parts a period is cut.
const SLOTS: u32 = 256;

/// Which objects there are.
pub struct Inventory {
    /// In the cache.
    pub cached: Box<dyn Fn() -> Vec<ObjectName> + Send + Sync>,
    /// On the server.
    pub live: Box<dyn Fn() -> BoxFuture<'static, Result<Vec<ObjectName>, Error>> + Send + Sync>,
}

impl fmt::Debug for Inventory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inventory").finish_non_exhaustive()
    }
}

/// Queues what is due until `shutdown`.
///
/// # Cancel safety
/// Safe: a key's turn that is missed comes again.
pub async fn run(
    inventory: &Inventory,
    queue: RateLimitingQueue<ObjectName>,
    period: Duration,
    shutdown: CancellationToken,
) {
    let mut tick = tokio::time::interval((period / SLOTS).max(Duration::from_millis(1)));
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut live = Vec::new();
    let mut is_first = true;
    // The first tick is at once.
    for slot in (0..SLOTS).cycle() {
        let next = async {
            tick.tick().await;
            // The cache has listed only just now when the process starts.
            if slot > 0 || is_first { None } else { Some((inventory.live)().await) }
        };
        let listed = tokio::select! {
            biased;
            () = shutdown.cancelled() => return,
            listed = next => listed,
        };
        is_first = false;
        match listed {
            Some(Ok(names)) => live = names,
            Some(Err(error)) => {
                let error = &error as &dyn std::error::Error;
                tracing::debug!(
                    error,
                    "Which objects there are could not be read; the audit takes those of the cache"
                );
            }
            None => {}
        }
        let mut keys: BTreeSet<String> = BTreeSet::new();
        let all = (inventory.cached)().into_iter().chain(live.iter().cloned());
        for key in all.filter(|key| slot_of(key) == slot).filter(|key| keys.insert(key.to_string())) {
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

    const PERIOD: Duration = Duration::from_secs(1800);

    /// How often each key came in so many periods.
    async fn audited(inventory: &Inventory, periods: u32) -> BTreeMap<String, u32> {
        let queue = RateLimitingQueue::<ObjectName>::new(ItemExponentialFailure::new(PERIOD, PERIOD));
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
            () = run(inventory, queue.clone(), PERIOD, CancellationToken::new()) => {}
            () = tokio::time::sleep(periods * PERIOD - Duration::from_millis(1)) => {}
        }
        seen
    }

    fn inventory(
        cached: u32,
        live: impl Fn() -> Result<Vec<ObjectName>, Error> + Send + Sync + 'static,
    ) -> Inventory {
        Inventory {
            cached: Box::new(move || (0..cached).map(key).collect()),
            live: Box::new(move || Box::pin(std::future::ready(live()))),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn each_key_comes_once_in_a_period() {
        let seen = audited(&inventory(20, || Ok((0..20).map(key).collect())), 3).await;
        assert_eq!(seen.len(), 20);
        assert!(seen.values().all(|times| *times == 3), "{seen:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_key_that_the_cache_lacks_has_its_turn() {
        let seen = audited(&inventory(20, || Ok(vec![key(3), key(77)])), 3).await;
        assert_eq!((seen.len(), seen[&key(3).to_string()], seen[&key(77).to_string()]), (21, 3, 2));
    }

    #[tokio::test(start_paused = true)]
    async fn a_list_that_fails_leaves_what_the_cache_has() {
        let times = std::sync::atomic::AtomicU32::new(0);
        let live = move || match times.fetch_add(1, std::sync::atomic::Ordering::Relaxed) {
            0 => Ok(vec![key(77)]),
            _ => Err(crate::testing::connection_error()),
        };
        let seen = audited(&inventory(20, live), 4).await;
        assert!((0..20).all(|at| seen[&key(at).to_string()] == 4), "{seen:?}");
        assert_eq!(seen[&key(77).to_string()], 3, "what was known stays");
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
