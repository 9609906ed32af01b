use proptest::prelude::*;

use super::*;
use crate::controller::kinds::difference::describe;

fn wanted() -> WantedIngress {
    WantedIngress {
        name: "web".to_owned(),
        labels: Labels::from([("managed-by".to_owned(), "windlass".to_owned())]),
        class: "nginx".to_owned(),
        host: "web.example.com".to_owned(),
        service: "web".to_owned(),
        service_port: 80,
    }
}

fn observe(live: &Value) -> ObservedIngress {
    serde_json::from_value(live.clone()).expect("a live Ingress decodes")
}

fn differences(wanted: &WantedIngress, live: &Value) -> String {
    describe(&wanted.differences(&observe(live)))
}

fn applied(wanted: &WantedIngress, mut live: Value) -> Value {
    wanted.write_into(&mut live);
    live
}

fn path(path: &str, path_type: &str, port: &Value) -> Value {
    json!({"path": path, "pathType": path_type, "backend": {"service": {"name": "web", "port": port}}})
}

#[test]
fn host_routes_to_a_single_service_port() {
    let spec = json!({"ingressClassName": "nginx", "rules": [
        {"host": "web.example.com", "http": {"paths": [path("/", "Prefix", &json!({"number": 80}))]}}]});
    assert_eq!(applied(&wanted(), json!({}))["spec"], spec);
}

#[test]
fn foreign_ingress_fields_are_kept() {
    let live = json!({
        "metadata": {"labels": {"team": "a"}, "annotations": {"cert-manager.io/cluster-issuer": "x"}},
        "spec": {"tls": [{"hosts": ["web.example.com"], "secretName": "tls"}], "newer": 1,
            "defaultBackend": {"service": {"name": "other", "port": {"number": 1}}}},
        "status": {"loadBalancer": {"ingress": [{"ip": "1.2.3.4"}]}},
    });
    let written = applied(&wanted(), live.clone());
    for pointer in [
        "/metadata/labels/team",
        "/metadata/annotations",
        "/spec/tls",
        "/spec/newer",
        "/spec/defaultBackend",
        "/status",
    ] {
        assert_eq!(written.pointer(pointer), live.pointer(pointer), "{pointer}");
    }
    assert_eq!(differences(&wanted(), &written), "");
}

#[test]
fn ingress_rules_are_replaced_as_a_whole() {
    #[track_caller]
    fn check(change: impl FnOnce(&mut Value), expected: &str) {
        let mut live = applied(&wanted(), json!({}));
        change(&mut live["spec"]);
        assert_eq!(differences(&wanted(), &live), expected);
        let written = applied(&wanted(), live);
        assert_eq!(written, applied(&wanted(), json!({})));
    }
    let rules = "spec.rules was different";
    check(|spec| spec["rules"].as_array_mut().unwrap().push(json!({"host": "b"})), rules);
    check(
        |spec| spec["rules"][0]["http"]["paths"] = json!([path("/x", "Prefix", &json!({"number": 80}))]),
        rules,
    );
    check(
        |spec| spec["rules"][0]["http"]["paths"] = json!([path("/", "Exact", &json!({"number": 80}))]),
        rules,
    );
    check(
        |spec| spec["rules"][0]["http"]["paths"] = json!([path("/", "Prefix", &json!({"name": "http"}))]),
        rules,
    );
    check(|spec| spec["rules"][0]["host"] = json!("other"), rules);
    check(|spec| spec["rules"] = json!([]), rules);
    let class = r#"spec.ingressClassName was "other", wanted "nginx""#;
    check(|spec| spec["ingressClassName"] = json!("other"), class);
    let none = r#"spec.ingressClassName was null, wanted "nginx""#;
    check(|spec| drop(spec.as_object_mut().unwrap().remove("ingressClassName")), none);
}

fn some_wanted() -> impl Strategy<Value = WantedIngress> {
    ("(nginx|other)", "(web|\\*)\\.example\\.com", "(web|other)", 80..82_i32).prop_map(
        |(class, host, service, service_port)| WantedIngress {
            class,
            host,
            service,
            service_port,
            ..wanted()
        },
    )
}

proptest! {
    #[test]
    fn applied_ingress_has_no_differences(
        wanted in some_wanted(),
        before in prop::option::of(some_wanted()),
        more in any::<bool>(),
    ) {
        let mut live = json!({"metadata": {"name": "web"}});
        if let Some(before) = before {
            before.write_into(&mut live);
            if more {
                live["spec"]["rules"].as_array_mut().unwrap().push(json!({"http": {"paths": []}}));
            }
        }
        let differed = !differences(&wanted, &live).is_empty();
        let written = applied(&wanted, live.clone());
        prop_assert_eq!(differences(&wanted, &written), "");
        prop_assert_eq!(&applied(&wanted, written.clone()), &written);
        prop_assert!(differed || written == live, "no difference, yet the body changes: {live} {written}");
    }
}
