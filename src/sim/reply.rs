//! Replies to requests, before a transport converts them to HTTP.

use std::borrow::Cow;
use std::num::NonZeroUsize;
use std::time::Duration;

use bytes::Bytes;
use serde::Serialize;
use serde_json::Value;
use tokio::sync::mpsc;
use tokio::sync::mpsc::error::TrySendError;

use super::failure::Failure;
use super::request::Call;
use super::transport::ConnectionError;

/// The maximum number of warnings in an answer.
const MAX_WARNINGS: usize = 40;

/// A piece of a body, or a connection error.
pub(super) type Piece = Result<Bytes, ConnectionError>;

/// The reply to a request.
#[derive(Debug)]
pub(super) enum Reply {
    /// A complete response.
    Whole { code: u16, media: &'static str, headers: Vec<(&'static str, String)>, body: Bytes },
    /// A body sent in pieces until the channel closes.
    Stream(mpsc::Receiver<Piece>),
    /// The server is down.
    Refused,
    /// The connection breaks without an answer.
    Lost,
}

/// An answer, encoded as JSON, with its warnings.
#[derive(Debug)]
pub(super) struct Answer {
    code: u16,
    body: Bytes,
    warnings: Vec<String>,
}

/// A list of objects, which are encoded where they are stored.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct List<'a> {
    api_version: String,
    items: Vec<Cow<'a, Value>>,
    kind: String,
    metadata: Value,
}

/// A body sent piece by piece.
#[derive(Debug)]
pub(super) struct Trickle {
    pub(super) server: usize,
    body: Bytes,
    bytes: NonZeroUsize,
    pub(super) every: Duration,
    is_endless: bool,
    sender: mpsc::Sender<Piece>,
}

// === impl Trickle ===

impl Trickle {
    /// Sends a piece; returns whether more follows.
    pub(super) fn send(&mut self) -> bool {
        let sendable = self.body.len() - usize::from(self.is_endless).min(self.body.len());
        let piece = match sendable.min(self.bytes.get()) {
            0 => Bytes::from_static(b" "),
            length => self.body.split_to(length),
        };
        // A full channel drops a blank; the next one is sent later.
        let is_open = !matches!(self.sender.try_send(Ok(piece)), Err(TrySendError::Closed(_)));
        is_open && (self.is_endless || !self.body.is_empty())
    }

    /// Breaks the connection.
    pub(super) fn reset(&self) {
        drop(self.sender.try_send(Err(ConnectionError::Reset)));
    }
}

// === impl Answer ===

impl Answer {
    pub(super) fn ok(body: &impl Serialize) -> Self {
        Self::new(200, body, Vec::new())
    }

    pub(super) fn new(code: u16, body: &impl Serialize, warnings: Vec<String>) -> Self {
        let body = serde_json::to_vec(body).expect("JSON can be written to memory");
        Self { code, body: body.into(), warnings }
    }
}

// === impl List ===

impl<'a> List<'a> {
    pub(super) fn new(call: &Call, metadata: Value, items: Vec<Cow<'a, Value>>) -> Self {
        Self { api_version: call.api_version(), items, kind: format!("{}List", call.kind.kind), metadata }
    }
}

// === impl Reply ===

impl Reply {
    pub(super) fn of(answer: Answer) -> Self {
        // Clients limit the number of headers.
        let headers = answer
            .warnings
            .iter()
            .take(MAX_WARNINGS)
            .map(|text| ("warning", format!("299 - \"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))))
            .collect();
        Self::Whole { code: answer.code, media: "application/json", headers, body: answer.body }
    }

    pub(super) fn text(code: u16, text: impl Into<String>) -> Self {
        let body = text.into().into_bytes().into();
        Self::Whole { code, media: "text/plain; charset=utf-8", headers: Vec::new(), body }
    }

    /// Answers as a server that has too many requests. This comes before any resource, so it is no `Status`.
    pub(super) fn overloaded(retry_after: u32) -> Self {
        let mut reply = Self::text(429, "Too many requests, please try again later.");
        if let Self::Whole { headers, .. } = &mut reply {
            headers.push(("retry-after", retry_after.to_string()));
        }
        reply
    }

    pub(super) fn failure(failure: &Failure) -> Self {
        let (body, is_json) = failure.body();
        let mut reply = Self::text(failure.code, body);
        if let Self::Whole { media, headers, .. } = &mut reply {
            if is_json {
                *media = "application/json";
            }
            headers.extend(failure.retry_after.map(|seconds| ("retry-after", seconds.to_string())));
        }
        reply
    }

    /// Drops the second half of the body.
    pub(super) fn halved(mut self) -> Self {
        if let Self::Whole { body, .. } = &mut self {
            body.truncate(body.len() / 2);
        }
        self
    }

    /// Turns a successful reply into a stream, and returns the body to send through it.
    pub(super) fn trickled(
        self,
        server: usize,
        bytes: NonZeroUsize,
        every: Duration,
        is_endless: bool,
    ) -> (Self, Option<Trickle>) {
        let Self::Whole { code: 200, body, .. } = self else { return (self, None) };
        // The channel holds every piece of the body; blanks that do not fit are dropped.
        let (sender, receiver) = mpsc::channel(body.len() / bytes + 2);
        (Self::Stream(receiver), Some(Trickle { server, body, bytes, every, is_endless, sender }))
    }

    /// Returns the size of the body.
    pub(super) fn size(&self) -> usize {
        match self {
            Self::Whole { body, .. } => body.len(),
            Self::Stream(_) | Self::Refused | Self::Lost => 0,
        }
    }

    pub(super) fn code(&self) -> u16 {
        match self {
            Self::Whole { code, .. } => *code,
            Self::Stream(_) => 200,
            Self::Refused | Self::Lost => 0,
        }
    }
}
