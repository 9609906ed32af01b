//! Crash plan: the process is cut before and after every call that it makes, and started again; or a call goes
//! wrong once. What comes of it is what comes of an undisturbed run.
//!
//! ```text
//! operator ─▶ Gate ─▶ InProcessTransport ─▶ Sim        undisturbed, two seeds ─▶ calls, end state, mask
//!              └ here it dies            each call, each point ──▶ the same end state, the same lives
//! ```
//!
//! | at a call | the process | the request |
//! |---|---|---|
//! | cut before | dead | never sent |
//! | cut unread (writes) | dead | applied |
//! | cut after | has the answer, sends nothing more | applied |
//! | late (writes) | dead | applied in its successor's time: after the first call, before the first write, after the last call |
//! | fails | lives | refused, lost, or applied with the answer lost |
//!
//! All objects in the namespace are compared field by field, Events left out: they are a courtesy, and a process
//! that dies takes some with it. Allowed are more reads, and one create that is answered "it exists".
//!
//! `WINDLASS_CRASH_POINTS` says how many points of each workload are tried: a number, or `all`. The rest is as
//! for all cases: `WINDLASS_E2E_SEED`.

mod gate;
mod plan;
mod run;

use macro_rules_attribute::apply;

use crate::plans::call::Call;
use crate::plans::workloads;
use crate::support::embedded_bed;
use gate::{Act, Flaw, Late};
use plan::{Reference, Share, check, cuts, errors, share};

/// Without `WINDLASS_CRASH_POINTS`, of each workload.
const CUTS: Share = Share::Some(8);
const ERRORS: Share = Share::Some(4);

#[apply(embedded_bed)]
#[why = "a process is cut between two instructions, and time is its own"]
fn p1_a_foo_is_the_same_after_a_cut_at_any_call() {
    check("cuts", &workloads::foo(), cuts, share(CUTS));
}

#[apply(embedded_bed)]
#[why = "a process is cut between two instructions, and time is its own"]
fn p1_a_myapp_is_the_same_after_a_cut_at_any_call() {
    check("cuts", &workloads::myapp(), cuts, share(CUTS));
}

#[apply(embedded_bed)]
#[why = "a process is cut between two instructions, and time is its own"]
fn p1_an_appservice_is_the_same_after_a_cut_at_any_call() {
    check("cuts", &workloads::appservice(), cuts, share(CUTS));
}

#[apply(embedded_bed)]
#[why = "a process is cut between two instructions, and time is its own"]
fn p1_a_redis_is_the_same_after_a_cut_at_any_call() {
    check("cuts", &workloads::redis(), cuts, share(CUTS));
}

#[apply(embedded_bed)]
#[why = "a process is cut between two instructions, and time is its own"]
fn p1_a_webapp_is_the_same_after_a_cut_at_any_call() {
    check("cuts", &workloads::webapp(), cuts, share(CUTS));
}

#[apply(embedded_bed)]
#[why = "one call of many goes wrong, and time is its own"]
fn a_foo_is_the_same_after_an_error_of_any_call() {
    check("errors", &workloads::foo(), errors, share(ERRORS));
}

#[apply(embedded_bed)]
#[why = "one call of many goes wrong, and time is its own"]
fn a_myapp_is_the_same_after_an_error_of_any_call() {
    check("errors", &workloads::myapp(), errors, share(ERRORS));
}

#[apply(embedded_bed)]
#[why = "one call of many goes wrong, and time is its own"]
fn an_appservice_is_the_same_after_an_error_of_any_call() {
    check("errors", &workloads::appservice(), errors, share(ERRORS));
}

#[apply(embedded_bed)]
#[why = "one call of many goes wrong, and time is its own"]
fn a_redis_is_the_same_after_an_error_of_any_call() {
    check("errors", &workloads::redis(), errors, share(ERRORS));
}

#[apply(embedded_bed)]
#[why = "one call of many goes wrong, and time is its own"]
fn a_webapp_is_the_same_after_an_error_of_any_call() {
    check("errors", &workloads::webapp(), errors, share(ERRORS));
}

/// What the plan is there to find, it finds: a process that is not started again, and one whose deletes carry no
/// preconditions.
#[apply(embedded_bed)]
#[why = "it is about the plan itself"]
fn the_crash_plan_finds_what_is_wrong() {
    let redis = workloads::redis();
    let of = |name: &str| redis.workloads.iter().find(|workload| workload.name == name).unwrap();
    let dead = Reference::learn(&redis, of("create")).flawed(Flaw::StaysDead);
    let report =
        dead.try_all(|call| if call.is_write() { vec![Act::CutBefore] } else { Vec::new() }, Share::All);
    assert!(report.failures.iter().any(|failure| failure.contains("not")), "{report:?}");
    let blind = Reference::learn(&redis, of("delete and create again")).flawed(Flaw::DeletesBlindly);
    let late = |_: &Call| vec![Act::Late(Late::AfterLastCall)];
    let report =
        blind.try_all(|call| if call.verb == "delete" { late(call) } else { Vec::new() }, Share::All);
    assert!(report.failures.iter().any(|failure| failure.contains("deleted")), "{report:?}");
}
