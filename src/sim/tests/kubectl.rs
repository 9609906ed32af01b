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

/// Requests a table, as `kubectl get` does; returns the cells of its first row.
async fn cells(bed: &Bed, path: &str) -> Value {
    let mut request = http::Request::get(path).body(Full::new(Bytes::new())).unwrap();
    let table = HeaderValue::from_static("application/json;as=Table;v=v1;g=meta.k8s.io");
    request.headers_mut().insert(header::ACCEPT, table);
    let response = InProcessTransport::new(&bed.sim, "me").call(request).await.unwrap();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    serde_json::from_slice::<Value>(&body).unwrap()["rows"][0]["cells"].clone()
}

#[tokio::test(start_paused = true)]
async fn tables_show_addresses_versions_and_scales() {
    const SERVICES: &str = "/api/v1/namespaces/default/services";
    let bed = Bed::new();
    let ports = json!([{"port": 80}]);
    for (name, spec, external) in [
        ("front", json!({"type": "LoadBalancer", "ports": ports}), "<pending>"),
        ("remote", json!({"type": "ExternalName", "externalName": "db.example.com"}), "db.example.com"),
        ("inner", json!({"ports": ports, "externalIPs": ["192.0.2.1"]}), "192.0.2.1"),
    ] {
        bed.ok("POST", SERVICES, json!({"metadata": {"name": name}, "spec": spec})).await;
        assert_eq!(cells(&bed, &format!("{SERVICES}/{name}")).await[3], external, "{name}");
    }
    let ingresses = "/apis/networking.k8s.io/v1/namespaces/default/ingresses";
    let backend = json!({"service": {"name": "web", "port": {"number": 80}}});
    bed.ok("POST", ingresses, json!({"metadata": {"name": "a"}, "spec": {"defaultBackend": backend}})).await;
    assert_eq!(cells(&bed, &format!("{ingresses}/a")).await[2], "*");
    bed.define_foos().await;
    let crd = cells(&bed, &format!("{CRDS}/foos.example.com")).await;
    assert_eq!((&crd[1], &crd[2]), (&json!("Namespaced"), &json!("v1(storage)")));
    bed.ok("POST", DEPLOYMENTS, deployment("web", 2)).await;
    settle().await;
    let scale = cells(&bed, &format!("{DEPLOYMENTS}/web/scale")).await;
    assert_eq!(scale.as_array().unwrap()[..3], [json!("web"), json!(2), json!(2)]);
    assert_eq!(cells(&bed, "/api/v1/nodes").await[1], "Ready");
}

#[tokio::test(start_paused = true)]
async fn times_of_events_are_written_when_unset() {
    let bed = Bed::new();
    let event = json!({"metadata": {"name": "a"}, "regarding": {"namespace": "default"}, "reason": "r",
        "action": "a", "type": "Normal", "eventTime": "2024-01-01T00:00:00.000000Z",
        "reportingController": "c", "reportingInstance": "i"});
    bed.ok("POST", "/apis/events.k8s.io/v1/namespaces/default/events", event).await;
    let event = bed.ok("GET", "/api/v1/namespaces/default/events/a", Value::Null).await;
    assert!(event.as_object().unwrap().contains_key("lastTimestamp"), "kubectl sorts by it: {event}");
}

#[tokio::test(start_paused = true)]
async fn replica_set_starts_with_its_pods_and_follows_annotations() {
    const SETS: &str = "/apis/apps/v1/namespaces/default/replicasets";
    let bed = Bed::new();
    bed.ok("POST", DEPLOYMENTS, deployment("web", 2)).await;
    settle().await;
    let cause = json!({"metadata": {"annotations": {"kubernetes.io/change-cause": "first"}}});
    bed.ok("PATCH", &format!("{DEPLOYMENTS}/web"), cause).await;
    settle().await;
    let set = bed.ok("GET", SETS, Value::Null).await["items"][0].clone();
    let meta = &set["metadata"];
    assert_eq!((&meta["generation"], &set["spec"]["replicas"]), (&json!(1), &json!(2)));
    assert_eq!(meta["annotations"]["kubernetes.io/change-cause"], "first");
    assert_eq!(meta["annotations"]["deployment.kubernetes.io/max-replicas"], "3");
}

#[tokio::test(start_paused = true)]
async fn selectors_and_pods_are_refused_in_a_real_servers_words() {
    let bed = Bed::new();
    for (query, message) in [
        ("labelSelector=%3Dweb", "found '=', expected: !, identifier, or 'end of string'"),
        ("labelSelector=a+in+b", "unable to parse requirement: found 'b', expected: '('"),
        ("fieldSelector=spec.color%3Dblue", "field label not supported: spec.color"),
    ] {
        assert_eq!(bed.get(&format!("{PODS}?{query}")).await.1["message"], message);
    }
    let container = |name: &str| json!({"name": name, "image": "nginx"});
    let pod = json!({"metadata": {"name": "web"}, "spec": {"containers": [container("a")]}});
    bed.ok("POST", PODS, pod).await;
    let more = json!({"spec": {"containers": [container("a"), container("b")]}});
    let refused = bed.call("PATCH", &format!("{PODS}/web"), more).await;
    let cause = &refused.1["details"]["causes"][0];
    assert_eq!(cause["message"], "Forbidden: pod updates may not add or remove containers");
}

#[tokio::test(start_paused = true)]
async fn schemas_of_custom_kinds_have_metadata() {
    let bed = Bed::new();
    bed.define_foos().await;
    let document = bed.ok("GET", "/openapi/v3/apis/example.com/v1", Value::Null).await;
    let schemas = document["components"]["schemas"].as_object().unwrap();
    assert!(schemas.keys().any(|name| name.ends_with("ObjectMeta")), "{:?}", schemas.keys());
    let (code, body) = bed.get("/openapi/v2").await;
    assert_eq!((code, body), (200, json!("")), "kubectl then takes the other version");
}
