//! Built-in kinds: decoding, defaulting, validation.
//!
//! Bodies are decoded with the types of `k8s-openapi`, which are lenient: `serde_ignored` finds the fields they
//! ignore, and the table in `required` those they fill with zero values. Defaults and checks cover what matters
//! to operators with Deployments, Pods, Services and Ingresses; a real server has many more. `refusals` in
//! `tests/e2e/fidelity` compares the messages with a real server's.

mod network;
mod one_of;
mod others;
mod pods;
mod quantity;
mod required;
mod workloads;

use k8s_openapi::api;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::failure::Cause;
use super::kinds::BuiltIn;
use super::request::{at, text};
use super::{custom, meta};
pub(super) use network::{NODE_PORTS, default_families, is_external, ports};
pub(super) use others::{counted, event_to_group, event_to_v1};

/// Brings a body into its stored form and collects the paths of unknown fields.
pub(super) fn decode(of: BuiltIn, object: &mut Value, unknown: &mut Vec<String>) -> Result<(), String> {
    use BuiltIn as B;
    if matches!(of, B::Deployment | B::Pod | B::ReplicaSet) {
        quantity::normalize(object).map_err(str::to_owned)?;
    }
    match of {
        B::ConfigMap => canonical::<api::core::v1::ConfigMap>(object, unknown),
        B::CustomResourceDefinition => canonical::<CustomResourceDefinition>(object, unknown),
        B::Deployment => canonical::<api::apps::v1::Deployment>(object, unknown),
        B::Event => canonical::<api::core::v1::Event>(object, unknown),
        B::EventV1 => canonical::<api::events::v1::Event>(object, unknown),
        B::HorizontalPodAutoscaler => {
            canonical::<api::autoscaling::v2::HorizontalPodAutoscaler>(object, unknown)
        }
        B::Ingress => canonical::<api::networking::v1::Ingress>(object, unknown),
        B::Lease => canonical::<api::coordination::v1::Lease>(object, unknown),
        B::Namespace => canonical::<api::core::v1::Namespace>(object, unknown),
        B::Node => canonical::<api::core::v1::Node>(object, unknown),
        B::Pod => canonical::<api::core::v1::Pod>(object, unknown),
        B::ReplicaSet => canonical::<api::apps::v1::ReplicaSet>(object, unknown),
        B::ResourceQuota => canonical::<api::core::v1::ResourceQuota>(object, unknown),
        B::Secret => canonical::<api::core::v1::Secret>(object, unknown),
        B::Service => canonical::<api::core::v1::Service>(object, unknown),
        B::ServiceAccount => canonical::<api::core::v1::ServiceAccount>(object, unknown),
    }
}

fn canonical<T: DeserializeOwned + Serialize>(
    object: &mut Value,
    unknown: &mut Vec<String>,
) -> Result<(), String> {
    // Metadata is handled in `meta`.
    let metadata = object.get_mut("metadata").map(Value::take).unwrap_or_default();
    object["metadata"] = json!({});
    for name in ["data", "stringData"] {
        // Go decodes null into an empty string.
        let values = object.get_mut(name).and_then(Value::as_object_mut).into_iter().flatten();
        values.filter(|(_, value)| value.is_null()).for_each(|(_, value)| *value = json!(""));
    }
    let mut ignored = |path: serde_ignored::Path<'_>| unknown.push(go_path(&path.to_string()));
    let typed: T = serde_ignored::deserialize(&*object, &mut ignored).map_err(|error| error.to_string())?;
    *object = serde_json::to_value(typed).map_err(|error| error.to_string())?;
    drop_empty(object);
    object["metadata"] = metadata;
    Ok(())
}

/// The fields that are maps: Go omits empty maps but not empty structs.
const MAPS: [&str; 11] = [
    "annotations",
    "binaryData",
    "data",
    "labels",
    "limits",
    "matchLabels",
    "nodeSelector",
    "requests",
    "selector",
    "stringData",
    "used",
];

/// Removes empty lists and maps, as Go's encoder does.
fn drop_empty(value: &mut Value) {
    match value {
        Value::Object(members) => {
            // Defaults in a schema may be empty lists or maps.
            let inner = members.iter_mut().filter(|(name, _)| *name != "openAPIV3Schema");
            inner.for_each(|(_, value)| drop_empty(value));
            members.retain(|name, value| match value {
                Value::Array(items) => !items.is_empty(),
                Value::Object(inner) => !inner.is_empty() || !MAPS.contains(&name.as_str()),
                _ => true,
            });
        }
        Value::Array(items) => items.iter_mut().for_each(drop_empty),
        _ => {}
    }
}

/// Converts `spec.containers.0.x` to Go's notation: `spec.containers[0].x`.
fn go_path(path: &str) -> String {
    let mut shown = String::new();
    for part in path.split('.').filter(|part| *part != "?") {
        if part.parse::<usize>().is_ok() {
            shown.push_str(&format!("[{part}]"));
        } else {
            if !shown.is_empty() {
                shown.push('.');
            }
            shown.push_str(part);
        }
    }
    shown
}

/// Applies the server's defaults.
pub(super) fn default(of: BuiltIn, object: &mut Value) {
    match of {
        BuiltIn::Deployment => workloads::default_deployment(object),
        BuiltIn::ReplicaSet => workloads::default_replica_set(object),
        BuiltIn::Pod => pods::default_pod(object),
        BuiltIn::Service => network::default_service(object),
        BuiltIn::HorizontalPodAutoscaler => others::default_autoscaler(object),
        BuiltIn::Namespace => others::default_namespace(object),
        BuiltIn::Secret => others::default_secret(object),
        BuiltIn::CustomResourceDefinition => custom::default_definition(object),
        BuiltIn::Lease => {
            super::request::member(object, "spec");
        }
        BuiltIn::ConfigMap
        | BuiltIn::Event
        | BuiltIn::EventV1
        | BuiltIn::Ingress
        | BuiltIn::Node
        | BuiltIn::ResourceQuota
        | BuiltIn::ServiceAccount => {}
    }
}

/// Validates a new or updated object.
pub(super) fn validate(of: BuiltIn, object: &Value, stored: Option<&Value>, causes: &mut Vec<Cause>) {
    match of {
        BuiltIn::Deployment | BuiltIn::ReplicaSet => workloads::validate(of, object, stored, causes),
        BuiltIn::Pod => pods::validate_pod(object, stored, causes),
        BuiltIn::Service => network::validate_service(object, stored, causes),
        BuiltIn::Ingress => network::validate_ingress(object, causes),
        BuiltIn::HorizontalPodAutoscaler => others::validate_autoscaler(object, causes),
        BuiltIn::Event | BuiltIn::EventV1 => others::validate_event(object, causes),
        BuiltIn::ConfigMap | BuiltIn::Secret => others::validate_data(of, object, stored, causes),
        BuiltIn::Lease => others::validate_lease(object, causes),
        BuiltIn::CustomResourceDefinition => custom::validate_definition(object, stored, causes),
        BuiltIn::Namespace | BuiltIn::Node | BuiltIn::ResourceQuota | BuiltIn::ServiceAccount => {}
    }
    required::check(of, object, causes);
}

/// Returns the status of a new object, which replaces that of the client.
pub(super) fn initial_status(of: BuiltIn, object: &Value) -> Option<Value> {
    match of {
        BuiltIn::Pod => Some(json!({"phase": "Pending", "qosClass": pods::quality(object)})),
        BuiltIn::Namespace => Some(json!({"phase": "Active"})),
        BuiltIn::Deployment | BuiltIn::ResourceQuota => Some(json!({})),
        BuiltIn::HorizontalPodAutoscaler => Some(json!({"desiredReplicas": 0})),
        BuiltIn::ReplicaSet => Some(json!({"replicas": 0})),
        BuiltIn::Service | BuiltIn::Ingress => Some(json!({"loadBalancer": {}})),
        _ => None,
    }
}

/// Returns whether an update may omit the resource version (for custom resources it may not).
pub(super) fn allows_unconditional_update(of: BuiltIn) -> bool {
    !matches!(of, BuiltIn::CustomResourceDefinition | BuiltIn::Lease)
}

/// Returns whether an update creates a missing object.
pub(super) fn allows_create_on_update(of: BuiltIn) -> bool {
    matches!(of, BuiltIn::Lease | BuiltIn::Event | BuiltIn::EventV1)
}

/// Returns whether an update changes the generation; `None` for kinds without generations.
pub(super) fn generation_changes(of: BuiltIn, object: &Value, stored: &Value) -> Option<bool> {
    let spec = object.get("spec") != stored.get("spec");
    match of {
        BuiltIn::Deployment => {
            let [new, old] = [object, stored].map(|object| at(object, "/metadata/annotations"));
            Some(spec || new != old)
        }
        BuiltIn::ReplicaSet
        | BuiltIn::Ingress
        | BuiltIn::Pod
        | BuiltIn::HorizontalPodAutoscaler
        | BuiltIn::CustomResourceDefinition => Some(spec),
        _ => None,
    }
}

/// Sets a missing or empty member.
fn or_default(object: &mut Value, key: &str, value: Value) {
    if object.get(key).is_none_or(meta::is_empty) {
        object[key] = value;
    }
}

/// Checks a port number, if present.
fn check_port(value: &Value, field: &str, causes: &mut Vec<Cause>) {
    let is_port = value.as_i64().is_some_and(|port| (0..=65_535).contains(&port));
    if !value.is_null() && !is_port {
        causes.push(Cause::invalid(field, value, "must be between 1 and 65535, inclusive"));
    }
}

/// Checks the name of a port.
fn check_port_name(value: &Value, field: &str, causes: &mut Vec<Cause>) {
    let name = value.as_str().unwrap_or_default();
    let is_allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    for (is_wrong, detail) in [
        (name.len() > 15, "must be no more than 15 characters"),
        (
            !name.chars().all(is_allowed),
            "must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)",
        ),
        (!name.contains(|c: char| c.is_ascii_lowercase()), "must contain at least one letter (a-z)"),
        (name.contains("--"), "must not contain consecutive hyphens"),
        (name.starts_with('-') || name.ends_with('-'), "must not begin or end with a hyphen"),
    ] {
        if is_wrong {
            causes.push(Cause::invalid(field, value, detail));
        }
    }
}

/// Checks the protocol of a port.
fn check_protocol(value: &Value, field: &str, causes: &mut Vec<Cause>) {
    check_one_of(value, &["SCTP", "TCP", "UDP"], field, causes);
}

/// Checks that a string, if present, is one of the supported values.
fn check_one_of(value: &Value, supported: &[&str], field: &str, causes: &mut Vec<Cause>) {
    if !value.is_null() && !supported.contains(&value.as_str().unwrap_or_default()) {
        let supported: Vec<String> = supported.iter().map(|text| (*text).to_owned()).collect();
        causes.push(Cause::not_supported(field, value, &supported));
    }
}

/// Checks that a number is not negative.
fn check_not_negative(object: &Value, pointer: &str, causes: &mut Vec<Cause>) {
    if let Some(value) = at(object, pointer).filter(|value| value.as_i64().is_some_and(|n| n < 0)) {
        let field = pointer.trim_start_matches('/').replace('/', ".");
        causes.push(Cause::invalid(field, value, "must be greater than or equal to 0"));
    }
}

/// Checks that a name in a list is a DNS label and unique.
fn check_name(item: &Value, field: &str, seen: &mut Vec<String>, causes: &mut Vec<Cause>) {
    let name = text(item, "/name");
    if name.is_empty() {
        return;
    }
    if !meta::is_label(name) {
        causes.push(Cause::invalid(field, &json!(name), meta::LABEL_RULE));
    } else if seen.iter().any(|other| other == name) {
        causes.push(Cause::duplicate(field, &json!(name)));
    }
    seen.push(name.to_owned());
}
