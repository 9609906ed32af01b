//! Decodes the frames of a watch: lines of JSON, or messages of protobuf that begin with their length.
//!
//! Mirrors client-go `rest/watch/decoder.go` and the framers of apimachinery's serializers.
//! Flow: API server -> **wire** -> http -> reflector
//!
//! # Guarantees
//! - A frame truncated by the end of the stream is dropped. (test: `split_line_is_joined_and_truncated_line_dropped`,
//!   `cut_protobuf_is_never_complete`)
//! - A malformed event is an error, not an object. (test: `malformed_event_is_a_decode_error`,
//!   `malformed_frame_of_protobuf_is_a_decode_error`)

use std::collections::BTreeMap;

use bytes::{Buf, Bytes, BytesMut};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::list_watch::WatchEvent;
use crate::cache::object::Object;
use crate::cache::object::decode::decode_from;
use crate::client::ServerStatus;
use crate::client::json_error::without_values;
use crate::client::protobuf::envelope::{Encoding, event_in};
use crate::client::protobuf::{ANY_OBJECT, Message, STATUS};

/// Annotation of the bookmark that ends the initial events of a streaming list.
const INITIAL_EVENTS_END: &str = "k8s.io/initial-events-end";

/// Splits a stream of bytes into frames.
#[derive(Debug)]
pub(crate) enum Frames {
    Lines(Lines),
    /// Each after its length, in four bytes.
    LengthDelimited(BytesMut),
}

// === impl Frames ===

impl Frames {
    pub(crate) fn of(encoding: Encoding) -> Self {
        match encoding {
            Encoding::Json => Self::Lines(Lines::default()),
            Encoding::Protobuf(_) => Self::LengthDelimited(BytesMut::new()),
        }
    }

    pub(crate) fn push(&mut self, data: &[u8]) {
        match self {
            Self::Lines(lines) => lines.buffer.extend_from_slice(data),
            Self::LengthDelimited(buffer) => buffer.extend_from_slice(data),
        }
    }

    /// Returns the next complete frame. Blank lines are skipped.
    pub(crate) fn next(&mut self) -> Option<Bytes> {
        match self {
            Self::Lines(lines) => lines.next(),
            Self::LengthDelimited(buffer) => {
                let (length, rest) = buffer.split_first_chunk::<4>()?;
                let length = u32::from_be_bytes(*length) as usize;
                if rest.len() < length {
                    return None;
                }
                buffer.advance(4);
                Some(buffer.split_to(length).freeze())
            }
        }
    }

    /// Returns the number of bytes of the incomplete frame, and of the blank lines before it.
    pub(crate) fn pending(&self) -> usize {
        match self {
            Self::Lines(lines) => lines.blank + lines.buffer.len(),
            Self::LengthDelimited(buffer) => buffer.len(),
        }
    }
}

/// Splits a stream of bytes into lines, scanning each byte once.
#[derive(Debug, Default)]
pub(crate) struct Lines {
    buffer: BytesMut,
    /// Length of the start of the buffer that is known to contain no line end.
    searched: usize,
    /// Length of the blank lines since the last other line.
    blank: usize,
}

// === impl Lines ===

impl Lines {
    /// Returns the next complete line that is not blank.
    fn next(&mut self) -> Option<Bytes> {
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

fn read<'a, T: Deserialize<'a>>(
    encoding: Encoding,
    message: &'static Message,
    object: &'a [u8],
) -> Result<T, serde_json::Error> {
    encoding.read_as(message, object).map_err(|error| without_values(&error))
}

pub(crate) fn decode_event<K: Object>(encoding: Encoding, frame: &[u8]) -> Result<WatchEvent<K>, EventError> {
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
    let (kind, object) = split_event(encoding, frame)?;
    Ok(match kind {
        "ADDED" => WatchEvent::Added(decode_from(encoding, object)?),
        "MODIFIED" => WatchEvent::Modified(decode_from(encoding, object)?),
        "DELETED" => WatchEvent::Deleted(decode_from(encoding, object)?),
        "BOOKMARK" => {
            let BookmarkMeta { resource_version, annotations } =
                read::<Bookmark>(encoding, &ANY_OBJECT, object)?.metadata;
            if resource_version.is_empty() {
                return Err(EventError::Decode(serde::de::Error::missing_field("metadata.resourceVersion")));
            }
            let ends_initial_events =
                annotations.get(INITIAL_EVENTS_END).is_some_and(|value| value == "true");
            WatchEvent::Bookmark { resource_version, ends_initial_events }
        }
        "ERROR" => {
            let status = read::<kube_core::Status>(encoding, &STATUS, object)?;
            return Err(EventError::Status(Box::new(ServerStatus::from_status(status, 500, None))));
        }
        _ => return Err(EventError::Decode(serde::de::Error::custom("unknown type of a watch event"))),
    })
}

/// Returns the object of an event, unless the event is none of an object: a bookmark or an error.
pub(crate) fn object_of_event(encoding: Encoding, frame: &[u8]) -> Option<&[u8]> {
    let (kind, object) = split_event(encoding, frame).ok()?;
    matches!(kind, "ADDED" | "MODIFIED" | "DELETED").then_some(object)
}

fn split_event(encoding: Encoding, frame: &[u8]) -> Result<(&str, &[u8]), serde_json::Error> {
    match encoding {
        Encoding::Json => split_line(frame),
        Encoding::Protobuf(_) => event_in(frame).map_err(|error| without_values(&error)),
    }
}

/// Splits `{"type":..., "object":...}` without decoding the object. Tries the layout that servers print
/// first: there, the object ends with the line and need not be scanned.
fn split_line(line: &[u8]) -> Result<(&str, &[u8]), serde_json::Error> {
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
    let envelope: Envelope<'_> = serde_json::from_slice(line).map_err(|error| without_values(&error))?;
    Ok((envelope.kind, envelope.object.get().as_bytes()))
}
