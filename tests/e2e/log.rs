//! The operator's log: one line per change of state, none without one, each a JSON object with the documented fields.

use std::collections::BTreeMap;

use jiff::Timestamp;
use kube_client::api::DeleteParams;
use macro_rules_attribute::apply;
use serde_json::{Value, json};

use crate::dry_run::one_of_each;
use crate::support::canary::{CANARY, clean};
use crate::support::{Bed, Scene, both_beds, no_bed, real_bed, wait_until};

/// Makes an object of each kind, and waits until all are Ready and nothing happens any more.
async fn converge(scene: &Scene) {
    for (kind, spec) in one_of_each() {
        scene.make(kind, &kind.to_lowercase(), spec).await;
    }
    for (kind, _) in one_of_each() {
        scene.until_ready(kind, &kind.to_lowercase()).await;
    }
    scene.rest_for_a_while().await;
}

/// Returns the lines of a text log at level info and above.
fn at_info(log: &str) -> Vec<String> {
    let is_at_info = |line: &&str| [" INFO ", " WARN ", " ERROR "].iter().any(|level| line.contains(level));
    log.lines().filter(is_at_info).map(str::to_owned).collect()
}

#[apply(both_beds)]
async fn a_converged_operator_logs_nothing_at_info() {
    let scene = Scene::new("log-quiet").await;
    converge(&scene).await;
    let before = at_info(&scene.operator().log());
    assert!(before.iter().any(|line| line.contains("Created child")), "{before:#?}");
    scene.rest().await;
    let after = at_info(&scene.operator().log());
    assert_eq!(after[before.len()..], Vec::<String>::new());
}

#[apply(both_beds)]
async fn each_change_of_state_is_one_line() {
    let scene = Scene::new("log-change").await;
    converge(&scene).await;
    let before = at_info(&scene.operator().log()).len();
    scene.foreign_deployment("taken", json!({})).await;
    scene.change("Foo", "foo", json!({"spec": {"deploymentName": "taken"}})).await;
    scene.until_reason("Foo", "foo", "ResourceExists").await;
    scene.rest().await;
    let stalled = at_info(&scene.operator().log()).split_off(before);
    let count = |lines: &[String], text: &str| lines.iter().filter(|line| line.contains(text)).count();
    assert_eq!((stalled.len(), count(&stalled, "Stalled")), (1, 1), "{stalled:#?}");

    let before = before + stalled.len();
    scene.change("Foo", "foo", json!({"spec": {"deploymentName": "free"}})).await;
    scene.until_ready("Foo", "foo").await;
    scene.until_gone("Deployment", "foo").await;
    scene.rest_for_a_while().await;
    let ready = at_info(&scene.operator().log()).split_off(before);
    for text in ["Created child", "Deleted child", "Became Ready"] {
        assert_eq!(count(&ready, text), 1, "{text}: {ready:#?}");
    }
    assert_eq!(ready.len(), 3, "{ready:#?}");
}

/// Asserts that a line has the fields that docs/operating.md promises, and returns its message.
fn message_of(line: &str) -> (String, Value) {
    let parsed: Value = serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
    let text = |field: &str| {
        let found = parsed[field].as_str();
        found.unwrap_or_else(|| panic!("no {field} in {line}")).to_owned()
    };
    let timestamp: Timestamp = text("timestamp").parse().unwrap();
    assert!(timestamp > Timestamp::UNIX_EPOCH && text("timestamp").ends_with('Z'), "{line}");
    assert!(["INFO", "WARN", "ERROR"].contains(&text("level").as_str()), "{line}");
    assert!(!text("target").is_empty(), "{line}");
    if let Some(span) = parsed.get("span").filter(|span| span["name"] == "sync") {
        for field in ["controller", "object", "why"] {
            assert!(span[field].is_string(), "no span.{field} in {line}");
        }
    }
    (text("message"), parsed)
}

#[apply(real_bed)]
#[why = "on the embedded bed the operator logs into the test's log, as text"]
async fn json_lines_have_the_documented_fields() {
    let mut scene = Scene::on(Bed::shared().await, "log-json").await;
    scene.start_operator_with(&["--log-format=json", "--log-level=info"]);
    converge(&scene).await;
    scene.unmake("Redis", "redis", DeleteParams::background()).await;
    scene.until_gone("Redis", "redis").await;
    wait_until("the deletion is logged", async || {
        let log = scene.operator().log();
        if log.contains("Deletion is complete") { Ok(()) } else { Err(log) }
    })
    .await;
    let mut ready = BTreeMap::<String, usize>::new();
    for (message, line) in scene.operator().log().lines().map(message_of) {
        let of_pass = ["Became Ready", "Is no longer Ready", "Created child", "Deletion is complete"];
        if of_pass.contains(&message.as_str()) {
            assert_eq!(line["span"]["name"], "sync", "{line}");
        }
        if message == "Became Ready" {
            assert!(line["reason"].is_string() && line["note"].is_string(), "{line}");
            *ready.entry(line["span"]["object"].as_str().unwrap().to_owned()).or_default() += 1;
        }
    }
    let all = one_of_each().map(|(kind, _)| (format!("{}/{}", scene.namespace, kind.to_lowercase()), 1));
    assert_eq!(ready, BTreeMap::from(all), "each object becomes Ready once");
}

/// I17: the secret that every case's objects have reaches the children, and none of the operator's words about them.
#[apply(both_beds)]
async fn planted_secret_reaches_children_alone() {
    let scene = Scene::new("log-secret").await;
    let app = json!({"replicas": 1, "image": "nginx", "ports": [{"port": 80}]});
    scene.make("AppService", "secret", app).await;
    converge(&scene).await;
    scene.until_ready("AppService", "secret").await;
    for (kind, deployment) in [("Myapp", "myapp"), ("AppService", "secret")] {
        let made = scene.look("Deployment", deployment).await.unwrap_or_else(|| panic!("no {deployment}"));
        assert!(made["spec"].to_string().contains(CANARY), "the environment of a {kind}: {made}");
    }
    // A change of a secret by hand is reverted, and told by the name of its field.
    let env = json!({"env": [{"name": "PASSWORD", "value": format!("{CANARY}-of-somebody-else")}]});
    let name = scene.look("Deployment", "myapp").await.unwrap()["spec"]["template"]["spec"]["containers"][0]
        ["name"]
        .clone();
    let mut container = env.clone();
    container["name"] = name;
    scene
        .patch_deployment("myapp", json!({"spec": {"template": {"spec": {"containers": [container]}}}}))
        .await;
    scene
        .until("Deployment", "myapp", "reverted", |deployment| {
            !deployment["spec"].to_string().contains("somebody")
        })
        .await;
    wait_until("the repair is told", async || {
        let events = scene.events_about("Myapp", "myapp").await;
        if events.iter().any(|(reason, _)| reason == "ChildRepaired") { Ok(()) } else { Err(events) }
    })
    .await;
    scene.dry_run(&[]).await.reports(0, &[]);
}

#[apply(no_bed)]
#[why = "it tests the check"]
async fn shown_secret_is_found() {
    let shown = std::panic::catch_unwind(|| clean("a text", format!("first line\nenv: {CANARY}\nlast")));
    let message = *shown.unwrap_err().downcast::<String>().unwrap();
    assert!(message.starts_with("a text shows a secret: env: "), "{message}");
    assert_eq!(clean("a text", "nothing".to_owned()), "nothing");
}
