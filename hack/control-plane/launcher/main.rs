//! Builds and starts a real Kubernetes control plane for tests and manual use: etcd, kube-apiserver,
//! kube-controller-manager, kube-scheduler, and KWOK as the kubelet.
//!
//! The launcher is a separate process, so that nothing outlives a test that crashes: in `serve` it stops its
//! children when its standard input closes.
//!
//! - `build`: builds the programs that are not in the cache.
//! - `kubectl`: prints the path of kubectl if it is there; builds nothing.
//! - `up`: starts everything and stays in the foreground until Ctrl-C.
//! - `serve`: starts everything for a program: prints one line of JSON, then reads commands from standard input
//!   and answers each with one line of JSON (see [`serve`]).

#![allow(clippy::print_stdout, reason = "results go to standard output")]

mod assets;
mod certificates;
mod instance;
mod serve;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use clap::{Parser, Subcommand};
use tokio::signal::unix::{SignalKind, signal};

use assets::Assets;
use instance::{Extent, Instance};

/// A real Kubernetes control plane on loopback: etcd, API server, controllers, scheduler, fake kubelet.
#[derive(Parser)]
#[command(name = "control-plane")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Build what is not in the cache yet, and say what came from where.
    Build,
    /// Print where kubectl is; fails when it is not there, and builds nothing.
    Kubectl,
    /// Start it, print how to use it, and stay until Ctrl-C.
    Up {
        /// Where to keep its state; a temporary folder when left out.
        #[arg(long)]
        dir: Option<PathBuf>,
    },
    /// Start it for a program: JSON lines on standard output, commands on standard input.
    Serve {
        #[command(flatten)]
        extent: Extent,
        /// Start controllers, scheduler and fake kubelet again when they exit, as a kubelet does. Without this, it all
        /// ends then.
        #[arg(long)]
        restart: bool,
    },
}

fn main() -> ExitCode {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let outcome = runtime.context("start the runtime").and_then(|runtime| {
        let outcome = runtime.block_on(run(Cli::parse()));
        // A build that is still running must not delay the exit.
        runtime.shutdown_background();
        outcome
    });
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("control-plane: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Runs the command until it completes or a signal arrives. Dropping the command's future kills the processes
/// that it has started.
async fn run(cli: Cli) -> anyhow::Result<()> {
    let mut signals = [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()].map(signal);
    let [Ok(interrupt), Ok(terminate), Ok(hangup)] = &mut signals else {
        anyhow::bail!("signals cannot be listened for");
    };
    tokio::select! {
        biased;
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
        _ = hangup.recv() => {}
        outcome = obey(cli) => return outcome,
    }
    eprintln!("Stopped.");
    Ok(())
}

async fn obey(cli: Cli) -> anyhow::Result<()> {
    if let Command::Kubectl = cli.command {
        println!("{}", Assets::find_kubectl()?.display());
        return Ok(());
    }
    let assets = tokio::task::spawn_blocking(Assets::find_or_build).await??;
    match cli.command {
        Command::Build => {
            print!("{}", assets.table());
            Ok(())
        }
        Command::Kubectl => unreachable!("handled above"),
        Command::Up { dir } => up(&assets, dir).await,
        Command::Serve { extent, restart } => {
            eprint!("{}", assets.table());
            serve::serve(&assets, &extent, restart).await
        }
    }
}

async fn up(assets: &Assets, dir: Option<PathBuf>) -> anyhow::Result<()> {
    eprint!("{}", assets.table());
    let mut instance = Instance::start(assets, dir, &Extent::default()).await?;
    println!("A Kubernetes control plane is up. In another terminal:");
    println!("  export KUBECONFIG={}", instance.kubeconfig().display());
    println!("  export PATH={}:$PATH", assets.kubectl_dir().display());
    println!("Logs and the audit log are in {}. Ctrl-C stops it.", instance.dir().display());
    Err(instance.failed().await.1)
}
