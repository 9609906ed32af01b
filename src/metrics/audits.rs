//! Metrics of audits.

use prometheus_client::metrics::counter::Counter;
use prometheus_client::registry::Registry;

use super::{Counters, Labels};

/// The result of an audit of one kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AuditResult {
    /// The cache agrees with the server.
    Clean,
    /// The cache had missed a change.
    Found,
    /// The cache did not reach the server's list in time.
    Late,
    /// A request to the server failed.
    Error,
}

impl AuditResult {
    pub(super) const LABELS: [&str; 4] = ["clean", "found", "late", "error"];
}

/// The metric families of audits.
#[derive(Debug)]
pub(super) struct Audits {
    total: Counters,
    findings: Counters,
}

/// The audit metrics of one kind.
#[derive(Clone, Debug)]
pub struct AuditMetrics {
    /// In the order of [`AuditResult::LABELS`].
    results: [Counter; 4],
    findings: Counter,
}

// === impl Audits ===

impl Audits {
    pub(super) fn register(registry: &mut Registry) -> Self {
        let this = Self { total: Counters::default(), findings: Counters::default() };
        registry.register("windlass_audits", "Audits of the cache of a kind, by result", this.total.clone());
        let help = "Objects for which an audit found that the cache had missed a change";
        registry.register("windlass_audit_findings", help, this.findings.clone());
        this
    }

    pub(super) fn of(&self, kind: &str) -> AuditMetrics {
        let of_kind: Labels = vec![("kind", kind.to_owned())];
        let with = |result: &str| vec![("kind", kind.to_owned()), ("result", result.to_owned())];
        AuditMetrics {
            results: AuditResult::LABELS.map(|result| self.total.get_or_create_owned(&with(result))),
            findings: self.findings.get_or_create_owned(&of_kind),
        }
    }
}

// === impl AuditMetrics ===

impl AuditMetrics {
    /// Counts an audit by its result.
    pub fn audited(&self, result: AuditResult) {
        self.results[result as usize].inc();
    }

    /// Adds the number of objects of which the cache had missed a change.
    pub fn found(&self, objects: u64) {
        self.findings.inc_by(objects);
    }
}
