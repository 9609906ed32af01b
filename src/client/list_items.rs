//! Cuts a list into its items while its body arrives, so that no more than one item is held as text.
//!
//! Mirrors nothing in client-go, which decodes a list as a whole.
//! Flow: API server -> body -> **list_items** -> items, one by one; then the metadata of the list
//!
//! # How it works
//! The scanner only counts brackets outside of strings. An object inside the top-level array `items` is
//! cut out. Everything else is the *head*, in which a `0` stands for each item, and serde decodes and
//! checks it when the body ends: `{"kind":"FooList","metadata":{...},"items":[0,0,0]}`.
//!
//! # Guarantees
//! - Items are the same however the body is divided into chunks. (test: `items_do_not_depend_on_the_chunks`)
//! - An answer without `items` is an error; `null` is an empty list. (test: `answer_without_items_is_an_error`)
//! - A truncated or malformed list is an error. (test: `truncated_or_malformed_list_is_an_error`)
//! - The length of an item and of the head is limited. (test: `overlong_item_is_an_error`)

use bytes::{Buf, Bytes, BytesMut};
use serde::{Deserialize, Deserializer};

use super::json_error::without_values;

/// Maximum length of an item and of the head: etcd accepts 1.5 MiB per object, and JSON escapes take more.
pub(crate) const LENGTH_MAX: usize = 16 << 20;

/// The metadata of a list.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ListMeta {
    pub(crate) resource_version: String,
    /// Token of the next page, if there is one.
    pub(crate) continue_token: Option<String>,
}

/// The scanner; see the module.
#[derive(Debug, Default)]
pub(crate) struct ListItems {
    /// Bytes that belong to neither the head nor a returned item yet.
    buffer: BytesMut,
    /// Length of the start of the buffer that was scanned.
    scanned: usize,
    head: Vec<u8>,
    in_string: bool,
    /// Number of open brackets.
    depth: usize,
    in_items: bool,
    cut: usize,
}

/// Depth inside the top-level array `items`.
const ITEMS_DEPTH: usize = 2;

// === impl ListItems ===

impl ListItems {
    /// Adds a part of the body.
    pub(crate) fn push(&mut self, data: &[u8]) {
        self.buffer.extend_from_slice(data);
    }

    /// Returns the next item; `None` if more of the body is needed.
    pub(crate) fn next(&mut self) -> Option<Bytes> {
        while let Some(&byte) = self.buffer.get(self.scanned) {
            if self.in_string {
                if !self.skip_string() {
                    break;
                }
                continue;
            }
            match byte {
                b'"' => self.in_string = true,
                b'{' | b'[' => self.open(byte),
                b'}' | b']' => {
                    self.depth = self.depth.saturating_sub(1);
                    self.in_items &= self.depth >= ITEMS_DEPTH;
                    if self.in_items && self.depth == ITEMS_DEPTH && byte == b'}' {
                        let item = self.buffer.split_to(self.scanned + 1).freeze();
                        self.scanned = 0;
                        self.head.push(b'0');
                        self.cut += 1;
                        return Some(item);
                    }
                }
                _ => {}
            }
            self.scanned += 1;
        }
        if !self.is_inside_item() {
            self.move_to_head();
        }
        None
    }

    /// Returns whether an item or the head is longer than [`LENGTH_MAX`].
    pub(crate) fn is_overlong(&self) -> bool {
        self.buffer.len().max(self.head.len()) > LENGTH_MAX
    }

    /// Ends the body: decodes what is around the items.
    pub(crate) fn finish(mut self) -> Result<ListMeta, serde_json::Error> {
        self.scanned = self.buffer.len();
        self.move_to_head();
        let Head { metadata, items } =
            serde_json::from_slice(&self.head).map_err(|error| without_values(&error))?;
        if items.len() != self.cut || items.iter().any(|item| *item != 0) {
            return Err(serde::de::Error::custom("an item of the list is not an object"));
        }
        metadata.checked()
    }

    /// Moves past the rest of a string; `false` if its end has not arrived.
    fn skip_string(&mut self) -> bool {
        let rest = &self.buffer[self.scanned..];
        let Some(at) = memchr::memchr2(b'"', b'\\', rest) else {
            self.scanned = self.buffer.len();
            return false;
        };
        if rest[at] == b'"' {
            self.in_string = false;
            self.scanned += at + 1;
        } else if at + 1 < rest.len() {
            self.scanned += at + 2;
        } else {
            // The escaped character has not arrived.
            self.scanned += at;
            return false;
        }
        true
    }

    fn open(&mut self, bracket: u8) {
        if self.depth == ITEMS_DEPTH - 1 && bracket == b'[' {
            self.move_to_head();
            let before = self.head.trim_ascii_end();
            let key = before.strip_suffix(b":").map(<[u8]>::trim_ascii_end);
            // Not the end of a longer key with a quote in it.
            self.in_items = key
                .and_then(|key| key.strip_suffix(b"\"items\""))
                .is_some_and(|before| !before.ends_with(b"\\"));
        } else if self.in_items && self.depth == ITEMS_DEPTH {
            self.move_to_head();
        }
        self.depth += 1;
    }

    fn is_inside_item(&self) -> bool {
        self.in_items && self.depth > ITEMS_DEPTH
    }

    /// Adds what was scanned to the head.
    fn move_to_head(&mut self) {
        self.head.extend_from_slice(&self.buffer[..self.scanned]);
        self.buffer.advance(self.scanned);
        self.scanned = 0;
    }
}

/// Calls `each` with every item of a complete body.
pub(crate) fn for_each_item(
    body: &[u8],
    mut each: impl FnMut(&[u8]) -> Result<(), serde_json::Error>,
) -> Result<ListMeta, serde_json::Error> {
    let mut items = ListItems::default();
    items.push(body);
    while let Some(item) = items.next() {
        each(&item)?;
    }
    items.finish()
}

#[derive(Deserialize)]
struct Head {
    metadata: HeadMeta,
    /// Required: a Table or a Status has none, and must not be read as an empty list. A server may write an empty list
    /// as null.
    #[serde(deserialize_with = "null_is_empty")]
    items: Vec<u8>,
}

/// The metadata of a list as a server writes it.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct HeadMeta {
    #[serde(default)]
    resource_version: String,
    #[serde(default, rename = "continue")]
    next: Option<String>,
}

impl HeadMeta {
    pub(super) fn checked(self) -> Result<ListMeta, serde_json::Error> {
        if self.resource_version.is_empty() {
            return Err(serde::de::Error::missing_field("metadata.resourceVersion"));
        }
        let continue_token = self.next.filter(|token| !token.is_empty());
        Ok(ListMeta { resource_version: self.resource_version, continue_token })
    }
}

fn null_is_empty<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<u8>, D::Error> {
    Ok(Option::deserialize(from)?.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIST: &str = r#"{"kind":"FooList","items" : [ {"a":"]}\"\\"}, {"items":[{"b":{}}]},{} ],
        "metadata":{"resourceVersion":"7","continue":"next","x":[{"y":1}]}}"#;

    fn read(chunks: &[&[u8]]) -> Result<(Vec<String>, ListMeta), serde_json::Error> {
        let mut items = ListItems::default();
        let mut read = Vec::new();
        for chunk in chunks {
            items.push(chunk);
            while let Some(item) = items.next() {
                read.push(String::from_utf8(item.to_vec()).unwrap());
            }
        }
        Ok((read, items.finish()?))
    }

    #[test]
    fn items_do_not_depend_on_the_chunks() {
        let meta = || ListMeta { resource_version: "7".to_owned(), continue_token: Some("next".to_owned()) };
        let items = [r#"{"a":"]}\"\\"}"#, r#"{"items":[{"b":{}}]}"#, "{}"];
        for size in 1..=LIST.len() {
            let chunks: Vec<&[u8]> = LIST.as_bytes().chunks(size).collect();
            let (read, head) = read(&chunks).unwrap();
            assert_eq!(read, items, "chunks of {size}");
            assert_eq!(head, meta(), "chunks of {size}");
        }
        let malformed = r#"{"items":["a", [}, {]}, {}]}"#.as_bytes();
        let items_of = |size: usize| {
            let mut items = ListItems::default();
            let mut read = Vec::new();
            for chunk in malformed.chunks(size) {
                items.push(chunk);
                read.extend(std::iter::from_fn(|| items.next()));
            }
            read
        };
        for size in 1..malformed.len() {
            assert_eq!(items_of(size), items_of(malformed.len()), "chunks of {size}");
        }
    }

    #[test]
    fn answer_without_items_is_an_error() {
        let read = |body: &str| read(&[body.as_bytes()]);
        let (items, _) = read(r#"{"items":null,"metadata":{"resourceVersion":"9"}}"#).unwrap();
        assert!(items.is_empty());
        for broken in [
            r#"{"metadata":{"resourceVersion":"9"}}"#,
            r#"{"kind":"Status","status":"Failure","metadata":{}}"#,
            r#"{"x\"items":[{}],"metadata":{"resourceVersion":"9"}}"#,
            r#"{"items":[]}"#,
            r#"{"items":[],"metadata":{}}"#,
            r#"[{"items":[{}]}]"#,
            r#"{"x\"items":[{}],"items":[0],"metadata":{"resourceVersion":"9"}}"#,
        ] {
            assert!(read(broken).is_err(), "{broken}");
        }
    }

    #[test]
    fn truncated_or_malformed_list_is_an_error() {
        for length in 0..LIST.len() {
            assert!(read(&[&LIST.as_bytes()[..length]]).is_err(), "{}", &LIST[..length]);
        }
        for broken in
            ["[{} {}]", "[{},]", "[0]", "[{},1]", "[null]", "[[{}]]", r#"["{}"]"#, "{}", "[]]", "[}]"]
        {
            let list = format!(r#"{{"items":{broken},"metadata":{{"resourceVersion":"9"}}}}"#);
            assert!(read(&[list.as_bytes()]).is_err(), "{list}");
        }
    }

    #[test]
    fn overlong_item_is_an_error() {
        let is_overlong = |start: &str| {
            let mut items = ListItems::default();
            items.push(start.as_bytes());
            items.push(&vec![b' '; LENGTH_MAX]);
            let at_limit = items.next().is_some();
            items.push(b"  ");
            (at_limit, items.next().is_some(), items.is_overlong())
        };
        for start in [r#"{"items":[{"#, r#"{"metadata":{"#] {
            assert_eq!(is_overlong(start), (false, false, true), "{start}");
        }
    }
}
