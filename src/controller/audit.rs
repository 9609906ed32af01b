//! Asks for a check of every object against the server, spread evenly over a period.
//!
//! A cache can be wrong: a watch may lose an event and nobody would know. So each key is queued once in a
//! period with the reason *audit*, behind everything else, and its sync handler then reads from the server
//! what it otherwise believes the cache.
//!
//! Which objects there are the cache tells at each step. Once in a period the server is asked, too: an object of which the
//! cache has never heard is queued at once, and again at each list as long as that is so.
//!
//! # Guarantees
//! - Each key of the cache comes once in a period, at its own place in it. (test: `each_key_comes_once_in_a_period`)
//! - One that the cache lacks comes within a period. (test: `a_key_that_the_cache_lacks_comes_with_each_list`, `audits_ask_the_server_which_objects_there_are`, `an_object_of_which_the_cache_has_never_heard_is_found`)
//! - A list that fails is tried again at the next step. (test: `a_list_that_fails_is_tried_again`)
//! - One that takes long holds up nothing. (test: `a_list_that_hangs_holds_up_nothing`)
//! - Keys are spread evenly. (test: `keys_are_spread_evenly`)
//!
//! # Differences from client-go
//! It has a resync, which shows handlers what the cache has; what the cache has not is found by nobody.

use std::collections::HashSet;
use std::fmt;
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
use std::time::Duration;

use futures_util::future::{BoxFuture, OptionFuture};
use tokio_util::sync::CancellationToken;

use crate::cache::ObjectName;
use crate::client::Error;
use crate::workqueue::{AddOptions, LOW_PRIORITY, RateLimitingQueue, Reason};

/// Into how many parts a period is cut.
const SLOTS: u32 = 256;

/// A list that is under way.
type Listing = BoxFuture<'static, Result<Vec<ObjectName>, Error>>;

/// Which objects there are.
pub struct Inventory {
    /// In the cache.
    pub cached: Box<dyn Fn() -> Vec<ObjectName> + Send + Sync>,
    /// On the server.
    pub live: Box<dyn Fn() -> Listing + Send + Sync>,
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
    let audit = |key| {
        queue.add(key, AddOptions { priority: LOW_PRIORITY, ..AddOptions::because(Reason::Audit) });
    };
    // The cache has listed only just now when the process starts.
    let (mut step, mut is_list_due) = (0_u64, false);
    let mut listing: Option<Listing> = None;
    loop {
        tokio::select! {
            biased;
            () = shutdown.cancelled() => return,
            listed = OptionFuture::from(listing.as_mut()), if listing.is_some() => {
                listing = None;
                match listed {
                    Some(Ok(live)) => {
                        is_list_due = false;
                        let cached: HashSet<ObjectName> = (inventory.cached)().into_iter().collect();
                        live.into_iter().filter(|key| !cached.contains(key)).for_each(audit);
                    }
                    Some(Err(error)) => {
                        let error = &error as &dyn std::error::Error;
                        tracing::debug!(error, "Which objects there are could not be read; the audit asks again");
                    }
                    None => {}
                }
            }
            // The first tick is at once.
            _ = tick.tick() => {
                let slot = step % u64::from(SLOTS);
                (inventory.cached)().into_iter().filter(|key| slot_of(key) == slot).for_each(audit);
                is_list_due |= slot == 0 && step > 0;
                if is_list_due && listing.is_none() {
                    listing = Some((inventory.live)());
                }
                step += 1;
            }
        }
    }
}

/// A key's place in the period: the same in every process.
fn slot_of(key: &ObjectName) -> u64 {
    BuildHasherDefault::<DefaultHasher>::default().hash_one(key.to_string()) % u64::from(SLOTS)
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

    /// Lists are made after one period and after two.
    #[tokio::test(start_paused = true)]
    async fn a_key_that_the_cache_lacks_comes_with_each_list() {
        let seen = audited(&inventory(20, || Ok(vec![key(3), key(77)])), 3).await;
        assert_eq!((seen.len(), seen[&key(3).to_string()], seen[&key(77).to_string()]), (21, 3, 2));
    }

    #[tokio::test(start_paused = true)]
    async fn a_list_that_fails_is_tried_again() {
        let times = std::sync::atomic::AtomicU32::new(0);
        let live = move || match times.fetch_add(1, std::sync::atomic::Ordering::Relaxed) {
            0..3 => Err(crate::testing::connection_error()),
            3 => Ok(vec![key(77)]),
            _ => Ok(vec![]),
        };
        let seen = audited(&inventory(20, live), 2).await;
        assert!((0..20).all(|at| seen[&key(at).to_string()] == 2), "{seen:?}");
        assert_eq!(seen[&key(77).to_string()], 1);
    }

    #[tokio::test(start_paused = true)]
    async fn a_list_that_hangs_holds_up_nothing() {
        let hangs = Box::new(|| -> BoxFuture<'static, _> { Box::pin(std::future::pending()) });
        let seen = audited(&Inventory { live: hangs, ..inventory(20, || Ok(vec![])) }, 3).await;
        assert!((0..20).all(|at| seen[&key(at).to_string()] == 3), "{seen:?}");
    }

    #[test]
    fn keys_are_spread_evenly() {
        let mut slots = [0_u32; SLOTS as usize];
        for number in 0..100 * SLOTS {
            slots[usize::try_from(slot_of(&key(number))).unwrap()] += 1;
        }
        let (least, most) = (slots.iter().min().unwrap(), slots.iter().max().unwrap());
        assert!(*least > 60 && *most < 150, "100 keys a slot on average: {least} to {most}");
    }
}
