//! What conditions, events and status of an object said last, so that later syncs do not report a short failure or a
//! known problem, write progress at most once per second, and finish a rename. A new process starts without any.
//!
//! # Guarantees
//! - A failure is reported once it has lasted, and its end is reported at once.
//!   (test: `failure_is_reported_only_if_it_lasts`)
//! - A problem is reported once per child. (test: `each_problem_is_reported_once`)
//! - Progress is written a second after the last status write at the earliest.
//!   (test: `progress_is_written_at_most_once_per_second`)
//! - A status that another client keeps overwriting is written less often.
//!   (test: `overwritten_status_is_written_less_often`)
//! - A lagging child is ignored for a second, unless we wrote the child.
//!   (test: `lag_is_ignored_for_one_second`, `lag_after_our_own_write_counts_at_once`)
//! - Nothing is kept of a converged object once its last status has expired. (test: `converged_object_keeps_nothing`)
//!
//! # Differences from client-go
//! Controllers there keep only expectations: every sync writes its status and records its events.

use std::hash::BuildHasher;
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use tokio::time::Instant;

use crate::controller::kinds::health::{ChildHealth, reason};

/// How long an object's syncs have to keep failing before the failure is reported.
pub(in crate::controller) const FAILURE_LASTS: Duration = Duration::from_secs(10);
/// How long a child's `observedGeneration` may lag before the lag is reported.
pub(in crate::controller) const LAG_LASTS: Duration = Duration::from_secs(1);
/// The minimum interval between status writes when only progress has changed.
const PROGRESS: Duration = Duration::from_secs(1);
/// The minimum interval between writes of a status that another client keeps overwriting, such as a stale process.
const FIGHT: Duration = Duration::from_secs(10);
/// How many overwrites in a row it takes before [`FIGHT`] applies.
const FIGHT_AFTER: u32 = 5;
/// How long a written status is remembered.
const STATUS_LASTS: Duration = Duration::from_secs(60);

/// What was reported of one object; see the module.
#[derive(Debug, Default)]
pub(in crate::controller) struct Reported {
    /// When the syncs of the object began to fail.
    failing_since: Option<Instant>,
    /// The problem that was last reported.
    problem: Option<Problem>,
    /// The last status written, kept for [`STATUS_LASTS`].
    status: Option<WrittenStatus>,
    lag: Option<Lag>,
    /// Whether a child was created under a new name, so that the previous child may still exist.
    is_renaming: bool,
}

#[derive(Debug)]
struct Problem {
    reason: &'static str,
    /// The child, or another object that has the problem.
    about: String,
    /// The generation of the refused spec.
    generation: Option<i64>,
    /// The hash of the message.
    fingerprint: u64,
}

#[derive(Clone, Copy, Debug)]
struct WrittenStatus {
    at: Instant,
    fingerprint: u64,
    /// How often in a row another client has overwritten our status.
    overwritten: u32,
}

/// Why a child's `observedGeneration` is behind.
#[derive(Debug)]
enum Lag {
    /// Something else changed the child, such as a foreign annotation.
    Since(Instant),
    /// We wrote the child, so the object must not stay Ready: `kubectl wait` would return too early.
    AfterWrite,
}

// === impl Reported ===

impl Reported {
    /// Records whether a child failed in this sync, and returns whether the status should be written. `asked_to_wait`
    /// is how long the server asked us to wait before retrying.
    pub(in crate::controller) fn should_report(&mut self, is_failing: bool, asked_to_wait: Duration) -> bool {
        if !is_failing {
            self.failing_since = None;
            return true;
        }
        let since = *self.failing_since.get_or_insert_with(Instant::now);
        since.elapsed() + asked_to_wait >= FAILURE_LASTS
    }

    /// Whether `health` has not been reported yet. For a problem that a previous process reported, only the reason
    /// and generation of the `stored` condition are known.
    pub(in crate::controller) fn is_news(
        &mut self,
        health: &ChildHealth,
        generation: Option<i64>,
        stored: Option<&Condition>,
    ) -> bool {
        let before = std::mem::replace(&mut self.problem, Problem::of(health, generation));
        let is_other_reason = stored.is_none_or(|stored| stored.reason != health.reason);
        match (&before, &self.problem) {
            (Some(before), Some(now)) => !now.repeats(before),
            (None, Some(now)) if !is_other_reason && now.reason == reason::CHILD_REFUSED => {
                stored.and_then(|stored| stored.observed_generation) != now.generation
            }
            (_, _) => is_other_reason,
        }
    }

    /// Whether this child has the problem that was reported last; `None` if this process has reported none.
    pub(in crate::controller) fn problem_is_about(&self, child: &str) -> Option<bool> {
        Some(self.problem.as_ref()?.about == child)
    }

    /// Records that a status was written over the stored one; both are given as fingerprints.
    pub(in crate::controller) fn status_written(&mut self, stored: u64, written: u64) {
        let last = self.status.filter(|last| last.fingerprint != stored);
        let overwritten = last.map_or(0, |last| last.overwritten + 1);
        self.status = Some(WrittenStatus { at: Instant::now(), fingerprint: written, overwritten });
    }

    /// Returns how long to wait before writing over the stored status; `None` means that it may be written now.
    /// Progress waits for [`PROGRESS`] after the last write, and a status that another client keeps overwriting for
    /// [`FIGHT`].
    pub(in crate::controller) fn status_waits(&self, stored: u64, is_progress: bool) -> Option<Duration> {
        let last = self.status?;
        let is_fight = last.fingerprint != stored && last.overwritten >= FIGHT_AFTER;
        let least = match (is_fight, is_progress) {
            (true, _) => FIGHT,
            (false, true) => PROGRESS,
            (false, false) => return None,
        };
        least.checked_sub(last.at.elapsed()).filter(|left| !left.is_zero())
    }

    /// Returns how much longer to ignore that a child of the object lags.
    pub(in crate::controller) fn lag_time_left(&mut self) -> Option<Duration> {
        match self.lag.get_or_insert_with(|| Lag::Since(Instant::now())) {
            Lag::Since(since) => LAG_LASTS.checked_sub(since.elapsed()).filter(|left| !left.is_zero()),
            Lag::AfterWrite => None,
        }
    }

    /// Records that a child of the object was written, or differs.
    pub(in crate::controller) fn child_written(&mut self) {
        self.lag = Some(Lag::AfterWrite);
    }

    /// Records that the status of the object was stored, and whether a child still lags.
    pub(in crate::controller) fn lag_reported(&mut self, lags: bool) {
        if !lags || matches!(self.lag, Some(Lag::AfterWrite)) {
            self.lag = None;
        }
    }

    /// Records that a child was created under its new name. The previous child is looked for until
    /// [`rename_ended`](Self::rename_ended), even if a sync fails in between and the next one finds the new child.
    pub(in crate::controller) fn rename_begun(&mut self) {
        self.is_renaming = true;
    }

    /// Records that no previous child is left.
    pub(in crate::controller) fn rename_ended(&mut self) {
        self.is_renaming = false;
    }

    /// Whether a previous child may be left.
    pub(in crate::controller) fn is_renaming(&self) -> bool {
        self.is_renaming
    }

    pub(super) fn expire(&mut self, now: Instant) {
        self.status = self.status.filter(|status| now - status.at < STATUS_LASTS);
    }

    pub(super) fn is_empty(&self) -> bool {
        let Self { failing_since, problem, status, lag, is_renaming } = self;
        failing_since.is_none() && problem.is_none() && status.is_none() && lag.is_none() && !is_renaming
    }
}

impl Problem {
    /// Returns the problem that `health` describes, if any.
    fn of(health: &ChildHealth, generation: Option<i64>) -> Option<Self> {
        let is_problem = [
            reason::RESOURCE_EXISTS,
            reason::CHILD_REFUSED,
            reason::CONTENDED,
            reason::STORED_OTHERWISE,
            reason::CHILD_FAILING,
        ]
        .contains(&health.reason);
        let fingerprint = foldhash::fast::FixedState::default().hash_one(&health.message);
        let about = health.about.clone();
        is_problem.then_some(Self { reason: health.reason, about, generation, fingerprint })
    }

    /// Whether this problem was reported as `before`. The problem of another child is another problem. The message of
    /// a refusal may contain changing numbers, such as remaining quota, so it is compared only after the spec has
    /// changed.
    fn repeats(&self, before: &Self) -> bool {
        let is_same_refusal = self.generation == before.generation || self.fingerprint == before.fingerprint;
        self.reason == before.reason
            && self.about == before.about
            && (self.reason != reason::CHILD_REFUSED || is_same_refusal)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::conditions::{self, ConditionSet, READY};

    #[tokio::test(start_paused = true)]
    async fn failure_is_reported_only_if_it_lasts() {
        let mut reported = Reported::default();
        for _ in 0..2 {
            assert!(!reported.should_report(true, Duration::ZERO));
            tokio::time::advance(FAILURE_LASTS / 2).await;
            assert!(!reported.should_report(true, Duration::ZERO));
            assert!(reported.should_report(true, FAILURE_LASTS / 2), "no retry comes before then");
            tokio::time::advance(FAILURE_LASTS / 2).await;
            assert!(reported.should_report(true, Duration::ZERO));
            assert!(reported.should_report(false, Duration::ZERO), "the end is reported at once");
        }
    }

    /// Reports a sequence of health states of one object: reason, child, message, generation, whether it is news.
    #[track_caller]
    fn check_news(steps: &[(&'static str, &str, &str, i64, bool)]) {
        let mut reported = Reported::default();
        let mut stored: Vec<Condition> = Vec::new();
        for (reason, about, message, generation, is_news) in steps {
            let health = ChildHealth::stalled(reason, *message).about(about);
            let found = reported.is_news(&health, Some(*generation), conditions::find(&stored, READY));
            assert_eq!(found, *is_news, "{reason} {about} {message} {generation}");
            let mut set = ConditionSet::new(&stored, Some(*generation), jiff::Timestamp::UNIX_EPOCH);
            set.set(READY, false, reason, message);
            stored = set.into_vec();
        }
    }

    #[test]
    fn each_problem_is_reported_once() {
        use reason::{AVAILABLE, CHILD_REFUSED, CONTENDED, PROGRESSING, RESOURCE_EXISTS};
        check_news(&[
            (PROGRESSING, "", "1 of 2", 1, true),
            (PROGRESSING, "", "2 of 2", 2, false),
            (RESOURCE_EXISTS, "a", "taken", 2, true),
            (RESOURCE_EXISTS, "a", "taken", 3, false),
            (RESOURCE_EXISTS, "b", "taken", 3, true),
            (CHILD_REFUSED, "b", "3 left", 3, true),
            (CHILD_REFUSED, "b", "2 left", 3, false),
            (CHILD_REFUSED, "b", "2 left", 4, false),
            (CHILD_REFUSED, "b", "port 1", 5, true),
            (CHILD_REFUSED, "a", "port 1", 5, true),
            (CONTENDED, "a", "changed", 5, true),
            (CONTENDED, "a", "changed back", 6, false),
            (CONTENDED, "b", "changed back", 6, true),
            (AVAILABLE, "", "", 6, true),
            (CONTENDED, "b", "changed back", 6, true),
        ]);
    }

    /// A new process knows only the reason and generation of the stored condition.
    #[test]
    fn problem_is_not_reported_again_after_restart() {
        let mut set = ConditionSet::new(&[], Some(4), jiff::Timestamp::UNIX_EPOCH);
        set.set(READY, false, reason::CHILD_REFUSED, "a");
        let stored = set.into_vec();
        for (generation, is_news) in [(4, false), (5, true)] {
            let refused = ChildHealth::stalled(reason::CHILD_REFUSED, "in other words");
            let mut reported = Reported::default();
            let found = reported.is_news(&refused, Some(generation), conditions::find(&stored, READY));
            assert_eq!(found, is_news, "{generation}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn progress_is_written_at_most_once_per_second() {
        let mut reported = Reported::default();
        assert_eq!(reported.status_waits(1, true), None);
        reported.status_written(1, 2);
        assert_eq!(reported.status_waits(2, true), Some(PROGRESS));
        assert_eq!(reported.status_waits(2, false), None, "more than progress");
        tokio::time::advance(PROGRESS).await;
        assert_eq!(reported.status_waits(2, true), None);
    }

    /// Two processes, one of which sees stale children.
    #[tokio::test(start_paused = true)]
    async fn overwritten_status_is_written_less_often() {
        let mut reported = Reported::default();
        let (ours, theirs) = (1, 2);
        let mut writes = 0;
        for _ in 0..3000 {
            if reported.status_waits(theirs, false).is_none() {
                reported.status_written(theirs, ours);
                writes += 1;
            }
            tokio::time::advance(Duration::from_millis(100)).await;
        }
        assert!((30..=40).contains(&writes), "{writes} in five minutes");
        tokio::time::advance(FIGHT).await;
        reported.status_written(ours, 3);
        assert_eq!(reported.status_waits(3, false), None, "nobody has overwritten it");
    }

    #[tokio::test(start_paused = true)]
    async fn lag_is_ignored_for_one_second() {
        let mut reported = Reported::default();
        assert_eq!(reported.lag_time_left(), Some(LAG_LASTS));
        reported.lag_reported(true);
        tokio::time::advance(LAG_LASTS / 2).await;
        assert_eq!(reported.lag_time_left(), Some(LAG_LASTS / 2));
        tokio::time::advance(LAG_LASTS / 2).await;
        assert_eq!(reported.lag_time_left(), None);
        reported.lag_reported(false);
        assert_eq!(reported.lag_time_left(), Some(LAG_LASTS), "a new lag");
    }

    #[tokio::test(start_paused = true)]
    async fn lag_after_our_own_write_counts_at_once() {
        let mut reported = Reported::default();
        reported.child_written();
        assert_eq!(reported.lag_time_left(), None);
        reported.lag_reported(true);
        assert_eq!(reported.lag_time_left(), Some(LAG_LASTS));
    }

    #[tokio::test(start_paused = true)]
    async fn converged_object_keeps_nothing() {
        let mut reported = Reported::default();
        let ready = ChildHealth::ready("all is well");
        let taken = ChildHealth::stalled(reason::RESOURCE_EXISTS, "");
        reported.should_report(true, Duration::ZERO);
        reported.is_news(&taken, None, None);
        reported.child_written();
        reported.rename_begun();
        reported.status_written(1, 2);
        reported.should_report(false, Duration::ZERO);
        reported.is_news(&ready, None, None);
        reported.lag_reported(false);
        reported.rename_ended();
        reported.expire(Instant::now());
        assert!(!reported.is_empty(), "the last status is remembered for a while");
        tokio::time::advance(STATUS_LASTS).await;
        reported.expire(Instant::now());
        assert!(reported.is_empty());
    }
}
