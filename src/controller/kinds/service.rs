//! The wanted and the observed state of a Service, and their differences in meaning.
//!
//! [`FIELDS`] says who owns each field.
//!
//! # Node ports
//! A wanted port without a node port keeps the allocated one, so that an update needs no change to firewalls or load
//! balancers. The allocated one is that of the live port with the same number and protocol, or else with the same name:
//! a port that is renumbered keeps its node port, as with `kubectl edit`. A node port that another wanted port requests
//! is not kept, and no node port is given to two ports of the same protocol. A node port that is no longer requested is
//! kept, too, because it looks like an allocated one.
//!
//! # Guarantees
//! - A written Service has no differences, whatever was there before, and writing it again changes nothing.
//!   (test: `applied_service_has_no_differences`)
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
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::Wanted;
use super::container::text_or;
use super::difference::{
    Difference, all_labels_differ, differs, differs_hidden, labels_differ, merge_keys, object_at,
    replace_list,
};
use super::fields::Field;
use crate::api::ApiResource;
use crate::api::labels::Labels;
use crate::cache::{Meta, Object, Text, TextMap};

/// The API resource of Services.
pub const SERVICES: ApiResource = ApiResource::new("", "v1", "Service", "services");

/// The owner of each field of a Service; fields that are not named belong to others.
pub const FIELDS: &[Field] = &[
    Field::keys("metadata.labels"),
    Field::value("spec.type").or("\"ClusterIP\""),
    Field::whole("spec.selector"),
    Field::set("spec.ports", &["port", "protocol"]).merged().of(&[
        Field::value("name"),
        Field::value("appProtocol"),
        Field::value("protocol").or("\"TCP\""),
        Field::value("targetPort").or_by("the port's number", |_, port| port.get("port").cloned()),
        // A type without node ports allows none, wanted or not.
        Field::value("nodePort")
            .if_wanted("nodePort")
            .or_by("allocated, if the type has one", |service, _| {
                (service["spec"]["type"] != "ClusterIP").then(|| json!(30_000))
            }),
    ]),
    // Allocated.
    Field::others("spec.clusterIP"),
    Field::others("spec.clusterIPs"),
    Field::others("spec.ipFamilies"),
    Field::others("spec.healthCheckNodePort"),
    Field::others("spec.sessionAffinity").or("\"None\""),
    Field::others("spec.internalTrafficPolicy").or("\"Cluster\""),
    // Removed when a foreign type is reverted, because no other type allows it.
    Field::others("spec.loadBalancerSourceRanges"),
];

/// The fields of a port that are ours; other fields come from a server newer than our types.
const PORT_FIELDS: [&str; 6] = ["appProtocol", "name", "nodePort", "port", "protocol", "targetPort"];

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
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct ObservedService {
    /// Name, uid, labels, owners.
    pub metadata: Meta,
    /// The spec, including the server's allocations.
    pub spec: ObservedServiceSpec,
}

/// The spec of a Service, including the server's allocations.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ObservedServiceSpec {
    /// `ClusterIP`, `NodePort`, or another.
    #[serde(rename = "type")]
    pub type_: Text,
    /// The labels that select the Pods.
    pub selector: TextMap,
    /// All ports.
    pub ports: Box<[ServicePort]>,
    /// The cluster IP; the string `None` for a headless Service.
    #[serde(rename = "clusterIP")]
    pub cluster_ip: Text,
}

impl Default for ObservedServiceSpec {
    fn default() -> Self {
        Self {
            type_: ServiceType::ClusterIp.as_str().into(),
            selector: TextMap::default(),
            ports: Box::default(),
            cluster_ip: Text::default(),
        }
    }
}

crate::object_by_metadata!(ObservedService, SERVICES);

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

    const FIELDS: &'static [Field] = FIELDS;

    fn name(&self) -> &str {
        &self.name
    }

    fn differences(&self, observed: &ObservedService) -> Vec<Difference> {
        let spec = &observed.spec;
        let mut found = Vec::new();
        labels_differ(&mut found, "metadata.labels", |key| observed.label(key), &self.labels);
        differs(&mut found, "spec.type", spec.type_.as_str(), self.service_type.as_str());
        all_labels_differ(&mut found, "spec.selector", &spec.selector, &self.selector);
        let (live, wanted) = self.comparable(&spec.ports);
        differs_hidden(&mut found, "spec.ports", &live, &wanted);
        found
    }

    fn destroys(&self, observed: &ObservedService, _: &[Difference]) -> bool {
        observed.spec.type_ != self.service_type.as_str() || self.drops_a_port(&observed.spec.ports)
    }

    /// Ports keep what the server allocated to them, and their merge key is the number alone, which TCP and UDP may
    /// share. They are therefore written as a whole, based on the live ones.
    fn patches_live(&self, differences: &[Difference]) -> bool {
        differences.iter().any(|one| ["spec.ports", "spec.type"].contains(&one.field.as_str()))
    }

    /// Removes the source ranges of a load balancer, which the server refuses with another type.
    fn amend_patch(&self, observed: &ObservedService, patch: &mut Value) {
        if observed.spec.type_ != self.service_type.as_str() {
            object_at(patch, &["spec"]).insert("loadBalancerSourceRanges".to_owned(), Value::Null);
        }
    }

    fn write_into(&self, live: &mut Value) {
        merge_keys(live, &["metadata", "labels"], &self.labels);
        let spec = object_at(live, &["spec"]);
        let before = ObservedServiceSpec::deserialize(&Value::Object(spec.clone())).unwrap_or_default();
        if before.type_ != self.service_type.as_str() {
            spec.remove("loadBalancerSourceRanges");
        }
        spec.insert("type".to_owned(), json!(self.service_type.as_str()));
        if before.selector.to_map() != self.selector {
            replace_list(spec, "selector", &self.selector);
        }
        let (live, wanted) = self.comparable(&before.ports);
        if live != wanted {
            let live = spec.get("ports").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
            let merged = self.merged(live);
            replace_list(spec, "ports", &merged);
        }
    }
}

impl WantedService {
    /// Whether a live port is not among the wanted ones.
    fn drops_a_port(&self, live: &[ServicePort]) -> bool {
        let id = |port: &ServicePort| (port.port, text_or(port.protocol.clone(), "TCP"));
        live.iter().any(|live| !self.ports.iter().any(|wanted| id(wanted) == id(live)))
    }

    /// Returns live and wanted ports in the same order and with the server's defaults. Any live node port matches if
    /// none is wanted and the type has node ports.
    fn comparable(&self, live: &[ServicePort]) -> (Vec<ServicePort>, Vec<ServicePort>) {
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
        (live, wanted)
    }

    /// Returns the wanted ports, each with what the server has allocated to it.
    fn merged(&self, live: &[Value]) -> Vec<Value> {
        let wanted: Vec<ServicePort> = self.ports.iter().map(with_defaults).collect();
        let merge = |(wanted, partner): (&ServicePort, Partner<'_>)| {
            let mut fields = partner.live.cloned().unwrap_or_default();
            fields.retain(|name, _| !PORT_FIELDS.contains(&name.as_str()));
            if let Value::Object(ours) = json!(wanted) {
                fields.extend(ours);
            }
            if let Some(port) = partner.node_port.filter(|_| self.service_type == ServiceType::NodePort) {
                fields.insert("nodePort".to_owned(), json!(port));
            }
            Value::Object(fields)
        };
        self.ports.iter().zip(partners(live, &wanted)).map(merge).collect()
    }
}

/// The live port that a wanted port continues.
#[derive(Clone, Copy, Default)]
struct Partner<'a> {
    live: Option<&'a Map<String, Value>>,
    /// The node port to keep.
    node_port: Option<i32>,
}

/// Returns for each wanted port the live port of the same number and protocol, or else of the same name. Matches by
/// number have the first claim on a node port.
fn partners<'a>(live: &'a [Value], wanted: &[ServicePort]) -> Vec<Partner<'a>> {
    type Rule = fn(&ServicePort, &ServicePort) -> bool;
    let same_number: Rule = |live, wanted| live.port == wanted.port && live.protocol == wanted.protocol;
    let same_name: Rule = |live, wanted| live.name == wanted.name;
    let mut free: Vec<(&Map<String, Value>, ServicePort)> = live
        .iter()
        .filter_map(|port| Some((port.as_object()?, with_defaults(&ServicePort::deserialize(port).ok()?))))
        .collect();
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
        protocol: Some(text_or(port.protocol.clone(), "TCP")),
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
mod tests;
