//! The controller that you build: a chapter a module. Where you come in there is a `todo!`.
//!
//! `cargo test --test start ch1` runs the tests of chapter 1. The book begins with `docs/book/src/introduction.md`.

#![allow(missing_docs, missing_debug_implementations, unreachable_pub, reason = "the chapters explain")]
#![allow(clippy::unwrap_used, reason = "a panic fails the test")]
#![allow(clippy::must_use_candidate, reason = "it is no library")]
#![allow(clippy::disallowed_methods, reason = "tasks end with the runtime of their test")]
#![allow(dead_code, unused_imports, unused_mut, unused_variables, reason = "it is not finished")]
#![allow(clippy::todo, clippy::ptr_arg, clippy::needless_pass_by_value, reason = "it is not finished")]

#[path = "../mini/cluster.rs"]
mod cluster;

mod ch1;
mod ch2;
mod ch3;
mod ch4;
mod ch5;
mod ch6;
mod ch7;
mod ch8;
mod ch9;

#[path = "../tests/mod.rs"]
mod tests;
