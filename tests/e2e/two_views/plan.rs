//! The disturbances of a workload.

use serde_json::json;

use super::gate::Hold;
use super::oracle::{self, Event};
use super::run::Run;
use crate::plans::call::Call;
use crate::plans::share::Share;
use crate::plans::workloads::{Kind, NEIGHBOUR, Step, Workload};

/// The most events in a row that are hidden.
const HIDDEN_MAX: usize = 4;
/// The calls of a restarted operator at which it dies again. All of them would square the number of plans.
const DIES_AGAIN_AT: [usize; 4] = [1, 2, 3, 5];
/// How many hours a clock is off.
const HOURS_OFF: [i64; 2] = [-2, 2];

/// A disturbance of a run.
#[derive(Clone, Debug)]
pub(super) enum Plan {
    Undisturbed,
    /// After the workload a second operator starts, which sees a resource at an earlier version for a while.
    Frozen {
        group: &'static str,
        plural: &'static str,
        version: u64,
        /// Whether the first operator is stopped before.
        is_alone: bool,
    },
    /// A call of the first operator is held until a second one has finished the workload and further steps.
    Suspended {
        call: Call,
        hold: Hold,
        next: Step,
    },
    /// Like `Suspended`, with an election: the second operator leads when the first is thawed, after ten minutes.
    Deposed {
        call: Call,
        next: Step,
    },
    /// Some events of a resource are hidden from the operator.
    Hidden {
        plural: &'static str,
        /// How many events are sent before, from the first of the recorded steps.
        skip: usize,
        count: usize,
        ending: Ending,
    },
    /// After the workload the store goes back to a version, while one operator runs or two.
    RolledBack {
        version: u64,
        /// Whether the second operator starts after the rollback.
        is_fresh: bool,
        /// What the user does then.
        next: Option<Step>,
    },
    /// The operator dies at a call.
    Crashed {
        call: Call,
        /// Whether the server still carries the call out.
        is_applied: bool,
        successor: Successor,
    },
}

/// How hidden events come to light.
#[derive(Clone, Copy, Debug)]
pub(super) enum Ending {
    /// The watch ends and resumes from the last event that was sent. What is older is found by the audit.
    Resumed,
    /// The watch ends and cannot be resumed.
    Expired,
    /// Nothing shows until the audit.
    Silent,
}

/// The operator that follows a dead one.
#[derive(Clone, Copy, Debug)]
pub(super) enum Successor {
    /// It dies, too, at this of its calls.
    Dies(usize),
    /// Its clock is off by some hours, and it has to wait for the lease.
    ClockOff(i64),
}

// === impl Plan ===

impl Plan {
    /// Returns what the user does after the workload.
    pub(super) fn next(&self) -> Option<&Step> {
        match self {
            Self::Suspended { next, .. } | Self::Deposed { next, .. } => Some(next),
            Self::RolledBack { next, .. } => next.as_ref(),
            Self::Undisturbed | Self::Frozen { .. } | Self::Hidden { .. } | Self::Crashed { .. } => None,
        }
    }

    /// Whether the operators elect a leader.
    pub(super) fn is_elected(&self) -> bool {
        let waits = matches!(self, Self::Crashed { successor: Successor::ClockOff(_), .. });
        waits || matches!(self, Self::Deposed { .. })
    }

    /// Whether the operators audit their caches: only an audit finds an event that was lost without a sign, or a store that
    /// was restored.
    pub(super) fn has_audits(&self) -> bool {
        matches!(self, Self::Hidden { .. } | Self::RolledBack { .. })
    }
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
fn nexts(workload: &Workload) -> Vec<Step> {
    let Some(Step::Create(spec)) = workload.before.iter().chain(&workload.steps).next() else {
        panic!("a workload begins with a creation")
    };
    if workload.ends_empty {
        return vec![Step::Create(spec.clone())];
    }
    vec![Step::Change(json!({"replicas": 4})), Step::Recreate(spec.clone())]
}

/// Returns the calls of an undisturbed run at which a plan can set in.
fn calls(clean: &Run) -> impl Iterator<Item = &Call> {
    let is_point = |call: &&Call| call.verb != "watch" && !call.is_for_events() && !call.is_of(NEIGHBOUR);
    clean.calls.iter().map(|made| &made.call).filter(is_point)
}

/// Returns the changes of an undisturbed run before its neighbour was created.
fn events(clean: &Run) -> impl Iterator<Item = &Event> {
    let end = clean.quiet.last().expect("a run has a beginning").0;
    clean.events.iter().filter(move |event| event.version <= end)
}

/// Returns plans that freeze each resource at each version at which it changed, and at the initial version.
fn frozen(kind: &Kind, clean: &Run) -> Vec<Plan> {
    let mut plans = Vec::new();
    for (group, plural, kind) in watched(kind) {
        let changes = events(clean).filter(|event| event.kind == kind).map(|event| event.version);
        for version in std::iter::once(clean.quiet[0].0).chain(changes) {
            let frozen = |is_alone| Plan::Frozen { group, plural, version, is_alone };
            plans.extend([false, true].map(frozen));
        }
    }
    plans
}

/// Returns plans that hold each call, with both scopes, until each of the further steps is done.
fn suspended(workload: &Workload, clean: &Run) -> Vec<Plan> {
    let mut plans = Vec::new();
    for (call, next) in
        calls(clean).flat_map(|call| nexts(workload).into_iter().map(move |next| (call, next)))
    {
        let held = |hold| Plan::Suspended { call: call.clone(), hold, next: next.clone() };
        plans.extend([Hold::Operator, Hold::Call].map(held));
    }
    plans
}

/// Returns plans that depose the first operator at each call.
fn deposed(workload: &Workload, clean: &Run) -> Vec<Plan> {
    let one = |call: &Call, next: &Step| Plan::Deposed { call: call.clone(), next: next.clone() };
    let all = |call| nexts(workload).iter().map(|next| one(call, next)).collect::<Vec<_>>();
    calls(clean).flat_map(all).collect()
}

/// Returns plans that hide each event of the recorded steps, with up to three more.
fn hidden(kind: &Kind, clean: &Run) -> Vec<Plan> {
    let begin = clean.begin;
    let mut plans = Vec::new();
    for (_, plural, kind) in watched(kind) {
        let events = events(clean).filter(|event| event.kind == kind && event.version > begin).count();
        for (skip, count) in (0..events).flat_map(|skip| (1..=HIDDEN_MAX).map(move |count| (skip, count))) {
            let ended = |ending| Plan::Hidden { plural, skip, count, ending };
            plans.extend([Ending::Resumed, Ending::Expired, Ending::Silent].map(ended));
        }
    }
    plans
}

/// Returns plans that roll the store back to each version at which an object changed.
fn rolled_back(kind: &Kind, clean: &Run) -> Vec<Plan> {
    let begin = clean.quiet[0].0;
    let versions = events(clean).map(|event| event.version).filter(|version| *version >= begin);
    let next = Step::Change(json!({"replicas": 3}));
    let ways = |version| {
        let mut ways = vec![(false, None), (true, None)];
        if oracle::is_living_at(kind.kind, &clean.events, version) {
            ways.push((true, Some(next.clone())));
        }
        ways.into_iter().map(move |(is_fresh, next)| Plan::RolledBack { version, is_fresh, next })
    };
    versions.flat_map(ways).collect()
}

/// Returns plans that kill the operator at each call.
fn crashed(clean: &Run) -> Vec<Plan> {
    let dies = DIES_AGAIN_AT.map(Successor::Dies);
    let is_off = HOURS_OFF.map(Successor::ClockOff);
    let ways = dies.into_iter().chain(is_off).flat_map(|successor| [false, true].map(|way| (way, successor)));
    let ways: Vec<(bool, Successor)> = ways.collect();
    let at = |call: &Call| {
        let one = |(is_applied, successor)| Plan::Crashed { call: call.clone(), is_applied, successor };
        ways.iter().copied().map(one).collect::<Vec<_>>()
    };
    calls(clean).flat_map(at).collect()
}

/// Returns all plans for a workload, or a sample with an equal share of each kind of plan.
pub(super) fn plans(kind: &Kind, workload: &Workload, clean: &Run, share: Share, seed: u64) -> Vec<Plan> {
    let all = [
        frozen(kind, clean),
        suspended(workload, clean),
        deposed(workload, clean),
        hidden(kind, clean),
        rolled_back(kind, clean),
        crashed(clean),
    ];
    let mut random = fastrand::Rng::with_seed(seed);
    let Share::Some(count) = share else { return share.of(all.concat(), &mut random) };
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
