//! The plan: which call, what happens at it, and whether all is as if nothing had happened.

use std::fmt::Write as _;
use std::io::Write as _;

use windlass::sim::Action;

use super::gate::{Act, Flaw, Late};
use super::run::{Order, Run, run};
use crate::plans::call::{Call, Made};
use crate::plans::outcome::{self, Mask};
use crate::plans::workloads::{self, Kind, Workload};
use crate::support::{is_ready, seed};

/// So many failures are told in full.
const TOLD: usize = 3;
/// So many calls are told of a failure.
const CALLS_TOLD: usize = 30;
/// Seconds that a server asks for.
const RETRY_AFTER: u32 = 7;

/// How many points of a workload are tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Share {
    All,
    /// So many, chosen by the seed.
    Some(usize),
}

/// A workload that was run undisturbed.
pub(super) struct Reference<'a> {
    order: Order<'a>,
    clean: Run,
    mask: Mask,
}

/// What became of a plan.
#[derive(Debug, Default)]
pub(super) struct Report {
    calls: usize,
    points: usize,
    reached: usize,
    pub(super) failures: Vec<String>,
}

/// Where the process is cut.
pub(super) fn cuts(call: &Call) -> Vec<Act> {
    let mut acts = vec![Act::CutBefore, Act::CutAfter];
    if call.is_write() {
        let late = [Late::AfterFirstCall, Late::BeforeFirstWrite, Late::AfterLastCall].map(Act::Late);
        acts.push(Act::CutUnread);
        acts.extend(late);
    }
    acts
}

/// How a call goes wrong.
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
    /// Runs it undisturbed: twice with a seed, which must be alike in everything, and once with another.
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
        assert_eq!(other.lives, clean.lives, "{title}: undisturbed runs create and delete the same");
        let owner = clean.state.get(&format!("{} {}", kind.kind, workloads::NAME));
        let is_right = match owner {
            Some(owners) => !workload.ends_empty && owners.iter().all(is_ready),
            None => workload.ends_empty && clean.state.is_empty(),
        };
        assert!(is_right, "{title} ends otherwise: {:#?}", clean.state);
        Self { order, clean, mask }
    }

    /// The same, for a process with a flaw.
    pub(super) fn flawed(mut self, flaw: Flaw) -> Self {
        self.order.flaw = flaw;
        self
    }

    /// Tries what is to happen at each of its calls.
    pub(super) fn try_all(&self, acts: impl Fn(&Call) -> Vec<Act>, share: Share) -> Report {
        let calls = self.clean.calls.iter().map(|made| &made.call);
        let mut points: Vec<(Call, Act)> =
            calls.flat_map(|call| acts(call).into_iter().map(|act| (call.clone(), act))).collect();
        if let Share::Some(count) = share {
            fastrand::Rng::with_seed(self.order.seed).shuffle(&mut points);
            points.truncate(count);
        }
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

    /// What is not as in the undisturbed run.
    fn wrong(&self, run: &Run, act: &Act) -> Vec<String> {
        let clean = (&self.clean.state, &self.clean.lives);
        let mut wrong = outcome::compare(clean, (&run.state, &run.lives), &self.mask);
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
            let last = &calls[calls.len().saturating_sub(CALLS_TOLD)..];
            let last: Vec<String> = last.iter().map(Made::to_string).collect();
            write!(text, "  {whose} last calls:\n    {}\n", last.join("\n    ")).expect("a text takes all");
        }
        text + "  the server: " + &run.recipe
    }

    /// One line: what was tried, and what came of it.
    pub(super) fn tell(&self, plan: &str, report: &Report) {
        let Report { calls, points, reached, failures } = report;
        let title = format!("{plan}: {} {}", self.order.kind.kind, self.order.workload.name);
        let failed = failures.len();
        // Not by a macro: what these print is shown for failures only.
        writeln!(
            std::io::stderr(),
            "{title}: {calls} calls, {points} points, {reached} reached, {failed} failed"
        )
        .expect("standard error takes all");
    }
}

/// Creates that were answered "it exists".
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
    let told = failures.len().min(TOLD);
    assert!(failures.is_empty(), "{} failed; the first:\n{}", failures.len(), failures[..told].join("\n\n"));
}

/// How many points are tried: all when `WINDLASS_CRASH_POINTS` is `all`, else so many of a workload.
pub(super) fn share(usual: Share) -> Share {
    match std::env::var("WINDLASS_CRASH_POINTS").as_deref() {
        Err(_) => usual,
        Ok("all") => Share::All,
        Ok(text) => match text.parse() {
            Ok(count) => Share::Some(count),
            Err(_) => panic!("WINDLASS_CRASH_POINTS={text} is neither a number nor all"),
        },
    }
}
