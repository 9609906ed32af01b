//! `windlass crds`: the custom resource definitions, generated from the types.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube_core::CustomResourceExt;

use super::{Failure, print};
use crate::api::samplecontroller::v1alpha1::Foo;
use crate::api::webapp::v1::WebApp;

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Only these kinds (`foo`, `Foo` or `foos`); all when left out
    #[arg(value_name = "KIND")]
    kinds: Vec<String>,
}

/// All definitions, in the order of the documentation.
fn definitions() -> Vec<CustomResourceDefinition> {
    vec![Foo::crd(), WebApp::crd()]
}

pub(super) fn run(args: &Args) -> Result<(), Failure> {
    let all = definitions();
    let mut text = String::new();
    let named = |kind: &String| {
        let matches = |crd: &&CustomResourceDefinition| {
            let names = &crd.spec.names;
            [&names.kind, &names.plural].iter().any(|name| name.eq_ignore_ascii_case(kind))
        };
        all.iter().find(matches).ok_or_else(|| unknown_kind(kind, &all))
    };
    let chosen: Vec<_> = if args.kinds.is_empty() {
        all.iter().collect()
    } else {
        args.kinds.iter().map(named).collect::<Result<_, _>>()?
    };
    for crd in chosen {
        text.push_str(&yaml(crd)?);
    }
    print(&text)
}

/// One YAML document, with its separator, so that documents can be put one behind the other.
fn yaml(crd: &CustomResourceDefinition) -> Result<String, Failure> {
    let body = serde_saphyr::to_string(crd)
        .map_err(|error| Failure::Running(format!("print a definition as YAML: {error}")))?;
    Ok(format!("---\n# Generated from the Rust types by hack/update-codegen.sh; do not edit.\n{body}"))
}

fn unknown_kind(kind: &str, all: &[CustomResourceDefinition]) -> Failure {
    let known: Vec<String> = all.iter().map(|crd| crd.spec.names.kind.to_lowercase()).collect();
    Failure::Usage {
        cause: format!("there is no kind {kind:?}"),
        remedy: format!("Kinds: {}.", known.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn crds_are_fresh() {
        let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("crd");
        for crd in definitions() {
            let path = dir.join(format!("{}.yaml", crd.metadata.name.as_deref().unwrap()));
            let stored = std::fs::read_to_string(&path).unwrap_or_default();
            let is_fresh = stored == yaml(&crd).unwrap();
            assert!(is_fresh, "{} is stale: run hack/update-codegen.sh", path.display());
        }
    }

    #[test]
    fn a_definition_has_what_every_kind_promises() {
        for crd in definitions() {
            let names = &crd.spec.names;
            assert_eq!(names.categories.as_deref(), Some(&["windlass".to_owned()][..]), "{}", names.kind);
            let version = &crd.spec.versions[0];
            let subresources = version.subresources.as_ref().unwrap();
            assert!(subresources.status.is_some());
            let scale = subresources.scale.as_ref().unwrap();
            assert_eq!(scale.spec_replicas_path, ".spec.replicas");
            assert_eq!(scale.status_replicas_path, ".status.replicas");
            assert_eq!(scale.label_selector_path.as_deref(), Some(".status.selector"));
            let columns = version.additional_printer_columns.as_ref().unwrap();
            for wanted in ["Ready", "Age"] {
                assert!(columns.iter().any(|column| column.name == wanted), "{} has no {wanted}", names.kind);
            }
        }
    }
}
