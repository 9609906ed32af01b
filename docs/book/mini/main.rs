//! The controller that the book builds, a chapter a module, and the tests of each chapter.
//!
//! `cargo test --test mini` runs all; `docs/book/start` is the same with the reader's work left out.

#![allow(missing_docs, missing_debug_implementations, unreachable_pub, reason = "the chapters explain")]
#![allow(clippy::unwrap_used, reason = "a panic fails the test")]
#![allow(clippy::must_use_candidate, reason = "it is no library")]
#![allow(clippy::disallowed_methods, reason = "tasks end with the runtime of their test")]
#![allow(dead_code, reason = "chapters add what later ones use")]

#[path = "cluster.rs"]
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

mod book;
#[path = "../tests/mod.rs"]
mod tests;
mod traces;
