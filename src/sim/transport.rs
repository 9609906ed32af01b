//! The transport for a client in the same process: a `tower` service without a socket.

use std::fmt;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use http::{HeaderValue, Response, StatusCode, header};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use tokio::sync::mpsc;

use super::reply::{Piece, Reply};
use super::{Request, Sim};

/// The body of a response.
pub(crate) type ReplyBody = UnsyncBoxBody<Bytes, ConnectionError>;

/// A connection to one of the servers as one user; pass it to `kube_client::Client::new`.
#[derive(Clone, Debug)]
pub struct InProcessTransport {
    sim: Sim,
    user: String,
    server: usize,
}

/// Reports that a connection broke or was never made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectionError {
    /// The server is down.
    Refused,
    /// The connection broke before the end of the response.
    Reset,
}

impl fmt::Display for ConnectionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Refused => "connection refused",
            Self::Reset => "connection reset by peer",
        })
    }
}

impl std::error::Error for ConnectionError {}

// === impl InProcessTransport ===

impl InProcessTransport {
    /// Connects to server 0 as `user`.
    #[must_use]
    pub fn new(sim: &Sim, user: &str) -> Self {
        Self { sim: sim.clone(), user: user.to_owned(), server: 0 }
    }

    /// Connects to another server: there are two, 0 and 1, in front of one store.
    #[must_use]
    pub fn to_server(mut self, server: usize) -> Self {
        self.server = server;
        self
    }

    async fn call<B>(self, request: http::Request<B>) -> Result<Response<ReplyBody>, ConnectionError>
    where
        B: http_body::Body<Data = Bytes>,
    {
        let (head, body) = request.into_parts();
        let body = body.collect().await.map_err(|_| ConnectionError::Reset)?.to_bytes();
        let uri = head.uri.path_and_query().map_or("/", |path| path.as_str()).to_owned();
        let request = Request { user: self.user, method: head.method, uri, headers: head.headers, body };
        let answer = self.sim.request(self.server, request).await;
        // A server that goes down drops the requests it has accepted.
        respond(answer.unwrap_or(Reply::Lost))
    }
}

/// Converts a reply to an HTTP response.
pub(super) fn respond(reply: Reply) -> Result<Response<ReplyBody>, ConnectionError> {
    match reply {
        Reply::Refused => Err(ConnectionError::Refused),
        Reply::Lost => Err(ConnectionError::Reset),
        Reply::Stream(lines) => {
            let mut response = Response::new(StreamBody::new(frames(lines)).boxed_unsync());
            response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
            Ok(response)
        }
        Reply::Whole { code, media, headers, body } => {
            let body = Full::new(body).map_err(|never| match never {}).boxed_unsync();
            let mut response = Response::new(body);
            *response.status_mut() = StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
            response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(media));
            for (name, value) in headers {
                if let Ok(value) = HeaderValue::from_str(&value) {
                    response.headers_mut().append(name, value);
                }
            }
            Ok(response)
        }
    }
}

type FrameOf = Result<http_body::Frame<Bytes>, ConnectionError>;

fn frames(lines: mpsc::Receiver<Piece>) -> impl futures_util::Stream<Item = FrameOf> + Send {
    futures_util::stream::unfold(
        lines,
        |mut lines| async move { lines.recv().await.map(|line| (line, lines)) },
    )
    .map(|line| line.map(http_body::Frame::data))
}

impl<B> tower_service::Service<http::Request<B>> for InProcessTransport
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
{
    type Response = Response<ReplyBody>;
    type Error = ConnectionError;
    type Future = BoxFuture<'static, Result<Self::Response, Self::Error>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<B>) -> Self::Future {
        Box::pin(self.clone().call(request))
    }
}
