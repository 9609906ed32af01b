//! What a request is answered, before a door makes HTTP of it.

use bytes::Bytes;
use serde_json::Value;
use tokio::sync::mpsc;

use super::failure::Failure;

/// How many warnings an answer has at most.
const MAX_WARNINGS: usize = 40;

/// What a request is answered.
#[derive(Debug)]
pub(super) enum Reply {
    /// Code, media type, headers, body.
    Whole { code: u16, media: &'static str, headers: Vec<(&'static str, String)>, body: Bytes },
    /// Lines, until the channel closes.
    Stream(mpsc::Receiver<Bytes>),
    /// Nobody listens.
    Refused,
    /// The connection breaks without an answer.
    Lost,
}

/// An answer that is JSON, with its warnings.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) code: u16,
    pub(super) body: Value,
    pub(super) warnings: Vec<String>,
}

// === impl Answer ===

impl Answer {
    pub(super) fn ok(body: Value) -> Self {
        Self { code: 200, body, warnings: Vec::new() }
    }
}

// === impl Reply ===

impl Reply {
    pub(super) fn of(answer: &Answer) -> Self {
        // Clients take only so many headers.
        let headers = answer
            .warnings
            .iter()
            .take(MAX_WARNINGS)
            .map(|text| ("warning", format!("299 - \"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))))
            .collect();
        let body = serde_json::to_vec(&answer.body).expect("JSON can be written to memory");
        Self::Whole { code: answer.code, media: "application/json", headers, body: body.into() }
    }

    pub(super) fn text(code: u16, text: impl Into<String>) -> Self {
        let body = text.into().into_bytes().into();
        Self::Whole { code, media: "text/plain; charset=utf-8", headers: Vec::new(), body }
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

    /// Without the second half of its body.
    pub(super) fn halved(mut self) -> Self {
        if let Self::Whole { body, .. } = &mut self {
            body.truncate(body.len() / 2);
        }
        self
    }

    pub(super) fn code(&self) -> u16 {
        match self {
            Self::Whole { code, .. } => *code,
            Self::Stream(_) => 200,
            Self::Refused | Self::Lost => 0,
        }
    }
}
