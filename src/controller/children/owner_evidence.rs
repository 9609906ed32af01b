//! The last live read of an owner, which the writes of one pass share.
//!
//! # Guarantees
//! - One read serves 64 writes within a second, including concurrent writes. (test: `one_owner_read_serves_64_writes`)

use std::collections::BTreeMap;
use std::time::Duration;

use parking_lot::Mutex;
use serde::Deserialize;
use tokio::sync::{AcquireError, Semaphore, SemaphorePermit};
use tokio::time::Instant;

use crate::cache::Meta;

/// The number of writes that one live read of the owner serves.
const EVIDENCE_WRITES: u32 = 64;
/// How long a live read of the owner stays valid.
pub(in crate::controller) const EVIDENCE_AGE: Duration = Duration::from_secs(1);

/// The last live read of an owner, for one pass.
#[derive(Debug)]
pub(in crate::controller) struct OwnerEvidence {
    /// Held while the owner is read, so that concurrent writes share one read.
    reading: Semaphore,
    last: Mutex<Option<Evidence>>,
}

#[derive(Debug)]
struct Evidence {
    meta: LiveMeta,
    read_at: Instant,
    writes_left: u32,
}

/// The fields of the owner that the check needs.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(in crate::controller) struct LiveMeta {
    pub(in crate::controller) uid: String,
    pub(in crate::controller) resource_version: String,
    pub(in crate::controller) generation: i64,
    pub(in crate::controller) deletion_timestamp: Option<String>,
    pub(in crate::controller) finalizers: Vec<String>,
    pub(in crate::controller) annotations: BTreeMap<String, String>,
}

/// An object of which only the metadata is decoded.
#[derive(Deserialize)]
pub(in crate::controller) struct PartialObject<M = Meta> {
    pub(in crate::controller) metadata: M,
}

// === impl OwnerEvidence ===

impl Default for OwnerEvidence {
    fn default() -> Self {
        Self { reading: Semaphore::new(1), last: Mutex::default() }
    }
}

impl OwnerEvidence {
    /// Waits until no other write reads the owner; returns a permit to read.
    pub(in crate::controller) async fn reading(&self) -> Result<SemaphorePermit<'_>, AcquireError> {
        self.reading.acquire().await
    }

    /// Returns the last read, and counts one write against it.
    pub(in crate::controller) fn take(&self) -> Option<LiveMeta> {
        let mut last = self.last.lock();
        let evidence = last.as_mut()?;
        if evidence.read_at.elapsed() > EVIDENCE_AGE {
            return None;
        }
        evidence.writes_left = evidence.writes_left.checked_sub(1)?;
        Some(evidence.meta.clone())
    }

    pub(in crate::controller) fn put(&self, meta: LiveMeta) {
        let writes_left = EVIDENCE_WRITES - 1;
        *self.last.lock() = Some(Evidence { meta, read_at: Instant::now(), writes_left });
    }
}
