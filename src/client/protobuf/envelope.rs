//! What is around an object on the wire, and whether it is JSON or protobuf.
//!
//! Mirrors apimachinery's `runtime.Unknown` and `metav1.WatchEvent`.

use http::{HeaderMap, HeaderValue, header};
use serde::Deserialize;
use serde_json::Error;

use super::Message;
use super::deserializer::{malformed, take_field};

/// The `Accept` header for kinds with a protobuf encoding. A server that does not have one answers JSON.
pub(crate) const ACCEPT: &str = "application/vnd.kubernetes.protobuf, application/json";

/// The prefix of an object or list; the frames of a watch have none.
pub(crate) const MAGIC: &[u8] = b"k8s\0";

/// How the objects of an answer are encoded.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Encoding {
    Json,
    Protobuf(&'static Message),
}

/// Returns whether a list or a watch is protobuf.
pub(crate) fn is_protobuf(headers: &HeaderMap) -> bool {
    headers
        .get(header::CONTENT_TYPE)
        .map(HeaderValue::as_bytes)
        .is_some_and(|media| media.starts_with(b"application/vnd.kubernetes.protobuf"))
}

/// Returns the string, bytes or message that is the first field of this number.
pub(crate) fn bytes_of(mut message: &[u8], number: u32) -> Result<Option<&[u8]>, Error> {
    while !message.is_empty() {
        let (found, value) = take_field(&mut message)?;
        if found == number {
            return value.ok_or_else(malformed)?.bytes().map(Some);
        }
    }
    Ok(None)
}

/// Returns the object in a `runtime.Unknown`.
pub(crate) fn object_in(body: &[u8]) -> Result<&[u8], Error> {
    let unknown = body.strip_prefix(MAGIC).ok_or_else(malformed)?;
    Ok(bytes_of(unknown, 2)?.unwrap_or_default())
}

/// Splits a `metav1.WatchEvent` into its type and object.
pub(crate) fn event_in(frame: &[u8]) -> Result<(&str, &[u8]), Error> {
    let kind = bytes_of(frame, 1)?.unwrap_or_default();
    let raw = bytes_of(frame, 2)?.map_or(Ok(None), |object| bytes_of(object, 1))?;
    Ok((std::str::from_utf8(kind).map_err(|_| malformed())?, object_in(raw.unwrap_or_default())?))
}

// === impl Encoding ===

impl Encoding {
    /// Decodes an object of any kind: from protobuf, only the fields of this message.
    pub(crate) fn read_as<'de, T: Deserialize<'de>>(
        self,
        message: &'static Message,
        object: &'de [u8],
    ) -> Result<T, Error> {
        match self {
            Self::Json => serde_json::from_slice(object),
            Self::Protobuf(_) => T::deserialize(message.read(object)),
        }
    }
}
