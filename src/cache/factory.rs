//! One informer per kind for the whole process; runs all of them together.
//!
//! Mirrors client-go `informers/factory.go` (`SharedInformerFactory`).
//!
//! # Guarantees
//! - Repeated requests for a kind return the same informer. (test: `a_kind_has_one_informer`)
//!
//! # Differences from client-go
//! `run` is a future that owns the informers' tasks; an informer requested later needs another call
//! of `run`. The first request for a kind determines how it is listed.

use std::any::{Any, TypeId};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

use super::health::CacheState;
use super::index::Indexers;
use super::list_watch::ListWatch;
use super::object::Object;
use super::shared_informer::{InformerConfig, SharedInformer};
use crate::client::ApiClient;

/// How one kind is listed, watched and indexed.
#[derive(Debug)]
pub struct Watched<K> {
    /// Label selector, applied by the server.
    pub label_selector: Option<String>,
    /// Runs on each object after decoding, to drop unused fields.
    pub transform: Option<fn(&mut K)>,
    /// The indexes of the store.
    pub indexers: Indexers<K>,
}

impl<K: Object> Default for Watched<K> {
    fn default() -> Self {
        Self { label_selector: None, transform: None, indexers: Indexers::default() }
    }
}

/// Creates and runs informers; see the module.
pub struct SharedInformerFactory {
    client: ApiClient,
    namespace: Option<String>,
    resync_period: Option<Duration>,
    random: Mutex<fastrand::Rng>,
    informers: Mutex<Vec<Entry>>,
}

struct Entry {
    kind: TypeId,
    informer: Box<dyn Any + Send>,
    run: Option<RunInformer>,
    state: ReadState,
}

/// Reads the state of one kind's cache.
type ReadState = Arc<dyn Fn() -> CacheState + Send + Sync>;

type RunInformer = Box<dyn FnOnce(CancellationToken) -> BoxFuture<'static, ()> + Send>;

// === impl SharedInformerFactory ===

impl SharedInformerFactory {
    /// Creates a factory for informers of one namespace, or of all with `None`.
    #[must_use]
    pub fn new(
        client: ApiClient,
        namespace: Option<String>,
        resync_period: Option<Duration>,
        seed: u64,
    ) -> Self {
        let random = Mutex::new(fastrand::Rng::with_seed(seed));
        Self { client, namespace, resync_period, random, informers: Mutex::new(Vec::new()) }
    }

    /// Returns the namespace of the informers; `None` for all namespaces.
    #[must_use]
    pub fn namespace(&self) -> Option<&str> {
        self.namespace.as_deref()
    }

    /// Returns the informer of this kind, created with `watched` on the first call. `watched` runs under
    /// the factory's lock and must not request another informer.
    pub fn informer<K: Object>(&self, watched: impl FnOnce() -> Watched<K>) -> SharedInformer<K> {
        let mut informers = self.informers.lock();
        let existing = informers.iter().find(|entry| entry.kind == TypeId::of::<K>());
        if let Some(informer) = existing.and_then(|entry| entry.informer.downcast_ref::<SharedInformer<K>>())
        {
            return informer.clone();
        }
        let Watched { label_selector, transform, indexers } = watched();
        let source =
            ListWatch::<K>::new(self.client.clone(), self.namespace.clone(), label_selector, transform);
        let seed = self.random.lock().u64(..);
        let config = InformerConfig { indexers, resync_period: self.resync_period, seed };
        let informer = SharedInformer::new(source, config);
        let running = informer.clone();
        let run: RunInformer = Box::new(move |shutdown| {
            Box::pin(async move {
                running.run(shutdown).await.expect("the informer was already started outside of the factory");
            })
        });
        informers.push(Entry {
            kind: TypeId::of::<K>(),
            informer: Box::new(informer.clone()),
            run: Some(run),
            state: {
                let informer = informer.clone();
                Arc::new(move || informer.state())
            },
        });
        informer
    }

    /// Returns a function that reads the current states of the caches requested so far.
    pub fn states(&self) -> impl Fn() -> Vec<CacheState> + Clone + Send + Sync + 'static {
        let states: Vec<ReadState> = self.informers.lock().iter().map(|entry| entry.state.clone()).collect();
        move || states.iter().map(|state| state()).collect()
    }

    /// Runs all informers requested so far, until `shutdown`.
    ///
    /// # Panics
    /// Propagates a handler's panic.
    ///
    /// # Cancel safety
    /// Not cancel-safe: cancel `shutdown` instead.
    pub async fn run(&self, shutdown: CancellationToken) {
        let scope = shutdown.child_token();
        let mut tasks = JoinSet::new();
        for run in self.informers.lock().iter_mut().filter_map(|entry| entry.run.take()) {
            tasks.spawn(run(scope.clone()).in_current_span());
        }
        while let Some(ended) = tasks.join_next().await {
            if let Err(failure) = ended {
                scope.cancel();
                tasks.shutdown().await;
                std::panic::resume_unwind(failure.into_panic());
            }
        }
    }
}

impl fmt::Debug for SharedInformerFactory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedInformerFactory").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::{ConfigMap, Secret};

    #[tokio::test]
    async fn a_kind_has_one_informer() {
        let service = tower::service_fn(|_: http::Request<kube_client::client::Body>| {
            std::future::pending::<Result<http::Response<kube_client::client::Body>, std::convert::Infallible>>(
            )
        });
        let client = ApiClient::new(kube_client::Client::new(service, "default"));
        let factory = SharedInformerFactory::new(client, None, None, 1);
        let first = factory.informer(Watched::<ConfigMap>::default);
        let again = factory.informer(|| -> Watched<ConfigMap> { unreachable!("the kind is known") });
        assert_eq!(first.name(), again.name());
        assert_eq!(factory.informer(Watched::<Secret>::default).name(), "secrets");
        assert_eq!(factory.informers.lock().len(), 2);
        let shutdown = CancellationToken::new();
        shutdown.cancel();
        factory.run(shutdown).await;
    }
}
