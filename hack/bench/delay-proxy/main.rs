//! Simulates a slow link to an API server: a TCP proxy on loopback that delays what a client sends.
//!
//! `delay-proxy SERVER MILLISECONDS [KILOBITS]` prints its address, and ends when its standard input does. Each request
//! arrives at the server that much later; all answers together come at no more than so many kilobits a second, if that
//! is given. TLS passes through as it is.

#![allow(clippy::print_stdout, reason = "the address is the result")]
#![allow(clippy::cast_precision_loss, reason = "a buffer is short")]

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use parking_lot::Mutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::Instant;

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let (Some(server), Some(delay), rate, None) =
        (arguments.next(), arguments.next(), arguments.next(), arguments.next())
    else {
        anyhow::bail!("usage: delay-proxy HOST:PORT MILLISECONDS [KILOBITS]");
    };
    let rate = rate.map(|rate| rate.parse::<u32>()).transpose().context("KILOBITS is not a number")?;
    let link = Arc::new(Link { rate, free: Mutex::new(Instant::now()) });
    let delay = Duration::from_millis(delay.parse().context("MILLISECONDS is not a number")?);
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    println!("{}", listener.local_addr()?);
    let mut connections = JoinSet::new();
    let mut input = tokio::io::stdin();
    let mut ignored = [0; 64];
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                connections.spawn(pass_on(accepted?.0, server.clone(), delay, link.clone()));
            }
            Some(ended) = connections.join_next() => {
                // A connection that breaks is the client's affair.
                ended?.ok();
            }
            read = input.read(&mut ignored) => {
                if read? == 0 {
                    return Ok(());
                }
            }
        }
    }
}

/// The way back, which all connections share.
struct Link {
    /// Kilobits a second; `None` without a limit.
    rate: Option<u32>,
    /// When it has sent what was given to it so far.
    free: Mutex<Instant>,
}

impl Link {
    /// Waits until the link has sent so many bytes more.
    async fn send(&self, bytes: usize) {
        let Some(rate) = self.rate else { return };
        let takes = Duration::from_secs_f64(bytes as f64 * 8.0 / 1000.0 / f64::from(rate));
        let sent = {
            let mut free = self.free.lock();
            *free = Instant::now().max(*free) + takes;
            *free
        };
        tokio::time::sleep_until(sent).await;
    }
}

async fn pass_on(client: TcpStream, server: String, delay: Duration, link: Arc<Link>) -> std::io::Result<()> {
    let server = TcpStream::connect(server).await?;
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_server, mut to_server) = server.into_split();
    let (sender, mut held_back) = mpsc::unbounded_channel::<(Instant, Vec<u8>)>();
    let read = async move {
        let mut buffer = vec![0; 64 << 10];
        loop {
            let length = from_client.read(&mut buffer).await?;
            if length == 0 || sender.send((Instant::now() + delay, buffer[..length].to_vec())).is_err() {
                return Ok::<_, std::io::Error>(());
            }
        }
    };
    let write = async move {
        while let Some((due, data)) = held_back.recv().await {
            tokio::time::sleep_until(due).await;
            to_server.write_all(&data).await?;
        }
        to_server.shutdown().await
    };
    let answer = async move {
        let mut buffer = vec![0; 16 << 10];
        loop {
            let length = from_server.read(&mut buffer).await?;
            if length == 0 {
                return to_client.shutdown().await;
            }
            link.send(length).await;
            to_client.write_all(&buffer[..length]).await?;
        }
    };
    tokio::try_join!(read, write, answer).map(drop)
}
