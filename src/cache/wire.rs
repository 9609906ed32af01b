//! Takes apart what the API server sends: lines of a watch, pages of a list.
//!
//! Mirrors client-go `rest/watch/decoder.go` and the list decoding of `tools/pager`.
//! Flow: API server -> **wire** -> list_watch -> reflector
//!
//! # Guarantees
//! - One item that does not decode leaves the others whole. (test: `one_broken_item_leaves_the_others_whole`)
//! - A line cut by the end of the stream is dropped. (test: `a_line_may_come_in_pieces_and_a_cut_one_is_dropped`)
//! - An answer that is no list is never an empty one. (test: `an_answer_that_is_no_list_is_never_an_empty_one`)
//! - An event that is no event is an error, not an object. (test: `an_event_of_unknown_type_or_broken_json_is_a_decode_error`)
//!
//! # Differences from client-go
//! A page is decoded item by item, straight into the type that is kept.

use std::fmt;

use bytes::{Bytes, BytesMut};
use serde::Deserialize;
use serde::de::{DeserializeSeed, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

use super::list_watch::{Page, WatchEvent};
use super::object::{self, Decoded, Object};
use crate::client::ServerStatus;

/// Cuts a stream of bytes into lines, looking at each byte once.
#[derive(Debug, Default)]
pub(crate) struct Lines {
    buffer: BytesMut,
    /// How much of the buffer is known to hold no line end.
    searched: usize,
}

impl Lines {
    pub(crate) fn push(&mut self, data: &[u8]) {
        self.buffer.extend_from_slice(data);
    }

    /// The next whole line that is not blank.
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

    /// Bytes of a line that has not ended yet.
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
                "unknown type of watch event {other:?}"
            ))));
        }
    })
}

/// Takes `{"type":..., "object":...}` apart without decoding the object. Servers print exactly the
/// layout tried first, where the object's end is the line's end and need not be searched.
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

/// Decodes a page item by item; the text is there as a whole, the objects as they are kept.
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
        // A Table or a Status has no items: it must not be taken for "there are none".
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
