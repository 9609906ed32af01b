//! The log, on standard error: text for people, JSON for machines.

use std::io::IsTerminal;

use tracing_subscriber::EnvFilter;

use super::Failure;

/// What libraries below us say too loudly: kube-client reports each lost connection and each refusal at
/// ERROR, which we report once, and prints answers that do not decode whole, secrets included.
const QUIET: &str = "kube_client=off,hyper=warn,tower=warn,rustls=warn";

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Logging")]
pub(super) struct LogArgs {
    /// How lines look; text on a terminal, else json
    #[arg(long, env = "WINDLASS_LOG_FORMAT", value_name = "FORMAT")]
    log_format: Option<Format>,

    /// What is logged: error, warn, info, debug or trace, or a filter by module such as
    /// `info,windlass::cache=debug`
    #[arg(long, env = "WINDLASS_LOG_LEVEL", value_name = "LEVEL", default_value = "info")]
    log_level: String,
}

/// For a command whose output is for people: nothing is logged unless asked for.
#[cfg(feature = "demo")]
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Logging")]
pub(super) struct QuietLogArgs {
    /// What is logged, on standard error: off, error, warn, info, debug or trace, or a filter by module
    #[arg(long, env = "WINDLASS_LOG_LEVEL", value_name = "LEVEL", default_value = "off")]
    log_level: String,
}

#[cfg(feature = "demo")]
impl QuietLogArgs {
    /// Whether nothing is logged.
    pub(super) fn is_silent(&self) -> bool {
        self.log_level == "off"
    }
}

/// Starts the log of such a command.
#[cfg(feature = "demo")]
pub(super) fn start_quietly(args: &QuietLogArgs) -> Result<(), Failure> {
    start(&LogArgs { log_format: None, log_level: args.log_level.clone() })
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Format {
    Text,
    Json,
}

/// A level, or a filter by module. A single word that is no level would be taken for the name of a module,
/// and nothing at all would be logged.
fn filter(text: &str) -> Result<EnvFilter, String> {
    let is_filter = text.contains(['=', ',']);
    if !is_filter && text.parse::<tracing::Level>().is_err() && text != "off" {
        return Err("this is no level".to_owned());
    }
    EnvFilter::try_new(format!("{QUIET},{text}")).map_err(|error| error.to_string())
}

/// Starts the log; a panic becomes a line of it, without a backtrace.
pub(super) fn start(args: &LogArgs) -> Result<(), Failure> {
    let filter = filter(&args.log_level).map_err(|cause| Failure::Usage {
        cause: format!("invalid value {:?} for '--log-level': {cause}", args.log_level),
        remedy: "Write error, warn, info, debug or trace, or a filter such as info,windlass::cache=debug."
            .to_owned(),
    })?;
    let is_terminal = std::io::stderr().is_terminal();
    let default = if is_terminal { Format::Text } else { Format::Json };
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    let started = match args.log_format.unwrap_or(default) {
        Format::Text => builder.with_ansi(is_terminal).try_init(),
        Format::Json => {
            builder.json().flatten_event(true).with_current_span(true).with_span_list(false).try_init()
        }
    };
    started.map_err(|error| Failure::Running(format!("start the log: {error}")))?;
    std::panic::set_hook(Box::new(|panic| {
        let place = panic.location().map(ToString::to_string).unwrap_or_default();
        let text = panic.payload_as_str().unwrap_or("of another type");
        if tracing::enabled!(tracing::Level::ERROR) {
            tracing::error!(place, panic = text, "Panicked");
        } else {
            eprintln!("panicked at {place}: {text}");
        }
    }));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_that_is_no_level_is_refused() {
        for text in ["info", "DEBUG", "off", "info,windlass=debug", "windlass::cache=trace"] {
            assert!(filter(text).is_ok(), "{text}");
        }
        for text in ["warning", "verbose", "", "a=b=c"] {
            assert!(filter(text).is_err(), "{text:?}");
        }
    }
}
