//! Compares field managers: generated applies and other writes by several managers, after each of which the two servers
//! must show the same object, `managedFields` (without times) and conflicts, word for word.

use std::fmt::Write as _;

use fastrand::Rng;
use futures_util::StreamExt;
use kube_client::Client;
use macro_rules_attribute::apply;
use serde_json::{Value, json};

use super::compare;
use super::kinds::{KINDS, Kind, WIDGET};
use super::{AT_ONCE, Said, Servers, Side, json_merge};
use crate::support::{number, real_bed};

const APPLY: &str = "application/apply-patch+yaml";
const MERGE: &str = "application/merge-patch+json";
const MANAGERS: [&str; 4] = ["kubectl", "one", "two", "three"];

/// A request, and its body by the object that the server has.
struct Step {
    method: &'static str,
    path: String,
    media: &'static str,
    body: Value,
    /// Whether the body is a merge patch of the stored object.
    is_change: bool,
}

/// Returns merge patches; a configuration is some of them.
#[expect(clippy::too_many_lines, reason = "it is a table")]
fn parts(kind: &Kind) -> Vec<Value> {
    let spec = |spec: Value| json!({"spec": spec});
    let pod = |pod: Value| json!({"spec": {"template": {"spec": pod}}});
    let mut parts = match kind.kind {
        "ConfigMap" => vec![
            json!({"data": {"a": "1"}}),
            json!({"data": {"a": "2", "b": "1"}}),
            json!({"data": {"c": "1"}}),
            json!({"data": {}}),
            json!({"data": {"a": 1}}),
            json!({"binaryData": {"d": "AAAA"}}),
            json!({"immutable": false}),
        ],
        "Deployment" => vec![
            spec(json!({"replicas": 1})),
            spec(json!({"replicas": 2})),
            spec(json!({"minReadySeconds": 3})),
            spec(json!({"strategy": {"type": "Recreate", "rollingUpdate": null}})),
            spec(json!({"strategy": {"rollingUpdate": {"maxSurge": 2}}})),
            pod(json!({"containers": [{"name": "c", "image": "other"}]})),
            pod(
                json!({"containers": [{"name": "d", "image": "d", "env": [{"name": "A", "value": "1"}, {"name": "B"}]}]}),
            ),
            pod(
                json!({"containers": [{"name": "d", "image": "d"}, {"name": "c", "image": "nginx", "args": ["x"],
                "ports": [{"containerPort": 80}, {"containerPort": 80, "protocol": "UDP", "name": "u"}]}]}),
            ),
            pod(
                json!({"containers": [{"name": "c", "image": "nginx", "resources": {"limits": {"cpu": "1000m"}}}]}),
            ),
            pod(json!({"nodeSelector": {"a": "b"}})),
            pod(json!({"tolerations": [{"key": "a", "operator": "Exists"}]})),
            pod(
                json!({"volumes": [{"name": "v", "emptyDir": {}}, {"name": "w", "configMap": {"name": "m"}}]}),
            ),
            pod(json!({"volumes": [{"name": "v", "configMap": {"name": "m"}}]})),
            spec(json!({"other": 1})),
        ],
        "Service" => vec![
            spec(json!({"selector": {"app": "b"}})),
            spec(json!({"ports": [{"name": "http", "port": 80, "targetPort": 8080}]})),
            spec(
                json!({"ports": [{"name": "dns", "port": 53, "protocol": "UDP"}, {"name": "http", "port": 80}]}),
            ),
            spec(json!({"sessionAffinity": "ClientIP"})),
            spec(json!({"externalIPs": ["10.0.0.1"]})),
        ],
        _ => vec![
            spec(json!({"name": "first"})),
            spec(json!({"replicas": 3})),
            spec(json!({"replicas": 4, "mode": "Slow"})),
            spec(json!({"mode": null})),
            spec(json!({"tags": ["a", "b"]})),
            spec(json!({"tags": ["c", "b"]})),
            spec(json!({"tags": ["a", "a"]})),
            spec(json!({"env": [{"name": "a"}, {"name": "b", "value": "x"}]})),
            spec(json!({"env": [{"name": "c"}, {"name": "b", "value": "y"}, {"name": "a"}]})),
            spec(json!({"env": [{"value": "x"}]})),
            spec(json!({"free": {"any": {"thing": [1, "x"]}, "n": 1}})),
            spec(json!({"free": {"any": {"other": {}}, "n": "text"}})),
            spec(json!({"labels": {"a": "b"}})),
            spec(json!({"labels": {"a": "c", "d": "e"}})),
            spec(json!({"labels": {}})),
            spec(json!({"port": "http"})),
            spec(json!({"port": 80})),
            spec(json!({"other": 1})),
        ],
    };
    parts.extend([
        json!({"metadata": {"labels": {"team": "a"}}}),
        json!({"metadata": {"labels": {"team": "b", "tier": "c"}}}),
        json!({"metadata": {"annotations": {"example.com/note": "x"}}}),
        json!({"metadata": {"finalizers": ["example.com/hold", "example.com/more"]}}),
        json!({"metadata": {"finalizers": ["example.com/hold"]}}),
        json!({"metadata": {"ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "x", "uid": "y"}]}}),
    ]);
    parts
}

/// Returns some of the parts, merged.
fn some(rng: &mut Rng, kind: &Kind, most: usize) -> Value {
    let all = parts(kind);
    let mut merged = json!({});
    for _ in 0..rng.usize(1..=most) {
        overlay(&mut merged, &all[rng.usize(..all.len())]);
    }
    merged
}

/// Merges without removing: null is a value here.
fn overlay(target: &mut Value, part: &Value) {
    match (target.as_object_mut(), part.as_object()) {
        (Some(members), Some(part)) => {
            for (key, value) in part {
                overlay(members.entry(key.clone()).or_insert(Value::Null), value);
            }
        }
        _ => *target = part.clone(),
    }
}

fn configuration(rng: &mut Rng, kind: &Kind, is_first: bool) -> Value {
    let mut config = kind.valid("a");
    let needs_all = is_first || rng.u8(..3) == 0;
    if !needs_all {
        config = json!({"apiVersion": config["apiVersion"], "kind": kind.kind, "metadata": {"name": "a"}});
    }
    if !is_first || rng.bool() {
        let part = some(rng, kind, 4);
        overlay(&mut config, &part);
    }
    config
}

fn step(rng: &mut Rng, kind: &Kind, at: usize) -> Step {
    let object = format!("{}/a", kind.collection());
    let manager = MANAGERS[rng.usize(..MANAGERS.len())];
    let with = |path: &str| format!("{path}?fieldManager={manager}");
    let send = |method, path, media, body| Step { method, path, media, body, is_change: false };
    let choice = if at == 0 { rng.u8(..10) } else { rng.u8(..20) };
    match choice {
        0..3 if at == 0 => {
            send("POST", with(&kind.collection()), "application/json", configuration(rng, kind, true))
        }
        0..10 => {
            let force = ["", "", "&force=true", "&dryRun=All"][rng.usize(..if at == 0 { 1 } else { 4 })];
            send("PATCH", with(&object) + force, APPLY, configuration(rng, kind, at == 0))
        }
        10..13 => send("PATCH", with(&object), MERGE, some(rng, kind, 2)),
        13..15 => {
            Step { is_change: true, ..send("PUT", with(&object), "application/json", some(rng, kind, 2)) }
        }
        15..18 => send("PATCH", with(&object), MERGE, some(rng, kind, 1)),
        18 => {
            let mut status = kind.valid("a");
            status["status"] = if kind.is_custom || kind.kind == "Deployment" {
                json!({"replicas": rng.u8(1..4)})
            } else {
                json!({})
            };
            let is_apply = rng.bool();
            send("PATCH", with(&format!("{object}/status")), if is_apply { APPLY } else { MERGE }, status)
        }
        _ => {
            let reset = [json!([]), json!([{}]), json!(null)][rng.usize(..3)].clone();
            send("PATCH", with(&object), MERGE, json!({"metadata": {"managedFields": reset}}))
        }
    }
}

/// Returns the entries without times, in an order that does not depend on them.
fn entries(object: &Value) -> Value {
    let mut entries = object["metadata"]["managedFields"].as_array().cloned().unwrap_or_default();
    entries.iter_mut().filter_map(Value::as_object_mut).for_each(|entry| drop(entry.remove("time")));
    entries.sort_by_key(ToString::to_string);
    Value::Array(entries)
}

fn compared(said: &Said, kind: &Kind) -> Value {
    let body = &said.body;
    if said.code < 400 {
        return json!({"code": said.code, "object": compare::object(body, kind), "managers": entries(body)});
    }
    let mut causes = body["details"]["causes"].as_array().cloned().unwrap_or_default();
    let is_conflict = causes.iter().any(|cause| cause["reason"] == "FieldManagerConflict");
    causes.sort_by_key(ToString::to_string);
    let told = if is_conflict { json!([body["message"], causes]) } else { Value::Null };
    json!({"code": said.code, "reason": body["reason"], "conflicts": told})
}

/// Runs one sequence against both servers; returns the number of steps, or a description of the first difference.
async fn run(seed: u64, real: Client, sim: Client) -> Result<usize, String> {
    let namespace = format!("managers-{seed:016x}");
    let side = |client| Side { client, namespace: namespace.clone(), seen: Vec::new() };
    let sides = [side(real), side(sim)];
    for side in &sides {
        let body = json!({"metadata": {"name": namespace}}).to_string().into_bytes();
        assert_eq!(side.send("POST", "/api/v1/namespaces", "application/json", body).await.code, 201);
    }
    let mut rng = Rng::with_seed(seed);
    let named = |name: &str| KINDS.iter().find(|kind| kind.kind == name).expect("the kind is in the table");
    let kinds = [&WIDGET, named("ConfigMap"), named("Deployment"), named("Service")];
    let kind = kinds[rng.usize(..kinds.len())];
    let steps = rng.usize(4..14);
    let mut report = String::new();
    for at in 0..steps {
        let step = step(&mut rng, kind, at);
        let change = if step.is_change { " stored +" } else { "" };
        writeln!(report, "{at:>3} {} {} {}{change} {}", step.method, step.path, step.media, step.body)
            .expect("infallible");
        let mut said = Vec::new();
        for side in &sides {
            let path = side.fill(&step.path);
            let mut body = step.body.clone();
            if step.is_change {
                let object = path.split('?').next().unwrap_or_default();
                body = side.send("GET", object, "application/json", Vec::new()).await.body;
                json_merge(&mut body, &step.body);
                if let Some(metadata) = body.get_mut("metadata").and_then(Value::as_object_mut) {
                    metadata.remove("managedFields");
                }
            }
            said.push(side.send(step.method, &path, step.media, body.to_string().into_bytes()).await);
        }
        let (left, right) = (compared(&said[0], kind), compared(&said[1], kind));
        if left != right {
            let difference = compare::difference(&left, &right);
            let [real, embedded] = [&said[0].body, &said[1].body];
            return Err(format!("seed {seed}\n{report}{difference}\nreal: {real}\nembedded: {embedded}"));
        }
    }
    Ok(steps)
}

#[apply(real_bed)]
#[why = "it compares the two servers"]
async fn generated_managers_own_the_same_fields() {
    let mut servers = Servers::start().await;
    let sequences = number("WINDLASS_FIDELITY_SEQUENCES", 100);
    let first = number("WINDLASS_FIDELITY_SEED", fastrand::u64(..1 << 40));
    let outcomes: Vec<Result<usize, String>> = futures_util::stream::iter(first..first + sequences)
        .map(|seed| run(seed, servers.real.clone(), servers.sim()))
        .buffer_unordered(AT_ONCE)
        .collect()
        .await;
    let failures: Vec<&str> =
        outcomes.iter().filter_map(|outcome| outcome.as_ref().err()).map(String::as_str).collect();
    assert!(servers.driver.try_join_next().is_none(), "the embedded server has panicked");
    let shown = usize::try_from(number("WINDLASS_FIDELITY_SHOWN", 5)).unwrap_or(usize::MAX);
    let shown = failures[..failures.len().min(shown)].join("\n\n");
    assert!(failures.is_empty(), "{} sequences from {first} differ; the first:\n{shown}", failures.len());
}
