//! Changes of every spec field: each shows in a child or a condition or is refused, and reverting it restores the
//! children.
//!
//! The changes are derived from the schemas: each field is set to its bounds, set beyond them, and removed. Chains of
//! five changes follow, chosen by `WINDLASS_E2E_SEED` (1); the result of a chain must also equal that of a new object
//! with the same spec. On the real bed this takes long, so there it only runs with `WINDLASS_OPERATIONS_ON_REAL=1`.
//!
//! # Masked
//! | what | why |
//! |---|---|
//! | uids, versions, times, generations, status | differ between objects with the same spec |
//! | after a revert: addresses and node ports | the server allocates them |
//! | after a revert: the order of ports | ports are identified by number and protocol |
//! | Pod fields other than labels and containers | set by the scheduler, the node and admission |
//! | `deployment.kubernetes.io/revision` | counts the changes |
//! | empty values | mean the same as missing ones |

mod changes;

use std::collections::BTreeMap;

use kube_client::api::{DeleteParams, ListParams, PostParams};
use kube_client::core::CustomResourceExt;
use macro_rules_attribute::apply;
use serde_json::{Value, json};
use windlass::api::appservice::v1alpha1::AppService;
use windlass::api::myapp::v1::Myapp;
use windlass::api::redis::v1::Redis;
use windlass::api::samplecontroller::v1alpha1::Foo;
use windlass::api::webapp::v1::WebApp;

use self::changes::{Change, changes};
use crate::support::{Bed, Scene, both_beds, condition_of, is_ready, number, seed, wait_until};

/// The name of the case's object.
const NAME: &str = "web";
/// The number of chains for each kind, and their length.
const CHAINS: usize = 12;
const LENGTH: usize = 5;
/// The most replicas that a case creates; larger values are only checked by a dry run.
const PODS_MAX: i64 = 20;

/// Changes without effect on children: suffix of the field (`*` for a list index), kind of change (empty for any), and
/// reason.
const MEAN_NOTHING: [(&str, &str, &str); 3] = [
    ("/fieldRef/apiVersion", "", "v1 is the default and the only valid value"),
    ("/*/value", "minimum", "a missing value equals an empty one"),
    ("/ports", "turned around", "ports are identified by number and protocol"),
];

/// The children of the case's object, by kind and name.
type World = BTreeMap<String, Value>;

/// A kind, the schema of its spec, and a spec that sets every field.
struct Subject {
    kind: &'static str,
    schema: Value,
    spec: Value,
}

impl Subject {
    fn new<K: CustomResourceExt>(spec: Value) -> Self {
        let crd = serde_json::to_value(K::crd()).expect("a CRD serializes");
        let schema = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"].clone();
        let kind = match K::crd_name() {
            "foos.samplecontroller.k8s.io" => "Foo",
            "myapps.myapp.timd.cn" => "Myapp",
            "appservices.batch.schwarzeni.github.com" => "AppService",
            "redis.myapp.tangx.in" => "Redis",
            _ => "WebApp",
        };
        Self { kind, schema, spec }
    }

    fn foo() -> Self {
        Self::new::<Foo>(json!({"deploymentName": "web", "replicas": 2}))
    }

    fn redis() -> Self {
        Self::new::<Redis>(json!({"replicas": 2, "port": 6379, "image": "redis:7.4"}))
    }

    fn webapp() -> Self {
        Self::new::<WebApp>(json!({"replicas": 2, "version": "1.27", "image": "library/nginx"}))
    }

    fn myapp() -> Self {
        Self::new::<Myapp>(
            json!({"replicas": 2, "image": "nginx:1.27", "containerPort": 80, "servicePort": 8080,
            "host": "a.example.com", "resources": resources(), "env": environment()}),
        )
    }

    fn appservice() -> Self {
        let ports = json!([
            {"name": "a", "protocol": "TCP", "port": 80, "targetPort": "web", "appProtocol": "http"},
            {"name": "b", "protocol": "UDP", "port": 53, "targetPort": 5353},
        ]);
        Self::new::<AppService>(json!({"replicas": 2, "image": "nginx:1.27", "ports": ports,
            "resources": resources(), "envs": environment()}))
    }
}

fn resources() -> Value {
    json!({"limits": {"cpu": "20m", "memory": "20Mi"}, "requests": {"cpu": "10m", "memory": "10Mi"}})
}

fn environment() -> Value {
    json!([
        {"name": "A", "value": "b"},
        {"name": "B", "valueFrom": {"configMapKeyRef": {"name": "m", "key": "k", "optional": true}}},
        {"name": "C", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k", "optional": true}}},
        {"name": "D", "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.name"}}},
        {"name": "E", "valueFrom": {"resourceFieldRef":
            {"containerName": "web", "resource": "limits.memory", "divisor": "1Mi"}}},
    ])
}

// --- changes ---

/// Replaces the object's spec, retrying on conflicts; returns code and message of a refusal.
async fn store(scene: &Scene, kind: &str, spec: &Value, dry_run: bool) -> Result<Value, (u16, String)> {
    let how = PostParams { dry_run, ..PostParams::default() };
    loop {
        let mut object = scene.of(kind).get(NAME).await.expect("the object can be read");
        object.data["spec"] = spec.clone();
        match scene.of(kind).replace(NAME, &how, &object).await {
            Ok(stored) => return Ok(serde_json::to_value(stored).expect("an object serializes")),
            Err(kube_client::Error::Api(status)) if status.code == 409 => {}
            Err(kube_client::Error::Api(status)) => return Err((status.code, status.message.clone())),
            Err(error) => panic!("{error}"),
        }
    }
}

fn is_stalled(object: &Value) -> bool {
    condition_of(object, "Stalled").is_some_and(|stalled| {
        stalled["status"] == "True" && stalled["observedGeneration"] == object["metadata"]["generation"]
    })
}

/// Waits until the object is Ready or Stalled at its current generation.
async fn settled(scene: &Scene, kind: &str) -> Value {
    scene.until(kind, NAME, "is settled", |object| is_ready(object) || is_stalled(object)).await
}

// --- observations ---

/// Removes empty values recursively.
fn without_empty(value: &Value) -> Value {
    let is_there = |value: &Value| !(value.is_null() || *value == json!({}) || *value == json!([]));
    match value {
        Value::Object(members) => members
            .iter()
            .map(|(key, value)| (key.clone(), without_empty(value)))
            .filter(|(_, value)| is_there(value))
            .collect(),
        Value::Array(items) => items.iter().map(without_empty).collect(),
        other => other.clone(),
    }
}

/// Returns the object's children, masked as the module's table says.
async fn world(scene: &Scene, object: &Value) -> World {
    let mut world = World::new();
    for kind in ["Deployment", "Service", "Ingress", "Pod"] {
        let all = scene.of(kind).list(&ListParams::default()).await.expect("the kind can be listed");
        for child in all.items.iter().map(|child| serde_json::to_value(child).expect("a child serializes")) {
            let meta = &child["metadata"];
            let is_ours = meta["ownerReferences"][0]["uid"] == object["metadata"]["uid"];
            if !is_ours || !meta["deletionTimestamp"].is_null() {
                continue;
            }
            let spec = if kind == "Pod" { pod_spec(&child["spec"]) } else { child["spec"].clone() };
            let mut annotations = meta["annotations"].clone();
            if let Some(annotations) = annotations.as_object_mut() {
                annotations.remove("deployment.kubernetes.io/revision");
            }
            let seen = json!({"labels": meta["labels"], "annotations": annotations, "spec": spec});
            let name = meta["name"].as_str().expect("a child has a name");
            world.insert(format!("{kind} {name}"), without_empty(&seen));
        }
    }
    world
}

fn pod_spec(spec: &Value) -> Value {
    let ours = ["name", "image", "ports", "env", "resources", "imagePullPolicy"];
    let containers = spec["containers"].as_array().expect("a Pod has containers").iter();
    containers
        .map(|container| ours.map(|key| (key, container[key].clone())).into_iter().collect::<Value>())
        .collect()
}

/// Removes values that the server allocates, and sorts ports, whose order has no meaning.
fn without_allocated(mut world: World) -> World {
    for child in world.values_mut() {
        let Some(spec) = child["spec"].as_object_mut() else { continue };
        spec.retain(|key, _| key != "clusterIP" && key != "clusterIPs");
        let template = spec.get_mut("template").and_then(|template| template.pointer_mut("/spec/containers"));
        for container in template.and_then(Value::as_array_mut).into_iter().flatten() {
            if let Some(ports) = container.get_mut("ports").and_then(Value::as_array_mut) {
                ports.sort_by_key(ToString::to_string);
            }
        }
        let Some(ports) = spec.get_mut("ports").and_then(Value::as_array_mut) else { continue };
        for port in ports.iter_mut() {
            port.as_object_mut().expect("a port has members").remove("nodePort");
        }
        ports.sort_by_key(|port| format!("{}/{}", port["port"], port["protocol"]));
    }
    world
}

// --- cases ---

/// Creates a scene with the object and waits until it is Ready; returns `None` if the case is not to run on this bed.
async fn start(subject: &Subject) -> Option<Scene> {
    let bed = Bed::shared().await;
    if matches!(bed, Bed::Real(_)) && number("WINDLASS_OPERATIONS_ON_REAL", 0) == 0 {
        return None;
    }
    let mut scene = Scene::on(bed, "operations").await;
    scene.start_operator();
    scene.make(subject.kind, NAME, subject.spec.clone()).await;
    scene.until_ready(subject.kind, NAME).await;
    Some(scene)
}

fn is_costly(change: &Change) -> bool {
    change.path == "/replicas"
        && change.value.as_ref().and_then(Value::as_i64).is_some_and(|count| count > PODS_MAX)
}

/// The outcome of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// The change shows in a child or a condition.
    Shows,
    /// The server refuses the change, or the stored spec stays the same.
    Nothing,
    /// The spec has changed, but no child has.
    Silent,
}

/// Applies one change and reverts it.
async fn there_and_back(scene: &Scene, subject: &Subject, change: &Change, before: &World) -> End {
    let kind = subject.kind;
    let stored = store(scene, kind, &change.on(&subject.spec), is_costly(change)).await;
    assert!(!(change.is_wrong && stored.is_ok()), "{kind} {change} must be refused");
    let stored = match stored {
        Ok(stored) => stored,
        Err((code, message)) => {
            assert!([400, 422].contains(&code) && !message.is_empty(), "{kind} {change}: {code} {message}");
            return End::Nothing;
        }
    };
    if is_costly(change) {
        return End::Nothing;
    }
    let after = settled(scene, kind).await;
    let shows = is_stalled(&after) || world(scene, &after).await != *before;
    store(scene, kind, &subject.spec, false).await.expect("the original spec is valid");
    let back = scene.until_ready(kind, NAME).await;
    let (now, then) = (without_allocated(world(scene, &back).await), without_allocated(before.clone()));
    assert_eq!(now, then, "{kind} {change}, reverted");
    match (shows, stored["spec"] != back["spec"]) {
        (true, _) => End::Shows,
        (false, true) => End::Silent,
        (false, false) => End::Nothing,
    }
}

fn means_nothing(field: &str, what: &str) -> bool {
    MEAN_NOTHING.iter().any(|(known, how, _)| field.ends_with(known) && (how.is_empty() || *how == what))
}

async fn each_field(subject: Subject) {
    let Some(scene) = start(&subject).await else { return };
    let object = scene.look(subject.kind, NAME).await.expect("the object exists");
    let mut before = world(&scene, &object).await;
    let mut fields: BTreeMap<String, bool> = BTreeMap::new();
    let mut silent = Vec::new();
    for change in changes(&subject.schema, &subject.spec) {
        let end = there_and_back(&scene, &subject, &change, &before).await;
        let is_known = means_nothing(&change.field(), change.what);
        if end == End::Silent && !is_known {
            silent.push(change.to_string());
        }
        *fields.entry(change.field()).or_default() |= end == End::Shows;
        // The server may have allocated new values.
        before = world(&scene, &object).await;
    }
    assert_eq!(silent, Vec::<String>::new(), "these changes were accepted but show nowhere");
    // A field also counts as shown if a field inside it shows.
    let shows = |field: &str| fields.iter().any(|(known, shows)| *shows && known.starts_with(field));
    let silent = fields.iter().filter(|(field, _)| !shows(field) && !means_nothing(field, ""));
    let silent: Vec<&String> = silent.map(|(field, _)| field).collect();
    assert_eq!(silent, Vec::<&String>::new(), "no value of these fields showed in a child");
}

async fn in_chains(subject: Subject) {
    let Some(scene) = start(&subject).await else { return };
    let kind = subject.kind;
    let object = scene.look(kind, NAME).await.expect("the object exists");
    let before = without_allocated(world(&scene, &object).await);
    let mut random = fastrand::Rng::with_seed(seed());
    for _ in 0..CHAINS {
        let (mut spec, mut made) = (subject.spec.clone(), Vec::new());
        while made.len() < LENGTH {
            let all = changes(&subject.schema, &spec);
            let change = &all[random.usize(0..all.len())];
            // Skip most of the changes that are refused, as they do not alter the spec.
            if is_costly(change) || change.is_wrong && random.u8(0..5) > 0 {
                continue;
            }
            made.push(change.to_string());
            if store(&scene, kind, &change.on(&spec), false).await.is_ok() {
                spec = change.on(&spec);
            }
        }
        let end = settled(&scene, kind).await;
        let after_chain = without_allocated(world(&scene, &end).await);
        if !is_stalled(&end) {
            let fresh = create_fresh(&scene, kind, &spec).await;
            assert_eq!(after_chain, without_allocated(fresh), "{kind} {made:#?}: chain, fresh object");
        }
        store(&scene, kind, &subject.spec, false).await.expect("the original spec is valid");
        let back = scene.until_ready(kind, NAME).await;
        assert_eq!(without_allocated(world(&scene, &back).await), before, "{kind} {made:#?}, reverted");
    }
}

/// Deletes the object, creates it again with this spec, and returns its children.
async fn create_fresh(scene: &Scene, kind: &str, spec: &Value) -> World {
    scene.unmake(kind, NAME, DeleteParams::background()).await;
    scene.until_gone(kind, NAME).await;
    for child in ["Deployment", "Service", "Ingress", "Pod"] {
        wait_until(&format!("each {child} is gone"), async || {
            let left = scene.names(child).await;
            if left.is_empty() { Ok(()) } else { Err(left) }
        })
        .await;
    }
    scene.make(kind, NAME, spec.clone()).await;
    let object = settled(scene, kind).await;
    world(scene, &object).await
}

#[apply(both_beds)]
async fn foo_field_changes_take_effect_and_revert() {
    each_field(Subject::foo()).await;
}

#[apply(both_beds)]
async fn myapp_field_changes_take_effect_and_revert() {
    each_field(Subject::myapp()).await;
}

#[apply(both_beds)]
async fn appservice_field_changes_take_effect_and_revert() {
    each_field(Subject::appservice()).await;
}

#[apply(both_beds)]
async fn redis_field_changes_take_effect_and_revert() {
    each_field(Subject::redis()).await;
}

#[apply(both_beds)]
async fn foo_change_chains_converge_and_revert() {
    in_chains(Subject::foo()).await;
}

#[apply(both_beds)]
async fn myapp_change_chains_converge_and_revert() {
    in_chains(Subject::myapp()).await;
}

#[apply(both_beds)]
async fn appservice_change_chains_converge_and_revert() {
    in_chains(Subject::appservice()).await;
}

#[apply(both_beds)]
async fn redis_change_chains_converge_and_revert() {
    in_chains(Subject::redis()).await;
}

#[apply(both_beds)]
async fn webapp_field_changes_take_effect_and_revert() {
    each_field(Subject::webapp()).await;
}

#[apply(both_beds)]
async fn webapp_change_chains_converge_and_revert() {
    in_chains(Subject::webapp()).await;
}
