//! The informers of one kind, one per namespace, read through one lister.
//!
//! Mirrors controller-runtime `pkg/cache/multi_namespace_cache.go`.
//!
//! # Guarantees
//! - The lister shows the objects of all its namespaces, and no others. (test: `one_lister_shows_several_namespaces`)
//! - Each namespace has a handler and a registration of its own. (test: `one_lister_shows_several_namespaces`)

use std::collections::BTreeMap;
use std::fmt;

use super::object::Object;
use super::processor::Registration;
use super::processor::handlers::EventHandler;
use super::shared_informer::{Ended, SharedInformer};
use super::store::listers::Lister;
use super::synctrack::Synced;

/// The key of an informer of all namespaces, as `metav1.NamespaceAll`.
pub(super) const ALL_NAMESPACES: &str = "";

/// The informers of one kind: one per namespace, or one of all; see the module. Cheap to clone.
pub struct NamespacedInformers<K: Object> {
    informers: BTreeMap<String, SharedInformer<K>>,
}

// === impl NamespacedInformers ===

impl<K: Object> NamespacedInformers<K> {
    /// Combines informers, each of one namespace; that of the empty namespace is of all.
    #[must_use]
    pub fn new(informers: BTreeMap<String, SharedInformer<K>>) -> Self {
        Self { informers }
    }

    /// Returns the namespaces with their informers.
    pub fn informers(&self) -> impl Iterator<Item = (&str, &SharedInformer<K>)> {
        self.informers.iter().map(|(namespace, informer)| (namespace.as_str(), informer))
    }

    /// Makes every informer list again; see [`SharedInformer::relist`].
    pub fn relist(&self) {
        self.informers.values().for_each(SharedInformer::relist);
    }

    /// Returns a lister of all namespaces.
    #[must_use]
    pub fn lister(&self) -> Lister<K> {
        if let Some(of_all) = self.informers.get(ALL_NAMESPACES) {
            return of_all.lister();
        }
        Lister::of_namespaces(
            self.informers.iter().map(|(name, informer)| (name.clone(), informer.store())).collect(),
        )
    }

    /// Returns the handles of all informers, for [`wait_for_cache_sync`](super::wait_for_cache_sync).
    #[must_use]
    pub fn synced(&self) -> Vec<Synced> {
        self.informers.values().map(SharedInformer::synced).collect()
    }

    /// Adds a handler for each namespace. They are called independently of each other.
    ///
    /// # Errors
    /// [`Ended`] if an informer has ended.
    pub fn add_event_handler<H: EventHandler<K>>(
        &self,
        handler: impl Fn() -> H,
    ) -> Result<Vec<Registration>, Ended> {
        self.informers.values().map(|informer| informer.add_event_handler(handler())).collect()
    }
}

impl<K: Object> Clone for NamespacedInformers<K> {
    fn clone(&self) -> Self {
        Self { informers: self.informers.clone() }
    }
}

impl<K: Object> fmt::Debug for NamespacedInformers<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NamespacedInformers")
            .field("namespaces", &self.informers.keys())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ConfigMap;
    use kube_core::Selector;
    use parking_lot::Mutex;
    use std::sync::Arc;
    use tokio::task::JoinSet;
    use tokio_util::sync::CancellationToken;

    use super::*;
    use crate::cache::{HandlerFns, Indexers, InformerConfig, ObjectName};
    use crate::testing::{FakeSource, config_map};

    #[tokio::test(start_paused = true)]
    async fn one_lister_shows_several_namespaces() {
        let by_name = |object: &crate::cache::Cached<ConfigMap>| vec![object.object_name().name().to_owned()];
        let (mut sources, mut informers) = (Vec::new(), BTreeMap::new());
        for namespace in ["x", "y"] {
            let source = FakeSource::<ConfigMap>::new();
            source.put(config_map(namespace, "a", 0));
            let indexers = Indexers::default().with("name", by_name);
            let config = InformerConfig { indexers, ..InformerConfig::default() };
            informers.insert(namespace.to_owned(), SharedInformer::new(source.clone(), config));
            sources.push(source);
        }
        let both = NamespacedInformers::new(informers);
        let heard = Arc::new(Mutex::new(Vec::new()));
        let handler = || {
            let heard = heard.clone();
            HandlerFns::default().on_add(move |object, _| heard.lock().push(object.object_name().to_string()))
        };
        let registrations = both.add_event_handler(handler).unwrap();
        let (shutdown, mut tasks) = (CancellationToken::new(), JoinSet::new());
        for (_, informer) in both.informers() {
            let (informer, shutdown) = (informer.clone(), shutdown.clone());
            tasks.spawn(async move { informer.run(shutdown).await });
        }
        let registered = registrations.iter().map(Registration::synced);
        for synced in both.synced().into_iter().chain(registered) {
            synced.synced().await;
        }
        let lister = both.lister();
        let get = |namespace: Option<&str>| lister.get(&ObjectName::new(namespace, "a")).is_some();
        assert_eq!([Some("x"), Some("y"), Some("z"), None].map(get), [true, true, false, false]);
        let count = |namespace: Option<&str>| lister.list(namespace, &Selector::default()).len();
        assert_eq!([None, Some("y"), Some("z")].map(count), [2, 1, 0]);
        let names: Vec<String> =
            lister.index("name", "a").iter().map(|object| object.object_name().to_string()).collect();
        assert_eq!(names, ["x/a", "y/a"]);
        heard.lock().sort();
        assert_eq!(*heard.lock(), ["x/a", "y/a"]);
        sources[1].delete(&ObjectName::new(Some("y"), "a"));
        tokio::time::sleep(std::time::Duration::from_millis(1)).await;
        assert_eq!(count(None), 1);
        shutdown.cancel();
        tasks.join_all().await;
    }
}
