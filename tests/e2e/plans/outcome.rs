//! The outcome of a run, in a form that can be compared with that of another run.
//!
//! Uids are replaced by the names of their objects, so that a changed owner shows. Times, resource versions and the
//! attempts of hooks are removed. Other differences between two undisturbed runs with different seeds form the mask.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

/// The final objects by kind and name; objects with generated names share a key.
pub(crate) type State = BTreeMap<String, Vec<Value>>;

/// How many times each object was created and deleted.
pub(crate) type Churn = BTreeMap<String, (usize, usize)>;

/// The label and JSON pointer of each difference between undisturbed runs.
pub(crate) type Mask = BTreeSet<(String, String)>;

/// Returns kind and name, without the random part of a generated name.
fn label(object: &Value) -> String {
    let text = |key: &str| object["metadata"][key].as_str().unwrap_or_default();
    let kind = object["kind"].as_str().unwrap_or_default();
    match text("generateName") {
        "" => format!("{kind} {}", text("name")),
        generated => format!("{kind} {generated}*"),
    }
}

pub(crate) fn state(objects: &[Value]) -> State {
    let mut names = BTreeMap::new();
    for object in objects {
        for key in ["uid", "name"] {
            if let Some(text) = object["metadata"][key].as_str() {
                let is_random = key == "uid" || object["metadata"]["generateName"].is_string();
                if is_random {
                    names.insert(text.to_owned(), format!("<{key} of {}>", label(object)));
                }
            }
        }
    }
    let mut state = State::new();
    for object in objects {
        let mut plain = object.clone();
        plain["metadata"].as_object_mut().map(|metadata| metadata.remove("resourceVersion"));
        replace(&mut plain, &names);
        state.entry(label(object)).or_default().push(plain);
    }
    for alike in state.values_mut() {
        alike.sort_by_key(Value::to_string);
    }
    state
}

fn replace(value: &mut Value, names: &BTreeMap<String, String>) {
    match value {
        Value::String(text) => {
            if let Some(name) = names.get(text) {
                name.clone_into(text);
            } else if text.parse::<jiff::Timestamp>().is_ok() {
                "<time>".clone_into(text);
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| replace(item, names)),
        Value::Object(members) => {
            // Failed attempts are recorded, so disturbed runs legitimately have more of them.
            members.remove("attempts");
            members.values_mut().for_each(|member| replace(member, names));
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// Counts the creates and deletes among a watch's events.
pub(crate) fn count(churn: &mut Churn, events: &[Value]) {
    for event in events {
        let key = || label(&event["object"]);
        match event["type"].as_str() {
            Some("ADDED") => churn.entry(key()).or_default().0 += 1,
            Some("DELETED") => churn.entry(key()).or_default().1 += 1,
            Some("MODIFIED") => {}
            _ => panic!("unexpected watch event: {event}"),
        }
    }
}

/// Returns the differences between two undisturbed runs as a mask.
pub(crate) fn learn(one: &State, other: &State) -> Mask {
    differences(one, other, &Mask::new()).into_iter().map(|difference| difference.at).collect()
}

/// A difference: its label and JSON pointer, and a description.
pub(crate) struct Difference {
    at: (String, String),
    words: String,
}

/// How many differences are described.
const SHOWN: usize = 5;

/// Returns the differences between two states, except those in the mask.
fn differences(expected: &State, found: &State, mask: &Mask) -> Vec<Difference> {
    let labels: BTreeSet<&String> = expected.keys().chain(found.keys()).collect();
    let none = Vec::new();
    let mut all = Vec::new();
    for label in labels {
        let (expected, found) = (expected.get(label).unwrap_or(&none), found.get(label).unwrap_or(&none));
        if expected.len() == found.len() {
            for (expected, found) in expected.iter().zip(found) {
                walk(label, "", expected, found, &mut all);
            }
        } else {
            let words = format!("{label}: {} of them, not {}", found.len(), expected.len());
            all.push(Difference { at: (label.clone(), String::new()), words });
        }
    }
    all.retain(|difference| !mask.contains(&difference.at));
    all
}

fn walk(label: &str, path: &str, expected: &Value, found: &Value, all: &mut Vec<Difference>) {
    match (expected, found) {
        (Value::Object(one), Value::Object(other)) => {
            let keys: BTreeSet<&String> = one.keys().chain(other.keys()).collect();
            for key in keys {
                walk(label, &format!("{path}/{key}"), &expected[key], &found[key], all);
            }
        }
        (Value::Array(one), Value::Array(other)) if one.len() == other.len() => {
            for (at, (one, other)) in one.iter().zip(other).enumerate() {
                walk(label, &format!("{path}/{at}"), one, other, all);
            }
        }
        (one, other) if one == other => {}
        (one, other) => {
            let words = format!("{label} {path}: {other}, not {one}");
            all.push(Difference { at: (label.to_owned(), path.to_owned()), words });
        }
    }
}

/// Describes how a run differs from the undisturbed one; empty if it does not.
pub(crate) fn compare(expected: (&State, &Churn), found: (&State, &Churn), mask: &Mask) -> Vec<String> {
    let mut words: Vec<String> =
        differences(expected.0, found.0, mask).into_iter().map(|difference| difference.words).collect();
    let labels: BTreeSet<&String> = expected.1.keys().chain(found.1.keys()).collect();
    for label in labels {
        let of = |churn: &Churn| churn.get(label).copied().unwrap_or_default();
        let (expected, found) = (of(expected.1), of(found.1));
        if expected != found {
            words.push(format!(
                "{label}: created {} times and deleted {}, not {} and {}",
                found.0, found.1, expected.0, expected.1
            ));
        }
    }
    let more = words.len().saturating_sub(SHOWN);
    words.truncate(SHOWN);
    if more > 0 {
        words.push(format!("and {more} more"));
    }
    words
}
