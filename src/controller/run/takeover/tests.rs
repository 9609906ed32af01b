//! A Foo operator that stands by, on the embedded server.

use std::time::Duration;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube_core::CustomResourceExt;
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::*;
use crate::api::samplecontroller::v1alpha1::{Foo, FooSpec};
use crate::cache::SharedInformerFactory;
use crate::client::Clock;
use crate::controller::run::audit::Audits;
use crate::controller::{ControllerContext, Limits};
use crate::leader_election::{Ending, LeaderElectionConfig, LeaderElector, LeaseLock};
use crate::metrics::Metrics;
use crate::operators::foo;
use crate::record::EventRecorder;
use crate::sim::{InProcessTransport, Settings, Sim};
use crate::traces::Tracer;

const SECOND: Duration = Duration::from_secs(1);

fn client(sim: &Sim, user: &str) -> ApiClient {
    ApiClient::new(kube_client::Client::new(InProcessTransport::new(sim, user), "default"))
}

/// An operator that stands by until its elector is run.
struct Standby {
    sim: Sim,
    user: ApiClient,
    elector: Option<LeaderElector>,
    tasks: JoinSet<()>,
}

impl Standby {
    async fn start() -> Self {
        let (sim, mut tasks) = (Sim::new(Settings::default()), JoinSet::new());
        let driven = sim.clone();
        tasks.spawn(async move { driven.run().await });
        let user = client(&sim, "user");
        let crds = ApiResource::of::<CustomResourceDefinition>();
        user.create::<Value>(&crds, None, &json!(Foo::crd())).await.unwrap();
        tokio::time::sleep(SECOND).await;

        let operator = client(&sim, "operator");
        let (recorder, _) = EventRecorder::to_buffer(Clock::system(), 1);
        let metrics = Metrics::new();
        let lock = LeaseLock::new(operator.clone(), "default".to_owned(), "windlass".to_owned());
        let (config, of_lease) = (LeaderElectionConfig::default(), metrics.leader_election("windlass"));
        let elector =
            LeaderElector::new(lock, "operator".to_owned(), config, recorder.clone(), of_lease, 1).unwrap();
        let informers = SharedInformerFactory::new(operator.clone(), Vec::new(), None, 1);
        let shared = ControllerContext {
            shards: None,
            client: operator,
            informers: &informers,
            recorder,
            clock: Clock::system(),
            limits: Limits::default(),
            metrics,
            tracer: Tracer::default(),
            audits: &Audits::default(),
            leadership: Some(elector.leadership()),
        };
        let controller = foo::controller(&shared).unwrap();
        drop(shared);
        tasks.spawn(controller.run(CancellationToken::new()));
        tasks.spawn(async move { informers.run(CancellationToken::new()).await });
        Self { sim, user, elector: Some(elector), tasks }
    }

    fn lead(&mut self) {
        let elector = self.elector.take().expect("it leads once");
        self.tasks
            .spawn(async move { assert_eq!(elector.run(CancellationToken::new()).await, Ending::Lost) });
    }

    async fn create(&self, name: &str) {
        let spec = FooSpec { deployment_name: name.to_owned(), replicas: 1 };
        let foo = json!(Foo::new(name, spec));
        self.user.create::<Value>(&ApiResource::of::<Foo>(), Some("default"), &foo).await.unwrap();
    }

    /// Returns the operator's requests for single Foos and Deployments, except for their status.
    fn requests(&self) -> Vec<String> {
        let all = self.sim.ledger().into_iter().filter(|entry| {
            entry.user == "operator"
                && ["foos", "deployments"].contains(&&*entry.resource)
                && entry.subresource.is_empty()
                && !["list", "watch"].contains(&&*entry.verb)
        });
        all.map(|entry| format!("{} {}", entry.verb, entry.resource)).collect()
    }
}

#[tokio::test(start_paused = true)]
async fn standby_syncs_nothing_until_it_leads() {
    let mut standby = Standby::start().await;
    standby.create("one").await;
    tokio::time::sleep(60 * SECOND).await;
    assert_eq!(standby.requests(), Vec::<String>::new());
    standby.lead();
    tokio::time::sleep(2 * SECOND).await;
    assert!(standby.requests().contains(&"create deployments".to_owned()), "{:?}", standby.requests());
}

#[tokio::test(start_paused = true)]
async fn new_leader_reads_live_until_caches_catch_up() {
    let mut standby = Standby::start().await;
    standby.create("one").await;
    tokio::time::sleep(5 * SECOND).await;
    // The caches receive later changes after 30 s.
    standby.sim.set_lag(0, 30 * SECOND);
    standby.create("two").await;
    standby.lead();
    tokio::time::sleep(5 * SECOND).await;
    assert_eq!(standby.requests(), ["get foos", "create deployments"], "of the Foo that the cache has");
    tokio::time::sleep(180 * SECOND).await;
    standby.sim.set_lag(0, Duration::ZERO);
    let before = standby.requests().len();
    standby.create("three").await;
    tokio::time::sleep(5 * SECOND).await;
    assert_eq!(standby.requests()[before..], ["create deployments"], "the caches are trusted again");
}
