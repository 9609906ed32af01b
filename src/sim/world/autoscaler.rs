//! The horizontal Pod autoscaler: keeps the replicas of its target within bounds, and follows the load if one is set.
//!
//! There is no metrics server; the annotation [`LOAD`] takes its place. A real autoscaler runs every 15 s, limits how fast
//! it scales, waits five minutes before it scales down, and needs resource requests on the Pods. This one reacts at once,
//! by any amount, and needs none.

use std::sync::Arc;

use serde_json::{Value, json};

use super::super::apply::{CONTROLLER, record_scale};
use super::super::core::Core;
use super::super::kinds::{BuiltIn, Kind};
use super::super::request::{items, number, text};
use super::super::scale::scale_of;
use super::super::store::{Change, Key};
use super::{Work, set, set_condition};

/// The CPU usage of all the target's Pods together, in percent of one Pod's request.
const LOAD: &str = "/metadata/annotations/windlass.dev~1demo-load";
/// How far, in percent, the utilization may be from its target without scaling; the default of a real server.
const TOLERANCE: i64 = 10;
/// A higher load counts as this one.
const LOAD_MAX: i64 = 1_000_000_000;

/// The target of an autoscaler.
struct Target {
    kind: Arc<Kind>,
    version: String,
    stored: Arc<Value>,
    replicas_path: String,
    /// The number of Pods that exist.
    current: i64,
}

impl Core {
    /// Schedules the autoscalers that a change affects: the changed one, or those of a changed target.
    pub(super) fn plan_autoscalers(&mut self, change: &Change) {
        let autoscalers = self.catalogue.built_in(BuiltIn::HorizontalPodAutoscaler);
        let concerned = |(key, autoscaler): &(&Key, &Arc<Value>)| {
            let name = text(autoscaler, "/spec/scaleTargetRef/name");
            let is_it = change.resource == autoscalers.resource && change.key == **key;
            is_it || key.0 == change.key.0 && name == change.key.1
        };
        let found = self.store.collection(&autoscalers.resource).filter(concerned);
        let keys: Vec<Key> = found.map(|(key, _)| key.clone()).collect();
        keys.into_iter().for_each(|key| self.plan(Work::Autoscaler(key)));
    }

    pub(super) fn sync_autoscaler(&mut self, key: &Key) {
        let Some((kind, stored)) = self.find(BuiltIn::HorizontalPodAutoscaler, key) else { return };
        let mut autoscaler = Value::clone(&stored);
        let now = self.stamp();
        match self.target_of(key, &stored) {
            None => {
                let message = "the target does not exist, or cannot be scaled";
                set_condition(&mut autoscaler, "AbleToScale", "False", "FailedGetScale", message, &now);
            }
            Some(target) => self.autoscale(&mut autoscaler, &target, &now),
        }
        self.amend(&kind, autoscaler, &stored);
    }

    fn target_of(&self, key: &Key, autoscaler: &Value) -> Option<Target> {
        let named = |field: &str| text(autoscaler, &format!("/spec/scaleTargetRef/{field}"));
        let (group, version) = named("apiVersion").rsplit_once('/').unwrap_or(("", named("apiVersion")));
        let is_it = |kind: &&Arc<Kind>| kind.serves(group, version) && kind.kind == named("kind");
        let kind = self.catalogue.iter().find(is_it).filter(|kind| kind.has_scale(version))?.clone();
        let stored = self.store.get(&kind.resource, &key.0, named("name"))?.clone();
        let (replicas_path, current_path, _) = scale_of(&kind, version, &stored);
        let current = number(&stored, &current_path);
        Some(Target { kind, version: version.to_owned(), stored, replicas_path, current })
    }

    /// Scales the target, and writes the autoscaler's status.
    fn autoscale(&mut self, autoscaler: &mut Value, target: &Target, now: &str) {
        let replicas = number(&target.stored, &target.replicas_path);
        let used = used(autoscaler, target.current);
        let wanted = wanted(autoscaler, replicas, used);
        let mut able = ("True", "ReadyForNewScale", String::new());
        if wanted != replicas {
            match self.with_replicas(
                &target.kind,
                &target.version,
                &target.stored,
                &target.replicas_path,
                wanted,
            ) {
                Ok(mut scaled) => {
                    let (kind, path) = (&target.kind, &target.replicas_path);
                    record_scale(kind, &target.version, path, CONTROLLER, &mut scaled, &target.stored);
                    self.amend(&target.kind, scaled, &target.stored);
                    set(autoscaler, "/status/lastScaleTime", json!(now));
                }
                Err(failure) => able = ("False", "FailedUpdateScale", failure.message.clone()),
            }
        }
        set_condition(autoscaler, "AbleToScale", able.0, able.1, &able.2, now);
        let (is_active, reason, message) = match (replicas, used) {
            (0, _) => ("False", "ScalingDisabled", "the target has no replicas"),
            (_, None) => (
                "False",
                "FailedGetResourceMetric",
                "there is no cpu utilization to follow, or no load is set",
            ),
            (_, Some(_)) => ("True", "ValidMetricFound", ""),
        };
        set_condition(autoscaler, "ScalingActive", is_active, reason, message, now);
        set(autoscaler, "/status/currentReplicas", json!(target.current));
        set(autoscaler, "/status/desiredReplicas", json!(wanted));
        let metrics = used.map(|used| {
            json!([{"type": "Resource", "resource": {"name": "cpu", "current": {"averageUtilization": used}}}])
        });
        if let Some(status) = autoscaler["status"].as_object_mut() {
            status.remove("currentMetrics");
            status.extend(metrics.map(|metrics| ("currentMetrics".to_owned(), metrics)));
        }
    }
}

/// Returns the target CPU utilization in percent; 0 if there is none.
fn target_of_cpu(autoscaler: &Value) -> i64 {
    let mut metrics = items(autoscaler, "/spec/metrics").iter();
    let cpu = metrics.find(|metric| text(metric, "/resource/name") == "cpu");
    cpu.map_or(0, |metric| number(metric, "/resource/target/averageUtilization"))
}

/// Returns the average CPU utilization of the Pods, in percent of their requests, if load and target are set.
fn used(autoscaler: &Value, pods: i64) -> Option<i64> {
    let load = autoscaler.pointer(LOAD)?.as_str()?.parse::<i64>().ok().filter(|load| *load >= 0)?;
    (target_of_cpu(autoscaler) > 0).then(|| load.min(LOAD_MAX) / pods.max(1))
}

/// Returns the wanted number of replicas, computed as kube-controller-manager does.
fn wanted(autoscaler: &Value, replicas: i64, used: Option<i64>) -> i64 {
    let [least, most] = ["/spec/minReplicas", "/spec/maxReplicas"].map(|bound| number(autoscaler, bound));
    let bounded = |replicas: i64| replicas.min(most).max(least);
    // Zero replicas disable autoscaling; outside the bounds, metrics do not matter.
    if replicas == 0 || bounded(replicas) != replicas {
        return if replicas == 0 { 0 } else { bounded(replicas) };
    }
    let target = target_of_cpu(autoscaler);
    match used {
        Some(used) if (used - target).abs() * 100 > target * TOLERANCE => {
            bounded((used * replicas + target - 1).div_euclid(target))
        }
        _ => replicas,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn autoscaler(metric: &str, load: &str) -> Value {
        let metric =
            json!({"type": "Resource", "resource": {"name": metric, "target": {"averageUtilization": 50}}});
        let metadata = json!({"annotations": {"windlass.dev/demo-load": load}});
        json!({"metadata": metadata, "spec": {"minReplicas": 2, "maxReplicas": 6, "metrics": [metric]}})
    }

    #[test]
    fn replicas_follow_the_load_within_the_bounds() {
        for (replicas, load, expected) in [
            (0, "900", 0),
            (1, "900", 2),
            (9, "", 6),
            (3, "", 3),
            (3, "-1", 3),
            (3, "166", 3),
            (3, "168", 4),
            (3, "134", 3),
            (3, "900", 6),
            (5, "0", 2),
            (3, "9223372036854775807", 6),
        ] {
            let autoscaler = autoscaler("cpu", load);
            assert_eq!(
                wanted(&autoscaler, replicas, used(&autoscaler, replicas)),
                expected,
                "{replicas}: {load}"
            );
        }
        let of_memory = autoscaler("memory", "900");
        assert_eq!(used(&of_memory, 3), None, "the load is that of the processor");
    }
}
