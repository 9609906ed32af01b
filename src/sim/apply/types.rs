//! The schema of a value, as server-side apply reads it: which lists and maps merge, and by which keys.
//!
//! Built-in kinds have the schemas that the server publishes as OpenAPI, with the list types in `lists`; custom kinds
//! have those of their CRDs. Mirrors `schemaconv` of kube-openapi.

use std::sync::OnceLock;

use serde_json::{Map, Value};

use super::super::kinds::{BuiltIn, Kind, Of};
use super::super::openapi;

/// A schema and the definitions that it refers to.
type Schema = (Value, Map<String, Value>);

/// The form of a value: how it merges.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    Scalar,
    List,
    Map,
}

/// The type of a value.
#[derive(Clone, Copy, Debug)]
pub(super) struct Type<'a> {
    of: Declared<'a>,
    shared: &'a Map<String, Value>,
    /// Whether a schema further up keeps unknown fields.
    keeps_unknown: bool,
    /// Whether its metadata is that of Kubernetes objects.
    is_resource: bool,
    /// Where the schema of a reference says so.
    is_atomic: bool,
}

#[derive(Clone, Copy, Debug)]
enum Declared<'a> {
    As(&'a Value),
    /// A field without schema: objects in it merge, lists do not.
    Deduced,
    /// An item of a list without schema: it is replaced whole.
    Untyped,
}

fn built_in(of: BuiltIn) -> &'static Schema {
    static SCHEMAS: [OnceLock<Schema>; BuiltIn::COUNT] = [const { OnceLock::new() }; BuiltIn::COUNT];
    SCHEMAS[of as usize].get_or_init(|| openapi::built_in(of))
}

fn metadata() -> Type<'static> {
    static SCHEMA: OnceLock<Schema> = OnceLock::new();
    let (schema, shared) = SCHEMA.get_or_init(openapi::metadata);
    Type::new(schema, shared)
}

fn text() -> Type<'static> {
    static SCHEMA: OnceLock<Schema> = OnceLock::new();
    let (schema, shared) = SCHEMA.get_or_init(|| (serde_json::json!({"type": "string"}), Map::new()));
    Type::new(schema, shared)
}

// === impl Type ===

impl<'a> Type<'a> {
    fn new(schema: &'a Value, shared: &'a Map<String, Value>) -> Self {
        Self { of: Declared::Deduced, shared, keeps_unknown: false, is_resource: false, is_atomic: false }
            .declared(schema)
    }

    /// Returns the type of a kind's objects; `None` if the version is not served.
    pub(super) fn of_kind(kind: &'a Kind, api_version: &str) -> Option<Self> {
        let version = kind.versions.iter().find(|version| kind.api_version(version) == api_version)?;
        match &kind.of {
            Of::BuiltIn(of) => {
                let (schema, shared) = built_in(*of);
                Some(Type::new(schema, shared))
            }
            Of::Custom(definition) => {
                static NONE: OnceLock<Map<String, Value>> = OnceLock::new();
                let schema = &definition.version(version)?.schema;
                Some(Self { is_resource: true, ..Type::new(schema, NONE.get_or_init(Map::new)) })
            }
        }
    }

    /// Returns the type of a part with this schema, which may be a reference.
    fn declared(self, schema: &'a Value) -> Self {
        let is_atomic = schema.get("x-kubernetes-map-type").is_some_and(|type_| type_ == "atomic");
        let only = schema.get("allOf").and_then(Value::as_array).filter(|all| all.len() == 1);
        let reference = schema.get("$ref").or_else(|| only.and_then(|all| all[0].get("$ref")));
        let name = reference.and_then(Value::as_str).and_then(|path| path.rsplit('/').next());
        let schema = match name.map(|name| self.shared.get(name)) {
            Some(Some(schema)) => schema,
            // The schemas are complete; a lost definition would allow any value.
            Some(None) => return Self { of: Declared::Deduced, is_atomic, is_resource: false, ..self },
            None => schema,
        };
        let flag = |name: &str| schema.get(name) == Some(&Value::Bool(true));
        Self {
            of: Declared::As(schema),
            keeps_unknown: self.keeps_unknown || flag("x-kubernetes-preserve-unknown-fields"),
            is_resource: flag("x-kubernetes-embedded-resource"),
            is_atomic,
            ..self
        }
    }

    fn keyword(&self, name: &str) -> Option<&'a Value> {
        match self.of {
            Declared::As(schema) => schema.get(name),
            Declared::Deduced | Declared::Untyped => None,
        }
    }

    /// Returns the declared type; empty if any is allowed.
    pub(super) fn declared_type(&self) -> &'a str {
        self.keyword("type").and_then(Value::as_str).unwrap_or_default()
    }

    /// Returns the shape of a value; a value of the wrong type has that of the schema.
    pub(super) fn shape(&self, value: &Value) -> Shape {
        match (self.declared_type(), value) {
            ("object", _) | ("", Value::Object(_) | Value::Null) => Shape::Map,
            ("array", _) | ("", Value::Array(_)) => Shape::List,
            _ => Shape::Scalar,
        }
    }

    /// Returns whether values of a shape are owned and replaced as a whole.
    pub(super) fn is_atomic(&self, shape: Shape) -> bool {
        let is = |name: &str, wanted: &[&str]| {
            self.keyword(name).and_then(Value::as_str).is_some_and(|found| wanted.contains(&found))
        };
        match (self.of, shape) {
            (_, Shape::Scalar) | (Declared::Untyped, _) | (Declared::Deduced, Shape::List) => true,
            (Declared::Deduced, Shape::Map) => self.is_atomic,
            (Declared::As(_), Shape::Map) => self.is_atomic || is("x-kubernetes-map-type", &["atomic"]),
            (Declared::As(_), Shape::List) => !is("x-kubernetes-list-type", &["map", "set"]),
        }
    }

    /// Returns the keys of a list of objects; empty for a set.
    pub(super) fn keys(&self) -> impl Iterator<Item = &'a str> + use<'a> {
        let keys = self.keyword("x-kubernetes-list-map-keys").and_then(Value::as_array);
        keys.into_iter().flatten().filter_map(Value::as_str)
    }

    /// Returns the default of a member.
    pub(super) fn default(&self, name: &str) -> Option<&'a Value> {
        let Declared::As(schema) = self.of else { return None };
        schema.get("properties")?.get(name)?.get("default")
    }

    /// Returns the type of a list's items.
    pub(super) fn items(&self) -> Self {
        match self.keyword("items") {
            Some(items) => self.declared(items),
            None => self.bare(Declared::Untyped),
        }
    }

    /// Returns the type of a member, and whether the schema names it; `None` if it is not allowed.
    pub(super) fn member(&self, name: &str) -> Option<(Self, bool)> {
        let schema = match self.of {
            Declared::As(schema) => schema,
            of => return Some((self.bare(of), false)),
        };
        match name {
            "apiVersion" | "kind" if self.is_resource => return Some((text().shortened(), true)),
            "metadata" if self.is_resource => return Some((metadata().shortened(), true)),
            _ => {}
        }
        let properties = schema.get("properties").and_then(Value::as_object);
        if let Some(property) = properties.and_then(|properties| properties.get(name)) {
            return Some((self.declared(property), true));
        }
        let is_free = self.keeps_unknown || properties.is_none_or(Map::is_empty);
        match schema.get("additionalProperties") {
            None if is_free => Some((self.bare(Declared::Deduced), false)),
            Some(Value::Bool(true)) => Some((self.bare(Declared::Deduced), false)),
            None | Some(Value::Bool(false)) => None,
            Some(any) => Some((self.declared(any), false)),
        }
    }

    fn bare(&self, of: Declared<'a>) -> Self {
        Self { of, is_resource: false, is_atomic: false, ..*self }
    }

    /// Shortens the lifetime of a static type.
    fn shortened<'b>(self) -> Type<'b>
    where
        'a: 'b,
    {
        self
    }
}
