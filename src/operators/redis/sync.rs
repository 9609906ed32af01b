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
//! - A deleted Redis stays until its last Pod is gone. (test: `a_deleted_redis_waits_for_its_pods`)
//! - Completed creates and deletes are reported once, even if the sync fails afterwards. (test: `interrupted_scale_down_reports_deleted_pods`, `deleting_event_is_recorded_once_despite_failures`)

use super::plan::{self, Plan, PruneReason};
use super::prune::{names, prune};
use super::{CUT_RETRY, FINALIZER, WRITES_MAX, status, wanted};
use crate::api::ApiResource;
use crate::api::conditions::{self, READY};
use crate::api::redis::v1::{Redis, RedisStatus};
use crate::cache::{Cached, Lister, Slim};
use crate::controller::kinds::health::{EXISTS_RETRY, reason};
use crate::controller::kinds::pod::ObservedPod;
use crate::controller::{
    ApplyOutcome, ChildHealth, ChildRef, CommonStatus, Deletion, Pass, Reconcile, StopReason, Trust,
};
use crate::record::EventType;

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
    type Resource = Slim<Redis>;

    const FINALIZER: Option<&'static str> = Some(FINALIZER);

    async fn reconcile(&self, pass: &mut Pass<'_, Slim<Redis>>) -> Result<RedisStatus, StopReason> {
        // Get
        let pods = self.pods(pass).await?;
        let plan = plan::plan(pass.owner(), &pass.object().spec, &pods);
        let replicas = pass.object().spec.replicas;
        let health = status::health(pass.name(), replicas, &plan);
        let mut reached = pass.stored_status().reached_replicas;
        if pass.is_paused() {
            let is_idle = plan.apply.is_empty() && plan.delete.is_empty();
            pass.report(if !pass.observes_this_spec() {
                status::held(&pass.stored_status(), &plan)
            } else if is_idle {
                health
            } else {
                let message = format!("{}, and this object is paused", health.message);
                ChildHealth::reconciling(reason::PAUSED, message)
            });
        } else {
            recall_contention(pass, &plan);
            // Prune: first, so that a quota has room for what follows.
            prune(pass, &plan, &pods).await?;
            // Apply
            let Ended { created, is_all_taken } = self.apply(pass, &plan, reached).await?;
            if let Some(ordinal) = plan.past_taken.filter(|_| is_all_taken) {
                let next = Plan { delete: vec![(ordinal, PruneReason::Outdated)], ..Plan::default() };
                prune(pass, &next, &pods).await?;
            }
            reached = plan::reached(pass.name(), pass.object().spec.replicas, &pods, &created, reached);
            // Reported after the problems of single Pods, which are more specific.
            pass.report(health);
        }
        // Status
        Ok(status::status(pass.name(), &plan, reached))
    }

    async fn finalize(&self, pass: &mut Pass<'_, Slim<Redis>>) -> Result<Option<RedisStatus>, StopReason> {
        if pass.is_orphaning() {
            return Ok(None);
        }
        let pods = self.pods(pass).await?;
        let mut left: Vec<ChildRef> = pods.iter().map(ChildRef::of).collect();
        left.retain(|pod| pod.is_controlled);
        if left.is_empty() {
            // Pods that the cache does not show must be gone, too.
            let resource = ApiResource::of::<ObservedPod>();
            left = pass.unseen_children(&resource).await?;
        }
        if left.is_empty() {
            return Ok(None);
        }
        let count = left.len();
        if !pass.observes_this_spec() {
            let note = format!("Deleting {count} Pods before this Redis is removed");
            pass.event_when_written(EventType::Normal, "Deleting", "Delete", note);
        }
        let plan = plan::plan_nothing(pass.owner(), &pass.object().spec, &pods);
        plan::highest_first(pass.name(), &mut left);
        left.retain(|pod| !pod.is_deleting);
        let is_cut = left.len() > WRITES_MAX;
        left.truncate(WRITES_MAX);
        let batch = pass.delete_each(&ApiResource::of::<ObservedPod>(), &left).await;
        let is_cut = is_cut || batch.is_cut_short;
        for (pod, deletion) in left.iter().zip(batch.results) {
            if let Some(Deletion::Refused { status, requeue_after }) = deletion {
                pass.refused_deletion(&format!("Pod {:?}", pod.name), &status, requeue_after);
            }
        }
        if let Err(error) = batch.outcome {
            pass.fails_after_its_status(error);
        }
        let requeue_after = if is_cut { CUT_RETRY } else { EXISTS_RETRY };
        let message = format!("Deleting {count} Pods; this Redis is removed after the last one");
        pass.report(ChildHealth::reconciling(reason::DELETING, message).requeue_after(requeue_after));
        Ok(Some(status::status(pass.name(), &plan, pass.stored_status().reached_replicas)))
    }
}

impl RedisSync {
    /// Returns the Pods of the Redis, from the cache or, in a sync with live reads, from the server.
    async fn pods(&self, pass: &Pass<'_, Slim<Redis>>) -> Result<Vec<Cached<ObservedPod>>, StopReason> {
        if pass.trust() == Trust::Nothing {
            return Ok(pass.live_children::<ObservedPod>().await?);
        }
        Ok(self.pods.controlled_by(&pass.owner().uid))
    }

    /// Creates missing Pods and restores lost labels, in slow-start batches, up to the limit for one sync. Ordinals
    /// below `reached` have had a Pod before.
    async fn apply(
        &self,
        pass: &mut Pass<'_, Slim<Redis>>,
        plan: &Plan,
        reached: i32,
    ) -> Result<Ended, StopReason> {
        let (mut created, mut is_all_taken, mut is_cut_short, mut outcome) =
            (Vec::new(), true, false, Ok(()));
        let mut parts = plan.apply.chunks(WRITES_MAX);
        let was_there = |ordinal: u32| i64::from(ordinal) < i64::from(reached);
        // Continues past a chunk whose names are all taken, so that taken names do not block the rest.
        while let Some(part) = parts.next().filter(|_| is_all_taken && outcome.is_ok()) {
            let wanted = |&ordinal: &u32| wanted::pod(pass.name(), &pass.object().spec, ordinal);
            let wanted: Vec<_> = part.iter().map(wanted).collect();
            let batch = pass.apply_each(&wanted, &self.pods, |at| was_there(part[at])).await;
            (is_cut_short, outcome) = (batch.is_cut_short, batch.outcome);
            let is_new =
                |ended: &Option<ApplyOutcome<_>>| ended.as_ref().is_some_and(ApplyOutcome::was_created);
            let is_taken =
                |ended: &Option<ApplyOutcome<_>>| matches!(ended, Some(ApplyOutcome::ResourceExists { .. }));
            created.extend(
                part.iter().zip(&batch.results).filter(|(_, ended)| is_new(ended)).map(|(&at, _)| at),
            );
            is_all_taken = batch.results.iter().all(is_taken);
        }
        self.record_created_pods(pass, plan, &created, reached);
        outcome?;
        // A batch that was cut short may have created nothing: its first Pod may be a relabelled or a taken one.
        if is_cut_short || !created.is_empty() && parts.next().is_some() {
            let message = format!("Created {} Pods; more will follow", created.len());
            pass.report(ChildHealth::reconciling(reason::PROGRESSING, message).requeue_after(CUT_RETRY));
        }
        Ok(Ended { created, is_all_taken })
    }

    /// Records events for the created Pods, even if the sync fails afterwards.
    fn record_created_pods(
        &self,
        pass: &mut Pass<'_, Slim<Redis>>,
        plan: &Plan,
        created: &[u32],
        reached: i32,
    ) {
        let was_there = |ordinal: &u32| i64::from(*ordinal) < i64::from(reached);
        let (again, new): (Vec<u32>, Vec<u32>) = created.iter().partition(|ordinal| was_there(ordinal));
        let names = |ordinals: &[u32]| {
            let all: Vec<_> = ordinals.iter().map(|ordinal| format!("{}-{ordinal}", pass.name())).collect();
            names(&all)
        };
        if !again.is_empty() {
            let note = format!("Recreated {}", names(&again));
            pass.event(EventType::Normal, "PodRecreated", "Create", note);
        }
        if !new.is_empty() {
            let from = usize::try_from(plan.active).unwrap_or(0) + again.len();
            let note = format!("Scaled up from {from} to {}: {}", from + new.len(), names(&new));
            pass.event(EventType::Normal, "ScaledUp", "Create", note);
        }
    }
}

/// Returns the reason of the stored Ready condition.
fn stored_reason(pass: &Pass<'_, Slim<Redis>>) -> Option<String> {
    conditions::reason(&pass.stored_status().conditions(), READY).map(str::to_owned)
}

/// Keeps reporting contention until a new Pod has matched the spec for a while.
fn recall_contention(pass: &mut Pass<'_, Slim<Redis>>, plan: &Plan) {
    if stored_reason(pass).as_deref() != Some(reason::CONTENDED) {
        return;
    }
    let is_replaced = |ordinal: &u32| plan.delete.contains(&(*ordinal, PruneReason::Outdated));
    let wanted = 0..u32::try_from(pass.object().spec.replicas).unwrap_or(0);
    let names =
        wanted.filter(|ordinal| !is_replaced(ordinal)).map(|ordinal| format!("{}-{ordinal}", pass.name()));
    let contended = names.filter_map(|name| pass.contended_for(&name).map(|time| (name, time)));
    if let Some((name, requeue_after)) = contended.min_by_key(|(_, time)| *time) {
        let message = format!(
            "Pod {name:?} was altered on every create; waiting to see whether the latest one stays unchanged"
        );
        pass.report(ChildHealth::stalled(reason::CONTENDED, message).requeue_after(requeue_after));
    }
}

#[cfg(test)]
#[cfg(feature = "sim")]
mod tests;
