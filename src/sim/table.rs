//! Tables for `kubectl get`.
//!
//! The columns of custom kinds come from their CRDs; those of built-in kinds are defined here.

use std::borrow::Cow;

use serde_json::{Value, json};

use super::core::Core;
use super::kinds::{BuiltIn, Kind, Of};
use super::request::{items, members, number, text};

/// A column; those with a priority above 0 are for `-o wide` only.
struct Column {
    name: String,
    type_: String,
    format: &'static str,
    priority: i64,
}

/// Renders objects as a table; `include` is the parameter `includeObject`.
pub(super) fn table(
    kind: &Kind,
    version: &str,
    objects: &[Cow<'_, Value>],
    core: &Core,
    include: &str,
) -> Value {
    let columns = columns(kind, version);
    let rows: Vec<Value> = objects
        .iter()
        .map(|object| {
            json!({
                "cells": cells(kind, version, object, core),
                "object": match include {
                    "Object" => Value::clone(object),
                    "None" => Value::Null,
                    _ => metadata_only(object),
                },
            })
        })
        .collect();
    let definitions: Vec<Value> = columns
        .iter()
        .map(|c| {
            json!({"name": c.name, "type": c.type_, "format": c.format, "priority": c.priority, "description": ""})
        })
        .collect();
    let version = objects.first().filter(|_| objects.len() == 1);
    let version = version.map_or("", |object| text(object, "/metadata/resourceVersion"));
    json!({
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": {"resourceVersion": version},
        "columnDefinitions": definitions,
        "rows": rows,
    })
}

/// Renders a scale as a table.
pub(super) fn of_scale(scale: &Value, core: &Core, include: &str) -> Value {
    let columns = ["Name", "Desired", "Available", "Age"]
        .map(|name| json!({"name": name, "type": "string", "format": "", "priority": 0, "description": ""}));
    let cells = json!([
        scale["metadata"]["name"],
        number(scale, "/spec/replicas"),
        number(scale, "/status/replicas"),
        core.age(text(scale, "/metadata/creationTimestamp")),
    ]);
    let object = match include {
        "Object" => scale.clone(),
        "None" => Value::Null,
        _ => metadata_only(scale),
    };
    json!({
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": {"resourceVersion": text(scale, "/metadata/resourceVersion")},
        "columnDefinitions": columns,
        "rows": [{"cells": cells, "object": object}],
    })
}

/// Returns the metadata of an object.
pub(super) fn metadata_only(object: &Value) -> Value {
    json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": object["metadata"]})
}

fn built_in_columns(of: BuiltIn) -> &'static [&'static str] {
    match of {
        BuiltIn::ConfigMap => &["Data"],
        BuiltIn::CustomResourceDefinition => {
            &["Scope", "Versions", "Created At", "!Group", "!Kind", "!ShortNames", "!Established"]
        }
        BuiltIn::Deployment => {
            &["Ready", "Up-to-date", "Available", "Age", "!Containers", "!Images", "!Selector"]
        }
        BuiltIn::Event | BuiltIn::EventV1 => &["Last Seen", "Type", "Reason", "Object", "Message"],
        BuiltIn::HorizontalPodAutoscaler => {
            &["Reference", "Targets", "MinPods", "MaxPods", "Replicas", "Age"]
        }
        BuiltIn::Ingress => &["Class", "Hosts", "Address", "Ports", "Age"],
        BuiltIn::Lease => &["Holder", "Age"],
        BuiltIn::Namespace => &["Status", "Age"],
        BuiltIn::Node => &[
            "Status",
            "Roles",
            "Age",
            "Version",
            "!Internal-IP",
            "!External-IP",
            "!OS-Image",
            "!Kernel-Version",
            "!Container-Runtime",
        ],
        BuiltIn::Pod => {
            &["Ready", "Status", "Restarts", "Age", "!IP", "!Node", "!Nominated Node", "!Readiness Gates"]
        }
        BuiltIn::ReplicaSet => &["Desired", "Current", "Ready", "Age", "!Containers", "!Images", "!Selector"],
        BuiltIn::ResourceQuota => &["Used", "Age"],
        BuiltIn::Secret => &["Type", "Data", "Age"],
        BuiltIn::Service => &["Type", "Cluster-IP", "External-IP", "Port(s)", "Age", "!Selector"],
        BuiltIn::ServiceAccount => &["Age"],
    }
}

fn columns(kind: &Kind, version: &str) -> Vec<Column> {
    let column = |name: &str, type_: &str, priority| Column {
        name: name.to_owned(),
        type_: type_.to_owned(),
        format: if name == "Name" { "name" } else { "" },
        priority,
    };
    let mut columns = Vec::new();
    if !kind.is(BuiltIn::Event) && !kind.is(BuiltIn::EventV1) {
        columns.push(column("Name", "string", 0));
    }
    match &kind.of {
        Of::BuiltIn(of) => {
            for name in built_in_columns(*of) {
                let wide = name.strip_prefix('!');
                columns.push(column(wide.unwrap_or(name), "string", i64::from(wide.is_some())));
            }
            if *of == BuiltIn::ConfigMap {
                columns.push(column("Age", "string", 0));
            }
        }
        Of::Custom(definition) => {
            let own = definition.version(version).map(|v| v.columns.as_slice()).unwrap_or_default();
            for c in own {
                let priority = c["priority"].as_i64().unwrap_or_default();
                columns.push(column(text(c, "/name"), text(c, "/type"), priority));
            }
            if own.is_empty() {
                columns.push(column("Age", "date", 0));
            }
        }
    }
    columns
}

fn cells(kind: &Kind, version: &str, object: &Value, core: &Core) -> Vec<Value> {
    let name = json!(text(object, "/metadata/name"));
    let age = |pointer: &str| json!(core.age(text(object, pointer)));
    let created = "/metadata/creationTimestamp";
    let mut cells = vec![name];
    match &kind.of {
        Of::BuiltIn(BuiltIn::Event | BuiltIn::EventV1) => {
            return event_cells(object, core);
        }
        Of::BuiltIn(of) => {
            cells.extend(built_in_cells(*of, object, core));
            match of {
                // Their cells already contain the age.
                BuiltIn::CustomResourceDefinition
                | BuiltIn::Deployment
                | BuiltIn::Node
                | BuiltIn::Pod
                | BuiltIn::ReplicaSet
                | BuiltIn::Service => {}
                _ => cells.push(age(created)),
            }
        }
        Of::Custom(definition) => {
            let own = definition.version(version).map(|v| v.columns.as_slice()).unwrap_or_default();
            for column in own {
                let value = json_path(object, text(column, "/jsonPath"));
                cells.push(match (value, text(column, "/type")) {
                    (Some(value), "date") => json!(core.age(value.as_str().unwrap_or_default())),
                    (Some(value), _) => value,
                    (None, _) => Value::Null,
                });
            }
            if own.is_empty() {
                cells.push(age(created));
            }
        }
    }
    cells
}

fn joined(values: impl Iterator<Item = String>) -> String {
    let all: Vec<String> = values.collect();
    if all.is_empty() { "<none>".to_owned() } else { all.join(",") }
}

fn selector(labels: Option<&serde_json::Map<String, Value>>) -> Value {
    let labels = labels.into_iter().flatten();
    json!(joined(labels.map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default()))))
}

fn or_none(text: &str) -> Value {
    json!(if text.is_empty() { "<none>" } else { text })
}

fn built_in_cells(of: BuiltIn, object: &Value, core: &Core) -> Vec<Value> {
    let n = |pointer: &str| number(object, pointer);
    let age = json!(core.age(text(object, "/metadata/creationTimestamp")));
    let data = || members(object, "/data").map_or(0, serde_json::Map::len);
    let template = |field: &str| {
        let containers = items(object, "/spec/template/spec/containers").iter();
        json!(joined(containers.map(|container| text(container, field).to_owned())))
    };
    let labels = || selector(members(object, "/spec/selector/matchLabels"));
    match of {
        BuiltIn::ConfigMap => vec![json!(data())],
        BuiltIn::Deployment => vec![
            json!(format!("{}/{}", n("/status/readyReplicas"), n("/spec/replicas"))),
            json!(n("/status/updatedReplicas")),
            json!(n("/status/availableReplicas")),
            age,
            template("/name"),
            template("/image"),
            labels(),
        ],
        BuiltIn::ReplicaSet => vec![
            json!(n("/spec/replicas")),
            json!(n("/status/replicas")),
            json!(n("/status/readyReplicas")),
            age,
            template("/name"),
            template("/image"),
            labels(),
        ],
        BuiltIn::Pod => pod_cells(object, age),
        BuiltIn::Service => service_cells(object, age),
        BuiltIn::Ingress => {
            let hosts = items(object, "/spec/rules").iter().map(|rule| text(rule, "/host"));
            let hosts: Vec<&str> = hosts.filter(|host| !host.is_empty()).collect();
            let hosts = if hosts.is_empty() { "*".to_owned() } else { hosts.join(",") };
            let ports = if items(object, "/spec/tls").is_empty() { "80" } else { "80, 443" };
            let class = or_none(text(object, "/spec/ingressClassName"));
            vec![class, json!(hosts), json!(""), json!(ports)]
        }
        BuiltIn::HorizontalPodAutoscaler => autoscaler_cells(object),
        BuiltIn::Lease => vec![json!(text(object, "/spec/holderIdentity"))],
        BuiltIn::Namespace => vec![json!(text(object, "/status/phase"))],
        BuiltIn::Node => node_cells(object, age),
        BuiltIn::ResourceQuota => {
            let used = members(object, "/status/hard").into_iter().flatten();
            let used = used.map(|(name, hard)| {
                let used = object["status"]["used"][name].as_str().unwrap_or("0");
                format!("{name}: {used}/{}", hard.as_str().unwrap_or_default())
            });
            vec![json!(joined(used))]
        }
        BuiltIn::Secret => vec![json!(text(object, "/type")), json!(data())],
        BuiltIn::CustomResourceDefinition => definition_cells(object),
        BuiltIn::Event | BuiltIn::EventV1 | BuiltIn::ServiceAccount => vec![],
    }
}

fn pod_cells(pod: &Value, age: Value) -> Vec<Value> {
    let statuses = items(pod, "/status/containerStatuses");
    let ready = statuses.iter().filter(|status| status["ready"] == true).count();
    let restarts: i64 = statuses.iter().map(|status| number(status, "/restartCount")).sum();
    let waiting = statuses.iter().map(|status| text(status, "/state/waiting/reason")).find(|r| !r.is_empty());
    let status = if pod.pointer("/metadata/deletionTimestamp").is_some() {
        "Terminating"
    } else {
        waiting.unwrap_or_else(|| text(pod, "/status/phase"))
    };
    vec![
        json!(format!("{ready}/{}", items(pod, "/spec/containers").len())),
        json!(status),
        json!(restarts.to_string()),
        age,
        or_none(text(pod, "/status/podIP")),
        or_none(text(pod, "/spec/nodeName")),
        or_none(text(pod, "/status/nominatedNodeName")),
        json!("<none>"),
    ]
}

fn definition_cells(crd: &Value) -> Vec<Value> {
    let served = items(crd, "/spec/versions").iter().filter(|version| version["served"] == true);
    let mut versions: Vec<String> = served
        .map(|version| {
            let mark = if version["storage"] == true { "(storage)" } else { "" };
            format!("{}{mark}", text(version, "/name"))
        })
        .collect();
    versions.sort();
    let short: Vec<&str> = items(crd, "/spec/names/shortNames").iter().filter_map(Value::as_str).collect();
    vec![
        json!(text(crd, "/spec/scope")),
        json!(versions.join(",")),
        json!(text(crd, "/metadata/creationTimestamp")),
        json!(text(crd, "/spec/group")),
        json!(text(crd, "/spec/names/kind")),
        json!(short.join(",")),
        json!(super::custom::is_established(crd)),
    ]
}

fn node_cells(node: &Value, age: Value) -> Vec<Value> {
    let mut conditions = items(node, "/status/conditions").iter();
    let ready = conditions.find(|condition| text(condition, "/type") == "Ready");
    let mut status = match ready.map(|condition| text(condition, "/status")) {
        Some("True") => "Ready".to_owned(),
        Some(_) => "NotReady".to_owned(),
        None => "Unknown".to_owned(),
    };
    if node["spec"]["unschedulable"] == true {
        status.push_str(",SchedulingDisabled");
    }
    let about = |name: &str| json!(text(node, &format!("/status/nodeInfo/{name}")));
    let or_unknown = |name: &str| {
        let found = text(node, &format!("/status/nodeInfo/{name}"));
        json!(if found.is_empty() { "<unknown>" } else { found })
    };
    let address = |type_: &str| {
        let mut addresses = items(node, "/status/addresses").iter();
        or_none(addresses.find(|one| text(one, "/type") == type_).map_or("", |one| text(one, "/address")))
    };
    vec![
        json!(status),
        json!("<none>"),
        age,
        about("kubeletVersion"),
        address("InternalIP"),
        address("ExternalIP"),
        or_unknown("osImage"),
        or_unknown("kernelVersion"),
        or_unknown("containerRuntimeVersion"),
    ]
}

fn autoscaler_cells(object: &Value) -> Vec<Value> {
    let target = &object["spec"]["scaleTargetRef"];
    let used = |name: &str| {
        let mut metrics = items(object, "/status/currentMetrics").iter();
        let metric = metrics.find(|metric| text(metric, "/resource/name") == name);
        let used = metric.and_then(|metric| metric.pointer("/resource/current/averageUtilization"));
        used.map_or_else(|| "<unknown>".to_owned(), |used| format!("{used}%"))
    };
    let metrics = items(object, "/spec/metrics").iter().map(|metric| {
        let name = text(metric, "/resource/name");
        match metric.pointer("/resource/target/averageUtilization") {
            Some(wanted) => format!("{name}: {}/{wanted}%", used(name)),
            None => "<unknown>".to_owned(),
        }
    });
    vec![
        json!(format!("{}/{}", text(target, "/kind"), text(target, "/name"))),
        json!(joined(metrics)),
        json!(number(object, "/spec/minReplicas").to_string()),
        json!(number(object, "/spec/maxReplicas")),
        json!(number(object, "/status/currentReplicas")),
    ]
}

fn external_address(service: &Value) -> String {
    let mut addresses: Vec<&str> =
        items(service, "/spec/externalIPs").iter().filter_map(Value::as_str).collect();
    let name = text(service, "/spec/externalName");
    match text(service, "/spec/type") {
        "ExternalName" => return name.to_owned(),
        "LoadBalancer" => {
            let points = items(service, "/status/loadBalancer/ingress").iter();
            let points: Vec<&str> = points
                .map(|point| {
                    if text(point, "/ip").is_empty() { text(point, "/hostname") } else { text(point, "/ip") }
                })
                .collect();
            addresses.splice(0..0, points);
            if addresses.is_empty() {
                return "<pending>".to_owned();
            }
        }
        _ => {}
    }
    joined(addresses.into_iter().map(str::to_owned))
}

fn service_cells(service: &Value, age: Value) -> Vec<Value> {
    let ports = items(service, "/spec/ports").iter().map(|port| {
        let node = number(port, "/nodePort");
        let node = if node == 0 { String::new() } else { format!(":{node}") };
        format!("{}{node}/{}", number(port, "/port"), text(port, "/protocol"))
    });
    vec![
        json!(text(service, "/spec/type")),
        or_none(text(service, "/spec/clusterIP")),
        json!(external_address(service)),
        json!(joined(ports)),
        age,
        selector(members(service, "/spec/selector")),
    ]
}

fn event_cells(event: &Value, core: &Core) -> Vec<Value> {
    let first = |pointers: &[&str]| {
        let mut found = pointers.iter().map(|pointer| text(event, pointer));
        found.find(|text| !text.is_empty()).unwrap_or_default().to_owned()
    };
    let about = ["/involvedObject", "/regarding"].into_iter().find_map(|pointer| event.pointer(pointer));
    let about = about.unwrap_or(&Value::Null);
    let seen =
        first(&["/lastTimestamp", "/deprecatedLastTimestamp", "/eventTime", "/metadata/creationTimestamp"]);
    vec![
        json!(core.age(&seen)),
        json!(text(event, "/type")),
        json!(text(event, "/reason")),
        json!(format!("{}/{}", text(about, "/kind").to_lowercase(), text(about, "/name"))),
        json!(first(&["/message", "/note"])),
    ]
}

impl Core {
    /// Returns the age of an object in kubectl's short form.
    pub(super) fn age(&self, since: &str) -> String {
        let Ok(since) = since.parse::<jiff::Timestamp>() else { return "<unknown>".to_owned() };
        let now: jiff::Timestamp = self.stamp().parse().unwrap_or(since);
        human(now.duration_since(since).as_secs().max(0))
    }
}

/// Formats a duration in kubectl's short form: `37s`, `5m12s`, `3h`, `2d`.
fn human(seconds: i64) -> String {
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    let with = |big: i64, unit: &str, rest: i64, small: &str| {
        if rest == 0 { format!("{big}{unit}") } else { format!("{big}{unit}{rest}{small}") }
    };
    if seconds < 120 {
        format!("{seconds}s")
    } else if minutes < 10 {
        with(minutes, "m", seconds % 60, "s")
    } else if minutes < 180 {
        format!("{minutes}m")
    } else if hours < 8 {
        with(hours, "h", minutes % 60, "m")
    } else if hours < 48 {
        format!("{hours}h")
    } else if hours < 192 {
        with(days, "d", hours % 24, "h")
    } else {
        format!("{days}d")
    }
}

/// Returns the value at a path such as `.spec.x`, `.items[0]`, `.metadata.labels['a.b/c']` or
/// `.status.conditions[?(@.type=="Ready")].status`.
fn json_path(object: &Value, path: &str) -> Option<Value> {
    let mut at = object;
    let mut rest = path.strip_prefix('$').unwrap_or(path);
    while !rest.is_empty() {
        if let Some(filter) = rest.strip_prefix("[?(@.") {
            let (condition, tail) = filter.split_once(")]")?;
            let (field, wanted) = condition.split_once("==")?;
            let wanted = wanted.trim().trim_matches(['"', '\'']);
            at = at.as_array()?.iter().find(|item| item[field.trim()] == wanted)?;
            rest = tail;
        } else if let Some(index) = rest.strip_prefix('[') {
            let (index, tail) = index.split_once(']')?;
            at = match index.parse::<usize>() {
                Ok(index) => at.get(index)?,
                Err(_) => at.get(index.trim_matches(['"', '\'']))?,
            };
            rest = tail;
        } else {
            let field = rest.strip_prefix('.')?;
            let end = field.find(['.', '[']).unwrap_or(field.len());
            at = at.get(&field[..end])?;
            rest = &field[end..];
        }
    }
    (!at.is_null()).then(|| at.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_paths_of_columns_resolve() {
        let object = json!({"spec": {"n": 3}, "items": [{"a": 1}], "metadata": {"labels": {"a.b/c": "x"}},
            "status": {"conditions": [{"type": "A", "status": "no"}, {"type": "Ready", "status": "True"}]}});
        assert_eq!(json_path(&object, ".spec.n"), Some(json!(3)));
        assert_eq!(json_path(&object, ".items[0].a"), Some(json!(1)));
        assert_eq!(json_path(&object, ".metadata.labels['a.b/c']"), Some(json!("x")));
        let ready = ".status.conditions[?(@.type==\"Ready\")].status";
        assert_eq!(json_path(&object, ready), Some(json!("True")));
        assert_eq!(json_path(&object, ".status.none"), None);
    }

    #[test]
    fn ages_have_kubectls_short_form() {
        let shown: Vec<String> = [0, 119, 312, 900, 11_000, 90_000, 400_000, 900_000].map(human).into();
        assert_eq!(shown, ["0s", "119s", "5m12s", "15m", "3h3m", "25h", "4d15h", "10d"]);
    }
}
