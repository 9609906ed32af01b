//! The program without a control plane: invalid usage, its output, an unreachable server.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Stdio};

use macro_rules_attribute::apply;
use rustix::process::{Pid, Signal, kill_process};

use crate::support::{Operator, no_bed, pass, program, run_to_end, wait_until};

/// Asserts that the program exits with 2 and prints the cause in the first line, a remedy below it, at most 8 lines
/// in all, and no backtrace. Returns its standard error.
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
    assert!(output.stdout.is_empty(), "standard output is for results only");
    text
}

#[apply(no_bed)]
#[why = "it tests the program without a server"]
async fn wrong_flags_and_values_are_refused() {
    refused(&["run", "--no-such-flag"], &[], "--no-such-flag");
    let text = refused(&["run", "--master=https://127.0.0.1:1"], &[], "unknown flag --master");
    assert!(text.contains("give --kubeconfig"), "{text}");
    refused(&["walk"], &[], "walk");
    refused(&[], &[], "requires a subcommand");
    refused(&["run", "--controllers=bar"], &[], "unknown controller \"bar\"");
    refused(&["run", "--controllers=foo,-foo"], &[], "selects no controller");
    refused(&["run", "--queue-base-delay=5"], &[], "--queue-base-delay");
    refused(&["run", "--queue-base-delay=0"], &[], "--queue-base-delay");
    refused(&["run", "--queue-max-delay=1ms"], &[], "--queue-max-delay");
    refused(&["run", "--queue-max-delay=25h"], &[], "--queue-max-delay (90000s) is above 86400s");
    refused(&["run", "--resync-period=1ms"], &[], "--resync-period");
    refused(&["run", "--audit-period=1ms"], &[], "--audit-period");
    refused(
        &["run", "--leader-elect-renew-deadline=20s"],
        &[],
        "(20s) must be below the lease duration (15s)",
    );
    refused(&["run", "--leader-elect-retry-period=0"], &[], "the retry period must not be zero");
    refused(&["run", "--leader-elect=perhaps"], &[], "--leader-elect");
    refused(&["run", "--shards=16", "--leader-elect=false"], &[], "--shards=16 needs leader election");
    refused(&["run", "--shard-ranges"], &[], "--shard-ranges says how shards are divided, and there is one");
    refused(&["run", "--shards=0"], &[], "--shards");
    refused(&["status", "--output=xml"], &[], "--output");
    refused(&["run", "--metrics-bind-address=8080"], &[], "ADDRESS:PORT");
    for (namespaces, cause, remedy) in [
        ("a,,b", "a name is empty", "single commas"),
        ("a,b,a", "\"a\" is there twice", "once"),
        ("team-a,Team-B", "\"Team-B\" is not a DNS label", "lower-case letters"),
    ] {
        let cause = format!("--namespace={namespaces}: {cause}");
        let flag = format!("--namespace={namespaces}");
        let variable = [("WINDLASS_NAMESPACE", namespaces)];
        for text in [
            refused(&["run", &flag], &[], &cause),
            refused(&["run"], &variable, &cause),
            refused(&["status", &flag], &[], &cause),
        ] {
            assert!(text.contains(remedy), "{text}");
        }
    }
    refused(&["run", "--log-format=xml"], &[], "--log-format");
    refused(&["run", "--log-level=foo=bar=baz"], &[], "--log-level");
    refused(&["run", "--log-level=verbose"], &[], "--log-level");
    refused(&["run"], &[("WINDLASS_WORKERS", "many")], "auto, or auto:MAX");
    refused(&["run", "--workers=auto:0"], &[], "0 is not in 1..=1000");
    refused(&["crds", "bar"], &[], "unknown kind \"bar\"");
    refused(&["schema", "bar"], &[], "unknown schema \"bar\"");
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("tasks.yaml").to_str().unwrap().to_owned();
    for (tasks, cause, remedy) in [
        (None, ": No such file", "Pass a tasks file in YAML or JSON"),
        (Some("tasks:\n- name: a\n  typ: log\n"), ":3: unknown key \"typ\"", "Valid keys: name, type, "),
        (
            Some("tasks:\n- name: a\n  type: log\n- name: b\n  type: http\n"),
            ":4: task \"b\" has no url",
            "url: https://",
        ),
        (Some("tasks: []\n"), ":1: the task list is empty", "Add at least one task"),
    ] {
        if let Some(tasks) = tasks {
            std::fs::write(&file, tasks).unwrap();
        }
        let text = refused(&["run", "--webapp-tasks", &file], &[], &format!("{file}{cause}"));
        assert!(text.contains(remedy) && text.contains("`windlass schema webapp-tasks`"), "{text}");
    }
}

#[apply(no_bed)]
#[why = "it tests the program without a server"]
async fn wrong_flags_of_traces_are_refused() {
    for url in ["collector:4318", "grpc://collector:4317", "http://collector:4318/?x=y"] {
        let cause = format!("--otlp-endpoint={url}: it ");
        let text = refused(&["run", &format!("--otlp-endpoint={url}")], &[], &cause);
        assert!(text.contains("such as http://collector:4318"), "{text}");
        let cause = format!("OTEL_EXPORTER_OTLP_ENDPOINT={url}: it ");
        refused(&["run"], &[("OTEL_EXPORTER_OTLP_ENDPOINT", url)], &cause);
    }
    let busy = TcpListener::bind("127.0.0.1:0").unwrap();
    let busy = format!("--metrics-bind-address={}", busy.local_addr().unwrap());
    refused(&["run", "--otlp-endpoint=collector:4318", &busy], &[], "--otlp-endpoint=collector:4318: it ");
    refused(&["run", "--otlp-sample-ratio=2"], &[], "give a number from 0 to 1");
}

#[apply(no_bed)]
#[why = "it tests the program without a server"]
async fn number_out_of_range_is_refused() {
    for (flag, range, values) in [
        ("--workers", "1..=1000", ["0", "-1", "1001"]),
        ("--concurrent-foo-syncs", "1..=1000", ["0", "-1", "1001"]),
        ("--concurrent-myapp-syncs", "1..=1000", ["0", "-1", "1001"]),
        ("--concurrent-appservice-syncs", "1..=1000", ["0", "-1", "1001"]),
        ("--concurrent-redis-syncs", "1..=1000", ["0", "-1", "1001"]),
        ("--concurrent-webapp-syncs", "1..=1000", ["0", "-1", "1001"]),
        ("--threads", "1..=1000", ["0", "-1", "1001"]),
        ("--queue-qps", "1..=100000", ["0", "-1", "100001"]),
        ("--queue-burst", "1..=100000", ["0", "-1", "100001"]),
        ("--kube-api-burst", "1..=100000", ["0", "-1", "100001"]),
        ("--event-qps", "1..=100000", ["0", "-1", "100001"]),
        // Zero means no limit.
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
        let negative = format!("'{flag} <DURATION>': must not be negative; write a number with a unit");
        refused(&["run", &format!("{flag}=-5ms")], &[], &negative);
    }
    let delays = ["run", "--queue-base-delay=5m", "--queue-max-delay=1m"];
    let text = refused(&delays, &[], "--queue-max-delay (60s) is below --queue-base-delay (300s)");
    assert!(text.contains("Raise --queue-max-delay or lower --queue-base-delay."), "{text}");
}

#[apply(no_bed)]
#[why = "it tests the program without a server"]
async fn a_missing_or_broken_kubeconfig_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    refused(&["run", "--kubeconfig", &path("none")], &[], "No such file");
    std::fs::write(path("broken"), "clusters: [").unwrap();
    refused(&["run", "--kubeconfig", &path("broken")], &[], "not a valid kubeconfig");
    std::fs::write(path("empty"), "").unwrap();
    refused(&["run", "--kubeconfig", &path("empty")], &[], &path("empty"));
    refused(&["run"], &[("KUBECONFIG", &path("none"))], "from KUBECONFIG");
    refused(&["run"], &[("HOME", &path("no-home"))], "no cluster is configured");
    let kubeconfig = r#"{"clusters": [{"name": "c", "cluster": {"server": "https://127.0.0.1:1"}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}], "users": [{"name": "u", "user": {}}]}"#;
    std::fs::write(path("other"), kubeconfig).unwrap();
    refused(&["run", "--kubeconfig", &path("other"), "--context=y"], &[], "context \"y\" does not exist");
}

#[apply(no_bed)]
#[why = "it tests the program without a server"]
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

/// Writes a kubeconfig for a port on which nothing listens.
pub(crate) fn unreachable_server(dir: &tempfile::TempDir) -> std::path::PathBuf {
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
#[why = "it tests the program without a server"]
async fn unreachable_server_is_logged_once() {
    let dir = tempfile::tempdir().unwrap();
    let operator = Operator::start(&unreachable_server(&dir), dir.path().join("log"), &[]);
    let line = operator.logged("API server does not answer").await;
    assert!(line.contains("refused"), "the line contains the cause: {line}");
    // Further attempts do not log further warnings.
    pass(std::time::Duration::from_secs(5)).await;
    let log = operator.log();
    let warnings = log.lines().filter(|line| line.contains("WARN") || line.contains("ERROR")).count();
    assert_eq!(warnings, 1, "{log}");
    assert!(!log.contains("secret-canary"), "{log}");
    assert_eq!(operator.terminate().await.code(), Some(0));
}

/// A log that cannot be written, and one that nobody reads.
#[apply(no_bed)]
#[why = "it tests the program without a server"]
async fn failing_log_does_not_stop_the_process() {
    let dir = tempfile::tempdir().unwrap();
    let kubeconfig = unreachable_server(&dir);
    let (reader, closed) = std::io::pipe().unwrap();
    drop(reader);
    let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
    for stderr in [Stdio::from(full), Stdio::from(closed)] {
        let (mut child, health) = operator(&kubeconfig, stderr);
        answers(&health).await;
        let pid = Pid::from_raw(child.id().cast_signed()).unwrap();
        kill_process(pid, Signal::TERM).unwrap();
        assert_eq!(child.wait().unwrap().code(), Some(0));
    }
}

#[apply(no_bed)]
#[why = "it tests the program without a server"]
async fn unread_log_does_not_hold_the_exit() {
    let dir = tempfile::tempdir().unwrap();
    let kubeconfig = unreachable_server(&dir);
    let (unread, pipe) = std::io::pipe().unwrap();
    // A pipe that is full from the start.
    let mut filler = pipe.try_clone().unwrap();
    rustix::fs::fcntl_setfl(&filler, rustix::fs::OFlags::NONBLOCK).unwrap();
    while filler.write(&[b'x'; 4096]).is_ok() {}
    rustix::fs::fcntl_setfl(&filler, rustix::fs::OFlags::empty()).unwrap();
    let (mut child, health) = operator(&kubeconfig, Stdio::from(pipe));
    answers(&health).await;
    let pid = Pid::from_raw(child.id().cast_signed()).unwrap();
    kill_process(pid, Signal::TERM).unwrap();
    let ended = wait_until("the operator ends", async || child.try_wait().unwrap().ok_or("running")).await;
    assert_eq!(ended.code(), Some(0));
    drop(unread);
}

/// Starts an operator with this standard error, and returns the address of its health endpoints.
fn operator(kubeconfig: &Path, stderr: Stdio) -> (Child, SocketAddr) {
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let health = free.local_addr().unwrap();
    drop(free);
    let mut command = program();
    command
        .arg("run")
        .arg(format!("--kubeconfig={}", kubeconfig.display()))
        .arg(format!("--health-probe-bind-address={health}"))
        .args(["--leader-elect=false", "--metrics-bind-address=0", "--log-level=debug"])
        .stdin(Stdio::null())
        .stderr(stderr);
    (command.spawn().unwrap(), health)
}

/// Waits until `/livez` is answered.
async fn answers(health: &SocketAddr) {
    wait_until("/livez is answered", async || {
        let mut stream = TcpStream::connect(health).map_err(|error| error.to_string())?;
        stream.write_all(b"GET /livez HTTP/1.1\r\nhost: x\r\n\r\n").map_err(|error| error.to_string())?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).map_err(|error| error.to_string())?;
        if answer.starts_with("HTTP/1.1 200") { Ok(()) } else { Err(answer) }
    })
    .await;
}
