//! Label and field selectors, and the selection of a request together with `shards`.
//!
//! Mirrors `labels.Parse` and `fields.ParseSelector`: `a=b`, `a!=b`, `a in (b,c)`, `a notin (b)`, `a`,
//! `!a`, `a>1`, `a<1`; field selectors support equality only.

use std::iter::Peekable;

use serde_json::{Value, json};

use super::failure::{Failure, Outcome};
use super::kinds::{BuiltIn, Kind, Of};
use super::meta;
use super::request::{Call, at, text};
use super::shards::Shards;

/// The namespace and the selectors of a request.
#[derive(Clone, Debug, Default)]
pub(super) struct Selection {
    /// Empty: all namespaces.
    namespace: String,
    labels: Vec<Requirement>,
    fields: Vec<(String, String, bool)>,
    /// `None`: all shards.
    shards: Option<Shards>,
}

#[derive(Clone, Debug, PartialEq)]
struct Requirement {
    key: String,
    test: Test,
    /// Whether the label must pass or fail the test; an absent label fails every test.
    holds: bool,
}

#[derive(Clone, Debug, PartialEq)]
enum Test {
    Exists,
    In(Vec<String>),
    Above(i64),
    Below(i64),
}

// === impl Selection ===

impl Selection {
    /// Parses the selectors of a request; without `is_sharding`, the shard selector is ignored.
    pub(super) fn of(call: &Call, is_sharding: bool) -> Outcome<Self> {
        let Call { kind, namespace, query, .. } = call;
        let labels = parse_labels(query.get("labelSelector")).map_err(Failure::bad_request)?;
        let mut fields = Vec::new();
        for term in query.get("fieldSelector").split(',').filter(|term| !term.is_empty()) {
            let (field, value, holds) = if let Some((field, value)) = term.split_once("!=") {
                (field, value, false)
            } else if let Some((field, value)) = term.split_once("==").or_else(|| term.split_once('=')) {
                (field, value, true)
            } else {
                let why = format!("invalid selector: '{term}'; can't understand '{term}'");
                return Err(Failure::bad_request(why));
            };
            if !is_selectable(kind, field) {
                return Err(Failure::bad_request(format!("field label not supported: {field}")));
            }
            fields.push((field.to_owned(), value.to_owned(), holds));
        }
        let selector = query.get("shardSelector");
        let is_sharded = is_sharding && !selector.is_empty();
        let shards = is_sharded.then(|| Shards::parse(selector)).transpose()?;
        Ok(Self { namespace: namespace.clone(), labels, fields, shards })
    }

    /// Returns whether no selector leaves out an object.
    pub(super) fn has_all(&self) -> bool {
        self.labels.is_empty() && self.fields.is_empty() && self.shards.is_none()
    }

    /// Returns the `shardInfo` of a list of whole objects; a real server's lists of custom objects have none.
    pub(super) fn shard_info(&self, kind: &Kind) -> Option<Value> {
        let shards = self.shards.as_ref().filter(|_| matches!(kind.of, Of::BuiltIn(_)));
        shards.map(|shards| json!({"selector": shards.to_string()}))
    }

    pub(super) fn matches(&self, object: &Value) -> bool {
        let namespace = text(object, "/metadata/namespace");
        (self.namespace.is_empty() || self.namespace == namespace)
            && self.labels.iter().all(|requirement| requirement.matches(object))
            && self.fields.iter().all(|(field, value, holds)| (field_of(object, field) == *value) == *holds)
            && self.shards.as_ref().is_none_or(|shards| shards.matches(object))
    }
}

/// Returns whether an object matches a workload's `spec.selector`: `matchLabels` and `matchExpressions`.
pub(super) fn selector_matches(selector: &Value, object: &Value) -> bool {
    let label = |key: &str| at(object, "/metadata/labels").and_then(|labels| labels.get(key));
    let by_label = selector.get("matchLabels").and_then(Value::as_object);
    let mut all = by_label.into_iter().flatten();
    let expressions = selector.get("matchExpressions").and_then(Value::as_array);
    let mut expressions = expressions.into_iter().flatten();
    all.all(|(key, value)| label(key) == Some(value))
        && expressions.all(|expression| {
            let found = label(text(expression, "/key"));
            let values = expression.get("values").and_then(Value::as_array);
            let is_in = found.is_some_and(|found| values.is_some_and(|values| values.contains(found)));
            match text(expression, "/operator") {
                "In" => is_in,
                "NotIn" => !is_in,
                "Exists" => found.is_some(),
                "DoesNotExist" => found.is_none(),
                _ => false,
            }
        })
}

fn is_selectable(kind: &Kind, field: &str) -> bool {
    if matches!(field, "metadata.name" | "metadata.namespace") {
        return true;
    }
    match &kind.of {
        Of::BuiltIn(BuiltIn::Pod) => matches!(
            field,
            "spec.nodeName"
                | "spec.restartPolicy"
                | "spec.schedulerName"
                | "spec.serviceAccountName"
                | "status.phase"
                | "status.podIP"
                | "status.nominatedNodeName"
        ),
        Of::BuiltIn(BuiltIn::Event) => {
            field.starts_with("involvedObject.")
                || matches!(field, "reason" | "type" | "reportingComponent" | "source")
        }
        Of::BuiltIn(BuiltIn::EventV1) => {
            field.starts_with("regarding.") || matches!(field, "reason" | "type" | "reportingController")
        }
        Of::BuiltIn(BuiltIn::Node) => field == "spec.unschedulable",
        Of::BuiltIn(BuiltIn::Namespace) => field == "status.phase",
        Of::BuiltIn(BuiltIn::Secret) => field == "type",
        Of::BuiltIn(BuiltIn::ReplicaSet) => field == "status.replicas",
        Of::BuiltIn(_) => false,
        Of::Custom(definition) => definition.selectable_fields().any(|path| path == field),
    }
}

/// Returns a field's value as text; selectors apply to the stored form, which is core/v1 for Events.
fn field_of(object: &Value, field: &str) -> String {
    let stored = match field.strip_prefix("regarding.") {
        Some(rest) => format!("involvedObject.{rest}"),
        None if field == "reportingController" => "reportingComponent".to_owned(),
        None => field.to_owned(),
    };
    let pointer = format!("/{}", stored.replace('.', "/"));
    match object.pointer(&pointer) {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Null) | None => String::new(),
        Some(other) => other.to_string(),
    }
}

// === impl Requirement ===

impl Requirement {
    fn matches(&self, object: &Value) -> bool {
        let label = at(object, "/metadata/labels").and_then(|labels| labels.get(&self.key));
        let passes = label.and_then(Value::as_str).is_some_and(|label| match &self.test {
            Test::Exists => true,
            Test::In(values) => values.iter().any(|value| value == label),
            Test::Above(bound) => label.parse::<i64>().is_ok_and(|number| number > *bound),
            Test::Below(bound) => label.parse::<i64>().is_ok_and(|number| number < *bound),
        });
        passes == self.holds
    }
}

/// The symbols and words of a selector.
type Tokens<'a> = Peekable<std::vec::IntoIter<&'a str>>;

fn is_symbol(c: char) -> bool {
    matches!(c, '=' | '!' | '(' | ')' | ',' | '>' | '<')
}

fn is_blank(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\r' | '\n')
}

fn tokens(selector: &str) -> Tokens<'_> {
    let mut tokens = Vec::new();
    let mut rest = selector.trim_start_matches(is_blank);
    while !rest.is_empty() {
        let end = if rest.starts_with("==") || rest.starts_with("!=") {
            2
        } else if rest.starts_with(is_symbol) {
            1
        } else {
            rest.find(|c: char| is_symbol(c) || is_blank(c)).unwrap_or(rest.len())
        };
        let (token, behind) = rest.split_at(end);
        tokens.push(token);
        rest = behind.trim_start_matches(is_blank);
    }
    tokens.into_iter().peekable()
}

fn parse_labels(selector: &str) -> Result<Vec<Requirement>, String> {
    let mut tokens = tokens(selector);
    let mut requirements = Vec::new();
    while let Some(first) = tokens.peek() {
        if first.starts_with(is_symbol) && *first != "!" {
            return Err(format!("found '{first}', expected: !, identifier, or 'end of string'"));
        }
        let requirement = parse_requirement(&mut tokens);
        requirements.push(requirement.map_err(|why| format!("unable to parse requirement: {why}"))?);
        match tokens.next() {
            None => break,
            Some(",") if tokens.peek().is_some() => {}
            Some(found) => return Err(format!("found '{found}', expected: ',' or 'end of string'")),
        }
    }
    Ok(requirements)
}

fn parse_requirement(tokens: &mut Tokens<'_>) -> Result<Requirement, String> {
    let is_negated = tokens.next_if_eq(&"!").is_some();
    let key = word(tokens)?.to_owned();
    if !meta::is_qualified_name(&key) {
        return Err(format!("key: Invalid value: {key:?}: a label key must be a qualified name"));
    }
    if is_negated || is_at_end(tokens) {
        return Ok(Requirement { key, test: Test::Exists, holds: !is_negated });
    }
    let (test, holds) = match tokens.next().unwrap_or_default() {
        "=" | "==" => (Test::In(vec![value(tokens)?]), true),
        "!=" => (Test::In(vec![value(tokens)?]), false),
        "in" => (Test::In(values(tokens)?), true),
        "notin" => (Test::In(values(tokens)?), false),
        ">" => (Test::Above(bound(tokens)?), true),
        "<" => (Test::Below(bound(tokens)?), true),
        other => return Err(format!("found '{other}', expected: in, notin, =, ==, !=, >, <")),
    };
    Ok(Requirement { key, test, holds })
}

fn is_at_end(tokens: &mut Tokens<'_>) -> bool {
    matches!(tokens.peek(), None | Some(&","))
}

fn word<'a>(tokens: &mut Tokens<'a>) -> Result<&'a str, String> {
    let found = tokens.next().unwrap_or_default();
    if found.is_empty() || found.starts_with(is_symbol) {
        return Err(format!("found '{found}', expected: identifier"));
    }
    Ok(found)
}

/// Parses the value after an operator; a missing value is empty.
fn value(tokens: &mut Tokens<'_>) -> Result<String, String> {
    checked(if is_at_end(tokens) { "" } else { word(tokens)? })
}

fn bound(tokens: &mut Tokens<'_>) -> Result<i64, String> {
    let value = value(tokens)?;
    value.parse().map_err(|_| format!("values[0]: Invalid value: {value:?}: the value must be an integer"))
}

/// Parses values in parentheses; nothing between two commas is an empty value.
fn values(tokens: &mut Tokens<'_>) -> Result<Vec<String>, String> {
    if tokens.next_if_eq(&"(").is_none() {
        return Err(format!("found '{}', expected: '('", tokens.next().unwrap_or_default()));
    }
    if tokens.peek() == Some(&")") {
        return Err(
            "values: Invalid value: []: for 'in', 'notin' operators, values set can't be empty".to_owned()
        );
    }
    let mut values = Vec::new();
    loop {
        let is_empty = matches!(tokens.peek(), Some(&"," | &")"));
        values.push(checked(if is_empty { "" } else { word(tokens)? })?);
        match tokens.next() {
            Some(",") => {}
            Some(")") => return Ok(values),
            found => return Err(format!("found '{}', expected: ',' or ')'", found.unwrap_or_default())),
        }
    }
}

fn checked(value: &str) -> Result<String, String> {
    if meta::is_label_value(value) {
        Ok(value.to_owned())
    } else {
        Err(format!("values: Invalid value: {value:?}: not a valid label value"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(selector: &str, expected: bool) {
        let object = json!({"metadata": {"labels": {"app": "web", "tier": "front", "size": "7"}}});
        let requirements = parse_labels(selector).unwrap();
        let matches = requirements.iter().all(|requirement| requirement.matches(&object));
        assert_eq!(matches, expected, "{selector}");
    }

    #[test]
    fn label_selectors_match_as_in_kubectl() {
        for selector in [
            "",
            "app=web",
            "app==web,tier!=back",
            "app in (web, api)",
            "app",
            "!other",
            " ! other , app",
            "tier notin (back)",
            "tier notin(back,)",
            "size>6,size<8",
            "app!=",
        ] {
            check(selector, true);
        }
        for selector in [
            "app=api",
            "app!=web",
            "app notin (web,api),tier",
            "!app",
            "other",
            "other in (a)",
            "size > 7",
            "size<7",
            "app>1",
            "other<1",
            "app=",
        ] {
            check(selector, false);
        }
        // An absent label differs from every value.
        check("other!=a,other notin (b)", true);
    }

    #[test]
    fn malformed_selectors_are_refused() {
        for selector in [
            "app in web",
            "app in ()",
            "app in (web",
            "app in (web) x",
            "=web",
            "==",
            "app!=we b",
            "app=-web",
            "app=web,",
            ",app",
            "app,,tier",
            "!app=web",
            "a b",
            "-app",
            "a/b/c=d",
            "size>six",
            "size>",
            "size>=6",
        ] {
            assert!(parse_labels(selector).is_err(), "{selector}");
        }
    }
}
