//! Deletes Pods: surplus, finished and outdated ones, highest ordinals first.
//!
//! The tests are those of the sync handler: `scale_down_deletes_highest_ordinals_first`,
//! `interrupted_scale_down_reports_deleted_pods`, `pod_altered_by_webhook_is_not_replaced_forever`.

use std::collections::HashMap;

use super::plan::{self, Plan, PruneReason};
use super::{CUT_RETRY, WRITES_MAX, wanted};
use crate::api::ApiResource;
use crate::api::redis::v1::Redis;
use crate::cache::{Cached, Slim};
use crate::controller::kinds::difference::describe;
use crate::controller::kinds::health::{UNDONE_RETRY, reason};
use crate::controller::kinds::pod::ObservedPod;
use crate::controller::{ChildHealth, ChildRef, Deletion, Outcome, Pass, StopReason};
use crate::record::EventType;

/// The most names that an event lists.
const NAMES_MAX: usize = 10;

/// The Pods of a Redis by ordinal.
type Pods<'a> = HashMap<u32, &'a Cached<ObservedPod>>;

/// Deletes Pods in the order of the plan, one [`PruneReason`] after another: a refusal within one group does not
/// block the next group.
pub(super) async fn prune(
    pass: &mut Pass<'_, Slim<Redis>>,
    plan: &Plan,
    pods: &[Cached<ObservedPod>],
) -> Result<(), StopReason> {
    if plan.delete.is_empty() {
        return Ok(());
    }
    let name = pass.name();
    let by_ordinal = |pod| Some((plan::ordinal(name, Cached::object_name(pod).name())?, pod));
    let pods: Pods<'_> = pods.iter().filter_map(by_ordinal).collect();
    for why in [PruneReason::Surplus, PruneReason::Finished] {
        let of_this_sort = || plan.delete.iter().filter(|(_, other)| *other == why);
        let next = of_this_sort().take(WRITES_MAX);
        let all: Vec<ChildRef> =
            next.filter_map(|(ordinal, _)| pods.get(ordinal)).map(|pod| ChildRef::of(pod)).collect();
        let (deleted, is_cut_short) = prune_sort(pass, plan, (why, &all)).await?;
        if of_this_sort().count() > WRITES_MAX || is_cut_short {
            let message = format!("Deleted {deleted} Pods; more will follow");
            pass.report(ChildHealth::reconciling(reason::PROGRESSING, message).requeue_after(CUT_RETRY));
        }
    }
    for &(ordinal, _) in plan.delete.iter().filter(|(_, why)| *why == PruneReason::Outdated) {
        prune_outdated(pass, ordinal, &pods).await?;
    }
    Ok(())
}

/// Returns the number of deleted Pods, and whether the rest is left to the next sync.
async fn prune_sort(
    pass: &mut Pass<'_, Slim<Redis>>,
    plan: &Plan,
    (why, all): (PruneReason, &[ChildRef]),
) -> Result<(usize, bool), StopReason> {
    let batch = pass.delete_each(&ApiResource::of::<ObservedPod>(), all).await;
    let ended: Vec<(&str, Deletion)> =
        all.iter().zip(batch.results).filter_map(|(pod, ended)| Some((pod.name.as_str(), ended?))).collect();
    // Records the deletions, even if the sync fails afterwards.
    let is_deleted = |(_, ended): &&(&str, Deletion)| *ended == Deletion::Deleted;
    let deleted: Vec<String> = ended.iter().filter(is_deleted).map(|(name, _)| (*name).to_owned()).collect();
    if !deleted.is_empty() {
        let from = usize::try_from(plan.active).unwrap_or(0);
        let (to, names) = (from - deleted.len().min(from), names(&deleted));
        let (reason, note) = match why {
            PruneReason::Surplus => ("ScaledDown", format!("Scaled down from {from} to {to}: {names}")),
            PruneReason::Finished | PruneReason::Outdated => {
                ("ChildDeleted", format!("Deleted finished Pods, to be recreated: {names}"))
            }
        };
        pass.event(EventType::Normal, reason, "Delete", note);
    }
    batch.outcome?;
    for (name, ended) in ended {
        match ended {
            Deletion::Refused { status, requeue_after } => {
                pass.refused_deletion(&format!("Pod {name:?}"), &status, requeue_after);
            }
            Deletion::NotNow => return Err(StopReason::Outcome(Outcome::RequeueAfter(UNDONE_RETRY))),
            Deletion::Deleted | Deletion::NothingToDo => {}
        }
    }
    Ok((deleted.len(), batch.is_cut_short))
}

/// Deletes an outdated Pod, unless its replacements are contended.
async fn prune_outdated(
    pass: &mut Pass<'_, Slim<Redis>>,
    ordinal: u32,
    pods: &Pods<'_>,
) -> Result<(), StopReason> {
    let Some(pod) = pods.get(&ordinal) else { return Ok(()) };
    let child = ChildRef::of(pod);
    let wanted = wanted::pod(pass.name(), &pass.object().spec, ordinal);
    let differences = pod.readable().map(|pod| wanted.is_outdated(pod)).unwrap_or_default();
    let (resource, name) = (ApiResource::of::<ObservedPod>(), &child.name);
    let (deletion, contended) = pass.delete_outdated(&resource, &child, &differences).await?;
    if let Some(requeue_after) = contended {
        let message = format!(
            "Pod {name:?} is altered on every create ({}); \
             stop the client or webhook that alters it, or pause this object",
            describe(&differences)
        );
        pass.report(ChildHealth::stalled(reason::CONTENDED, message).requeue_after(requeue_after));
    }
    match deletion {
        Deletion::Deleted => {
            let note = format!("Deleted outdated Pod {name:?}, to be recreated from the current spec");
            pass.event(EventType::Normal, "ChildDeleted", "Delete", note);
        }
        Deletion::NothingToDo => {}
        Deletion::NotNow => return Err(StopReason::Outcome(Outcome::RequeueAfter(UNDONE_RETRY))),
        Deletion::Refused { status, requeue_after } => {
            pass.refused_deletion(&format!("Pod {name:?}"), &status, requeue_after);
        }
    }
    Ok(())
}

/// Joins the first [`NAMES_MAX`] names, and counts the rest.
pub(super) fn names(all: &[String]) -> String {
    let shown = all.iter().take(NAMES_MAX).cloned().collect::<Vec<_>>().join(", ");
    match all.len().saturating_sub(NAMES_MAX) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}
