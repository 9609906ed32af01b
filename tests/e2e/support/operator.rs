//! The operator as a process of its own.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use super::wait_until;

/// A running `windlass run`; dropping it kills it.
#[derive(Debug)]
pub(crate) struct Operator {
    child: Child,
    log: PathBuf,
    /// Where its part of the log begins: what is before is of an earlier one.
    log_start: usize,
}

impl Operator {
    /// Starts it with this kubeconfig and these further flags.
    pub(crate) fn start(kubeconfig: &Path, log: PathBuf, flags: &[&str]) -> Self {
        let log_start = fs::read(&log).unwrap_or_default().len();
        let file = File::options().create(true).append(true).open(&log).expect("a log file");
        let child = command()
            .arg("run")
            .arg(format!("--kubeconfig={}", kubeconfig.display()))
            .args(["--log-format=text", "--log-level=info,windlass=debug"])
            .args(flags)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(file)
            .spawn()
            .expect("the operator starts");
        Self { child, log, log_start }
    }

    /// All that it has logged.
    pub(crate) fn log(&self) -> String {
        let log = fs::read(&self.log).unwrap_or_default();
        String::from_utf8_lossy(log.get(self.log_start..).unwrap_or_default()).into_owned()
    }

    /// SIGKILL, and it is gone.
    pub(crate) fn kill(mut self) {
        self.child.kill().expect("it runs");
        self.child.wait().expect("it ends");
    }

    /// Sends a signal.
    pub(crate) fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(self.child.id().cast_signed()).expect("a process has an id");
        kill_process(pid, signal).expect("it runs");
    }

    /// SIGTERM; returns how it ended.
    pub(crate) async fn terminate(mut self) -> ExitStatus {
        self.signal(Signal::TERM);
        self.ended().await
    }

    /// Whether it has not ended.
    pub(crate) fn is_running(&mut self) -> bool {
        self.child.try_wait().expect("it can be asked").is_none()
    }

    /// Waits for its end.
    pub(crate) async fn ended(&mut self) -> ExitStatus {
        let child = &mut self.child;
        wait_until("the operator ends", async || child.try_wait().expect("it can be asked").ok_or("running"))
            .await
    }

    /// Waits for a line of the log that holds this text.
    #[track_caller]
    pub(crate) fn logged(&self, text: &str) -> impl Future<Output = String> {
        let what = format!("the operator logs {text:?}");
        wait_until(&what, async move || {
            let log = self.log();
            log.lines().find(|line| line.contains(text)).map(str::to_owned).ok_or(log)
        })
    }
}

impl Drop for Operator {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
        if std::thread::panicking() {
            eprintln!("--- the operator's log ({}):\n{}", self.log.display(), self.log());
        }
    }
}

/// Runs the program with these arguments to its end.
pub(crate) fn run_to_end(args: &[&str], environment: &[(&str, &str)]) -> Output {
    let mut command = command();
    command.args(args).envs(environment.iter().copied()).stdin(Stdio::null());
    command.output().expect("the program runs")
}

/// The program, without what this process's environment would tell it.
fn command() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_windlass"));
    for (name, _) in std::env::vars_os() {
        let name = name.to_string_lossy();
        if name.starts_with("WINDLASS_") || name.starts_with("KUBE") {
            command.env_remove(&*name);
        }
    }
    command
}
