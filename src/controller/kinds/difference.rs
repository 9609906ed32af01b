//! What differs between a child as it is and as it is wanted, and the words in which each kind says so.
//!
//! # How it works
//! Each kind of child has a table of its [`fields`](super::fields): whose a field is, by which key the items of a list
//! are found, what the server fills in by itself. The kind's `differences` and `apply` are that table in code, and
//! have a word for each way in which a field can be ours.
//!
//! | a field of ours | is compared by | is written by |
//! |---|---|---|
//! | a value, which is shown | `differs` | inserting it |
//! | a value or list that is long, or may hold secrets | `differs_hidden` | `replace_list`, if it differs |
//! | a map of which some keys are ours | `labels_differ` | `merge_keys` |
//! | a thing in a list | `missing`, if it is not there | adding it |
//!
//! What means the same is not written anew, so that "no difference" and "the body does not change" are one.
//!
//! # Guarantees
//! - Values are compared as they are: JSON is built of what differs, and of nothing else. (test: `where_nothing_differs_no_json_is_built`, `comparing_builds_no_json`)
//! - A value that may be secret is neither shown nor kept. (test: `what_is_hidden_is_shown_nowhere`)
//! - Two differences are the same when the same is wanted of the same field. (test: `a_fingerprint_is_of_what_is_wanted`)
//! - What is not an object on the way to a field is made one. (test: `a_path_is_made_where_it_is_missing`)

use std::fmt;
use std::hash::BuildHasher;

use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::api::labels::Labels;

/// One field that is not as wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// Its path.
    pub field: String,
    /// What it is; `None` for what may hold secrets, such as an environment.
    pub live: Option<String>,
    /// What it should be; `None` likewise.
    pub wanted: Option<String>,
    /// Tells what is wanted from other values without showing it. Not what is live: who changes a field
    /// back to ever new values is to be noticed too.
    pub fingerprint: u64,
}

/// For a person; values only where they are harmless.
impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.live, &self.wanted) {
            (Some(live), Some(wanted)) => write!(f, "{} was {live}, wanted {wanted}", self.field),
            _ => write!(f, "{} was different", self.field),
        }
    }
}

/// Differences as one line for a person.
#[must_use]
pub fn describe(differences: &[Difference]) -> String {
    differences.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

/// What makes two sets of differences the same, without their values.
pub(in crate::controller) fn fingerprint(differences: &[Difference]) -> String {
    let one = |difference: &Difference| format!("{}={:x}", difference.field, difference.fingerprint);
    differences.iter().map(one).collect::<Vec<_>>().join(";")
}

// --- comparing ---

/// A value, which is shown.
pub fn differs<T>(found: &mut Vec<Difference>, field: impl Into<String>, live: &T, wanted: &T)
where
    T: PartialEq + Serialize + ?Sized,
{
    if live != wanted {
        found.push(difference(field.into(), text(live), text(wanted)));
    }
}

/// A value or list, which is not shown.
pub fn differs_hidden<T>(found: &mut Vec<Difference>, field: impl Into<String>, live: &T, wanted: &T)
where
    T: PartialEq + Serialize + ?Sized,
{
    if live != wanted {
        found.push(hidden(field.into(), &text(wanted)));
    }
}

/// Labels, ours by key: those that nobody wants are somebody else's.
pub fn labels_differ(found: &mut Vec<Difference>, field: &str, live: &Labels, wanted: &Labels) {
    for (key, value) in wanted {
        let live = live.get(key);
        if live != Some(value) {
            let live = live.map_or_else(|| "none".to_owned(), |live| format!("{live:?}"));
            found.push(difference(format!("{field}[{key}]"), live, format!("{value:?}")));
        }
    }
}

/// A thing that is wanted and not there.
#[must_use]
pub fn missing(field: String) -> Difference {
    difference(field, "none".to_owned(), "there".to_owned())
}

/// Values as they are shown.
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

/// The object at this path, made where it is missing.
pub fn object_at<'a>(value: &'a mut Value, path: &[&str]) -> &'a mut Map<String, Value> {
    let mut at = value;
    for step in path {
        if !at.is_object() {
            *at = json!({});
        }
        at = at.as_object_mut().expect("it was made an object just now").entry(*step).or_insert(Value::Null);
    }
    if !at.is_object() {
        *at = json!({});
    }
    at.as_object_mut().expect("it was made an object just now")
}

/// Sets these keys of a map; the others stay.
pub fn merge_keys(live: &mut Value, path: &[&str], wanted: &Labels) {
    if wanted.is_empty() {
        return;
    }
    let map = object_at(live, path);
    for (key, value) in wanted {
        map.insert(key.clone(), json!(value));
    }
}

/// Sets a list or a map whole; an empty one is none.
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
    fn each_way_of_comparing_has_its_words() {
        assert_eq!(found(|found| differs(found, "a", &1, &1)), "");
        assert_eq!(found(|found| differs(found, "a", &1, &2)), "a was 1, wanted 2");
        assert_eq!(found(|found| differs(found, "a", "x", "y")), r#"a was "x", wanted "y""#);
        assert_eq!(found(|found| differs_hidden(found, "a", "x", "y")), "a was different");
        let (live, wanted) =
            (labels(&[("a", "1"), ("b", "2")]), labels(&[("a", "1"), ("b", "3"), ("c", "4")]));
        let shown = r#"l[b] was "2", wanted "3"; l[c] was none, wanted "4""#;
        assert_eq!(found(|found| labels_differ(found, "l", &live, &wanted)), shown);
        assert_eq!(found(|found| found.push(missing("a".to_owned()))), "a was none, wanted there");
    }

    /// Equal to everything of its kind, and nobody may ask for its JSON.
    #[derive(PartialEq)]
    struct Unwritable;

    impl Serialize for Unwritable {
        fn serialize<S: serde::Serializer>(&self, _: S) -> Result<S::Ok, S::Error> {
            panic!("its JSON is built");
        }
    }

    #[test]
    fn where_nothing_differs_no_json_is_built() {
        let mut found = Vec::new();
        differs(&mut found, "a", &Unwritable, &Unwritable);
        differs_hidden(&mut found, "a", &[Unwritable], &[Unwritable]);
        assert_eq!(found, []);
        let of_another =
            std::panic::catch_unwind(|| differs(&mut Vec::new(), "a", &[Unwritable][..], &[][..]));
        assert!(of_another.is_err(), "it is for what differs");
    }

    #[test]
    fn what_is_hidden_is_shown_nowhere() {
        let mut found = Vec::new();
        differs_hidden(&mut found, "a", "canary", "other canary");
        assert_eq!(found.len(), 1);
        assert!(!format!("{found:?} {} {}", describe(&found), fingerprint(&found)).contains("canary"));
    }

    #[test]
    fn a_fingerprint_is_of_what_is_wanted() {
        let one = |live: i32, wanted: i32| {
            let mut found = Vec::new();
            differs(&mut found, "a", &live, &wanted);
            fingerprint(&found)
        };
        assert_eq!(one(1, 5), one(2, 5), "changed back to ever new values");
        assert_ne!(one(1, 5), one(1, 6));
    }

    #[test]
    fn a_path_is_made_where_it_is_missing() {
        for mut value in [json!(null), json!({"a": 1}), json!({"a": {"b": []}}), json!({"a": {"b": {}}})] {
            object_at(&mut value, &["a", "b"]).insert("c".to_owned(), json!(1));
            assert_eq!(value, json!({"a": {"b": {"c": 1}}}));
        }
        let mut value = json!({"a": {"keep": 1}});
        merge_keys(&mut value, &["a", "b"], &labels(&[]));
        assert_eq!(value, json!({"a": {"keep": 1}}), "nothing wanted, nothing made");
        merge_keys(&mut value, &["a"], &labels(&[("x", "y")]));
        assert_eq!(value, json!({"a": {"keep": 1, "x": "y"}}));
    }

    #[test]
    fn an_empty_list_is_none() {
        let mut fields = Map::from_iter([("list".to_owned(), json!([1]))]);
        replace_list(&mut fields, "list", &[2]);
        assert_eq!(fields["list"], json!([2]));
        replace_list(&mut fields, "list", &Vec::<i32>::new());
        replace_list(&mut fields, "map", &Labels::new());
        replace_list(&mut fields, "option", &None::<Labels>);
        assert!(fields.is_empty());
    }
}
