//! The repaired fields of an object's children: detects that another client keeps reverting a child, so that the
//! controller stops fighting and reports the conflict.
//!
//! Each field is counted separately, so that a client is noticed even if it changes different fields each time. A
//! field's count restarts when its wanted value changes, because that is a new spec.
//!
//! # Guarantees
//! - A difference that comes back is repaired four times; the fifth return is contention.
//!   (test: `fifth_return_is_contended`)
//! - This holds whatever else differs at the same time. (test: `each_field_is_counted_separately`)
//! - A spec that alternates between two values is not contention. (test: `alternating_spec_is_not_contended`)
//! - Contention is retried after two minutes, and ends when a repair holds that long.
//!   (test: `contention_ends_when_a_repair_holds`)
//! - A user's request grants one immediate retry. (test: `user_request_grants_one_retry`)
//! - A new difference is repaired at once, and so is one that returns much later.
//!   (test: `new_difference_is_counted_from_zero`)
//! - Memory is bounded: by the number of fields per child, and by time.
//!   (test: `fields_remembered_per_child_are_bounded`, `repairs_are_forgotten_in_time`)
//!
//! Mirrors nothing in client-go, which does not detect such conflicts.

use std::collections::HashMap;
use std::time::Duration;

use tokio::time::Instant;

use crate::controller::kinds::difference::Difference;

/// A difference that has been repaired this many times is contended.
const RETURNS_MAX: u32 = 5;
/// How soon a contended child is retried.
pub(crate) const RETRY: Duration = Duration::from_secs(120);
/// A difference that comes back later than this counts as new.
const MEMORY: Duration = Duration::from_secs(600);
/// The number of differences that are counted per comparison.
const FOUND_MAX: usize = 64;
/// The number of fields that are remembered per child; the oldest are dropped first.
const KNOWN_MAX: usize = 2 * FOUND_MAX;

/// The repair history of each child.
#[derive(Debug, Default)]
pub(in crate::controller) struct Repairs {
    by_child: HashMap<ChildId, HashMap<String, FieldRepairs>>,
}

/// What identifies a child: its uid, or its name if differences are removed by replacing it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(in crate::controller) enum ChildId {
    Uid(String),
    Name(String),
}

/// The repairs of one field.
#[derive(Clone, Debug)]
struct FieldRepairs {
    /// The fingerprint of the wanted value.
    wanted: u64,
    /// How often the field was written.
    times: u32,
    last: Instant,
    /// The user's request at the last repair.
    asked: Option<String>,
}

/// Whether differences may be repaired.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::controller) enum Decision {
    /// Yes.
    Repair,
    /// Yes, once: two minutes have passed, a user asked for a retry, or there is a new difference. The child stays
    /// contended until the repair has held.
    Retry,
    /// No: another client keeps reverting the child. Retry after this time.
    Wait(Duration),
}

// === impl FieldRepairs ===

impl FieldRepairs {
    fn are_contended(&self, wanted: u64) -> bool {
        self.wanted == wanted && self.times >= RETURNS_MAX && self.last.elapsed() < MEMORY
    }
}

// === impl Repairs ===

impl Repairs {
    /// Decides whether these differences of a child may be repaired. `asked` is the value of the annotation by which a
    /// user requests a retry; a value other than the last one grants a retry.
    pub(in crate::controller) fn decide(
        &self,
        child: &ChildId,
        found: &[Difference],
        asked: Option<&str>,
    ) -> Decision {
        let Some(known) = self.by_child.get(child) else { return Decision::Repair };
        let (mut latest, mut is_news) = (None::<&FieldRepairs>, false);
        for one in counted(found) {
            match known.get(&one.field).filter(|repairs| repairs.are_contended(one.fingerprint)) {
                Some(repairs) if latest.is_none_or(|latest| latest.last < repairs.last) => {
                    latest = Some(repairs);
                }
                Some(_) => {}
                None => is_news = true,
            }
        }
        let Some(latest) = latest else { return Decision::Repair };
        let since = latest.last.elapsed();
        if is_news || since >= RETRY || latest.asked.as_deref() != asked {
            Decision::Retry
        } else {
            Decision::Wait(RETRY - since)
        }
    }

    /// Returns those of these differences that have come back too often.
    pub(in crate::controller) fn contended(&self, child: &ChildId, found: &[Difference]) -> Vec<Difference> {
        let Some(known) = self.by_child.get(child) else { return Vec::new() };
        let is_contended = |one: &&Difference| {
            known.get(&one.field).is_some_and(|repairs| repairs.are_contended(one.fingerprint))
        };
        counted(found).filter(is_contended).cloned().collect()
    }

    /// Records that these differences were repaired, and that the server accepted the write.
    pub(in crate::controller) fn repaired(
        &mut self,
        child: &ChildId,
        found: &[Difference],
        asked: Option<&str>,
    ) {
        let now = Instant::now();
        let known = self.by_child.entry(child.clone()).or_default();
        for one in counted(found) {
            let wanted = one.fingerprint;
            let before = known.get(&one.field).filter(|repairs| repairs.wanted == wanted);
            let before = before.filter(|repairs| now - repairs.last < MEMORY);
            let times = before.map_or(0, |repairs| repairs.times).saturating_add(1);
            let repairs = FieldRepairs { wanted, times, last: now, asked: asked.map(str::to_owned) };
            known.insert(one.field.clone(), repairs);
        }
        while known.len() > KNOWN_MAX {
            let oldest = known.iter().min_by_key(|(_, repairs)| repairs.last).map(|(key, _)| key.clone());
            oldest.and_then(|key| known.remove(&key));
        }
    }

    /// Records that the child matches. Returns how much longer a repaired contended difference has to hold, if it has
    /// not held long enough.
    pub(in crate::controller) fn same(&mut self, child: impl FnOnce() -> ChildId) -> Option<Duration> {
        if self.by_child.is_empty() {
            return None;
        }
        let known = self.by_child.get_mut(&child())?;
        let tried = known.values().filter(|repairs| repairs.times > RETURNS_MAX);
        let since = tried.map(|repairs| repairs.last.elapsed()).min()?;
        if since < RETRY {
            return Some(RETRY - since);
        }
        known.retain(|_, repairs| repairs.times <= RETURNS_MAX);
        None
    }

    pub(super) fn expire(&mut self, now: Instant) {
        self.by_child.retain(|_, known| {
            known.retain(|_, repairs| now - repairs.last < MEMORY);
            !known.is_empty()
        });
    }

    pub(super) fn is_empty(&self) -> bool {
        self.by_child.is_empty()
    }
}

/// Returns the differences that are counted.
fn counted(found: &[Difference]) -> impl Iterator<Item = &Difference> {
    found.iter().take(FOUND_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn u() -> ChildId {
        ChildId::Uid("u".to_owned())
    }

    /// Differences in these fields.
    fn fields(names: &[&str]) -> Vec<Difference> {
        let differs =
            |name: &&str| Difference::shown((*name).to_owned(), "theirs".to_owned(), "ours".to_owned());
        names.iter().map(differs).collect()
    }

    /// Reports the differences once more, and repairs them if allowed.
    fn reverted(repairs: &mut Repairs, names: &[&str]) -> Decision {
        asked_for(repairs, names, None)
    }

    fn asked_for(repairs: &mut Repairs, names: &[&str], asked: Option<&str>) -> Decision {
        let decision = repairs.decide(&u(), &fields(names), asked);
        if decision == Decision::Repair || decision == Decision::Retry {
            repairs.repaired(&u(), &fields(names), asked);
        }
        decision
    }

    #[tokio::test(start_paused = true)]
    async fn fifth_return_is_contended() {
        let mut repairs = Repairs::default();
        for _ in 0..RETURNS_MAX {
            assert_eq!(reverted(&mut repairs, &["replicas"]), Decision::Repair);
            tokio::time::advance(Duration::from_secs(1)).await;
            assert_eq!(repairs.same(u), None);
        }
        let wait = Decision::Wait(RETRY - Duration::from_secs(1));
        assert_eq!(reverted(&mut repairs, &["replicas"]), wait);
        assert_eq!(
            repairs.decide(&ChildId::Uid("other".to_owned()), &fields(&["replicas"]), None),
            Decision::Repair
        );
    }

    /// Two clients, or one client that changes different fields each time.
    #[tokio::test(start_paused = true)]
    async fn each_field_is_counted_separately() {
        let mut repairs = Repairs::default();
        let sets = [&["replicas"][..], &["replicas", "image"], &["image"], &["labels", "replicas"]];
        let mut written = 0;
        for found in sets.iter().cycle().take(400) {
            if !matches!(reverted(&mut repairs, found), Decision::Wait(_)) {
                written += 1;
            }
            tokio::time::advance(Duration::from_millis(10)).await;
        }
        assert!(written <= 3 * RETURNS_MAX, "{written}");
        let both = fields(&["replicas", "ports"]);
        assert_eq!(repairs.contended(&u(), &both), fields(&["replicas"]), "`ports` is not contended");
    }

    #[tokio::test(start_paused = true)]
    async fn alternating_spec_is_not_contended() {
        let mut repairs = Repairs::default();
        for wanted in ["2", "3"].iter().cycle().take(40) {
            let found = [Difference::shown("replicas".to_owned(), "other".to_owned(), (*wanted).to_owned())];
            assert_eq!(repairs.decide(&u(), &found, None), Decision::Repair);
            repairs.repaired(&u(), &found, None);
        }
        assert_eq!(repairs.same(u), None);
    }

    #[tokio::test(start_paused = true)]
    async fn failed_writes_do_not_count() {
        let repairs = Repairs::default();
        for _ in 0..20 {
            assert_eq!(repairs.decide(&u(), &fields(&["replicas"]), None), Decision::Repair);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn contention_ends_when_a_repair_holds() {
        let mut repairs = Repairs::default();
        while reverted(&mut repairs, &["image"]) == Decision::Repair {}
        tokio::time::advance(RETRY).await;
        assert_eq!(reverted(&mut repairs, &["image"]), Decision::Retry, "one retry every two minutes");
        assert_eq!(repairs.same(u), Some(RETRY), "the repair has not held long enough");
        assert_eq!(reverted(&mut repairs, &["image"]), Decision::Wait(RETRY));
        tokio::time::advance(RETRY).await;
        assert_eq!(reverted(&mut repairs, &["image"]), Decision::Retry);
        tokio::time::advance(RETRY).await;
        assert_eq!(repairs.same(u), None);
        assert_eq!(reverted(&mut repairs, &["image"]), Decision::Repair, "the count restarts");
        assert_eq!(repairs.same(u), None);
    }

    #[tokio::test(start_paused = true)]
    async fn user_request_grants_one_retry() {
        let mut repairs = Repairs::default();
        while asked_for(&mut repairs, &["image"], Some("before")) == Decision::Repair {}
        let wait = Decision::Wait(RETRY);
        assert_eq!(asked_for(&mut repairs, &["image"], Some("before")), wait, "already granted");
        assert_eq!(asked_for(&mut repairs, &["image"], Some("now")), Decision::Retry);
        assert_eq!(asked_for(&mut repairs, &["image"], Some("now")), wait, "one retry per request");
        assert_eq!(repairs.same(u), Some(RETRY), "the repair has to hold like any other");
    }

    #[tokio::test(start_paused = true)]
    async fn new_difference_is_counted_from_zero() {
        let mut repairs = Repairs::default();
        while reverted(&mut repairs, &["image"]) == Decision::Repair {}
        for _ in 0..RETURNS_MAX {
            assert_eq!(reverted(&mut repairs, &["replicas"]), Decision::Repair);
        }
        assert_eq!(
            reverted(&mut repairs, &["image"]),
            Decision::Wait(RETRY),
            "the contention of `image` is remembered"
        );
        let both = ["image", "ports"];
        assert_eq!(reverted(&mut repairs, &both), Decision::Retry, "a new difference is not held up");
        tokio::time::advance(MEMORY).await;
        assert_eq!(reverted(&mut repairs, &["replicas"]), Decision::Repair);
        repairs.expire(Instant::now());
        assert_eq!(repairs.by_child[&u()].values().map(|field| field.times).max(), Some(1));
    }

    #[tokio::test(start_paused = true)]
    async fn fields_remembered_per_child_are_bounded() {
        let mut repairs = Repairs::default();
        let many: Vec<String> = (0..1000).map(|at| format!("ports[{at}]")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        for one in many.chunks(FOUND_MAX / 2) {
            tokio::time::advance(Duration::from_millis(1)).await;
            reverted(&mut repairs, one);
        }
        assert_eq!(repairs.by_child[&u()].len(), KNOWN_MAX);
        while reverted(&mut repairs, &many) == Decision::Repair {}
        assert_eq!(
            reverted(&mut repairs, &many),
            Decision::Wait(RETRY),
            "differences beyond the limit are detected, too"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn repairs_are_forgotten_in_time() {
        let mut repairs = Repairs::default();
        repairs.repaired(&u(), &fields(&["image"]), None);
        tokio::time::advance(MEMORY / 2).await;
        repairs.repaired(&ChildId::Name("web-0".to_owned()), &fields(&["image"]), None);
        repairs.expire(Instant::now());
        assert_eq!(repairs.by_child.len(), 2);
        tokio::time::advance(MEMORY / 2).await;
        repairs.expire(Instant::now());
        assert_eq!(repairs.by_child.len(), 1);
        tokio::time::advance(MEMORY / 2).await;
        repairs.expire(Instant::now());
        assert!(repairs.is_empty());
    }
}
