//! Label and field selectors.
//!
//! Mirrors `labels.Parse` and `fields.ParseSelector`: `a=b`, `a!=b`, `a in (b,c)`, `a notin (b)`, `a`,
//! `!a`; fields only by equality.

use serde_json::Value;

use super::failure::{Failure, Outcome};
use super::kinds::{BuiltIn, Kind, Of};
use super::request::{Query, text};

/// Both selectors of a request, and the namespace.
#[derive(Clone, Debug, Default)]
pub(super) struct Selection {
    /// Empty: all.
    pub(super) namespace: String,
    /// Empty: all.
    pub(super) name: String,
    labels: Vec<Requirement>,
    fields: Vec<(String, String, bool)>,
}

#[derive(Clone, Debug, PartialEq)]
struct Requirement {
    key: String,
    values: Vec<String>,
    /// Whether the label's value must be, or must not be, among the values; without values, whether it exists.
    holds: bool,
}

// === impl Selection ===

impl Selection {
    pub(super) fn of(kind: &Kind, namespace: &str, query: &Query) -> Outcome<Self> {
        let labels = parse_labels(query.get("labelSelector"))
            .map_err(|why| Failure::bad_request(format!("unable to parse requirement: {why}")))?;
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
                let why = format!(
                    "Unable to find \"{}\" that match label selector {:?}, field selector {:?}: field label not supported: {field}",
                    kind.api_version(&kind.versions[0]) + ", Resource=" + &kind.plural,
                    query.get("labelSelector"),
                    query.get("fieldSelector")
                );
                return Err(Failure::bad_request(why));
            }
            fields.push((field.to_owned(), value.to_owned(), holds));
        }
        Ok(Self { namespace: namespace.to_owned(), name: String::new(), labels, fields })
    }

    pub(super) fn matches(&self, object: &Value) -> bool {
        let is = |wanted: &str, pointer| wanted.is_empty() || text(object, pointer) == wanted;
        is(&self.namespace, "/metadata/namespace")
            && is(&self.name, "/metadata/name")
            && self.labels.iter().all(|requirement| requirement.matches(object))
            && self.fields.iter().all(|(field, value, holds)| (field_of(object, field) == *value) == *holds)
    }
}

/// Whether `labels` satisfy `spec.selector` of a workload: `matchLabels` and `matchExpressions`.
pub(super) fn selector_matches(selector: &Value, object: &Value) -> bool {
    let label = |key: &str| object.pointer("/metadata/labels").and_then(|labels| labels.get(key));
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
        Of::BuiltIn(BuiltIn::Namespace) => field == "status.phase",
        Of::BuiltIn(BuiltIn::Secret) => field == "type",
        Of::BuiltIn(BuiltIn::ReplicaSet) => field == "status.replicas",
        Of::BuiltIn(_) => false,
        Of::Custom(definition) => definition.selectable_fields().any(|path| path == field),
    }
}

/// A field's value as text. Objects are selected as they are stored, events as core/v1.
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
        let label = object.pointer("/metadata/labels").and_then(|labels| labels.get(&self.key));
        let label = label.and_then(Value::as_str);
        if self.values.is_empty() {
            return label.is_some() == self.holds;
        }
        label.is_some_and(|label| self.values.iter().any(|value| value == label)) == self.holds
    }
}

fn parse_labels(selector: &str) -> Result<Vec<Requirement>, String> {
    let mut rest = selector.trim();
    let mut requirements = Vec::new();
    while !rest.is_empty() {
        let mut depth = 0;
        let end = rest.char_indices().find(|&(_, c)| {
            depth += i32::from(c == '(') - i32::from(c == ')');
            c == ',' && depth == 0
        });
        let (term, next) = end.map_or((rest, ""), |(at, _)| (&rest[..at], &rest[at + 1..]));
        requirements.push(parse_requirement(term.trim())?);
        rest = next.trim();
    }
    Ok(requirements)
}

fn parse_requirement(term: &str) -> Result<Requirement, String> {
    let one = |key: &str, values: Vec<String>, holds| {
        let key = key.trim();
        if key.is_empty() || key.contains([' ', '(', ')', '=', '!']) {
            return Err(format!("found '{term}', expected: identifier"));
        }
        Ok(Requirement { key: key.to_owned(), values, holds })
    };
    let set = |text: &str| {
        let inside = text.trim().strip_prefix('(').and_then(|text| text.strip_suffix(')'));
        let inside = inside.ok_or_else(|| format!("found '{text}', expected: '('"))?;
        Ok::<_, String>(inside.split(',').map(|value| value.trim().to_owned()).collect())
    };
    if let Some((key, value)) = term.split_once("!=") {
        one(key, vec![value.trim().to_owned()], false)
    } else if let Some((key, value)) = term.split_once("==").or_else(|| term.split_once('=')) {
        one(key, vec![value.trim().to_owned()], true)
    } else if let Some((key, values)) = term.split_once(" notin ") {
        one(key, set(values)?, false)
    } else if let Some((key, values)) = term.split_once(" in ") {
        one(key, set(values)?, true)
    } else if let Some(key) = term.strip_prefix('!') {
        one(key, Vec::new(), false)
    } else {
        one(term, Vec::new(), true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[track_caller]
    fn check(selector: &str, expected: bool) {
        let object = json!({"metadata": {"labels": {"app": "web", "tier": "front"}}});
        let requirements = parse_labels(selector).unwrap();
        let matches = requirements.iter().all(|requirement| requirement.matches(&object));
        assert_eq!(matches, expected, "{selector}");
    }

    #[test]
    fn label_selectors_are_read_as_kubectl_writes_them() {
        for selector in
            ["", "app=web", "app==web,tier!=back", "app in (web, api)", "app", "!other", "tier notin (back)"]
        {
            check(selector, true);
        }
        for selector in ["app=api", "app!=web", "app notin (web,api),tier", "!app", "other", "other in (a)"] {
            check(selector, false);
        }
        // Nothing has the label, so it is not the value.
        check("other!=a,other notin (b)", true);
        assert!(parse_labels("app in web").is_err());
        assert!(parse_labels("=web").is_err());
    }
}
