//! The embedded bed: the server and the operators are in this process, in a time of its own.
//!
//! The clock of a case is paused: when nobody has anything to do it jumps to what is due next. So half a
//! minute of silence takes no time.

use std::sync::Arc;

use kube_client::Client;
use parking_lot::Mutex;
use tokio::task::JoinSet;
use windlass::sim::{Action, Door, Fault, FaultId, Settings, Sim, When};

use super::Operator;
use super::bed::LedgerEntry;

/// See the module.
#[derive(Debug)]
pub(crate) struct EmbeddedBed {
    pub(crate) sim: Sim,
    /// What is refused for want of a permission.
    denied: Mutex<Vec<FaultId>>,
    /// Drives the server's time.
    _driver: JoinSet<()>,
}

impl EmbeddedBed {
    pub(crate) fn start() -> Arc<Self> {
        let epoch = windlass::client::Clock::system().now();
        let sim = Sim::new(Settings { seed: 1, epoch, ..Settings::default() });
        let mut driver = JoinSet::new();
        let driven = sim.clone();
        driver.spawn(async move { driven.run().await });
        Arc::new(Self { sim, denied: Mutex::default(), _driver: driver })
    }

    pub(crate) fn client(&self, user: &str) -> Client {
        Client::new(Door::new(&self.sim, user), "default")
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
            })
            .collect()
    }
}
