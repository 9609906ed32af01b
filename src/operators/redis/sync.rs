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
//! - A Pod too many goes also when it lost our label. (test: `a_scale_down_finds_a_pod_that_lost_our_label`)
//! - One that does not go is waited for by nobody. (test: `a_pod_too_many_that_does_not_go_does_not_hold_up_ready`)

use std::collections::BTreeSet;
use std::time::Duration;

use super::plan::{self, Plan, Why};
use super::{FINALIZER, status, wanted};
use crate::api::conditions::{self, READY};
use crate::api::redis::v1::{Redis, RedisStatus};
use crate::cache::{Cached, Lister, Object};
use crate::client::Error;
use crate::controller::children::describe;
use crate::controller::pod::ObservedPod;
use crate::controller::summary::{EXISTS_RETRY, UNDONE_RETRY, reason};
use crate::controller::{CommonStatus, Deletion, Ensured, Halt, Outcome, Reconcile, Summary, Turn};
use crate::record::EventType;

/// How many Pods one pass creates at most, as a ReplicaSet does.
const BURST: usize = 500;
/// How soon Pods that a pass has left out are created.
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
        turn.hold(FINALIZER).await?;
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
            turn.let_go(FINALIZER).await?;
            return Ok(None);
        }
        // What lost our label is not in the cache, and has to be gone all the same.
        let pods: Vec<ObservedPod> = turn.children().live_children(turn.owner()).await?;
        if pods.is_empty() {
            turn.let_go(FINALIZER).await?;
            return Ok(None);
        }
        let count = pods.len();
        if !turn.observes_this_spec() {
            let note = format!("Deletes {count} Pods before this Redis goes");
            turn.event_when_written(EventType::Normal, "Deleting", "Delete", note);
        }
        let pods: Vec<_> = pods.into_iter().map(|pod| Cached::new(Ok(pod))).collect();
        let plan = plan::plan_nothing(turn.object(), &pods);
        for name in plan::highest_first(turn.name(), &pods) {
            match turn.children().delete_of_deleted::<ObservedPod>(turn.owner(), &name).await {
                Ok(Deletion::Refused { status, again_in }) => {
                    turn.refused_deletion(&format!("Pod {name:?}"), &status, again_in);
                }
                Ok(Deletion::Deleted | Deletion::NothingToDo | Deletion::NotNow) => {}
                Err(error) => {
                    turn.fails_after_its_status(error);
                    break;
                }
            }
        }
        let message = format!("{count} Pods are being deleted; this Redis goes after the last of them");
        turn.found(Summary::reconciling(reason::DELETING, message).again_in(EXISTS_RETRY));
        Ok(Some(status::status(turn.name(), &plan, turn.stored_status().reached_replicas)))
    }
}

impl RedisSync {
    /// Its Pods: of the cache, or for an audit of the server. When the spec is new also those that lost our label, which
    /// the cache does not show.
    async fn pods(&self, turn: &Turn<'_, Redis>) -> Result<Vec<Cached<ObservedPod>>, Halt> {
        let live = async || turn.children().live_children::<ObservedPod>(turn.owner()).await;
        if turn.pass().reads_live() {
            return Ok(live().await?.into_iter().map(|pod| Cached::new(Ok(pod))).collect());
        }
        let mut pods = self.pods.controlled_by(&turn.owner().uid);
        // Of one whose deletion was refused the cache tells no more the next time.
        let is_open =
            !turn.observes_this_spec() || stored_reason(turn).as_deref() == Some(reason::CHILD_REFUSED);
        if is_open && turn.owner().generation > 1 && !turn.is_paused() {
            let cached: BTreeSet<_> = pods.iter().map(Cached::object_name).collect();
            let unlabelled: Vec<_> =
                live().await?.into_iter().filter(|pod| !cached.contains(&pod.object_name())).collect();
            pods.extend(unlabelled.into_iter().map(|pod| Cached::new(Ok(pod))));
        }
        Ok(pods)
    }

    /// Creates what is missing, as many as one pass may, in batches that double, and labels anew what lost its labels.
    /// Each ordinal below `reached` was there before.
    async fn ensure(&self, turn: &mut Turn<'_, Redis>, plan: &Plan, reached: i32) -> Result<Ended, Halt> {
        let (mut created, mut is_all_taken, mut outcome) = (Vec::new(), true, Ok(()));
        let mut parts = plan.ensure.chunks(BURST);
        // Names that are somebody else's keep the others from nothing.
        while let Some(part) = parts.next().filter(|_| is_all_taken && outcome.is_ok()) {
            let wanted: Vec<_> = part.iter().map(|&ordinal| wanted::pod(turn.object(), ordinal)).collect();
            let ended;
            (ended, outcome) = turn.ensure_each(&wanted, &self.pods).await;
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

/// Deletes what the plan says, in its order.
async fn delete(turn: &mut Turn<'_, Redis>, plan: &Plan, pods: &[Cached<ObservedPod>]) -> Result<(), Halt> {
    let mut surplus = Vec::new();
    let outcome = delete_each(turn, plan, pods, &mut surplus).await;
    // What is done is told, also when the pass is over.
    if !surplus.is_empty() {
        let from = usize::try_from(plan.active).unwrap_or(0);
        let note =
            format!("Scaled down from {from} to {}: {}", from - surplus.len().min(from), names(&surplus));
        turn.event(EventType::Normal, "ScaledDown", "Delete", note);
    }
    outcome
}

/// The same without the event of the scale-down: its Pods are put into `surplus`.
async fn delete_each(
    turn: &mut Turn<'_, Redis>,
    plan: &Plan,
    pods: &[Cached<ObservedPod>],
    surplus: &mut Vec<String>,
) -> Result<(), Halt> {
    let mut refused = None;
    for &(ordinal, why) in &plan.delete {
        // In their order; what goes for another reason does not wait for them.
        if refused == Some(why) {
            continue;
        }
        let name = format!("{}-{ordinal}", turn.name());
        let pod = pods.iter().find(|pod| pod.object_name().name() == name);
        let (children, owner) = (turn.children(), turn.owner());
        let deletion = match why {
            Why::Surplus => children.delete_surplus::<ObservedPod>(owner, &name, None).await?,
            Why::Finished => {
                children.delete_surplus::<ObservedPod>(owner, &name, pod.map(Cached::uid)).await?
            }
            Why::Outdated => replace(turn, ordinal, &name, pod).await?,
        };
        match (deletion, why) {
            (Deletion::Deleted, Why::Surplus) => surplus.push(name),
            (Deletion::Deleted, Why::Finished) => {
                let note = format!("Deleted Pod {name:?}: it has ended; a new one follows");
                turn.event(EventType::Normal, "ChildDeleted", "Delete", note);
            }
            (Deletion::Deleted, Why::Outdated) => {
                let note = format!("Deleted Pod {name:?}: it is not of this spec; a new one follows");
                turn.event(EventType::Normal, "ChildDeleted", "Delete", note);
            }
            (Deletion::NothingToDo, _) => {}
            (Deletion::NotNow, _) => return Err(Halt::Ends(Outcome::RequeueAfter(UNDONE_RETRY))),
            (Deletion::Refused { status, again_in }, _) => {
                turn.refused_deletion(&format!("Pod {name:?}"), &status, again_in);
                refused = Some(why);
            }
        }
    }
    Ok(())
}

/// Deletes a Pod of an old spec, unless the new ones are stored otherwise than written each time.
async fn replace(
    turn: &mut Turn<'_, Redis>,
    ordinal: u32,
    name: &str,
    pod: Option<&Cached<ObservedPod>>,
) -> Result<Deletion, Error> {
    let wanted = wanted::pod(turn.object(), ordinal);
    let differences = pod.and_then(Cached::readable).map(|pod| wanted.is_outdated(pod)).unwrap_or_default();
    let judged = (name, pod.map(Cached::uid));
    let (deletion, contended) =
        turn.children().delete_outdated::<ObservedPod>(turn.owner(), judged, &differences).await?;
    if let Some(again_in) = contended {
        let message = format!(
            "Each new Pod {name:?} is stored otherwise than written ({}): find out who changes it, and stop one of us",
            describe(&differences)
        );
        turn.found(Summary::stalled(reason::CONTENDED, message).again_in(again_in));
    }
    Ok(deletion)
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
