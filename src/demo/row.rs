//! Turns a custom resource, its children and its last event into a row.
//!
//! | column | from |
//! |---|---|
//! | ready, reason, message | the condition `Ready`, if it is about the current generation |
//! | replicas | ready replicas in `status` (available, for kinds without that number) of those in `spec` |
//! | state | `Deleting`; true conditions other than the normal ones, such as `Stalled`; the running hook of a WebApp |
//! | children | the objects it controls directly, with the number of ready Pods |
//!
//! # Guarantees
//! - Conditions of an older generation are ignored. (test: `conditions_of_an_older_generation_are_ignored`)
//! - Each kind's replicas come from its own status. (test: `replicas_come_from_status`)
//! - The running hook is named, with its number of attempts. (test: `running_hook_is_shown_with_attempts`)
//! - A child is shown by its kind, and by its name if it differs from the owner's. (test: `children_are_named_and_counted`)

use super::seen::{Condition, Shown, Status, WebAppStep};
use super::table::Row;
use crate::api::conditions::READY;
use crate::cache::ObjectName;

/// Conditions that are true on a healthy object.
const NORMAL: [&str; 3] = [READY, "Available", "Progressing"];

/// Builds the row of an object.
pub(super) fn row(object: &Shown, children: &[Shown], last: Option<(jiff::Timestamp, String)>) -> Row {
    let status = object.status();
    let conditions = status.map(|status| status.conditions.as_slice()).unwrap_or_default();
    let is_current = |condition: &&Condition| condition.observed_generation == Some(object.generation);
    let conditions: Vec<&Condition> = conditions.iter().filter(is_current).collect();
    let ready = conditions.iter().find(|condition| condition.type_ == READY);
    let is_notable = |c: &&&Condition| c.status == "True" && !NORMAL.contains(&c.type_.as_str());
    let notable = conditions.iter().filter(is_notable).map(|condition| condition.type_.as_str());
    let deleting = object.is_deleting.then_some("Deleting");
    let state: Vec<&str> = deleting.into_iter().chain(notable).collect();
    let (at, last) = last.unzip();
    Row {
        name: shown_name(&object.kind, &object.name),
        ready: ready.map_or("Unknown", |ready| ready.status.as_str()).to_owned(),
        replicas: replicas(object),
        reason: ready.map_or("", |ready| ready.reason.as_str()).to_owned(),
        message: ready.map_or("", |ready| ready.message.as_str()).to_owned(),
        state: state.join(","),
        step: status.and_then(step).unwrap_or_default(),
        children: words(object.name.name(), children),
        last: last.unwrap_or_default(),
        at,
    }
}

/// Returns `kind/name`, with the namespace unless it is `default`.
pub(super) fn shown_name(kind: &str, name: &ObjectName) -> String {
    match name.namespace() {
        Some("default") | None => format!("{kind}/{}", name.name()),
        Some(namespace) => format!("{namespace}: {kind}/{}", name.name()),
    }
}

/// Returns `ready/wanted`; empty before the first status.
fn replicas(object: &Shown) -> String {
    let Some((spec, Some(status))) = &object.body else { return String::new() };
    let ready = status.ready_replicas.or(status.available_replicas);
    format!("{}/{}", ready.unwrap_or(0), spec.replicas.unwrap_or(1))
}

/// Describes the hook that is running, or the failed one to be retried.
fn step(status: &Status) -> Option<String> {
    let in_phase = |phases: &[&str]| status.steps.iter().find(|step| phases.contains(&step.phase.as_str()));
    let WebAppStep { name, hook, phase, attempts } =
        in_phase(&["Running", "Undoing"]).or_else(|| in_phase(&["Failed"]))?;
    let hook = hook.as_deref().unwrap_or("begins");
    Some(match (phase.as_str(), attempts) {
        ("Failed", attempts) => format!("{name}: {hook} failed ({attempts}x)"),
        (_, 0 | 1) => format!("{name}: {hook}"),
        (_, attempts) => format!("{name}: {hook}, attempt {attempts}"),
    })
}

/// Lists the children: Pods as a count, others one by one, named if the name differs from the owner's.
fn words(owner: &str, children: &[Shown]) -> String {
    let (pods, others): (Vec<&Shown>, Vec<&Shown>) = children.iter().partition(|child| child.kind == "pod");
    let mut words: Vec<String> = others.into_iter().map(|child| other(owner, child)).collect();
    if !pods.is_empty() {
        let ready = pods.iter().filter(|pod| is_ready(pod)).count();
        words.push(format!("pods {ready}/{}", pods.len()));
    }
    words.join(", ")
}

fn other(owner: &str, child: &Shown) -> String {
    let name = child.name.name();
    let name = if name == owner { child.kind.clone() } else { format!("{}/{name}", child.kind) };
    match &child.body {
        None => format!("{name} cannot be decoded"),
        Some((_, status)) if child.kind == "deployment" => {
            let ready = status.as_ref().and_then(|status| status.ready_replicas).unwrap_or(0);
            let wanted = child.body.as_ref().and_then(|(spec, _)| spec.replicas).unwrap_or(1);
            format!("{name} {ready}/{wanted}")
        }
        Some(_) => name,
    }
}

fn is_ready(pod: &Shown) -> bool {
    let conditions = pod.status().map(|status| status.conditions.as_slice()).unwrap_or_default();
    !pod.is_deleting && conditions.iter().any(|c| c.type_ == READY && c.status == "True")
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::apps::v1::Deployment;
    use k8s_openapi::api::core::v1::{Pod, Service};
    use serde_json::{Value, json};

    use super::*;
    use crate::api::myapp::v1::Myapp;

    /// Returns the row of a custom resource of generation 2 with this status.
    fn of(status: &Value) -> Row {
        let metadata = json!({"name": "web", "namespace": "default", "uid": "u", "generation": 2});
        let object = json!({"metadata": metadata, "spec": {"replicas": 3}, "status": status});
        row(&Shown::read::<Myapp>(&object), &[], None)
    }

    fn condition(type_: &str, status: &str, generation: i64) -> Value {
        json!({"type": type_, "status": status, "reason": "Why", "message": "that is why",
            "observedGeneration": generation, "lastTransitionTime": "2026-01-01T00:00:00Z"})
    }

    #[test]
    fn conditions_of_an_older_generation_are_ignored() {
        let conditions =
            [condition("Ready", "True", 2), condition("Stalled", "False", 2), condition("Odd", "True", 2)];
        let row = of(&json!({"conditions": conditions}));
        assert_eq!((row.ready.as_str(), row.reason.as_str()), ("True", "Why"));
        assert_eq!((row.message.as_str(), row.state.as_str()), ("that is why", "Odd"));
        let row =
            of(&json!({"conditions": [condition("Ready", "True", 1), condition("Stalled", "True", 1)]}));
        assert_eq!((row.ready.as_str(), row.reason.as_str(), row.state.as_str()), ("Unknown", "", ""));
        assert_eq!(of(&Value::Null).ready, "Unknown");
    }

    /// A healthy Deployment has these conditions, and an AppService copies them.
    #[test]
    fn normal_conditions_are_not_shown_as_state() {
        let conditions = ["Available", "Progressing", "ReplicaFailure"].map(|t| condition(t, "True", 2));
        assert_eq!(of(&json!({"conditions": conditions})).state, "ReplicaFailure");
    }

    #[test]
    fn replicas_come_from_status() {
        assert_eq!(of(&Value::Null).replicas, "");
        assert_eq!(of(&json!({})).replicas, "0/3");
        assert_eq!(of(&json!({"availableReplicas": 2})).replicas, "2/3");
        assert_eq!(of(&json!({"readyReplicas": 3, "availableReplicas": 2})).replicas, "3/3");
    }

    #[test]
    fn running_hook_is_shown_with_attempts() {
        let step = |name: &str, phase: &str, hook: &str, attempts: i64| json!({"name": name, "phase": phase, "hook": hook, "attempts": attempts, "operationID": "x"});
        let pending = || json!({"name": "announce", "phase": "Pending"});
        let done = || step("prepare", "Succeeded", "post_create", 1);
        let shown = |steps: &[Value]| of(&json!({"steps": steps})).step;
        assert_eq!(shown(&[]), "");
        assert_eq!(shown(&[done(), done()]), "");
        let running = step("workload", "Running", "post_create", 1);
        assert_eq!(shown(&[done(), running, pending()]), "workload: post_create");
        let again = step("workload", "Running", "create", 3);
        assert_eq!(shown(&[done(), again, pending()]), "workload: create, attempt 3");
        let failed = step("workload", "Failed", "create", 3);
        assert_eq!(shown(&[done(), failed, pending()]), "workload: create failed (3x)");
        assert_eq!(shown(&[done(), step("workload", "Undoing", "delete", 1)]), "workload: delete");
    }

    #[test]
    fn children_are_named_and_counted() {
        let metadata = |name: &str| json!({"name": name, "namespace": "default", "uid": name});
        let deployment = |name: &str| {
            let status = json!({"readyReplicas": 1, "conditions": []});
            Shown::read::<Deployment>(
                &json!({"metadata": metadata(name), "spec": {"replicas": 2}, "status": status}),
            )
        };
        let service = Shown::read::<Service>(&json!({"metadata": metadata("web"), "spec": {}}));
        let all = [deployment("web"), service.clone(), deployment("old")];
        assert_eq!(words("web", &all), "deployment 1/2, service, deployment/old 1/2");
        let pod = |name: &str, status: &str| {
            let conditions = json!([{"type": "Ready", "status": status}]);
            let pod = json!({"metadata": metadata(name), "spec": {}, "status": {"conditions": conditions}});
            Shown::read::<Pod>(&pod)
        };
        let leaving = Shown { is_deleting: true, ..pod("db-2", "True") };
        assert_eq!(words("db", &[pod("db-0", "True"), pod("db-1", "False"), leaving]), "pods 1/3");
        assert_eq!(words("web", &[Shown { body: None, ..service }]), "service cannot be decoded");
        assert_eq!(words("web", &[]), "");
    }

    #[test]
    fn deletion_is_shown_as_state() {
        let metadata = json!({"name": "web", "namespace": "ns", "uid": "u", "generation": 2,
            "deletionTimestamp": "2026-01-01T00:00:00Z"});
        let status = json!({"conditions": [condition("Reconciling", "True", 2)]});
        let row = row(&Shown::read::<Myapp>(&json!({"metadata": metadata, "status": status})), &[], None);
        assert_eq!((row.name.as_str(), row.state.as_str()), ("ns: myapp/web", "Deleting,Reconciling"));
    }
}
