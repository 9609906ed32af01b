//! What audits count.

use prometheus_client::metrics::counter::Counter;
use prometheus_client::registry::Registry;

use super::{Counters, Labels};

/// How the audit of a kind ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AuditResult {
    /// The cache agrees with the server.
    Clean,
    /// The cache had missed something.
    Found,
    /// The cache did not come as far as the server's list in time.
    Late,
    /// The server could not be asked.
    Error,
}

impl AuditResult {
    pub(super) const LABELS: [&str; 4] = ["clean", "found", "late", "error"];
}

/// The families of all kinds.
#[derive(Debug)]
pub(super) struct Audits {
    total: Counters,
    findings: Counters,
}

/// One kind's share of them.
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
        registry.register("windlass_audits", "Audits of a kind's cache, by result", this.total.clone());
        let help = "Objects of which audits found that the cache had missed a change";
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
    /// An audit has ended.
    pub fn audited(&self, result: AuditResult) {
        self.results[result as usize].inc();
    }

    /// The cache had missed changes of so many objects.
    pub fn found(&self, objects: u64) {
        self.findings.inc_by(objects);
    }
}
