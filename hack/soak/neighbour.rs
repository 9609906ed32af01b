//! The neighbour: a namespace with one new object every ten seconds, at which no fault is aimed. How long each takes to
//! become Ready is measured.

use std::collections::VecDeque;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use serde_json::json;
use tokio::time::{Instant, MissedTickBehavior};

use crate::Run;
use crate::cluster::Refusal;
use crate::kinds::{self, Kind, OURS};

pub(crate) const NAMESPACE: &str = "neighbour";
/// How often an object is created.
const EVERY: Duration = Duration::from_secs(10);
/// How long an object may take before it counts as lost.
const READY_MAX: Duration = Duration::from_secs(180);
/// From when on an object is slow, and named.
const SLOW: Duration = Duration::from_secs(5);
/// How many objects stay; older ones are deleted, so that a long run has no more objects than a short one.
const KEPT: usize = 10;
/// How long a fault is under way after its end: clients of the control plane, such as its own controllers, come back
/// with a delay.
const AFTERMATH: Duration = Duration::from_secs(10);

/// An object's way to Ready.
pub(crate) struct Measured {
    created: Instant,
    pub(crate) took: Duration,
}

impl Measured {
    /// Whether a fault was under way between the creation and Ready.
    pub(crate) fn is_disturbed(&self, episodes: &[crate::faults::Episode]) -> bool {
        let ready = self.created + self.took;
        episodes.iter().any(|episode| {
            let ended = episode.ended.map(|ended| ended + AFTERMATH);
            episode.began < ready && ended.is_none_or(|ended| ended > self.created)
        })
    }
}

/// Creates an object of the next kind every ten seconds until the time is over.
pub(crate) async fn create_and_measure(run: &Run) {
    let mut rng = run.rng(2);
    let mut ticks = tokio::time::interval(EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    let mut under_way = FuturesUnordered::new();
    let mut kept = VecDeque::new();
    for number in 0.. {
        tokio::select! {
            () = run.over.cancelled() => break,
            Some(made) = under_way.next(), if !under_way.is_empty() => kept.extend(made),
            _ = ticks.tick() => {
                let kind = OURS[number % OURS.len()];
                let name = kind.numbered(number);
                let spec = kinds::without_nulls(kinds::random_spec(kind, &name, &mut rng));
                under_way.push(measure(run, kind, name, spec));
            }
        }
        if kept.len() > KEPT
            && let Some((kind, name)) = kept.pop_front()
        {
            match run.server.delete(kind, NAMESPACE, &name, "Background").await {
                Ok(()) | Err(Refusal::Missing) => {}
                // It is tried again with the next one.
                Err(_) => kept.push_front((kind, name)),
            }
        }
    }
    while under_way.next().await.is_some() {}
}

/// Creates an object, waits until it is Ready, and returns it, unless it is gone.
async fn measure(run: &Run, kind: Kind, name: String, spec: serde_json::Value) -> Option<(Kind, String)> {
    let object = json!({"metadata": {"name": name}, "spec": spec});
    let mut created = Instant::now();
    loop {
        match run.server.create(kind, NAMESPACE, object.clone()).await {
            // The answer to an earlier try was lost.
            Ok(_) | Err(Refusal::Exists) => break,
            Err(Refusal::Invalid(why)) => {
                run.fail(format!("neighbour {kind} {name} is invalid: {why}"));
                return None;
            }
            Err(Refusal::Missing | Refusal::Other(_)) if run.over.is_cancelled() => return None,
            Err(Refusal::Missing | Refusal::Other(_)) => tokio::time::sleep(Duration::from_millis(500)).await,
        }
        created = Instant::now();
    }
    let mut before = String::new();
    loop {
        match run.server.get(kind, NAMESPACE, &name).await {
            Ok(live) if kinds::is_ready(&live) => break,
            // Its definition was removed, and the object with it.
            Err(Refusal::Missing) => return None,
            Ok(live) => before = kinds::why_not_ready(&live),
            Err(refusal) => before = refusal.to_string(),
        }
        if created.elapsed() > READY_MAX {
            run.fail(format!("neighbour {kind} {name} is not Ready after {READY_MAX:?}: {before}"));
            return Some((kind, name));
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let took = created.elapsed();
    if took > SLOW {
        crate::say(&format!("slow: neighbour {kind} {name} was Ready after {took:.1?}; before: {before}"));
    }
    run.book.borrow_mut().times.push(Measured { created, took });
    Some((kind, name))
}
