//! The `windlass` program; everything it does is in [`windlass::cli`].

use std::process::ExitCode;

fn main() -> ExitCode {
    windlass::cli::main()
}
