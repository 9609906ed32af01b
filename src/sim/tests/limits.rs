use proptest::prelude::*;

use super::*;
use crate::sim::request::MAX_BODY;
use crate::sim::watch::BUFFER;
use crate::sim::write::MAX_OBJECT;

#[tokio::test(start_paused = true)]
async fn oversized_body_is_refused_with_413() {
    let bed = Bed::new();
    let mut big = map("a");
    big["data"]["a"] = json!("x".repeat(MAX_BODY));
    assert_eq!(reason(&bed.call("POST", MAPS, big).await), (413, "RequestEntityTooLarge"));
}

#[tokio::test(start_paused = true)]
async fn data_is_limited_to_one_mebibyte() {
    let bed = Bed::new();
    let half = "x".repeat(512 * 1024);
    let data = |rest: &str| json!({"a": half, "b": half, "c": rest});
    let sent = |key: &str, rest: &str| json!({"metadata": {"name": "a"}, key: data(rest)});
    let secrets = "/api/v1/namespaces/default/secrets";
    for (path, key, field) in [(MAPS, "data", ""), (secrets, "stringData", "data")] {
        let refused = bed.call("POST", path, sent(key, "x")).await;
        assert_eq!(reason(&refused), (422, "Invalid"));
        let cause = &refused.1["details"]["causes"][0];
        assert_eq!((&cause["field"], &cause["reason"]), (&json!(field), &json!("FieldValueTooLong")));
        assert_eq!(cause["message"], "Too long: may not be more than 1048576 bytes");
        bed.ok("POST", path, sent(key, "")).await;
    }
}

#[tokio::test(start_paused = true)]
async fn oversized_object_is_not_stored() {
    let bed = Bed::new();
    let web = format!("{DEPLOYMENTS}/web");
    let big = json!([{"name": "c", "image": "i", "args": ["x".repeat(MAX_OBJECT)]}]);
    let big = json!({"spec": {"template": {"spec": {"containers": big}}}});
    let mut new = deployment("new", 0);
    json_patch::merge(&mut new, &big);
    let made = bed.ok("POST", DEPLOYMENTS, deployment("web", 0)).await;
    for (verb, path, body) in [("POST", DEPLOYMENTS, new), ("PATCH", web.as_str(), big.clone())] {
        let refused = bed.call(verb, path, body).await;
        assert_eq!(refused.0, 500, "{verb}");
        assert_eq!(refused.1["message"], "etcdserver: request is too large");
    }
    assert_eq!(bed.get(&format!("{DEPLOYMENTS}/new")).await.0, 404);
    // A stored object that is too large cannot be scaled.
    let mut oversized = made;
    json_patch::merge(&mut oversized, &big);
    bed.sim.write_behind("apps", "deployments", &oversized);
    assert_eq!(bed.call("PATCH", &format!("{web}/scale"), json!({"spec": {"replicas": 1}})).await.0, 500);
}

#[tokio::test(start_paused = true)]
async fn malformed_bodies_are_refused_with_400() {
    let bed = Bed::new();
    for body in [
        "",
        "{",
        "[]",
        "null",
        "{\"kind\":\"Pod\",\"apiVersion\":\"v1\"}",
        "{\"data\":{\"a\":1}}",
        "{\"metadata\":1}",
    ] {
        let response = bed.send("POST", MAPS, "application/json", body.as_bytes().to_vec()).await.unwrap();
        assert_eq!(response.status(), 400, "{body}");
    }
}

#[tokio::test(start_paused = true)]
async fn watch_that_is_not_read_is_cut() {
    let bed = Bed::new();
    bed.ok("POST", MAPS, map("a")).await;
    let mut slow = bed.watch(&format!("{MAPS}?watch=true&resourceVersion={}", bed.sim.version())).await;
    for n in 0..=BUFFER + 10 {
        bed.ok("PATCH", &format!("{MAPS}/a"), json!({"data": {"a": n.to_string()}})).await;
    }
    assert_eq!(bed.sim.watches(), 0);
    let mut events = 0;
    while slow.next().await.is_some() {
        events += 1;
    }
    assert!((BUFFER..=BUFFER + 2).contains(&events), "{events}");
}

fn bytes() -> impl Strategy<Value = Vec<u8>> {
    let json = prop::sample::select(vec![
        "{",
        "}",
        "[",
        "]",
        ":",
        ",",
        "null",
        "\"a\"",
        "\"spec\"",
        "\"metadata\"",
        "\"name\"",
        "\"labels\"",
        "1",
        "-1",
        "\"template\"",
        "\"containers\"",
        "\"ports\"",
        "\"kind\"",
        "\"apiVersion\"",
        "\"v1\"",
        "\"op\"",
        "\"path\"",
        "\"/a\"",
        "\"$patch\"",
        "\"finalizers\"",
        "1e400",
        "\"\\u0000\"",
        "\"schema\"",
        "\"rule\"",
    ]);
    prop_oneof![
        prop::collection::vec(any::<u8>(), 0..80),
        prop::collection::vec(json, 0..24).prop_map(|parts| parts.concat().into_bytes()),
        shaped().prop_map(|value| value.to_string().into_bytes()),
    ]
}

/// Generates JSON of any shape with meaningful field names.
fn shaped() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        "[a-z/.$]{0,8}".prop_map(Value::from),
    ];
    let name = prop::sample::select(vec![
        "metadata",
        "name",
        "namespace",
        "labels",
        "annotations",
        "finalizers",
        "ownerReferences",
        "spec",
        "status",
        "replicas",
        "selector",
        "matchLabels",
        "template",
        "containers",
        "ports",
        "port",
        "nodePort",
        "versions",
        "schema",
        "kind",
        "openAPIV3Schema",
        "properties",
        "type",
        "x-kubernetes-validations",
        "rule",
        "group",
        "names",
        "hard",
        "rules",
        "resourceVersion",
        "uid",
        "preconditions",
        "propagationPolicy",
        "strategy",
        "rollingUpdate",
        "maxSurge",
        "$patch",
    ]);
    leaf.prop_recursive(5, 40, 6, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map(name.clone(), inner, 0..6).prop_map(|members| members
                .into_iter()
                .map(|(k, v)| (k.to_owned(), v))
                .collect::<serde_json::Map<_, _>>()
                .into()),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn no_request_panics_the_server(
        verb in prop::sample::select(vec!["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD"]),
        path in prop::sample::select(vec![
            MAPS, DEPLOYMENTS, PODS, FOOS, "/api/v1/namespaces", "/api/v1/namespaces/default/services",
            "/apis/networking.k8s.io/v1/namespaces/default/ingresses", "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers",
            "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", "/apis/events.k8s.io/v1/namespaces/default/events",
            "/api/v1/namespaces/default/resourcequotas", "/api", "/apis", "/openapi/v3", "/",
        ]),
        rest in "(/web|/foos\\.example\\.com|/default|/kubernetes|/a)?(/status|/scale|/x)?(\\?[a-zA-Z]{0,16}=[a-z0-9,=!()%-]{0,12})?",
        media in prop::sample::select(vec![
            "application/json", "application/merge-patch+json", "application/json-patch+json",
            "application/strategic-merge-patch+json", "text/plain", "",
        ]),
        body in bytes(),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        runtime.block_on(async {
            let mut bed = Bed::new();
            bed.define_foos().await;
            bed.ok("POST", FOOS, foo("a")).await;
            bed.ok("POST", DEPLOYMENTS, deployment("web", 1)).await;
            bed.ok("POST", MAPS, map("a")).await;
            if let Ok(path) = format!("{path}{rest}").parse::<http::Uri>() {
                let answered = bed.send(verb, &path.to_string(), media, body.clone()).await.unwrap();
                // Like a real server, it answers 500 to lists without merge key and to versions on new objects.
                let is_known = media.starts_with("application/strategic") || verb == "POST" || rest.contains("resourceVersion");
                assert!(answered.status().as_u16() != 500 || is_known);
            }
            // The controllers have synced whatever was stored, and the server still answers.
            settle().await;
            bed.get(MAPS).await;
            assert!(bed.driver.try_join_next().is_none(), "a simulated controller panicked");
        });
    }
}
