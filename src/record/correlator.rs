//! Decides what is written of an event: a new one, one more of a series, or nothing.
//!
//! Mirrors client-go `tools/events/event_broadcaster.go` (the series) and `tools/record/events_cache.go`
//! (`EventCorrelator`, `EventSourceObjectSpamFilter`). Synchronous; the sink alone calls it.
//!
//! # Guarantees
//! - The first of a kind is an event, the second makes it a series; later ones are counted and written each 30 min,
//!   and when there has been none for 6 min. (test: `repeats_become_a_series`, `a_series_ends_with_its_last_count`)
//! - A repeat during the write of the first waits for its answer. (test: `a_repeat_waits_for_the_first`)
//! - Memory has a bound, and no event visits the others. (test: `only_so_many_series_are_remembered`)

use std::collections::{HashMap, VecDeque};
use std::hash::BuildHasher;
use std::time::Duration;

use foldhash::fast::RandomState;
use jiff::Timestamp;
use tokio::time::Instant;

use super::{Event, Regarding};

/// A series without another event for this long is over.
pub(super) const SERIES_END: Duration = Duration::from_secs(6 * 60);
/// How often a series that goes on is written.
const SERIES_REFRESH: Duration = Duration::from_secs(30 * 60);
/// How many series, and how many objects, are remembered at most.
const KNOWN_MAX: usize = 4096;
/// How many events of a type an object gets at once, and how soon it gets one more.
const OBJECT_BURST: f64 = 25.0;
const OBJECT_EVERY: Duration = Duration::from_secs(300);
/// The longest part of an object's name in an event's name: 253 less a dot and 16 digits.
const NAME_MAX: usize = 236;

/// What tells events apart: two that are equal belong to one series.
type Key = u64;

/// See the module.
#[derive(Debug)]
pub(super) struct EventCorrelator {
    hasher: RandomState,
    series: Known<Series>,
    /// The spam filter: by object and type.
    objects: Known<TokenBucket>,
    /// The last name's number, so that two events of one moment have two names.
    last_stamp: i64,
}

#[derive(Debug)]
struct Series {
    namespace: String,
    /// The event's name.
    name: String,
    /// In the spam filter.
    object: Key,
    reason: &'static str,
    count: u32,
    /// What the server knows of it.
    reported: u32,
    last_observed: Timestamp,
    last_write: Instant,
    is_being_written: bool,
}

/// What is to be done with an event.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Correlated {
    Create(Write),
    Patch(Write),
    /// It is one of a series, and that is enough.
    Counted,
    /// Too many are about its object.
    Spam,
}

/// What is written, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Write {
    pub(super) key: Key,
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) reason: &'static str,
    pub(super) count: u32,
    pub(super) last_observed: Timestamp,
}

/// `burst` at once, then one in `every`.
#[derive(Debug)]
pub(super) struct TokenBucket {
    every: Duration,
    burst: f64,
    tokens: f64,
    at: Instant,
}

/// Entries that go when they were not used for a while, or when they are too many: then roughly those that were used
/// longest ago. Each entry stands in the line once; one that was used meanwhile goes to its end again.
#[derive(Debug)]
struct Known<V> {
    entries: HashMap<Key, (V, Instant), RandomState>,
    line: VecDeque<(Instant, Key)>,
}

// === impl EventCorrelator ===

impl EventCorrelator {
    pub(super) fn new() -> Self {
        Self {
            hasher: RandomState::default(),
            series: Known::new(),
            objects: Known::new(),
            last_stamp: i64::MIN,
        }
    }

    /// One more event. After a `Create` or `Patch` comes [`written`](Self::written) or [`failed`](Self::failed).
    pub(super) fn correlate(&mut self, event: &Event) -> Correlated {
        let Event { regarding, event_type, reason, action, note, time } = event;
        let key = self.hasher.hash_one((&regarding.uid, &regarding.name, event_type, reason, action, note));
        let object = self.hasher.hash_one((&regarding.uid, &regarding.name, event_type));
        if let Some(series) = self.series.used(key) {
            (series.count, series.last_observed) = (series.count.saturating_add(1), *time);
            return self.patch_if_due(key).map_or(Correlated::Counted, Correlated::Patch);
        }
        if !self.takes_token(object) {
            return Correlated::Spam;
        }
        let series = Series {
            namespace: regarding.namespace.clone().unwrap_or_else(|| "default".to_owned()),
            name: self.name(regarding, *time),
            object,
            reason,
            count: 1,
            reported: 0,
            last_observed: *time,
            last_write: Instant::now(),
            is_being_written: true,
        };
        let write = series.write(key);
        self.series.insert(key, series);
        Correlated::Create(write)
    }

    /// The server took this; what is to be written next of the same series, if repeats came meanwhile.
    pub(super) fn written(&mut self, write: &Write) -> Option<Write> {
        let series = self.series.get_mut(write.key)?;
        (series.reported, series.last_write) = (write.count, Instant::now());
        series.is_being_written = false;
        self.patch_if_due(write.key)
    }

    /// It did not: the next event of its kind begins anew.
    pub(super) fn failed(&mut self, write: &Write) {
        self.series.remove(write.key);
    }

    /// Forgets one series that is over, or all at the end; what is still to be written of it.
    pub(super) fn next_over(&mut self, is_end: bool) -> Option<Write> {
        while self.objects.take_over(OBJECT_EVERY.mul_f64(OBJECT_BURST)).is_some() {}
        let idle = if is_end { Duration::ZERO } else { SERIES_END };
        while let Some((key, series)) = self.series.take_over(idle) {
            // While the first is under way its count is not known to be there.
            if series.reported > 0 && series.count > series.reported {
                return Some(series.write(key));
            }
        }
        None
    }

    /// When the next series may be over.
    pub(super) fn next_look(&self) -> Option<Instant> {
        self.series.line.front().map(|(since, _)| *since + SERIES_END)
    }

    /// How many series and objects are remembered.
    #[cfg(test)]
    pub(super) fn known(&self) -> [usize; 2] {
        [self.series.entries.len(), self.objects.entries.len()]
    }

    fn patch_if_due(&mut self, key: Key) -> Option<Write> {
        let series = self.series.get_mut(key)?;
        let is_second = series.reported == 1;
        let is_due = series.count > series.reported
            && (is_second || series.last_write.elapsed() >= SERIES_REFRESH)
            && !series.is_being_written;
        let object = series.object;
        if !is_due || !self.takes_token(object) {
            return None;
        }
        let series = self.series.get_mut(key)?;
        series.is_being_written = true;
        Some(series.write(key))
    }

    fn takes_token(&mut self, object: Key) -> bool {
        if self.objects.used(object).is_none() {
            self.objects.insert(object, TokenBucket::new(OBJECT_EVERY, OBJECT_BURST));
        }
        self.objects.get_mut(object).is_some_and(TokenBucket::take)
    }

    fn name(&mut self, regarding: &Regarding, time: Timestamp) -> String {
        let stamp = i64::try_from(time.as_nanosecond()).unwrap_or(i64::MAX);
        self.last_stamp = stamp.max(self.last_stamp.saturating_add(1));
        format!("{}.{:x}", shortened(&regarding.name), self.last_stamp)
    }
}

/// The part of an object's name that leaves room for the stamp in the event's, and ends as a name may.
pub(super) fn shortened(name: &str) -> &str {
    name[..name.len().min(NAME_MAX)].trim_end_matches(['.', '-'])
}

// === impl Series ===

impl Series {
    fn write(&self, key: Key) -> Write {
        Write {
            key,
            namespace: self.namespace.clone(),
            name: self.name.clone(),
            reason: self.reason,
            count: self.count,
            last_observed: self.last_observed,
        }
    }
}

// === impl TokenBucket ===

impl TokenBucket {
    /// A full bucket.
    pub(super) fn new(every: Duration, burst: f64) -> Self {
        Self { every, burst, tokens: burst, at: Instant::now() }
    }

    /// Takes a token, if there is one.
    pub(super) fn take(&mut self) -> bool {
        let is_there = self.wait().is_zero();
        if is_there {
            self.tokens -= 1.0;
        }
        is_there
    }

    /// How long it takes until there is one.
    pub(super) fn wait(&mut self) -> Duration {
        let now = Instant::now();
        let earned = (now - self.at).as_secs_f64() / self.every.as_secs_f64();
        (self.tokens, self.at) = ((self.tokens + earned).min(self.burst), now);
        Duration::from_secs_f64((1.0 - self.tokens).max(0.0) * self.every.as_secs_f64())
    }
}

// === impl Known ===

impl<V> Known<V> {
    fn new() -> Self {
        Self { entries: HashMap::default(), line: VecDeque::new() }
    }

    fn get_mut(&mut self, key: Key) -> Option<&mut V> {
        self.entries.get_mut(&key).map(|(value, _)| value)
    }

    /// The same, and it counts as used now.
    fn used(&mut self, key: Key) -> Option<&mut V> {
        let (value, used) = self.entries.get_mut(&key)?;
        *used = Instant::now();
        Some(value)
    }

    fn insert(&mut self, key: Key, value: V) {
        let now = Instant::now();
        self.entries.insert(key, (value, now));
        self.line.push_back((now, key));
    }

    /// Its place in the line is passed over later.
    fn remove(&mut self, key: Key) {
        self.entries.remove(&key);
    }

    /// Takes out an entry that was not used for this long, or one of too many.
    fn take_over(&mut self, idle: Duration) -> Option<(Key, V)> {
        loop {
            let (since, key) = *self.line.front()?;
            let is_full = self.line.len() > KNOWN_MAX;
            if since.elapsed() < idle && !is_full {
                return None;
            }
            self.line.pop_front();
            let Some((_, used)) = self.entries.get(&key) else { continue };
            if *used > since && !idle.is_zero() {
                self.line.push_back((*used, key));
                continue;
            }
            return self.entries.remove(&key).map(|(value, _)| (key, value));
        }
    }
}
