//! The demo: the operator at work, without a cluster. `cli::demo` runs it as `windlass demo`.
//!
//! The demo starts the embedded API server (or uses the cluster of `--kubeconfig`), creates the definitions and samples
//! of all kinds, runs the operator as `run` does, and shows what happens.
//!
//! ```text
//! Sim ◀─InProcessTransport── operator (run_over)          ┌─▶ Board ─▶ rows ─▶ table or lines on standard output
//!  ▲ ◀─InProcessTransport── setup: definitions, samples   │     └─▶ Scaling: a Redis, up and down
//!  ▲ ◀─InProcessTransport── Load ◀── Panel ◀── the page   └─ informers of its own
//!  └──https── kubectl in another terminal
//! ```
//!
//! | file | holds |
//! |---|---|
//! | `kinds.rs` | the list of kinds: add a new kind there |
//! | `setup.rs`, `server.rs` | definitions and samples, and the server to create them on |
//! | `seen.rs`, `row.rs` | the fields read of any kind of object, and the row made of them |
//! | `board.rs`, `table.rs` | all rows, and the printing |
//! | `scaling.rs` | the automatic scaling of a Redis |
//! | `switches.rs`, `load.rs` | what the page changes: limits, faults, objects |
//!
//! # Guarantees
//! - Exits with 0 when all samples are Ready (`--once`) or when stopped, with 1 when `--once` runs out of time
//!   (test: `once_exits_0_when_all_samples_are_ready`, `once_exits_1_with_reasons_when_not_ready`)
//! - A taken port and a bad samples file are usage errors (test: `taken_port_and_bad_samples_file_are_refused`)
//! - Children changed with kubectl are repaired (test: `external_changes_are_repaired`)
//! - A Redis is scaled up and down automatically, except with `--once` (test: `demo_scales_a_redis`)
//! - The page shows the operator live, and has switches on the embedded server alone
//!   (test: `page_shows_a_scaled_redis_and_no_error`, `page_of_run_has_no_switches`)

pub(crate) mod board;
mod kinds;
mod load;
mod row;
pub(crate) mod scaling;
pub(crate) mod seen;
pub(crate) mod server;
pub(crate) mod setup;
mod switches;
mod table;
