//! The wanted and the observed state of a Service.
//!
//! # Node ports
//! A wanted port without a node port keeps the allocated one, so that an update needs no change to firewalls or load
//! balancers. The allocated one is that of the live port with the same number and protocol, or else with the same name:
//! a port that is renumbered keeps its node port, as with `kubectl edit`. A node port that another wanted port requests
//! is not kept, and no node port is given to two ports of the same protocol. A node port that is no longer requested is
//! kept, too, because it looks like an allocated one.
//!
//! # Guarantees
//! - Writing a Service again changes nothing, whatever was there before.
//!   (test: `writing_a_service_again_changes_nothing`)
//! - Fields that are not ours, or were allocated, are kept. (test: `allocated_and_foreign_service_fields_are_kept`)
//! - Defaults of the server are not differences. (test: `server_defaults_of_a_service_are_no_difference`)
//! - A port added by hand is removed, and a field that is no longer wanted returns to its default.
//!   (test: `service_ports_are_replaced_as_a_whole`)
//! - Node ports are kept by number and protocol, then by name, and never given to two ports of the same protocol.
//!   (test: `node_ports_follow_their_ports`)
//! - A Service whose type was changed gets its own type back, in a form that the server accepts.
//!   (test: `changed_service_type_is_restored`)
//! - Defaults and allocations of a real server are not differences.
//!   (test: `written_service_keeps_its_allocated_fields`)

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::ServicePort;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use serde::{Deserialize, Serialize};

use super::Wanted;
use super::container::text_or;
use super::protobuf;
use crate::api::ApiResource;
use crate::api::labels::Labels;
use crate::cache::{Meta, Text, TextMap};

/// The API resource of Services.
pub const SERVICES: ApiResource = ApiResource::new("", "v1", "Service", "services");

/// A Service as a custom resource wants it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct WantedService {
    /// The name.
    pub name: String,
    /// The labels.
    pub labels: Labels,
    /// The labels that select the Pods.
    pub selector: Labels,
    /// Where the Service can be reached from.
    pub service_type: ServiceType,
    /// All ports; the server requires at least one.
    pub ports: Vec<ServicePort>,
}

/// Where a Service can be reached from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ServiceType {
    /// Inside the cluster.
    #[default]
    ClusterIp,
    /// Inside the cluster, and on a port of every node.
    NodePort,
}

/// The fields of a Service that the cache keeps.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(default)]
pub struct ObservedService {
    /// Name, uid, labels, owners.
    pub metadata: Meta,
    /// The spec, including the server's allocations.
    pub spec: ObservedServiceSpec,
}

/// The spec of a Service, including the server's allocations.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ObservedServiceSpec {
    /// `ClusterIP`, `NodePort`, or another.
    #[serde(rename = "type")]
    pub type_: Text,
    /// The labels that select the Pods.
    #[serde(skip_serializing_if = "TextMap::is_empty")]
    pub selector: TextMap,
    /// All ports.
    #[serde(skip_serializing_if = "<[ServicePort]>::is_empty")]
    pub ports: Box<[ServicePort]>,
    /// The cluster IP; the string `None` for a headless Service.
    #[serde(rename = "clusterIP", skip_serializing_if = "str::is_empty")]
    pub cluster_ip: Text,
    /// The addresses that a load balancer lets in.
    #[serde(skip_serializing_if = "<[Text]>::is_empty")]
    pub load_balancer_source_ranges: Box<[Text]>,
}

impl Default for ObservedServiceSpec {
    fn default() -> Self {
        Self {
            type_: ServiceType::ClusterIp.as_str().into(),
            selector: TextMap::default(),
            ports: Box::default(),
            cluster_ip: Text::default(),
            load_balancer_source_ranges: Box::default(),
        }
    }
}

crate::object_by_metadata!(ObservedService, SERVICES, protobuf::SERVICE);

// === impl ServiceType ===

impl ServiceType {
    /// Returns the value of `spec.type`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::ClusterIp => "ClusterIP",
            Self::NodePort => "NodePort",
        }
    }
}

// === impl WantedService ===

impl Wanted for WantedService {
    type Observed = ObservedService;

    fn name(&self) -> &str {
        &self.name
    }

    fn write_into(&self, child: &mut ObservedService) {
        child.metadata.labels.merge(&self.labels);
        let spec = &mut child.spec;
        if spec.type_ != self.service_type.as_str() {
            spec.type_ = self.service_type.as_str().into();
            // The server refuses them with any other type.
            spec.load_balancer_source_ranges = Box::default();
        }
        spec.selector.replace(&self.selector);
        if !self.has_wanted_ports(&spec.ports) {
            spec.ports = self.continued(&spec.ports).into();
        }
    }

    fn destroys(&self, observed: &ObservedService) -> bool {
        observed.spec.type_ != self.service_type.as_str() || self.drops_a_port(&observed.spec.ports)
    }
}

impl WantedService {
    /// Whether a live port is not among the wanted ones.
    fn drops_a_port(&self, live: &[ServicePort]) -> bool {
        let id = |port: &ServicePort| (port.port, text_or(port.protocol.as_deref(), "TCP").to_owned());
        live.iter().any(|live| !self.ports.iter().any(|wanted| id(wanted) == id(live)))
    }

    /// Whether the live ports, in any order, mean the wanted ones. Any live node port will do if none is wanted and
    /// the type has node ports.
    fn has_wanted_ports(&self, live: &[ServicePort]) -> bool {
        let sorted = |ports: &[ServicePort]| {
            let mut ports: Vec<ServicePort> = ports.iter().map(with_defaults).collect();
            ports.sort_by_cached_key(|port| (port.port, port.protocol.clone(), port.name.clone()));
            ports
        };
        let (mut live, wanted) = (sorted(live), sorted(&self.ports));
        if self.service_type == ServiceType::NodePort {
            for (live, wanted) in live.iter_mut().zip(&wanted) {
                live.node_port = live.node_port.filter(|_| wanted.node_port.is_some());
            }
        }
        live == wanted
    }

    /// Returns the wanted ports, each with what the server has allocated to the live port that it continues.
    fn continued(&self, live: &[ServicePort]) -> Vec<ServicePort> {
        let wanted: Vec<ServicePort> = self.ports.iter().map(with_defaults).collect();
        let partners = partners(live, &wanted);
        let one = |(wanted, partner): (ServicePort, Partner<'_>)| {
            let kept = partner.node_port.filter(|_| self.service_type == ServiceType::NodePort);
            let port = ServicePort { node_port: kept.or(wanted.node_port), ..wanted };
            partner.live.filter(|live| with_defaults(live) == port).cloned().unwrap_or(port)
        };
        wanted.into_iter().zip(partners).map(one).collect()
    }
}

/// The live port that a wanted port continues.
#[derive(Clone, Copy, Default)]
struct Partner<'a> {
    live: Option<&'a ServicePort>,
    /// The node port to keep.
    node_port: Option<i32>,
}

/// Returns for each wanted port the live port of the same number and protocol, or else of the same name. Matches by
/// number have the first claim on a node port.
fn partners<'a>(live: &'a [ServicePort], wanted: &[ServicePort]) -> Vec<Partner<'a>> {
    type Rule = fn(&ServicePort, &ServicePort) -> bool;
    let same_number: Rule = |live, wanted| live.port == wanted.port && live.protocol == wanted.protocol;
    let same_name: Rule = |live, wanted| live.name == wanted.name;
    let mut free: Vec<(&ServicePort, ServicePort)> =
        live.iter().map(|port| (port, with_defaults(port))).collect();
    let mut taken: BTreeSet<(i32, Option<String>)> =
        wanted.iter().filter_map(|port| Some((port.node_port?, port.protocol.clone()))).collect();
    let mut partners = vec![Partner::default(); wanted.len()];
    for is_same in [same_number, same_name] {
        for (wanted, partner) in
            wanted.iter().zip(&mut partners).filter(|(_, partner)| partner.live.is_none())
        {
            let Some(at) = free.iter().position(|(_, live)| is_same(live, wanted)) else { continue };
            let (fields, live) = free.remove(at);
            partner.live = Some(fields);
            partner.node_port = live
                .node_port
                .filter(|port| wanted.node_port.is_none() && taken.insert((*port, wanted.protocol.clone())));
        }
    }
    partners
}

/// Returns the port with the server's defaults.
fn with_defaults(port: &ServicePort) -> ServicePort {
    let is_unset = |target: &IntOrString| match target {
        IntOrString::Int(number) => *number == 0,
        IntOrString::String(name) => name.is_empty(),
    };
    ServicePort {
        name: port.name.clone().filter(|name| !name.is_empty()),
        port: port.port,
        protocol: Some(text_or(port.protocol.as_deref(), "TCP").to_owned()),
        target_port: port
            .target_port
            .clone()
            .filter(|target| !is_unset(target))
            .or(Some(IntOrString::Int(port.port))),
        node_port: port.node_port.filter(|port| *port != 0),
        app_protocol: port.app_protocol.clone(),
    }
}

#[cfg(test)]
#[cfg(feature = "sim")]
mod tests;
