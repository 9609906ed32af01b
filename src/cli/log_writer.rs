//! Writes the log to standard error from a thread of its own, so that no sync ever waits for a reader or a disk.
//!
//! Flow: tracing -> bounded buffer -> **thread** -> standard error
//!
//! # Guarantees
//! - Logging never waits: when the buffer is full, the line is dropped and counted. (test: `full_buffer_drops_and_counts_lines`)
//! - An error of standard error (a full disk, a closed pipe) neither panics nor ends the process. (test: `failing_log_does_not_stop_the_process`)
//! - A flush waits for [`FLUSH_TIMEOUT`] at most. (test: `unread_log_does_not_hold_the_exit`)

use std::io::{self, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, Sender, SyncSender};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tracing_subscriber::fmt::MakeWriter;

/// Number of lines that may wait.
const BUFFER: usize = 8192;
/// Time limit for writing the last lines when the process ends.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(1);

/// The writer of this process's log, once the log is started.
static STANDARD_ERROR: OnceLock<LogWriter> = OnceLock::new();

/// Sends lines to the thread that writes them. Cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct LogWriter {
    lines: SyncSender<Message>,
    dropped: Arc<AtomicU64>,
}

enum Message {
    Line(Vec<u8>),
    /// Answered once every earlier line is written.
    Flush(Sender<()>),
}

// === impl LogWriter ===

impl LogWriter {
    /// Returns the writer to standard error, whose thread starts with the first call.
    pub(super) fn standard_error() -> Self {
        let start = || Self::start(BUFFER, |line| io::stderr().lock().write_all(line));
        STANDARD_ERROR.get_or_init(start).clone()
    }

    fn start(buffer: usize, write: impl Fn(&[u8]) -> io::Result<()> + Send + 'static) -> Self {
        let (lines, received) = mpsc::sync_channel(buffer);
        let dropped = Arc::<AtomicU64>::default();
        let of_thread = dropped.clone();
        // A process that cannot start a thread logs nothing: what is sent is counted as dropped.
        let thread = std::thread::Builder::new().name("log".to_owned());
        drop(thread.spawn(move || write_all(&received, &of_thread, write)));
        Self { lines, dropped }
    }

    fn send(&self, line: &[u8]) {
        if self.lines.try_send(Message::Line(line.to_vec())).is_err() {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn flush(&self, timeout: Duration) {
        let (sender, flushed) = mpsc::channel();
        // A full buffer is not read: there is nothing to wait for.
        if self.lines.try_send(Message::Flush(sender)).is_ok() {
            flushed.recv_timeout(timeout).ok();
        }
    }
}

fn write_all(received: &Receiver<Message>, dropped: &AtomicU64, write: impl Fn(&[u8]) -> io::Result<()>) {
    while let Ok(message) = received.recv() {
        match message {
            Message::Line(line) => match write(&line) {
                Ok(()) => report(dropped.swap(0, Ordering::Relaxed)),
                Err(_) => drop(dropped.fetch_add(1, Ordering::Relaxed)),
            },
            Message::Flush(done) => drop(done.send(())),
        }
    }
}

fn report(dropped: u64) {
    if dropped > 0 {
        tracing::warn!(dropped, "Log lines were dropped: standard error was full, closed or not read");
    }
}

/// Prints the process's final message to standard error, after the log. Gives up if nobody reads it.
pub(super) fn print_last(text: &str) {
    let writer = LogWriter::standard_error();
    writer.send(format!("{text}\n").as_bytes());
    writer.flush(FLUSH_TIMEOUT);
}

/// Waits until the log is written.
pub(super) fn flush() {
    if let Some(writer) = STANDARD_ERROR.get() {
        writer.flush(FLUSH_TIMEOUT);
    }
}

impl Write for LogWriter {
    /// Takes one event: tracing-subscriber writes each with one call.
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.send(line);
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl MakeWriter<'_> for LogWriter {
    type Writer = Self;

    fn make_writer(&self) -> Self {
        self.clone()
    }
}

#[cfg(test)]
mod tests {
    use parking_lot::Mutex;

    use super::*;
    use crate::testing::capture_log;

    #[test]
    fn full_buffer_drops_and_counts_lines() {
        let (written, may_write) = (Arc::<Mutex<Vec<Vec<u8>>>>::default(), Arc::new(Mutex::new(())));
        let held = may_write.lock();
        let (sink, gate) = (written.clone(), may_write.clone());
        let writer = LogWriter::start(2, move |line| {
            drop(gate.lock());
            sink.lock().push(line.to_vec());
            Ok(())
        });
        for _ in 0..100 {
            writer.send(b"line");
        }
        let dropped = writer.dropped.load(Ordering::Relaxed);
        assert!((97..=98).contains(&dropped), "two wait, and one may be under way: {dropped} were dropped");
        drop(held);
        while written.lock().len() < 2 {
            std::thread::yield_now();
        }
        writer.flush(Duration::from_secs(60));
        assert_eq!(written.lock().len() + usize::try_from(dropped).unwrap(), 100);
        assert_eq!(writer.dropped.load(Ordering::Relaxed), 0, "they are reported");
    }

    #[test]
    fn dropped_lines_are_reported_once() {
        let log = capture_log();
        report(0);
        report(7);
        let lines = log.lines();
        assert_eq!(lines.len(), 1, "{lines:?}");
        assert!(lines[0].contains("Log lines were dropped"), "{lines:?}");
    }
}
