//! The server that the demo runs on: an embedded server or a cluster.

use std::fmt::Write as _;
use std::io::IsTerminal;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};

use kube_client::Client;
use tokio::task::JoinSet;

use super::load::Load;
use super::setup::{self, Sample};
use super::switches::{OPERATOR, Panel};
use crate::cli::Failure;
use crate::cli::run::connect;
use crate::client::{ApiClient, Clock, ConfigSource};
use crate::sim::{HttpError, HttpServer, InProcessTransport, Settings, Sim, Switches};

/// The server, and clients for it.
pub(crate) struct DemoServer {
    pub(crate) client: ApiClient,
    pub(crate) clock: Clock,
    /// The operator's client; on the embedded server it has its own user.
    pub(crate) operator: ApiClient,
    kubeconfig: PathBuf,
    embedded: Option<Embedded>,
}

struct Embedded {
    sim: Sim,
    address: SocketAddr,
    /// Tasks that drive the server's time and its connections.
    tasks: JoinSet<()>,
    /// The folder of the kubeconfig, removed with the demo.
    _dir: tempfile::TempDir,
}

// === impl DemoServer ===

impl DemoServer {
    pub(crate) async fn find(kubeconfig: Option<&Path>, port: Option<u16>) -> Result<Self, Failure> {
        match kubeconfig {
            Some(_) if port.is_some_and(|port| port != 0) => Err(Failure::Usage {
                cause: "--port applies only to the embedded server, but a kubeconfig is given".to_owned(),
                remedy: "Leave out --port or --kubeconfig.".to_owned(),
            }),
            Some(kubeconfig) => Self::cluster(kubeconfig).await,
            None => Self::embedded(port.unwrap_or(0)).await,
        }
    }

    async fn cluster(kubeconfig: &Path) -> Result<Self, Failure> {
        let source = ConfigSource { kubeconfig: Some(kubeconfig.to_owned()), ..ConfigSource::default() };
        let client = connect(&source).await?;
        let kubeconfig = kubeconfig.to_owned();
        Ok(Self { operator: client.clone(), client, clock: Clock::system(), kubeconfig, embedded: None })
    }

    async fn embedded(port: u16) -> Result<Self, Failure> {
        let clock = Clock::system();
        // Small windows, so that a demo that runs for days does not grow.
        let settings = Settings {
            seed: fastrand::u64(..),
            epoch: clock.now(),
            window: 1000,
            ledger: 100,
            // For kubectl.
            tracks_managers: true,
            world: Switches { events: true, ..Switches::default() },
        };
        let sim = Sim::new(settings);
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let server = HttpServer::bind(&sim, address).await.map_err(|error| match error {
            HttpError::Listen { .. } => Failure::Usage {
                cause: error.to_string(),
                remedy: "Choose another port with --port, or leave it out for a free one.".to_owned(),
            },
            HttpError::Certificates(_) => Failure::Running(error.to_string()),
        })?;
        let failed = |error: &dyn std::fmt::Display| Failure::Usage {
            cause: format!("could not write a kubeconfig in {}: {error}", std::env::temp_dir().display()),
            remedy: "Make room there, or set TMPDIR to a folder that you may write to.".to_owned(),
        };
        let text = server.kubeconfig("you").map_err(|error| failed(&error))?;
        // The kubeconfig holds a token.
        let owner_alone = std::os::unix::fs::PermissionsExt::from_mode(0o700);
        let dir = tempfile::Builder::new().prefix("windlass-demo-").permissions(owner_alone).tempdir();
        let dir = dir.map_err(|error| failed(&error))?;
        let kubeconfig = dir.path().join("kubeconfig");
        std::fs::write(&kubeconfig, format!("{text:#}\n")).map_err(|error| failed(&error))?;
        let client = |user| ApiClient::new(Client::new(InProcessTransport::new(&sim, user), "default"));
        let (client, operator) = (client("demo"), client(OPERATOR));
        let address = server.address();
        let mut tasks = JoinSet::new();
        tasks.spawn(server.run());
        let time = sim.clone();
        tasks.spawn(async move { time.run().await });
        let embedded = Some(Embedded { sim, address, tasks, _dir: dir });
        Ok(Self { client, clock, operator, kubeconfig, embedded })
    }

    /// Creates definitions and samples, and prints which samples existed. Returns the created samples.
    pub(crate) async fn create<'a>(&self, samples: &'a [Sample]) -> Result<Vec<&'a Sample>, Failure> {
        let makes_namespaces = self.embedded.is_some();
        setup::create(&self.client, samples, makes_namespaces).await
    }

    /// Returns what the page's switches change; `None` on a cluster.
    pub(crate) fn playground(&self) -> Option<(Load, Panel)> {
        let Embedded { sim, .. } = self.embedded.as_ref()?;
        let (load, orders) = Load::new(self.client.clone());
        Some((load, Panel::new(sim.clone(), orders)))
    }

    /// Waits until the embedded server ends, which it should not.
    pub(crate) async fn failed(&mut self) -> Failure {
        match &mut self.embedded {
            Some(embedded) => {
                embedded.tasks.join_next().await;
                Failure::Running("the embedded server ended unexpectedly".to_owned())
            }
            None => std::future::pending().await,
        }
    }

    /// Returns the text printed at the start.
    pub(crate) fn introduction(&self, samples: &[Sample], page: Option<&str>) -> String {
        let kubeconfig = self.kubeconfig.display();
        let mut text = match &self.embedded {
            Some(embedded) => format!(
                "Embedded Kubernetes API server at https://{}; press Ctrl-C to stop.\n",
                embedded.address
            ),
            None => format!("Running on the cluster of {kubeconfig}; press Ctrl-C to stop the operator.\n"),
        };
        if let Some(page) = page {
            writeln!(text, "Live page: {page}").expect("a string takes all");
        }
        text.push_str("In a second terminal:\n");
        writeln!(text, "  export KUBECONFIG={kubeconfig}").expect("a string takes all");
        for (command, effect) in tries(samples) {
            writeln!(text, "  {command:<56} # {effect}").expect("a string takes all");
        }
        text + "\n"
    }

    /// Returns the text printed at the end: the samples left behind, and how to remove them.
    pub(crate) fn farewell(&self, created: &[&Sample]) -> String {
        // On a terminal the current line shows ^C.
        let mut text = if std::io::stdout().is_terminal() { "\n".to_owned() } else { String::new() };
        if self.embedded.is_some() || created.is_empty() {
            return text;
        }
        let kubeconfig = self.kubeconfig.display();
        // An object with a finalizer is gone only once an operator has cleaned up.
        text.push_str("These samples are left on the cluster. To remove them, start the operator");
        writeln!(text, " (windlass run --kubeconfig={kubeconfig}) and run:").expect("a string takes all");
        for Sample { resource, name, namespace, .. } in created {
            writeln!(text, "  kubectl --kubeconfig={kubeconfig} delete {resource} {name} -n {namespace}")
                .expect("a string takes all");
        }
        text
    }
}

/// Returns commands to try, each with its effect, for the first sample of each kind.
fn tries(samples: &[Sample]) -> Vec<(String, &'static str)> {
    let first = &samples[0];
    let mut tries =
        vec![(first.in_its_namespace("kubectl get windlass".to_owned()), "all resources shown here")];
    for (at, sample) in samples.iter().enumerate() {
        if samples[..at].iter().all(|other| other.resource != sample.resource) {
            tries.extend(sample.tries());
        }
    }
    let describe = format!("kubectl describe {} {}", first.kind(), first.name);
    tries.push((first.in_its_namespace(describe), "shows what happened"));
    tries
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_has_a_command_to_try() {
        let samples = setup::read_samples(None).unwrap();
        let commands: Vec<String> = tries(&samples).into_iter().map(|(command, _)| command).collect();
        for command in [
            "kubectl get windlass",
            "kubectl delete deployment example-foo",
            "kubectl delete service example-myapp",
            "kubectl scale appservice/example-appservice --replicas=2",
            "kubectl delete pod example-redis-0",
            "kubectl describe foo example",
        ] {
            assert!(commands.contains(&command.to_owned()), "{command} is not in {commands:#?}");
        }
    }
}
