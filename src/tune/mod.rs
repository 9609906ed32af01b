//! Tuning: from a load, or a running operator, to the flags. `windlass tune` is its command, [`Sweep`] is for controllers of
//! your own.
//!
//! ```text
//! sweep:    load ─▶ trials, one for each setting: Sim ◀─ server model ◀─ operator, in virtual time
//!                        └─▶ figures ─▶ verdict ─▶ report: table, JSON, page
//! record:   /debug/events, or an audit log ─▶ load
//! diagnose: /metrics, twice ─▶ scrape ─▶ figures ─▶ verdict
//! ```
//!
//! | file | holds |
//! |---|---|
//! | `load`, `observed` | the load, from a profile, a file, or a running operator's metrics |
//! | `workload`, `queue_trial` | the work of anybody's operator, from its metrics, and a trial without requests |
//! | `record`, `busiest`, `history` | a load of what an operator met, its busiest stretch, and what the operator did meanwhile |
//! | `setting` | the flags that are varied |
//! | `sweep`, `trial` | all trials, and one of them |
//! | `prepared`, `process` | the server with the objects, as each trial finds it, and the operator |
//! | `program` | the operator that is tried, and its kinds |
//! | `objects`, `tracker`, `samples` | what a trial creates and changes, follows and samples |
//! | `server_model` | the API server's latencies, limits and failures |
//! | `scrape`, `figures` | metrics as text, and what they say |
//! | `api` | sweeps for controllers of a library user |
//! | `verdict`, `report`, `page` | the result in words, as a table, as JSON and as a page |
//! | `diagnose` | a running operator |

mod api;
mod busiest;
mod calibrate;
mod diagnose;
mod figures;
mod history;
mod load;
mod objects;
mod observed;
mod page;
mod prepared;
mod process;
mod program;
mod queue_trial;
mod record;
mod report;
mod samples;
mod scrape;
mod server_model;
mod setting;
mod sweep;
mod tracker;
mod trial;
mod verdict;
mod workload;

pub use api::{Sweep, SweepError, SweepReport};

use crate::cli::Failure;
pub(crate) use load::schema;

/// The subcommands of `windlass tune`.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// Try settings under a load in virtual time, and say which to take
    Sweep(Box<sweep::Args>),
    /// Record what an operator meets, as a load for a sweep
    Record(record::Args),
    /// Look at a running operator for a while, and say which flag to turn
    Diagnose(diagnose::Args),
}

pub(crate) fn run(command: &Command) -> Result<(), Failure> {
    match command {
        Command::Sweep(args) => sweep::run(args),
        Command::Record(args) => record::run(args),
        Command::Diagnose(args) => diagnose::run(args),
    }
}
