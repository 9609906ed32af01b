//! Compares the causes of refused Deployments word for word.

use macro_rules_attribute::apply;
use serde_json::{Value, json};

use super::kinds::KINDS;
use super::{Said, Servers, Side, json_merge};
use crate::support::real_bed;

/// Returns a merge patch of the Pod template's spec.
pub(super) fn pod(pod: &Value) -> Value {
    json!({"spec": {"template": {"spec": pod}}})
}

/// Returns a merge patch of the template's container.
pub(super) fn container(extra: &Value) -> Value {
    let mut container = json!({"name": "c", "image": "nginx:1.25"});
    json_merge(&mut container, extra);
    pod(&json!({"containers": [container]}))
}

/// Returns merge patches that make a Deployment invalid.
pub(super) fn refused_deployments() -> Vec<Value> {
    let spec = |spec: Value| json!({"spec": spec});
    let rolling = |rolling: Value| spec(json!({"strategy": {"rollingUpdate": rolling}}));
    let env = |variable: Value| container(&json!({"env": [variable]}));
    let (by_field, by_key) = (json!({"fieldPath": "metadata.name"}), json!({"name": "m", "key": "k"}));
    let by_port = json!({"port": 80});
    let mounted = |volume: Value| {
        let mut change = container(&json!({"volumeMounts": [{"name": "v", "mountPath": "/v"}]}));
        change["spec"]["template"]["spec"]["volumes"] = json!([volume]);
        change
    };
    vec![
        env(json!({"name": "A", "value": "b", "valueFrom": {"fieldRef": by_field}})),
        env(json!({"name": "A", "valueFrom": {"fieldRef": by_field, "configMapKeyRef": by_key}})),
        env(json!({"name": "A", "valueFrom": {}})),
        container(&json!({"volumeMounts": [{"name": "none", "mountPath": "/a"}]})),
        container(&json!({"volumeMounts": [{"mountPath": "/a"}, {"name": "none", "mountPath": "/a"}]})),
        mounted(json!({"name": "v", "emptyDir": {}, "configMap": {"name": "m"}})),
        mounted(json!({"name": "v", "downwardAPI": {}, "emptyDir": {}})),
        container(&json!({"livenessProbe": {"periodSeconds": 3}})),
        container(&json!({"readinessProbe": {"exec": {"command": ["true"]}, "tcpSocket": by_port}})),
        container(&json!({"lifecycle": {"preStop": {}}})),
        pod(
            &json!({"initContainers": [{"name": "i", "image": "nginx", "startupProbe": {"tcpSocket": by_port}}]}),
        ),
        pod(&json!({"dnsPolicy": "Other"})),
        pod(&json!({"dnsPolicy": "None"})),
        pod(&json!({"dnsPolicy": "None", "dnsConfig": {"searches": ["a"]}})),
        rolling(json!({"maxSurge": 0, "maxUnavailable": 0})),
        rolling(json!({"maxSurge": 0, "maxUnavailable": "0%"})),
        spec(json!({"minReadySeconds": 600})),
        spec(json!({"minReadySeconds": 9, "progressDeadlineSeconds": 5})),
        spec(json!({"progressDeadlineSeconds": -1})),
        spec(json!({"revisionHistoryLimit": -1})),
    ]
}

/// Returns the causes of a refusal, sorted.
fn causes(said: &Said) -> Vec<Value> {
    let mut causes = said.body["details"]["causes"].as_array().cloned().unwrap_or_default();
    causes.sort_by_key(ToString::to_string);
    causes
}

#[apply(real_bed)]
#[why = "it compares the two servers"]
async fn refusal_causes_match_the_real_server() {
    let servers = Servers::start().await;
    let kind = KINDS.iter().find(|kind| kind.kind == "Deployment").expect("Deployment is in the table");
    let sides = [servers.real.clone(), servers.sim()];
    let sides = sides.map(|client| Side { client, namespace: "default".to_owned(), seen: Vec::new() });
    let path = kind.collection().replace("$ns", "default");
    let no_domain = json!({"metadata": {"finalizers": ["hold"]}});
    for change in refused_deployments().into_iter().chain([no_domain]) {
        let mut object = kind.valid("refused");
        json_merge(&mut object, &change);
        let mut said = Vec::new();
        for side in &sides {
            let answer = side.send("POST", &path, "application/json", object.to_string().into_bytes()).await;
            assert_eq!(answer.code, 422, "{change} {}", answer.body);
            said.push(causes(&answer));
        }
        assert_eq!(said[0], said[1], "{change}: real, embedded");
    }
}
