//! The server with a load's objects: it is made once, and each trial of a sweep begins with a copy.
//!
//! ```text
//! load ─▶ objects created ─▶ reconciled by an earlier operator, if the load says so ─▶ snapshot ─▶ a Sim for each trial
//! ```
//!
//! # Guarantees
//! - A trial begins with the load's objects, converged or new, and does not affect other trials. (test: `trials_begin_with_the_same_objects`)
//! - Objects that the server refuses, or that never converge, are an error. (test: `refused_and_unready_objects_are_an_error`)

use std::sync::Arc;
use std::time::Duration;

use kube_client::Client;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::load::Load;
use super::objects::Objects;
use super::process::{Process, epoch};
use super::program::Program;
use super::setting::Setting;
use super::tracker::Tracker;
use super::trial::virtual_time;
use crate::cache::SharedInformerFactory;
use crate::client::ApiClient;
use crate::sim::{InProcessTransport, Settings, Sim, Snapshot, Switches};

/// How long the earlier operator may take.
const LIMIT: Duration = Duration::from_secs(3600);
/// The seed of what is the same in all trials.
const SEED: u64 = 0;

/// See the module.
pub(super) struct Prepared {
    server: Snapshot,
    tracker: Arc<Tracker>,
}

/// A running embedded server, and the tracker of its objects.
pub(super) struct Cluster {
    pub(super) sim: Sim,
    pub(super) tracker: Arc<Tracker>,
    driver: JoinSet<()>,
}

// === impl Prepared ===

impl Prepared {
    /// Creates the objects of the load, in virtual time.
    ///
    /// # Errors
    /// A message, if an object is refused or does not converge.
    pub(super) fn new(program: &Arc<Program>, load: &Load) -> Result<Self, String> {
        virtual_time()?.block_on(async {
            // Pods say nothing about the operator, and would take most of the time.
            let world = Switches { status_of_workloads: true, ..Switches::default() };
            let settings = Settings { seed: SEED, epoch: epoch(), ledger: 0, world, ..Settings::default() };
            let mut cluster = Cluster::new(Sim::new(settings), Tracker::default());
            let client = cluster.client("load");
            program.define(&ApiClient::new(client.clone())).await?;
            let mut objects = Objects::new(program, &client, 0);
            for _ in 0..load.objects.count {
                objects.create(&cluster.tracker).await?;
            }
            if load.objects.converged && load.objects.count > 0 {
                cluster.follow(&objects, load, SEED);
                cluster.reconcile(program, load).await?;
            }
            Ok(Self { server: cluster.sim.snapshot(), tracker: cluster.tracker.clone() })
        })
    }

    /// Returns a server with the objects, in the caller's runtime.
    pub(super) fn cluster(&self, seed: u64) -> Cluster {
        Cluster::new(Sim::restore(&self.server, seed), self.tracker.resume())
    }
}

// === impl Cluster ===

impl Cluster {
    fn new(sim: Sim, tracker: Tracker) -> Self {
        let mut driver = JoinSet::new();
        let driven = sim.clone();
        driver.spawn(async move { driven.run().await });
        Self { sim, tracker: Arc::new(tracker), driver }
    }

    pub(super) fn client(&self, user: &str) -> Client {
        // Not the operator's server: an outage must not hit the load.
        Client::new(InProcessTransport::new(&self.sim, user).to_server(1), "default")
    }

    /// Starts to tell the tracker which objects have converged.
    pub(super) fn follow(&mut self, objects: &Objects, load: &Load, seed: u64) {
        let observer = ApiClient::new(self.client("observer"));
        let informers = SharedInformerFactory::new(observer, Vec::new(), None, seed);
        objects.follow(&informers, &self.tracker, load.converged_when);
        self.driver.spawn(async move { informers.run(CancellationToken::new()).await });
    }

    /// Lets an operator on a perfect server reconcile the objects, and stops it.
    async fn reconcile(&self, program: &Program, load: &Load) -> Result<(), String> {
        let setting = Setting::of("workers", "64");
        let server = (&self.sim, self.client("earlier"));
        let mut process = Process::start(program, load, &setting, server, SEED, None);
        let deadline = Instant::now() + LIMIT;
        while self.tracker.pending() > 0 {
            tokio::select! {
                biased;
                () = self.tracker.changed() => {}
                message = process.ended() => return Err(message),
                () = tokio::time::sleep_until(deadline) => {
                    return Err(format!("{} objects did not become Ready on a perfect server", self.tracker.pending()));
                }
            }
        }
        process.stop("the objects are Ready").await;
        Ok(())
    }

    /// Ends the server.
    pub(super) async fn shut_down(mut self) {
        self.driver.shutdown().await;
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::apps::v1::Deployment;
    use kube_client::api::{Api, DeleteParams, ListParams};
    use serde_json::json;

    use super::super::load;
    use super::*;

    fn load(count: usize, converged: bool) -> Load {
        Load { objects: load::Objects { count, converged }, ..Load::default() }
    }

    #[test]
    fn trials_begin_with_the_same_objects() {
        for converged in [false, true] {
            let load = load(3, converged);
            let program = Arc::new(Program::ours(&load.kinds).unwrap());
            let prepared = Prepared::new(&program, &load).unwrap();
            for seed in [1, 2] {
                virtual_time().unwrap().block_on(async {
                    let cluster = prepared.cluster(seed);
                    let deployments = Api::<Deployment>::default_namespaced(cluster.client("test"));
                    let children = deployments.list(&ListParams::default()).await.unwrap().items.len();
                    assert_eq!(
                        (children, cluster.tracker.pending()),
                        if converged { (3, 0) } else { (0, 3) }
                    );
                    deployments
                        .delete_collection(&DeleteParams::default(), &ListParams::default())
                        .await
                        .unwrap();
                });
            }
        }
    }

    #[test]
    fn refused_and_unready_objects_are_an_error() {
        let load = load(3, true);
        let error = |program: Program| Prepared::new(&Arc::new(program), &load).err().unwrap();
        let mut wrong = Program::ours(&load.kinds).unwrap();
        wrong.kinds[0].sample["spec"]["replicas"] = json!(-1);
        let refused = error(wrong);
        assert!(refused.contains("spec.replicas"), "{refused}");
        let kinds = Program::ours(&load.kinds).unwrap().kinds;
        let idle = Program::given(kinds, crate::cli::crds::definitions(), Arc::new(|_| Ok(())));
        assert_eq!(error(idle), "3 objects did not become Ready on a perfect server");
    }
}
