//! Values with a schema: checks them, finds the fields that they set, compares, merges and prunes them.
//!
//! Mirrors `typed` of structured-merge-diff.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use super::set::{Fields, Path, Scalar, Step};
use super::types::{Shape, Type};

fn list(value: Option<&Value>) -> Option<&Vec<Value>> {
    value.and_then(Value::as_array).filter(|items| !items.is_empty())
}

fn map(value: Option<&Value>) -> Option<&Map<String, Value>> {
    value.and_then(Value::as_object).filter(|members| !members.is_empty())
}

/// Returns the element that identifies an item of a list that merges.
fn step_of(item: &Value, of: Type<'_>) -> Result<Step, String> {
    let mut names = of.keys().peekable();
    if names.peek().is_none() {
        return match item {
            Value::Object(_) => {
                Err("associative list without keys has an element that's a map type".to_owned())
            }
            Value::Array(_) => Err("not supported: associative list with lists as elements".to_owned()),
            Value::Null => {
                Err("associative list without keys has an element that's an explicit null".to_owned())
            }
            scalar => Ok(Step::Item(Scalar(scalar.clone()))),
        };
    }
    if item.is_null() {
        return Err("associative list with keys may not have a null element".to_owned());
    }
    let Some(members) = item.as_object() else {
        return Err("associative list with keys may not have non-map elements".to_owned());
    };
    let defaults = of.items();
    let value_of = |name: &str| members.get(name).or_else(|| defaults.default(name)).cloned();
    let keys: BTreeMap<String, Scalar> =
        names.filter_map(|name| Some((name.to_owned(), Scalar(value_of(name)?)))).collect();
    if keys.is_empty() {
        let names: Vec<String> = of.keys().map(|name| format!("{name:?}")).collect();
        return Err(format!(
            "associative list with keys has an element that omits all key fields [{}] (and doesn't have default \
             values for any key fields)",
            names.join(" ")
        ));
    }
    Ok(Step::Key(keys))
}

// --- validation ---

/// Checks a configuration against its type.
pub(super) fn validate(value: &Value, of: Type<'_>) -> Result<(), String> {
    let mut errors = Vec::new();
    check(value, of, "", &mut errors);
    match &errors[..] {
        [] => Ok(()),
        [one] => Err(one.clone()),
        many => Err(format!("errors:\n  {}", many.join("\n  "))),
    }
}

fn check(value: &Value, of: Type<'_>, at: &str, errors: &mut Vec<String>) {
    let expected = match (of.shape(value), value) {
        (_, Value::Null) => return,
        (Shape::Map, Value::Object(members)) => {
            for (name, inner) in members {
                let path = format!("{at}.{name}");
                match of.member(name) {
                    Some((of, _)) => check(inner, of, &path, errors),
                    None => errors.push(format!("{path}: field not declared in schema")),
                }
            }
            return;
        }
        (Shape::List, Value::Array(items)) => return check_items(items, of, at, errors),
        (Shape::Map, _) => "map",
        (Shape::List, _) => "list",
        (Shape::Scalar, _) => match of.declared_type() {
            "integer" | "number" if !value.is_number() => "numeric (int or float)",
            "boolean" if !value.is_boolean() => "boolean",
            "string" if !value.is_string() => "string",
            "integer" | "number" | "boolean" | "string" => return,
            _ if value.is_object() || value.is_array() => "any scalar",
            _ => return,
        },
    };
    let at = if at.is_empty() { String::new() } else { format!("{at}: ") };
    errors.push(format!("{at}expected {expected}, got {value}"));
}

fn check_items(items: &[Value], of: Type<'_>, at: &str, errors: &mut Vec<String>) {
    let mut seen = BTreeSet::new();
    for (index, item) in items.iter().enumerate() {
        let step = if of.is_atomic(Shape::List) { Ok(Step::Index(index as u64)) } else { step_of(item, of) };
        match step {
            Ok(step) => {
                check(item, of.items(), &format!("{at}{step}"), errors);
                if !seen.insert(step.clone()) {
                    errors.push(format!("{at}: duplicate entries for key {step}"));
                }
            }
            Err(why) => return errors.push(format!("{at}: element {index}: {why}")),
        }
    }
}

// --- fields ---

/// Returns the fields and items that a value sets.
pub(super) fn fields(value: &Value, of: Type<'_>) -> Fields {
    let mut set = Fields::default();
    collect(value, of, &mut Vec::new(), &mut set);
    set
}

fn collect(value: &Value, of: Type<'_>, at: &mut Path, set: &mut Fields) {
    let shape = of.shape(value);
    if of.is_atomic(shape) {
        return set.insert(at);
    }
    for (name, inner) in value.as_object().into_iter().flatten() {
        let Some((inner_type, is_named)) = of.member(name) else { continue };
        at.push(Step::field(name));
        collect(inner, inner_type, at, set);
        if !is_named || inner.is_null() || inner.as_object().is_some_and(Map::is_empty) {
            set.insert(at);
        }
        at.pop();
    }
    let grouped = grouped(value.as_array(), of);
    for (step, items) in grouped {
        at.push(step);
        // Duplicates are owned as a whole.
        if let [item] = items[..] {
            collect(item, of.items(), at, set);
        }
        set.insert(at);
        at.pop();
    }
}

/// Groups the items of a list by what identifies them.
fn grouped<'a>(items: Option<&'a Vec<Value>>, of: Type<'_>) -> BTreeMap<Step, Vec<&'a Value>> {
    let mut grouped: BTreeMap<Step, Vec<&Value>> = BTreeMap::new();
    for item in items.into_iter().flatten() {
        if let Ok(step) = step_of(item, of) {
            grouped.entry(step).or_default().push(item);
        }
    }
    grouped
}

// --- comparison ---

/// The fields that differ between two objects.
#[derive(Clone, Debug, Default)]
pub(super) struct Changes {
    pub(super) removed: Fields,
    pub(super) modified: Fields,
    pub(super) added: Fields,
}

// === impl Changes ===

impl Changes {
    /// Returns what differs between two objects of a type, but for the ignored fields and all below them.
    pub(super) fn between(old: &Value, new: &Value, of: Type<'_>, ignored: &Fields) -> Self {
        let mut walk = Walk { changes: Self::default(), at: Vec::new() };
        walk.value(Some(old), Some(new), of);
        let Self { removed, modified, added } = walk.changes;
        Self {
            removed: removed.without(ignored),
            modified: modified.without(ignored),
            added: added.without(ignored),
        }
    }

    pub(super) fn written(&self) -> Fields {
        self.modified.union(&self.added)
    }
}

struct Walk {
    changes: Changes,
    at: Path,
}

// === impl Walk ===

impl Walk {
    /// One of the two values may be absent.
    fn value(&mut self, old: Option<&Value>, new: Option<&Value>, of: Type<'_>) {
        let (before, after) = (old.map(|value| of.shape(value)), new.map(|value| of.shape(value)));
        if let (Some(before), Some(after)) = (before, after)
            && before != after
        {
            self.as_shape(before, old, new, of);
        }
        let Some(shape) = after.or(before) else { return };
        if !self.as_shape(shape, old, new, of) {
            match (old, new) {
                (None, _) => self.changes.added.insert(&self.at),
                (_, None) => self.changes.removed.insert(&self.at),
                _ => {}
            }
        }
    }

    /// Returns whether the values were compared as a whole.
    fn as_shape(&mut self, shape: Shape, old: Option<&Value>, new: Option<&Value>, of: Type<'_>) -> bool {
        let is_empty = match shape {
            Shape::Map => map(old).is_none() && map(new).is_none(),
            Shape::List => list(old).is_none() && list(new).is_none(),
            Shape::Scalar => true,
        };
        if is_empty || of.is_atomic(shape) {
            match (old, new) {
                (None, _) => self.changes.added.insert(&self.at),
                (_, None) => self.changes.removed.insert(&self.at),
                (old, new) if old != new => self.changes.modified.insert(&self.at),
                _ => {}
            }
            return true;
        }
        if shape == Shape::Map {
            self.members(map(old), map(new), of);
        } else {
            self.items(list(old), list(new), of);
        }
        false
    }

    fn members(&mut self, old: Option<&Map<String, Value>>, new: Option<&Map<String, Value>>, of: Type<'_>) {
        let of_old = |name: &String| old.and_then(|old| old.get(name));
        let of_new = |name: &String| new.and_then(|new| new.get(name));
        let only_new = new.into_iter().flat_map(Map::keys).filter(|name| of_old(name).is_none());
        for name in old.into_iter().flat_map(Map::keys).chain(only_new) {
            if let Some((inner, _)) = of.member(name) {
                self.at.push(Step::field(name));
                self.value(of_old(name), of_new(name), inner);
                self.at.pop();
            }
        }
    }

    fn items(&mut self, old: Option<&Vec<Value>>, new: Option<&Vec<Value>>, of: Type<'_>) {
        let mut after = grouped(new, of);
        let mut pairs: Vec<(Step, Vec<&Value>, Vec<&Value>)> = Vec::new();
        for (step, old) in grouped(old, of) {
            let new = after.remove(&step).unwrap_or_default();
            pairs.push((step, old, new));
        }
        pairs.extend(after.into_iter().map(|(step, new)| (step, Vec::new(), new)));
        for (step, old, new) in pairs {
            self.at.push(step);
            match (&old[..], &new[..]) {
                ([] | [_], [] | [_]) => self.value(old.first().copied(), new.first().copied(), of.items()),
                // Duplicates are compared as a whole.
                ([_, _, ..], [_, _, ..]) => {
                    if old != new {
                        self.changes.modified.insert(&self.at);
                    }
                }
                ([_, _, ..], _) => {
                    if let Some(item) = new.first() {
                        self.value(None, Some(item), of.items());
                    }
                    self.changes.removed.insert(&self.at);
                }
                _ => {
                    if let Some(item) = old.first() {
                        self.value(Some(item), None, of.items());
                    }
                    self.changes.added.insert(&self.at);
                }
            }
            self.at.pop();
        }
    }
}

// --- merging ---

/// Merges a configuration into an object; the configuration wins, and nothing is removed.
pub(super) fn merge(live: Option<&Value>, config: Option<&Value>, of: Type<'_>) -> Option<Value> {
    let shape = of.shape(config.or(live)?);
    let is_empty = match shape {
        Shape::Map => map(live).is_none() && map(config).is_none(),
        Shape::List => list(live).is_none() && list(config).is_none(),
        Shape::Scalar => true,
    };
    if is_empty || of.is_atomic(shape) {
        return config.or(live).cloned();
    }
    if shape == Shape::List {
        return merge_items(list(live), list(config), of);
    }
    let (live, config) = (map(live), map(config));
    let mut merged = Map::new();
    let names = live.into_iter().chain(config).flat_map(Map::keys);
    for name in names {
        let Some((inner, _)) = of.member(name).filter(|_| !merged.contains_key(name)) else { continue };
        let value = |of: Option<&'_ Map<String, Value>>| of.and_then(|of| of.get(name)).cloned();
        if let Some(value) = merge(value(live).as_ref(), value(config).as_ref(), inner) {
            merged.insert(name.clone(), value);
        }
    }
    (!merged.is_empty()).then_some(Value::Object(merged))
}

/// Merges two lists: shared items follow the configuration's order, and the other ones of the object stay between them
/// where they were.
fn merge_items(live: Option<&Vec<Value>>, config: Option<&Vec<Value>>, of: Type<'_>) -> Option<Value> {
    let steps = |items: Option<&Vec<Value>>| -> Vec<Step> {
        items.into_iter().flatten().filter_map(|item| step_of(item, of).ok()).collect()
    };
    let (ours, theirs) = (grouped(live, of), grouped(config, of));
    let (left, right) = (steps(live), steps(config));
    // Duplicates of the object are not merged.
    let live_of = |step: &Step| ours.get(step).filter(|items| items.len() == 1).map(|items| items[0]);
    let mut shared = right.iter().filter(|step| ours.contains_key(step));
    let mut next = shared.next();
    let mut done: BTreeSet<&Step> = BTreeSet::new();
    let mut merged = Vec::new();
    let (mut l, mut r) = (0, 0);
    while l < left.len() || r < right.len() {
        if let (Some(mine), Some(wanted)) = (left.get(l), right.get(r)) {
            if mine == wanted {
                done.insert(mine);
                merged.extend(merge(live_of(mine), theirs[mine].first().copied(), of.items()));
                (l, r) = (l + 1, r + 1);
                next = shared.next();
                continue;
            }
            if theirs.contains_key(mine) && next.is_some_and(|next| next != mine) {
                // A shared item whose turn comes later.
                l += 1;
                continue;
            }
        }
        if let Some(mine) = left.get(l) {
            if !theirs.contains_key(mine) {
                merged.extend(live.and_then(|live| live.get(l)).cloned());
                l += 1;
                continue;
            }
            if done.contains(mine) {
                l += 1;
            }
        }
        if let Some(wanted) = right.get(r) {
            done.insert(wanted);
            merged.extend(merge(live_of(wanted), theirs[wanted].first().copied(), of.items()));
            r += 1;
            if next == Some(wanted) {
                next = shared.next();
            }
        }
    }
    (!merged.is_empty()).then_some(Value::Array(merged))
}

// --- removal ---

/// Removes fields and items; what has no members left becomes null.
pub(super) fn remove(value: &Value, gone: &Fields, of: Type<'_>) -> Value {
    let shape = of.shape(value);
    match (shape, value) {
        (Shape::Scalar, _) => value.clone(),
        (Shape::Map, Value::Object(members)) if !of.is_atomic(shape) => {
            let mut kept = Map::new();
            for (name, inner) in members {
                let step = Step::field(name);
                if gone.is_member(&step) {
                    continue;
                }
                let below = gone.below(&step).zip(of.member(name));
                let inner = below.map_or_else(|| inner.clone(), |(gone, (of, _))| remove(inner, gone, of));
                kept.insert(name.clone(), inner);
            }
            if kept.is_empty() { Value::Null } else { Value::Object(kept) }
        }
        (Shape::List, Value::Array(items)) if !of.is_atomic(shape) => {
            let kept = items.iter().filter_map(|item| {
                let Ok(step) = step_of(item, of) else { return Some(item.clone()) };
                let below = gone.below(&step);
                (!gone.is_member(&step))
                    .then(|| below.map_or_else(|| item.clone(), |gone| remove(item, gone, of.items())))
            });
            let kept: Vec<Value> = kept.collect();
            if kept.is_empty() { Value::Null } else { Value::Array(kept) }
        }
        _ => Value::Null,
    }
}
