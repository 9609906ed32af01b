//! The board: one row for each custom resource, from the demo's own informers.
//!
//! The board is redrawn when something changes, and every second to update the ages.
//!
//! # Guarantees
//! - Each custom resource of each kind has a row, with its children. (test: `each_resource_has_a_row_with_its_children`)
//! - Samples that are not Ready are named, with the reasons. (test: `samples_not_ready_are_named_with_reasons`)

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::events::v1::Event;
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::kinds::{CHILDREN, KINDS};
use super::row::row;
use super::scaling::Scaling;
use super::seen::{Shelf, Shown, Wake};
use super::setup::Sample;
use super::table::{Row, Screen};
use crate::api::labels;
use crate::cache::factory::Watched;
use crate::cache::index::Indexers;
use crate::cache::{Cached, Lister, SharedInformerFactory};
use crate::cli::Failure;
use crate::client::{ApiClient, Clock};

/// The index of events by the uid of the object they regard.
const REGARDING: &str = "regarding-uid";
/// How long to collect changes before drawing: a burst of changes is drawn once.
const BURST: Duration = Duration::from_millis(50);

/// How the demo ended.
#[derive(Debug)]
pub(crate) enum DemoEnd {
    /// A person stopped the demo.
    Stopped,
    /// All samples are Ready.
    Ready,
    /// Some samples are not Ready, for these reasons.
    NotReady(Vec<String>),
}

/// The rows and the informers behind them; see the module.
pub(crate) struct Board {
    informers: SharedInformerFactory,
    /// The custom resources, one shelf per kind.
    ours: Vec<Box<dyn Shelf>>,
    children: Vec<Box<dyn Shelf>>,
    events: Lister<Event>,
    changed: Arc<Notify>,
    clock: Clock,
    samples: Vec<Sample>,
    is_silent: bool,
}

// === impl Board ===

impl Board {
    /// Creates a board. `is_silent`: no log lines interrupt the drawing.
    pub(crate) fn new(client: &ApiClient, clock: Clock, samples: &[Sample], is_silent: bool) -> Self {
        let informers = SharedInformerFactory::new(client.clone(), Vec::new(), None, fastrand::u64(..));
        let changed = Arc::new(Notify::new());
        let ours = KINDS.iter().map(|kind| (kind.watch)(&informers, None, &changed)).collect();
        let children = CHILDREN
            .iter()
            .map(|watch| watch(&informers, Some(&labels::selector(labels::MANAGER)), &changed))
            .collect();
        let events = informers.informer(Watched::<Event> {
            indexers: Indexers::default().with(REGARDING, |event: &Cached<Event>| match event {
                Cached::Readable(event) => event.regarding.iter().filter_map(|r| r.uid.clone()).collect(),
                Cached::Unreadable(_) => Vec::new(),
            }),
            ..Watched::default()
        });
        let events = events.expect("the only request for this kind");
        // Adding a handler fails only on a stopped informer, and this one has not started.
        drop(events.add_event_handler(Wake(changed.clone())));
        Self {
            ours,
            children,
            events: events.lister(),
            informers,
            changed,
            clock,
            samples: samples.to_vec(),
            is_silent,
        }
    }

    /// Draws the board: with a deadline, until all samples are Ready; otherwise until stopped. Each draw also advances
    /// `scaling`.
    pub(crate) async fn show(
        &self,
        deadline: Option<Instant>,
        scaling: Option<Scaling>,
    ) -> Result<DemoEnd, Failure> {
        let stop = CancellationToken::new();
        let _stop = stop.clone().drop_guard();
        tokio::select! {
            biased;
            end = self.draw_until(deadline, scaling) => end,
            () = self.informers.run(stop) => {
                Err(Failure::Running("the informers ended unexpectedly".to_owned()))
            }
        }
    }

    async fn draw_until(
        &self,
        deadline: Option<Instant>,
        mut scaling: Option<Scaling>,
    ) -> Result<DemoEnd, Failure> {
        let mut screen = Screen::new(!self.is_silent);
        let mut second = tokio::time::interval(Duration::from_secs(1));
        loop {
            let rows = self.rows();
            let missing = self.not_ready(&rows);
            let said = match &mut scaling {
                Some(scaling) => scaling.turn(missing.is_empty()).await,
                None => None,
            };
            if !screen.draw(said.as_deref(), &rows, self.clock.now())? {
                return Ok(DemoEnd::Stopped);
            }
            if deadline.is_some() && missing.is_empty() {
                return Ok(DemoEnd::Ready);
            }
            tokio::select! {
                biased;
                () = at(deadline) => return Ok(DemoEnd::NotReady(missing)),
                () = self.changed.notified() => tokio::time::sleep(BURST).await,
                _ = second.tick() => {}
            }
        }
    }

    fn rows(&self) -> Vec<Row> {
        let all = self.ours.iter().flat_map(|shelf| shelf.all());
        // The page creates hundreds of objects, which would hide the others.
        let shown = all.filter(|object| object.name.namespace() != Some(super::load::NAMESPACE));
        shown.map(|object| self.row(&object)).collect()
    }

    fn row(&self, object: &Shown) -> Row {
        let children = self.children.iter().flat_map(|shelf| shelf.controlled_by(&object.uid));
        row(object, &children.collect::<Vec<_>>(), self.last_event(&object.uid))
    }

    /// Returns the last event about an object; `Synced` only if there is no other, as the Ready condition shows it.
    fn last_event(&self, uid: &str) -> Option<(jiff::Timestamp, String)> {
        let events = self.events.index(REGARDING, uid);
        let about = events.iter().filter_map(|event| match event {
            Cached::Readable(event) => Some(event),
            Cached::Unreadable(_) => None,
        });
        about
            .filter_map(|event| {
                let note = event.note.as_deref().unwrap_or_default();
                Some((event.event_time.as_ref()?.0, format!("{}: {note}", event.reason.as_deref()?)))
            })
            .max_by_key(|(at, words)| (!words.starts_with("Synced:"), *at))
    }

    /// Returns the samples that are not Ready, each with its reason.
    fn not_ready(&self, rows: &[Row]) -> Vec<String> {
        let wanted = self.samples.iter().map(|sample| (sample.shown_name(), sample));
        wanted
            .filter_map(|(name, sample)| match rows.iter().find(|row| row.name == name) {
                Some(row) if row.ready == "True" => None,
                Some(row) if row.reason.is_empty() => {
                    Some(format!("{name}: no status from the operator yet; --log-level=warn shows why"))
                }
                Some(row) => Some(format!("{name}: {}: {}", row.reason, row.message)),
                None => Some(format!("{name}: the demo has not seen this {} yet", sample.resource.kind)),
            })
            .collect()
    }
}

/// Waits until the deadline, or forever if there is none.
pub(crate) async fn at(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => tokio::time::sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::api::ApiResource;
    use crate::api::redis::v1::Redis;
    use crate::demo::setup::tests::Server;

    /// Creates a board on a server with the samples, without an operator: the test plays its part.
    async fn board() -> (Server, Board) {
        let server = Server::with_samples().await;
        let board = Board::new(&server.client, Clock::system(), &server.samples, true);
        (server, board)
    }

    /// Runs the informers until the rows satisfy `is_so`.
    async fn rows_when(board: &Board, is_so: impl Fn(&[Row]) -> bool) -> Vec<Row> {
        let seen = async {
            loop {
                let rows = board.rows();
                if is_so(&rows) {
                    return rows;
                }
                board.changed.notified().await;
            }
        };
        tokio::select! {
            rows = seen => rows,
            () = board.informers.run(CancellationToken::new()) => panic!("the informers ended"),
        }
    }

    fn of<'a>(rows: &'a [Row], name: &str) -> &'a Row {
        rows.iter().find(|row| row.name == name).unwrap_or_else(|| panic!("no {name} in {rows:#?}"))
    }

    /// Creates a Pod of the first Redis, and writes a Ready status.
    async fn act_for_the_operator(client: &ApiClient) {
        let resource = ApiResource::of::<Redis>();
        let (namespace, name) = (Some("default"), "example-redis");
        let redis: Value = client.get(&resource, namespace, name).await.unwrap().unwrap();
        let owner = json!({"apiVersion": resource.api_version(), "kind": "Redis", "name": name,
            "uid": redis["metadata"]["uid"], "controller": true});
        let pod = json!({
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "example-redis-0", "labels": labels::common("Redis", name), "ownerReferences": [owner]},
            "spec": {"containers": [{"name": "redis", "image": "redis:7.4"}]},
        });
        let pods = ApiResource::new("", "v1", "Pod", "pods");
        client.create::<Value>(&pods, namespace, &pod).await.unwrap();
        let condition = json!({"type": "Ready", "status": "True", "reason": "Available", "message": "1 of 1",
            "observedGeneration": 1, "lastTransitionTime": "2026-01-01T00:00:00Z"});
        let status = json!({"replicas": 1, "readyReplicas": 1, "conditions": [condition]});
        let state = ["uid", "resourceVersion"].map(|field| redis["metadata"][field].as_str().unwrap());
        client.update_status::<Value>(&resource, (namespace, name), state.into(), &status).await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn each_resource_has_a_row_with_its_children() {
        let (server, board) = board().await;
        act_for_the_operator(&server.client).await;
        let is_there = |rows: &[Row]| {
            rows.len() == server.samples.len() && rows.iter().any(|row| row.children == "pods 1/1")
        };
        let rows = rows_when(&board, is_there).await;
        let names: Vec<String> = server.samples.iter().map(Sample::shown_name).collect();
        assert_eq!(rows.iter().map(|row| row.name.clone()).collect::<Vec<_>>(), names);
        let redis = of(&rows, "redis/example-redis");
        assert_eq!((redis.ready.as_str(), redis.replicas.as_str()), ("True", "1/1"));
        let other = of(&rows, "redis/example-redis-full");
        assert_eq!((other.ready.as_str(), other.children.as_str()), ("Unknown", ""));
    }

    #[tokio::test(start_paused = true)]
    async fn samples_not_ready_are_named_with_reasons() {
        let (server, board) = board().await;
        let all = board.not_ready(&[]);
        assert_eq!(all.len(), server.samples.len());
        assert_eq!(all[0], "foo/example: the demo has not seen this Foo yet");
        act_for_the_operator(&server.client).await;
        let is_ready = |rows: &[Row]| rows.iter().any(|row| row.ready == "True");
        let mut rows = rows_when(&board, is_ready).await;
        let missing = board.not_ready(&rows);
        assert_eq!(missing.len(), server.samples.len() - 1, "{missing:#?}");
        assert!(missing[0].starts_with("foo/example: no status from the operator yet"), "{missing:#?}");
        rows[0].reason = "ResourceExists".to_owned();
        rows[0].message = "it is taken".to_owned();
        assert_eq!(board.not_ready(&rows)[0], "foo/example: ResourceExists: it is taken");
    }
}
