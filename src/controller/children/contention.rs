//! Detects that another client keeps reverting a child, so that the controller stops fighting and reports the conflict.
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
//! - Memory is bounded: by the number of fields per child, and by time overall.
//!   (test: `fields_remembered_per_child_are_bounded`, `repair_does_not_scan_other_children`)
//!
//! Mirrors nothing in client-go, which does not detect such conflicts.

use std::collections::HashMap;
use std::time::Duration;

use tokio::time::Instant;

use crate::controller::kinds::difference::Difference;
use crate::controller::recent::Recent;

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

/// The repair history of each child, by uid, or by a stable key if the child is replaced. Old entries expire.
#[derive(Debug)]
pub struct Contention {
    children: Recent<String, HashMap<String, Repairs>>,
}

/// The repairs of one field.
#[derive(Clone, Debug)]
struct Repairs {
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
pub enum Decision {
    /// Yes.
    Repair,
    /// Yes, once: two minutes have passed, a user asked for a retry, or there is a new difference. The child stays
    /// contended until the repair has held.
    Retry,
    /// No: another client keeps reverting the child. Retry after this time.
    Wait(Duration),
}

// === impl Repairs ===

impl Repairs {
    fn are_contended(&self, wanted: u64) -> bool {
        self.wanted == wanted && self.times >= RETURNS_MAX && self.last.elapsed() < MEMORY
    }
}

// === impl Contention ===

impl Contention {
    /// Decides whether these differences of a child may be repaired. `asked` is the value of the annotation by which a
    /// user requests a retry; a value other than the last one grants a retry.
    #[must_use]
    pub fn decide(&self, child: &str, found: &[Difference], asked: Option<&str>) -> Decision {
        let latest = self.children.at(child, |known| {
            let known = known.get()?;
            let (mut latest, mut is_news) = (None::<&Repairs>, false);
            for one in counted(found) {
                match known.get(&one.field).filter(|repairs| repairs.are_contended(one.fingerprint)) {
                    Some(repairs) if latest.is_none_or(|latest| latest.last < repairs.last) => {
                        latest = Some(repairs);
                    }
                    Some(_) => {}
                    None => is_news = true,
                }
            }
            latest.map(|latest| (latest.clone(), is_news))
        });
        let Some((latest, is_news)) = latest else { return Decision::Repair };
        let since = latest.last.elapsed();
        if is_news || since >= RETRY || latest.asked.as_deref() != asked {
            Decision::Retry
        } else {
            Decision::Wait(RETRY - since)
        }
    }

    /// Returns those of these differences that have come back too often.
    #[must_use]
    pub fn contended(&self, child: &str, found: &[Difference]) -> Vec<Difference> {
        self.children.at(child, |known| {
            let Some(known) = known.get() else { return Vec::new() };
            let is_contended = |one: &&Difference| {
                known.get(&one.field).is_some_and(|repairs| repairs.are_contended(one.fingerprint))
            };
            counted(found).filter(is_contended).cloned().collect()
        })
    }

    /// Records that these differences were repaired, and that the server accepted the write.
    pub fn repaired(&self, child: &str, found: &[Difference], asked: Option<&str>) {
        let now = Instant::now();
        self.children.at(child, |known| {
            let known = known.renewed(HashMap::new);
            known.retain(|_, repairs| now - repairs.last < MEMORY);
            for one in counted(found) {
                let wanted = one.fingerprint;
                let before = known.get(&one.field).filter(|repairs| repairs.wanted == wanted);
                let times = before.map_or(0, |repairs| repairs.times).saturating_add(1);
                let repairs = Repairs { wanted, times, last: now, asked: asked.map(str::to_owned) };
                known.insert(one.field.clone(), repairs);
            }
            while known.len() > KNOWN_MAX {
                let oldest = known.iter().min_by_key(|(_, repairs)| repairs.last).map(|(key, _)| key.clone());
                oldest.and_then(|key| known.remove(&key));
            }
        });
    }

    /// Records that the child matches. Returns how much longer a repaired contended difference has to hold, if it has
    /// not held long enough.
    #[must_use]
    pub fn same(&self, child: &str) -> Option<Duration> {
        self.children.at(child, |known| {
            let known = known.get_mut()?;
            let tried = known.values().filter(|repairs| repairs.times > RETURNS_MAX);
            let since = tried.map(|repairs| repairs.last.elapsed()).min()?;
            if since < RETRY {
                return Some(RETRY - since);
            }
            known.retain(|_, repairs| repairs.times <= RETURNS_MAX);
            None
        })
    }

    /// Returns the number of children remembered.
    #[must_use]
    pub fn len(&self) -> usize {
        self.children.len()
    }

    /// Whether no children are remembered.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Default for Contention {
    fn default() -> Self {
        Self { children: Recent::new(MEMORY) }
    }
}

/// Returns the differences that are counted.
fn counted(found: &[Difference]) -> impl Iterator<Item = &Difference> {
    found.iter().take(FOUND_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Differences in these fields.
    fn fields(names: &[&str]) -> Vec<Difference> {
        let differs =
            |name: &&str| Difference::shown((*name).to_owned(), "theirs".to_owned(), "ours".to_owned());
        names.iter().map(differs).collect()
    }

    /// Reports the differences once more, and repairs them if allowed.
    fn reverted(contention: &Contention, names: &[&str]) -> Decision {
        asked_for(contention, names, None)
    }

    fn asked_for(contention: &Contention, names: &[&str], asked: Option<&str>) -> Decision {
        let decision = contention.decide("u", &fields(names), asked);
        if decision == Decision::Repair || decision == Decision::Retry {
            contention.repaired("u", &fields(names), asked);
        }
        decision
    }

    #[tokio::test(start_paused = true)]
    async fn fifth_return_is_contended() {
        let contention = Contention::default();
        for _ in 0..RETURNS_MAX {
            assert_eq!(reverted(&contention, &["replicas"]), Decision::Repair);
            tokio::time::advance(Duration::from_secs(1)).await;
            assert_eq!(contention.same("u"), None);
        }
        let wait = Decision::Wait(RETRY - Duration::from_secs(1));
        assert_eq!(reverted(&contention, &["replicas"]), wait);
        assert_eq!(contention.decide("other", &fields(&["replicas"]), None), Decision::Repair);
    }

    /// Two clients, or one client that changes different fields each time.
    #[tokio::test(start_paused = true)]
    async fn each_field_is_counted_separately() {
        let contention = Contention::default();
        let sets = [&["replicas"][..], &["replicas", "image"], &["image"], &["labels", "replicas"]];
        let mut written = 0;
        for found in sets.iter().cycle().take(400) {
            if !matches!(reverted(&contention, found), Decision::Wait(_)) {
                written += 1;
            }
            tokio::time::advance(Duration::from_millis(10)).await;
        }
        assert!(written <= 3 * RETURNS_MAX, "{written}");
        let both = fields(&["replicas", "ports"]);
        assert_eq!(contention.contended("u", &both), fields(&["replicas"]), "`ports` is not contended");
    }

    #[tokio::test(start_paused = true)]
    async fn alternating_spec_is_not_contended() {
        let contention = Contention::default();
        for wanted in ["2", "3"].iter().cycle().take(40) {
            let found = [Difference::shown("replicas".to_owned(), "other".to_owned(), (*wanted).to_owned())];
            assert_eq!(contention.decide("u", &found, None), Decision::Repair);
            contention.repaired("u", &found, None);
        }
        assert_eq!(contention.same("u"), None);
    }

    #[tokio::test(start_paused = true)]
    async fn failed_writes_do_not_count() {
        let contention = Contention::default();
        for _ in 0..20 {
            assert_eq!(contention.decide("u", &fields(&["replicas"]), None), Decision::Repair);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn contention_ends_when_a_repair_holds() {
        let contention = Contention::default();
        while reverted(&contention, &["image"]) == Decision::Repair {}
        tokio::time::advance(RETRY).await;
        assert_eq!(reverted(&contention, &["image"]), Decision::Retry, "one retry every two minutes");
        assert_eq!(contention.same("u"), Some(RETRY), "the repair has not held long enough");
        assert_eq!(reverted(&contention, &["image"]), Decision::Wait(RETRY));
        tokio::time::advance(RETRY).await;
        assert_eq!(reverted(&contention, &["image"]), Decision::Retry);
        tokio::time::advance(RETRY).await;
        assert_eq!(contention.same("u"), None);
        assert_eq!(reverted(&contention, &["image"]), Decision::Repair, "the count restarts");
        assert_eq!(contention.same("u"), None);
    }

    #[tokio::test(start_paused = true)]
    async fn user_request_grants_one_retry() {
        let contention = Contention::default();
        while asked_for(&contention, &["image"], Some("before")) == Decision::Repair {}
        let wait = Decision::Wait(RETRY);
        assert_eq!(asked_for(&contention, &["image"], Some("before")), wait, "already granted");
        assert_eq!(asked_for(&contention, &["image"], Some("now")), Decision::Retry);
        assert_eq!(asked_for(&contention, &["image"], Some("now")), wait, "one retry per request");
        assert_eq!(contention.same("u"), Some(RETRY), "the repair has to hold like any other");
    }

    #[tokio::test(start_paused = true)]
    async fn new_difference_is_counted_from_zero() {
        let contention = Contention::default();
        while reverted(&contention, &["image"]) == Decision::Repair {}
        for _ in 0..RETURNS_MAX {
            assert_eq!(reverted(&contention, &["replicas"]), Decision::Repair);
        }
        assert_eq!(
            reverted(&contention, &["image"]),
            Decision::Wait(RETRY),
            "the contention of `image` is remembered"
        );
        let both = ["image", "ports"];
        assert_eq!(reverted(&contention, &both), Decision::Retry, "a new difference is not held up");
        tokio::time::advance(MEMORY).await;
        assert_eq!(reverted(&contention, &["replicas"]), Decision::Repair);
        let times = contention.children.at("u", |known| known.get().unwrap().values().map(|r| r.times).max());
        assert_eq!(times, Some(1));
    }

    #[tokio::test(start_paused = true)]
    async fn fields_remembered_per_child_are_bounded() {
        let contention = Contention::default();
        let many: Vec<String> = (0..1000).map(|at| format!("ports[{at}]")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        for one in many.chunks(FOUND_MAX / 2) {
            tokio::time::advance(Duration::from_millis(1)).await;
            reverted(&contention, one);
        }
        assert_eq!(contention.children.at("u", |known| known.get().unwrap().len()), KNOWN_MAX);
        while reverted(&contention, &many) == Decision::Repair {}
        assert_eq!(
            reverted(&contention, &many),
            Decision::Wait(RETRY),
            "differences beyond the limit are detected, too"
        );
        tokio::time::advance(2 * MEMORY).await;
        contention.repaired("other", &fields(&["image"]), None);
        assert_eq!(contention.len(), 1);
    }

    /// The lock is held for one child's entry only; for the map itself see [`Recent`].
    #[tokio::test(start_paused = true)]
    async fn repair_does_not_scan_other_children() {
        for children in [1_000, 100_000] {
            let contention = Contention::default();
            for at in 0..children {
                contention.repaired(&format!("child-{at}"), &fields(&["image"]), None);
            }
            tokio::time::advance(MEMORY).await;
            contention.repaired("u", &fields(&["image"]), None);
            assert_eq!(contention.len(), children + 1, "entries expire together, without a sweep");
            tokio::time::advance(MEMORY).await;
            assert_eq!(contention.same("u"), None);
            assert_eq!(contention.len(), 1);
            tokio::time::advance(MEMORY).await;
            assert_eq!(contention.same("u"), None);
            assert!(contention.is_empty());
        }
    }
}
