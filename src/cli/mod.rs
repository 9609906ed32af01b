//! The program: flags, environment, signals, exit codes.
//!
//! Mirrors sample-controller `main.go` and the conventions of kube-controller-manager.
//!
//! | exit code | when |
//! |---|---|
//! | 0 | it did what was asked; `run` was stopped by a signal and everything in flight ended |
//! | 1 | it failed while running: a panic in the machinery, a drain that took too long |
//! | 2 | wrong usage: a flag, a value, a controller, a file; the cause first, then the remedy |

mod crds;
#[cfg(feature = "demo")]
mod demo;
mod endpoints;
mod logging;
mod run;
mod schema;
mod version;

use std::fmt;
use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};

use crate::client::ApiClient;
use crate::duration;

/// A Kubernetes operator, built by hand from client-go's parts.
#[derive(Debug, Parser)]
#[command(name = "windlass", version, arg_required_else_help = false, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the operator: watch custom resources and keep their children as asked
    Run(Box<run::Args>),
    /// Watch the operator at work, without a cluster: embedded API server, samples, live table
    #[cfg(feature = "demo")]
    Demo(demo::Args),
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
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Shell {
    Bash,
    Zsh,
    Fish,
}

/// Why the program ends without having done what was asked.
#[derive(Debug)]
enum Failure {
    /// The user's to mend: what is wrong, and what to do about it.
    Usage { cause: String, remedy: String },
    /// It happened while running.
    Running(String),
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Usage { cause, remedy } => write!(f, "error: {cause}\n\n{remedy}"),
            Self::Running(cause) => write!(f, "error: {cause}"),
        }
    }
}

/// Runs `windlass run` in this process, over a client that is made elsewhere: for the demo and for tests.
/// `flags` are those of `run`, without the ones for the cluster and the log, and without the environment; what
/// is random comes from `seed`; each name that comes through
/// `signals` is a signal, so the second one ends it at once.
///
/// # Errors
/// The exit code and the message with which the process would end.
pub async fn run_over(
    client: ApiClient,
    flags: &[&str],
    seed: u64,
    signals: tokio::sync::mpsc::Receiver<&'static str>,
) -> Result<(), (u8, String)> {
    run::run_over(client, flags, seed, signals).await.map_err(|failure| {
        let code = if matches!(failure, Failure::Usage { .. }) { 2 } else { 1 };
        (code, failure.to_string())
    })
}

/// Runs the program with this process's arguments.
#[must_use]
pub fn main() -> ExitCode {
    // clap prints wrong usage itself and exits with 2, as we do.
    let outcome = match Cli::parse().command {
        Command::Run(args) => run::run(&args),
        #[cfg(feature = "demo")]
        Command::Demo(args) => demo::run(&args),
        Command::Crds(args) => crds::run(&args),
        Command::Schema(args) => schema::run(&args),
        Command::Version(args) => version::run(&args),
        Command::Completion { shell } => completion(shell),
    };
    let Err(failure) = outcome else { return ExitCode::SUCCESS };
    eprintln!("{failure}");
    match failure {
        Failure::Usage { .. } => ExitCode::from(2),
        Failure::Running(_) => ExitCode::FAILURE,
    }
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

/// Writes a result to standard output. A reader that stops early (`| head`) is no failure.
fn print(text: &str) -> Result<(), Failure> {
    use std::io::Write;
    match std::io::stdout().lock().write_all(text.as_bytes()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(Failure::Running(format!("write to standard output: {error}")))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    /// Every flag of `run` can come from the environment, stands under a heading and has a text.
    #[test]
    fn every_flag_of_run_has_a_variable_a_heading_and_a_text() {
        let command = Cli::command();
        let run = command.find_subcommand("run").unwrap();
        let flags: Vec<&clap::Arg> = run.get_arguments().filter(|arg| arg.get_id() != "help").collect();
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
