//! The cases of sample-controller's `controller_test.go`: what one sync sends, by the server's log of requests.

use tokio::sync::mpsc::Receiver;
use windlass::record::Event;

use super::*;

/// A server with one Foo, and the controller with synced caches and no worker.
struct Fixture {
    sim: Sim,
    user: ApiClient,
    controller: Controller,
    events: Receiver<Event>,
    tasks: JoinSet<()>,
}

fn client(sim: &Sim, user: &str) -> ApiClient {
    ApiClient::new(kube_client::Client::new(InProcessTransport::new(sim, user), "default"))
}

fn foo(replicas: i32) -> Foo {
    Foo::new("test", FooSpec { deployment_name: "test-deployment".to_owned(), replicas })
}

impl Fixture {
    /// Creates the Foo, and a Deployment if `deployment` returns one for it.
    async fn new(replicas: i32, deployment: impl Fn(&Foo) -> Option<Deployment>) -> Self {
        let mut tasks = JoinSet::new();
        let sim = Sim::new(Settings::default());
        let user = client(&sim, "user");
        let kinds = ApiResource::of::<CustomResourceDefinition>();
        user.create::<Value>(&kinds, None, &json!(Foo::crd())).await.unwrap();
        let time = sim.clone();
        tasks.spawn(async move { time.run().await });
        tokio::time::sleep(Duration::from_secs(5)).await;
        let (foos, namespace) = (ApiResource::of::<Foo>(), Some("default"));
        let created: Foo = user.create(&foos, namespace, &json!(foo(replicas))).await.unwrap();
        if let Some(deployment) = deployment(&created) {
            let deployments = ApiResource::of::<Deployment>();
            user.create::<Value>(&deployments, namespace, &json!(deployment)).await.unwrap();
            tokio::time::sleep(Duration::from_secs(5)).await;
        }

        let factory = SharedInformerFactory::new(client(&sim, AGENT), Vec::new(), None, 0);
        let deployments = factory.informer(Watched::default()).unwrap();
        let foos = factory.informer(Watched::default()).unwrap();
        let (recorder, events) = EventRecorder::to_buffer(Clock::system(), 10);
        let controller = Controller::new(client(&sim, AGENT), &deployments, &foos, recorder).unwrap();
        tasks.spawn(async move { factory.run(CancellationToken::new()).await });
        let synced = [deployments.synced(), foos.synced()];
        wait_for_cache_sync(&synced, &CancellationToken::new()).await.unwrap();
        Self { sim, user, controller, events, tasks }
    }

    /// Syncs the Foo once; returns the requests besides those of the informers, and the event.
    async fn sync(&mut self) -> (Vec<String>, Result<(), String>, Option<&'static str>) {
        let name = ObjectName::new(Some("default"), "test");
        let outcome = self.controller.sync_handler(&name).await.map_err(|error| error.to_string());
        let ledger = self.sim.ledger().into_iter();
        let requests = ledger
            .filter(|entry| entry.user == AGENT && !["list", "watch"].contains(&entry.verb.as_str()))
            .map(|entry| format!("{} {} {} -> {}", entry.verb, entry.resource, entry.subresource, entry.code))
            .map(|request| request.replace("  ", " "))
            .collect();
        (requests, outcome, self.events.try_recv().ok().map(|event| event.reason))
    }

    async fn deployment(&self) -> Deployment {
        let deployments = ApiResource::of::<Deployment>();
        self.user.get(&deployments, Some("default"), "test-deployment").await.unwrap().unwrap()
    }
}

/// sample-controller: `TestCreatesDeployment`
#[tokio::test(start_paused = true)]
async fn missing_deployment_is_created() {
    let mut f = Fixture::new(1, |_| None).await;
    let requests = ["create deployments -> 201", "update foos status -> 200"].map(str::to_owned).to_vec();
    assert_eq!(f.sync().await, (requests, Ok(()), Some("Synced")));
    let created = f.deployment().await;
    let owner = created.controller().unwrap();
    assert_eq!(
        (owner.kind, owner.name, owner.api_version),
        ("Foo", "test", "samplecontroller.k8s.io/v1alpha1")
    );
    assert!(owner.block_owner_deletion);
    let spec = created.spec;
    assert_eq!(
        (spec.replicas, spec.template.spec.unwrap().containers[0].image.as_deref()),
        (Some(1), Some("nginx:latest"))
    );
}

/// sample-controller: `TestDoNothing`
#[tokio::test(start_paused = true)]
async fn converged_foo_only_writes_its_status() {
    let mut f = Fixture::new(1, |foo| Some(new_deployment(foo))).await;
    let before = f.deployment().await;
    assert_eq!(f.sync().await, (vec!["update foos status -> 200".to_owned()], Ok(()), Some("Synced")));
    assert_eq!(f.deployment().await, before);
    let foo: Foo = f.user.get(&ApiResource::of::<Foo>(), Some("default"), "test").await.unwrap().unwrap();
    assert_eq!(foo.status.unwrap().available_replicas, 1);
}

/// sample-controller: `TestUpdateDeployment`
#[tokio::test(start_paused = true)]
async fn other_replicas_are_updated() {
    let of_one = |created: &Foo| {
        let spec = foo(1).spec;
        Some(new_deployment(&Foo { spec, ..created.clone() }))
    };
    let mut f = Fixture::new(2, of_one).await;
    let requests = ["update deployments -> 200", "update foos status -> 200"].map(str::to_owned).to_vec();
    assert_eq!(f.sync().await, (requests, Ok(()), Some("Synced")));
    assert_eq!(f.deployment().await.spec.replicas, Some(2));
}

/// sample-controller: `TestNotControlledByUs`
#[tokio::test(start_paused = true)]
async fn foreign_deployment_is_an_error() {
    let foreign = |foo: &Foo| {
        let mut deployment = new_deployment(foo);
        deployment.metadata.owner_references = None;
        Some(deployment)
    };
    let mut f = Fixture::new(1, foreign).await;
    let cause = "Deployment \"test-deployment\" exists, and this Foo does not control it".to_owned();
    assert_eq!(f.sync().await, (vec![], Err(cause), Some("ErrResourceExists")));
}

/// From handlers to workers: a Foo is synced when it changes, and when its Deployment does.
#[tokio::test(start_paused = true)]
async fn changes_of_foo_and_deployment_are_synced() {
    let mut f = Fixture::new(1, |_| None).await;
    let (controller, shutdown) = (f.controller.clone(), CancellationToken::new());
    let stop = shutdown.clone();
    let mut running = JoinSet::new();
    running.spawn(async move { controller.run(2, &stop).await });
    tokio::time::sleep(Duration::from_secs(60)).await;
    let web = f.deployment().await;
    let deployments = ApiResource::of::<Deployment>();
    let (uid, version) = (web.uid(), web.resource_version());
    f.user.delete(&deployments, Some("default"), "test-deployment", uid, version).await.unwrap();
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_ne!(f.deployment().await.metadata.uid, web.metadata.uid, "it is created again");
    shutdown.cancel();
    running.join_next().await.unwrap().unwrap().unwrap();
    f.tasks.shutdown().await;
}
