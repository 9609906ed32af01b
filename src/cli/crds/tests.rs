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
    let files =
        std::fs::read_dir(dir()).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut files: Vec<String> = files.filter(|name| name.ends_with(".yaml")).collect();
    files.retain(|name| name != "kustomization.yaml");
    files.sort();
    assert_eq!(files.len(), definitions().len(), "crd/ has other files: {files:?}");
    let kustomization = std::fs::read_to_string(dir().join("kustomization.yaml")).unwrap();
    let listed: Vec<String> =
        kustomization.lines().filter_map(|line| line.strip_prefix("- ")).map(str::to_owned).collect();
    assert_eq!(listed, files, "run hack/update-codegen.sh");
}

#[test]
fn definition_is_found_by_any_of_its_names() {
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
fn definitions_share_category_columns_and_subresources() {
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
fn schemas_are_structural_documented_and_bounded() {
    for crd in definitions() {
        let schema = schema(&crd);
        for part in ["spec", "status"] {
            let name = format!("{}.{part}", crd.spec.names.kind);
            is_sane(&schema["properties"][part], &name, part == "spec");
        }
    }
}

/// Checks that every schema has a type, every field a description, every list a merge rule and, in the spec, where rules
/// apply, every list and map a bound.
fn is_sane(schema: &Value, field: &str, is_spec: bool) {
    for word in ["$ref", "definitions", "patternProperties", "dependencies"] {
        assert!(schema.get(word).is_none(), "{field} has {word}");
    }
    let is_int_or_string = schema["x-kubernetes-int-or-string"] == true;
    assert_eq!(schema["type"].is_string(), !is_int_or_string, "{field} needs exactly one type");
    for (name, inner) in schema["properties"].as_object().into_iter().flatten() {
        let field = format!("{field}.{name}");
        let text = inner["description"].as_str().unwrap_or_default();
        assert!(text.len() > 10 && text.ends_with('.'), "{field} is not explained: {text:?}");
        let lines_of_paragraphs = text.split("\n\n").map(|paragraph| paragraph.lines().count());
        assert!(
            lines_of_paragraphs.max() <= Some(1),
            "{field} has line breaks that kubectl explain shows: {text:?}"
        );
        is_sane(inner, &field, is_spec);
    }
    if schema["type"] == "array" {
        assert!(schema["x-kubernetes-list-type"].is_string(), "{field} has no list type");
        assert!(!is_spec || schema["maxItems"].is_number(), "{field} is unbounded");
        is_sane(&schema["items"], &format!("{field}[]"), is_spec);
    }
    if let Some(inner) = schema.get("additionalProperties") {
        assert!(!is_spec || schema["maxProperties"].is_number(), "{field} is unbounded");
        is_sane(inner, &format!("{field}{{}}"), is_spec);
    }
    let rules = schema["x-kubernetes-validations"].as_array();
    for rule in rules.into_iter().flatten() {
        assert!(rule["message"].is_string() || rule["messageExpression"].is_string(), "{field}: no message");
    }
}

/// Reads the samples of a kind, from its file.
fn samples(kind: &str) -> Vec<Value> {
    let path = dir().join(format!("samples/{}.yaml", kind.to_lowercase()));
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let comments = text.split("---\n").filter(|document| document.starts_with("# ")).count();
    let documents: Vec<Value> = serde_saphyr::from_multiple(&text).unwrap();
    assert_eq!(comments, documents.len(), "{}: each document needs a comment", path.display());
    documents
}

#[test]
fn each_kind_has_samples_with_unique_child_names() {
    let mut names: BTreeMap<String, String> = BTreeMap::new();
    for crd in definitions() {
        let kind = &crd.spec.names.kind;
        let found = samples(kind);
        assert_eq!(found.len(), 2, "{kind}");
        for sample in found {
            assert_eq!(sample["kind"], **kind);
            let child = sample.pointer("/spec/deploymentName").unwrap_or(&sample["metadata"]["name"]);
            let other = names.insert(child.as_str().unwrap().to_owned(), kind.clone());
            assert_eq!(other, None, "{kind}: two samples want a child named {child}");
        }
    }
    assert_eq!(std::fs::read_dir(dir().join("samples")).unwrap().count(), definitions().len());
}

/// Checks that the samples decode, and that no field is lost.
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
fn samples_decode_without_loss() {
    decodes::<Foo>();
    decodes::<Myapp>();
    decodes::<AppService>();
    decodes::<Redis>();
    decodes::<WebApp>();
}

/// A stored object may lack fields that today's schema defaults, and a status may lack any field.
#[test]
fn missing_fields_get_defaults() {
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
