//! The embedded bed: the API server and the operators run in the test process.
//!
//! The clock of a case is paused: when every task is idle it jumps to the next timer, so half a minute of
//! silence takes no time. In cases with kubectl the clock runs and the server listens on a socket.

use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;

use kube_client::Client;
use parking_lot::Mutex;
use tokio::task::JoinSet;
use windlass::sim::{Action, Fault, FaultId, HttpServer, InProcessTransport, Settings, Sim, When};

use super::bed::LedgerEntry;
use super::runs::Mode;
use super::{Launcher, Operator};

/// See the module.
#[derive(Debug)]
pub(crate) struct EmbeddedBed {
    pub(crate) sim: Sim,
    /// Faults that refuse requests with 403, as a missing permission would.
    denied: Mutex<Vec<FaultId>>,
    /// Access for kubectl, in cases that use it.
    socket: Option<Socket>,
    /// Drives the server's timers and its connections.
    driver: JoinSet<()>,
}

#[derive(Debug)]
struct Socket {
    /// Contains the kubeconfig.
    dir: tempfile::TempDir,
    kubectl: PathBuf,
}

/// Returns the seed for all randomness: `WINDLASS_E2E_SEED`, or 1.
pub(crate) fn seed() -> u64 {
    std::env::var("WINDLASS_E2E_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(1)
}

impl Drop for EmbeddedBed {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("--- the embedded server: {} (WINDLASS_E2E_SEED)", self.sim.recipe());
            return;
        }
        // Nothing else joins these tasks, so their panics surface here.
        while let Some(ended) = self.driver.try_join_next() {
            let has_panicked = ended.is_err_and(|error| error.is_panic());
            assert!(!has_panicked, "the embedded server has panicked: {}", self.sim.recipe());
        }
    }
}

impl EmbeddedBed {
    pub(crate) async fn start(mode: Mode) -> Arc<Self> {
        let epoch = windlass::client::Clock::system().now();
        let sim = Sim::new(Settings {
            seed: seed(),
            epoch,
            tracks_managers: mode == Mode::EmbeddedWithKubectl,
            ..Settings::default()
        });
        let mut driver = JoinSet::new();
        let driven = sim.clone();
        driver.spawn(async move { driven.run().await });
        let mut socket = None;
        if mode == Mode::EmbeddedWithKubectl {
            let kubectl = Launcher::kubectl().unwrap_or_else(|why| panic!("{why}"));
            let server = HttpServer::bind(&sim, ([127, 0, 0, 1], 0).into()).await.expect("a port is free");
            let kubeconfig = server.kubeconfig("admin").expect("the admin has a token");
            let dir = tempfile::tempdir().expect("a temporary directory");
            std::fs::write(dir.path().join("kubeconfig"), kubeconfig.to_string()).expect("file is written");
            driver.spawn(server.run());
            socket = Some(Socket { dir, kubectl });
        }
        Arc::new(Self { sim, denied: Mutex::default(), socket, driver })
    }

    /// Returns a kubectl command that runs as the administrator.
    pub(crate) fn kubectl(&self) -> Command {
        let Socket { dir, kubectl } = self.socket.as_ref().expect("the case uses a `_with_kubectl` macro");
        let mut command = Command::new(kubectl);
        command.env("KUBECONFIG", dir.path().join("kubeconfig")).env("HOME", dir.path());
        command
    }

    pub(crate) fn client(&self, user: &str) -> Client {
        Client::new(InProcessTransport::new(&self.sim, user), "default")
    }

    pub(crate) fn operator(&self, user: &str, flags: &[&str]) -> Operator {
        Operator::in_process(&self.sim, user, self.client(user), flags)
    }

    /// Refuses the user's requests for a resource with 403.
    pub(crate) fn deny(&self, user: &str, resource: &str) {
        let refusal = Action::refuse(403, "Forbidden");
        let id = self.sim.fault(Fault::new(When::any().user(user).resource(resource), refusal));
        self.denied.lock().push(id);
    }

    /// Refuses the user's watches of a resource with 403.
    pub(crate) fn deny_watches(&self, user: &str, resource: &str) {
        let refusal = Action::refuse(403, "Forbidden");
        let id = self.sim.fault(Fault::new(When::verb("watch").user(user).resource(resource), refusal));
        self.denied.lock().push(id);
    }

    /// Lifts all refusals made by `deny`.
    pub(crate) fn allow(&self) {
        for id in self.denied.lock().drain(..) {
            self.sim.heal(id);
        }
    }

    pub(crate) fn ledger(&self, user: &str) -> Vec<LedgerEntry> {
        let entries = self.sim.ledger().into_iter().filter(|entry| entry.user == user && entry.code != 0);
        entries
            .map(|entry| LedgerEntry {
                verb: entry.verb,
                resource: entry.resource,
                name: entry.name,
                code: entry.code.into(),
                user_agent: entry.user_agent,
                uri: entry.uri,
                bytes: Some(entry.bytes),
            })
            .collect()
    }
}
