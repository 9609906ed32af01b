//! Sends every write of an object.

use bytes::Bytes;
use http::Method;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::{ApiClient, Call, Error, Passage, decode};
use crate::api::ApiResource;

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
        match self.name {
            Some(name) => self.resource.object_path(self.namespace, name),
            None => self.resource.path(self.namespace),
        }
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
        let call = Call::new(Passage::Write, method, &path, Some(body));
        self.call(Call { content_type, resource: Some(target.resource), ..call }).await
    }
}
