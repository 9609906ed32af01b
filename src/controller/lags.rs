//! Notices that a child's `observedGeneration` is behind for a moment, so that Ready does not flap.
//!
//! A foreign annotation raises the generation of a Deployment, and its controller answers some milliseconds later. Only a
//! lag that lasts [`PATIENCE`] is news; after a write of our own each lag is, as `kubectl wait` must not lie.
//!
//! # Guarantees
//! - A lag is passed over for a second, and no longer. (test: `a_lag_is_passed_over_for_a_second`)
//! - After a write of ours it is not, until the status has been stored. (test: `a_lag_after_our_own_write_counts`)
//! - Objects that do not lag take no memory. (test: `what_does_not_lag_takes_no_memory`)
//!
//! # Differences from client-go
//! It has nothing like it.

use std::collections::HashMap;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::cache::ObjectName;

/// How long a lag is passed over.
pub(super) const PATIENCE: Duration = Duration::from_secs(1);

/// The objects one of whose children lags, or was written and not yet reported.
#[derive(Debug, Default)]
pub(super) struct Lags {
    by_object: Mutex<HashMap<ObjectName, Lag>>,
}

#[derive(Debug)]
enum Lag {
    /// By itself.
    Since(Instant),
    /// After a write of ours.
    Written,
}

// === impl Lags ===

impl Lags {
    /// A child of the object lags: how much longer that is passed over.
    pub(super) fn time_left(&self, object: &ObjectName) -> Option<Duration> {
        let mut by_object = self.by_object.lock();
        match by_object.entry(object.clone()).or_insert_with(|| Lag::Since(Instant::now())) {
            Lag::Since(since) => PATIENCE.checked_sub(since.elapsed()).filter(|left| !left.is_zero()),
            Lag::Written => None,
        }
    }

    /// A child of the object was written, or is not as wanted.
    pub(super) fn written(&self, object: &ObjectName) {
        self.by_object.lock().insert(object.clone(), Lag::Written);
    }

    /// The status of the object is stored, and all writes with it; and whether a child lags still.
    pub(super) fn reported(&self, object: &ObjectName, lags: bool) {
        let mut by_object = self.by_object.lock();
        if !lags || matches!(by_object.get(object), Some(Lag::Written)) {
            by_object.remove(object);
        }
    }

    /// The object is gone.
    pub(super) fn forget(&self, object: &ObjectName) {
        self.by_object.lock().remove(object);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object() -> ObjectName {
        ObjectName::new(Some("ns"), "one")
    }

    #[tokio::test(start_paused = true)]
    async fn a_lag_is_passed_over_for_a_second() {
        let lags = Lags::default();
        assert_eq!(lags.time_left(&object()), Some(PATIENCE));
        lags.reported(&object(), true);
        tokio::time::advance(PATIENCE / 2).await;
        assert_eq!(lags.time_left(&object()), Some(PATIENCE / 2));
        tokio::time::advance(PATIENCE / 2).await;
        assert_eq!(lags.time_left(&object()), None);
        lags.reported(&object(), false);
        assert_eq!(lags.time_left(&object()), Some(PATIENCE), "another lag");
    }

    #[tokio::test(start_paused = true)]
    async fn a_lag_after_our_own_write_counts() {
        let lags = Lags::default();
        lags.written(&object());
        assert_eq!(lags.time_left(&object()), None);
        lags.reported(&object(), true);
        assert_eq!(lags.time_left(&object()), Some(PATIENCE));
    }

    #[tokio::test(start_paused = true)]
    async fn what_does_not_lag_takes_no_memory() {
        let lags = Lags::default();
        lags.time_left(&object());
        lags.reported(&object(), false);
        lags.written(&object());
        lags.reported(&object(), false);
        lags.written(&object());
        lags.reported(&object(), true);
        lags.time_left(&object());
        lags.forget(&object());
        assert!(lags.by_object.lock().is_empty());
    }
}
