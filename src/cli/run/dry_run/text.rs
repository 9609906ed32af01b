//! The report of a dry run for people: an object, its writes, a line for each field, and a summary.

use std::fmt::Write as _;

use serde_json::Value;

use super::report::{ObjectReport, Report, Summary, Verdict, WriteReport};

/// How much of a value is shown.
const VALUE_MAX: usize = 200;

const BOLD: &str = "1";
const RED: &str = "31";
const GREEN: &str = "32";

/// Formats the report, with colours for a terminal.
pub(super) fn format(report: &Report, is_coloured: bool) -> String {
    let pen = Pen { is_coloured };
    let mut text = String::new();
    for object in &report.objects {
        pen.object(&mut text, object);
    }
    text.push_str(&pen.summary(&report.summary));
    text
}

struct Pen {
    is_coloured: bool,
}

impl Pen {
    fn paint(&self, colour: &str, text: &str) -> String {
        if self.is_coloured { format!("\x1b[{colour}m{text}\x1b[0m") } else { text.to_owned() }
    }

    fn object(&self, text: &mut String, object: &ObjectReport) {
        let name = named(&object.kind, object.namespace.as_deref(), &object.name);
        line(text, 0, &self.paint(BOLD, &name));
        for write in &object.writes {
            self.write(text, write);
        }
        for call in &object.calls {
            line(text, 1, &format!("would call task {:?} ({})", call.task, call.hook));
        }
        if object.more_follows {
            line(text, 1, "and what follows from it");
        }
        if let Some(error) = &object.error {
            line(text, 1, &self.paint(RED, &format!("failed: {}", printable(error))));
        }
        text.push('\n');
    }

    fn write(&self, text: &mut String, write: &WriteReport) {
        let status = write.subresource.map(|subresource| format!(" ({subresource})")).unwrap_or_default();
        let object = named(&write.kind, write.namespace.as_deref(), &write.name);
        let verb = write.verb;
        let Some(refusal) = &write.refusal else {
            line(text, 1, &format!("would {verb} {object}{status}"));
            if !write.would_change() {
                line(text, 2, "the server would store it unchanged");
            }
            for change in &write.changes {
                let after = self.paint(GREEN, &shown(change.after.as_ref()));
                let field = &change.field;
                line(
                    text,
                    2,
                    &match &change.before {
                        None if verb == "create" => format!("{field}: {after}"),
                        before => format!("{field}: {} -> {after}", self.paint(RED, &shown(before.as_ref()))),
                    },
                );
            }
            return;
        };
        let why = format!("{} {}: {}", refusal.code, refusal.reason, printable(&refusal.message));
        line(text, 1, &self.paint(RED, &format!("could not {verb} {object}{status}: {why}")));
        let note = match refusal.verdict {
            Verdict::Error => return,
            Verdict::Known => "nothing new: the status of the object stays as it is",
            Verdict::Unsure => "not certain: the deletion above may make room for it",
        };
        line(text, 2, note);
    }

    fn summary(&self, summary: &Summary) -> String {
        let objects =
            |count: usize| if count == 1 { "1 object".to_owned() } else { format!("{count} objects") };
        let Summary { changed, unchanged, failed } = *summary;
        match (changed, failed) {
            (0, 0) => format!("nothing would change ({})\n", objects(unchanged)),
            (_, 0) => format!("{} would change, {unchanged} would not\n", objects(changed)),
            (_, _) => {
                let failed = self.paint(RED, &format!("{failed} failed"));
                format!("{} would change, {unchanged} would not, {failed}\n", objects(changed))
            }
        }
    }
}

fn line(text: &mut String, indent: usize, line: &str) {
    writeln!(text, "{:width$}{line}", "", width = 2 * indent).expect("a string takes all");
}

fn named(kind: &str, namespace: Option<&str>, name: &str) -> String {
    match namespace {
        Some(namespace) => format!("{kind} {namespace}/{name}"),
        None => format!("{kind} {name}"),
    }
}

/// Replaces control characters: a webhook's message must not steer the terminal.
fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

fn shown(value: Option<&Value>) -> String {
    let Some(value) = value else { return "none".to_owned() };
    let text = printable(&value.to_string());
    match text.char_indices().nth(VALUE_MAX) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::Pass;
    use super::*;
    use crate::client::ServerStatus;
    use crate::client::dry_run::{Change, Effect, Write};

    fn pass(name: &str, effects: Vec<Effect>, error: Option<&str>) -> Pass {
        let (kind, namespace, name) = ("Foo".to_owned(), Some("ns".to_owned()), name.to_owned());
        Pass { kind, namespace, name, effects, error: error.map(str::to_owned) }
    }

    fn write(verb: &'static str, outcome: Result<Vec<Change>, ServerStatus>) -> Effect {
        let (kind, namespace, name) = ("Deployment".to_owned(), Some("ns".to_owned()), "web".to_owned());
        Effect::Write(Write { verb, kind, namespace, name, is_status: false, outcome })
    }

    fn report() -> Report {
        let change = |before: Value, after: Value| {
            let known = |value: Value| (!value.is_null()).then_some(value);
            Change { field: "spec.replicas".to_owned(), before: known(before), after: known(after) }
        };
        let status = ServerStatus {
            code: 422,
            reason: "Invalid".to_owned(),
            message: "field is\x1b immutable".to_owned(),
            ..ServerStatus::default()
        };
        Report::of(vec![
            pass("a", vec![write("patch", Ok(vec![change(json!(5), json!(2))]))], None),
            pass("b", vec![write("create", Ok(vec![change(Value::Null, json!("x".repeat(300)))]))], None),
            pass("c", vec![write("patch", Err(status))], None),
            pass("d", vec![Effect::Call { task: "prepare".to_owned(), hook: "create" }], None),
            pass("e", vec![], Some("GET /x: no answer within 30s")),
            pass("f", vec![], None),
        ])
    }

    #[test]
    fn text_names_objects_writes_and_fields() {
        let long = format!("\"{}...", "x".repeat(199));
        let expected = format!(
            "\
Foo ns/a
  would patch Deployment ns/web
    spec.replicas: 5 -> 2
  and what follows from it

Foo ns/b
  would create Deployment ns/web
    spec.replicas: {long}
  and what follows from it

Foo ns/c
  could not patch Deployment ns/web: 422 Invalid: field is  immutable
    nothing new: the status of the object stays as it is

Foo ns/d
  would call task \"prepare\" (create)
  and what follows from it

Foo ns/e
  failed: GET /x: no answer within 30s

3 objects would change, 2 would not, 1 failed
"
        );
        assert_eq!(format(&report(), false), expected);
    }

    #[test]
    fn only_a_terminal_gets_colours() {
        assert!(!format(&report(), false).contains('\x1b'));
        let text = format(&report(), true);
        assert!(text.contains("\x1b[31m5\x1b[0m -> \x1b[32m2\x1b[0m"), "{text}");
    }

    #[test]
    fn summary_counts_each_object_once() {
        let summary = |changed, unchanged, failed| {
            Pen { is_coloured: false }.summary(&Summary { changed, unchanged, failed })
        };
        assert_eq!(summary(0, 0, 0), "nothing would change (0 objects)\n");
        assert_eq!(summary(0, 120, 0), "nothing would change (120 objects)\n");
        assert_eq!(summary(3, 120, 0), "3 objects would change, 120 would not\n");
        assert_eq!(summary(1, 0, 2), "1 object would change, 0 would not, 2 failed\n");
    }
}
