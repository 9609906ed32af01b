//! Chapter 7, sample-controller: informers, a queue, workers, and a sync handler: the whole program.

use std::sync::Arc;

use serde_json::json;

use crate::ch1::{act, compare};
use crate::ch3::{Change, Key, owner_of};
use crate::ch4::{Informer, keys};
use crate::ch5::Queue;
use crate::ch6::{Backoff, Delays};
use crate::cluster::{Api, DEPLOYMENTS, FOOS, Object, Refused};

/// Keeps one Deployment for each Foo.
pub struct Controller {
    pub api: Api,
    pub foos: Arc<Informer>,
    pub deployments: Arc<Informer>,
    pub queue: Arc<Queue>,
    pub delays: Arc<Delays>,
    pub backoff: Backoff,
}

impl Controller {
    /// Connects the parts: what happens to a Foo, or to a Deployment that a Foo controls, puts the Foo's key in the queue.
    pub fn new(api: Api) -> Arc<Self> {
        todo!("chapter 7: new")
    }

    /// Runs until the queue is shut down: the caches first, then this many workers.
    pub async fn run(self: &Arc<Self>, workers: usize) {
        let caches = async { tokio::join!(self.foos.run(), self.deployments.run(), self.delays.run()) };
        let work = async {
            // A worker with half a cache would create what is already there.
            tokio::join!(self.foos.has_synced(), self.deployments.has_synced());
            let all = (0..workers).map(|_| self.run_worker());
            futures_util::future::join_all(all).await;
        };
        tokio::select! {
            _ = caches => {}
            () = work => {}
        }
    }

    async fn run_worker(&self) {
        todo!("chapter 7: worker")
    }

    /// Looks at one Foo and its Deployment in the caches, and does what has to be done. Calls `stored` with the Deployment as
    /// soon as it is written, because a later step may fail.
    pub async fn sync(&self, key: &str, stored: impl FnOnce(&Object)) -> Result<(), Refused> {
        todo!("chapter 7: sync")
    }
}

/// Returns the key of the Foo that controls a Deployment.
pub fn owner_key(change: &Change) -> Option<Key> {
    todo!("chapter 7: owner")
}
