//! Two operators with different views of the cluster must not destroy anything that is wanted.
//!
//! ```text
//! first ──▶ OperatorGate ──▶ server 0 ─┐
//!           └ one call held            ├─▶ one store ──▶ all changes, in order ──▶ findings
//! second ─▶ OperatorGate ──▶ server 1 ─┘
//!           └ one resource read at an earlier version
//! ```
//!
//! | plan | what happens |
//! |---|---|
//! | frozen | after the workload a second operator starts, which sees one resource at an earlier version for a while |
//! | suspended | a call of the first operator is held until a second has finished the workload and a further step |
//! | deposed | like suspended, with an election: the second operator leads when the first goes on after ten minutes |
//! | hidden | some events of a resource do not reach the operator |
//! | rolled back | after the workload the store goes back to an earlier version, with one or two operators running |
//! | crashed | the operator dies at a call; so does the next one, or it waits for the lease with a clock that is wrong |
//!
//! Each run must end as an undisturbed run of the same steps, inside the cluster and `outside`. It must do nothing that
//! `oracle` and `lint` list, must not touch foreign objects, must serve a `neighbour` as fast as an undisturbed run and
//! must write nothing in a further hour; in a run of all plans, in a further day.
//!
//! `WINDLASS_TWO_VIEWS_PLANS` sets how many plans of each workload are tried: a number, or `all`.
//! `WINDLASS_TWO_VIEWS_SEED` repeats a run; by default each run has a new seed, which it prints.

mod check;
mod disturb;
mod flaw;
mod gate;
mod lint;
mod neighbour;
mod oracle;
mod outside;
mod plan;
mod run;

use macro_rules_attribute::apply;

use crate::plans::share::Share;
use crate::plans::workloads;
use crate::support::embedded_bed;
use check::{Plans, check, seed};
use flaw::Flaw;
use plan::Plan;

/// The number of plans tried for each workload unless `WINDLASS_TWO_VIEWS_PLANS` is set.
const PLANS: Share = Share::Some(3);
/// How many plans may be tried until a known mistake is found.
const TRIES: usize = 60;

/// Returns how many plans are tried.
fn plans() -> Share {
    Share::from_env("WINDLASS_TWO_VIEWS_PLANS", PLANS)
}

#[apply(embedded_bed)]
#[why = "two API servers must have different views, and the clock is paused"]
fn foo_survives_operators_with_different_views() {
    check(&workloads::foo(), plans());
}

#[apply(embedded_bed)]
#[why = "two API servers must have different views, and the clock is paused"]
fn myapp_survives_operators_with_different_views() {
    check(&workloads::myapp(), plans());
}

#[apply(embedded_bed)]
#[why = "two API servers must have different views, and the clock is paused"]
fn appservice_survives_operators_with_different_views() {
    check(&workloads::appservice(), plans());
}

#[apply(embedded_bed)]
#[why = "two API servers must have different views, and the clock is paused"]
fn redis_survives_operators_with_different_views() {
    check(&workloads::redis(), plans());
}

#[apply(embedded_bed)]
#[why = "two API servers must have different views, and the clock is paused"]
fn webapp_survives_operators_with_different_views() {
    check(&workloads::webapp(), plans());
}

/// A known mistake of an operator: where it shows, and what is said of it.
struct Known {
    flaw: Flaw,
    kind: fn() -> workloads::Kind,
    workload: &'static str,
    /// Whether the mistake can show in a plan.
    shows: fn(&Plan) -> bool,
    words: &'static str,
}

/// Mistakes that can be made in front of the server. `hack/variants.sh` makes others, in the source.
const KNOWN: [Known; 10] = [
    Known {
        flaw: Flaw::DeletesBlindly,
        kind: workloads::redis,
        workload: "scale 2-4-1",
        shows: |plan| matches!(plan, Plan::Suspended { call, .. } if call.verb == "delete"),
        words: "which is wanted",
    },
    Known {
        flaw: Flaw::DeletesBlindly,
        kind: workloads::redis,
        workload: "scale 2-4-1",
        shows: |plan| matches!(plan, Plan::Crashed { .. }),
        words: "has no preconditions",
    },
    Known {
        flaw: Flaw::UpdatesBlindly,
        kind: workloads::foo,
        workload: "update",
        shows: |plan| matches!(plan, Plan::Suspended { call, .. } if call.verb == "patch"),
        words: "below its owner's spec",
    },
    Known {
        flaw: Flaw::ReadsOldOwner,
        kind: workloads::foo,
        workload: "update",
        shows: |plan| matches!(plan, Plan::Frozen { plural: "foos", is_alone: true, .. }),
        words: "below its owner's spec",
    },
    Known {
        flaw: Flaw::ListsFromCache,
        kind: workloads::myapp,
        workload: "create",
        shows: |_| true,
        words: "may be of any age",
    },
    Known {
        flaw: Flaw::AppliesCreates,
        kind: workloads::foo,
        workload: "delete and create again",
        shows: |plan| matches!(plan, Plan::Suspended { call, .. } if call.verb == "create"),
        words: "from its owner",
    },
    Known {
        flaw: Flaw::OverwritesConflicts,
        kind: workloads::foo,
        workload: "update",
        shows: |plan| matches!(plan, Plan::Suspended { call, .. } if call.verb == "patch"),
        words: "below its owner's spec",
    },
    Known {
        flaw: Flaw::CreatesOrphans,
        kind: workloads::appservice,
        workload: "create",
        shows: |_| true,
        words: "without an owner",
    },
    Known {
        flaw: Flaw::HoldsNothing,
        kind: workloads::webapp,
        workload: "delete",
        shows: |plan| matches!(plan, Plan::Frozen { .. }),
        words: "behind outside",
    },
    Known {
        flaw: Flaw::OrphansDependents,
        kind: workloads::foo,
        workload: "rename",
        shows: |_| true,
        words: "of them, not",
    },
];

#[apply(embedded_bed)]
#[why = "it tests the plans themselves"]
fn plans_detect_known_mistakes() {
    let seed = seed();
    let missed: Vec<String> = KNOWN.iter().filter_map(|known| known.missed(seed)).collect();
    assert!(missed.is_empty(), "WINDLASS_TWO_VIEWS_SEED={seed}:\n{}", missed.join("\n"));
}

impl Known {
    /// Returns why the mistake was not found, or why the plan that found it blames a sound operator, too.
    fn missed(&self, seed: u64) -> Option<String> {
        let kind = (self.kind)();
        let workload = kind.workloads.iter().find(|workload| workload.name == self.workload).unwrap();
        let mut sound = Plans::new(&kind, seed, Flaw::None);
        let mut chosen = sound.plans(workload, Share::All);
        chosen.retain(self.shows);
        fastrand::Rng::with_seed(seed).shuffle(&mut chosen);
        let mut flawed = Plans::new(&kind, seed, self.flaw);
        for plan in chosen.into_iter().take(TRIES) {
            let report = flawed.try_until(1, workload, vec![plan.clone()]);
            let is_said = report.failures.iter().any(|failure| failure.says(self.words));
            if is_said {
                let blamed = sound.try_until(1, workload, vec![plan]).failures;
                return blamed
                    .first()
                    .map(|failure| format!("{:?}: also without it: {failure:?}", self.flaw));
            }
        }
        Some(format!("{:?} was not found in {} {}", self.flaw, kind.kind, self.workload))
    }
}
