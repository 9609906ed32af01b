//! Metrics of traces.

use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;

/// The numbers of spans since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SpanReading {
    /// Spans that the collector accepted.
    pub sent: u64,
    /// Spans dropped because the buffer was full.
    pub dropped: u64,
    /// Spans of requests that the collector did not accept.
    pub lost: u64,
}

/// Collects the counters of spans.
pub(super) struct Spans(pub(super) Box<dyn Fn() -> SpanReading + Send + Sync>);

impl fmt::Debug for Spans {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Spans").finish_non_exhaustive()
    }
}

impl Collector for Spans {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let SpanReading { sent, dropped, lost } = (self.0)();
        let help = "Spans by result: sent, dropped for want of room, or lost with a request to the collector";
        let mut metric =
            encoder.encode_descriptor("windlass_trace_spans", help, None, MetricType::Counter)?;
        for (result, count) in [("sent", sent), ("dropped", dropped), ("lost", lost)] {
            ConstCounter::new(count).encode(metric.encode_family(&[("result", result)])?)?;
        }
        Ok(())
    }
}
