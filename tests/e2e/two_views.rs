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
//! | rolled back | after the workload the store goes back to an earlier version, with one or two operators running |
//!
//! Each run must end as an undisturbed run of the same steps, must do nothing that `oracle` lists, must not touch
//! foreign objects, and must write nothing in a further hour.
//!
//! `WINDLASS_TWO_VIEWS_PLANS` sets how many plans of each workload are tried: a number, or `all`.
//! `WINDLASS_TWO_VIEWS_SEED` repeats a run; by default each run has a new seed, which it prints.

mod gate;
mod oracle;
mod plan;
mod run;

use macro_rules_attribute::apply;

use crate::plans::share::Share;
use crate::plans::workloads;
use crate::support::embedded_bed;
use gate::Flaw;
use plan::{Plans, check, seed};
use run::Plan;

/// The number of plans tried for each workload unless `WINDLASS_TWO_VIEWS_PLANS` is set.
const PLANS: Share = Share::Some(3);

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

/// A suspended operator reveals deletes and patches without preconditions.
#[apply(embedded_bed)]
#[why = "it tests the plans themselves"]
fn plans_detect_writes_without_preconditions() {
    let redis = workloads::redis();
    let is_held_delete = |plan: &Plan| matches!(plan, Plan::Suspended { call, .. } if call.verb == "delete");
    detects(&redis, "scale 2-4-1", Flaw::WritesBlindly, is_held_delete, "which is wanted");
}

/// An operator with a frozen view reveals live reads that return stale owners.
#[apply(embedded_bed)]
#[why = "it tests the plans themselves"]
fn plans_detect_stale_reads_of_the_owner() {
    let foo = workloads::foo();
    let is_old_owner = |plan: &Plan| matches!(plan, Plan::Frozen { plural: "foos", is_alone: true, .. });
    detects(&foo, "update", Flaw::ReadsOldOwner, is_old_owner, "below its owner's spec");
}

/// Asserts that a flawed operator fails some of these plans with these words, and that the real one passes them.
#[track_caller]
fn detects(kind: &workloads::Kind, name: &str, flaw: Flaw, is_meant: impl Fn(&Plan) -> bool, words: &str) {
    let workload = kind.workloads.iter().find(|workload| workload.name == name).unwrap();
    let seed = seed();
    let mut chosen = Plans::new(kind, seed, Flaw::None).plans(workload, Share::All);
    chosen.retain(is_meant);
    let report = Plans::new(kind, seed, flaw).try_all(workload, chosen);
    let is_said = |failure: &&plan::Failure| failure.wrong.iter().any(|wrong| wrong.contains(words));
    let failed: Vec<Plan> =
        report.failures.iter().filter(is_said).map(|failure| failure.plan.clone()).collect();
    assert!(!failed.is_empty(), "WINDLASS_TWO_VIEWS_SEED={seed}: {report:#?}");
    let sound = Plans::new(kind, seed, Flaw::None).try_all(workload, failed);
    assert!(sound.failures.is_empty(), "WINDLASS_TWO_VIEWS_SEED={seed}: {sound:#?}");
}
