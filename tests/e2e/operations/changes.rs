//! Derives single-field changes of a spec from its schema.

use std::fmt;

use serde_json::{Value, json};

/// Returns a valid value for a field that the schema cannot suggest, because a pattern or the API server restricts it.
/// `key` is the last part of the field's path.
fn also(key: &str) -> Option<Value> {
    Some(match key {
        "fieldPath" => json!("metadata.uid"),
        "resource" => json!("requests.memory"),
        "divisor" => json!("1Ki"),
        // The highest node port that the server reserves for explicit requests.
        "nodePort" => json!(30_085),
        "host" => json!("*.example.com"),
        "appProtocol" => json!("kubernetes.io/h2c"),
        "targetPort" => json!("other"),
        _ => return None,
    })
}

/// A change of one field.
#[derive(Clone, Debug)]
pub(super) struct Change {
    /// A JSON pointer in the spec.
    pub(super) path: String,
    pub(super) what: &'static str,
    /// The new value; `None` removes the field.
    pub(super) value: Option<Value>,
    /// Whether the schema forbids the change.
    pub(super) is_wrong: bool,
}

impl Change {
    /// Returns the spec with this change applied.
    pub(super) fn on(&self, spec: &Value) -> Value {
        let mut spec = spec.clone();
        let (parent, key) = self.path.rsplit_once('/').expect("a path is below the spec");
        let key = key.replace("~1", "/");
        let parent = spec.pointer_mut(parent).expect("the parent exists");
        match (parent, &self.value) {
            (Value::Object(members), Some(value)) => drop(members.insert(key, value.clone())),
            (Value::Object(members), None) => drop(members.remove(&key)),
            (Value::Array(items), value) => {
                let at: usize = key.parse().expect("a list index");
                match value {
                    Some(value) => items[at] = value.clone(),
                    None => drop(items.remove(at)),
                }
            }
            (other, _) => panic!("{other} has no members"),
        }
        spec
    }

    /// Returns the path with `*` for list indexes.
    pub(super) fn field(&self) -> String {
        let parts = self.path.split('/').map(|part| if part.parse::<usize>().is_ok() { "*" } else { part });
        parts.collect::<Vec<_>>().join("/")
    }
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let value = self.value.as_ref().map_or_else(String::new, |value| format!(": {value}"));
        write!(f, "{} {}{}", self.path, self.what, value.chars().take(80).collect::<String>())
    }
}

/// Returns all changes of a spec, given its schema.
pub(super) fn changes(schema: &Value, spec: &Value) -> Vec<Change> {
    let mut found = Found { path: String::new(), all: Vec::new() };
    found.members(schema, spec);
    found.all.retain(|change| spec.pointer(&change.path) != change.value.as_ref());
    found.all
}

struct Found {
    path: String,
    all: Vec<Change>,
}

impl Found {
    fn push(&mut self, what: &'static str, value: impl Into<Option<Value>>) {
        self.all.push(Change { path: self.path.clone(), what, value: value.into(), is_wrong: false });
    }

    fn push_wrong(&mut self, what: &'static str, value: Value) {
        self.all.push(Change { path: self.path.clone(), what, value: Some(value), is_wrong: true });
    }

    /// Adds the changes of a field and of the fields inside it.
    fn below(&mut self, key: &str, schema: &Value, value: Option<&Value>) {
        let length = self.path.len();
        self.path.push('/');
        self.path.push_str(&key.replace('/', "~1"));
        if value.is_some() {
            self.push("removed", None);
        }
        if let Some(also) = also(key) {
            self.push("changed", also);
        }
        self.field(schema, value);
        self.path.truncate(length);
    }

    fn field(&mut self, schema: &Value, value: Option<&Value>) {
        if schema["x-kubernetes-int-or-string"] == true {
            self.amount(schema);
            return;
        }
        match schema["type"].as_str() {
            Some("integer") => self.integer(schema, value),
            Some("string") => self.text(schema, value),
            Some("boolean") => {
                self.push("changed", json!(true));
                self.push("changed", json!(false));
                self.push_wrong("of another type", json!("x"));
            }
            Some("array") => self.list(schema, value),
            Some("object") => {
                self.push("emptied", json!({}));
                self.push_wrong("of another type", json!("x"));
                if let Some(value) = value {
                    self.members(schema, value);
                }
            }
            other => panic!("{}: no changes for type {other:?}", self.path),
        }
    }

    fn members(&mut self, schema: &Value, value: &Value) {
        for (key, schema) in schema["properties"].as_object().into_iter().flatten() {
            self.below(key, schema, value.get(key));
        }
        let each = &schema["additionalProperties"];
        if each.is_object() {
            for (key, value) in value.as_object().into_iter().flatten() {
                self.below(key, each, Some(value));
            }
            self.below("ephemeral-storage", each, None);
        }
    }

    fn list(&mut self, schema: &Value, value: Option<&Value>) {
        self.push("emptied", json!([]));
        self.push_wrong("of another type", json!("x"));
        let Some(items) = value.and_then(Value::as_array) else { return };
        if let (Some(first), Some(most)) = (items.first(), schema["maxItems"].as_u64()) {
            let many = usize::try_from(most).expect("the bound is small") + 1;
            self.push_wrong("longer than the most", json!(vec![first.clone(); many]));
        }
        if items.len() > 1 {
            let backwards: Vec<Value> = items.iter().rev().cloned().collect();
            self.push("turned around", json!(backwards));
        }
        for (at, item) in items.iter().enumerate() {
            self.below(&at.to_string(), &schema["items"], Some(item));
        }
    }

    fn integer(&mut self, schema: &Value, value: Option<&Value>) {
        let least = bound(schema, "minimum").expect("an integer has a minimum");
        self.push("minimum", json!(least));
        self.push("changed", json!(value.and_then(Value::as_i64).unwrap_or(least) + 1));
        self.push_wrong("below the minimum", json!(least - 1));
        self.push_wrong("of another type", json!("x"));
        if let Some(most) = bound(schema, "maximum") {
            self.push("maximum", json!(most));
            self.push_wrong("above the maximum", json!(most + 1));
        }
    }

    /// Changes of a number or string: a quantity or a port.
    fn amount(&mut self, schema: &Value) {
        let least = bound(schema, "minimum").expect("a number has a minimum");
        self.push("minimum", json!(least));
        self.push("changed", json!("15m"));
        self.push("changed", json!("15Mi"));
        self.push("changed", json!(7));
        self.push_wrong("below the minimum", json!(least - 1));
        self.push_wrong("of no form", json!("no such thing"));
        self.push_wrong("of another type", json!({}));
        if let Some(most) = bound(schema, "maximum") {
            self.push("maximum", json!(most));
            self.push_wrong("above the maximum", json!(most + 1));
        }
    }

    fn text(&mut self, schema: &Value, value: Option<&Value>) {
        self.push_wrong("of another type", json!(7));
        if let Some(known) = schema["enum"].as_array() {
            known.iter().for_each(|known| self.push("changed", known.clone()));
            self.push_wrong("none of the known", json!("other"));
            return;
        }
        let length = |bound: &str| schema[bound].as_u64().and_then(|length| usize::try_from(length).ok());
        let of = |length: usize| json!("a".repeat(length));
        self.push("minimum", of(length("minLength").unwrap_or(0)));
        self.push("changed", json!(format!("{}x", value.and_then(Value::as_str).unwrap_or_default())));
        if let Some(least @ 1..) = length("minLength") {
            self.push_wrong("shorter than the least", of(least - 1));
        }
        if let Some(most) = length("maxLength") {
            self.push("maximum", of(most));
            self.push_wrong("longer than the most", of(most + 1));
        }
        if schema["pattern"].is_string() {
            self.push_wrong("of no form", json!("\n"));
        }
    }
}

/// Returns an integer bound, which the schema may store as a float.
#[expect(clippy::cast_possible_truncation, reason = "the bounds of our schemas are small")]
fn bound(schema: &Value, name: &str) -> Option<i64> {
    schema[name].as_f64().map(|bound| bound as i64)
}
