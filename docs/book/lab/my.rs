//! Fault labs of the book, with your code. `cargo run --example my-lab`
//!
//! `lab` is the same with the finished code.

#![allow(missing_docs, missing_debug_implementations, unreachable_pub, reason = "the chapters explain")]
#![allow(clippy::print_stdout, reason = "a program of the book")]
#![allow(clippy::must_use_candidate, reason = "it is no library")]
#![allow(clippy::disallowed_methods, reason = "tasks end with the runtime of their test")]
#![allow(dead_code, unused_imports, unused_mut, unused_variables, reason = "it is not finished")]
#![allow(clippy::todo, clippy::ptr_arg, clippy::needless_pass_by_value, reason = "it is not finished")]

#[path = "../mini/cluster.rs"]
mod cluster;

#[path = "../start/ch1.rs"]
mod ch1;
#[path = "../start/ch2.rs"]
mod ch2;
#[path = "../start/ch3.rs"]
mod ch3;
#[path = "../start/ch4.rs"]
mod ch4;
#[path = "../start/ch5.rs"]
mod ch5;
#[path = "../start/ch6.rs"]
mod ch6;
#[path = "../start/ch7.rs"]
mod ch7;
#[path = "../start/ch8.rs"]
mod ch8;
#[path = "../start/ch9.rs"]
mod ch9;

mod labs;

#[tokio::main(flavor = "current_thread", start_paused = true)]
async fn main() {
    if let Err(error) = labs::main("my-lab").await {
        eprintln!("my-lab: {error}");
        std::process::exit(2);
    }
}
