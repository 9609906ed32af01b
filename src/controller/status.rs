//! Writes a status when it differs.
//!
//! # Guarantees
//! - A write whose answer is lost counts, when a read shows it. (test: `a_status_that_is_stored_though_the_answer_is_lost_is_told`)
//! - What is to go goes, also a key of a map in it. (test: `a_patch_holds_what_differs_and_null_for_what_goes`)
//! - A patch leads to what is wanted, and the next one is none. (test: `after_a_patch_nothing_differs`)

use serde::Serialize;
use serde_json::{Map, Value};

use crate::api::ApiResource;
use crate::cache::{Meta, ObjectName};
use crate::client::{ApiClient, Error};

/// Merge-patches the status of the object at `resource_version` to be `wanted`; writes nothing when it
/// is so already. The version that it wrote, if it did.
///
/// # Errors
/// [`Error`]; a conflict means that the object has changed since.
pub async fn write<S: Serialize>(
    client: &ApiClient,
    resource: &ApiResource,
    object: &ObjectName,
    resource_version: &str,
    stored: Option<&S>,
    wanted: &S,
) -> Result<Option<String>, Error> {
    #[derive(serde::Deserialize)]
    struct Written {
        metadata: Meta,
    }
    let Some(patch) = difference(stored, wanted) else { return Ok(None) };
    let (namespace, name) = (object.namespace(), object.name());
    match client.patch_status(resource, namespace, name, resource_version, &patch).await {
        Ok(Written { metadata }) => Ok(Some(metadata.resource_version)),
        Err(error) if may_be_stored(&error) => {
            // The next pass would find it there, and take what has changed for told.
            let live = client.get::<Value>(resource, namespace, name).await.ok().flatten();
            live.and_then(|live| version_with(&live, wanted)).map(Some).ok_or(error)
        }
        Err(error) => Err(error),
    }
}

/// Whether a write may have been made in spite of this error.
fn may_be_stored(error: &Error) -> bool {
    error.is_connection() || error.status().is_some_and(|status| status.code >= 500)
}

/// The version of a live object that has this status.
fn version_with<S: Serialize>(live: &Value, wanted: &S) -> Option<String> {
    let wanted = serde_json::to_value(wanted).ok()?;
    let version = live.pointer("/metadata/resourceVersion")?.as_str()?;
    difference(Some(&live["status"]), &wanted).is_none().then(|| version.to_owned())
}

/// The merge patch from one to the other; `None` when there is none.
fn difference<S: Serialize>(stored: Option<&S>, wanted: &S) -> Option<Value> {
    let fields = |status: &S| match serde_json::to_value(status) {
        Ok(Value::Object(fields)) => fields,
        _ => Map::new(),
    };
    let patch = changes(&stored.map(fields).unwrap_or_default(), &fields(wanted));
    (!patch.is_empty()).then_some(Value::Object(patch))
}

/// The same, map by map, as RFC 7396 has it: a list is one value, and null is nothing.
fn changes(stored: &Map<String, Value>, wanted: &Map<String, Value>) -> Map<String, Value> {
    let mut patch = Map::new();
    for (name, wanted) in wanted.iter().filter(|(_, wanted)| !wanted.is_null()) {
        match (stored.get(name), wanted) {
            (Some(Value::Object(stored)), Value::Object(wanted)) => {
                let inner = changes(stored, wanted);
                if !inner.is_empty() {
                    patch.insert(name.clone(), Value::Object(inner));
                }
            }
            (stored, _) if stored == Some(wanted) => {}
            _ => drop(patch.insert(name.clone(), wanted.clone())),
        }
    }
    for (name, _) in stored.iter().filter(|(_, stored)| !stored.is_null()) {
        if wanted.get(name).is_none_or(Value::is_null) {
            patch.insert(name.clone(), Value::Null);
        }
    }
    patch
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    #[test]
    fn a_patch_holds_what_differs_and_null_for_what_goes() {
        let stored = json!({"replicas": 1, "selector": "a=b", "gone": true});
        let wanted = json!({"replicas": 2, "selector": "a=b"});
        assert_eq!(difference(Some(&stored), &wanted), Some(json!({"replicas": 2, "gone": null})));
        assert_eq!(difference(Some(&wanted), &wanted), None);
        assert_eq!(difference(None, &wanted), Some(wanted));
        let stored = json!({"labels": {"a": "b", "extra": "x"}, "list": [1, 2]});
        let wanted = json!({"labels": {"a": "b"}, "list": [1], "none": null});
        let patch = json!({"labels": {"extra": null}, "list": [1]});
        assert_eq!(difference(Some(&stored), &wanted), Some(patch));
    }

    /// As a server does: RFC 7396.
    fn merge(target: &mut Value, patch: &Value) {
        let Value::Object(patch) = patch else {
            target.clone_from(patch);
            return;
        };
        if !target.is_object() {
            *target = json!({});
        }
        let fields = target.as_object_mut().unwrap();
        for (name, patch) in patch {
            if patch.is_null() {
                fields.remove(name);
            } else {
                merge(fields.entry(name).or_insert(Value::Null), patch);
            }
        }
    }

    fn some_status() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![Just(json!(null)), (0..3).prop_map(|n| json!(n)), Just(json!([{"a": 1}]))];
        let value = leaf.prop_recursive(3, 12, 3, |inner| {
            prop::collection::btree_map("[a-c]", inner, 0..3).prop_map(|map| json!(map))
        });
        prop::collection::btree_map("[a-c]", value, 0..3).prop_map(|map| json!(map))
    }

    #[test]
    fn only_the_status_that_is_wanted_counts_as_written() {
        let live = |status: Value| json!({"metadata": {"resourceVersion": "7"}, "status": status});
        let wanted = json!({"replicas": 2, "none": null});
        assert_eq!(version_with(&live(json!({"replicas": 2})), &wanted), Some("7".to_owned()));
        for other in [json!({"replicas": 1}), json!({"replicas": 2, "more": 1}), json!(null)] {
            assert_eq!(version_with(&live(other), &wanted), None);
        }
    }

    proptest! {
        #[test]
        fn after_a_patch_nothing_differs(mut stored in some_status(), wanted in some_status()) {
            // What is null is not stored.
            let mut clean = json!({});
            merge(&mut clean, &stored);
            stored = clean;
            if let Some(patch) = difference(Some(&stored), &wanted) {
                merge(&mut stored, &patch);
            }
            prop_assert_eq!(difference(Some(&stored), &wanted), None, "{}", stored);
        }
    }
}
