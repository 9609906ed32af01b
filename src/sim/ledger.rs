//! The log of requests and answers, like the audit log of a real server.

use std::collections::VecDeque;
use std::fmt;
use std::time::Duration;

use super::request::{Call, Request};

/// One request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LedgerEntry {
    /// When the request was executed, since the start.
    pub at: Duration,
    /// The user.
    pub user: String,
    /// The `User-Agent` header.
    pub user_agent: String,
    /// The API verb, or the lowercase HTTP method of a request for a non-resource path.
    pub verb: String,
    /// The plural of the resource.
    pub resource: String,
    /// `status`, `scale` or empty.
    pub subresource: String,
    /// The namespace; empty if none.
    pub namespace: String,
    /// The name; empty for a collection.
    pub name: String,
    /// The status code of the answer; 0 if the connection broke instead.
    pub code: u16,
    /// The path and query.
    pub uri: String,
    /// The size of the answer's body; 0 for a watch.
    pub bytes: usize,
}

impl fmt::Display for LedgerEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:>12.6} {} {} {} -> {}", self.at.as_secs_f64(), self.user, self.verb, self.uri, self.code)
    }
}

/// The last requests, oldest first.
#[derive(Debug)]
pub(super) struct Ledger {
    entries: VecDeque<LedgerEntry>,
    limit: usize,
}

// === impl Ledger ===

impl Ledger {
    pub(super) fn new(limit: usize) -> Self {
        Self { entries: VecDeque::new(), limit }
    }

    pub(super) fn add(
        &mut self,
        at: Duration,
        request: &Request,
        call: Option<&Call>,
        (code, bytes): (u16, usize),
    ) {
        if self.limit == 0 {
            return;
        }
        if self.entries.len() == self.limit {
            self.entries.pop_front();
        }
        let text = |field: fn(&Call) -> &str| call.map_or(String::new(), |call| field(call).to_owned());
        self.entries.push_back(LedgerEntry {
            at,
            user: request.user.clone(),
            user_agent: request.user_agent(),
            verb: call.map_or_else(|| request.method.as_str().to_lowercase(), |call| call.verb.to_owned()),
            resource: text(|call| &call.kind.plural),
            subresource: text(|call| &call.subresource),
            namespace: text(|call| &call.namespace),
            name: text(|call| &call.name),
            code,
            uri: request.uri.clone(),
            bytes,
        });
    }

    pub(super) fn entries(&self) -> impl Iterator<Item = &LedgerEntry> {
        self.entries.iter()
    }
}
