//! One sync of each object, and no more: nothing that a sync writes is awaited, no sync is retried or requeued, and no
//! event starts another one.
//!
//! A dry run works so, since the caches will never see its writes.
//!
//! # Guarantees
//! - Each object that is queued once the caches have synced has exactly one sync. (test: `each_object_is_synced_once`)
//! - A sync that fails or panics is reported, and holds up no other. (test: `failing_sync_is_reported_beside_others`)

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use futures_util::{FutureExt, future};
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

use super::{Controller, SyncHandler, text_of};
use crate::cache::ObjectName;
use crate::client::explain;
use crate::controller::key::KeyState;
use crate::controller::run::outcome::SyncRequest;
use crate::workqueue::{Listed, Stage};

/// Is told of the syncs of [`Manager::run_once`](crate::controller::Manager::run_once).
pub trait OnceObserver: Send + Sync {
    /// This many syncs of a controller follow.
    fn expects(&self, syncs: usize);

    /// Awaits the sync of an object, and takes its error. `kind` is the object's.
    fn observe<'a>(
        &'a self,
        kind: &'a str,
        key: &'a ObjectName,
        sync: BoxFuture<'a, Result<(), String>>,
    ) -> BoxFuture<'a, ()>;
}

/// An [`OnceObserver`] that the controllers share.
pub type SharedObserver = Arc<dyn OnceObserver>;

impl<H: SyncHandler> Controller<H> {
    /// Waits for the caches, and syncs each queued object once; ends early on `shutdown`.
    pub(in crate::controller) async fn run_once(
        &self,
        observer: SharedObserver,
        shutdown: CancellationToken,
    ) {
        if !self.caches_have_synced(&shutdown).await {
            return;
        }
        let mut keys = self.queue.list(usize::MAX);
        keys.retain(|listed| matches!(listed.stage, Stage::Queued { .. }));
        observer.expects(keys.len());
        self.started.0.set();
        let keys = Mutex::new(keys);
        let workers = (0..self.workers.count()).map(|_| self.sync_all(&keys, &*observer));
        if shutdown.run_until_cancelled(future::join_all(workers)).await.is_none() {
            tracing::info!(controller = self.name, "Shut down before the last sync");
        }
    }

    /// Syncs one key after the other until none is left.
    async fn sync_all(&self, keys: &Mutex<Vec<Listed<ObjectName>>>, observer: &dyn OnceObserver) {
        loop {
            let next = keys.lock().pop();
            let Some(Listed { key, reasons, .. }) = next else { return };
            let span = tracing::info_span!("sync_once", controller = self.name, object = %key);
            let sync = async {
                let mut state = KeyState::default();
                let request = SyncRequest::new(&reasons, &mut state);
                let sync = AssertUnwindSafe(self.handler.sync(&key, request)).catch_unwind();
                match sync.await {
                    Ok(ended) => ended.map(drop).map_err(|error| explain(error.as_error())),
                    Err(panic) => Err(format!("panicked: {}", text_of(&*panic))),
                }
            };
            observer.observe(&self.kind, &key, sync.instrument(span).boxed()).await;
        }
    }
}
