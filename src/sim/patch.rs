//! Applies JSON patches, merge patches and strategic merge patches.
//!
//! A library applies the first two. Strategic merge patches, which no crate implements, are applied here: they
//! merge lists of objects by merge key and support `$patch`, `$retainKeys`, `$deleteFromPrimitiveList` and
//! `$setElementOrder`.

use std::collections::HashMap;

use serde_json::{Map, Value};

use super::failure::{Failure, Outcome};
use super::request::MAX_BODY;

/// The maximum nesting of an object, the same as of a body.
const MAX_DEPTH: usize = 127;

/// The media type of a strategic merge patch.
pub(super) const STRATEGIC: &str = "application/strategic-merge-patch+json";

/// The media type of a server-side apply.
pub(super) const APPLY: &str = "application/apply-patch+yaml";

/// The merge keys of lists in built-in kinds, by field name; other lists are replaced whole.
/// (`ports` has different keys in a Service and a container.)
const MERGE_KEYS: [(&str, &[&str]); 17] = [
    ("containers", &["name"]),
    ("initContainers", &["name"]),
    ("ephemeralContainers", &["name"]),
    ("env", &["name"]),
    ("volumes", &["name"]),
    ("volumeMounts", &["mountPath"]),
    ("volumeDevices", &["devicePath"]),
    ("ports", &["containerPort", "port"]),
    ("imagePullSecrets", &["name"]),
    ("secrets", &["name"]),
    ("hostAliases", &["ip"]),
    ("topologySpreadConstraints", &["topologyKey"]),
    ("conditions", &["type"]),
    ("ownerReferences", &["uid"]),
    ("resourceClaims", &["name"]),
    ("podIPs", &["ip"]),
    ("schedulingGates", &["name"]),
];

/// Lists of primitive values that are merged as sets.
const MERGED_SETS: [&str; 1] = ["finalizers"];

/// Applies a strategic merge patch, for tests elsewhere.
#[cfg(test)]
pub(crate) fn strategic_merge(target: &Value, patch: &Value) -> Result<Value, String> {
    let mut patched = target.clone();
    strategic(&mut patched, patch).map(|()| patched)
}

/// Refuses an unsupported patch type, before the object is looked up.
pub(super) fn check_media(media: &str, is_built_in: bool) -> Outcome<()> {
    let unknown = |accepted: &str| {
        Err(Failure::unsupported_media_type(format!(
            "the body of the request was in an unknown format - accepted media types include: {accepted}"
        )))
    };
    let all = "application/json-patch+json, application/merge-patch+json, application/strategic-merge-patch+json, \
         application/apply-patch+yaml";
    match media_type(media) {
        "application/json-patch+json" | "application/merge-patch+json" => Ok(()),
        "application/strategic-merge-patch+json" if is_built_in => Ok(()),
        APPLY => Ok(()),
        _ if is_built_in => unknown(all),
        _ => {
            unknown("application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml")
        }
    }
}

/// Returns whether a patch is a server-side apply.
pub(super) fn is_apply(media: &str) -> bool {
    media_type(media) == APPLY
}

fn media_type(media: &str) -> &str {
    media.split(';').next().unwrap_or_default().trim()
}

/// Applies a patch of the given media type.
pub(super) fn apply(media: &str, target: &Value, body: &[u8], is_built_in: bool) -> Outcome<Value> {
    check_media(media, is_built_in)?;
    if media_type(media) == "application/json-patch+json" {
        return json_patch(target, body);
    }
    let patch = object(body)?;
    let mut patched = target.clone();
    if media_type(media) == "application/merge-patch+json" {
        json_patch::merge(&mut patched, &patch);
    } else {
        // A real server gives no reason either.
        strategic(&mut patched, &patch).map_err(|why| Failure::new(500, "", why))?;
    }
    Ok(patched)
}

fn object(body: &[u8]) -> Outcome<Value> {
    let patch = super::request::parse_json(body)?;
    if patch.is_object() { Ok(patch) } else { Err(Failure::bad_request("a patch must be a JSON object")) }
}

fn json_patch(target: &Value, body: &[u8]) -> Outcome<Value> {
    let patch: json_patch::Patch =
        serde_json::from_slice(body).map_err(|error| Failure::bad_request(error.to_string()))?;
    if patch.0.len() > 10_000 {
        return Err(Failure::new(
            413,
            "RequestEntityTooLarge",
            format!("The allowed maximum operations in a JSON patch is 10000, got {}", patch.0.len()),
        ));
    }
    let mut patched = target.clone();
    let mut copied = 0;
    for step in patch.0 {
        let step = as_go(step, &patched);
        copied += check_growth(&step, &patched)?;
        if copied > MAX_BODY {
            let why = format!("a JSON patch may copy at most {MAX_BODY} bytes in total");
            return Err(Failure::new(413, "RequestEntityTooLarge", why));
        }
        json_patch::patch(&mut patched, &[step]).map_err(|error| {
            let words = format!("the server rejected our request due to an error in our request: {error}");
            Failure::new(422, "Invalid", words)
        })?;
    }
    Ok(patched)
}

/// Returns the bytes that an operation copies, and refuses one that nests too deep: otherwise a short patch
/// could create an object of any size or depth.
fn check_growth(step: &json_patch::PatchOperation, target: &Value) -> Outcome<usize> {
    use json_patch::PatchOperation as Step;
    let (path, value, is_copy) = match step {
        Step::Add(add) => (&add.path, Some(&add.value), false),
        Step::Replace(replace) => (&replace.path, Some(&replace.value), false),
        Step::Copy(copy) => (&copy.path, target.pointer(copy.from.as_str()), true),
        Step::Move(moved) => (&moved.path, target.pointer(moved.from.as_str()), false),
        Step::Remove(_) | Step::Test(_) => return Ok(0),
    };
    let Some(value) = value else { return Ok(0) };
    if path.as_str().matches('/').count() + depth(value) > MAX_DEPTH {
        return Err(Failure::new(
            422,
            "Invalid",
            format!("a patch may nest at most {MAX_DEPTH} levels deep"),
        ));
    }
    Ok(if is_copy { value.to_string().len() } else { 0 })
}

fn depth(value: &Value) -> usize {
    match value {
        Value::Object(members) => 1 + members.values().map(depth).max().unwrap_or_default(),
        Value::Array(items) => 1 + items.iter().map(depth).max().unwrap_or_default(),
        _ => 0,
    }
}

/// Turns a replacement of a missing member into an addition, as Go's library does.
fn as_go(step: json_patch::PatchOperation, target: &Value) -> json_patch::PatchOperation {
    match step {
        json_patch::PatchOperation::Replace(replace) if target.pointer(replace.path.as_str()).is_none() => {
            json_patch::PatchOperation::Add(json_patch::AddOperation {
                path: replace.path,
                value: replace.value,
            })
        }
        other => other,
    }
}

/// Merges a strategic patch into an object.
fn strategic(target: &mut Value, patch: &Value) -> Result<(), String> {
    let Some(patch) = patch.as_object() else {
        *target = patch.clone();
        return Ok(());
    };
    match patch.get("$patch").and_then(Value::as_str) {
        Some("replace") => {
            let rest = patch.iter().filter(|(key, _)| *key != "$patch");
            *target = Value::Object(rest.map(|(key, value)| (key.clone(), value.clone())).collect());
            return Ok(());
        }
        Some("delete") => {
            *target = Value::Object(Map::new());
            return Ok(());
        }
        Some("merge") | None => {}
        Some(other) => return Err(format!("Unknown $patch type {other:?}")),
    }
    if !target.is_object() {
        *target = Value::Object(Map::new());
    }
    let Some(members) = target.as_object_mut() else { return Ok(()) };
    if let Some(kept) = patch.get("$retainKeys").and_then(Value::as_array) {
        members.retain(|key, _| kept.iter().any(|kept| kept == key));
    }
    for (key, value) in patch {
        if let Some(list) = key.strip_prefix("$deleteFromPrimitiveList/") {
            let gone = value.as_array().cloned().unwrap_or_default();
            if let Some(items) = members.get_mut(list).and_then(Value::as_array_mut) {
                items.retain(|item| !gone.contains(item));
            }
        } else if key.starts_with('$') {
            // An order applies together with its list's patch, or alone if the list is not patched.
            if let (Some(list), Some(order)) = (key.strip_prefix("$setElementOrder/"), value.as_array())
                && !patch.contains_key(list)
                && let Some(items) = members.get_mut(list).and_then(Value::as_array_mut)
                && let Some(merge_key) = merge_key(list, order)
            {
                let before = items.clone();
                put_in_order(items, &before, by(merge_key), order);
            }
        } else if value.is_null() {
            members.remove(key);
        } else {
            let order = patch.get(&format!("$setElementOrder/{key}")).and_then(Value::as_array);
            merge_member(members, key, value, order)?;
        }
    }
    Ok(())
}

fn merge_member(
    members: &mut Map<String, Value>,
    key: &str,
    value: &Value,
    order: Option<&Vec<Value>>,
) -> Result<(), String> {
    match value {
        Value::Object(_) => {
            if let Some(inner) = members.get_mut(key).filter(|inner| inner.is_object()) {
                return strategic(inner, value);
            }
            match without_directives(value) {
                Some(added) => members.insert(key.to_owned(), added),
                None => members.remove(key),
            };
            Ok(())
        }
        Value::Array(patches) if merge_key(key, patches).is_some() => {
            let merge_key = merge_key(key, patches).unwrap_or_default();
            let Some(mut items) = members.get(key).and_then(Value::as_array).cloned() else {
                // There is no list to merge with.
                let added = patches.iter().filter(|patch| patch.get("$patch").is_none());
                members.insert(key.to_owned(), added.cloned().collect());
                return Ok(());
            };
            let before = items.clone();
            merge_list(&mut items, merge_key, patches)?;
            put_in_order(&mut items, &before, by(merge_key), order.unwrap_or(patches));
            members.insert(key.to_owned(), Value::Array(items));
            Ok(())
        }
        Value::Array(added) if MERGED_SETS.contains(&key) => {
            let items = members.entry(key.to_owned()).or_insert_with(|| Value::Array(Vec::new()));
            if let Some(items) = items.as_array_mut() {
                let before = items.clone();
                for item in added {
                    if !items.contains(item) {
                        items.push(item.clone());
                    }
                }
                put_in_order(items, &before, Value::to_string, order.unwrap_or(added));
            }
            Ok(())
        }
        other => {
            members.insert(key.to_owned(), other.clone());
            Ok(())
        }
    }
}

/// Returns the value to add to an object without such a field. A map with a directive, even `replace`, is not added, as
/// on a real server.
fn without_directives(value: &Value) -> Option<Value> {
    match value {
        Value::Object(map) if map.contains_key("$patch") => None,
        Value::Object(map) => {
            let kept = map.iter().filter(|(key, value)| !key.starts_with('$') && !value.is_null());
            let kept = kept.filter_map(|(key, value)| Some((key.clone(), without_directives(value)?)));
            Some(Value::Object(kept.collect()))
        }
        Value::Array(items) => Some(items.iter().filter_map(without_directives).collect()),
        other => Some(other.clone()),
    }
}

/// Returns the merge key of a list field by its name.
pub(super) fn declared_merge_key(list: &str) -> Option<&'static str> {
    MERGE_KEYS.iter().find(|(name, _)| *name == list).map(|(_, keys)| keys[0])
}

/// Returns the merge key of a list of objects, preferring a key that some element has.
fn merge_key(list: &str, elements: &[Value]) -> Option<&'static str> {
    let (_, keys) = MERGE_KEYS.iter().find(|(name, _)| *name == list)?;
    if !elements.iter().all(Value::is_object) {
        return None;
    }
    let carried = |key: &&&str| elements.iter().any(|element| element.get(**key).is_some());
    Some(keys.iter().find(carried).copied().unwrap_or(keys[0]))
}

fn merge_list(items: &mut Vec<Value>, key: &str, patches: &[Value]) -> Result<(), String> {
    if patches.iter().any(|patch| patch["$patch"] == "replace") {
        *items = patches.iter().filter(|patch| patch.get("$patch").is_none()).cloned().collect();
        return Ok(());
    }
    let mut positions: HashMap<String, usize> =
        items.iter().enumerate().filter_map(|(at, item)| Some((item.get(key)?.to_string(), at))).collect();
    let mut gone = Vec::new();
    for patch in patches {
        let Some(id) = patch.get(key) else {
            return Err(format!("map: {patch} does not contain declared merge key: {key}"));
        };
        let at = positions.get(&id.to_string()).copied();
        match (patch["$patch"].as_str(), at) {
            (Some("delete"), at) => gone.extend(at),
            (_, Some(at)) => strategic(&mut items[at], patch)?,
            (_, None) => {
                let mut added = Value::Null;
                strategic(&mut added, patch)?;
                positions.insert(id.to_string(), items.len());
                items.push(added);
            }
        }
    }
    let mut at = 0;
    items.retain(|_| {
        at += 1;
        !gone.contains(&(at - 1))
    });
    Ok(())
}

/// Returns what tells the items of a list with this merge key apart.
fn by(key: &str) -> impl Fn(&Value) -> String {
    move |item| item.get(key).map(Value::to_string).unwrap_or_default()
}

/// Orders a merged list: items in the patch follow its order, the others keep the server's. The two sequences
/// are merged by the items' old positions; new items come first.
fn put_in_order(items: &mut Vec<Value>, before: &[Value], id: impl Fn(&Value) -> String, order: &[Value]) {
    let positions = |list: &[Value]| -> HashMap<String, usize> {
        list.iter().enumerate().rev().map(|(at, item)| (id(item), at)).collect()
    };
    let (before, order) = (positions(before), positions(order));
    let (mut named, rest): (Vec<Value>, Vec<Value>) =
        items.drain(..).partition(|item| order.contains_key(&id(item)));
    named.sort_by_cached_key(|item| order.get(&id(item)).copied());
    let (mut named, mut rest) = (named.into_iter().peekable(), rest.into_iter().peekable());
    while let (Some(left), Some(right)) = (named.peek(), rest.peek()) {
        let takes_left = before.get(&id(left)) <= before.get(&id(right));
        items.extend(if takes_left { named.next() } else { rest.next() });
    }
    items.extend(named.chain(rest));
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[track_caller]
    fn check(target: Value, patch: &Value, expected: &Value) {
        let mut target = target;
        strategic(&mut target, patch).unwrap();
        assert_eq!(&target, expected);
    }

    #[test]
    fn lists_merge_by_key_or_are_replaced() {
        let target = json!({"containers": [{"name": "a", "image": "1", "args": ["x"]}, {"name": "b"}], "tolerations": [1]});
        let patch = json!({"containers": [{"name": "a", "image": "2", "args": ["y"]}, {"name": "c"}], "tolerations": [2]});
        let expected = json!({"containers": [{"name": "a", "image": "2", "args": ["y"]}, {"name": "c"}, {"name": "b"}], "tolerations": [2]});
        check(target, &patch, &expected);
    }

    /// A short patch must not create an object of any size or depth.
    #[test]
    fn json_patch_growth_is_limited() {
        let doubling: Vec<Value> =
            (0..60).map(|n| json!({"op": "copy", "from": "/data", "path": format!("/data/k{n}")})).collect();
        let body = Value::from(doubling).to_string();
        assert!(json_patch(&json!({"data": {"a": "x".repeat(1000)}}), body.as_bytes()).is_err());
        let path = "/a".repeat(200);
        let deep = json!([{"op": "add", "path": path, "value": {}}]).to_string();
        assert!(json_patch(&json!({}), deep.as_bytes()).is_err());
    }

    /// `kubectl apply` sends such a patch to change a strategy.
    #[test]
    fn retain_keys_drops_other_keys() {
        let target = json!({"strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1}}});
        let patch = json!({"strategy": {"$retainKeys": ["type"], "type": "Recreate"}});
        check(target, &patch, &json!({"strategy": {"type": "Recreate"}}));
    }

    /// As a real server: a map that is to replace nothing is not added.
    #[test]
    fn map_with_a_directive_is_not_added() {
        let mut object = json!({"resources": {}});
        let patch = json!({"resources": {"requests": {"$patch": "replace", "cpu": "1"}}, "more": {"a": null, "b": 1}});
        strategic(&mut object, &patch).unwrap();
        assert_eq!(object, json!({"resources": {}, "more": {"b": 1}}));
        let mut object = json!({"resources": {"requests": {"memory": "1"}}});
        strategic(&mut object, &patch).unwrap();
        assert_eq!(object["resources"], json!({"requests": {"cpu": "1"}}));
    }

    #[test]
    fn sets_are_merged_in_the_order_of_the_patch() {
        let target = json!({"finalizers": ["a", "b", "c"]});
        check(
            target.clone(),
            &json!({"finalizers": ["new"]}),
            &json!({"finalizers": ["new", "a", "b", "c"]}),
        );
        check(target, &json!({"finalizers": ["b", "a"]}), &json!({"finalizers": ["b", "a", "c"]}));
    }

    #[test]
    fn directives_delete_replace_and_order() {
        let target = json!({"env": [{"name": "a"}, {"name": "b"}], "finalizers": ["x/1", "x/2"], "selector": {"a": 1}});
        let patch = json!({"env": [{"name": "a", "$patch": "delete"}, {"name": "c"}],
            "$setElementOrder/env": [{"name": "c"}, {"name": "b"}],
            "$deleteFromPrimitiveList/finalizers": ["x/1"], "selector": {"b": 2, "$patch": "replace"}});
        let expected =
            json!({"env": [{"name": "c"}, {"name": "b"}], "finalizers": ["x/2"], "selector": {"b": 2}});
        check(target, &patch, &expected);
    }
}
