//! The alert rules and the dashboard: promtool accepts the rules, and everything that they name is exported.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use macro_rules_attribute::apply;
use serde_json::Value;

use crate::endpoints::{address_of, get};
use crate::support::{Bed, Scene, no_bed, real_bed};

/// Metric families have one of these prefixes.
const PREFIXES: [&str; 7] = [
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

/// Finds promtool in the path or among the tools of `hack/install-tools.sh`. Without it the case is skipped, but not in
/// CI, where only `WINDLASS_WITHOUT` allows that.
fn promtool() -> Option<PathBuf> {
    let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let cache = cache.or_else(|| Some(std::env::home_dir()?.join(".cache")));
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).chain(cache.map(|cache| cache.join("windlass/tools")));
    let found = folders.map(|folder| folder.join("promtool")).find(|program| program.is_file());
    if found.is_none() {
        let is_excused = std::env::var("WINDLASS_WITHOUT").is_ok_and(|tools| tools.contains("promtool"));
        assert!(
            is_excused || std::env::var_os("CI").is_none(),
            "promtool is missing: run hack/install-tools.sh"
        );
        eprintln!("skipped: promtool is missing; hack/install-tools.sh gets it");
    }
    found
}

#[apply(no_bed)]
#[why = "promtool evaluates the rules by itself"]
async fn each_alert_fires_when_it_should() {
    let Some(promtool) = promtool() else { return };
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

    let mut scene = Scene::on(Bed::shared().await, "monitoring").await;
    let lease = format!("--leader-elect-resource-namespace={}", scene.namespace);
    scene.start_operator_with(&["--leader-elect", &lease, "--audit-period=1s"]);
    scene.ready_foo("web", 1).await;
    let address = address_of(scene.operator(), "/metrics").await;
    let (_, text) = get(&address, "/metrics").await;
    let exported: BTreeSet<&str> =
        text.lines().filter_map(|line| line.split(['{', ' ']).next()).filter(|name| *name != "#").collect();
    let missing: Vec<_> = named.iter().filter(|name| !exported.contains(name.as_str())).collect();
    assert!(missing.is_empty(), "{missing:?} are not in\n{text}");
}
