//! Decodes one object, and keeps the identity of one that does not decode.
//!
//! client-go has nothing for these: an object that does not decode ends the watch.
//!
//! # Guarantees
//! - An object that does not decode becomes [`Unreadable`] and keeps its identity; it is never treated
//!   as deleted and never affects other objects. (test: `undecodable_object_keeps_its_identity`,
//!   `malformed_object_of_protobuf_keeps_its_identity`)
//! - An object without a name or a resource version is an error. (test: `object_without_identity_is_an_error`)
//! - Invalid UTF-8 is replaced, as in Go. (test: `invalid_utf8_is_replaced`)
//! - The text of an error names the field and what is expected there, and never a value. (test: `decode_error_names_no_value`)

use std::borrow::Cow;

use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};

use super::Object;
use super::meta::Meta;
use crate::client::json_error::{kind_of, without_values};
use crate::client::protobuf::envelope::Encoding;
use crate::client::protobuf::{ANY_OBJECT, IDENTITY};

/// An object that does not decode into the caller's type: its metadata and the error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unreadable {
    /// Name, uid, version, owners.
    pub meta: Meta,
    /// The field that does not decode, and what was expected there.
    pub error: String,
}

/// An object from the wire, decoded or unreadable.
pub type Decoded<K> = Result<K, Unreadable>;

/// Decodes an object from JSON, or only its metadata if the object does not match the type.
///
/// # Errors
/// If the object has no name or resource version.
pub fn decode<K: Object>(json: &[u8]) -> Result<Decoded<K>, serde_json::Error> {
    decode_from(Encoding::Json, json)
}

/// Decodes an object as it came over the wire; see [`decode`].
pub(crate) fn decode_from<K: Object>(
    encoding: Encoding,
    object: &[u8],
) -> Result<Decoded<K>, serde_json::Error> {
    match encoding {
        Encoding::Json => {
            // To check the text as a whole costs less than string by string.
            let text =
                std::str::from_utf8(object).map_or_else(|_| String::from_utf8_lossy(object), Cow::Borrowed);
            let explained = || explain::<K, _>(&mut serde_json::Deserializer::from_str(&text));
            checked(serde_json::from_str(&text), || serde_json::from_str(&text), explained)
        }
        Encoding::Protobuf(message) => {
            // Of malformed metadata, the identity may still be read.
            let envelope = || {
                Envelope::deserialize(ANY_OBJECT.read(object))
                    .or_else(|_| Envelope::deserialize(IDENTITY.read(object)))
            };
            let explained = || explain::<K, _>(message.read(object));
            checked(K::deserialize(message.read(object)), envelope, explained)
        }
    }
}

#[derive(Deserialize)]
struct Envelope {
    metadata: Map<String, Value>,
}

/// Returns the object, or what is read of one that did not decode.
fn checked<K: Object>(
    object: Result<K, serde_json::Error>,
    envelope: impl FnOnce() -> Result<Envelope, serde_json::Error>,
    explained: impl FnOnce() -> String,
) -> Result<Decoded<K>, serde_json::Error> {
    match object {
        Ok(object) if object.resource_version().is_empty() || object.object_name().name().is_empty() => {
            Err(without_identity())
        }
        Ok(object) => Ok(Ok(object)),
        Err(_) => {
            let meta = envelope()
                .and_then(|Envelope { metadata }| Meta::deserialize_identity(&metadata))
                .map_err(|error| without_values(&error))?;
            if meta.resource_version.is_empty() || meta.name.name().is_empty() {
                return Err(without_identity());
            }
            Ok(Err(Unreadable { meta, error: explained() }))
        }
    }
}

fn without_identity() -> serde_json::Error {
    serde::de::Error::custom("an object without name or resourceVersion")
}

/// What identifies one version of an object.
#[derive(Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Identity<'a> {
    #[serde(borrow)]
    pub(crate) name: Cow<'a, str>,
    #[serde(borrow)]
    pub(crate) namespace: Option<Cow<'a, str>>,
    #[serde(borrow)]
    pub(crate) uid: Cow<'a, str>,
    #[serde(borrow)]
    pub(crate) resource_version: Cow<'a, str>,
}

/// Reads the identity of an object without decoding the rest; `None` if it has none.
pub(crate) fn identity(encoding: Encoding, object: &[u8]) -> Option<Identity<'_>> {
    #[derive(Deserialize)]
    struct Envelope<'a> {
        #[serde(borrow)]
        metadata: Identity<'a>,
    }
    let read = encoding.read_as::<Envelope<'_>>(&ANY_OBJECT, object);
    read.ok().map(|Envelope { metadata }| metadata)
}

/// Longest text of a decoding error.
const ERROR_MAX: usize = 200;

/// Says which field does not decode and what was expected there. serde's own text may quote the value.
fn explain<'de, K, D>(object: D) -> String
where
    K: Deserialize<'de>,
    D: Deserializer<'de, Error = serde_json::Error>,
{
    let Err(error) = serde_path_to_error::deserialize::<_, K>(object) else {
        return "not decodable".to_owned();
    };
    let path = error.path().to_string();
    let mut explained = format!("{path}: {}", kind_of(error.inner()));
    if let Some((end, _)) = explained.char_indices().nth(ERROR_MAX) {
        explained.truncate(end);
    }
    explained
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::Cached;
    use k8s_openapi::api::core::v1::{ConfigMap, Pod};

    #[test]
    fn undecodable_object_keeps_its_identity() {
        let json = br#"{"metadata":{"name":"a","namespace":"ns","uid":"u1","resourceVersion":"7",
            "ownerReferences":[{"apiVersion":"apps/v1","kind":"Deployment","name":"d","uid":"u0","controller":true}]},
            "data":{"key":1}}"#;
        let unreadable = decode::<ConfigMap>(json).unwrap().unwrap_err();
        assert_eq!(unreadable.error, "data.key: expected a string");
        let cached = Cached::<ConfigMap>::new(Err(unreadable));
        assert_eq!(cached.object_name().to_string(), "ns/a");
        assert_eq!((cached.uid(), cached.resource_version()), ("u1", "7"));
        assert_eq!(cached.controller().unwrap().uid, "u0");
        assert!(cached.readable().is_none());
    }

    #[test]
    fn object_without_identity_is_an_error() {
        assert!(decode::<ConfigMap>(br#"{"data":{"key":1}}"#).is_err());
        assert!(decode::<ConfigMap>(br#"{"data":{"key":"1"}}"#).is_err());
        assert!(decode::<ConfigMap>(b"not json").is_err());
        for metadata in [
            r#"{"name":"a"}"#,
            r#"{"resourceVersion":"1"}"#,
            r#"{"name":"a","resourceVersion":""}"#,
            r#"{"name":"","resourceVersion":"1"}"#,
        ] {
            for data in ["{}", "[1]"] {
                let json = format!(r#"{{"metadata":{metadata},"data":{data}}}"#);
                assert!(decode::<ConfigMap>(json.as_bytes()).is_err(), "{json}");
            }
        }
    }

    #[test]
    fn invalid_utf8_is_replaced() {
        let mut json = br#"{"metadata":{"name":"a","resourceVersion":"7"},"data":{"key":"a?c"}}"#.to_vec();
        let at = json.iter().position(|&byte| byte == b'?').unwrap();
        json[at] = 0xff;
        let map = decode::<ConfigMap>(&json).unwrap().unwrap();
        assert_eq!(map.data.unwrap()["key"], "a\u{fffd}c");
    }

    /// I17: a value may be a secret.
    #[test]
    fn decode_error_names_no_value() {
        let error = |spec: &str| {
            let json = format!(r#"{{"metadata":{{"name":"a","resourceVersion":"7"}},"spec":{spec}}}"#);
            decode::<Pod>(json.as_bytes()).unwrap().unwrap_err().error
        };
        assert_eq!(error(r#"{"priority":"s3cret, expected x"}"#), "spec.priority: expected i32");
        assert_eq!(error(r#"{"containers":[{"name":7}]}"#), "spec.containers[0].name: expected a string");
        assert_eq!(error(r#"{"containers":"s3cret"}"#), "spec.containers: expected a sequence");
        let long = format!(r#"{{"nodeSelector":{{"{}":1}}}}"#, "k".repeat(500));
        assert_eq!(error(&long).len(), ERROR_MAX);
    }

    #[test]
    fn identity_is_read_without_the_rest() {
        let json = br#"{"spec":[1],"metadata":{"uid":"u","name":"a\"b","x":1,"resourceVersion":"7"}}"#;
        let identity = identity(Encoding::Json, json).unwrap();
        assert_eq!((&*identity.name, &*identity.uid, &*identity.resource_version), ("a\"b", "u", "7"));
        assert_eq!(super::identity(Encoding::Json, br#"{"metadata":{"name":"a","uid":"u"}}"#), None);
    }
}
