//! The signals that ask a process to stop.
//!
//! Mirrors controller-runtime `pkg/manager/signals`.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc;

/// Where a manager hears that it should stop.
#[derive(Debug)]
pub enum Signals {
    /// The process's own.
    #[non_exhaustive]
    Process {
        /// SIGINT.
        interrupt: Signal,
        /// SIGTERM.
        terminate: Signal,
        /// SIGHUP.
        hangup: Signal,
    },
    /// Names that somebody in this process sends.
    Channel(mpsc::Receiver<&'static str>),
}

// === impl Signals ===

impl Signals {
    /// Listens for SIGINT, SIGTERM and SIGHUP, which then no longer end the process by themselves.
    ///
    /// # Errors
    /// Those of the operating system.
    pub fn listen() -> io::Result<Self> {
        Ok(Self::Process {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            hangup: signal(SignalKind::hangup())?,
        })
    }

    /// Waits for the next signal; returns its name. Never returns once the channel is closed. Cancel-safe.
    pub async fn next(&mut self) -> &'static str {
        match self {
            Self::Process { interrupt, terminate, hangup } => tokio::select! {
                biased;
                _ = interrupt.recv() => "SIGINT",
                _ = terminate.recv() => "SIGTERM",
                _ = hangup.recv() => "SIGHUP",
            },
            Self::Channel(signals) => match signals.recv().await {
                Some(name) => name,
                None => std::future::pending().await,
            },
        }
    }
}
