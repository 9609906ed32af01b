//! The fields that a write would change, as lines for people and programs.
//!
//! An update is the live object compared with the server's answer, so the lines show what the server's defaults and
//! webhooks make of it. Of a create, only the fields that are sent are shown, with the values of the answer.
//!
//! # Guarantees
//! - Items of a list are named by their key, not by their position. (test: `list_items_are_named_by_their_key`)
//! - Values of environment variables and annotations are never shown. (test: `secret_values_are_never_shown`)
//! - What the server counts or stamps itself is left out. (test: `bookkeeping_of_the_server_is_left_out`)

use std::collections::BTreeSet;

use serde::Serialize;
use serde_json::{Map, Value};

/// Takes the place of a value that may be secret.
pub const HIDDEN: &str = "(hidden)";

/// Fields of the metadata that every write changes, or none.
const BOOKKEEPING: [&str; 6] =
    ["creationTimestamp", "generation", "managedFields", "resourceVersion", "selfLink", "uid"];
/// Fields of a new object that its name and its owner already tell.
const KNOWN_OF_A_NEW_ONE: [&str; 5] =
    ["apiVersion", "kind", "metadata.name", "metadata.namespace", "metadata.ownerReferences"];
/// Fields by which Kubernetes tells the items of a list apart; the first that all items have is used.
const KEYS: [&str; 8] = ["name", "type", "containerPort", "port", "mountPath", "key", "uid", "ip"];

/// A field that would change.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Change {
    /// The path: `spec.template.spec.containers[web].image`.
    pub field: String,
    /// The stored value; `None` if there is none.
    pub before: Option<Value>,
    /// The value that would be stored; `None` if the field would be removed.
    pub after: Option<Value>,
}

/// Returns the fields that an update would change.
pub(super) fn of_update(before: &Value, after: &Value) -> Vec<Change> {
    let mut found = Vec::new();
    compare("", Some(before), Some(after), &mut found);
    found
}

/// Returns the fields of a new object that were sent, with the values that would be stored.
pub(super) fn of_create(sent: &Value, answer: &Value) -> Vec<Change> {
    let (mut wanted, mut stored) = (Vec::new(), Vec::new());
    compare("", None, Some(sent), &mut wanted);
    compare("", None, Some(answer), &mut stored);
    wanted.retain(|one| {
        !KNOWN_OF_A_NEW_ONE.iter().any(|known| {
            one.field.strip_prefix(known).is_some_and(|rest| rest.is_empty() || rest.starts_with('['))
        })
    });
    for one in &mut wanted {
        let as_stored = stored.iter().find(|stored| stored.field == one.field);
        one.after = as_stored.and_then(|stored| stored.after.clone());
    }
    wanted
}

fn compare(path: &str, before: Option<&Value>, after: Option<&Value>, found: &mut Vec<Change>) {
    if before == after {
        return;
    }
    match (before, after) {
        (Some(Value::Object(before)), Some(Value::Object(after))) => fields(path, before, after, found),
        (Some(Value::Object(all)), None) if !all.is_empty() => fields(path, all, &Map::new(), found),
        (None, Some(Value::Object(all))) if !all.is_empty() => fields(path, &Map::new(), all, found),
        (Some(Value::Array(before)), Some(Value::Array(after))) => items(path, before, after, found),
        (Some(Value::Array(all)), None) => items(path, all, &[], found),
        (None, Some(Value::Array(all))) => items(path, &[], all, found),
        (before, after) => leaf(path, before, after, found),
    }
}

fn leaf(path: &str, before: Option<&Value>, after: Option<&Value>, found: &mut Vec<Change>) {
    let is_secret = is_secret(path);
    let shown = |value: &Value| if is_secret { Value::from(HIDDEN) } else { value.clone() };
    if before == after {
        return;
    }
    let (before, after) = (before.map(shown), after.map(shown));
    found.push(Change { field: path.to_owned(), before, after });
}

/// Whether the value at this path may be secret. An annotation may repeat a whole manifest.
fn is_secret(path: &str) -> bool {
    path.contains(".env[") && path.ends_with(".value") || path.contains("metadata.annotations")
}

fn fields(path: &str, before: &Map<String, Value>, after: &Map<String, Value>, found: &mut Vec<Change>) {
    let names: BTreeSet<&String> = before.keys().chain(after.keys()).collect();
    for name in names {
        let is_stamp = path.starts_with("status.conditions[") && name == "lastTransitionTime";
        if is_stamp || path == "metadata" && BOOKKEEPING.contains(&name.as_str()) {
            continue;
        }
        let inner = match (path, name.contains(['.', '/'])) {
            (_, true) => format!("{path}[{name}]"),
            ("", false) => name.clone(),
            (_, false) => format!("{path}.{name}"),
        };
        compare(&inner, before.get(name), after.get(name), found);
    }
}

fn items(path: &str, before: &[Value], after: &[Value], found: &mut Vec<Change>) {
    let all = || before.iter().chain(after);
    if !all().all(Value::is_object) || all().next().is_none() {
        let whole = |list: &[Value]| (!list.is_empty()).then(|| Value::from(list.to_vec()));
        let (before, after) = (whole(before), whole(after));
        return leaf(path, before.as_ref(), after.as_ref(), found);
    }
    let key = KEYS.into_iter().find(|key| names_each(before, key) && names_each(after, key));
    let ids = |list: &[Value]| -> Vec<String> {
        let id = |(at, item): (usize, &Value)| key.and_then(|key| id_of(item, key)).unwrap_or(at.to_string());
        list.iter().enumerate().map(id).collect()
    };
    let (ids_before, ids_after) = (ids(before), ids(after));
    let order: Vec<&String> =
        ids_before.iter().chain(ids_after.iter().filter(|id| !ids_before.contains(id))).collect();
    for id in order {
        let at =
            |ids: &[String], list: &[Value]| ids.iter().position(|one| one == id).map(|at| list[at].clone());
        let (before, after) = (at(&ids_before, before), at(&ids_after, after));
        compare(&format!("{path}[{id}]"), before.as_ref(), after.as_ref(), found);
    }
    let is_moved = |ids: &[String], others: &[String]| -> Vec<String> {
        ids.iter().filter(|id| others.contains(id)).cloned().collect()
    };
    let (was, is) = (is_moved(&ids_before, &ids_after), is_moved(&ids_after, &ids_before));
    if was != is {
        found.push(Change {
            field: format!("{path} (order)"),
            before: Some(was.into()),
            after: Some(is.into()),
        });
    }
}

/// Whether each item has this field, and no two have the same value.
fn names_each(list: &[Value], key: &str) -> bool {
    let ids: Option<BTreeSet<String>> = list.iter().map(|item| id_of(item, key)).collect();
    ids.is_some_and(|ids| ids.len() == list.len())
}

fn id_of(item: &Value, key: &str) -> Option<String> {
    match item.get(key)? {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn check(before: &Value, after: &Value, expected: &[(&str, Value, Value)]) {
        let known = |value: &Value| (!value.is_null()).then(|| value.clone());
        let expected: Vec<Change> = expected
            .iter()
            .map(|(field, before, after)| Change {
                field: (*field).to_owned(),
                before: known(before),
                after: known(after),
            })
            .collect();
        assert_eq!(of_update(before, after), expected);
    }

    #[test]
    fn list_items_are_named_by_their_key() {
        let pod = |items: Value| json!({"spec": {"containers": items}});
        let before = pod(json!([{"name": "a", "image": "x:1"}, {"name": "b", "image": "y"}]));
        let after = pod(json!([{"name": "b", "image": "y"}, {"name": "a", "image": "x:2"}, {"name": "c"}]));
        let none = Value::Null;
        check(
            &before,
            &after,
            &[
                ("spec.containers[a].image", json!("x:1"), json!("x:2")),
                ("spec.containers[c].name", none.clone(), json!("c")),
                ("spec.containers (order)", json!(["a", "b"]), json!(["b", "a"])),
            ],
        );
        check(
            &json!({"args": ["a"]}),
            &json!({"args": ["a", "b"]}),
            &[("args", json!(["a"]), json!(["a", "b"]))],
        );
        check(&json!({"finalizers": ["a"]}), &json!({}), &[("finalizers", json!(["a"]), none.clone())]);
        check(&json!({"args": []}), &json!({}), &[]);
        let twice = json!({"ports": [{"name": "a"}, {"name": "a"}]});
        check(&twice, &json!({"ports": [{"name": "a"}]}), &[("ports[1].name", json!("a"), none)]);
    }

    #[test]
    fn keys_with_dots_are_put_in_brackets() {
        let labels = |value: &str| json!({"metadata": {"labels": {"app.kubernetes.io/name": value}}});
        let field = "metadata.labels[app.kubernetes.io/name]";
        check(&labels("a"), &labels("b"), &[(field, json!("a"), json!("b"))]);
    }

    #[test]
    fn secret_values_are_never_shown() {
        let object = |value: &str| {
            json!({"metadata": {"annotations": {"windlass.dev/spec": value}},
                "spec": {"containers": [{"name": "a", "env": [{"name": "TOKEN", "value": value}]}]}})
        };
        for changes in [
            of_update(&object("canary-1"), &object("canary-2")),
            of_create(&object("canary-1"), &object("canary-2")),
            of_update(&json!({}), &object("canary-1")),
            of_update(&object("canary-1"), &json!({})),
        ] {
            let text = serde_json::to_string(&changes).unwrap();
            assert!(!text.contains("canary"), "{text}");
            assert!(text.contains("env[TOKEN].value") && text.contains("windlass.dev/spec"), "{text}");
        }
    }

    #[test]
    fn bookkeeping_of_the_server_is_left_out() {
        let at = |version: &str| {
            json!({"metadata": {"resourceVersion": version, "generation": version, "uid": version,
                "managedFields": [{"manager": version}], "creationTimestamp": version}})
        };
        check(&at("1"), &at("2"), &[]);
        let at = |time: &str, status: &str| json!({"status": {"conditions": [{"type": "Ready", "status": status, "lastTransitionTime": time}]}});
        let field = "status.conditions[Ready].status";
        check(&at("1", "True"), &at("2", "False"), &[(field, json!("True"), json!("False"))]);
    }

    #[test]
    fn create_shows_the_sent_fields_as_stored() {
        let sent = json!({"kind": "Pod", "metadata": {"name": "a", "ownerReferences": [{"name": "x"}]},
            "spec": {"replicas": 3, "image": "a"}});
        let answer = json!({"kind": "Pod", "metadata": {"name": "a"},
            "spec": {"replicas": 2, "image": "a", "defaulted": true}});
        let change =
            |field: &str, after: Value| Change { field: field.to_owned(), before: None, after: Some(after) };
        let expected = [change("spec.image", json!("a")), change("spec.replicas", json!(2))];
        assert_eq!(of_create(&sent, &answer), expected);
    }
}
