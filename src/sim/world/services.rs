//! Addresses and node ports of Services.
//!
//! Mirrors `pkg/registry/core/service` of the API server, odd corners included:
//! - A node port belongs to one Service, whatever the protocol; within it TCP and UDP may share it. (test: `services_get_addresses_and_ports_that_nobody_else_has`)
//! - The first 86 node ports are given to those who ask for one. (test: `services_get_addresses_and_ports_that_nobody_else_has`)
//! - Ports of one number in a new Service get the same node port. (test: `node_ports_of_a_new_service_go_by_number`)
//! - A changed Service keeps its node ports by the names of its ports. (test: `node_ports_of_a_changed_service_go_by_name`)
//! - Two of its ports that ask for one node port are an error of the server's own. (test: `a_node_port_asked_for_twice_is_the_servers_own_error`)
//! - With its type a Service loses what the type had given it. (test: `a_service_loses_what_its_type_had_given_it`)

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};

use super::super::builtin::{NODE_PORTS, is_external, ports};
use super::super::core::Core;
use super::super::failure::{Cause, Failure, Outcome};
use super::super::kinds::BuiltIn;
use super::super::request::{number, text};

/// How many node ports are left to those who ask for one.
const FOR_REQUESTS: i64 = 86;

fn has_node_ports(service: &Value) -> bool {
    matches!(text(service, "/spec/type"), "NodePort" | "LoadBalancer")
}

fn node_ports(service: &Value) -> BTreeSet<i64> {
    ports(service).iter().map(|port| number(port, "/nodePort")).filter(|port| *port != 0).collect()
}

impl Core {
    /// Gives a Service its address and its ports on the nodes, or says why not.
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
        service["spec"]["clusterIP"] = json!(address);
        service["spec"]["clusterIPs"] = json!([address]);
        if !has_node_ports(service) {
            return Ok(());
        }
        let refused = match stored {
            None => giver.give_to_new(service),
            Some(stored) => giver.give_to_changed(service, stored)?,
        };
        // Who only tries is not given ports, so none can be wrong.
        causes.extend(refused.filter(|_| !is_dry_run));
        Ok(())
    }
}

/// Gives node ports to one Service.
#[derive(Default)]
struct Giver {
    /// Those of other Services, and those given so far.
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

    /// Takes this one, or says why it cannot be had.
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

    /// Takes any; the first ones are left to those who ask for one, as long as there are others.
    fn next(&mut self) -> i64 {
        let left = NODE_PORTS.start() + FOR_REQUESTS;
        let mut ports = (left..=*NODE_PORTS.end()).chain(*NODE_PORTS.start()..left);
        let free = ports.find(|port| !self.taken.contains(port)).unwrap_or_default();
        self.taken.insert(free);
        free
    }
}

/// A port that asks for none keeps what the port of its name had, unless another one has it now.
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

/// A Service that changes its type loses what belonged to the old one, unless it is asked for anew.
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
