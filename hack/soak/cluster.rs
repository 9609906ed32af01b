//! The control plane: its launcher, a child process, and an administrator's requests to its server.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, bail};
use kube_client::Client;
use rustix::process::{Pid, Signal, kill_process};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::time::Instant;

use crate::kinds::{BINDING, Kind, NAMESPACE, SERVICE_ACCOUNT};

/// How long a request may take. A frozen server does not answer, and churn has to go on.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(12);
/// How long something that must succeed may be refused or unanswered.
const PATIENCE: Duration = Duration::from_secs(150);
/// The operator's user.
const USER: &str = "windlass";

/// The launcher, which stops the control plane when its standard input closes, however this process ends.
pub(crate) struct Launcher {
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: Lines<BufReader<ChildStdout>>,
}

/// What the launcher says when the control plane is ready.
#[derive(Deserialize)]
pub(crate) struct Ready {
    pub(crate) kubeconfig: PathBuf,
    pub(crate) dir: PathBuf,
    pub(crate) kubectl: PathBuf,
}

impl Launcher {
    pub(crate) fn start(program: &Path) -> anyhow::Result<Self> {
        let mut child = Command::new(program)
            // The scheduler exits when it has missed that a Pod was created again.
            .args(["serve", "--no-audit-log", "--restart"])
            // Ctrl-C only reaches this process, which then ends the launcher.
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("start {}", program.display()))?;
        let stdin = child.stdin.take();
        let stdout = BufReader::new(child.stdout.take().context("the launcher has an output")?).lines();
        Ok(Self { child, stdin, stdout })
    }

    /// Waits until the control plane is ready.
    pub(crate) async fn ready(&mut self) -> anyhow::Result<Ready> {
        Ok(serde_json::from_value(self.answer().await?)?)
    }

    /// Sends a command and returns the answer.
    pub(crate) async fn command(&mut self, line: &str) -> anyhow::Result<Value> {
        let stdin = self.stdin.as_mut().context("the launcher is stopped")?;
        stdin.write_all(format!("{line}\n").as_bytes()).await?;
        let answer = self.answer().await?;
        if let Some(error) = answer["error"].as_str() {
            bail!("{line}: {error}");
        }
        Ok(answer)
    }

    async fn answer(&mut self) -> anyhow::Result<Value> {
        let line = self.stdout.next_line().await?;
        let line = line.context("the control plane has ended; its message is above")?;
        Ok(serde_json::from_str(&line)?)
    }

    /// Stops the control plane and waits for its end.
    pub(crate) async fn stop(mut self) {
        // Before it is ready, the launcher does not read its input.
        if let Some(pid) = self.child.id().and_then(|pid| Pid::from_raw(pid.cast_signed()))
            && let Err(error) = kill_process(pid, Signal::TERM)
        {
            eprintln!("soak: the launcher cannot be stopped: {error}");
        }
        if let Err(error) = self.child.wait().await {
            eprintln!("soak: the launcher cannot be waited for: {error}");
        }
    }
}

/// Why a request had no success.
#[derive(Debug)]
pub(crate) enum Refusal {
    /// 404.
    Missing,
    /// 409.
    Exists,
    /// 400 or 422: the request itself is wrong.
    Invalid(String),
    /// Any other answer, or none.
    Other(String),
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Missing => f.write_str("404"),
            Self::Exists => f.write_str("409"),
            Self::Invalid(why) | Self::Other(why) => f.write_str(why),
        }
    }
}

impl std::error::Error for Refusal {}

/// The API server, as its administrator.
pub(crate) struct Server {
    client: Client,
    kubectl: PathBuf,
    kubeconfig: PathBuf,
}

impl Server {
    pub(crate) async fn of(ready: &Ready) -> anyhow::Result<Self> {
        let kubeconfig = kube_client::config::Kubeconfig::read_from(&ready.kubeconfig)?;
        let mut config = kube_client::Config::from_custom_kubeconfig(kubeconfig, &Default::default()).await?;
        config.default_retry = false;
        let client = Client::try_from(config)?;
        Ok(Self { client, kubectl: ready.kubectl.clone(), kubeconfig: ready.kubeconfig.clone() })
    }

    pub(crate) async fn version(&self) -> anyhow::Result<String> {
        let version = self.request("GET", "/version".to_owned(), None).await?;
        Ok(format!("Kubernetes {}", version["gitVersion"].as_str().unwrap_or("of unknown version")))
    }

    /// Returns all objects of these kinds, each with its kind.
    pub(crate) async fn list_all(&self, kinds: &[Kind]) -> Result<Vec<Value>, Refusal> {
        let mut all = Vec::new();
        for kind in kinds {
            let mut list = self.request("GET", kind.path(""), None).await?;
            for mut object in list["items"].as_array_mut().map(std::mem::take).unwrap_or_default() {
                object["kind"] = json!(kind.name);
                all.push(object);
            }
        }
        Ok(all)
    }

    pub(crate) async fn get(&self, kind: Kind, namespace: &str, name: &str) -> Result<Value, Refusal> {
        self.request("GET", format!("{}/{name}", kind.path(namespace)), None).await
    }

    /// Creates an object; its kind is added to it.
    pub(crate) async fn create(
        &self,
        kind: Kind,
        namespace: &str,
        mut object: Value,
    ) -> Result<Value, Refusal> {
        object["apiVersion"] = json!(kind.api_version());
        object["kind"] = json!(kind.name);
        self.request("POST", kind.path(namespace), Some(&object)).await
    }

    /// Applies a merge patch.
    pub(crate) async fn patch(
        &self,
        kind: Kind,
        namespace: &str,
        name: &str,
        patch: &Value,
    ) -> Result<Value, Refusal> {
        self.request("PATCH", format!("{}/{name}", kind.path(namespace)), Some(patch)).await
    }

    /// Deletes an object, with propagation `Background` or `Foreground`.
    pub(crate) async fn delete(
        &self,
        kind: Kind,
        namespace: &str,
        name: &str,
        how: &str,
    ) -> Result<(), Refusal> {
        let options = json!({"propagationPolicy": how});
        self.request("DELETE", format!("{}/{name}", kind.path(namespace)), Some(&options)).await.map(drop)
    }

    /// Creates an object, however long the server refuses it; one that exists is kept.
    pub(crate) async fn insist(&self, kind: Kind, namespace: &str, object: &Value) -> anyhow::Result<()> {
        let what = format!("create {kind} {}", object["metadata"]["name"]);
        self.until(&what, async || match self.create(kind, namespace, object.clone()).await {
            Ok(_) | Err(Refusal::Exists) => Ok(()),
            Err(refusal) => Err(refusal),
        })
        .await
    }

    /// Deletes an object and waits until it is gone.
    pub(crate) async fn remove(&self, kind: Kind, namespace: &str, name: &str) -> anyhow::Result<()> {
        let what = format!("delete {kind} {name}");
        self.until(&what, async || match self.delete(kind, namespace, name, "Background").await {
            Err(Refusal::Missing) => Ok(()),
            Ok(()) | Err(Refusal::Exists) => Err(Refusal::Other("it is still there".to_owned())),
            Err(refusal) => Err(refusal),
        })
        .await
    }

    /// Makes a namespace with the label `soak`, and waits until Pods can be created in it.
    pub(crate) async fn make_namespace(&self, name: &str, label: &str) -> anyhow::Result<()> {
        let object = json!({"metadata": {"name": name, "labels": {"soak": label}}});
        self.insist(NAMESPACE, "", &object).await?;
        self.until(&format!("{name} has a service account"), async || {
            self.get(SERVICE_ACCOUNT, name, "default").await.map(drop)
        })
        .await
    }

    /// Tries every half second until there is success.
    async fn until(
        &self,
        what: &str,
        mut act: impl AsyncFnMut() -> Result<(), Refusal>,
    ) -> anyhow::Result<()> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            match act().await {
                Ok(()) => return Ok(()),
                Err(refusal) if Instant::now() > deadline => {
                    return Err(refusal)
                        .with_context(|| format!("{what}, tried for {} s", PATIENCE.as_secs()));
                }
                Err(_) => tokio::time::sleep(Duration::from_millis(500)).await,
            }
        }
    }

    /// Applies the definitions of the five kinds and waits until they are served.
    pub(crate) async fn install_definitions(&self) -> anyhow::Result<()> {
        self.kubectl(&["apply", "--kustomize", "crd"]).await?;
        self.kubectl(&["wait", "--for=condition=Established", "crd", "--all", "--timeout=60s"]).await
    }

    async fn kubectl(&self, args: &[&str]) -> anyhow::Result<()> {
        let output = Command::new(&self.kubectl)
            .env("KUBECONFIG", &self.kubeconfig)
            .args(args)
            .current_dir(env!("CARGO_MANIFEST_DIR"))
            .stdin(Stdio::null())
            .kill_on_drop(true)
            .output()
            .await
            .context("run kubectl")?;
        if !output.status.success() {
            bail!("kubectl {}: {}", args.join(" "), String::from_utf8_lossy(&output.stderr).trim());
        }
        Ok(())
    }

    async fn request(&self, method: &str, path: String, body: Option<&Value>) -> Result<Value, Refusal> {
        let media = if method == "PATCH" { "application/merge-patch+json" } else { "application/json" };
        let body = body.map(|body| body.to_string().into_bytes()).unwrap_or_default();
        let request = http::Request::builder().method(method).uri(path).header("content-type", media);
        let request = request.body(body).map_err(|error| Refusal::Invalid(error.to_string()))?;
        match tokio::time::timeout(REQUEST_TIMEOUT, self.client.request::<Value>(request)).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(kube_client::Error::Api(status))) => Err(match status.code {
                404 => Refusal::Missing,
                409 => Refusal::Exists,
                400 | 422 => Refusal::Invalid(format!("{}: {}", status.code, status.message)),
                code => Refusal::Other(format!("{code}: {}", status.message)),
            }),
            Ok(Err(error)) => Err(Refusal::Other(error.to_string())),
            Err(_) => Err(Refusal::Other(format!("no answer within {} s", REQUEST_TIMEOUT.as_secs()))),
        }
    }
}

/// Writes a kubeconfig for the operator, which has the role that an installation gives it, and returns its path.
pub(crate) async fn operators_kubeconfig(
    server: &Server,
    launcher: &mut Launcher,
) -> anyhow::Result<PathBuf> {
    server.kubectl(&["apply", "--filename", "hack/deploy/base/role.yaml"]).await?;
    let group = "rbac.authorization.k8s.io";
    let binding = json!({
        "metadata": {"name": "windlass"},
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": "windlass"},
        "subjects": [{"apiGroup": group, "kind": "User", "name": USER}],
    });
    server.create(BINDING, "", binding).await?;
    let answer = launcher.command(&format!("identity {USER}")).await?;
    Ok(PathBuf::from(answer["kubeconfig"].as_str().context("the launcher names a file")?))
}
