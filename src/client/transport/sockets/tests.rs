//! Tests of the options of sockets, and of what the kernel makes of them.

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use super::*;

const UNACKNOWLEDGED: Duration = super::super::UNACKNOWLEDGED[0];

#[tokio::test]
async fn sockets_are_watched_and_sent_at_once() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("https://{}/", listener.local_addr().unwrap()).parse().unwrap();
    let socket = Sockets::unbounded(UNACKNOWLEDGED).oneshot(url).await.unwrap().into_inner();
    assert!(socket.stream.nodelay().unwrap(), "no delay by Nagle's algorithm");
    assert!(rustix::net::sockopt::socket_keepalive(&socket.stream).unwrap());
    assert_eq!(rustix::net::sockopt::tcp_keepidle(&socket.stream).unwrap(), PROBED_AFTER);
    assert_eq!(rustix::net::sockopt::tcp_keepintvl(&socket.stream).unwrap(), PROBED_EVERY);
    let unacknowledged = rustix::net::sockopt::tcp_user_timeout(&socket.stream).unwrap();
    assert_eq!(u128::from(unacknowledged), UNACKNOWLEDGED.as_millis());
}

#[tokio::test]
async fn waiting_for_a_socket_ends_with_another() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url: Uri = format!("https://{}/", listener.local_addr().unwrap()).parse().unwrap();
    let sockets = Sockets::new(Arc::new(Semaphore::new(1)), UNACKNOWLEDGED);
    let first = sockets.clone().oneshot(url.clone()).await.unwrap();
    let mut second = std::pin::pin!(sockets.oneshot(url));
    // Real time: the kernel connects on loopback within microseconds.
    let early = tokio::time::timeout(Duration::from_millis(200), &mut second).await;
    assert!(early.is_err(), "one is open");
    drop(first);
    second.await.unwrap();
}

/// Runs a test of this file in a network namespace of its own, whose loopback it may cut. Returns whether that could be
/// done: it needs `unshare` and `ip`, and the right to make namespaces.
fn in_own_network(test: &str) -> bool {
    let unshare = |command: &[&std::ffi::OsStr]| {
        let mut unshare = std::process::Command::new("unshare");
        unshare.args(["--map-root-user", "--net"]).args(command);
        unshare.env("OWN_NETWORK", "1").output()
    };
    let tried = unshare(&["ip".as_ref(), "link".as_ref(), "set".as_ref(), "lo".as_ref(), "up".as_ref()]);
    if !tried.as_ref().is_ok_and(|output| output.status.success()) {
        return false;
    }
    let program = std::env::current_exe().unwrap();
    let name = format!("client::transport::sockets::tests::{test}");
    let arguments = ["--exact", &name, "--nocapture", "--test-threads=1"].map(std::ffi::OsStr::new);
    let output = unshare(&[&[program.as_os_str()], &arguments[..]].concat()).unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    assert!(text.contains("1 passed"), "{text}");
    true
}

async fn set_loopback(state: &str) {
    let set = tokio::process::Command::new("ip").args(["link", "set", "lo", state]).status().await;
    assert!(set.unwrap().success());
}

/// A write is cut while the network is down, as at the end of a Lease; the network comes back.
#[allow(clippy::print_stderr, reason = "a test that cannot run says so")]
#[tokio::test]
async fn cut_request_does_not_arrive_late() {
    if std::env::var_os("OWN_NETWORK").is_none() {
        if !in_own_network("cut_request_does_not_arrive_late") {
            eprintln!("skipped: needs unshare and ip, and the right to make network namespaces");
        }
        return;
    }
    set_loopback("up").await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("https://{}/", listener.local_addr().unwrap()).parse().unwrap();
    let mut sent = Sockets::unbounded(UNACKNOWLEDGED).oneshot(url).await.unwrap().into_inner();
    let (mut arrived, _) = listener.accept().await.unwrap();
    sent.write_all(b"in time").await.unwrap();
    let mut bytes = [0; 16];
    assert_eq!(arrived.read(&mut bytes).await.unwrap(), 7);

    set_loopback("down").await;
    sent.write_all(b"late").await.unwrap();
    drop(sent);
    // The kernel's own time, which no test can pause. Its retransmissions are up to twice as far apart each time.
    tokio::time::sleep(2 * UNACKNOWLEDGED).await;
    set_loopback("up").await;
    let late = tokio::time::timeout(2 * UNACKNOWLEDGED, arrived.read(&mut bytes)).await;
    assert!(!matches!(late, Ok(Ok(1..))), "{late:?} arrived: {bytes:?}");
}
