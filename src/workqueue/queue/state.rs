//! What a queue knows, behind its lock: which keys are queued and processed, and who waits for one.
//!
//! Nothing here waits or wakes: each step says who is to be woken when the lock is free.

use std::task::Waker;
use std::time::Duration;

use super::super::keyed::{Hasher, Keyed, Look, Vacancy};
use super::super::levels::Levels;
use super::super::listing::{Listed, Stage};
use super::super::metrics::QueueState;
use super::super::reasons::{Kept, Plain, Reasons};
use super::seats::{Again, Seats};
use super::waiters::Waiters;
use super::{Key, Processing, Queue};

pub(super) struct State<T> {
    /// What is queued or processed.
    keys: Keyed<Place<T>, Entry>,
    /// What to hand out, in order.
    queued: Levels,
    seats: Seats<T>,
    /// How many keys are dirty.
    depth: usize,
    pub(super) waiters: Waiters,
    pub(super) shutting_down: bool,
    /// How often it was shut down without a drain.
    pub(super) forced: u64,
}

/// Where a key is.
enum Place<T> {
    /// Here.
    Queued(T),
    /// With the worker in this seat. Only the key's hash is left.
    Processed(u32),
}

/// What there is to know about a queued key, in little room. Times are nanoseconds since the queue was made.
struct Entry {
    /// When it was added.
    added: u64,
    priority: i32,
    plain: Option<Plain>,
    kept: Option<Box<Kept>>,
}

/// How urgent a key is that is added, why, and when that is.
#[derive(Debug)]
pub(super) struct Why {
    pub(super) priority: i32,
    pub(super) reasons: Reasons,
    pub(super) now: u64,
}

/// Where a key belongs that is added.
#[derive(Clone, Copy)]
pub(super) enum Found {
    /// It is new.
    New(Vacancy),
    /// It is queued, with this number.
    Queued(u32),
    /// It is processed.
    Processed { seat: u32, hash: u32 },
}

// === impl State ===

impl<T: Key> State<T> {
    pub(super) fn new(queued: Levels, hasher: Hasher) -> Self {
        Self {
            keys: Keyed::with_hasher(hasher),
            queued,
            seats: Seats::default(),
            depth: 0,
            waiters: Waiters::default(),
            shutting_down: false,
            forced: 0,
        }
    }

    /// Looks for a key, whose hash is known. One that is not queued and has the hash of a key that is processed is taken
    /// for that key: what it really is comes out when the worker is done.
    #[inline]
    pub(super) fn find(&self, hash: u32, key: &T) -> Found {
        let mut processed = None;
        let found = self.keys.look(hash, |place| match place {
            Place::Queued(known) => known == key,
            Place::Processed(seat) => {
                processed = Some(*seat);
                false
            }
        });
        match (found, processed) {
            (Look::Found(number), _) => Found::Queued(number),
            (Look::Missing(_), Some(seat)) => Found::Processed { seat, hash },
            (Look::Missing(vacancy), None) => Found::New(vacancy),
        }
    }

    /// Queues a new key; returns who is to be woken for it.
    #[inline]
    pub(super) fn push(&mut self, vacancy: Vacancy, key: T, why: Why) -> Option<Waker> {
        let now = why.now;
        self.push_at(vacancy, key, why, now)
    }

    /// The same for one that was added before.
    #[inline]
    fn push_at(&mut self, vacancy: Vacancy, key: T, why: Why, now: u64) -> Option<Waker> {
        let Why { priority, reasons, now: added } = why;
        let (plain, kept) = reasons.into_parts();
        let number = self.keys.insert(vacancy, Place::Queued(key), Entry { added, priority, plain, kept });
        self.queued.push(number, priority, now);
        self.depth += 1;
        self.waiters.next()
    }

    /// Gives a queued key more reasons, and a priority if that is higher.
    pub(super) fn merge(&mut self, number: u32, why: Why) {
        let Why { priority, reasons, now } = why;
        let Some((_, entry)) = self.keys.get_mut(number) else { return };
        entry.give(reasons);
        if priority > entry.priority {
            let stays =
                self.queued.has_priorities() && !self.queued.raise(number, entry.priority, priority, now);
            entry.priority = if stays { entry.priority } else { priority };
        }
    }

    /// Keeps a key that is processed until its worker is done; returns it if it is kept already.
    pub(super) fn keep(&mut self, seat: u32, hash: u32, key: T, why: Why) -> Option<T> {
        let unused = self.seats.keep(seat, Again { key, hash, why });
        self.depth += usize::from(unused.is_none());
        unused
    }

    /// Hands out the first key.
    #[inline]
    pub(super) fn get<'a>(&mut self, queue: &'a Queue<T>, now: u64) -> Option<Processing<'a, T>> {
        let number = self.queued.pop()?;
        self.depth -= 1;
        let seat = self.seats.take(now);
        let (place, entry) = self.keys.get_mut(number)?;
        let Place::Queued(key) = std::mem::replace(place, Place::Processed(seat)) else { return None };
        let waited = now.saturating_sub(entry.added);
        let reasons = Reasons::from_parts(entry.plain.take(), entry.kept.take());
        Some(Processing { key, number, seat, priority: entry.priority, reasons, waited, queue })
    }

    /// Ends a pass, and adds who is to be woken because its key is queued again; how long it took.
    #[inline]
    pub(super) fn done(&mut self, number: u32, seat: u32, now: u64, wakers: &mut Vec<Waker>) -> u64 {
        let (since, again) = self.seats.leave(seat);
        self.keys.free(number);
        for again in again {
            wakers.extend(self.come_again(again, now));
        }
        if self.keys.is_empty() {
            self.queued.give_back();
        }
        now.saturating_sub(since)
    }

    fn come_again(&mut self, again: Again<T>, now: u64) -> Option<Waker> {
        let Again { key, hash, why } = again;
        self.depth -= 1;
        match self.find(hash, &key) {
            Found::New(vacancy) => return self.push_at(vacancy, key, why, now),
            // These two only where several keys have one hash.
            Found::Queued(number) => self.merge(number, why),
            Found::Processed { seat, hash } => drop(self.keep(seat, hash, key, why)),
        }
        None
    }

    /// Who is to be woken because one that was woken has come, or has given up.
    pub(super) fn next_waiter(&mut self) -> Option<Waker> {
        if self.len() == 0 { None } else { self.waiters.next() }
    }

    /// How many keys are queued.
    pub(super) fn len(&self) -> usize {
        self.queued.len()
    }

    /// How many keys will have a pass.
    pub(super) fn depth(&self) -> usize {
        self.depth
    }

    /// How many queued keys there is room for.
    #[cfg(test)]
    pub(super) fn capacity(&self) -> usize {
        self.queued.capacity()
    }

    /// How many keys workers have.
    pub(super) fn processing(&self) -> usize {
        self.seats.taken()
    }

    pub(super) fn is_idle(&self) -> bool {
        self.len() == 0 && self.processing() == 0
    }

    pub(super) fn list(&self, now: u64, max: usize, into: &mut Vec<Listed<T>>) {
        let waited = |since: u64| Duration::from_nanos(now.saturating_sub(since));
        let queued = self.keys.iter().filter_map(|(place, entry)| {
            let Place::Queued(key) = place else { return None };
            let reasons = Reasons::from_parts(entry.plain, entry.kept.clone());
            let stage = Stage::Queued { waited: waited(entry.added) };
            Some(Listed { key: key.clone(), stage, priority: entry.priority, reasons })
        });
        let again = self.seats.again().map(|Again { key, why, .. }| {
            let stage = Stage::Processed { waited: waited(why.now) };
            Listed { key: key.clone(), stage, priority: why.priority, reasons: why.reasons.clone() }
        });
        into.extend(queued.chain(again).take(max));
    }

    pub(super) fn describe(&self, now: u64) -> QueueState {
        let running = self.seats.since().map(|since| Duration::from_nanos(now.saturating_sub(since)));
        // All are looked at: one that was raised, or came again after its pass, is older than those before it.
        let queued = self.keys.iter().filter(|(place, _)| matches!(place, Place::Queued(_)));
        let oldest = queued.map(|(_, entry)| entry.added).min();
        QueueState {
            depth: self.depth,
            by_priority: self.queued.by_priority(),
            processing: self.processing(),
            unfinished_work: running.clone().sum(),
            longest_running: running.max().unwrap_or_default(),
            oldest_waiting: oldest
                .map(|added| Duration::from_nanos(now.saturating_sub(added)))
                .unwrap_or_default(),
            wakeups: self.waiters.wakeups(),
        }
    }
}

impl Entry {
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

impl Why {
    /// Gives it the reasons of a later add, and its priority if that is higher.
    pub(super) fn merge(&mut self, later: Self) {
        self.priority = self.priority.max(later.priority);
        self.reasons.merge(later.reasons);
    }
}
