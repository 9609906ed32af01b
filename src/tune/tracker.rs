//! Follows each creation and change of a trial until the object is Ready in that generation.
//!
//! # Guarantees
//! - A change is over when its own generation, or a later one, is Ready. (test: `change_is_over_when_its_generation_is_ready`)
//! - Of a tracker that goes on elsewhere, what is pending counts from then on. (test: `pending_changes_are_followed_elsewhere`)

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
    state: Mutex<State>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct State {
    objects: HashMap<(&'static str, String), Followed>,
    /// The number of changes that have not converged, of all objects.
    pending: usize,
    results: Vec<Duration>,
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
        let State { objects, pending, results } = &mut *self.state.lock();
        let followed = objects.entry((kind, name.to_owned())).or_default();
        if generation > followed.converged {
            followed.pending.push((generation, now));
            *pending += 1;
        } else {
            results.push(Duration::ZERO);
        }
    }

    /// Notes that an object is Ready in this generation.
    pub(super) fn converged(&self, kind: &'static str, name: &str, generation: i64) {
        let now = Instant::now();
        let State { objects, pending, results } = &mut *self.state.lock();
        let followed = objects.entry((kind, name.to_owned())).or_default();
        followed.converged = followed.converged.max(generation);
        let before = results.len();
        followed.pending.retain(|(wanted, since)| {
            let is_over = *wanted <= generation;
            if is_over {
                results.push(now - *since);
            }
            !is_over
        });
        let over = results.len() - before;
        *pending -= over;
        if over > 0 {
            self.changed.notify_one();
        }
    }

    /// Returns a copy for another trial, in which pending changes count from now on.
    pub(super) fn resume(&self) -> Self {
        let now = Instant::now();
        let state = self.state.lock();
        let from_now = |followed: &Followed| Followed {
            pending: followed.pending.iter().map(|(generation, _)| (*generation, now)).collect(),
            converged: followed.converged,
        };
        let objects = state.objects.iter().map(|(object, followed)| (object.clone(), from_now(followed)));
        let state = State { objects: objects.collect(), pending: state.pending, results: Vec::new() };
        Self { state: Mutex::new(state), changed: Notify::new() }
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
        self.state.lock().results.clone()
    }

    /// Returns the number of changes that have not converged.
    pub(super) fn pending(&self) -> usize {
        self.state.lock().pending
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

    #[tokio::test(start_paused = true)]
    async fn pending_changes_are_followed_elsewhere() {
        let earlier = Tracker::default();
        for name in ["a", "b"] {
            earlier.follow("foo", name, 1);
        }
        tokio::time::advance(Duration::from_secs(5)).await;
        earlier.converged("foo", "a", 1);
        let tracker = earlier.resume();
        assert_eq!((tracker.pending(), tracker.results()), (1, vec![]));
        tokio::time::advance(Duration::from_secs(1)).await;
        tracker.converged("foo", "b", 1);
        assert_eq!((tracker.pending(), tracker.results()), (0, vec![Duration::from_secs(1)]));
        assert_eq!(earlier.pending(), 1);
    }
}
