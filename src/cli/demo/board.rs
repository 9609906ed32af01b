//! What is shown: a row for each custom resource, from informers of the demo's own.
//!
//! It is drawn again when something changes, and each second for the ages.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::events::v1::Event;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::Failure;
use super::setup::Sample;
use super::table::{Row, Screen};
use crate::api::samplecontroller::v1alpha1::Foo;
use crate::cache::factory::Watched;
use crate::cache::index::Indexers;
use crate::cache::{Cached, Deleted, EventHandler, Lister, Object, ObjectName, SharedInformerFactory};
use crate::client::{ApiClient, Clock};
use crate::controller::deployment::ObservedDeployment;

/// The index of events by the uid of what they are about.
const REGARDING: &str = "regarding-uid";
/// Changes come in bursts; a burst is drawn once.
const BURST: Duration = Duration::from_millis(50);

/// How the demo ended.
#[derive(Debug)]
pub(super) enum Verdict {
    /// A person has stopped it.
    Stopped,
    /// All samples are Ready.
    Ready,
    /// They are not, and why.
    NotReady(Vec<String>),
}

/// See the module.
pub(super) struct Board {
    informers: SharedInformerFactory,
    foos: Lister<Foo>,
    deployments: Lister<ObservedDeployment>,
    events: Lister<Event>,
    changed: Arc<Notify>,
    clock: Clock,
    samples: Vec<Sample>,
    is_silent: bool,
}

/// Wakes the board.
struct Wake(Arc<Notify>);

impl<K: Object> EventHandler<K> for Wake {
    fn on_add(&mut self, _: &Cached<K>, _: bool) {
        self.0.notify_one();
    }

    fn on_update(&mut self, _: &Cached<K>, _: &Cached<K>) {
        self.0.notify_one();
    }

    fn on_delete(&mut self, _: &Deleted<K>) {
        self.0.notify_one();
    }
}

// === impl Board ===

impl Board {
    /// `is_silent`: no lines of the log come in between.
    pub(super) fn new(client: &ApiClient, clock: Clock, samples: &[Sample], is_silent: bool) -> Self {
        let informers = SharedInformerFactory::new(client.clone(), None, None, fastrand::u64(..));
        let changed = Arc::new(Notify::new());
        let foos = informers.informer(Watched::<Foo>::default);
        let deployments = informers.informer(|| Watched::<ObservedDeployment> {
            label_selector: Some(crate::api::labels::SELECTOR.to_owned()),
            ..Watched::default()
        });
        let events = informers.informer(|| Watched::<Event> {
            indexers: Indexers::default().with(REGARDING, |event: &Cached<Event>| match event {
                Cached::Readable(event) => event.regarding.iter().filter_map(|r| r.uid.clone()).collect(),
                Cached::Unreadable(_) => Vec::new(),
            }),
            ..Watched::default()
        });
        // They have not ended: they have not begun.
        drop(foos.add_event_handler(Wake(changed.clone())));
        drop(deployments.add_event_handler(Wake(changed.clone())));
        drop(events.add_event_handler(Wake(changed.clone())));
        Self {
            foos: foos.lister(),
            deployments: deployments.lister(),
            events: events.lister(),
            informers,
            changed,
            clock,
            samples: samples.to_vec(),
            is_silent,
        }
    }

    /// Shows what happens: with a deadline until all samples are Ready, else until it is dropped.
    pub(super) async fn show(&self, deadline: Option<Instant>) -> Result<Verdict, Failure> {
        let stop = CancellationToken::new();
        let _stop = stop.clone().drop_guard();
        tokio::select! {
            biased;
            verdict = self.draw_until(deadline) => verdict,
            () = self.informers.run(stop) => Err(Failure::Running("the informers ended".to_owned())),
        }
    }

    async fn draw_until(&self, deadline: Option<Instant>) -> Result<Verdict, Failure> {
        let mut screen = Screen::new(!self.is_silent);
        let mut second = tokio::time::interval(Duration::from_secs(1));
        loop {
            let rows = self.rows();
            if !screen.draw(&rows, self.clock.now())? {
                return Ok(Verdict::Stopped);
            }
            let missing = self.not_ready(&rows);
            if deadline.is_some() && missing.is_empty() {
                return Ok(Verdict::Ready);
            }
            tokio::select! {
                biased;
                () = super::at(deadline) => return Ok(Verdict::NotReady(missing)),
                () = self.changed.notified() => tokio::time::sleep(BURST).await,
                _ = second.tick() => {}
            }
        }
    }

    fn rows(&self) -> Vec<Row> {
        let mut rows: Vec<Row> =
            self.foos.list(None, &kube_core::Selector::default()).iter().map(|foo| self.row(foo)).collect();
        rows.sort_by(|a, b| a.name.cmp(&b.name));
        rows
    }

    fn row(&self, foo: &Cached<Foo>) -> Row {
        let name = shown_name(&foo.object_name());
        let (conditions, generation) = match foo {
            Cached::Readable(foo) => {
                let conditions = foo.status.as_ref().map(|status| status.conditions.clone());
                (conditions.unwrap_or_default(), foo.metadata.generation)
            }
            Cached::Unreadable(_) => (Vec::new(), None),
        };
        // What is said of an older spec says nothing of this one.
        let is_current = |condition: &&Condition| condition.observed_generation == generation;
        let conditions: Vec<&Condition> = conditions.iter().filter(is_current).collect();
        let ready = conditions.iter().find(|condition| condition.type_ == "Ready");
        let others = conditions.iter().filter(|c| c.type_ != "Ready" && c.status == "True");
        let state: Vec<&str> = others.map(|condition| condition.type_.as_str()).collect();
        let children = self.deployments.controlled_by(foo.uid());
        let children: Vec<String> = children.iter().map(child).collect();
        let last = self.last_event(foo.uid());
        Row {
            name,
            ready: ready.map_or("Unknown", |ready| ready.status.as_str()).to_owned(),
            reason: ready.map_or("", |ready| ready.reason.as_str()).to_owned(),
            message: ready.map_or("", |ready| ready.message.as_str()).to_owned(),
            state: state.join(","),
            children: children.join(", "),
            last: last.as_ref().map(|(_, words)| words.clone()).unwrap_or_default(),
            at: last.map(|(at, _)| at),
        }
    }

    /// What happened last; that all is well says the condition.
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

    /// The samples that are not Ready, each with its reason.
    fn not_ready(&self, rows: &[Row]) -> Vec<String> {
        let wanted = self.samples.iter().map(|sample| {
            let name = ObjectName::new(Some(&sample.namespace), &sample.name);
            (shown_name(&name), sample)
        });
        wanted
            .filter_map(|(name, sample)| match rows.iter().find(|row| row.name == name) {
                Some(row) if row.ready == "True" => None,
                Some(row) if row.reason.is_empty() => {
                    Some(format!("{name}: the operator has said nothing yet; --log-level=warn shows why"))
                }
                Some(row) => Some(format!("{name}: {}: {}", row.reason, row.message)),
                None => Some(format!("{name}: this {} has not been seen yet", sample.kind)),
            })
            .collect()
    }
}

fn shown_name(name: &ObjectName) -> String {
    match name.namespace() {
        Some("default") | None => format!("foo/{}", name.name()),
        Some(namespace) => format!("{namespace}: foo/{}", name.name()),
    }
}

fn child(deployment: &Cached<ObservedDeployment>) -> String {
    let name = deployment.object_name();
    match deployment {
        Cached::Readable(deployment) => {
            let (ready, wanted) = (deployment.status.ready_replicas, deployment.spec.replicas.unwrap_or(1));
            format!("deployment/{} {ready}/{wanted}", name.name())
        }
        Cached::Unreadable(_) => format!("deployment/{} cannot be read", name.name()),
    }
}
