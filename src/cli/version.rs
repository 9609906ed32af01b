//! `windlass version`: version, commit, compiler and supported Kubernetes versions.

use serde_json::json;

use super::{Failure, print};

/// The Kubernetes version whose types this program was compiled with.
const COMPILED_FOR: &str = if cfg!(feature = "k8s-v1-36") { "1.36" } else { "1.37" };
/// The supported Kubernetes versions: since 1.31 the API server answers consistent reads from its cache.
const SUPPORTED: &str = "1.31 or newer, tested with 1.37";

/// The labels of the metric `windlass_build_info`.
pub(super) const BUILD: [(&str, &str); 3] = [
    ("version", env!("CARGO_PKG_VERSION")),
    ("commit", env!("WINDLASS_COMMIT")),
    ("rustc", env!("WINDLASS_RUSTC")),
];

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Output format
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
