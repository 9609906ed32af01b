//! The program by itself: wrong usage, results, a server that is not there. These need no control plane.

use macro_rules_attribute::apply;

use crate::support::{Operator, no_bed, pass, run_to_end};

/// Exit code 2; the cause in the first line, a remedy after it, at most 8 lines, no backtrace. The whole text.
#[track_caller]
fn refused(args: &[&str], environment: &[(&str, &str)], cause: &str) -> String {
    let output = run_to_end(args, environment);
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{args:?}: {text}");
    let first = text.lines().next().unwrap_or_default();
    assert!(first.contains(cause), "{args:?}: {cause:?} is not in the first line:\n{text}");
    let lines = text.lines().count();
    assert!((2..=8).contains(&lines), "{args:?}: {lines} lines:\n{text}");
    for word in ["panicked", "RUST_BACKTRACE", "stack backtrace"] {
        assert!(!text.contains(word), "{args:?}:\n{text}");
    }
    assert!(output.stdout.is_empty(), "results only on standard output");
    text
}

#[apply(no_bed)]
#[why = "it is about the program without a server"]
async fn wrong_flags_and_values_are_refused() {
    refused(&["run", "--no-such-flag"], &[], "--no-such-flag");
    refused(&["walk"], &[], "walk");
    refused(&[], &[], "requires a subcommand");
    refused(&["run", "--controllers=bar"], &[], "there is no controller \"bar\"");
    refused(&["run", "--controllers=foo,-foo"], &[], "leaves nothing to run");
    refused(&["run", "--queue-base-delay=5"], &[], "--queue-base-delay");
    refused(&["run", "--queue-base-delay=0"], &[], "--queue-base-delay");
    refused(&["run", "--queue-max-delay=1ms"], &[], "--queue-max-delay");
    refused(&["run", "--queue-max-delay=25h"], &[], "--queue-max-delay (90000s) is above 86400s");
    refused(&["run", "--resync-period=1ms"], &[], "--resync-period");
    refused(&["run", "--audit-period=1ms"], &[], "--audit-period");
    refused(&["run", "--metrics-bind-address=8080"], &[], "ADDRESS:PORT");
    refused(&["run", "--namespace=a,b"], &[], "--namespace");
    refused(&["run", "--log-format=xml"], &[], "--log-format");
    refused(&["run", "--log-level=foo=bar=baz"], &[], "--log-level");
    refused(&["run", "--log-level=verbose"], &[], "--log-level");
    refused(&["run"], &[("WINDLASS_WORKERS", "many")], "many");
    refused(&["crds", "bar"], &[], "there is no kind \"bar\"");
    refused(&["schema", "bar"], &[], "there is no schema \"bar\"");
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("tasks.yaml").to_str().unwrap().to_owned();
    for (tasks, cause, remedy) in [
        (None, ": No such file", "Name a file of tasks in YAML or JSON"),
        (Some("tasks:\n- name: a\n  typ: log\n"), ":3: unknown key \"typ\"", "Keys here: name, type, "),
        (
            Some("tasks:\n- name: a\n  type: log\n- name: b\n  type: http\n"),
            ":4: task \"b\" has no url",
            "url: https://",
        ),
        (Some("tasks: []\n"), ":1: there is no task in it", "Write at least one task"),
    ] {
        if let Some(tasks) = tasks {
            std::fs::write(&file, tasks).unwrap();
        }
        let text = refused(&["run", "--webapp-tasks", &file], &[], &format!("{file}{cause}"));
        assert!(text.contains(remedy) && text.contains("`windlass schema webapp-tasks`"), "{text}");
    }
}

#[apply(no_bed)]
#[why = "it is about the program without a server"]
async fn a_number_out_of_its_range_is_refused_with_the_range() {
    for (flag, range, values) in [
        ("--workers", "1..=1000", ["0", "-1", "1001"]),
        ("--concurrent-foo-syncs", "1..=1000", ["0", "-1", "1001"]),
        ("--concurrent-myapp-syncs", "1..=1000", ["0", "-1", "1001"]),
        ("--concurrent-appservice-syncs", "1..=1000", ["0", "-1", "1001"]),
        ("--concurrent-redis-syncs", "1..=1000", ["0", "-1", "1001"]),
        ("--concurrent-webapp-syncs", "1..=1000", ["0", "-1", "1001"]),
        ("--queue-qps", "1..=100000", ["0", "-1", "100001"]),
        ("--queue-burst", "1..=100000", ["0", "-1", "100001"]),
        ("--kube-api-burst", "1..=100000", ["0", "-1", "100001"]),
        ("--event-qps", "1..=100000", ["0", "-1", "100001"]),
        // Zero is no limit.
        ("--kube-api-qps", "0..=100000", ["-5", "-1", "100001"]),
    ] {
        for value in values {
            let argument = format!("{flag}={value}");
            let cause = format!("invalid value '{value}' for '{flag} <N>': {value} is not in {range}");
            refused(&["run", &argument], &[], &cause);
        }
    }
    for flag in
        ["--queue-base-delay", "--queue-max-delay", "--resync-period", "--audit-period", "--shutdown-timeout"]
    {
        let negative = format!("'{flag} <DURATION>': it is below 0: write a number with a unit");
        refused(&["run", &format!("{flag}=-5ms")], &[], &negative);
    }
    let delays = ["run", "--queue-base-delay=5m", "--queue-max-delay=1m"];
    let text = refused(&delays, &[], "--queue-max-delay (60s) is below --queue-base-delay (300s)");
    assert!(text.contains("Raise --queue-max-delay or lower --queue-base-delay."), "{text}");
}

#[apply(no_bed)]
#[why = "it is about the program without a server"]
async fn a_missing_or_broken_kubeconfig_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    refused(&["run", "--kubeconfig", &path("none")], &[], "No such file");
    std::fs::write(path("broken"), "clusters: [").unwrap();
    refused(&["run", "--kubeconfig", &path("broken")], &[], "not a kubeconfig");
    std::fs::write(path("empty"), "").unwrap();
    refused(&["run", "--kubeconfig", &path("empty")], &[], &path("empty"));
    refused(&["run"], &[("KUBECONFIG", &path("none"))], "from KUBECONFIG");
    refused(&["run"], &[("HOME", &path("no-home"))], "no cluster is configured");
    let kubeconfig = r#"{"clusters": [{"name": "c", "cluster": {"server": "https://127.0.0.1:1"}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}], "users": [{"name": "u", "user": {}}]}"#;
    std::fs::write(path("other"), kubeconfig).unwrap();
    refused(&["run", "--kubeconfig", &path("other"), "--context=y"], &[], "no context \"y\"");
}

#[apply(no_bed)]
#[why = "it is about the program without a server"]
async fn results_go_to_standard_output() {
    let version = run_to_end(&["version", "-o", "json"], &[]);
    let json: serde_json::Value = serde_json::from_slice(&version.stdout).unwrap();
    assert_eq!(json["version"], env!("CARGO_PKG_VERSION"));
    for field in ["commit", "rustc", "kubernetes"] {
        assert!(!json[field].is_null(), "{json}");
    }
    let crds = run_to_end(&["crds", "Foo"], &[]);
    assert!(String::from_utf8_lossy(&crds.stdout).contains("name: foos.samplecontroller.k8s.io"));
    let schema = run_to_end(&["schema", "webapp-tasks"], &[]);
    let schema: serde_json::Value = serde_json::from_slice(&schema.stdout).unwrap();
    assert_eq!(schema["required"][0], "tasks");
    for shell in ["bash", "zsh", "fish"] {
        let script = run_to_end(&["completion", shell], &[]);
        assert!(
            script.status.success() && String::from_utf8_lossy(&script.stdout).contains("windlass"),
            "{shell}"
        );
    }
    let help = run_to_end(&["run", "--help"], &[]);
    let help = String::from_utf8_lossy(&help.stdout).into_owned();
    for heading in ["Cluster:", "What runs:", "Workers and queues:", "Logging:"] {
        assert!(help.contains(heading), "{heading} is not in:\n{help}");
    }
}

/// A kubeconfig for a port where nobody listens.
fn nobody(dir: &tempfile::TempDir) -> std::path::PathBuf {
    let port = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap().port();
    let path = dir.path().join("kubeconfig");
    let kubeconfig = format!(
        r#"{{"current-context": "x", "contexts": [{{"name": "x", "context": {{"cluster": "c", "user": "u"}}}}],
        "clusters": [{{"name": "c", "cluster": {{"server": "https://127.0.0.1:{port}"}}}}],
        "users": [{{"name": "u", "user": {{"token": "secret-canary"}}}}]}}"#
    );
    std::fs::write(&path, kubeconfig).unwrap();
    path
}

#[apply(no_bed)]
#[why = "it is about the program without a server"]
async fn a_server_that_is_not_there_is_one_clear_line_and_a_signal_still_stops() {
    let dir = tempfile::tempdir().unwrap();
    let operator = Operator::start(&nobody(&dir), dir.path().join("log"), &[]);
    let line = operator.logged("API server does not answer").await;
    assert!(line.contains("refused"), "the cause is in the line: {line}");
    // A few tries later it is still one line.
    pass(std::time::Duration::from_secs(5)).await;
    let log = operator.log();
    let warnings = log.lines().filter(|line| line.contains("WARN") || line.contains("ERROR")).count();
    assert_eq!(warnings, 1, "{log}");
    assert!(!log.contains("secret-canary"), "{log}");
    assert_eq!(operator.terminate().await.code(), Some(0));
}
