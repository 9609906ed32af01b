//! The sync handler of Redis: Pods driven directly.
//!
//! Mirrors kubernetes `pkg/controller/replicaset` (`syncReplicaSet`, `manageReplicas`), with ordinals.
//!
//! # Guarantees
//! - The finalizer is stored before the first Pod. (test: `the_finalizer_is_stored_before_the_first_pod`)
//! - A quota that refuses costs few requests, and says so. (test: `a_refused_pod_stops_the_others_and_is_reported`)
//! - A scale-down sends its deletes from the highest. (test: `a_scale_down_deletes_from_the_highest`)
//! - A Pod that is stored otherwise than written each time is not replaced for ever. (test: `a_pod_that_a_webhook_changes_is_not_replaced_for_ever`)
//! - A name that is somebody else's does not keep a new spec from Pods that are not Ready. (test: `a_roll_that_is_stuck_goes_on_past_a_foreign_pod`)
//! - A late cache neither doubles a Pod nor deletes one for an old spec. (test: `an_old_spec_deletes_nothing`)
//! - A deleted Redis goes when its last Pod is gone. (test: `a_deleted_redis_stays_until_its_pods_are_gone`)
//! - One that is orphaned goes at once and leaves its Pods. (test: `an_orphaned_redis_leaves_its_pods`)
//! - A refused deletion holds up those of its sort alone. (test: `a_refused_scale_down_does_not_hold_up_what_has_ended`)
//! - Names that are somebody else's keep the others from nothing. (test: `names_that_are_taken_by_the_hundred_keep_the_others_from_nothing`)
//! - Nothing to do, nothing sent. (test: `a_converged_redis_sends_nothing`)
//! - A Pod that was there before is created again, one that never was is a scale-up. (test: `a_name_that_becomes_free_is_scaled_up_to`)
//! - What was done is told once, also when the pass fails after it. (test: `a_scale_down_that_is_cut_short_tells_what_it_did`, `deleting_is_reported_once_whatever_fails_in_between`)
//! - A Pod too many that lost our label goes with the audit. (test: `an_audit_scales_down_a_pod_that_lost_our_label`)
//! - One that does not go is waited for by nobody. (test: `a_pod_too_many_that_does_not_go_does_not_hold_up_ready`)

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

/// How many Pods one pass creates at most, and how many it deletes: then it goes on behind others.
const WRITES_MAX: usize = 128;
/// How soon a pass goes on that was cut; the events of its own writes wake it before.
const CUT_RETRY: Duration = Duration::from_secs(1);
/// How many names an event lists.
const NAMES_MAX: usize = 10;

/// Makes the Pods of a Redis as the Redis wants them.
#[derive(Debug)]
pub struct RedisSync {
    pub(super) pods: Lister<ObservedPod>,
}

/// What became of the Pods that are missing.
struct Ended {
    /// Their ordinals that there are now.
    created: Vec<u32>,
    /// None is to be had: all the names are somebody else's.
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
            // Behind what stands in the way of a single Pod: that says more.
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
            // A Pod that the cache cannot show has to be gone as well.
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
            let note = format!("Deletes {count} Pods before this Redis goes");
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
        let message = format!("{count} Pods are being deleted; this Redis goes after the last of them");
        ctx.report(ChildHealth::reconciling(reason::DELETING, message).requeue_after(requeue_after));
        Ok(Some(status::status(ctx.name(), &plan, ctx.stored_status().reached_replicas)))
    }
}

impl RedisSync {
    /// Its Pods: of the cache, or of the server for a pass that believes no cache.
    async fn pods(&self, ctx: &ReconcileContext<'_, Redis>) -> Result<Vec<Cached<ObservedPod>>, StopReason> {
        if ctx.request().reads_live() {
            return Ok(ctx.children().live_children::<ObservedPod>(ctx.owner()).await?);
        }
        Ok(self.pods.controlled_by(&ctx.owner().uid))
    }

    /// Creates what is missing, as many as one pass may, in batches that double, and labels anew what lost its labels.
    /// Each ordinal below `reached` was there before.
    async fn apply(
        &self,
        ctx: &mut ReconcileContext<'_, Redis>,
        plan: &Plan,
        reached: i32,
    ) -> Result<Ended, StopReason> {
        let (mut created, mut is_all_taken, mut outcome) = (Vec::new(), true, Ok(()));
        let mut parts = plan.ensure.chunks(WRITES_MAX);
        let was_there = |ordinal: u32| i64::from(ordinal) < i64::from(reached);
        // Names that are somebody else's keep the others from nothing.
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
            let message = format!("{} Pods were created at once; more follow", created.len());
            ctx.report(ChildHealth::reconciling(reason::PROGRESSING, message).requeue_after(CUT_RETRY));
        }
        Ok(Ended { created, is_all_taken })
    }

    /// What was done is told, also when the pass is over.
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
            let note = format!("Created again: {}", names(&again));
            ctx.event(EventType::Normal, "PodRecreated", "Create", note);
        }
        if !new.is_empty() {
            let from = usize::try_from(plan.active).unwrap_or(0) + again.len();
            let note = format!("Scaled up from {from} to {}: {}", from + new.len(), names(&new));
            ctx.event(EventType::Normal, "ScaledUp", "Create", note);
        }
    }
}

/// The reason of the stored Ready condition.
fn stored_reason(ctx: &ReconcileContext<'_, Redis>) -> Option<String> {
    conditions::reason(&ctx.stored_status().conditions(), READY).map(str::to_owned)
}

/// Deletes what the plan says, in its order: Pods of one sort at once, of which the server may refuse one without holding
/// up those of another sort.
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
            let message = format!("{} Pods were deleted at once; more follow", all.len());
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
    // What was done is reported, also when the pass is over.
    let is_deleted = |(_, ended): &&(&str, Deletion)| *ended == Deletion::Deleted;
    let deleted: Vec<String> = ended.iter().filter(is_deleted).map(|(name, _)| (*name).to_owned()).collect();
    if !deleted.is_empty() {
        let from = usize::try_from(plan.active).unwrap_or(0);
        let (to, names) = (from - deleted.len().min(from), names(&deleted));
        let (reason, note) = match why {
            PruneReason::Surplus => ("ScaledDown", format!("Scaled down from {from} to {to}: {names}")),
            PruneReason::Finished | PruneReason::Outdated => {
                ("ChildDeleted", format!("Deleted Pods that have ended; new ones follow: {names}"))
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

/// Deletes a Pod of an old spec, unless the new ones are stored otherwise than written each time.
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
            "Each new Pod {name:?} is stored otherwise than written ({}): find out who changes it, and stop one of us",
            describe(&differences)
        );
        ctx.report(ChildHealth::stalled(reason::CONTENDED, message).requeue_after(requeue_after));
    }
    match deletion {
        Deletion::Deleted => {
            let note = format!("Deleted Pod {name:?}: it is not of this spec; a new one follows");
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

/// What was contended stays so until a new Pod has been as wanted for a while.
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
            "Each new Pod {name:?} was stored otherwise than written, and the last one is too new to tell"
        );
        ctx.report(ChildHealth::stalled(reason::CONTENDED, message).requeue_after(requeue_after));
    }
}

/// The first of them, and how many more there are.
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
