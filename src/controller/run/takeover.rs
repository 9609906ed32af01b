//! Makes a new leader distrust its caches until they have seen the last writes of its predecessor.
//!
//! A standby's caches may lag. The predecessor stopped writing before the lease changed hands, so the server's
//! current versions cover all its writes. A new leader reads the version of each collection once, with a small
//! request per kind. Until every cache has reached its version, a sync reads its object live before it creates or
//! updates a child.
//!
//! # Guarantees
//! - No key is synced before this process leads. (test: `standby_syncs_nothing_until_it_leads`)
//! - Until every cache has caught up, creates and updates need a live read of their owner. (test: `new_leader_reads_live_until_caches_catch_up`)

use crate::api::ApiResource;
use crate::client::ApiClient;
use crate::controller::key::Keys;
use crate::controller::key::own_writes::RETRY;
use crate::leader_election::Leadership;

/// Waits for leadership, then for the caches.
#[derive(Clone, Debug)]
pub struct Takeover {
    client: ApiClient,
    /// The namespaces of the caches; none for all.
    namespaces: Vec<String>,
    leadership: Leadership,
}

impl Takeover {
    /// Creates a takeover for caches of these namespaces, or of all if none is named.
    #[must_use]
    pub fn new(client: ApiClient, namespaces: Vec<String>, leadership: Leadership) -> Self {
        Self { client, namespaces, leadership }
    }

    /// Waits until this process leads.
    ///
    /// # Cancel safety
    /// Cancel-safe.
    pub async fn acquired(&self) {
        self.leadership.acquired().await;
    }

    /// Waits until the stores of `keys` have reached the server's current versions.
    ///
    /// # Cancel safety
    /// Cancel-safe: a new call starts over.
    pub(super) async fn caught_up(&self, keys: &Keys) {
        // A client whose rights end at its namespaces may not ask for all.
        let namespaces = match &self.namespaces[..] {
            [] => vec![None],
            named => named.iter().map(|name| Some(name.as_str())).collect(),
        };
        let mut targets = Vec::new();
        for resource in keys.stores.resources() {
            for namespace in &namespaces {
                targets.push((
                    self.latest_version(&resource, *namespace).await,
                    resource.clone(),
                    *namespace,
                ));
            }
        }
        for (version, resource, namespace) in targets {
            while keys.stores.is_behind(&resource, namespace, &version) {
                tokio::time::sleep(RETRY).await;
            }
        }
    }

    async fn latest_version(&self, resource: &ApiResource, namespace: Option<&str>) -> String {
        loop {
            match self.client.latest_version(resource, namespace).await {
                Ok(version) => return version,
                Err(error) => tracing::debug!(
                    kind = %resource,
                    %error,
                    "Could not read the current version of this kind; retrying, and reading live until then"
                ),
            }
            tokio::time::sleep(RETRY).await;
        }
    }
}

#[cfg(test)]
#[cfg(feature = "sim")]
mod tests;
