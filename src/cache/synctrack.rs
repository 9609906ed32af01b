//! The `Synced` handle: ask whether something has caught up, or wait for it. No polling.
//!
//! Mirrors client-go `tools/cache/synctrack` and `WaitFor` with its `DoneChecker`s.
//!
//! # Guarantees
//! - Once synced, always synced, also when the setter is gone. (test: `a_handle_stays_synced`)
//! - Waiting ends with the shutdown, and says who was missing. (test: `waiting_names_who_is_missing`)

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// Asks whether something has synced, or waits until it has. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Synced {
    name: std::sync::Arc<str>,
    state: watch::Receiver<bool>,
}

/// Says so, once.
#[derive(Debug)]
pub struct SyncedSetter {
    state: watch::Sender<bool>,
}

/// Makes the two ends; `name` is what a waiter is told.
#[must_use]
pub fn pair(name: &str) -> (SyncedSetter, Synced) {
    let (sender, receiver) = watch::channel(false);
    (SyncedSetter { state: sender }, Synced { name: name.into(), state: receiver })
}

impl SyncedSetter {
    /// Marks as synced; more than once is the same as once.
    pub fn set(&self) {
        self.state.send_replace(true);
    }
}

impl Synced {
    /// What it is that syncs.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether it has synced.
    #[must_use]
    pub fn is_synced(&self) -> bool {
        *self.state.borrow()
    }

    /// Waits until it has synced; for ever, when its setter ends without.
    ///
    /// # Cancel safety
    /// Safe: it only looks.
    pub async fn synced(&self) {
        let mut state = self.state.clone();
        let outcome = state.wait_for(|synced| *synced).await.map(drop);
        if outcome.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

/// The caches that had not synced when the wait was given up.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("stopped before these caches had synced: {}", .0.join(", "))]
pub struct NotSynced(pub Vec<String>);

/// Waits until all have synced.
///
/// # Errors
/// [`NotSynced`] with the names of those that are missing when `shutdown` comes first.
///
/// # Cancel safety
/// Safe: it only looks.
pub async fn wait_for_cache_sync(handles: &[Synced], shutdown: &CancellationToken) -> Result<(), NotSynced> {
    for handle in handles {
        tokio::select! {
            biased;
            () = handle.synced() => {}
            () = shutdown.cancelled() => {
                let missing = handles.iter().filter(|h| !h.is_synced());
                return Err(NotSynced(missing.map(|h| h.name().to_owned()).collect()));
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_handle_stays_synced() {
        let (setter, synced) = pair("foos");
        assert!(!synced.is_synced());
        setter.set();
        drop(setter);
        assert!(synced.is_synced());
        synced.synced().await;
    }

    /// client-go: `TestWaitFor`
    #[tokio::test]
    async fn waiting_names_who_is_missing() {
        let (ready, first) = pair("foos");
        let (_never, second) = pair("deployments");
        ready.set();
        let shutdown = CancellationToken::new();
        shutdown.cancel();
        let error = wait_for_cache_sync(&[first.clone(), second], &shutdown).await.unwrap_err();
        assert_eq!(error, NotSynced(vec!["deployments".to_owned()]));
        assert_eq!(wait_for_cache_sync(&[first], &CancellationToken::new()).await, Ok(()));
    }
}
