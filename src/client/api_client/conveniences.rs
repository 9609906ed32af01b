//! Calls that combine others: for scripts, tests and small operators.

use serde_json::Value;

use super::ApiClient;
use crate::api::ApiResource;
use crate::client::{Config, ConfigError, ConfigSource, Error};

impl ApiClient {
    /// Connects to the cluster that kubectl would use, or to the one that this process runs in; sends no request.
    ///
    /// # Errors
    /// [`ConfigError`].
    pub async fn try_default() -> Result<Self, ConfigError> {
        Self::connect(Config::load(&ConfigSource::default()).await?).await
    }

    /// Deletes the object of this name, in the state in which a live read finds it. Returns whether there was one.
    ///
    /// # Errors
    /// [`Error`]; a conflict if the object has changed since the read.
    pub async fn delete_named(
        &self,
        resource: &ApiResource,
        namespace: Option<&str>,
        name: &str,
    ) -> Result<bool, Error> {
        let Some(live) = self.get_metadata::<Value>(resource, namespace, name).await? else {
            return Ok(false);
        };
        let [uid, version] = ["uid", "resourceVersion"].map(|field| live["metadata"][field].as_str());
        self.delete(resource, namespace, name, uid.unwrap_or_default(), version.unwrap_or_default()).await?;
        Ok(true)
    }
}
