//! One pass over each object, whose writes the server answers and does not store.
//!
//! Nothing follows from a pass here: it is neither retried nor requeued, no event starts another one, and the guard for
//! own writes is not asked, since the caches will never see them.
//!
//! # Guarantees
//! - Each object of the first list has exactly one pass. (test: `a_dry_run_passes_once_over_each_object`)
//! - A pass that fails or panics is reported, and holds up no other.
//!   (test: `failing_dry_pass_is_reported_beside_others`)

use std::panic::AssertUnwindSafe;

use futures_util::{FutureExt, future};
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

use super::{Controller, SyncHandler, text_of};
use crate::cache::ObjectName;
use crate::client::dry_run::{DryRun, Pass, recorded};
use crate::controller::key::KeyState;
use crate::controller::run::outcome::SyncRequest;
use crate::workqueue::{Listed, Reason};

impl<H: SyncHandler> Controller<H> {
    /// Passes once over each object that is queued because it exists, and reports what each pass would do.
    pub(super) async fn run_dry(&self, kind: &str, dry_run: &DryRun, shutdown: &CancellationToken) {
        let mut keys = self.queue.list(usize::MAX);
        keys.retain(|listed| listed.reasons.contains(&Reason::Initial));
        dry_run.expect(keys.len());
        self.started.0.set();
        let at_once = self.workers.count();
        let keys = Mutex::new(keys);
        let workers = future::join_all((0..at_once).map(|_| self.work_dry(kind, &keys, dry_run)));
        if shutdown.run_until_cancelled(workers).await.is_none() {
            tracing::info!(controller = self.name, "Shut down before the end of the dry run");
        }
    }

    /// Passes over one key after the other until none is left.
    async fn work_dry(&self, kind: &str, keys: &Mutex<Vec<Listed<ObjectName>>>, dry_run: &DryRun) {
        loop {
            let next = keys.lock().pop();
            let Some(listed) = next else { return };
            dry_run.ended(self.pass_dry(kind, listed).await);
        }
    }

    async fn pass_dry(&self, kind: &str, Listed { key, reasons, .. }: Listed<ObjectName>) -> Pass {
        let span = tracing::info_span!("dry_run", controller = self.name, object = %key);
        let mut state = KeyState::default();
        let request = SyncRequest::new(&reasons, &mut state);
        let sync = AssertUnwindSafe(async { self.handler.sync(&key, request).await }).catch_unwind();
        let (ended, steps) = recorded(sync).instrument(span).await;
        let namespace = key.namespace().map(str::to_owned);
        let pass = Pass { kind: kind.to_owned(), namespace, name: key.name().to_owned(), steps, error: None };
        match ended {
            Ok(Ok(_)) => pass,
            Ok(Err(error)) => pass.failed(error.as_error()),
            Err(panic) => Pass { error: Some(format!("panicked: {}", text_of(&*panic))), ..pass },
        }
    }
}
