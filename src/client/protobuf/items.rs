//! Cuts a protobuf list into its items while its body arrives; [`ListItems`](crate::client::list_items) does so with JSON.
//!
//! Mirrors nothing in client-go, which decodes a list as a whole.
//! Flow: API server -> body -> **items** -> items, one by one; then the metadata of the list
//!
//! # How it works
//! The body is a `runtime.Unknown` around the list. The list's own fields are read in the order of the wire, each when it
//! has arrived as a whole: number 1 is its metadata, each number 2 an item.
//!
//! # Guarantees
//! - Items are the same however the body is divided into chunks. (test: `items_of_protobuf_do_not_depend_on_the_chunks`)
//! - A truncated or malformed list, and what is not a list, is an error. (test: `truncated_protobuf_list_is_an_error`)
//! - The length of an item and of what is around the items is limited. (test: `overlong_item_of_protobuf_is_an_error`,
//!   `endless_protobuf_ends_after_bounded_bytes`)

use bytes::{Buf, Bytes, BytesMut};
use prost::encoding::{WireType, decode_key, decode_varint};
use serde::Deserialize;
use serde_json::Error;

use super::LIST_METADATA;
use super::deserializer::malformed;
use super::envelope::{MAGIC, bytes_of};
use crate::client::list_items::{HeadMeta, LENGTH_MAX, ListMeta};

/// Longest that number and length of a field may be.
const HEAD_MAX: usize = 5 + 10;

/// The scanner; see the module.
#[derive(Debug, Default)]
pub(crate) struct ListMessages {
    buffer: BytesMut,
    at: At,
    meta: Option<Bytes>,
    /// Number of bytes that were none of an item.
    outside: usize,
}

#[derive(Debug, Default)]
enum At {
    #[default]
    Start,
    /// Before the list: the type.
    Envelope,
    /// In the list, of which so many bytes are left.
    List(usize),
    /// After the list.
    End,
}

// === impl ListMessages ===

impl ListMessages {
    /// Adds a part of the body.
    pub(crate) fn push(&mut self, data: &[u8]) {
        self.buffer.extend_from_slice(data);
    }

    /// Returns whether an item, or what is around the items, is longer than [`LENGTH_MAX`].
    pub(crate) fn is_overlong(&self) -> bool {
        self.buffer.len().max(self.outside) > LENGTH_MAX
    }

    /// Ends the body.
    pub(crate) fn finish(self) -> Result<ListMeta, Error> {
        if !matches!(self.at, At::End) || !self.buffer.is_empty() {
            return Err(malformed());
        }
        HeadMeta::deserialize(LIST_METADATA.read(&self.meta.unwrap_or_default()))?.checked()
    }

    /// Returns the next item; `None` if more of the body is needed.
    pub(crate) fn next(&mut self) -> Result<Option<Bytes>, Error> {
        loop {
            match self.at {
                At::Start if self.buffer.len() < MAGIC.len() => return Ok(None),
                At::Start => {
                    if self.buffer.split_to(MAGIC.len()) != MAGIC {
                        return Err(malformed());
                    }
                    self.at = At::Envelope;
                }
                At::Envelope => {
                    let Some((number, head, length)) = self.head()? else { return Ok(None) };
                    if number == 2 {
                        self.buffer.advance(head);
                        self.at = At::List(length);
                        continue;
                    }
                    let Some(value) = self.value(head, length) else { return Ok(None) };
                    self.outside += head + length;
                    if number == 1 && !bytes_of(&value, 2)?.is_some_and(|kind| kind.ends_with(b"List")) {
                        return Err(malformed());
                    }
                }
                At::List(0) => self.at = At::End,
                At::List(left) => {
                    let Some((number, head, length)) = self.head()? else { return Ok(None) };
                    let after = left.checked_sub(head.saturating_add(length)).ok_or_else(malformed)?;
                    let Some(value) = self.value(head, length) else { return Ok(None) };
                    self.at = At::List(after);
                    if number == 2 {
                        return Ok(Some(value));
                    }
                    self.outside += head + length;
                    if number == 1 && self.meta.replace(value).is_some() {
                        return Err(malformed());
                    }
                }
                At::End => {
                    let Some((number, head, length)) = self.head()? else { return Ok(None) };
                    if number == 2 {
                        return Err(malformed());
                    }
                    if self.value(head, length).is_none() {
                        return Ok(None);
                    }
                    self.outside += head + length;
                }
            }
        }
    }

    /// Returns number, length of the head and length of the value of the field that the buffer begins with.
    fn head(&self) -> Result<Option<(u32, usize, usize)>, Error> {
        let mut rest = &self.buffer[..self.buffer.len().min(HEAD_MAX)];
        let available = rest.len();
        let key = decode_key(&mut rest);
        let (Ok((number, wire_type)), Ok(length)) = (key, decode_varint(&mut rest)) else {
            return if available < HEAD_MAX { Ok(None) } else { Err(malformed()) };
        };
        let length = usize::try_from(length).map_err(|_| malformed())?;
        match wire_type {
            WireType::LengthDelimited => Ok(Some((number, available - rest.len(), length))),
            _ => Err(malformed()),
        }
    }

    /// Takes the field that the buffer begins with, if it has arrived as a whole, and returns its value.
    fn value(&mut self, head: usize, length: usize) -> Option<Bytes> {
        let end = head.checked_add(length).filter(|end| *end <= self.buffer.len())?;
        Some(self.buffer.split_to(end).freeze().slice(head..))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::client::protobuf::{ANY_OBJECT, written};

    fn body() -> Vec<u8> {
        let items = ["a", "b"].map(|name| json!({"metadata": {"name": name}}));
        written::list("Foo", &ANY_OBJECT, &items, "next")
    }

    fn read(body: &[u8], size: usize) -> Result<(Vec<Bytes>, ListMeta), Error> {
        let (mut list, mut items) = (ListMessages::default(), Vec::new());
        for chunk in body.chunks(size) {
            list.push(chunk);
            while let Some(item) = list.next()? {
                items.push(item);
            }
        }
        Ok((items, list.finish()?))
    }

    #[test]
    fn items_of_protobuf_do_not_depend_on_the_chunks() {
        let body = body();
        for size in 1..=body.len() {
            let (items, meta) = read(&body, size).unwrap();
            let names = items.iter().map(|item| {
                let object = ANY_OBJECT.read(item);
                let object: serde_json::Value = serde::Deserialize::deserialize(object).unwrap();
                object["metadata"]["name"].clone()
            });
            assert_eq!(names.collect::<Vec<_>>(), ["a", "b"], "chunks of {size}");
            let expected =
                ListMeta { resource_version: "9".to_owned(), continue_token: Some("next".to_owned()) };
            assert_eq!(meta, expected, "chunks of {size}");
        }
    }

    #[test]
    fn truncated_protobuf_list_is_an_error() {
        let body = body();
        // Without its last two fields, which are empty, a body is complete.
        let complete = [body.len() - 4, body.len() - 2];
        for length in (0..body.len()).filter(|length| !complete.contains(length)) {
            assert!(read(&body[..length], 7).is_err(), "{length} bytes");
        }
        let (mut without_version, mut with_version) = (Vec::new(), Vec::new());
        written::bytes(&mut without_version, 1, b"");
        written::bytes(&mut with_version, 1, b"\x12\x019");
        assert!(read(&written::body("FooList", &with_version), 7).is_ok());
        for wrong in [
            written::body("Status", &[]),
            written::body("FooList", &[]),
            written::body("FooList", &without_version),
            written::body("FooList", &[0x08, 1]),
            written::body("FooList", &[0x0a, 9, 1]),
            [&body[..], b"more"].concat(),
            // Two lists in one, and a list with metadata twice.
            [&body[..], &[0x12, 0]].concat(),
            written::body("FooList", &[&with_version[..], &with_version].concat()),
            br#"{"items":[],"metadata":{"resourceVersion":"9"}}"#.to_vec(),
        ] {
            assert!(read(&wrong, 7).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn overlong_item_of_protobuf_is_an_error() {
        let mut list = ListMessages::default();
        let mut head = written::body("FooList", &[]);
        head.truncate(head.len() - 6);
        // A list of 2^34 bytes, whose first item has nearly as many.
        head.extend([0x12, 0x80, 0x80, 0x80, 0x80, 0x40, 0x12, 0xf0, 0xff, 0xff, 0xff, 0x3f]);
        list.push(&head);
        list.push(&vec![0; LENGTH_MAX - 16]);
        assert_eq!((list.next().unwrap(), list.is_overlong()), (None, false));
        list.push(&[0; 32]);
        assert_eq!((list.next().unwrap(), list.is_overlong()), (None, true));
    }
}
