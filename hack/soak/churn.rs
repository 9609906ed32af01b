//! Churn: objects of all kinds are created, changed, renamed, scaled, deleted and created again, and their children are
//! edited and deleted by hand; about one change a second.

use std::time::Duration;

use fastrand::Rng;
use serde_json::json;

use crate::Run;
use crate::cluster::Refusal;
use crate::kinds::{self, Kind, OURS};

/// The namespaces of the churn. Faults that name namespaces are aimed at these.
pub(crate) const NAMESPACES: [&str; 3] = ["churn-0", "churn-1", "churn-2"];
/// How many objects of each kind a namespace may have.
const OF_EACH: usize = 4;

/// What came of the changes.
#[derive(Default)]
pub(crate) struct Counts {
    pub(crate) made: usize,
    /// The object or child was not there.
    pub(crate) missed: usize,
    /// The server did not answer, or answered with an error, as faults have it.
    pub(crate) refused: usize,
}

/// An object that may exist.
struct Slot {
    namespace: &'static str,
    kind: Kind,
    name: String,
    exists: bool,
}

/// Changes something every second or so until the time is over.
pub(crate) async fn churn(run: &Run) {
    let mut rng = run.rng(1);
    let mut slots = Vec::new();
    for namespace in NAMESPACES {
        for kind in OURS {
            let slot = |number| Slot { namespace, kind, name: kind.numbered(number), exists: false };
            slots.extend((0..OF_EACH).map(slot));
        }
    }
    while run.pause(Duration::from_millis(rng.u64(500..1500))).await {
        let at = rng.usize(..slots.len());
        let outcome = change(run, &mut slots[at], &mut rng).await;
        if let Err(Refusal::Invalid(why)) = &outcome {
            run.fail(format!("churn: {} {} is invalid: {why}", slots[at].kind, slots[at].name));
        }
        let counts = &mut run.book.borrow_mut().changes;
        match outcome {
            Ok(()) => counts.made += 1,
            Err(Refusal::Missing | Refusal::Exists) => counts.missed += 1,
            Err(Refusal::Invalid(_) | Refusal::Other(_)) => counts.refused += 1,
        }
    }
}

/// Creates an object that is not there, or changes, scales or deletes it, or meddles with a child.
async fn change(run: &Run, slot: &mut Slot, rng: &mut Rng) -> Result<(), Refusal> {
    let Slot { namespace, kind, ref name, exists } = *slot;
    let server = &run.server;
    let outcome = if !exists {
        let spec = kinds::without_nulls(kinds::random_spec(kind, name, rng));
        server.create(kind, namespace, json!({"metadata": {"name": name}, "spec": spec})).await.map(drop)
    } else {
        match rng.u8(..10) {
            0..3 => {
                let patch = json!({"spec": kinds::random_spec(kind, name, rng)});
                server.patch(kind, namespace, name, &patch).await.map(drop)
            }
            3..6 => {
                let patch = json!({"spec": {"replicas": rng.u8(1..4)}});
                server.patch(kind, namespace, name, &patch).await.map(drop)
            }
            6..8 => return meddle(run, slot, rng).await,
            _ => {
                let how = ["Background", "Foreground"][rng.usize(..2)];
                server.delete(kind, namespace, name, how).await
            }
        }
    };
    match &outcome {
        Ok(()) if !exists => slot.exists = true,
        Err(Refusal::Exists) => slot.exists = true,
        Err(Refusal::Missing) => slot.exists = false,
        Ok(()) | Err(_) => {}
    }
    outcome
}

/// Deletes a child by hand, or changes the number of its replicas.
async fn meddle(run: &Run, slot: &mut Slot, rng: &mut Rng) -> Result<(), Refusal> {
    let server = &run.server;
    let object = match server.get(slot.kind, slot.namespace, &slot.name).await {
        Err(Refusal::Missing) => {
            slot.exists = false;
            return Err(Refusal::Missing);
        }
        object => object?,
    };
    let mut object = object;
    object["kind"] = json!(slot.kind.name);
    let children = kinds::wanted(&object);
    let Some(child) = rng.choice(&children) else { return Err(Refusal::Missing) };
    if child.kind == kinds::DEPLOYMENT && rng.bool() {
        let patch = json!({"spec": {"replicas": rng.u8(..5)}});
        server.patch(child.kind, slot.namespace, &child.name, &patch).await.map(drop)
    } else {
        server.delete(child.kind, slot.namespace, &child.name, "Background").await
    }
}
