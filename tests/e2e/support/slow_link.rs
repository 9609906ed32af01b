//! A slow link to the real API server: the proxy of the benchmarks, as a child process that ends with its standard input.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use super::launcher::example;

/// See the module.
#[derive(Debug)]
pub(crate) struct SlowLink {
    pub(crate) address: String,
    child: Child,
}

impl SlowLink {
    /// Starts a link to this host and port, over which each request arrives so much later.
    pub(crate) fn to(server: &str, delay: Duration) -> Self {
        let mut child = Command::new(example("delay-proxy"))
            .args([server, &delay.as_millis().to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the proxy starts");
        let mut address = String::new();
        let stdout = child.stdout.take().expect("stdout is piped");
        BufReader::new(stdout).read_line(&mut address).expect("the proxy prints its address");
        Self { address: address.trim().to_owned(), child }
    }
}

impl Drop for SlowLink {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        drop(self.child.wait());
    }
}
