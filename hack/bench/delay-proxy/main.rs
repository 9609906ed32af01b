//! Adds latency to every request to an API server: a TCP proxy on loopback that holds back what a client sends.
//!
//! `delay-proxy SERVER MILLISECONDS` prints its address, and ends when its standard input does. Each request arrives
//! at the server that much later; TLS and answers pass through as they are.

#![allow(clippy::print_stdout, reason = "the address is the result")]

use std::time::Duration;

use anyhow::Context;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::Instant;

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let (Some(server), Some(delay), None) = (arguments.next(), arguments.next(), arguments.next()) else {
        anyhow::bail!("usage: delay-proxy HOST:PORT MILLISECONDS");
    };
    let delay = Duration::from_millis(delay.parse().context("MILLISECONDS is not a number")?);
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    println!("{}", listener.local_addr()?);
    let mut connections = JoinSet::new();
    let mut input = tokio::io::stdin();
    let mut ignored = [0; 64];
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                connections.spawn(pass_on(accepted?.0, server.clone(), delay));
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

async fn pass_on(client: TcpStream, server: String, delay: Duration) -> std::io::Result<()> {
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
        tokio::io::copy(&mut from_server, &mut to_client).await?;
        to_client.shutdown().await
    };
    tokio::try_join!(read, write, answer).map(drop)
}
