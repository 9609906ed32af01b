use super::*;

#[tokio::test(start_paused = true)]
async fn server_owned_metadata_ignores_the_client() {
    let bed = Bed::new();
    let mut sent = map("");
    sent["metadata"] = json!({"generateName": "web-", "uid": "mine", "resourceVersion": "", "generation": 9,
        "creationTimestamp": "2001-01-01T00:00:00Z"});
    let made = bed.ok("POST", MAPS, sent).await;
    let meta = &made["metadata"];
    assert!(meta["name"].as_str().unwrap().starts_with("web-") && meta["name"].as_str().unwrap().len() == 9);
    assert_eq!(meta["creationTimestamp"], "1970-01-01T00:00:00Z");
    assert_ne!(meta["uid"], "mine");
    assert_eq!(meta["resourceVersion"], bed.sim.version().to_string());
}

#[tokio::test(start_paused = true)]
async fn unchanged_write_keeps_the_version() {
    let bed = Bed::new();
    let made = bed.ok("POST", MAPS, map("a")).await;
    let same = bed.ok("PUT", &format!("{MAPS}/a"), made.clone()).await;
    assert_eq!(same, made);
    let patched = bed.ok("PATCH", &format!("{MAPS}/a"), json!({"data": {"a": "1"}})).await;
    assert_eq!(patched, made);
}

#[tokio::test(start_paused = true)]
async fn conflicts_and_failed_preconditions_are_refused() {
    let bed = Bed::new();
    bed.define_foos().await;
    let made = bed.ok("POST", FOOS, foo("a")).await;
    assert_eq!(reason(&bed.call("POST", FOOS, foo("a")).await), (409, "AlreadyExists"));
    let mut changed = made.clone();
    changed["spec"]["replicas"] = json!(2);
    let updated = bed.ok("PUT", &format!("{FOOS}/a"), changed.clone()).await;
    assert_eq!(updated["metadata"]["generation"], 2);
    assert_eq!(reason(&bed.call("PUT", &format!("{FOOS}/a"), changed.clone()).await), (409, "Conflict"));
    // An update without a version is refused for custom kinds and accepted for built-in ones.
    changed["metadata"]["resourceVersion"] = Value::Null;
    assert_eq!(reason(&bed.call("PUT", &format!("{FOOS}/a"), changed).await), (422, "Invalid"));
    bed.ok("POST", MAPS, map("m")).await;
    assert_eq!(bed.call("PUT", &format!("{MAPS}/m"), map("m")).await.0, 200);
    let wrong = json!({"preconditions": {"uid": "other"}});
    assert_eq!(reason(&bed.call("DELETE", &format!("{FOOS}/a"), wrong).await), (409, "Conflict"));
    let old = json!({"preconditions": {"resourceVersion": made["metadata"]["resourceVersion"]}});
    assert_eq!(reason(&bed.call("DELETE", &format!("{FOOS}/a"), old).await), (409, "Conflict"));
    let right = json!({"preconditions": {"uid": made["metadata"]["uid"]}});
    assert_eq!(bed.call("DELETE", &format!("{FOOS}/a"), right).await.1["status"], "Success");
}

#[tokio::test(start_paused = true)]
async fn status_and_spec_are_written_separately() {
    let bed = Bed::new();
    bed.define_foos().await;
    let mut with_status = foo("a");
    with_status["status"] = json!({"replicas": 9});
    let made = bed.ok("POST", FOOS, with_status).await;
    assert_eq!(made["status"], Value::Null, "a new object has no status");
    let both = json!({"spec": {"replicas": 4}, "status": {"replicas": 3}});
    let reported = bed.ok("PATCH", &format!("{FOOS}/a/status"), both.clone()).await;
    assert_eq!((&reported["spec"]["replicas"], &reported["status"]["replicas"]), (&json!(1), &json!(3)));
    assert_eq!(reported["metadata"]["generation"], 1);
    let changed = bed
        .ok("PATCH", &format!("{FOOS}/a"), json!({"spec": {"replicas": 4}, "status": {"replicas": 8}}))
        .await;
    assert_eq!((&changed["spec"]["replicas"], &changed["status"]["replicas"]), (&json!(4), &json!(3)));
    assert_eq!(changed["metadata"]["generation"], 2);
}

#[tokio::test(start_paused = true)]
async fn scale_reads_and_writes_the_replicas() {
    let bed = Bed::new();
    bed.define_foos().await;
    bed.ok("POST", FOOS, foo("a")).await;
    let scale = bed.ok("GET", &format!("{FOOS}/a/scale"), Value::Null).await;
    assert_eq!((&scale["kind"], &scale["spec"]["replicas"]), (&json!("Scale"), &json!(1)));
    bed.ok("PATCH", &format!("{FOOS}/a/scale"), json!({"spec": {"replicas": 5}})).await;
    assert_eq!(bed.get(&format!("{FOOS}/a")).await.1["spec"]["replicas"], 5);
    let refused = bed.call("PATCH", &format!("{FOOS}/a/scale"), json!({"spec": {"replicas": 11}})).await;
    assert_eq!(refused.1["details"]["causes"][0]["field"], "spec.replicas");
}

#[tokio::test(start_paused = true)]
async fn custom_objects_are_pruned_defaulted_and_checked() {
    let bed = Bed::new();
    bed.define_foos().await;
    let mut sent = foo("a");
    sent["spec"]["other"] = json!(1);
    let strict = bed.call("POST", &format!("{FOOS}?fieldValidation=Strict"), sent.clone()).await;
    assert_eq!(reason(&strict), (400, "BadRequest"));
    assert!(strict.1["message"].as_str().unwrap().contains("unknown field \"spec.other\""), "{strict:?}");
    let response = bed.send("POST", FOOS, "application/json", sent.to_string().into_bytes()).await.unwrap();
    let warning = response.headers()["warning"].to_str().unwrap().to_owned();
    assert_eq!(warning, "299 - \"unknown field \\\"spec.other\\\"\"");
    let made = bed.get(&format!("{FOOS}/a")).await.1;
    assert_eq!(made["spec"], json!({"name": "a", "replicas": 1}));
    let immutable = bed.call("PATCH", &format!("{FOOS}/a"), json!({"spec": {"name": "b"}})).await;
    assert_eq!(reason(&immutable), (422, "Invalid"));
    assert!(immutable.1["message"].as_str().unwrap().contains("name is immutable"), "{immutable:?}");
    let twice = br#"{"apiVersion":"example.com/v1","kind":"Foo","metadata":{"name":"b"},"spec":{"name":"b","name":"c"}}"#;
    let path = format!("{FOOS}?fieldValidation=Strict");
    let response = bed.send("POST", &path, "application/json", twice.to_vec()).await.unwrap();
    assert_eq!(response.status(), 400);
}

/// A value that an older schema allowed does not block writes of other fields.
#[tokio::test(start_paused = true)]
async fn unchanged_invalid_fields_do_not_block_writes() {
    let bed = Bed::new();
    bed.define_foos().await;
    let mut stored = bed.ok("POST", FOOS, foo("a")).await;
    stored["spec"]["replicas"] = json!("three");
    bed.sim.write_behind("example.com", "foos", &stored);
    bed.ok("PATCH", &format!("{FOOS}/a/status"), json!({"status": {"replicas": 1}})).await;
    let touched = bed.call("PATCH", &format!("{FOOS}/a"), json!({"spec": {"replicas": "four"}})).await;
    assert_eq!(touched.0, 422);
}

#[tokio::test(start_paused = true)]
async fn patches_of_all_types_work() {
    let bed = Bed::new();
    bed.ok("POST", DEPLOYMENTS, deployment("web", 0)).await;
    let path = format!("{DEPLOYMENTS}/web");
    let patch = async |media: &str, body: Value| {
        let response = bed.send("PATCH", &path, media, body.to_string().into_bytes()).await.unwrap();
        let code = response.status().as_u16();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        (code, serde_json::from_slice::<Value>(&body).unwrap())
    };
    let containers =
        json!({"spec": {"template": {"spec": {"containers": [{"name": "sidecar", "image": "s"}]}}}});
    let (_, merged) = patch("application/strategic-merge-patch+json", containers.clone()).await;
    assert_eq!(merged["spec"]["template"]["spec"]["containers"].as_array().unwrap().len(), 2);
    let (_, replaced) = patch("application/merge-patch+json", containers).await;
    assert_eq!(replaced["spec"]["template"]["spec"]["containers"].as_array().unwrap().len(), 1);
    let steps = json!([{"op": "test", "path": "/spec/replicas", "value": 0}, {"op": "replace", "path": "/spec/replicas", "value": 2}]);
    assert_eq!(patch("application/json-patch+json", steps.clone()).await.1["spec"]["replicas"], 2);
    assert_eq!(patch("application/json-patch+json", steps).await.0, 422, "the test fails now");
}

#[tokio::test(start_paused = true)]
async fn finalizer_makes_deletion_two_phase() {
    let bed = Bed::new();
    let mut held = map("a");
    held["metadata"]["finalizers"] = json!(["example.com/hold"]);
    bed.ok("POST", MAPS, held).await;
    let mut watch = bed.watch(&format!("{MAPS}?watch=true&resourceVersion={}", bed.sim.version())).await;
    let marked = bed.ok("DELETE", &format!("{MAPS}/a"), Value::Null).await;
    assert_eq!(marked["metadata"]["deletionTimestamp"], "1970-01-01T00:00:00Z");
    assert_eq!(marked["metadata"]["deletionGracePeriodSeconds"], 0);
    let more = bed
        .call(
            "PATCH",
            &format!("{MAPS}/a"),
            json!({"metadata": {"finalizers": ["example.com/hold", "example.com/more"]}}),
        )
        .await;
    assert_eq!(reason(&more), (422, "Invalid"));
    bed.ok("PATCH", &format!("{MAPS}/a"), json!({"metadata": {"finalizers": null}})).await;
    assert_eq!(bed.get(&format!("{MAPS}/a")).await.0, 404);
    assert_eq!(watch.event().await, event("MODIFIED", "a"));
    assert_eq!(watch.event().await, event("DELETED", "a"));
}

#[tokio::test(start_paused = true)]
async fn maximal_generation_does_not_overflow() {
    let bed = Bed::new();
    let mut held = map("a");
    held["metadata"]["finalizers"] = json!(["example.com/hold"]);
    held["metadata"]["generation"] = json!(i64::MAX);
    bed.ok("POST", MAPS, held).await;
    let marked = bed.ok("DELETE", &format!("{MAPS}/a"), Value::Null).await;
    assert_eq!(marked["metadata"]["generation"], i64::MAX);
}

#[tokio::test(start_paused = true)]
async fn a_collection_is_deleted_by_selector() {
    let bed = Bed::new();
    for name in ["a", "b"] {
        bed.ok("POST", MAPS, map(name)).await;
    }
    bed.ok("DELETE", &format!("{MAPS}?labelSelector=app=a"), Value::Null).await;
    assert_eq!(names(&bed.get(MAPS).await.1), ["b"]);
}

#[tokio::test(start_paused = true)]
async fn dry_run_stores_nothing() {
    let bed = Bed::new();
    let version = bed.sim.version();
    bed.ok("POST", &format!("{MAPS}?dryRun=All"), map("a")).await;
    assert_eq!(bed.get(&format!("{MAPS}/a")).await.0, 404);
    bed.ok("POST", MAPS, map("a")).await;
    bed.ok("PATCH", &format!("{MAPS}/a?dryRun=All"), json!({"data": {"a": "2"}})).await;
    bed.ok("DELETE", &format!("{MAPS}/a?dryRun=All"), Value::Null).await;
    assert_eq!(bed.get(&format!("{MAPS}/a")).await.1["data"]["a"], "1");
    assert_eq!(bed.sim.version(), version + 1);
}

#[tokio::test(start_paused = true)]
async fn invalid_input_is_reported_by_field() {
    let bed = Bed::new();
    let mut bad = deployment("web", -1);
    bad["spec"]["template"]["spec"]["containers"] = json!([{"name": "C"}]);
    bad["spec"]["template"]["metadata"]["labels"] = json!({"app": "other"});
    let refused = bed.call("POST", DEPLOYMENTS, bad).await;
    let causes = refused.1["details"]["causes"].as_array().unwrap();
    let fields: Vec<&str> = causes.iter().map(|cause| cause["field"].as_str().unwrap()).collect();
    let container = "spec.template.spec.containers[0]";
    let expected = [
        "spec.replicas",
        "spec.template.metadata.labels",
        &format!("{container}.name"),
        &format!("{container}.image"),
    ];
    assert_eq!(fields, expected);
    let mut other = deployment("web", 1);
    bed.ok("POST", DEPLOYMENTS, other.clone()).await;
    other["spec"]["selector"]["matchLabels"]["app"] = json!("x");
    let immutable = bed.call("PUT", &format!("{DEPLOYMENTS}/web"), other).await;
    assert!(immutable.1["message"].as_str().unwrap().contains("field is immutable"));
    for name in ["A", "a_b", "-a", "a..b"] {
        assert_eq!(bed.call("POST", MAPS, map(name)).await.0, 422, "{name}");
    }
}

/// A request that is not understood must not write.
#[tokio::test(start_paused = true)]
async fn misspelt_requests_write_nothing() {
    let bed = Bed::new();
    let made = bed.ok("POST", MAPS, map("a")).await;
    let a = format!("{MAPS}/a");
    for query in ["?dryRun=true", "?dryRun=all"] {
        assert_eq!(
            bed.call("PATCH", &format!("{a}{query}"), json!({"data": {"a": "2"}})).await.0,
            422,
            "{query}"
        );
        assert_eq!(bed.call("DELETE", &format!("{a}{query}"), Value::Null).await.0, 422, "{query}");
    }
    assert_eq!(bed.call("DELETE", &a, json!({"preconditions": {"uid": ""}})).await.0, 409);
    for wrong in
        [json!({"preconditions": {"uid": 5}}), json!({"preconditions": "x"}), json!({"dryRun": ["x"]})]
    {
        assert!(matches!(bed.call("DELETE", &a, wrong.clone()).await.0, 400 | 422), "{wrong}");
    }
    for wrong in [
        json!({"propagationPolicy": ["Orphan"]}),
        json!({"gracePeriodSeconds": "0"}),
        json!({"orphanDependents": "true"}),
        json!({"dryRun": "All"}),
    ] {
        for path in [MAPS, &a] {
            assert_eq!(bed.call("DELETE", path, wrong.clone()).await.0, 400, "{wrong}");
        }
    }
    for query in ["?gracePeriodSeconds=x", "?labelSelector=app!=we%20b"] {
        assert_eq!(bed.call("DELETE", &format!("{MAPS}{query}"), Value::Null).await.0, 400, "{query}");
    }
    assert_eq!(bed.call("DELETE", MAPS, json!({"preconditions": {"uid": "other"}})).await.0, 409);
    assert_eq!(bed.call("DELETE", "/api/v1/configmaps", Value::Null).await.0, 405, "not across namespaces");
    assert_eq!(
        bed.call("DELETE", &format!("{MAPS}/a&b"), Value::Null).await.0,
        404,
        "the name includes the &"
    );
    assert_eq!(bed.call("DELETE", "/api/v1/namespaces/default", Value::Null).await.0, 403);
    let mut again = made.clone();
    again["metadata"]["name"] = json!("b");
    assert_eq!(bed.call("POST", MAPS, again).await.0, 500, "a new object must not have a version");
    let mut nameless = made.clone();
    nameless["metadata"].as_object_mut().unwrap().remove("name");
    assert_eq!(bed.call("PUT", &a, nameless).await.0, 400);
    assert_eq!(bed.get(&a).await.1, made);
}

#[tokio::test(start_paused = true)]
async fn owner_references_are_decoded_by_their_type() {
    let bed = Bed::new();
    let owned = |key: &str, value: Value| {
        let mut reference = json!({"apiVersion": "v1", "kind": "Pod", "name": "x", "uid": "y"});
        reference[key] = value;
        let mut owned = map("a");
        owned["metadata"]["ownerReferences"] = json!([reference]);
        owned
    };
    assert_eq!(bed.call("POST", MAPS, owned("controller", json!("true"))).await.0, 400);
    let strict = bed.call("POST", &format!("{MAPS}?fieldValidation=Strict"), owned("other", json!(1))).await;
    let words = strict.1["message"].as_str().unwrap();
    assert!(words.contains("unknown field \"metadata.ownerReferences[0].other\""), "{words}");
    let made = bed.ok("POST", MAPS, owned("other", json!(1))).await;
    assert_eq!(made["metadata"]["ownerReferences"][0]["other"], Value::Null);
    assert_eq!(made["metadata"]["ownerReferences"][0]["name"], "x");
}
