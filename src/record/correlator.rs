//! Decides whether an event is written as a new one, as part of a series, or not at all.
//!
//! Mirrors client-go `tools/events/event_broadcaster.go` (the series) and `tools/record/events_cache.go`
//! (`EventCorrelator`, `EventSourceObjectSpamFilter`). Synchronous; only the sink calls it.
//!
//! # Guarantees
//! - The second equal event makes the first a series; later ones are counted, and the count is written every 30 min,
//!   and once after 6 min without another.
//!   (test: `repeats_become_a_series`, `a_series_ends_with_its_last_count`)
//! - A repeat during the write of the first event waits for the response.
//!   (test: `repeat_waits_for_the_write_of_the_first`)
//! - Memory is bounded, and no event visits the others. (test: `number_of_remembered_series_is_bounded`)

use std::collections::{HashMap, VecDeque};
use std::hash::BuildHasher;
use std::time::Duration;

use foldhash::fast::RandomState;
use jiff::Timestamp;
use tokio::time::Instant;

use super::{Event, Regarding};

/// A series without another event for this long is over.
pub(super) const SERIES_END: Duration = Duration::from_secs(6 * 60);
/// How often an ongoing series is written.
const SERIES_REFRESH: Duration = Duration::from_secs(30 * 60);
/// How many series, and how many objects, are remembered at most.
const KNOWN_MAX: usize = 4096;
/// How many events of a type an object gets at once, and the time until each further one.
const OBJECT_BURST: f64 = 25.0;
const OBJECT_EVERY: Duration = Duration::from_secs(300);
/// The longest part of an object's name in an event's name: 253 less a dot and 16 digits.
const NAME_MAX: usize = 236;

/// The hash of an event's identity: events with equal keys belong to one series.
type Key = u64;

/// Groups events into series and limits them per object; see the module.
#[derive(Debug)]
pub(super) struct EventCorrelator {
    hasher: RandomState,
    series: LruMap<Series>,
    /// The spam filter: by object and type.
    objects: LruMap<TokenBucket>,
    /// The stamp in the last name, so that simultaneous events have different names.
    last_stamp: i64,
}

#[derive(Debug)]
struct Series {
    namespace: String,
    /// The event's name.
    name: String,
    /// Key of the object in the spam filter.
    object: Key,
    reason: &'static str,
    count: u32,
    /// The count that the server has.
    reported: u32,
    last_observed: Timestamp,
    last_write: Instant,
    is_being_written: bool,
}

/// The decision about an event.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Correlated {
    Create(Write),
    Patch(Write),
    /// Nothing to write: the event is counted in its series.
    Counted,
    /// Dropped: too many events are about its object.
    Spam,
}

/// A write of an event or its series.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Write {
    pub(super) key: Key,
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) reason: &'static str,
    pub(super) count: u32,
    pub(super) last_observed: Timestamp,
}

/// Allows `burst` at once, then one per `every`.
#[derive(Debug)]
pub(super) struct TokenBucket {
    every: Duration,
    burst: f64,
    tokens: f64,
    at: Instant,
}

/// A bounded map whose unused entries expire; when full, it drops roughly the least recently used. Each entry is
/// in the line once, and returns to its end if it was used in the meantime.
#[derive(Debug)]
struct LruMap<V> {
    entries: HashMap<Key, (V, Instant), RandomState>,
    line: VecDeque<(Instant, Key)>,
}

// === impl EventCorrelator ===

impl EventCorrelator {
    pub(super) fn new() -> Self {
        Self {
            hasher: RandomState::default(),
            series: LruMap::new(),
            objects: LruMap::new(),
            last_stamp: i64::MIN,
        }
    }

    /// Takes in an event. After a `Create` or `Patch`, the caller reports [`written`](Self::written) or
    /// [`failed`](Self::failed).
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

    /// Reports that the server accepted `write`; returns the series' next write, if repeats came meanwhile.
    pub(super) fn written(&mut self, write: &Write) -> Option<Write> {
        let series = self.series.get_mut(write.key)?;
        (series.reported, series.last_write) = (write.count, Instant::now());
        series.is_being_written = false;
        self.patch_if_due(write.key)
    }

    /// Reports that `write` failed: the next equal event starts anew.
    pub(super) fn failed(&mut self, write: &Write) {
        self.series.remove(write.key);
    }

    /// Forgets series that are over, or at the end all; stops at the first with unwritten repeats and returns its
    /// write.
    pub(super) fn next_over(&mut self, is_end: bool) -> Option<Write> {
        while self.objects.take_over(OBJECT_EVERY.mul_f64(OBJECT_BURST)).is_some() {}
        let idle = if is_end { Duration::ZERO } else { SERIES_END };
        while let Some((key, series)) = self.series.take_over(idle) {
            // A series cannot be patched while its first event is still being written.
            if series.reported > 0 && series.count > series.reported {
                return Some(series.write(key));
            }
        }
        None
    }

    /// Returns when the next series may be over.
    pub(super) fn next_look(&self) -> Option<Instant> {
        self.series.line.front().map(|(since, _)| *since + SERIES_END)
    }

    /// Returns the numbers of remembered series and objects.
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

/// Shortens an object's name to leave room for the stamp, without a dot or dash at its end.
pub(super) fn shortened(name: &str) -> &str {
    name[..name.floor_char_boundary(NAME_MAX)].trim_end_matches(['.', '-'])
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
    /// Creates a full bucket.
    pub(super) fn new(every: Duration, burst: f64) -> Self {
        Self { every, burst, tokens: burst, at: Instant::now() }
    }

    /// Takes a token; returns whether there was one.
    pub(super) fn take(&mut self) -> bool {
        let is_there = self.wait().is_zero();
        if is_there {
            self.tokens -= 1.0;
        }
        is_there
    }

    /// Returns the time until there is a token.
    pub(super) fn wait(&mut self) -> Duration {
        let now = Instant::now();
        let earned = (now - self.at).as_secs_f64() / self.every.as_secs_f64();
        (self.tokens, self.at) = ((self.tokens + earned).min(self.burst), now);
        Duration::from_secs_f64((1.0 - self.tokens).max(0.0) * self.every.as_secs_f64())
    }
}

// === impl LruMap ===

impl<V> LruMap<V> {
    fn new() -> Self {
        Self { entries: HashMap::default(), line: VecDeque::new() }
    }

    fn get_mut(&mut self, key: Key) -> Option<&mut V> {
        self.entries.get_mut(&key).map(|(value, _)| value)
    }

    /// Returns the entry and marks it as used now.
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

    /// Removes the entry; `take_over` later skips its key in the line.
    fn remove(&mut self, key: Key) {
        self.entries.remove(&key);
    }

    /// Removes and returns an entry that was unused for `idle`, or one of too many.
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
