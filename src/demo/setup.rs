//! Reads definitions and samples, and creates the missing ones.
//!
//! # Guarantees
//! - A sample has a known kind and a name that is unique within the kind. (test: `samples_must_have_known_kinds_and_unique_names`)
//! - A server with our definitions accepts the samples of all kinds. (test: `all_definitions_and_samples_are_created`)
//! - Existing samples stay as they are. (test: `existing_samples_are_kept`)

use std::path::Path;
use std::time::Duration;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::kinds::{KINDS, Kind};
use super::row::shown_name;
use crate::api::ApiResource;
use crate::cache::ObjectName;
use crate::cli::crds;
use crate::cli::{Failure, print};
use crate::client::{ApiClient, Error};

const DEFINITIONS: ApiResource =
    ApiResource::new("apiextensions.k8s.io", "v1", "CustomResourceDefinition", "customresourcedefinitions");
const NAMESPACES: ApiResource = ApiResource::new("", "v1", "Namespace", "namespaces");
/// How often to check whether a definition is served.
const INTERVAL: Duration = Duration::from_millis(20);
/// How long a server may take to serve a new definition.
const PATIENCE: Duration = Duration::from_secs(30);

/// A custom resource to start with.
#[derive(Clone, Debug)]
pub(crate) struct Sample {
    pub(super) name: String,
    pub(super) namespace: String,
    pub(super) resource: ApiResource,
    kind: &'static Kind,
    object: Value,
    /// The file of the sample, for messages.
    source: String,
}

// === impl Sample ===

impl Sample {
    /// Returns the name shown in its row.
    pub(super) fn shown_name(&self) -> String {
        let name = ObjectName::new(Some(&self.namespace), &self.name);
        shown_name(&self.kind(), &name)
    }

    /// Returns the kind in lower case.
    pub(super) fn kind(&self) -> String {
        self.resource.kind.to_lowercase()
    }

    /// Returns commands to try on this sample, each with its effect.
    pub(super) fn tries(&self) -> Vec<(String, &'static str)> {
        // By default a Deployment has its owner's name.
        let deployment = self.object.pointer("/spec/deploymentName").and_then(Value::as_str);
        let command = |text: &str| {
            let text = text.replace("DEPLOYMENT", deployment.unwrap_or(&self.name));
            self.in_its_namespace(text.replace("NAME", &self.name))
        };
        self.kind.tries.iter().map(|(text, effect)| (command(text), *effect)).collect()
    }

    /// Appends the namespace to a kubectl command, unless it is `default`.
    pub(super) fn in_its_namespace(&self, command: String) -> String {
        if self.namespace == "default" { command } else { format!("{command} -n {}", self.namespace) }
    }
}

/// Reads the samples of a file, or the built-in ones.
pub(crate) fn read_samples(file: Option<&Path>) -> Result<Vec<Sample>, Failure> {
    let Some(file) = file else { return built_in() };
    let text = std::fs::read_to_string(file).map_err(|error| Failure::Usage {
        cause: format!("--samples={}: {error}", file.display()),
        remedy: "Give a YAML file with custom resources.".to_owned(),
    })?;
    parse(&text, &format!("--samples={}", file.display()))
}

fn built_in() -> Result<Vec<Sample>, Failure> {
    let all: Vec<&str> = KINDS.iter().map(|kind| kind.samples).collect();
    parse(&all.join("\n---\n"), "the samples")
}

fn parse(text: &str, source: &str) -> Result<Vec<Sample>, Failure> {
    let wrong = |cause: String| Failure::Usage { cause: format!("{source}: {cause}"), remedy: remedy() };
    let documents: Vec<Value> = serde_saphyr::from_multiple(text)
        .map_err(|error| wrong(error.to_string().lines().next().unwrap_or_default().to_owned()))?;
    let samples = documents.into_iter().filter(|document| !document.is_null()).map(|object| {
        let text = |pointer| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
        let (kind, api_version) = (text("/kind"), text("/apiVersion"));
        let resource = |known: &&Kind| (known.resource)();
        let is_it =
            |known: &&Kind| resource(known).kind == kind && resource(known).api_version() == api_version;
        let Some(known) = KINDS.iter().find(is_it) else {
            return Err(wrong(format!("unknown kind {kind:?} in apiVersion {api_version:?}")));
        };
        let (name, namespace) = (text("/metadata/name"), text("/metadata/namespace"));
        if name.is_empty() {
            return Err(wrong(format!("a {kind} has no metadata.name")));
        }
        let namespace = if namespace.is_empty() { "default".to_owned() } else { namespace };
        let resource = (known.resource)();
        Ok(Sample { name, namespace, resource, kind: known, object, source: source.to_owned() })
    });
    let samples = samples.collect::<Result<Vec<_>, _>>()?;
    if samples.is_empty() {
        return Err(wrong("the file contains no custom resource".to_owned()));
    }
    for (at, sample) in samples.iter().enumerate() {
        let identity = |sample: &Sample| (sample.resource.clone(), sample.shown_name());
        if samples[..at].iter().any(|other| identity(other) == identity(sample)) {
            return Err(wrong(format!("{} {} is defined twice", sample.resource.kind, sample.name)));
        }
    }
    Ok(samples)
}

fn remedy() -> String {
    let known: Vec<ApiResource> = KINDS.iter().map(|kind| (kind.resource)()).collect();
    let known: Vec<String> =
        known.iter().map(|known| format!("{} of {}", known.kind, known.api_version())).collect();
    format!(
        "Each document must be a custom resource of this operator, as in crd/samples: {}.",
        known.join(", ")
    )
}

/// Creates definitions and samples. Existing ones are kept, and a kept sample is reported. Returns the created samples.
pub(super) async fn create<'a>(
    client: &ApiClient,
    samples: &'a [Sample],
    makes_namespaces: bool,
) -> Result<Vec<&'a Sample>, Failure> {
    define(client).await?;
    let mut created = Vec::new();
    for sample in samples {
        if makes_namespaces {
            let namespace = json!({"metadata": {"name": sample.namespace}});
            // The namespace may exist; if it cannot be created, creating the sample reports the error.
            client.create::<Value>(&NAMESPACES, None, &namespace).await.ok();
        }
        let what = format!("{} {}", sample.kind(), sample.name);
        match client.create::<Value>(&sample.resource, Some(&sample.namespace), &sample.object).await {
            Ok(_) => created.push(sample),
            Err(error) if error.is_already_exists() => print(&format!("Kept the existing {what}.\n"))?,
            Err(error) => return Err(refused(sample, &error)),
        }
    }
    Ok(created)
}

/// Creates the definitions of all kinds, and waits until they are served.
pub(crate) async fn define(client: &ApiClient) -> Result<(), Failure> {
    define_all(client, crds::definitions()).await
}

/// Creates these definitions, and waits until they are served.
pub(crate) async fn define_all(
    client: &ApiClient,
    definitions: impl IntoIterator<Item = CustomResourceDefinition>,
) -> Result<(), Failure> {
    let mut names = Vec::new();
    for crd in definitions {
        let name = crd.metadata.name.clone().unwrap_or_default();
        let crd = serde_json::to_value(crd)
            .map_err(|error| Failure::Running(format!("could not encode a definition: {error}")))?;
        match client.create::<Value>(&DEFINITIONS, None, &crd).await {
            Err(error) if !error.is_already_exists() => return Err(not_created(&name, &error)),
            _ => names.push(name),
        }
    }
    let deadline = Instant::now() + PATIENCE;
    for name in names {
        while !is_established(client, &name).await? {
            if Instant::now() >= deadline {
                return Err(Failure::Running(format!(
                    "the API server did not serve {name} within {PATIENCE:?}"
                )));
            }
            tokio::time::sleep(INTERVAL).await;
        }
    }
    Ok(())
}

async fn is_established(client: &ApiClient, name: &str) -> Result<bool, Failure> {
    let crd: Option<Value> = match client.get(&DEFINITIONS, None, name).await {
        Ok(crd) => crd,
        Err(error) => return Err(Failure::Running(format!("could not read {name}: {}", chain(&error)))),
    };
    let conditions = crd.as_ref().and_then(|crd| crd.pointer("/status/conditions")?.as_array());
    let mut conditions = conditions.into_iter().flatten();
    Ok(conditions.any(|condition| condition["type"] == "Established" && condition["status"] == "True"))
}

/// Describes a refused sample; a usage error if the sample is at fault.
fn refused(sample: &Sample, error: &Error) -> Failure {
    let Sample { name, source, .. } = sample;
    let kind = sample.kind();
    match error.status() {
        Some(status) if matches!(status.code, 400 | 404 | 422) => Failure::Usage {
            cause: format!("{source}: the server refused {kind} {name}: {}", status.message),
            remedy: format!("Correct it there; `kubectl explain {kind}.spec` describes each field."),
        },
        _ => not_created(&format!("{kind} {name}"), error),
    }
}

fn not_created(what: &str, error: &Error) -> Failure {
    Failure::Running(format!("could not create {what}: {}", chain(error)))
}

/// Formats an error with its causes.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        text = format!("{text}: {inner}");
        cause = inner.source();
    }
    text
}

#[cfg(test)]
pub(super) mod tests;
