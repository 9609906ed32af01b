//! `windlass version`.

use serde_json::json;

use super::{Failure, print};

/// The Kubernetes version whose types this program was compiled with.
const COMPILED_FOR: &str = "1.36";
/// The Kubernetes versions that it is for: its tests run on the one that it was compiled for; consistent
/// reads are answered from the API server's cache since 1.31.
const SUPPORTED: &str = "1.31 or newer, tested with 1.36";

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// How to print it
    #[arg(short, long, value_name = "FORMAT", default_value = "text")]
    output: Output,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Output {
    Text,
    Json,
}

pub(super) fn run(args: &Args) -> Result<(), Failure> {
    let version = env!("CARGO_PKG_VERSION");
    let commit = env!("WINDLASS_COMMIT");
    let rustc = env!("WINDLASS_RUSTC");
    match args.output {
        Output::Text => print(&format!(
            "windlass {version}\ncommit: {commit}\ncompiler: {rustc}\n\
             Kubernetes: {SUPPORTED} (types of {COMPILED_FOR})\n"
        )),
        Output::Json => {
            let json = json!({
                "version": version,
                "commit": commit,
                "rustc": rustc,
                "kubernetes": {"supported": SUPPORTED, "types": COMPILED_FOR},
            });
            print(&format!("{json:#}\n"))
        }
    }
}
