//! The real bed: a control plane and operators that run as processes.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, Role, RoleBinding};
use kube_client::api::{Api, Patch, PatchParams, PostParams};
use kube_client::config::{KubeConfigOptions, Kubeconfig};
use kube_client::{Client, Config};
use parking_lot::Mutex;
use serde_json::{Value, json};

use super::bed::{LedgerEntry, create_or_keep, parse};
use super::launcher::Launcher;
use super::{Operator, SlowLink};

/// The user group that is bound to the operator's role, and the name of that role.
const GROUP: &str = "windlass-operators";

/// The rules that are installed in a cluster: the tests run with these, and no others.
const RULES: [&str; 3] = [
    include_str!("../../../hack/deploy/base/role.yaml"),
    include_str!("../../../hack/deploy/base/leader-election-role.yaml"),
    include_str!("../../../hack/deploy/shards/shards-role.yaml"),
];

/// See the module.
#[derive(Debug)]
pub(crate) struct RealBed {
    launcher: Launcher,
    config: Mutex<Config>,
    logs: tempfile::TempDir,
}

impl RealBed {
    /// Returns the bed that tests share. It stops when the test process exits.
    pub(crate) async fn shared() -> Arc<Self> {
        static SHARED: OnceLock<Arc<RealBed>> = OnceLock::new();
        let bed = tokio::task::spawn_blocking(|| SHARED.get_or_init(|| Arc::new(Self::start(&[]))).clone());
        let bed = bed.await.expect("the control plane starts");
        bed.install_role().await;
        bed
    }

    /// Starts a bed for one test, which may break it.
    pub(crate) async fn own() -> Arc<Self> {
        Self::own_with(&[]).await
    }

    /// Like [`own`](Self::own), with these flags of the launcher.
    pub(crate) async fn own_with(flags: &'static [&'static str]) -> Arc<Self> {
        let bed = tokio::task::spawn_blocking(|| Arc::new(Self::start(flags)));
        let bed = bed.await.expect("the control plane starts");
        bed.install_role().await;
        bed
    }

    fn start(flags: &[&str]) -> Self {
        let launcher = Launcher::start_with(flags);
        eprintln!("control plane: {}", launcher.ready.dir.display());
        let config = Mutex::new(load(&launcher.ready.kubeconfig));
        Self { launcher, config, logs: tempfile::tempdir().expect("a temporary directory for logs") }
    }

    /// Installs the operator's role for a group of users.
    async fn install_role(&self) {
        let client = self.client();
        let documents = RULES.map(|text| serde_saphyr::from_multiple::<Value>(text).expect("roles are YAML"));
        let rules = documents.iter().flatten().filter_map(|role| role["rules"].as_array()).flatten().cloned();
        let role = json!({"metadata": {"name": GROUP}, "rules": rules.collect::<Vec<_>>()});
        let binding = json!({
            "metadata": {"name": GROUP},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": GROUP},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": GROUP}],
        });
        create_or_keep::<ClusterRole>(&Api::all(client.clone()), &parse(role)).await;
        create_or_keep::<ClusterRoleBinding>(&Api::all(client), &parse(binding)).await;
    }

    /// Creates an administrator's client. Each test needs its own, because a client is bound to one runtime.
    pub(crate) fn client(&self) -> Client {
        Client::try_from(self.config.lock().clone()).expect("the client is valid")
    }

    /// Starts an operator as this user, with the operator's role or without any role.
    pub(crate) fn operator(&self, user: &str, has_role: bool, flags: &[&str]) -> Operator {
        let kubeconfig = self.kubeconfig(user, has_role);
        Operator::start(&kubeconfig, self.logs.path().join(format!("{user}.log")), flags)
    }

    /// Starts an operator as this user, with the operator's role, whose requests arrive so much later while the link
    /// lasts.
    pub(crate) fn operator_over_slow_link(
        &self,
        user: &str,
        delay: Duration,
        flags: &[&str],
    ) -> (Operator, SlowLink) {
        let server = self.config.lock().cluster_url.authority().expect("a host and a port").to_string();
        let link = SlowLink::to(&server, delay);
        let direct = fs::read_to_string(self.kubeconfig(user, true)).expect("a kubeconfig");
        assert!(direct.contains(&server), "{direct}");
        let kubeconfig = self.logs.path().join(format!("{user}.kubeconfig"));
        fs::write(&kubeconfig, direct.replace(&server, &link.address)).expect("a file");
        (Operator::start(&kubeconfig, self.logs.path().join(format!("{user}.log")), flags), link)
    }

    /// Returns the kubeconfig of a user, with the operator's role or without any role.
    pub(crate) fn kubeconfig(&self, user: &str, has_role: bool) -> PathBuf {
        let groups = if has_role { GROUP } else { "" };
        let answer = self.launcher.command(&format!("identity {user} {groups}"));
        PathBuf::from(answer["kubeconfig"].as_str().expect("a path"))
    }

    /// Allows a user only to read Foos in a namespace, and to write their status.
    pub(crate) async fn grant_foos(&self, user: &str, namespace: &str) {
        let foos = json!({"apiGroups": ["samplecontroller.k8s.io"], "resources": ["foos", "foos/status"],
            "verbs": ["get", "list", "watch", "update"]});
        let roles: Api<Role> = Api::namespaced(self.client(), namespace);
        let role = parse(json!({"metadata": {"name": "only-foos"}, "rules": [foos]}));
        roles.create(&PostParams::default(), &role).await.expect("a valid role");
        self.bind(user, namespace, "Role", "only-foos").await;
    }

    /// Allows a user only these verbs on config maps in a namespace; replaces what was granted before.
    pub(crate) async fn grant_config_maps(&self, user: &str, namespace: &str, verbs: &[&str]) {
        const ROLE: &str = "only-config-maps";
        let roles: Api<Role> = Api::namespaced(self.client(), namespace);
        let rules = json!([{"apiGroups": [""], "resources": ["configmaps"], "verbs": verbs}]);
        if roles.get_opt(ROLE).await.expect("roles can be read").is_some() {
            let patch = Patch::Merge(json!({"rules": rules}));
            roles.patch(ROLE, &PatchParams::default(), &patch).await.expect("a valid patch");
            return;
        }
        let role = parse(json!({"metadata": {"name": ROLE}, "rules": rules}));
        roles.create(&PostParams::default(), &role).await.expect("a valid role");
        self.bind(user, namespace, "Role", ROLE).await;
    }

    /// Creates a client of a user who has only the permissions granted explicitly.
    pub(crate) async fn client_of(&self, user: &str) -> Client {
        Client::try_from(read(&self.kubeconfig(user, false)).await).expect("the client is valid")
    }

    /// Grants a user the operator's role in a namespace.
    pub(crate) async fn grant_all(&self, user: &str, namespace: &str) {
        self.bind(user, namespace, "ClusterRole", GROUP).await;
    }

    async fn bind(&self, user: &str, namespace: &str, kind: &str, role: &str) {
        let bindings: Api<RoleBinding> = Api::namespaced(self.client(), namespace);
        let group = "rbac.authorization.k8s.io";
        let binding = parse(json!({
            "metadata": {"name": role},
            "roleRef": {"apiGroup": group, "kind": kind, "name": role},
            "subjects": [{"apiGroup": group, "kind": "User", "name": user}],
        }));
        bindings.create(&PostParams::default(), &binding).await.expect("a valid binding");
    }

    /// Returns all finished requests of a user, oldest first.
    pub(crate) fn ledger(&self, user: &str) -> Vec<LedgerEntry> {
        let text = fs::read_to_string(&self.launcher.ready.audit_log).expect("the audit log is on");
        let text_of = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        // Skip other users' lines, which are the most, without parsing them.
        let lines = text
            .lines()
            .filter(|line| line.contains(user))
            .filter_map(|line| serde_json::from_str::<Value>(line).ok());
        lines
            .filter(|line| line["user"]["username"] == user)
            .map(|line| LedgerEntry {
                verb: text_of(&line["verb"]),
                resource: text_of(&line["objectRef"]["resource"]),
                name: text_of(&line["objectRef"]["name"]),
                code: line["responseStatus"]["code"].as_u64().unwrap_or_default(),
                user_agent: text_of(&line["userAgent"]),
                uri: text_of(&line["requestURI"]),
                bytes: None,
            })
            .collect()
    }

    /// Returns a kubectl command that runs as the administrator.
    pub(crate) fn kubectl(&self) -> Command {
        let ready = &self.launcher.ready;
        let mut command = Command::new(&ready.kubectl);
        command.env("KUBECONFIG", &ready.kubeconfig).env("HOME", self.logs.path());
        command
    }

    /// Kills the API server.
    pub(crate) fn kill_server(&self) {
        self.launcher.command("kill kube-apiserver");
    }

    /// Restarts the API server on the same data and waits until it is ready.
    pub(crate) async fn start_server(self: &Arc<Self>) {
        let bed = self.clone();
        let started = tokio::task::spawn_blocking(move || bed.launcher.command("start kube-apiserver"));
        started.await.expect("the API server starts again");
    }

    /// Restarts the API server with a certificate of a new authority, which the administrator trusts from now on, and
    /// returns the new authority's file.
    pub(crate) async fn replace_authority(self: &Arc<Self>) -> PathBuf {
        let bed = self.clone();
        let replaced = tokio::task::spawn_blocking(move || {
            let answer = bed.launcher.command("replace-authority");
            *bed.config.lock() = load(&bed.launcher.ready.kubeconfig);
            PathBuf::from(answer["authority"].as_str().expect("a path"))
        });
        replaced.await.expect("the API server starts again")
    }

    /// Sends the API server SIGSTOP: its connections stay open, but it does not answer.
    pub(crate) fn freeze_server(&self) {
        self.launcher.command("freeze kube-apiserver");
    }

    /// Sends the API server SIGCONT.
    pub(crate) fn thaw_server(&self) {
        self.launcher.command("thaw kube-apiserver");
    }

    /// Compacts the store's history, so that older resource versions are answered with 410.
    pub(crate) async fn compact(&self) {
        let range = json!({"key": BASE64_STANDARD.encode("a")});
        let answer = self.etcd("range", &range).await;
        let revision = &answer["header"]["revision"];
        self.etcd("compaction", &json!({"revision": revision, "physical": true})).await;
    }

    /// Writes an object into the store behind the API server's back.
    pub(crate) async fn write_behind_the_server(&self, key: &str, object: &Value) {
        let pair =
            json!({"key": BASE64_STANDARD.encode(key), "value": BASE64_STANDARD.encode(object.to_string())});
        self.etcd("put", &pair).await;
    }

    async fn etcd(&self, call: &str, body: &Value) -> Value {
        let url = format!("{}/v3/kv/{call}", self.launcher.ready.etcd);
        let answer = reqwest::Client::new().post(url).json(body).send().await.expect("etcd answers");
        assert!(answer.status().is_success(), "{call}: {}", answer.text().await.unwrap_or_default());
        answer.json().await.expect("etcd answers in JSON")
    }
}

/// Loads the administrator's kubeconfig. Must not be called by a task.
fn load(kubeconfig: &Path) -> Config {
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("the runtime starts");
    runtime.block_on(read(kubeconfig))
}

async fn read(kubeconfig: &Path) -> Config {
    let kubeconfig = Kubeconfig::read_from(kubeconfig).expect("a kubeconfig");
    let options = KubeConfigOptions::default();
    Config::from_custom_kubeconfig(kubeconfig, &options).await.expect("a usable kubeconfig")
}
