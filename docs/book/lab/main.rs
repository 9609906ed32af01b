//! Fault labs of the book, with the finished code. `cargo run --example lab`
//!
//! `my-lab` is the same with yours.

#![allow(missing_docs, missing_debug_implementations, unreachable_pub, reason = "the chapters explain")]
#![allow(clippy::print_stdout, reason = "a program of the book")]
#![allow(clippy::must_use_candidate, reason = "it is no library")]
#![allow(clippy::disallowed_methods, reason = "tasks end with the runtime of their test")]
#![allow(dead_code, reason = "the labs need only a part of each chapter")]

#[path = "../mini/cluster.rs"]
mod cluster;

#[path = "../mini/ch1.rs"]
mod ch1;
#[path = "../mini/ch2.rs"]
mod ch2;
#[path = "../mini/ch3.rs"]
mod ch3;
#[path = "../mini/ch4.rs"]
mod ch4;
#[path = "../mini/ch5.rs"]
mod ch5;
#[path = "../mini/ch6.rs"]
mod ch6;
#[path = "../mini/ch7.rs"]
mod ch7;
#[path = "../mini/ch8.rs"]
mod ch8;
#[path = "../mini/ch9.rs"]
mod ch9;

mod labs;

#[tokio::main(flavor = "current_thread", start_paused = true)]
async fn main() {
    if let Err(error) = labs::main("lab").await {
        eprintln!("lab: {error}");
        std::process::exit(2);
    }
}
