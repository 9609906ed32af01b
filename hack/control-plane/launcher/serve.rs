//! Serves a control plane to a program: prints one line of JSON when it is ready, then one per command.
//!
//! | command | what it does |
//! |---|---|
//! | `kill NAME` | kills a process |
//! | `start NAME` | restarts a killed process; waits until the API server is ready |
//! | `freeze NAME`, `thaw NAME` | sends a process SIGSTOP, SIGCONT |
//! | `replace-authority` | restarts everything but etcd with a server certificate of a new authority, and returns its file |
//! | `identity USER [GROUP ...]` | writes a kubeconfig for a user and returns its path |
//!
//! When standard input closes, because the caller exits or crashes, the launcher stops everything and exits.

use anyhow::{Context, bail};
use rustix::process::Signal;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, BufReader};

use crate::assets::Assets;
use crate::instance::{Extent, Instance, is_beside};

pub(crate) async fn serve(assets: &Assets, extent: &Extent, restart: bool) -> anyhow::Result<()> {
    let mut instance = Instance::start(assets, None, extent).await?;
    let ready = json!({
        "kubeconfig": instance.kubeconfig(),
        "dir": instance.dir(),
        "auditLog": instance.audit_log(),
        "etcd": instance.etcd_url(),
        "pids": instance.pids(),
        "kubectl": assets.path("kubectl"),
    });
    println!("{ready}");
    let mut commands = BufReader::new(tokio::io::stdin()).lines();
    loop {
        let line = tokio::select! {
            biased;
            line = commands.next_line() => line.context("read a command")?,
            (name, error) = instance.failed() => {
                if restart && is_beside(name) {
                    eprintln!("control-plane: starting {name} again: {error:#}");
                    instance.restart(name).await?;
                    continue;
                }
                instance.stop().await;
                return Err(error);
            }
        };
        let Some(line) = line else { break };
        let answer = obey(&mut instance, &line).await;
        println!("{}", answer.unwrap_or_else(|error| json!({"error": format!("{error:#}")})));
    }
    instance.stop().await;
    Ok(())
}

async fn obey(instance: &mut Instance, line: &str) -> anyhow::Result<Value> {
    match line.split_whitespace().collect::<Vec<_>>()[..] {
        ["kill", name] => instance.kill(name).await?,
        ["start", name] => instance.restart(name).await?,
        ["freeze", name] => instance.signal(name, Signal::STOP)?,
        ["thaw", name] => instance.signal(name, Signal::CONT)?,
        ["replace-authority"] => {
            return Ok(json!({"authority": instance.replace_authority().await?}));
        }
        ["identity", user, ref groups @ ..] => {
            let groups: Vec<String> = groups.iter().map(|group| (*group).to_owned()).collect();
            return Ok(json!({"kubeconfig": instance.identity(user, &groups)?}));
        }
        _ => bail!("unknown command {line:?}"),
    }
    Ok(json!({}))
}
