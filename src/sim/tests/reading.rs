use super::*;
use crate::api::ApiResource;
use crate::client::ApiClient;

#[tokio::test(start_paused = true)]
async fn list_pages_share_a_version_until_token_expires() {
    let bed = Bed::new();
    for name in ["a", "b", "c"] {
        bed.ok("POST", MAPS, map(name)).await;
    }
    let first = bed.ok("GET", &format!("{MAPS}?limit=2"), Value::Null).await;
    assert_eq!((names(&first), &first["metadata"]["remainingItemCount"]), (vec!["a", "b"], &json!(1)));
    bed.ok("DELETE", &format!("{MAPS}/c"), Value::Null).await;
    let token = first["metadata"]["continue"].as_str().unwrap();
    let token: String = form_urlencoded::byte_serialize(token.as_bytes()).collect();
    let next = format!("{MAPS}?limit=2&continue={token}");
    let second = bed.ok("GET", &next, Value::Null).await;
    assert_eq!(names(&second), ["c"], "the second page has the version of the first");
    assert_eq!(second["metadata"]["resourceVersion"], first["metadata"]["resourceVersion"]);
    bed.sim.compact();
    let expired = bed.get(&next).await;
    assert_eq!(reason(&expired), (410, "Expired"));
    let token = expired.1["metadata"]["continue"].as_str().unwrap();
    let token: String = form_urlencoded::byte_serialize(token.as_bytes()).collect();
    let rest = bed.ok("GET", &format!("{MAPS}?limit=2&continue={token}"), Value::Null).await;
    assert_eq!(names(&rest), [""; 0], "the inconsistent token continues with the present objects");
    assert_eq!(bed.get(&format!("{MAPS}?continue=nonsense")).await.0, 400);
}

/// A slow paged list, as by `kubectl get`, while others write.
#[tokio::test(start_paused = true)]
async fn a_continue_token_lasts_five_minutes() {
    let bed = Bed::with(Settings { window: 5, ..Settings::default() });
    for name in ["a", "b", "c"] {
        bed.ok("POST", MAPS, map(name)).await;
    }
    let first = bed.ok("GET", &format!("{MAPS}?limit=2"), Value::Null).await;
    for n in 0..20 {
        bed.ok("PATCH", &format!("{MAPS}/c"), json!({"data": {"a": n.to_string()}})).await;
    }
    let token = first["metadata"]["continue"].as_str().unwrap();
    let token: String = form_urlencoded::byte_serialize(token.as_bytes()).collect();
    let next = format!("{MAPS}?limit=2&continue={token}");
    tokio::time::sleep(Duration::from_secs(299)).await;
    let second = bed.ok("GET", &next, Value::Null).await;
    assert_eq!((names(&second), &second["items"][0]["data"]["a"]), (vec!["c"], &json!("1")));
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(reason(&bed.get(&next).await), (410, "Expired"));
}

#[tokio::test(start_paused = true)]
async fn resource_versions_behave_as_on_a_real_server() {
    let bed = Bed::new();
    let first = bed.ok("POST", MAPS, map("a")).await;
    let version: u64 = first["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap();
    bed.ok("POST", MAPS, map("b")).await;
    let list = async |query: String| bed.get(&format!("{MAPS}?{query}")).await;
    assert_eq!(names(&list(String::new()).await.1), ["a", "b"]);
    assert_eq!(names(&list("resourceVersion=0".to_owned()).await.1), ["a", "b"]);
    let exact = format!("resourceVersion={version}&resourceVersionMatch=Exact");
    assert_eq!(names(&list(exact.clone()).await.1), ["a"]);
    let not_older = format!("resourceVersion={version}&resourceVersionMatch=NotOlderThan");
    assert_eq!(names(&list(not_older).await.1), ["a", "b"]);
    let future = list("resourceVersion=1000000&resourceVersionMatch=NotOlderThan".to_owned()).await;
    assert_eq!(reason(&future), (504, "Timeout"));
    assert_eq!(future.1["details"]["causes"][0]["reason"], "ResourceVersionTooLarge");
    assert_eq!(list("resourceVersionMatch=Exact".to_owned()).await.0, 422);
    bed.sim.compact();
    assert_eq!(reason(&list(exact).await), (410, "Expired"));
}

#[tokio::test(start_paused = true)]
async fn selectors_filter_lists_and_watches() {
    let bed = Bed::new();
    let mut watch = bed.watch(&format!("{MAPS}?watch=true&labelSelector=app=a")).await;
    for name in ["a", "b"] {
        bed.ok("POST", MAPS, map(name)).await;
    }
    let list = bed.ok("GET", &format!("{MAPS}?labelSelector=app%20in%20(b,c)"), Value::Null).await;
    assert_eq!(names(&list), ["b"]);
    let list = bed.ok("GET", &format!("{MAPS}?fieldSelector=metadata.name!=a"), Value::Null).await;
    assert_eq!(names(&list), ["b"]);
    assert_eq!(bed.get(&format!("{MAPS}?fieldSelector=data.a=1")).await.0, 400);
    assert_eq!(watch.event().await, event("ADDED", "a"));
    // An object that leaves the selection is a deletion to this watch, one that enters it an addition.
    bed.ok("PATCH", &format!("{MAPS}/a"), json!({"metadata": {"labels": {"app": "x"}}})).await;
    assert_eq!(watch.event().await, event("DELETED", "a"));
    bed.ok("PATCH", &format!("{MAPS}/b"), json!({"metadata": {"labels": {"app": "a"}}})).await;
    assert_eq!(watch.event().await, event("ADDED", "b"));
}

#[tokio::test(start_paused = true)]
async fn watch_resumes_or_fails_with_410() {
    let bed = Bed::new();
    let first = bed.ok("POST", MAPS, map("a")).await;
    let version = first["metadata"]["resourceVersion"].as_str().unwrap().to_owned();
    bed.ok("POST", MAPS, map("b")).await;
    bed.ok("DELETE", &format!("{MAPS}/a"), Value::Null).await;
    let from = format!("{MAPS}?watch=true&resourceVersion={version}");
    let mut watch = bed.watch(&from).await;
    assert_eq!(watch.event().await, event("ADDED", "b"));
    assert_eq!(watch.event().await, event("DELETED", "a"));
    bed.sim.compact();
    let mut late = bed.watch(&from).await;
    let (type_, status) = late.next().await.unwrap();
    assert_eq!(
        (type_.as_str(), &status["code"], &status["reason"]),
        ("ERROR", &json!(410), &json!("Expired"))
    );
    assert_eq!(late.next().await, None);
}

/// Forgotten changes of other resources do not concern a watch.
#[tokio::test(start_paused = true)]
async fn watch_fails_with_410_only_after_missing_changes() {
    let bed = Bed::with(Settings { window: 5, ..Settings::default() });
    settle().await;
    let mut watch = bed.watch(&format!("{MAPS}?watch=true&resourceVersion={}", bed.sim.version())).await;
    bed.ok("POST", DEPLOYMENTS, deployment("web", 3)).await;
    settle().await;
    bed.ok("POST", MAPS, map("a")).await;
    assert_eq!(watch.event().await, event("ADDED", "a"));
    bed.ok("POST", DEPLOYMENTS, deployment("other", 0)).await;
    bed.sim.compact();
    bed.ok("POST", MAPS, map("b")).await;
    assert_eq!(watch.event().await, event("ADDED", "b"));
    bed.sim.freeze(0);
    let missed = json!({"metadata": {"name": "c", "namespace": "default"}});
    bed.sim.write_behind("", "configmaps", &missed);
    bed.sim.compact();
    bed.sim.thaw(0);
    assert_eq!(watch.next().await.unwrap().0, "ERROR");
    assert_eq!(watch.next().await, None);
}

#[tokio::test(start_paused = true)]
async fn watch_without_version_starts_with_present_objects() {
    let bed = Bed::new();
    bed.ok("POST", MAPS, map("a")).await;
    let mut watch = bed.watch(&format!("{MAPS}?watch=true")).await;
    assert_eq!(watch.event().await, event("ADDED", "a"));
    let query =
        "watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";
    let mut streamed = bed.watch(&format!("{MAPS}?{query}")).await;
    assert_eq!(streamed.event().await, event("ADDED", "a"));
    let (type_, end) = streamed.next().await.unwrap();
    assert_eq!(type_, "BOOKMARK");
    assert_eq!(end["metadata"]["annotations"]["k8s.io/initial-events-end"], "true");
    assert_eq!(end["metadata"]["resourceVersion"], bed.sim.version().to_string());
    assert_eq!(bed.get(&format!("{MAPS}?watch=true&sendInitialEvents=true")).await.0, 422);
}

#[tokio::test(start_paused = true)]
async fn quiet_watch_gets_bookmarks_until_its_timeout() {
    let bed = Bed::new();
    let mut watch = bed.watch(&format!("{MAPS}?watch=true&allowWatchBookmarks=true&timeoutSeconds=90")).await;
    let started = tokio::time::Instant::now();
    assert_eq!(watch.next().await.unwrap().0, "BOOKMARK");
    assert_eq!(started.elapsed().as_secs(), 60);
    assert_eq!(watch.next().await.unwrap().0, "BOOKMARK");
    assert_eq!(started.elapsed().as_secs(), 88, "the last bookmark precedes the end");
    assert_eq!(watch.next().await, None);
    assert_eq!(started.elapsed().as_secs(), 90);
}

#[tokio::test(start_paused = true)]
async fn both_event_groups_share_one_store() {
    let bed = Bed::new();
    let event = json!({"metadata": {"name": "e"}, "eventTime": "2026-01-01T00:00:00.000000Z", "reason": "Tested",
        "note": "words", "type": "Normal", "action": "Test", "reportingController": "c", "reportingInstance": "i",
        "regarding": {"kind": "Foo", "name": "a", "namespace": "default"}});
    bed.ok("POST", "/apis/events.k8s.io/v1/namespaces/default/events", event).await;
    let path = "/api/v1/namespaces/default/events?fieldSelector=involvedObject.name=a";
    let list = bed.ok("GET", path, Value::Null).await;
    assert_eq!(list["items"][0]["message"], "words");
    assert_eq!(list["items"][0]["apiVersion"], "v1");
    let shown = bed.ok("GET", "/apis/events.k8s.io/v1/namespaces/default/events/e", Value::Null).await;
    assert_eq!((&shown["note"], &shown["message"]), (&json!("words"), &Value::Null));
}

#[tokio::test(start_paused = true)]
async fn unknown_paths_get_a_real_servers_answers() {
    let bed = Bed::new();
    assert_eq!(reason(&bed.get(&format!("{MAPS}/none")).await), (404, "NotFound"));
    let (code, text) = bed.get("/apis/example.com/v1/foos").await;
    assert_eq!((code, text), (404, json!("404 page not found\n")));
    for built_in in ["apps", "networking.k8s.io"] {
        let missing = bed.get(&format!("/apis/{built_in}/v1/foos")).await;
        assert_eq!(missing.1["message"], "the server could not find the requested resource");
    }
    bed.define_foos().await;
    assert_eq!(bed.get("/apis/example.com/v1/bars").await, (404, json!("404 page not found\n")));
    assert_eq!(bed.call("POST", &format!("{MAPS}/x"), map("x")).await.0, 405);
    for path in [
        "/healthz",
        "/livez",
        "/readyz",
        "/version",
        "/api",
        "/apis",
        "/apis/apps",
        "/apis/apps/v1",
        "/openapi/v3",
    ] {
        assert_eq!(bed.get(path).await.0, 200, "{path}");
    }
}

/// kubectl requests aggregated discovery; other clients list the groups and query each.
#[tokio::test(start_paused = true)]
async fn aggregated_discovery_is_served_on_request() {
    let bed = Bed::new();
    bed.define_foos().await;
    let aggregated = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
    let mut request = http::Request::get("/apis").body(Full::new(Bytes::new())).unwrap();
    request.headers_mut().insert(header::ACCEPT, HeaderValue::from_static(aggregated));
    let response = InProcessTransport::new(&bed.sim, bed.user).call(request).await.unwrap();
    assert_eq!(response.headers()[header::CONTENT_TYPE], aggregated);
    let body = response.into_body().collect().await.unwrap().to_bytes();
    let list: Value = serde_json::from_slice(&body).unwrap();
    let groups = list["items"].as_array().unwrap();
    let group = groups.iter().find(|group| group["metadata"]["name"] == "example.com").unwrap();
    let foos = &group["versions"][0]["resources"][0];
    assert_eq!((&foos["resource"], &foos["shortNames"]), (&json!("foos"), &json!(["fo"])));
    assert_eq!(foos["responseKind"], json!({"group": "example.com", "version": "v1", "kind": "Foo"}));
    let inner = foos["subresources"].as_array().unwrap().iter().map(|inner| inner["subresource"].clone());
    assert_eq!(inner.collect::<Vec<_>>(), ["scale", "status"]);

    let plain = bed.get("/apis").await.1;
    assert_eq!(plain["kind"], "APIGroupList");
    assert!(plain["groups"].as_array().unwrap().iter().any(|group| group["name"] == "example.com"));
}

#[tokio::test(start_paused = true)]
async fn a_service_account_is_stored_and_found() {
    let bed = Bed::new();
    let accounts = "/api/v1/namespaces/default/serviceaccounts";
    bed.ok("POST", accounts, json!({"metadata": {"name": "robot"}, "automountServiceAccountToken": false}))
        .await;
    let stored = bed.ok("GET", &format!("{accounts}/robot"), Value::Null).await;
    assert_eq!(stored["automountServiceAccountToken"], false);
    let list = bed.get(accounts).await.1;
    assert!(names(&list).contains(&"robot"), "{list}");
    let strict = format!("{accounts}?fieldValidation=Strict");
    assert_eq!(bed.call("POST", &strict, json!({"metadata": {"name": "x"}, "tokens": []})).await.0, 400);
}

#[tokio::test(start_paused = true)]
async fn metadata_requests_return_metadata_only() {
    let bed = Bed::new();
    bed.ok("POST", MAPS, map("a")).await;
    let client =
        ApiClient::new(kube_client::Client::new(InProcessTransport::new(&bed.sim, "reader"), "default"));
    let maps = ApiResource::of::<k8s_openapi::api::core::v1::ConfigMap>();
    let one: Value = client.get_metadata(&maps, Some("default"), "a").await.unwrap().unwrap();
    assert_eq!((&one["kind"], &one["metadata"]["name"]), (&json!("PartialObjectMetadata"), &json!("a")));
    assert!(one.get("data").is_none(), "{one}");
    let mut items: Vec<Value> = Vec::new();
    client.each_metadata(&maps, Some("default"), "", |item| items.push(item)).await.unwrap();
    assert_eq!(items, [one]);
}
