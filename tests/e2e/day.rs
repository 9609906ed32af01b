//! What an operator lives through in a cluster: definitions and permissions that go and come back, namespaces that are
//! deleted, updates of itself. Installed as in `deploy.rs`, with two replicas and its own role.

use std::collections::BTreeMap;
use std::path::PathBuf;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use macro_rules_attribute::apply;
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::deploy::{NAMESPACE, USER, kubeconfig_of_pod, kubectl, repository};
use crate::endpoints::{address_of, get};
use crate::support::{Bed, Operator, real_bed, wait_until};

/// A cluster with the manifests applied.
struct Cluster {
    bed: Bed,
    directory: tempfile::TempDir,
    kubeconfig: PathBuf,
}

impl Cluster {
    async fn start() -> Self {
        let bed = Bed::own(false).await;
        kubectl(&bed, &["apply", "--kustomize", &repository("hack/deploy").display().to_string()]);
        kubectl(&bed, &["wait", "--for=condition=Established", "crd", "--all", "--timeout=60s"]);
        let directory = tempfile::tempdir().unwrap();
        let kubeconfig = kubeconfig_of_pod(&bed, directory.path());
        Self { bed, directory, kubeconfig }
    }

    /// Starts a cluster, with one replica and all samples Ready.
    async fn with_samples() -> (Self, Operator) {
        let cluster = Self::start().await;
        let operator = cluster.operator("operator", &[]);
        cluster.apply_samples();
        cluster.all_ready();
        (cluster, operator)
    }

    /// Makes the kubeconfig name a file with the server's authority, and returns that file.
    fn authority_in_file(&self) -> PathBuf {
        let text = std::fs::read_to_string(&self.kubeconfig).unwrap();
        let mut config: Value = serde_json::from_str(&text).unwrap();
        let cluster = config["clusters"][0]["cluster"].as_object_mut().unwrap();
        let data = cluster.remove("certificate-authority-data").unwrap();
        let file = self.directory.path().join("ca.crt");
        std::fs::write(&file, BASE64_STANDARD.decode(data.as_str().unwrap()).unwrap()).unwrap();
        cluster.insert("certificate-authority".to_owned(), json!(file));
        std::fs::write(&self.kubeconfig, config.to_string()).unwrap();
        file
    }

    fn kubectl(&self, args: &[&str]) -> String {
        kubectl(&self.bed, args)
    }

    fn operator(&self, name: &str, flags: &[&str]) -> Operator {
        let lease = format!("--leader-elect-resource-namespace={NAMESPACE}");
        let flags = [&["--leader-elect", lease.as_str()], flags].concat();
        Operator::start(&self.kubeconfig, self.directory.path().join(name), &flags)
    }

    /// Starts one of several replicas, with short election times.
    fn replica(&self, name: &str) -> Operator {
        let flags = [
            "--leader-elect-lease-duration=4s",
            "--leader-elect-renew-deadline=3s",
            "--leader-elect-retry-period=500ms",
        ];
        self.operator(name, &flags)
    }

    fn create_foo(&self, namespace: &str, name: &str) {
        let foo = format!(
            "apiVersion: samplecontroller.k8s.io/v1alpha1\nkind: Foo\nmetadata: {{name: {name}, namespace: {namespace}}}\n\
             spec: {{deploymentName: {name}, replicas: 1}}\n"
        );
        let file = self.directory.path().join(format!("{name}.yaml"));
        std::fs::write(&file, foo).unwrap();
        self.kubectl(&["apply", "--filename", &file.display().to_string()]);
    }

    fn all_ready(&self) {
        let ready =
            ["wait", "--for=condition=Ready", "windlass", "--all", "--all-namespaces", "--timeout=120s"];
        self.kubectl(&ready);
    }

    fn apply_samples(&self) {
        self.kubectl(&["apply", "--filename", &repository("crd/samples").display().to_string()]);
    }
}

#[apply(real_bed)]
#[why = "it needs a namespace controller and real deletions of definitions"]
async fn a_removed_definition_is_named_and_comes_back() {
    let (cluster, operator) = Cluster::with_samples().await;
    let (health, metrics) =
        (address_of(&operator, "/livez /readyz").await, address_of(&operator, "/metrics").await);
    let trouble = "windlass_cache_trouble{kind=\"foos.samplecontroller.k8s.io\"}";
    cluster.kubectl(&["delete", "crd", "foos.samplecontroller.k8s.io", "--timeout=60s"]);
    wait_until("the loss is named", async || {
        let (code, text) = get(&health, "/readyz?verbose").await;
        let (_, metrics) = get(&metrics, "/metrics").await;
        let is_named = text.contains("cache-foos.samplecontroller.k8s.io ok, but currently cannot be listed");
        if code == 200 && is_named && metrics.contains(&format!("{trouble} 1")) { Ok(()) } else { Err(text) }
    })
    .await;
    // The others go on.
    cluster.kubectl(&["scale", "myapp/example-myapp", "--replicas=3"]);
    wait_until("the Deployment of a Myapp follows", async || {
        let replicas = "--output=jsonpath={.spec.replicas}";
        let replicas = cluster.kubectl(&["get", "deployment/example-myapp", replicas]);
        if replicas == "3" { Ok(()) } else { Err(replicas) }
    })
    .await;
    cluster.kubectl(&["apply", "--kustomize", &repository("crd").display().to_string()]);
    cluster.kubectl(&["wait", "--for=condition=Established", "crd", "--all", "--timeout=60s"]);
    cluster.create_foo("default", "again");
    wait_until("the new Foo has a Deployment", async || {
        let deployments = cluster.kubectl(&["get", "deployments", "--output=name"]);
        if deployments.contains("deployment.apps/again\n") { Ok(()) } else { Err(deployments) }
    })
    .await;
    cluster.all_ready();
    assert!(get(&metrics, "/metrics").await.1.contains(&format!("{trouble} 0")));
    assert_eq!(operator.terminate().await.code(), Some(0));
}

#[apply(real_bed)]
#[why = "it needs a namespace controller"]
async fn a_namespace_deleted_under_load_leaves_nothing() {
    let cluster = Cluster::start().await;
    let operator = cluster.operator("operator", &[]);
    operator.logged("Became the leader").await;
    cluster.kubectl(&["create", "namespace", "doomed"]);
    let samples = repository("crd/samples").display().to_string();
    cluster.kubectl(&["apply", "--namespace=doomed", "--filename", &samples]);
    cluster.kubectl(&["delete", "namespace", "doomed", "--timeout=100s"]);
    cluster.apply_samples();
    cluster.all_ready();
    let writes = |cluster: &Cluster| {
        let ledger = cluster.bed.ledger(USER).into_iter();
        ledger.filter(|entry| entry.is_write() && entry.uri.contains("/namespaces/doomed/")).count()
    };
    let before = writes(&cluster);
    assert!(before > 0, "the operator had begun");
    cluster.kubectl(&["scale", "foo/example", "--replicas=3"]);
    cluster.all_ready();
    assert_eq!(writes(&cluster), before, "nothing more is tried in a namespace that is gone");
    let panics = operator.log().matches("panicked").count();
    assert_eq!((panics, operator.terminate().await.code()), (0, Some(0)));
}

#[apply(real_bed)]
#[why = "it needs roles"]
async fn a_permission_can_be_taken_and_given_back() {
    let (cluster, operator) = Cluster::with_samples().await;
    cluster.kubectl(&["delete", "clusterrolebinding", "windlass"]);
    let mut replicas = (1..=2).cycle();
    // The server's authorizer learns of it a moment later.
    wait_until("a write is refused", async || {
        let replicas = format!("--replicas={}", replicas.next().unwrap_or(1));
        cluster.kubectl(&["scale", "foo/example", &replicas]);
        let log = operator.log();
        if log.contains("403 Forbidden") { Ok(()) } else { Err(log) }
    })
    .await;
    cluster.kubectl(&["apply", "--kustomize", &repository("hack/deploy").display().to_string()]);
    cluster.kubectl(&["scale", "foo/example", "--replicas=3"]);
    cluster.all_ready();
    let available = "--output=jsonpath={.status.availableReplicas}";
    assert_eq!(cluster.kubectl(&["get", "foo/example", available]), "3");
    assert_eq!(operator.terminate().await.code(), Some(0));
}

/// The operator reads the authority from a file, as in a Pod. While that is the old one, the server is not trusted.
#[apply(real_bed)]
#[why = "it needs a server with a certificate of another authority"]
async fn a_replaced_authority_is_followed_without_restart() {
    let cluster = Cluster::start().await;
    let authority = cluster.authority_in_file();
    // A leader that cannot renew its lease exits.
    let flags = ["--leader-elect=false"];
    let mut operator = Operator::start(&cluster.kubeconfig, cluster.directory.path().join("log"), &flags);
    cluster.apply_samples();
    cluster.all_ready();
    let replaced = cluster.bed.replace_authority().await;
    operator.logged("the server's certificate is not valid").await;
    cluster.create_foo("default", "again");
    let trusts = "Using new credentials for the API server";
    assert!(!operator.log().contains(trusts), "{}", operator.log());
    std::fs::copy(replaced, authority).unwrap();
    operator.logged(trusts).await;
    cluster.all_ready();
    assert!(operator.is_running() && !operator.log().contains("anicked"), "{}", operator.log());
    assert_eq!(operator.terminate().await.code(), Some(0));
}

/// Two replicas are replaced one after the other, as a Deployment does it.
#[apply(real_bed)]
#[why = "it needs an audit log"]
async fn a_rolling_update_loses_and_doubles_nothing() {
    let cluster = Cluster::start().await;
    let mut replicas = Vec::from([cluster.replica("old-0")]);
    replicas[0].logged("Became the leader").await;
    replicas.push(cluster.replica("old-1"));
    replicas[1].logged("Standing by").await;
    let mut created = 0;
    let mut create = |count: usize| {
        for _ in 0..count {
            cluster.create_foo("default", &format!("foo-{created}"));
            created += 1;
        }
    };
    create(5);
    for name in ["new-0", "new-1"] {
        let new = cluster.replica(name);
        new.logged("Standing by").await;
        let mut old = replicas.remove(0);
        old.signal(Signal::TERM);
        create(5);
        assert_eq!(old.ended().await.code(), Some(0));
        replicas.push(new);
        create(5);
    }
    cluster.all_ready();
    let mut creates = BTreeMap::<String, usize>::new();
    for entry in cluster.bed.ledger(USER) {
        if (entry.verb.as_str(), entry.resource.as_str(), entry.code) == ("create", "deployments", 201) {
            *creates.entry(entry.name).or_default() += 1;
        }
    }
    let expected: BTreeMap<_, _> = (0..created).map(|at| (format!("foo-{at}"), 1)).collect();
    assert_eq!(creates, expected, "each Deployment is created once");
    for replica in replicas {
        assert_eq!(replica.terminate().await.code(), Some(0));
    }
}
