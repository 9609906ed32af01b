//! The shared informer of one kind: one list and watch, one store, many handlers.
//!
//! Mirrors client-go `tools/cache/shared_informer.go` (`SharedIndexInformer`).
//! Flow: API server -> **[reflector -> fifo -> pump -> store, processor]** -> handlers
//! Chapter 4 of `docs/book` builds this from nothing.
//!
//! # Delivery
//! A handler is notified of the changes to one object in order, and finds the notified state or a later
//! one in the store. There is no order across objects, handlers or informers. A change may be skipped
//! if a later one replaced it while the watch was interrupted; the latest state is never skipped.
//!
//! # Guarantees
//! - A handler added late receives the stored objects as adds, then every change exactly once. (test: `late_handler_sees_each_change_once`)
//! - An informer is synced once the first list is in the store. (test: `informer_syncs_when_first_list_is_stored`)
//! - `run` returns only after all of its tasks have ended. (test: `run_returns_after_all_its_tasks_end`)
//! - `run` propagates a panic of the informer's own tasks, such as that of an index function. (test: `panicking_index_ends_run`)
//! - Adding a handler to an ended informer is an error. (test: `ended_informer_rejects_handlers`)
//! - A second `run` is an error. (test: `second_run_is_an_error`)
//! - A relist recovers lost events and notifies the handlers. (test: `relist_recovers_lost_events`)
//!
//! # Differences from client-go
//! `run` is a future that owns its tasks; nothing is spawned elsewhere.
//!
//! # Locks and tasks
//! The delivery lock (`processor`) is held while a batch is applied and while a handler is added; it is
//! taken before the locks of the store. Tasks: reflector, pump, one per handler.

use std::fmt;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use tokio::sync::{Notify, mpsc};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

use super::health::{CacheState, ReflectorHealth};
use super::object::Object;
use super::object::cached::Cached;
use super::processor::handlers::EventHandler;
use super::processor::listener::{Listener, until};
use super::processor::pump::Pump;
use super::processor::resync::ResyncPeriod;
use super::processor::{HandlerOptions, HandlerResync, Processor, Registration};
use super::reflector::list_watch::{ListerWatcher, Selection, Traffic};
use super::reflector::{Reflector, WatchErrorHandler};
use super::store::fifo::Fifo;
use super::store::index::{IndexConflict, Indexers};
use super::store::listers::Lister;
use super::store::{self, Store, StoreWriter};
use super::synctrack::Synced;
use crate::api::ApiResource;
use crate::client::shards::CacheShards;

/// Configuration of an informer.
#[derive(Debug)]
pub struct InformerConfig<K> {
    /// The label `name` of its metrics, which tells apart the informers of one kind.
    pub name: String,
    /// The indexes of the store.
    pub indexers: Indexers<K>,
    /// How often handlers are notified of every object again, without a request; `None` for never. A handler may have a
    /// period of its own: see [`SharedInformer::add_event_handler_with`].
    pub resync_period: Option<ResyncPeriod>,
    /// Called with each failure of a list, or of opening a watch; it must be quick. Failures are logged in any case.
    pub on_watch_error: Option<WatchErrorHandler>,
    /// The part that this cache has in the shards of the process; `None` to cache all objects.
    pub shards: Option<CacheShards>,
    /// Seed of the random delays and timeouts.
    pub seed: u64,
}

impl<K: Object> Default for InformerConfig<K> {
    fn default() -> Self {
        Self {
            name: String::new(),
            indexers: Indexers::default(),
            resync_period: None,
            on_watch_error: None,
            shards: None,
            seed: 0,
        }
    }
}

/// The cache of one kind and its handlers; see the module. Cheap to clone.
pub struct SharedInformer<K: Object> {
    inner: Arc<Inner<K>>,
}

struct Inner<K: Object> {
    resource: ApiResource,
    selection: Selection,
    /// The kind, `plural.group`.
    kind: String,
    /// The label `name` of its metrics.
    metrics_name: String,
    resync_period: Option<ResyncPeriod>,
    traffic: Traffic,
    shards: Option<CacheShards>,
    store: Store<K>,
    fifo: Arc<Fifo<K>>,
    /// The delivery lock.
    processor: Mutex<Processor<K>>,
    /// Hands new listeners to `run`.
    listeners: mpsc::UnboundedSender<Listener<K>>,
    /// The parts that `run` takes; `None` afterwards.
    parts: Mutex<Option<Parts<K>>>,
    /// The state of the reflector.
    shared: ReflectorHealth,
    handlers: Mutex<Vec<Registration>>,
    /// Tells the pump that the next resync may be due earlier.
    resync_added: Notify,
    /// Tells the reflector to list again.
    relist: Arc<Notify>,
}

struct Parts<K: Object> {
    reflect: Box<dyn FnOnce(CancellationToken) -> BoxFuture<'static, ()> + Send>,
    writer: StoreWriter<K>,
    listeners: mpsc::UnboundedReceiver<Listener<K>>,
}

/// The informer has already been run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the informer was already started; an informer can run only once")]
pub struct AlreadyStarted;

/// The informer has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the informer has ended and cannot accept handlers")]
pub struct Ended;

// === impl SharedInformer ===

impl<K: Object> SharedInformer<K> {
    /// Creates an informer over `source`, which is idle until [`run`](Self::run).
    #[must_use]
    pub fn new(source: impl ListerWatcher<K>, config: InformerConfig<K>) -> Self {
        let InformerConfig { name, indexers, resync_period, on_watch_error, shards, seed } = config;
        let (resource, selection) = (source.resource(), source.selection());
        let kind = resource.to_string();
        let fifo = Arc::new(Fifo::new(&kind));
        let (store, writer) = store::pair(indexers);
        let (listeners, listeners_in) = mpsc::unbounded_channel();
        let sink = fifo.clone();
        let shared = ReflectorHealth::default();
        let reported = shared.clone();
        let relist = Arc::new(Notify::new());
        let requests = relist.clone();
        let stored = store.clone();
        let traffic = source.traffic();
        let scopes = shards.clone();

        let reflect = Box::new(move |shutdown| -> BoxFuture<'static, ()> {
            let reflector = Reflector::new(source, sink, stored, seed);
            let reflector = reflector.reporting(reported).relisting(requests).telling(on_watch_error);
            Box::pin(reflector.sharded(scopes).run(shutdown))
        });
        let parts = Mutex::new(Some(Parts { reflect, writer, listeners: listeners_in }));
        let inner = Inner {
            resource,
            selection,
            kind,
            metrics_name: name,
            resync_period,
            traffic,
            shards,
            store,
            fifo,
            processor: Mutex::new(Processor::new()),
            listeners,
            parts,
            shared,
            handlers: Mutex::default(),
            resync_added: Notify::new(),
            relist,
        };
        Self { inner: Arc::new(inner) }
    }

    /// Returns the cached kind, as `plural.group`.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.inner.kind
    }

    /// Returns the cached kind.
    #[must_use]
    pub fn resource(&self) -> &ApiResource {
        &self.inner.resource
    }

    /// Returns which objects of the kind are cached.
    #[must_use]
    pub fn selection(&self) -> &Selection {
        &self.inner.selection
    }

    /// Returns the part that this cache has in the shards of the process, if it has shards.
    #[must_use]
    pub fn shards(&self) -> Option<&CacheShards> {
        self.inner.shards.as_ref()
    }

    /// Returns the store.
    #[must_use]
    pub fn store(&self) -> Store<K> {
        self.inner.store.clone()
    }

    /// Returns the store as a lister.
    #[must_use]
    pub fn lister(&self) -> Lister<K> {
        Lister::new(self.store())
    }

    /// Returns a handle that is synced once the first list is in the store. Handlers may not have been
    /// notified of all of it: see [`Registration::synced`].
    #[must_use]
    pub fn synced(&self) -> Synced {
        self.inner.fifo.synced()
    }

    /// Returns the current state of the cache.
    #[must_use]
    pub fn state(&self) -> CacheState {
        let inner = &*self.inner;
        CacheState {
            name: inner.metrics_name.clone(),
            resource: inner.resource.clone(),
            kind: inner.kind.clone(),
            namespace: inner.selection.namespace.clone(),
            is_synced: self.synced().is_synced(),
            trouble: inner.shared.trouble(),
            objects: inner.store.len(),
            resource_version: inner.store.resource_version(),
            progress: inner.shared.progress(),
            queued: inner.fifo.len(),
            processing: inner.shared.processing(),
            traffic: inner.traffic.clone(),
            handlers: inner.handlers.lock().iter().map(Registration::state).collect(),
        }
    }

    /// Adds indexes, before or while the informer runs: all of them or none. One that exists with the same function is
    /// kept.
    ///
    /// # Errors
    /// [`IndexConflict`] if an index of this name has another function.
    pub fn add_indexers(&self, indexers: Indexers<K>) -> Result<(), IndexConflict> {
        // Nothing is written to the store under the delivery lock.
        let _delivery = self.inner.processor.lock();
        self.inner.store.add_indexers(indexers)
    }

    /// Ends the watch and lists the server's newest state; handlers are notified of the differences.
    /// Requests made before that list begins are merged.
    pub fn relist(&self) {
        self.inner.relist.notify_one();
    }

    /// Adds a handler, before or while the informer runs. The handler is first notified of the stored objects.
    ///
    /// # Errors
    /// [`Ended`] if the informer has ended.
    pub fn add_event_handler<H: EventHandler<K>>(&self, handler: H) -> Result<Registration, Ended> {
        self.add_event_handler_with(handler, HandlerOptions::default())
    }

    /// Like [`add_event_handler`](Self::add_event_handler), with a name and a resync period of the handler's own.
    ///
    /// Mirrors `AddEventHandlerWithResyncPeriod` and `AddEventHandlerWithOptions`.
    ///
    /// # Errors
    /// [`Ended`] if the informer has ended.
    pub fn add_event_handler_with<H: EventHandler<K>>(
        &self,
        handler: H,
        options: HandlerOptions,
    ) -> Result<Registration, Ended> {
        let HandlerOptions { name, resync } = options;
        let name = name.unwrap_or_else(short_name::<H>);
        let inner = &*self.inner;
        let resync = match resync {
            HandlerResync::OfInformer => inner.resync_period,
            HandlerResync::Never => None,
            HandlerResync::Every(period) => Some(period),
        };
        let mut processor = inner.processor.lock();
        let mut stored = inner.store.list();
        stored.sort_by_cached_key(Cached::object_name);
        let added = processor.add(&inner.kind, name, resync, Box::new(handler), stored);
        let (registration, listener) = added.ok_or(Ended)?;
        inner.listeners.send(listener).map_err(|_| Ended)?;
        inner.handlers.lock().push(registration.clone());
        inner.resync_added.notify_one();
        Ok(registration)
    }

    /// Removes a handler, which is not called again once a call in progress returns. Ignores a registration
    /// that was already removed, or belongs to another informer.
    pub fn remove_event_handler(&self, registration: &Registration) {
        self.inner.processor.lock().remove(registration);
        self.inner.handlers.lock().retain(|handler| !handler.is(registration));
    }

    /// Like [`remove_event_handler`](Self::remove_event_handler), and waits until a call in progress has returned. Must
    /// not be awaited by the handler itself.
    ///
    /// Mirrors `ShutDownEventHandler`.
    ///
    /// # Cancel safety
    /// Safe: the handler is removed at the first poll.
    pub async fn shut_down_event_handler(&self, registration: &Registration) {
        self.remove_event_handler(registration);
        registration.ended().await;
    }

    /// Lists, watches and notifies until `shutdown`; changes queued by then are still delivered.
    ///
    /// # Errors
    /// [`AlreadyStarted`] on a second call.
    ///
    /// # Panics
    /// Propagates a panic of an index function, which should end the process. A handler's panic is only logged.
    ///
    /// # Cancel safety
    /// Not cancel-safe: cancel `shutdown` instead.
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
        tasks.spawn(
            pump(self.inner.clone(), Pump::new(&self.inner.kind, self.store(), writer)).in_current_span(),
        );
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

/// Returns the name of a type without its modules: `EnqueueOwner<Foo>`.
fn short_name<T>() -> String {
    let full = std::any::type_name::<T>();
    full.split_inclusive(['<', '>', '(', ',', ' ']).filter_map(|part| part.rsplit("::").next()).collect()
}

/// Applies batches until the FIFO is closed and empty, then ends the listeners.
async fn pump<K: Object>(inner: Arc<Inner<K>>, mut pump: Pump<K>) {
    loop {
        let next_resync = inner.processor.lock().next_resync();
        let batch = tokio::select! {
            biased;
            () = until(next_resync) => {
                pump.resync(&inner.processor).await;
                continue;
            }
            batch = inner.fifo.pop_batch() => batch,
            () = inner.resync_added.notified() => continue,
        };
        let Some(batch) = batch else { break };
        let is_initial_list = batch.is_initial_list;
        let started = Instant::now();
        pump.apply(batch, &inner.processor).await;
        inner.shared.processed(started.elapsed());
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
        f.debug_struct("SharedInformer").field("kind", &self.inner.kind).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
