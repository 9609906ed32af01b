//! Metrics of events.

use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;

/// The counts of events since the process started.
#[derive(Clone, Copy, Debug, Default)]
pub struct EventReading {
    /// Requests that the server accepted.
    pub written: u64,
    /// Requests that the server refused or that did not reach it.
    pub failed: u64,
    /// Events that were dropped because there were too many.
    pub dropped: u64,
}

/// Collects the counters of events.
pub(super) struct Events(pub(super) Box<dyn Fn() -> EventReading + Send + Sync>);

impl fmt::Debug for Events {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Events").finish_non_exhaustive()
    }
}

impl Collector for Events {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let EventReading { written, failed, dropped } = (self.0)();
        let help = "Events by result: written, failed or dropped";
        let mut metric = encoder.encode_descriptor("windlass_events", help, None, MetricType::Counter)?;
        for (result, count) in [("written", written), ("failed", failed), ("dropped", dropped)] {
            ConstCounter::new(count).encode(metric.encode_family(&[("result", result)])?)?;
        }
        Ok(())
    }
}
