//! A TCP proxy between the operator and the API server, whose connections can be cut or stalled.

use std::io;
use std::path::{Path, PathBuf};

use anyhow::Context;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

/// What happens to connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Gate {
    /// Bytes pass.
    Open,
    /// Connections are closed, and new ones at once.
    Cut,
    /// Connections stay open, but no byte passes.
    Stalled,
}

/// A running proxy, which ends on drop.
pub(crate) struct Proxy {
    gate: watch::Sender<Gate>,
    _serving: JoinSet<io::Result<()>>,
}

impl Proxy {
    /// Starts a proxy in front of the server that a kubeconfig names. Returns it, and a kubeconfig in `dir` that leads
    /// through it.
    pub(crate) async fn before(kubeconfig: &Path, dir: &Path) -> anyhow::Result<(Self, PathBuf)> {
        let text = tokio::fs::read_to_string(kubeconfig).await?;
        let (_, rest) = text.split_once("https://").context("the kubeconfig names a server")?;
        let server: String =
            rest.chars().take_while(|c| *c == '.' || *c == ':' || c.is_ascii_digit()).collect();
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let through = dir.join("through-proxy.kubeconfig");
        tokio::fs::write(&through, text.replace(&server, &listener.local_addr()?.to_string())).await?;
        let (gate, seen) = watch::channel(Gate::Open);
        let mut serving = JoinSet::new();
        serving.spawn(serve(listener, server, seen));
        Ok((Self { gate, _serving: serving }, through))
    }

    pub(crate) fn set(&self, gate: Gate) {
        self.gate.send_replace(gate);
    }
}

async fn serve(listener: TcpListener, server: String, gate: watch::Receiver<Gate>) -> io::Result<()> {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                connections.spawn(until_cut(accepted?.0, server.clone(), gate.clone()));
            }
            Some(ended) = connections.join_next() => ended?,
        }
    }
}

/// Passes bytes both ways until an end closes the connection, or the gate cuts it.
async fn until_cut(client: TcpStream, server: String, mut gate: watch::Receiver<Gate>) {
    let passing = pass_on(client, server, gate.clone());
    tokio::select! {
        // A connection that breaks is the affair of its ends.
        ended = passing => drop(ended),
        cut = gate.wait_for(|gate| *gate == Gate::Cut) => drop(cut),
    }
}

async fn pass_on(client: TcpStream, server: String, gate: watch::Receiver<Gate>) -> io::Result<()> {
    let server = TcpStream::connect(server).await?;
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    tokio::try_join!(copy(from_client, to_server, gate.clone()), copy(from_server, to_client, gate)).map(drop)
}

async fn copy(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    mut gate: watch::Receiver<Gate>,
) -> io::Result<()> {
    let mut buffer = vec![0; 64 << 10];
    loop {
        let length = from.read(&mut buffer).await?;
        drop(gate.wait_for(|gate| *gate != Gate::Stalled).await);
        if length == 0 {
            return to.shutdown().await;
        }
        to.write_all(&buffer[..length]).await?;
    }
}
