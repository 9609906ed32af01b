//! What the tests of all kinds need.

use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::Wanted;
use super::diff::{self, Changes};
use super::difference::describe;

pub(super) fn observe<O: DeserializeOwned>(live: &Value) -> O {
    serde_json::from_value(live.clone()).expect("a live object decodes")
}

/// Returns a new child as stored by a server without defaults.
pub(super) fn created<W: Wanted>(wanted: &W) -> Value {
    let mut child = W::Observed::default();
    wanted.write_into(&mut child);
    let mut created = diff::body_of(&child, Some("ns"), wanted.name());
    created["metadata"]["uid"] = json!("u");
    created["metadata"]["resourceVersion"] = json!("7");
    created
}

/// Returns what people are shown of the differences.
pub(super) fn shown<W: Wanted>(wanted: &W, live: &Value) -> String {
    describe(&diff::differences(wanted, &observe(live)))
}

/// Patches the live child as a server does.
#[track_caller]
pub(super) fn applied<W: Wanted>(wanted: &W, live: &Value) -> Value {
    let observed: W::Observed = observe(live);
    let changes = Changes::of(wanted, &observed);
    if changes.differences.is_empty() {
        return live.clone();
    }
    let applied = patched(live, &changes.patch(&observed, Some(live)));
    // The server's answer needs no other write.
    assert_eq!(shown(wanted, &applied), "", "{live}");
    applied
}

pub(super) fn patched(live: &Value, patch: &diff::Patch) -> Value {
    if patch.is_strategic {
        return crate::sim::strategic_merge(live, &patch.body).expect("the server accepts the patch");
    }
    let mut patched = live.clone();
    json_patch::merge(&mut patched, &patch.body);
    patched
}

/// Asserts that writing a second time changes nothing.
#[track_caller]
pub(super) fn check_again<W: Wanted<Observed: std::fmt::Debug>>(wanted: &W, live: &Value) {
    let mut once: W::Observed = observe(live);
    wanted.write_into(&mut once);
    let mut twice = once.clone();
    wanted.write_into(&mut twice);
    assert_eq!(twice, once);
}
