//! Faults at random, one at a time, each with an end. In every round each fault happens once, in a random order.

use std::fmt;
use std::time::Duration;

use fastrand::Rng;
use rustix::process::Signal;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::time::Instant;

use crate::churn::NAMESPACES;
use crate::cluster::{Launcher, Server};
use crate::foreign::Foreign;
use crate::kinds::{self, CHILDREN, DEFINITION, Kind, NAMESPACE, OURS, QUOTA, WEBHOOK};
use crate::proxy::{Gate, Proxy};
use crate::{Run, say};

/// The time between the beginnings of two faults.
const EVERY_SECONDS: std::ops::RangeInclusive<u64> = 20..=40;
/// How long a fault lasts, apart from the time that the cluster needs to get through it.
const LENGTH_SECONDS: std::ops::RangeInclusive<u64> = 3..=12;
/// How long there is peace after a fault at least.
const PEACE: Duration = Duration::from_secs(8);
/// The namespace that is deleted with its objects.
const DOOMED: &str = "doomed";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    OperatorKilled,
    OperatorFrozen,
    ServerKilled,
    ServerFrozen,
    StoreKilled,
    ConnectionsCut,
    ConnectionsStalled,
    WritesRefused,
    WritesHanging,
    QuotaExceeded,
    NamespaceDeleted,
    DefinitionRemoved,
}

const ALL: [Fault; 12] = [
    Fault::OperatorKilled,
    Fault::OperatorFrozen,
    Fault::ServerKilled,
    Fault::ServerFrozen,
    Fault::StoreKilled,
    Fault::ConnectionsCut,
    Fault::ConnectionsStalled,
    Fault::WritesRefused,
    Fault::WritesHanging,
    Fault::QuotaExceeded,
    Fault::NamespaceDeleted,
    Fault::DefinitionRemoved,
];

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::OperatorKilled => "operator killed",
            Self::OperatorFrozen => "operator frozen",
            Self::ServerKilled => "API server killed",
            Self::ServerFrozen => "API server frozen",
            Self::StoreKilled => "etcd killed",
            Self::ConnectionsCut => "operator's connections cut",
            Self::ConnectionsStalled => "operator's connections stalled",
            Self::WritesRefused => "webhook unreachable",
            Self::WritesHanging => "webhook hanging",
            Self::QuotaExceeded => "quota of zero",
            Self::NamespaceDeleted => "namespace deleted",
            Self::DefinitionRemoved => "definition removed",
        })
    }
}

/// A fault that happened.
pub(crate) struct Episode {
    pub(crate) fault: Fault,
    pub(crate) began: Instant,
    /// `None` while it is under way.
    pub(crate) ended: Option<Instant>,
}

/// What faults are made with.
struct Tools<'a> {
    run: &'a Run,
    foreign: &'a Foreign,
    proxy: &'a Proxy,
    launcher: &'a mut Launcher,
    rng: Rng,
}

/// Injects faults until the time is over; the last one is ended, too. An error means that a fault could not be made or
/// ended.
pub(crate) async fn inject(
    run: &Run,
    foreign: &Foreign,
    proxy: &Proxy,
    launcher: &mut Launcher,
) -> anyhow::Result<()> {
    let mut tools = Tools { run, foreign, proxy, launcher, rng: run.rng(3) };
    let mut left = Vec::new();
    let mut next = Instant::now();
    loop {
        next += Duration::from_secs(tools.rng.u64(EVERY_SECONDS));
        let peace = next.saturating_duration_since(Instant::now()).max(PEACE);
        if !run.pause(peace).await {
            return Ok(());
        }
        next = Instant::now();
        if left.is_empty() {
            left = round(&mut tools);
        }
        let Some(fault) = left.pop() else { continue };
        let length = Duration::from_secs(tools.rng.u64(LENGTH_SECONDS));
        say(&format!("fault: {fault}, for {} s", length.as_secs()));
        run.book.borrow_mut().episodes.push(Episode { fault, began: next, ended: None });
        let outcome = tools.make(fault, length).await;
        if let Some(episode) = run.book.borrow_mut().episodes.last_mut() {
            episode.ended = Some(Instant::now());
        }
        if outcome.is_err() {
            run.over.cancel();
            return outcome;
        }
        say(&format!("fault over after {:.1} s: {fault}", next.elapsed().as_secs_f64()));
    }
}

/// Returns the faults of a round, to be taken from the end. The operator is killed first, and in the first half of the
/// time only: in the second half one process lives long enough for the slopes of its memory and files.
fn round(tools: &mut Tools<'_>) -> Vec<Fault> {
    let mut faults: Vec<Fault> = ALL.into_iter().filter(|fault| *fault != Fault::OperatorKilled).collect();
    tools.rng.shuffle(&mut faults);
    if tools.run.began.elapsed() < tools.run.length / 2 {
        faults.push(Fault::OperatorKilled);
    }
    faults
}

impl Tools<'_> {
    async fn make(&mut self, fault: Fault, length: Duration) -> anyhow::Result<()> {
        match fault {
            Fault::OperatorKilled => {
                self.run.operator.borrow_mut().kill()?;
                tokio::time::sleep(length).await;
                self.run.operator.borrow_mut().start_again()
            }
            Fault::OperatorFrozen => {
                self.run.operator.borrow().signal(Signal::STOP)?;
                tokio::time::sleep(length).await;
                self.run.operator.borrow().signal(Signal::CONT)
            }
            Fault::ServerKilled => self.command("kill", "start", "kube-apiserver", length).await,
            Fault::ServerFrozen => self.command("freeze", "thaw", "kube-apiserver", length).await,
            Fault::StoreKilled => self.command("kill", "start", "etcd", length).await,
            Fault::ConnectionsCut => self.gate(Gate::Cut, length).await,
            Fault::ConnectionsStalled => self.gate(Gate::Stalled, length).await,
            Fault::WritesRefused => {
                // The port of a listener that is closed again.
                let port = TcpListener::bind("127.0.0.1:0").await?.local_addr()?.port();
                self.webhook(port, length).await
            }
            Fault::WritesHanging => {
                // Connections are established, but nobody accepts them, so that the TLS handshake never ends.
                let silent = TcpListener::bind("127.0.0.1:0").await?;
                self.webhook(silent.local_addr()?.port(), length).await
            }
            Fault::QuotaExceeded => self.quota(length).await,
            Fault::NamespaceDeleted => self.namespace(length).await,
            Fault::DefinitionRemoved => self.definition(length).await,
        }
    }

    /// Has the launcher do something to a process, and undo it.
    async fn command(
        &mut self,
        begin: &str,
        end: &str,
        process: &str,
        length: Duration,
    ) -> anyhow::Result<()> {
        self.launcher.command(&format!("{begin} {process}")).await?;
        tokio::time::sleep(length).await;
        self.launcher.command(&format!("{end} {process}")).await.map(drop)
    }

    async fn gate(&mut self, gate: Gate, length: Duration) -> anyhow::Result<()> {
        self.proxy.set(gate);
        tokio::time::sleep(length).await;
        self.proxy.set(Gate::Open);
        Ok(())
    }

    /// Has a webhook at this port asked about the writes of children and of status in the namespaces of the churn.
    async fn webhook(&mut self, port: u16, length: Duration) -> anyhow::Result<()> {
        const NAME: &str = "soak";
        let webhook = json!({
            "metadata": {"name": NAME},
            "webhooks": [{
                "name": "soak.windlass.dev",
                "admissionReviewVersions": ["v1"],
                "sideEffects": "None",
                "failurePolicy": "Fail",
                "timeoutSeconds": 10,
                "clientConfig": {"url": format!("https://127.0.0.1:{port}/")},
                "namespaceSelector": {"matchLabels": {"soak": "churn"}},
                "rules": [
                    rule(&CHILDREN, "", &["CREATE", "UPDATE", "DELETE"]),
                    rule(&OURS, "/status", &["UPDATE"]),
                ],
            }],
        });
        self.run.server.insist(WEBHOOK, "", &webhook).await?;
        tokio::time::sleep(length).await;
        self.run.server.remove(WEBHOOK, "", NAME).await
    }

    /// A quota leaves no room for children in a namespace of the churn.
    async fn quota(&mut self, length: Duration) -> anyhow::Result<()> {
        const NAME: &str = "none";
        let namespace = NAMESPACES[self.rng.usize(..NAMESPACES.len())];
        let hard = json!({"count/deployments.apps": "0", "services": "0", "pods": "0",
            "count/ingresses.networking.k8s.io": "0"});
        let quota = json!({"metadata": {"name": NAME}, "spec": {"hard": hard}});
        self.run.server.insist(QUOTA, namespace, &quota).await?;
        tokio::time::sleep(length).await;
        self.run.server.remove(QUOTA, namespace, NAME).await
    }

    /// A namespace with objects of all kinds is deleted while its children are on their way.
    async fn namespace(&mut self, length: Duration) -> anyhow::Result<()> {
        let server = &self.run.server;
        server.make_namespace(DOOMED, "doomed").await?;
        for kind in OURS {
            for number in 0..3 {
                let name = kind.numbered(number);
                let spec = kinds::without_nulls(kinds::random_spec(kind, &name, &mut self.rng));
                server.insist(kind, DOOMED, &json!({"metadata": {"name": name}, "spec": spec})).await?;
            }
        }
        tokio::time::sleep(length / 4).await;
        server.remove(NAMESPACE, "", DOOMED).await
    }

    /// A definition is removed, with all objects of the kind, and put back.
    async fn definition(&mut self, length: Duration) -> anyhow::Result<()> {
        let kind = OURS[self.rng.usize(..OURS.len())];
        say(&format!("fault: the removed definition is that of {kind}"));
        let server: &Server = &self.run.server;
        server.remove(DEFINITION, "", &kind.definition()).await?;
        tokio::time::sleep(length).await;
        server.install_definitions().await?;
        self.foreign.take_names(server).await
    }
}

fn rule(kinds: &[Kind], subresource: &str, operations: &[&str]) -> Value {
    let all = |of: &dyn Fn(&Kind) -> String| kinds.iter().map(of).collect::<Vec<_>>();
    json!({
        "apiGroups": all(&|kind| kind.group.to_owned()),
        "apiVersions": ["*"],
        "operations": operations,
        "resources": all(&|kind| format!("{}{subresource}", kind.plural)),
    })
}
