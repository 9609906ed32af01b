use k8s_openapi::jiff::Timestamp;
use serde_json::json;

use super::*;

fn spec(image: &str, version: &str) -> WebAppSpec {
    WebAppSpec { version: version.to_owned(), replicas: 1, image: image.to_owned() }
}

#[test]
fn version_replaces_the_image_tag() {
    let cases = [
        ("nginx", "nginx:v1"),
        ("nginx:latest", "nginx:v1"),
        ("team/nginx:latest", "team/nginx:v1"),
        ("localhost:5000/nginx", "localhost:5000/nginx:v1"),
        ("localhost:5000/nginx:latest", "localhost:5000/nginx:v1"),
        ("registry.example.com/a/b:1", "registry.example.com/a/b:v1"),
        ("[::1]:5000/nginx:latest", "[::1]:5000/nginx:v1"),
        ("nginx@sha256:0123", "nginx:v1"),
        ("nginx:latest@sha256:0123", "nginx:v1"),
    ];
    for (image, expected) in cases {
        assert_eq!(image_reference(&spec(image, "v1")), expected, "{image}");
    }
}

#[test]
fn a_status_is_written_as_documented() {
    let status = WebAppStatus {
        available_replicas: 1,
        conditions: vec![WebAppCondition {
            condition: Condition {
                type_: "Ready".to_owned(),
                status: "True".to_owned(),
                reason: "Available".to_owned(),
                message: "1 of 1 replicas are available".to_owned(),
                observed_generation: Some(2),
                last_transition_time: Time(Timestamp::UNIX_EPOCH),
            },
            phase: Some(Phase::Succeeded),
        }],
        steps: vec![WebAppStep {
            name: "prepare".to_owned(),
            phase: Phase::Undoing,
            hook: Some(Hook::PreDelete),
            operation_id: "an-id".to_owned(),
            generation: 2,
            attempts: 1,
            started_at: Some(Time(Timestamp::UNIX_EPOCH)),
            ..WebAppStep::default()
        }],
        ..WebAppStatus::default()
    };
    let written = json!({
        "availableReplicas": 1,
        "replicas": 0,
        "conditions": [{
            "type": "Ready", "status": "True", "reason": "Available", "message": "1 of 1 replicas are available",
            "observedGeneration": 2, "lastTransitionTime": "1970-01-01T00:00:00Z", "phase": "Succeeded"}],
        "steps": [{"name": "prepare", "phase": "Undoing", "hook": "pre_delete", "operationID": "an-id",
            "generation": 2, "attempts": 1, "startedAt": "1970-01-01T00:00:00Z"}],
    });
    assert_eq!(serde_json::to_value(&status).unwrap(), written);
    assert_eq!(serde_json::from_value::<WebAppStatus>(written).unwrap(), status);
}

#[test]
fn a_hook_is_spelled_the_same_everywhere() {
    let all: Vec<Hook> = Hook::CREATION.into_iter().chain(Hook::DELETION).collect();
    assert!(all.is_sorted());
    for hook in all {
        assert_eq!(serde_json::to_value(hook).unwrap(), json!(hook.as_str()));
        assert_eq!(hook.is_undo(), Hook::DELETION.contains(&hook));
    }
}

/// Tests on the embedded server, which enforces CRD schemas like a real one.
#[cfg(feature = "sim")]
mod on_a_server {
    use kube_core::CustomResourceExt;
    use serde_json::{Value, json};

    use super::super::WebApp;
    use crate::api::ApiResource;
    use crate::client::ApiClient;
    use crate::sim::{InProcessTransport, Settings, Sim};

    const DEFINITIONS: ApiResource = ApiResource::new(
        "apiextensions.k8s.io",
        "v1",
        "CustomResourceDefinition",
        "customresourcedefinitions",
    );

    async fn create(client: &ApiClient, name: &str, spec: &Value) -> Result<Value, String> {
        let object = json!({"apiVersion": "jiajunhuang.com/v1", "kind": "WebApp", "metadata": {"name": name}, "spec": spec});
        let webapps = ApiResource::of::<WebApp>();
        let created: Result<Value, _> = client.create(&webapps, Some("default"), &object).await;
        created.map_err(|error| error.to_string())
    }

    async fn check_all(client: &ApiClient) {
        let label = |length: usize| "a".repeat(length);
        let full = |version: &str, replicas: i64, image: &str| json!({"version": version, "replicas": replicas, "image": image});
        let inside = [
            ("a".to_owned(), json!({"version": "v", "replicas": 0})),
            (label(63), json!({"version": label(128), "replicas": i32::MAX})),
            ("b-0".to_owned(), full("stable-alpine3.20-perl", 1, "nginx:latest")),
            ("c".to_owned(), full("_1.2-3", 1, "localhost:5000/team/my_app__x:latest")),
            ("d".to_owned(), full("1", 1, "registry.example.com/a-b.c/d")),
            ("e".to_owned(), full("1", 1, "[::1]:5000/nginx")),
            ("f".to_owned(), full("1", 1, &label(1000))),
        ];
        for (name, spec) in inside {
            let created =
                create(client, &name, &spec).await.unwrap_or_else(|error| panic!("{spec}: {error}"));
            let image = spec.get("image").cloned().unwrap_or(json!("nginx"));
            assert_eq!(created["spec"]["image"], image);
        }
        let outside = [
            ("x", json!({"replicas": 1}), "spec.version"),
            ("x", json!({"version": "1"}), "spec.replicas"),
            ("x", json!({"version": "", "replicas": 1}), "spec.version"),
            ("x", json!({"version": label(129), "replicas": 1}), "spec.version"),
            ("x", json!({"version": ".1", "replicas": 1}), "spec.version"),
            ("x", json!({"version": "-1", "replicas": 1}), "spec.version"),
            ("x", json!({"version": "1 2", "replicas": 1}), "spec.version"),
            ("x", json!({"version": "a:b", "replicas": 1}), "spec.version"),
            ("x", json!({"version": 1, "replicas": 1}), "spec.version"),
            ("x", json!({"version": "1", "replicas": -1}), "spec.replicas"),
            ("x", json!({"version": "1", "replicas": "1"}), "spec.replicas"),
            ("x", full("1", 1, ""), "spec.image"),
            ("x", full("1", 1, &label(1001)), "spec.image"),
            ("x", full("1", 1, "Nginx Latest"), "spec.image"),
            ("x", full("1", 1, "https://example.com/nginx"), "spec.image"),
            ("x", full("1", 1, "nginx:"), "spec.image"),
            ("a.b", json!({"version": "1", "replicas": 1}), "metadata.name must be a DNS label"),
            (&label(64), json!({"version": "1", "replicas": 1}), "metadata.name must be a DNS label"),
        ];
        for (name, spec, field) in outside {
            let refusal = create(client, name, &spec).await.expect_err("the value is out of bounds");
            assert!(refusal.contains(field), "{spec}: {field} is not in: {refusal}");
        }
        let digest = format!("nginx@sha256:{}", "0".repeat(64));
        let refusal = create(client, "x", &full("1", 1, &digest)).await.expect_err("a digest is refused");
        for part in ["spec.image", &digest, "remove the @"] {
            assert!(refusal.contains(part), "{part} is not in: {refusal}");
        }
        assert!(!refusal.contains("should match"), "one cause, not two: {refusal}");
    }

    #[tokio::test(start_paused = true)]
    async fn schema_enforces_each_bound() {
        let sim = Sim::new(Settings::default());
        let client =
            ApiClient::new(kube_client::Client::new(InProcessTransport::new(&sim, "user"), "default"));
        let test = async {
            let crd = serde_json::to_value(WebApp::crd()).unwrap();
            let _: Value = client.create(&DEFINITIONS, None, &crd).await.unwrap();
            tokio::time::sleep(std::time::Duration::from_secs(2)).await;
            check_all(&client).await;
        };
        tokio::select! { () = test => {}, () = sim.run() => unreachable!("the sim runs until it is dropped") }
    }
}
