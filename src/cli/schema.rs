//! `windlass schema`: the form of the files that the program reads.

use super::{Failure, print};
use crate::operators::webapp::tasks::file;

/// The one file that has a schema.
const TASKS: &str = "webapp-tasks";

#[derive(Debug, clap::Args)]
#[command(after_help = "\
webapp-tasks: the tasks that are run for each WebApp, as a file in YAML or JSON:

  tasks:
  - {name: prepare, type: log}
  - {name: workload, type: deployment}
  - {name: notify, type: http, url: https://hooks.example.com/webapps, timeout: 10s}

An editor checks a file while it is written when its first line is
  # yaml-language-server: $schema=webapp-tasks.json
with the output of this command in webapp-tasks.json beside it.")]
pub(super) struct Args {
    /// Whose schema (JSON Schema, draft 2020-12): `webapp-tasks`
    #[arg(value_name = "FILE")]
    name: String,
}

pub(super) fn run(args: &Args) -> Result<(), Failure> {
    if args.name != TASKS {
        return Err(Failure::Usage {
            cause: format!("there is no schema {:?}", args.name),
            remedy: format!("Schemas: {TASKS}."),
        });
    }
    print(&format!("{:#}\n", file::schema()))
}
