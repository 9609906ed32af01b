//! The sync handler of Redis, which manages Pods directly.
//!
//! Mirrors kubernetes `pkg/controller/replicaset` (`syncReplicaSet`, `manageReplicas`), with ordinals.
//!
//! # Guarantees
//! - The finalizer is stored before the first Pod. (test: `the_finalizer_is_stored_before_the_first_pod`)
//! - A refused create, for example by a quota, ends the batch after few requests and is reported. (test: `refused_pod_stops_the_batch_and_is_reported`)
//! - A scale-down deletes the highest ordinals first. (test: `scale_down_deletes_highest_ordinals_first`)
//! - A Pod that a webhook alters on every create is not replaced forever. (test: `pod_altered_by_webhook_is_not_replaced_forever`)
//! - A stale cache causes neither duplicate Pods nor deletions. (test: `stale_spec_deletes_nothing`)
//! - A deleted Redis stays until its last Pod is gone. (test: `a_deleted_redis_stays_until_its_pods_are_gone`)
//! - Completed creates and deletes are reported once, even if the pass fails afterwards. (test: `interrupted_scale_down_reports_deleted_pods`, `deleting_event_is_recorded_once_despite_failures`)

use std::time::Duration;

use super::plan::{self, Plan, PruneReason};
use super::{FINALIZER, status, wanted};
use crate::api::conditions::{self, READY};
use crate::api::redis::v1::{Redis, RedisStatus};
use crate::cache::{Cached, Lister, Object};
use crate::controller::kinds::difference::describe;
use crate::controller::kinds::health::{EXISTS_RETRY, UNDONE_RETRY, reason};
use crate::controller::kinds::pod::ObservedPod;
use crate::controller::{
    ApplyOutcome, ChildHealth, ChildRef, CommonStatus, Deletion, Outcome, Reconcile, ReconcileContext,
    StopReason,
};
use crate::record::EventType;

/// The most Pods that one pass creates or deletes, so that other keys get their turn.
const WRITES_MAX: usize = 128;
/// The requeue delay after a pass reached [`WRITES_MAX`]; events for its own writes usually wake the key sooner.
const CUT_RETRY: Duration = Duration::from_secs(1);
/// The most names that an event lists.
const NAMES_MAX: usize = 10;

/// Reconciles the Pods of a Redis.
#[derive(Debug)]
pub struct RedisSync {
    pub(super) pods: Lister<ObservedPod>,
}

/// The result of creating the missing Pods.
struct Ended {
    /// The ordinals that were created.
    created: Vec<u32>,
    /// Whether every attempted name is taken by somebody else.
    is_all_taken: bool,
}

impl Reconcile for RedisSync {
    type Resource = Redis;

    const FINALIZER: Option<&'static str> = Some(FINALIZER);

    async fn reconcile(&self, ctx: &mut ReconcileContext<'_, Redis>) -> Result<RedisStatus, StopReason> {
        ctx.add_finalizer(FINALIZER).await?;
        let pods = self.pods(ctx).await?;
        let plan = plan::plan(ctx.object(), &pods);
        let replicas = ctx.object().spec.replicas;
        let health = status::health(ctx.name(), replicas, &plan);
        let mut reached = ctx.stored_status().reached_replicas;
        if ctx.is_paused() {
            let is_idle = plan.ensure.is_empty() && plan.delete.is_empty();
            ctx.report(if !ctx.observes_this_spec() {
                status::held(&ctx.stored_status(), &plan)
            } else if is_idle {
                health
            } else {
                let message = format!("{}, and this object is paused", health.message);
                ChildHealth::reconciling(reason::PAUSED, message)
            });
        } else {
            recall_contention(ctx, &plan);
            prune(ctx, &plan, &pods).await?;
            let Ended { created, is_all_taken } = self.apply(ctx, &plan, reached).await?;
            if let Some(ordinal) = plan.past_taken.filter(|_| is_all_taken) {
                let next = Plan { delete: vec![(ordinal, PruneReason::Outdated)], ..Plan::default() };
                prune(ctx, &next, &pods).await?;
            }
            reached = plan::reached(ctx.object(), &pods, &created, reached);
            // Reported after the obstacles of single Pods, which are more specific.
            ctx.report(health);
        }
        Ok(status::status(ctx.name(), &plan, reached))
    }

    async fn finalize(
        &self,
        ctx: &mut ReconcileContext<'_, Redis>,
    ) -> Result<Option<RedisStatus>, StopReason> {
        if !ctx.has_finalizer(FINALIZER) {
            return Ok(None);
        }
        if ctx.is_orphaning() {
            ctx.remove_finalizer(FINALIZER).await?;
            return Ok(None);
        }
        let pods = self.pods(ctx).await?;
        let mut left: Vec<ChildRef> = pods.iter().map(ChildRef::of).collect();
        if left.is_empty() {
            // Pods that the cache does not show must be gone, too.
            let (children, owner, resource) = (ctx.children(), ctx.owner(), ObservedPod::resource());
            left = children.without_label(owner, &resource).await?;
            left.extend(children.with_label(owner, &resource).await?);
        }
        if left.is_empty() {
            ctx.remove_finalizer(FINALIZER).await?;
            return Ok(None);
        }
        let count = left.len();
        if !ctx.observes_this_spec() {
            let note = format!("Deleting {count} Pods before this Redis is removed");
            ctx.event_when_written(EventType::Normal, "Deleting", "Delete", note);
        }
        let plan = plan::plan_nothing(ctx.object(), &pods);
        plan::highest_first(ctx.name(), &mut left);
        let is_cut = left.len() > WRITES_MAX;
        left.truncate(WRITES_MAX);
        let (ended, outcome) = ctx.delete_each(&ObservedPod::resource(), &left).await;
        for (pod, deletion) in left.iter().zip(ended) {
            if let Some(Deletion::Refused { status, requeue_after }) = deletion {
                ctx.refused_deletion(&format!("Pod {:?}", pod.name), &status, requeue_after);
            }
        }
        if let Err(error) = outcome {
            ctx.fails_after_its_status(error);
        }
        let requeue_after = if is_cut { CUT_RETRY } else { EXISTS_RETRY };
        let message = format!("Deleting {count} Pods; this Redis is removed after the last one");
        ctx.report(ChildHealth::reconciling(reason::DELETING, message).requeue_after(requeue_after));
        Ok(Some(status::status(ctx.name(), &plan, ctx.stored_status().reached_replicas)))
    }
}

impl RedisSync {
    /// Returns the Pods of the Redis, from the cache or, in a pass with live reads, from the server.
    async fn pods(&self, ctx: &ReconcileContext<'_, Redis>) -> Result<Vec<Cached<ObservedPod>>, StopReason> {
        if ctx.request().reads_live() {
            return Ok(ctx.children().live_children::<ObservedPod>(ctx.owner()).await?);
        }
        Ok(self.pods.controlled_by(&ctx.owner().uid))
    }

    /// Creates missing Pods and restores lost labels, in slow-start batches, up to the limit for one pass. Ordinals
    /// below `reached` have had a Pod before.
    async fn apply(
        &self,
        ctx: &mut ReconcileContext<'_, Redis>,
        plan: &Plan,
        reached: i32,
    ) -> Result<Ended, StopReason> {
        let (mut created, mut is_all_taken, mut outcome) = (Vec::new(), true, Ok(()));
        let mut parts = plan.ensure.chunks(WRITES_MAX);
        let was_there = |ordinal: u32| i64::from(ordinal) < i64::from(reached);
        // Continues past a chunk whose names are all taken, so that taken names do not block the rest.
        while let Some(part) = parts.next().filter(|_| is_all_taken && outcome.is_ok()) {
            let wanted: Vec<_> = part.iter().map(|&ordinal| wanted::pod(ctx.object(), ordinal)).collect();
            let ended;
            (ended, outcome) = ctx.apply_each(&wanted, &self.pods, |at| was_there(part[at])).await;
            let is_new =
                |ended: &Option<ApplyOutcome<_>>| ended.as_ref().is_some_and(ApplyOutcome::was_created);
            let is_taken =
                |ended: &Option<ApplyOutcome<_>>| matches!(ended, Some(ApplyOutcome::ResourceExists { .. }));
            created.extend(part.iter().zip(&ended).filter(|(_, ended)| is_new(ended)).map(|(&at, _)| at));
            is_all_taken = ended.iter().all(is_taken);
        }
        self.record_created_pods(ctx, plan, &created, reached);
        outcome?;
        if !created.is_empty() && parts.next().is_some() {
            let message = format!("Created {} Pods; more will follow", created.len());
            ctx.report(ChildHealth::reconciling(reason::PROGRESSING, message).requeue_after(CUT_RETRY));
        }
        Ok(Ended { created, is_all_taken })
    }

    /// Records events for the created Pods, even if the pass fails afterwards.
    fn record_created_pods(
        &self,
        ctx: &mut ReconcileContext<'_, Redis>,
        plan: &Plan,
        created: &[u32],
        reached: i32,
    ) {
        let was_there = |ordinal: &u32| i64::from(*ordinal) < i64::from(reached);
        let (again, new): (Vec<u32>, Vec<u32>) = created.iter().partition(|ordinal| was_there(ordinal));
        let names = |ordinals: &[u32]| {
            let all: Vec<_> = ordinals.iter().map(|ordinal| format!("{}-{ordinal}", ctx.name())).collect();
            names(&all)
        };
        if !again.is_empty() {
            let note = format!("Recreated {}", names(&again));
            ctx.event(EventType::Normal, "PodRecreated", "Create", note);
        }
        if !new.is_empty() {
            let from = usize::try_from(plan.active).unwrap_or(0) + again.len();
            let note = format!("Scaled up from {from} to {}: {}", from + new.len(), names(&new));
            ctx.event(EventType::Normal, "ScaledUp", "Create", note);
        }
    }
}

/// Returns the reason of the stored Ready condition.
fn stored_reason(ctx: &ReconcileContext<'_, Redis>) -> Option<String> {
    conditions::reason(&ctx.stored_status().conditions(), READY).map(str::to_owned)
}

/// Deletes Pods in the order of the plan, one [`PruneReason`] after another: a refusal within one group does not
/// block the next group.
async fn prune(
    ctx: &mut ReconcileContext<'_, Redis>,
    plan: &Plan,
    pods: &[Cached<ObservedPod>],
) -> Result<(), StopReason> {
    for why in [PruneReason::Surplus, PruneReason::Finished] {
        let of_this_sort = plan.delete.iter().filter(|(_, other)| *other == why);
        let mut all: Vec<ChildRef> =
            of_this_sort.filter_map(|(ordinal, _)| pod_of(ctx, *ordinal, pods)).collect();
        let is_cut = all.len() > WRITES_MAX;
        all.truncate(WRITES_MAX);
        prune_sort(ctx, plan, (why, &all)).await?;
        if is_cut {
            let message = format!("Deleted {} Pods; more will follow", all.len());
            ctx.report(ChildHealth::reconciling(reason::PROGRESSING, message).requeue_after(CUT_RETRY));
        }
    }
    for &(ordinal, _) in plan.delete.iter().filter(|(_, why)| *why == PruneReason::Outdated) {
        prune_outdated(ctx, ordinal, pods).await?;
    }
    Ok(())
}

fn pod_of(ctx: &ReconcileContext<'_, Redis>, ordinal: u32, pods: &[Cached<ObservedPod>]) -> Option<ChildRef> {
    let name = format!("{}-{ordinal}", ctx.name());
    pods.iter().find(|pod| pod.object_name().name() == name).map(ChildRef::of)
}

async fn prune_sort(
    ctx: &mut ReconcileContext<'_, Redis>,
    plan: &Plan,
    (why, all): (PruneReason, &[ChildRef]),
) -> Result<(), StopReason> {
    let (ended, outcome) = ctx.delete_each(&ObservedPod::resource(), all).await;
    let ended: Vec<(&str, Deletion)> =
        all.iter().zip(ended).filter_map(|(pod, ended)| Some((pod.name.as_str(), ended?))).collect();
    // Records the deletions, even if the pass fails afterwards.
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
        ctx.event(EventType::Normal, reason, "Delete", note);
    }
    outcome?;
    for (name, ended) in ended {
        match ended {
            Deletion::Refused { status, requeue_after } => {
                ctx.refused_deletion(&format!("Pod {name:?}"), &status, requeue_after);
            }
            Deletion::NotNow => return Err(StopReason::Outcome(Outcome::RequeueAfter(UNDONE_RETRY))),
            Deletion::Deleted | Deletion::NothingToDo => {}
        }
    }
    Ok(())
}

/// Deletes an outdated Pod, unless its replacements are contended.
async fn prune_outdated(
    ctx: &mut ReconcileContext<'_, Redis>,
    ordinal: u32,
    pods: &[Cached<ObservedPod>],
) -> Result<(), StopReason> {
    let Some(child) = pod_of(ctx, ordinal, pods) else { return Ok(()) };
    let pod = pods.iter().find(|pod| pod.uid() == child.uid);
    let wanted = wanted::pod(ctx.object(), ordinal);
    let differences = pod.and_then(Cached::readable).map(|pod| wanted.is_outdated(pod)).unwrap_or_default();
    let (children, owner, resource) = (ctx.children(), ctx.owner(), ObservedPod::resource());
    let name = &child.name;
    let (deletion, contended) = children.delete_outdated(owner, &resource, &child, &differences).await?;
    if let Some(requeue_after) = contended {
        let message = format!(
            "Pod {name:?} is altered on every create ({}); \
             stop the client or webhook that alters it, or pause this object",
            describe(&differences)
        );
        ctx.report(ChildHealth::stalled(reason::CONTENDED, message).requeue_after(requeue_after));
    }
    match deletion {
        Deletion::Deleted => {
            let note = format!("Deleted outdated Pod {name:?}, to be recreated from the current spec");
            ctx.event(EventType::Normal, "ChildDeleted", "Delete", note);
        }
        Deletion::NothingToDo => {}
        Deletion::NotNow => return Err(StopReason::Outcome(Outcome::RequeueAfter(UNDONE_RETRY))),
        Deletion::Refused { status, requeue_after } => {
            ctx.refused_deletion(&format!("Pod {name:?}"), &status, requeue_after);
        }
    }
    Ok(())
}

/// Keeps reporting contention until a new Pod has matched the spec for a while.
fn recall_contention(ctx: &mut ReconcileContext<'_, Redis>, plan: &Plan) {
    if stored_reason(ctx).as_deref() != Some(reason::CONTENDED) {
        return;
    }
    let is_replaced = |ordinal: &u32| plan.delete.contains(&(*ordinal, PruneReason::Outdated));
    let wanted = 0..u32::try_from(ctx.object().spec.replicas).unwrap_or(0);
    let names =
        wanted.filter(|ordinal| !is_replaced(ordinal)).map(|ordinal| format!("{}-{ordinal}", ctx.name()));
    let contended =
        names.filter_map(|name| ctx.children().contended_for(ctx.owner(), &name).map(|time| (name, time)));
    if let Some((name, requeue_after)) = contended.min_by_key(|(_, time)| *time) {
        let message = format!(
            "Pod {name:?} was altered on every create; waiting to see whether the latest one stays unchanged"
        );
        ctx.report(ChildHealth::stalled(reason::CONTENDED, message).requeue_after(requeue_after));
    }
}

/// Joins the first [`NAMES_MAX`] names, and counts the rest.
fn names(all: &[String]) -> String {
    let shown = all.iter().take(NAMES_MAX).cloned().collect::<Vec<_>>().join(", ");
    match all.len().saturating_sub(NAMES_MAX) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

#[cfg(test)]
#[cfg(feature = "sim")]
mod tests;
