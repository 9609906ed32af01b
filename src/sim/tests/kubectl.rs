//! Requests that only kubectl sends.

use super::*;

const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";

#[tokio::test(start_paused = true)]
async fn protobuf_is_refused_with_advice() {
    let bed = Bed::new();
    let response = bed.send("POST", PODS, PROTOBUF, b"k8s\0".to_vec()).await.unwrap();
    assert_eq!(response.status(), 415);
    let body = response.into_body().collect().await.unwrap().to_bytes();
    let body = String::from_utf8_lossy(&body).into_owned();
    assert!(body.contains("--dry-run=client -o yaml and pipe it to kubectl apply -f -"), "{body}");
}

#[tokio::test(start_paused = true)]
async fn access_reviews_always_allow() {
    let bed = Bed::new();
    let path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
    let spec = json!({"resourceAttributes": {"verb": "get", "resource": "pods"}});
    let answer = bed.call("POST", path, json!({"spec": spec})).await;
    assert_eq!((answer.0, &answer.1["spec"], &answer.1["status"]), (201, &spec, &json!({"allowed": true})));
    let response = bed.send("POST", path, PROTOBUF, b"k8s\0".to_vec()).await.unwrap();
    assert_eq!(response.status(), 201, "kubectl sends protobuf");
}

#[tokio::test(start_paused = true)]
async fn autoscaling_v1_is_refused_with_advice() {
    let bed = Bed::new();
    let path = "/apis/autoscaling/v1/namespaces/default/horizontalpodautoscalers";
    let refused = bed.call("POST", path, json!({})).await;
    assert_eq!(reason(&refused), (404, "NotFound"));
    assert!(refused.1["message"].as_str().unwrap().contains("autoscaling/v2 only"), "{}", refused.1);
}

#[tokio::test(start_paused = true)]
async fn reviews_name_the_user_and_all_rights() {
    let bed = Bed::new();
    let who = bed.ok("POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews", json!({})).await;
    assert_eq!(who["status"]["userInfo"]["username"], "me");
    let rules = bed.ok("POST", "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews", json!({})).await;
    assert_eq!(rules["status"]["resourceRules"][0]["verbs"], json!(["*"]));
}

#[tokio::test(start_paused = true)]
async fn subresources_of_containers_say_why_they_are_missing() {
    let bed = Bed::new();
    let web = json!({"metadata": {"name": "web"}, "spec": {"containers": [{"name": "c", "image": "nginx"}]}});
    bed.ok("POST", PODS, web).await;
    settle().await;
    for (verb, subresource) in
        [("GET", "log"), ("POST", "exec"), ("POST", "portforward"), ("PATCH", "ephemeralcontainers")]
    {
        let refused = bed.call(verb, &format!("{PODS}/web/{subresource}"), json!({})).await;
        assert_eq!(reason(&refused), (501, "NotImplemented"), "{subresource}");
        assert_eq!(refused.1["message"], "no containers run on this server");
    }
    let account = "/api/v1/namespaces/default/serviceaccounts/default/token";
    let refused = bed.call("POST", account, json!({})).await;
    assert_eq!(refused.1["message"], "this server issues no tokens for ServiceAccounts");
}

#[tokio::test(start_paused = true)]
async fn missing_kinds_are_named_and_have_details() {
    let bed = Bed::new();
    let refused = bed.call("POST", "/apis/batch/v1/namespaces/default/jobs", json!({})).await;
    assert_eq!(reason(&refused), (404, "NotFound"));
    assert!(refused.1["message"].as_str().unwrap().starts_with("this server has no Jobs"), "{}", refused.1);
    // Without details, kubectl debug crashes.
    let refused = bed.get(&format!("{PODS}/web/nonsense")).await;
    assert_eq!((refused.0, &refused.1["details"]), (404, &json!({})));
}

#[tokio::test(start_paused = true)]
async fn node_takes_pods_unless_cordoned() {
    const NODES: &str = "/api/v1/nodes";
    let bed = Bed::new();
    let nodes = bed.ok("GET", NODES, Value::Null).await;
    let node = format!("{NODES}/{}", names(&nodes)[0]);
    bed.ok("PATCH", &node, json!({"spec": {"unschedulable": true}})).await;
    let web = json!({"metadata": {"name": "web"}, "spec": {"containers": [{"name": "c", "image": "nginx"}]}});
    bed.ok("POST", PODS, web).await;
    settle().await;
    let pod = bed.ok("GET", &format!("{PODS}/web"), Value::Null).await;
    assert_eq!(pod["status"]["phase"], "Pending");
    assert_eq!(pod["status"]["conditions"][0]["reason"], "Unschedulable");
    bed.ok("PATCH", &node, json!({"spec": {"unschedulable": null}})).await;
    settle().await;
    let pod = bed.ok("GET", &format!("{PODS}/web"), Value::Null).await;
    assert_eq!(
        (&pod["status"]["phase"], &pod["spec"]["nodeName"]),
        (&json!("Running"), &json!(names(&nodes)[0]))
    );
}

#[tokio::test(start_paused = true)]
async fn paused_deployment_rolls_out_once_resumed() {
    const SETS: &str = "/apis/apps/v1/namespaces/default/replicasets";
    let bed = Bed::new();
    let web = format!("{DEPLOYMENTS}/web");
    bed.ok("POST", DEPLOYMENTS, deployment("web", 1)).await;
    settle().await;
    let containers = json!([{"name": "c", "image": "nginx:2"}]);
    let template = json!({"spec": {"containers": containers}});
    bed.ok("PATCH", &web, json!({"spec": {"paused": true, "replicas": 2, "template": template}})).await;
    settle().await;
    let sets = bed.ok("GET", SETS, Value::Null).await;
    assert_eq!(
        (names(&sets).len(), &sets["items"][0]["spec"]["replicas"]),
        (1, &json!(2)),
        "it is scaled alone"
    );
    let conditions = bed.ok("GET", &web, Value::Null).await["status"]["conditions"].clone();
    assert!(conditions.as_array().unwrap().iter().any(|c| c["reason"] == "DeploymentPaused"), "{conditions}");
    bed.ok("PATCH", &web, json!({"spec": {"paused": null}})).await;
    settle().await;
    assert_eq!(names(&bed.ok("GET", SETS, Value::Null).await).len(), 2);
}

#[tokio::test(start_paused = true)]
async fn controllers_write_events_if_asked_to() {
    const EVENTS: &str = "/api/v1/namespaces/default/events";
    for events in [false, true] {
        let world = crate::sim::Switches { events, ..Default::default() };
        let bed = Bed::with(Settings { world, ..Settings::default() });
        bed.ok("POST", DEPLOYMENTS, deployment("web", 1)).await;
        settle().await;
        let found = bed.ok("GET", EVENTS, Value::Null).await;
        let mut found: Vec<&str> = found["items"]
            .as_array()
            .unwrap()
            .iter()
            .map(|event| event["reason"].as_str().unwrap())
            .collect();
        found.sort_unstable();
        let expected: &[&str] =
            if events { &["ScalingReplicaSet", "Scheduled", "SuccessfulCreate"] } else { &[] };
        assert_eq!(found, expected);
    }
}
