//! The leader election record, kept in a Lease.
//!
//! Mirrors client-go `tools/leaderelection/resourcelock/leaselock.go`.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};

use crate::api::ApiResource;
use crate::client::{ApiClient, Error};
use crate::record::Regarding;

/// The leader, and the times of its lease.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LeaderElectionRecord {
    /// The leader; empty after a release.
    pub holder_identity: String,
    /// How long the lease is valid after each renewal, in whole seconds.
    pub lease_duration: Duration,
    /// When the leader took the lease, by its own clock.
    pub acquire_time: Option<Timestamp>,
    /// When the leader renewed the lease last, by its own clock.
    pub renew_time: Option<Timestamp>,
    /// How often the lease has changed hands.
    pub leader_transitions: i32,
}

/// Reads and writes the record of one Lease.
#[derive(Debug)]
pub struct LeaseLock {
    client: ApiClient,
    namespace: String,
    name: String,
    /// The Lease as last read or written. Updates keep its labels and carry its resource version.
    lease: Option<Lease>,
}

// === impl LeaseLock ===

impl LeaseLock {
    /// Creates a lock on the Lease of this name, which need not exist.
    #[must_use]
    pub fn new(client: ApiClient, namespace: String, name: String) -> Self {
        Self { client, namespace, name, lease: None }
    }

    /// Returns the client whose gate the lock opens.
    #[must_use]
    pub fn client(&self) -> &ApiClient {
        &self.client
    }

    /// Returns `namespace/name`, for messages.
    #[must_use]
    pub fn describe(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }

    /// Reads the record live; `None` if there is no Lease.
    ///
    /// # Errors
    /// [`Error`].
    pub async fn get(&mut self) -> Result<Option<LeaderElectionRecord>, Error> {
        self.lease = self.client.get_lease(&self.namespace, &self.name).await?;
        Ok(self.lease.as_ref().map(record_of))
    }

    /// Creates the Lease.
    ///
    /// # Errors
    /// [`Error`]; another candidate may have created it first.
    pub async fn create(&mut self, record: &LeaderElectionRecord) -> Result<(), Error> {
        let metadata = ObjectMeta { name: Some(self.name.clone()), ..ObjectMeta::default() };
        let mut lease = Lease { metadata, ..Lease::default() };
        write(record, &mut lease);
        self.lease = Some(self.client.create_lease(&self.namespace, &lease).await?);
        Ok(())
    }

    /// Writes the record into the Lease that [`get`](Self::get) or the last write returned.
    ///
    /// # Errors
    /// [`Error`]; a conflict if the Lease has changed since, or was never read.
    pub async fn update(&mut self, record: &LeaderElectionRecord) -> Result<(), Error> {
        let mut lease = self.lease.clone().unwrap_or_default();
        write(record, &mut lease);
        self.lease = Some(self.client.replace_lease(&self.namespace, &self.name, &lease).await?);
        Ok(())
    }

    /// Returns the Lease as the object of an event.
    #[must_use]
    pub fn regarding(&self) -> Regarding {
        let (resource, meta) = (ApiResource::of::<Lease>(), self.lease.as_ref().map(|lease| &lease.metadata));
        let text = |field: fn(&ObjectMeta) -> &Option<String>| meta.and_then(|meta| field(meta).clone());
        Regarding {
            api_version: resource.api_version(),
            kind: resource.kind.to_string(),
            namespace: Some(self.namespace.clone()),
            name: self.name.clone(),
            uid: text(|meta| &meta.uid).unwrap_or_default(),
            resource_version: text(|meta| &meta.resource_version).unwrap_or_default(),
        }
    }
}

fn record_of(lease: &Lease) -> LeaderElectionRecord {
    let spec = lease.spec.clone().unwrap_or_default();
    let seconds = u64::try_from(spec.lease_duration_seconds.unwrap_or_default()).unwrap_or_default();
    LeaderElectionRecord {
        holder_identity: spec.holder_identity.unwrap_or_default(),
        lease_duration: Duration::from_secs(seconds),
        acquire_time: spec.acquire_time.map(|MicroTime(time)| time),
        renew_time: spec.renew_time.map(|MicroTime(time)| time),
        leader_transitions: spec.lease_transitions.unwrap_or_default(),
    }
}

fn write(record: &LeaderElectionRecord, lease: &mut Lease) {
    let spec = lease.spec.get_or_insert_with(LeaseSpec::default);
    spec.holder_identity = Some(record.holder_identity.clone());
    spec.lease_duration_seconds = i32::try_from(record.lease_duration.as_secs()).ok();
    spec.acquire_time = record.acquire_time.map(MicroTime);
    spec.renew_time = record.renew_time.map(MicroTime);
    spec.lease_transitions = Some(record.leader_transitions);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// client-go: `TestLeaseSpecToLeaderElectionRecordRoundTrip`
    #[test]
    fn record_survives_the_lease() {
        let record = LeaderElectionRecord {
            holder_identity: "a".to_owned(),
            lease_duration: Duration::from_secs(15),
            acquire_time: Some(Timestamp::UNIX_EPOCH),
            renew_time: Some(Timestamp::UNIX_EPOCH),
            leader_transitions: 3,
        };
        let mut lease = Lease::default();
        write(&record, &mut lease);
        assert_eq!(record_of(&lease), record);
        assert_eq!(record_of(&Lease::default()), LeaderElectionRecord::default());
    }
}
