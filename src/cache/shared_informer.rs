//! Ties the parts together: one list and watch, one store, many handlers.
//!
//! Mirrors client-go `tools/cache/shared_informer.go` (`SharedIndexInformer`).
//! Flow: API server -> **[reflector -> fifo -> pump -> store, processor]** -> handlers
//!
//! # What is promised
//! For one object, a handler hears of changes in their order, and finds in the store that state or a
//! later one. Nothing is promised across objects, handlers or informers. A change may be skipped when
//! a later one replaced it before the watch came back; its result never is.
//!
//! # Guarantees
//! - A handler that joins late gets the store as adds, then every change, none missed or doubled. (test: `a_late_handler_misses_and_doubles_nothing`)
//! - Synced means: the first list is in the store. (test: `synced_means_the_first_list_is_in_the_store`)
//! - `run` returns only when all it started has ended. (test: `run_returns_when_all_it_started_has_ended`)
//! - A panic in a handler leaves `run` as a panic. (test: `a_panicking_handler_ends_run`)
//! - A handler that comes too late is refused. (test: `a_handler_after_the_end_is_refused`)
//! - A second `run` is an error. (test: `an_informer_runs_once`)
//! - A relist repairs what lost events have left, and handlers hear of it. (test: `a_relist_repairs_lost_events`)
//!
//! # Differences from client-go
//! `run` is a future that owns its tasks; nothing is spawned elsewhere. Resync is one period for the
//! informer, not one for each handler. Indexers come with the constructor.
//!
//! # Locks and tasks
//! The delivery gate (`processor`) is held while a batch is applied and while a handler joins; it is
//! taken before the store. Tasks: reflector, pump, one for each handler.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use tokio::sync::{Notify, mpsc};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

use super::fifo::Fifo;
use super::health::{CacheState, Trouble};
use super::index::Indexers;
use super::list_watch::ListerWatcher;
use super::listers::Lister;
use super::object::Object;
use super::processor::{EventHandler, Listener, Processor, Registration};
use super::pump::Pump;
use super::reflector::Reflector;
use super::store::{self, Store, StoreWriter};
use super::synctrack::Synced;

/// How an informer is made.
#[derive(Debug)]
pub struct InformerConfig<K> {
    /// The indexes of its store.
    pub indexers: Indexers<K>,
    /// How often handlers hear of every object again; never with `None`. It does not reach the server.
    pub resync_period: Option<Duration>,
    /// Seed of delays and timeouts.
    pub seed: u64,
}

impl<K: Object> Default for InformerConfig<K> {
    fn default() -> Self {
        Self { indexers: Indexers::default(), resync_period: None, seed: 0 }
    }
}

/// One kind, cached. Cheap to clone.
pub struct SharedInformer<K: Object> {
    inner: Arc<Inner<K>>,
}

struct Inner<K: Object> {
    name: String,
    store: Store<K>,
    fifo: Arc<Fifo<K>>,
    /// The delivery gate.
    processor: Mutex<Processor<K>>,
    /// Listeners on their way to the task that runs them.
    listeners: mpsc::UnboundedSender<Listener<K>>,
    /// What `run` needs, until it takes it.
    parts: Mutex<Option<Parts<K>>>,
    trouble: Trouble,
    /// Tells the reflector to list anew.
    relist: Arc<Notify>,
}

struct Parts<K: Object> {
    reflect: Box<dyn FnOnce(CancellationToken) -> BoxFuture<'static, ()> + Send>,
    writer: StoreWriter<K>,
    listeners: mpsc::UnboundedReceiver<Listener<K>>,
}

/// The informer has been run already.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the informer has been started before: an informer runs once")]
pub struct AlreadyStarted;

/// The informer runs no more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the informer has ended: it calls no more handlers")]
pub struct Ended;

// === impl SharedInformer ===

impl<K: Object> SharedInformer<K> {
    /// Makes an informer over this source; nothing happens before [`run`](Self::run).
    #[must_use]
    pub fn new(source: impl ListerWatcher<K>, config: InformerConfig<K>) -> Self {
        let InformerConfig { indexers, resync_period, seed } = config;
        let name = K::resource().to_string();
        let fifo = Arc::new(Fifo::new(&name));
        let (store, writer) = store::pair(indexers);
        let (listeners, listeners_in) = mpsc::unbounded_channel();
        let sink = fifo.clone();
        let trouble = Trouble::default();
        let reported = trouble.clone();
        let relist = Arc::new(Notify::new());
        let requests = relist.clone();

        let reflect = Box::new(move |shutdown| -> BoxFuture<'static, ()> {
            let reflector = Reflector::new(source, sink, resync_period, seed);
            Box::pin(reflector.reporting(reported).relisting(requests).run(shutdown))
        });
        let parts = Mutex::new(Some(Parts { reflect, writer, listeners: listeners_in }));
        let processor = Mutex::new(Processor::new());
        Self { inner: Arc::new(Inner { name, store, fifo, processor, listeners, parts, trouble, relist }) }
    }

    /// What it caches, `plural.group`.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.inner.name
    }

    /// Its store.
    #[must_use]
    pub fn store(&self) -> Store<K> {
        self.inner.store.clone()
    }

    /// Its store as a lister.
    #[must_use]
    pub fn lister(&self) -> Lister<K> {
        Lister::new(self.store())
    }

    /// Whether the first list is in the store. Handlers may still be hearing of it: see
    /// [`Registration::synced`].
    #[must_use]
    pub fn synced(&self) -> Synced {
        self.inner.fifo.synced()
    }

    /// How the cache is now.
    #[must_use]
    pub fn state(&self) -> CacheState {
        CacheState {
            kind: self.inner.name.clone(),
            is_synced: self.synced().is_synced(),
            trouble: self.inner.trouble.get(),
            objects: self.inner.store.len(),
        }
    }

    /// Ends the watch and lists again, so that the cache has the server's newest state soon. Handlers
    /// hear of what differs. Requests that come before that list begins are one.
    pub fn relist(&self) {
        self.inner.relist.notify_one();
    }

    /// Adds a handler, before or while the informer runs. It hears first of what is in the store.
    ///
    /// # Errors
    /// [`Ended`] when the informer runs no more.
    pub fn add_event_handler(&self, handler: impl EventHandler<K>) -> Result<Registration, Ended> {
        let mut processor = self.inner.processor.lock();
        let mut stored = self.inner.store.list();
        stored.sort_by_key(super::object::Cached::object_name);
        let (registration, listener) =
            processor.add(&self.inner.name, Box::new(handler), stored).ok_or(Ended)?;
        self.inner.listeners.send(listener).map_err(|_| Ended)?;
        Ok(registration)
    }

    /// Removes a handler: it is not called again once a call that is under way returns. One of another
    /// informer, or one removed before, is left as it is.
    pub fn remove_event_handler(&self, registration: &Registration) {
        self.inner.processor.lock().remove(registration);
    }

    /// Lists, watches and notifies until `shutdown`; what is queued by then is still delivered.
    ///
    /// # Errors
    /// [`AlreadyStarted`].
    ///
    /// # Panics
    /// With the panic of a handler: the process is to end.
    ///
    /// # Cancel safety
    /// Not cancel-safe: end it by the token.
    pub async fn run(&self, shutdown: CancellationToken) -> Result<(), AlreadyStarted> {
        let Parts { reflect, writer, mut listeners } =
            self.inner.parts.lock().take().ok_or(AlreadyStarted)?;
        let scope = shutdown.child_token();
        let mut tasks = JoinSet::new();
        let inner = self.inner.clone();
        let reflecting = reflect(scope.clone());
        let reflecting = async move {
            reflecting.await;
            inner.fifo.close();
        };
        tasks.spawn(reflecting.in_current_span());
        tasks.spawn(pump(self.inner.clone(), Pump::new(self.store(), writer)).in_current_span());
        loop {
            tokio::select! {
                biased;
                ended = tasks.join_next() => match ended {
                    Some(Ok(())) => {}
                    Some(Err(failure)) => {
                        scope.cancel();
                        self.inner.processor.lock().close();
                        tasks.shutdown().await;
                        if failure.is_panic() {
                            std::panic::resume_unwind(failure.into_panic());
                        }
                    }
                    None => return Ok(()),
                },
                Some(listener) = listeners.recv() => {
                    tasks.spawn(listener.run().in_current_span());
                }
            }
        }
    }
}

/// Applies batches until the FIFO is closed and empty, then lets the listeners end.
async fn pump<K: Object>(inner: Arc<Inner<K>>, mut pump: Pump<K>) {
    while let Some(batch) = inner.fifo.pop_batch().await {
        let is_initial_list = batch.is_initial_list;
        {
            let mut processor = inner.processor.lock();
            pump.apply(batch, &mut processor);
        }
        inner.fifo.processed(is_initial_list);
    }
    inner.processor.lock().close();
}

impl<K: Object> Clone for SharedInformer<K> {
    fn clone(&self) -> Self {
        Self { inner: self.inner.clone() }
    }
}

impl<K: Object> fmt::Debug for SharedInformer<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedInformer").field("name", &self.inner.name).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
