//! The strategic merge patch that makes a child as it is wanted.
//!
//! Mirrors apimachinery's `strategicpatch` in what it makes, not in how: the table of the kind's
//! [`fields`](crate::controller::kinds::fields) says what a field is, and the differences say which fields to write.
//!
//! # How it works
//! | a field that differs | stands in the patch as |
//! |---|---|
//! | a value | the value; `null` when none is wanted |
//! | a map of which some keys are ours | our keys |
//! | a map or a list that is ours whole | `$patch: replace` with its content; `null` when it is empty |
//! | a list that the server does not merge | the list |
//! | an item of ours in a list | the item with its key, and the same of its fields |
//! | our owner reference | the reference, which is merged by uid |
//!
//! The patch carries uid and resourceVersion of the state from which it was made. What it does not name stays: the fields
//! of others, and those of a server that is newer than our types.
//!
//! # Guarantees
//! - Applied to any live child it gives what [`Wanted::apply`] gives. (test: `a_patch_does_what_apply_does`)
//! - It names no field that is as wanted. (test: `a_patch_names_only_what_differs`)

use serde_json::{Map, Value, json};

use super::owner::Owner;
use crate::cache::Object;
use crate::controller::kinds::Wanted;
use crate::controller::kinds::difference::{Difference, object_at};
use crate::controller::kinds::fields::{Field, Whose};

/// The patch of these differences. `live` is the whole child, for kinds whose patch is made from it.
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

/// A child, or an item in a list of its, as it is to be.
struct Bodies {
    /// Only the fields of ours.
    wanted: Value,
    /// The whole of it, if it was read live.
    merged: Option<Value>,
}

impl Bodies {
    fn get(&self, field: &Field) -> Option<&Value> {
        // An item that stays keeps the fields of it that are not ours.
        let keeps_more = matches!(field.whose, Whose::Set([_, ..]));
        let body = self.merged.as_ref().filter(|_| keeps_more).unwrap_or(&self.wanted);
        field.path.split('.').try_fold(body, |at, step| at.get(step))
    }
}

/// The part of the patch for these fields, which stand at `prefix` of the child.
fn of_fields(fields: &[Field], prefix: &str, bodies: &Bodies, differing: &[&str]) -> Value {
    let mut patch = json!({});
    for field in fields.iter().filter(|field| field.whose != Whose::Others && !field.replaces) {
        let wanted = bodies.get(field);
        let patched = match field.whose {
            Whose::Items(key) => items(field, key, prefix, wanted, differing),
            _ if !is_among(differing, &format!("{prefix}{}", group(field))) => None,
            _ => Some(value(field, wanted)),
        };
        if let Some(patched) = patched {
            let (above, name) = field.path.rsplit_once('.').unwrap_or(("", field.path));
            let above: Vec<&str> = above.split('.').filter(|step| !step.is_empty()).collect();
            object_at(&mut patch, &above).insert(name.to_owned(), patched);
        }
    }
    patch
}

/// Fields that hang on each other are written together: a request that is left out means the limit.
fn group(field: &Field) -> &str {
    field.if_wanted.filter(|path| field.path.starts_with(path)).unwrap_or(field.path)
}

/// Whether a difference is at this path, or below it.
fn is_among(differing: &[&str], path: &str) -> bool {
    let is_below = |field: &&str| {
        field.strip_prefix(path).is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
    };
    differing.iter().any(is_below)
}

fn value(field: &Field, wanted: Option<&Value>) -> Value {
    let Some(wanted) = wanted else { return Value::Null };
    let is_whole = matches!(field.whose, Whose::Whole | Whose::Set(_) | Whose::Amounts);
    match wanted {
        Value::Object(map) if is_whole => {
            let mut map: Map<String, Value> = map.clone();
            map.insert("$patch".to_owned(), json!("replace"));
            Value::Object(map)
        }
        Value::Array(list) if is_whole && field.is_merged => {
            let directive = std::iter::once(json!({"$patch": "replace"}));
            Value::Array(directive.chain(list.iter().cloned()).collect())
        }
        wanted => wanted.clone(),
    }
}

/// The items of ours that differ, each with its key.
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
