use serde::Deserialize;
use serde_json::json;

use serde_json::Error;

use super::*;
use crate::client::ServerStatus;
use crate::client::json_error::MALFORMED;

static PART: Message = Message::new(&[
    scalar(1, "text", Kind::String),
    pointer(2, "pointer", Kind::String),
    scalar(3, "number", Kind::Int),
    repeated(4, "list", Kind::String),
    map(5, "map", Kind::Quantity),
    scalar(6, "port", Kind::IntOrString),
    pointer(7, "flag", Kind::Bool),
    pointer(8, "time", Kind::Time),
    inline(9, &INNER),
    message(10, "inner", &INNER),
]);
static INNER: Message = Message::new(&[scalar(1, "inline", Kind::String)]);

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
#[should_panic(expected = "Wide has a field that its message lacks")]
fn message_without_a_field_of_its_type_panics() {
    #[derive(Deserialize)]
    struct Wide {
        #[serde(rename = "inline")]
        _inline: Option<String>,
        #[serde(rename = "other")]
        _other: Option<String>,
    }
    drop(Wide::deserialize(PART.read(&[])));
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
