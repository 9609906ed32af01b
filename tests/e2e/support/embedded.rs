//! The embedded bed: the server and the operators are in this process, in a time of its own.
//!
//! The clock of a case is paused: when nobody has anything to do it jumps to what is due next. So half a
//! minute of silence takes no time. Where kubectl joins in, the clock runs, and the server has a socket.

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
    /// What is refused for want of a permission.
    denied: Mutex<Vec<FaultId>>,
    /// The way in for kubectl, where a case wants it.
    socket: Option<Socket>,
    /// Drives the server's time and its connections.
    driver: JoinSet<()>,
}

#[derive(Debug)]
struct Socket {
    /// Holds the kubeconfig.
    dir: tempfile::TempDir,
    kubectl: PathBuf,
}

/// Where everything random comes from: `WINDLASS_E2E_SEED` (1).
pub(crate) fn seed() -> u64 {
    std::env::var("WINDLASS_E2E_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(1)
}

impl Drop for EmbeddedBed {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("--- the embedded server: {} (WINDLASS_E2E_SEED)", self.sim.recipe());
            return;
        }
        // Nobody else waits for these tasks, so nobody else sees that one has panicked.
        while let Some(ended) = self.driver.try_join_next() {
            let has_panicked = ended.is_err_and(|error| error.is_panic());
            assert!(!has_panicked, "the embedded server has panicked: {}", self.sim.recipe());
        }
    }
}

impl EmbeddedBed {
    pub(crate) async fn start(mode: Mode) -> Arc<Self> {
        let epoch = windlass::client::Clock::system().now();
        let sim = Sim::new(Settings { seed: seed(), epoch, ..Settings::default() });
        let mut driver = JoinSet::new();
        let driven = sim.clone();
        driver.spawn(async move { driven.run().await });
        let mut socket = None;
        if mode == Mode::EmbeddedWithKubectl {
            let kubectl = Launcher::kubectl().unwrap_or_else(|why| panic!("{why}"));
            let server = HttpServer::bind(&sim, ([127, 0, 0, 1], 0).into()).await.expect("a free port");
            let kubeconfig = server.kubeconfig("admin").expect("a token");
            let dir = tempfile::tempdir().expect("a folder");
            std::fs::write(dir.path().join("kubeconfig"), kubeconfig.to_string()).expect("a kubeconfig");
            driver.spawn(server.run());
            socket = Some(Socket { dir, kubectl });
        }
        Arc::new(Self { sim, denied: Mutex::default(), socket, driver })
    }

    /// kubectl as the administrator.
    pub(crate) fn kubectl(&self) -> Command {
        let Socket { dir, kubectl } = self.socket.as_ref().expect("the case says that it needs kubectl");
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

    /// Takes a permission away.
    pub(crate) fn deny(&self, user: &str, resource: &str) {
        let refusal = Action::refuse(403, "Forbidden");
        let id = self.sim.fault(Fault::new(When::any().user(user).resource(resource), refusal));
        self.denied.lock().push(id);
    }

    /// Gives all permissions.
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
