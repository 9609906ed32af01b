//! Tests of connections to servers of the test's own.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::*;

const OK: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n";

/// Serves HTTP without an answer's body until dropped.
struct Server {
    url: Uri,
    accepted: Arc<AtomicUsize>,
    /// The number of open connections.
    open: watch::Receiver<usize>,
    _task: JoinSet<()>,
}

impl Server {
    /// `/hangs` is never answered.
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/", listener.local_addr().unwrap()).parse().unwrap();
        let ((opened, open), accepted) = (watch::channel(0), Arc::<AtomicUsize>::default());
        let mut task = JoinSet::new();
        let counted = accepted.clone();
        task.spawn(async move {
            let mut connections = JoinSet::new();
            loop {
                let (socket, _) = listener.accept().await.unwrap();
                opened.send_modify(|open| *open += 1);
                counted.fetch_add(1, Ordering::Relaxed);
                let opened = opened.clone();
                connections.spawn(async move {
                    drop(answer_requests(socket).await);
                    opened.send_modify(|open| *open -= 1);
                });
            }
        });
        Self { url, accepted, open, _task: task }
    }

    fn config(&self) -> Config {
        Config::new(self.url.clone())
    }
}

async fn answer_requests(socket: TcpStream) -> std::io::Result<()> {
    let mut socket = BufReader::new(socket);
    loop {
        let head = head_of(&mut socket).await?;
        if head.starts_with("GET /hangs") {
            // Until the client closes the connection.
            socket.read_u8().await?;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
        socket.write_all(OK).await?;
    }
}

/// Reads the head of a request; fails at the end of the connection.
async fn head_of(socket: &mut BufReader<TcpStream>) -> std::io::Result<String> {
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if socket.read_line(&mut head).await? == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
    }
    Ok(head)
}

fn get(path: &'static str, lane: Option<Lane>) -> Request<Body> {
    let mut request = Request::get(path).body(Body::empty()).unwrap();
    if let Some(lane) = lane {
        request.extensions_mut().insert(lane);
    }
    request
}

/// Connects with so many connections for syncs.
fn connect_with(config: &Config, sockets: usize) -> Result<Connections, Error> {
    connect(config, &Arc::new(Semaphore::new(sockets)))
}

/// Waits at most half a minute, in real time: sockets know no other.
async fn soon<T>(what: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(30), what).await.expect("within 30 s")
}

#[tokio::test]
async fn connections_of_a_burst_are_closed_when_idle() {
    let mut server = Server::start().await;
    let client = pool(HttpConnector::new(), Duration::from_millis(50), usize::MAX);
    let burst =
        (0..10).map(|_| client.request(Request::get(server.url.clone()).body(Body::empty()).unwrap()));
    futures_util::future::try_join_all(burst).await.unwrap();
    assert_eq!(server.accepted.load(Ordering::Relaxed), 10);
    drop(soon(server.open.wait_for(|open| *open == 0)).await.unwrap());
}

#[tokio::test]
async fn open_sockets_are_bounded() {
    let server = Server::start().await;
    let connections = connect_with(&server.config(), 3).unwrap();
    let burst = (0..20).map(|_| connections.clone().oneshot(get("/", Some(Lane::Sync))));
    soon(futures_util::future::try_join_all(burst)).await.unwrap();
    let accepted = server.accepted.load(Ordering::Relaxed);
    assert!((1..=3).contains(&accepted), "{accepted} connections");
}

#[tokio::test]
async fn lease_is_renewed_while_other_requests_hang() {
    let mut server = Server::start().await;
    let connections = connect_with(&server.config(), 3).unwrap();
    let mut hanging = JoinSet::new();
    for _ in 0..20 {
        hanging.spawn(connections.clone().oneshot(get("/hangs", Some(Lane::Sync))));
    }
    drop(soon(server.open.wait_for(|open| *open == 3)).await.unwrap());
    for _ in 0..3 {
        soon(connections.clone().oneshot(get("/lease", Some(Lane::Election)))).await.unwrap();
    }
    assert_eq!(server.accepted.load(Ordering::Relaxed), 4, "the renewals share a connection");
    soon(connections.clone().oneshot(get("/watch", None))).await.unwrap();
    assert!(hanging.try_join_next().is_none(), "nothing else is answered");
}

/// As after the failover of a load balancer: the warm connection is silent, and new ones work.
#[tokio::test]
async fn silent_connection_costs_the_lease_one_request() {
    let server = Server::start().await;
    let connections = connect_with(&server.config(), 3).unwrap();
    soon(connections.clone().oneshot(get("/lease", Some(Lane::Election)))).await.unwrap();
    let silent = connections.clone().oneshot(get("/hangs", Some(Lane::Election)));
    assert!(tokio::time::timeout(Duration::from_millis(200), silent).await.is_err(), "it times out");
    assert_eq!(server.accepted.load(Ordering::Relaxed), 1, "on the warm connection");
    soon(connections.clone().oneshot(get("/lease", Some(Lane::Election)))).await.unwrap();
    assert_eq!(server.accepted.load(Ordering::Relaxed), 2, "the next one does not wait for it");
}

/// A proxy of either kind, which notes what it is asked for.
async fn proxy(asked: Arc<parking_lot::Mutex<Vec<String>>>) -> (String, JoinSet<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let mut task = JoinSet::new();
    task.spawn(async move {
        loop {
            let (socket, _) = listener.accept().await.unwrap();
            let mut client = BufReader::new(socket);
            let is_socks = client.fill_buf().await.unwrap().first() == Some(&5);
            let target = match is_socks {
                true => socks_target(&mut client).await.unwrap(),
                false => head_of(&mut client).await.unwrap(),
            };
            let of_connect = target.strip_prefix("CONNECT ").and_then(|rest| rest.split(' ').next());
            let address = of_connect.unwrap_or(&target).to_owned();
            asked.lock().push(target);
            let granted: &[u8] =
                if is_socks { &[5, 0, 0, 1, 127, 0, 0, 1, 0, 1] } else { b"HTTP/1.1 200 OK\r\n\r\n" };
            client.write_all(granted).await.unwrap();
            let mut server = TcpStream::connect(address).await.unwrap();
            drop(copy_bidirectional(&mut client, &mut server).await);
        }
    });
    (address, task)
}

/// Agrees on a user and a password, and returns the address that is asked for (RFC 1928, RFC 1929).
async fn socks_target(client: &mut BufReader<TcpStream>) -> std::io::Result<String> {
    assert_eq!(client.read_u8().await?, 5);
    let methods = client.read_u8().await?;
    let mut offered = vec![0; methods.into()];
    client.read_exact(&mut offered).await?;
    assert!(offered.contains(&2), "{offered:?}");
    client.write_all(&[5, 2]).await?;
    assert_eq!(client.read_u8().await?, 1);
    for expected in ["user", "secret"] {
        let mut text = vec![0; client.read_u8().await?.into()];
        client.read_exact(&mut text).await?;
        assert_eq!(text, expected.as_bytes());
    }
    client.write_all(&[1, 0]).await?;
    let mut head = [0; 4];
    client.read_exact(&mut head).await?;
    assert_eq!(head, [5, 1, 0, 1], "connect to an IPv4 address");
    let mut address = [0; 4];
    client.read_exact(&mut address).await?;
    Ok(format!("{}:{}", std::net::Ipv4Addr::from(address), client.read_u16().await?))
}

#[tokio::test]
async fn requests_pass_http_and_socks_proxies() {
    let server = Server::start().await;
    let asked = Arc::<parking_lot::Mutex<Vec<String>>>::default();
    let (address, _task) = proxy(asked.clone()).await;
    let target = server.url.authority().unwrap().to_string();
    for scheme in ["http", "socks5"] {
        let mut config = server.config();
        config.proxy_url = Some(format!("{scheme}://user:secret@{address}").parse().unwrap());
        let connections = connect_with(&config, 3).unwrap();
        let answer = soon(connections.oneshot(get("/", Some(Lane::Sync)))).await.unwrap();
        assert_eq!(answer.status(), 200, "{scheme}");
        let asked = std::mem::take(&mut *asked.lock());
        assert_eq!(asked.len(), 1, "{asked:?}");
        if scheme == "http" {
            assert!(asked[0].starts_with(&format!("CONNECT {target} HTTP/1.1\r\n")), "{asked:?}");
            let head = asked[0].to_ascii_lowercase();
            assert!(head.contains("proxy-authorization: basic dxnlcjpzzwnyzxq="), "{asked:?}");
        } else {
            assert_eq!(asked[0], target);
        }
    }
}
