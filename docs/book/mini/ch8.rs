//! Chapter 8, the cache lies: it shows what was so a moment ago, and not yet what we have written.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::json;

use crate::ch2::version_of;
use crate::ch3::Key;
use crate::ch7::Controller;
use crate::cluster::{Api, DEPLOYMENTS, FOOS, Object, Refused};

/// Keeps a deleted Foo until its Deployment is gone.
pub const FINALIZER: &str = "book.windlass.dev/deployment";
/// When to look again for what the cache does not show yet.
pub const LOOK_AGAIN: Duration = Duration::from_millis(100);

// [own_writes]
/// The newest child that this process has written for each key, until the cache has got that far.
#[derive(Debug, Default)]
pub struct OwnWrites {
    expected: Mutex<HashMap<Key, u64>>,
}

impl OwnWrites {
    /// Remembers the version of a child that was written for this key.
    pub fn wrote(&self, key: &str, version: &str) {
        let version = version.parse().unwrap_or(0);
        self.expected.lock().insert(key.to_owned(), version);
    }

    /// Returns whether a cache that is complete up to this version shows the last write for this key.
    pub fn are_seen(&self, key: &str, version: u64) -> bool {
        let mut expected = self.expected.lock();
        let is_seen = expected.get(key).is_none_or(|written| *written <= version);
        if is_seen {
            expected.remove(key);
        }
        is_seen
    }
}
// [/own_writes]

/// A controller that knows what it has written, and cleans up before its objects go.
pub struct Careful {
    pub inner: Arc<Controller>,
    pub own: OwnWrites,
}

impl Careful {
    pub fn new(api: Api) -> Arc<Self> {
        Arc::new(Self { inner: Controller::new(api), own: OwnWrites::default() })
    }

    /// Runs until the queue is shut down.
    pub async fn run(self: &Arc<Self>, workers: usize) {
        let it = &self.inner;
        let caches = async { tokio::join!(it.foos.run(), it.deployments.run(), it.delays.run()) };
        let work = async {
            tokio::join!(it.foos.has_synced(), it.deployments.has_synced());
            futures_util::future::join_all((0..workers).map(|_| self.run_worker())).await;
        };
        tokio::select! {
            _ = caches => {}
            () = work => {}
        }
    }

    // [worker]
    async fn run_worker(&self) {
        let it = &self.inner;
        while let Some(key) = it.queue.get().await {
            if !self.own.are_seen(&key, it.deployments.version()) {
                // No failure: the cache needs a moment.
                it.delays.add_after(key.clone(), LOOK_AGAIN);
            } else {
                match self.sync(&key).await {
                    Ok(()) => it.backoff.forget(&key),
                    Err(_) => it.delays.add_after(key.clone(), it.backoff.when(&key)),
                }
            }
            it.queue.done(&key);
        }
    }
    // [/worker]

    // [sync]
    /// Syncs one key.
    pub async fn sync(&self, key: &str) -> Result<(), Refused> {
        let Some(foo) = self.inner.foos.get(key) else { return Ok(()) };
        let has_finalizer =
            foo["metadata"]["finalizers"].as_array().is_some_and(|all| all.contains(&json!(FINALIZER)));
        if !foo["metadata"]["deletionTimestamp"].is_null() {
            return if has_finalizer { self.finalize(&foo).await } else { Ok(()) };
        }
        if !has_finalizer {
            // First: what is created before it could be left behind. The update brings the key back.
            return self.keep_finalizer(&foo, true).await;
        }
        self.inner.sync(key, |written| self.own.wrote(key, &version_of(written))).await
    }
    // [/sync]

    // [finalize]
    /// Deletes the Deployment; once it is gone, lets the Foo go, too. The cache may be old, and this destroys, so it asks
    /// the server.
    async fn finalize(&self, foo: &Object) -> Result<(), Refused> {
        let name = foo["spec"]["deploymentName"].as_str().unwrap_or_default();
        let path = format!("{DEPLOYMENTS}/{name}");
        match self.inner.api.get(&path).await {
            Ok(live) if crate::ch3::owner_of(&live).as_deref() == foo["metadata"]["uid"].as_str() => {
                let uid = live["metadata"]["uid"].as_str().unwrap_or_default();
                self.inner.api.delete(&path, uid).await?;
                Err(Refused { code: 0, message: "the Deployment has to go first".to_owned() })
            }
            Ok(_) => self.keep_finalizer(foo, false).await,
            Err(refused) if refused.code == 404 => self.keep_finalizer(foo, false).await,
            Err(refused) => Err(refused),
        }
    }
    // [/finalize]

    /// Adds our finalizer, or removes it; those of others stay.
    async fn keep_finalizer(&self, foo: &Object, is_kept: bool) -> Result<(), Refused> {
        let mut foo = foo.clone();
        let others = foo["metadata"]["finalizers"].as_array().into_iter().flatten();
        let others = others.filter(|one| **one != FINALIZER).cloned();
        let all: Vec<Object> = others.chain(is_kept.then(|| json!(FINALIZER))).collect();
        foo["metadata"]["finalizers"] = json!(all);
        let name = foo["metadata"]["name"].as_str().unwrap_or_default();
        self.inner.api.put(&format!("{FOOS}/{name}"), &foo).await.map(drop)
    }
}
