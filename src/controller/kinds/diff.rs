//! The difference of two states of an object: what a patch changes, and what people are shown.
//!
//! Produces what apimachinery's `strategicpatch.CreateTwoWayMergePatch` and client-go's merge patches do.
//!
//! # How it works
//! Both states are JSON of one type. Only what differs between them appears in the patch, so fields that the type does
//! not know stay, within the items of a list, too.
//!
//! | what differs | in the patch |
//! |---|---|
//! | a value, a list without a merge key | the wanted one; `null` if none is wanted |
//! | a map | its keys that differ |
//! | a list with a merge key | its items that differ, each with its key; `$patch: delete` for one that goes; `$setElementOrder` if the order changes |
//! | such a list in which a key occurs twice | `$patch: replace` with all items |
//!
//! Lists are merged by key in Pods, their templates, Services and service accounts, whose groups have strategic merge
//! patches. The merge key of a port is its number alone, so TCP and UDP of one number are a key that occurs twice. What
//! the type does not know of such a list is kept only if the patch is made from a live read.
//!
//! # Guarantees
//! - Applied to any object of the first state, a patch gives the second, and keeps fields and items that neither has.
//!   (test: `patch_gives_the_same_result_as_write_into`)
//! - The patch contains no field that already matches. (test: `patch_contains_only_differing_fields`)
//! - A list gets the wanted order. (test: `items_get_the_wanted_order`)
//! - Differences are found if and only if there is something to patch. (test: `differences_and_patch_agree`)
//! - A value that may be secret is neither shown nor kept. (test: `secret_values_are_not_shown`)

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Map, Value, json};

use super::Wanted;
use super::difference::Difference;
use crate::api::ApiResource;
use crate::cache::{Object, TypedObject};

/// Longer text is not shown.
const SHOWN_MAX: usize = 128;
/// The fields whose values may be secrets; no value below them is shown.
const HIDDEN: [&str; 8] =
    ["annotations", "args", "binaryData", "command", "data", "env", "envFrom", "stringData"];
/// Maps, not structs: a server drops them if they are empty, and their keys are shown in brackets.
const MAPS: [&str; 8] =
    ["annotations", "binaryData", "data", "labels", "limits", "matchLabels", "requests", "stringData"];
/// The groups with lists that a strategic merge patch merges.
const MERGED_GROUPS: [&str; 3] = ["", "apps", "batch"];

/// Returns the fields that identify the items of a list, first its merge key; `parent` is the name of the field that
/// the list is in.
fn keys_of(parent: &str, list: &str) -> Option<&'static [&'static str]> {
    Some(match (parent, list) {
        ("metadata", "ownerReferences") => &["uid"],
        ("", "secrets") => &["name"],
        ("spec", "containers" | "initContainers" | "ephemeralContainers") => &["name"],
        ("spec", "volumes" | "imagePullSecrets" | "resourceClaims" | "schedulingGates") => &["name"],
        ("spec", "hostAliases") => &["ip"],
        ("spec", "topologySpreadConstraints") => &["topologyKey", "whenUnsatisfiable"],
        ("spec", "ports") => &["port", "protocol"],
        ("containers" | "initContainers" | "ephemeralContainers", in_container) => match in_container {
            "env" => &["name"],
            "ports" => &["containerPort", "protocol"],
            "volumeMounts" => &["mountPath"],
            "volumeDevices" => &["devicePath"],
            _ => return None,
        },
        _ => return None,
    })
}

/// What differs between two states of an object.
#[derive(Clone, Debug)]
pub struct Changes {
    /// The part of the first state that differs.
    from: Value,
    /// The part of the second state that differs.
    to: Value,
    api: Api,
    /// The fields that differ, for people.
    pub differences: Vec<Difference>,
}

/// A patch that changes one state of an object into another.
#[derive(Clone, Debug, PartialEq)]
pub struct Patch {
    /// The body, with the uid and the resource version of the first state.
    pub body: Value,
    /// Whether it is a strategic merge patch; if not, it is a merge patch.
    pub is_strategic: bool,
    /// Whether it replaces a list of which the live object may have more than the type knows.
    pub needs_live: bool,
}

/// What the server does with objects of a kind.
#[derive(Clone, Copy, Debug)]
struct Api {
    /// Whether empty lists and some empty maps are the same as none.
    drops_empty: bool,
    /// Whether there are strategic merge patches.
    merges_lists: bool,
}

// === impl Api ===

impl Api {
    fn of(resource: &ApiResource) -> Self {
        let group = &*resource.group;
        Self {
            drops_empty: !group.contains('.') || group.ends_with(".k8s.io"),
            merges_lists: MERGED_GROUPS.contains(&group),
        }
    }

    fn is_none(self, name: &str, value: &Value) -> bool {
        match value {
            Value::Null => true,
            Value::Array(items) => items.is_empty() && self.drops_empty,
            Value::Object(map) => map.is_empty() && self.drops_empty && MAPS.contains(&name),
            _ => false,
        }
    }
}

// === impl Changes ===

impl Changes {
    /// Returns what writing the wanted state changes in a child.
    #[must_use]
    pub fn of<W: Wanted>(wanted: &W, observed: &W::Observed) -> Self {
        let mut desired = observed.clone();
        wanted.write_into(&mut desired);
        Self::between(&ApiResource::of::<W::Observed>(), observed, &desired)
    }

    /// Compares two states of an object. No JSON is built for equal ones.
    #[must_use]
    pub fn between<T: Serialize + PartialEq>(resource: &ApiResource, from: &T, to: &T) -> Self {
        let api = Api::of(resource);
        if from == to {
            return Self { from: Value::Null, to: Value::Null, api, differences: Vec::new() };
        }
        let [from, to] = [from, to].map(|state| to_raw_value(state).unwrap_or_default());
        let [from, to] = differing(&from, &to);
        let mut differences = Vec::new();
        find(&mut differences, api, &Place { path: String::new(), name: "", is_shown: true }, (&from, &to));
        Self { from, to, api, differences }
    }

    /// Returns the patch, which the server refuses on any other state of this object than `from`, the first. `live` is
    /// the whole object that it was decoded from, if it was read.
    #[must_use]
    pub fn patch(&self, from: &impl Object, live: Option<&Value>) -> Patch {
        let mut differ = Differ { api: self.api, is_strategic: false, needs_live: false };
        let mut body = differ.map("", (&self.from, &self.to), live);
        let metadata = body.entry("metadata").or_insert_with(|| json!({}));
        metadata["uid"] = json!(from.uid());
        metadata["resourceVersion"] = json!(from.resource_version());
        let Differ { is_strategic, needs_live, .. } = differ;
        Patch { body: Value::Object(body), is_strategic, needs_live }
    }
}

/// Returns the fields of a child that writing the wanted state changes.
#[must_use]
pub fn differences<W: Wanted>(wanted: &W, observed: &W::Observed) -> Vec<Difference> {
    Changes::of(wanted, observed).differences
}

/// Returns the body of a child to create.
#[must_use]
pub fn body_of<O: TypedObject + Serialize>(child: &O, namespace: Option<&str>, name: &str) -> Value {
    let resource = ApiResource::of::<O>();
    let mut body = to_json(child);
    for (field, value) in [("apiVersion", json!(resource.api_version())), ("kind", json!(resource.kind))] {
        body[field] = value;
    }
    (body["metadata"]["name"], body["metadata"]["namespace"]) = (json!(name), json!(namespace));
    without_nulls(body)
}

/// Returns the merge patch (RFC 7396) from one value to another.
fn merge_patch(from: &Value, to: &Value) -> Value {
    let api = Api { drops_empty: false, merges_lists: false };
    Value::Object(Differ { api, is_strategic: false, needs_live: false }.map("", (from, to), None))
}

/// Returns the JSON of a state, without fields that are null.
pub(in crate::controller) fn to_json<T: Serialize>(state: &T) -> Value {
    without_nulls(serde_json::to_value(state).unwrap_or_default())
}

fn without_nulls(value: Value) -> Value {
    match value {
        Value::Object(map) => {
            let set = map.into_iter().filter(|(_, value)| !value.is_null());
            Value::Object(set.map(|(key, value)| (key, without_nulls(value))).collect())
        }
        Value::Array(items) => items.into_iter().map(without_nulls).collect(),
        other => other,
    }
}

/// Returns whether two states are the same but for nulls.
pub(in crate::controller) fn are_same<T: Serialize>(one: &T, other: &T) -> bool {
    let [one, other] = [one, other].map(|state| to_raw_value(state).unwrap_or_default());
    one.get() == other.get() || {
        let [one, other] = differing(&one, &other);
        one == other
    }
}

/// Parses what differs of two states, without nulls; lists as a whole. What is the same is compared as text.
fn differing(from: &RawValue, to: &RawValue) -> [Value; 2] {
    let (Some(from_map), Some(to_map)) = (members(from), members(to)) else {
        return [from, to].map(parsed);
    };
    let mut both = [Map::new(), Map::new()];
    let keys: BTreeSet<&str> = from_map.keys().chain(to_map.keys()).copied().collect();
    for key in keys {
        let values = match (from_map.get(key), to_map.get(key)) {
            (Some(from), Some(to)) if from.get() == to.get() => continue,
            (Some(from), Some(to)) => differing(from, to),
            (from, to) => [from, to].map(|raw| raw.map_or(Value::Null, |raw| parsed(raw))),
        };
        for (map, value) in both.iter_mut().zip(values).filter(|(_, value)| !value.is_null()) {
            map.insert(key.to_owned(), value);
        }
    }
    both.map(Value::Object)
}

/// Returns the members of a map; `None` for anything else, and for a map with an escaped key.
fn members(raw: &RawValue) -> Option<BTreeMap<&str, &RawValue>> {
    serde_json::from_str(raw.get()).ok()
}

fn parsed(raw: &RawValue) -> Value {
    without_nulls(serde_json::from_str(raw.get()).unwrap_or_default())
}

// --- patches ---

struct Differ {
    api: Api,
    is_strategic: bool,
    needs_live: bool,
}

impl Differ {
    /// Returns the patch of a map, which is the value of the field `name`.
    fn map(&mut self, name: &str, (from, to): (&Value, &Value), live: Option<&Value>) -> Map<String, Value> {
        let mut patch = Map::new();
        for (key, from, to) in members_of_both(from, to) {
            let live = live.and_then(|live| live.get(key));
            match (from, to) {
                _ if from == to || self.api.is_none(key, from) && self.api.is_none(key, to) => {}
                (_, Value::Null) => drop(patch.insert(key.to_owned(), Value::Null)),
                (Value::Object(_), Value::Object(_)) => {
                    let inner = self.map(key, (from, to), live);
                    if !inner.is_empty() {
                        patch.insert(key.to_owned(), Value::Object(inner));
                    }
                }
                (Value::Array(from), Value::Array(to)) => match keys_of(name, key) {
                    Some(keys) if self.api.merges_lists && !from.is_empty() => {
                        self.is_strategic = true;
                        self.list(&mut patch, key, keys, (from, to), live);
                    }
                    _ => drop(patch.insert(key.to_owned(), Value::Array(to.clone()))),
                },
                _ => drop(patch.insert(key.to_owned(), to.clone())),
            }
        }
        patch
    }

    /// Adds the patch of a list that is merged by key.
    fn list(
        &mut self,
        patch: &mut Map<String, Value>,
        name: &str,
        keys: &[&str],
        (from, to): (&[Value], &[Value]),
        live: Option<&Value>,
    ) {
        let key = keys[0];
        if !are_unique(from, key) || !are_unique(to, key) {
            self.needs_live |= live.is_none();
            let items = whole(from, to, keys, live.and_then(Value::as_array));
            let directive = std::iter::once(json!({"$patch": "replace"}));
            patch.insert(name.to_owned(), directive.chain(items).collect());
            return;
        }
        let mut items = Vec::new();
        for item in to {
            let Some(before) = from.iter().find(|before| before[key] == item[key]) else {
                items.push(item.clone());
                continue;
            };
            let live = live.and_then(Value::as_array).into_iter().flatten();
            let live = live.into_iter().find(|live| live[key] == item[key]);
            let mut inner = self.map(name, (before, item), live);
            if !inner.is_empty() {
                inner.insert(key.to_owned(), item[key].clone());
                items.push(Value::Object(inner));
            }
        }
        let gone = from.iter().filter(|before| to.iter().all(|item| item[key] != before[key]));
        items.extend(gone.map(|gone| json!({key: gone[key], "$patch": "delete"})));
        let order = |list: &[Value], other: &[Value]| -> Vec<Value> {
            let is_in_both = |item: &&Value| other.iter().any(|other| other[key] == item[key]);
            list.iter().filter(is_in_both).map(|item| json!({key: item[key]})).collect()
        };
        if order(to, from).len() < to.len() || order(to, from) != order(from, to) {
            patch.insert(format!("$setElementOrder/{name}"), json!(order(to, to)));
        }
        if !items.is_empty() {
            patch.insert(name.to_owned(), Value::Array(items));
        }
    }
}

/// Returns the wanted items, each with what the live object has besides.
fn whole(from: &[Value], to: &[Value], keys: &[&str], live: Option<&Vec<Value>>) -> Vec<Value> {
    let mut taken = BTreeSet::new();
    let mut one = |item: &Value| {
        let is_same = |before: &Value| keys.iter().all(|key| before[key] == item[key]);
        let at = (0..from.len()).find(|at| !taken.contains(at) && is_same(&from[*at]));
        let known = at.and_then(|at| Some((&from[at], live?.get(at)?.clone())));
        taken.extend(at);
        match known {
            Some((before, mut live)) => {
                merge(&mut live, &merge_patch(before, item));
                live
            }
            None => item.clone(),
        }
    };
    to.iter().map(&mut one).collect()
}

/// Applies a merge patch of a map.
fn merge(target: &mut Value, patch: &Value) {
    for (key, patch) in patch.as_object().into_iter().flatten() {
        match patch {
            Value::Null => drop(target.as_object_mut().and_then(|map| map.remove(key))),
            Value::Object(_) if target[key].is_object() => merge(&mut target[key], patch),
            _ => target[key] = patch.clone(),
        }
    }
}

/// Returns the members of both maps.
fn members_of_both<'a>(
    from: &'a Value,
    to: &'a Value,
) -> impl Iterator<Item = (&'a str, &'a Value, &'a Value)> {
    let keys: BTreeSet<&String> =
        [from, to].into_iter().filter_map(Value::as_object).flat_map(Map::keys).collect();
    keys.into_iter().map(move |key| (key.as_str(), &from[key], &to[key]))
}

fn are_unique(items: &[Value], key: &str) -> bool {
    let mut known = BTreeSet::new();
    items.iter().all(|item| !item[key].is_null() && known.insert(item[key].to_string()))
}

// --- what people are shown ---

/// Where a value is.
struct Place<'a> {
    path: String,
    /// The name of the field; of a list's item, that of the list.
    name: &'a str,
    /// Whether values may be shown.
    is_shown: bool,
}

impl<'a> Place<'a> {
    fn member(&self, key: &'a str) -> Self {
        let is_plain = !MAPS.contains(&self.name) && key.bytes().all(|byte| byte.is_ascii_alphanumeric());
        let path = match (is_plain, self.path.is_empty()) {
            (true, true) => key.to_owned(),
            (true, false) => format!("{}.{key}", self.path),
            (false, _) => format!("{}[{key}]", self.path),
        };
        Place { path, name: key, is_shown: self.is_shown && !may_be_secret(key) }
    }
}

fn may_be_secret(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    let has_word = ["credential", "password", "secret", "token"].iter().any(|word| name.contains(word));
    has_word || HIDDEN.iter().any(|hidden| name.eq_ignore_ascii_case(hidden))
}

/// Finds the fields that differ in a map.
fn find(found: &mut Vec<Difference>, api: Api, at: &Place<'_>, (from, to): (&Value, &Value)) {
    for (key, from, to) in members_of_both(from, to) {
        let here = at.member(key);
        let is_map = |value: &Value| value.as_object().is_some_and(|map| !map.is_empty());
        match (from, to) {
            _ if from == to || api.is_none(key, from) && api.is_none(key, to) => {}
            (Value::Object(_), Value::Object(_)) => find(found, api, &here, (from, to)),
            (Value::Null, map) | (map, Value::Null) if is_map(map) => {
                let before = found.len();
                find(found, api, &here, (from, to));
                if found.len() == before {
                    found.push(leaf(here, (from, to)));
                }
            }
            (Value::Null | Value::Array(_), Value::Null | Value::Array(_)) if here.is_shown => {
                let lists = [from, to].map(|list| list.as_array().map_or(&[][..], Vec::as_slice));
                match keys_of(at.name, key).filter(|keys| lists.iter().all(|list| are_unique(list, keys[0])))
                {
                    Some(keys) => find_items(found, api, &here, keys[0], lists),
                    None => found.push(leaf(here, (from, to))),
                }
            }
            _ => found.push(leaf(here, (from, to))),
        }
    }
}

/// Finds the items that differ in a list whose items are identified by this field.
fn find_items(found: &mut Vec<Difference>, api: Api, at: &Place<'_>, key: &str, [from, to]: [&[Value]; 2]) {
    let before = found.len();
    let place = |item: &Value| {
        // People know an owner by its name.
        let id = &item[if key == "uid" { "name" } else { key }];
        let id = id.as_str().map_or_else(|| id.to_string(), str::to_owned);
        Place { path: format!("{}[{id}]", at.path), ..*at }
    };
    for item in to {
        match from.iter().find(|before| before[key] == item[key]) {
            Some(before) => find(found, api, &place(item), (before, item)),
            None => found.push(Difference::missing(place(item).path)),
        }
    }
    for gone in from.iter().filter(|before| to.iter().all(|item| item[key] != before[key])) {
        found.push(Difference::shown(place(gone).path, "present".to_owned(), "none".to_owned()));
    }
    if found.len() == before {
        let order: Vec<&Value> = to.iter().map(|item| &item[key]).collect();
        found.push(Difference::hidden(format!("{} (order)", at.path), &json!(order).to_string()));
    }
}

fn leaf(at: Place<'_>, (from, to): (&Value, &Value)) -> Difference {
    let text = |value: &Value| if value.is_null() { "none".to_owned() } else { value.to_string() };
    let is_short = |value: &Value| !value.is_array() && !value.is_object() && text(value).len() <= SHOWN_MAX;
    match at.is_shown && is_short(from) && is_short(to) {
        true => Difference::shown(at.path, text(from), text(to)),
        false => Difference::hidden(at.path, &text(to)),
    }
}

#[cfg(test)]
#[cfg(feature = "sim")]
mod tests;
