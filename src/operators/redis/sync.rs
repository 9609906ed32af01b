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
//! - What was done is told once, also when the pass fails after it. (test: `a_scale_down_that_is_cut_short_tells_what_it_did`, `deleting_is_told_once_whatever_fails_in_between`)
//! - A Pod too many that lost our label goes with the audit. (test: `an_audit_scales_down_a_pod_that_lost_our_label`)
//! - One that does not go is waited for by nobody. (test: `a_pod_too_many_that_does_not_go_does_not_hold_up_ready`)

use std::time::Duration;

use super::plan::{self, Plan, Why};
use super::{FINALIZER, status, wanted};
use crate::api::conditions::{self, READY};
use crate::api::redis::v1::{Redis, RedisStatus};
use crate::cache::{Cached, Lister, Object};
use crate::controller::children::describe;
use crate::controller::pod::ObservedPod;
use crate::controller::summary::{EXISTS_RETRY, UNDONE_RETRY, reason};
use crate::controller::{ChildRef, CommonStatus, Deletion, Ensured, Halt, Outcome, Reconcile, Summary, Turn};
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

    async fn reconcile(&self, turn: &mut Turn<'_, Redis>) -> Result<RedisStatus, Halt> {
        turn.add_finalizer(FINALIZER).await?;
        let pods = self.pods(turn).await?;
        let plan = plan::plan(turn.object(), &pods);
        let replicas = turn.object().spec.replicas;
        let summary = status::summary(turn.name(), replicas, &plan);
        let mut reached = turn.stored_status().reached_replicas;
        if turn.is_paused() {
            let is_idle = plan.ensure.is_empty() && plan.delete.is_empty();
            turn.found(if !turn.observes_this_spec() {
                status::held(&turn.stored_status(), &plan)
            } else if is_idle {
                summary
            } else {
                let message = format!("{}, and this object is paused", summary.message);
                Summary::reconciling(reason::PAUSED, message)
            });
        } else {
            recall_contention(turn, &plan);
            delete(turn, &plan, &pods).await?;
            let Ended { created, is_all_taken } = self.ensure(turn, &plan, reached).await?;
            if let Some(ordinal) = plan.past_taken.filter(|_| is_all_taken) {
                let next = Plan { delete: vec![(ordinal, Why::Outdated)], ..Plan::default() };
                delete(turn, &next, &pods).await?;
            }
            reached = plan::reached(turn.object(), &pods, &created, reached);
            // Behind what stands in the way of a single Pod: that says more.
            turn.found(summary);
        }
        Ok(status::status(turn.name(), &plan, reached))
    }

    async fn finalize(&self, turn: &mut Turn<'_, Redis>) -> Result<Option<RedisStatus>, Halt> {
        if !turn.has_finalizer(FINALIZER) {
            return Ok(None);
        }
        if turn.is_orphaning() {
            turn.remove_finalizer(FINALIZER).await?;
            return Ok(None);
        }
        let pods = self.pods(turn).await?;
        let mut left: Vec<ChildRef> = pods.iter().map(ChildRef::of).collect();
        if left.is_empty() {
            // A Pod that the cache cannot show has to be gone as well.
            let (children, owner, resource) = (turn.children(), turn.owner(), ObservedPod::resource());
            left = children.without_label(owner, &resource).await?;
            left.extend(children.with_label(owner, &resource).await?);
        }
        if left.is_empty() {
            turn.remove_finalizer(FINALIZER).await?;
            return Ok(None);
        }
        let count = left.len();
        if !turn.observes_this_spec() {
            let note = format!("Deletes {count} Pods before this Redis goes");
            turn.event_when_written(EventType::Normal, "Deleting", "Delete", note);
        }
        let plan = plan::plan_nothing(turn.object(), &pods);
        plan::highest_first(turn.name(), &mut left);
        let is_cut = left.len() > WRITES_MAX;
        left.truncate(WRITES_MAX);
        let (ended, outcome) = turn.delete_each(&ObservedPod::resource(), &left).await;
        for (pod, deletion) in left.iter().zip(ended) {
            if let Some(Deletion::Refused { status, again_in }) = deletion {
                turn.refused_deletion(&format!("Pod {:?}", pod.name), &status, again_in);
            }
        }
        if let Err(error) = outcome {
            turn.fails_after_its_status(error);
        }
        let again_in = if is_cut { CUT_RETRY } else { EXISTS_RETRY };
        let message = format!("{count} Pods are being deleted; this Redis goes after the last of them");
        turn.found(Summary::reconciling(reason::DELETING, message).again_in(again_in));
        Ok(Some(status::status(turn.name(), &plan, turn.stored_status().reached_replicas)))
    }
}

impl RedisSync {
    /// Its Pods: of the cache, or of the server for a pass that believes no cache.
    async fn pods(&self, turn: &Turn<'_, Redis>) -> Result<Vec<Cached<ObservedPod>>, Halt> {
        if turn.pass().reads_live() {
            return Ok(turn.children().live_children::<ObservedPod>(turn.owner()).await?);
        }
        Ok(self.pods.controlled_by(&turn.owner().uid))
    }

    /// Creates what is missing, as many as one pass may, in batches that double, and labels anew what lost its labels.
    /// Each ordinal below `reached` was there before.
    async fn ensure(&self, turn: &mut Turn<'_, Redis>, plan: &Plan, reached: i32) -> Result<Ended, Halt> {
        let (mut created, mut is_all_taken, mut outcome) = (Vec::new(), true, Ok(()));
        let mut parts = plan.ensure.chunks(WRITES_MAX);
        let was_there = |ordinal: u32| i64::from(ordinal) < i64::from(reached);
        // Names that are somebody else's keep the others from nothing.
        while let Some(part) = parts.next().filter(|_| is_all_taken && outcome.is_ok()) {
            let wanted: Vec<_> = part.iter().map(|&ordinal| wanted::pod(turn.object(), ordinal)).collect();
            let ended;
            (ended, outcome) = turn.ensure_each(&wanted, &self.pods, |at| was_there(part[at])).await;
            let is_new = |ended: &Option<Ensured<_>>| ended.as_ref().is_some_and(Ensured::is_new);
            let is_taken = |ended: &Option<Ensured<_>>| matches!(ended, Some(Ensured::ResourceExists { .. }));
            created.extend(part.iter().zip(&ended).filter(|(_, ended)| is_new(ended)).map(|(&at, _)| at));
            is_all_taken = ended.iter().all(is_taken);
        }
        self.tell_of_new(turn, plan, &created, reached);
        outcome?;
        if !created.is_empty() && parts.next().is_some() {
            let message = format!("{} Pods were created at once; more follow", created.len());
            turn.found(Summary::reconciling(reason::PROGRESSING, message).again_in(CUT_RETRY));
        }
        Ok(Ended { created, is_all_taken })
    }

    /// What was done is told, also when the pass is over.
    fn tell_of_new(&self, turn: &mut Turn<'_, Redis>, plan: &Plan, created: &[u32], reached: i32) {
        let was_there = |ordinal: &u32| i64::from(*ordinal) < i64::from(reached);
        let (again, new): (Vec<u32>, Vec<u32>) = created.iter().partition(|ordinal| was_there(ordinal));
        let names = |ordinals: &[u32]| {
            let all: Vec<_> = ordinals.iter().map(|ordinal| format!("{}-{ordinal}", turn.name())).collect();
            names(&all)
        };
        if !again.is_empty() {
            let note = format!("Created again: {}", names(&again));
            turn.event(EventType::Normal, "PodRecreated", "Create", note);
        }
        if !new.is_empty() {
            let from = usize::try_from(plan.active).unwrap_or(0) + again.len();
            let note = format!("Scaled up from {from} to {}: {}", from + new.len(), names(&new));
            turn.event(EventType::Normal, "ScaledUp", "Create", note);
        }
    }
}

/// The reason of the stored Ready condition.
fn stored_reason(turn: &Turn<'_, Redis>) -> Option<String> {
    conditions::reason(&turn.stored_status().conditions(), READY).map(str::to_owned)
}

/// Deletes what the plan says, in its order: Pods of one sort at once, of which the server may refuse one without holding
/// up those of another sort.
async fn delete(turn: &mut Turn<'_, Redis>, plan: &Plan, pods: &[Cached<ObservedPod>]) -> Result<(), Halt> {
    for why in [Why::Surplus, Why::Finished] {
        let of_this_sort = plan.delete.iter().filter(|(_, other)| *other == why);
        let mut all: Vec<ChildRef> =
            of_this_sort.filter_map(|(ordinal, _)| pod_of(turn, *ordinal, pods)).collect();
        let is_cut = all.len() > WRITES_MAX;
        all.truncate(WRITES_MAX);
        delete_sort(turn, plan, (why, &all)).await?;
        if is_cut {
            let message = format!("{} Pods were deleted at once; more follow", all.len());
            turn.found(Summary::reconciling(reason::PROGRESSING, message).again_in(CUT_RETRY));
        }
    }
    for &(ordinal, _) in plan.delete.iter().filter(|(_, why)| *why == Why::Outdated) {
        replace(turn, ordinal, pods).await?;
    }
    Ok(())
}

fn pod_of(turn: &Turn<'_, Redis>, ordinal: u32, pods: &[Cached<ObservedPod>]) -> Option<ChildRef> {
    let name = format!("{}-{ordinal}", turn.name());
    pods.iter().find(|pod| pod.object_name().name() == name).map(ChildRef::of)
}

async fn delete_sort(
    turn: &mut Turn<'_, Redis>,
    plan: &Plan,
    (why, all): (Why, &[ChildRef]),
) -> Result<(), Halt> {
    let (ended, outcome) = turn.delete_each(&ObservedPod::resource(), all).await;
    let ended: Vec<(&str, Deletion)> =
        all.iter().zip(ended).filter_map(|(pod, ended)| Some((pod.name.as_str(), ended?))).collect();
    // What was done is reported, also when the pass is over.
    let is_deleted = |(_, ended): &&(&str, Deletion)| *ended == Deletion::Deleted;
    let deleted: Vec<String> = ended.iter().filter(is_deleted).map(|(name, _)| (*name).to_owned()).collect();
    if !deleted.is_empty() {
        let from = usize::try_from(plan.active).unwrap_or(0);
        let (to, names) = (from - deleted.len().min(from), names(&deleted));
        let (reason, note) = match why {
            Why::Surplus => ("ScaledDown", format!("Scaled down from {from} to {to}: {names}")),
            Why::Finished | Why::Outdated => {
                ("ChildDeleted", format!("Deleted Pods that have ended; new ones follow: {names}"))
            }
        };
        turn.event(EventType::Normal, reason, "Delete", note);
    }
    outcome?;
    for (name, ended) in ended {
        match ended {
            Deletion::Refused { status, again_in } => {
                turn.refused_deletion(&format!("Pod {name:?}"), &status, again_in);
            }
            Deletion::NotNow => return Err(Halt::Ends(Outcome::RequeueAfter(UNDONE_RETRY))),
            Deletion::Deleted | Deletion::NothingToDo => {}
        }
    }
    Ok(())
}

/// Deletes a Pod of an old spec, unless the new ones are stored otherwise than written each time.
async fn replace(turn: &mut Turn<'_, Redis>, ordinal: u32, pods: &[Cached<ObservedPod>]) -> Result<(), Halt> {
    let Some(child) = pod_of(turn, ordinal, pods) else { return Ok(()) };
    let pod = pods.iter().find(|pod| pod.uid() == child.uid);
    let wanted = wanted::pod(turn.object(), ordinal);
    let differences = pod.and_then(Cached::readable).map(|pod| wanted.is_outdated(pod)).unwrap_or_default();
    let (children, owner, resource) = (turn.children(), turn.owner(), ObservedPod::resource());
    let name = &child.name;
    let (deletion, contended) = children.delete_outdated(owner, &resource, &child, &differences).await?;
    if let Some(again_in) = contended {
        let message = format!(
            "Each new Pod {name:?} is stored otherwise than written ({}): find out who changes it, and stop one of us",
            describe(&differences)
        );
        turn.found(Summary::stalled(reason::CONTENDED, message).again_in(again_in));
    }
    match deletion {
        Deletion::Deleted => {
            let note = format!("Deleted Pod {name:?}: it is not of this spec; a new one follows");
            turn.event(EventType::Normal, "ChildDeleted", "Delete", note);
        }
        Deletion::NothingToDo => {}
        Deletion::NotNow => return Err(Halt::Ends(Outcome::RequeueAfter(UNDONE_RETRY))),
        Deletion::Refused { status, again_in } => {
            turn.refused_deletion(&format!("Pod {name:?}"), &status, again_in);
        }
    }
    Ok(())
}

/// What was contended stays so until a new Pod has been as wanted for a while.
fn recall_contention(turn: &mut Turn<'_, Redis>, plan: &Plan) {
    if stored_reason(turn).as_deref() != Some(reason::CONTENDED) {
        return;
    }
    let is_replaced = |ordinal: &u32| plan.delete.contains(&(*ordinal, Why::Outdated));
    let wanted = 0..u32::try_from(turn.object().spec.replicas).unwrap_or(0);
    let names =
        wanted.filter(|ordinal| !is_replaced(ordinal)).map(|ordinal| format!("{}-{ordinal}", turn.name()));
    let contended =
        names.filter_map(|name| turn.children().contended_for(turn.owner(), &name).map(|time| (name, time)));
    if let Some((name, again_in)) = contended.min_by_key(|(_, time)| *time) {
        let message = format!(
            "Each new Pod {name:?} was stored otherwise than written, and the last one is too new to tell"
        );
        turn.found(Summary::stalled(reason::CONTENDED, message).again_in(again_in));
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
