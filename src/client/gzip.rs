//! Compressed bodies: whether a body is one, and what it decodes to, whole or while it arrives.
//!
//! A compressed list is one gzip member. A compressed stream of events (Kubernetes 1.37 and newer) is many: the server
//! ends a member whenever it has no further event to send.
//!
//! Flow: API server -> **gzip** -> `list_body`, the cache's watches

use std::io::{Read, Write};

use bytes::Bytes;
use flate2::write::MultiGzDecoder;
use http::{HeaderMap, HeaderValue, header};
use serde::de::Error as _;

/// Whether a body is compressed with gzip.
pub(super) fn is_compressed(headers: &HeaderMap) -> Result<bool, serde_json::Error> {
    match headers.get(header::CONTENT_ENCODING).map(HeaderValue::as_bytes) {
        None => Ok(false),
        Some(encoding) if encoding.eq_ignore_ascii_case(b"identity") => Ok(false),
        Some(encoding) if encoding.eq_ignore_ascii_case(b"gzip") => Ok(true),
        Some(_) => Err(serde_json::Error::custom("the body has a content encoding other than gzip")),
    }
}

/// How much of a compressed body is decoded at once: at most a thousand times as much comes out.
const PIECE: usize = 4 << 10;

/// Decodes a body piece by piece, as it arrives.
#[derive(Debug)]
pub(crate) struct Arrived {
    bytes: Bytes,
    gzip: Option<MultiGzDecoder<Vec<u8>>>,
    /// Whether anything has arrived.
    has_begun: bool,
}

// === impl Arrived ===

impl Arrived {
    /// Creates an empty one for the body of a response with these headers.
    ///
    /// # Errors
    /// The body has an encoding other than gzip.
    pub(crate) fn new(headers: &HeaderMap) -> Result<Self, serde_json::Error> {
        let gzip = is_compressed(headers)?.then(|| MultiGzDecoder::new(Vec::new()));
        Ok(Self { bytes: Bytes::new(), gzip, has_begun: false })
    }

    pub(crate) fn is_compressed(&self) -> bool {
        self.gzip.is_some()
    }

    /// Takes what has arrived, after everything before it was decoded.
    pub(crate) fn push(&mut self, bytes: Bytes) {
        debug_assert!(self.bytes.is_empty(), "everything before was decoded");
        self.has_begun |= !bytes.is_empty();
        self.bytes = bytes;
    }

    /// Decodes a piece of it; `None` if nothing is left.
    ///
    /// # Errors
    /// The body is damaged.
    pub(crate) fn next(&mut self) -> Result<Option<Bytes>, serde_json::Error> {
        if self.bytes.is_empty() {
            return Ok(None);
        }
        let Some(gzip) = &mut self.gzip else { return Ok(Some(std::mem::take(&mut self.bytes))) };
        let piece = self.bytes.split_to(PIECE.min(self.bytes.len()));
        gzip.write_all(&piece).and_then(|()| gzip.flush()).map_err(damaged)?;
        Ok(Some(std::mem::take(gzip.get_mut()).into()))
    }

    /// Checks that the body ended where it may: after a member, or before the first byte.
    ///
    /// # Errors
    /// The body is truncated.
    pub(crate) fn finish(&mut self) -> Result<(), serde_json::Error> {
        let gzip = self.gzip.take().filter(|_| self.has_begun);
        gzip.map_or(Ok(()), |mut gzip| gzip.try_finish()).map_err(damaged)
    }
}

fn damaged(_: std::io::Error) -> serde_json::Error {
    serde_json::Error::custom("the body is damaged: it does not decode as gzip")
}

/// Returns what a whole body decodes to, at most `max` bytes of it; nothing if it is broken.
pub(super) fn decompressed(body: &[u8], max: usize) -> Bytes {
    let mut decoded = Vec::new();
    let gzip = flate2::read::GzDecoder::new(body);
    match gzip.take(max as u64).read_to_end(&mut decoded) {
        Ok(_) => decoded.into(),
        Err(_) => Bytes::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_encoding_is_an_error() {
        let of = |encoding: &'static str| {
            is_compressed(&HeaderMap::from_iter([(
                header::CONTENT_ENCODING,
                HeaderValue::from_static(encoding),
            )]))
        };
        assert!(
            of("GZIP").unwrap() && !of("identity").unwrap() && !is_compressed(&HeaderMap::new()).unwrap()
        );
        assert_eq!(of("br").unwrap_err().to_string(), "the body has a content encoding other than gzip");
    }
}
