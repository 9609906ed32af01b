//! Tests over TLS with the embedded server, whose authority and tokens are new each time it starts.

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use k8s_openapi::api::core::v1::Namespace;
use serde_json::{Value, json};
use tokio::task::{AbortHandle, JoinSet};

use super::*;
use crate::api::ApiResource;
use crate::client::{ApiClient, ConfigSource, Error};
use crate::sim::{HttpError, HttpServer, Settings, Sim};

/// A directory with the files of a client, and a server that can be replaced.
struct Rig {
    directory: tempfile::TempDir,
    sim: Sim,
    tasks: JoinSet<()>,
    server: Option<(SocketAddr, AbortHandle)>,
}

impl Rig {
    fn new() -> Self {
        let (directory, sim) = (tempfile::tempdir().unwrap(), Sim::new(Settings::default()));
        Self { directory, sim, tasks: JoinSet::new(), server: None }
    }

    /// Starts a server, and connects to it.
    async fn connected() -> (Self, ApiClient) {
        let mut rig = Self::new();
        let kubeconfig = rig.start_server().await;
        rig.write(&kubeconfig);
        let client = rig.connect().await;
        (rig, client)
    }

    /// Starts a server, at the address of the former one. Returns a kubeconfig with the server's authority and token.
    async fn start_server(&mut self) -> Value {
        // Most tests listen on 127.0.0.1, and do not take the port between two servers.
        let mut address = SocketAddr::from(([0, 0, 0, 0, 0, 0, 0, 1], 0));
        if let Some((former, server)) = self.server.take() {
            server.abort();
            assert!(self.tasks.join_next().await.unwrap().unwrap_err().is_cancelled());
            address = former;
        }
        let server = tokio::time::timeout(Duration::from_secs(30), async {
            loop {
                match HttpServer::bind(&self.sim, address).await {
                    Ok(server) => return server,
                    // Another test has taken it, or a connection from there.
                    Err(HttpError::Listen { source, .. }) if source.kind() == ErrorKind::AddrInUse => {
                        tokio::time::sleep(Duration::from_millis(20)).await;
                    }
                    Err(error) => panic!("{error:?}"),
                }
            }
        });
        let server = server.await.expect("the port of the former server is free again");
        let kubeconfig = server.kubeconfig("me").unwrap();
        let address = server.address();
        self.server = Some((address, self.tasks.spawn(server.run())));
        kubeconfig
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Writes the kubeconfig with its token in a file of its own, as a Pod has it.
    fn write(&self, kubeconfig: &Value) {
        let mut kubeconfig = kubeconfig.clone();
        let user = &mut kubeconfig["users"][0]["user"];
        std::fs::write(self.path("token"), format!("{}\n", user["token"].as_str().unwrap())).unwrap();
        *user = json!({"tokenFile": self.path("token")});
        std::fs::write(self.path("kubeconfig"), kubeconfig.to_string()).unwrap();
    }

    async fn connect(&self) -> ApiClient {
        let source = ConfigSource { kubeconfig: Some(self.path("kubeconfig")), ..ConfigSource::default() };
        ApiClient::connect(Config::load(&source).await.unwrap()).await.unwrap()
    }
}

async fn read(client: &ApiClient) -> Result<(), Error> {
    client
        .get::<Value>(&ApiResource::of::<Namespace>(), None, "default")
        .await
        .map(|found| assert!(found.is_some()))
}

fn code(outcome: &Result<(), Error>) -> Option<u16> {
    outcome.as_ref().err()?.status().map(|status| status.code)
}

/// Lets time pass without work. Timers of connections must not fire while a socket is waited for, so that time runs
/// freely otherwise.
async fn pass(time: Duration) {
    tokio::time::pause();
    tokio::time::advance(time).await;
    tokio::time::resume();
}

#[tokio::test]
async fn replaced_token_and_authority_are_used_soon() {
    let (mut rig, client) = Rig::connected().await;
    read(&client).await.unwrap();
    let kubeconfig = rig.start_server().await;
    assert!(matches!(read(&client).await, Err(Error::Transport { .. })), "the new authority is unknown");
    rig.write(&kubeconfig);
    pass(PERIOD).await;
    read(&client).await.unwrap();
}

#[tokio::test]
async fn an_unauthorized_request_is_repeated_with_new_token() {
    let mut rig = Rig::new();
    let good = rig.start_server().await;
    let mut wrong = good.clone();
    wrong["users"][0]["user"]["token"] = json!("wrong");
    rig.write(&wrong);
    let client = rig.connect().await;
    assert_eq!(code(&read(&client).await), Some(401));
    rig.write(&good);
    assert_eq!(code(&read(&client).await), Some(401), "a storm of 401 does not reload each time");
    pass(REFUSED_PERIOD).await;
    let before = rig.sim.ledger().len();
    read(&client).await.unwrap();
    assert_eq!(rig.sim.ledger().len(), before + 1, "what is refused with 401 has not been executed");
}

#[tokio::test]
async fn a_broken_configuration_keeps_the_last_good_one() {
    let (rig, client) = Rig::connected().await;
    let token = std::fs::read_to_string(rig.path("token")).unwrap();
    let kubeconfig = std::fs::read_to_string(rig.path("kubeconfig")).unwrap();
    let write = |name: &str, text: &str| std::fs::write(rig.path(name), text).unwrap();
    for name in ["token", "kubeconfig"] {
        for broken in [Some(""), Some("{\"clusters\": ["), None] {
            // A token may be any text.
            match broken {
                Some(text) if name == "kubeconfig" || text.is_empty() => write(name, text),
                Some(_) => continue,
                None => std::fs::remove_file(rig.path(name)).unwrap(),
            }
            pass(PERIOD).await;
            read(&client).await.unwrap();
            write("token", &token);
            write("kubeconfig", &kubeconfig);
        }
    }
}

#[tokio::test]
async fn another_server_is_not_followed() {
    let (rig, client) = Rig::connected().await;
    let other = HttpServer::bind(&rig.sim, SocketAddr::from(([127, 0, 0, 1], 0))).await.unwrap();
    rig.write(&other.kubeconfig("me").unwrap());
    pass(PERIOD).await;
    read(&client).await.unwrap();
}

/// The plugin prints the token file at that time.
#[tokio::test]
async fn an_expired_plugin_token_is_renewed() {
    let mut rig = Rig::new();
    let mut kubeconfig = rig.start_server().await;
    rig.write(&kubeconfig);
    let good = std::fs::read_to_string(rig.path("token")).unwrap();
    std::fs::write(rig.path("token"), "expired").unwrap();
    kubeconfig["users"][0]["user"] = json!({"exec": {"apiVersion": "client.authentication.k8s.io/v1",
        "command": "sh", "args": ["-c", script(&rig.path("token"))], "interactiveMode": "Never"}});
    std::fs::write(rig.path("kubeconfig"), kubeconfig.to_string()).unwrap();
    let client = rig.connect().await;
    std::fs::write(rig.path("token"), good.trim()).unwrap();
    read(&client).await.unwrap();
}

/// Returns a shell command that prints this token as a plugin does.
fn script(token: &Path) -> String {
    let credential =
        r#"{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential","status":{"token":"%s"}}"#;
    format!("printf '{credential}' \"$(cat '{}')\"", token.display())
}
