//! Crash plan (P1): kills the operator before and after each of its calls and restarts it, or lets one call fail.
//! Either way the final state must equal that of an undisturbed run.
//!
//! ```text
//! operator ─▶ CrashGate ─▶ InProcessTransport ─▶ Sim    undisturbed, two seeds ─▶ calls, end state, mask
//!              └ it dies here            each call, each point ──▶ same end state, same creates and deletes
//! ```
//!
//! | at a call | the process | the request |
//! |---|---|---|
//! | cut before | dies | never sent |
//! | cut unread (writes) | dies | applied |
//! | cut after | dies after it has read the response | applied |
//! | late (writes) | dies | applied later: after its successor's first call, before its first write, or at the end |
//! | fails | lives | refused, lost, or applied with its response lost |
//!
//! All objects in the namespace are compared field by field, except Events, which are best effort and may be lost in
//! a crash. A disturbed run may make more reads, and one more create that is answered with `AlreadyExists`.
//!
//! `WINDLASS_CRASH_POINTS` sets how many points of each workload are tried: a number, or `all`. As in all cases,
//! `WINDLASS_E2E_SEED` sets the seed.

mod gate;
mod plan;
mod run;

use macro_rules_attribute::apply;

use crate::plans::call::Call;
use crate::plans::share::Share;
use crate::plans::workloads;
use crate::support::embedded_bed;
use gate::{Act, Flaw, Late};
use plan::{Reference, check, cuts, errors};

/// The number of points tried for each workload unless `WINDLASS_CRASH_POINTS` is set.
const CUTS: Share = Share::Some(8);
const ERRORS: Share = Share::Some(4);

fn share(usual: Share) -> Share {
    Share::from_env("WINDLASS_CRASH_POINTS", usual)
}

#[apply(embedded_bed)]
#[why = "the operator must die at an exact call, and the clock is paused"]
fn foo_converges_after_a_crash_at_any_call() {
    check("cuts", &workloads::foo(), cuts, share(CUTS));
}

#[apply(embedded_bed)]
#[why = "the operator must die at an exact call, and the clock is paused"]
fn myapp_converges_after_a_crash_at_any_call() {
    check("cuts", &workloads::myapp(), cuts, share(CUTS));
}

#[apply(embedded_bed)]
#[why = "the operator must die at an exact call, and the clock is paused"]
fn appservice_converges_after_a_crash_at_any_call() {
    check("cuts", &workloads::appservice(), cuts, share(CUTS));
}

#[apply(embedded_bed)]
#[why = "the operator must die at an exact call, and the clock is paused"]
fn redis_converges_after_a_crash_at_any_call() {
    check("cuts", &workloads::redis(), cuts, share(CUTS));
}

#[apply(embedded_bed)]
#[why = "the operator must die at an exact call, and the clock is paused"]
fn webapp_converges_after_a_crash_at_any_call() {
    check("cuts", &workloads::webapp(), cuts, share(CUTS));
}

#[apply(embedded_bed)]
#[why = "one exact call must fail, and the clock is paused"]
fn foo_converges_after_an_error_of_any_call() {
    check("errors", &workloads::foo(), errors, share(ERRORS));
}

#[apply(embedded_bed)]
#[why = "one exact call must fail, and the clock is paused"]
fn myapp_converges_after_an_error_of_any_call() {
    check("errors", &workloads::myapp(), errors, share(ERRORS));
}

#[apply(embedded_bed)]
#[why = "one exact call must fail, and the clock is paused"]
fn appservice_converges_after_an_error_of_any_call() {
    check("errors", &workloads::appservice(), errors, share(ERRORS));
}

#[apply(embedded_bed)]
#[why = "one exact call must fail, and the clock is paused"]
fn redis_converges_after_an_error_of_any_call() {
    check("errors", &workloads::redis(), errors, share(ERRORS));
}

#[apply(embedded_bed)]
#[why = "one exact call must fail, and the clock is paused"]
fn webapp_converges_after_an_error_of_any_call() {
    check("errors", &workloads::webapp(), errors, share(ERRORS));
}

/// The plan detects a process that is not restarted, and a process whose deletes carry no preconditions.
#[apply(embedded_bed)]
#[why = "it tests the plan itself"]
fn crash_plan_detects_flawed_operators() {
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
