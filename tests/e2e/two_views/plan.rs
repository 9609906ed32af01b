//! Generates plans for a workload, runs them, and compares each run with an undisturbed one.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::Write as _;

use serde_json::json;

use super::gate::{Flaw, Hold};
use super::oracle;
use super::run::{Order, Plan, Run, run};
use crate::plans::call::Made;
use crate::plans::outcome::{self, Churn, Mask, State};
use crate::plans::share::Share;
use crate::plans::workloads::{Kind, NAME, Step, Workload};

/// How many failures are printed in full.
const FAILURES_SHOWN: usize = 3;
/// How many calls are printed for a failure.
const CALLS_SHOWN: usize = 30;

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
    /// Undisturbed runs by their steps.
    references: BTreeMap<String, Reference>,
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
    text: String,
}

/// Returns the resources that the operator of a kind watches: group, plural, kind.
fn watched(kind: &Kind) -> Vec<(&'static str, &'static str, &'static str)> {
    let (group, _) = kind.group_version.split_once('/').expect("a group and a version");
    let deployments = ("apps", "deployments", "Deployment");
    let services = ("", "services", "Service");
    let mut all = match kind.kind {
        "Redis" => vec![("", "pods", "Pod")],
        "Myapp" => vec![deployments, services, ("networking.k8s.io", "ingresses", "Ingress")],
        "AppService" => vec![deployments, services],
        _ => vec![deployments],
    };
    all.push((group, kind.plural, kind.kind));
    all
}

/// Returns the further steps to choose from while a call of the first operator is held.
fn next(workload: &Workload) -> Vec<Step> {
    let Some(Step::Create(spec)) = workload.before.iter().chain(&workload.steps).next() else {
        panic!("a workload begins with a creation")
    };
    if workload.ends_empty {
        return vec![Step::Create(spec.clone())];
    }
    vec![Step::Change(json!({"replicas": 4})), Step::Recreate(spec.clone())]
}

// === impl Plans ===

impl<'a> Plans<'a> {
    pub(super) fn new(kind: &'a Kind, seed: u64, flaw: Flaw) -> Self {
        Self { kind, seed, flaw, references: BTreeMap::new() }
    }

    /// Runs a workload undisturbed with two seeds, whose differences form the mask.
    fn reference(&mut self, workload: &Workload) -> &Reference {
        let (kind, seed) = (self.kind, self.seed);
        let key = format!("{:?} {:?}", workload.before, workload.steps);
        self.references.entry(key).or_insert_with(|| {
            let order = Order { kind, workload, seed, flaw: Flaw::None };
            let clean = run(order, &Plan::Undisturbed);
            let title = format!("{} {}, undisturbed", kind.kind, workload.name);
            assert!(clean.trouble.is_empty(), "{title}: {:?}", clean.trouble);
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

    /// Returns plans that freeze each resource at each version at which it changed, and at the initial version.
    fn frozen(&mut self, workload: &Workload) -> Vec<Plan> {
        let kinds = watched(self.kind);
        let clean = &self.reference(workload).clean;
        let mut plans = Vec::new();
        for (group, plural, kind) in kinds {
            let changes = clean.events.iter().filter(|event| event.kind == kind).map(|event| event.version);
            for version in std::iter::once(clean.quiet[0].0).chain(changes) {
                let frozen = |is_alone| Plan::Frozen { group, plural, version, is_alone };
                plans.extend([false, true].map(frozen));
            }
        }
        plans
    }

    /// Returns plans that hold each call, with both scopes, until each of the further steps is done.
    fn suspended(&mut self, workload: &Workload) -> Vec<Plan> {
        let nexts = next(workload);
        let calls = self.reference(workload).clean.calls.iter().map(|made| made.call.clone());
        let calls = calls.filter(|call| call.verb != "watch" && !call.is_for_events());
        let held = |call| [(Hold::Operator, call), (Hold::Call, call)];
        let calls: Vec<_> = calls.collect();
        let ways = calls.iter().flat_map(held);
        let plan = |(hold, call): (Hold, &crate::plans::call::Call)| {
            let one = |next: &Step| Plan::Suspended { call: call.clone(), hold, next: vec![next.clone()] };
            nexts.iter().map(one).collect::<Vec<_>>()
        };
        ways.flat_map(plan).collect()
    }

    /// Returns plans that roll the store back to each version at which an object changed.
    fn rolled_back(&mut self, workload: &Workload) -> Vec<Plan> {
        let clean = &self.reference(workload).clean;
        let begin = clean.quiet[0].0;
        let versions = clean.events.iter().map(|event| event.version).filter(|version| *version >= begin);
        let ways = |version| [false, true].map(|is_fresh| Plan::RolledBack { version, is_fresh });
        versions.flat_map(ways).collect()
    }

    /// Returns all plans for a workload, or a sample with an equal share of each kind of plan.
    pub(super) fn plans(&mut self, workload: &Workload, share: Share) -> Vec<Plan> {
        let all = [self.frozen(workload), self.suspended(workload), self.rolled_back(workload)];
        let Share::Some(count) = share else { return all.concat() };
        let mut random = fastrand::Rng::with_seed(self.seed);
        let mut all = all.map(|mut plans| {
            random.shuffle(&mut plans);
            plans
        });
        random.shuffle(&mut all);
        let (mut plans, mut at) = (Vec::new(), 0);
        while plans.len() < count && all.iter().any(|some| !some.is_empty()) {
            plans.extend(all[at % all.len()].pop());
            at += 1;
        }
        plans
    }

    /// Runs these plans.
    pub(super) fn try_all(&mut self, workload: &Workload, plans: Vec<Plan>) -> Report {
        let mut report = Report { points: plans.len(), ..Report::default() };
        for plan in plans {
            let order = Order { kind: self.kind, workload, seed: self.seed, flaw: self.flaw };
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
                report.failures.push(Failure { plan, wrong, text });
            }
        }
        report
    }

    /// Returns the differences from the undisturbed run, and the findings.
    fn wrong(&mut self, workload: &Workload, plan: &Plan, run: &Run) -> Vec<String> {
        let mut wrong = run.trouble.clone();
        let kind = self.kind.kind;
        let (next, ends_empty) = match plan {
            Plan::Suspended { next, .. } => (&next[..], false),
            _ => (&[][..], workload.ends_empty),
        };
        let longer = Workload {
            name: workload.name,
            before: workload.before.clone(),
            steps: [&workload.steps, next].concat(),
            ends_empty,
        };
        let reference = self.reference(&longer);
        let expected = match plan {
            Plan::RolledBack { version, .. } => expected_after(&reference.clean, kind, *version),
            _ => &reference.clean.state,
        };
        let churn = Churn::new();
        // A running operator does not notice a rollback: only an audit would, and audits are off here.
        if !matches!(plan, Plan::RolledBack { is_fresh: false, .. }) {
            wrong.extend(outcome::compare((expected, &churn), (&run.state, &churn), &reference.mask));
        }
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

/// Returns the state in which an undisturbed run settles when it continues from this version.
fn expected_after<'a>(clean: &'a Run, kind: &str, version: u64) -> &'a State {
    let is_living = oracle::is_living_at(kind, &clean.events, version);
    let step = if is_living { clean.quiet.iter().position(|(end, _)| *end >= version) } else { Some(0) };
    &clean.quiet[step.unwrap_or_default()].1
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
    let (mut reached, mut failures) = (0, Vec::new());
    for workload in &kind.workloads {
        let chosen = plans.plans(workload, share);
        let report = plans.try_all(workload, chosen);
        plans.tell(workload, &report);
        reached += report.reached;
        failures.extend(report.failures.into_iter().map(|failure| failure.text));
    }
    assert!(reached > 0, "no plan was reached, WINDLASS_TWO_VIEWS_SEED={seed}");
    let shown = failures.len().min(FAILURES_SHOWN);
    assert!(failures.is_empty(), "{} failed; the first:\n{}", failures.len(), failures[..shown].join("\n\n"));
}

/// Returns the seed in `WINDLASS_TWO_VIEWS_SEED`, or a random one.
pub(super) fn seed() -> u64 {
    match std::env::var("WINDLASS_TWO_VIEWS_SEED") {
        Ok(text) => text.parse().unwrap_or_else(|_| panic!("WINDLASS_TWO_VIEWS_SEED={text} is not a number")),
        Err(_) => u64::from(fastrand::u32(..)),
    }
}
