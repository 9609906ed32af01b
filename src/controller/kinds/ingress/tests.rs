use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::controller::kinds::tests::{applied, check_again, created, shown};

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

fn path(path: &str, path_type: &str, port: &Value) -> Value {
    json!({"path": path, "pathType": path_type, "backend": {"service": {"name": "web", "port": port}}})
}

#[test]
fn host_routes_to_a_single_service_port() {
    let spec = json!({"ingressClassName": "nginx", "rules": [
        {"host": "web.example.com", "http": {"paths": [path("/", "Prefix", &json!({"number": 80}))]}}]});
    assert_eq!(created(&wanted())["spec"], spec);
}

#[test]
fn foreign_ingress_fields_are_kept() {
    let live = json!({
        "metadata": {"uid": "u", "labels": {"team": "a"}, "annotations": {"cert-manager.io/cluster-issuer": "x"}},
        "spec": {"tls": [{"hosts": ["web.example.com"], "secretName": "tls"}], "newer": 1,
            "defaultBackend": {"service": {"name": "other", "port": {"number": 1}}}},
        "status": {"loadBalancer": {"ingress": [{"ip": "1.2.3.4"}]}},
    });
    let written = applied(&wanted(), &live);
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
}

#[test]
fn ingress_rules_are_replaced_as_a_whole() {
    #[track_caller]
    fn check(change: impl FnOnce(&mut Value), expected: &str) {
        let mut live = created(&wanted());
        change(&mut live["spec"]);
        assert_eq!(shown(&wanted(), &live), expected);
        assert_eq!(applied(&wanted(), &live), created(&wanted()));
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
    let none = r#"spec.ingressClassName was none, wanted "nginx""#;
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
    fn writing_an_ingress_again_changes_nothing(
        wanted in some_wanted(),
        before in prop::option::of(some_wanted()),
        more in any::<bool>(),
    ) {
        let mut live = before.map_or_else(|| json!({"metadata": {"name": "web", "uid": "u"}}), |before| created(&before));
        if more && let Some(rules) = live.pointer_mut("/spec/rules").and_then(Value::as_array_mut) {
            rules.push(json!({"http": {"paths": []}}));
        }
        check_again(&wanted, &live);
        applied(&wanted, &live);
    }
}
