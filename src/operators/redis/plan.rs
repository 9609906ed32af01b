//! The plan for the Pods of a Redis: a pure function of its spec and its existing Pods.
//!
//! | a Pod | provided that | action |
//! |---|---|---|
//! | surplus | | deleted, highest ordinal first |
//! | missing | | created |
//! | terminating | | none until its name is free |
//! | Failed or Succeeded (also evicted) | | deleted, then recreated |
//! | outdated, not Ready | no wanted Pod is missing, terminating or finished | deleted, then recreated |
//! | outdated, Ready | all wanted Pods exist and are Ready | deleted likewise, highest ordinal first |
//! | with wrong labels or owner reference | | patched |
//!
//! An unavailable name therefore blocks the rollout: a stuck Pod would be joined by another, and a refused create
//! would be refused again. Names taken by somebody else do not block the replacement of Pods that are not Ready;
//! whether a name is taken is known only after the create ([`Plan::past_taken`]).
//!
//! # Guarantees
//! - Surplus Pods are deleted, highest ordinal first. (test: `scale_down_removes_highest_ordinals_first`)
//! - A rollout replaces one Pod at a time from the highest ordinal, and waits until each is Ready. (test: `rollout_replaces_one_pod_at_a_time`)
//! - Pods that are not Ready are replaced first, so that a new spec repairs a stuck rollout. (test: `outdated_unready_pod_is_replaced_first`)
//! - An unavailable name blocks the rollout, except that a taken name does not block Pods that are not Ready. (test: `unavailable_pod_name_blocks_rollout`)
//! - A finished Pod is replaced under the same name. (test: `a_finished_pod_is_replaced`)
//! - A terminating Pod is waited for before its name is reused. (test: `terminating_pod_is_waited_for`)
//! - From any set of Pods the plan converges to the spec, and the rollout takes down one Pod at a time. (test: `plan_reaches_the_spec_from_any_state`)

use std::collections::{BTreeMap, BTreeSet};

use crate::api::redis::v1::RedisSpec;
use crate::cache::{Cached, Object};
use crate::controller::kinds::pod::{ObservedPod, WantedPod};
use crate::controller::{ChildRef, Owner};

use super::wanted;

/// Why a Pod is deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PruneReason {
    Surplus,
    Finished,
    Outdated,
}

/// The actions for one sync, and the counts for the status.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Plan {
    /// Ordinals of the Pods to create, or to patch labels or owner reference of.
    pub(super) apply: Vec<u32>,
    /// Ordinals to delete, in this order.
    pub(super) delete: Vec<(u32, PruneReason)>,
    /// An outdated Pod that is not Ready, to be deleted if all missing names turn out to be taken.
    pub(super) past_taken: Option<u32>,
    /// Wanted ordinals whose names are held by terminating Pods.
    pub(super) waits_for: Vec<u32>,
    /// Pods that are not terminating.
    pub(super) active: i32,
    /// Pods that are Ready and not terminating.
    pub(super) ready: i32,
    /// Wanted Pods that are Ready and match the spec.
    pub(super) up_to_date: i32,
    /// Wanted Pods that are outdated.
    pub(super) outdated: i32,
}

/// A Pod as the plan sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Seen {
    is_going: bool,
    is_finished: bool,
    is_ready: bool,
    is_outdated: bool,
    is_labelled: bool,
}

/// Parses the ordinal from a Pod's name; `None` if this Redis would not give that name.
pub(super) fn ordinal(redis: &str, pod: &str) -> Option<u32> {
    let digits = pod.strip_prefix(redis)?.strip_prefix('-')?;
    let ordinal: u32 = digits.parse().ok()?;
    // Rejects `-07` and `-+7`.
    (ordinal.to_string() == digits).then_some(ordinal)
}

/// Returns the name of the Redis that would give a Pod this name.
pub(super) fn owner_of(pod: &str) -> Option<&str> {
    let (redis, digits) = pod.rsplit_once('-')?;
    ordinal(redis, pod).filter(|_| !digits.is_empty()).map(|_| redis)
}

/// Returns the plan for the Pods that this owner, a Redis, controls.
pub(super) fn plan(owner: &Owner, spec: &RedisSpec, pods: &[Cached<ObservedPod>]) -> Plan {
    let name = owner.name.name();
    // All Pods are the same but for their names: one is compared with all, which may be thousands.
    let wanted = wanted::pod(name, spec, 0);
    let replicas = u32::try_from(spec.replicas).unwrap_or(0);
    let see = |pod: &Cached<ObservedPod>| {
        let ordinal = ordinal(name, pod.object_name().name())?;
        Some((ordinal, seen((ordinal < replicas).then_some((owner, &wanted)), pod)))
    };
    plan_for(replicas, &pods.iter().filter_map(see).collect())
}

/// Returns a plan without actions, only with the counts.
pub(super) fn plan_nothing(owner: &Owner, spec: &RedisSpec, pods: &[Cached<ObservedPod>]) -> Plan {
    let Plan { active, ready, .. } = plan(owner, spec, pods);
    Plan { active, ready, ..Plan::default() }
}

/// Returns the number of ordinals, counted from 0, that have had a Pod since the last scale-down: the `known` number,
/// extended without a gap by the existing and just `created` Pods, and capped at the wanted replicas.
pub(super) fn reached(
    name: &str,
    replicas: i32,
    pods: &[Cached<ObservedPod>],
    created: &[u32],
    known: i32,
) -> i32 {
    let replicas = replicas.max(0);
    if known >= replicas {
        return replicas;
    }
    let staying = pods.iter().filter(|pod| !pod.readable().is_some_and(|pod| pod.is_deleting()));
    let mut there: BTreeSet<u32> =
        staying.filter_map(|pod| ordinal(name, pod.object_name().name())).collect();
    there.extend(created);
    let is_there = |number: i32| u32::try_from(number).is_ok_and(|ordinal| there.contains(&ordinal));
    (known.max(0)..replicas).find(|number| !is_there(*number)).unwrap_or(replicas)
}

/// Sorts Pods by their ordinals, the highest first.
pub(super) fn highest_first(redis: &str, pods: &mut [ChildRef]) {
    pods.sort_by_key(|pod| std::cmp::Reverse(ordinal(redis, &pod.name)));
}

/// Returns what matters of a Pod. One that is not wanted is not compared.
fn seen(wanted: Option<(&Owner, &WantedPod)>, pod: &Cached<ObservedPod>) -> Seen {
    // An undecodable Pod counts as existing but not Ready, and is left alone.
    let Some(pod) = pod.readable() else {
        return Seen {
            is_going: false,
            is_finished: false,
            is_ready: false,
            is_outdated: false,
            is_labelled: true,
        };
    };
    Seen {
        is_going: pod.is_deleting(),
        is_finished: pod.is_finished(),
        is_ready: pod.is_ready(),
        is_outdated: wanted.is_some_and(|(_, wanted)| !wanted.is_outdated(pod).is_empty()),
        is_labelled: wanted.is_none_or(|(owner, wanted)| owner.differences(wanted, pod).is_empty()),
    }
}

fn plan_for(replicas: u32, pods: &BTreeMap<u32, Seen>) -> Plan {
    let mut plan = Plan::default();
    let staying = || pods.iter().filter(|(_, pod)| !pod.is_going);
    plan.active = count(staying().count());
    plan.ready = count(staying().filter(|(_, pod)| pod.is_ready).count());
    let wanted = || pods.range(..replicas).filter(|(_, pod)| !pod.is_going && !pod.is_finished);
    plan.outdated = count(wanted().filter(|(_, pod)| pod.is_outdated).count());
    plan.up_to_date = count(wanted().filter(|(_, pod)| pod.is_ready && !pod.is_outdated).count());

    let surplus = pods.range(replicas..).rev().filter(|(_, pod)| !pod.is_going);
    plan.delete.extend(surplus.map(|(&ordinal, _)| (ordinal, PruneReason::Surplus)));
    plan.apply.extend((0..replicas).filter(|ordinal| !pods.contains_key(ordinal)));
    for (&ordinal, pod) in pods.range(..replicas).rev() {
        if pod.is_going {
            plan.waits_for.push(ordinal);
        } else if pod.is_finished {
            plan.delete.push((ordinal, PruneReason::Finished));
        } else if !pod.is_labelled {
            plan.apply.push(ordinal);
        }
    }
    let is_one_away =
        !plan.waits_for.is_empty() || plan.delete.iter().any(|(_, why)| *why == PruneReason::Finished);
    let next = next_of_roll(replicas, pods).filter(|_| !is_one_away);
    if pods.range(..replicas).count() == replicas as usize {
        plan.delete.extend(next.map(|ordinal| (ordinal, PruneReason::Outdated)));
    } else {
        plan.past_taken = next.filter(|ordinal| !pods[ordinal].is_ready);
    }
    plan
}

/// Returns the outdated Pod to replace next: one that is not Ready, or any once all are Ready.
fn next_of_roll(replicas: u32, pods: &BTreeMap<u32, Seen>) -> Option<u32> {
    let outdated = || pods.range(..replicas).rev().filter(|(_, pod)| pod.is_outdated);
    let not_ready = outdated().find(|(_, pod)| !pod.is_ready);
    let are_all_ready = pods.range(..replicas).all(|(_, pod)| pod.is_ready);
    let next = not_ready.or_else(|| outdated().next().filter(|_| are_all_ready));
    next.map(|(&ordinal, _)| ordinal)
}

fn count(number: usize) -> i32 {
    i32::try_from(number).unwrap_or(i32::MAX)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const FINE: Seen =
        Seen { is_going: false, is_finished: false, is_ready: true, is_outdated: false, is_labelled: true };
    const OLD: Seen = Seen { is_outdated: true, ..FINE };

    fn pods<const N: usize>(pods: [(u32, Seen); N]) -> BTreeMap<u32, Seen> {
        pods.into()
    }

    #[test]
    fn ordinal_is_parsed_from_pod_name() {
        assert_eq!(ordinal("x", "x-0"), Some(0));
        assert_eq!(ordinal("x-1", "x-1-12"), Some(12));
        for other in ["x", "x-", "x-07", "x-+7", "x-a", "y-1", "x1-1", "x-1-2"] {
            assert_eq!(ordinal("x", other), None, "{other}");
        }
        assert_eq!(owner_of("x-1-12"), Some("x-1"));
        assert_eq!((owner_of("x"), owner_of("x-y")), (None, None));
    }

    #[test]
    fn converged_pods_need_no_action() {
        let plan = plan_for(2, &pods([(0, FINE), (1, FINE)]));
        assert_eq!(plan, Plan { active: 2, ready: 2, up_to_date: 2, ..Plan::default() });
        assert_eq!(plan_for(0, &BTreeMap::new()), Plan::default());
    }

    #[test]
    fn missing_pods_are_created() {
        assert_eq!(plan_for(4, &pods([(1, FINE)])).apply, [0, 2, 3]);
    }

    #[test]
    fn scale_down_removes_highest_ordinals_first() {
        let going = Seen { is_going: true, ..FINE };
        let plan = plan_for(1, &pods([(0, FINE), (1, FINE), (2, going), (7, FINE)]));
        assert_eq!(plan.delete, [(7, PruneReason::Surplus), (1, PruneReason::Surplus)]);
    }

    #[test]
    fn a_finished_pod_is_replaced() {
        let finished = Seen { is_finished: true, is_ready: false, ..OLD };
        let plan = plan_for(2, &pods([(0, OLD), (1, finished)]));
        assert_eq!(plan.delete, [(1, PruneReason::Finished)], "the rollout waits");
    }

    #[test]
    fn terminating_pod_is_waited_for() {
        let going = Seen { is_going: true, ..FINE };
        let plan = plan_for(2, &pods([(0, going), (1, OLD)]));
        assert_eq!((plan.waits_for, plan.delete, plan.apply), (vec![0], vec![], vec![]));
    }

    #[test]
    fn rollout_replaces_one_pod_at_a_time() {
        let plan = plan_for(3, &pods([(0, OLD), (1, OLD), (2, OLD)]));
        assert_eq!(plan.delete, [(2, PruneReason::Outdated)]);
        assert_eq!(plan_for(3, &pods([(0, OLD), (1, OLD)])).delete, [], "Pod 2 is being replaced");
        let starting = Seen { is_ready: false, ..FINE };
        assert_eq!(plan_for(3, &pods([(0, OLD), (1, OLD), (2, starting)])).delete, []);
        let plan = plan_for(3, &pods([(0, OLD), (1, OLD), (2, FINE)]));
        assert_eq!((plan.delete, plan.up_to_date, plan.outdated), (vec![(1, PruneReason::Outdated)], 1, 2));
    }

    #[test]
    fn outdated_unready_pod_is_replaced_first() {
        let stuck = Seen { is_ready: false, ..OLD };
        let starting = Seen { is_ready: false, ..FINE };
        let plan = plan_for(3, &pods([(0, stuck), (1, OLD), (2, starting)]));
        assert_eq!(plan.delete, [(0, PruneReason::Outdated)]);
    }

    #[test]
    fn unavailable_pod_name_blocks_rollout() {
        let stuck = Seen { is_ready: false, ..OLD };
        let going = Seen { is_going: true, ..FINE };
        let plan = plan_for(3, &pods([(0, stuck), (1, OLD), (2, going)]));
        assert_eq!((plan.delete, plan.waits_for), (vec![], vec![2]));
        let plan = plan_for(3, &pods([(0, stuck), (1, OLD)]));
        assert_eq!((plan.delete, plan.apply, plan.past_taken), (vec![], vec![2], Some(0)));
        let plan = plan_for(3, &pods([(0, FINE), (1, OLD)]));
        assert_eq!((plan.delete, plan.past_taken), (vec![], None), "a Ready Pod stays");
        let plan = plan_for(4, &pods([(0, stuck), (1, OLD), (2, going)]));
        assert_eq!((plan.delete, plan.past_taken), (vec![], None), "one at a time");
    }

    #[test]
    fn reached_replicas_grow_gaplessly_and_shrink_with_spec() {
        let pod = |name: &str, is_going: bool| {
            let mut pod = ObservedPod::default();
            pod.metadata.name = crate::cache::ObjectName::new(None, name);
            pod.metadata.deletion_timestamp = is_going.then(|| "2020-01-01T00:00:00Z".into());
            Cached::new(Ok(pod))
        };
        let pods = [pod("x-0", false), pod("x-2", false), pod("x-3", true)];
        for (replicas, created, known, expected) in [
            (4, &[][..], 0, 1),
            (4, &[1], 0, 3),
            (4, &[1, 3], 0, 4),
            (4, &[], 2, 3),
            (4, &[], 4, 4),
            (2, &[], 4, 2),
            (0, &[], 4, 0),
        ] {
            assert_eq!(
                reached("x", replicas, &pods, created, known),
                expected,
                "{replicas} {created:?} {known}"
            );
        }
    }

    #[test]
    fn lost_labels_are_written_again() {
        let bare = Seen { is_labelled: false, ..FINE };
        assert_eq!(plan_for(1, &pods([(0, bare)])).apply, [0]);
    }

    fn any_pod() -> impl Strategy<Value = Seen> {
        (any::<bool>(), any::<bool>(), any::<bool>(), any::<bool>()).prop_map(
            |(is_going, is_finished, is_ready, is_outdated)| Seen {
                is_going,
                is_finished,
                is_ready: is_ready && !is_finished,
                is_outdated,
                is_labelled: true,
            },
        )
    }

    proptest! {
        /// Each round carries out the plan: created Pods become Ready, deleted Pods go away.
        #[test]
        fn plan_reaches_the_spec_from_any_state(
            mut pods in prop::collection::btree_map(0..6_u32, any_pod(), 0..6),
            replicas in 0..6_u32,
        ) {
            for _ in 0..40 {
                let plan = plan_for(replicas, &pods);
                let rolled: Vec<u32> =
                    plan.delete.iter().filter(|(_, why)| *why == PruneReason::Outdated).map(|(ordinal, _)| *ordinal).collect();
                prop_assert!(rolled.len() <= 1);
                let serving = pods.range(..replicas).filter(|(_, pod)| pod.is_ready && !pod.is_going).count();
                let takes_one_that_serves = rolled.iter().any(|ordinal| pods[ordinal].is_ready);
                prop_assert!(!takes_one_that_serves || serving == replicas as usize);
                pods.retain(|_, pod| !pod.is_going);
                for (ordinal, _) in &plan.delete {
                    pods.get_mut(ordinal).unwrap().is_going = true;
                }
                pods.values_mut().filter(|pod| !pod.is_finished && !pod.is_outdated).for_each(|pod| pod.is_ready = true);
                for &ordinal in &plan.apply {
                    prop_assert!(pods.insert(ordinal, Seen { is_ready: false, ..FINE }).is_none(), "name in use");
                }
            }
            let expected: BTreeMap<u32, Seen> = (0..replicas).map(|ordinal| (ordinal, FINE)).collect();
            prop_assert_eq!(pods, expected);
        }
    }
}
