use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::*;

fn dir() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("crd")
}

#[test]
fn crds_are_fresh() {
    for crd in definitions() {
        let path = dir().join(format!("{}.yaml", crd.metadata.name.as_deref().unwrap()));
        let stored = std::fs::read_to_string(&path).unwrap_or_default();
        let is_fresh = stored == yaml(&crd).unwrap();
        assert!(is_fresh, "{} is stale: run hack/update-codegen.sh", path.display());
    }
}

#[test]
fn a_definition_is_found_by_any_of_its_names() {
    let all = definitions();
    for (name, plural) in [
        ("Foo", "foos"),
        ("FOOS", "foos"),
        ("fo", "foos"),
        ("ma", "myapps"),
        ("appservice", "appservices"),
        ("AppSvc", "appservices"),
        ("redis", "redis"),
        ("rd", "redis"),
    ] {
        assert_eq!(find(name, &all).unwrap().spec.names.plural, plural, "{name}");
    }
    assert!(find("bar", &all).unwrap_err().to_string().contains("foo, myapp, appservice, redis"));
}

#[test]
fn a_definition_has_what_every_kind_promises() {
    for crd in definitions() {
        let names = &crd.spec.names;
        assert_eq!(names.categories.as_deref(), Some(&["windlass".to_owned()][..]), "{}", names.kind);
        assert!(names.short_names.is_some(), "{}", names.kind);
        let version = &crd.spec.versions[0];
        let subresources = version.subresources.as_ref().unwrap();
        assert!(subresources.status.is_some());
        let scale = subresources.scale.as_ref().unwrap();
        assert_eq!(scale.spec_replicas_path, ".spec.replicas");
        assert_eq!(scale.status_replicas_path, ".status.replicas");
        assert_eq!(scale.label_selector_path.as_deref(), Some(".status.selector"));
        let columns = version.additional_printer_columns.as_ref().unwrap();
        for (wanted, path) in [
            ("Ready", ".status.conditions[?(@.type==\"Ready\")].status"),
            ("Reason", ".status.conditions[?(@.type==\"Ready\")].reason"),
            ("Age", ".metadata.creationTimestamp"),
        ] {
            let found = columns.iter().find(|column| column.name == wanted);
            assert_eq!(found.map(|column| column.json_path.as_str()), Some(path), "{}", names.kind);
        }
        let schema = schema(&crd);
        assert_eq!(schema.pointer("/properties/status/properties/selector/type").unwrap(), "string");
        let conditions = schema.pointer("/properties/status/properties/conditions").unwrap();
        assert_eq!(conditions["x-kubernetes-list-type"], "map", "{}", names.kind);
        assert_eq!(conditions["x-kubernetes-list-map-keys"], serde_json::json!(["type"]), "{}", names.kind);
        let rule = schema.pointer("/x-kubernetes-validations/0/message").and_then(Value::as_str);
        assert!(rule.unwrap().starts_with("metadata.name must "), "{}", names.kind);
    }
}

fn schema(crd: &CustomResourceDefinition) -> Value {
    let version = serde_json::to_value(&crd.spec.versions[0]).unwrap();
    version["schema"]["openAPIV3Schema"].clone()
}

#[test]
fn a_schema_is_structural_explained_and_bounded() {
    for crd in definitions() {
        let schema = schema(&crd);
        for part in ["spec", "status"] {
            let name = format!("{}.{part}", crd.spec.names.kind);
            is_sane(&schema["properties"][part], &name, part == "spec");
        }
    }
}

/// A type everywhere, a text for each field, a merge rule for each list; in the spec, where rules look, an end to
/// each list and each map.
fn is_sane(schema: &Value, field: &str, is_spec: bool) {
    for word in ["$ref", "definitions", "patternProperties", "dependencies"] {
        assert!(schema.get(word).is_none(), "{field} has {word}");
    }
    let is_int_or_string = schema["x-kubernetes-int-or-string"] == true;
    assert_eq!(schema["type"].is_string(), !is_int_or_string, "{field} has one type");
    for (name, inner) in schema["properties"].as_object().into_iter().flatten() {
        let field = format!("{field}.{name}");
        let text = inner["description"].as_str().unwrap_or_default();
        assert!(text.len() > 10 && text.ends_with('.'), "{field} is not explained: {text:?}");
        is_sane(inner, &field, is_spec);
    }
    if schema["type"] == "array" {
        assert!(schema["x-kubernetes-list-type"].is_string(), "{field} has a list type");
        assert!(!is_spec || schema["maxItems"].is_number(), "{field} has an end");
        is_sane(&schema["items"], &format!("{field}[]"), is_spec);
    }
    if let Some(inner) = schema.get("additionalProperties") {
        assert!(!is_spec || schema["maxProperties"].is_number(), "{field} has an end");
        is_sane(inner, &format!("{field}{{}}"), is_spec);
    }
    let rules = schema["x-kubernetes-validations"].as_array();
    for rule in rules.into_iter().flatten() {
        assert!(rule["message"].is_string() || rule["messageExpression"].is_string(), "{field} says why");
    }
}

/// The samples of a kind, one file each.
fn samples(kind: &str) -> Vec<Value> {
    let path = dir().join(format!("samples/{}.yaml", kind.to_lowercase()));
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let comments = text.split("---\n").filter(|document| document.starts_with("# ")).count();
    let documents: Vec<Value> = serde_saphyr::from_multiple(&text).unwrap();
    assert_eq!(comments, documents.len(), "{}: each document says what it is", path.display());
    documents
}

#[test]
fn each_kind_has_a_small_and_a_full_sample_with_names_of_their_own() {
    let mut names: BTreeMap<String, String> = BTreeMap::new();
    for crd in definitions() {
        let kind = &crd.spec.names.kind;
        let found = samples(kind);
        assert_eq!(found.len(), 2, "{kind}");
        for sample in found {
            assert_eq!(sample["kind"], **kind);
            let child = sample.pointer("/spec/deploymentName").unwrap_or(&sample["metadata"]["name"]);
            let other = names.insert(child.as_str().unwrap().to_owned(), kind.clone());
            assert_eq!(other, None, "{kind}: two samples want a child of the name {child}");
        }
    }
    assert_eq!(std::fs::read_dir(dir().join("samples")).unwrap().count(), definitions().len());
}

/// A sample decodes, and nothing in it is lost.
#[track_caller]
fn decodes<K: CustomResourceExt + DeserializeOwned + Serialize>() {
    for sample in samples(&K::crd().spec.names.kind) {
        let decoded: K = serde_json::from_value(sample.clone()).unwrap();
        let again = serde_json::to_value(&decoded).unwrap();
        assert_eq!(again["apiVersion"], sample["apiVersion"]);
        is_within(&sample["spec"], &again["spec"]);
    }
}

fn is_within(part: &Value, whole: &Value) {
    match (part, whole) {
        (Value::Object(part), Value::Object(_)) => part.iter().for_each(|(key, v)| is_within(v, &whole[key])),
        (Value::Array(part), Value::Array(whole)) => {
            assert_eq!(part.len(), whole.len());
            part.iter().zip(whole).for_each(|(part, whole)| is_within(part, whole));
        }
        // A quantity written as a number.
        (Value::Number(part), Value::String(whole)) => assert_eq!(&part.to_string(), whole),
        _ => assert_eq!(part, whole),
    }
}

#[test]
fn each_sample_decodes_into_its_type() {
    decodes::<Foo>();
    decodes::<Myapp>();
    decodes::<AppService>();
    decodes::<Redis>();
    decodes::<WebApp>();
}

/// What a server has stored may lack what the schema fills in today, and a status may lack anything.
#[test]
fn what_is_missing_has_a_default() {
    let spec = serde_json::json!({"image": "nginx", "containerPort": 80, "servicePort": 80});
    let myapp: Myapp =
        serde_json::from_value(serde_json::json!({"metadata": {}, "spec": spec, "status": {}})).unwrap();
    assert_eq!((myapp.spec.replicas, myapp.spec.env.len(), myapp.spec.host), (1, 0, None));
    assert_eq!(myapp.status, Some(Default::default()));
    let spec = serde_json::json!({"replicas": 0, "image": "nginx", "ports": [{"port": 80}]});
    let service: AppService =
        serde_json::from_value(serde_json::json!({"metadata": {}, "spec": spec, "status": {}})).unwrap();
    assert_eq!((service.spec.ports[0].protocol.as_deref(), service.spec.resources), (None, None));
    assert_eq!(service.status, Some(Default::default()));
    let spec = serde_json::json!({"image": "redis", "port": 6379});
    let redis: Redis =
        serde_json::from_value(serde_json::json!({"metadata": {}, "spec": spec, "status": {}})).unwrap();
    assert_eq!((redis.spec.replicas, redis.status), (1, Some(Default::default())));
}
