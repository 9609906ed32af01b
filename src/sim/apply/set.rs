//! Sets of field paths, as `managedFields` stores them.
//!
//! Mirrors `fieldpath.Set` of structured-merge-diff: a tree in which a node may be a member, have children, or both. A
//! parent and its children are separate members: whoever owns `spec.strategy` does not own `spec.strategy.type`.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde_json::{Map, Value, json};

use super::types::Type;

/// A scalar in a list key or a set; numbers are ordered by value.
#[derive(Clone, Debug)]
pub(super) struct Scalar(pub(super) Value);

impl Ord for Scalar {
    fn cmp(&self, other: &Self) -> Ordering {
        let rank = |value: &Value| match value {
            Value::Number(_) => 0,
            Value::String(_) => 1,
            Value::Bool(_) => 2,
            _ => 3,
        };
        match (&self.0, &other.0) {
            (Value::Number(a), Value::Number(b)) => match (a.as_i64(), b.as_i64()) {
                (Some(a), Some(b)) => a.cmp(&b),
                _ => a.as_f64().unwrap_or_default().total_cmp(&b.as_f64().unwrap_or_default()),
            },
            (Value::String(a), Value::String(b)) => a.cmp(b),
            (a, b) => rank(a).cmp(&rank(b)).then_with(|| a.to_string().cmp(&b.to_string())),
        }
    }
}

impl PartialOrd for Scalar {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Scalar {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Scalar {}

/// One element of a path.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Step {
    /// A member of an object.
    Field(String),
    /// An item of a list of objects, by its keys.
    Key(BTreeMap<String, Scalar>),
    /// An item of a set.
    Item(Scalar),
    /// An item of another list; the server writes none of these, but clients may.
    Index(u64),
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Field(name) => write!(f, ".{name}"),
            Self::Key(keys) => {
                let keys: Vec<String> =
                    keys.iter().map(|(name, value)| format!("{name}={}", value.0)).collect();
                write!(f, "[{}]", keys.join(","))
            }
            Self::Item(value) => write!(f, "[={}]", value.0),
            Self::Index(at) => write!(f, "[{at}]"),
        }
    }
}

// === impl Step ===

impl Step {
    pub(super) fn field(name: &str) -> Self {
        Self::Field(name.to_owned())
    }

    fn encoded(&self) -> String {
        match self {
            Self::Field(name) => format!("f:{name}"),
            Self::Key(keys) => {
                let keys: Map<String, Value> =
                    keys.iter().map(|(name, value)| (name.clone(), value.0.clone())).collect();
                format!("k:{}", Value::Object(keys))
            }
            Self::Item(value) => format!("v:{}", value.0),
            Self::Index(at) => format!("i:{at}"),
        }
    }

    /// Returns `None` for a type of element that a later server version may write.
    fn decode(text: &str) -> Result<Option<Self>, String> {
        let wrong = |why: &dyn fmt::Display| format!("parsing key {text:?} as path element: {why}");
        let Some((type_, rest)) = text.split_once(':') else { return Err(wrong(&"missing colon")) };
        let parse = |text: &str| serde_json::from_str::<Value>(text).map_err(|error| wrong(&error));
        Ok(match type_ {
            "f" => Some(Self::field(rest)),
            "v" => Some(Self::Item(Scalar(parse(rest)?))),
            "k" => match parse(rest)? {
                Value::Object(keys) => {
                    Some(Self::Key(keys.into_iter().map(|(name, value)| (name, Scalar(value))).collect()))
                }
                _ => return Err(wrong(&"the keys are no object")),
            },
            "i" => Some(Self::Index(rest.parse().map_err(|error| wrong(&error))?)),
            _ => None,
        })
    }
}

/// A path from the root of an object.
pub(super) type Path = Vec<Step>;

/// Returns the notation of a path in messages: `.spec.ports[port=80,protocol="TCP"].name`.
pub(super) fn shown(path: &[Step]) -> String {
    path.iter().map(Step::to_string).collect()
}

/// A set of field paths; see the module.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Fields {
    members: BTreeSet<Step>,
    /// Without empty sets.
    children: BTreeMap<Step, Fields>,
}

// === impl Fields ===

impl Fields {
    pub(super) fn of<'a>(paths: impl IntoIterator<Item = &'a [&'a str]>) -> Self {
        let mut set = Self::default();
        for path in paths {
            set.insert(&path.iter().map(|name| Step::field(name)).collect::<Path>());
        }
        set
    }

    /// Adds a path, but not its parents. The root itself cannot be owned.
    pub(super) fn insert(&mut self, path: &[Step]) {
        match path {
            [] => {}
            [last] => drop(self.members.insert(last.clone())),
            [first, rest @ ..] => self.children.entry(first.clone()).or_default().insert(rest),
        }
    }

    pub(super) fn has(&self, path: &[Step]) -> bool {
        match path {
            [] => false,
            [last] => self.members.contains(last),
            [first, rest @ ..] => self.children.get(first).is_some_and(|inner| inner.has(rest)),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.members.is_empty() && self.children.is_empty()
    }

    /// Returns the paths below an element.
    pub(super) fn below(&self, step: &Step) -> Option<&Self> {
        self.children.get(step)
    }

    pub(super) fn is_member(&self, step: &Step) -> bool {
        self.members.contains(step)
    }

    pub(super) fn union(&self, other: &Self) -> Self {
        let mut all = self.clone();
        all.members.extend(other.members.iter().cloned());
        for (step, theirs) in &other.children {
            let ours = all.children.entry(step.clone()).or_default();
            *ours = ours.union(theirs);
        }
        all
    }

    pub(super) fn intersection(&self, other: &Self) -> Self {
        let both = |(step, ours): (&Step, &Self)| {
            let both = ours.intersection(other.children.get(step)?);
            (!both.is_empty()).then(|| (step.clone(), both))
        };
        Self {
            members: self.members.intersection(&other.members).cloned().collect(),
            children: self.children.iter().filter_map(both).collect(),
        }
    }

    /// Removes the members of another set, but not what is below them.
    pub(super) fn difference(&self, other: &Self) -> Self {
        let rest = |(step, ours): (&Step, &Self)| {
            let rest =
                other.children.get(step).map_or_else(|| ours.clone(), |theirs| ours.difference(theirs));
            (!rest.is_empty()).then(|| (step.clone(), rest))
        };
        Self {
            members: self.members.difference(&other.members).cloned().collect(),
            children: self.children.iter().filter_map(rest).collect(),
        }
    }

    /// Removes the members of another set and everything below them.
    pub(super) fn without(&self, other: &Self) -> Self {
        let mut rest = self.difference(other);
        rest.children.retain(|step, inner| {
            if let Some(theirs) = other.children.get(step) {
                *inner = inner.without(theirs);
            }
            !other.members.contains(step) && !inner.is_empty()
        });
        rest
    }

    /// Adds the parents that a schema names, such as `spec` of `spec.replicas`, but no items and keys of maps.
    pub(super) fn with_named(&self, of: Type<'_>) -> Self {
        let mut all = self.clone();
        for (step, inner) in &mut all.children {
            let inner_type = match step {
                Step::Field(name) => of.member(name).map(|(inner, is_named)| {
                    if is_named {
                        all.members.insert(step.clone());
                    }
                    inner
                }),
                _ => Some(of.items()),
            };
            if let Some(inner_type) = inner_type {
                *inner = inner.with_named(inner_type);
            }
        }
        all
    }

    /// Returns all paths, parents before children.
    pub(super) fn paths(&self) -> Vec<Path> {
        fn walk(set: &Fields, at: &mut Path, all: &mut Vec<Path>) {
            for step in &set.members {
                all.push(at.iter().chain([step]).cloned().collect());
            }
            for (step, inner) in &set.children {
                at.push(step.clone());
                walk(inner, at, all);
                at.pop();
            }
        }
        let mut all = Vec::new();
        walk(self, &mut Vec::new(), &mut all);
        all
    }

    /// Returns the set as `fieldsV1`.
    pub(super) fn encoded(&self) -> Value {
        let mut all: Map<String, Value> =
            self.members.iter().map(|step| (step.encoded(), json!({}))).collect();
        for (step, inner) in &self.children {
            let mut below = inner.encoded();
            if self.members.contains(step) {
                below["."] = json!({});
            }
            all.insert(step.encoded(), below);
        }
        Value::Object(all)
    }

    /// Parses `fieldsV1`.
    pub(super) fn decode(fields: &Value) -> Result<Self, String> {
        let Some(fields) = fields.as_object() else { return Err("fieldsV1 must be an object".to_owned()) };
        let mut set = Self::default();
        for (key, inner) in fields.iter().filter(|(key, _)| *key != ".") {
            let Some(step) = Step::decode(key)? else { continue };
            let below = Self::decode(inner)?;
            if below.is_empty() || inner.get(".").is_some() {
                set.members.insert(step.clone());
            }
            if !below.is_empty() {
                set.children.insert(step, below);
            }
        }
        Ok(set)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[expect(clippy::needless_pass_by_value, reason = "callers write json!")]
    fn set(fields: Value) -> Fields {
        Fields::decode(&fields).unwrap()
    }

    #[test]
    fn fields_v1_round_trips() {
        let fields = json!({"f:metadata": {"f:finalizers": {".": {}, "v:\"a/b\"": {}}},
            "f:spec": {"f:ports": {".": {}, "k:{\"port\":80,\"protocol\":\"TCP\"}": {".": {}, "f:port": {}}}}});
        let decoded = set(fields.clone());
        assert_eq!(decoded.encoded(), fields);
        let paths: Vec<String> = decoded.paths().iter().map(|path| shown(path)).collect();
        assert_eq!(
            paths,
            [
                ".metadata.finalizers",
                ".metadata.finalizers[=\"a/b\"]",
                ".spec.ports",
                ".spec.ports[port=80,protocol=\"TCP\"]",
                ".spec.ports[port=80,protocol=\"TCP\"].port"
            ]
        );
        assert_eq!(set(json!({"x:later": {}, "f:a": {}})), set(json!({"f:a": {}})));
        assert!(Fields::decode(&json!({"a": {}})).is_err() && Fields::decode(&json!({"k:1": {}})).is_err());
    }

    #[test]
    fn parent_and_child_are_separate_members() {
        let (parent, child) = (set(json!({"f:a": {}})), set(json!({"f:a": {"f:b": {}}})));
        assert_eq!(parent.union(&child), set(json!({"f:a": {".": {}, "f:b": {}}})));
        assert_eq!(child.difference(&parent), child);
        assert_eq!(child.without(&parent), Fields::default());
        assert_eq!(parent.intersection(&child), Fields::default());
        assert_eq!(parent.union(&child).difference(&child), parent);
    }
}
