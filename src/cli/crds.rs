//! `windlass crds`: the custom resource definitions, generated from the types.

use std::collections::BTreeMap;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, CustomResourceDefinitionNames, JSONSchemaProps, JSONSchemaPropsOrArray,
    JSONSchemaPropsOrBool,
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
    /// Kinds to print, by kind, plural or short name in any case (`Foo`, `foos` or `fo`); default: all kinds
    #[arg(value_name = "KIND")]
    kinds: Vec<String>,
}

/// Returns all definitions, in the order of the documentation.
pub(crate) fn definitions() -> Vec<CustomResourceDefinition> {
    let mut all = vec![Foo::crd(), Myapp::crd(), AppService::crd(), Redis::crd(), WebApp::crd()];
    for crd in &mut all {
        let schemas = crd.spec.versions.iter_mut().filter_map(|version| version.schema.as_mut());
        schemas.filter_map(|schema| schema.open_api_v3_schema.as_mut()).for_each(join_lines);
    }
    all
}

/// Joins the lines of each sentence: a description is a doc comment, whose line breaks `kubectl explain` would show.
fn join_lines(schema: &mut JSONSchemaProps) {
    if let Some(description) = &mut schema.description {
        let paragraphs = description.split("\n\n").map(|paragraph| paragraph.replace('\n', " "));
        *description = paragraphs.collect::<Vec<_>>().join("\n\n");
    }
    let items = schema.items.iter_mut().filter_map(|items| match items {
        JSONSchemaPropsOrArray::Schema(schema) => Some(&mut **schema),
        JSONSchemaPropsOrArray::Schemas(_) => None,
    });
    let values = schema.additional_properties.iter_mut().filter_map(|values| match values {
        JSONSchemaPropsOrBool::Schema(schema) => Some(&mut **schema),
        JSONSchemaPropsOrBool::Bool(_) => None,
    });
    schema
        .properties
        .iter_mut()
        .flat_map(BTreeMap::values_mut)
        .chain(items)
        .chain(values)
        .for_each(join_lines);
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

/// Finds the definition of a kind by any of its names.
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

/// Formats a definition as one YAML document, with its separator, so that documents can be concatenated.
fn yaml(crd: &CustomResourceDefinition) -> Result<String, Failure> {
    let body = serde_saphyr::to_string(crd)
        .map_err(|error| Failure::Running(format!("could not print a definition as YAML: {error}")))?;
    Ok(format!("---\n# Generated from the Rust types by hack/update-codegen.sh; do not edit.\n{body}"))
}

fn unknown_kind(kind: &str, all: &[CustomResourceDefinition]) -> Failure {
    let known: Vec<String> = all.iter().map(|crd| crd.spec.names.kind.to_lowercase()).collect();
    Failure::Usage {
        cause: format!("unknown kind {kind:?}"),
        remedy: format!("Kinds: {}.", known.join(", ")),
    }
}

#[cfg(test)]
mod tests;
