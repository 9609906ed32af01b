//! A scripted endpoint on a loopback address, and its certificates.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    KeyUsagePurpose, date_time_ymd,
};
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};

/// The endpoint's reaction to a request.
#[derive(Clone)]
pub(super) enum Act {
    /// Answers with these bytes and keeps the connection open.
    Say(String),
    /// Begins an answer with these bytes and never ends it.
    SayWithoutEnd(String),
    /// Answers with these bytes and closes the connection.
    SayAndClose(String),
    /// Closes the connection without an answer.
    Close,
    /// Answers with these bytes after a delay.
    SayLater(Duration, String),
    /// Never answers.
    Hang,
}

/// Returns an answer with a code, additional headers (each with its line end) and a body.
pub(super) fn say(code: u16, headers: &str, body: &str) -> Act {
    Act::Say(format!("HTTP/1.1 {code} X\r\n{headers}Content-Length: {}\r\n\r\n{body}", body.len()))
}

/// A received request.
#[derive(Clone, Debug)]
pub(super) struct Seen {
    /// Request line and headers.
    pub(super) head: String,
    pub(super) body: Value,
    /// Which connection it came over, from 1.
    pub(super) connection: usize,
}

impl Seen {
    pub(super) fn header(&self, name: &str) -> Option<&str> {
        let mut lines = self.head.lines().filter_map(|line| line.split_once(": "));
        lines.find(|(found, _)| found.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }
}

type Acts = Arc<dyn Fn(&Seen) -> Act + Send + Sync>;
type SeenList = Arc<Mutex<Vec<Seen>>>;

/// A server that listens until it is dropped.
pub(super) struct Endpoint {
    address: SocketAddr,
    scheme: &'static str,
    seen: SeenList,
    _tasks: JoinSet<()>,
}

impl Endpoint {
    pub(super) async fn new(act: impl Fn(&Seen) -> Act + Send + Sync + 'static) -> Self {
        Self::start(Arc::new(act), None, false).await
    }

    /// Starts an endpoint that resets the connections it closes.
    pub(super) async fn that_resets(act: impl Fn(&Seen) -> Act + Send + Sync + 'static) -> Self {
        Self::start(Arc::new(act), None, true).await
    }

    pub(super) async fn with_tls(
        acceptor: TlsAcceptor,
        act: impl Fn(&Seen) -> Act + Send + Sync + 'static,
    ) -> Self {
        Self::start(Arc::new(act), Some(acceptor), false).await
    }

    async fn start(act: Acts, tls: Option<TlsAcceptor>, resets: bool) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let scheme = if tls.is_some() { "https" } else { "http" };
        let seen = SeenList::default();
        let mut tasks = JoinSet::new();
        tasks.spawn(accept(listener, act, (tls, resets), seen.clone()));
        Self { address, scheme, seen, _tasks: tasks }
    }

    pub(super) fn url(&self) -> String {
        format!("{}://{}/hooks", self.scheme, self.address)
    }

    pub(super) fn seen(&self) -> Vec<Seen> {
        self.seen.lock().clone()
    }
}

async fn accept(
    listener: TcpListener,
    act: Acts,
    (tls, resets): (Option<TlsAcceptor>, bool),
    seen: SeenList,
) {
    let mut connections = JoinSet::new();
    for number in 1.. {
        let (stream, _) = listener.accept().await.unwrap();
        if resets {
            stream.set_zero_linger().unwrap();
        }
        let (act, tls, seen) = (act.clone(), tls.clone(), seen.clone());
        connections.spawn(async move {
            match tls {
                None => serve(stream, number, act, seen).await,
                Some(tls) => {
                    // A client that does not trust the certificate disconnects.
                    if let Ok(stream) = tls.accept(stream).await {
                        serve(stream, number, act, seen).await;
                    }
                }
            }
        });
    }
}

/// Answers the requests of one connection until the client disconnects.
async fn serve(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    connection: usize,
    act: Acts,
    seen: SeenList,
) {
    let mut bytes = Vec::new();
    loop {
        let (head, length) = loop {
            if let Some(at) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
                let head = String::from_utf8(bytes[..at].to_vec()).unwrap();
                let probe = Seen { head: head.clone(), body: Value::Null, connection };
                let length: usize = probe.header("content-length").unwrap().parse().unwrap();
                if bytes.len() >= at + 4 + length {
                    break (head, at + 4 + length);
                }
            }
            match stream.read_buf(&mut bytes).await {
                Ok(0) | Err(_) => return,
                Ok(_) => {}
            }
        };
        let body = serde_json::from_slice(&bytes[head.len() + 4..length]).unwrap();
        bytes.drain(..length);
        let request = Seen { head, body, connection };
        let act = act(&request);
        seen.lock().push(request);
        match act {
            Act::Say(text) => drop(stream.write_all(text.as_bytes()).await),
            Act::SayLater(delay, text) => {
                tokio::time::sleep(delay).await;
                drop(stream.write_all(text.as_bytes()).await);
            }
            Act::SayAndClose(text) => {
                drop(stream.write_all(text.as_bytes()).await);
                drop(stream.shutdown().await);
                return;
            }
            Act::SayWithoutEnd(head) => {
                let mut sent = stream.write_all(head.as_bytes()).await;
                while sent.is_ok() {
                    sent = stream.write_all(&[b'x'; 4096]).await;
                }
                return;
            }
            Act::Close => return,
            Act::Hang => std::future::pending().await,
        }
    }
}

/// Signs certificates.
pub(super) struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    pub(super) fn new() -> Self {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, "a-test-ca");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        Self(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    pub(super) fn pem(&self) -> String {
        self.0.pem()
    }

    /// Returns an acceptor with a certificate for this name.
    pub(super) fn acceptor(&self, name: &str, is_expired: bool) -> TlsAcceptor {
        let mut params = CertificateParams::new([name.to_owned()]).unwrap();
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        if is_expired {
            params.not_before = date_time_ymd(2020, 1, 1);
            params.not_after = date_time_ymd(2021, 1, 1);
        }
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.0).unwrap();
        let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key.serialize_der()));
        let provider = tokio_rustls::rustls::crypto::aws_lc_rs::default_provider();
        let config = ServerConfig::builder_with_provider(provider.into())
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![certificate.der().clone()], key)
            .unwrap();
        TlsAcceptor::from(Arc::new(config))
    }
}
