//! Makes a new leader distrust its caches until they have seen the last writes of its predecessor.
//!
//! A standby's caches may lag. The predecessor stopped writing before the lease changed hands, so the server's
//! current versions cover all its writes. A new leader reads the version of each collection once, with a small
//! request per kind. Until every cache has reached its version, a pass reads its object live before it creates or
//! updates a child.
//!
//! # Guarantees
//! - No key is synced before this process leads. (test: `standby_syncs_nothing_until_it_leads`)
//! - Until every cache has caught up, creates and updates need a live read of their owner. (test: `new_leader_reads_live_until_caches_catch_up`)

use crate::api::ApiResource;
use crate::client::ApiClient;
use crate::leader_election::Leadership;

use super::consistency::{Consistency, RETRY};

/// Waits for leadership, then for the caches.
#[derive(Clone, Debug)]
pub struct Takeover {
    client: ApiClient,
    /// The namespace of the caches; `None` for all.
    namespace: Option<String>,
    leadership: Leadership,
}

impl Takeover {
    /// Creates a takeover for caches of one namespace, or of all with `None`.
    #[must_use]
    pub fn new(client: ApiClient, namespace: Option<String>, leadership: Leadership) -> Self {
        Self { client, namespace, leadership }
    }

    /// Waits until this process leads.
    ///
    /// # Cancel safety
    /// Cancel-safe.
    pub async fn acquired(&self) {
        self.leadership.acquired().await;
    }

    /// Waits until the stores of `consistency` have reached the server's current versions.
    ///
    /// # Cancel safety
    /// Cancel-safe: a new call starts over.
    pub(super) async fn caught_up(&self, consistency: &Consistency) {
        let mut targets = Vec::new();
        for resource in consistency.resources() {
            targets.push((self.latest_version(&resource).await, resource));
        }
        for (version, resource) in targets {
            while consistency.is_behind(&resource, &version) {
                tokio::time::sleep(RETRY).await;
            }
        }
    }

    async fn latest_version(&self, resource: &ApiResource) -> String {
        loop {
            match self.client.latest_version(resource, self.namespace.as_deref()).await {
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
