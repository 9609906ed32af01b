//! Prints the rows: on a terminal as a table that is redrawn in place, otherwise as one line per change.
//!
//! # Guarantees
//! - The table fits into the terminal. (test: `table_fits_into_the_terminal`)
//! - If room is short, columns are dropped before rows. (test: `all_samples_fit_into_common_terminal_sizes`)
//! - A message stays above the table. (test: `message_stays_above_the_table`)

use std::collections::BTreeMap;
use std::io::{IsTerminal, Write};

use comfy_table::{Cell, Color, ColumnConstraint, ContentArrangement, Table, Width, presets};
use crossterm::{cursor, terminal};

use crate::cli::Failure;

/// One custom resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Row {
    pub(super) name: String,
    pub(super) ready: String,
    /// `ready/wanted`.
    pub(super) replicas: String,
    pub(super) reason: String,
    pub(super) message: String,
    /// The other conditions that are true.
    pub(super) state: String,
    /// The running hook.
    pub(super) step: String,
    pub(super) children: String,
    /// The last event; `at` is its time.
    pub(super) last: String,
    pub(super) at: Option<jiff::Timestamp>,
}

/// How much of a row is shown, from most to least.
#[derive(Clone, Copy, Debug)]
enum Form {
    All,
    /// Without the last events, which are the longest.
    NoEvents,
    /// Also without children, and with each row on one line.
    Short,
}

/// The padding around the content of a cell.
const PADDING: usize = 2;

/// The screen: standard output.
pub(super) struct Screen {
    is_terminal: bool,
    /// How many lines the last table took.
    lines: u16,
    /// The line last printed for each row.
    printed: BTreeMap<String, String>,
}

// === impl Screen ===

impl Screen {
    /// Creates a screen. `has_log`: log lines on the same terminal make redrawing in place impossible.
    pub(super) fn new(has_log: bool) -> Self {
        let is_terminal = std::io::stdout().is_terminal() && !(has_log && std::io::stderr().is_terminal());
        Self { is_terminal, lines: 0, printed: BTreeMap::new() }
    }

    /// Prints the message, then the rows; returns whether standard output is still open.
    pub(super) fn draw(
        &mut self,
        said: Option<&str>,
        rows: &[Row],
        now: jiff::Timestamp,
    ) -> Result<bool, Failure> {
        let mut out = std::io::stdout().lock();
        let drawn = if self.is_terminal {
            let size = terminal::size().unwrap_or((80, 24));
            self.draw_table(&mut out, said, rows, now, size)
        } else {
            self.print_changes(&mut out, said, rows)
        };
        match drawn.and_then(|()| out.flush()) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(false),
            Err(error) => Err(Failure::Running(format!("could not write to standard output: {error}"))),
        }
    }

    /// Draws the table, no wider and no taller than the terminal: a table that scrolls could not be redrawn in place.
    /// The message stays above the table.
    fn draw_table(
        &mut self,
        out: &mut impl Write,
        said: Option<&str>,
        rows: &[Row],
        now: jiff::Timestamp,
        (width, height): (u16, u16),
    ) -> std::io::Result<()> {
        let room = usize::from(height.max(3)) - 1;
        let [all, no_events, short] =
            [Form::All, Form::NoEvents, Form::Short].map(|f| table(rows, now, width, f));
        let fits = |text: &&String| text.lines().count() <= room;
        let text = [&all, &no_events].into_iter().find(fits).unwrap_or(&short);
        let mut lines: Vec<&str> = text.lines().collect();
        let more = format!("... {} more lines", lines.len().saturating_sub(room - 1));
        if lines.len() > room {
            lines.truncate(room - 1);
            lines.push(&more);
        }
        if self.lines > 0 {
            crossterm::queue!(out, cursor::MoveToPreviousLine(self.lines.min(height.saturating_sub(1))))?;
        }
        crossterm::queue!(out, terminal::Clear(terminal::ClearType::FromCursorDown))?;
        self.lines = u16::try_from(lines.len()).unwrap_or(u16::MAX);
        said.into_iter().chain(lines).try_for_each(|line| writeln!(out, "{line}"))
    }

    fn print_changes(
        &mut self,
        out: &mut impl Write,
        said: Option<&str>,
        rows: &[Row],
    ) -> std::io::Result<()> {
        if let Some(said) = said {
            writeln!(out, "{said}")?;
        }
        for row in rows {
            let line = line(row);
            if self.printed.get(&row.name) != Some(&line) {
                writeln!(out, "{line}")?;
                self.printed.insert(row.name.clone(), line);
            }
        }
        let is_gone = |name: &&String| !rows.iter().any(|row| row.name == **name);
        let gone: Vec<String> = self.printed.keys().filter(is_gone).cloned().collect();
        for name in gone {
            writeln!(out, "{name} is gone")?;
            self.printed.remove(&name);
        }
        Ok(())
    }
}

fn table(rows: &[Row], now: jiff::Timestamp, width: u16, form: Form) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Dynamic).set_width(width);
    let columns = ["RESOURCE", "READY", "REPLICAS", "REASON", "STATE", "CHILDREN", "LAST EVENT"];
    let shown = match form {
        Form::All => columns.len(),
        Form::NoEvents => columns.len() - 1,
        Form::Short => columns.len() - 2,
    };
    table.set_header(columns[..shown].iter().copied());
    for row in rows {
        let color = match (row.ready.as_str(), row.state.contains("Stalled")) {
            ("True", _) => Color::Green,
            (_, true) => Color::Red,
            _ => Color::Yellow,
        };
        let ago = row.at.map(|at| now.duration_since(at).as_secs().max(0));
        let last = ago.map_or(String::new(), |ago| format!("{} ({ago}s ago)", row.last));
        let state = [row.step.as_str(), row.state.as_str()].into_iter().filter(|part| !part.is_empty());
        let cells = [
            Cell::new(&row.name),
            Cell::new(&row.ready).fg(color),
            Cell::new(&row.replicas),
            Cell::new(&row.reason),
            Cell::new(state.collect::<Vec<_>>().join(", ")),
            Cell::new(&row.children),
            Cell::new(last),
        ];
        let mut line = comfy_table::Row::from(cells.into_iter().take(shown).collect::<Vec<_>>());
        if matches!(form, Form::Short) {
            line.max_height(1);
        }
        table.add_row(line);
    }
    // Names are cut last, but leave half of the width to the other columns.
    let longest = rows.iter().map(|row| row.name.len()).max().unwrap_or_default();
    let names = u16::try_from(longest + PADDING).unwrap_or(u16::MAX).min(width / 2);
    if let Some(column) = table.column_mut(0) {
        column.set_constraint(ColumnConstraint::LowerBoundary(Width::Fixed(names)));
    }
    table.trim_fmt()
}

/// Formats a row as one line, for a file or a pipe.
fn line(row: &Row) -> String {
    let Row { name, ready, replicas, reason, state, step, children, last, .. } = row;
    let step = if step.is_empty() { String::new() } else { format!(" step={step:?}") };
    format!(
        "{name} ready={ready} replicas={replicas} reason={reason} state={state}{step} children={children:?} \
         last={last:?}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(name: &str, ready: &str) -> Row {
        Row {
            name: format!("foo/{name}"),
            ready: ready.to_owned(),
            replicas: "1/1".to_owned(),
            reason: "Why".to_owned(),
            message: String::new(),
            state: String::new(),
            step: String::new(),
            children: "deployment/web 1/1".to_owned(),
            last: "ChildCreated: Created Deployment \"web\"".to_owned(),
            at: Some(jiff::Timestamp::UNIX_EPOCH),
        }
    }

    fn screen(is_terminal: bool) -> Screen {
        Screen { is_terminal, lines: 0, printed: BTreeMap::new() }
    }

    #[test]
    fn each_change_is_one_line_without_a_terminal() {
        let (mut screen, mut out) = (screen(false), Vec::new());
        for rows in [vec![row("a", "False")], vec![row("a", "False")], vec![row("a", "True")], vec![]] {
            screen.print_changes(&mut out, None, &rows).unwrap();
        }
        let text = String::from_utf8(out).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 3, "{text}");
        assert!(lines[0].contains("ready=False") && lines[1].contains("ready=True"), "{text}");
        assert_eq!(lines[2], "foo/a is gone");
    }

    #[test]
    fn table_has_one_row_per_resource() {
        let text = table(&[row("web", "True")], "1970-01-01T00:00:07Z".parse().unwrap(), 200, Form::All);
        let words: Vec<&str> = text.lines().nth(1).unwrap().split_whitespace().collect();
        assert_eq!(words[..4], ["foo/web", "True", "1/1", "Why"]);
        assert!(text.contains("Created Deployment \"web\" (7s ago)"), "{text}");
    }

    /// A table that scrolls cannot be redrawn in place: its remains would stay above the next table.
    #[test]
    fn table_fits_into_the_terminal() {
        let rows: Vec<Row> = (0..30).map(|n| row(&format!("resource-{n}"), "True")).collect();
        for (width, height) in [(60, 10), (80, 24), (200, 50)] {
            let (mut screen, mut out) = (screen(true), Vec::new());
            screen.draw_table(&mut out, None, &rows, jiff::Timestamp::UNIX_EPOCH, (width, height)).unwrap();
            assert!(screen.lines < height, "{} lines of {height}", screen.lines);
            let text = String::from_utf8(out).unwrap();
            let widest =
                text.lines().map(|line| line.chars().filter(|c| !c.is_control()).count()).max().unwrap();
            // The first line has the escape sequence that clears the old table.
            assert!(widest <= usize::from(width) + 4, "{widest} of {width}: {text}");
        }
    }

    #[test]
    fn running_hook_is_shown_before_state() {
        let mut webapp = row("web", "False");
        assert!(!line(&webapp).contains("step="));
        webapp.state = "Reconciling".to_owned();
        webapp.step = "workload: post_create".to_owned();
        assert!(line(&webapp).contains(" state=Reconciling step=\"workload: post_create\" "));
        let text = table(&[webapp], jiff::Timestamp::UNIX_EPOCH, 200, Form::All);
        assert!(text.contains("workload: post_create, Reconciling"), "{text}");
    }

    /// Returns rows as wide as those of our samples.
    fn samples() -> Vec<Row> {
        let row = |name: &str, state: &str, children: &str| Row {
            name: name.to_owned(),
            reason: "Available".to_owned(),
            state: state.to_owned(),
            children: children.to_owned(),
            last: format!("ChildCreated: Created Deployment {name:?}"),
            ..row("", "True")
        };
        vec![
            row("foo/example", "", "deployment/example-foo 1/1"),
            row("foo/example-full", "", "deployment/example-foo-full 3/3"),
            row("myapp/example-myapp", "", "deployment 1/1, service"),
            row("myapp/example-myapp-full", "", "deployment 2/2, service, ingress"),
            row("appservice/example-appservice", "", "deployment 1/1"),
            row("appservice/example-appservice-full", "", "deployment 3/3, service"),
            row("redis/example-redis", "", "pods 1/1"),
            row("redis/example-redis-full", "", "pods 3/3"),
            row("webapp/example-webapp", "", "deployment 1/1"),
            row("webapp/example-webapp-full", "Reconciling", "deployment 0/3"),
        ]
    }

    /// No row of ten is left out, even where each would take several lines.
    #[test]
    fn all_samples_fit_into_common_terminal_sizes() {
        for size in [(80, 24), (100, 24), (120, 30), (180, 24)] {
            let (mut screen, mut out) = (screen(true), Vec::new());
            screen.draw_table(&mut out, None, &samples(), jiff::Timestamp::UNIX_EPOCH, size).unwrap();
            let text = String::from_utf8(out).unwrap();
            assert!(text.contains("webapp/example-webapp-full") && !text.contains("more lines"), "{text}");
        }
    }

    /// The message replaces the old table, and the next table follows below.
    #[test]
    fn message_stays_above_the_table() {
        let (mut screen, mut out) = (screen(true), Vec::new());
        let rows = [row("a", "True")];
        for said in [None, Some("Scaled it"), None] {
            screen.draw_table(&mut out, said, &rows, jiff::Timestamp::UNIX_EPOCH, (200, 24)).unwrap();
        }
        let text = String::from_utf8(out).unwrap();
        assert_eq!(text.matches("Scaled it\n").count(), 1, "{text}");
        let below = text.split_once("Scaled it\n").unwrap().1;
        assert!(below.starts_with("RESOURCE") || below.trim_start().starts_with("RESOURCE"), "{below:?}");
        assert_eq!(screen.lines, 2, "only the table is drawn over");
    }

    #[test]
    fn message_is_one_line_without_a_terminal() {
        let (mut screen, mut out) = (screen(false), Vec::new());
        screen.print_changes(&mut out, Some("Scaled it"), &[row("a", "True")]).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert!(text.starts_with("Scaled it\nfoo/a ready=True replicas=1/1 "), "{text}");
    }
}
