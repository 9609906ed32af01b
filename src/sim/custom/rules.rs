//! CEL validation rules of a schema.
//!
//! `kube-cel` compiles and evaluates the rules. A rule that fails to evaluate refuses the object. Unlike on a
//! real server, types and costs are not checked when the CRD is created, and `oldSelf` of an item in a map-like
//! list is found by its index, not by its keys.

use std::fmt;

use kube_cel::cel::common::ast::{EntryExpr, Expr};
use kube_cel::cel::{Context, ExecutionError, IdedExpr, Program};
use kube_cel::{CompiledSchema, KubeCelExt, Validator, compile_schema};
use serde_json::{Value, json};

use super::super::failure::Cause;

/// The maximum number of operators in a rule.
const MAX_OPERATORS: usize = 250;

/// The compiled rules of one version.
pub(super) struct Rules {
    compiled: CompiledSchema,
    validator: Validator,
    /// Whether the schema has no rules, as most schemas.
    is_empty: bool,
    /// Whether no rule sees anything but the spec and the name.
    only_spec: bool,
}

impl fmt::Debug for Rules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rules").field("is_empty", &self.is_empty).finish_non_exhaustive()
    }
}

// === impl Rules ===

impl Rules {
    pub(super) fn compile(schema: &Value) -> Self {
        let (mut is_empty, mut only_spec) = (true, true);
        each_rule(schema, "", &mut |path, rule| {
            is_empty = false;
            let text = rule.get("rule").and_then(Value::as_str).unwrap_or_default();
            only_spec &= path.starts_with(".properties[spec]") || sees_spec_and_name(path, text);
        });
        Self { compiled: compile_schema(schema), validator: Validator::new(), is_empty, only_spec }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.is_empty
    }

    /// Adds what the rules refuse. What an update leaves unchanged is not checked again.
    pub(super) fn check(&self, object: &Value, stored: Option<&Value>, causes: &mut Vec<Cause>) {
        if self.only_spec && stored.is_some_and(|stored| stored.get("spec") == object.get("spec")) {
            return;
        }
        let (object, stored) = (visible(object), stored.map(visible));
        let Err(errors) = self.validator.validate_compiled(&self.compiled, &object, stored.as_ref()) else {
            return;
        };
        let mut errors = errors.into_vec();
        errors.sort_by(|a, b| (&a.field_path, &a.rule).cmp(&(&b.field_path, &b.rule)));
        for error in errors {
            let found = pointer_of(&error.field_path).and_then(|at| object.pointer(&at).cloned());
            // Objects and arrays are reported by their type.
            let value = match found {
                Some(Value::Object(_)) | None => json!("object"),
                Some(Value::Array(_)) => json!("array"),
                Some(value) => value,
            };
            let cause = match error.reason.as_deref() {
                Some("FieldValueRequired") => Cause::required(error.field_path, &error.message),
                Some("FieldValueForbidden") => Cause::forbidden(error.field_path, &error.message),
                Some("FieldValueDuplicate") => Cause::duplicate(error.field_path, &value),
                _ => Cause::invalid(error.field_path, &value, &error.message),
            };
            causes.push(cause);
        }
    }
}

/// Whether a rule at the root reads only the spec and the name.
fn sees_spec_and_name(path: &str, rule: &str) -> bool {
    let mut uses = rule.split("self").skip(1);
    path.starts_with(".x-kubernetes-validations")
        && !rule.contains("oldSelf")
        && uses.all(|rest| rest.starts_with(".spec") || rest.starts_with(".metadata.name"))
}

/// Returns the part of an object visible to rules: of the metadata, only the names.
fn visible(object: &Value) -> Value {
    let mut visible = object.clone();
    if let Some(meta) = visible.get_mut("metadata").and_then(Value::as_object_mut) {
        meta.retain(|key, _| matches!(key.as_str(), "name" | "generateName"));
    }
    visible
}

/// Converts a path such as `spec.items[0].name` to a JSON pointer.
fn pointer_of(path: &str) -> Option<String> {
    if path.is_empty() {
        return None;
    }
    let path = path.replace(['[', '.'], "/").replace(']', "");
    Some(format!("/{path}"))
}

/// Calls `visit` with the path and content of every rule in a schema.
fn each_rule(schema: &Value, field: &str, visit: &mut impl FnMut(&str, &Value)) {
    let rules = schema.get("x-kubernetes-validations").and_then(Value::as_array);
    for (at, rule) in rules.into_iter().flatten().enumerate() {
        visit(&format!("{field}.x-kubernetes-validations[{at}]"), rule);
    }
    for (name, property) in schema.get("properties").and_then(Value::as_object).into_iter().flatten() {
        each_rule(property, &format!("{field}.properties[{name}]"), visit);
    }
    for name in ["items", "additionalProperties"] {
        if let Some(inner) = schema.get(name).filter(|inner| inner.is_object()) {
            each_rule(inner, &format!("{field}.{name}"), visit);
        }
    }
}

/// Checks the syntax, functions and variables of every rule in a schema.
pub(super) fn validate_rules(schema: &Value, field: &str, causes: &mut Vec<Cause>) {
    each_rule(schema, field, &mut |path, rule| {
        for name in ["rule", "messageExpression"] {
            let Some(text) = rule.get(name).and_then(Value::as_str) else { continue };
            if let Err(why) = check_expression(text) {
                let detail = format!("compilation failed: {why}");
                causes.push(Cause::invalid(format!("{path}.{name}"), &json!(text), &detail));
            }
        }
        if rule.get("rule").and_then(Value::as_str).is_none_or(|text| text.trim().is_empty()) {
            causes.push(Cause::required(format!("{path}.rule"), "rule is not specified"));
        }
    });
}

fn check_expression(text: &str) -> Result<(), String> {
    // The parser recurses for each operator; real rules have few.
    let operators = text.bytes().filter(|byte| b".+-*/%<>=!&|?:[({,".contains(byte)).count();
    if operators > MAX_OPERATORS {
        return Err(format!("the rule has {operators} operators; the limit is {MAX_OPERATORS}"));
    }
    let program = Program::compile(text).map_err(|error| format!("ERROR: {error}"))?;
    let mut bound = vec!["self", "oldSelf", "apiVersion", "apiGroup", "kind"];
    let mut unknown = undeclared(program.expression(), &mut bound);
    let context = Context::default().with_all();
    for function in program.references().functions() {
        // Operators are functions with names such as `_>_`.
        if !function.chars().all(|c| c.is_ascii_alphanumeric() || c == '_') {
            continue;
        }
        let Ok(call) = Program::compile(&format!("{function}()")) else { continue };
        if matches!(call.execute(&context), Err(ExecutionError::UndeclaredReference(_))) {
            unknown = unknown.or(Some(function.to_owned()));
        }
    }
    match unknown {
        Some(name) => Err(format!("ERROR: undeclared reference to '{name}' (in container '')")),
        None => Ok(()),
    }
}

/// Returns the first unbound variable; macros such as `all` bind their own.
fn undeclared<'a>(expression: &'a IdedExpr, bound: &mut Vec<&'a str>) -> Option<String> {
    match &expression.expr {
        Expr::Ident(name) => (!bound.contains(&name.as_str())).then(|| name.clone()),
        Expr::Call(call) => {
            let mut parts = call.target.as_deref().into_iter().chain(&call.args);
            parts.find_map(|part| undeclared(part, bound))
        }
        Expr::Select(select) => undeclared(&select.operand, bound),
        Expr::List(list) => list.elements.iter().find_map(|element| undeclared(element, bound)),
        Expr::Map(map) => map.entries.iter().find_map(|entry| match &entry.expr {
            EntryExpr::MapEntry(entry) => {
                undeclared(&entry.key, bound).or_else(|| undeclared(&entry.value, bound))
            }
            EntryExpr::StructField(field) => undeclared(&field.value, bound),
        }),
        Expr::Comprehension(inner) => {
            if let Some(name) = undeclared(&inner.iter_range, bound) {
                return Some(name);
            }
            let outside = bound.len();
            bound.extend([inner.iter_var.as_str(), inner.accu_var.as_str()]);
            bound.extend(inner.iter_var2.as_deref());
            let parts = [&inner.accu_init, &inner.loop_cond, &inner.loop_step, &inner.result];
            let found = parts.into_iter().find_map(|part| undeclared(part, bound));
            bound.truncate(outside);
            found
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: Result<(), &str>) {
        let found = check_expression(text);
        match expected {
            Ok(()) => assert_eq!(found, Ok(()), "{text}"),
            Err(word) => assert!(found.unwrap_err().contains(word), "{text}"),
        }
    }

    #[test]
    fn invalid_rules_are_refused_when_stored() {
        check("size(self.metadata.name) <= 63 && self.spec.all(x, x.startsWith('a'))", Ok(()));
        check("self == oldSelf || isURL(self)", Ok(()));
        check("self.matches('^a$') ? true : self in ['b']", Ok(()));
        check("self >", Err("ERROR"));
        check("other == 1", Err("'other'"));
        check("self.all(x, y == x)", Err("'y'"));
        check("frobnicate(self)", Err("'frobnicate'"));
    }

    #[test]
    fn rule_that_fails_to_evaluate_refuses_the_object() {
        let schema = json!({"type": "object", "properties": {"spec": {"type": "object",
            "x-kubernetes-validations": [{"rule": "self.missing > 1", "message": "no"}]}}});
        let mut causes = Vec::new();
        Rules::compile(&schema).check(&json!({"spec": {}}), None, &mut causes);
        assert_eq!(causes.len(), 1);
        assert_eq!(causes[0].field, "spec");
    }

    #[test]
    fn unchanged_spec_is_not_checked_again() {
        let refused = |schema: &Value, object: &Value, stored: &Value| {
            let mut causes = Vec::new();
            Rules::compile(schema).check(object, Some(stored), &mut causes);
            !causes.is_empty()
        };
        let never = |text: &str| json!({"type": "object", "x-kubernetes-validations": [{"rule": text}]});
        let of = |part: &str| json!({"type": "object", "properties": {part: never("false")}});
        let [one, two] = [1, 2].map(|a| json!({"metadata": {"name": "n"}, "spec": {"a": a}, "status": {}}));
        for schema in [of("spec"), never("size(self.metadata.name) > 9 && has(self.spec.a)")] {
            assert!(!refused(&schema, &one, &one), "{schema}");
            assert!(refused(&schema, &two, &one), "{schema}");
        }
        for schema in [of("status"), never("has(self.status.a)"), never("self != oldSelf")] {
            assert!(refused(&schema, &one, &one), "{schema}");
        }
    }
}
