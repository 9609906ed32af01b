//! Builds the strategic merge patch that brings a child to its wanted state.
//!
//! Produces what apimachinery's `strategicpatch` would, in another way: the kind's table of
//! [`fields`](crate::controller::kinds::fields) describes each field, and the differences select the fields to write.
//!
//! # How it works
//! | a field that differs | appears in the patch as |
//! |---|---|
//! | a value | the value; `null` if none is wanted |
//! | a map with some keys of ours | our keys |
//! | a map that is entirely ours | its content, and `null` for each key that is to go; `null` if empty |
//! | a list that is entirely ours | `$patch: replace` with its content; `null` if empty |
//! | a list that the server does not merge | the list |
//! | an item of ours in a list | the item's key and its differing fields, by the same rules |
//! | our owner reference | the reference, which is merged by uid |
//!
//! The patch carries the uid and resourceVersion of the state it was computed from. Fields that it does not name stay:
//! those of other owners, and those of a server newer than our types.
//!
//! # Guarantees
//! - Applied to any live child, the patch has the result of [`Wanted::write_into`].
//!   (test: `patch_gives_the_same_result_as_write_into`)
//! - The patch contains no field that already matches. (test: `patch_contains_only_differing_fields`)

use serde_json::{Map, Value, json};

use super::owner::Owner;
use crate::cache::Object;
use crate::controller::kinds::Wanted;
use crate::controller::kinds::difference::{Difference, object_at};
use crate::controller::kinds::fields::{Field, Whose};

/// Builds the patch for these differences. `live` is the whole child, for kinds that patch the live object.
pub(in crate::controller) fn strategic<W: Wanted>(
    owner: &Owner,
    wanted: &W,
    observed: &W::Observed,
    live: Option<&Value>,
    differences: &[Difference],
) -> Value {
    let applied_to = |mut child: Value| {
        wanted.write_into(&mut child);
        child
    };
    let bodies = Bodies { wanted: applied_to(json!({})), merged: live.cloned().map(applied_to) };
    let differing: Vec<&str> = differences.iter().map(|one| one.field.as_str()).collect();
    let mut patch = of_fields(W::FIELDS, "", &bodies, &differing);
    wanted.amend_patch(observed, &mut patch);
    let metadata = object_at(&mut patch, &["metadata"]);
    if differing.iter().any(|field| field.starts_with("metadata.ownerReferences")) {
        metadata.insert("ownerReferences".to_owned(), json!([owner.reference()]));
    }
    metadata.insert("uid".to_owned(), json!(observed.uid()));
    metadata.insert("resourceVersion".to_owned(), json!(observed.resource_version()));
    patch
}

/// The wanted state of a child, or of an item in one of its lists.
struct Bodies {
    /// Only our fields.
    wanted: Value,
    /// The whole object with our fields applied, if it was read live.
    merged: Option<Value>,
}

impl Bodies {
    fn get(&self, field: &Field) -> Option<&Value> {
        // An item that stays keeps those of its fields that are not ours.
        let keeps_more = matches!(field.whose, Whose::Set([_, ..]));
        let body = self.merged.as_ref().filter(|_| keeps_more).unwrap_or(&self.wanted);
        field.path.split('.').try_fold(body, |at, step| at.get(step))
    }
}

/// Builds the part of the patch for these fields, which are found under `prefix` in the child.
fn of_fields(fields: &[Field], prefix: &str, bodies: &Bodies, differing: &[&str]) -> Value {
    let mut patch = json!({});
    for field in fields.iter().filter(|field| field.whose != Whose::Others && !field.replaces) {
        let wanted = bodies.get(field);
        let patched = match field.whose {
            Whose::Items(key) => items(field, key, prefix, wanted, differing),
            _ if !is_among(differing, &format!("{prefix}{}", group(field))) => None,
            _ => Some(value(field, wanted, &format!("{prefix}{}", field.path), differing)),
        };
        if let Some(patched) = patched {
            let (above, name) = field.path.rsplit_once('.').unwrap_or(("", field.path));
            let above: Vec<&str> = above.split('.').filter(|step| !step.is_empty()).collect();
            object_at(&mut patch, &above).insert(name.to_owned(), patched);
        }
    }
    patch
}

/// Returns the path of the fields that are written together: an omitted request defaults to the limit, for instance.
fn group(field: &Field) -> &str {
    field.if_wanted.filter(|path| field.path.starts_with(path)).unwrap_or(field.path)
}

/// Whether a difference is at this path or below.
fn is_among(differing: &[&str], path: &str) -> bool {
    let is_below = |field: &&str| {
        field.strip_prefix(path).is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
    };
    differing.iter().any(is_below)
}

fn value(field: &Field, wanted: Option<&Value>, at: &str, differing: &[&str]) -> Value {
    let Some(wanted) = wanted else { return Value::Null };
    let is_whole = matches!(field.whose, Whose::Whole | Whose::Set(_) | Whose::Amounts);
    match wanted {
        // Not `$patch: replace`: where the live object lacks the map, a server drops the whole of it.
        Value::Object(map) if is_whole => {
            let mut map: Map<String, Value> = map.clone();
            for field in differing {
                let key = field.strip_prefix(at).and_then(|rest| rest.strip_prefix('[')?.strip_suffix(']'));
                if let Some(key) = key {
                    map.entry(key).or_insert(Value::Null);
                }
            }
            Value::Object(map)
        }
        Value::Array(list) if is_whole && field.is_merged => {
            let directive = std::iter::once(json!({"$patch": "replace"}));
            Value::Array(directive.chain(list.iter().cloned()).collect())
        }
        wanted => wanted.clone(),
    }
}

/// Returns our items that differ, each with its key.
fn items(
    field: &Field,
    key: &str,
    prefix: &str,
    wanted: Option<&Value>,
    differing: &[&str],
) -> Option<Value> {
    let mut patched = Vec::new();
    for item in wanted.and_then(Value::as_array).into_iter().flatten() {
        let id = item[key].as_str().unwrap_or_default();
        let at = format!("{prefix}{}[{id}]", field.path);
        if differing.contains(&at.as_str()) {
            patched.push(item.clone());
        } else if is_among(differing, &at) {
            let bodies = Bodies { wanted: item.clone(), merged: None };
            let mut one = of_fields(field.items, &format!("{at}."), &bodies, differing);
            object_at(&mut one, &[]).insert(key.to_owned(), json!(id));
            patched.push(one);
        }
    }
    (!patched.is_empty()).then_some(Value::Array(patched))
}

#[cfg(test)]
#[cfg(feature = "sim")]
mod tests;
