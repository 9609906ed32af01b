//! A whole controller in one file: each ConfigMap has a copy, `<name>-copy`; `docs/adding-a-controller.md` explains it.
#![allow(clippy::print_stdout, reason = "an example prints")]
use k8s_openapi::api::core::v1::ConfigMap;
use serde_json::{Value, json};
use std::{sync::Arc, time::Duration};
use tokio_util::sync::CancellationToken;
use windlass::api::ApiResource;
use windlass::cache::{Cached, Indexers, Lister, ObjectName, SharedInformerFactory, factory::Watched};
use windlass::client::ApiClient;
use windlass::controller::handlers::{CHILD_NAME, EnqueueOwner, EnqueueSelf};
use windlass::controller::{Consistency, Controller, Outcome, Owner, Pass, SyncError, SyncHandler};
use windlass::sim::{Door, Settings, Sim};
use windlass::workqueue::{ItemExponentialFailure, RateLimitingQueue};

fn copy_of(name: &ObjectName) -> Option<ObjectName> {
    let copy = || ObjectName::new(name.namespace(), &format!("{}-copy", name.name()));
    (!name.name().ends_with("-copy")).then(copy)
}

struct CopySync {
    client: ApiClient,
    maps: Lister<ConfigMap>,
    consistency: Arc<Consistency>,
}

impl SyncHandler for CopySync {
    async fn sync(&self, key: &ObjectName, _: Pass<'_>) -> Result<Outcome, SyncError> {
        let (Some(Cached::Readable(map)), Some(name)) = (self.maps.get(key), copy_of(key)) else {
            return Ok(Outcome::Done);
        };
        let (owner, maps, ns) = (Owner::of(&*map), ApiResource::of::<ConfigMap>(), key.namespace());
        let written: ConfigMap = match self.maps.get(&name) {
            Some(copy) if copy.controller().is_none_or(|found| found.uid != owner.uid) => {
                return Ok(Outcome::WaitForUser { look_again: None }); // it is somebody else's
            }
            Some(Cached::Readable(copy)) if copy.data == map.data => return Ok(Outcome::Done),
            Some(Cached::Readable(copy)) => {
                let copy = ConfigMap { data: map.data.clone(), ..ConfigMap::clone(&copy) };
                self.client.replace(&maps, ns, name.name(), &json!(copy)).await?
            }
            _ => {
                let metadata = json!({"name": name.name(), "ownerReferences": [owner.reference()]});
                self.client.create(&maps, ns, &json!({"metadata": metadata, "data": map.data})).await?
            }
        };
        self.consistency.wrote(key, &written);
        Ok(Outcome::Done)
    }
}

fn wire(client: &ApiClient, informers: &SharedInformerFactory) -> Controller<CopySync> {
    let copies = |m: &Cached<ConfigMap>| copy_of(&m.object_name()).iter().map(ToString::to_string).collect();
    let indexers = Indexers::default().with(CHILD_NAME, copies);
    let maps = informers.informer(|| Watched { indexers, ..Watched::default() });
    let limiter = ItemExponentialFailure::new(Duration::from_millis(5), Duration::from_secs(120));
    let (queue, consistency) = (RateLimitingQueue::new(limiter), Arc::new(Consistency::new()));
    let sync = CopySync { client: client.clone(), maps: maps.lister(), consistency: consistency.clone() };
    Controller::new("copy", queue.clone(), sync, consistency)
        .watches(&maps, EnqueueSelf::new(queue.clone()))
        .watches(&maps, EnqueueOwner::new(maps.store(), queue))
}

#[tokio::main(flavor = "current_thread", start_paused = true)]
async fn main() {
    let (sim, stop) = (Sim::new(Settings::default()), CancellationToken::new());
    let client = ApiClient::new(kube_client::Client::new(Door::new(&sim, "copier"), "default"));
    let informers = SharedInformerFactory::new(client.clone(), None, None, 1);
    let controller = wire(&client, &informers).run(stop.clone());
    let users = async {
        let (maps, map) = (ApiResource::of::<ConfigMap>(), json!({"metadata": {"name": "a"}, "data": {}}));
        client.create::<Value>(&maps, Some("default"), &map).await.expect("it is created");
        tokio::time::sleep(Duration::from_secs(1)).await;
        let copy: Option<Value> = client.get(&maps, Some("default"), "a-copy").await.expect("it is read");
        println!("{}", copy.expect("the controller has made it")["metadata"]["name"]);
        stop.cancel();
    };
    let machine = async { tokio::join!(informers.run(stop.clone()), controller, users) };
    tokio::select! { _ = machine => {}, () = sim.run() => {} }
}
