//! Custom resources: parses and validates CRDs, and applies them to objects.
//!
//! | file | holds |
//! |---|---|
//! | `mod.rs` | the CRD: versions, names, subresources, columns |
//! | `schema.rs` | structural schemas: pruning, defaulting, validation |
//! | `rules.rs` | CEL validation rules |
//!
//! Mirrors `apiextensions-apiserver`. Not implemented: conversion webhooks (versions differ only in their
//! `apiVersion`), and checks of CEL types and costs when a CRD is created.

mod rules;
mod schema;

use serde_json::{Value, json};

use super::failure::Cause;
use super::kinds::{Kind, Of, resource};
use super::request::{items, member, text};
use rules::Rules;
pub(super) use schema::{default, drop_nulls, prune, validate};

/// The finalizer that keeps a CRD until its objects are deleted.
pub(super) const CLEANUP: &str = "customresourcecleanup.apiextensions.k8s.io";

/// A parsed CRD.
#[derive(Debug)]
pub(super) struct Definition {
    versions: Vec<Version>,
}

/// A served version.
#[derive(Debug)]
pub(super) struct Version {
    name: String,
    /// `openAPIV3Schema`.
    pub(super) schema: Value,
    pub(super) has_status: bool,
    pub(super) scale: Option<ScalePaths>,
    /// `additionalPrinterColumns`.
    pub(super) columns: Vec<Value>,
    rules: Rules,
    selectable: Vec<String>,
}

/// JSON pointers to the fields of the `scale` subresource.
#[derive(Debug)]
pub(super) struct ScalePaths {
    pub(super) spec_replicas: String,
    pub(super) status_replicas: String,
    pub(super) selector: Option<String>,
}

// === impl Definition ===

impl Definition {
    pub(super) fn version(&self, name: &str) -> Option<&Version> {
        self.versions.iter().find(|version| version.name == name)
    }

    pub(super) fn selectable_fields(&self) -> impl Iterator<Item = &String> {
        self.versions.iter().flat_map(|version| &version.selectable)
    }
}

// === impl Version ===

impl Version {
    /// Checks an object against the CEL rules, if its structure is valid; `stored` is the object it replaces.
    pub(super) fn check_rules(&self, object: &Value, stored: Option<&Value>, causes: &mut Vec<Cause>) {
        if self.rules.is_empty() {
            return;
        }
        if causes.iter().any(Cause::blocks_rules) {
            let detail = "some validation rules were not checked because the object was invalid; correct the \
                existing errors to complete validation";
            causes.push(Cause::invalid("<nil>", &Value::Null, detail));
        } else {
            self.rules.check(object, stored, causes);
        }
    }

    /// Checks that the replicas for `scale` are non-negative integers.
    pub(super) fn check_scale(&self, object: &Value, causes: &mut Vec<Cause>) {
        let Some(scale) = &self.scale else { return };
        for pointer in [&scale.spec_replicas, &scale.status_replicas] {
            let mut at = Some(object);
            for part in pointer.split('/').skip(1) {
                match at {
                    Some(Value::Object(members)) => at = members.get(part),
                    Some(_) => {
                        at = Some(&Value::Null);
                        break;
                    }
                    None => break,
                }
            }
            if at.is_some_and(|value| value.as_i64().is_none_or(|number| number < 0)) {
                let field = pointer.replace('/', ".");
                let found = at.unwrap_or(&Value::Null);
                causes.push(Cause::invalid(field, found, "should be a non-negative integer"));
            }
        }
    }
}

/// Returns the kind that a CRD defines; `None` if no version is served.
pub(super) fn kind_of(crd: &Value) -> Option<Kind> {
    let names = crd.pointer("/spec/names")?;
    let words = |pointer: &str| {
        items(names, pointer).iter().filter_map(Value::as_str).map(str::to_owned).collect::<Vec<_>>()
    };
    let mut versions: Vec<Version> = Vec::new();
    for version in items(crd, "/spec/versions").iter().filter(|version| version["served"] == true) {
        let schema = version.pointer("/schema/openAPIV3Schema").cloned().unwrap_or(json!({"type": "object"}));
        let scale = version.pointer("/subresources/scale").map(|scale| ScalePaths {
            spec_replicas: pointer(text(scale, "/specReplicasPath")),
            status_replicas: pointer(text(scale, "/statusReplicasPath")),
            selector: scale.get("labelSelectorPath").and_then(Value::as_str).map(pointer),
        });
        let selectable = items(version, "/selectableFields").iter();
        versions.push(Version {
            name: text(version, "/name").to_owned(),
            rules: Rules::compile(&schema),
            schema,
            has_status: version.pointer("/subresources/status").is_some(),
            scale,
            columns: items(version, "/additionalPrinterColumns").to_vec(),
            selectable: selectable
                .map(|field| text(field, "/jsonPath").trim_start_matches('.').to_owned())
                .collect(),
        });
    }
    versions.sort_by_key(|version| std::cmp::Reverse(priority(&version.name)));
    let has_status = versions.iter().any(|version| version.has_status);
    let (group, plural) = (text(crd, "/spec/group"), text(names, "/plural"));
    (!versions.is_empty()).then(|| Kind {
        group: group.to_owned(),
        versions: versions.iter().map(|version| version.name.clone()).collect(),
        kind: text(names, "/kind").to_owned(),
        plural: plural.to_owned(),
        singular: text(names, "/singular").to_owned(),
        short_names: words("/shortNames"),
        categories: words("/categories"),
        is_namespaced: text(crd, "/spec/scope") == "Namespaced",
        has_status,
        of: Of::Custom(std::sync::Arc::new(Definition { versions })),
        resource: resource(group, plural),
    })
}

/// Returns the rank of a version: GA before beta before alpha before other names, then by number.
pub(super) fn priority(version: &str) -> (u8, u64, u64) {
    let parse = || {
        let rest = version.strip_prefix('v')?;
        let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        let major = rest[..end].parse().ok()?;
        let (stage, minor) = match &rest[end..] {
            "" => (3, 0),
            beta if beta.starts_with("beta") => (2, beta[4..].parse().ok()?),
            alpha => (1, alpha.strip_prefix("alpha")?.parse().ok()?),
        };
        Some((stage, major, minor))
    };
    parse().unwrap_or_default()
}

/// Converts a path such as `.spec.replicas` to a JSON pointer.
fn pointer(path: &str) -> String {
    path.replace('.', "/")
}

/// Applies the defaults of a CRD.
pub(super) fn default_definition(crd: &mut Value) {
    let kind = text(crd, "/spec/names/kind").to_owned();
    let spec = member(crd, "spec");
    let names = member(spec, "names");
    if names.get("singular").is_none() {
        names["singular"] = json!(kind.to_lowercase());
    }
    if names.get("listKind").is_none() {
        names["listKind"] = json!(format!("{kind}List"));
    }
    if spec.get("conversion").is_none() {
        spec["conversion"] = json!({"strategy": "None"});
    }
}

/// Returns the status of a CRD whose kind is served.
pub(super) fn established(crd: &Value, now: &str) -> Value {
    let stored = items(crd, "/spec/versions").iter().filter(|version| version["storage"] == true);
    let condition = |type_: &str, reason: &str, message: &str| {
        json!({"type": type_, "status": "True", "reason": reason, "message": message,
            "lastTransitionTime": now})
    };
    json!({
        "acceptedNames": crd["spec"]["names"],
        "storedVersions": stored.map(|version| version["name"].clone()).collect::<Vec<_>>(),
        "conditions": [
            condition("NamesAccepted", "NoConflicts", "no conflicts found"),
            condition("Established", "InitialNamesAccepted", "the initial names have been accepted"),
        ],
    })
}

/// Returns whether the kind of a CRD has been served.
pub(super) fn is_established(crd: &Value) -> bool {
    crd.pointer("/status/conditions").is_some()
}

/// Refuses changes of the scope and kind once objects may exist.
fn validate_change(crd: &Value, stored: &Value, causes: &mut Vec<Cause>) {
    for (field, pointer) in [("spec.scope", "/spec/scope"), ("spec.names.kind", "/spec/names/kind")] {
        if is_established(stored) && crd.pointer(pointer) != stored.pointer(pointer) {
            causes.push(Cause::invalid(field, &json!(text(crd, pointer)), "field is immutable"));
        }
    }
}

/// Validates a new or changed CRD.
pub(super) fn validate_definition(crd: &Value, stored: Option<&Value>, causes: &mut Vec<Cause>) {
    if let Some(stored) = stored {
        validate_change(crd, stored, causes);
    }
    let (group, plural) = (text(crd, "/spec/group"), text(crd, "/spec/names/plural"));
    for (field, value) in [
        ("spec.group", group),
        ("spec.names.plural", plural),
        ("spec.names.kind", text(crd, "/spec/names/kind")),
    ] {
        if value.is_empty() {
            causes.push(Cause::required(field, ""));
        }
    }
    if !group.is_empty() && !group.contains('.') {
        let detail = "should be a domain with at least one dot";
        causes.push(Cause::invalid("spec.group", &json!(group), detail));
    }
    let expected = format!("{plural}.{group}");
    if text(crd, "/metadata/name") != expected {
        let name = &crd["metadata"]["name"];
        causes.push(Cause::invalid("metadata.name", name, "must be spec.names.plural+\".\"+spec.group"));
    }
    let scope = text(crd, "/spec/scope");
    if scope.is_empty() {
        causes.push(Cause::required("spec.scope", ""));
    } else if !matches!(scope, "Namespaced" | "Cluster") {
        let supported = ["Cluster".to_owned(), "Namespaced".to_owned()];
        causes.push(Cause::not_supported("spec.scope", &json!(scope), &supported));
    }
    let versions = items(crd, "/spec/versions");
    if versions.iter().filter(|version| version["storage"] == true).count() != 1 {
        let rule = "must have exactly one version marked as storage version";
        causes.push(Cause::invalid("spec.versions", &json!(versions.len()), rule));
    }
    for (at, version) in versions.iter().enumerate() {
        validate_scale_paths(version, at, causes);
        let field = format!("spec.versions[{at}].schema.openAPIV3Schema");
        match version.pointer("/schema/openAPIV3Schema") {
            None => causes.push(Cause::required(field, "schemas are required")),
            Some(schema) => {
                schema::validate_structure(schema, &field, true, causes);
                rules::validate_rules(schema, &field, causes);
            }
        }
    }
    if group.ends_with(".k8s.io") || group.ends_with(".kubernetes.io") {
        let approved =
            crd.pointer("/metadata/annotations/api-approved.kubernetes.io").and_then(Value::as_str);
        if approved.is_none_or(str::is_empty) {
            let rule = "protected groups must have approval annotation \"api-approved.kubernetes.io\", see \
                https://github.com/kubernetes/enhancements/pull/1111";
            causes.push(Cause::required("metadata.annotations[api-approved.kubernetes.io]", rule));
        }
    }
}

/// Checks that the paths of `scale` lie below `.spec` or `.status` and use field names only.
fn validate_scale_paths(version: &Value, at: usize, causes: &mut Vec<Cause>) {
    let Some(scale) = version.pointer("/subresources/scale") else { return };
    for (name, prefixes, is_required) in [
        ("specReplicasPath", &[".spec."][..], true),
        ("statusReplicasPath", &[".status."][..], true),
        ("labelSelectorPath", &[".spec.", ".status."][..], false),
    ] {
        let path = text(scale, &format!("/{name}"));
        if path.is_empty() && !is_required {
            continue;
        }
        let is_below = prefixes.iter().any(|prefix| path.len() > prefix.len() && path.starts_with(prefix));
        if !is_below || path.contains(['[', '/', '~']) || path.contains("..") || path.ends_with('.') {
            let field = format!("spec.versions[{at}].subresources.scale.{name}");
            let detail = format!("should be a json path under {}", prefixes.join(" or "));
            causes.push(Cause::invalid(field, &json!(path), &detail));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_prefer_the_most_stable_version() {
        let mut versions = ["v1alpha1", "other", "v1", "v2beta1", "v2", "v1beta2"];
        versions.sort_by_key(|version| std::cmp::Reverse(priority(version)));
        assert_eq!(versions, ["v2", "v1", "v2beta1", "v1beta2", "v1alpha1", "other"]);
    }
}
