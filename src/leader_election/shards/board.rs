//! The Leases of a set of members: one for the set, one for each shard, one for each member.
//!
//! | Lease | holder | renewed |
//! |---|---|---|
//! | `<name>` | the set, as `16-shards`, or a single leader | by any member, while one lives |
//! | `<name>-<shard>` | the member that works the shard; nobody | never: it lives as long as its holder |
//! | `<name>-member-<id>` | the member | by the member |
//!
//! So a set costs the server a write and a list for each member and retry period, however many shards there are.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};

use crate::api::shards::Sharding;
use crate::client::{ApiClient, Error};

/// The label of all Leases of a set; its value is the name of the set's own Lease.
pub const SET: &str = "windlass.dev/shards-of";
/// The annotation of a member's Lease with the shards that it knows of, as `16-shards`.
pub const COUNT: &str = "windlass.dev/shards";

/// Reads and writes the Leases of one set.
#[derive(Debug)]
pub(super) struct Board {
    client: ApiClient,
    namespace: String,
    name: String,
    sharding: Sharding,
    /// The Leases by name, as last read or written.
    leases: BTreeMap<String, Lease>,
}

/// What is written into a Lease. A time that is missing is removed.
#[derive(Debug)]
pub(super) struct Record<'a> {
    /// Empty for nobody.
    pub(super) holder: &'a str,
    pub(super) lease_duration: Option<Duration>,
    pub(super) renewed: Option<Timestamp>,
    pub(super) now: Timestamp,
}

// === impl Board ===

impl Board {
    pub(super) fn new(client: ApiClient, namespace: String, name: String, sharding: Sharding) -> Self {
        Self { client, namespace, name, sharding, leases: BTreeMap::new() }
    }

    pub(super) fn client(&self) -> &ApiClient {
        &self.client
    }

    /// Returns `namespace/name` of the set's Lease, for messages.
    pub(super) fn describe(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }

    /// Returns the holder of the set's Lease while members with these shards hold it.
    pub(super) fn set_identity(&self) -> String {
        self.sharding.to_string()
    }

    pub(super) fn set_name(&self) -> String {
        self.name.clone()
    }

    pub(super) fn shard_name(&self, shard: u16) -> String {
        format!("{}-{shard}", self.name)
    }

    /// Returns the name of the Lease of the member with this random id.
    pub(super) fn member_name(&self, id: u64) -> String {
        format!("{}{id:016x}", self.member_prefix())
    }

    fn member_prefix(&self) -> String {
        format!("{}-member-", self.name)
    }

    /// Reads all Leases of the set, as they are at one point in time.
    pub(super) async fn read(&mut self) -> Result<(), Error> {
        let selector = format!("{SET}={}", self.name);
        let leases = self.client.list_leases(&self.namespace, &selector).await?;
        self.leases = leases
            .into_iter()
            .map(|lease| (lease.metadata.name.clone().unwrap_or_default(), lease))
            .collect();
        if !self.leases.contains_key(&self.name)
            // A single leader's Lease has no label.
            && let Some(lease) = self.client.get_lease(&self.namespace, &self.name).await?
        {
            self.leases.insert(self.name.clone(), lease);
        }
        Ok(())
    }

    /// Returns a Lease as last read or written.
    pub(super) fn lease(&self, name: &str) -> Option<&Lease> {
        self.leases.get(name)
    }

    /// Returns the Leases of the members of this set, whatever shards they know of.
    pub(super) fn members(&self) -> impl Iterator<Item = &Lease> {
        let prefix = self.member_prefix();
        self.leases.iter().filter(move |(name, _)| name.starts_with(&prefix)).map(|(_, lease)| lease)
    }

    /// Returns who holds a shard; empty for nobody.
    pub(super) fn holder_of(&self, shard: u16) -> &str {
        self.lease(&self.shard_name(shard)).map(holder).unwrap_or_default()
    }

    /// Whether the member of this Lease knows of the same shards.
    pub(super) fn is_of_this_set(&self, member: &Lease) -> bool {
        let count = member.metadata.annotations.as_ref().and_then(|annotations| annotations.get(COUNT));
        count.is_some_and(|count| *count == self.sharding.to_string())
    }

    /// Returns what is to be written into a Lease, which is created or replaces what was last read or written.
    pub(super) fn with(&self, name: &str, record: &Record<'_>) -> Lease {
        let mut lease = self.leases.get(name).cloned().unwrap_or_else(|| Lease {
            metadata: ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() },
            ..Lease::default()
        });
        let Record { holder, lease_duration, renewed, now } = record;
        let labels = lease.metadata.labels.get_or_insert_default();
        labels.insert(SET.to_owned(), self.name.clone());
        if name.starts_with(&self.member_prefix()) {
            let annotations = lease.metadata.annotations.get_or_insert_default();
            annotations.insert(COUNT.to_owned(), self.sharding.to_string());
        }
        let spec = lease.spec.get_or_insert_with(LeaseSpec::default);
        if spec.holder_identity.as_deref() != Some(*holder) {
            spec.acquire_time = Some(MicroTime(*now));
            let transitions = spec.lease_transitions.map_or(0, |transitions| transitions.saturating_add(1));
            spec.lease_transitions = Some(transitions);
        }
        spec.holder_identity = Some((*holder).to_owned());
        spec.lease_duration_seconds = lease_duration.and_then(|time| i32::try_from(time.as_secs()).ok());
        spec.renew_time = renewed.map(MicroTime);
        lease
    }

    /// Writes a Lease that [`with`](Self::with) returned.
    pub(super) async fn write(
        client: &ApiClient,
        namespace: &str,
        name: &str,
        lease: &Lease,
    ) -> Result<Lease, Error> {
        match lease.metadata.resource_version {
            None => client.create_lease(namespace, lease).await,
            Some(_) => client.replace_lease(namespace, name, lease).await,
        }
    }

    /// Writes a Lease; a conflict if it has changed since it was last read or written.
    pub(super) async fn put(&mut self, name: &str, record: &Record<'_>) -> Result<(), Error> {
        let lease = self.with(name, record);
        let written = Self::write(&self.client, &self.namespace, name, &lease).await?;
        self.leases.insert(name.to_owned(), written);
        Ok(())
    }

    /// Writes this record into the Leases of shards, all at once; returns the shards that were written.
    pub(super) async fn put_shards(&mut self, shards: &[u16], record: &Record<'_>) -> Vec<u16> {
        let writes = shards.iter().map(|shard| {
            let name = self.shard_name(*shard);
            let (lease, client, namespace) = (self.with(&name, record), &self.client, &self.namespace);
            async move { (*shard, Self::write(client, namespace, &name, &lease).await) }
        });
        let mut written = Vec::new();
        for (shard, outcome) in futures_util::future::join_all(writes).await {
            match outcome {
                Ok(lease) => {
                    self.leases.insert(self.shard_name(shard), lease);
                    written.push(shard);
                }
                Err(error) => tracing::debug!(shard, %error, "Could not write the Lease of a shard"),
            }
        }
        written
    }

    /// Deletes a Lease as last read or written; one that is gone is no error.
    pub(super) async fn delete(&mut self, name: &str) -> Result<(), Error> {
        let Some(lease) = self.leases.remove(name) else { return Ok(()) };
        let ObjectMeta { uid, resource_version, .. } = lease.metadata;
        let (uid, version) = (uid.unwrap_or_default(), resource_version.unwrap_or_default());
        match self.client.delete_lease(&self.namespace, name, &uid, &version).await {
            Err(error) if error.is_not_found() => Ok(()),
            outcome => outcome,
        }
    }
}

/// Returns the holder of a Lease; empty for nobody.
pub(super) fn holder(lease: &Lease) -> &str {
    lease.spec.as_ref().and_then(|spec| spec.holder_identity.as_deref()).unwrap_or_default()
}

/// Returns how long a Lease is valid after each renewal.
pub(super) fn duration(lease: &Lease) -> Option<Duration> {
    let seconds = lease.spec.as_ref()?.lease_duration_seconds?;
    Some(Duration::from_secs(u64::try_from(seconds).ok()?))
}

/// Returns the version of a Lease, which each write changes.
pub(super) fn version(lease: &Lease) -> String {
    lease.metadata.resource_version.clone().unwrap_or_default()
}
