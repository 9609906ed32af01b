//! Runs the control plane's launcher as a child process, which exits when its standard input closes.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use parking_lot::Mutex;
use rustix::process::{Pid, Signal, kill_process};
use serde::Deserialize;
use serde_json::Value;

/// The launcher's first answer, once the control plane is ready.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Ready {
    pub(crate) kubeconfig: PathBuf,
    pub(crate) dir: PathBuf,
    pub(crate) audit_log: PathBuf,
    pub(crate) etcd: String,
    pub(crate) kubectl: PathBuf,
}

/// A running launcher. However this process ends, the launcher's standard input closes, and the launcher then
/// stops the processes it started.
#[derive(Debug)]
pub(crate) struct Launcher {
    pub(crate) ready: Ready,
    pipes: Mutex<Pipes>,
    child: Child,
}

#[derive(Debug)]
struct Pipes {
    stdin: Option<ChildStdin>,
    stdout: BufReader<ChildStdout>,
}

impl Launcher {
    pub(crate) fn start() -> Self {
        Self::start_with(&[])
    }

    /// Starts it with these flags.
    pub(crate) fn start_with(flags: &[&str]) -> Self {
        let mut child = Command::new(example("control-plane"))
            .arg("serve")
            .args(flags)
            // A Ctrl-C at the terminal must only reach the tests; the launcher exits when its standard input closes.
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the launcher starts");
        let stdin = child.stdin.take().expect("stdin is piped");
        let stdout = BufReader::new(child.stdout.take().expect("stdout is piped"));
        let mut pipes = Pipes { stdin: Some(stdin), stdout };
        let ready = pipes.read();
        let ready = serde_json::from_value(ready).expect("the launcher reports its paths");
        Self { ready, pipes: Mutex::new(pipes), child }
    }

    /// Runs the launcher with this environment, expects it to fail, and returns its standard error.
    pub(crate) fn fails(environment: &[(&str, &str)]) -> String {
        let output = Command::new(example("control-plane"))
            .arg("serve")
            .envs(environment.iter().copied())
            .stdin(Stdio::null())
            .output()
            .expect("the launcher starts");
        assert!(!output.status.success());
        String::from_utf8_lossy(&output.stderr).into_owned()
    }

    /// Returns the path of kubectl if it is built, else the reason that it is not.
    pub(crate) fn kubectl() -> Result<PathBuf, String> {
        let output =
            Command::new(example("control-plane")).arg("kubectl").output().expect("the launcher starts");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
        if output.status.success() { Ok(text(&output.stdout).into()) } else { Err(text(&output.stderr)) }
    }

    /// Sends the launcher a signal.
    pub(crate) fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(self.child.id().cast_signed()).expect("a process has an id");
        kill_process(pid, signal).expect("the launcher is running");
    }

    /// Waits for the launcher to exit.
    pub(crate) fn wait(&mut self) {
        self.child.wait().expect("the launcher exits");
    }

    /// Sends the launcher a command and returns its answer.
    pub(crate) fn command(&self, line: &str) -> Value {
        let mut pipes = self.pipes.lock();
        let stdin = pipes.stdin.as_mut().expect("stdin is open until the launcher is dropped");
        writeln!(stdin, "{line}").expect("the launcher listens");
        let answer = pipes.read();
        assert!(answer.get("error").is_none(), "{line}: {answer}");
        answer
    }
}

impl Pipes {
    fn read(&mut self) -> Value {
        let mut line = String::new();
        self.stdout.read_line(&mut line).expect("the launcher answers");
        assert!(!line.is_empty(), "the control plane did not start; its message is above");
        serde_json::from_str(&line).expect("the launcher answers in JSON")
    }
}

impl Drop for Launcher {
    fn drop(&mut self) {
        drop(self.pipes.lock().stdin.take());
        drop(self.child.wait());
    }
}

/// Builds an example and returns its path. Cargo builds examples along with the tests, but not when a test target is
/// named.
pub(crate) fn example(name: &str) -> PathBuf {
    let here = std::env::current_exe().expect("the test's own path is known");
    let profile = here.parent().and_then(Path::parent).expect("target/<profile>/deps/<test>");
    let built = Command::new(env!("CARGO"))
        .args(["build", "--quiet", "--example", name, "--manifest-path"])
        .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml"))
        .args(profile.ends_with("release").then_some("--release"))
        .status();
    assert!(built.is_ok_and(|status| status.success()), "{name} does not build");
    profile.join("examples").join(name)
}
