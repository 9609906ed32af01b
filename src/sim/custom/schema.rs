//! Structural schemas: prunes unknown fields, applies defaults, validates.
//!
//! Mirrors the structural-schema pruning and defaulting of `apiextensions-apiserver`, and the validation of
//! `kube-openapi` with its paths and wording.

use std::cell::RefCell;
use std::collections::{BTreeSet, HashMap};

use regex::Regex;
use serde_json::{Map, Value, json};

use super::super::failure::Cause;
use super::super::field::Field;

/// The maximum nesting of an object; deeper ones are refused.
const MAX_DEPTH: usize = 64;

fn flag(schema: &Value, name: &str) -> bool {
    schema.get(name) == Some(&Value::Bool(true))
}

/// Returns the schema of a member: that of its property, or of additional properties.
fn of_member<'a>(schema: &'a Value, name: &str) -> Option<&'a Value> {
    let named = schema.get("properties").and_then(|properties| properties.get(name));
    named.or_else(|| schema.get("additionalProperties"))
}

/// Removes fields that the schema lacks and collects their paths. `apiVersion`, `kind` and `metadata` of a
/// resource are always kept.
pub(in super::super) fn prune(
    object: &mut Value,
    schema: &Value,
    field: &Field<'_>,
    unknown: &mut Vec<String>,
) {
    let is_resource = field.is_root() || flag(schema, "x-kubernetes-embedded-resource");
    match object {
        Value::Object(members) => {
            let keeps_unknown = flag(schema, "x-kubernetes-preserve-unknown-fields");
            members.retain(|name, value| {
                let field = Field::Member(field, name);
                if is_resource && matches!(name.as_str(), "apiVersion" | "kind" | "metadata") {
                    return true;
                }
                match of_member(schema, name) {
                    Some(Value::Bool(allowed)) => *allowed,
                    Some(inner) => {
                        prune(value, inner, &field, unknown);
                        true
                    }
                    None if keeps_unknown => true,
                    None => {
                        unknown.push(field.to_string());
                        false
                    }
                }
            });
        }
        Value::Array(items) => {
            let Some(inner) = schema.get("items") else { return };
            for (at, item) in items.iter_mut().enumerate() {
                prune(item, inner, &Field::Item(field, at), unknown);
            }
        }
        _ => {}
    }
}

/// Removes the nulls in fields that are not nullable and have no default.
pub(in super::super) fn drop_nulls(object: &mut Value, schema: &Value) {
    match object {
        Value::Object(members) => members.retain(|name, value| {
            let named = schema.get("properties").and_then(|named| named.get(name));
            let Some(inner) = named.or_else(|| schema.get("additionalProperties")) else { return true };
            let is_missing = value.is_null() && !flag(inner, "nullable") && inner.get("default").is_none();
            drop_nulls(value, inner);
            !is_missing || !inner.is_object()
        }),
        Value::Array(items) => {
            let Some(inner) = schema.get("items") else { return };
            items.iter_mut().for_each(|item| drop_nulls(item, inner));
        }
        _ => {}
    }
}

/// Applies defaults to missing fields; a null in a field that is not nullable counts as missing.
pub(in super::super) fn default(object: &mut Value, schema: &Value) {
    match object {
        Value::Object(members) => {
            let named = schema.get("properties").and_then(Value::as_object);
            for (name, inner) in named.into_iter().flatten() {
                let is_missing =
                    members.get(name).is_none_or(|value| value.is_null() && !flag(inner, "nullable"));
                if let Some(value) = inner.get("default").filter(|_| is_missing) {
                    members.insert(name.clone(), value.clone());
                }
                if let Some(value) = members.get_mut(name) {
                    default(value, inner);
                }
            }
            let Some(any) = schema.get("additionalProperties").filter(|any| any.is_object()) else { return };
            let others =
                members.iter_mut().filter(|(name, _)| !named.is_some_and(|named| named.contains_key(*name)));
            for (_, value) in others {
                if value.is_null()
                    && !flag(any, "nullable")
                    && let Some(instead) = any.get("default")
                {
                    *value = instead.clone();
                }
                default(value, any);
            }
        }
        Value::Array(items) => {
            let Some(inner) = schema.get("items") else { return };
            items.iter_mut().for_each(|item| default(item, inner));
        }
        _ => {}
    }
}

/// Validates an object against a schema.
pub(in super::super) fn validate(object: &Value, schema: &Value, causes: &mut Vec<Cause>) {
    Walk { causes }.value(object, schema, &Field::Root, 0);
}

struct Walk<'a> {
    causes: &'a mut Vec<Cause>,
}

// === impl Walk ===

impl Walk<'_> {
    fn value(&mut self, value: &Value, schema: &Value, field: &Field<'_>, depth: usize) {
        if depth > MAX_DEPTH {
            self.causes.push(Cause::invalid(field, &json!("object"), "is nested too deeply"));
            return;
        }
        if value.is_null() && flag(schema, "nullable") {
            // An enum must name null, too.
            return self.allowed_values(value, schema, field);
        }
        if !has_type(value, schema) {
            let wanted = schema.get("type").and_then(Value::as_str).unwrap_or("integer,string");
            let found = type_name(value);
            let detail = format!("{} in body must be of type {wanted}: {found:?}", shown(field));
            self.causes.push(Cause::wrong_type(shown(field), found, &detail));
            return;
        }
        self.allowed_values(value, schema, field);
        match value {
            Value::Object(members) => self.object(members, schema, field, depth),
            Value::Array(items) => self.array(items, schema, field, depth),
            Value::String(text) => self.text(text, schema, field),
            Value::Number(_) => self.number(value, schema, field),
            Value::Null | Value::Bool(_) => {}
        }
        self.combinations(value, schema, field, depth);
    }

    fn invalid(&mut self, field: &Field<'_>, value: &Value, rule: &str) {
        let detail = format!("{} in body {rule}", shown(field));
        self.causes.push(Cause::invalid(shown(field), value, &detail));
    }

    fn allowed_values(&mut self, value: &Value, schema: &Value, field: &Field<'_>) {
        if let Some(allowed) = schema.get("enum").and_then(Value::as_array)
            && !allowed.contains(value)
        {
            let allowed: Vec<String> =
                allowed.iter().map(|v| v.as_str().map_or_else(|| v.to_string(), str::to_owned)).collect();
            self.causes.push(Cause::not_supported(shown(field), value, &allowed));
        }
    }

    fn object(&mut self, members: &Map<String, Value>, schema: &Value, field: &Field<'_>, depth: usize) {
        for name in schema.get("required").and_then(Value::as_array).into_iter().flatten() {
            let name = name.as_str().unwrap_or_default();
            if !members.contains_key(name) {
                self.causes.push(Cause::required(&Field::Member(field, name), ""));
            }
        }
        if let Some(limit) = schema.get("maxProperties").and_then(Value::as_u64)
            && members.len() as u64 > limit
        {
            self.causes.push(Cause::too_many(shown(field), members.len(), limit));
        }
        if let Some(limit) = schema.get("minProperties").and_then(Value::as_u64)
            && (members.len() as u64) < limit
        {
            self.invalid(field, &json!(members.len()), &format!("should have at least {limit} properties"));
        }
        for (name, value) in members {
            // The root metadata is validated separately.
            if field.is_root() && name == "metadata" {
                continue;
            }
            if let Some(inner) = of_member(schema, name).filter(|inner| inner.is_object()) {
                self.value(value, inner, &Field::Member(field, name), depth + 1);
            }
        }
    }

    fn array(&mut self, items: &[Value], schema: &Value, field: &Field<'_>, depth: usize) {
        if let Some(limit) = schema.get("maxItems").and_then(Value::as_u64)
            && items.len() as u64 > limit
        {
            self.causes.push(Cause::too_many(shown(field), items.len(), limit));
        }
        if let Some(limit) = schema.get("minItems").and_then(Value::as_u64)
            && (items.len() as u64) < limit
        {
            self.invalid(field, &json!(items.len()), &format!("should have at least {limit} items"));
        }
        let keys: Vec<&str> = match schema.get("x-kubernetes-list-map-keys") {
            Some(Value::Array(keys)) => keys.iter().filter_map(Value::as_str).collect(),
            _ => Vec::new(),
        };
        let is_set = schema.get("x-kubernetes-list-type") == Some(&json!("set"));
        let mut seen = BTreeSet::new();
        for (at, item) in items.iter().enumerate() {
            let field = &Field::Item(field, at);
            if is_set || !keys.is_empty() {
                let identity = if is_set {
                    item.clone()
                } else {
                    keys.iter()
                        .map(|key| ((*key).to_owned(), item[*key].clone()))
                        .collect::<Map<_, _>>()
                        .into()
                };
                if !seen.insert(identity.to_string()) {
                    self.causes.push(Cause::duplicate(field, &identity));
                }
            }
            if let Some(inner) = schema.get("items") {
                self.value(item, inner, field, depth + 1);
            }
        }
    }

    fn text(&mut self, text: &str, schema: &Value, field: &Field<'_>) {
        let length = text.chars().count() as u64;
        let value = || json!(text);
        if let Some(limit) = schema.get("maxLength").and_then(Value::as_u64)
            && length > limit
        {
            self.causes.push(Cause::too_long(shown(field), limit));
        }
        if let Some(limit) = schema.get("minLength").and_then(Value::as_u64)
            && length < limit
        {
            self.invalid(field, &value(), &format!("should be at least {limit} chars long"));
        }
        if let Some(pattern) = schema.get("pattern").and_then(Value::as_str)
            && !fits(text, pattern)
        {
            self.invalid(field, &value(), &format!("should match '{pattern}'"));
        }
        let format = schema.get("format").and_then(Value::as_str).unwrap_or_default();
        if !has_format(text, format) {
            let detail = format!("{} in body must be of type {format}: {}", shown(field), value());
            self.causes.push(Cause::wrong_format(shown(field), &value(), &detail));
        }
    }

    fn number(&mut self, value: &Value, schema: &Value, field: &Field<'_>) {
        let number = value.as_f64().unwrap_or_default();
        let limit = |name: &str| schema.get(name).and_then(Value::as_f64);
        if let Some(maximum) = limit("maximum") {
            let excluded = flag(schema, "exclusiveMaximum");
            if number > maximum || (excluded && number >= maximum) {
                let word = if excluded { "less than" } else { "less than or equal to" };
                self.invalid(field, value, &format!("should be {word} {maximum}"));
            }
        }
        if let Some(minimum) = limit("minimum") {
            let excluded = flag(schema, "exclusiveMinimum");
            if number < minimum || (excluded && number <= minimum) {
                let word = if excluded { "greater than" } else { "greater than or equal to" };
                self.invalid(field, value, &format!("should be {word} {minimum}"));
            }
        }
        if let Some(step) = limit("multipleOf").filter(|step| *step != 0.0)
            && (number / step).fract() != 0.0
        {
            self.invalid(field, value, &format!("should be a multiple of {step}"));
        }
    }

    /// Validates `allOf`, `anyOf`, `oneOf` and `not`.
    fn combinations(&mut self, value: &Value, schema: &Value, field: &Field<'_>, depth: usize) {
        let fits = |inner: &Value| {
            let mut causes = Vec::new();
            Walk { causes: &mut causes }.value(value, inner, field, depth + 1);
            causes.is_empty()
        };
        let branches = |name: &str| schema.get(name).and_then(Value::as_array);
        for inner in branches("allOf").into_iter().flatten() {
            self.value(value, inner, field, depth + 1);
        }
        let shown_value = json!("");
        if branches("anyOf").is_some_and(|all| !all.iter().any(fits)) {
            let detail = format!("\"{}\" must validate at least one schema (anyOf)", shown(field));
            self.causes.push(Cause::invalid(shown(field), &shown_value, &detail));
        }
        if branches("oneOf").is_some_and(|all| all.iter().filter(|inner| fits(inner)).count() != 1) {
            let detail = format!("\"{}\" must validate one and only one schema (oneOf)", shown(field));
            self.causes.push(Cause::invalid(shown(field), &shown_value, &detail));
        }
        if schema.get("not").is_some_and(fits) {
            let detail = format!("\"{}\" must not validate the schema (not)", shown(field));
            self.causes.push(Cause::invalid(shown(field), &shown_value, &detail));
        }
    }
}

/// Returns the name of a field in messages; the root is `<nil>`.
fn shown(field: &Field<'_>) -> String {
    if field.is_root() { "<nil>".to_owned() } else { field.to_string() }
}

fn has_type(value: &Value, schema: &Value) -> bool {
    if flag(schema, "x-kubernetes-int-or-string") {
        return value.is_i64() || value.is_u64() || value.is_string();
    }
    match schema.get("type").and_then(Value::as_str) {
        Some("object") => value.is_object(),
        Some("array") => value.is_array(),
        Some("string") => value.is_string(),
        Some("boolean") => value.is_boolean(),
        Some("integer") => {
            value.is_i64() || value.is_u64() || value.as_f64().is_some_and(|n| n.fract() == 0.0)
        }
        Some("number") => value.is_number(),
        _ => true,
    }
}

fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.is_f64() => "number",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

thread_local! {
    /// The compiled patterns of all CRDs: compiling a pattern takes longer than matching it.
    static PATTERNS: RefCell<HashMap<String, Option<Regex>>> = RefCell::default();
}

/// Returns whether `text` matches a pattern; an invalid pattern matches everything.
fn fits(text: &str, pattern: &str) -> bool {
    PATTERNS.with_borrow_mut(|patterns| {
        if !patterns.contains_key(pattern) {
            patterns.insert(pattern.to_owned(), Regex::new(pattern).ok());
        }
        patterns.get(pattern).and_then(Option::as_ref).is_none_or(|regex| regex.is_match(text))
    })
}

/// Returns whether `text` has a format; unknown formats are not checked, as on a real server.
fn has_format(text: &str, format: &str) -> bool {
    match format {
        "date-time" => text.parse::<jiff::Timestamp>().is_ok(),
        "date" => text.parse::<jiff::civil::Date>().is_ok(),
        "ipv4" => text.parse::<std::net::Ipv4Addr>().is_ok(),
        "ipv6" => text.parse::<std::net::Ipv6Addr>().is_ok(),
        "duration" => text.parse::<jiff::SignedDuration>().is_ok(),
        _ => true,
    }
}

/// Checks that a schema is structural: every field has a type, and no unsupported keyword occurs.
pub(super) fn validate_structure(schema: &Value, field: &str, is_root: bool, causes: &mut Vec<Cause>) {
    let type_ = schema.get("type").and_then(Value::as_str).unwrap_or_default();
    let is_free = flag(schema, "x-kubernetes-int-or-string")
        || (flag(schema, "x-kubernetes-preserve-unknown-fields") && !is_root);
    if type_.is_empty() && !is_free {
        let detail = if is_root {
            "must not be empty at the root"
        } else {
            "must not be empty for specified object fields"
        };
        causes.push(Cause::required(format!("{field}.type"), detail));
    } else if is_root && type_ != "object" && !is_free {
        causes.push(Cause::invalid(format!("{field}.type"), &json!(type_), "must be object at the root"));
    }
    if let Some(pattern) = schema.get("pattern").and_then(Value::as_str)
        && let Err(error) = Regex::new(pattern)
    {
        let detail = format!("must be a valid regular expression, but isn't: {error}");
        causes.push(Cause::invalid(format!("{field}.pattern"), &json!(pattern), &detail));
    }
    for name in ["$ref", "definitions", "dependencies", "patternProperties"] {
        if schema.get(name).is_some_and(|value| !value.is_null()) {
            causes.push(Cause::forbidden(format!("{field}.{name}"), &format!("{name} is not supported")));
        }
    }
    if flag(schema, "uniqueItems") {
        let detail = "uniqueItems cannot be set to true since the runtime complexity becomes quadratic";
        causes.push(Cause::forbidden(format!("{field}.uniqueItems"), detail));
    }
    if type_ == "array" && schema.get("items").is_none() && !is_free {
        causes.push(Cause::required(format!("{field}.items"), "must be specified"));
    }
    for (name, inner) in schema.get("properties").and_then(Value::as_object).into_iter().flatten() {
        validate_structure(inner, &format!("{field}.properties[{name}]"), false, causes);
    }
    for name in ["items", "additionalProperties"] {
        if let Some(inner) = schema.get(name).filter(|inner| inner.is_object()) {
            validate_structure(inner, &format!("{field}.{name}"), false, causes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn schema() -> Value {
        json!({"type": "object", "properties": {"spec": {"type": "object", "required": ["name"], "properties": {
            "name": {"type": "string", "maxLength": 3, "pattern": "^[a-z]*$"},
            "count": {"type": "integer", "minimum": 1.0, "maximum": 10.0, "default": 2},
            "mode": {"type": "string", "enum": ["A", "B"], "nullable": true},
            "note": {"type": "string", "nullable": true},
            "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
            "port": {"x-kubernetes-int-or-string": true},
            "items": {"type": "array", "items": {"type": "object", "properties": {"x": {"type": "integer", "default": 7}}}},
        }}}})
    }

    #[track_caller]
    fn check(spec: &Value, expected: &[&str]) {
        let mut causes = Vec::new();
        validate(&json!({"metadata": {"name": 1}, "spec": spec}), &schema(), &mut causes);
        let fields: Vec<&str> = causes.iter().map(|cause| cause.field.as_str()).collect();
        assert_eq!(fields, expected, "{causes:?}");
    }

    #[test]
    fn validation_errors_carry_field_paths() {
        check(&json!({"name": "abc", "count": 10, "note": null, "port": "http"}), &[]);
        check(&json!({"name": "abc", "mode": null}), &["spec.mode"]);
        check(&json!({}), &["spec.name"]);
        check(&json!({"name": "abcd", "count": 11, "mode": "C"}), &["spec.count", "spec.mode", "spec.name"]);
        check(&json!({"name": "A", "count": "2", "port": 1.5}), &["spec.count", "spec.name", "spec.port"]);
        check(&json!({"name": "a", "items": [{"x": 1}, {"x": "y"}]}), &["spec.items[1].x"]);
        check(&json!([]), &["spec"]);
    }

    #[test]
    fn null_in_a_map_counts_as_missing() {
        let texts = |any: Value| json!({"type": "object", "additionalProperties": any});
        let defaulted = |any: Value| {
            let mut object = json!({"a": null, "b": "x"});
            drop_nulls(&mut object, &texts(any.clone()));
            default(&mut object, &texts(any));
            object
        };
        assert_eq!(defaulted(json!({"type": "string"})), json!({"b": "x"}));
        assert_eq!(defaulted(json!({"type": "string", "default": "y"})), json!({"a": "y", "b": "x"}));
        assert_eq!(defaulted(json!({"type": "string", "nullable": true})), json!({"a": null, "b": "x"}));
        let mut applied = json!({"a": null, "b": "x"});
        default(&mut applied, &texts(json!({"type": "string"})));
        assert_eq!(applied, json!({"a": null, "b": "x"}), "validation refuses what an apply leaves");
    }

    #[test]
    fn unknown_fields_are_pruned_and_missing_ones_defaulted() {
        let mut object = json!({"kind": "Foo", "spec": {"name": "a", "other": 1, "free": {"any": [1]},
            "items": [{}, {"y": 1}], "count": null}, "more": 1});
        let mut unknown = Vec::new();
        prune(&mut object, &schema(), &Field::Root, &mut unknown);
        drop_nulls(&mut object, &schema());
        default(&mut object, &schema());
        assert_eq!(unknown, ["more", "spec.items[1].y", "spec.other"]);
        let expected = json!({"kind": "Foo", "spec": {"name": "a", "free": {"any": [1]}, "count": 2,
            "items": [{"x": 7}, {"x": 7}]}});
        assert_eq!(object, expected);
    }
}
