//! Controls the workers of a controller from outside.
//!
//! # Guarantees
//! - The number of workers can change while they run. (test: `worker_count_can_change_at_runtime`)
//! - The syncs in progress are listed. (test: `passes_in_progress_are_listed`)
//! - The time that syncs take is summed up, also of those in progress. (test: `time_of_syncs_is_summed_up`)
//! - While syncs wait for slow answers, other workers stand in for theirs. (test: `workers_stand_in_for_slow_passes`)
//! - A worker waits two seconds for an answer before another one stands in, and a tenth of one in a namespace in which
//!   another sync waits for longer, or has failed after that. (test: `slow_namespace_gets_less_patience`)
//! - No more than [`STAND_INS`] stand in for each worker, and one namespace leaves some of them to others.
//!   (test: `number_of_stand_ins_is_limited`, `hanging_namespace_leaves_stand_ins_to_others`)
//! - The other keys of such a namespace are parked: each sync of it that ends releases one, of the highest priority.
//!   (test: `keys_of_a_crowded_namespace_are_parked`)

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::ops::Bound;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::sync::futures::Notified;
use tokio::time::Instant;

use super::super::observer::PassObserver;
use crate::cache::ObjectName;
use crate::client::slow_calls::OnSlow;
use crate::workqueue::{RateLimitingQueue, Reasons};

/// How many workers may stand in for each wanted one.
pub(super) const STAND_INS: usize = 8;

/// How long a worker waits for an answer until another one stands in.
const PATIENCE: Duration = Duration::from_secs(2);
/// How long it waits in a namespace where another sync waits for longer than [`PATIENCE`], or has recently failed after
/// that. Nothing less shortens the wait: more workers would only add load to a busy or distant server.
const LESS_PATIENCE: Duration = Duration::from_millis(100);
/// How long such a failure is remembered: some retries, of which the longest default backoff is two minutes.
const REMEMBERED: Duration = Duration::from_secs(600);

/// Sets the number of workers of a controller and lists their syncs. Cheap to clone.
#[derive(Clone)]
pub struct Workers {
    count: Arc<SharedCount>,
    /// The namespaces whose syncs wait for slow answers or have failed after some, or which have parked keys.
    slow: Arc<Mutex<BTreeMap<String, SlowNamespace>>>,
    passes: Arc<Mutex<Passes>>,
    /// Why the number is what it is, if it follows the load.
    why: Arc<Mutex<Option<String>>>,
    observer: Arc<OnceLock<Arc<dyn PassObserver>>>,
}

#[derive(Default)]
struct Passes {
    /// By index of the worker.
    running: BTreeMap<usize, RunningPass>,
    /// How long the syncs took that have ended.
    ended: Duration,
}

/// A count whose changes wake tasks in the order in which they began to wait. tokio's `watch` wakes them in a random order,
/// which no seed repeats.
#[derive(Debug)]
struct SharedCount {
    count: Mutex<Count>,
    changed: Notify,
}

/// How many workers run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Count {
    pub(super) wanted: usize,
    /// Passes that wait for a slow answer.
    waiting: usize,
}

#[derive(Debug, Default)]
struct SlowNamespace {
    /// The syncs that wait for a slow answer.
    waiting: usize,
    /// Those of them that wait for longer than [`PATIENCE`]; not those whose worker had less.
    stuck: usize,
    /// When a sync last failed after one.
    failed: Option<Instant>,
    /// The keys that are delayed because so many do.
    parked: BTreeSet<Parked>,
    /// The key that was released last; the next one of the same priority follows, so that each has its turn.
    released: Option<Parked>,
}

/// A parked key, after those of higher priority.
type Parked = (Reverse<i32>, ObjectName);

/// Handles on the parts of a controller, to read its state while it runs.
#[derive(Clone)]
pub struct ControllerView {
    /// The controller's name in logs and metrics.
    pub name: &'static str,
    /// Its queue.
    pub queue: RateLimitingQueue<ObjectName>,
    /// Its workers.
    pub workers: Workers,
    /// Returns the resource version of a key's object in the cache.
    pub version_of: VersionOf,
}

/// Returns the resource version of a key's object in the cache, if the object is there.
pub(super) type VersionOf = Arc<dyn Fn(&ObjectName) -> Option<String> + Send + Sync>;

impl fmt::Debug for Workers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Workers").field("count", &self.count.get()).finish_non_exhaustive()
    }
}

impl fmt::Debug for ControllerView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ControllerView").field("name", &self.name).finish_non_exhaustive()
    }
}

/// A sync in progress.
#[derive(Clone, Debug)]
pub struct RunningPass {
    /// The index of the worker.
    pub worker: usize,
    /// The worker's task, by which the requests of the sync are found.
    pub task: Option<tokio::task::Id>,
    /// The object's key.
    pub key: ObjectName,
    /// Why the sync is made.
    pub reasons: Reasons,
    /// When the sync began.
    pub since: Instant,
}

// === impl Workers ===

impl Workers {
    pub(super) fn new(workers: usize) -> Self {
        let count = Mutex::new(Count { wanted: workers, waiting: 0 });
        Self {
            count: Arc::new(SharedCount { count, changed: Notify::new() }),
            slow: Arc::default(),
            passes: Arc::default(),
            why: Arc::default(),
            observer: Arc::default(),
        }
    }

    /// Sets the number of workers. Surplus workers end after their current sync; with zero, keys wait in the queue.
    pub fn set(&self, workers: usize) {
        self.set_with(workers, None);
    }

    /// Sets the number of workers, for a reason that logs and pages show.
    pub(in crate::controller) fn set_because(&self, workers: usize, why: String) {
        self.set_with(workers, Some(why));
    }

    fn set_with(&self, workers: usize, why: Option<String>) {
        *self.why.lock() = why;
        self.count.modify(|count| count.wanted = workers);
    }

    /// Returns the wanted number of workers. More run while syncs wait for slow answers.
    #[must_use]
    pub fn count(&self) -> usize {
        self.count.get().wanted
    }

    /// Returns why the number was last changed; `None` if somebody has set it.
    #[must_use]
    pub fn why(&self) -> Option<String> {
        self.why.lock().clone()
    }

    /// Returns how long all syncs took so far, those in progress included.
    #[must_use]
    pub fn busy(&self) -> Duration {
        let passes = self.passes.lock();
        passes.ended + passes.running.values().map(|pass| pass.since.elapsed()).sum::<Duration>()
    }

    /// Returns how many syncs wait for a slow answer, so that other workers stand in for theirs.
    pub(in crate::controller) fn standing_in(&self) -> usize {
        self.count.get().waiting
    }

    /// Returns how long this key's sync may wait for an answer until another worker stands in, and what is to be called
    /// when it begins or ceases to wait for longer.
    pub(super) fn patience(&self, key: &ObjectName) -> (Duration, OnSlow) {
        let namespace = key.namespace().unwrap_or_default().to_owned();
        let is_slow = self.slow.lock().get(&namespace).is_some_and(SlowNamespace::is_slow);
        let patience = if is_slow { LESS_PATIENCE } else { PATIENCE };
        let (count, slow) = (self.count.clone(), self.slow.clone());
        let on_slow: OnSlow = Box::new(move |waits| {
            let mut slow = slow.lock();
            let of_namespace = slow.entry(namespace.clone()).or_default();
            let change = |number: &mut usize| *number = if waits { *number + 1 } else { *number - 1 };
            change(&mut of_namespace.waiting);
            if !is_slow {
                change(&mut of_namespace.stuck);
            }
            slow.retain(|_, namespace| !namespace.is_over());
            let all = slow.values().map(|namespace| namespace.waiting).sum();
            count.modify(|count| count.waiting = all);
        });
        (patience, on_slow)
    }

    /// Records a failed sync of this key that waited for a slow answer, and returns whether the sync was slow itself. A
    /// worker with less patience has not seen that by the answer alone.
    pub(super) fn failed_slowly(&self, key: &ObjectName, took: Duration) -> bool {
        if took < PATIENCE {
            return false;
        }
        let namespace = key.namespace().unwrap_or_default().to_owned();
        self.slow.lock().entry(namespace).or_default().failed = Some(Instant::now());
        true
    }

    /// Whether this namespace has used its share of the stand-ins: the ones left are for others.
    pub(super) fn are_crowded_by(&self, namespace: &str) -> bool {
        self.slow.lock().get(namespace).is_some_and(|namespace| self.is_crowded(namespace))
    }

    fn is_crowded(&self, namespace: &SlowNamespace) -> bool {
        let count = self.count.get();
        let left = (count.wanted * STAND_INS).saturating_sub(count.waiting);
        namespace.waiting > 0 && namespace.waiting >= left
    }

    /// Remembers a delayed key of a crowded namespace, for [`unpark`](Self::unpark).
    pub(super) fn park(&self, key: &ObjectName, priority: i32) {
        let namespace = key.namespace().unwrap_or_default().to_owned();
        self.slow.lock().entry(namespace).or_default().parked.insert((Reverse(priority), key.clone()));
    }

    /// Returns the namespaces that have parked keys.
    pub(super) fn parked_namespaces(&self) -> Vec<String> {
        let slow = self.slow.lock();
        slow.iter().filter(|(_, of)| !of.parked.is_empty()).map(|(namespace, _)| namespace.clone()).collect()
    }

    /// Returns a parked key to queue now, unless the namespace is crowded. To be called whenever a key of it has been
    /// processed: while there is room, one key follows on the other.
    pub(super) fn unpark(&self, namespace: &str) -> Option<ObjectName> {
        let mut slow = self.slow.lock();
        let of_namespace = slow.get_mut(namespace).filter(|namespace| !self.is_crowded(namespace))?;
        let next = of_namespace.take_next();
        if of_namespace.is_over() {
            slow.remove(namespace);
        }
        next
    }

    /// Tells `observer` of each sync from now on. A controller has one observer: another is ignored.
    pub fn observe(&self, observer: Arc<dyn PassObserver>) {
        self.observer.set(observer).ok();
    }

    pub(super) fn observer(&self) -> Option<&dyn PassObserver> {
        self.observer.get().map(|observer| &**observer)
    }

    /// Returns the syncs in progress. For the keys that wait, see
    /// [`RateLimitingQueue::list`](crate::workqueue::RateLimitingQueue::list).
    #[must_use]
    pub fn passes(&self) -> Vec<RunningPass> {
        self.passes.lock().running.values().cloned().collect()
    }

    /// Returns the number of syncs in progress.
    #[must_use]
    pub fn running(&self) -> usize {
        self.passes.lock().running.len()
    }

    /// Returns how many workers are wanted, and how many stand in.
    pub(super) fn counted(&self) -> Count {
        self.count.get()
    }

    /// Waits until the number of workers changes after this call.
    ///
    /// # Cancel safety
    /// Cancel-safe.
    pub(super) fn changed(&self) -> Notified<'_> {
        self.count.changed.notified()
    }

    /// Lists a sync until the returned guard is dropped.
    pub(super) fn begin(&self, pass: RunningPass) -> impl Drop + use<> {
        let worker = pass.worker;
        self.passes.lock().running.insert(worker, pass);
        Listed { worker, passes: self.passes.clone() }
    }
}

// === impl SharedCount ===

impl SharedCount {
    fn get(&self) -> Count {
        *self.count.lock()
    }

    fn modify(&self, change: impl FnOnce(&mut Count)) {
        change(&mut self.count.lock());
        self.changed.notify_waiters();
    }
}

// === impl SlowNamespace ===

impl SlowNamespace {
    fn is_over(&self) -> bool {
        self.waiting == 0 && self.parked.is_empty() && !self.has_failed()
    }

    fn is_slow(&self) -> bool {
        self.stuck > 0 || self.has_failed()
    }

    fn has_failed(&self) -> bool {
        self.failed.is_some_and(|failed| failed.elapsed() < REMEMBERED)
    }

    fn take_next(&mut self) -> Option<ObjectName> {
        let first = self.parked.first()?;
        let later = self.released.as_ref().map_or(Bound::Unbounded, Bound::Excluded);
        let in_turn = self.parked.range((later, Bound::Unbounded)).next();
        let next = in_turn.filter(|(priority, _)| *priority == first.0).unwrap_or(first).clone();
        self.parked.remove(&next);
        self.released = Some(next.clone());
        Some(next.1)
    }
}

// === impl Count ===

impl Count {
    /// Returns how many workers run.
    pub(super) fn running(self) -> usize {
        self.wanted + self.waiting.min(self.wanted * STAND_INS)
    }
}

struct Listed {
    worker: usize,
    passes: Arc<Mutex<Passes>>,
}

impl Drop for Listed {
    fn drop(&mut self) {
        let mut passes = self.passes.lock();
        if let Some(pass) = passes.running.remove(&self.worker) {
            passes.ended += pass.since.elapsed();
        }
    }
}
