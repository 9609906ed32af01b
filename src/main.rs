//! The `windlass` program; its code is in [`windlass::cli`].

use std::process::ExitCode;

fn main() -> ExitCode {
    windlass::cli::main()
}
