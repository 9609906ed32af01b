//! Definitions and samples: read, then created where they are not yet.

use std::path::Path;
use std::time::Duration;

use kube_core::CustomResourceExt;
use serde_json::Value;

use super::Failure;
use crate::api::ApiResource;
use crate::api::samplecontroller::v1alpha1::Foo;
use crate::client::{ApiClient, Error};

const SAMPLES: &str = include_str!("../../../crd/samples/foo.yaml");
const DEFINITIONS: ApiResource =
    ApiResource::new("apiextensions.k8s.io", "v1", "CustomResourceDefinition", "customresourcedefinitions");
/// How often it is looked whether a definition is served.
const INTERVAL: Duration = Duration::from_millis(20);
/// How long a server may take to serve a new definition.
const PATIENCE: Duration = Duration::from_secs(30);

/// A custom resource to start with.
#[derive(Clone, Debug)]
pub(super) struct Sample {
    pub(super) kind: String,
    pub(super) name: String,
    pub(super) namespace: String,
    resource: ApiResource,
    object: Value,
}

/// The samples of a file, or the built-in ones.
pub(super) fn read_samples(file: Option<&Path>) -> Result<Vec<Sample>, Failure> {
    let Some(file) = file else { return parse(SAMPLES, "the samples") };
    let text = std::fs::read_to_string(file).map_err(|error| Failure::Usage {
        cause: format!("--samples={}: {error}", file.display()),
        remedy: "Name a file with custom resources in YAML.".to_owned(),
    })?;
    parse(&text, &format!("--samples={}", file.display()))
}

fn parse(text: &str, place: &str) -> Result<Vec<Sample>, Failure> {
    let wrong = |cause: String| Failure::Usage {
        cause: format!("{place}: {cause}"),
        remedy: "Each document is a custom resource of this operator, as in crd/samples.".to_owned(),
    };
    let documents: Vec<Value> = serde_saphyr::from_multiple(text)
        .map_err(|error| wrong(error.to_string().lines().next().unwrap_or_default().to_owned()))?;
    let samples = documents.into_iter().filter(|document| !document.is_null()).map(|object| {
        let text = |pointer| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
        let (kind, api_version) = (text("/kind"), text("/apiVersion"));
        let known = ApiResource::of::<Foo>();
        if kind != known.kind || api_version != known.api_version() {
            return Err(wrong(format!("there is no kind {kind:?} in apiVersion {api_version:?}")));
        }
        let (name, namespace) = (text("/metadata/name"), text("/metadata/namespace"));
        if name.is_empty() {
            return Err(wrong(format!("a {kind} has no metadata.name")));
        }
        let namespace = if namespace.is_empty() { "default".to_owned() } else { namespace };
        Ok(Sample { kind, name, namespace, resource: known, object })
    });
    let samples = samples.collect::<Result<Vec<_>, _>>()?;
    if samples.is_empty() { Err(wrong("there is nothing in it".to_owned())) } else { Ok(samples) }
}

/// Creates definitions and samples; what is there already stays as it is.
pub(super) async fn create(client: &ApiClient, samples: &[Sample]) -> Result<(), Failure> {
    let crd = serde_json::to_value(Foo::crd())
        .map_err(|error| Failure::Running(format!("write a definition: {error}")))?;
    let name = Foo::crd_name();
    keep(client.create::<Value>(&DEFINITIONS, None, &crd).await, name)?;
    let served = async {
        while !is_established(client, name).await? {
            tokio::time::sleep(INTERVAL).await;
        }
        Ok(())
    };
    tokio::time::timeout(PATIENCE, served)
        .await
        .unwrap_or_else(|_| Err(Failure::Running(format!("{name} is not served after {PATIENCE:?}"))))?;
    for sample in samples {
        let created = client.create::<Value>(&sample.resource, Some(&sample.namespace), &sample.object).await;
        keep(created, &format!("{} {}", sample.kind, sample.name))?;
    }
    Ok(())
}

async fn is_established(client: &ApiClient, name: &str) -> Result<bool, Failure> {
    let crd: Option<Value> = match client.get(&DEFINITIONS, None, name).await {
        Ok(crd) => crd,
        Err(error) => return Err(Failure::Running(format!("read {name}: {error}"))),
    };
    let conditions = crd.as_ref().and_then(|crd| crd.pointer("/status/conditions")?.as_array());
    let mut conditions = conditions.into_iter().flatten();
    Ok(conditions.any(|condition| condition["type"] == "Established" && condition["status"] == "True"))
}

fn keep(created: Result<Value, Error>, what: &str) -> Result<(), Failure> {
    match created {
        Ok(_) => Ok(()),
        Err(error) if error.is_already_exists() => Ok(()),
        Err(error) => Err(Failure::Running(format!("create {what}: {error}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn refused(text: &str, cause: &str) {
        let failure = parse(text, "--samples=x").unwrap_err().to_string();
        assert!(failure.starts_with("error: --samples=x: ") && failure.contains(cause), "{failure}");
    }

    #[test]
    fn samples_are_ours_and_named() {
        assert_eq!(parse(SAMPLES, "").unwrap().len(), 2);
        refused("a: [", "");
        refused("", "nothing in it");
        refused("kind: Pod\napiVersion: v1", "no kind \"Pod\"");
        let foo = "kind: Foo\napiVersion: samplecontroller.k8s.io/v1alpha1\n";
        refused(foo, "no metadata.name");
        assert_eq!(parse(&format!("{foo}metadata: {{name: a}}"), "").unwrap()[0].namespace, "default");
    }
}
