//! Runs the plans for a workload, and compares each run with an undisturbed one.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::Write as _;
use std::time::Duration;

use super::flaw::Flaw;
use super::oracle;
use super::plan::{self, Plan};
use super::run::{Order, Run, run};
use crate::plans::call::Made;
use crate::plans::outcome::{self, Churn, Mask};
use crate::plans::share::Share;
use crate::plans::workloads::{Kind, NAME, Workload};

/// How many failures are printed in full.
const FAILURES_SHOWN: usize = 3;
/// How many calls are printed for a failure.
const CALLS_SHOWN: usize = 30;
/// How long nothing may be written at the end of a run. A day takes eight times as long to simulate as all the rest, so
/// it is for runs of all plans.
const REST: Duration = Duration::from_secs(3600);
const DAY: Duration = Duration::from_secs(24 * 3600);

/// The undisturbed run of a workload.
struct Reference {
    clean: Run,
    mask: Mask,
}

/// The plans for one kind, with the undisturbed runs made so far.
pub(super) struct Plans<'a> {
    kind: &'a Kind,
    seed: u64,
    flaw: Flaw,
    rest: Duration,
    /// Undisturbed runs by their steps.
    references: BTreeMap<String, Reference>,
}

impl Failure {
    /// Whether one of the findings has these words.
    pub(super) fn says(&self, words: &str) -> bool {
        self.wrong.iter().any(|wrong| wrong.contains(words))
    }
}

/// The results of a workload's plans.
#[derive(Debug, Default)]
pub(super) struct Report {
    pub(super) points: usize,
    pub(super) reached: usize,
    /// The highest number of writes in any plan.
    writes: usize,
    pub(super) unreached: Vec<String>,
    pub(super) failures: Vec<Failure>,
}

/// A failed plan.
#[derive(Debug)]
pub(super) struct Failure {
    pub(super) plan: Plan,
    pub(super) wrong: Vec<String>,
    /// The number of calls in the run.
    calls: usize,
    text: String,
}

// === impl Plans ===

impl<'a> Plans<'a> {
    pub(super) fn new(kind: &'a Kind, seed: u64, flaw: Flaw) -> Self {
        Self { kind, seed, flaw, rest: REST, references: BTreeMap::new() }
    }

    /// Checks for a whole day that nothing is written at rest.
    fn with_a_day_of_rest(self) -> Self {
        Self { rest: DAY, ..self }
    }

    /// Runs a workload undisturbed with two seeds, whose differences form the mask.
    fn reference(&mut self, workload: &Workload) -> &Reference {
        let (kind, seed) = (self.kind, self.seed);
        let key = format!("{:?} {:?}", workload.before, workload.steps);
        self.references.entry(key).or_insert_with(|| {
            let order = Order { kind, workload, seed, flaw: Flaw::None, rest: REST };
            let clean = run(order, &Plan::Undisturbed);
            let title = format!("{} {}, undisturbed", kind.kind, workload.name);
            assert!(clean.trouble.is_empty(), "{title}: {:?}", clean.trouble);
            let forbidden = clean.findings.keys().find(|what| !oracle::is_measure(what));
            assert_eq!(forbidden, None, "{title}");
            let other = run(Order { seed: seed.wrapping_add(1), ..order }, &Plan::Undisturbed);
            let mut mask = outcome::learn(&clean.state, &other.state);
            for ((_, one), (_, other)) in clean.quiet.iter().zip(&other.quiet) {
                mask.extend(outcome::learn(one, other));
            }
            assert!(mask.iter().all(|(_, path)| !path.is_empty()), "{title}: not the same objects: {mask:?}");
            let has_owner = clean.state.contains_key(&format!("{} {NAME}", kind.kind));
            assert_eq!(has_owner, !workload.ends_empty, "{title} ends otherwise: {:#?}", clean.state);
            Reference { clean, mask }
        })
    }

    /// Returns all plans for a workload, or a sample.
    pub(super) fn plans(&mut self, workload: &Workload, share: Share) -> Vec<Plan> {
        let (kind, seed) = (self.kind, self.seed);
        plan::plans(kind, workload, &self.reference(workload).clean, share, seed)
    }

    /// Runs plans until this many have failed.
    pub(super) fn try_until(&mut self, failed: usize, workload: &Workload, plans: Vec<Plan>) -> Report {
        let mut report = Report { points: plans.len(), ..Report::default() };
        for plan in plans {
            if report.failures.len() >= failed {
                break;
            }
            let order =
                Order { kind: self.kind, workload, seed: self.seed, flaw: self.flaw, rest: self.rest };
            let run = run(order, &plan);
            let calls = run.calls.iter().chain(&run.later_calls);
            report.writes = report.writes.max(calls.filter(|made| made.call.is_write()).count());
            if run.was_reached {
                report.reached += 1;
            } else {
                report.unreached.push(format!("{plan:?}"));
            }
            let wrong = self.wrong(workload, &plan, &run);
            if !wrong.is_empty() {
                let text = self.failure(workload, &plan, &run, &wrong);
                let calls = run.calls.len() + run.later_calls.len();
                report.failures.push(Failure { plan, wrong, calls, text });
            }
        }
        report
    }

    /// Returns the differences from the undisturbed run, and the findings.
    fn wrong(&mut self, workload: &Workload, plan: &Plan, run: &Run) -> Vec<String> {
        let mut wrong = run.trouble.clone();
        let kind = self.kind.kind;
        let workload = match plan {
            Plan::RolledBack { version, next, .. } => {
                let clean = &self.reference(workload).clean;
                let steps = steps_before(clean, kind, *version);
                workload.first(steps).and(next.as_ref())
            }
            _ => workload.and(plan.next()),
        };
        let reference = self.reference(&workload);
        let churn = Churn::new();
        wrong.extend(outcome::compare(
            (&reference.clean.state, &churn),
            (&run.state, &churn),
            &reference.mask,
        ));
        wrong.extend(run.neighbour.beyond(&reference.clean.neighbour));
        wrong.extend(oracle::beyond(&run.findings, &reference.clean.findings));
        wrong
    }

    fn failure(&self, workload: &Workload, plan: &Plan, run: &Run, wrong: &[String]) -> String {
        let mut text = format!(
            "{} {}: {plan:?}, WINDLASS_TWO_VIEWS_SEED={}\n  {}\n",
            self.kind.kind,
            workload.name,
            self.seed,
            wrong.join("\n  ")
        );
        for (whose, calls) in [("the first operator's", &run.calls), ("the second's", &run.later_calls)] {
            let last = &calls[calls.len().saturating_sub(CALLS_SHOWN)..];
            let last: Vec<String> = last.iter().map(Made::to_string).collect();
            write!(text, "  {whose} last calls:\n    {}\n", last.join("\n    ")).expect("infallible");
        }
        text + "  the server: " + &run.recipe
    }

    /// Prints a one-line summary, and the plans that failed or were not reached.
    fn tell(&self, workload: &Workload, report: &Report) {
        let Report { points, reached, writes, unreached, failures } = report;
        let title = format!("two views: {} {}", self.kind.kind, workload.name);
        let mut text = format!(
            "{title}: {points} plans, {reached} reached, at most {writes} writes, {} failed",
            failures.len()
        );
        for plan in unreached {
            write!(text, "\n  not reached: {plan}").expect("infallible");
        }
        for Failure { plan, wrong, .. } in failures {
            write!(text, "\n  failed: {plan:?}: {}", wrong.join("; ")).expect("infallible");
        }
        say(&text);
    }
}

/// Returns how many steps of an undisturbed run were taken before it reached this version.
fn steps_before(clean: &Run, kind: &str, version: u64) -> usize {
    let is_living = oracle::is_living_at(kind, &clean.events, version);
    let steps = if is_living { clean.quiet.iter().position(|(end, _)| *end >= version) } else { Some(0) };
    steps.unwrap_or_default()
}

/// Prints to standard error. The output of `eprintln!` would be captured and shown only for failures.
pub(super) fn say(text: &str) {
    writeln!(std::io::stderr(), "{text}").expect("standard error is writable");
}

/// Tries a share of the plans on all workloads of a kind.
#[track_caller]
pub(super) fn check(kind: &Kind, share: Share) {
    let seed = seed();
    say(&format!("two views of a {}: WINDLASS_TWO_VIEWS_SEED={seed}", kind.kind));
    let mut plans = Plans::new(kind, seed, Flaw::None);
    if share == Share::All {
        plans = plans.with_a_day_of_rest();
    }
    let (mut reached, mut failures) = (0, Vec::new());
    for workload in &kind.workloads {
        let chosen = plans.plans(workload, share);
        let report = plans.try_until(usize::MAX, workload, chosen);
        plans.tell(workload, &report);
        reached += report.reached;
        failures.extend(report.failures.into_iter().map(|failure| (failure.calls, failure.text)));
    }
    // The shortest tells most.
    failures.sort_by_key(|(calls, _)| *calls);
    assert!(reached > 0, "no plan was reached, WINDLASS_TWO_VIEWS_SEED={seed}");
    let shown = failures.len().min(FAILURES_SHOWN);
    let texts: Vec<String> = failures[..shown].iter().map(|(_, text)| text.clone()).collect();
    assert!(failures.is_empty(), "{} failed; the shortest:\n{}", failures.len(), texts.join("\n\n"));
}

/// Returns the seed in `WINDLASS_TWO_VIEWS_SEED`, or a random one.
pub(super) fn seed() -> u64 {
    match std::env::var("WINDLASS_TWO_VIEWS_SEED") {
        Ok(text) => text.parse().unwrap_or_else(|_| panic!("WINDLASS_TWO_VIEWS_SEED={text} is not a number")),
        Err(_) => u64::from(fastrand::u32(..)),
    }
}
