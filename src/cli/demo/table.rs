//! What is printed: on a terminal a table that is drawn again in its place, elsewhere a line for each change.

use std::collections::BTreeMap;
use std::io::{IsTerminal, Write};

use comfy_table::{Cell, Color, ContentArrangement, Table, presets};
use crossterm::{cursor, terminal};

use super::Failure;

/// One custom resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Row {
    pub(super) name: String,
    pub(super) ready: String,
    pub(super) reason: String,
    pub(super) message: String,
    /// The other conditions that are true.
    pub(super) state: String,
    pub(super) children: String,
    /// What happened last, and when.
    pub(super) last: String,
    pub(super) at: Option<jiff::Timestamp>,
}

/// Standard output.
pub(super) struct Screen {
    is_terminal: bool,
    /// How many lines the last table took.
    lines: u16,
    /// What was printed of each row.
    printed: BTreeMap<String, String>,
}

// === impl Screen ===

impl Screen {
    /// `has_log`: lines of the log come in between, so nothing can be drawn in its place.
    pub(super) fn new(has_log: bool) -> Self {
        let is_terminal = std::io::stdout().is_terminal() && !(has_log && std::io::stderr().is_terminal());
        Self { is_terminal, lines: 0, printed: BTreeMap::new() }
    }

    /// Draws; returns whether somebody still reads.
    pub(super) fn draw(&mut self, rows: &[Row], now: jiff::Timestamp) -> Result<bool, Failure> {
        let mut out = std::io::stdout().lock();
        let drawn = if self.is_terminal {
            let size = terminal::size().unwrap_or((80, 24));
            self.draw_table(&mut out, rows, now, size)
        } else {
            self.print_changes(&mut out, rows)
        };
        match drawn.and_then(|()| out.flush()) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(false),
            Err(error) => Err(Failure::Running(format!("write to standard output: {error}"))),
        }
    }

    /// No line is wider and the table no taller than the terminal: what does not fit would scroll, and could
    /// not be drawn over.
    fn draw_table(
        &mut self,
        out: &mut impl Write,
        rows: &[Row],
        now: jiff::Timestamp,
        (width, height): (u16, u16),
    ) -> std::io::Result<()> {
        let text = table(rows, now, width);
        let mut lines: Vec<&str> = text.lines().collect();
        let room = usize::from(height.max(3)) - 1;
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
        lines.iter().try_for_each(|line| writeln!(out, "{line}"))
    }

    fn print_changes(&mut self, out: &mut impl Write, rows: &[Row]) -> std::io::Result<()> {
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

fn table(rows: &[Row], now: jiff::Timestamp, width: u16) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Dynamic).set_width(width);
    table.set_header(["RESOURCE", "READY", "REASON", "STATE", "CHILDREN", "LAST EVENT"]);
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

    fn row(name: &str, ready: &str) -> Row {
        Row {
            name: format!("foo/{name}"),
            ready: ready.to_owned(),
            reason: "Why".to_owned(),
            message: String::new(),
            state: String::new(),
            children: "deployment/web 1/1".to_owned(),
            last: "ChildCreated: Created Deployment \"web\"".to_owned(),
            at: Some(jiff::Timestamp::UNIX_EPOCH),
        }
    }

    fn screen(is_terminal: bool) -> Screen {
        Screen { is_terminal, lines: 0, printed: BTreeMap::new() }
    }

    #[test]
    fn without_a_terminal_each_change_is_one_line() {
        let (mut screen, mut out) = (screen(false), Vec::new());
        for rows in [vec![row("a", "False")], vec![row("a", "False")], vec![row("a", "True")], vec![]] {
            screen.print_changes(&mut out, &rows).unwrap();
        }
        let text = String::from_utf8(out).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 3, "{text}");
        assert!(lines[0].contains("ready=False") && lines[1].contains("ready=True"), "{text}");
        assert_eq!(lines[2], "foo/a is gone");
    }

    #[test]
    fn a_table_has_a_row_for_each_resource() {
        let text = table(&[row("web", "True")], "1970-01-01T00:00:07Z".parse().unwrap(), 200);
        let words: Vec<&str> = text.lines().nth(1).unwrap().split_whitespace().collect();
        assert_eq!(words[..3], ["foo/web", "True", "Why"]);
        assert!(text.contains("Created Deployment \"web\" (7s ago)"), "{text}");
    }

    /// A table that scrolled could not be drawn over: the next one would stand below its remains.
    #[test]
    fn a_table_fits_into_the_terminal() {
        let rows: Vec<Row> = (0..30).map(|n| row(&format!("resource-{n}"), "True")).collect();
        for (width, height) in [(60, 10), (80, 24), (200, 50)] {
            let (mut screen, mut out) = (screen(true), Vec::new());
            screen.draw_table(&mut out, &rows, jiff::Timestamp::UNIX_EPOCH, (width, height)).unwrap();
            assert!(screen.lines < height, "{} lines of {height}", screen.lines);
            let text = String::from_utf8(out).unwrap();
            let widest =
                text.lines().map(|line| line.chars().filter(|c| !c.is_control()).count()).max().unwrap();
            // The first line carries the sequence that clears the place.
            assert!(widest <= usize::from(width) + 4, "{widest} of {width}: {text}");
        }
    }
}
