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
    // [new]
    /// Connects the parts: what happens to a Foo, or to a Deployment that a Foo controls, puts the Foo's key in the queue.
    pub fn new(api: Api) -> Arc<Self> {
        let queue = Arc::new(Queue::default());
        let foos = Informer::new(api.clone(), FOOS);
        let deployments = Informer::new(api.clone(), DEPLOYMENTS);
        let to = queue.clone();
        foos.add_handler(keys(move |key| to.add(key)));
        let to = queue.clone();
        deployments.add_handler(Box::new(move |change| {
            owner_key(change).into_iter().for_each(|key| to.add(key));
        }));
        let delays = Arc::new(Delays::new(queue.clone()));
        Arc::new(Self { api, foos, deployments, queue, delays, backoff: Backoff::default() })
    }
    // [/new]

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

    // [worker]
    async fn run_worker(&self) {
        while let Some(key) = self.queue.get().await {
            match self.sync(&key, |_| {}).await {
                Ok(()) => self.backoff.forget(&key),
                Err(_) => self.delays.add_after(key.clone(), self.backoff.when(&key)),
            }
            self.queue.done(&key);
        }
    }
    // [/worker]

    // [sync]
    /// Looks at one Foo and its Deployment in the caches, and does what has to be done. Calls `stored` with the Deployment as
    /// soon as it is written, because a later step may fail.
    pub async fn sync(&self, key: &str, stored: impl FnOnce(&Object)) -> Result<(), Refused> {
        // 1. The Foo. None: it was deleted, and the garbage collector deletes its Deployment.
        let Some(foo) = self.foos.get(key) else { return Ok(()) };

        // 2. Its Deployment, if it is the Foo's.
        let name = foo["spec"]["deploymentName"].as_str().unwrap_or_default();
        let deployment = self.deployments.get(&format!("default/{name}"));
        if let Some(found) = &deployment
            && owner_of(found).as_deref() != foo["metadata"]["uid"].as_str()
        {
            return Err(Refused { code: 0, message: format!("Deployment {name:?} is somebody else's") });
        }

        // 3. The difference.
        let mut newest = deployment.as_deref().cloned();
        if let Some(action) = compare(&foo, deployment.as_deref()) {
            let written = act(&self.api, &action).await?;
            stored(&written);
            newest = Some(written);
        }

        // 4. The status, if it says something new.
        let available = newest.and_then(|found| found["status"]["availableReplicas"].as_u64()).unwrap_or(0);
        if foo["status"]["availableReplicas"] != available {
            let mut foo = Object::clone(&foo);
            foo["status"] = json!({"availableReplicas": available});
            let name = foo["metadata"]["name"].as_str().unwrap_or_default();
            self.api.put(&format!("{FOOS}/{name}/status"), &foo).await?;
        }
        Ok(())
    }
    // [/sync]
}

// [owner]
/// Returns the key of the Foo that controls a Deployment.
pub fn owner_key(change: &Change) -> Option<Key> {
    let deployment = change.last();
    let owners = deployment["metadata"]["ownerReferences"].as_array()?;
    let owner = owners.iter().find(|owner| owner["controller"] == true && owner["kind"] == "Foo")?;
    Some(format!("default/{}", owner["name"].as_str()?))
}
// [/owner]
