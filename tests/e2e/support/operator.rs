//! The operator under test: a process on the real bed, a task on the embedded one.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};

use kube_client::Client;
use parking_lot::Mutex;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tracing::Instrument;
use windlass::client::ApiClient;
use windlass::sim::Sim;

use super::embedded::seed;
use super::{canary, captured_log, patience, wait_until};

/// A running `windlass run`, killed on drop.
#[derive(Debug)]
pub(crate) enum Operator {
    Process(Process),
    Task(Task),
}

#[derive(Debug)]
pub(crate) struct Process {
    child: Child,
    log: PathBuf,
    /// Where this operator's part of the log begins; an earlier operator wrote the part before it.
    log_start: usize,
}

#[derive(Debug)]
pub(crate) struct Task {
    sim: Sim,
    user: String,
    /// Identifies this operator's lines in the log of the case.
    mark: String,
    signals: mpsc::Sender<&'static str>,
    running: JoinSet<Result<(), (u8, String)>>,
    /// The error that the operator returned, if any.
    last_words: Mutex<String>,
}

/// The exit code of an operator, if it was not killed by a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ended(Option<i32>);

impl Ended {
    pub(crate) fn code(self) -> Option<i32> {
        self.0
    }
}

impl Operator {
    /// Starts the program with this kubeconfig and these additional flags.
    pub(crate) fn start(kubeconfig: &Path, log: PathBuf, flags: &[&str]) -> Self {
        let kubeconfig = format!("--kubeconfig={}", kubeconfig.display());
        Self::spawn(program(), log, &[&[kubeconfig.as_str()], flags].concat())
    }

    /// Starts the program by this command, with these additional flags.
    pub(crate) fn spawn(mut program: Command, log: PathBuf, flags: &[&str]) -> Self {
        let log_start = fs::read(&log).unwrap_or_default().len();
        let file = File::options().create(true).append(true).open(&log).expect("a log file");
        let child = program
            .arg("run")
            .args(with_endpoints(flags, "127.0.0.1:0"))
            .args(not_given(flags, &["--log-format=text", "--log-level=info,windlass=debug"]))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(file)
            .spawn()
            .expect("the operator starts");
        Self::Process(Process { child, log, log_start })
    }

    /// Starts an operator in this process, with this client.
    pub(crate) fn in_process(sim: &Sim, user: &str, client: Client, flags: &[&str]) -> Self {
        static STARTED: AtomicUsize = AtomicUsize::new(0);
        let id = format!("{user}#{}", STARTED.fetch_add(1, Ordering::Relaxed));
        let (signals, received) = mpsc::channel(8);
        // A paused clock does not affect sockets, so the endpoints are off.
        let flags = with_endpoints(flags, "0");
        let span = tracing::info_span!("operator", %id);
        let mut running = JoinSet::new();
        let operate = async move {
            let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
            let given = windlass::cli::InProcess::new(seed());
            windlass::cli::run_over(ApiClient::new(client), &flags, given, received).await
        };
        running.spawn(operate.instrument(span));
        Self::Task(Task {
            sim: sim.clone(),
            user: user.to_owned(),
            mark: format!("operator{{id={id}}}"),
            signals,
            running,
            last_words: Mutex::default(),
        })
    }

    /// Returns everything the operator has logged.
    pub(crate) fn log(&self) -> String {
        match self {
            Self::Process(process) => process.log(),
            Self::Task(task) => task.log(),
        }
    }

    /// Kills the operator, as SIGKILL does.
    pub(crate) fn kill(self) {
        drop(self);
    }

    /// Sends the operator a signal.
    pub(crate) fn signal(&self, signal: Signal) {
        match self {
            Self::Process(process) => {
                let pid = Pid::from_raw(process.child.id().cast_signed()).expect("a process has an id");
                kill_process(pid, signal).expect("the operator is running");
            }
            Self::Task(task) if signal == Signal::STOP => task.sim.suspend(&task.user, true),
            Self::Task(task) if signal == Signal::CONT => task.sim.suspend(&task.user, false),
            Self::Task(task) => {
                let name = if signal == Signal::INT { "SIGINT" } else { "SIGTERM" };
                task.signals.try_send(name).expect("the operator is running");
            }
        }
    }

    /// Sends SIGTERM and waits for the operator to exit.
    pub(crate) async fn terminate(mut self) -> Ended {
        self.signal(Signal::TERM);
        self.ended().await
    }

    /// Whether the operator is still running.
    pub(crate) fn is_running(&mut self) -> bool {
        match self {
            Self::Process(process) => process.child.try_wait().expect("the child can be polled").is_none(),
            Self::Task(task) => task.running.try_join_next().is_none(),
        }
    }

    /// Waits for the operator to exit.
    pub(crate) async fn ended(&mut self) -> Ended {
        match self {
            Self::Process(process) => {
                let child = &mut process.child;
                let ended = wait_until("the operator exits", async || {
                    child.try_wait().expect("the child can be polled").ok_or("running")
                });
                Ended(ended.await.code())
            }
            Self::Task(task) => {
                let ended = tokio::time::timeout(patience(), task.running.join_next());
                let ended = ended.await.expect("exits in time").expect("is running").expect("does not panic");
                let code = ended.map_or_else(
                    |(code, words)| {
                        *task.last_words.lock() = words;
                        code
                    },
                    |()| 0,
                );
                Ended(Some(code.into()))
            }
        }
    }

    /// Waits for a log line that contains this text, and returns the line.
    #[track_caller]
    pub(crate) fn logged(&self, text: &str) -> impl Future<Output = String> {
        let what = format!("the operator logs {text:?}");
        wait_until(&what, async move || {
            let log = self.log();
            log.lines().find(|line| line.contains(text)).map(str::to_owned).ok_or(log)
        })
    }
}

impl Process {
    fn log(&self) -> String {
        let log = fs::read(&self.log).unwrap_or_default();
        String::from_utf8_lossy(log.get(self.log_start..).unwrap_or_default()).into_owned()
    }
}

impl Task {
    fn log(&self) -> String {
        let log = captured_log();
        let mut lines: Vec<&str> = log.lines().filter(|line| line.contains(&self.mark)).collect();
        let last_words = self.last_words.lock().clone();
        lines.extend(last_words.lines());
        lines.join("\n")
    }
}

impl Drop for Operator {
    fn drop(&mut self) {
        if let Self::Process(process) = self {
            drop(process.child.kill());
            drop(process.child.wait());
        }
        if std::thread::panicking() {
            eprintln!("--- the operator's log:\n{}", self.log());
        } else {
            canary::clean("the operator's log", self.log());
        }
    }
}

/// Adds flags that a case does not set: addresses of endpoints, as operators that run at once must not share ports, and
/// no leader election, as a killed operator would leave its Lease to the next one.
fn with_endpoints(flags: &[&str], address: &str) -> Vec<String> {
    let mut all: Vec<String> = flags.iter().map(|&flag| flag.to_owned()).collect();
    for flag in ["--metrics-bind-address", "--health-probe-bind-address"] {
        if !flags.iter().any(|given| given.starts_with(flag)) {
            all.push(format!("{flag}={address}"));
        }
    }
    if !flags.iter().any(|given| given.starts_with("--leader-elect")) {
        all.push("--leader-elect=false".to_owned());
    }
    all
}

/// Returns the defaults whose flag a case does not give.
fn not_given<'a>(flags: &[&str], defaults: &[&'a str]) -> Vec<&'a str> {
    let name = |flag: &str| flag.split('=').next().unwrap_or_default().to_owned();
    let is_given = |default: &&str| flags.iter().any(|flag| name(flag) == name(default));
    defaults.iter().copied().filter(|default| !is_given(default)).collect()
}

/// Runs the program with these arguments until it exits.
pub(crate) fn run_to_end(args: &[&str], environment: &[(&str, &str)]) -> Output {
    let mut command = program();
    command.args(args).envs(environment.iter().copied()).stdin(Stdio::null());
    let output = command.output().expect("the program runs");
    for stream in [&output.stdout, &output.stderr] {
        canary::clean("the program", String::from_utf8_lossy(stream).into_owned());
    }
    output
}

/// Returns what `windlass status` prints as JSON.
pub(crate) fn status(kubeconfig: &Path, flags: &[&str]) -> Value {
    let kubeconfig = format!("--kubeconfig={}", kubeconfig.display());
    let output = run_to_end(&[&["status", &kubeconfig, "--output=json"], flags].concat(), &[]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("the report is JSON")
}

/// Returns a command for the program, without the variables in this environment that would configure it.
pub(crate) fn program() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_windlass"));
    for (name, _) in std::env::vars_os() {
        let name = name.to_string_lossy();
        if name.starts_with("WINDLASS_") || name.starts_with("KUBE") {
            command.env_remove(&*name);
        }
    }
    command
}
