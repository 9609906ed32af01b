use std::convert::Infallible;
use std::sync::Arc;

use http::{Method, Request, Response};
use http_body_util::BodyExt;
use k8s_openapi::api::coordination::v1::Lease;
use kube_client::client::Body;
use tokio::task::JoinSet;

use serde_json::{Value, json};

use super::*;
use crate::api::ApiResource;
use crate::client::{ApiClient, Error};

const PODS: ApiResource = ApiResource::new("", "v1", "Pod", "pods");
const EVENTS: ApiResource = ApiResource::new("events.k8s.io", "v1", "Event", "events");

type Requests = Arc<Mutex<Vec<(Method, String, Value)>>>;

/// Returns a client in a dry run, whose server answers with this code and body, and the requests that it gets.
fn rig(code: u16, answer: &Value) -> (ApiClient, Requests) {
    let (requests, answer) = (Requests::default(), answer.to_string());
    let seen = requests.clone();
    let service = tower::service_fn(move |request: Request<Body>| {
        let (seen, answer) = (seen.clone(), answer.clone());
        async move {
            let (parts, body) = request.into_parts();
            let body = body.collect().await.unwrap().to_bytes();
            let body = serde_json::from_slice(&body).unwrap_or_default();
            seen.lock().push((parts.method, parts.uri.to_string(), body));
            Ok::<_, Infallible>(
                Response::builder().status(code).body(Body::from(answer.into_bytes())).unwrap(),
            )
        }
    });
    let client = ApiClient::new(kube_client::Client::new(service, "default")).with_dry_run();
    (client, requests)
}

#[tokio::test]
async fn every_write_of_a_dry_run_is_marked() {
    let (client, requests) = rig(200, &json!({"metadata": {}}));
    let (ns, object) = (Some("ns"), json!({"metadata": {"resourceVersion": "1"}}));
    client.create::<Value>(&PODS, ns, &object).await.unwrap();
    client.replace::<Value>(&PODS, ns, "a", &object).await.unwrap();
    client.patch_strategic::<Value>(&PODS, ns, "a", &object).await.unwrap();
    client.set_finalizers::<Value>(&PODS, (ns, "a"), ("u", "1"), &[]).await.unwrap();
    client.update_status::<Value>(&PODS, (ns, "a"), ("u", "1"), &json!({})).await.unwrap();
    client.annotate::<Value>(&PODS, (ns, "a"), "1", ("a", "b")).await.unwrap();
    client.delete(&PODS, ns, "a", "u", "1").await.unwrap();
    let requests = std::mem::take(&mut *requests.lock());
    let writes: Vec<_> = requests.iter().filter(|(method, ..)| *method != Method::GET).collect();
    assert_eq!((writes.len(), requests.len()), (7, 12), "each update reads the live object first");
    assert!(writes.iter().all(|(_, uri, _)| uri.contains("dryRun=All")), "{writes:#?}");
    // A server ignores the query of a delete that has a body.
    assert_eq!(writes[6].2["dryRun"], json!(["All"]));
    assert_eq!(writes[6].2["preconditions"]["uid"], "u");
    let reads = requests.iter().filter(|(method, ..)| *method == Method::GET);
    assert!(reads.into_iter().all(|(_, uri, _)| uri == "/api/v1/namespaces/ns/pods/a"));
}

#[tokio::test]
async fn a_dry_run_writes_no_events_or_leases() {
    let (client, requests) = rig(200, &json!({"metadata": {}}));
    let is_unsent = |error: Error| error.to_string().contains("a dry run writes no events");
    assert!(client.create_event(&EVENTS, "ns", &json!({})).await.is_err_and(is_unsent));
    assert!(client.patch_event(&EVENTS, "ns", "a", &json!({})).await.is_err_and(is_unsent));
    assert!(client.create_lease("ns", &Lease::default()).await.is_err_and(is_unsent));
    assert!(client.replace_lease("ns", "a", &Lease::default()).await.is_err_and(is_unsent));
    assert!(requests.lock().is_empty());
    assert!(client.get_lease("ns", "a").await.is_ok());
    client.may_get(Default::default(), "/metrics").await.unwrap();
    let methods: Vec<Method> = requests.lock().iter().map(|(method, ..)| method.clone()).collect();
    assert_eq!(methods, [Method::GET, Method::POST], "reads and reviews are real");
}

#[tokio::test]
async fn each_sync_has_its_own_effects() {
    let (client, _) = rig(200, &json!({"metadata": {}}));
    let mut passes = JoinSet::new();
    for pass in 0..8 {
        let client = client.clone();
        passes.spawn(async move {
            let writes = async {
                for write in 0..=pass {
                    client.delete(&PODS, None, &format!("{pass}-{write}"), "u", "1").await.unwrap();
                    tokio::task::yield_now().await;
                }
            };
            let ((), effects) = recorded(writes).await;
            let name = |effect: Effect| match effect {
                Effect::Write(Write { verb: "delete", name, .. }) => name,
                other => panic!("{other:?}"),
            };
            let names: Vec<String> = effects.into_iter().map(name).collect();
            assert_eq!(names, (0..=pass).map(|write| format!("{pass}-{write}")).collect::<Vec<_>>());
        });
    }
    while let Some(ended) = passes.join_next().await {
        ended.unwrap();
    }
    would_call("outside of a pass", "create");
    client.delete(&PODS, None, "a", "u", "1").await.unwrap();
}

#[tokio::test]
async fn only_refusals_become_effects() {
    for (code, reason, is_effect) in [
        (400, "BadRequest", true),
        (403, "Forbidden", true),
        (422, "Invalid", true),
        (404, "NotFound", false),
        (409, "AlreadyExists", false),
        (409, "Conflict", false),
        (500, "InternalError", false),
    ] {
        let status = json!({"kind": "Status", "status": "Failure", "code": code, "reason": reason,
            "message": "admission webhook \"w\" does not support dry run"});
        let (client, _) = rig(code, &status);
        let (answer, effects) = recorded(client.create::<Value>(&PODS, None, &json!({}))).await;
        assert!(answer.is_err());
        let refused: Vec<u16> = effects
            .into_iter()
            .map(|effect| match effect {
                Effect::Write(Write { outcome: Err(status), .. }) => status.code,
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(refused, if is_effect { vec![code] } else { vec![] });
    }
}

/// The reads that precede the writes of these clients have this answer.
fn rig_reading(code: u16, read: &Value, written: &Value) -> ApiClient {
    let answers = [read, written].map(Value::to_string);
    let service = tower::service_fn(move |request: Request<Body>| {
        let (code, answer) = match *request.method() {
            Method::GET => (code, answers[0].clone()),
            _ => (200, answers[1].clone()),
        };
        async move {
            Ok::<_, Infallible>(
                Response::builder().status(code).body(Body::from(answer.into_bytes())).unwrap(),
            )
        }
    });
    ApiClient::new(kube_client::Client::new(service, "default")).with_dry_run()
}

#[tokio::test]
async fn failed_read_before_a_write_is_no_state_of_the_object() {
    let status = json!({"kind": "Status", "status": "Failure", "code": 500, "message": "the read failed"});
    let written = json!({"metadata": {"name": "a"}, "spec": {"replicas": 2}});
    let client = rig_reading(500, &status, &written);
    let patch = json!({"metadata": {"resourceVersion": "1"}, "spec": {"replicas": 2}});
    let (answer, effects) = recorded(client.patch_merge::<Value>(&PODS, Some("ns"), "a", &patch)).await;
    assert!(answer.is_ok());
    assert!(!format!("{effects:?}").contains("the read failed"), "{effects:?}");
}

/// Also where a namespace has the name of a resource.
#[tokio::test]
async fn an_effect_names_the_object() {
    let (client, _) = rig(200, &json!({"metadata": {}}));
    let (_, effects) = recorded(client.delete(&PODS, Some("pods"), "a?b", "u", "1")).await;
    let [Effect::Write(Write { namespace, name, .. })] = &effects[..] else { panic!("{effects:?}") };
    assert_eq!((namespace.as_deref(), name.as_str()), (Some("pods"), "a?b"));
}
