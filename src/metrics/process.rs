//! Metrics of the process, the tokio runtime and the build, under the names of Prometheus' client libraries.
//!
//! Those of the process exist on Linux only. Read at each scrape; costs four reads of `/proc`.

use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use tokio::runtime::Handle;

/// Collects the metrics of the process.
#[derive(Debug)]
pub(super) struct Process {
    pub(super) runtime: Option<Handle>,
    /// Labels of the build: version, commit and the like.
    pub(super) build: Vec<(&'static str, &'static str)>,
}

/// A reading of the process.
#[derive(Clone, Copy, Debug)]
struct Reading {
    cpu_seconds: f64,
    start_seconds: f64,
    resident_bytes: u64,
    virtual_bytes: u64,
    open_fds: u64,
    max_fds: Option<u64>,
}

#[cfg(target_os = "linux")]
fn read() -> Option<Reading> {
    use procfs::WithCurrentSystemInfo;
    use procfs::process::LimitValue;
    let process = procfs::process::Process::myself().ok()?;
    let stat = process.stat().ok()?;
    let seconds = |ticks: u64| ticks as f64 / procfs::ticks_per_second() as f64;
    let max_fds = match process.limits().ok()?.max_open_files.soft_limit {
        LimitValue::Value(limit) => Some(limit),
        LimitValue::Unlimited => None,
    };
    Some(Reading {
        cpu_seconds: seconds(stat.utime + stat.stime),
        start_seconds: procfs::boot_time_secs().ok()? as f64 + seconds(stat.starttime),
        resident_bytes: stat.rss_bytes().get(),
        virtual_bytes: stat.vsize,
        open_fds: u64::try_from(process.fd_count().ok()?).ok()?,
        max_fds,
    })
}

#[cfg(not(target_os = "linux"))]
fn read() -> Option<Reading> {
    None
}

impl Collector for Process {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let help = "The build of this process";
        let mut metric = encoder.encode_descriptor("windlass_build_info", help, None, MetricType::Gauge)?;
        ConstGauge::new(1_u64).encode(metric.encode_family(&self.build)?)?;
        if let Some(runtime) = &self.runtime {
            let metrics = runtime.metrics();
            for (name, help, value) in [
                ("tokio_workers", "Threads that run tasks", metrics.num_workers()),
                ("tokio_alive_tasks", "Tasks that have not ended", metrics.num_alive_tasks()),
                (
                    "tokio_global_queue_depth",
                    "Tasks in the runtime's global queue",
                    metrics.global_queue_depth(),
                ),
            ] {
                gauge(&mut encoder, name, help, value as f64)?;
            }
        }
        let Some(reading) = read() else { return Ok(()) };
        let help = "Total user and system CPU time spent in seconds";
        let metric = encoder.encode_descriptor("process_cpu_seconds", help, None, MetricType::Counter)?;
        ConstCounter::new(reading.cpu_seconds).encode(metric)?;
        for (name, help, value) in [
            (
                "process_start_time_seconds",
                "Start time of the process since unix epoch in seconds",
                Some(reading.start_seconds),
            ),
            (
                "process_resident_memory_bytes",
                "Resident memory size in bytes",
                Some(reading.resident_bytes as f64),
            ),
            (
                "process_virtual_memory_bytes",
                "Virtual memory size in bytes",
                Some(reading.virtual_bytes as f64),
            ),
            ("process_open_fds", "Number of open file descriptors", Some(reading.open_fds as f64)),
            (
                "process_max_fds",
                "Maximum number of open file descriptors",
                reading.max_fds.map(|limit| limit as f64),
            ),
        ] {
            if let Some(value) = value {
                gauge(&mut encoder, name, help, value)?;
            }
        }
        Ok(())
    }
}

fn gauge(encoder: &mut DescriptorEncoder<'_>, name: &str, help: &str, value: f64) -> fmt::Result {
    ConstGauge::new(value).encode(encoder.encode_descriptor(name, help, None, MetricType::Gauge)?)
}

#[cfg(test)]
#[cfg(target_os = "linux")]
mod tests {
    use super::super::Metrics;
    use super::*;

    #[tokio::test]
    async fn process_runtime_and_build_are_exported() {
        let metrics = Metrics::new();
        metrics.observe_process(vec![("version", "1.2.3")]);
        let text = metrics.encode();
        let value = |name: &str| -> f64 {
            let line = text.lines().find(|line| line.split(' ').next() == Some(name));
            let line = line.unwrap_or_else(|| panic!("no {name} in\n{text}"));
            line.rsplit_once(' ').unwrap().1.parse().unwrap()
        };
        assert_eq!(value("windlass_build_info{version=\"1.2.3\"}"), 1.0);
        let now = jiff::Timestamp::now().as_second() as f64;
        assert!((now - 3600.0 * 24.0..=now + 60.0).contains(&value("process_start_time_seconds")));
        assert!(value("process_resident_memory_bytes") > 1e6);
        assert!(value("process_virtual_memory_bytes") >= value("process_resident_memory_bytes"));
        assert!(value("process_open_fds") >= 3.0 && value("process_open_fds") <= value("process_max_fds"));
        assert!(value("process_cpu_seconds_total") >= 0.0);
        assert_eq!(value("tokio_workers"), 1.0);
        assert!(read().is_some());
    }
}
