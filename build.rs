//! Gives `windlass version` the commit and the compiler that it was built from and by.

use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=.git/HEAD");
    println!("cargo::rerun-if-changed=.git/refs/heads");
    let rustc = std::env::var("RUSTC").unwrap_or_else(|_| "rustc".to_owned());
    println!("cargo::rustc-env=WINDLASS_COMMIT={}", first_line("git", &["rev-parse", "--short=12", "HEAD"]));
    println!("cargo::rustc-env=WINDLASS_RUSTC={}", first_line(&rustc, &["--version"]));
}

/// Returns the first line of a command's output, or `unknown` (a build from a package has no repository).
fn first_line(program: &str, args: &[&str]) -> String {
    let output = Command::new(program).args(args).output().ok().filter(|output| output.status.success());
    let text = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
    text.lines().next().map_or_else(|| "unknown".to_owned(), str::to_owned)
}
