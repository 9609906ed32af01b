//! What is wanted and what is observed of an Ingress, and the difference by meaning.
//!
//! Whose each field is stands in [`FIELDS`].
//!
//! # Guarantees
//! - What we write has no difference from what we want, whatever was there before, and writing it twice changes nothing. (test: `after_applying_nothing_differs_in_an_ingress`)
//! - Annotations, certificates and whatever else is not ours stay. (test: `what_is_not_ours_of_an_ingress_stays`)
//! - A rule or path added by hand goes. (test: `rules_are_ours_whole`)
//! - What a real server fills in is no difference. (test: `an_ingress_that_is_written_reads_back_without_a_difference`)

use k8s_openapi::api::networking::v1::{
    HTTPIngressPath, HTTPIngressRuleValue, IngressBackend, IngressRule, IngressServiceBackend,
    ServiceBackendPort,
};
use serde::Deserialize;
use serde_json::{Value, json};

use super::Wanted;
use super::difference::{Difference, differs, differs_hidden, labels_differ, merge_keys, object_at};
use super::fields::Field;
use super::observed::object_by_metadata;
use crate::api::ApiResource;
use crate::api::labels::Labels;
use crate::cache::Meta;

/// Where Ingresses live.
pub const INGRESSES: ApiResource = ApiResource::new("networking.k8s.io", "v1", "Ingress", "ingresses");

/// Whose each field of an Ingress is; what is not named is others'.
pub const FIELDS: &[Field] = &[
    Field::keys("metadata.labels"),
    // Controllers and certificate managers are told there what to do.
    Field::others("metadata.annotations"),
    // The server fills in the default class, if none is written; we always write one.
    Field::value("spec.ingressClassName"),
    Field::whole("spec.rules"),
    Field::others("spec.tls"),
    Field::others("spec.defaultBackend"),
];

/// An Ingress as a custom resource wants it: one host, all of whose paths lead to one port of one Service.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WantedIngress {
    /// Its name.
    pub name: String,
    /// Its labels.
    pub labels: Labels,
    /// The class of controller that is to serve it.
    pub class: String,
    /// The host; `*.` may stand before it.
    pub host: String,
    /// The Service behind it.
    pub service: String,
    /// The port of that Service.
    pub service_port: i32,
}

/// What the cache keeps of an Ingress.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct ObservedIngress {
    /// Name, uid, labels, owners.
    pub metadata: Meta,
    /// What it asks for.
    pub spec: ObservedIngressSpec,
}

/// What an Ingress asks for.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ObservedIngressSpec {
    /// The class of controller that serves it.
    pub ingress_class_name: Option<String>,
    /// From hosts and paths to Services.
    pub rules: Vec<IngressRule>,
}

object_by_metadata!(ObservedIngress, INGRESSES);

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
        labels_differ(&mut found, "metadata.labels", &observed.metadata.labels, &self.labels);
        let class = spec.ingress_class_name.as_deref();
        differs(&mut found, "spec.ingressClassName", &class, &Some(self.class.as_str()));
        differs_hidden(&mut found, "spec.rules", &spec.rules, &vec![self.rule()]);
        found
    }

    /// A host that is served and not wanted any more.
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
