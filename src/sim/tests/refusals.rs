//! Invalid objects are refused with a real server's messages. `tests/e2e/fidelity` sends the same to both.

use super::*;

/// Creates a Deployment with `change` merged in, which must be refused for exactly the expected causes.
async fn refused(change: &Value, expected: &[(&str, &str, &str)]) {
    let bed = Bed::new();
    let mut sent = deployment("web", 1);
    json_patch::merge(&mut sent, change);
    let refused = bed.call("POST", DEPLOYMENTS, sent).await;
    assert_eq!(reason(&refused), (422, "Invalid"), "{}", refused.1);
    let causes = refused.1["details"]["causes"].as_array().unwrap();
    let text = |cause: &Value, key: &str| cause[key].as_str().unwrap().to_owned();
    let causes: Vec<_> =
        causes.iter().map(|c| (text(c, "field"), text(c, "reason"), text(c, "message"))).collect();
    let causes: Vec<_> = causes.iter().map(|(a, b, c)| (a.as_str(), b.as_str(), c.as_str())).collect();
    assert_eq!(causes, expected);
}

fn pod(change: &Value) -> Value {
    json!({"spec": {"template": {"spec": change}}})
}

fn container(change: &Value) -> Value {
    let mut container = json!({"name": "c", "image": "nginx"});
    json_patch::merge(&mut container, change);
    pod(&json!({"containers": [container]}))
}

const CONTAINER: &str = "spec.template.spec.containers[0]";

#[tokio::test(start_paused = true)]
async fn a_variable_has_a_value_or_one_source() {
    let field = format!("{CONTAINER}.env[0].valueFrom");
    let by_field = json!({"fieldPath": "metadata.name"});
    let by_key = json!({"name": "m", "key": "k"});
    for (variable, words) in [
        (
            json!({"name": "A", "value": "x", "valueFrom": {"fieldRef": by_field}}),
            "may not be specified when `value` is not empty",
        ),
        (
            json!({"name": "A", "valueFrom": {"fieldRef": by_field, "configMapKeyRef": by_key}}),
            "may not have more than one field specified at a time",
        ),
        (
            json!({"name": "A", "valueFrom": {}}),
            "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or `fileKeyRef`",
        ),
    ] {
        let message = format!("Invalid value: \"\": {words}");
        refused(&container(&json!({"env": [variable]})), &[(&field, "FieldValueInvalid", &message)]).await;
    }
}

#[tokio::test(start_paused = true)]
async fn mount_without_volume_is_refused() {
    let mounts =
        json!({"volumeMounts": [{"name": "v", "mountPath": "/a"}, {"name": "w", "mountPath": "/a"}]});
    let mut change = container(&mounts);
    change["spec"]["template"]["spec"]["volumes"] = json!([{"name": "w"}]);
    let field = |name: &str| format!("{CONTAINER}.volumeMounts{name}");
    let expected = [
        (&*field("[0].name"), "FieldValueNotFound", "Not found: \"v\""),
        (&*field("[1].mountPath"), "FieldValueInvalid", "Invalid value: \"/a\": must be unique"),
    ];
    refused(&change, &expected).await;
}

#[tokio::test(start_paused = true)]
async fn a_volume_has_one_type() {
    let volumes = json!([{"name": "v", "emptyDir": {}, "configMap": {"name": "m"}}]);
    let words = "Forbidden: may not specify more than 1 volume type";
    let expected = [("spec.template.spec.volumes[0].configMap", "FieldValueForbidden", words)];
    refused(&pod(&json!({"volumes": volumes})), &expected).await;
    let bed = Bed::new();
    let mut plain = deployment("web", 1);
    json_patch::merge(&mut plain, &pod(&json!({"volumes": [{"name": "v"}]})));
    let made = bed.ok("POST", DEPLOYMENTS, plain).await;
    assert_eq!(made["spec"]["template"]["spec"]["volumes"], json!([{"name": "v", "emptyDir": {}}]));
}

#[tokio::test(start_paused = true)]
async fn a_probe_has_one_handler() {
    let required = "Required value: must specify a handler type";
    let forbidden = "Forbidden: may not specify more than 1 handler type";
    let two = json!({"exec": {"command": ["true"]}, "tcpSocket": {"port": 80}});
    let change = container(&json!({"livenessProbe": {"periodSeconds": 3}, "readinessProbe": two,
        "lifecycle": {"preStop": {}}}));
    let field = |name: &str| format!("{CONTAINER}.{name}");
    let expected = [
        (&*field("lifecycle.preStop"), "FieldValueRequired", required),
        (&*field("livenessProbe"), "FieldValueRequired", required),
        (&*field("readinessProbe.tcpSocket"), "FieldValueForbidden", forbidden),
    ];
    refused(&change, &expected).await;
}

#[tokio::test(start_paused = true)]
async fn an_init_container_has_no_probe() {
    let init = json!({"name": "i", "image": "nginx", "livenessProbe": {"tcpSocket": {"port": 80}}});
    let field = "spec.template.spec.initContainers[0].livenessProbe";
    let words = "Forbidden: may not be set for init containers without restartPolicy=Always";
    refused(&pod(&json!({"initContainers": [init]})), &[(field, "FieldValueForbidden", words)]).await;
}

#[tokio::test(start_paused = true)]
async fn an_unknown_dns_policy_is_refused() {
    let field = "spec.template.spec.dnsPolicy";
    let words = "Unsupported value: \"Other\": supported values: \"ClusterFirstWithHostNet\", \"ClusterFirst\", \
        \"Default\", \"None\"";
    refused(&pod(&json!({"dnsPolicy": "Other"})), &[(field, "FieldValueNotSupported", words)]).await;
    let field = "spec.template.spec.dnsConfig";
    let words = "Required value: must provide `dnsConfig` when `dnsPolicy` is None";
    refused(&pod(&json!({"dnsPolicy": "None"})), &[(field, "FieldValueRequired", words)]).await;
}

#[tokio::test(start_paused = true)]
async fn surge_and_unavailable_are_not_both_zero() {
    let field = "spec.strategy.rollingUpdate.maxUnavailable";
    for (unavailable, shown) in [(json!(0), "0"), (json!("0%"), "\"0%\"")] {
        let rolling = json!({"maxSurge": 0, "maxUnavailable": unavailable});
        let words = format!("Invalid value: {shown}: may not be 0 when `maxSurge` is 0");
        let change = json!({"spec": {"strategy": {"rollingUpdate": rolling}}});
        refused(&change, &[(field, "FieldValueInvalid", &words)]).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_progress_deadline_exceeds_min_ready_seconds() {
    let field = "spec.progressDeadlineSeconds";
    for (change, deadline) in [
        (json!({"minReadySeconds": 600}), 600),
        (json!({"minReadySeconds": 9, "progressDeadlineSeconds": 5}), 5),
    ] {
        let words = format!("Invalid value: {deadline}: must be greater than minReadySeconds");
        refused(&json!({"spec": change}), &[(field, "FieldValueInvalid", &words)]).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_finalizer_without_a_domain_is_refused() {
    let words =
        "Invalid value: \"hold\": name is neither a standard finalizer name nor is it fully qualified";
    let change = json!({"metadata": {"finalizers": ["orphan", "hold"]}});
    refused(&change, &[("metadata.finalizers[1]", "FieldValueInvalid", words)]).await;
}

/// A real server, too, only warns.
#[tokio::test(start_paused = true)]
async fn custom_finalizer_without_domain_gets_a_warning() {
    let bed = Bed::new();
    bed.define_foos().await;
    let mut held = foo("a");
    held["metadata"]["finalizers"] = json!(["hold"]);
    let response = bed.send("POST", FOOS, "application/json", held.to_string().into_bytes()).await.unwrap();
    let warning = response.headers()["warning"].to_str().unwrap().to_owned();
    assert!(warning.contains("prefer a domain-qualified finalizer name to avoid"), "{warning}");
    let patch = json!({"spec": {"replicas": 2}}).to_string().into_bytes();
    let path = format!("{FOOS}/a");
    let again = bed.send("PATCH", &path, "application/merge-patch+json", patch).await.unwrap();
    assert_eq!((again.status().as_u16(), again.headers().get("warning")), (200, None), "only new ones warn");
}
