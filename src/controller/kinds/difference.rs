//! Differences between an observed and a wanted child, and how each sort of field is compared, written and described.
//!
//! # How it works
//! Each kind of child has a table of its [`fields`](super::fields): who owns a field, the key that identifies the items
//! of a list, and the server's defaults. A kind's `differences` and `write_into` are that table in code, and use one
//! function for each way in which a field can be ours.
//!
//! | a field of ours | is compared by | is written by |
//! |---|---|---|
//! | a value that may be shown | `differs` | inserting it |
//! | a value or list that is long or may contain secrets | `differs_hidden` | `replace_list`, if it differs |
//! | a map with some keys of ours | `labels_differ` | `merge_keys` |
//! | an item in a list | `missing`, if it is absent | adding it |
//!
//! Equivalent values are not rewritten, so that "no difference" and "the body does not change" are the same.
//!
//! # Guarantees
//! - Values are compared directly; JSON is built only for those that differ.
//!   (test: `equal_values_build_no_json`, `comparisons_build_no_json`)
//! - A value that may be secret is neither shown nor kept. (test: `hidden_values_are_never_shown`)
//! - Two differences are equal if the same value is wanted for the same field.
//!   (test: `fingerprint_depends_only_on_the_wanted_value`)
//! - Missing or malformed parents of a field are replaced by objects. (test: `missing_path_is_created`)

use std::fmt;
use std::hash::BuildHasher;

use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::api::labels::Labels;
use crate::cache::TextMap;

/// One field that differs from the wanted state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// The path of the field.
    pub field: String,
    /// The live value; `None` if it may contain secrets, such as an environment.
    pub live: Option<String>,
    /// The wanted value; `None` if it may contain secrets, and for a missing item.
    pub wanted: Option<String>,
    /// The hash of the wanted value, which identifies it without showing it. The live value is left out, so that a
    /// client that reverts a field to a new value each time is noticed too.
    pub fingerprint: u64,
}

/// For people; shows values only where they are harmless.
impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.live, &self.wanted) {
            (Some(live), Some(wanted)) => write!(f, "{} was {live}, wanted {wanted}", self.field),
            (Some(live), None) => write!(f, "{} was {live}", self.field),
            (None, _) => write!(f, "{} was different", self.field),
        }
    }
}

/// Describes differences in one line, for people.
#[must_use]
pub fn describe(differences: &[Difference]) -> String {
    differences.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

// --- comparing ---

/// Compares a value that may be shown.
pub fn differs<T>(found: &mut Vec<Difference>, field: impl Into<String>, live: &T, wanted: &T)
where
    T: PartialEq + Serialize + ?Sized,
{
    if live != wanted {
        found.push(difference(field.into(), text(live), text(wanted)));
    }
}

/// Compares a value or list that must not be shown.
pub fn differs_hidden<T>(found: &mut Vec<Difference>, field: impl Into<String>, live: &T, wanted: &T)
where
    T: PartialEq + Serialize + ?Sized,
{
    if live != wanted {
        found.push(hidden(field.into(), &text(wanted)));
    }
}

/// Compares labels by our keys; keys that are not wanted belong to others. `live` returns the live value of a key, as
/// [`Object::label`](crate::cache::Object::label) does.
pub fn labels_differ<'a>(
    found: &mut Vec<Difference>,
    field: &str,
    live: impl Fn(&str) -> Option<&'a str>,
    wanted: &Labels,
) {
    for (key, value) in wanted {
        let live = live(key);
        if live != Some(value.as_str()) {
            let live = live.map_or_else(|| "none".to_owned(), |live| format!("{live:?}"));
            found.push(difference(format!("{field}[{key}]"), live, format!("{value:?}")));
        }
    }
}

/// Compares labels that are all ours: keys that are not wanted are to go.
pub(in crate::controller) fn all_labels_differ(
    found: &mut Vec<Difference>,
    field: &str,
    live: &TextMap,
    wanted: &Labels,
) {
    labels_differ(found, field, |key| live.get(key), wanted);
    for (key, value) in live.iter().filter(|(key, _)| !wanted.contains_key(*key)) {
        found.push(difference(format!("{field}[{key}]"), format!("{value:?}"), "none".to_owned()));
    }
}

/// Returns the difference for a wanted item that does not exist.
#[must_use]
pub fn missing(field: String) -> Difference {
    Difference { field, live: Some("missing".to_owned()), wanted: None, fingerprint: fingerprint_of("there") }
}

/// Returns the difference between two values in their text form.
pub(in crate::controller) fn difference(field: String, live: String, wanted: String) -> Difference {
    let fingerprint = fingerprint_of(&wanted);
    Difference { field, live: Some(live), wanted: Some(wanted), fingerprint }
}

fn hidden(field: String, wanted: &str) -> Difference {
    Difference { field, live: None, wanted: None, fingerprint: fingerprint_of(wanted) }
}

fn fingerprint_of(wanted: &str) -> u64 {
    foldhash::fast::FixedState::default().hash_one(wanted)
}

fn text<T: Serialize + ?Sized>(value: &T) -> String {
    serde_json::to_string(value).unwrap_or_default()
}

// --- writing ---

/// Returns the object at this path, and creates it if it is missing.
pub fn object_at<'a>(value: &'a mut Value, path: &[&str]) -> &'a mut Map<String, Value> {
    let mut at = value;
    for step in path {
        if !at.is_object() {
            *at = json!({});
        }
        at = at.as_object_mut().expect("made an object above").entry(*step).or_insert(Value::Null);
    }
    if !at.is_object() {
        *at = json!({});
    }
    at.as_object_mut().expect("made an object above")
}

/// Sets these keys of a map, and keeps the others.
pub fn merge_keys(live: &mut Value, path: &[&str], wanted: &Labels) {
    if wanted.is_empty() {
        return;
    }
    let map = object_at(live, path);
    for (key, value) in wanted {
        map.insert(key.clone(), json!(value));
    }
}

/// Replaces a whole list or map, and removes it if the wanted one is empty.
pub fn replace_list<T: Serialize>(fields: &mut Map<String, Value>, name: &str, wanted: &T) {
    let wanted = json!(wanted);
    let is_empty = wanted.is_null()
        || wanted.as_array().is_some_and(Vec::is_empty)
        || wanted.as_object().is_some_and(Map::is_empty);
    if is_empty {
        fields.remove(name);
    } else {
        fields.insert(name.to_owned(), wanted);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(pairs: &[(&str, &str)]) -> Labels {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    fn found(compare: impl FnOnce(&mut Vec<Difference>)) -> String {
        let mut found = Vec::new();
        compare(&mut found);
        describe(&found)
    }

    #[test]
    fn each_comparison_has_its_own_wording() {
        assert_eq!(found(|found| differs(found, "a", &1, &1)), "");
        assert_eq!(found(|found| differs(found, "a", &1, &2)), "a was 1, wanted 2");
        assert_eq!(found(|found| differs(found, "a", "x", "y")), r#"a was "x", wanted "y""#);
        assert_eq!(found(|found| differs_hidden(found, "a", "x", "y")), "a was different");
        let (live, wanted) =
            (TextMap::from_iter([("a", "1"), ("b", "2")]), labels(&[("a", "1"), ("b", "3"), ("c", "4")]));
        let shown = r#"l[b] was "2", wanted "3"; l[c] was none, wanted "4""#;
        assert_eq!(found(|found| labels_differ(found, "l", |key| live.get(key), &wanted)), shown);
        assert_eq!(found(|found| found.push(missing("a".to_owned()))), "a was missing");
    }

    /// Equal to any other value of its type; must never be serialized.
    #[derive(PartialEq)]
    struct Unwritable;

    impl Serialize for Unwritable {
        fn serialize<S: serde::Serializer>(&self, _: S) -> Result<S::Ok, S::Error> {
            panic!("JSON was built");
        }
    }

    #[test]
    fn equal_values_build_no_json() {
        let mut found = Vec::new();
        differs(&mut found, "a", &Unwritable, &Unwritable);
        differs_hidden(&mut found, "a", &[Unwritable], &[Unwritable]);
        assert_eq!(found, []);
        let of_another =
            std::panic::catch_unwind(|| differs(&mut Vec::new(), "a", &[Unwritable][..], &[][..]));
        assert!(of_another.is_err(), "JSON is built for what differs");
    }

    #[test]
    fn hidden_values_are_never_shown() {
        let mut found = Vec::new();
        differs_hidden(&mut found, "a", "canary", "other canary");
        assert_eq!(found.len(), 1);
        assert!(!format!("{found:?} {} {}", describe(&found), found[0].fingerprint).contains("canary"));
    }

    #[test]
    fn fingerprint_depends_only_on_the_wanted_value() {
        let one = |live: i32, wanted: i32| {
            let mut found = Vec::new();
            differs(&mut found, "a", &live, &wanted);
            found[0].fingerprint
        };
        assert_eq!(one(1, 5), one(2, 5), "reverted to a new value each time");
        assert_ne!(one(1, 5), one(1, 6));
    }

    #[test]
    fn missing_path_is_created() {
        for mut value in [json!(null), json!({"a": 1}), json!({"a": {"b": []}}), json!({"a": {"b": {}}})] {
            object_at(&mut value, &["a", "b"]).insert("c".to_owned(), json!(1));
            assert_eq!(value, json!({"a": {"b": {"c": 1}}}));
        }
        let mut value = json!({"a": {"keep": 1}});
        merge_keys(&mut value, &["a", "b"], &labels(&[]));
        assert_eq!(value, json!({"a": {"keep": 1}}), "nothing wanted, nothing created");
        merge_keys(&mut value, &["a"], &labels(&[("x", "y")]));
        assert_eq!(value, json!({"a": {"keep": 1, "x": "y"}}));
    }

    #[test]
    fn empty_list_is_removed() {
        let mut fields = Map::from_iter([("list".to_owned(), json!([1]))]);
        replace_list(&mut fields, "list", &[2]);
        assert_eq!(fields["list"], json!([2]));
        replace_list(&mut fields, "list", &Vec::<i32>::new());
        replace_list(&mut fields, "map", &Labels::new());
        replace_list(&mut fields, "option", &None::<Labels>);
        assert!(fields.is_empty());
    }
}
