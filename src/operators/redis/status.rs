//! The status of a Redis: a pure function of the plan for its Pods.

use super::plan::Plan;
use super::wanted;
use crate::api::conditions::{self, READY, RECONCILING};
use crate::api::labels;
use crate::api::redis::v1::RedisStatus;
use crate::controller::kinds::health::reason;
use crate::controller::{ChildHealth, CommonStatus};

crate::common_status!(RedisStatus, other);

/// Returns the status without the common fields; for `reached` see [`plan::reached`](super::plan::reached).
pub(super) fn status(name: &str, plan: &Plan, reached: i32) -> RedisStatus {
    RedisStatus {
        replicas: plan.active,
        ready_replicas: plan.ready,
        reached_replicas: reached,
        selector: labels::to_selector(&wanted::selector(name)),
        ..RedisStatus::default()
    }
}

/// Returns the health of the Pods as they were before this sync.
pub(super) fn health(name: &str, replicas: i32, plan: &Plan) -> ChildHealth {
    let Plan { active, up_to_date, outdated, waits_for, .. } = plan;
    let surplus = active - replicas;
    if let Some(ordinal) = waits_for.first() {
        let message = format!("Pod \"{name}-{ordinal}\" is terminating; it is recreated afterwards");
        return ChildHealth::reconciling(reason::WAITING_FOR_DELETION, message);
    }
    if *outdated > 0 {
        let message = format!(
            "{outdated} of {replicas} Pods are outdated and replaced one at a time; \
             {up_to_date} are up to date and ready"
        );
        return ChildHealth::reconciling(ROLLING, message);
    }
    let progress = format!("{up_to_date} of {replicas} Pods are ready");
    if surplus > 0 {
        return ChildHealth::reconciling(reason::PROGRESSING, format!("{progress}; {surplus} surplus"));
    }
    if *up_to_date < replicas {
        return ChildHealth::reconciling(reason::PROGRESSING, progress);
    }
    ChildHealth::ready(progress)
}

/// Returns the health of the Pods by the last applied spec, while a pause holds back a newer one. The stored status
/// tells whether all Pods existed and how many; as none is created during a pause, fewer than that means some are
/// missing.
pub(super) fn held(stored: &RedisStatus, plan: &Plan) -> ChildHealth {
    let conditions = stored.conditions();
    let is_judged = conditions::reason(&conditions, RECONCILING) == Some(reason::PAUSED)
        && conditions::reason(&conditions, READY) != Some(reason::PAUSED);
    let were_all_there = conditions::is_true(&conditions, READY) || is_judged;
    let Plan { active, ready, .. } = plan;
    let progress = format!("{ready} of {active} Pods are ready");
    if !were_all_there || *active < stored.replicas {
        let message = format!("{progress}; more changes are pending, but this object is paused");
        ChildHealth::reconciling(reason::PAUSED, message)
    } else if ready < active {
        ChildHealth::reconciling(reason::PROGRESSING, progress)
    } else {
        ChildHealth::ready(progress)
    }
}

/// The reason of Ready while outdated Pods are being replaced.
const ROLLING: &str = "RollingUpdate";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controller::HealthPhase;

    #[test]
    fn each_pod_state_has_its_health() {
        let fine = || Plan { active: 2, ready: 2, up_to_date: 2, ..Plan::default() };
        for (plan, phase, reason) in [
            (fine(), HealthPhase::Ready, "Available"),
            (Plan { up_to_date: 1, ready: 1, ..fine() }, HealthPhase::Reconciling, "Progressing"),
            (Plan { active: 3, ..fine() }, HealthPhase::Reconciling, "Progressing"),
            (Plan { outdated: 1, up_to_date: 1, ..fine() }, HealthPhase::Reconciling, "RollingUpdate"),
            (Plan { waits_for: vec![1], ..fine() }, HealthPhase::Reconciling, "WaitingForDeletion"),
        ] {
            let health = health("x", 2, &plan);
            assert_eq!((health.phase, health.reason), (phase, reason), "{plan:?}");
        }
        assert_eq!(health("x", 0, &Plan::default()).phase, HealthPhase::Ready, "no Pod is wanted");
    }
}
