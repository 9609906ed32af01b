//! What is shown: a row for each custom resource, from informers of the demo's own.
//!
//! On a terminal it is a table that is drawn again when something changes, and each second for the ages;
//! elsewhere a line for each change.

use std::collections::BTreeMap;
use std::io::{IsTerminal, Write};
use std::sync::Arc;
use std::time::Duration;

use comfy_table::{Cell, Color, Table, presets};
use crossterm::{cursor, terminal};
use k8s_openapi::api::events::v1::Event;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::Failure;
use super::setup::Sample;
use crate::api::samplecontroller::v1alpha1::Foo;
use crate::cache::factory::Watched;
use crate::cache::{Cached, Deleted, EventHandler, Lister, Object, ObjectName, SharedInformerFactory};
use crate::client::{ApiClient, Clock};
use crate::controller::deployment::ObservedDeployment;

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
}

/// One custom resource.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Row {
    name: String,
    ready: String,
    reason: String,
    message: String,
    /// The other conditions that are true.
    state: String,
    children: String,
    /// What happened last, and when.
    last: String,
    at: Option<jiff::Timestamp>,
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
    pub(super) fn new(client: &ApiClient, clock: Clock, samples: &[Sample]) -> Self {
        let informers = SharedInformerFactory::new(client.clone(), None, None, fastrand::u64(..));
        let changed = Arc::new(Notify::new());
        let foos = informers.informer(Watched::<Foo>::default);
        let deployments = informers.informer(|| Watched::<ObservedDeployment> {
            label_selector: Some(crate::api::labels::SELECTOR.to_owned()),
            ..Watched::default()
        });
        let events = informers.informer(Watched::<Event>::default);
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
        }
    }

    /// Shows what happens: with a time limit until all samples are Ready, else until it is dropped.
    pub(super) async fn show(&self, limit: Option<Duration>) -> Result<Verdict, Failure> {
        let stop = CancellationToken::new();
        let _stop = stop.clone().drop_guard();
        tokio::select! {
            biased;
            verdict = self.draw_until(limit) => verdict,
            () = self.informers.run(stop) => Err(Failure::Running("the informers ended".to_owned())),
        }
    }

    async fn draw_until(&self, limit: Option<Duration>) -> Result<Verdict, Failure> {
        let mut screen = Screen::new();
        let deadline = limit.map(|limit| tokio::time::Instant::now() + limit);
        let mut second = tokio::time::interval(Duration::from_secs(1));
        loop {
            let rows = self.rows();
            if !screen.draw(&rows, self.clock.now())? {
                return Ok(Verdict::Stopped);
            }
            let missing = self.not_ready(&rows);
            if limit.is_some() && missing.is_empty() {
                return Ok(Verdict::Ready);
            }
            let late = async {
                match deadline {
                    Some(deadline) => tokio::time::sleep_until(deadline).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                () = late => return Ok(Verdict::NotReady(missing)),
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
        let conditions = match foo {
            Cached::Readable(foo) => foo.status.as_ref().map(|status| status.conditions.clone()),
            Cached::Unreadable(_) => None,
        };
        let conditions = conditions.unwrap_or_default();
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
        let events = self.events.list(None, &kube_core::Selector::default());
        let about = events.iter().filter_map(|event| match event {
            Cached::Readable(event) => Some(event),
            Cached::Unreadable(_) => None,
        });
        about
            .filter(|event| event.regarding.as_ref().and_then(|r| r.uid.as_deref()) == Some(uid))
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
                    Some(format!("{name}: the operator has said nothing yet"))
                }
                Some(row) => Some(format!("{name}: {}: {}", row.reason, row.message)),
                None => Some(format!("{name}: there is no such {}", sample.kind)),
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

/// Standard output.
struct Screen {
    is_terminal: bool,
    /// How many lines the last table took.
    lines: u16,
    /// What was printed of each row.
    printed: BTreeMap<String, String>,
}

// === impl Screen ===

impl Screen {
    fn new() -> Self {
        Self { is_terminal: std::io::stdout().is_terminal(), lines: 0, printed: BTreeMap::new() }
    }

    /// Draws; returns whether somebody still reads.
    fn draw(&mut self, rows: &[Row], now: jiff::Timestamp) -> Result<bool, Failure> {
        let mut out = std::io::stdout().lock();
        let drawn = if self.is_terminal {
            self.draw_table(&mut out, rows, now)
        } else {
            self.print_changes(&mut out, rows)
        };
        match drawn.and_then(|()| out.flush()) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(false),
            Err(error) => Err(Failure::Running(format!("write to standard output: {error}"))),
        }
    }

    fn draw_table(
        &mut self,
        out: &mut impl Write,
        rows: &[Row],
        now: jiff::Timestamp,
    ) -> std::io::Result<()> {
        let text = table(rows, now);
        if self.lines > 0 {
            crossterm::queue!(out, cursor::MoveToPreviousLine(self.lines))?;
        }
        crossterm::queue!(out, terminal::Clear(terminal::ClearType::FromCursorDown))?;
        self.lines = u16::try_from(text.lines().count()).unwrap_or(u16::MAX);
        writeln!(out, "{text}")
    }

    fn print_changes(&mut self, out: &mut impl Write, rows: &[Row]) -> std::io::Result<()> {
        for row in rows {
            let line = line(row);
            if self.printed.get(&row.name) != Some(&line) {
                writeln!(out, "{line}")?;
                self.printed.insert(row.name.clone(), line);
            }
        }
        let gone: Vec<String> =
            self.printed.keys().filter(|name| !rows.iter().any(|row| row.name == **name)).cloned().collect();
        for name in gone {
            writeln!(out, "{name} is gone")?;
            self.printed.remove(&name);
        }
        Ok(())
    }
}

fn table(rows: &[Row], now: jiff::Timestamp) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_header([
        "RESOURCE",
        "READY",
        "REASON",
        "STATE",
        "CHILDREN",
        "LAST EVENT",
    ]);
    for row in rows {
        let color = match (row.ready.as_str(), row.state.contains("Stalled")) {
            ("True", _) => Color::Green,
            (_, true) => Color::Red,
            _ => Color::Yellow,
        };
        let ago = row.at.map(|at| now.duration_since(at).as_secs().max(0));
        let last = ago.map_or(String::new(), |ago| format!("{} ({ago}s ago)", row.last));
        table.add_row([
            Cell::new(&row.name),
            Cell::new(&row.ready).fg(color),
            Cell::new(&row.reason),
            Cell::new(&row.state),
            Cell::new(&row.children),
            Cell::new(last),
        ]);
    }
    table.trim_fmt()
}

/// One change, for a file or a pipe.
fn line(row: &Row) -> String {
    format!(
        "{} ready={} reason={} state={} children={:?} last={:?}",
        row.name, row.ready, row.reason, row.state, row.children, row.last
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(ready: &str) -> Row {
        Row {
            name: "foo/web".to_owned(),
            ready: ready.to_owned(),
            reason: "Why".to_owned(),
            message: String::new(),
            state: String::new(),
            children: "deployment/web 1/1".to_owned(),
            last: "Synced: Foo synced successfully".to_owned(),
            at: Some(jiff::Timestamp::UNIX_EPOCH),
        }
    }

    #[test]
    fn without_a_terminal_each_change_is_one_line() {
        let mut screen = Screen { is_terminal: false, lines: 0, printed: BTreeMap::new() };
        let mut out = Vec::new();
        for rows in [vec![row("False")], vec![row("False")], vec![row("True")], vec![]] {
            screen.print_changes(&mut out, &rows).unwrap();
        }
        let text = String::from_utf8(out).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 3, "{text}");
        assert!(lines[0].contains("ready=False") && lines[1].contains("ready=True"), "{text}");
        assert_eq!(lines[2], "foo/web is gone");
    }

    #[test]
    fn a_table_has_a_row_for_each_resource() {
        let text = table(&[row("True")], "1970-01-01T00:00:07Z".parse().unwrap());
        let words: Vec<&str> = text.lines().nth(1).unwrap().split_whitespace().collect();
        assert_eq!(words[..3], ["foo/web", "True", "Why"]);
        assert!(text.contains("Synced: Foo synced successfully (7s ago)"), "{text}");
    }
}
