//! A bed: an API server with controllers behind it, and everything that can happen to it.
//!
//! This one is the real control plane. What the cases use of it is the list of its methods: a client,
//! a ledger of requests by user, faults of the server, and operators.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output};
use std::sync::{Arc, OnceLock};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube_client::api::{Api, PostParams};
use kube_client::config::{KubeConfigOptions, Kubeconfig};
use kube_client::{Client, Config};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::launcher::Launcher;
use super::{Operator, wait_until};

/// The group whose members have the operator's role, and the name of that role.
pub(crate) const GROUP: &str = "windlass-operators";

/// A bed; see the module.
#[derive(Debug)]
pub(crate) struct Bed {
    launcher: Launcher,
    logs: tempfile::TempDir,
}

/// One finished request, as the server has audited it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LedgerEntry {
    pub(crate) verb: String,
    pub(crate) resource: String,
    pub(crate) name: String,
    pub(crate) code: u64,
    pub(crate) user_agent: String,
    pub(crate) uri: String,
}

impl LedgerEntry {
    /// Whether it was meant to change something.
    pub(crate) fn is_write(&self) -> bool {
        matches!(self.verb.as_str(), "create" | "update" | "patch" | "delete" | "deletecollection")
    }
}

impl Bed {
    /// The bed that tests share. It ends with the process.
    pub(crate) async fn shared() -> Arc<Self> {
        static SHARED: OnceLock<Arc<Bed>> = OnceLock::new();
        let bed = tokio::task::spawn_blocking(|| SHARED.get_or_init(|| Arc::new(Self::start())).clone());
        let bed = bed.await.expect("the control plane starts");
        bed.install().await;
        bed
    }

    /// A bed of the test's own, to break; with the CRDs only when asked for.
    pub(crate) async fn own(with_crds: bool) -> Arc<Self> {
        let bed =
            tokio::task::spawn_blocking(|| Arc::new(Self::start())).await.expect("the control plane starts");
        if with_crds {
            bed.install().await;
        } else {
            bed.install_role().await;
        }
        bed
    }

    fn start() -> Self {
        let launcher = Launcher::start();
        eprintln!("control plane: {}", launcher.ready.dir.display());
        Self { launcher, logs: tempfile::tempdir().expect("a folder for logs") }
    }

    async fn install(&self) {
        self.install_role().await;
        self.install_crds().await;
    }

    /// Applies the CRDs of this tree, and waits until they are served.
    pub(crate) async fn install_crds(&self) {
        let api: Api<CustomResourceDefinition> = Api::all(self.client().await);
        for crd in windlass_crds() {
            create_or_keep(&api, &crd).await;
            let name = crd.metadata.name.clone().expect("a CRD has a name");
            wait_until(&format!("{name} is established"), async || {
                let crd = api.get(&name).await.map_err(|e| e.to_string())?;
                let conditions = crd.status.and_then(|status| status.conditions).unwrap_or_default();
                let established = conditions.iter().any(|c| c.type_ == "Established" && c.status == "True");
                established.then_some(()).ok_or(format!("{conditions:?}"))
            })
            .await;
        }
    }

    /// What the operator is allowed: what it uses, and no more.
    async fn install_role(&self) {
        let client = self.client().await;
        let role = json!({
            "metadata": {"name": GROUP},
            "rules": [
                {"apiGroups": ["samplecontroller.k8s.io"], "resources": ["foos"], "verbs": ["get", "list", "watch"]},
                {"apiGroups": ["samplecontroller.k8s.io"], "resources": ["foos/status"], "verbs": ["patch"]},
                // Setting blockOwnerDeletion asks for this.
                {"apiGroups": ["samplecontroller.k8s.io"], "resources": ["foos/finalizers"], "verbs": ["update"]},
                {"apiGroups": ["apps"], "resources": ["deployments"],
                 "verbs": ["get", "list", "watch", "create", "update", "delete"]},
                {"apiGroups": ["events.k8s.io"], "resources": ["events"], "verbs": ["create"]},
            ],
        });
        let binding = json!({
            "metadata": {"name": GROUP},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": GROUP},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": GROUP}],
        });
        use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding};
        create_or_keep::<ClusterRole>(&Api::all(client.clone()), &parse(role)).await;
        create_or_keep::<ClusterRoleBinding>(&Api::all(client), &parse(binding)).await;
    }

    /// An administrator's client. Each test makes its own: a client lives in one runtime.
    pub(crate) async fn client(&self) -> Client {
        let kubeconfig = Kubeconfig::read_from(&self.launcher.ready.kubeconfig).expect("a kubeconfig");
        let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await;
        Client::try_from(config.expect("a usable kubeconfig")).expect("a client")
    }

    /// Creates a namespace of this name, made unique.
    pub(crate) async fn namespace(&self, name: &str) -> String {
        let api: Api<Namespace> = Api::all(self.client().await);
        let namespace = parse(json!({"metadata": {"generateName": format!("{name}-")}}));
        let created = api.create(&PostParams::default(), &namespace).await.expect("a namespace");
        created.metadata.name.expect("a created namespace has a name")
    }

    /// Starts an operator as this user, with the operator's role.
    pub(crate) fn operator(&self, user: &str, flags: &[&str]) -> Operator {
        self.operator_in_groups(user, GROUP, flags)
    }

    /// Starts an operator as this user, who has no role yet.
    pub(crate) fn operator_without_role(&self, user: &str, flags: &[&str]) -> Operator {
        self.operator_in_groups(user, "", flags)
    }

    fn operator_in_groups(&self, user: &str, groups: &str, flags: &[&str]) -> Operator {
        let answer = self.launcher.command(&format!("identity {user} {groups}"));
        let kubeconfig = PathBuf::from(answer["kubeconfig"].as_str().expect("a path"));
        Operator::start(&kubeconfig, self.logs.path().join(format!("{user}.log")), flags)
    }

    /// All finished requests of a user, oldest first.
    pub(crate) fn ledger(&self, user: &str) -> Vec<LedgerEntry> {
        let text = fs::read_to_string(&self.launcher.ready.audit_log).expect("the audit log is on");
        let text_of = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let lines = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        lines
            .filter(|line| line["user"]["username"] == user)
            .map(|line| LedgerEntry {
                verb: text_of(&line["verb"]),
                resource: text_of(&line["objectRef"]["resource"]),
                name: text_of(&line["objectRef"]["name"]),
                code: line["responseStatus"]["code"].as_u64().unwrap_or_default(),
                user_agent: text_of(&line["userAgent"]),
                uri: text_of(&line["requestURI"]),
            })
            .collect()
    }

    /// Runs the real kubectl as the administrator.
    pub(crate) fn kubectl(&self, args: &[&str]) -> Output {
        let ready = &self.launcher.ready;
        let mut command = Command::new(&ready.kubectl);
        command.env("KUBECONFIG", &ready.kubeconfig).env("HOME", self.logs.path()).args(args);
        command.output().expect("kubectl runs")
    }

    /// Kills the API server.
    pub(crate) fn kill_server(&self) {
        self.launcher.command("kill kube-apiserver");
    }

    /// Starts it again on the same data, and waits until it is ready.
    pub(crate) async fn start_server(self: &Arc<Self>) {
        let bed = self.clone();
        let started = tokio::task::spawn_blocking(move || bed.launcher.command("start kube-apiserver"));
        started.await.expect("the API server starts again");
    }

    /// Stops the API server by signal: connections stay, nothing answers.
    pub(crate) fn freeze_server(&self) {
        self.launcher.command("freeze kube-apiserver");
    }

    /// Lets it go on.
    pub(crate) fn thaw_server(&self) {
        self.launcher.command("thaw kube-apiserver");
    }

    /// Forgets the history of the store: versions from before are answered 410.
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

/// The definitions that the program prints.
fn windlass_crds() -> Vec<CustomResourceDefinition> {
    use kube_client::core::CustomResourceExt;
    vec![windlass::api::samplecontroller::v1alpha1::Foo::crd()]
}

async fn create_or_keep<K>(api: &Api<K>, object: &K)
where
    K: Clone + std::fmt::Debug + serde::Serialize + DeserializeOwned,
{
    match api.create(&PostParams::default(), object).await {
        Err(kube_client::Error::Api(status)) if status.code == 409 => {}
        created => drop(created.expect("it can be created")),
    }
}

/// Makes a typed object of JSON that the test has written.
pub(crate) fn parse<K: DeserializeOwned>(object: Value) -> K {
    serde_json::from_value(object).expect("the test's own JSON fits the type")
}
