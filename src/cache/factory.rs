//! One informer per kind for the whole process; runs all of them together.
//!
//! Mirrors client-go `informers/factory.go` (`SharedInformerFactory`).
//!
//! # Guarantees
//! - Repeated requests for a kind with the same selectors return the same informer, with the indexes of all
//!   requests. (test: `a_kind_has_one_informer_for_each_selector`)
//! - Requests that contradict each other are errors. (test: `contradicting_request_is_an_error`)
//!
//! # Differences from client-go
//! `run` is a future that owns the informers' tasks; an informer requested later needs another call
//! of `run`. client-go shares an informer by type alone.

use std::any::{Any, TypeId};
use std::fmt;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

use super::health::CacheState;
use super::http::{ListWatch, Transform};
use super::index::{IndexConflict, Indexers};
use super::object::Object;
use super::resync::ResyncPeriod;
use super::shared_informer::{InformerConfig, SharedInformer};
use crate::client::ApiClient;

/// How one kind is listed, watched and indexed.
#[derive(Debug)]
pub struct Watched<K> {
    /// Label selector, applied by the server.
    pub label_selector: Option<String>,
    /// Field selector, applied by the server.
    pub field_selector: Option<String>,
    /// Runs on each object after decoding, to drop unused fields.
    pub transform: Option<Transform<K>>,
    /// The indexes of the store.
    pub indexers: Indexers<K>,
}

impl<K: Object> Default for Watched<K> {
    fn default() -> Self {
        Self { label_selector: None, field_selector: None, transform: None, indexers: Indexers::default() }
    }
}

/// Creates and runs informers; see the module.
pub struct SharedInformerFactory {
    client: ApiClient,
    namespace: Option<String>,
    resync_period: Option<ResyncPeriod>,
    random: Mutex<fastrand::Rng>,
    informers: Mutex<Vec<Entry>>,
}

/// A request for an informer that cannot be met.
#[derive(Debug, thiserror::Error)]
pub enum InformerError {
    /// A kind without namespaces cannot be watched in one.
    #[error(
        "{kind} are not in namespaces and cannot be watched in {namespace:?}; use a factory for all namespaces"
    )]
    ClusterScoped {
        /// The kind, `plural.group`.
        kind: String,
        /// The factory's namespace.
        namespace: String,
    },
    /// The informer exists with another function for one of the indexes.
    #[error("informer of {kind}: {source}")]
    Index {
        /// The kind, `plural.group`.
        kind: String,
        /// The index.
        source: IndexConflict,
    },
    /// The informer exists with another transform, or without one.
    #[error("the informer of {kind} exists with another transform; use the same one")]
    Transform {
        /// The kind, `plural.group`.
        kind: String,
    },
}

/// What an informer is shared by.
#[derive(Debug, PartialEq, Eq)]
struct Selection {
    kind: TypeId,
    label_selector: Option<String>,
    field_selector: Option<String>,
}

struct Entry {
    /// `plural.group`.
    kind: String,
    selection: Selection,
    transform: Option<TypeId>,
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
        resync_period: Option<ResyncPeriod>,
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

    /// Returns the informer of this kind with these selectors, which is created on the first request. Its indexes are
    /// those of all requests.
    ///
    /// # Errors
    /// [`InformerError`].
    pub fn informer<K: Object>(&self, watched: Watched<K>) -> Result<SharedInformer<K>, InformerError> {
        let kind = || K::resource().to_string();
        let Watched { label_selector, field_selector, transform, indexers } = watched;
        if let Some(namespace) = self.namespace.clone()
            && !K::is_namespaced()
        {
            return Err(InformerError::ClusterScoped { kind: kind(), namespace });
        }
        let selection = Selection { kind: TypeId::of::<K>(), label_selector, field_selector };
        let mut informers = self.informers.lock();
        let existing = informers.iter().find(|entry| entry.selection == selection);
        if let Some(entry) = existing
            && let Some(informer) = entry.informer.downcast_ref::<SharedInformer<K>>()
        {
            if entry.transform != transform.as_ref().map(Transform::id) {
                return Err(InformerError::Transform { kind: kind() });
            }
            let added = informer.add_indexers(indexers);
            added.map_err(|source| InformerError::Index { kind: kind(), source })?;
            return Ok(informer.clone());
        }
        let transform_id = transform.as_ref().map(Transform::id);
        let source = ListWatch::<K>::new(self.client.clone())
            .with_namespace(self.namespace.clone())
            .with_label_selector(selection.label_selector.clone())
            .with_field_selector(selection.field_selector.clone())
            .with_transform(transform);
        let seed = self.random.lock().u64(..);
        let name = match informers.iter().filter(|entry| entry.kind == kind()).count() {
            0 => self.client.manager().to_owned(),
            others => format!("{}-{}", self.client.manager(), others + 1),
        };
        let resync_period = self.resync_period;
        let config = InformerConfig { name, indexers, resync_period, seed, ..InformerConfig::default() };
        let informer = SharedInformer::new(source, config);
        let (running, reading) = (informer.clone(), informer.clone());
        let run: RunInformer = Box::new(move |shutdown| {
            Box::pin(async move {
                running.run(shutdown).await.expect("the informer was already started outside of the factory");
            })
        });
        informers.push(Entry {
            kind: kind(),
            selection,
            transform: transform_id,
            informer: Box::new(informer.clone()),
            run: Some(run),
            state: Arc::new(move || reading.state()),
        });
        Ok(informer)
    }

    /// Returns a function that reads the current states of the caches requested so far.
    pub fn states(&self) -> impl Fn() -> Vec<CacheState> + Clone + Send + Sync + 'static {
        let states: Vec<ReadState> = self.informers.lock().iter().map(|entry| entry.state.clone()).collect();
        move || states.iter().map(|state| state()).collect()
    }

    /// Runs all informers requested so far, until `shutdown`.
    ///
    /// # Panics
    /// Propagates a panic of an index function. A handler's panic is only logged.
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
    use crate::cache::{Cached, object};
    use k8s_openapi::api::core::v1::{ConfigMap, Node, Secret};

    fn factory(namespace: Option<&str>) -> SharedInformerFactory {
        let service = tower::service_fn(|_: http::Request<kube_client::client::Body>| {
            std::future::pending::<Result<http::Response<kube_client::client::Body>, std::convert::Infallible>>(
            )
        });
        let client = ApiClient::new(kube_client::Client::new(service, "default"));
        SharedInformerFactory::new(client, namespace.map(str::to_owned), None, 1)
    }

    fn by_type(secret: &Cached<Secret>) -> Vec<String> {
        secret.readable().and_then(|secret| secret.type_.clone()).into_iter().collect()
    }

    #[tokio::test]
    async fn a_kind_has_one_informer_for_each_selector() {
        let factory = factory(None);
        let first = factory.informer(Watched::<Secret>::default()).unwrap();
        let again = factory.informer(Watched {
            indexers: Indexers::default().with("type", by_type),
            ..Watched::<Secret>::default()
        });
        again.unwrap();
        assert!(first.store().by_index("type", "Opaque").unwrap().is_empty(), "both have the new index");
        for field_selector in ["type=Opaque", "type=x"].map(|text| Some(text.to_owned())) {
            factory.informer(Watched { field_selector, ..Watched::<Secret>::default() }).unwrap();
        }
        assert_eq!(factory.informer(Watched::<ConfigMap>::default()).unwrap().name(), "configmaps");
        assert_eq!(factory.informers.lock().len(), 4);
        let shutdown = CancellationToken::new();
        shutdown.cancel();
        factory.run(shutdown).await;
    }

    #[tokio::test]
    async fn contradicting_request_is_an_error() {
        let factory = factory(Some("ns"));
        let watched = |function: fn(&Cached<Secret>) -> Vec<String>, is_other: bool| {
            let indexers = Indexers::default();
            let indexers = match is_other {
                false => indexers.with("type", function),
                true => indexers.with("type", |_| Vec::new()),
            };
            Watched { indexers, ..Watched::default() }
        };
        factory.informer(watched(by_type, false)).unwrap();
        factory.informer(watched(by_type, false)).unwrap();
        let error = factory.informer(watched(by_type, true)).unwrap_err().to_string();
        let conflict =
            "informer of secrets: an index named \"type\" exists with another function; choose another name";
        assert_eq!(error, conflict);

        let trimmed =
            Watched { transform: Some(Transform::new(object::trim)), ..Watched::<Secret>::default() };
        let error = factory.informer(trimmed).unwrap_err().to_string();
        assert_eq!(error, "the informer of secrets exists with another transform; use the same one");

        let error = factory.informer(Watched::<Node>::default()).unwrap_err().to_string();
        let scope =
            "nodes are not in namespaces and cannot be watched in \"ns\"; use a factory for all namespaces";
        assert_eq!(error, scope);
    }
}
