//! The alert rules and the dashboard: promtool accepts the rules, and everything that they name is exported.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::process::Command;

use macro_rules_attribute::apply;
use serde_json::Value;

use crate::endpoints::{address_of, get};
use crate::support::{Bed, Scene, no_bed, real_bed, tool};

/// Metric families have one of these prefixes.
const PREFIXES: [&str; 8] = [
    "informer_",
    "windlass_",
    "workqueue_",
    "controller_runtime_",
    "leader_election_",
    "rest_client_",
    "process_",
    "tokio_",
];

fn monitoring(file: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("hack/deploy/monitoring").join(file);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn rules() -> Value {
    let rule: Value = serde_saphyr::from_str(&monitoring("prometheus-rule.yaml")).expect("YAML");
    rule["spec"].clone()
}

#[apply(no_bed)]
#[why = "promtool evaluates the rules by itself"]
async fn each_alert_fires_when_it_should() {
    let Some(promtool) = tool("promtool") else { return };
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("rules.yaml"), rules().to_string()).unwrap();
    fs::write(directory.path().join("rules-test.yaml"), monitoring("rules-test.yaml")).unwrap();
    for args in [["check", "rules", "rules.yaml"], ["test", "rules", "rules-test.yaml"]] {
        let output = Command::new(&promtool).args(args).current_dir(&directory).output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "promtool {args:?}: {text}");
    }
    let tested = monitoring("rules-test.yaml");
    for alert in alerts() {
        assert!(tested.contains(&format!("alertname: {alert}\n    exp_alerts:")), "{alert} is not tested");
    }
}

/// The names of all alerts.
fn alerts() -> Vec<String> {
    let rules = rules();
    let rules = rules["groups"][0]["rules"].as_array().expect("a list");
    rules.iter().map(|rule| rule["alert"].as_str().expect("a name").to_owned()).collect()
}

#[apply(no_bed)]
#[why = "it compares files"]
async fn each_alert_is_documented() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/operating.md");
    let guide = fs::read_to_string(path).unwrap();
    for alert in alerts() {
        assert!(guide.contains(&format!("| `{alert}` |")), "{alert} is not in docs/operating.md");
    }
}

/// The metrics that an expression names.
fn named_in(expression: &str) -> impl Iterator<Item = String> {
    let words = expression.split(|c: char| !(c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_'));
    words.filter(|word| PREFIXES.iter().any(|prefix| word.starts_with(prefix))).map(str::to_owned)
}

#[apply(real_bed)]
#[why = "sockets do not work with the embedded bed's paused clock"]
async fn rules_and_dashboard_use_exported_metrics() {
    let mut named = BTreeSet::new();
    for rule in rules()["groups"][0]["rules"].as_array().unwrap() {
        named.extend(named_in(rule["expr"].as_str().unwrap()));
    }
    let dashboard: Value = serde_json::from_str(&monitoring("dashboard.json")).unwrap();
    for panel in dashboard["panels"].as_array().unwrap() {
        for target in panel["targets"].as_array().unwrap() {
            named.extend(named_in(target["expr"].as_str().unwrap()));
        }
    }
    assert!(named.len() > 20, "{named:?}");

    let text = exported_by_an_operator("monitoring", "--shards=2").await;
    let exported: BTreeSet<&str> =
        text.lines().filter_map(|line| line.split(['{', ' ']).next()).filter(|name| *name != "#").collect();
    let missing: Vec<_> = named.iter().filter(|name| !exported.contains(name.as_str())).collect();
    assert!(missing.is_empty(), "{missing:?} are not in\n{text}");
}

/// Returns the metrics of an operator that leads, in one shard or in several, and has a Ready Foo.
async fn exported_by_an_operator(name: &str, shards: &str) -> String {
    let mut scene = Scene::on(Bed::shared().await, name).await;
    let lease = format!("--leader-elect-resource-namespace={}", scene.namespace);
    scene.start_operator_with(&["--leader-elect", shards, &lease, "--audit-period=1s"]);
    scene.ready_foo("web", 1).await;
    let address = address_of(scene.operator(), "/metrics").await;
    get(&address, "/metrics").await.1
}

#[apply(real_bed)]
#[why = "sockets do not work with the embedded bed's paused clock"]
async fn metrics_match_those_of_stock_dashboards() {
    compare(&families(&exported_by_an_operator("dashboards", "--shards=1").await));
}

/// A metric family: type, names of the labels, bounds of the buckets.
#[derive(Clone, Debug, Default, PartialEq)]
struct Family {
    type_: String,
    labels: BTreeSet<String>,
    buckets: Vec<f64>,
}

/// The families that stock dashboards for Kubernetes' components and for controller-runtime use: name, type, labels,
/// buckets, as their endpoints had them.
const THEIRS: [&str; 2] = [
    include_str!("../data/metrics-of-kube-controller-manager-1.37.txt"),
    include_str!("../data/metrics-of-controller-runtime-0.25.txt"),
];

/// Families that have no meaning here: webhooks, exec plugins and transports of their clients, and terminal errors (a
/// condition here); and readings that `/proc` of the process does not have.
const LEFT_OUT: [&str; 11] = [
    "controller_runtime_conversion_webhook_panics_total",
    "controller_runtime_terminal_reconcile_errors_total",
    "controller_runtime_webhook_panics_total",
    "process_network_receive_bytes_total",
    "process_network_transmit_bytes_total",
    "process_virtual_memory_max_bytes",
    "rest_client_exec_plugin_certificate_rotation_age",
    "rest_client_exec_plugin_ttl_seconds",
    "rest_client_transport_cache_entries",
    "rest_client_transport_cert_rotation_gc_calls_total",
    "rest_client_transport_create_calls_total",
];

fn bound(text: &str) -> f64 {
    if text == "+Inf" { f64::INFINITY } else { text.parse().unwrap_or_else(|_| panic!("{text} is no bound")) }
}

/// Parses OpenMetrics text.
fn families(text: &str) -> BTreeMap<String, Family> {
    let mut found = BTreeMap::<String, Family>::new();
    let mut current = String::new();
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, type_) = rest.split_once(' ').expect("a name and a type");
            current = if type_ == "counter" { format!("{name}_total") } else { name.to_owned() };
            found.entry(current.clone()).or_default().type_ = type_.to_owned();
        } else if !line.starts_with('#') {
            let family = found.get_mut(&current).expect("a type precedes the samples");
            let labels =
                line.split_once('{').and_then(|(_, rest)| rest.rsplit_once('}')).map_or("", |(all, _)| all);
            for label in labels.split("\",").filter(|label| !label.is_empty()) {
                let (name, value) = label.split_once("=\"").expect("a label has a value");
                if name == "le" {
                    family.buckets.push(bound(value.trim_end_matches('"')));
                } else {
                    family.labels.insert(name.to_owned());
                }
            }
        }
    }
    for family in found.values_mut() {
        family.buckets.sort_by(f64::total_cmp);
        family.buckets.dedup();
    }
    found
}

/// Compares our families with theirs: ours may have more labels.
fn compare(ours: &BTreeMap<String, Family>) {
    let mut wrong = Vec::new();
    for line in THEIRS.iter().flat_map(|list| list.lines()) {
        let [name, type_, labels, buckets] = line.split(' ').collect::<Vec<_>>()[..] else {
            panic!("{line}")
        };
        let Some(own) = ours.get(name) else {
            if !LEFT_OUT.contains(&name) {
                wrong.push(format!("{name} is missing"));
            }
            continue;
        };
        // Our queues have the depth of each priority in a family of its own, so that this one is client-go's.
        let is_extra = |label: &&str| *label == "-" || name == "workqueue_depth" && *label == "priority";
        let missing: Vec<_> =
            labels.split(',').filter(|label| !is_extra(label) && !own.labels.contains(*label)).collect();
        let theirs: Vec<f64> =
            if buckets == "-" { Vec::new() } else { buckets.split(',').map(bound).collect() };
        // controller-runtime has two buckets more, for queues, than client-go.
        let is_client_go = name.starts_with("workqueue_") && theirs.contains(&1000.0);
        let is_near = |(a, b): (&f64, &f64)| a == b || (a / b - 1.0).abs() < 1e-9;
        let is_same = theirs.len() == own.buckets.len() && theirs.iter().zip(&own.buckets).all(is_near);
        if own.type_ != type_ || !missing.is_empty() || !(is_same || is_client_go) {
            wrong.push(format!("{line}\n  ours: {own:?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
