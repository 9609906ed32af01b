//! Metrics of the shards of this process, read on each scrape.
//!
//! No other controller has them.

use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;

/// The shards of this process.
#[derive(Clone, Debug, Default)]
pub struct ShardReading {
    /// The number of shards altogether.
    pub of: usize,
    /// How many nobody holds, as last seen.
    pub unheld: usize,
    /// How many this process holds, by phase.
    pub phases: Vec<(&'static str, usize)>,
    /// How many came and went, by what happened.
    pub moves: Vec<(&'static str, u64)>,
}

/// Collects the metrics of shards.
pub(super) struct Shards(pub(super) Box<dyn Fn() -> ShardReading + Send + Sync>);

impl fmt::Debug for Shards {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Shards").finish_non_exhaustive()
    }
}

impl Collector for Shards {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let ShardReading { of, unheld, phases, moves } = (self.0)();
        let mut gauge = |name, help, value: usize| {
            ConstGauge::new(value as f64).encode(encoder.encode_descriptor(
                name,
                help,
                None,
                MetricType::Gauge,
            )?)
        };
        gauge("windlass_shards", "Shards into which the namespaces are divided", of)?;
        gauge("windlass_shards_unheld", "Shards that no process holds, as last seen", unheld)?;
        let help = "Shards that this process holds, by what it does with them";
        let mut metric = encoder.encode_descriptor("windlass_shards_held", help, None, MetricType::Gauge)?;
        for (phase, count) in phases {
            ConstGauge::new(count as f64).encode(metric.encode_family(&[("phase", phase)])?)?;
        }
        let help = "Shards that came to this process or left it";
        let mut metric =
            encoder.encode_descriptor("windlass_shard_moves", help, None, MetricType::Counter)?;
        for (change, count) in moves {
            ConstCounter::new(count).encode(metric.encode_family(&[("change", change)])?)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::ShardReading;
    use crate::metrics::Metrics;

    #[test]
    fn shards_are_counted_by_phase_and_moves_by_change() {
        let metrics = Metrics::new();
        metrics.observe_shards(|| ShardReading {
            of: 16,
            unheld: 1,
            phases: vec![("working", 5)],
            moves: vec![("acquired", 7)],
        });
        let text = metrics.encode();
        for line in [
            "windlass_shards 16.0",
            "windlass_shards_unheld 1.0",
            "windlass_shards_held{phase=\"working\"} 5.0",
            "windlass_shard_moves_total{change=\"acquired\"} 7",
        ] {
            assert!(text.lines().any(|found| found == line), "no {line} in\n{text}");
        }
    }
}
