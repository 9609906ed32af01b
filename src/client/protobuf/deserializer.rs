//! The serde deserializer of an encoded message.
//!
//! Flow: the bytes of one object -> **deserializer** -> serde -> a projection

use std::borrow::Cow;

use jiff::Timestamp;
use prost::encoding::{DecodeContext, WireType, decode_key, decode_varint, skip_field};
use serde::de::value::StrDeserializer;
use serde::de::{DeserializeSeed, Deserializer, Error as _, IntoDeserializer, MapAccess, SeqAccess, Visitor};
use serde_json::Error;

use super::{Field, Kind, Message, Shape};
use crate::client::json_error::MALFORMED;

/// A value by its wire type.
#[derive(Clone, Copy, Debug)]
pub(super) enum WireValue<'de> {
    Number(u64),
    Bytes(&'de [u8]),
}

/// Takes the next field from the front of a message: its number, and its value unless the wire type is one that Kubernetes
/// does not use.
pub(super) fn take_field<'de>(rest: &mut &'de [u8]) -> Result<(u32, Option<WireValue<'de>>), Error> {
    let (number, wire_type) = decode_key(rest).map_err(|_| malformed())?;
    let value = match wire_type {
        WireType::Varint => Some(WireValue::Number(decode_varint(rest).map_err(|_| malformed())?)),
        WireType::LengthDelimited => {
            let length = decode_varint(rest).map_err(|_| malformed())?;
            let length = usize::try_from(length).map_err(|_| malformed())?;
            let (value, after) = rest.split_at_checked(length).ok_or_else(malformed)?;
            *rest = after;
            Some(WireValue::Bytes(value))
        }
        other => {
            skip_field(other, number, rest, DecodeContext::default()).map_err(|_| malformed())?;
            None
        }
    };
    Ok((number, value))
}

pub(super) fn malformed() -> Error {
    Error::custom(MALFORMED)
}

fn text(bytes: &[u8]) -> Cow<'_, str> {
    // Invalid UTF-8 is replaced, as it is from JSON; Go keeps it.
    std::str::from_utf8(bytes).map_or_else(|_| String::from_utf8_lossy(bytes), Cow::Borrowed)
}

// === impl WireValue ===

impl<'de> WireValue<'de> {
    fn number(self) -> Result<u64, Error> {
        match self {
            Self::Number(number) => Ok(number),
            Self::Bytes(_) => Err(malformed()),
        }
    }

    pub(super) fn bytes(self) -> Result<&'de [u8], Error> {
        match self {
            Self::Bytes(bytes) => Ok(bytes),
            Self::Number(_) => Err(malformed()),
        }
    }

    fn integer(self) -> Result<i64, Error> {
        self.number().map(u64::cast_signed)
    }

    /// Returns whether `omitempty` omits the value.
    fn is_empty(self, kind: Kind) -> bool {
        match kind {
            Kind::String => matches!(self, Self::Bytes([])),
            Kind::Int | Kind::Bool => matches!(self, Self::Number(0)),
            _ => false,
        }
    }

    /// Returns the fields 1 to `N` of a message.
    fn fields<const N: usize>(self) -> Result<[Option<WireValue<'de>>; N], Error> {
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

/// A value to deserialize; for a list or map, all of its elements.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Value<'de> {
    kind: Kind,
    shape: Shape,
    wire: WireValue<'de>,
}

// === impl Value ===

impl<'de> Value<'de> {
    pub(super) fn one(kind: Kind, wire: WireValue<'de>) -> Self {
        Self { kind, shape: Shape::OmitEmpty, wire }
    }
}

impl<'de> Deserializer<'de> for Value<'de> {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        if matches!(self.shape, Shape::Repeated | Shape::Map) {
            let elements = Elements { kind: self.kind, rest: self.wire.bytes()? };
            return match self.shape {
                Shape::Map => visitor.visit_map(Entries { elements, value: None }),
                _ => visitor.visit_seq(elements),
            };
        }
        match self.kind {
            Kind::String => visit_text(self.wire.bytes()?, visitor),
            Kind::Int => visitor.visit_i64(self.wire.integer()?),
            Kind::Bool => visitor.visit_bool(self.wire.number()? != 0),
            Kind::Time => visitor.visit_string(time(self.wire)?),
            Kind::Quantity => {
                let [amount] = self.wire.fields()?;
                visit_text(amount.map_or(Ok(&b"0"[..]), WireValue::bytes)?, visitor)
            }
            Kind::IntOrString => match self.wire.fields()? {
                [Some(WireValue::Number(1)), _, name] => {
                    visit_text(name.map_or(Ok(&[][..]), WireValue::bytes)?, visitor)
                }
                [_, number, _] => visitor.visit_i64(number.map_or(Ok(0), WireValue::integer)?),
            },
            Kind::Message(message) => visitor.visit_map(Fields::new(message, self.wire.bytes()?)),
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
            let missing = fields.iter().find(|field| !message.has(field));
            debug_assert_eq!(missing, None, "{name} has a field that its message lacks");
        }
        self.deserialize_any(visitor)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        visitor.visit_enum(text(self.wire.bytes()?).into_deserializer())
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

fn time(wire: WireValue<'_>) -> Result<String, Error> {
    let [seconds] = wire.fields()?;
    // JSON has no fractions of a second either.
    let seconds = seconds.map_or(Ok(0), WireValue::integer)?;
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
    current: Option<(Field, WireValue<'de>)>,
}

// === impl Fields ===

impl<'de> Fields<'de> {
    fn new(message: &'static Message, bytes: &'de [u8]) -> Self {
        Self { message, rest: bytes, seen: 0, outer: None, current: None }
    }

    /// Returns the next field that is read and not left out.
    fn next(&mut self) -> Result<Option<(Field, WireValue<'de>)>, Error> {
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
            let value = match (field.shape, field.kind) {
                (Shape::OmitEmpty, kind) if value.is_empty(kind) => continue,
                // A time that was never set.
                (Shape::OmitEmpty | Shape::Pointer, Kind::Time) if matches!(value, WireValue::Bytes([])) => {
                    continue;
                }
                (Shape::OmitEmpty | Shape::Pointer, _) => value,
                (Shape::Inline, Kind::Message(inner)) if self.outer.is_none() => {
                    self.outer = Some((self.message, self.rest, self.seen));
                    (self.message, self.rest, self.seen) = (inner, value.bytes()?, 0);
                    continue;
                }
                (Shape::Inline, _) => return Err(malformed()),
                (Shape::Repeated | Shape::Map, _) => {
                    while let Some(after) = after_element(self.rest, number)? {
                        self.rest = after;
                    }
                    WireValue::Bytes(&before[..before.len() - self.rest.len()])
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
        seed.deserialize(Value { kind: field.kind, shape: field.shape, wire: value })
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
    fn next(&mut self) -> Result<Option<WireValue<'de>>, Error> {
        if self.rest.is_empty() {
            return Ok(None);
        }
        take_field(&mut self.rest)?.1.ok_or_else(malformed).map(Some)
    }
}

impl<'de> SeqAccess<'de> for Elements<'de> {
    type Error = Error;

    fn next_element_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, Error> {
        let Some(wire) = self.next()? else { return Ok(None) };
        seed.deserialize(Value::one(self.kind, wire)).map(Some)
    }
}

/// The entries of a map: messages of a key and a value.
#[derive(Debug)]
struct Entries<'de> {
    elements: Elements<'de>,
    value: Option<WireValue<'de>>,
}

// === impl Entries ===

impl<'de> MapAccess<'de> for Entries<'de> {
    type Error = Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, Error> {
        let Some(entry) = self.elements.next()? else { return Ok(None) };
        let [key, value] = entry.fields()?;
        self.value = value;
        let wire = key.unwrap_or(WireValue::Bytes(&[]));
        seed.deserialize(Value::one(Kind::String, wire)).map(Some)
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, Error> {
        let wire = self.value.take().unwrap_or(WireValue::Bytes(&[]));
        seed.deserialize(Value::one(self.elements.kind, wire))
    }
}
