//! The horizontal Pod autoscaler: keeps the replicas of its target between its bounds, and to the load if it is told.
//!
//! There is no metrics server: the annotation [`LOAD`] of an autoscaler takes its place. Unlike a real one, it acts at
//! once in both directions, not every 15 s and, downwards, after five minutes.

use std::sync::Arc;

use serde_json::{Value, json};

use super::super::core::Core;
use super::super::kinds::{BuiltIn, Kind};
use super::super::request::{items, number, text};
use super::super::scale::scale_of;
use super::super::store::{Change, Key};
use super::{Work, set, set_condition};

/// What all Pods of the target use of a processor together, in percent of one Pod's request.
const LOAD: &str = "/metadata/annotations/windlass.dev~1demo-load";
/// By how much, in percent, the use may differ from the target without a change, as by default on a real server.
const TOLERANCE: i64 = 10;

/// The target of an autoscaler.
struct Target {
    kind: Arc<Kind>,
    version: String,
    stored: Arc<Value>,
    replicas_path: String,
    /// How many Pods there are.
    current: i64,
}

impl Core {
    /// Schedules the autoscalers that a change concerns: the changed one itself, or those of a changed target.
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
        let load = text(autoscaler, LOAD).parse::<i64>().ok().filter(|load| *load >= 0);
        let wanted = wanted(autoscaler, replicas, load);
        set_condition(autoscaler, "AbleToScale", "True", "ReadyForNewScale", "", now);
        let (is_active, reason, message) = match (replicas, load) {
            (0, _) => ("False", "ScalingDisabled", "the target has no replicas"),
            (_, None) => {
                ("False", "FailedGetResourceMetric", "the annotation windlass.dev/demo-load is not set")
            }
            (_, Some(_)) => ("True", "ValidMetricFound", ""),
        };
        set_condition(autoscaler, "ScalingActive", is_active, reason, message, now);
        set(autoscaler, "/status/currentReplicas", json!(target.current));
        set(autoscaler, "/status/desiredReplicas", json!(wanted));
        let metrics = load.map(|load| {
            let each = load / target.current.max(1);
            json!([{"type": "Resource", "resource": {"name": "cpu", "current": {"averageUtilization": each}}}])
        });
        if let Some(status) = autoscaler["status"].as_object_mut() {
            status.remove("currentMetrics");
            status.extend(metrics.map(|metrics| ("currentMetrics".to_owned(), metrics)));
        }
        if wanted != replicas {
            set(autoscaler, "/status/lastScaleTime", json!(now));
            let mut scaled = Value::clone(&target.stored);
            set(&mut scaled, &target.replicas_path, json!(wanted));
            self.count_generation(&target.kind, &target.version, &mut scaled, &target.stored);
            self.amend(&target.kind, scaled, &target.stored);
        }
    }
}

/// Returns how many replicas the target should have.
fn wanted(autoscaler: &Value, replicas: i64, load: Option<i64>) -> i64 {
    let [least, most] = ["/spec/minReplicas", "/spec/maxReplicas"].map(|bound| number(autoscaler, bound));
    // Without replicas it is switched off; outside of the bounds no metric is asked.
    if replicas == 0 || !(least..=most).contains(&replicas) {
        return if replicas == 0 { 0 } else { replicas.min(most).max(least) };
    }
    let of_cpu = |metric: &&Value| text(metric, "/resource/name") == "cpu";
    let target = items(autoscaler, "/spec/metrics").iter().find(of_cpu);
    let target = target.map_or(0, |metric| number(metric, "/resource/target/averageUtilization"));
    let Some(load) = load.filter(|_| target > 0) else { return replicas };
    let at_target = target * replicas;
    if (load - at_target).abs() * 100 <= at_target * TOLERANCE {
        return replicas;
    }
    (load + target - 1).div_euclid(target).min(most).max(least)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replicas_follow_the_load_within_the_bounds() {
        let metrics =
            json!([{"type": "Resource", "resource": {"name": "cpu", "target": {"averageUtilization": 50}}}]);
        let autoscaler = json!({"spec": {"minReplicas": 2, "maxReplicas": 6, "metrics": metrics}});
        for (replicas, load, expected) in [
            (0, Some(900), 0),
            (1, Some(900), 2),
            (9, None, 6),
            (3, None, 3),
            (3, Some(165), 3),
            (3, Some(166), 4),
            (3, Some(134), 3),
            (3, Some(900), 6),
            (5, Some(0), 2),
        ] {
            assert_eq!(wanted(&autoscaler, replicas, load), expected, "{replicas} replicas, {load:?}");
        }
        let of_memory = json!({"spec": {"minReplicas": 1, "maxReplicas": 6,
            "metrics": [{"type": "Resource", "resource": {"name": "memory", "target": {"averageUtilization": 50}}}]}});
        assert_eq!(wanted(&of_memory, 3, Some(900)), 3, "the load is that of the processor");
    }
}
