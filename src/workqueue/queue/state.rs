//! What a queue knows, behind its lock: which keys are dirty, queued, processed, and who waits for one.
//!
//! Nothing here waits or wakes: each step says who is to be woken when the lock is free.

use std::collections::VecDeque;
use std::task::Waker;
use std::time::Duration;

use super::super::keyed::Keyed;
use super::super::levels::{Levels, Place};
use super::super::metrics::QueueState;
use super::super::reasons::Reasons;
use super::{Key, Processing, Queue};

pub(super) struct State<T> {
    /// What is dirty or processed.
    keys: Keyed<T, Entry>,
    /// What to hand out, in order. Every key here is dirty and not processed.
    pub(super) queued: Levels,
    processing: Vec<InFlight>,
    /// How many keys are dirty.
    depth: usize,
    /// Gets that wait, with names.
    pub(super) waiters: VecDeque<(u64, Waker)>,
    pub(super) last_waiter: u64,
    wakeups: u64,
    pub(super) shutting_down: bool,
    /// How often it was shut down without a drain.
    pub(super) forced: u64,
}

/// What there is to know about a key, in half a cache line. Times are nanoseconds since the queue was made.
struct Entry {
    reasons: Reasons,
    /// When it was added; [`CLEAN`] when it needs no pass.
    added: u64,
    /// Of its place among the queued; 0 when it is not queued.
    stamp: u64,
    priority: i32,
    /// Its place among the processed, or [`IDLE`].
    processing: u32,
}

const CLEAN: u64 = u64::MAX;
const IDLE: u32 = u32::MAX;

struct InFlight {
    number: u32,
    since: u64,
}

// === impl State ===

impl<T: Key> State<T> {
    pub(super) fn new(queued: Levels) -> Self {
        Self {
            keys: Keyed::default(),
            queued,
            processing: Vec::new(),
            depth: 0,
            waiters: VecDeque::new(),
            last_waiter: 0,
            wakeups: 0,
            shutting_down: false,
            forced: 0,
        }
    }

    /// Whether the key was clean, and who is to be woken.
    pub(super) fn add(&mut self, key: T, priority: i32, reasons: Reasons, now: u64) -> (bool, Option<Waker>) {
        if self.shutting_down {
            return (false, None);
        }
        let (number, _) = self.keys.find_or_insert(key, Entry::clean);
        let Some(entry) = self.keys.get_mut(number) else { return (false, None) };
        entry.reasons.merge(reasons);
        if entry.added != CLEAN {
            if priority > entry.priority && self.queued.has_priorities() {
                if entry.stamp != 0 {
                    let place = Place { stamp: entry.stamp, number };
                    let Some(stamp) = self.queued.raise(place, entry.priority, priority, now) else {
                        return (false, None);
                    };
                    entry.stamp = stamp;
                }
                entry.priority = priority;
            }
            return (false, None);
        }
        entry.priority = priority;
        entry.added = now;
        self.depth += 1;
        if entry.processing != IDLE {
            return (true, None);
        }
        (true, self.push(number, now))
    }

    /// Queues a dirty key; returns who is to be woken for it.
    fn push(&mut self, number: u32, now: u64) -> Option<Waker> {
        let entry = self.keys.get_mut(number)?;
        entry.stamp = self.queued.push(number, entry.priority, now);
        self.next_waiter()
    }

    pub(super) fn next_waiter(&mut self) -> Option<Waker> {
        let (_, waker) = self.waiters.pop_front()?;
        self.wakeups += 1;
        Some(waker)
    }

    /// Names grow, so they are in order.
    pub(super) fn find_waiter(&self, waiter: u64) -> Option<usize> {
        self.waiters.binary_search_by_key(&waiter, |(name, _)| *name).ok()
    }

    /// Whether it was still waiting.
    pub(super) fn remove_waiter(&mut self, waiter: u64) -> bool {
        self.find_waiter(waiter).and_then(|at| self.waiters.remove(at)).is_some()
    }

    /// Hands out the first key.
    pub(super) fn get(&mut self, queue: &Queue<T>, now: u64) -> Option<Processing<T>> {
        let Self { keys, queued, .. } = self;
        let place =
            queued.pop(|place| keys.get(place.number).is_some_and(|(_, e)| e.stamp == place.stamp))?;
        let number = place.number;
        self.depth -= 1;
        let at = u32::try_from(self.processing.len()).expect("there are fewer than four billion workers");
        self.processing.push(InFlight { number, since: now });
        let entry = self.keys.get_mut(number)?;
        entry.stamp = 0;
        entry.processing = at;
        let (priority, added) = (entry.priority, std::mem::replace(&mut entry.added, CLEAN));
        let reasons = std::mem::take(&mut entry.reasons);
        let key = self.keys.get(number)?.0.clone();
        let waited = Duration::from_nanos(now.saturating_sub(added));
        Some(Processing { key, number, priority, reasons, waited, queue: queue.clone() })
    }

    /// How long the key was processed, and who is to be woken because it is queued again.
    pub(super) fn done(&mut self, number: u32, now: u64) -> (Duration, Option<Waker>) {
        let Some(entry) = self.keys.get_mut(number) else { return (Duration::ZERO, None) };
        let at = std::mem::replace(&mut entry.processing, IDLE);
        let is_dirty = entry.added != CLEAN;
        let since = self.processing.swap_remove(at as usize).since;
        if let Some(moved) = self.processing.get(at as usize).map(|other| other.number)
            && let Some(moved) = self.keys.get_mut(moved)
        {
            moved.processing = at;
        }
        let worked = Duration::from_nanos(now.saturating_sub(since));
        if is_dirty {
            return (worked, self.push(number, now));
        }
        self.keys.remove(number);
        (worked, None)
    }

    /// How many keys workers have.
    pub(super) fn processing(&self) -> usize {
        self.processing.len()
    }

    pub(super) fn is_idle(&self) -> bool {
        self.queued.len() == 0 && self.processing.is_empty()
    }

    pub(super) fn describe(&self, now: u64) -> QueueState {
        let since = |then: u64| Duration::from_nanos(now.saturating_sub(then));
        let running = self.processing.iter().map(|in_flight| since(in_flight.since));
        let added = |place: Place| {
            let (_, entry) = self.keys.get(place.number)?;
            (entry.stamp == place.stamp).then_some(entry.added)
        };
        let oldest = self.queued.heads(added).into_iter().min();
        QueueState {
            depth: self.depth,
            by_priority: self.queued.by_priority(),
            processing: self.processing.len(),
            unfinished_work: running.clone().sum(),
            longest_running: running.max().unwrap_or_default(),
            oldest_waiting: oldest.map(since).unwrap_or_default(),
            wakeups: self.wakeups,
        }
    }
}

impl Entry {
    fn clean() -> Self {
        Self { reasons: Reasons::default(), added: CLEAN, stamp: 0, priority: 0, processing: IDLE }
    }
}
