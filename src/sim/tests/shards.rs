use super::*;

/// Selects the namespace "one", not "two" and "default", whose hashes begin with 1, 5 and e.
const ONE: &str = "shardRange(object.metadata.namespace, '0x0000000000000000', '0x4000000000000000')";
const DEFAULT: &str = "shardRange(object.metadata.namespace, '0xc000000000000000', '0x10000000000000000')";

/// Returns a server with the feature, and with a ConfigMap in each of three namespaces, of the same name.
async fn sharding() -> Bed {
    let bed = Bed::new();
    bed.sim.set_sharding(0, true);
    for namespace in ["one", "two"] {
        bed.ok("POST", "/api/v1/namespaces", json!({"metadata": {"name": namespace}})).await;
    }
    for namespace in ["default", "one", "two"] {
        bed.ok("POST", &maps_in(namespace), map(namespace)).await;
    }
    bed
}

fn maps_in(namespace: &str) -> String {
    format!("/api/v1/namespaces/{namespace}/configmaps")
}

/// Returns the path of all ConfigMaps with a shard selector and further parameters.
fn sharded(selector: &str, query: &str) -> String {
    let selector: String = form_urlencoded::byte_serialize(selector.as_bytes()).collect();
    format!("/api/v1/configmaps?shardSelector={selector}&{query}")
}

/// Creates, changes and deletes a ConfigMap.
async fn write_in(bed: &Bed, namespace: &str) {
    let path = maps_in(namespace);
    bed.ok("POST", &path, map("new")).await;
    bed.ok("PATCH", &format!("{path}/new"), json!({"data": {"a": "2"}})).await;
    bed.ok("DELETE", &format!("{path}/new"), Value::Null).await;
}

/// Checks that a watch sends what `write_in` does in the namespace "one", and then nothing for a while.
async fn check_events(bed: &Bed, watch: &mut Watch) {
    for namespace in ["two", "one", "default"] {
        write_in(bed, namespace).await;
    }
    for expected in ["ADDED", "MODIFIED", "DELETED"] {
        let (type_, object) = watch.next().await.unwrap();
        assert_eq!((type_.as_str(), &object["metadata"]["namespace"]), (expected, &json!("one")));
    }
    assert!(watch.is_silent_for(Duration::from_secs(30)).await);
}

#[tokio::test(start_paused = true)]
async fn sharded_list_has_only_objects_of_its_shards() {
    let bed = sharding().await;
    let list = bed.ok("GET", &sharded(ONE, ""), Value::Null).await;
    assert_eq!(names(&list), ["one"]);
    let list = bed.ok("GET", &sharded(&format!("{DEFAULT} || {ONE}"), ""), Value::Null).await;
    assert_eq!(names(&list), ["default", "one"]);
    let list = bed.ok("GET", &sharded(ONE, "resourceVersion=0&labelSelector=app=two"), Value::Null).await;
    assert_eq!(names(&list), [""; 0]);
    let by_uid = async |start: &str, end: &str| {
        let selector = format!("shardRange(object.metadata.uid, '{start}', '{end}')");
        bed.ok("GET", &sharded(&selector, ""), Value::Null).await
    };
    let lower = by_uid("0x0000000000000000", "0x8000000000000000").await;
    let upper = by_uid("0x8000000000000000", "0x10000000000000000").await;
    let mut found = [names(&lower), names(&upper)].concat();
    found.sort_unstable();
    assert_eq!(found, ["default", "one", "two"], "each object is in one of two shards");
}

#[tokio::test(start_paused = true)]
async fn each_page_of_a_list_is_sharded_on_its_own() {
    let bed = sharding().await;
    let both = format!("{DEFAULT} || {ONE}");
    let first = bed.ok("GET", &sharded(&both, "limit=1"), Value::Null).await;
    assert_eq!(names(&first), ["default"]);
    assert_eq!(first["metadata"].get("remainingItemCount"), None);
    let token = first["metadata"]["continue"].as_str().unwrap();
    let token: String = form_urlencoded::byte_serialize(token.as_bytes()).collect();
    let next = format!("limit=2&continue={token}");
    assert_eq!(names(&bed.ok("GET", &sharded(&both, &next), Value::Null).await), ["one"]);
    assert_eq!(names(&bed.ok("GET", &sharded("", &next), Value::Null).await), ["one", "two"]);
}

#[tokio::test(start_paused = true)]
async fn sharded_watch_sends_only_events_of_its_shards() {
    let bed = sharding().await;
    let query = format!("watch=true&allowWatchBookmarks=true&resourceVersion={}", bed.sim.version());
    let mut watch = bed.watch(&sharded(ONE, &query)).await;
    check_events(&bed, &mut watch).await;
    let (type_, bookmark) = watch.next().await.unwrap();
    assert_eq!(type_, "BOOKMARK");
    assert_eq!(bookmark["metadata"]["resourceVersion"], bed.sim.version().to_string());
    assert_eq!(bookmark["metadata"].get("shardInfo"), None);
}

#[tokio::test(start_paused = true)]
async fn sharded_streaming_list_sends_only_objects_of_its_shards() {
    let bed = sharding().await;
    let query =
        "watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";
    let mut watch = bed.watch(&sharded(ONE, query)).await;
    assert_eq!(watch.event().await, event("ADDED", "one"));
    let (type_, end) = watch.next().await.unwrap();
    assert_eq!(type_, "BOOKMARK");
    assert_eq!(end["metadata"]["annotations"]["k8s.io/initial-events-end"], "true");
    assert_eq!(end["metadata"].get("shardInfo"), None);
    check_events(&bed, &mut watch).await;
}

#[tokio::test(start_paused = true)]
async fn shard_info_names_the_selector_of_a_filtered_list() {
    let bed = sharding().await;
    bed.define_foos().await;
    bed.ok("POST", FOOS, foo("a")).await;
    let info =
        async |path: &str| bed.ok("GET", path, Value::Null).await["metadata"].get("shardInfo").cloned();
    let named = Some(json!({"selector": ONE}));
    assert_eq!(info(&sharded(ONE, "")).await, named);
    assert_eq!(info(&sharded(&format!(" {} ", ONE.replace(", ", ",")), "")).await, named);
    assert_eq!(info(&sharded("", "")).await, None);
    // A real server's lists of custom objects have no such field.
    let foos = sharded(ONE, "").replace("/api/v1/configmaps", FOOS);
    let list = bed.ok("GET", &foos, Value::Null).await;
    assert_eq!((names(&list), list["metadata"].get("shardInfo")), (vec![], None));
    for accept in ["Table", "PartialObjectMetadataList"] {
        let mut request = http::Request::get(sharded(ONE, "")).body(Full::new(Bytes::new())).unwrap();
        let accept = format!("application/json;as={accept};g=meta.k8s.io;v=v1");
        request.headers_mut().insert(header::ACCEPT, HeaderValue::from_str(&accept).unwrap());
        let response = InProcessTransport::new(&bed.sim, bed.user).call(request).await.unwrap();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        let list: Value = serde_json::from_slice(&body).unwrap();
        let items = list.get("rows").unwrap_or(&list["items"]).as_array().unwrap().len();
        assert_eq!((items, list["metadata"].get("shardInfo")), (1, None), "{list}");
    }
}

#[tokio::test(start_paused = true)]
async fn invalid_shard_selector_is_answered_with_500() {
    let bed = sharding().await;
    for selector in ["nonsense", " ", "shardRange(object.metadata.uid, '0x0', '0x8')"] {
        let in_one = sharded(selector, "").replace("/api/v1/configmaps", &maps_in("one"));
        for (verb, path) in
            [("GET", sharded(selector, "")), ("GET", sharded(selector, "watch=true")), ("DELETE", in_one)]
        {
            let refused = bed.call(verb, &path, Value::Null).await;
            assert_eq!(reason(&refused), (500, ""), "{verb} {path}");
            assert!(refused.1["message"].as_str().unwrap().starts_with("invalid shard selector: "));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn server_without_sharding_ignores_the_selector() {
    let mut bed = sharding().await;
    bed.server = 1;
    for selector in [ONE, "nonsense"] {
        let list = bed.ok("GET", &sharded(selector, ""), Value::Null).await;
        assert_eq!(names(&list), ["default", "one", "two"]);
        assert_eq!(list["metadata"].get("shardInfo"), None);
        let mut watch = bed.watch(&sharded(selector, "watch=true")).await;
        for namespace in ["default", "one", "two"] {
            assert_eq!(watch.event().await, event("ADDED", namespace));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn sharded_deletion_spares_objects_of_other_shards() {
    let bed = sharding().await;
    for (namespace, deleted) in [("one", vec!["one"]), ("two", vec![])] {
        let path = sharded(ONE, "").replace("/api/v1/configmaps", &maps_in(namespace));
        let list = bed.ok("DELETE", &path, Value::Null).await;
        assert_eq!((names(&list), &list["metadata"]["shardInfo"]["selector"]), (deleted, &json!(ONE)));
    }
    let rest = bed.ok("GET", &sharded("", ""), Value::Null).await;
    assert_eq!(names(&rest), ["default", "two"]);
}
