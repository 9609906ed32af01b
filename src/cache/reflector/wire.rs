//! Decodes the lines of a watch.
//!
//! Mirrors client-go `rest/watch/decoder.go`.
//! Flow: API server -> **wire** -> http -> reflector
//!
//! # Guarantees
//! - A line truncated by the end of the stream is dropped. (test: `split_line_is_joined_and_truncated_line_dropped`)
//! - A malformed event is an error, not an object. (test: `malformed_event_is_a_decode_error`)

use std::collections::BTreeMap;

use bytes::{Bytes, BytesMut};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::list_watch::WatchEvent;
use crate::cache::object::Object;
use crate::cache::object::decode::decode;
use crate::client::ServerStatus;
use crate::client::json_error::without_values;

/// Annotation of the bookmark that ends the initial events of a streaming list.
const INITIAL_EVENTS_END: &str = "k8s.io/initial-events-end";

/// Splits a stream of bytes into lines, scanning each byte once.
#[derive(Debug, Default)]
pub(crate) struct Lines {
    buffer: BytesMut,
    /// Length of the start of the buffer that is known to contain no line end.
    searched: usize,
    /// Length of the blank lines since the last other line.
    blank: usize,
}

impl Lines {
    pub(crate) fn push(&mut self, data: &[u8]) {
        self.buffer.extend_from_slice(data);
    }

    /// Returns the next complete line that is not blank.
    pub(crate) fn next(&mut self) -> Option<Bytes> {
        while let Some(at) = memchr::memchr(b'\n', &self.buffer[self.searched..]) {
            let line = self.buffer.split_to(self.searched + at + 1).freeze();
            self.searched = 0;
            if !line.trim_ascii().is_empty() {
                self.blank = 0;
                return Some(line);
            }
            self.blank += line.len();
        }
        self.searched = self.buffer.len();
        None
    }

    /// Returns the number of bytes of the incomplete line, and of the blank lines before it.
    pub(crate) fn pending(&self) -> usize {
        self.blank + self.buffer.len()
    }
}

#[derive(Debug)]
pub(crate) enum EventError {
    Decode(serde_json::Error),
    Status(Box<ServerStatus>),
}

impl From<serde_json::Error> for EventError {
    fn from(error: serde_json::Error) -> Self {
        Self::Decode(error)
    }
}

fn read<'a, T: Deserialize<'a>>(json: &'a [u8]) -> Result<T, serde_json::Error> {
    serde_json::from_slice(json).map_err(|error| without_values(&error))
}

pub(crate) fn decode_event<K: Object>(line: &[u8]) -> Result<WatchEvent<K>, EventError> {
    #[derive(Deserialize)]
    struct Bookmark {
        metadata: BookmarkMeta,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct BookmarkMeta {
        resource_version: String,
        #[serde(default)]
        annotations: BTreeMap<String, String>,
    }
    let (kind, object) = split_event(line)?;
    Ok(match kind {
        "ADDED" => WatchEvent::Added(decode(object)?),
        "MODIFIED" => WatchEvent::Modified(decode(object)?),
        "DELETED" => WatchEvent::Deleted(decode(object)?),
        "BOOKMARK" => {
            let BookmarkMeta { resource_version, annotations } = read::<Bookmark>(object)?.metadata;
            if resource_version.is_empty() {
                return Err(EventError::Decode(serde::de::Error::missing_field("metadata.resourceVersion")));
            }
            let ends_initial_events =
                annotations.get(INITIAL_EVENTS_END).is_some_and(|value| value == "true");
            WatchEvent::Bookmark { resource_version, ends_initial_events }
        }
        "ERROR" => {
            let status = read::<kube_core::Status>(object)?;
            return Err(EventError::Status(Box::new(ServerStatus::from_status(status, 500, None))));
        }
        _ => return Err(EventError::Decode(serde::de::Error::custom("unknown type of a watch event"))),
    })
}

/// Returns the object of an event, unless the event is none of an object: a bookmark or an error.
pub(crate) fn object_of_event(line: &[u8]) -> Option<&[u8]> {
    let (kind, object) = split_event(line).ok()?;
    matches!(kind, "ADDED" | "MODIFIED" | "DELETED").then_some(object)
}

/// Splits `{"type":..., "object":...}` without decoding the object. Tries the layout that servers print
/// first: there, the object ends with the line and need not be scanned.
fn split_event(line: &[u8]) -> Result<(&str, &[u8]), serde_json::Error> {
    #[derive(Deserialize)]
    struct Envelope<'a> {
        #[serde(rename = "type", borrow)]
        kind: &'a str,
        #[serde(borrow)]
        object: &'a RawValue,
    }
    fn as_printed(line: &[u8]) -> Option<(&str, &[u8])> {
        let rest = line.trim_ascii().strip_prefix(br#"{"type":""#)?;
        let (kind, rest) = rest.split_at(memchr::memchr(b'"', rest)?);
        let object = rest.strip_prefix(br#"","object":"#)?.strip_suffix(b"}")?;
        Some((std::str::from_utf8(kind).ok()?, object))
    }
    if let Some(parts) = as_printed(line) {
        return Ok(parts);
    }
    let envelope: Envelope<'_> = read(line)?;
    Ok((envelope.kind, envelope.object.get().as_bytes()))
}
