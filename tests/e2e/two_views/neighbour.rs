//! A custom resource beside the disturbed one, which must not notice.

use std::time::Duration;

use serde_json::json;
use tokio::time::Instant;

use crate::plans::call::Made;
use crate::plans::cluster::{Cluster, NAMESPACE};
use crate::plans::workloads::NEIGHBOUR;
use crate::support::is_ready;

/// How often its status is read.
pub(super) const POLL: Duration = Duration::from_millis(50);
/// How many times as long it may take, and as many requests each operator may make for it, as without a disturbance.
const FACTOR: u32 = 2;

/// What the neighbour took.
#[derive(Clone, Debug, Default)]
pub(super) struct Neighbour {
    created: Option<Instant>,
    /// From its creation until it was Ready.
    ready_after: Option<Duration>,
    /// The requests for it and its children, of all operators.
    requests: usize,
    operators: usize,
}

// === impl Neighbour ===

impl Neighbour {
    /// Creates it, unless it was created before.
    pub(super) async fn create(&mut self, cluster: &Cluster<'_>) {
        if self.created.is_some() {
            return;
        }
        let object = json!({
            "kind": cluster.kind.kind,
            "apiVersion": cluster.kind.group_version,
            "metadata": {"name": NEIGHBOUR, "namespace": NAMESPACE},
            "spec": cluster.kind.spec_of(NEIGHBOUR),
        });
        let [(_, all), ..] = cluster.paths();
        cluster.must("POST", &all, Some(&object)).await;
        self.created = Some(Instant::now());
    }

    /// Whether it was created and is not Ready yet.
    pub(super) fn is_pending(&self) -> bool {
        self.created.is_some() && self.ready_after.is_none()
    }

    /// Looks whether it is Ready.
    pub(super) async fn look(&mut self, cluster: &Cluster<'_>) {
        let Some(created) = self.created.filter(|_| self.is_pending()) else { return };
        let [(_, all), ..] = cluster.paths();
        let (_, object) = cluster.ask("GET", &format!("{all}/{NEIGHBOUR}"), None).await;
        if is_ready(&object) {
            self.ready_after = Some(created.elapsed());
        }
    }

    /// Counts the requests of an operator.
    pub(super) fn count(&mut self, calls: &[Made]) {
        let is_its = |made: &&Made| made.call.is_of(NEIGHBOUR) && made.call.verb != "watch";
        let requests = calls.iter().filter(is_its).count();
        self.requests += requests;
        self.operators += usize::from(requests > 0);
    }

    /// Returns how far this is beyond what an undisturbed neighbour takes.
    pub(super) fn beyond(&self, alone: &Self) -> Vec<String> {
        let mut wrong = Vec::new();
        let usual = alone.ready_after.unwrap_or_default();
        match self.ready_after {
            None => wrong.push("the neighbour never was Ready".to_owned()),
            Some(time) if time > usual * FACTOR + POLL => {
                wrong.push(format!("the neighbour was Ready after {time:?}, not {usual:?}"));
            }
            Some(_) => {}
        }
        let most = alone.requests * FACTOR as usize * self.operators.max(1);
        if self.requests > most {
            wrong.push(format!("the neighbour took {} requests, not {}", self.requests, alone.requests));
        }
        wrong
    }
}
