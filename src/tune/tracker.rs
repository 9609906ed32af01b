//! Follows each creation and change of a trial until the object is Ready in that generation.
//!
//! # Guarantees
//! - A change is over when its own generation, or a later one, is Ready. (test: `change_is_over_when_its_generation_is_ready`)

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::load::ConvergedWhen;
use crate::cache::factory::Watched;
use crate::cache::{Cached, EventHandler, SharedInformerFactory};
use crate::demo::seen::Seen;

/// Follows each change until it has converged.
#[derive(Debug, Default)]
pub(super) struct Tracker {
    objects: Mutex<HashMap<(&'static str, String), Followed>>,
    results: Mutex<Vec<Duration>>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct Followed {
    /// The generation and time of each change that has not converged.
    pending: Vec<(i64, Instant)>,
    converged: i64,
}

/// Tells the tracker of converged generations.
struct Follow {
    tracker: Arc<Tracker>,
    kind: &'static str,
    when: ConvergedWhen,
}

// === impl Tracker ===

impl Tracker {
    /// Follows a change of this generation.
    pub(super) fn follow(&self, kind: &'static str, name: &str, generation: i64) {
        let now = Instant::now();
        let mut objects = self.objects.lock();
        let followed = objects.entry((kind, name.to_owned())).or_default();
        if generation > followed.converged {
            followed.pending.push((generation, now));
        } else {
            self.results.lock().push(Duration::ZERO);
        }
    }

    /// Notes that an object is Ready in this generation.
    pub(super) fn converged(&self, kind: &'static str, name: &str, generation: i64) {
        let now = Instant::now();
        let mut objects = self.objects.lock();
        let followed = objects.entry((kind, name.to_owned())).or_default();
        followed.converged = followed.converged.max(generation);
        let mut results = self.results.lock();
        let before = results.len();
        followed.pending.retain(|(wanted, since)| {
            let is_over = *wanted <= generation;
            if is_over {
                results.push(now - *since);
            }
            !is_over
        });
        if results.len() > before {
            self.changed.notify_one();
        }
    }

    /// Forgets the results so far; what is pending counts from now on.
    pub(super) fn restart(&self) {
        let now = Instant::now();
        for followed in self.objects.lock().values_mut() {
            followed.pending.iter_mut().for_each(|(_, since)| *since = now);
        }
        self.results.lock().clear();
    }

    /// Waits until a change has converged.
    ///
    /// # Cancel safety
    /// Cancel-safe.
    pub(super) async fn changed(&self) {
        self.changed.notified().await;
    }

    /// Returns how long each change took, in the order in which they converged.
    pub(super) fn results(&self) -> Vec<Duration> {
        self.results.lock().clone()
    }

    /// Returns the number of changes that have not converged.
    pub(super) fn pending(&self) -> usize {
        self.objects.lock().values().map(|followed| followed.pending.len()).sum()
    }
}

impl<K> EventHandler<Seen<K>> for Follow
where
    K: kube_core::Resource<DynamicType = ()> + 'static,
{
    fn on_add(&mut self, object: &Cached<Seen<K>>, _: bool) {
        let generation = object.readable().and_then(|object| match self.when {
            ConvergedWhen::Ready => object.ready_generation(),
            ConvergedWhen::Observed => object.observed_generation(),
        });
        if let Some(generation) = generation {
            self.tracker.converged(self.kind, object.object_name().name(), generation);
        }
    }

    fn on_update(&mut self, _: &Cached<Seen<K>>, new: &Cached<Seen<K>>) {
        self.on_add(new, false);
    }
}

/// Watches the objects of a kind, and tells the tracker when they have converged.
pub(super) fn observe<K>(
    informers: &SharedInformerFactory,
    tracker: &Arc<Tracker>,
    kind: &'static str,
    when: ConvergedWhen,
) where
    K: kube_core::Resource<DynamicType = ()> + 'static,
{
    let informer = informers.informer(Watched::<Seen<K>>::default()).expect("the only request for this kind");
    // Adding a handler fails only on a stopped informer, and this one has not started.
    drop(informer.add_event_handler(Follow { tracker: tracker.clone(), kind, when }));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn change_is_over_when_its_generation_is_ready() {
        let tracker = Tracker::default();
        tracker.follow("foo", "a", 1);
        tokio::time::advance(Duration::from_secs(1)).await;
        tracker.follow("foo", "a", 2);
        tracker.follow("foo", "b", 1);
        tracker.converged("foo", "a", 1);
        assert_eq!((tracker.pending(), tracker.results()), (2, vec![Duration::from_secs(1)]));
        tokio::time::advance(Duration::from_secs(2)).await;
        tracker.converged("foo", "a", 3);
        assert_eq!(tracker.results()[1], Duration::from_secs(2));
        tracker.follow("foo", "a", 3);
        assert_eq!((tracker.pending(), tracker.results()[2]), (1, Duration::ZERO));
    }
}
