//! Decodes the API server's responses: watch lines and list pages.
//!
//! Mirrors client-go `rest/watch/decoder.go` and the list decoding of `tools/pager`.
//! Flow: API server -> **wire** -> list_watch -> reflector
//!
//! # Guarantees
//! - An item that does not decode does not affect the others. (test: `undecodable_item_does_not_affect_others`)
//! - A line truncated by the end of the stream is dropped. (test: `split_line_is_joined_and_truncated_line_dropped`)
//! - A response that is not a list is an error, never an empty list. (test: `non_list_response_is_an_error`)
//! - A malformed event is an error, not an object. (test: `malformed_event_is_a_decode_error`)
//!
//! # Differences from client-go
//! A page is decoded item by item, straight into the cached type.

use std::fmt;

use bytes::{Bytes, BytesMut};
use serde::Deserialize;
use serde::de::{DeserializeSeed, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

use super::list_watch::{Page, WatchEvent};
use super::object::{self, Decoded, Object};
use crate::client::ServerStatus;

/// Splits a stream of bytes into lines, scanning each byte once.
#[derive(Debug, Default)]
pub(crate) struct Lines {
    buffer: BytesMut,
    /// Length of the start of the buffer that is known to contain no line end.
    searched: usize,
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
                return Some(line);
            }
        }
        self.searched = self.buffer.len();
        None
    }

    /// Returns the number of bytes of the incomplete line.
    pub(crate) fn pending(&self) -> usize {
        self.buffer.len()
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

pub(crate) fn decode_event<K: Object>(line: &[u8]) -> Result<WatchEvent<K>, EventError> {
    #[derive(Deserialize)]
    struct Bookmark {
        metadata: BookmarkMeta,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct BookmarkMeta {
        resource_version: String,
    }
    let (kind, object) = split_event(line)?;
    Ok(match kind {
        "ADDED" => WatchEvent::Added(object::decode(object)?),
        "MODIFIED" => WatchEvent::Modified(object::decode(object)?),
        "DELETED" => WatchEvent::Deleted(object::decode(object)?),
        "BOOKMARK" => {
            WatchEvent::Bookmark(serde_json::from_slice::<Bookmark>(object)?.metadata.resource_version)
        }
        "ERROR" => {
            let status = serde_json::from_slice::<kube_core::Status>(object)?;
            return Err(EventError::Status(Box::new(ServerStatus::from_status(status, 500, None))));
        }
        other => {
            return Err(EventError::Decode(serde::de::Error::custom(format!(
                "unknown watch event type {other:?}"
            ))));
        }
    })
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
    let envelope: Envelope<'_> = serde_json::from_slice(line)?;
    Ok((envelope.kind, envelope.object.get().as_bytes()))
}

/// Decodes a page item by item, without an intermediate tree of the whole page.
pub(crate) fn decode_page<K: Object>(
    body: &[u8],
    transform: Option<fn(&mut K)>,
) -> Result<Page<K>, serde_json::Error> {
    let mut json = serde_json::Deserializer::from_slice(body);
    let page = PageSeed { transform }.deserialize(&mut json)?;
    json.end()?;
    Ok(page)
}

struct PageSeed<K> {
    transform: Option<fn(&mut K)>,
}

impl<'de, K: Object> DeserializeSeed<'de> for PageSeed<K> {
    type Value = Page<K>;

    fn deserialize<D: serde::Deserializer<'de>>(self, json: D) -> Result<Page<K>, D::Error> {
        json.deserialize_map(self)
    }
}

impl<'de, K: Object> Visitor<'de> for PageSeed<K> {
    type Value = Page<K>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of Kubernetes objects")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Page<K>, A::Error> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct ListMeta {
            #[serde(default)]
            resource_version: String,
            #[serde(default, rename = "continue")]
            continue_token: Option<String>,
        }
        let mut meta: Option<ListMeta> = None;
        let mut items = None;
        while let Some(key) = map.next_key::<std::borrow::Cow<'de, str>>()? {
            match &*key {
                "metadata" => meta = Some(map.next_value()?),
                "items" => items = Some(map.next_value_seed(ItemsSeed { transform: self.transform })?),
                _ => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        // A Table or a Status has no items, and must not be read as an empty list.
        let items = items.ok_or_else(|| serde::de::Error::missing_field("items"))?;
        let meta = meta.ok_or_else(|| serde::de::Error::missing_field("metadata"))?;
        if meta.resource_version.is_empty() {
            return Err(serde::de::Error::missing_field("metadata.resourceVersion"));
        }
        Ok(Page {
            items,
            resource_version: meta.resource_version,
            continue_token: meta.continue_token.filter(|token| !token.is_empty()),
        })
    }
}

struct ItemsSeed<K> {
    transform: Option<fn(&mut K)>,
}

impl<'de, K: Object> DeserializeSeed<'de> for ItemsSeed<K> {
    type Value = Vec<Decoded<K>>;

    fn deserialize<D: serde::Deserializer<'de>>(self, json: D) -> Result<Self::Value, D::Error> {
        json.deserialize_any(self)
    }
}

impl<'de, K: Object> Visitor<'de> for ItemsSeed<K> {
    type Value = Vec<Decoded<K>>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the items of a list")
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(Vec::new())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Self::Value, A::Error> {
        let mut decoded = Vec::new();
        while let Some(item) = items.next_element::<&RawValue>()? {
            let mut item = object::decode::<K>(item.get().as_bytes()).map_err(serde::de::Error::custom)?;
            if let (Some(transform), Ok(object)) = (self.transform, &mut item) {
                transform(object);
            }
            decoded.push(item);
        }
        Ok(decoded)
    }
}
