//! The wanted and the observed state of an Ingress.
//!
//! # Guarantees
//! - Writing an Ingress again changes nothing, whatever was there before.
//!   (test: `writing_an_ingress_again_changes_nothing`)
//! - Annotations, certificates and all other fields that are not ours are kept.
//!   (test: `foreign_ingress_fields_are_kept`)
//! - A rule or path added by hand is removed. (test: `ingress_rules_are_replaced_as_a_whole`)
//! - Defaults of a real server are not differences. (test: `written_ingress_reads_back_without_differences`)

use k8s_openapi::api::networking::v1::{
    HTTPIngressPath, HTTPIngressRuleValue, IngressBackend, IngressRule, IngressServiceBackend,
    ServiceBackendPort,
};
use serde::{Deserialize, Serialize};

use super::Wanted;
use super::protobuf;
use crate::api::ApiResource;
use crate::api::labels::Labels;
use crate::cache::{Meta, Text};

/// The API resource of Ingresses.
pub const INGRESSES: ApiResource = ApiResource::new("networking.k8s.io", "v1", "Ingress", "ingresses");

/// An Ingress as a custom resource wants it: one host, with all paths routed to one port of one Service.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WantedIngress {
    /// The name.
    pub name: String,
    /// The labels.
    pub labels: Labels,
    /// The class of the controller that serves it.
    pub class: String,
    /// The host; may begin with `*.`.
    pub host: String,
    /// The Service behind it.
    pub service: String,
    /// The port of that Service.
    pub service_port: i32,
}

/// The fields of an Ingress that the cache keeps.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(default)]
pub struct ObservedIngress {
    /// Name, uid, labels, owners.
    pub metadata: Meta,
    /// The spec.
    pub spec: ObservedIngressSpec,
}

/// The spec of an Ingress.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ObservedIngressSpec {
    /// The class of the controller that serves it.
    pub ingress_class_name: Option<Text>,
    /// The routes from hosts and paths to Services.
    pub rules: Vec<IngressRule>,
}

crate::object_by_metadata!(ObservedIngress, INGRESSES, protobuf::INGRESS);

// === impl WantedIngress ===

impl Wanted for WantedIngress {
    type Observed = ObservedIngress;

    fn name(&self) -> &str {
        &self.name
    }

    fn write_into(&self, child: &mut ObservedIngress) {
        child.metadata.labels.merge(&self.labels);
        let spec = &mut child.spec;
        // The server sets the default class if none is written; we always write one.
        if spec.ingress_class_name.as_deref() != Some(self.class.as_str()) {
            spec.ingress_class_name = Some(self.class.as_str().into());
        }
        spec.rules = vec![self.rule()];
    }

    /// Whether a host that is served is no longer wanted.
    fn destroys(&self, observed: &ObservedIngress) -> bool {
        observed.spec.rules.iter().any(|rule| rule.host.as_ref() != Some(&self.host))
    }
}

impl WantedIngress {
    fn rule(&self) -> IngressRule {
        let port = ServiceBackendPort { number: Some(self.service_port), ..ServiceBackendPort::default() };
        let service = IngressServiceBackend { name: self.service.clone(), port: Some(port) };
        let path = HTTPIngressPath {
            path: Some("/".to_owned()),
            path_type: "Prefix".to_owned(),
            backend: IngressBackend { service: Some(service), ..IngressBackend::default() },
        };
        IngressRule { host: Some(self.host.clone()), http: Some(HTTPIngressRuleValue { paths: vec![path] }) }
    }
}

#[cfg(test)]
#[cfg(feature = "sim")]
mod tests;
