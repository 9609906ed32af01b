//! Defaults and validation of Services and Ingresses.

use std::ops::RangeInclusive;

use serde_json::{Value, json};

use super::super::failure::Cause;
use super::super::meta::{is_empty, is_qualified_name};
use super::super::request::{items, member, number, text};
use super::{check_name, check_one_of, check_port, check_port_name, check_protocol, or_default};

/// The range of node ports.
pub(in super::super) const NODE_PORTS: RangeInclusive<i64> = 30_000..=32_767;

/// Returns whether a Service is reachable from outside the cluster.
pub(in super::super) fn is_external(service: &Value) -> bool {
    match text(service, "/spec/type") {
        "NodePort" | "LoadBalancer" => true,
        "ClusterIP" => !items(service, "/spec/externalIPs").is_empty(),
        _ => false,
    }
}

/// Returns the ports of a Service.
pub(in super::super) fn ports(service: &Value) -> &[Value] {
    items(service, "/spec/ports")
}

pub(super) fn default_service(service: &mut Value) {
    let spec = member(service, "spec");
    or_default(spec, "type", json!("ClusterIP"));
    or_default(spec, "sessionAffinity", json!("None"));
    let type_ = text(spec, "/type").to_owned();
    for port in spec.get_mut("ports").and_then(Value::as_array_mut).into_iter().flatten() {
        or_default(port, "protocol", json!("TCP"));
        if port.get("targetPort").is_none_or(|target| target.is_null() || *target == 0 || *target == "") {
            port["targetPort"] = port["port"].clone();
        }
        if type_ == "ClusterIP" && port.get("nodePort").is_some_and(|port| *port == 0) {
            port.as_object_mut().map(|port| port.remove("nodePort"));
        }
    }
    if type_ != "ExternalName" {
        or_default(spec, "internalTrafficPolicy", json!("Cluster"));
    }
    match text(spec, "/sessionAffinity") {
        "ClientIP" => {
            let config = member(spec, "sessionAffinityConfig");
            or_default(member(config, "clientIP"), "timeoutSeconds", json!(10_800));
        }
        "None" => drop(spec.as_object_mut().and_then(|spec| spec.remove("sessionAffinityConfig"))),
        _ => {}
    }
    if is_external(service) {
        or_default(member(service, "spec"), "externalTrafficPolicy", json!("Cluster"));
    }
    if type_ == "LoadBalancer" {
        let spec = member(service, "spec");
        if spec.get("allocateLoadBalancerNodePorts").is_none() {
            spec["allocateLoadBalancerNodePorts"] = json!(true);
        }
    }
}

/// Sets what a real server allocates with the address: no client owns it.
pub(in super::super) fn default_families(service: &mut Value) {
    let spec = member(service, "spec");
    or_default(spec, "ipFamilyPolicy", json!("SingleStack"));
    or_default(spec, "ipFamilies", json!(["IPv4"]));
}

pub(super) fn validate_service(service: &Value, stored: Option<&Value>, causes: &mut Vec<Cause>) {
    let type_ = text(service, "/spec/type");
    let ports = ports(service);
    if ports.is_empty() && type_ != "ExternalName" && text(service, "/spec/clusterIP") != "None" {
        causes.push(Cause::required("spec.ports", ""));
    }
    if type_ == "ExternalName" && text(service, "/spec/externalName").is_empty() {
        causes.push(Cause::required("spec.externalName", ""));
    }
    let types = ["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"];
    check_one_of(&service["spec"]["type"], &types, "spec.type", causes);
    let affinity = &service["spec"]["sessionAffinity"];
    check_one_of(affinity, &["ClientIP", "None"], "spec.sessionAffinity", causes);
    let mut names = Vec::new();
    for (at, port) in ports.iter().enumerate() {
        let path = format!("spec.ports[{at}]");
        if ports.len() > 1 && text(port, "/name").is_empty() {
            causes.push(Cause::required(format!("{path}.name"), ""));
        }
        check_name(port, &format!("{path}.name"), &mut names, causes);
        validate_service_port(port, &path, causes);
    }
    validate_numbers(ports, type_, causes);
    validate_type(service, causes);
    validate_address(service, stored, causes);
}

fn validate_service_port(port: &Value, path: &str, causes: &mut Vec<Cause>) {
    let detail = "must be between 1 and 65535, inclusive";
    if port["port"] == 0 || port["port"].is_null() {
        causes.push(Cause::invalid(format!("{path}.port"), &json!(0), detail));
    } else {
        check_port(&port["port"], &format!("{path}.port"), causes);
    }
    let (target, field) = (&port["targetPort"], format!("{path}.targetPort"));
    if target.is_string() {
        check_port_name(target, &field, causes);
    } else if target.as_i64().is_some_and(|target| !(1..=65_535).contains(&target)) {
        causes.push(Cause::invalid(field, target, detail));
    }
    check_protocol(&port["protocol"], &format!("{path}.protocol"), causes);
    let protocol = &port["appProtocol"];
    if protocol.as_str().is_some_and(|protocol| !is_qualified_name(protocol)) {
        let detail = "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end \
            with an alphanumeric character";
        causes.push(Cause::invalid(format!("{path}.appProtocol"), protocol, detail));
    }
}

/// Checks that port numbers and node ports are unique for each protocol.
fn validate_numbers(ports: &[Value], type_: &str, causes: &mut Vec<Cause>) {
    let (mut numbers, mut node_ports) = (Vec::new(), Vec::new());
    for (at, port) in ports.iter().enumerate() {
        let path = format!("spec.ports[{at}]");
        let protocol = text(port, "/protocol");
        let identity = (protocol, number(port, "/port"));
        if numbers.contains(&identity) {
            let value = json!({"port": port["port"], "protocol": protocol});
            causes.push(Cause::duplicate(path.clone(), &value));
        }
        numbers.push(identity);
        let identity = (protocol, number(port, "/nodePort"));
        if identity.1 == 0 {
            continue;
        }
        if type_ == "ClusterIP" {
            let detail = "may not be used when `type` is 'ClusterIP'";
            causes.push(Cause::forbidden(format!("{path}.nodePort"), detail));
        }
        if node_ports.contains(&identity) {
            causes.push(Cause::duplicate(format!("{path}.nodePort"), &port["nodePort"]));
        }
        node_ports.push(identity);
    }
}

/// Checks fields that only some types allow.
fn validate_type(service: &Value, causes: &mut Vec<Cause>) {
    let spec = &service["spec"];
    if text(spec, "/type") != "LoadBalancer" {
        for (name, field) in [
            // A real server spells it this way.
            ("loadBalancerSourceRanges", "spec.LoadBalancerSourceRanges"),
            ("allocateLoadBalancerNodePorts", "spec.allocateLoadBalancerNodePorts"),
            ("loadBalancerClass", "spec.loadBalancerClass"),
        ] {
            if spec.get(name).is_some_and(|found| !is_empty(found)) {
                causes.push(Cause::forbidden(field, "may only be used when `type` is 'LoadBalancer'"));
            }
        }
    }
    let policy = &spec["externalTrafficPolicy"];
    if !is_empty(policy) && !is_external(service) {
        let detail = "may only be set for externally-accessible services";
        causes.push(Cause::invalid("spec.externalTrafficPolicy", policy, detail));
    }
}

fn validate_address(service: &Value, stored: Option<&Value>, causes: &mut Vec<Cause>) {
    let address = text(service, "/spec/clusterIP");
    let is_ours = address.parse::<std::net::Ipv4Addr>().is_ok_and(|address| address.octets()[..2] == [10, 0]);
    if !matches!(address, "" | "None") && !is_ours {
        let detail = "must be empty, 'None', or an address in 10.0.0.0/16";
        causes.push(Cause::invalid("spec.clusterIPs[0]", &json!(address), detail));
    }
    let before = stored.map_or("", |stored| text(stored, "/spec/clusterIP"));
    if !before.is_empty() && text(service, "/spec/type") != "ExternalName" && before != address {
        causes.push(Cause::invalid("spec.clusterIPs[0]", &json!([address]), "may not change once set"));
    }
}

pub(super) fn validate_ingress(ingress: &Value, causes: &mut Vec<Cause>) {
    let rules = items(ingress, "/spec/rules");
    if rules.is_empty() && ingress.pointer("/spec/defaultBackend").is_none() {
        let detail = "either `defaultBackend` or `rules` must be specified";
        causes.push(Cause::invalid("spec", &json!([]), detail));
    }
    for (at, rule) in rules.iter().enumerate() {
        let host = text(rule, "/host");
        let plain = host.strip_prefix("*.").unwrap_or(host);
        if !host.is_empty() && !super::super::meta::is_subdomain(plain) {
            let detail = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' \
                or '.', and must start and end with an alphanumeric character";
            causes.push(Cause::invalid(format!("spec.rules[{at}].host"), &json!(host), detail));
        }
        for (item_at, item) in items(rule, "/http/paths").iter().enumerate() {
            validate_path(item, &format!("spec.rules[{at}].http.paths[{item_at}]"), causes);
        }
    }
}

fn validate_path(item: &Value, path: &str, causes: &mut Vec<Cause>) {
    let types = ["Exact", "ImplementationSpecific", "Prefix"].map(str::to_owned);
    let type_ = text(item, "/pathType");
    if !type_.is_empty() && !types.iter().any(|supported| supported == type_) {
        causes.push(Cause::not_supported(format!("{path}.pathType"), &item["pathType"], &types));
    }
    let at = text(item, "/path");
    if matches!(type_, "Exact" | "Prefix") && !at.starts_with('/') {
        causes.push(Cause::invalid(format!("{path}.path"), &json!(at), "must be an absolute path"));
    }
    if let Some(service) = item.pointer("/backend/service") {
        let port = &service["port"];
        if port.get("number").is_none_or(|number| *number == 0) && text(port, "/name").is_empty() {
            causes.push(Cause::required(format!("{path}.backend"), "port name or number is required"));
        }
    }
}
