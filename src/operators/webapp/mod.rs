//! WebApp: several tasks, each of several hooks, run in order on creation and in reverse order on deletion.
//!
//! Mirrors the controller of the source document, whose tasks are Go types behind an interface
//! `TaskExecutor` with the same six hooks.
//!
//! ```text
//! creation, or a new spec     prepare ─▶ workload ─▶ announce      each: pre_create ─▶ create ─▶ post_create
//! deletion                    prepare ◀─ workload ◀─ announce      each: pre_delete ─▶ delete ─▶ post_delete
//! ```
//!
//! The tasks above are those that run without a tasks file; see [`tasks`].

pub mod tasks;
