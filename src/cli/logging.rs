//! The log, on standard error: text for people, JSON for machines.
//!
//! # Guarantees
//! - A panic is logged, with its location and the object being synced. (test: `sync_panic_is_logged_with_key_and_location`)
//! - A log that cannot be written neither stops nor holds the process. (test: `failing_log_does_not_stop_the_process`, `unread_log_does_not_hold_the_exit`)
//! - An unknown level is refused. (test: `unknown_log_level_is_refused`)

use std::io::IsTerminal;
use std::panic::PanicHookInfo;

use tracing_subscriber::EnvFilter;

use super::Failure;
use super::log_writer::{self, LogWriter};

/// Filters for noisy libraries: kube-client logs each lost connection and each refusal at ERROR, which we log once,
/// and prints whole responses that do not decode, secrets included.
const QUIET: &str = "kube_client=off,hyper=warn,tower=warn,rustls=warn";

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Logging")]
pub(super) struct LogArgs {
    /// Log format; default: text on a terminal, json otherwise
    #[arg(long, env = "WINDLASS_LOG_FORMAT", value_name = "FORMAT")]
    log_format: Option<Format>,

    /// Log level: error, warn, info, debug or trace, or a filter by module such as
    /// `info,windlass::cache=debug`; default: info, with --dry-run warn
    #[arg(long, env = "WINDLASS_LOG_LEVEL", value_name = "LEVEL")]
    log_level: Option<String>,
}

/// For a command whose output is for people: nothing is logged unless asked for.
#[cfg(feature = "demo")]
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Logging")]
pub(super) struct QuietLogArgs {
    /// Log level on standard error: off, error, warn, info, debug or trace, or a filter by module
    #[arg(long, env = "WINDLASS_LOG_LEVEL", value_name = "LEVEL", default_value = "off")]
    log_level: String,
}

#[cfg(feature = "demo")]
impl QuietLogArgs {
    /// Returns whether nothing is logged.
    pub(super) fn is_silent(&self) -> bool {
        self.log_level == "off"
    }
}

/// Starts the log of a command that logs nothing by default.
#[cfg(feature = "demo")]
pub(super) fn start_quietly(args: &QuietLogArgs) -> Result<(), Failure> {
    start(&LogArgs { log_format: None, log_level: None }, &args.log_level)
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Format {
    Text,
    Json,
}

/// Parses a level, or a filter by module. A single word that is not a level is refused: it would be taken for the name
/// of a module, and nothing would be logged.
fn filter(text: &str) -> Result<EnvFilter, String> {
    let is_filter = text.contains(['=', ',']);
    if !is_filter && text.parse::<tracing::Level>().is_err() && text != "off" {
        return Err("unknown level".to_owned());
    }
    EnvFilter::try_new(format!("{QUIET},{text}")).map_err(|error| error.to_string())
}

/// Starts the log, at the usual level if the flags give none, and logs panics as one line without a backtrace.
pub(super) fn start(args: &LogArgs, usual: &str) -> Result<(), Failure> {
    let level = args.log_level.as_deref().unwrap_or(usual);
    let filter = filter(level).map_err(|cause| Failure::Usage {
        cause: format!("invalid value {level:?} for '--log-level': {cause}"),
        remedy: "Use error, warn, info, debug or trace, or a filter such as info,windlass::cache=debug."
            .to_owned(),
    })?;
    let is_terminal = std::io::stderr().is_terminal();
    let default = if is_terminal { Format::Text } else { Format::Json };
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(LogWriter::standard_error());
    let started = match args.log_format.unwrap_or(default) {
        Format::Text => builder.with_ansi(is_terminal).try_init(),
        Format::Json => {
            builder.json().flatten_event(true).with_current_span(true).with_span_list(false).try_init()
        }
    };
    started.map_err(|error| Failure::Running(format!("could not start logging: {error}")))?;
    std::panic::set_hook(Box::new(report_panic));
    Ok(())
}

/// Logs a panic with its message and location; the span has the object being synced.
fn report_panic(panic: &PanicHookInfo<'_>) {
    let location = panic.location().map(ToString::to_string).unwrap_or_default();
    let text = panic.payload_as_str().unwrap_or("payload is not a string");
    if tracing::enabled!(tracing::Level::ERROR) {
        tracing::error!(location, panic = text, "Panicked");
    } else {
        log_writer::print_last(&format!("panicked at {location}: {text}"));
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio_util::sync::CancellationToken;

    use super::*;
    use crate::cache::ObjectName;
    use crate::controller::{Controller, Outcome, SyncError, SyncHandler, SyncRequest};
    use crate::testing::capture_json;
    use crate::workqueue::{ItemExponentialFailure, RateLimitingQueue};

    /// Panics in its first pass.
    struct Panics;

    impl SyncHandler for Panics {
        async fn sync(&self, _: &ObjectName, pass: SyncRequest<'_>) -> Result<Outcome, SyncError> {
            assert!(!pass.reasons().is_empty(), "there is no reason");
            Ok(Outcome::Done)
        }
    }

    /// Installs the program's panic hook, and restores the usual hook on drop.
    struct Hook(Option<Box<Report>>);

    type Report = dyn Fn(&PanicHookInfo<'_>) + Send + Sync;

    impl Hook {
        fn ours() -> Self {
            let usual = std::panic::take_hook();
            std::panic::set_hook(Box::new(report_panic));
            Self(Some(usual))
        }
    }

    impl Drop for Hook {
        fn drop(&mut self) {
            // A failing test must not abort the process.
            if !std::thread::panicking()
                && let Some(usual) = self.0.take()
            {
                std::panic::set_hook(usual);
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn sync_panic_is_logged_with_key_and_location() {
        let log = capture_json();
        let queue = RateLimitingQueue::new(ItemExponentialFailure::new(Duration::ZERO, Duration::ZERO));
        let controller = Controller::new("test", queue.clone(), Panics);
        queue.add(ObjectName::new(Some("ns"), "a"));
        let stop = CancellationToken::new();
        let hook = Hook::ours();
        let ends = async {
            tokio::time::sleep(Duration::from_secs(1)).await;
            stop.cancel();
        };
        tokio::join!(controller.run(stop.clone()), ends);
        drop(hook);

        let lines = log.lines();
        let line = lines.iter().find(|line| line["message"] == "Panicked").expect("the panic is logged");
        assert_eq!((&line["level"], &line["panic"]), (&"ERROR".into(), &"there is no reason".into()));
        assert_eq!(line["span"]["object"], "ns/a");
        let location = line["location"].as_str().unwrap();
        assert!(location.starts_with(concat!(file!(), ":")), "{location}");
        assert!(lines.iter().any(|line| line["message"] == "Sync panicked; retrying with backoff"));
    }

    #[test]
    fn unknown_log_level_is_refused() {
        for text in ["info", "DEBUG", "off", "info,windlass=debug", "windlass::cache=trace"] {
            assert!(filter(text).is_ok(), "{text}");
        }
        for text in ["warning", "verbose", "", "a=b=c"] {
            assert!(filter(text).is_err(), "{text:?}");
        }
    }
}
