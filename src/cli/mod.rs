//! The program: flags, environment, signals, exit codes.
//!
//! Mirrors sample-controller `main.go` and the conventions of kube-controller-manager.
//!
//! | exit code | when |
//! |---|---|
//! | 0 | the command succeeded; `run` was stopped by a signal and finished everything in flight |
//! | 1 | the command failed while running: a panic in the machinery, a drain that took too long |
//! | 2 | usage error in a flag, value, controller or file; the message gives the cause, then the remedy |
//!
//! `run --dry-run` ends as `kubectl diff`: 0 nothing would change, 1 something would, 2 errors.

pub(crate) mod crds;
mod debug;
#[cfg(feature = "demo")]
mod demo;
mod endpoints;
mod foreign_flags;
mod log_writer;
mod logging;
mod man;
mod namespaces;
pub(crate) mod run;
mod schema;
mod status;
mod version;

use std::fmt;
use std::process::ExitCode;

use clap::error::ContextKind;
use clap::{CommandFactory, Parser, Subcommand};

use crate::client::ApiClient;
use crate::duration;
#[cfg(feature = "tune")]
use crate::tune;
pub use run::InProcess;

/// A Kubernetes operator built from scratch on the design of client-go
#[derive(Debug, Parser)]
#[command(name = "windlass", version, arg_required_else_help = false, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the operator: watch custom resources and reconcile their children
    Run(Box<run::Args>),
    /// Run the operator without a cluster: embedded API server, samples, live table
    #[cfg(feature = "demo")]
    Demo(demo::Args),
    /// Find the flags for a load: try settings in virtual time, or look at a running operator
    #[cfg(feature = "tune")]
    #[command(subcommand)]
    Tune(tune::Command),
    /// Show who leads, how many objects of each kind are Ready, and why others are not
    Status(status::Args),
    /// Show what a running operator is doing: its queues, its caches, the life of a key
    Debug(debug::Args),
    /// Print the custom resource definitions as YAML, for `kubectl apply -f -`
    Crds(crds::Args),
    /// Print the JSON schema of a file that the program reads
    Schema(schema::Args),
    /// Print version, commit, compiler and supported Kubernetes versions
    Version(version::Args),
    /// Print a completion script for a shell
    Completion {
        /// The shell
        shell: Shell,
    },
    /// Write manual pages, one for each command, to a directory
    Man(man::Args),
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Shell {
    Bash,
    Zsh,
    Fish,
}

/// Why a command fails.
#[derive(Debug)]
pub(crate) enum Failure {
    /// A usage error: what is wrong, and how to fix it.
    Usage { cause: String, remedy: String },
    /// An error while running.
    Running(String),
    /// The process ends at once, and leaves things as they are.
    AtOnce(String),
    /// A dry run has no report.
    Incomplete(String),
}

impl Failure {
    /// Turns a failure while running into one of a dry run.
    fn into_incomplete(self) -> Self {
        match self {
            Self::Running(cause) => Self::Incomplete(cause),
            Self::AtOnce(cause) => Self::Incomplete(cause),
            Self::Usage { .. } | Self::Incomplete(_) => self,
        }
    }

    /// Returns the exit code.
    fn code(&self) -> u8 {
        match self {
            Self::Usage { .. } | Self::Incomplete(_) => 2,
            Self::Running(_) | Self::AtOnce(_) => 1,
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Usage { cause, remedy } => write!(f, "error: {cause}\n\n{remedy}"),
            Self::Running(cause) | Self::Incomplete(cause) => write!(f, "error: {cause}"),
            Self::AtOnce(cause) => write!(f, "error: {cause}"),
        }
    }
}

/// Runs `windlass run` in this process on an existing client, for the demo and for tests.
/// `flags` are the flags of `run`, except those for the cluster and the log; the environment is ignored. Each name
/// received from `signals` acts as a signal, so the second one exits at once.
///
/// # Errors
/// Returns the exit code and the message that the process would end with.
pub async fn run_over(
    client: ApiClient,
    flags: &[&str],
    given: InProcess,
    signals: tokio::sync::mpsc::Receiver<&'static str>,
) -> Result<(), (u8, String)> {
    let ended = run::run_over(client, flags, given, signals).await;
    ended.map_err(|failure| (failure.code(), failure.to_string()))
}

/// Makes `windlass run --dry-run` in this process on an existing client, for tests; see [`run_over`]. Returns the exit
/// code and the report.
///
/// # Errors
/// Returns the exit code and the message that the process would end with.
pub async fn dry_run_over(
    client: ApiClient,
    flags: &[&str],
    seed: u64,
) -> Result<(u8, String), (u8, String)> {
    let ended = run::dry_run_over(client, flags, seed).await;
    ended.map_err(|failure| (failure.code(), failure.to_string()))
}

/// Runs the program with this process's arguments.
#[must_use]
pub fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => match foreign_flags::failure(&error).or_else(|| not_a_number(&error)) {
            Some(failure) => return end_with(&failure),
            // clap prints the error and exits with 2, as we do; help is no error.
            None => error.exit(),
        },
    };
    let done = |()| 0;
    let outcome = match cli.command {
        Command::Run(args) => run::run(&args),
        #[cfg(feature = "demo")]
        Command::Demo(args) => demo::run(&args).map(done),
        #[cfg(feature = "tune")]
        Command::Tune(command) => tune::run(&command).map(done),
        Command::Status(args) => status::run(&args).map(done),
        Command::Debug(args) => debug::run(&args).map(done),
        Command::Crds(args) => crds::run(&args).map(done),
        Command::Schema(args) => schema::run(&args).map(done),
        Command::Version(args) => version::run(&args).map(done),
        Command::Completion { shell } => completion(shell).map(done),
        Command::Man(args) => man::run(&args, Cli::command()).map(done),
    };
    match outcome {
        Ok(code) => {
            log_writer::flush();
            ExitCode::from(code)
        }
        Err(failure) => end_with(&failure),
    }
}

/// Replaces the parser's message about a value that is no whole number.
fn not_a_number(error: &clap::Error) -> Option<Failure> {
    std::error::Error::source(error)?.downcast_ref::<std::num::ParseIntError>()?;
    let of = |kind| error.get(kind).map(ToString::to_string);
    let (value, flag) = (of(ContextKind::InvalidValue)?, of(ContextKind::InvalidArg)?);
    Some(Failure::Usage {
        cause: format!("invalid value '{value}' for '{flag}': not a whole number"),
        remedy: "Write it in digits, such as 8; --help says which numbers are allowed.".to_owned(),
    })
}

/// Prints a failure and returns its exit code.
fn end_with(failure: &Failure) -> ExitCode {
    log_writer::print_last(&failure.to_string());
    ExitCode::from(failure.code())
}

fn completion(shell: Shell) -> Result<(), Failure> {
    let shell = match shell {
        Shell::Bash => clap_complete::Shell::Bash,
        Shell::Zsh => clap_complete::Shell::Zsh,
        Shell::Fish => clap_complete::Shell::Fish,
    };
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "windlass", &mut script);
    print(&String::from_utf8_lossy(&script))
}

/// Writes a result to standard output. A reader that stops early (`| head`) is not a failure.
pub(crate) fn print(text: &str) -> Result<(), Failure> {
    use std::io::Write;
    match std::io::stdout().lock().write_all(text.as_bytes()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(Failure::Running(format!("could not write to standard output: {error}")))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn a_value_that_is_no_whole_number_is_named() {
        let error = Cli::try_parse_from(["windlass", "run", "--queue-qps", "abc"]).unwrap_err();
        let text = not_a_number(&error).unwrap().to_string();
        assert!(
            text.starts_with("error: invalid value 'abc' for '--queue-qps <N>': not a whole number\n"),
            "{text}"
        );
        let error = Cli::try_parse_from(["windlass", "run", "--queue-qps", "0"]).unwrap_err();
        assert!(not_a_number(&error).is_none() && error.to_string().contains("0 is not in 1.."), "{error}");
    }

    #[test]
    fn run_flags_have_env_variable_heading_and_help() {
        let command = Cli::command();
        let run = command.find_subcommand("run").unwrap();
        // Hidden arguments read standard variables, and are no flags.
        let is_flag = |arg: &&clap::Arg| arg.get_id() != "help" && !arg.is_hide_set();
        let flags: Vec<&clap::Arg> = run.get_arguments().filter(is_flag).collect();
        assert!(flags.len() > 10);
        for flag in flags {
            let long = flag.get_long().unwrap();
            let variable = format!("WINDLASS_{}", long.to_uppercase().replace('-', "_"));
            assert_eq!(flag.get_env().unwrap().to_str().unwrap(), variable);
            assert!(flag.get_help_heading().is_some(), "--{long} has no heading");
            assert!(flag.get_help().is_some(), "--{long} has no text");
        }
    }
}
