//! Captures the log of a test's thread.

use std::fmt::{Debug, Write};
use std::io;
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use serde_json::Value;
use tracing::field::{Field, Visit};
use tracing::subscriber::{DefaultGuard, NoSubscriber};
use tracing::{Dispatch, Event, Level, Subscriber};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};

/// Captures the log of this thread until dropped.
pub(crate) struct CapturedLog {
    lines: Lines,
    _guard: DefaultGuard,
}

type Lines = Arc<Mutex<Vec<String>>>;

/// Starts to capture this crate's events.
pub(crate) fn capture_log() -> CapturedLog {
    let lines = Lines::default();
    let subscriber = tracing_subscriber::registry().with(Catch(lines.clone()));
    CapturedLog { lines, _guard: set_default(subscriber) }
}

/// Sets the subscriber of this thread, beside one that stays for good.
///
/// With a single subscriber alive, tracing asks only the thread that meets an event first whether
/// anybody wants it: a thread without a subscriber then turns the event off for all others.
fn set_default(subscriber: impl Subscriber + Send + Sync) -> DefaultGuard {
    static SECOND: OnceLock<Dispatch> = OnceLock::new();
    SECOND.get_or_init(|| Dispatch::new(NoSubscriber::default()));
    tracing::subscriber::set_default(subscriber)
}

impl CapturedLog {
    /// Returns one line per event: `LEVEL message field=value ...`.
    pub(crate) fn lines(&self) -> Vec<String> {
        self.lines.lock().clone()
    }
}

/// Captures the log of this thread as JSON until dropped; a line contains the fields of its span.
pub(crate) struct CapturedJson {
    written: Written,
    _guard: DefaultGuard,
}

/// A log writer that keeps its output in memory.
#[derive(Clone, Default)]
struct Written(Arc<Mutex<Vec<u8>>>);

/// Starts to capture all events, down to debug level.
pub(crate) fn capture_json() -> CapturedJson {
    let written = Written::default();
    let writer = written.clone();
    let json = tracing_subscriber::fmt().json().flatten_event(true).with_span_list(false);
    let log = json.with_max_level(Level::DEBUG).with_writer(move || writer.clone()).finish();
    CapturedJson { written, _guard: set_default(log) }
}

impl CapturedJson {
    pub(crate) fn lines(&self) -> Vec<Value> {
        let text = self.written.0.lock().clone();
        let lines = serde_json::Deserializer::from_slice(&text).into_iter();
        lines.map(|line| line.expect("each line is JSON")).collect()
    }
}

impl io::Write for Written {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
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
        outcome.expect("writing to a string never fails");
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.record_debug(field, &format_args!("{value}"));
    }
}
