//! `windlass schema`: the JSON schema of the files that the program reads.

use super::{Failure, print};
use crate::operators::webapp::tasks::file;

const TASKS: &str = "webapp-tasks";
#[cfg(feature = "tune")]
const LOAD: &str = "tune-load";

type Schema = fn() -> serde_json::Value;

/// The files that have a schema, and the schemas.
const SCHEMAS: &[(&str, Schema)] = &[
    (TASKS, file::schema),
    #[cfg(feature = "tune")]
    (LOAD, crate::tune::schema),
];

#[derive(Debug, clap::Args)]
#[command(after_help = "\
webapp-tasks: the tasks to run for each WebApp, a file in YAML or JSON:

  tasks:
  - {name: prepare, type: log}
  - {name: workload, type: deployment}
  - {name: notify, type: http, url: https://hooks.example.com/webapps, timeout: 10s}

Editors with a YAML language server validate a file whose first line is
  # yaml-language-server: $schema=webapp-tasks.json
and whose folder contains the output of this command as webapp-tasks.json.")]
pub(super) struct Args {
    /// File whose JSON Schema (draft 2020-12) to print: `webapp-tasks`, or `tune-load` for `windlass tune sweep --load`
    #[arg(value_name = "FILE")]
    name: String,
}

pub(super) fn run(args: &Args) -> Result<(), Failure> {
    let Some((_, schema)) = SCHEMAS.iter().find(|(name, _)| *name == args.name) else {
        let names: Vec<&str> = SCHEMAS.iter().map(|(name, _)| *name).collect();
        return Err(Failure::Usage {
            cause: format!("unknown schema {:?}", args.name),
            remedy: format!("Schemas: {}.", names.join(", ")),
        });
    };
    print(&format!("{:#}\n", schema()))
}
