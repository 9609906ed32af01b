//! What a queue knows, behind its lock: which keys are dirty, queued, processed, and who waits for one.
//!
//! Nothing here waits or wakes: each step says who is to be woken when the lock is free.

use std::collections::VecDeque;
use std::task::Waker;
use std::time::Duration;

use super::super::keyed::{Hasher, Keyed, Look, Vacancy};
use super::super::levels::Levels;
use super::super::metrics::QueueState;
use super::super::reasons::{Kept, Plain, Reasons};
use super::{Key, Processing, Queue};

pub(super) struct State<T> {
    /// What is dirty or processed.
    keys: Keyed<T, Entry>,
    /// What to hand out, in order. Every key here is dirty and not processed.
    pub(super) queued: Levels,
    seats: Seats,
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

/// What there is to know about a key, in little room. Times are nanoseconds since the queue was made.
struct Entry {
    /// When it was added; [`CLEAN`] when it needs no pass.
    added: u64,
    priority: i32,
    is_processed: bool,
    plain: Option<Plain>,
    kept: Option<Box<Kept>>,
}

const CLEAN: u64 = u64::MAX;

/// Since when workers work, each in a seat of its own.
#[derive(Default)]
struct Seats {
    since: Vec<u64>,
    free: Vec<u32>,
}

const EMPTY: u64 = u64::MAX;

/// How urgent a key is that is added, why, and when that is.
pub(super) struct Why {
    pub(super) priority: i32,
    pub(super) reasons: Reasons,
    pub(super) now: u64,
}

// === impl State ===

impl<T: Key> State<T> {
    pub(super) fn new(queued: Levels, hasher: Hasher) -> Self {
        Self {
            keys: Keyed::with_hasher(hasher),
            queued,
            seats: Seats::default(),
            depth: 0,
            waiters: VecDeque::new(),
            last_waiter: 0,
            wakeups: 0,
            shutting_down: false,
            forced: 0,
        }
    }

    /// Looks for a key, whose hash is known.
    pub(super) fn look(&self, hash: u32, key: &T) -> Look {
        self.keys.look(hash, key)
    }

    /// Puts in a key that was looked for just before; its number.
    pub(super) fn insert(&mut self, vacancy: Vacancy, key: T) -> u32 {
        self.keys.insert(vacancy, key, Entry::clean())
    }

    /// Makes a key dirty: whether it was clean, and who is to be woken.
    pub(super) fn mark(&mut self, number: u32, why: Why) -> (bool, Option<Waker>) {
        let Why { priority, reasons, now } = why;
        let Some((_, entry)) = self.keys.get_mut(number) else { return (false, None) };
        entry.give(reasons);
        if entry.added != CLEAN {
            if priority > entry.priority && self.queued.has_priorities() {
                let stays =
                    self.queued.contains(number) && !self.queued.raise(number, entry.priority, priority, now);
                if !stays {
                    entry.priority = priority;
                }
            }
            return (false, None);
        }
        entry.priority = priority;
        entry.added = now;
        self.depth += 1;
        if entry.is_processed {
            return (true, None);
        }
        (true, self.push(number, priority, now))
    }

    /// Queues a dirty key; returns who is to be woken for it.
    fn push(&mut self, number: u32, priority: i32, now: u64) -> Option<Waker> {
        self.queued.push(number, priority, now);
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
    pub(super) fn get<'a>(&mut self, queue: &'a Queue<T>, now: u64) -> Option<Processing<'a, T>> {
        let number = self.queued.pop()?;
        self.depth -= 1;
        let seat = self.seats.take(now);
        let (key, entry) = self.keys.get_mut(number)?;
        entry.is_processed = true;
        let added = std::mem::replace(&mut entry.added, CLEAN);
        let waited = Duration::from_nanos(now.saturating_sub(added));
        let reasons = Reasons::from_parts(entry.plain.take(), entry.kept.take());
        Some(Processing { key: key.clone(), number, seat, priority: entry.priority, reasons, waited, queue })
    }

    /// How long the key was processed, who is to be woken because it is queued again, and the key if it is not.
    pub(super) fn done(&mut self, number: u32, seat: u32, now: u64) -> (Duration, Option<Waker>, Option<T>) {
        let worked = Duration::from_nanos(now.saturating_sub(self.seats.leave(seat)));
        let Some((_, entry)) = self.keys.get_mut(number) else { return (worked, None, None) };
        entry.is_processed = false;
        if entry.added != CLEAN {
            let priority = entry.priority;
            return (worked, self.push(number, priority, now), None);
        }
        (worked, None, self.keys.remove(number).map(|(key, _)| key))
    }

    /// How many keys workers have.
    pub(super) fn processing(&self) -> usize {
        self.seats.taken()
    }

    pub(super) fn is_idle(&self) -> bool {
        self.queued.len() == 0 && self.seats.taken() == 0
    }

    pub(super) fn describe(&self, now: u64) -> QueueState {
        let since = |then: u64| Duration::from_nanos(now.saturating_sub(then));
        let running = self.seats.since.iter().filter(|&&since| since != EMPTY).map(|&then| since(then));
        let added = |number: u32| self.keys.get(number).map(|(_, entry)| entry.added);
        let oldest = self.queued.heads().filter_map(added).min();
        QueueState {
            depth: self.depth,
            by_priority: self.queued.by_priority(),
            processing: self.processing(),
            unfinished_work: running.clone().sum(),
            longest_running: running.max().unwrap_or_default(),
            oldest_waiting: oldest.map(since).unwrap_or_default(),
            wakeups: self.wakeups,
        }
    }
}

impl Entry {
    fn clean() -> Self {
        Self { added: CLEAN, priority: 0, is_processed: false, plain: None, kept: None }
    }

    /// Gives it more reasons.
    fn give(&mut self, reasons: Reasons) {
        if reasons.is_empty() {
            return;
        }
        let mut all = Reasons::from_parts(self.plain.take(), self.kept.take());
        all.merge(reasons);
        (self.plain, self.kept) = all.into_parts();
    }
}

impl Seats {
    fn take(&mut self, now: u64) -> u32 {
        if let Some(seat) = self.free.pop() {
            self.since[seat as usize] = now;
            return seat;
        }
        self.since.push(now);
        u32::try_from(self.since.len() - 1).expect("there are fewer than four billion workers")
    }

    /// Since when it was taken.
    fn leave(&mut self, seat: u32) -> u64 {
        self.free.push(seat);
        std::mem::replace(&mut self.since[seat as usize], EMPTY)
    }

    fn taken(&self) -> usize {
        self.since.len() - self.free.len()
    }
}
