//! The operator's process: started, killed and frozen here, and measured while it runs.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;
use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command as Blocking, Stdio};
use std::time::Duration;

use anyhow::Context;
use rustix::process::{Pid, Signal, getppid, kill_process, set_parent_process_death_signal};
use serde_json::Value;
use tokio::process::{Child, Command};
use tokio::time::Instant;

use crate::figures::Point;

/// Resident memory and open files of a process.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sample {
    pub(crate) megabytes: f64,
    pub(crate) files: f64,
}

/// The samples of one process, by hours since its start.
#[derive(Clone, Debug, Default)]
pub(crate) struct Series {
    pub(crate) megabytes: Vec<Point>,
    pub(crate) files: Vec<Point>,
}

/// The operator. The process is killed on drop.
pub(crate) struct Operator {
    program: PathBuf,
    kubeconfig: PathBuf,
    /// Stays until all has passed.
    logs: PathBuf,
    child: Option<Child>,
    started: Instant,
    /// One for each process so far.
    pub(crate) series: Vec<Series>,
    pub(crate) version: String,
}

/// The first argument with which this program only replaces itself by another, which the kernel kills when the soak test
/// ends. A child that is killed on drop outlives a SIGKILL of its parent.
pub(crate) const WITH_PARENT: &str = "--exec-with-parent";

/// Replaces this process by `command` (the parent's process ID, a program, its arguments), or returns why not.
pub(crate) fn exec_with_parent(mut command: impl Iterator<Item = OsString>) -> std::io::Error {
    if let Err(error) = set_parent_process_death_signal(Some(Signal::KILL)) {
        return error.into();
    }
    let parent = getppid().map(|parent| parent.as_raw_nonzero().to_string());
    if command.next().map(|id| id.to_string_lossy().into_owned()) != parent {
        return std::io::Error::other("the parent has ended");
    }
    let program = command.next().unwrap_or_default();
    Blocking::new(program).args(command).exec()
}

impl Operator {
    pub(crate) fn start(program: &Path, kubeconfig: &Path) -> anyhow::Result<Self> {
        let said =
            Blocking::new(program).arg("--version").output().context("ask the operator for its version")?;
        let mut operator = Self {
            program: program.to_owned(),
            kubeconfig: kubeconfig.to_owned(),
            logs: tempfile::Builder::new().prefix("windlass-soak-").tempdir()?.keep(),
            child: None,
            started: Instant::now(),
            series: Vec::new(),
            version: String::from_utf8_lossy(&said.stdout).trim().to_owned(),
        };
        operator.start_again()?;
        Ok(operator)
    }

    /// Starts a process, after the death of the one before. There is no leader election: a leader that cannot renew its
    /// Lease exits, as it should, and a soak test wants to see one process live through everything.
    pub(crate) fn start_again(&mut self) -> anyhow::Result<()> {
        self.series.push(Series::default());
        let log = File::create(self.log(self.series.len()))?;
        let mut command = Command::new(std::env::current_exe()?);
        command.arg(WITH_PARENT).arg(std::process::id().to_string()).arg(&self.program);
        for (name, _) in std::env::vars_os() {
            let text = name.to_string_lossy();
            if text.starts_with("WINDLASS_") || text.starts_with("KUBE") {
                command.env_remove(&name);
            }
        }
        let child = command
            .args(["run", "--leader-elect=false", "--log-format=json"])
            .args(["--metrics-bind-address=127.0.0.1:0", "--health-probe-bind-address=127.0.0.1:0"])
            .arg(format!("--kubeconfig={}", self.kubeconfig.display()))
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .kill_on_drop(true)
            .spawn()
            .context("start the operator")?;
        self.child = Some(child);
        self.started = Instant::now();
        Ok(())
    }

    /// Sends SIGKILL. The runtime collects the process.
    pub(crate) fn kill(&mut self) -> anyhow::Result<()> {
        if let Some(mut child) = self.child.take() {
            child.start_kill().context("kill the operator")?;
        }
        Ok(())
    }

    pub(crate) fn signal(&self, signal: Signal) -> anyhow::Result<()> {
        let pid = self.pid().and_then(|pid| Pid::from_raw(pid.cast_signed())).context("the operator runs")?;
        kill_process(pid, signal).context("signal the operator")
    }

    /// Returns how the process ended, if it did so by itself.
    pub(crate) fn died(&mut self) -> Option<String> {
        let status = self.child.as_mut()?.try_wait().ok()??;
        self.child = None;
        Some(format!("{status}, the last of {}", self.log(self.series.len()).display()))
    }

    /// Measures the process and adds the figures to its series.
    pub(crate) fn sample(&mut self) -> Option<Sample> {
        let sample = Sample::of(self.pid()?)?;
        let hours = self.started.elapsed().as_secs_f64() / 3600.0;
        let series = self.series.last_mut()?;
        series.megabytes.push((hours, sample.megabytes));
        series.files.push((hours, sample.files));
        Some(sample)
    }

    /// Returns the address of /metrics, which the log names.
    pub(crate) fn metrics_address(&self) -> anyhow::Result<String> {
        let log = fs::read_to_string(self.log(self.series.len()))?;
        let lines = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let mut addresses = lines
            .filter(|line| line["paths"].as_str().is_some_and(|paths| paths.contains("/metrics")))
            .filter_map(|line| Some(line["address"].as_str()?.to_owned()));
        addresses.next().context("the operator's log names the address of /metrics")
    }

    pub(crate) fn logs(&self) -> &Path {
        &self.logs
    }

    /// Ends the operator and removes its logs.
    pub(crate) fn remove_logs(self) -> anyhow::Result<()> {
        let logs = self.logs.clone();
        drop(self);
        fs::remove_dir_all(logs).context("remove the operator's logs")
    }

    fn log(&self, number: usize) -> PathBuf {
        self.logs.join(format!("operator-{number}.log"))
    }

    fn pid(&self) -> Option<u32> {
        self.child.as_ref()?.id()
    }
}

impl Sample {
    fn of(pid: u32) -> Option<Self> {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
        let kilobytes: u32 = resident.trim().strip_suffix(" kB")?.parse().ok()?;
        let files = u32::try_from(fs::read_dir(format!("/proc/{pid}/fd")).ok()?.count()).ok()?;
        Some(Self { megabytes: f64::from(kilobytes) / 1024.0, files: f64::from(files) })
    }
}

impl fmt::Display for Sample {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.1} MB, {} files", self.megabytes, self.files)
    }
}

/// The operator's requests that are not reads, since it started.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Writes {
    /// All of them, by method and code.
    pub(crate) by_method: BTreeMap<String, f64>,
    /// Those of events among them.
    pub(crate) of_events: f64,
}

impl Writes {
    /// Returns the number of writes of anything but events.
    pub(crate) fn of_objects(&self) -> f64 {
        self.by_method.values().sum::<f64>() - self.of_events
    }

    /// Reads the metrics that are served there.
    pub(crate) async fn read(address: &str) -> anyhow::Result<Self> {
        let client = reqwest::Client::builder().timeout(Duration::from_secs(10)).build()?;
        let text = client.get(format!("http://{address}/metrics")).send().await?.text().await?;
        Self::parse(&text)
    }

    fn parse(metrics: &str) -> anyhow::Result<Self> {
        let mut all = Self::default();
        let mut counts_reads = false;
        for line in metrics.lines() {
            let label = |name: &str| line.split_once(&format!("{name}=\""))?.1.split('"').next();
            let count =
                || line.rsplit(' ').next().unwrap_or_default().parse::<f64>().context("a count is a number");
            if line.starts_with("rest_client_requests_total{") {
                let (method, code) = (label("method").unwrap_or_default(), label("code").unwrap_or_default());
                if method == "GET" {
                    counts_reads = true;
                } else if (method, code) != ("PATCH", "404") {
                    // Nothing is written there: the end of a series of an object that is gone, for example.
                    *all.by_method.entry(format!("{method} ({code})")).or_default() += count()?;
                }
            } else if line.starts_with("windlass_events_total{") && label("result") != Some("dropped") {
                all.of_events += count()?;
            }
        }
        anyhow::ensure!(counts_reads, "the operator's metrics count requests");
        Ok(all)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::Writes;

    #[test]
    fn writes_of_events_are_counted_apart() {
        let metrics = "# TYPE rest_client_requests_total counter\n\
            rest_client_requests_total{code=\"200\",method=\"GET\",host=\"a:1\"} 7\n\
            rest_client_requests_total{code=\"409\",method=\"POST\",host=\"a:1\"} 2\n\
            rest_client_requests_total{code=\"409\",method=\"POST\",host=\"a:2\"} 3\n\
            rest_client_requests_total{code=\"404\",method=\"PATCH\",host=\"a:1\"} 5\n\
            rest_client_request_duration_seconds_sum{verb=\"POST\"} 0.5\n\
            windlass_events_total{result=\"written\"} 3\n\
            windlass_events_total{result=\"failed\"} 1\n\
            windlass_events_total{result=\"dropped\"} 9\n";
        let writes = Writes::parse(metrics).unwrap_or_default();
        let by_method = BTreeMap::from([("POST (409)".to_owned(), 5.0)]);
        assert_eq!(writes, Writes { by_method, of_events: 4.0 });
        assert!((writes.of_objects() - 1.0).abs() < f64::EPSILON);
    }
}
