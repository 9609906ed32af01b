//! Allocation of cluster IPs and node ports to Services.
//!
//! Mirrors `pkg/registry/core/service` of the API server, including its quirks:
//! - A node port belongs to one Service for all protocols, whose TCP and UDP ports may share it. (test: `services_get_unique_addresses_and_node_ports`)
//! - The first 86 node ports are allocated automatically only after all others. (test: `services_get_unique_addresses_and_node_ports`)
//! - Ports with the same number in a new Service get the same node port. (test: `new_service_shares_node_ports_by_port_number`)
//! - An updated Service keeps its node ports by port name. (test: `updated_service_keeps_node_ports_by_name`)
//! - Two ports of an updated Service requesting one node port are an internal error. (test: `duplicate_node_port_in_update_is_internal_error`)
//! - A Service that changes its type loses the fields of the old type. (test: `service_loses_fields_of_its_old_type`)

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};

use super::super::builtin::{NODE_PORTS, default_families, is_external, ports};
use super::super::core::Core;
use super::super::failure::{Cause, Failure, Outcome};
use super::super::kinds::BuiltIn;
use super::super::request::{number, text};

/// The number of node ports reserved for explicit requests.
const FOR_REQUESTS: i64 = 86;

fn has_node_ports(service: &Value) -> bool {
    matches!(text(service, "/spec/type"), "NodePort" | "LoadBalancer")
}

fn node_ports(service: &Value) -> BTreeSet<i64> {
    ports(service).iter().map(|port| number(port, "/nodePort")).filter(|port| *port != 0).collect()
}

impl Core {
    /// Allocates a Service's cluster IP and node ports, or reports why they are refused.
    pub(in super::super) fn allocate(
        &mut self,
        service: &mut Value,
        stored: Option<&Value>,
        is_dry_run: bool,
        causes: &mut Vec<Cause>,
    ) -> Outcome<()> {
        if let Some(stored) = stored {
            drop_what_the_type_has_not(service, stored);
        }
        if text(service, "/spec/type") == "ExternalName" {
            return Ok(());
        }
        let own =
            (text(service, "/metadata/namespace").to_owned(), text(service, "/metadata/name").to_owned());
        let kind = self.catalogue.built_in(BuiltIn::Service);
        let mut addresses = BTreeSet::new();
        let mut giver = Giver::default();
        for (_, other) in self.store.collection(&kind.resource).filter(|(key, _)| **key != own) {
            addresses.insert(text(other, "/spec/clusterIP").to_owned());
            giver.taken.extend(node_ports(other));
        }
        let before = stored.map_or("", |stored| text(stored, "/spec/clusterIP"));
        let asked = text(service, "/spec/clusterIP").to_owned();
        let address = if !asked.is_empty() {
            asked
        } else if !before.is_empty() {
            before.to_owned()
        } else {
            let free = |n: &u32| !addresses.contains(&format!("10.0.{}.{}", n >> 8, n & 0xff));
            let n = (2..65_534).find(free).unwrap_or_default();
            format!("10.0.{}.{}", n >> 8, n & 0xff)
        };
        if stored.is_none() && addresses.contains(&address) && address != "None" {
            let detail = format!("failed to allocate IP {address}: provided IP is already allocated");
            causes.push(Cause::invalid("spec.clusterIPs", &json!([address]), &detail));
        }
        default_families(service);
        service["spec"]["clusterIP"] = json!(address);
        service["spec"]["clusterIPs"] = json!([address]);
        if !has_node_ports(service) {
            return Ok(());
        }
        let refused = match stored {
            None => giver.give_to_new(service),
            Some(stored) => giver.give_to_changed(service, stored)?,
        };
        // A dry run allocates no ports, hence none can be refused.
        causes.extend(refused.filter(|_| !is_dry_run));
        Ok(())
    }
}

/// Allocates node ports to one Service.
#[derive(Default)]
struct Giver {
    /// The node ports of other Services, and those allocated so far.
    taken: BTreeSet<i64>,
}

// === impl Giver ===

impl Giver {
    fn give_to_new(&mut self, service: &mut Value) -> Option<Cause> {
        let mut of_number: BTreeMap<i64, i64> = BTreeMap::new();
        for at in 0..ports(service).len() {
            let (port, own) =
                (number(&ports(service)[at], "/port"), number(&ports(service)[at], "/nodePort"));
            let given = match of_number.get(&port) {
                Some(given) if own == 0 || own == *given => *given,
                Some(_) => match self.ask(at, own) {
                    Some(refused) => return Some(refused),
                    None => continue,
                },
                None => {
                    let same = ports(service).iter().filter(|other| number(other, "/port") == port);
                    match same.map(|port| number(port, "/nodePort")).find(|asked| *asked != 0) {
                        None => self.next(),
                        Some(asked) => match self.ask(at, asked) {
                            Some(refused) => return Some(refused),
                            None => asked,
                        },
                    }
                }
            };
            of_number.insert(port, given);
            service["spec"]["ports"][at]["nodePort"] = json!(given);
        }
        None
    }

    fn give_to_changed(&mut self, service: &mut Value, stored: &Value) -> Outcome<Option<Cause>> {
        let old = node_ports(stored);
        if has_node_ports(stored) {
            keep_by_name(service, stored);
        }
        self.taken.extend(&old);
        let mut asked = BTreeSet::new();
        let mut seen = BTreeSet::new();
        for at in 0..ports(service).len() {
            let mut own = number(&ports(service)[at], "/nodePort");
            if own == 0 {
                own = self.next();
                service["spec"]["ports"][at]["nodePort"] = json!(own);
            } else if !old.contains(&own) && asked.insert(own) {
                let refused = self.ask(at, own);
                if refused.is_some() {
                    return Ok(refused);
                }
            }
            let protocol = text(&ports(service)[at], "/protocol").to_owned();
            let shown = format!("duplicate nodePort: {{{protocol} {own}}}");
            if !seen.insert((protocol, own)) {
                return Err(Failure::new(500, "", shown));
            }
        }
        Ok(None)
    }

    /// Allocates a requested port, or reports why it is unavailable.
    fn ask(&mut self, at: usize, port: i64) -> Option<Cause> {
        let refused =
            |detail| Some(Cause::invalid(format!("spec.ports[{at}].nodePort"), &json!(port), detail));
        if !NODE_PORTS.contains(&port) {
            return refused(
                "provided port is not in the valid range. The range of valid ports is 30000-32767",
            );
        }
        if !self.taken.insert(port) {
            return refused("provided port is already allocated");
        }
        None
    }

    /// Allocates any free port, using the reserved ones last.
    fn next(&mut self) -> i64 {
        let left = NODE_PORTS.start() + FOR_REQUESTS;
        let mut ports = (left..=*NODE_PORTS.end()).chain(*NODE_PORTS.start()..left);
        let free = ports.find(|port| !self.taken.contains(port)).unwrap_or_default();
        self.taken.insert(free);
        free
    }
}

/// Keeps the node port of each named port that requests none, unless another port now uses it.
fn keep_by_name(service: &mut Value, stored: &Value) {
    let (old, new) = (node_ports(stored), node_ports(service));
    let of_name: BTreeMap<&str, i64> =
        ports(stored).iter().map(|port| (text(port, "/name"), number(port, "/nodePort"))).collect();
    let own = service.pointer_mut("/spec/ports").and_then(Value::as_array_mut);
    for port in own.into_iter().flatten().filter(|port| number(port, "/nodePort") == 0) {
        let before = of_name.get(text(port, "/name")).copied().unwrap_or_default();
        let is_used = old.contains(&before) && new.contains(&before);
        if before != 0 && !is_used {
            port["nodePort"] = json!(before);
        }
    }
}

/// Removes fields of the old type from a Service that changes its type, unless the update changes them.
fn drop_what_the_type_has_not(service: &mut Value, stored: &Value) {
    let type_ = text(service, "/spec/type").to_owned();
    let mut dropped = Vec::new();
    if type_ == "ExternalName" {
        dropped.extend(["clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy"]);
    }
    if type_ != "LoadBalancer" && text(stored, "/spec/type") == "LoadBalancer" {
        dropped.extend(["allocateLoadBalancerNodePorts", "healthCheckNodePort", "loadBalancerClass"]);
    }
    if !is_external(service) && is_external(stored) {
        dropped.push("externalTrafficPolicy");
    }
    let loses_node_ports = has_node_ports(stored)
        && !has_node_ports(service)
        && node_ports(stored).is_superset(&node_ports(service));
    let Some(spec) = service.get_mut("spec").and_then(Value::as_object_mut) else { return };
    spec.retain(|key, value| !dropped.contains(&&**key) || Some(&*value) != stored["spec"].get(key));
    if loses_node_ports {
        let own = spec.get_mut("ports").and_then(Value::as_array_mut);
        for port in own.into_iter().flatten().filter_map(Value::as_object_mut) {
            Map::remove(port, "nodePort");
        }
    }
}
