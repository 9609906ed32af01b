//! Defaults and validation of Pods and Pod templates.

use std::cmp::Ordering;

use serde_json::{Value, json};

use super::super::failure::Cause;
use super::super::meta;
use super::super::request::{items, members, text};
use super::{check_name, check_one_of, check_port, check_port_name, check_protocol, one_of, or_default};
use crate::api::quantity::compare;

const PROBES: [&str; 3] = ["livenessProbe", "readinessProbe", "startupProbe"];

/// Applies the server's defaults to the spec of a Pod or template.
pub(super) fn default_spec(spec: &mut Value) {
    or_default(spec, "restartPolicy", json!("Always"));
    or_default(spec, "dnsPolicy", json!("ClusterFirst"));
    or_default(spec, "schedulerName", json!("default-scheduler"));
    if spec.get("terminationGracePeriodSeconds").is_none() {
        spec["terminationGracePeriodSeconds"] = json!(30);
    }
    if spec.get("securityContext").is_none() {
        spec["securityContext"] = json!({});
    }
    let account = text(spec, "/serviceAccountName").to_owned();
    if account.is_empty() {
        let old = text(spec, "/serviceAccount").to_owned();
        if !old.is_empty() {
            spec["serviceAccountName"] = json!(old);
        }
    } else {
        spec["serviceAccount"] = json!(account);
    }
    for list in ["containers", "initContainers"] {
        for container in spec.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten() {
            default_container(container);
        }
    }
    for volume in spec.get_mut("volumes").and_then(Value::as_array_mut).into_iter().flatten() {
        one_of::default_volume(volume);
        for source in ["secret", "configMap", "projected", "downwardAPI"] {
            if let Some(source) = volume.get_mut(source).filter(|source| source.is_object()) {
                or_default(source, "defaultMode", json!(420));
            }
        }
    }
}

fn default_container(container: &mut Value) {
    let image = text(container, "/image").to_owned();
    let tag = image.rsplit_once('/').map_or(image.as_str(), |(_, name)| name).split_once(':');
    let is_latest = !image.contains('@') && tag.is_none_or(|(_, tag)| tag == "latest");
    let policy = if is_latest { "Always" } else { "IfNotPresent" };
    or_default(container, "imagePullPolicy", json!(policy));
    or_default(container, "terminationMessagePath", json!("/dev/termination-log"));
    or_default(container, "terminationMessagePolicy", json!("File"));
    if container.get("resources").is_none() {
        container["resources"] = json!({});
    }
    for port in container.get_mut("ports").and_then(Value::as_array_mut).into_iter().flatten() {
        or_default(port, "protocol", json!("TCP"));
    }
    for variable in container.get_mut("env").and_then(Value::as_array_mut).into_iter().flatten() {
        if variable["value"] == "" {
            // Go omits empty strings.
            variable.as_object_mut().map(|variable| variable.remove("value"));
        }
        if let Some(field) = variable.pointer_mut("/valueFrom/fieldRef") {
            or_default(field, "apiVersion", json!("v1"));
        }
        if let Some(field) = variable.pointer_mut("/valueFrom/resourceFieldRef") {
            or_default(field, "divisor", json!("0"));
        }
    }
    for probe in PROBES {
        let Some(probe) = container.get_mut(probe).filter(|probe| probe.is_object()) else { continue };
        for (key, value) in
            [("timeoutSeconds", 1), ("periodSeconds", 10), ("successThreshold", 1), ("failureThreshold", 3)]
        {
            if probe.get(key).is_none_or(|found| *found == 0) {
                probe[key] = json!(value);
            }
        }
        if let Some(get) = probe.get_mut("httpGet").filter(|get| get.is_object()) {
            or_default(get, "path", json!("/"));
            or_default(get, "scheme", json!("HTTP"));
        }
    }
}

/// Sets missing requests to the limits.
fn default_requests(container: &mut Value) {
    let limits = container.pointer("/resources/limits").and_then(Value::as_object).cloned();
    for (name, limit) in limits.into_iter().flatten() {
        let requests = super::super::request::member(&mut container["resources"], "requests");
        or_default(requests, &name, limit);
    }
}

/// Applies the defaults of a Pod, including those that admission adds.
pub(super) fn default_pod(pod: &mut Value) {
    let spec = super::super::request::member(pod, "spec");
    default_spec(spec);
    for list in ["containers", "initContainers"] {
        for container in spec.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten() {
            default_requests(container);
        }
    }
    if spec.get("enableServiceLinks").is_none() {
        spec["enableServiceLinks"] = json!(true);
    }
    or_default(spec, "serviceAccountName", json!("default"));
    spec["serviceAccount"] = spec["serviceAccountName"].clone();
    or_default(spec, "preemptionPolicy", json!("PreemptLowerPriority"));
    if spec.get("priority").is_none() {
        spec["priority"] = json!(0);
    }
    let mut tolerations = items(spec, "/tolerations").to_vec();
    for key in ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"] {
        if !tolerations.iter().any(|toleration| text(toleration, "/key") == key) {
            tolerations.push(json!(
                {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}
            ));
        }
    }
    spec["tolerations"] = Value::Array(tolerations);
}

/// Returns the quality of service class.
pub(super) fn quality(pod: &Value) -> &'static str {
    let containers = items(pod, "/spec/containers");
    let amount = |container: &Value, list: &str, name: &str| {
        container.pointer(&format!("/resources/{list}/{name}")).cloned()
    };
    let is_guaranteed = |container: &Value| {
        ["cpu", "memory"].into_iter().all(|name| {
            let limit = amount(container, "limits", name);
            limit.is_some() && limit == amount(container, "requests", name)
        })
    };
    let has_any = |container: &Value| {
        ["limits", "requests"].into_iter().any(|list| {
            container.pointer(&format!("/resources/{list}")).is_some_and(|found| !meta::is_empty(found))
        })
    };
    if containers.iter().all(is_guaranteed) {
        "Guaranteed"
    } else if containers.iter().any(has_any) {
        "Burstable"
    } else {
        "BestEffort"
    }
}

/// Validates the spec of a Pod or template.
pub(super) fn validate_spec(spec: &Value, field: &str, causes: &mut Vec<Cause>) {
    let volumes = validate_volumes(spec, field, causes);
    let mut names = Vec::new();
    for list in ["containers", "initContainers"] {
        for (at, container) in items(spec, &format!("/{list}")).iter().enumerate() {
            let path = format!("{field}.{list}[{at}]");
            check_name(container, &format!("{path}.name"), &mut names, causes);
            validate_container(container, &path, causes);
            validate_mounts(container, &volumes, &path, causes);
            if list == "containers" || text(container, "/restartPolicy") == "Always" {
                validate_handlers(container, &path, causes);
            } else {
                forbid_handlers(container, &path, causes);
            }
        }
    }
    let policies = ["Always", "OnFailure", "Never"];
    check_one_of(&spec["restartPolicy"], &policies, &format!("{field}.restartPolicy"), causes);
    validate_dns(spec, field, causes);
}

/// Validates volumes; returns the names of the valid ones, which may be mounted.
fn validate_volumes<'a>(spec: &'a Value, field: &str, causes: &mut Vec<Cause>) -> Vec<&'a str> {
    let (mut names, mut sound) = (Vec::new(), Vec::new());
    for (at, volume) in items(spec, "/volumes").iter().enumerate() {
        let (path, known) = (format!("{field}.volumes[{at}]"), causes.len());
        one_of::check_volume(volume, &path, causes);
        check_name(volume, &format!("{path}.name"), &mut names, causes);
        let name = text(volume, "/name");
        if causes.len() == known && !name.is_empty() {
            sound.push(name);
        }
    }
    sound
}

fn validate_mounts(container: &Value, volumes: &[&str], field: &str, causes: &mut Vec<Cause>) {
    let mut mount_paths = Vec::new();
    for (at, mount) in items(container, "/volumeMounts").iter().enumerate() {
        let path = format!("{field}.volumeMounts[{at}]");
        let (name, mount_path) = (text(mount, "/name"), text(mount, "/mountPath"));
        if !volumes.contains(&name) {
            causes.push(Cause::not_found(format!("{path}.name"), &json!(name)));
        }
        if mount_paths.contains(&mount_path) {
            causes.push(Cause::invalid(format!("{path}.mountPath"), &json!(mount_path), "must be unique"));
        }
        mount_paths.push(mount_path);
    }
}

fn validate_handlers(container: &Value, field: &str, causes: &mut Vec<Cause>) {
    for name in ["lifecycle.postStart", "lifecycle.preStop"].iter().chain(&PROBES) {
        if let Some(handler) = container.pointer(&format!("/{}", name.replace('.', "/"))) {
            one_of::check_handler(handler, &format!("{field}.{name}"), causes);
        }
    }
}

/// Refuses hooks and probes of a regular init container.
fn forbid_handlers(container: &Value, field: &str, causes: &mut Vec<Cause>) {
    for name in ["lifecycle"].iter().chain(&PROBES) {
        if container.get(name).is_some() {
            let detail = "may not be set for init containers without restartPolicy=Always";
            causes.push(Cause::forbidden(format!("{field}.{name}"), detail));
        }
    }
}

fn validate_dns(spec: &Value, field: &str, causes: &mut Vec<Cause>) {
    let policies = ["ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"];
    check_one_of(&spec["dnsPolicy"], &policies, &format!("{field}.dnsPolicy"), causes);
    if spec["dnsPolicy"] != "None" {
        return;
    }
    if spec.get("dnsConfig").is_none() {
        let detail = "must provide `dnsConfig` when `dnsPolicy` is None";
        causes.push(Cause::required(format!("{field}.dnsConfig"), detail));
    } else if items(spec, "/dnsConfig/nameservers").is_empty() {
        let detail = "must provide at least one DNS nameserver when `dnsPolicy` is None";
        causes.push(Cause::required(format!("{field}.dnsConfig.nameservers"), detail));
    }
}

fn validate_container(container: &Value, field: &str, causes: &mut Vec<Cause>) {
    let mut names = Vec::new();
    for (at, port) in items(container, "/ports").iter().enumerate() {
        let path = format!("{field}.ports[{at}]");
        if let Some(name) = port.get("name").filter(|name| !meta::is_empty(name)) {
            let known = causes.len();
            check_port_name(name, &format!("{path}.name"), causes);
            if causes.len() == known && names.contains(&name) {
                causes.push(Cause::duplicate(format!("{path}.name"), name));
            }
            names.push(name);
        }
        check_port(&port["containerPort"], &format!("{path}.containerPort"), causes);
        check_port(&port["hostPort"], &format!("{path}.hostPort"), causes);
        check_protocol(&port["protocol"], &format!("{path}.protocol"), causes);
    }
    let policies = ["Always", "IfNotPresent", "Never"];
    check_one_of(&container["imagePullPolicy"], &policies, &format!("{field}.imagePullPolicy"), causes);
    for (at, variable) in items(container, "/env").iter().enumerate() {
        let path = format!("{field}.env[{at}]");
        let divisor = format!("{path}.valueFrom.resourceFieldRef.divisor");
        validate_divisor(&variable["valueFrom"]["resourceFieldRef"], &divisor, causes);
        one_of::check_variable(variable, &path, causes);
    }
    validate_resources(&container["resources"], &format!("{field}.resources"), causes);
}

/// Checks that a divisor is a supported unit of its resource.
fn validate_divisor(of: &Value, field: &str, causes: &mut Vec<Cause>) {
    let cpu = ["1m", "1"].as_slice();
    let bytes =
        ["1", "1k", "1M", "1G", "1T", "1P", "1E", "1Ki", "1Mi", "1Gi", "1Ti", "1Pi", "1Ei"].as_slice();
    let resource = text(of, "/resource");
    let (units, supported, what) =
        match resource.trim_start_matches("limits.").trim_start_matches("requests.") {
            "cpu" => (cpu, "1m and 1".to_owned(), "cpu resource"),
            "memory" => (bytes, bytes.join(", "), "memory resource"),
            "ephemeral-storage" => (bytes, bytes.join(", "), "local ephemeral storage resource"),
            _ => return,
        };
    let divisor = text(of, "/divisor");
    if !units.contains(&divisor) && !["", "0"].contains(&divisor) {
        let detail = format!("only divisor's values {supported} are supported with the {what}");
        causes.push(Cause::invalid(field, &json!(resource), &detail));
    }
}

fn validate_resources(resources: &Value, field: &str, causes: &mut Vec<Cause>) {
    for list in ["limits", "requests"] {
        for (name, amount) in members(resources, &format!("/{list}")).into_iter().flatten() {
            let path = format!("{field}.{list}[{name}]");
            let is_standard = matches!(name.as_str(), "cpu" | "memory" | "ephemeral-storage");
            if !is_standard && !name.contains('/') && !name.starts_with("hugepages-") {
                let detail = "must be a standard resource for containers";
                causes.push(Cause::invalid(&*path, &json!(name), detail));
            }
            if compare(amount.as_str().unwrap_or_default(), "0") == Ordering::Less {
                causes.push(Cause::invalid(&*path, amount, "must be greater than or equal to 0"));
            }
        }
    }
    for (name, request) in members(resources, "/requests").into_iter().flatten() {
        let limit = resources.pointer("/limits").and_then(|limits| limits[name].as_str());
        let is_more = |limit| compare(request.as_str().unwrap_or_default(), limit) == Ordering::Greater;
        if let Some(limit) = limit.filter(|limit| is_more(limit)) {
            let detail = format!("must be less than or equal to {name} limit of {limit}");
            causes.push(Cause::invalid(format!("{field}.requests"), request, &detail));
        }
    }
}

pub(super) fn validate_pod(pod: &Value, stored: Option<&Value>, causes: &mut Vec<Cause>) {
    validate_spec(&pod["spec"], "spec", causes);
    let Some(stored) = stored else { return };
    for list in ["containers", "initContainers"] {
        let count = |pod: &Value| items(pod, &format!("/spec/{list}")).len();
        if count(pod) != count(stored) {
            let field = format!("spec.{list}");
            return causes.push(Cause::forbidden(field, "pod updates may not add or remove containers"));
        }
    }
    // Only images, the deadline, tolerations and the grace period may change.
    let fixed = |pod: &Value| {
        let mut spec = pod["spec"].clone();
        if let Some(spec) = spec.as_object_mut() {
            for key in ["activeDeadlineSeconds", "tolerations", "terminationGracePeriodSeconds"] {
                spec.remove(key);
            }
        }
        for list in ["containers", "initContainers"] {
            for container in spec.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten() {
                container["image"] = Value::Null;
            }
        }
        spec
    };
    if fixed(pod) != fixed(stored) {
        let detail = "pod updates may not change fields other than `spec.containers[*].image`,\
            `spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to \
            existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was \
            previously negative)";
        causes.push(Cause::forbidden("spec", detail));
    }
}
