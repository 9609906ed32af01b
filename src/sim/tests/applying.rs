//! Server-side apply: ownership, conflicts, and what other writes do to them.

use serde_json::{Value, json};

use super::*;

const APPLY: &str = "application/apply-patch+yaml";

fn tracking() -> Bed {
    Bed::with(Settings { tracks_managers: true, ..Settings::default() })
}

/// Applies a configuration as a manager; `options` may add query parameters.
async fn apply(bed: &Bed, path: &str, manager: &str, options: &str, config: Value) -> (u16, Value) {
    let path = format!("{path}?fieldManager={manager}{options}");
    let response = bed.send("PATCH", &path, APPLY, config.to_string().into_bytes()).await.unwrap();
    let code = response.status().as_u16();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    (code, serde_json::from_slice(&body).unwrap())
}

/// Applies a configuration, which must succeed.
async fn applied(bed: &Bed, path: &str, manager: &str, config: Value) -> Value {
    let (code, answer) = apply(bed, path, manager, "", config).await;
    assert!(matches!(code, 200 | 201), "{code} {answer}");
    answer
}

#[expect(clippy::needless_pass_by_value, reason = "callers write json!")]
fn config(data: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": data})
}

#[expect(clippy::needless_pass_by_value, reason = "callers write json!")]
fn web(spec: Value) -> Value {
    json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}, "spec": spec})
}

/// Returns manager, operation and fields of each entry.
fn owners(object: &Value) -> Vec<(String, String, Value)> {
    let entries = object["metadata"]["managedFields"].as_array().into_iter().flatten();
    let text = |entry: &Value, name: &str| entry[name].as_str().unwrap_or_default().to_owned();
    entries
        .map(|entry| (text(entry, "manager"), text(entry, "operation"), entry["fieldsV1"].clone()))
        .collect()
}

fn owner(manager: &str, operation: &str, fields: Value) -> (String, String, Value) {
    (manager.to_owned(), operation.to_owned(), fields)
}

fn one(manager: &str, field: &str) -> Value {
    json!([{"reason": "FieldManagerConflict", "message": format!("conflict with {manager}"), "field": field}])
}

#[tokio::test(start_paused = true)]
async fn apply_creates_an_object_with_its_manager() {
    let bed = Bed::new();
    let path = format!("{MAPS}/a");
    let (code, made) = apply(&bed, &path, "me", "", config(json!({"x": "1"}))).await;
    assert_eq!((code, &made["data"]), (201, &json!({"x": "1"})));
    let entry = json!([{"manager": "me", "operation": "Apply", "apiVersion": "v1", "fieldsType": "FieldsV1",
        "time": "1970-01-01T00:00:00Z", "fieldsV1": {"f:data": {"f:x": {}}}}]);
    assert_eq!(made["metadata"]["managedFields"], entry);
    assert_eq!(bed.get(&path).await.1, made);

    let (code, refused) = apply(&bed, &path, "", "", config(json!({}))).await;
    let message =
        "PatchOptions.meta.k8s.io \"\" is invalid: fieldManager: Required value: is required for apply patch";
    assert_eq!((code, refused["message"].as_str().unwrap()), (422, message));
    let (code, _) = apply(&bed, &format!("{MAPS}/b"), "me", "", config(json!({}))).await;
    assert_eq!(code, 400, "the names differ");
}

#[tokio::test(start_paused = true)]
async fn conflict_names_manager_and_field() {
    let bed = Bed::new();
    let path = format!("{DEPLOYMENTS}/web");
    let mut whole = web(deployment("web", 2)["spec"].clone());
    applied(&bed, &path, "first", whole.clone()).await;
    let (code, refused) = apply(&bed, &path, "second", "", web(json!({"replicas": 3}))).await;
    assert_eq!((code, refused["reason"].as_str().unwrap()), (409, "Conflict"));
    assert_eq!(refused["message"], "Apply failed with 1 conflict: conflict with \"first\": .spec.replicas");
    assert_eq!(refused["details"]["causes"], one("\"first\"", ".spec.replicas"));

    // Lists merge by key, and a path shows the keys.
    let containers = json!([{"name": "c", "image": "other"}, {"name": "sidecar", "image": "s"}]);
    let more = json!({"replicas": 4, "template": {"spec": {"containers": containers}}});
    let (_, refused) = apply(&bed, &path, "second", "", web(more.clone())).await;
    assert_eq!(
        refused["message"],
        "Apply failed with 2 conflicts: conflicts with \"first\":\n- .spec.replicas\n\
         - .spec.template.spec.containers[name=\"c\"].image"
    );
    let (code, forced) = apply(&bed, &path, "second", "&force=true", web(more)).await;
    assert_eq!((code, &forced["spec"]["replicas"]), (200, &json!(4)));
    assert_eq!(forced["spec"]["template"]["spec"]["containers"].as_array().unwrap().len(), 2);

    // What was taken is no longer the first one's.
    whole["spec"]["replicas"] = json!(2);
    let (code, _) = apply(&bed, &path, "first", "", whole).await;
    assert_eq!(code, 409);
}

#[tokio::test(start_paused = true)]
async fn field_goes_with_its_last_owner() {
    let bed = Bed::new();
    let path = format!("{MAPS}/a");
    applied(&bed, &path, "one", config(json!({"own": "1", "shared": "1"}))).await;
    applied(&bed, &path, "two", config(json!({"shared": "1", "other": "1"}))).await;
    bed.ok("PATCH", &format!("{path}?fieldManager=editor"), json!({"data": {"edited": "1"}})).await;
    let after = applied(&bed, &path, "one", config(json!({}))).await;
    assert_eq!(after["data"], json!({"shared": "1", "other": "1", "edited": "1"}));
    let after = applied(&bed, &path, "two", config(json!({"other": "1"}))).await;
    assert_eq!(after["data"], json!({"other": "1", "edited": "1"}));
    assert_eq!(
        owners(&after),
        [
            // An empty map has an owner, too.
            owner("one", "Apply", json!({"f:data": {}})),
            owner("two", "Apply", json!({"f:data": {"f:other": {}}})),
            owner("editor", "Update", json!({"f:data": {"f:edited": {}}})),
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn repeated_apply_keeps_the_version() {
    let bed = Bed::new();
    let spec = deployment("web", 2)["spec"].clone();
    let path = format!("{DEPLOYMENTS}/web");
    applied(&bed, &path, "me", web(spec.clone())).await;
    settle().await;
    let before = bed.get(&path).await.1;
    let again = applied(&bed, &path, "me", web(spec.clone())).await;
    assert_eq!(again, before);
    assert_eq!(bed.get(&path).await.1, before);
    // A second owner of the same fields changes only the managers.
    let shared = applied(&bed, &path, "you", web(spec)).await;
    assert_ne!(shared["metadata"]["resourceVersion"], before["metadata"]["resourceVersion"]);
    assert_eq!(shared["metadata"]["generation"], before["metadata"]["generation"]);
}

#[tokio::test(start_paused = true)]
async fn updates_own_what_they_change() {
    let bed = tracking();
    let path = format!("{DEPLOYMENTS}/web");
    bed.ok("POST", &format!("{DEPLOYMENTS}?fieldManager=kubectl-create"), deployment("web", 2)).await;
    let edit = json!({"spec": {"minReadySeconds": 5}, "metadata": {"labels": {"a": "b"}}});
    let edited = bed.ok("PATCH", &format!("{path}?fieldManager=kubectl-edit"), edit).await;
    let own = json!({"f:metadata": {"f:labels": {".": {}, "f:a": {}}}, "f:spec": {"f:minReadySeconds": {}}});
    assert!(owners(&edited).contains(&owner("kubectl-edit", "Update", own)), "{edited}");
    bed.ok("PATCH", &format!("{path}/scale?fieldManager=kubectl"), json!({"spec": {"replicas": 3}})).await;

    let (code, refused) =
        apply(&bed, &path, "me", "", web(json!({"replicas": 1, "minReadySeconds": 1}))).await;
    assert_eq!(code, 409);
    let message = "Apply failed with 2 conflicts: conflicts with \"kubectl\" with subresource \"scale\" using apps/v1:\n\
        - .spec.replicas\nconflicts with \"kubectl-edit\" using apps/v1:\n- .spec.minReadySeconds";
    assert_eq!(refused["message"], message);

    settle().await;
    let status = &bed.get(&path).await.1;
    let controller = owners(status).into_iter().find(|owner| owner.0 == "kube-controller-manager").unwrap();
    assert_eq!(controller.2["f:status"]["f:replicas"], json!({}), "{status}");
}

#[tokio::test(start_paused = true)]
async fn first_apply_finds_an_owner_of_untracked_fields() {
    let bed = Bed::new();
    let path = format!("{MAPS}/a");
    let made = bed.ok("POST", &format!("{MAPS}?fieldManager=creator"), map("a")).await;
    assert_eq!(made["metadata"].get("managedFields"), None);
    let (_, refused) = apply(&bed, &path, "me", "", config(json!({"a": "2"}))).await;
    assert_eq!(
        refused["message"],
        "Apply failed with 1 conflict: conflict with \"before-first-apply\" using v1: .data.a"
    );
    let after = applied(&bed, &path, "me", config(json!({"b": "1"}))).await;
    let before = json!({"f:data": {".": {}, "f:a": {}}, "f:metadata": {"f:labels": {".": {}, "f:app": {}}}});
    assert_eq!(
        owners(&after),
        [owner("me", "Apply", json!({"f:data": {"f:b": {}}})), owner("before-first-apply", "Update", before)]
    );
}

#[tokio::test(start_paused = true)]
async fn lists_of_custom_kinds_merge_as_their_schema_says() {
    let bed = Bed::new();
    let texts = json!({"type": "array", "items": {"type": "string"}});
    let list = |extra: &Value| {
        let mut list = texts.clone();
        json_patch::merge(&mut list, extra);
        list
    };
    let item = json!({"type": "object", "required": ["name"], "properties": {
        "name": {"type": "string"}, "port": {"type": "integer", "default": 80}, "note": {"type": "string"}}});
    let keyed = json!({"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name", "port"], "items": item});
    let spec = json!({"type": "object", "properties": {
        "set": list(&json!({"x-kubernetes-list-type": "set"})), "list": texts, "keyed": list(&keyed),
        "atomic": {"type": "object", "x-kubernetes-map-type": "atomic", "additionalProperties": {"type": "string"}},
        "map": {"type": "object", "additionalProperties": {"type": "string"}},
        "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}});
    let schema = json!({"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}});
    let crd = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "foos.example.com"}, "spec": {"group": "example.com", "scope": "Namespaced",
            "names": {"plural": "foos", "kind": "Foo"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": schema}]}});
    bed.ok("POST", CRDS, crd).await;
    settle().await;
    let path = format!("{FOOS}/a");
    let foo = |spec: Value| json!({"apiVersion": "example.com/v1", "kind": "Foo", "metadata": {"name": "a"}, "spec": spec});
    let one = json!({"set": ["a", "b"], "keyed": [{"name": "x", "note": "1"}], "map": {"a": "1"},
        "free": {"deep": {"a": 1}, "list": [1]}});
    applied(&bed, &path, "one", foo(one)).await;
    let two = json!({"set": ["b", "c"], "keyed": [{"name": "y", "port": 1}, {"name": "x", "port": 80}], "map": {"b": "1"},
        "free": {"deep": {"b": 1}}});
    let merged = applied(&bed, &path, "two", foo(two)).await;
    let expected = json!({"set": ["a", "b", "c"], "map": {"a": "1", "b": "1"},
        "keyed": [{"name": "y", "port": 1}, {"name": "x", "port": 80, "note": "1"}],
        "free": {"deep": {"a": 1, "b": 1}, "list": [1]}});
    assert_eq!(merged["spec"], expected);
    let own = json!({"f:spec": {"f:set": {"v:\"b\"": {}, "v:\"c\"": {}}, "f:map": {"f:b": {}},
        "f:keyed": {"k:{\"name\":\"x\",\"port\":80}": {".": {}, "f:name": {}, "f:port": {}},
            "k:{\"name\":\"y\",\"port\":1}": {".": {}, "f:name": {}, "f:port": {}}},
        "f:free": {"f:deep": {".": {}, "f:b": {}}}}});
    assert_eq!(owners(&merged)[1], owner("two", "Apply", own));

    // Atomic lists and maps have one owner.
    applied(&bed, &path, "three", foo(json!({"list": ["a"], "atomic": {"a": "1"}}))).await;
    let (_, refused) =
        apply(&bed, &path, "four", "", foo(json!({"list": ["b"], "atomic": {"b": "1"}}))).await;
    let message = "Apply failed with 2 conflicts: conflicts with \"three\":\n- .spec.atomic\n- .spec.list";
    assert_eq!(refused["message"], message);

    // Items go with their last owner, too.
    let left = applied(&bed, &path, "one", foo(json!({}))).await;
    assert_eq!(left["spec"]["set"], json!(["b", "c"]));
    assert_eq!(left["spec"]["keyed"], json!([{"name": "y", "port": 1}, {"name": "x", "port": 80}]));
    assert_eq!(left["spec"]["free"], json!({"deep": {"b": 1}}));
}

#[tokio::test(start_paused = true)]
async fn client_resets_managers() {
    let bed = Bed::new();
    let path = format!("{MAPS}/a");
    for reset in [json!([]), json!([{}])] {
        let made = applied(&bed, &path, "me", config(json!({"x": "1"}))).await;
        assert!(made["metadata"]["managedFields"].is_array());
        // Clients that do not know the field do not remove it.
        let kept = bed.ok("PUT", &path, json!({"metadata": {"name": "a"}, "data": {"x": "1"}})).await;
        assert_eq!(kept["metadata"]["managedFields"], made["metadata"]["managedFields"]);
        let gone = bed.ok("PATCH", &path, json!({"metadata": {"managedFields": reset}})).await;
        assert_eq!(gone["metadata"].get("managedFields"), None);
    }
}

/// As `kubectl apply --server-side` does with an object of `kubectl apply`.
#[tokio::test(start_paused = true)]
async fn kubectl_takes_over_what_it_applied_before() {
    let bed = tracking();
    let path = format!("{MAPS}/a");
    let mut old = config(json!({"a": "1", "b": "1"}));
    let last = format!("{old}\n");
    old["metadata"]["annotations"] = json!({"kubectl.kubernetes.io/last-applied-configuration": last});
    bed.ok("POST", &format!("{MAPS}?fieldManager=kubectl-client-side-apply"), old).await;
    let (code, _) = apply(&bed, &path, "other", "", config(json!({"a": "2"}))).await;
    assert_eq!(code, 409);
    let after = applied(&bed, &path, "kubectl", config(json!({"a": "2", "b": "1"}))).await;
    let annotation = &after["metadata"]["annotations"]["kubectl.kubernetes.io/last-applied-configuration"];
    assert_eq!(annotation.as_str().unwrap(), format!("{}\n", config(json!({"a": "2", "b": "1"}))));

    // kubectl then hands the entry over by a JSON patch.
    let mut fields = owners(&after)[1].2.clone();
    assert_eq!(owners(&after)[1].0, "kubectl-client-side-apply");
    fields["f:data"]["f:a"] = json!({});
    let entry = json!([{"manager": "kubectl", "operation": "Apply", "apiVersion": "v1", "fieldsType": "FieldsV1",
        "fieldsV1": fields}]);
    let steps = json!([{"op": "replace", "path": "/metadata/managedFields", "value": entry},
        {"op": "replace", "path": "/metadata/resourceVersion", "value": after["metadata"]["resourceVersion"]}]);
    let media = "application/json-patch+json";
    let response = bed.send("PATCH", &path, media, steps.to_string().into_bytes()).await.unwrap();
    assert_eq!(response.status(), 200);
    let after = applied(&bed, &path, "kubectl", config(json!({"a": "2"}))).await;
    assert_eq!(after["data"], json!({"a": "2"}), "what is no longer applied goes");
    assert_eq!(owners(&after), [owner("kubectl", "Apply", json!({"f:data": {"f:a": {}}}))]);
}

#[tokio::test(start_paused = true)]
async fn subresources_have_their_own_managers() {
    let bed = Bed::new();
    bed.define_foos().await;
    let path = format!("{FOOS}/a");
    applied(&bed, &path, "me", foo("a")).await;
    let status = |replicas: i64| {
        json!({"apiVersion": "example.com/v1", "kind": "Foo", "metadata": {"name": "a"},
            "spec": {"name": "ignored"}, "status": {"replicas": replicas}})
    };
    let after = applied(&bed, &format!("{path}/status"), "me", status(1)).await;
    assert_eq!((&after["status"]["replicas"], &after["spec"]["name"]), (&json!(1), &json!("a")));
    let entries = after["metadata"]["managedFields"].as_array().unwrap();
    assert_eq!(entries[1]["subresource"], "status");
    assert_eq!(entries[1]["fieldsV1"], json!({"f:status": {"f:replicas": {}}}));
    let (code, _) = apply(&bed, &format!("{path}/status"), "you", "", status(2)).await;
    assert_eq!(code, 409);
    let (code, _) = apply(&bed, &format!("{FOOS}/none/status"), "me", "", {
        let mut none = status(1);
        none["metadata"]["name"] = json!("none");
        none
    })
    .await;
    assert_eq!(code, 404, "a subresource creates nothing");

    let scale = |replicas: i64| json!({"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": "web"}, "spec": {"replicas": replicas}});
    let path = format!("{DEPLOYMENTS}/web");
    let whole = |replicas: i64| web(deployment("web", replicas)["spec"].clone());
    applied(&bed, &path, "me", whole(1)).await;
    let (_, refused) = apply(&bed, &format!("{path}/scale"), "scaler", "", scale(3)).await;
    assert_eq!(refused["details"]["causes"], one("\"me\"", ".spec.replicas"));
    let (_, scaled) = apply(&bed, &format!("{path}/scale"), "scaler", "&force=true", scale(3)).await;
    assert_eq!(scaled["spec"]["replicas"], 3);
    let (_, refused) = apply(&bed, &path, "me", "", whole(2)).await;
    assert_eq!(refused["details"]["causes"], one("\"scaler\" with subresource \"scale\"", ".spec.replicas"));
    applied(&bed, &format!("{path}/scale"), "other", scale(3)).await;
    let (_, refused) = apply(&bed, &format!("{path}/scale"), "other", "", scale(4)).await;
    assert_eq!(refused["details"]["causes"], one("\"scaler\" with subresource \"scale\"", ".spec.replicas"));
}

#[tokio::test(start_paused = true)]
async fn apply_honours_preconditions_and_dry_runs() {
    let bed = Bed::new();
    let path = format!("{MAPS}/a");
    let (code, _) = apply(&bed, &path, "me", "&dryRun=All", config(json!({"x": "1"}))).await;
    assert_eq!((code, bed.get(&path).await.0), (201, 404));
    let with = |key: &str, value: &Value| {
        let mut config = config(json!({"x": "2"}));
        config["metadata"][key] = value.clone();
        config
    };
    let (code, refused) = apply(&bed, &path, "me", "", with("uid", &json!("1"))).await;
    assert_eq!(code, 409);
    assert!(refused["message"].as_str().unwrap().ends_with("and no existing object was found"));
    let made = applied(&bed, &path, "me", config(json!({"x": "1"}))).await;
    let version = &made["metadata"]["resourceVersion"];
    applied(&bed, &path, "me", with("resourceVersion", version)).await;
    let (code, _) = apply(&bed, &path, "me", "", with("resourceVersion", version)).await;
    assert_eq!(code, 409);
    let before = bed.get(&path).await;
    let (code, shown) = apply(&bed, &path, "me", "&dryRun=All", config(json!({"x": "3"}))).await;
    assert_eq!((code, shown["data"]["x"].as_str().unwrap()), (200, "3"));
    assert_eq!(bed.get(&path).await, before);
}

#[tokio::test(start_paused = true)]
async fn invalid_configurations_are_refused() {
    let bed = Bed::new();
    let path = format!("{MAPS}/a");
    let refusal = async |config: Value| {
        let (code, answer) = apply(&bed, &path, "me", "", config).await;
        (code, answer["message"].as_str().unwrap().to_owned())
    };
    let mut managed = config(json!({}));
    managed["metadata"]["managedFields"] = json!([]);
    assert_eq!(refusal(managed).await, (400, "metadata.managedFields must be nil".to_owned()));
    let other = json!({"apiVersion": "apps/v1", "kind": "Deployment"});
    assert_eq!(refusal(other).await, (400, "invalid object type: apps/v1, Kind=Deployment".to_owned()));
    let mut unknown = config(json!({}));
    unknown["spec"] = json!({});
    let message = "failed to create typed patch object (default/a; /v1, Kind=ConfigMap): .spec: field not declared in schema";
    assert_eq!(refusal(unknown).await, (500, message.to_owned()));
    assert_eq!(refusal(config(json!({"a": 1}))).await.0, 500);
    let mut twice = config(json!({}));
    twice["metadata"]["finalizers"] = json!(["a/b", "a/b"]);
    assert!(refusal(twice).await.1.ends_with(".metadata.finalizers: duplicate entries for key [=\"a/b\"]"));
    assert_eq!(refusal(json!([])).await.0, 400);

    let response = bed.send("PATCH", &path, "application/apply-patch+cbor", Vec::new()).await.unwrap();
    assert_eq!(response.status(), 415);
    let events = "/api/v1/namespaces/default/events/a?fieldManager=me";
    assert_eq!(bed.send("PATCH", events, APPLY, b"{}".to_vec()).await.unwrap().status(), 415);
    let (code, refused) = bed.call("PATCH", &format!("{path}?force=true"), json!({})).await;
    assert_eq!(code, 422);
    assert!(refused["message"].as_str().unwrap().contains("force: Forbidden"));
}
