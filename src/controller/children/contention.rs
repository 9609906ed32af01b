//! Notices that somebody changes a child back each time, so that we stop fighting and say so.
//!
//! Each field is counted by itself: who changes now this one back and now two is noticed as well as who changes the same
//! one each time. When something else is wanted of a field, its count starts anew: that is a new spec.
//!
//! # Guarantees
//! - The same difference may come back four times and is repaired; the fifth return is contention. (test: `the_fifth_return_is_contention`)
//! - Whatever else differs with it. (test: `a_field_is_counted_by_itself`)
//! - A spec that goes to and fro is no contention. (test: `a_spec_that_goes_to_and_fro_is_no_contention`)
//! - Contention is tried again after two minutes, and ends when the repair holds that long. (test: `contention_ends_when_a_repair_holds`)
//! - It is tried at once, and once, when a user asks for it. (test: `a_user_may_ask_for_a_try`)
//! - Only what the server took counts. (test: `a_write_that_failed_does_not_count`)
//! - What was not seen before is written at once, and so is what comes back much later. (test: `another_difference_starts_anew`)
//! - Memory is bounded: by fields for a child, by time for all. (test: `only_so_many_fields_of_a_child_are_remembered`, `no_repair_visits_other_children`)
//!
//! Mirrors nothing in client-go: no other framework notices this.

use std::collections::HashMap;
use std::hash::BuildHasher;
use std::time::Duration;

use tokio::time::Instant;

use crate::controller::kinds::difference::{Difference, fingerprint};
use crate::controller::recent::Recent;

/// After this many returns of one difference nothing more is written at once.
const RETURNS_MAX: u32 = 5;
/// How soon a contended child is tried again.
pub const RETRY: Duration = Duration::from_secs(120);
/// A difference that comes back later than this is a new one.
const MEMORY: Duration = Duration::from_secs(600);
/// How many differences count that are found at once.
const FOUND_MAX: usize = 64;
/// How many are remembered of one child; the oldest go first.
const KNOWN_MAX: usize = 2 * FOUND_MAX;

/// What was repaired, by child: its uid, or what stays of it when it is replaced. Entries go with time.
#[derive(Debug)]
pub struct Contention {
    children: Recent<HashMap<u64, Repairs>>,
}

/// The repairs of one field.
#[derive(Clone, Copy, Debug)]
struct Repairs {
    /// What was wanted of it.
    wanted: u64,
    /// How often it was written.
    times: u32,
    last: Instant,
    /// What the user had asked for at the last of them.
    asked: u64,
}

/// Whether differences may be written away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Yes.
    Repair,
    /// Yes: as the one try in two minutes, because a user asks for it, or for the sake of what is new among them. What
    /// comes of it stays contended until it has held.
    Retry,
    /// No: somebody changes it back each time. Try again after this time.
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
    /// These differences were found on this child: what to do about them. `asked` is the value of the annotation by
    /// which a user asks for a try: another one than at the last try grants one.
    #[must_use]
    pub fn verdict(&self, child: &str, found: &[Difference], asked: Option<&str>) -> Verdict {
        let latest = self.children.at(child, |known| {
            let known = known.get()?;
            let (mut latest, mut is_news) = (None::<Repairs>, false);
            for (field, wanted) in keys(found) {
                match known.get(&field).filter(|repairs| repairs.are_contended(wanted)) {
                    Some(repairs) if latest.is_none_or(|latest| latest.last < repairs.last) => {
                        latest = Some(*repairs);
                    }
                    Some(_) => {}
                    None => is_news = true,
                }
            }
            latest.map(|latest| (latest, is_news))
        });
        let Some((latest, is_news)) = latest else { return Verdict::Repair };
        let since = latest.last.elapsed();
        if is_news || since >= RETRY || latest.asked != hash(&asked) {
            Verdict::Retry
        } else {
            Verdict::Wait(RETRY - since)
        }
    }

    /// Those of these differences that came back too often.
    #[must_use]
    pub fn contended(&self, child: &str, found: &[Difference]) -> Vec<Difference> {
        self.children.at(child, |known| {
            let Some(known) = known.get() else { return Vec::new() };
            let is_contended = |(field, wanted)| known.get(&field).is_some_and(|r| r.are_contended(wanted));
            let contended = found.iter().zip(keys(found)).filter(|(_, key)| is_contended(*key));
            contended.map(|(one, _)| one.clone()).collect()
        })
    }

    /// These differences were written away, and the server took it.
    pub fn repaired(&self, child: &str, found: &[Difference], asked: Option<&str>) {
        let (now, asked) = (Instant::now(), hash(&asked));
        self.children.at(child, |known| {
            let known = known.renewed(HashMap::new);
            known.retain(|_, repairs| now - repairs.last < MEMORY);
            for (field, wanted) in keys(found) {
                let before = known.get(&field).filter(|repairs| repairs.wanted == wanted);
                let times = before.map_or(0, |repairs| repairs.times).saturating_add(1);
                known.insert(field, Repairs { wanted, times, last: now, asked });
            }
            while known.len() > KNOWN_MAX {
                let oldest = known.iter().min_by_key(|(_, repairs)| repairs.last).map(|(key, _)| *key);
                oldest.and_then(|key| known.remove(&key));
            }
        });
    }

    /// Nothing differs on this child. While a contended difference has not stayed away long enough: the
    /// time that is missing.
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

    /// How many children it remembers.
    #[must_use]
    pub fn len(&self) -> usize {
        self.children.len()
    }

    /// Whether it remembers none.
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

/// Each field, and what is wanted of it.
fn keys(found: &[Difference]) -> impl Iterator<Item = (u64, u64)> {
    let key = |one: &Difference| (hash(&one.field), hash(&fingerprint(std::slice::from_ref(one))));
    found.iter().take(FOUND_MAX).map(key)
}

fn hash(value: &impl std::hash::Hash) -> u64 {
    foldhash::fast::FixedState::default().hash_one(value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controller::kinds::difference::difference;

    /// These fields, each with another value than is wanted.
    fn fields(names: &[&str]) -> Vec<Difference> {
        let differs = |name: &&str| difference((*name).to_owned(), "theirs".to_owned(), "ours".to_owned());
        names.iter().map(differs).collect()
    }

    /// One more return of the differences, repaired if they may be.
    fn comes_back(contention: &Contention, names: &[&str]) -> Verdict {
        asked_for(contention, names, None)
    }

    fn asked_for(contention: &Contention, names: &[&str], asked: Option<&str>) -> Verdict {
        let verdict = contention.verdict("u", &fields(names), asked);
        if verdict == Verdict::Repair || verdict == Verdict::Retry {
            contention.repaired("u", &fields(names), asked);
        }
        verdict
    }

    #[tokio::test(start_paused = true)]
    async fn the_fifth_return_is_contention() {
        let contention = Contention::default();
        for _ in 0..RETURNS_MAX {
            assert_eq!(comes_back(&contention, &["replicas"]), Verdict::Repair);
            tokio::time::advance(Duration::from_secs(1)).await;
            assert_eq!(contention.same("u"), None);
        }
        let wait = Verdict::Wait(RETRY - Duration::from_secs(1));
        assert_eq!(comes_back(&contention, &["replicas"]), wait);
        assert_eq!(contention.verdict("other", &fields(&["replicas"]), None), Verdict::Repair);
    }

    /// Two rivals, or one that changes now this and now that.
    #[tokio::test(start_paused = true)]
    async fn a_field_is_counted_by_itself() {
        let contention = Contention::default();
        let sets = [&["replicas"][..], &["replicas", "image"], &["image"], &["labels", "replicas"]];
        let mut written = 0;
        for found in sets.iter().cycle().take(400) {
            if !matches!(comes_back(&contention, found), Verdict::Wait(_)) {
                written += 1;
            }
            tokio::time::advance(Duration::from_millis(10)).await;
        }
        assert!(written <= 3 * RETURNS_MAX, "{written}");
        let both = fields(&["replicas", "ports"]);
        assert_eq!(contention.contended("u", &both), fields(&["replicas"]), "the other one is not to blame");
    }

    #[tokio::test(start_paused = true)]
    async fn a_spec_that_goes_to_and_fro_is_no_contention() {
        let contention = Contention::default();
        for wanted in ["2", "3"].iter().cycle().take(40) {
            let found = [difference("replicas".to_owned(), "other".to_owned(), (*wanted).to_owned())];
            assert_eq!(contention.verdict("u", &found, None), Verdict::Repair);
            contention.repaired("u", &found, None);
        }
        assert_eq!(contention.same("u"), None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_write_that_failed_does_not_count() {
        let contention = Contention::default();
        for _ in 0..20 {
            assert_eq!(contention.verdict("u", &fields(&["replicas"]), None), Verdict::Repair);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn contention_ends_when_a_repair_holds() {
        let contention = Contention::default();
        while comes_back(&contention, &["image"]) == Verdict::Repair {}
        tokio::time::advance(RETRY).await;
        assert_eq!(comes_back(&contention, &["image"]), Verdict::Retry, "one try each two minutes");
        assert_eq!(contention.same("u"), Some(RETRY), "too early to call it over");
        assert_eq!(comes_back(&contention, &["image"]), Verdict::Wait(RETRY));
        tokio::time::advance(RETRY).await;
        assert_eq!(comes_back(&contention, &["image"]), Verdict::Retry);
        tokio::time::advance(RETRY).await;
        assert_eq!(contention.same("u"), None);
        assert_eq!(comes_back(&contention, &["image"]), Verdict::Repair, "it starts anew");
        assert_eq!(contention.same("u"), None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_user_may_ask_for_a_try() {
        let contention = Contention::default();
        while asked_for(&contention, &["image"], Some("before")) == Verdict::Repair {}
        let wait = Verdict::Wait(RETRY);
        assert_eq!(asked_for(&contention, &["image"], Some("before")), wait, "that was asked before");
        assert_eq!(asked_for(&contention, &["image"], Some("now")), Verdict::Retry);
        assert_eq!(asked_for(&contention, &["image"], Some("now")), wait, "one try");
        assert_eq!(contention.same("u"), Some(RETRY), "and it has to hold as any other");
    }

    #[tokio::test(start_paused = true)]
    async fn another_difference_starts_anew() {
        let contention = Contention::default();
        while comes_back(&contention, &["image"]) == Verdict::Repair {}
        for _ in 0..RETURNS_MAX {
            assert_eq!(comes_back(&contention, &["replicas"]), Verdict::Repair);
        }
        assert_eq!(
            comes_back(&contention, &["image"]),
            Verdict::Wait(RETRY),
            "what it is at is not forgotten"
        );
        let both = ["image", "ports"];
        assert_eq!(comes_back(&contention, &both), Verdict::Retry, "a new spec is not held up");
        tokio::time::advance(MEMORY).await;
        assert_eq!(comes_back(&contention, &["replicas"]), Verdict::Repair);
        let times = contention.children.at("u", |known| known.get().unwrap().values().map(|r| r.times).max());
        assert_eq!(times, Some(1));
    }

    #[tokio::test(start_paused = true)]
    async fn only_so_many_fields_of_a_child_are_remembered() {
        let contention = Contention::default();
        let many: Vec<String> = (0..1000).map(|at| format!("ports[{at}]")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        for one in many.chunks(FOUND_MAX / 2) {
            tokio::time::advance(Duration::from_millis(1)).await;
            comes_back(&contention, one);
        }
        assert_eq!(contention.children.at("u", |known| known.get().unwrap().len()), KNOWN_MAX);
        while comes_back(&contention, &many) == Verdict::Repair {}
        assert_eq!(
            comes_back(&contention, &many),
            Verdict::Wait(RETRY),
            "more than that at once are noticed, too"
        );
        tokio::time::advance(2 * MEMORY).await;
        contention.repaired("other", &fields(&["image"]), None);
        assert_eq!(contention.len(), 1);
    }

    /// What is held under the lock is one child's; the map itself is [`Recent`].
    #[tokio::test(start_paused = true)]
    async fn no_repair_visits_other_children() {
        for children in [1_000, 100_000] {
            let contention = Contention::default();
            for at in 0..children {
                contention.repaired(&format!("child-{at}"), &fields(&["image"]), None);
            }
            tokio::time::advance(MEMORY).await;
            contention.repaired("u", &fields(&["image"]), None);
            assert_eq!(contention.len(), children + 1, "they go all at once, not by a sweep at each repair");
            tokio::time::advance(MEMORY).await;
            assert_eq!(contention.same("u"), None);
            assert_eq!(contention.len(), 1);
            tokio::time::advance(MEMORY).await;
            assert_eq!(contention.same("u"), None);
            assert!(contention.is_empty());
        }
    }
}
