//! Definitions and samples: read, then created where they are not yet.

use std::path::Path;
use std::time::Duration;

use kube_core::CustomResourceExt;
use serde_json::{Value, json};

use super::{Failure, print};
use crate::api::ApiResource;
use crate::api::samplecontroller::v1alpha1::Foo;
use crate::client::{ApiClient, Error};

const SAMPLES: &str = include_str!("../../../crd/samples/foo.yaml");
const DEFINITIONS: ApiResource =
    ApiResource::new("apiextensions.k8s.io", "v1", "CustomResourceDefinition", "customresourcedefinitions");
const NAMESPACES: ApiResource = ApiResource::new("", "v1", "Namespace", "namespaces");
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
    /// The file that it is from.
    place: String,
}

// === impl Sample ===

impl Sample {
    /// The name of the Deployment that it asks for.
    pub(super) fn child(&self) -> &str {
        self.object.pointer("/spec/deploymentName").and_then(Value::as_str).unwrap_or("NAME")
    }
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
        Ok(Sample { kind, name, namespace, resource: known, object, place: place.to_owned() })
    });
    let samples = samples.collect::<Result<Vec<_>, _>>()?;
    if samples.is_empty() {
        return Err(wrong("there is nothing in it".to_owned()));
    }
    for (at, sample) in samples.iter().enumerate() {
        let same = |other: &&Sample| (&other.namespace, &other.name) == (&sample.namespace, &sample.name);
        if samples[..at].iter().any(|other| same(&other)) {
            return Err(wrong(format!("there are two {} {}", sample.kind, sample.name)));
        }
    }
    Ok(samples)
}

/// Creates definitions and samples; what is there already stays as it is, and that is said. Returns the samples
/// that were created.
pub(super) async fn create<'a>(
    client: &ApiClient,
    samples: &'a [Sample],
    makes_namespaces: bool,
) -> Result<Vec<&'a Sample>, Failure> {
    let crd = serde_json::to_value(Foo::crd())
        .map_err(|error| Failure::Running(format!("write a definition: {error}")))?;
    let name = Foo::crd_name();
    match client.create::<Value>(&DEFINITIONS, None, &crd).await {
        Err(error) if !error.is_already_exists() => return Err(not_created(name, &error)),
        _ => {}
    }
    let served = async {
        while !is_established(client, name).await? {
            tokio::time::sleep(INTERVAL).await;
        }
        Ok(())
    };
    tokio::time::timeout(PATIENCE, served)
        .await
        .unwrap_or_else(|_| Err(Failure::Running(format!("{name} is not served after {PATIENCE:?}"))))?;
    let mut created = Vec::new();
    for sample in samples {
        if makes_namespaces {
            let namespace = json!({"metadata": {"name": sample.namespace}});
            // It may be there, and if it cannot be, the sample says so.
            client.create::<Value>(&NAMESPACES, None, &namespace).await.ok();
        }
        let what = format!("{} {}", sample.kind.to_lowercase(), sample.name);
        match client.create::<Value>(&sample.resource, Some(&sample.namespace), &sample.object).await {
            Ok(_) => created.push(sample),
            Err(error) if error.is_already_exists() => print(&format!("Kept the {what} that is there.\n"))?,
            Err(error) => return Err(refused(&what, &sample.place, &error)),
        }
    }
    Ok(created)
}

async fn is_established(client: &ApiClient, name: &str) -> Result<bool, Failure> {
    let crd: Option<Value> = match client.get(&DEFINITIONS, None, name).await {
        Ok(crd) => crd,
        Err(error) => return Err(Failure::Running(format!("read {name}: {}", chain(&error)))),
    };
    let conditions = crd.as_ref().and_then(|crd| crd.pointer("/status/conditions")?.as_array());
    let mut conditions = conditions.into_iter().flatten();
    Ok(conditions.any(|condition| condition["type"] == "Established" && condition["status"] == "True"))
}

/// A sample that the server does not take: its author's to mend, when it is the sample's fault.
fn refused(what: &str, place: &str, error: &Error) -> Failure {
    match error.status() {
        Some(status) if matches!(status.code, 400 | 404 | 422) => Failure::Usage {
            cause: format!("{place}: {what} is refused: {}", status.message),
            remedy: "Mend it there; kubectl explain foo.spec tells what each field takes.".to_owned(),
        },
        _ => not_created(what, error),
    }
}

fn not_created(what: &str, error: &Error) -> Failure {
    Failure::Running(format!("create {what}: {}", chain(error)))
}

/// An error and what caused it.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        text = format!("{text}: {inner}");
        cause = inner.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn wrong(text: &str, cause: &str) {
        let failure = parse(text, "--samples=x").unwrap_err().to_string();
        assert!(failure.starts_with("error: --samples=x: ") && failure.contains(cause), "{failure}");
    }

    #[test]
    fn samples_are_ours_and_named() {
        assert_eq!(parse(SAMPLES, "").unwrap().len(), 2);
        wrong("a: [", "");
        wrong("", "nothing in it");
        wrong("kind: Pod\napiVersion: v1", "no kind \"Pod\"");
        let foo = "kind: Foo\napiVersion: samplecontroller.k8s.io/v1alpha1\n";
        wrong(foo, "no metadata.name");
        let named = format!("{foo}metadata: {{name: a}}\n");
        assert_eq!(parse(&named, "").unwrap()[0].namespace, "default");
        wrong(&format!("{named}---\n{named}"), "two Foo a");
    }
}
