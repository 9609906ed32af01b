//! One running control plane: its directory and its processes.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, bail};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;
use tokio::process::{Child, Command};
use tokio::time::Instant;

use crate::assets::Assets;
use crate::certificates::Authority;

/// How long the API server may take to become ready.
const READY_TIMEOUT: Duration = Duration::from_secs(60);

/// How many times a start is attempted when a port is taken.
const STARTS_MAX: u32 = 3;

/// Which parts of a control plane to start. The default starts all of them.
#[derive(clap::Args, Default)]
pub(crate) struct Extent {
    /// Start etcd and kube-apiserver alone, and of the others those that --with names.
    #[arg(long)]
    bare: bool,
    /// A program to start in spite of --bare.
    #[arg(long, requires = "bare", value_delimiter = ',', value_parser = BESIDE_THE_SERVER)]
    with: Vec<String>,
    /// Keep no audit log, which costs the API server processor time.
    #[arg(long)]
    no_audit_log: bool,
    /// Do not serve events.k8s.io/v1, so that events written there cost almost nothing.
    #[arg(long)]
    no_events_api: bool,
    /// Filter lists and watches by shard where the client asks for it (a feature gate, since Kubernetes 1.36).
    #[arg(long)]
    sharded_lists: bool,
    /// Turn off the API server's periodic check of its watch caches against etcd, which takes seconds with many objects.
    #[arg(long)]
    no_consistency_checks: bool,
}

impl Extent {
    fn has(&self, program: &str) -> bool {
        !self.bare || self.with.iter().any(|name| name == program)
    }
}

/// The programs that run beside etcd and the API server.
const BESIDE_THE_SERVER: [&str; 3] = ["kube-controller-manager", "kube-scheduler", "kwok"];

/// Whether a process can be restarted by itself: etcd and the API server go on meanwhile.
pub(crate) fn is_beside(name: &str) -> bool {
    BESIDE_THE_SERVER.contains(&name)
}

/// A running control plane, killed on drop.
pub(crate) struct Instance {
    /// Declared first so that the processes are killed before the directory is removed.
    processes: Vec<Process>,
    dir: PathBuf,
    /// Removes the directory on drop; `None` if the caller named the directory.
    _temporary: Option<tempfile::TempDir>,
    authority: Authority,
    ports: Ports,
    admin: PathBuf,
}

struct Ports {
    etcd: u16,
    etcd_peer: u16,
    apiserver: u16,
    kwok: u16,
}

struct Process {
    name: &'static str,
    program: PathBuf,
    args: Vec<String>,
    log: PathBuf,
    /// `None` after a deliberate kill.
    child: Option<Child>,
}

impl Instance {
    /// Starts everything and waits until the API server is ready. Retries with other ports if another process
    /// has taken one of them.
    pub(crate) async fn start(
        assets: &Assets,
        dir: Option<PathBuf>,
        extent: &Extent,
    ) -> anyhow::Result<Self> {
        let mut attempts = 1..STARTS_MAX;
        loop {
            match Self::start_once(assets, dir.clone(), extent).await {
                Err(error)
                    if error.to_string().contains("address already in use") && attempts.next().is_some() =>
                {
                    eprintln!("A port was taken by somebody else meanwhile; starting again with others ...");
                }
                outcome => return outcome,
            }
        }
    }

    async fn start_once(assets: &Assets, dir: Option<PathBuf>, extent: &Extent) -> anyhow::Result<Self> {
        let temporary = match dir {
            Some(_) => None,
            None => Some(tempfile::Builder::new().prefix("windlass-control-plane-").tempdir()?),
        };
        let dir = match (dir, &temporary) {
            (Some(dir), _) => dir,
            (None, Some(temporary)) => temporary.path().to_owned(),
            (None, None) => unreachable!("there is a folder, given or made"),
        };
        fs::create_dir_all(dir.join("logs")).with_context(|| format!("create {}", dir.display()))?;
        let authority = Authority::create(&dir.join("pki"))?;
        let ports = Ports::free()?;
        let server = format!("https://127.0.0.1:{}", ports.apiserver);
        let admin = authority.kubeconfig(&server, "admin", &["system:masters".to_owned()])?;
        let mut instance =
            Self { dir, _temporary: temporary, authority, ports, admin, processes: Vec::new() };
        instance.launch("etcd", assets, instance.etcd_args())?;
        let mut apiserver = instance.apiserver_args();
        if !extent.no_audit_log {
            apiserver.extend(instance.audit_args());
        }
        if extent.no_events_api {
            apiserver.push("--runtime-config=events.k8s.io/v1=false".to_owned());
        }
        if extent.no_consistency_checks {
            apiserver.push("--feature-gates=DetectCacheInconsistency=false".to_owned());
        }
        if extent.sharded_lists {
            let help = Command::new(assets.path("kube-apiserver")).arg("--help").output().await?;
            if String::from_utf8_lossy(&help.stdout).contains("ShardedListAndWatch=") {
                apiserver.push("--feature-gates=ShardedListAndWatch=true".to_owned());
            } else {
                eprintln!("This kube-apiserver cannot filter by shard, and will send all objects.");
            }
        }
        instance.launch("kube-apiserver", assets, apiserver)?;
        instance.apiserver_ready().await?;
        instance.create_node().await?;
        for name in BESIDE_THE_SERVER.into_iter().filter(|name| extent.has(name)) {
            let args = if name == "kwok" { instance.kwok_args() } else { instance.component_args(name)? };
            instance.launch(name, assets, args)?;
        }
        Ok(instance)
    }

    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    pub(crate) fn kubeconfig(&self) -> &Path {
        &self.admin
    }

    pub(crate) fn audit_log(&self) -> PathBuf {
        self.dir.join("logs/audit.log")
    }

    pub(crate) fn etcd_url(&self) -> String {
        format!("http://127.0.0.1:{}", self.ports.etcd)
    }

    /// Returns the ids of the running processes by name.
    pub(crate) fn pids(&self) -> BTreeMap<&'static str, u32> {
        let running = |process: &Process| Some((process.name, process.child.as_ref()?.id()?));
        self.processes.iter().filter_map(running).collect()
    }

    /// Writes a kubeconfig for a user and returns its path.
    pub(crate) fn identity(&self, user: &str, groups: &[String]) -> anyhow::Result<PathBuf> {
        self.authority.kubeconfig(&self.server(), user, groups)
    }

    /// Kills a process and waits for it to exit.
    pub(crate) async fn kill(&mut self, name: &str) -> anyhow::Result<()> {
        if let Some(mut child) = self.process(name)?.child.take() {
            child.kill().await.with_context(|| format!("kill {name}"))?;
        }
        Ok(())
    }

    /// Restarts a killed process with the same flags; for the API server, waits until it is ready.
    pub(crate) async fn restart(&mut self, name: &str) -> anyhow::Result<()> {
        self.process(name)?.spawn()?;
        if name == "kube-apiserver" { self.apiserver_ready().await } else { Ok(()) }
    }

    /// Restarts the API server with a certificate of a new authority, and the others with kubeconfigs that trust it.
    /// Returns the new authority's file.
    pub(crate) async fn replace_authority(&mut self) -> anyhow::Result<PathBuf> {
        let beside: Vec<&str> =
            self.processes.iter().map(|process| process.name).filter(|name| *name != "etcd").collect();
        for name in beside.iter().rev() {
            self.kill(name).await?;
        }
        let file = self.authority.replace_for_server()?;
        self.authority.kubeconfig(&self.server(), "admin", &["system:masters".to_owned()])?;
        for name in beside {
            if name != "kube-apiserver" {
                self.identity(&format!("system:{name}"), &[])?;
            }
            self.restart(name).await?;
        }
        Ok(file)
    }

    /// Sends a process a signal.
    pub(crate) fn signal(&mut self, name: &str, signal: Signal) -> anyhow::Result<()> {
        let child = self.process(name)?.child.as_ref();
        let id = child.and_then(Child::id).with_context(|| format!("{name} is not running"))?;
        let pid = Pid::from_raw(id.cast_signed()).context("a process has an id")?;
        kill_process(pid, signal).with_context(|| format!("signal {name}"))
    }

    /// Waits until a process exits unexpectedly and returns its name and the error to report.
    pub(crate) async fn failed(&mut self) -> (&'static str, anyhow::Error) {
        loop {
            for process in &mut self.processes {
                if let Some(error) = process.exited() {
                    return (process.name, error);
                }
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }

    /// Kills all processes in reverse order of their start.
    pub(crate) async fn stop(mut self) {
        while let Some(mut process) = self.processes.pop() {
            if let Some(mut child) = process.child.take() {
                // It may have exited already.
                drop(child.kill().await);
            }
        }
    }

    fn server(&self) -> String {
        format!("https://127.0.0.1:{}", self.ports.apiserver)
    }

    fn process(&mut self, name: &str) -> anyhow::Result<&mut Process> {
        let found = self.processes.iter_mut().find(|process| process.name == name);
        found.with_context(|| format!("there is no process {name:?}"))
    }

    fn launch(&mut self, name: &'static str, assets: &Assets, args: Vec<String>) -> anyhow::Result<()> {
        let log = self.dir.join("logs").join(format!("{name}.log"));
        let mut process = Process { name, program: assets.path(name).to_owned(), args, log, child: None };
        process.spawn()?;
        self.processes.push(process);
        Ok(())
    }

    async fn apiserver_ready(&mut self) -> anyhow::Result<()> {
        let client = client(&self.admin).await?;
        let deadline = Instant::now() + READY_TIMEOUT;
        loop {
            let request = http::Request::get("/readyz").body(Vec::new())?;
            let Err(last) = client.request_text(request).await else { return Ok(()) };
            for process in self.processes.iter_mut().filter(|process| !is_beside(process.name)) {
                if let Some(error) = process.exited() {
                    return Err(error);
                }
            }
            if Instant::now() > deadline {
                let log = self.dir.join("logs/kube-apiserver.log");
                bail!("kube-apiserver is not ready after {READY_TIMEOUT:?}: {last}; its log: {}", keep(&log));
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Creates a Node with ample capacity, which the fake kubelet marks as ready.
    async fn create_node(&self) -> anyhow::Result<()> {
        let node = json!({
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {
                "name": "fake-node",
                "annotations": {"kwok.x-k8s.io/node": "fake"},
                "labels": {"kubernetes.io/hostname": "fake-node", "kubernetes.io/os": "linux"},
            },
        });
        let request = http::Request::post("/api/v1/nodes")
            .header("content-type", "application/json")
            .body(node.to_string().into_bytes())?;
        let answer = client(&self.admin).await?.request_text(request).await;
        match answer {
            Err(kube_client::Error::Api(status)) if status.code == 409 => Ok(()),
            answer => answer.map(drop).context("create the fake node"),
        }
    }

    fn etcd_args(&self) -> Vec<String> {
        let Ports { etcd, etcd_peer, .. } = self.ports;
        let (client, peer) = (format!("http://127.0.0.1:{etcd}"), format!("http://127.0.0.1:{etcd_peer}"));
        vec![
            format!("--data-dir={}", self.dir.join("etcd").display()),
            format!("--listen-client-urls={client}"),
            format!("--advertise-client-urls={client}"),
            format!("--listen-peer-urls={peer}"),
            format!("--initial-advertise-peer-urls={peer}"),
            format!("--initial-cluster=default={peer}"),
            "--unsafe-no-fsync".to_owned(),
            "--log-level=warn".to_owned(),
        ]
    }

    fn apiserver_args(&self) -> Vec<String> {
        let pki = |file| self.authority.path(file).display().to_string();
        vec![
            format!("--etcd-servers={}", self.etcd_url()),
            format!("--secure-port={}", self.ports.apiserver),
            "--bind-address=127.0.0.1".to_owned(),
            "--advertise-address=127.0.0.1".to_owned(),
            "--service-cluster-ip-range=10.0.0.0/16".to_owned(),
            format!("--client-ca-file={}", pki("ca.crt")),
            format!("--tls-cert-file={}", pki("apiserver.crt")),
            format!("--tls-private-key-file={}", pki("apiserver.key")),
            "--service-account-issuer=https://kubernetes.default.svc".to_owned(),
            format!("--service-account-key-file={}", pki("service-accounts.pub")),
            format!("--service-account-signing-key-file={}", pki("service-accounts.key")),
            "--authorization-mode=Node,RBAC".to_owned(),
            "--endpoint-reconciler-type=none".to_owned(),
        ]
    }

    fn audit_args(&self) -> Vec<String> {
        let policy = Path::new(env!("CARGO_MANIFEST_DIR")).join("hack/control-plane/audit-policy.yaml");
        vec![
            format!("--audit-policy-file={}", policy.display()),
            format!("--audit-log-path={}", self.audit_log().display()),
            "--audit-log-mode=blocking".to_owned(),
            // One file, whatever a run asks for: the default begins another one after 100 MB.
            "--audit-log-maxsize=100000".to_owned(),
        ]
    }

    fn component_args(&self, name: &str) -> anyhow::Result<Vec<String>> {
        let kubeconfig = self.identity(&format!("system:{name}"), &[])?;
        let pki = |file| self.authority.path(file).display().to_string();
        let mut args = vec![
            format!("--kubeconfig={}", kubeconfig.display()),
            "--secure-port=0".to_owned(),
            "--leader-elect=false".to_owned(),
            // The defaults (20 and 50 per second) protect shared servers; this one is not shared.
            "--kube-api-qps=1000".to_owned(),
            "--kube-api-burst=2000".to_owned(),
        ];
        if name == "kube-controller-manager" {
            args.extend([
                format!("--service-account-private-key-file={}", pki("service-accounts.key")),
                format!("--root-ca-file={}", pki("server-ca.crt")),
                "--use-service-account-credentials=true".to_owned(),
                "--controllers=*,-nodeipam".to_owned(),
                "--horizontal-pod-autoscaler-sync-period=2s".to_owned(),
            ]);
        }
        Ok(args)
    }

    fn kwok_args(&self) -> Vec<String> {
        let stages = Path::new(env!("CARGO_MANIFEST_DIR")).join("hack/control-plane/stages.yaml");
        vec![
            format!("--kubeconfig={}", self.admin.display()),
            "--manage-all-nodes=true".to_owned(),
            "--node-lease-duration-seconds=40".to_owned(),
            format!("--server-address=127.0.0.1:{}", self.ports.kwok),
            format!("--config={}", stages.display()),
        ]
    }
}

impl Ports {
    /// Finds free ports below the range of ephemeral ports. Holds all of them until the last is found, so that
    /// they differ.
    fn free() -> anyhow::Result<Self> {
        let mut held = Vec::new();
        let mut tries = 0..1000;
        while held.len() < 4 && tries.next().is_some() {
            held.extend(TcpListener::bind(("127.0.0.1", fastrand::u16(10_000..32_000))).ok());
        }
        let ports: Vec<u16> = held
            .iter()
            .map(|listener| listener.local_addr().map(|address| address.port()))
            .collect::<Result<_, _>>()?;
        let [etcd, etcd_peer, apiserver, kwok] = ports[..] else {
            bail!("no free ports were found on 127.0.0.1");
        };
        Ok(Self { etcd, etcd_peer, apiserver, kwok })
    }
}

impl Process {
    /// Starts the process in its own process group, so that Ctrl-C only reaches the launcher.
    fn spawn(&mut self) -> anyhow::Result<()> {
        let log = File::options().create(true).append(true).open(&self.log)?;
        let child = Command::new(&self.program)
            .args(&self.args)
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .process_group(0)
            .kill_on_drop(true)
            .spawn()
            .with_context(|| format!("start {} ({})", self.name, self.program.display()))?;
        self.child = Some(child);
        Ok(())
    }

    /// Returns an error with the end of the log if the process has exited unexpectedly.
    fn exited(&mut self) -> Option<anyhow::Error> {
        let status = self.child.as_mut()?.try_wait().ok()??;
        let text = fs::read_to_string(&self.log).unwrap_or_default();
        let last: Vec<&str> = text.lines().rev().take(5).collect();
        let last: Vec<&str> = last.into_iter().rev().collect();
        Some(anyhow::anyhow!(
            "{} ended with {status}; the end of its log ({}):\n{}",
            self.name,
            keep(&self.log),
            last.join("\n")
        ))
    }
}

/// Copies a log out of the directory, which is about to be removed, and returns the copy's path.
fn keep(log: &Path) -> String {
    let file = log.file_name().unwrap_or_default().to_string_lossy();
    let copy = std::env::temp_dir().join(format!("windlass-{}-{file}", std::process::id()));
    match fs::copy(log, &copy) {
        Ok(_) => copy.display().to_string(),
        Err(_) => log.display().to_string(),
    }
}

async fn client(kubeconfig: &Path) -> anyhow::Result<kube_client::Client> {
    let kubeconfig = kube_client::config::Kubeconfig::read_from(kubeconfig)?;
    let mut config = kube_client::Config::from_custom_kubeconfig(kubeconfig, &Default::default()).await?;
    config.default_retry = false;
    Ok(kube_client::Client::try_from(config)?)
}
