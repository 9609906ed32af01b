//! Judges each request of an operator as it is sent.
//!
//! | finding | rule |
//! |---|---|
//! | deleted without a live read | a child is deleted only after a read of its owner from the store, at most a second and 64 writes before |
//! | deleted without preconditions | a delete carries uid and resource version |
//! | created without an owner | a child is created with a controller that has a uid |
//! | first list of any age | a process lists the newest state first |
//! | read of any age | an owner is read from the store, not from the watch cache |

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bytes::Bytes;
use serde_json::Value;
use tokio::time::Instant;

use crate::plans::call::Call;
use crate::plans::workloads::{NAME, NEIGHBOUR};

/// How old the live read of an owner may be: a second, and the time that the answer and the delete may take.
const READ_AGE_MAX: Duration = Duration::from_millis(1100);
/// How many writes may follow the live read of an owner.
const WRITES_MAX: usize = 64;

/// See the module.
#[derive(Default)]
pub(super) struct Lint {
    /// When each owner was read, and the number of writes until then.
    reads: BTreeMap<&'static str, (Instant, usize)>,
    writes: usize,
    listed: BTreeSet<String>,
    forbidden: BTreeSet<String>,
}

// === impl Lint ===

impl Lint {
    pub(super) fn forbidden(&self) -> Vec<String> {
        self.forbidden.iter().cloned().collect()
    }

    /// Judges a request.
    pub(super) fn sent(&mut self, head: &http::request::Parts, body: &Bytes, call: &Call, owners: &str) {
        let query = head.uri.query().unwrap_or_default();
        let is_list = call.verb == "list" || query.contains("sendInitialEvents=true");
        if is_list && self.listed.insert(call.resource.clone()) && query.contains("resourceVersion=") {
            self.find(format!("the first list of {} may be of any age", call.resource));
        }
        if call.verb == "get" && call.resource == owners && query.contains("resourceVersion=") {
            self.find(format!("a read of {} may be of any age", call.resource));
        }
        let is_child =
            !call.resource.starts_with(owners) && !call.is_for_events() && call.resource != "leases";
        if !call.is_write() || !is_child {
            return;
        }
        self.writes += 1;
        let body: Value = serde_json::from_slice(body).unwrap_or_default();
        let is_text = |value: &Value| value.as_str().is_some_and(|text| !text.is_empty());
        if call.verb == "create" {
            let owners = body["metadata"]["ownerReferences"].as_array();
            let is_owner = |one: &Value| one["controller"] == true && is_text(&one["uid"]);
            if !owners.is_some_and(|all| all.iter().any(is_owner)) {
                self.find(format!("{call} creates a child without an owner"));
            }
        }
        if call.verb == "delete" {
            let preconditions = &body["preconditions"];
            if !is_text(&preconditions["uid"]) || !is_text(&preconditions["resourceVersion"]) {
                self.find(format!("{call} has no preconditions"));
            }
            let is_recent = |(at, writes): &(Instant, usize)| {
                at.elapsed() <= READ_AGE_MAX && self.writes - writes <= WRITES_MAX
            };
            if !self.reads.get(owner_of(call)).is_some_and(is_recent) {
                self.find(format!("{call} without a live read of its owner"));
            }
        }
    }

    /// Takes note of an answer.
    pub(super) fn answered(&mut self, call: &Call, code: u16, owners: &str) {
        if call.verb == "get" && call.resource == owners && (code == 200 || code == 404) {
            self.reads.insert(owner_of(call), (Instant::now(), self.writes));
        }
    }

    fn find(&mut self, what: String) {
        self.forbidden.insert(what);
    }
}

/// Returns the custom resource that a call is for.
fn owner_of(call: &Call) -> &'static str {
    if call.is_of(NEIGHBOUR) { NEIGHBOUR } else { NAME }
}
