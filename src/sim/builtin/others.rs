//! Defaults and validation of small kinds: Namespaces, Secrets, ConfigMaps, autoscalers, Leases, Events, quotas.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Value, json};

use super::super::failure::Cause;
use super::super::kinds::BuiltIn;
use super::super::request::{member, members, text};
use super::{check_not_negative, or_default};

pub(super) fn default_namespace(namespace: &mut Value) {
    let name = text(namespace, "/metadata/name").to_owned();
    or_default(member(namespace, "spec"), "finalizers", json!(["kubernetes"]));
    let labels = member(member(namespace, "metadata"), "labels");
    labels["kubernetes.io/metadata.name"] = json!(name);
}

pub(super) fn default_secret(secret: &mut Value) {
    or_default(secret, "type", json!("Opaque"));
    let Some(Value::Object(plain)) = secret.as_object_mut().and_then(|secret| secret.remove("stringData"))
    else {
        return;
    };
    let data = member(secret, "data");
    for (key, value) in plain {
        data[key] = json!(BASE64_STANDARD.encode(value.as_str().unwrap_or_default()));
    }
}

pub(super) fn default_autoscaler(autoscaler: &mut Value) {
    let spec = member(autoscaler, "spec");
    if spec.get("minReplicas").is_none() {
        spec["minReplicas"] = json!(1);
    }
    let cpu = json!([{"type": "Resource",
        "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}}}]);
    or_default(spec, "metrics", cpu);
}

pub(super) fn validate_autoscaler(autoscaler: &Value, causes: &mut Vec<Cause>) {
    let number =
        |name: &str| autoscaler.pointer(&format!("/spec/{name}")).and_then(Value::as_i64).unwrap_or(0);
    let (least, most) = (number("minReplicas"), number("maxReplicas"));
    if least < 0 {
        let detail = "must be greater than or equal to 0";
        causes.push(Cause::invalid("spec.minReplicas", &json!(least), detail));
    }
    let outside = |metric: &Value| matches!(text(metric, "/type"), "Object" | "External");
    let has_none_from_outside =
        !super::super::request::items(autoscaler, "/spec/metrics").iter().any(outside);
    if least == 0 && has_none_from_outside {
        let detail =
            "must specify at least one Object or External metric to support scaling to zero replicas";
        causes.push(Cause::forbidden("spec.metrics", detail));
    }
    if most < 0 {
        causes.push(Cause::required("spec.maxReplicas", "must be set and greater than 0"));
    }
    if most < least {
        let detail = "must be greater than or equal to `minReplicas`";
        causes.push(Cause::invalid("spec.maxReplicas", &json!(most), detail));
    }
}

/// The maximum total size of the data in a ConfigMap or Secret, in bytes.
const MAX_DATA: usize = 1024 * 1024;

/// Returns the total size of all values; `binaryData`, and `data` unless plain, is base64.
fn size_of_data(object: &Value, is_plain: bool) -> usize {
    let plain = |value: &Value| value.as_str().unwrap_or_default().len();
    let decoded =
        |value: &Value| BASE64_STANDARD.decode(value.as_str().unwrap_or_default()).map_or(0, |b| b.len());
    let data = members(object, "/data").into_iter().flatten();
    let data: usize = data.map(|(_, value)| if is_plain { plain(value) } else { decoded(value) }).sum();
    let binary = members(object, "/binaryData").into_iter().flatten();
    data + binary.map(|(_, value)| decoded(value)).sum::<usize>()
}

pub(super) fn validate_data(of: BuiltIn, object: &Value, stored: Option<&Value>, causes: &mut Vec<Cause>) {
    let is_config = of == BuiltIn::ConfigMap;
    if size_of_data(object, is_config) > MAX_DATA {
        causes.push(Cause::too_long(if is_config { "" } else { "data" }, MAX_DATA as u64));
    }
    for (key, _) in members(object, "/data").into_iter().flatten() {
        let is_key = !key.is_empty()
            && key.len() <= 253
            && key.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'));
        if !is_key {
            let detail = "a valid config key must consist of alphanumeric characters, '-', '_' or '.'";
            causes.push(Cause::invalid(format!("data[{key}]"), &json!(key), detail));
        }
    }
    if let Some(stored) = stored {
        if stored["immutable"] == true {
            for field in ["immutable", "data", "binaryData"] {
                if stored.get(field) != object.get(field) {
                    causes.push(Cause::forbidden(field, "field is immutable when `immutable` is set"));
                }
            }
        }
        if stored.get("type") != object.get("type") {
            causes.push(Cause::invalid("type", &object["type"], "field is immutable"));
        }
    }
}

pub(super) fn validate_lease(lease: &Value, causes: &mut Vec<Cause>) {
    if let Some(seconds) = lease.pointer("/spec/leaseDurationSeconds")
        && seconds.as_i64().is_some_and(|seconds| seconds <= 0)
    {
        causes.push(Cause::invalid("spec.leaseDurationSeconds", seconds, "must be greater than 0"));
    }
    check_not_negative(lease, "/spec/leaseTransitions", causes);
}

/// Validates an Event in its core/v1 form.
pub(super) fn validate_event(event: &Value, causes: &mut Vec<Cause>) {
    let (about, own) = (text(event, "/involvedObject/namespace"), text(event, "/metadata/namespace"));
    if about != own && !(about.is_empty() && own == "default") {
        let value = &event["involvedObject"]["namespace"];
        causes.push(Cause::invalid("involvedObject.namespace", value, "does not match event.namespace"));
    }
    // An Event with `eventTime` is of the new API, which requires more fields.
    if text(event, "/eventTime").is_empty() {
        return;
    }
    for (pointer, field) in [
        ("/reportingComponent", "reportingController"),
        ("/reportingInstance", "reportingInstance"),
        ("/action", "action"),
        ("/reason", "reason"),
    ] {
        if text(event, pointer).is_empty() {
            causes.push(Cause::required(field, ""));
        }
    }
    if text(event, "/message").len() > 1024 {
        let detail = "can have at most 1024 characters";
        causes.push(Cause::invalid("note", &json!(""), detail));
    }
}

/// The fields of an Event whose names differ: in core/v1, then in events.k8s.io/v1.
const EVENT_FIELDS: [(&str, &str); 7] = [
    ("involvedObject", "regarding"),
    ("message", "note"),
    ("reportingComponent", "reportingController"),
    ("source", "deprecatedSource"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("count", "deprecatedCount"),
];

/// Converts an Event from events.k8s.io/v1 to core/v1.
pub(in super::super) fn event_to_v1(event: &mut Value) {
    rename(event, EVENT_FIELDS.map(|(core, group)| (group, core)));
    or_default(event, "source", json!({}));
    for (key, value) in
        [("involvedObject", json!({})), ("reportingComponent", json!("")), ("reportingInstance", json!(""))]
    {
        if event.get(key).is_none() {
            event[key] = value;
        }
    }
}

/// Converts an Event from core/v1 to events.k8s.io/v1.
pub(in super::super) fn event_to_group(event: &mut Value) {
    rename(event, EVENT_FIELDS);
}

fn rename(event: &mut Value, names: [(&str, &str); 7]) {
    let Some(event) = event.as_object_mut() else { return };
    for (from, to) in names {
        if let Some(value) = event.remove(from) {
            event.insert(to.to_owned(), value);
        }
    }
}

/// Returns name, resource and limit of a quota's object counts: `count/deployments.apps`, `pods`, `services`.
pub(in super::super) fn counted(quota: &Value) -> Vec<(String, String, i64)> {
    let mut limits = Vec::new();
    for (name, limit) in members(quota, "/spec/hard").into_iter().flatten() {
        let resource = name.strip_prefix("count/").unwrap_or(name);
        let limit = limit.as_str().and_then(|limit| limit.parse().ok()).or(limit.as_i64());
        if let Some(limit) = limit {
            limits.push((name.clone(), resource.to_owned(), limit));
        }
    }
    limits
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn event_survives_round_trip_conversion() {
        let event =
            json!({"regarding": {"name": "a"}, "note": "n", "reportingController": "c", "reason": "r"});
        let mut converted = event.clone();
        event_to_v1(&mut converted);
        assert_eq!(converted["involvedObject"]["name"], "a");
        event_to_group(&mut converted);
        for (key, value) in event.as_object().unwrap() {
            assert_eq!(&converted[key], value);
        }
    }
}
