//! Chooses the calls and their disturbances, and compares each disturbed run with an undisturbed one.

use std::fmt::Write as _;
use std::io::Write as _;

use windlass::sim::Action;

use super::gate::{Act, Flaw, Late};
use super::run::{Order, Run, run};
use crate::plans::call::{Call, Made};
use crate::plans::outcome::{self, Mask};
use crate::plans::share::Share;
use crate::plans::workloads::{self, Kind, Workload};
use crate::support::{is_ready, seed};

/// How many failures are printed in full.
const FAILURES_SHOWN: usize = 3;
/// How many calls are printed for a failure.
const CALLS_SHOWN: usize = 30;
/// The seconds in the Retry-After header of a 429.
const RETRY_AFTER: u32 = 7;

/// The undisturbed run of a workload.
pub(super) struct Reference<'a> {
    order: Order<'a>,
    clean: Run,
    mask: Mask,
}

/// The results of a workload's points.
#[derive(Debug, Default)]
pub(super) struct Report {
    calls: usize,
    points: usize,
    reached: usize,
    pub(super) failures: Vec<String>,
}

/// Returns the ways to kill the process at a call.
pub(super) fn cuts(call: &Call) -> Vec<Act> {
    let mut acts = vec![Act::CutBefore, Act::CutAfter];
    if call.is_write() {
        let late = [Late::AfterFirstCall, Late::BeforeFirstWrite, Late::AfterLastCall].map(Act::Late);
        acts.push(Act::CutUnread);
        acts.extend(late);
    }
    acts
}

/// Returns the ways in which a call can fail.
pub(super) fn errors(call: &Call) -> Vec<Act> {
    let mut too_many = Action::refuse(429, "TooManyRequests");
    if let Action::Refuse { retry_after, .. } = &mut too_many {
        *retry_after = Some(RETRY_AFTER);
    }
    let mut actions = vec![
        too_many,
        Action::refuse(500, "InternalError"),
        Action::refuse(503, "ServiceUnavailable"),
        Action::refuse(504, "Timeout"),
        Action::refuse(403, "Forbidden"),
        Action::DropBefore,
        Action::DropAfter,
    ];
    if call.is_write() {
        let conflict = if call.verb == "create" { "AlreadyExists" } else { "Conflict" };
        let refused = [Action::refuse(409, conflict), Action::refuse(422, "Invalid"), Action::FailAfter(504)];
        actions.extend(refused);
    }
    actions.into_iter().map(Act::Fails).collect()
}

// === impl Reference ===

impl<'a> Reference<'a> {
    /// Runs a workload undisturbed: twice with one seed, which must make the same calls, and once with another seed,
    /// whose differences are masked.
    pub(super) fn learn(kind: &'a Kind, workload: &'a Workload) -> Self {
        let order = Order { kind, workload, seed: seed(), flaw: Flaw::None };
        let clean = run(order, None);
        let title = format!("{} {}", kind.kind, workload.name);
        assert_eq!(clean.trouble, None, "{title}: {:#?}", clean.calls);
        let again = run(order, None);
        assert_eq!(again.calls, clean.calls, "{title}: the same seed makes the same calls");
        let other = run(Order { seed: seed().wrapping_add(1), ..order }, None);
        let mask = outcome::learn(&clean.state, &other.state);
        assert!(mask.iter().all(|(_, path)| !path.is_empty()), "{title}: not the same objects: {mask:?}");
        assert_eq!(other.churn, clean.churn, "{title}: undisturbed runs create and delete the same");
        let owner = clean.state.get(&format!("{} {}", kind.kind, workloads::NAME));
        let is_right = match owner {
            Some(owners) => !workload.ends_empty && owners.iter().all(is_ready),
            None => workload.ends_empty && clean.state.is_empty(),
        };
        assert!(is_right, "{title} ends otherwise: {:#?}", clean.state);
        Self { order, clean, mask }
    }

    /// Gives the process a flaw.
    pub(super) fn flawed(mut self, flaw: Flaw) -> Self {
        self.order.flaw = flaw;
        self
    }

    /// Runs the workload once for each call and disturbance, or for a share of them.
    pub(super) fn try_all(&self, acts: impl Fn(&Call) -> Vec<Act>, share: Share) -> Report {
        let calls = self.clean.calls.iter().map(|made| &made.call);
        let points: Vec<(Call, Act)> =
            calls.flat_map(|call| acts(call).into_iter().map(|act| (call.clone(), act))).collect();
        let points = share.of(points, &mut fastrand::Rng::with_seed(self.order.seed));
        let mut report = Report { calls: self.clean.calls.len(), points: points.len(), ..Report::default() };
        for (call, act) in points {
            let run = run(self.order, Some((call.clone(), act.clone())));
            report.reached += usize::from(run.was_reached);
            let wrong = self.wrong(&run, &act);
            if !wrong.is_empty() {
                report.failures.push(self.failure(&call, &act, &run, &wrong));
            }
        }
        report
    }

    /// Returns the differences from the undisturbed run.
    fn wrong(&self, run: &Run, act: &Act) -> Vec<String> {
        let clean = (&self.clean.state, &self.clean.churn);
        let mut wrong = outcome::compare(clean, (&run.state, &run.churn), &self.mask);
        wrong.extend(run.trouble.clone());
        if !run.was_reached {
            wrong.push("this point was never reached".to_owned());
        }
        let extra = exists(run).saturating_sub(exists(&self.clean));
        if extra > 1 && !matches!(act, Act::Fails(_)) {
            wrong.push(format!("{extra} more creates were answered 409"));
        }
        wrong
    }

    fn failure(&self, call: &Call, act: &Act, run: &Run, wrong: &[String]) -> String {
        let Order { kind, workload, seed, .. } = self.order;
        let mut text = format!(
            "{} {}: {act:?} at {call}, WINDLASS_E2E_SEED={seed}\n  {}\n",
            kind.kind,
            workload.name,
            wrong.join("\n  ")
        );
        for (whose, calls) in [("its", &run.calls), ("its successor's", &run.later_calls)] {
            let last = &calls[calls.len().saturating_sub(CALLS_SHOWN)..];
            let last: Vec<String> = last.iter().map(Made::to_string).collect();
            write!(text, "  {whose} last calls:\n    {}\n", last.join("\n    ")).expect("infallible");
        }
        text + "  the server: " + &run.recipe
    }

    /// Prints a one-line summary.
    pub(super) fn tell(&self, plan: &str, report: &Report) {
        let Report { calls, points, reached, failures } = report;
        let title = format!("{plan}: {} {}", self.order.kind.kind, self.order.workload.name);
        let failed = failures.len();
        // `eprintln!` would be captured and shown only for failures.
        writeln!(
            std::io::stderr(),
            "{title}: {calls} calls, {points} points, {reached} reached, {failed} failed"
        )
        .expect("standard error is writable");
    }
}

/// Counts the creates that were answered with `AlreadyExists`.
fn exists(run: &Run) -> usize {
    let all = run.calls.iter().chain(&run.later_calls);
    all.filter(|made| made.call.verb == "create" && made.code == 409).count()
}

/// Tries a plan on all workloads of a kind.
#[track_caller]
pub(super) fn check(plan: &str, kind: &Kind, acts: impl Fn(&Call) -> Vec<Act> + Copy, share: Share) {
    let mut failures = Vec::new();
    for workload in &kind.workloads {
        let reference = Reference::learn(kind, workload);
        let report = reference.try_all(acts, share);
        reference.tell(plan, &report);
        failures.extend(report.failures);
    }
    let shown = failures.len().min(FAILURES_SHOWN);
    assert!(failures.is_empty(), "{} failed; the first:\n{}", failures.len(), failures[..shown].join("\n\n"));
}
