//! Compressed bodies, read whole: whether a body is one, and what it decodes to.

use std::io::Read;

use bytes::Bytes;
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
