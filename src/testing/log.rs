//! Catches what is logged on a test's thread.

use std::fmt::{Debug, Write};
use std::sync::Arc;

use parking_lot::Mutex;
use tracing::field::{Field, Visit};
use tracing::subscriber::DefaultGuard;
use tracing::{Event, Subscriber};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};

/// The log of this thread, until it is dropped.
pub(crate) struct CapturedLog {
    lines: Lines,
    _guard: DefaultGuard,
}

type Lines = Arc<Mutex<Vec<String>>>;

/// Catches events of this crate from now on.
pub(crate) fn capture_log() -> CapturedLog {
    let lines = Lines::default();
    let subscriber = tracing_subscriber::registry().with(Catch(lines.clone()));
    CapturedLog { lines, _guard: tracing::subscriber::set_default(subscriber) }
}

impl CapturedLog {
    /// `LEVEL message field=value ...`, each event a line.
    pub(crate) fn lines(&self) -> Vec<String> {
        self.lines.lock().clone()
    }
}

struct Catch(Lines);

impl<S: Subscriber> Layer<S> for Catch {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        if !event.metadata().target().starts_with("windlass") {
            return;
        }
        let mut text = Text { message: String::new(), fields: String::new() };
        event.record(&mut text);
        let level = event.metadata().level();
        self.0.lock().push(format!("{level} {}{}", text.message, text.fields));
    }
}

struct Text {
    message: String,
    fields: String,
}

impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        let outcome = match field.name() {
            "message" => write!(self.message, "{value:?}"),
            name => write!(self.fields, " {name}={value:?}"),
        };
        outcome.expect("text can be written to memory");
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.record_debug(field, &format_args!("{value}"));
    }
}
