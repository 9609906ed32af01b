//! The Helm chart, rendered and installed by helm. Without helm these cases are skipped.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use macro_rules_attribute::apply;
use serde_json::Value;

use crate::chart::{Objects, RECORDS, assert_same, kustomization, read, recorded, rendered_by_helm};
use crate::deploy::{NAMESPACE, kubectl, operator_works_with_its_own_role, repository, start_as_pod};
use crate::support::{Bed, no_bed, real_bed, tool};

/// Runs helm on the chart: the arguments follow the subcommand and precede the chart. `None` if there is no helm.
fn helm(args: &[&str], kubeconfig: Option<&Path>) -> Option<Output> {
    let folders = tempfile::tempdir().unwrap();
    let mut command = Command::new(tool("helm")?);
    command.args(args).current_dir(repository("hack/deploy/chart"));
    // Helm keeps settings and caches of its user, which a test neither reads nor writes.
    for variable in ["HELM_CONFIG_HOME", "HELM_CACHE_HOME", "HELM_DATA_HOME"] {
        command.env(variable, folders.path());
    }
    command.env("KUBECONFIG", kubeconfig.unwrap_or(Path::new("/dev/null")));
    Some(command.output().expect("helm runs"))
}

/// Runs helm, which must succeed, and returns its standard output.
#[track_caller]
fn must(args: &[&str], kubeconfig: Option<&Path>) -> Option<String> {
    let Output { status, stdout, stderr } = helm(args, kubeconfig)?;
    let stdout = String::from_utf8(stdout).expect("helm prints text");
    assert!(status.success(), "helm {args:?}: {}{stdout}", String::from_utf8_lossy(&stderr));
    Some(stdout)
}

/// The objects that the chart renders with these flags.
fn rendered(namespace: &str, flags: &[&str]) -> Option<Objects> {
    let text = must(&[&["template", "windlass", ".", "--namespace", namespace], flags].concat(), None)?;
    Some(rendered_by_helm(&text))
}

#[apply(no_bed)]
#[why = "helm renders the chart by itself"]
async fn chart_renders_as_recorded() {
    for (file, namespace, flags) in RECORDS {
        let Some(chart) = rendered(namespace, &[flags]) else { return };
        assert_same(&chart, &recorded(file));
    }
    let definitions = rendered(NAMESPACE, &[]).unwrap();
    let definitions = definitions.iter().filter(|(name, _)| name.starts_with("CustomResourceDefinition/"));
    let mut count = 0;
    for (name, object) in definitions {
        count += 1;
        let policy = &object["metadata"]["annotations"]["helm.sh/resource-policy"];
        assert_eq!(policy, "keep", "{name} goes with the release");
        let path = name.trim_start_matches("CustomResourceDefinition/");
        let wanted: Value = serde_saphyr::from_str(&read(&format!("crd/{path}.yaml"))).unwrap();
        assert_eq!(object["spec"], wanted["spec"], "{name}");
    }
    assert_eq!(count, 5);
}

#[apply(real_bed)]
#[why = "it needs the kubectl of the real bed"]
async fn monitoring_of_chart_equals_the_kustomization() {
    let flags = "--set=metrics.serviceMonitor.enabled=true,metrics.prometheusRule.enabled=true,\
        metrics.dashboard.enabled=true";
    let Some(chart) = rendered(NAMESPACE, &[flags]) else { return };
    for (name, wanted) in kustomization(&Bed::shared().await, "hack/deploy/monitoring") {
        assert_eq!(chart[&name], wanted, "{name}: the chart is on the left");
    }
    let dashboard = read("hack/deploy/monitoring/dashboard.json");
    assert_eq!(chart["ConfigMap/windlass-dashboard"]["data"]["windlass.json"], dashboard.trim_end());
}

/// A value for everything, none of them the default.
const EVERYTHING: &str = "\
image: {repository: registry.example/windlass, digest: 'sha256:\
0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef', pullPolicy: Always}
imagePullSecrets: [{name: pull}]
nameOverride: winch
fullnameOverride: winch
replicas: 3
namespaces: [team-a, team-b]
leaseName: foos
shards: 16
extraArgs: ['--controllers=foo', '--workers=4']
env: [{name: TZ, value: UTC}]
extraVolumes: [{name: tasks, configMap: {name: tasks}}]
extraVolumeMounts: [{name: tasks, mountPath: /tasks}]
resources: {requests: {cpu: 1}}
podAnnotations: {a: b}
podLabels: {c: d}
nodeSelector: {e: f}
tolerations: [{operator: Exists}]
topologySpreadConstraints: [{maxSkew: 1, topologyKey: zone, whenUnsatisfiable: ScheduleAnyway}]
priorityClassName: high
affinity: {nodeAffinity: {}}
serviceAccount: {annotations: {g: h}}
userRoles: false
crds: {enabled: true, keep: false}
metrics:
  secure: false
  serviceMonitor: {enabled: true, labels: {i: j}, interval: 10s}
  prometheusRule: {enabled: true, labels: {k: l}}
  dashboard: {enabled: true, labels: {m: z}}
networkPolicy: {enabled: false, namespaceLabels: {o: p}}
podDisruptionBudget: {enabled: false, maxUnavailable: 50%}
";

#[apply(no_bed)]
#[why = "helm renders the chart by itself"]
async fn strict_lint_accepts_any_values() {
    let directory = tempfile::tempdir().unwrap();
    let values = directory.path().join("values.yaml");
    fs::write(&values, EVERYTHING).unwrap();
    let values = format!("--values={}", values.display());
    for flags in [&[][..], &["--set=namespaced=true"], &[&values]] {
        if must(&[&["lint", "--strict", "."], flags].concat(), None).is_none() {
            return;
        }
    }
    let given: Value = serde_saphyr::from_str(EVERYTHING).unwrap();
    let defaults: Value = serde_saphyr::from_str(&read("hack/deploy/chart/values.yaml")).unwrap();
    for name in defaults.as_object().unwrap().keys().filter(|name| *name != "namespaced") {
        assert_ne!(given[name], Value::Null, "no value of {name} is tested");
    }
    let text = must(&["template", "windlass", ".", &values], None).unwrap();
    for wanted in [
        "image: \"registry.example/windlass@sha256:01234567",
        "- --namespace=team-a,team-b\n        - --leader-elect-resource-name=foos\n        - --shards=16\n        - \"--controllers=foo\"",
        "resourceNames: [\"foos\"]",
        "maxSkew: 1",
        "interval: 10s",
        "kind: RoleBinding\nmetadata:\n  name: winch\n  namespace: team-b\n",
        "replicas: 3",
    ] {
        assert!(text.contains(wanted), "{wanted} is not in\n{text}");
    }
    assert!(!text.contains("kind: NetworkPolicy") && !text.contains("resource-policy"), "{text}");
    assert_eq!(text.matches("kind: ClusterRole").count(), 0, "rights in the namespaces suffice");
}

#[apply(no_bed)]
#[why = "helm renders the chart by itself"]
async fn misspelt_value_is_refused() {
    let Some(output) = helm(&["template", "windlass", ".", "--set=metrics.secured=false"], None) else {
        return;
    };
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && text.contains("secured"), "{text}");
}

/// Installed, the operator does the work of a day; uninstalled, the definitions and with them all objects stay.
#[apply(real_bed)]
#[why = "it needs roles, service accounts and Pod security"]
async fn chart_installs_and_uninstalls_the_operator() {
    if tool("helm").is_none() {
        return;
    }
    let bed = Bed::own(false).await;
    let directory = tempfile::tempdir().unwrap();
    let config = kubectl(&bed, &["config", "view", "--raw", "--flatten"]);
    let kubeconfig = directory.path().join("kubeconfig");
    fs::write(&kubeconfig, config).unwrap();
    kubectl(&bed, &["create", "namespace", NAMESPACE]);
    kubectl(&bed, &["label", "namespace", NAMESPACE, "pod-security.kubernetes.io/enforce=restricted"]);
    let install = ["install", "windlass", ".", "--namespace", NAMESPACE];
    must(&install, Some(&kubeconfig));
    operator_works_with_its_own_role(&bed, start_as_pod).await;

    let upgrade = ["upgrade", "windlass", ".", "--namespace", NAMESPACE, "--set=replicas=1"];
    must(&upgrade, Some(&kubeconfig));
    must(&["uninstall", "windlass", "--namespace", NAMESPACE], Some(&kubeconfig));
    let kinds = "deployments,serviceaccounts,clusterroles,clusterrolebindings";
    let ours = "--selector=app.kubernetes.io/managed-by=Helm";
    assert_eq!(kubectl(&bed, &["get", kinds, "--all-namespaces", ours, "--output=name"]), "");
    assert!(!kubectl(&bed, &["get", "foos", "--output=name"]).is_empty(), "the objects stay");
    must(&install, Some(&kubeconfig));
}
