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

/// The newest child that this process has written for each key, until the cache has got that far.
#[derive(Debug, Default)]
pub struct OwnWrites {
    expected: Mutex<HashMap<Key, u64>>,
}

impl OwnWrites {
    /// Remembers the version of a child that was written for this key.
    pub fn wrote(&self, key: &str, version: &str) {
        todo!("chapter 8: own_writes")
    }

    /// Returns whether a cache that is complete up to this version shows the last write for this key.
    pub fn are_seen(&self, key: &str, version: u64) -> bool {
        todo!("chapter 8: own_writes")
    }
}

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

    async fn run_worker(&self) {
        todo!("chapter 8: worker")
    }

    /// Syncs one key.
    pub async fn sync(&self, key: &str) -> Result<(), Refused> {
        todo!("chapter 8: sync")
    }

    /// Deletes the Deployment; once it is gone, lets the Foo go, too. The cache may be old, and this destroys, so it asks
    /// the server.
    async fn finalize(&self, foo: &Object) -> Result<(), Refused> {
        todo!("chapter 8: finalize")
    }

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
