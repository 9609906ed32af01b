//! Writes events, outside the limits on other writes.

use http::Method;
use serde_json::Value;

use super::{ApiClient, Call, Error, MERGE_PATCH, Passage};
use crate::api::ApiResource;

impl ApiClient {
    /// Creates an event, which counts against neither the writes in flight nor `qps`.
    ///
    /// # Errors
    /// [`Error`]; see [`Error::is_already_exists`].
    pub async fn create_event(
        &self,
        events: &ApiResource,
        namespace: &str,
        event: &Value,
    ) -> Result<(), Error> {
        let path = format!("{}?fieldManager={}", events.path(Some(namespace)), self.manager);
        self.call(Call::new(Passage::Event, Method::POST, &path, Some(event))).await.map(drop)
    }

    /// Merge-patches an event, outside the same limits.
    ///
    /// # Errors
    /// [`Error`]; see [`Error::is_not_found`].
    pub async fn patch_event(
        &self,
        events: &ApiResource,
        namespace: &str,
        name: &str,
        patch: &Value,
    ) -> Result<(), Error> {
        let path = format!("{}?fieldManager={}", events.object_path(Some(namespace), name), self.manager);
        let call = Call::new(Passage::Event, Method::PATCH, &path, Some(patch));
        self.call(Call { content_type: MERGE_PATCH, ..call }).await.map(drop)
    }
}
