//! Masks the parts of two servers' responses that may differ, and compares the rest.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::Said;
use super::generate::Step;
use super::kinds::Kind;

/// Members that are specific to each server, or that the embedded server does not store.
const OWN: [&str; 6] =
    ["creationTimestamp", "managedFields", "resourceVersion", "selfLink", "uid", "remainingItemCount"];

/// Returns the part of a response that is compared.
pub(super) fn masked(said: &Said, kind: &Kind, step: &Step) -> Value {
    let body = &said.body;
    if said.code == 200 && step.is_watch() {
        // The order of a watch's initial events is undefined.
        let mut all = events(body["events"].as_array().map_or(&[], Vec::as_slice), kind);
        if let Some(all) = all.as_array_mut() {
            all.sort_by_key(|event| (event[0] == "BOOKMARK", event.to_string()));
        }
        return json!({"code": said.code, "events": all});
    }
    if said.code == 200 && step.is_from_cache() {
        return json!({"code": said.code, "kind": body["kind"]});
    }
    if said.code >= 400 {
        let details = &body["details"];
        let mut causes: Vec<Value> = details["causes"].as_array().cloned().unwrap_or_default();
        for cause in &mut causes {
            *cause = json!([cause["reason"], cause["field"]]);
        }
        causes.sort_by_key(ToString::to_string);
        causes.dedup();
        return json!({
            "code": said.code,
            "reason": body["reason"],
            "causes": causes,
            "about": [details["group"], details["kind"], details["name"]],
            "retryAfter": details["retryAfterSeconds"],
        });
    }
    json!({"code": said.code, "warnings": said.warnings, "body": object(body, kind)})
}

/// Returns the types and masked objects of events.
pub(super) fn events(events: &[Value], kind: &Kind) -> Value {
    let compared = |event: &Value| match event["type"].as_str() {
        Some("BOOKMARK") => json!(["BOOKMARK", event["object"]["metadata"]["annotations"]]),
        Some("ERROR") => json!(["ERROR", [event["object"]["code"], event["object"]["reason"]]]),
        _ => json!([event["type"], object(&event["object"], kind)]),
    };
    // Bookmarks depend on timing, except the annotated one that ends a streamed list.
    let is_timed =
        |event: &&Value| event["type"] == "BOOKMARK" && event["object"]["metadata"]["annotations"].is_null();
    let mut events: Vec<Value> = events.iter().filter(|event| !is_timed(event)).map(compared).collect();
    // The real server sends an event even if a write only changes `managedFields`.
    let mut last: BTreeMap<String, Value> = BTreeMap::new();
    events.retain(|event| {
        let before = last.insert(event[1]["metadata"]["name"].to_string(), event.clone());
        event[0] != "MODIFIED" || before.as_ref() != Some(event)
    });
    Value::Array(events)
}

pub(super) fn object(value: &Value, kind: &Kind) -> Value {
    let mut value = strip(value);
    for pointer in kind.chosen_by_the_server {
        if let Some(chosen) = value.pointer_mut(pointer) {
            *chosen = json!("chosen");
        }
    }
    if let Some(items) = value.get_mut("items").and_then(Value::as_array_mut) {
        for item in items {
            *item = object(item, kind);
            // The real server omits both in lists of built-in kinds.
            if let Some(item) = item.as_object_mut() {
                item.remove("kind");
                item.remove("apiVersion");
            }
        }
    }
    value
}

/// Removes server-specific members, and empty ones, which only one of the servers may write.
fn strip(value: &Value) -> Value {
    match value {
        Value::Object(members) => {
            let mut kept = Map::new();
            for (key, value) in members {
                if OWN.contains(&key.as_str()) {
                    continue;
                }
                let value = match key.as_str() {
                    "deletionTimestamp" | "continue" if *value != json!("") => json!("set"),
                    _ => strip(value),
                };
                let is_empty = match &value {
                    Value::Null => true,
                    Value::String(text) => text.is_empty(),
                    Value::Array(items) => items.is_empty(),
                    Value::Object(members) => members.is_empty(),
                    Value::Bool(_) | Value::Number(_) => false,
                };
                if !is_empty {
                    kept.insert(key.clone(), value);
                }
            }
            Value::Object(kept)
        }
        Value::Array(items) => items.iter().map(strip).collect(),
        other => other.clone(),
    }
}

/// Describes the first difference between two values.
pub(super) fn difference(real: &Value, embedded: &Value) -> String {
    fn walk(path: &str, a: &Value, b: &Value) -> Option<String> {
        match (a, b) {
            (Value::Object(x), Value::Object(y)) => {
                let mut keys: Vec<&String> = x.keys().chain(y.keys()).collect();
                keys.sort();
                keys.dedup();
                keys.into_iter().find_map(|key| {
                    let at = format!("{path}/{key}");
                    walk(&at, x.get(key).unwrap_or(&Value::Null), y.get(key).unwrap_or(&Value::Null))
                })
            }
            (Value::Array(x), Value::Array(y)) if x.len() == y.len() => {
                x.iter().zip(y).enumerate().find_map(|(at, (a, b))| walk(&format!("{path}/{at}"), a, b))
            }
            (a, b) if a == b => None,
            (a, b) => Some(format!("  at {path}: real {a}, embedded {b}")),
        }
    }
    walk("", real, embedded).unwrap_or_default()
}
