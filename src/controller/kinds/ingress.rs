//! The wanted and the observed state of an Ingress, and their differences in meaning.
//!
//! [`FIELDS`] says who owns each field.
//!
//! # Guarantees
//! - A written Ingress has no differences, whatever was there before, and writing it again changes nothing.
//!   (test: `applied_ingress_has_no_differences`)
//! - Annotations, certificates and all other fields that are not ours are kept.
//!   (test: `foreign_ingress_fields_are_kept`)
//! - A rule or path added by hand is removed. (test: `ingress_rules_are_replaced_as_a_whole`)
//! - Defaults of a real server are not differences. (test: `written_ingress_reads_back_without_differences`)

use k8s_openapi::api::networking::v1::{
    HTTPIngressPath, HTTPIngressRuleValue, IngressBackend, IngressRule, IngressServiceBackend,
    ServiceBackendPort,
};
use serde::Deserialize;
use serde_json::{Value, json};

use super::Wanted;
use super::difference::{Difference, differs, differs_hidden, labels_differ, merge_keys, object_at};
use super::fields::Field;
use crate::api::ApiResource;
use crate::api::labels::Labels;
use crate::cache::{Meta, Object, Text};

/// The API resource of Ingresses.
pub const INGRESSES: ApiResource = ApiResource::new("networking.k8s.io", "v1", "Ingress", "ingresses");

/// The owner of each field of an Ingress; fields that are not named belong to others.
pub const FIELDS: &[Field] = &[
    Field::keys("metadata.labels"),
    // Configures Ingress controllers and certificate managers.
    Field::others("metadata.annotations"),
    // The server sets the default class if none is written; we always write one.
    Field::value("spec.ingressClassName"),
    Field::whole("spec.rules"),
    Field::others("spec.tls"),
    Field::others("spec.defaultBackend"),
];

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
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct ObservedIngress {
    /// Name, uid, labels, owners.
    pub metadata: Meta,
    /// The spec.
    pub spec: ObservedIngressSpec,
}

/// The spec of an Ingress.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ObservedIngressSpec {
    /// The class of the controller that serves it.
    pub ingress_class_name: Option<Text>,
    /// The routes from hosts and paths to Services.
    pub rules: Vec<IngressRule>,
}

crate::object_by_metadata!(ObservedIngress, INGRESSES);

// === impl WantedIngress ===

impl Wanted for WantedIngress {
    type Observed = ObservedIngress;

    const FIELDS: &'static [Field] = FIELDS;

    fn name(&self) -> &str {
        &self.name
    }

    fn differences(&self, observed: &ObservedIngress) -> Vec<Difference> {
        let spec = &observed.spec;
        let mut found = Vec::new();
        labels_differ(&mut found, "metadata.labels", |key| observed.label(key), &self.labels);
        let class = spec.ingress_class_name.as_deref();
        differs(&mut found, "spec.ingressClassName", &class, &Some(self.class.as_str()));
        differs_hidden(&mut found, "spec.rules", &spec.rules, &vec![self.rule()]);
        found
    }

    /// Whether a host that is served is no longer wanted.
    fn destroys(&self, observed: &ObservedIngress, _: &[Difference]) -> bool {
        observed.spec.rules.iter().any(|rule| rule.host.as_ref() != Some(&self.host))
    }

    fn write_into(&self, live: &mut Value) {
        merge_keys(live, &["metadata", "labels"], &self.labels);
        let spec = object_at(live, &["spec"]);
        spec.insert("ingressClassName".to_owned(), json!(self.class));
        let before = ObservedIngressSpec::deserialize(&Value::Object(spec.clone())).unwrap_or_default();
        let rules = vec![self.rule()];
        if before.rules != rules {
            spec.insert("rules".to_owned(), json!(rules));
        }
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
mod tests;
