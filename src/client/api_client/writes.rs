//! Sends every write of an object: for real, or as a dry run that is recorded.

use bytes::Bytes;
use http::Method;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::{ApiClient, Error, decode};
use crate::api::ApiResource;
use crate::client::dry_run::{self, Step, Write};

/// The object that a request writes.
#[derive(Clone, Copy)]
pub(super) struct Target<'a> {
    pub(super) resource: &'a ApiResource,
    pub(super) namespace: Option<&'a str>,
    /// `None` for an object that is created.
    pub(super) name: Option<&'a str>,
    pub(super) is_status: bool,
}

impl<'a> Target<'a> {
    pub(super) fn object(resource: &'a ApiResource, namespace: Option<&'a str>, name: &'a str) -> Self {
        Self { resource, namespace, name: Some(name), is_status: false }
    }

    /// Returns the path of the object, or of its collection.
    fn path(&self) -> String {
        let collection = self.resource.path(self.namespace);
        self.name.map_or(collection.clone(), |name| format!("{collection}/{name}"))
    }
}

impl ApiClient {
    /// Writes an object, and returns it as stored.
    pub(super) async fn write<T: DeserializeOwned>(
        &self,
        method: Method,
        target: Target<'_>,
        body: &Value,
        content_type: &'static str,
    ) -> Result<T, Error> {
        let answer = self.send_write(method.clone(), target, body, content_type).await?;
        decode(&answer, || format!("{method} {}", target.path()))
    }

    /// Writes an object, and returns the answer's body.
    pub(super) async fn send_write(
        &self,
        method: Method,
        target: Target<'_>,
        body: &Value,
        content_type: &'static str,
    ) -> Result<Bytes, Error> {
        let object = target.path();
        let status = if target.is_status { "/status" } else { "" };
        let path = match method {
            Method::DELETE => object.clone(),
            _ => format!("{object}{status}?fieldManager={}", self.manager),
        };
        if self.dry_run.is_none() {
            return self.call(method, &path, Some(body), content_type).await;
        }
        // Read first: the write carries a version, so it fails if the object has changed since.
        let is_update = method == Method::PATCH || method == Method::PUT;
        let live = match is_update {
            true => self.call(Method::GET, &object, None, "application/json").await.ok(),
            false => None,
        };
        let live: Option<Value> = live.and_then(|live| serde_json::from_slice(&live).ok());
        let answer = self.call(method.clone(), &path, Some(body), content_type).await;
        let outcome = dry_run::outcome(&method, body, live.as_ref(), answer.as_deref());
        if let Some(outcome) = outcome {
            dry_run::push(|| {
                let name = target.name.or_else(|| body.pointer("/metadata/name")?.as_str());
                Step::Write(Write {
                    verb: match method {
                        Method::POST => "create",
                        Method::DELETE => "delete",
                        _ => "patch",
                    },
                    kind: target.resource.kind.to_string(),
                    namespace: target.namespace.map(str::to_owned),
                    name: name.unwrap_or_default().to_owned(),
                    is_status: target.is_status,
                    outcome,
                })
            });
        }
        answer
    }
}
