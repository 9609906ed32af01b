//! Writes JSON as the protobuf that Kubernetes writes, for tests: also the empty values that JSON leaves out.

use std::collections::BTreeMap;

use prost::encoding::{WireType, encode_key, encode_varint};
use serde_json::{Map, Value, json};

use super::envelope::MAGIC;
use super::{Field, Kind, Message, Shape};

fn number(into: &mut Vec<u8>, field: u32, value: i64) {
    encode_key(field, WireType::Varint, into);
    encode_varint(value.cast_unsigned(), into);
}

pub(crate) fn bytes(into: &mut Vec<u8>, field: u32, value: &[u8]) {
    encode_key(field, WireType::LengthDelimited, into);
    encode_varint(value.len() as u64, into);
    into.extend_from_slice(value);
}

/// Returns the message with the fields of a JSON map.
pub(crate) fn message(of: &'static Message, json: &Value) -> Vec<u8> {
    let (mut into, none) = (Vec::new(), Map::new());
    let json = json.as_object().unwrap_or(&none);
    for field in of.0 {
        match (field.shape, json.get(field.name)) {
            (Shape::Inline, _) => value(&mut into, field, field.number, &Value::Object(json.clone())),
            (Shape::Repeated, Some(Value::Array(all))) => {
                all.iter().for_each(|item| value(&mut into, field, field.number, item));
            }
            (Shape::Map, Some(Value::Object(all))) => {
                for (key, item) in all {
                    let mut entry = Vec::new();
                    bytes(&mut entry, 1, key.as_bytes());
                    value(&mut entry, field, 2, item);
                    bytes(&mut into, field.number, &entry);
                }
            }
            (Shape::OmitEmpty | Shape::Pointer, Some(item)) => value(&mut into, field, field.number, item),
            (Shape::OmitEmpty, None) => match field.kind {
                Kind::String => value(&mut into, field, field.number, &json!("")),
                Kind::Int => value(&mut into, field, field.number, &json!(0)),
                _ => {}
            },
            (_, _) => {}
        }
    }
    into
}

fn value(into: &mut Vec<u8>, field: &Field, at: u32, json: &Value) {
    match (field.kind, json) {
        (Kind::String, Value::String(text)) => bytes(into, at, text.as_bytes()),
        (Kind::Int, _) => number(into, at, json.as_i64().unwrap()),
        (Kind::Bool, _) => number(into, at, json.as_bool().unwrap().into()),
        (Kind::Time, Value::String(text)) => {
            let mut inner = Vec::new();
            number(&mut inner, 1, text.parse::<jiff::Timestamp>().unwrap().as_second());
            number(&mut inner, 2, 0);
            bytes(into, at, &inner);
        }
        (Kind::Quantity, Value::String(text)) => {
            let mut inner = Vec::new();
            bytes(&mut inner, 1, text.as_bytes());
            bytes(into, at, &inner);
        }
        (Kind::IntOrString, _) => {
            let mut inner = Vec::new();
            number(&mut inner, 1, json.is_string().into());
            number(&mut inner, 2, json.as_i64().unwrap_or_default());
            bytes(&mut inner, 3, json.as_str().unwrap_or_default().as_bytes());
            bytes(into, at, &inner);
        }
        (Kind::Message(of), _) => bytes(into, at, &message(of, json)),
        (kind, json) => panic!("{kind:?} cannot hold {json}"),
    }
}

/// Notes for each field of the message, and of those in it, whether one of the objects has it.
pub(crate) fn note_fields(of: &'static Message, json: &Value, found: &mut BTreeMap<String, bool>) {
    for field in of.0 {
        let value = match field.shape {
            Shape::Inline => json,
            _ => json.get(field.name).unwrap_or(&Value::Null),
        };
        *found.entry(format!("{of:p} {}", field.name)).or_default() |= !value.is_null();
        if let Kind::Message(inner) = field.kind {
            match value {
                Value::Array(items) => items.iter().for_each(|item| note_fields(inner, item, found)),
                value => note_fields(inner, value, found),
            }
        }
    }
}

/// Returns the body of an object of this kind, or of a list.
pub(crate) fn body(kind: &str, object: &[u8]) -> Vec<u8> {
    let (mut meta, mut into) = (Vec::new(), MAGIC.to_vec());
    bytes(&mut meta, 1, b"apps/v1");
    bytes(&mut meta, 2, kind.as_bytes());
    for (field, value) in [(1, &meta[..]), (2, object), (3, b""), (4, b"")] {
        bytes(&mut into, field, value);
    }
    into
}

/// Returns the body of a list of these objects.
pub(crate) fn list(kind: &str, of: &'static Message, items: &[Value], next: &str) -> Vec<u8> {
    let (mut meta, mut list) = (Vec::new(), Vec::new());
    for (field, text) in [(1, ""), (2, "9"), (3, next)] {
        bytes(&mut meta, field, text.as_bytes());
    }
    bytes(&mut list, 1, &meta);
    items.iter().for_each(|item| bytes(&mut list, 2, &message(of, item)));
    body(&format!("{kind}List"), &list)
}

/// Returns the frame of a watch with this event.
pub(crate) fn frame(event: &str, kind: &str, of: &'static Message, object: &Value) -> Vec<u8> {
    let (mut raw, mut frame) = (Vec::new(), Vec::new());
    bytes(&mut raw, 1, &body(kind, &message(of, object)));
    bytes(&mut frame, 1, event.as_bytes());
    bytes(&mut frame, 2, &raw);
    let length = u32::try_from(frame.len()).unwrap();
    [&length.to_be_bytes()[..], &frame].concat()
}
