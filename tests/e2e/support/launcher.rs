//! The control plane as a child process: its standard input is its lifeline.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use parking_lot::Mutex;
use rustix::process::{Pid, Signal, kill_process};
use serde::Deserialize;
use serde_json::Value;

/// What the launcher says when it is up.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Ready {
    pub(crate) kubeconfig: PathBuf,
    pub(crate) dir: PathBuf,
    pub(crate) audit_log: PathBuf,
    pub(crate) etcd: String,
    pub(crate) kubectl: PathBuf,
}

/// A running launcher. When this process ends, however it does, the launcher's standard input closes,
/// and it ends what it started.
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
        let mut child = Command::new(program())
            .arg("serve")
            // A Ctrl-C at the terminal is for the tests; the launcher ends when its standard input closes.
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the launcher starts");
        let stdin = child.stdin.take().expect("it was piped");
        let stdout = BufReader::new(child.stdout.take().expect("it was piped"));
        let mut pipes = Pipes { stdin: Some(stdin), stdout };
        let ready = pipes.read();
        let ready = serde_json::from_value(ready).expect("the launcher says where everything is");
        Self { ready, pipes: Mutex::new(pipes), child }
    }

    /// Runs the launcher with this environment, expecting that it fails; returns what it said.
    pub(crate) fn fails(environment: &[(&str, &str)]) -> String {
        let output = Command::new(program())
            .arg("serve")
            .envs(environment.iter().copied())
            .stdin(Stdio::null())
            .output()
            .expect("the launcher starts");
        assert!(!output.status.success());
        String::from_utf8_lossy(&output.stderr).into_owned()
    }

    /// Where kubectl is, if it is built.
    pub(crate) fn kubectl() -> Result<PathBuf, String> {
        let output = Command::new(program()).arg("kubectl").output().expect("the launcher starts");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
        if output.status.success() { Ok(text(&output.stdout).into()) } else { Err(text(&output.stderr)) }
    }

    /// Sends the launcher a signal.
    pub(crate) fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(self.child.id().cast_signed()).expect("a process has an id");
        kill_process(pid, signal).expect("it runs");
    }

    /// Waits for its end.
    pub(crate) fn wait(&mut self) {
        self.child.wait().expect("it ends");
    }

    /// Gives a command and returns the answer.
    pub(crate) fn command(&self, line: &str) -> Value {
        let mut pipes = self.pipes.lock();
        let stdin = pipes.stdin.as_mut().expect("it closes with the launcher");
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

/// The launcher beside this test's own program; cargo builds examples with the tests, except when one
/// test target is named, so it is built here then.
fn program() -> PathBuf {
    let here = std::env::current_exe().expect("a test knows its program");
    let profile = here.parent().and_then(Path::parent).expect("target/<profile>/deps/<test>");
    let built = Command::new(env!("CARGO"))
        .args(["build", "--quiet", "--example", "control-plane", "--manifest-path"])
        .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml"))
        .args(profile.ends_with("release").then_some("--release"))
        .status();
    assert!(built.is_ok_and(|status| status.success()), "the launcher does not build");
    profile.join("examples/control-plane")
}
