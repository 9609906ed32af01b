//! `windlass crds`: the custom resource definitions, generated from the types.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, CustomResourceDefinitionNames,
};
use kube_core::CustomResourceExt;

use super::{Failure, print};
use crate::api::appservice::v1alpha1::AppService;
use crate::api::myapp::v1::Myapp;
use crate::api::redis::v1::Redis;
use crate::api::samplecontroller::v1alpha1::Foo;
use crate::api::webapp::v1::WebApp;

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Only these kinds, by kind, plural or short name (`Foo`, `foo`, `foos` or `fo`); all when left out
    #[arg(value_name = "KIND")]
    kinds: Vec<String>,
}

/// All definitions, in the order of the documentation.
pub(super) fn definitions() -> Vec<CustomResourceDefinition> {
    vec![Foo::crd(), Myapp::crd(), AppService::crd(), Redis::crd(), WebApp::crd()]
}

pub(super) fn run(args: &Args) -> Result<(), Failure> {
    let all = definitions();
    let chosen: Vec<_> = if args.kinds.is_empty() {
        all.iter().collect()
    } else {
        args.kinds.iter().map(|kind| find(kind, &all)).collect::<Result<_, _>>()?
    };
    let mut text = String::new();
    for crd in chosen {
        text.push_str(&yaml(crd)?);
    }
    print(&text)
}

/// The definition of a kind, by any of its names.
fn find<'a>(
    name: &str,
    all: &'a [CustomResourceDefinition],
) -> Result<&'a CustomResourceDefinition, Failure> {
    let is_named = |names: &CustomResourceDefinitionNames| {
        let short = names.short_names.iter().flatten();
        [&names.kind, &names.plural].into_iter().chain(short).any(|known| known.eq_ignore_ascii_case(name))
    };
    all.iter().find(|crd| is_named(&crd.spec.names)).ok_or_else(|| unknown_kind(name, all))
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
mod tests;
