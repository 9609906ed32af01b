//! Two operators whose views of the cluster differ lose nothing: plans that no live read may be needed for.
//!
//! ```text
//! first ──▶ Gate ──▶ server 0 ─┐
//!           └ one call held    ├─▶ one store ──▶ all changes, in order ──▶ findings
//! second ─▶ Gate ──▶ server 1 ─┘
//!           └ one resource as of an earlier version
//! ```
//!
//! | plan | what happens |
//! |---|---|
//! | frozen | after the workload a second operator starts that sees one resource as of a version, for a while |
//! | suspended | a call of the first is held until a second has finished the workload and a further step |
//! | rolled back | after the workload the store goes back to a version, under both or before the second starts |
//!
//! Each plan ends as an undisturbed run of the same steps, and never does what `oracle` lists on the way; objects of
//! others are unchanged, and in a further hour nothing is written.
//!
//! `WINDLASS_TWO_VIEWS_PLANS` says how many plans of each workload are tried: a number, or `all`.
//! `WINDLASS_TWO_VIEWS_SEED` repeats a run; without it each has another seed, which it prints.

mod gate;
mod oracle;
mod plan;
mod run;

use macro_rules_attribute::apply;

use crate::plans::workloads;
use crate::support::embedded_bed;
use gate::Flaw;
use plan::{Plans, Share, check, seed, share};
use run::Plan;

/// Without `WINDLASS_TWO_VIEWS_PLANS`, of each workload.
const PLANS: usize = 6;

#[apply(embedded_bed)]
#[why = "two servers are of different age, and time is its own"]
fn two_views_of_a_foo_lose_nothing() {
    check(&workloads::foo(), share(PLANS));
}

#[apply(embedded_bed)]
#[why = "two servers are of different age, and time is its own"]
fn two_views_of_a_myapp_lose_nothing() {
    check(&workloads::myapp(), share(PLANS));
}

#[apply(embedded_bed)]
#[why = "two servers are of different age, and time is its own"]
fn two_views_of_an_appservice_lose_nothing() {
    check(&workloads::appservice(), share(PLANS));
}

#[apply(embedded_bed)]
#[why = "two servers are of different age, and time is its own"]
fn two_views_of_a_redis_lose_nothing() {
    check(&workloads::redis(), share(PLANS));
}

#[apply(embedded_bed)]
#[why = "two servers are of different age, and time is its own"]
fn two_views_of_a_webapp_lose_nothing() {
    check(&workloads::webapp(), share(PLANS));
}

/// Deletes and patches without preconditions are found by a writer that was suspended.
#[apply(embedded_bed)]
#[why = "it is about the plan itself"]
fn two_views_find_writes_without_preconditions() {
    let redis = workloads::redis();
    let is_held_delete = |plan: &Plan| matches!(plan, Plan::Suspended { call, .. } if call.verb == "delete");
    found(&redis, "scale 2-4-1", Flaw::WritesBlindly, is_held_delete, "which is wanted");
}

/// Live reads that are answered from the past are found by a view that is frozen.
#[apply(embedded_bed)]
#[why = "it is about the plan itself"]
fn two_views_find_old_reads_of_the_owner() {
    let foo = workloads::foo();
    let is_old_owner = |plan: &Plan| matches!(plan, Plan::Frozen { plural: "foos", is_alone: true, .. });
    found(&foo, "update", Flaw::ReadsOldOwner, is_old_owner, "below its owner's spec");
}

/// A flawed operator fails one of these plans with these words; the program fails none of them.
#[track_caller]
fn found(kind: &workloads::Kind, name: &str, flaw: Flaw, is_meant: impl Fn(&Plan) -> bool, words: &str) {
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
