//! The `Synced` handle: checks whether a cache or handler has synced, or waits for it without polling.
//!
//! Mirrors client-go `tools/cache/synctrack` and `WaitFor` with its `DoneChecker`s.
//!
//! # Guarantees
//! - A synced handle stays synced, even after its setter is dropped. (test: `a_handle_stays_synced`)
//! - A shutdown ends the wait with an error that names the unsynced caches. (test: `shutdown_names_the_unsynced_caches`)

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// Checks whether something has synced, or waits until it has. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Synced {
    name: std::sync::Arc<str>,
    state: watch::Receiver<bool>,
}

/// Marks a [`Synced`] handle as synced.
#[derive(Debug)]
pub struct SyncedSetter {
    state: watch::Sender<bool>,
}

/// Creates a handle and its setter; `name` identifies the handle in errors.
#[must_use]
pub fn pair(name: &str) -> (SyncedSetter, Synced) {
    let (sender, receiver) = watch::channel(false);
    (SyncedSetter { state: sender }, Synced { name: name.into(), state: receiver })
}

impl SyncedSetter {
    /// Marks the handle as synced. Further calls have no effect.
    pub fn set(&self) {
        self.state.send_replace(true);
    }
}

impl Synced {
    /// Returns the name of what syncs.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns whether the handle is synced.
    #[must_use]
    pub fn is_synced(&self) -> bool {
        *self.state.borrow()
    }

    /// Waits until the handle is synced; forever if its setter is dropped before.
    ///
    /// # Cancel safety
    /// Safe: waiting changes nothing.
    pub async fn synced(&self) {
        let mut state = self.state.clone();
        let outcome = state.wait_for(|synced| *synced).await.map(drop);
        if outcome.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

/// The caches that had not synced when the wait ended.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("stopped before these caches synced: {}", .0.join(", "))]
pub struct NotSynced(pub Vec<String>);

/// Waits until all handles are synced.
///
/// # Errors
/// [`NotSynced`] with the names of the unsynced handles if `shutdown` comes first.
///
/// # Cancel safety
/// Safe: waiting changes nothing.
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
    async fn shutdown_names_the_unsynced_caches() {
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
