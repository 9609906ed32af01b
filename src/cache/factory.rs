//! One informer per kind, or per kind and namespace, for the whole process; runs all of them together.
//!
//! Mirrors client-go `informers/factory.go` (`SharedInformerFactory`).
//!
//! # Guarantees
//! - Repeated requests for a kind with the same selectors return the same informer, with the indexes of all
//!   requests. (test: `a_kind_has_one_informer_for_each_selector`)
//! - Each namespace of a factory has its own informer. (test: `each_namespace_has_an_informer`)
//! - Requests that contradict each other are errors. (test: `contradicting_request_is_an_error`)
//! - Kinds that are known at run time have informers of their own. (test: `kinds_known_at_run_time_have_informers`)
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
use super::namespaced::{ALL_NAMESPACES, NamespacedInformers};
use super::object::{Object, TypedObject};
use super::processor::resync::ResyncPeriod;
use super::reflector::http::{ListWatch, Transform};
use super::reflector::list_watch::Selection;
use super::shared_informer::{InformerConfig, SharedInformer};
use super::store::index::{IndexConflict, Indexers};
use crate::api::ApiResource;
use crate::cache::object::function_id::FunctionId;
use crate::client::shards::Shards;
use crate::client::{ApiClient, ServedKind};

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
    /// Empty for all.
    namespaces: Vec<String>,
    resync_period: Option<ResyncPeriod>,
    /// `None` to cache all objects.
    shards: Option<Shards>,
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
    /// The factory has an informer for each of several namespaces.
    #[error("{kind} have an informer in each of {namespaces}; use informers() in place of informer()")]
    SeveralNamespaces {
        /// The kind, `plural.group`.
        kind: String,
        /// The factory's namespaces.
        namespaces: String,
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
struct Identity {
    type_: TypeId,
    resource: ApiResource,
    selection: Selection,
}

struct Entry {
    identity: Identity,
    transform: Option<FunctionId>,
    informer: Box<dyn Any + Send>,
    run: Option<RunInformer>,
    state: ReadState,
}

/// Reads the state of one kind's cache.
type ReadState = Arc<dyn Fn() -> CacheState + Send + Sync>;

type RunInformer = Box<dyn FnOnce(CancellationToken) -> BoxFuture<'static, ()> + Send>;

// === impl SharedInformerFactory ===

impl SharedInformerFactory {
    /// Creates a factory for informers of these namespaces, each with its own, or of all namespaces if none is named.
    #[must_use]
    pub fn new(
        client: ApiClient,
        namespaces: Vec<String>,
        resync_period: Option<ResyncPeriod>,
        seed: u64,
    ) -> Self {
        let random = Mutex::new(fastrand::Rng::with_seed(seed));
        let informers = Mutex::new(Vec::new());
        Self { client, namespaces, resync_period, shards: None, random, informers }
    }

    /// Caches the objects of the shards that the process holds; all, by default.
    #[must_use]
    pub fn with_shards(self, shards: Option<Shards>) -> Self {
        Self { shards, ..self }
    }

    /// Returns the namespaces of the informers; none for all namespaces.
    #[must_use]
    pub fn namespaces(&self) -> &[String] {
        &self.namespaces
    }

    /// Returns the informers of this kind with these selectors, one for each of the factory's namespaces, or one for all.
    /// `watched` is called for each. They are created on the first request; their indexes are those of all requests.
    ///
    /// # Errors
    /// [`InformerError`].
    pub fn informers<K: TypedObject>(
        &self,
        watched: impl Fn() -> Watched<K>,
    ) -> Result<NamespacedInformers<K>, InformerError> {
        if self.namespaces.is_empty() {
            let of_all = self.informer(watched())?;
            return Ok(NamespacedInformers::new([(ALL_NAMESPACES.to_owned(), of_all)].into()));
        }
        let namespaces: Vec<&str> = self.namespaces.iter().map(String::as_str).collect();
        self.informers_in(&namespaces, watched)
    }

    /// Returns the informer of this kind with these selectors, which is created on the first request. Its indexes are
    /// those of all requests. A factory of several namespaces has only [`informers`](Self::informers).
    ///
    /// # Errors
    /// [`InformerError`].
    pub fn informer<K: TypedObject>(&self, watched: Watched<K>) -> Result<SharedInformer<K>, InformerError> {
        let kind = ServedKind { resource: ApiResource::of::<K>(), is_namespaced: K::is_namespaced() };
        self.informer_of(&kind, watched)
    }

    /// Like [`informer`](Self::informer), for a kind that is known at run time:
    /// [`ApiClient::discover`] finds it. `K` is [`DynamicObject`](super::DynamicObject), or a projection that suits several kinds.
    ///
    /// # Errors
    /// [`InformerError`].
    pub fn informer_of<K: Object>(
        &self,
        kind: &ServedKind,
        watched: Watched<K>,
    ) -> Result<SharedInformer<K>, InformerError> {
        if self.namespaces.len() > 1 {
            let (kind, namespaces) = (kind.resource.to_string(), self.namespaces.join(", "));
            return Err(InformerError::SeveralNamespaces { kind, namespaces });
        }
        self.informer_in(kind, self.namespaces.first().cloned(), watched)
    }

    /// Returns the informers of this kind in several namespaces, with one lister; for a client whose rights end there.
    /// `watched` is called for each. The factory's own namespaces are ignored.
    ///
    /// # Errors
    /// [`InformerError`].
    pub fn informers_in<K: TypedObject>(
        &self,
        namespaces: &[&str],
        watched: impl Fn() -> Watched<K>,
    ) -> Result<NamespacedInformers<K>, InformerError> {
        let kind = ServedKind { resource: ApiResource::of::<K>(), is_namespaced: K::is_namespaced() };
        let informer = |namespace: &&str| {
            let informer = self.informer_in(&kind, Some((*namespace).to_owned()), watched())?;
            Ok(((*namespace).to_owned(), informer))
        };
        Ok(NamespacedInformers::new(namespaces.iter().map(informer).collect::<Result<_, InformerError>>()?))
    }

    fn informer_in<K: Object>(
        &self,
        served: &ServedKind,
        namespace: Option<String>,
        watched: Watched<K>,
    ) -> Result<SharedInformer<K>, InformerError> {
        let ServedKind { resource, is_namespaced } = served;
        let kind = || resource.to_string();
        if let (Some(namespace), false) = (namespace.clone(), is_namespaced) {
            return Err(InformerError::ClusterScoped { kind: kind(), namespace });
        }
        let Watched { label_selector, field_selector, transform, indexers } = watched;
        let selection = Selection { namespace, label_selector, field_selector };
        let identity = Identity { type_: TypeId::of::<K>(), resource: resource.clone(), selection };
        let mut informers = self.informers.lock();
        let existing = informers.iter().find(|entry| entry.identity == identity);
        if let Some(entry) = existing
            && let Some(informer) = entry.informer.downcast_ref::<SharedInformer<K>>()
        {
            let is_same = match (entry.transform, transform.as_ref().map(Transform::id)) {
                (None, None) => true,
                (Some(one), Some(other)) => one.is_same_as(other),
                _ => false,
            };
            if !is_same {
                return Err(InformerError::Transform { kind: kind() });
            }
            let added = informer.add_indexers(indexers);
            added.map_err(|source| InformerError::Index { kind: kind(), source })?;
            return Ok(informer.clone());
        }
        let others = informers.iter().filter(|entry| entry.identity.resource == *resource).count();
        let (entry, informer) = self.create(identity, transform, indexers, others);
        informers.push(entry);
        Ok(informer)
    }

    /// Creates an informer; `others` is the number of those of its kind.
    fn create<K: Object>(
        &self,
        identity: Identity,
        transform: Option<Transform<K>>,
        indexers: Indexers<K>,
        others: usize,
    ) -> (Entry, SharedInformer<K>) {
        let transform_id = transform.as_ref().map(Transform::id);
        let source = ListWatch::<K>::of(self.client.clone(), identity.resource.clone())
            .with_selection(identity.selection.clone())
            .with_transform(transform);
        let seed = self.random.lock().u64(..);
        let name = match others {
            0 => self.client.manager().to_owned(),
            others => format!("{}-{}", self.client.manager(), others + 1),
        };
        let resync_period = self.resync_period;
        let shards = self.shards.as_ref().map(Shards::add_cache);
        let config =
            InformerConfig { name, indexers, resync_period, shards, seed, ..InformerConfig::default() };
        let informer = SharedInformer::new(source, config);
        let (running, reading) = (informer.clone(), informer.clone());
        let span = match &identity.selection.namespace {
            Some(namespace) if self.namespaces.len() > 1 => tracing::info_span!("informer", namespace),
            _ => tracing::Span::none(),
        };
        let run: RunInformer = Box::new(move |shutdown| {
            let run = async move {
                running.run(shutdown).await.expect("the informer was already started outside of the factory");
            };
            Box::pin(run.instrument(span))
        });
        let entry = Entry {
            identity,
            transform: transform_id,
            informer: Box::new(informer.clone()),
            run: Some(run),
            state: Arc::new(move || reading.state()),
        };
        (entry, informer)
    }

    /// Returns a function that reads the current states of the caches requested so far.
    pub fn states(&self) -> impl Fn() -> Vec<CacheState> + Clone + Send + Sync + use<> {
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
    use crate::cache::{Cached, DynamicObject, object};
    use k8s_openapi::api::core::v1::{ConfigMap, Node, Secret};

    fn factory(namespaces: &[&str]) -> SharedInformerFactory {
        let service = tower::service_fn(|_: http::Request<kube_client::client::Body>| {
            std::future::pending::<Result<http::Response<kube_client::client::Body>, std::convert::Infallible>>(
            )
        });
        let client = ApiClient::new(kube_client::Client::new(service, "default"));
        SharedInformerFactory::new(client, namespaces.iter().map(ToString::to_string).collect(), None, 1)
    }

    fn by_type(secret: &Cached<Secret>) -> Vec<String> {
        secret.readable().and_then(|secret| secret.type_.clone()).into_iter().collect()
    }

    #[tokio::test]
    async fn a_kind_has_one_informer_for_each_selector() {
        let factory = factory(&[]);
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
    async fn each_namespace_has_an_informer() {
        let namespaces = |factory: &SharedInformerFactory| {
            let informers = factory.informers(Watched::<Secret>::default).unwrap();
            let selected = informers.informers().map(|(_, informer)| informer.selection().namespace.clone());
            selected.collect::<Vec<_>>()
        };
        let several = factory(&["a", "b"]);
        for _ in 0..2 {
            assert_eq!(namespaces(&several), [Some("a".to_owned()), Some("b".to_owned())]);
            assert_eq!(several.informers.lock().len(), 2);
        }
        assert_eq!(namespaces(&factory(&["a"])), [Some("a".to_owned())]);
        assert_eq!(namespaces(&factory(&[])), [None]);
        let error = several.informer(Watched::<Secret>::default()).unwrap_err().to_string();
        assert_eq!(error, "secrets have an informer in each of a, b; use informers() in place of informer()");
    }

    #[tokio::test]
    async fn contradicting_request_is_an_error() {
        let factory = factory(&["ns"]);
        fn watched<F>(function: F) -> Watched<Secret>
        where
            F: Fn(&Cached<Secret>) -> Vec<String> + Send + Sync + 'static,
        {
            Watched { indexers: Indexers::default().with("type", function), ..Watched::default() }
        }
        factory.informer(watched(by_type)).unwrap();
        factory.informer(watched(by_type)).unwrap();
        let conflict =
            "informer of secrets: an index named \"type\" exists with another function; choose another name";
        let error = factory.informer(watched(|_| Vec::new())).unwrap_err().to_string();
        assert_eq!(error, conflict);
        // All pointers to functions of one signature have one type.
        type Index = fn(&Cached<Secret>) -> Vec<String>;
        let pointers: [Index; 2] = [by_type, |_| Vec::new()];
        let of_pointers = self::factory(&["ns"]);
        of_pointers.informer(watched(pointers[0])).unwrap();
        assert_eq!(of_pointers.informer(watched(pointers[1])).unwrap_err().to_string(), conflict);
        let transforms: [fn(&mut Secret); 2] = [|_| {}, object::trim];
        let [first, second] = transforms.map(|change| Watched {
            transform: Some(Transform::new(change)),
            ..Watched::<Secret>::default()
        });
        let of_pointers = self::factory(&["ns"]);
        of_pointers.informer(first).unwrap();
        of_pointers.informer(second).unwrap_err();

        let trimmed =
            Watched { transform: Some(Transform::new(object::trim)), ..Watched::<Secret>::default() };
        let error = factory.informer(trimmed).unwrap_err().to_string();
        assert_eq!(error, "the informer of secrets exists with another transform; use the same one");

        let error = factory.informer(Watched::<Node>::default()).unwrap_err().to_string();
        let scope =
            "nodes are not in namespaces and cannot be watched in \"ns\"; use a factory for all namespaces";
        assert_eq!(error, scope);
    }

    #[tokio::test]
    async fn kinds_known_at_run_time_have_informers() {
        let factory = factory(&[]);
        let served = |plural: &'static str| ServedKind {
            resource: ApiResource::new("example.com", "v1", "Thing", plural),
            is_namespaced: false,
        };
        for plural in ["things", "others", "things"] {
            let informer = factory.informer_of(&served(plural), Watched::<DynamicObject>::default()).unwrap();
            assert_eq!(informer.name(), format!("{plural}.example.com"));
        }
        let watched = Watched::<Secret>::default();
        factory.informer_of(&served("things"), watched).unwrap();
        let names: Vec<String> = factory.states()().into_iter().map(|state| state.name).collect();
        assert_eq!(names, ["windlass", "windlass", "windlass-2"], "one informer for each kind and type");
        let error = factory.informers_in::<Node>(&["a"], Watched::default).unwrap_err();
        assert!(matches!(error, InformerError::ClusterScoped { .. }), "{error}");
        let two = factory.informers_in::<Secret>(&["a", "b"], Watched::default).unwrap();
        assert_eq!((two.informers().count(), factory.informers.lock().len()), (2, 5));
    }
}
