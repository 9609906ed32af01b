//! Kubernetes' protobuf, read into the types that its JSON is read into.
//!
//! Mirrors apimachinery's `runtime/serializer/protobuf`, for reading only.
//! Flow: API server -> `protobuf/envelope` -> the bytes of one object -> **protobuf** -> serde -> a projection
//!
//! # How it works
//! A server encodes a list as protobuf in half the time of JSON, and an event once for all who watch a kind as protobuf, as
//! Go controllers do. A [`Message`] says which number a field has on the wire and which name in JSON, for those fields that
//! a projection reads; all others are skipped. Its serde type then decodes from both, and stays the one description of what
//! is kept.
//!
//! Kubernetes writes also what JSON leaves out, because its tag in Go has `omitempty`: a text that is empty, a number that is
//! 0. Such a [`value`] counts as missing; a [`pointer()`] does not.
//!
//! A field that a type asks for and the message does not have would be read as missing for ever; a build with debug
//! assertions panics instead, as all tests do.
//!
//! # Guarantees
//! - An object is the same from protobuf as from JSON. (test: `object_is_the_same_from_protobuf_as_from_json`,
//!   `what_a_real_server_writes_is_the_same_from_protobuf`)
//! - Fields that the message does not list are skipped. (test: `unknown_fields_are_skipped`)
//! - A message that is cut off or malformed is an error. (test: `malformed_message_is_an_error`)
//! - A field that comes twice is an error: Kubernetes writes each once, and the items of a list together.
//!   (test: `field_that_comes_twice_is_an_error`)
//! - A message has every field that its type asks for. (test: `type_that_asks_for_more_panics`)
//! - A failure that the server reports as protobuf is read, too. (test: `status_is_read_from_protobuf`)

pub(crate) mod envelope;
pub(crate) mod items;

use std::borrow::Cow;

use jiff::Timestamp;
use prost::encoding::{DecodeContext, WireType, decode_key, decode_varint, skip_field};
use serde::de::value::StrDeserializer;
use serde::de::{DeserializeSeed, Deserializer, Error as _, IntoDeserializer, MapAccess, SeqAccess, Visitor};
use serde_json::Error;

use super::json_error::MALFORMED;

/// The fields of a message that are read. A kind's numbers are in the `generated.proto` of its API group. Since a value
/// that is empty counts as missing, its serde field has a default.
///
/// ```
/// use serde::Deserialize;
/// use windlass::api::ApiResource;
/// use windlass::cache::{Meta, Object};
/// use windlass::client::protobuf::{Kind, METADATA, Message, of, pointer, value};
///
/// #[derive(Deserialize)]
/// struct ObservedCronJob {
///     metadata: Meta,
///     spec: ObservedCronJobSpec,
/// }
///
/// #[derive(Deserialize)]
/// #[serde(default)]
/// # #[derive(Default)]
/// struct ObservedCronJobSpec {
///     schedule: String,
///     suspend: Option<bool>,
/// }
///
/// static SPEC: Message = Message::new(&[value(1, "schedule", Kind::Text), pointer(4, "suspend", Kind::Flag)]);
/// static CRON_JOB: Message = Message::new(&[of(1, "metadata", &METADATA), of(2, "spec", &SPEC)]);
///
/// windlass::object_by_metadata!(ObservedCronJob, ApiResource::new("batch", "v1", "CronJob", "cronjobs"), CRON_JOB);
///
/// assert!(ObservedCronJob::protobuf().is_some());
/// ```
#[derive(Debug)]
pub struct Message(&'static [Field]);

/// A field of a [`Message`].
#[derive(Clone, Copy, Debug)]
pub struct Field {
    number: u32,
    /// The name in JSON.
    name: &'static str,
    kind: Kind,
    holds: Holds,
}

/// What a field consists of.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Kind {
    /// `string`.
    Text,
    /// `int32` or `int64`.
    Integer,
    /// `bool`.
    Flag,
    /// `metav1.Time`, a text in JSON.
    Time,
    /// `resource.Quantity`, a text in JSON.
    Quantity,
    /// `intstr.IntOrString`, a number or a text in JSON.
    IntOrString,
    /// A message.
    Message(&'static Message),
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Holds {
    /// A value, left out when it is empty.
    Value,
    /// A value that may be empty: a pointer in Go.
    Pointer,
    /// A message whose fields JSON has in place of it.
    Inline,
    List,
    /// Values by text.
    Map,
}

/// A field that JSON leaves out when it is empty: `omitempty` in Go, and no pointer.
#[must_use]
pub const fn value(number: u32, name: &'static str, kind: Kind) -> Field {
    Field { number, name, kind, holds: Holds::Value }
}

/// A field that is a pointer in Go, or has no `omitempty`: an empty value is not the same as none.
#[must_use]
pub const fn pointer(number: u32, name: &'static str, kind: Kind) -> Field {
    Field { number, name, kind, holds: Holds::Pointer }
}

/// A field that is a message.
#[must_use]
pub const fn of(number: u32, name: &'static str, message: &'static Message) -> Field {
    value(number, name, Kind::Message(message))
}

/// A message whose fields are in place of it in JSON: a struct that is embedded in Go. It must not contain another such one.
#[must_use]
pub const fn inline(number: u32, message: &'static Message) -> Field {
    Field { number, name: "", kind: Kind::Message(message), holds: Holds::Inline }
}

/// A list.
#[must_use]
pub const fn list(number: u32, name: &'static str, kind: Kind) -> Field {
    Field { number, name, kind, holds: Holds::List }
}

/// A map from texts.
#[must_use]
pub const fn map(number: u32, name: &'static str, kind: Kind) -> Field {
    Field { number, name, kind, holds: Holds::Map }
}

static OWNER_REFERENCE: Message = Message::new(&[
    value(1, "kind", Kind::Text),
    value(3, "name", Kind::Text),
    value(4, "uid", Kind::Text),
    value(5, "apiVersion", Kind::Text),
    pointer(6, "controller", Kind::Flag),
    pointer(7, "blockOwnerDeletion", Kind::Flag),
]);

/// `metav1.ObjectMeta`, without what no projection keeps.
pub static METADATA: Message = Message::new(&[
    value(1, "name", Kind::Text),
    value(3, "namespace", Kind::Text),
    value(5, "uid", Kind::Text),
    value(6, "resourceVersion", Kind::Text),
    value(7, "generation", Kind::Integer),
    pointer(9, "deletionTimestamp", Kind::Time),
    map(11, "labels", Kind::Text),
    map(12, "annotations", Kind::Text),
    list(13, "ownerReferences", Kind::Message(&OWNER_REFERENCE)),
    list(14, "finalizers", Kind::Text),
]);

/// What identifies an object, whatever else of it is malformed.
pub(crate) static IDENTITY: Message = Message::new(&[of(1, "metadata", &NAMES)]);

static NAMES: Message = Message::new(&[
    value(1, "name", Kind::Text),
    value(3, "namespace", Kind::Text),
    value(5, "uid", Kind::Text),
    value(6, "resourceVersion", Kind::Text),
]);

/// An object of which only the metadata is read.
pub(crate) static ANY_OBJECT: Message = Message::new(&[of(1, "metadata", &METADATA)]);

static CAUSE: Message = Message::new(&[
    value(1, "reason", Kind::Text),
    value(2, "message", Kind::Text),
    value(3, "field", Kind::Text),
]);

static DETAILS: Message = Message::new(&[
    value(1, "name", Kind::Text),
    value(2, "group", Kind::Text),
    value(3, "kind", Kind::Text),
    list(4, "causes", Kind::Message(&CAUSE)),
    value(5, "retryAfterSeconds", Kind::Integer),
    value(6, "uid", Kind::Text),
]);

static SHARD_INFO: Message = Message::new(&[value(1, "selector", Kind::Text)]);

/// `metav1.ListMeta`.
static LIST_METADATA: Message = Message::new(&[
    value(1, "selfLink", Kind::Text),
    value(2, "resourceVersion", Kind::Text),
    value(3, "continue", Kind::Text),
    pointer(4, "remainingItemCount", Kind::Integer),
    of(5, "shardInfo", &SHARD_INFO),
]);

/// `metav1.Status`.
pub(crate) static STATUS: Message = Message::new(&[
    of(1, "metadata", &LIST_METADATA),
    value(2, "status", Kind::Text),
    value(3, "message", Kind::Text),
    value(4, "reason", Kind::Text),
    of(5, "details", &DETAILS),
    value(6, "code", Kind::Integer),
]);

// === impl Message ===

impl Message {
    /// A message with these fields, 64 at most, each with a number of its own.
    #[must_use]
    pub const fn new(fields: &'static [Field]) -> Self {
        assert!(fields.len() <= u64::BITS as usize);
        let mut at = 0;
        while at < fields.len() {
            assert!(fields[at].number > 0);
            let mut other = 0;
            while other < at {
                assert!(fields[at].number != fields[other].number);
                other += 1;
            }
            at += 1;
        }
        Self(fields)
    }

    /// Whether the message has a field of this name, perhaps in an inline one.
    fn has(&self, name: &str) -> bool {
        self.0.iter().any(|field| match (field.holds, field.kind) {
            (Holds::Inline, Kind::Message(inner)) => inner.has(name),
            _ => field.name == name,
        })
    }

    /// Returns a deserializer of the bytes of this message.
    pub(crate) fn read<'de>(&'static self, bytes: &'de [u8]) -> Value<'de> {
        Value::one(Kind::Message(self), OnWire::Bytes(bytes))
    }
}

/// What the wire has of a value.
#[derive(Clone, Copy, Debug)]
enum OnWire<'de> {
    Number(u64),
    Bytes(&'de [u8]),
}

/// Takes the next field from the front of a message: its number, and the value.
fn take_field<'de>(rest: &mut &'de [u8]) -> Result<(u32, Option<OnWire<'de>>), Error> {
    let (number, wire_type) = decode_key(rest).map_err(|_| malformed())?;
    let value = match wire_type {
        WireType::Varint => Some(OnWire::Number(decode_varint(rest).map_err(|_| malformed())?)),
        WireType::LengthDelimited => {
            let length = decode_varint(rest).map_err(|_| malformed())?;
            let length = usize::try_from(length).map_err(|_| malformed())?;
            let (value, after) = rest.split_at_checked(length).ok_or_else(malformed)?;
            *rest = after;
            Some(OnWire::Bytes(value))
        }
        other => {
            skip_field(other, number, rest, DecodeContext::default()).map_err(|_| malformed())?;
            None
        }
    };
    Ok((number, value))
}

fn malformed() -> Error {
    Error::custom(MALFORMED)
}

fn text(bytes: &[u8]) -> Cow<'_, str> {
    // Invalid UTF-8 is replaced, as in what is read from JSON; Go keeps it.
    std::str::from_utf8(bytes).map_or_else(|_| String::from_utf8_lossy(bytes), Cow::Borrowed)
}

// === impl OnWire ===

impl<'de> OnWire<'de> {
    fn number(self) -> Result<u64, Error> {
        match self {
            Self::Number(number) => Ok(number),
            Self::Bytes(_) => Err(malformed()),
        }
    }

    fn bytes(self) -> Result<&'de [u8], Error> {
        match self {
            Self::Bytes(bytes) => Ok(bytes),
            Self::Number(_) => Err(malformed()),
        }
    }

    fn integer(self) -> Result<i64, Error> {
        self.number().map(u64::cast_signed)
    }

    /// Whether JSON would not have the value, as far as its kind tells.
    fn is_empty(self, kind: Kind) -> bool {
        match kind {
            Kind::Text => matches!(self, Self::Bytes([])),
            Kind::Integer | Kind::Flag => matches!(self, Self::Number(0)),
            _ => false,
        }
    }

    /// Returns the first fields of a small message by number; those that it does not have stay empty.
    fn fields<const N: usize>(self) -> Result<[Option<OnWire<'de>>; N], Error> {
        let (mut rest, mut fields) = (self.bytes()?, [None; N]);
        while !rest.is_empty() {
            let (number, value) = take_field(&mut rest)?;
            if let Some(field) = fields.get_mut(number as usize - 1)
                && field.replace(value.ok_or_else(malformed)?).is_some()
            {
                return Err(malformed());
            }
        }
        Ok(fields)
    }
}

/// A value on the wire, which serde reads.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Value<'de> {
    kind: Kind,
    holds: Holds,
    on_wire: OnWire<'de>,
}

// === impl Value ===

impl<'de> Value<'de> {
    fn one(kind: Kind, on_wire: OnWire<'de>) -> Self {
        Self { kind, holds: Holds::Value, on_wire }
    }
}

impl<'de> Deserializer<'de> for Value<'de> {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        if matches!(self.holds, Holds::List | Holds::Map) {
            let elements = Elements { kind: self.kind, rest: self.on_wire.bytes()? };
            return match self.holds {
                Holds::Map => visitor.visit_map(Entries { elements, value: None }),
                _ => visitor.visit_seq(elements),
            };
        }
        match self.kind {
            Kind::Text => visit_text(self.on_wire.bytes()?, visitor),
            Kind::Integer => visitor.visit_i64(self.on_wire.integer()?),
            Kind::Flag => visitor.visit_bool(self.on_wire.number()? != 0),
            Kind::Time => visitor.visit_string(time(self.on_wire)?),
            Kind::Quantity => {
                let [amount] = self.on_wire.fields()?;
                visit_text(amount.map_or(Ok(&b"0"[..]), OnWire::bytes)?, visitor)
            }
            Kind::IntOrString => match self.on_wire.fields()? {
                [Some(OnWire::Number(1)), _, name] => {
                    visit_text(name.map_or(Ok(&[][..]), OnWire::bytes)?, visitor)
                }
                [_, number, _] => visitor.visit_i64(number.map_or(Ok(0), OnWire::integer)?),
            },
            Kind::Message(message) => visitor.visit_map(Fields::new(message, self.on_wire.bytes()?)),
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_some(self)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, Error> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        if let Kind::Message(message) = self.kind {
            debug_assert!(
                fields.iter().all(|field| message.has(field)),
                "{name} has more fields than {message:?}"
            );
        }
        self.deserialize_any(visitor)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        visitor.visit_enum(text(self.on_wire.bytes()?).into_deserializer())
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_unit()
    }

    serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit unit_struct seq tuple
        tuple_struct map identifier
    }
}

fn visit_text<'de, V: Visitor<'de>>(bytes: &'de [u8], visitor: V) -> Result<V::Value, Error> {
    match text(bytes) {
        Cow::Borrowed(text) => visitor.visit_borrowed_str(text),
        Cow::Owned(text) => visitor.visit_string(text),
    }
}

fn time(on_wire: OnWire<'_>) -> Result<String, Error> {
    let [seconds] = on_wire.fields()?;
    // JSON has no fractions of a second either.
    let seconds = seconds.map_or(Ok(0), OnWire::integer)?;
    Ok(Timestamp::from_second(seconds).map_err(|_| malformed())?.to_string())
}

/// The fields of a message, as a map by name.
#[derive(Debug)]
struct Fields<'de> {
    message: &'static Message,
    rest: &'de [u8],
    /// Which fields of the message came already.
    seen: u64,
    /// The message around an inline one.
    outer: Option<(&'static Message, &'de [u8], u64)>,
    /// The field whose name was returned last, with its value; for a list or a map, all of its elements.
    current: Option<(Field, OnWire<'de>)>,
}

// === impl Fields ===

impl<'de> Fields<'de> {
    fn new(message: &'static Message, bytes: &'de [u8]) -> Self {
        Self { message, rest: bytes, seen: 0, outer: None, current: None }
    }

    /// Returns the next field that is read and not left out.
    fn next(&mut self) -> Result<Option<(Field, OnWire<'de>)>, Error> {
        loop {
            while self.rest.is_empty() {
                let Some((message, rest, seen)) = self.outer.take() else { return Ok(None) };
                (self.message, self.rest, self.seen) = (message, rest, seen);
            }
            let before = self.rest;
            let (number, value) = take_field(&mut self.rest)?;
            let Some(at) = self.message.0.iter().position(|field| field.number == number) else { continue };
            let (field, value) = (self.message.0[at], value.ok_or_else(malformed)?);
            if self.seen & 1 << at != 0 {
                return Err(Error::custom(format_args!("duplicate field `{}`", field.name)));
            }
            self.seen |= 1 << at;
            let value = match (field.holds, field.kind) {
                (Holds::Value, kind) if value.is_empty(kind) => continue,
                // A time that was never set.
                (Holds::Value | Holds::Pointer, Kind::Time) if matches!(value, OnWire::Bytes([])) => continue,
                (Holds::Value | Holds::Pointer, _) => value,
                (Holds::Inline, Kind::Message(inner)) if self.outer.is_none() => {
                    self.outer = Some((self.message, self.rest, self.seen));
                    (self.message, self.rest, self.seen) = (inner, value.bytes()?, 0);
                    continue;
                }
                (Holds::Inline, _) => return Err(malformed()),
                (Holds::List | Holds::Map, _) => {
                    while let Some(after) = after_element(self.rest, number)? {
                        self.rest = after;
                    }
                    OnWire::Bytes(&before[..before.len() - self.rest.len()])
                }
            };
            return Ok(Some((field, value)));
        }
    }
}

/// Returns what comes after the next field if it has this number.
fn after_element(mut rest: &[u8], number: u32) -> Result<Option<&[u8]>, Error> {
    if rest.is_empty() {
        return Ok(None);
    }
    Ok((take_field(&mut rest)?.0 == number).then_some(rest))
}

impl<'de> MapAccess<'de> for Fields<'de> {
    type Error = Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, Error> {
        self.current = self.next()?;
        let Some((field, _)) = &self.current else { return Ok(None) };
        seed.deserialize(StrDeserializer::new(field.name)).map(Some)
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, Error> {
        let (field, value) = self.current.take().ok_or_else(malformed)?;
        seed.deserialize(Value { kind: field.kind, holds: field.holds, on_wire: value })
    }
}

/// The elements of a list or a map: fields of one number, one after the other.
#[derive(Debug)]
struct Elements<'de> {
    kind: Kind,
    rest: &'de [u8],
}

// === impl Elements ===

impl<'de> Elements<'de> {
    fn next(&mut self) -> Result<Option<OnWire<'de>>, Error> {
        if self.rest.is_empty() {
            return Ok(None);
        }
        take_field(&mut self.rest)?.1.ok_or_else(malformed).map(Some)
    }
}

impl<'de> SeqAccess<'de> for Elements<'de> {
    type Error = Error;

    fn next_element_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, Error> {
        let Some(on_wire) = self.next()? else { return Ok(None) };
        seed.deserialize(Value::one(self.kind, on_wire)).map(Some)
    }
}

/// The entries of a map: messages of a key and a value.
#[derive(Debug)]
struct Entries<'de> {
    elements: Elements<'de>,
    value: Option<OnWire<'de>>,
}

// === impl Entries ===

impl<'de> MapAccess<'de> for Entries<'de> {
    type Error = Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, Error> {
        let Some(entry) = self.elements.next()? else { return Ok(None) };
        let [key, value] = entry.fields()?;
        self.value = value;
        let on_wire = key.unwrap_or(OnWire::Bytes(&[]));
        seed.deserialize(Value::one(Kind::Text, on_wire)).map(Some)
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, Error> {
        let on_wire = self.value.take().unwrap_or(OnWire::Bytes(&[]));
        seed.deserialize(Value::one(self.elements.kind, on_wire))
    }
}

#[cfg(test)]
pub(crate) mod written;

#[cfg(test)]
mod tests {
    use serde::Deserialize;
    use serde_json::json;

    use super::*;
    use crate::client::ServerStatus;

    static PART: Message = Message::new(&[
        value(1, "text", Kind::Text),
        pointer(2, "pointer", Kind::Text),
        value(3, "number", Kind::Integer),
        list(4, "list", Kind::Text),
        map(5, "map", Kind::Quantity),
        value(6, "port", Kind::IntOrString),
        pointer(7, "flag", Kind::Flag),
        pointer(8, "time", Kind::Time),
        inline(9, &INNER),
        of(10, "inner", &INNER),
    ]);
    static INNER: Message = Message::new(&[value(1, "inline", Kind::Text)]);

    fn read(bytes: &[u8]) -> Result<serde_json::Value, Error> {
        serde_json::Value::deserialize(PART.read(bytes))
    }

    fn full() -> serde_json::Value {
        json!({"text": "ä", "pointer": "", "number": -7, "list": ["", "b"], "map": {"": "1", "cpu": "100m"},
            "port": "http", "flag": false, "time": "2020-01-02T03:04:05Z", "inline": "x", "inner": {"inline": "y"}})
    }

    #[test]
    fn object_is_the_same_from_protobuf_as_from_json() {
        for json in [full(), json!({"port": 8080}), json!({"inner": {}}), json!({})] {
            assert_eq!(read(&written::message(&PART, &json)).unwrap(), json);
        }
    }

    #[test]
    fn unknown_fields_are_skipped() {
        let mut unknown = Vec::new();
        written::bytes(&mut unknown, 99, b"\xff");
        // A number, eight bytes, and four bytes.
        unknown.extend([0x90, 0x06, 7, 0x91, 0x06, 0, 0, 0, 0, 0, 0, 0, 0, 0x95, 0x06, 0, 0, 0, 0]);
        let known = written::message(&PART, &full());
        assert_eq!(read(&[&unknown[..], &known, &unknown].concat()).unwrap(), full());
    }

    #[test]
    fn malformed_message_is_an_error() {
        let known = written::message(&PART, &full());
        let whole = (0..known.len()).filter(|end| read(&known[..*end]).is_ok()).count();
        assert_eq!(whole, 12, "a field may be missing, but not a part of one");
        // Text as a number; a number as text; a time, a list, a map and an inline message as numbers; an entry of a map that
        // is cut off; no field, and a field whose number or length has no end.
        for wrong in [
            &[0x08, 1][..],
            &[0x08, 0],
            &[0x1a, 1, b'1'],
            &[0x1a, 0],
            &[0x40, 1],
            &[0x20, 1],
            &[0x28, 1],
            &[0x48, 1],
            &[0x2a, 2, 0x12, 0x63],
            &[0],
            &[0xff; 20],
            &[0x0a, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f],
        ] {
            assert_eq!(read(wrong).unwrap_err().to_string(), MALFORMED, "{wrong:?}");
        }
        assert_eq!(read(b"\x0a\x01\xff").unwrap(), json!({"text": "\u{fffd}"}), "invalid UTF-8 is replaced");
    }

    #[test]
    fn field_that_comes_twice_is_an_error() {
        let mut twice = written::message(&PART, &json!({"list": ["a", "b"]}));
        written::bytes(&mut twice, 4, b"c");
        assert_eq!(read(&twice).unwrap_err().to_string(), "duplicate field `list`");
        let mut two_pieces = written::message(&PART, &json!({"list": ["a"]}));
        written::bytes(&mut two_pieces, 2, b"between");
        written::bytes(&mut two_pieces, 4, b"b");
        assert_eq!(read(&two_pieces).unwrap_err().to_string(), "duplicate field `list`");
        for inner in [&[0x32, 4, 0x08, 0, 0x08, 0][..], &[0x42, 4, 0x08, 1, 0x08, 1]] {
            assert_eq!(read(inner).unwrap_err().to_string(), MALFORMED, "{inner:?}");
        }
    }

    #[test]
    #[should_panic(expected = "Asks has more fields than")]
    fn type_that_asks_for_more_panics() {
        #[derive(Deserialize)]
        struct Asks {
            #[serde(rename = "inline")]
            _inline: Option<String>,
            #[serde(rename = "other")]
            _other: Option<String>,
        }
        drop(Asks::deserialize(PART.read(&[])));
    }

    /// Go writes a time that was never set as an empty message, and so do other writers with what they leave out.
    #[test]
    fn empty_messages_mean_what_they_do_in_go() {
        assert_eq!(read(&[0x42, 0]).unwrap(), json!({}), "a time");
        assert_eq!(read(&[0x2a, 3, 0x0a, 1, b'a']).unwrap(), json!({"map": {"a": "0"}}), "a quantity");
        assert_eq!(read(&[0x32, 0]).unwrap(), json!({"port": 0}));
        assert_eq!(read(&[0x32, 2, 0x08, 1]).unwrap(), json!({"port": ""}));
    }

    #[test]
    fn status_is_read_from_protobuf() {
        let status = json!({"status": "Failure", "message": "too old", "reason": "Expired", "code": 410,
            "details": {"retryAfterSeconds": 3, "causes": [{"reason": "R", "message": "m", "field": "f"}]}});
        let body = written::body("Status", &written::message(&STATUS, &status));
        let from_protobuf = ServerStatus::parse(500, None, &body);
        assert!(from_protobuf.is_object && from_protobuf.code == 410);
        assert_eq!(from_protobuf, ServerStatus::parse(500, None, status.to_string().as_bytes()));
        assert!(!ServerStatus::parse(502, None, &body[..body.len() / 2]).is_object);
    }
}
