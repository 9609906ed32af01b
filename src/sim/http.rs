//! The HTTPS endpoint: HTTP/1.1 over TLS, usually on a loopback address, for kubectl and operators in other
//! processes.
//!
//! A bearer token identifies each client; requests without one are answered with 401
//! (test: `wrong_token_is_answered_with_401`). TLS is always on, because kubectl sends no token without
//! it. The kubeconfig carries the certificate of the server's own authority.
//!
//! `hyper` serves HTTP; this module adds tokens, certificates and tasks. Every connection is a task of
//! [`HttpServer::run`] and ends with it.

use std::collections::HashMap;
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use aws_lc_rs::rand;
use base64::Engine as _;
use base64::prelude::{BASE64_STANDARD, BASE64_URL_SAFE_NO_PAD};
use http::{Response, header};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use parking_lot::Mutex;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    KeyUsagePurpose,
};
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};

use super::failure::Failure;
use super::reply::Reply;
use super::request::MAX_BODY;
use super::transport::{ConnectionError, ReplyBody, respond};
use super::{Request, Sim};

/// The time limit of the TLS handshake.
const PATIENCE: Duration = Duration::from_secs(10);

/// How long a connection may idle: longer than clients keep one in their pool.
const IDLE: Duration = Duration::from_secs(600);

/// Reports why a server could not be set up.
#[derive(Debug, thiserror::Error)]
pub enum HttpError {
    /// The address cannot be bound: the port is taken, or the address is not local.
    #[error("cannot listen on {address}: {source}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The cause.
        source: std::io::Error,
    },
    /// Certificates or tokens could not be generated.
    #[error("could not create the server's certificates or tokens: {0}")]
    Certificates(Box<dyn std::error::Error + Send + Sync>),
}

/// A listening server, which answers while [`run`](Self::run) runs.
pub struct HttpServer {
    sim: Sim,
    listener: TcpListener,
    address: SocketAddr,
    acceptor: TlsAcceptor,
    authority: String,
    tokens: Mutex<HashMap<String, String>>,
}

impl fmt::Debug for HttpServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpServer").field("address", &self.address).finish_non_exhaustive()
    }
}

// === impl HttpServer ===

impl HttpServer {
    /// Listens on `address`; port 0 picks a free port.
    ///
    /// # Errors
    /// [`HttpError`] if the address cannot be bound or no certificate can be generated.
    pub async fn bind(sim: &Sim, address: SocketAddr) -> Result<Self, HttpError> {
        let listen = |source| HttpError::Listen { address, source };
        let listener = TcpListener::bind(address).await.map_err(listen)?;
        let address = listener.local_addr().map_err(listen)?;
        let (acceptor, authority) = certificates().map_err(HttpError::Certificates)?;
        Ok(Self { sim: sim.clone(), listener, address, acceptor, authority, tokens: Mutex::default() })
    }

    /// Returns the address it listens on.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns a kubeconfig for a user, with a new token.
    ///
    /// # Errors
    /// [`HttpError`] if the system provides no randomness.
    pub fn kubeconfig(&self, user: &str) -> Result<Value, HttpError> {
        let mut token = [0; 24];
        rand::fill(&mut token).map_err(|error| HttpError::Certificates(Box::new(error)))?;
        let token = BASE64_URL_SAFE_NO_PAD.encode(token);
        self.tokens.lock().insert(token.clone(), user.to_owned());
        Ok(json!({
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "windlass",
            "clusters": [{"name": "windlass", "cluster": {
                "server": format!("https://{}", self.address),
                "certificate-authority-data": BASE64_STANDARD.encode(&self.authority)}}],
            "users": [{"name": user, "user": {"token": token}}],
            "contexts": [{"name": "windlass", "context": {"cluster": "windlass", "user": user}}],
        }))
    }

    /// Serves until the future is dropped, which ends all connections.
    pub async fn run(self) {
        let server = Arc::new(self);
        let mut connections = JoinSet::new();
        loop {
            tokio::select! {
                biased;
                Some(ended) = connections.join_next() => {
                    if let Err(panic) = ended {
                        std::panic::resume_unwind(panic.into_panic());
                    }
                }
                accepted = server.listener.accept() => match accepted {
                    Ok((stream, _)) => {
                        connections.spawn(server.clone().greet(stream));
                    }
                    // For example, too many open files: open connections continue.
                    Err(error) => {
                        tracing::warn!(%error, "Could not accept a connection");
                        tokio::time::sleep(Duration::from_millis(100)).await;
                    }
                },
            }
        }
    }

    async fn greet(self: Arc<Self>, stream: tokio::net::TcpStream) {
        // Watch events are small and must not be coalesced.
        drop(stream.set_nodelay(true));
        if let Ok(Ok(stream)) = tokio::time::timeout(PATIENCE, self.acceptor.accept(stream)).await {
            self.talk(stream).await;
        }
    }

    async fn talk(self: Arc<Self>, stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static) {
        let answer = service_fn(move |request| self.clone().answer(request));
        let connection = hyper::server::conn::http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(IDLE)
            .serve_connection(TokioIo::new(stream), answer);
        if let Err(error) = connection.await {
            tracing::debug!(%error, "Connection ended with an error");
        }
    }

    async fn answer(
        self: Arc<Self>,
        request: http::Request<Incoming>,
    ) -> Result<Response<ReplyBody>, ConnectionError> {
        let (head, body) = request.into_parts();
        let authorization = head.headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
        let token = authorization.and_then(|value| value.strip_prefix("Bearer ")).unwrap_or_default();
        let Some(user) = self.tokens.lock().get(token).cloned() else {
            return respond(Reply::failure(&Failure::unauthorized()));
        };
        let body = match Limited::new(body, MAX_BODY).collect().await {
            Ok(body) => body.to_bytes(),
            Err(error) if error.is::<LengthLimitError>() => {
                return respond(Reply::failure(&Failure::too_large_body()));
            }
            // A truncated body must not be executed as if complete.
            Err(_) => return Err(ConnectionError::Reset),
        };
        let uri = head.uri.path_and_query().map_or("/", |path| path.as_str()).to_owned();
        let request = Request { user, method: head.method, uri, headers: head.headers, body };
        respond(self.sim.request(0, request).await.unwrap_or(Reply::Lost))
    }
}

type Setup = Result<(TlsAcceptor, String), Box<dyn std::error::Error + Send + Sync>>;

/// Generates a certificate authority and a server certificate signed by it.
fn certificates() -> Setup {
    let mut authority = CertificateParams::default();
    authority.distinguished_name.push(DnType::CommonName, "windlass-sim-ca");
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    authority.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
    let authority = CertifiedIssuer::self_signed(authority, KeyPair::generate()?)?;
    let mut server = CertificateParams::new(["127.0.0.1", "::1", "localhost"].map(str::to_owned))?;
    server.distinguished_name.push(DnType::CommonName, "windlass-sim");
    server.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    let key = KeyPair::generate()?;
    let certificate = server.signed_by(&key, &authority)?;
    let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key.serialize_der()));
    let config = ServerConfig::builder_with_provider(
        tokio_rustls::rustls::crypto::aws_lc_rs::default_provider().into(),
    )
    .with_safe_default_protocol_versions()?
    .with_no_client_auth()
    .with_single_cert(vec![certificate.der().clone()], key)?;
    Ok((TlsAcceptor::from(Arc::new(config)), authority.pem()))
}
