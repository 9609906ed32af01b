//! Text of cached objects, kept once where many objects have it.
//!
//! Mirrors nothing in client-go, which copies each text.
//!
//! # How it works
//! Most text in Kubernetes objects repeats: namespaces, kinds, label keys, reasons, images. Each thread remembers
//! the `SLOTS` texts that it decoded last, by their hash; a text that is still in its slot is shared, another one takes the
//! slot. The table has a fixed size and nothing in it needs cleaning up.
//!
//! # Guarantees
//! - Equal texts that are decoded one after the other are one. (test: `repeated_text_is_shared`)
//! - A label map finds its labels, whatever their order. (test: `label_map_finds_each_label`)
//! - Setting keys keeps the others. (test: `label_map_is_set_key_by_key`)
//! - Text reads from JSON and compares as a string does. (test: `text_is_read_with_its_escapes`)

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt;
use std::hash::BuildHasher;
use std::ops::{Deref, Index};
use std::sync::Arc;

use foldhash::fast::FixedState;
use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Number of texts that a thread remembers; a power of two, at most 65,536.
const SLOTS: usize = 1024;
/// Longer text, such as a message, seldom repeats.
const SHARED_MAX: usize = 128;

thread_local! {
    static RECENT: RefCell<Vec<Text>> = RefCell::new(vec![Text::default(); SLOTS]);
}

/// A text that is shared with equal ones; see the module.
#[derive(Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Text(Arc<str>);

/// The labels of a cached object: sorted, in one block of memory, with shared text. A `BTreeMap` of three labels takes
/// 544 bytes and their text, this map 96 and what of the text is not shared.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct TextMap(Box<[(Text, Text)]>);

// === impl Text ===

impl Text {
    /// Returns the text as a string slice.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    fn shared(text: &str) -> Self {
        if text.is_empty() {
            return Self::default();
        }
        if text.len() > SHARED_MAX {
            return Self(text.into());
        }
        let [low, high, ..] = FixedState::default().hash_one(text).to_le_bytes();
        let slot = usize::from(u16::from_le_bytes([low, high])) % SLOTS;
        RECENT.with_borrow_mut(|recent| {
            if *recent[slot].0 != *text {
                recent[slot] = Self(text.into());
            }
            recent[slot].clone()
        })
    }
}

impl From<&str> for Text {
    fn from(text: &str) -> Self {
        Self::shared(text)
    }
}

impl From<String> for Text {
    fn from(text: String) -> Self {
        Self::shared(&text)
    }
}

impl Deref for Text {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl PartialEq<str> for Text {
    fn eq(&self, other: &str) -> bool {
        *self.0 == *other
    }
}

impl PartialEq<&str> for Text {
    fn eq(&self, other: &&str) -> bool {
        *self.0 == **other
    }
}

impl PartialEq<String> for Text {
    fn eq(&self, other: &String) -> bool {
        *self.0 == **other
    }
}

impl fmt::Display for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&*self.0, f)
    }
}

impl Serialize for Text {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for Text {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct TextVisitor;

        impl Visitor<'_> for TextVisitor {
            type Value = Text;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string")
            }

            fn visit_str<E>(self, text: &str) -> Result<Text, E> {
                Ok(Text::shared(text))
            }
        }
        from.deserialize_str(TextVisitor)
    }
}

// === impl TextMap ===

impl TextMap {
    /// Returns the value of this key.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&str> {
        let at = self.0.binary_search_by(|(known, _)| known.as_str().cmp(key)).ok()?;
        Some(self.0[at].1.as_str())
    }

    /// Returns keys and values, sorted by key.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(key, value)| (key.as_str(), value.as_str()))
    }

    /// Whether the map has no keys.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Sets one key, unless it has this value already.
    pub fn set(&mut self, key: &str, value: &str) {
        match self.0.binary_search_by(|(known, _)| known.as_str().cmp(key)) {
            Ok(at) if self.0[at].1 == value => {}
            Ok(at) => self.0[at].1 = value.into(),
            Err(at) => {
                let mut pairs = std::mem::take(&mut self.0).into_vec();
                pairs.insert(at, (key.into(), value.into()));
                self.0 = pairs.into_boxed_slice();
            }
        }
    }

    /// Sets these keys, and keeps all others.
    pub fn merge(&mut self, map: &BTreeMap<String, String>) {
        map.iter().for_each(|(key, value)| self.set(key, value));
    }

    /// Makes the map equal to this one.
    pub fn replace(&mut self, map: &BTreeMap<String, String>) {
        let is_same = |((key, value), (other, its))| key == other && value == its;
        if self.0.len() != map.len() || !self.iter().zip(map).all(is_same) {
            *self = map.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
        }
    }

    /// Returns a copy as the map that selectors take.
    #[must_use]
    pub fn to_map(&self) -> BTreeMap<String, String> {
        self.iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect()
    }
}

/// Of equal keys, the last one counts.
impl<K: Into<Text>, V: Into<Text>> FromIterator<(K, V)> for TextMap {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(pairs: I) -> Self {
        let mut pairs: Vec<(Text, Text)> =
            pairs.into_iter().map(|(key, value)| (key.into(), value.into())).collect();
        // Servers print sorted maps.
        if !pairs.is_sorted_by(|before, after| before.0 < after.0) {
            pairs.reverse();
            pairs.sort_by(|a, b| a.0.cmp(&b.0));
            pairs.dedup_by(|after, before| after.0 == before.0);
        }
        Self(pairs.into_boxed_slice())
    }
}

impl Index<&str> for TextMap {
    type Output = str;

    fn index(&self, key: &str) -> &str {
        self.get(key).expect("no such key")
    }
}

impl fmt::Debug for TextMap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

impl Serialize for TextMap {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_map(self.iter())
    }
}

impl<'de> Deserialize<'de> for TextMap {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Pairs;

        impl<'de> Visitor<'de> for Pairs {
            type Value = TextMap;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a map")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<TextMap, A::Error> {
                std::iter::from_fn(|| map.next_entry::<Text, Text>().transpose()).collect()
            }
        }
        from.deserialize_map(Pairs)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeated_text_is_shared() {
        let read = |json: &str| serde_json::from_str::<Text>(json).unwrap();
        let (one, two) = (read(r#""app.kubernetes.io/name""#), read(r#""app.kubernetes.io/name""#));
        assert!(Arc::ptr_eq(&one.0, &two.0));
        for other in 0..100 * SLOTS {
            drop(Text::from(other.to_string()));
        }
        assert_eq!(read(r#""app.kubernetes.io/name""#), one);
        let long = format!("{:?}", "x".repeat(SHARED_MAX + 1));
        assert!(!Arc::ptr_eq(&read(&long).0, &read(&long).0));
    }

    #[test]
    fn label_map_finds_each_label() {
        for json in [r#"{"a":"1","b":"2","c":"3"}"#, r#"{"c":"3","a":"0","b":"2","a":"1"}"#] {
            let map: TextMap = serde_json::from_str(json).unwrap();
            assert_eq!(
                (map.get("a"), map.get("b"), map.get("c")),
                (Some("1"), Some("2"), Some("3")),
                "{json}"
            );
            assert_eq!((map.get(""), map.get("d")), (None, None));
            assert_eq!(format!("{map:?}"), r#"{"a": "1", "b": "2", "c": "3"}"#);
            assert_eq!(map.to_map().into_iter().collect::<TextMap>(), map);
        }
        assert!(serde_json::from_str::<TextMap>(r#"{"a":1}"#).is_err());
    }

    #[test]
    fn label_map_is_set_key_by_key() {
        let json = r#"{"a":"1","c":"3"}"#;
        let mut map: TextMap = serde_json::from_str(json).unwrap();
        assert_eq!(serde_json::to_string(&map).unwrap(), json);
        let wanted =
            BTreeMap::from([("b", "2"), ("c", "4")].map(|(key, value)| (key.to_owned(), value.to_owned())));
        map.merge(&wanted);
        assert_eq!(serde_json::to_string(&map).unwrap(), r#"{"a":"1","b":"2","c":"4"}"#);
        map.replace(&wanted);
        assert_eq!(map.to_map(), wanted);
        map.replace(&BTreeMap::new());
        assert!(map.is_empty());
    }

    #[test]
    fn text_is_read_with_its_escapes() {
        let text: Text = serde_json::from_str(r#""a\"b""#).unwrap();
        assert_eq!(text, "a\"b");
        assert_eq!(serde_json::to_string(&text).unwrap(), r#""a\"b""#);
        assert_eq!(Text::from(""), Text::default());
        assert!(serde_json::from_str::<Text>("7").is_err());
    }
}
