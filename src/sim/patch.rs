//! The three kinds of patches.
//!
//! JSON patches and merge patches are a library's; the strategic one is here, as no crate has it: lists of
//! objects with a merge key are merged by it, `$patch`, `$deleteFromPrimitiveList` and `$setElementOrder`
//! are obeyed.

use serde_json::{Map, Value};

use super::failure::{Failure, Outcome};

/// The media type of a patch that knows the merge keys.
pub(super) const STRATEGIC: &str = "application/strategic-merge-patch+json";

/// The merge key of a list of objects: by the name of the list's field, for the kinds that are built in.
/// What is not here is replaced whole. (`ports` has another key in a Service than in a container.)
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

/// Lists of plain values that are merged as sets.
const MERGED_SETS: [&str; 1] = ["finalizers"];

/// Refuses what is no patch, or none for this kind: before the object is looked for.
pub(super) fn check_media(media: &str, is_built_in: bool) -> Outcome<()> {
    let unknown = |accepted: &str| {
        Err(Failure::unsupported_media_type(format!(
            "the body of the request was in an unknown format - accepted media types include: {accepted}"
        )))
    };
    let all =
        "application/json-patch+json, application/merge-patch+json, application/strategic-merge-patch+json";
    match media_type(media) {
        "application/json-patch+json" | "application/merge-patch+json" => Ok(()),
        "application/strategic-merge-patch+json" if is_built_in => Ok(()),
        "application/apply-patch+yaml" | "application/apply-patch+cbor" => {
            Err(Failure::unsupported_media_type(
                "this server has no server-side apply: use kubectl apply without --server-side, or a merge, JSON \
                 or strategic merge patch",
            ))
        }
        _ if is_built_in => unknown(all),
        _ => {
            unknown("application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml")
        }
    }
}

fn media_type(media: &str) -> &str {
    media.split(';').next().unwrap_or_default().trim()
}

/// Applies a patch of this media type.
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
        // A real server has no reason for this either.
        strategic(&mut patched, &patch).map_err(|why| Failure::new(500, "", why))?;
    }
    Ok(patched)
}

fn object(body: &[u8]) -> Outcome<Value> {
    let patch = super::request::parse_json(body)?;
    if patch.is_object() { Ok(patch) } else { Err(Failure::bad_request("a patch is a JSON object")) }
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
    let patch = json_patch::Patch(patch.0.into_iter().map(|step| as_go(step, target)).collect());
    json_patch::patch(&mut patched, &patch).map_err(|error| {
        Failure::new(
            422,
            "Invalid",
            format!("the server rejected our request due to an error in our request: {error}"),
        )
    })?;
    Ok(patched)
}

/// Go's library takes a replacement of a member that is not there for an addition.
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
    for (key, value) in patch {
        if let Some(list) = key.strip_prefix("$deleteFromPrimitiveList/") {
            let gone = value.as_array().cloned().unwrap_or_default();
            if let Some(items) = members.get_mut(list).and_then(Value::as_array_mut) {
                items.retain(|item| !gone.contains(item));
            }
        } else if key.starts_with('$') {
            // The order of elements belongs to their list; a list that is not patched has it alone.
            if let (Some(list), Some(order)) = (key.strip_prefix("$setElementOrder/"), value.as_array())
                && !patch.contains_key(list)
                && let Some(items) = members.get_mut(list).and_then(Value::as_array_mut)
                && let Some(merge_key) = merge_key(list, order)
            {
                let before = items.clone();
                put_in_order(items, &before, merge_key, order);
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
            let inner = members.entry(key.to_owned()).or_insert(Value::Null);
            strategic(inner, value)
        }
        Value::Array(patches) if merge_key(key, patches).is_some() => {
            let merge_key = merge_key(key, patches).unwrap_or_default();
            let Some(mut items) = members.get(key).and_then(Value::as_array).cloned() else {
                // There is nothing to merge with.
                let added = patches.iter().filter(|patch| patch.get("$patch").is_none());
                members.insert(key.to_owned(), added.cloned().collect());
                return Ok(());
            };
            let before = items.clone();
            merge_list(&mut items, merge_key, patches)?;
            put_in_order(&mut items, &before, merge_key, order.unwrap_or(patches));
            members.insert(key.to_owned(), Value::Array(items));
            Ok(())
        }
        Value::Array(added) if MERGED_SETS.contains(&key) => {
            let items = members.entry(key.to_owned()).or_insert_with(|| Value::Array(Vec::new()));
            if let Some(items) = items.as_array_mut() {
                for item in added {
                    if !items.contains(item) {
                        items.push(item.clone());
                    }
                }
            }
            Ok(())
        }
        other => {
            members.insert(key.to_owned(), other.clone());
            Ok(())
        }
    }
}

/// The merge key of a list, when its elements are objects that carry it.
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
    for patch in patches {
        let Some(id) = patch.get(key) else {
            return Err(format!("map: {patch} does not contain declared merge key: {key}"));
        };
        let at = items.iter().position(|item| item.get(key) == Some(id));
        match (patch["$patch"].as_str(), at) {
            (Some("delete"), Some(at)) => drop(items.remove(at)),
            (Some("delete"), None) => {}
            (_, Some(at)) => strategic(&mut items[at], patch)?,
            (_, None) => {
                let mut added = Value::Null;
                strategic(&mut added, patch)?;
                items.push(added);
            }
        }
    }
    Ok(())
}

/// Orders a merged list: what the patch names is in the patch's order, the rest in the server's, and where
/// the two meet, what stood first on the server stays first. What is new goes before what it meets.
fn put_in_order(items: &mut Vec<Value>, before: &[Value], key: &str, order: &[Value]) {
    let place = |list: &[Value], item: &Value| list.iter().position(|other| other.get(key) == item.get(key));
    let (mut named, rest): (Vec<Value>, Vec<Value>) =
        items.drain(..).partition(|item| place(order, item).is_some());
    named.sort_by_key(|item| place(order, item));
    let (mut named, mut rest) = (named.into_iter().peekable(), rest.into_iter().peekable());
    while let (Some(left), Some(right)) = (named.peek(), rest.peek()) {
        let takes_left = place(before, left) <= place(before, right);
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
    fn lists_with_a_merge_key_are_merged_and_others_replaced() {
        let target = json!({"containers": [{"name": "a", "image": "1", "args": ["x"]}, {"name": "b"}], "tolerations": [1]});
        let patch = json!({"containers": [{"name": "a", "image": "2", "args": ["y"]}, {"name": "c"}], "tolerations": [2]});
        let expected = json!({"containers": [{"name": "a", "image": "2", "args": ["y"]}, {"name": "c"}, {"name": "b"}], "tolerations": [2]});
        check(target, &patch, &expected);
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
