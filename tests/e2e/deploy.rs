//! The manifests: what `kubectl apply -k` installs is accepted, and is all that the operator needs.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use macro_rules_attribute::apply;
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::endpoints::address_of;
use crate::support::{Bed, Operator, real_bed, status, wait_until};

pub(crate) const NAMESPACE: &str = "windlass-system";
pub(crate) const USER: &str = "system:serviceaccount:windlass-system:windlass";

pub(crate) fn repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// Runs kubectl, which must succeed, and returns its standard output.
#[track_caller]
pub(crate) fn kubectl(bed: &Bed, args: &[&str]) -> String {
    let Output { status, stdout, stderr } = bed.kubectl(args);
    assert!(status.success(), "kubectl {args:?}: {}", String::from_utf8_lossy(&stderr));
    String::from_utf8(stdout).expect("kubectl prints text")
}

/// Writes a kubeconfig whose token is in a file, as a Pod has it.
pub(crate) fn kubeconfig_of_pod(bed: &Bed, dir: &Path) -> PathBuf {
    let token = write_token(bed, dir);
    let config = kubectl(bed, &["config", "view", "--raw", "--minify", "--output=json"]);
    let mut config: Value = serde_json::from_str(&config).unwrap();
    config["users"][0]["user"] = json!({"tokenFile": token});
    let path = dir.join("kubeconfig");
    fs::write(&path, config.to_string()).unwrap();
    path
}

/// Writes a new token of the operator's service account.
pub(crate) fn write_token(bed: &Bed, dir: &Path) -> PathBuf {
    let token = kubectl(bed, &["create", "token", "windlass", "--namespace", NAMESPACE]);
    let path = dir.join("token");
    fs::write(&path, token.trim()).unwrap();
    path
}

#[apply(real_bed)]
#[why = "it needs roles, service accounts and Pod security"]
async fn installed_operator_works_with_its_own_role() {
    let bed = Bed::own(false).await;
    kubectl(&bed, &["apply", "--kustomize", repository("hack/deploy").to_str().unwrap()]);
    operator_works_with_its_own_role(&bed, start_as_pod).await;
}

/// Starts the operator with the token of its service account, a log file and flags.
pub(crate) fn start_as_pod(bed: &Bed, dir: &Path, name: &str, flags: &[&str]) -> Operator {
    Operator::start(&kubeconfig_of_pod(bed, dir), dir.join(name), flags)
}

/// Runs two operators in place of the installed Pods, which run nothing here.
pub(crate) async fn operator_works_with_its_own_role(
    bed: &Bed,
    start: impl Fn(&Bed, &Path, &str, &[&str]) -> Operator,
) {
    let samples = repository("crd/samples");
    let samples = samples.to_str().unwrap();
    kubectl(bed, &["wait", "--for=condition=Established", "crd", "--all", "--timeout=60s"]);
    // Its Pods meet the standard that the namespace enforces, or there would be none.
    let available = [
        "wait",
        "--for=condition=Available",
        "deployment/windlass",
        "--namespace",
        NAMESPACE,
        "--timeout=120s",
    ];
    kubectl(bed, &available);

    let dir = tempfile::tempdir().unwrap();
    let kubeconfig = kubeconfig_of_pod(bed, dir.path());
    let election = format!("--leader-elect-resource-namespace={NAMESPACE}");
    let flags = [
        "--leader-elect",
        election.as_str(),
        "--leader-elect-lease-duration=6s",
        "--leader-elect-renew-deadline=4s",
        "--leader-elect-retry-period=1s",
    ];
    let first = start(bed, dir.path(), "first", &flags);
    first.logged("Became the leader").await;
    let second = start(bed, dir.path(), "second", &flags);
    second.logged("Standing by").await;

    kubectl(bed, &["apply", "--filename", samples]);
    let ready = ["wait", "--for=condition=Ready", "windlass", "--all", "--timeout=120s"];
    kubectl(bed, &ready);
    let status = status(&kubeconfig, &[]);
    assert!(status["leader"]["holder"].as_str().is_some_and(|holder| !holder.is_empty()), "{status}");
    assert_eq!(status["notReady"], json!([]));
    let objects: u64 =
        status["kinds"].as_array().unwrap().iter().filter_map(|kind| kind["ready"].as_u64()).sum();
    assert_eq!(objects, 10, "two samples of each kind: {status}");
    first.signal(Signal::KILL);
    second.logged("Became the leader").await;
    kubectl(bed, &["scale", "foo/example", "--replicas=3"]);
    kubectl(bed, &["delete", "redis", "--all", "--timeout=60s"]);
    kubectl(bed, &["delete", "webapp", "--all", "--timeout=60s"]);
    kubectl(bed, &ready);

    let events = kubectl(bed, &["get", "events.events.k8s.io", "--namespace", NAMESPACE]);
    assert!(events.contains("became leader"), "{events}");
    wait_until("the audit log has what the operator did", async || {
        let ledger = bed.ledger(USER);
        if ledger.iter().any(|entry| entry.verb == "delete" && entry.resource == "pods") {
            Ok(())
        } else {
            Err(ledger.len())
        }
    })
    .await;
    let refused: Vec<_> = bed.ledger(USER).into_iter().filter(|entry| entry.code == 403).collect();
    assert_eq!(refused, Vec::new());
    assert_eq!(second.terminate().await.code(), Some(0));
}

/// The service account is deleted and created again, which revokes its tokens. The Pod's file gets a new one later.
#[apply(real_bed)]
#[why = "it needs service accounts"]
async fn revoked_token_is_replaced_without_a_restart() {
    let bed = Bed::own(false).await;
    let deploy = repository("hack/deploy");
    let apply = ["apply", "--kustomize", deploy.to_str().unwrap()];
    kubectl(&bed, &apply);
    kubectl(&bed, &["wait", "--for=condition=Established", "crd", "--all", "--timeout=60s"]);
    let dir = tempfile::tempdir().unwrap();
    let kubeconfig = kubeconfig_of_pod(&bed, dir.path());
    let operator = Operator::start(&kubeconfig, dir.path().join("operator"), &["--controllers=foo"]);
    let sample = repository("crd/samples/foo.yaml");
    kubectl(&bed, &["apply", "--filename", sample.to_str().unwrap()]);
    let ready = ["wait", "--for=condition=Ready", "foo/example", "--timeout=60s"];
    kubectl(&bed, &ready);

    kubectl(&bed, &["delete", "serviceaccount", "windlass", "--namespace", NAMESPACE]);
    kubectl(&bed, &apply);
    // The server remembers for some seconds that a token was valid.
    let mut replicas = (1..=2).cycle();
    wait_until("the old token is refused", async || {
        let replicas = format!("--replicas={}", replicas.next().unwrap_or(1));
        kubectl(&bed, &["scale", "foo/example", &replicas]);
        let log = operator.log();
        if log.contains("Unauthorized") { Ok(()) } else { Err(log) }
    })
    .await;
    write_token(&bed, dir.path());
    kubectl(&bed, &["scale", "foo/example", "--replicas=3"]);
    kubectl(&bed, &ready);
    operator.logged("Using new credentials").await;
    assert_eq!(operator.terminate().await.code(), Some(0));
}

#[apply(real_bed)]
#[why = "it needs roles and service accounts"]
async fn protected_metrics_need_a_token_with_the_right() {
    let bed = Bed::own(false).await;
    kubectl(&bed, &["apply", "--kustomize", repository("hack/deploy").to_str().unwrap()]);
    let dir = tempfile::tempdir().unwrap();
    let kubeconfig = kubeconfig_of_pod(&bed, dir.path());
    let flags = ["--controllers=foo", "--metrics-secure", "--metrics-bind-address=127.0.0.1:0"];
    let operator = Operator::start(&kubeconfig, dir.path().join("operator"), &flags);
    let address = address_of(&operator, "/metrics").await;
    let client = reqwest::Client::builder().tls_danger_accept_invalid_certs(true).build().unwrap();
    let get = async |token: Option<&str>| {
        let request = client.get(format!("https://{address}/metrics"));
        let request = token.into_iter().fold(request, |request, token| request.bearer_auth(token));
        let answer = request.send().await.expect("the endpoint answers");
        (answer.status().as_u16(), answer.text().await.unwrap())
    };
    assert_eq!(get(None).await.0, 401);
    assert_eq!(get(Some("wrong")).await.0, 401);
    let account = ["--namespace", NAMESPACE];
    kubectl(&bed, &[&["create", "serviceaccount", "prometheus"], &account[..]].concat());
    let token = kubectl(&bed, &[&["create", "token", "prometheus"], &account[..]].concat());
    let (code, text) = get(Some(token.trim())).await;
    assert!(code == 403 && text.contains("windlass-system:prometheus may not get"), "{code} {text}");
    let reader = ["--clusterrole=windlass-metrics-reader", "--serviceaccount=windlass-system:prometheus"];
    kubectl(&bed, &[&["create", "clusterrolebinding", "prometheus"], &reader[..]].concat());
    // The server's authorizer learns of the binding a moment later.
    wait_until("the binding is in effect", async || {
        let (code, text) = get(Some(token.trim())).await;
        if code == 200 && text.contains("controller_runtime_reconcile_total") {
            Ok(())
        } else {
            Err((code, text))
        }
    })
    .await;
    let refused: Vec<_> = bed.ledger(USER).into_iter().filter(|entry| entry.code == 403).collect();
    assert_eq!(refused, Vec::new(), "the operator may review tokens");
    assert_eq!(operator.terminate().await.code(), Some(0));
}

/// As `kustomize edit add component shards` would.
#[apply(real_bed)]
#[why = "kubectl builds the manifests"]
async fn shards_component_adds_replicas_flag_and_rights() {
    let (bed, dir) = (Bed::shared().await, tempfile::tempdir().unwrap());
    let copied = Command::new("cp")
        .args(["-r", "--parents", "hack/deploy", "crd"])
        .arg(dir.path())
        .current_dir(repository("."))
        .status();
    assert!(copied.unwrap().success());
    let file = dir.path().join("hack/deploy/kustomization.yaml");
    let edited = fs::read_to_string(&file).unwrap() + "components: [shards]\n";
    fs::write(&file, edited).unwrap();
    let built = kubectl(&bed, &["kustomize", dir.path().join("hack/deploy").to_str().unwrap()]);
    let all: Vec<Value> = serde_saphyr::from_multiple(&built).unwrap();
    let named = |kind: &str, name: &str| {
        let found = all.iter().find(|one| one["kind"] == kind && one["metadata"]["name"] == name);
        found.unwrap_or_else(|| panic!("no {kind} {name}"))
    };
    let spec = &named("Deployment", "windlass")["spec"];
    let args = spec["template"]["spec"]["containers"][0]["args"].as_array().unwrap();
    assert_eq!(spec["replicas"], 3);
    assert!(args.contains(&json!("--shards=16")), "{args:?}");
    let verbs = json!(["list", "get", "create", "update", "delete"]);
    assert_eq!(named("Role", "windlass-shards")["rules"][0]["verbs"], verbs);
    assert_eq!(named("RoleBinding", "windlass-shards")["subjects"][0]["namespace"], "windlass-system");
}

/// A namespace of its own, and nothing elsewhere.
#[apply(real_bed)]
#[why = "it needs roles and service accounts"]
async fn namespaced_manifests_grant_one_namespace() {
    let bed = Bed::own(true).await;
    kubectl(&bed, &["create", "namespace", "team-a"]);
    // As `kustomize edit set namespace` would.
    let manifests = kubectl(&bed, &["kustomize", repository("hack/deploy/namespaced").to_str().unwrap()]);
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("windlass.yaml");
    fs::write(&file, manifests.replace("namespace: default", "namespace: team-a")).unwrap();
    kubectl(&bed, &["apply", "--filename", file.to_str().unwrap()]);
    let may = |verb: &str, what: &str, namespace: &str| {
        let user = "system:serviceaccount:team-a:windlass";
        let answer = bed.kubectl(&["auth", "can-i", verb, what, "--as", user, "--namespace", namespace]);
        String::from_utf8_lossy(&answer.stdout).trim() == "yes"
    };
    assert!(may("list", "foos.samplecontroller.k8s.io", "team-a"));
    assert!(may("delete", "pods", "team-a"));
    assert!(may("update", "leases.coordination.k8s.io/windlass", "team-a"));
    assert!(!may("update", "leases.coordination.k8s.io/another", "team-a"));
    assert!(!may("list", "foos.samplecontroller.k8s.io", "default"));
    assert!(!may("get", "secrets", "team-a"));
}
