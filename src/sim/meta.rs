//! Metadata: names, fields that the server sets, immutable fields.
//!
//! Mirrors `BeforeCreate`, `BeforeUpdate` and `ValidateObjectMeta` of the API server.

use std::collections::BTreeSet;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use serde_json::{Map, Value, json};

use super::failure::{Cause, Failure, Outcome};
use super::kinds::{BuiltIn, Kind, Of};
use super::request::{at, member, members, text};

const NAME_RULE: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' \
    or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for \
    validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
pub(super) const LABEL_RULE: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', \
    and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for \
    validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";
const VALUE_RULE: &str = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or \
    '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', \
    regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";
const KEY_RULE: &str = "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end \
    with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is \
    '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";

/// The finalizers without a domain.
const STANDARD_FINALIZERS: [&str; 3] = ["foregroundDeletion", "kubernetes", "orphan"];

/// The known fields of metadata.
const KNOWN: [&str; 15] = [
    "annotations",
    "creationTimestamp",
    "deletionGracePeriodSeconds",
    "deletionTimestamp",
    "finalizers",
    "generateName",
    "generation",
    "labels",
    "managedFields",
    "name",
    "namespace",
    "ownerReferences",
    "resourceVersion",
    "selfLink",
    "uid",
];

/// Returns whether `text` is a DNS label.
pub(super) fn is_label(text: &str) -> bool {
    let inner = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
    !text.is_empty()
        && text.len() <= 63
        && text.bytes().all(inner)
        && !text.starts_with('-')
        && !text.ends_with('-')
}

/// Returns whether `text` is a DNS subdomain.
pub(super) fn is_subdomain(text: &str) -> bool {
    let is_part = |part: &str| {
        let inner = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
        !part.is_empty() && part.bytes().all(inner) && !part.starts_with('-') && !part.ends_with('-')
    };
    text.len() <= 253 && text.split('.').all(is_part)
}

fn is_qualified_part(text: &str) -> bool {
    let inner = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
    let edge = |b: Option<&u8>| b.is_some_and(u8::is_ascii_alphanumeric);
    text.len() <= 63
        && text.bytes().all(inner)
        && edge(text.as_bytes().first())
        && edge(text.as_bytes().last())
}

/// Returns whether `text` is a valid key of a label or annotation, or a valid finalizer.
pub(super) fn is_qualified_name(text: &str) -> bool {
    let mut causes = Vec::new();
    validate_key("", text, &mut causes);
    causes.is_empty()
}

/// Returns whether `text` is a valid label value.
pub(super) fn is_label_value(text: &str) -> bool {
    text.is_empty() || is_qualified_part(text)
}

/// Returns the rule that a name violates; `None` if it is valid for this kind.
fn name_problem(kind: &Kind, name: &str) -> Option<&'static str> {
    match kind.of {
        Of::BuiltIn(BuiltIn::Namespace | BuiltIn::Service) => (!is_label(name)).then_some(LABEL_RULE),
        _ => (!is_subdomain(name)).then_some(NAME_RULE),
    }
}

/// Brings metadata into its stored form, with known fields of the right types only, and collects the paths
/// of unknown fields in `unknown`.
pub(super) fn normalize(object: &mut Value, unknown: &mut Vec<String>) -> Result<(), String> {
    let Some(meta) = object.get_mut("metadata") else {
        object["metadata"] = json!({});
        return Ok(());
    };
    if meta.is_null() {
        *meta = json!({});
    }
    let Some(meta) = meta.as_object_mut() else {
        return Err("json: cannot unmarshal into Go struct field .metadata of type v1.ObjectMeta".to_owned());
    };
    meta.retain(|key, value| {
        let known = KNOWN.contains(&key.as_str());
        if !known {
            unknown.push(format!("metadata.{key}"));
        }
        known && key != "managedFields" && key != "selfLink" && !is_empty(value)
    });
    let is_text_map = |value: &Value| {
        value.as_object().is_some_and(|map| map.values().all(|v| v.is_string() || v.is_null()))
    };
    let is_text_list = |value: &Value| value.as_array().is_some_and(|all| all.iter().all(Value::is_string));
    for (key, value) in meta.iter() {
        let fits = match key.as_str() {
            "annotations" | "labels" => is_text_map(value),
            "finalizers" => is_text_list(value),
            "ownerReferences" => value.is_array(),
            "generation" | "deletionGracePeriodSeconds" => value.is_i64() || value.is_u64(),
            _ => value.is_string(),
        };
        if !fits {
            return Err(format!(
                "json: cannot unmarshal {} into Go struct field ObjectMeta.metadata.{key}",
                type_of(value)
            ));
        }
    }
    for key in ["labels", "annotations"] {
        if let Some(map) = meta.get_mut(key).and_then(Value::as_object_mut) {
            // Go decodes null into an empty string.
            map.values_mut().filter(|value| value.is_null()).for_each(|value| *value = json!(""));
        }
    }
    let owners = meta.get_mut("ownerReferences").and_then(Value::as_array_mut);
    for (at, owner) in owners.into_iter().flatten().enumerate() {
        let path = format!("metadata.ownerReferences[{at}]");
        let mut ignored = |field: serde_ignored::Path<'_>| unknown.push(format!("{path}.{field}"));
        let typed: Result<OwnerReference, _> = serde_ignored::deserialize(&*owner, &mut ignored);
        *owner = typed.and_then(serde_json::to_value).map_err(|error| format!("{path}: {error}"))?;
    }
    Ok(())
}

/// Returns the name of a JSON type in Go's errors.
pub(super) fn type_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

/// Returns whether Go's `omitempty` omits a value (numbers and booleans are always kept here).
pub(super) fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(members) => members.is_empty(),
        Value::Bool(_) | Value::Number(_) => false,
    }
}

/// Sets the name, uid and creation time of a new object, and removes fields that a client may not set.
pub(super) fn before_create(object: &mut Value, now: &str, uid: &str, suffix: &str) {
    let meta = member(object, "metadata");
    let set = |meta: &mut Value, key: &str, value: Value| meta[key] = value;
    let generate = text(meta, "/generateName").to_owned();
    if text(meta, "/name").is_empty() && !generate.is_empty() {
        let base: String = generate.chars().take(58).collect();
        set(meta, "name", json!(format!("{base}{suffix}")));
    }
    set(meta, "uid", json!(uid));
    set(meta, "creationTimestamp", json!(now));
    if let Some(meta) = meta.as_object_mut() {
        for key in ["deletionTimestamp", "deletionGracePeriodSeconds", "resourceVersion"] {
            meta.remove(key);
        }
    }
}

/// Copies from the stored object the metadata that an update may not change.
pub(super) fn before_update(object: &mut Value, stored: &Value) {
    let Some(from) = members(stored, "/metadata") else { return };
    let meta = member(object, "metadata");
    if meta.get("uid").is_none_or(is_empty)
        && let Some(value) = from.get("uid")
    {
        meta["uid"] = value.clone();
    }
    // Setting a deletion timestamp by an update is refused later, in `validate_update`.
    if let Some(value) = from.get("deletionTimestamp") {
        meta["deletionTimestamp"] = value.clone();
    }
    for key in ["creationTimestamp", "deletionGracePeriodSeconds", "generation", "generateName"] {
        match from.get(key) {
            // A client may omit `generateName`, which is not validated either.
            Some(value) => meta[key] = value.clone(),
            None => {
                if let Some(meta) = meta.as_object_mut() {
                    meta.remove(key);
                }
            }
        }
    }
}

/// Validates the metadata of a new or changed object.
pub(super) fn validate(kind: &Kind, object: &Value, causes: &mut Vec<Cause>) {
    let name = text(object, "/metadata/name");
    if name.is_empty() {
        causes.push(Cause::required("metadata.name", "name or generateName is required"));
    } else if let Some(rule) = name_problem(kind, name) {
        causes.push(Cause::invalid("metadata.name", &json!(name), rule));
    }
    for (key, value) in members(object, "/metadata/labels").into_iter().flatten() {
        validate_key("metadata.labels", key, causes);
        let value = value.as_str().unwrap_or_default();
        if !is_label_value(value) {
            causes.push(Cause::invalid("metadata.labels", &json!(value), VALUE_RULE));
        }
    }
    let annotations = members(object, "/metadata/annotations");
    for key in annotations.into_iter().flat_map(Map::keys) {
        validate_key("metadata.annotations", &key.to_lowercase(), causes);
    }
    let size = |map: &Map<String, Value>| {
        map.iter().map(|(key, value)| key.len() + value.as_str().map_or(0, str::len)).sum::<usize>()
    };
    if annotations.is_some_and(|map| size(map) > 256 * 1024) {
        causes.push(Cause::too_long("metadata.annotations", 262_144));
    }
    for (at, finalizer) in super::request::items(object, "/metadata/finalizers").iter().enumerate() {
        let finalizer = finalizer.as_str().unwrap_or_default();
        validate_key("metadata.finalizers", finalizer, causes);
        if asks_for_domains(kind) && !has_domain(finalizer) {
            let detail = "name is neither a standard finalizer name nor is it fully qualified";
            causes.push(Cause::invalid(format!("metadata.finalizers[{at}]"), &json!(finalizer), detail));
        }
    }
    validate_owners(object, causes);
}

/// Returns whether finalizers of this kind need a domain; as on a real server, those of Leases and CRDs do not.
fn asks_for_domains(kind: &Kind) -> bool {
    !matches!(kind.of, Of::Custom(_) | Of::BuiltIn(BuiltIn::Lease | BuiltIn::CustomResourceDefinition))
}

fn has_domain(finalizer: &str) -> bool {
    finalizer.contains('/') || STANDARD_FINALIZERS.contains(&finalizer)
}

/// Returns warnings about new finalizers of a custom resource that have no domain.
pub(super) fn finalizer_warnings(kind: &Kind, object: &Value, stored: Option<&Value>) -> Vec<String> {
    if !matches!(kind.of, Of::Custom(_)) {
        return Vec::new();
    }
    let stored = stored.map_or(&[][..], |stored| super::request::items(stored, "/metadata/finalizers"));
    let new = super::request::items(object, "/metadata/finalizers").iter().filter(|f| !stored.contains(f));
    let new: BTreeSet<&str> = new.filter_map(Value::as_str).filter(|f| !has_domain(f)).collect();
    let warning = |finalizer: &str| {
        let path = if finalizer.contains('.') { " including a path (/)" } else { "" };
        format!(
            "metadata.finalizers: {finalizer:?}: prefer a domain-qualified finalizer name{path} to avoid accidental \
             conflicts with other finalizer writers"
        )
    };
    new.into_iter().map(warning).collect()
}

fn validate_owners(object: &Value, causes: &mut Vec<Cause>) {
    let owners = super::request::items(object, "/metadata/ownerReferences");
    for (at, owner) in owners.iter().enumerate() {
        for name in ["apiVersion", "kind", "name", "uid"] {
            if owner.get(name).and_then(Value::as_str).is_none_or(str::is_empty) {
                let field = format!("metadata.ownerReferences[{at}].{name}");
                causes.push(Cause::required(field, "must not be empty"));
            }
        }
    }
    let controllers = owners.iter().filter(|owner| owner["controller"] == true).count();
    if controllers > 1 {
        let rule = "Only one reference can have Controller set to true";
        causes.push(Cause::invalid("metadata.ownerReferences", &json!(owners), rule));
    }
}

fn validate_key(field: &str, key: &str, causes: &mut Vec<Cause>) {
    let (prefix, name) = key.split_once('/').map_or((None, key), |(prefix, name)| (Some(prefix), name));
    if prefix.is_some_and(|prefix| !is_subdomain(prefix)) {
        causes.push(Cause::invalid(field, &json!(key), &format!("prefix part {NAME_RULE}")));
    }
    if !is_qualified_part(name) {
        causes.push(Cause::invalid(field, &json!(key), KEY_RULE));
    }
}

/// Refuses changes of the uid and deletion timestamp, and new finalizers on an object being deleted.
pub(super) fn validate_update(object: &Value, stored: &Value, causes: &mut Vec<Cause>) {
    let uid = &object["metadata"]["uid"];
    if *uid != stored["metadata"]["uid"] {
        causes.push(Cause::invalid("metadata.uid", uid, "field is immutable"));
    }
    let marked = at(stored, "/metadata/deletionTimestamp");
    if let Some(sent) = at(object, "/metadata/deletionTimestamp").filter(|sent| Some(*sent) != marked) {
        causes.push(Cause::invalid("metadata.deletionTimestamp", sent, "field is immutable"));
    }
    let finalizers = |object: &Value| -> Vec<String> {
        let all = super::request::items(object, "/metadata/finalizers");
        all.iter().filter_map(Value::as_str).map(str::to_owned).collect()
    };
    if marked.is_some() {
        let before = finalizers(stored);
        let added: Vec<String> = finalizers(object).into_iter().filter(|f| !before.contains(f)).collect();
        if !added.is_empty() {
            let shown: Vec<String> = added.iter().map(|f| format!("{f:?}")).collect();
            let detail = format!(
                "no new finalizers can be added if the object is being deleted, found new finalizers []string{{{}}}",
                shown.join(", ")
            );
            causes.push(Cause::forbidden("metadata.finalizers", &detail));
        }
    }
}

/// Checks the namespace and name in a body against the path, and fills them in.
pub(super) fn check_identity(kind: &Kind, object: &mut Value, namespace: &str, name: &str) -> Outcome<()> {
    if kind.is_namespaced {
        let claimed = text(object, "/metadata/namespace");
        if !claimed.is_empty() && claimed != namespace {
            return Err(Failure::bad_request(
                "the namespace of the provided object does not match the namespace sent on the request",
            ));
        }
        member(object, "metadata")["namespace"] = json!(namespace);
    } else if let Some(meta) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        meta.remove("namespace");
    }
    let claimed = text(object, "/metadata/name");
    if !name.is_empty() && !claimed.is_empty() && claimed != name {
        return Err(Failure::bad_request(format!(
            "the name of the object ({claimed}) does not match the name on the URL ({name})"
        )));
    }
    if !name.is_empty() {
        member(object, "metadata")["name"] = json!(name);
    }
    Ok(())
}
