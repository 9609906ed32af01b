//! Decodes the protobuf that kubectl sends for `autoscale`, `drain`, and for `create` without a file.
//!
//! A body is `k8s\0`, followed by a message that holds the object's type and its encoding. Go encodes plain fields even
//! when they are zero, so a zero counts as unset, except in fields that are pointers in Go. In a field that is not in the
//! tables, a pointer to zero also counts as unset; none of these commands sends one.
//!
//! # Guarantees
//! - A field that is not in the tables is never dropped silently: unless it is zero, the body is refused.
//!   (test: `unknown_field_is_refused`)
//! - No body panics. (test: `no_body_panics`)

mod tables;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Map, Value, json};

use self::tables::{As, Field};
use super::kinds::{BuiltIn, Kind, Of};

/// Returns the object in a body; `None` if it is of another kind, malformed, or has fields that are not in the tables.
pub(super) fn decode(kind: &Kind, body: &[u8]) -> Option<Value> {
    let table = match kind.of {
        Of::BuiltIn(BuiltIn::ConfigMap) => tables::CONFIG_MAP,
        Of::BuiltIn(BuiltIn::Deployment) => tables::DEPLOYMENT,
        Of::BuiltIn(BuiltIn::HorizontalPodAutoscaler) => tables::AUTOSCALER,
        Of::BuiltIn(BuiltIn::Ingress) => tables::INGRESS,
        Of::BuiltIn(BuiltIn::Namespace) => tables::NAMESPACE,
        Of::BuiltIn(BuiltIn::ResourceQuota) => tables::RESOURCE_QUOTA,
        Of::BuiltIn(BuiltIn::Secret) => tables::SECRET,
        Of::BuiltIn(BuiltIn::Service) => tables::SERVICE,
        Of::BuiltIn(BuiltIn::ServiceAccount) => tables::SERVICE_ACCOUNT,
        _ => return None,
    };
    decode_as(&kind.kind, table, body)
}

/// Returns the options of a deletion.
pub(super) fn delete_options(body: &[u8]) -> Option<Value> {
    decode_as("DeleteOptions", tables::DELETE_OPTIONS, body)
}

fn decode_as(kind: &str, table: &[Field], body: &[u8]) -> Option<Value> {
    let (mut type_, mut object) = (&[][..], &[][..]);
    for field in Fields(body.strip_prefix(b"k8s\0")?) {
        match field? {
            (1, Raw::Bytes(bytes)) => type_ = bytes,
            (2, Raw::Bytes(bytes)) => object = bytes,
            _ => {}
        }
    }
    let type_ = message(tables::TYPE, type_)?;
    if type_.get("kind") != Some(&json!(kind)) {
        return None;
    }
    let mut object = message(table, object)?;
    object.extend(type_);
    Some(Value::Object(object))
}

fn message(table: &[Field], bytes: &[u8]) -> Option<Map<String, Value>> {
    let mut found = Map::new();
    for field in Fields(bytes) {
        let (number, raw) = field?;
        match (table.iter().find(|field| field.0 == number), raw) {
            (Some(Field(_, _, As::Ignored)), _) => {}
            (Some(Field(_, name, As::Each(how))), raw) => {
                let item = value(how, raw)?;
                found.entry(*name).or_insert_with(|| json!([])).as_array_mut()?.push(item);
            }
            (Some(Field(_, _, As::Inline(table))), Raw::Bytes(bytes)) => found.extend(message(table, bytes)?),
            (Some(Field(_, name, how @ (As::Map | As::Data | As::Quantities))), Raw::Bytes(bytes)) => {
                let (key, value) = entry(bytes, how)?;
                found.entry(*name).or_insert_with(|| json!({})).as_object_mut()?.insert(key, value);
            }
            (Some(Field(_, _, how)), raw) if how.is_unset_if_zero() && raw.is_zero() => {}
            // Go writes no field twice.
            (Some(Field(_, name, how)), raw) => {
                if found.insert((*name).to_owned(), value(how, raw)?).is_some() {
                    return None;
                }
            }
            (None, raw) if raw.is_zero() => {}
            (None, _) => return None,
        }
    }
    Some(found)
}

fn value(how: &As, raw: Raw<'_>) -> Option<Value> {
    Some(match (how, raw) {
        (As::Number | As::NumberOrNone, Raw::Number(number)) => json!(number),
        (As::Bool | As::BoolOrNone, Raw::Number(number)) => json!(number != 0),
        (As::Text, Raw::Bytes(bytes)) => json!(std::str::from_utf8(bytes).ok()?),
        (As::Quantity, Raw::Bytes(bytes)) => quantity(bytes)?,
        (As::Port, Raw::Bytes(bytes)) => {
            let fields =
                [Field(1, "type", As::Number), Field(2, "number", As::Number), Field(3, "name", As::Text)];
            let mut port = message(&fields, bytes)?;
            port.remove(if port.contains_key("type") { "name" } else { "number" })?
        }
        (As::Message(table), Raw::Bytes(bytes)) => Value::Object(message(table, bytes)?),
        _ => return None,
    })
}

fn quantity(bytes: &[u8]) -> Option<Value> {
    message(&[Field(1, "text", As::Text)], bytes)?.remove("text")
}

/// Returns the key and value of a map entry.
fn entry(bytes: &[u8], how: &As) -> Option<(String, Value)> {
    let (mut key, mut value) = (&[][..], &[][..]);
    for field in Fields(bytes) {
        match field? {
            (1, Raw::Bytes(bytes)) => key = bytes,
            (2, Raw::Bytes(bytes)) => value = bytes,
            _ => return None,
        }
    }
    let text = |bytes| std::str::from_utf8(bytes).ok().map(str::to_owned);
    let value = match how {
        As::Data => json!(BASE64_STANDARD.encode(value)),
        As::Quantities => quantity(value)?,
        _ => json!(text(value)?),
    };
    Some((text(key)?, value))
}

// === impl As ===

impl As {
    /// Whether zero means that the field is not set.
    fn is_unset_if_zero(&self) -> bool {
        matches!(
            self,
            Self::Text | Self::Number | Self::Bool | Self::Quantity | Self::Port | Self::Message(_)
        )
    }
}

/// The maximum nesting of messages.
const DEPTH: usize = 16;

/// The value of a field on the wire.
#[derive(Clone, Copy)]
enum Raw<'a> {
    Number(i64),
    Bytes(&'a [u8]),
}

// === impl Raw ===

impl Raw<'_> {
    /// Whether it is the value of a field that is not set: zero, or a message of such fields.
    fn is_zero(self) -> bool {
        self.is_zero_to(DEPTH)
    }

    fn is_zero_to(self, depth: usize) -> bool {
        match self {
            Raw::Number(number) => number == 0,
            Raw::Bytes([]) => true,
            Raw::Bytes(_) if depth == 0 => false,
            Raw::Bytes(bytes) => {
                Fields(bytes).all(|field| field.is_some_and(|(_, raw)| raw.is_zero_to(depth - 1)))
            }
        }
    }
}

/// The fields of a message, with their numbers; `None` for one that cannot be read, which is the last.
struct Fields<'a>(&'a [u8]);

// === impl Fields ===

impl<'a> Fields<'a> {
    fn varint(&mut self) -> Option<u64> {
        let mut value = 0;
        for at in 0..10 {
            let (byte, rest) = self.0.split_first()?;
            self.0 = rest;
            value |= u64::from(byte & 0x7f).checked_shl(7 * at)?;
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
        None
    }

    fn field(&mut self) -> Option<(u64, Raw<'a>)> {
        let tag = self.varint()?;
        let raw = match tag & 7 {
            0 => Raw::Number(self.varint()?.cast_signed()),
            2 => {
                let length = usize::try_from(self.varint()?).ok()?;
                let (bytes, rest) = self.0.split_at_checked(length)?;
                self.0 = rest;
                Raw::Bytes(bytes)
            }
            // Kubernetes has no others.
            _ => return None,
        };
        Some((tag >> 3, raw))
    }
}

impl<'a> Iterator for Fields<'a> {
    type Item = Option<(u64, Raw<'a>)>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let field = self.field();
        if field.is_none() {
            self.0 = &[];
        }
        Some(field)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::kinds::Catalogue;
    use super::*;

    /// Writes a field of bytes.
    fn bytes(number: u8, content: &[u8]) -> Vec<u8> {
        let length = u8::try_from(content.len()).expect("less than 128 bytes");
        assert!(length < 128);
        [&[number << 3 | 2, length], content].concat()
    }

    fn number(field: u8, value: u8) -> Vec<u8> {
        vec![field << 3, value]
    }

    fn body(api_version: &[u8], kind: &[u8], object: &[u8]) -> Vec<u8> {
        let type_ = [bytes(1, api_version), bytes(2, kind)].concat();
        // Content encoding and type are empty.
        [b"k8s\0", &bytes(1, &type_)[..], &bytes(2, object), &bytes(3, b""), &bytes(4, b"")].concat()
    }

    fn decoded(of: BuiltIn, body: &[u8]) -> Option<Value> {
        decode(&Catalogue::new().built_in(of), body)
    }

    fn autoscaler(more: &[u8]) -> Vec<u8> {
        let target = [bytes(1, b"Redis"), bytes(2, b"cache"), bytes(3, b"myapp.tangx.in/v1")].concat();
        let cpu = [bytes(1, b"cpu"), bytes(2, &[bytes(1, b"Utilization"), number(4, 80)].concat())].concat();
        let metric = [bytes(1, b"Resource"), bytes(4, &cpu)].concat();
        let spec = [bytes(1, &target), number(2, 0), number(3, 5), bytes(4, &metric), more.to_vec()].concat();
        // Go writes plain fields also when they are empty.
        let metadata = [bytes(1, b"cache"), bytes(2, b""), bytes(8, b"")].concat();
        let status = bytes(3, &[number(3, 0), number(4, 0)].concat());
        body(
            b"autoscaling/v2",
            b"HorizontalPodAutoscaler",
            &[bytes(1, &metadata), bytes(2, &spec), status].concat(),
        )
    }

    #[test]
    fn objects_are_read() {
        let metric = json!({"type": "Resource", "resource": {"name": "cpu",
            "target": {"type": "Utilization", "averageUtilization": 80}}});
        let target = json!({"kind": "Redis", "name": "cache", "apiVersion": "myapp.tangx.in/v1"});
        let expected = json!({"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler",
            "metadata": {"name": "cache"},
            "spec": {"scaleTargetRef": target, "minReplicas": 0, "maxReplicas": 5, "metrics": [metric]}});
        assert_eq!(decoded(BuiltIn::HorizontalPodAutoscaler, &autoscaler(b"")), Some(expected));

        let entry = |value: &[u8]| [bytes(1, b"key"), bytes(2, value)].concat();
        let map = [bytes(1, &bytes(1, b"a")), bytes(2, &entry(b"text")), bytes(3, &entry(b"\xff"))].concat();
        let expected = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"},
            "data": {"key": "text"}, "binaryData": {"key": "/w=="}});
        assert_eq!(decoded(BuiltIn::ConfigMap, &body(b"v1", b"ConfigMap", &map)), Some(expected));
    }

    #[test]
    fn ports_quantities_and_rules_are_read() {
        let port = |target: &[u8]| [number(3, 80), bytes(4, target), number(5, 0)].concat();
        let target = [number(1, 1), number(2, 0), bytes(3, b"web")].concat();
        let ports =
            [bytes(1, &port(&[number(1, 0), number(2, 99)].concat())), bytes(1, &port(&target))].concat();
        let service = [bytes(1, &bytes(1, b"a")), bytes(2, &[ports, number(13, 0)].concat())].concat();
        let found = decoded(BuiltIn::Service, &body(b"v1", b"Service", &service)).unwrap();
        let expected = json!({"ports": [{"port": 80, "targetPort": 99}, {"port": 80, "targetPort": "web"}]});
        assert_eq!(found["spec"], expected);

        let entry = [bytes(1, b"pods"), bytes(2, &bytes(1, b"3"))].concat();
        let quota = [bytes(1, &bytes(1, b"a")), bytes(2, &bytes(1, &entry))].concat();
        let found = decoded(BuiltIn::ResourceQuota, &body(b"v1", b"ResourceQuota", &quota)).unwrap();
        assert_eq!(found["spec"], json!({"hard": {"pods": "3"}}));

        let backend =
            bytes(4, &[bytes(1, b"web"), bytes(2, &[bytes(1, b""), number(2, 80)].concat())].concat());
        let path = [bytes(1, b"/"), bytes(2, &backend), bytes(3, b"Exact")].concat();
        let rule = [bytes(1, b"a.b"), bytes(2, &bytes(1, &bytes(1, &path)))].concat();
        let ingress = [bytes(1, &bytes(1, b"a")), bytes(2, &bytes(3, &rule))].concat();
        let found = decoded(BuiltIn::Ingress, &body(b"networking.k8s.io/v1", b"Ingress", &ingress)).unwrap();
        let service = json!({"name": "web", "port": {"number": 80}});
        let path = json!({"path": "/", "pathType": "Exact", "backend": {"service": service}});
        assert_eq!(found["spec"]["rules"], json!([{"host": "a.b", "http": {"paths": [path]}}]));
    }

    #[test]
    fn options_of_a_deletion_are_read() {
        let options = [number(1, 0), bytes(5, b"All")].concat();
        let found = delete_options(&body(b"v1", b"DeleteOptions", &options)).unwrap();
        assert_eq!((&found["gracePeriodSeconds"], &found["dryRun"]), (&json!(0), &json!(["All"])));
    }

    #[test]
    fn unknown_field_is_refused() {
        let of = BuiltIn::HorizontalPodAutoscaler;
        let behavior = |window: u8| bytes(5, &bytes(1, &number(3, window)));
        assert_eq!(decoded(of, &autoscaler(&behavior(60))), None, "it would be lost");
        assert!(decoded(of, &autoscaler(&behavior(0))).is_some(), "zero is not set");
        assert_eq!(decoded(BuiltIn::Pod, &autoscaler(b"")), None);
        assert_eq!(decoded(BuiltIn::ConfigMap, &body(b"v1", b"DeleteOptions", b"")), None, "another type");
        assert_eq!(decoded(of, &autoscaler(b"")[1..]), None);
    }

    proptest! {
        #[test]
        fn no_body_panics(
            junk in prop::collection::vec(any::<u8>(), 0..200),
            at in 0..100_usize,
            of in prop::sample::select(vec![BuiltIn::HorizontalPodAutoscaler, BuiltIn::Deployment, BuiltIn::ConfigMap]),
        ) {
            let kind = Catalogue::new().built_in(of).kind.clone();
            drop(decoded(of, &body(b"v1", kind.as_bytes(), &junk[..junk.len().min(100)])));
            let mut broken = autoscaler(b"");
            broken.splice(at.min(broken.len() - 1).., junk);
            drop(decoded(BuiltIn::HorizontalPodAutoscaler, &broken));
        }
    }

    #[test]
    fn deep_nesting_is_refused() {
        let mut deep = Vec::new();
        for _ in 0..40 {
            deep = bytes(9, &deep);
        }
        assert_eq!(decoded(BuiltIn::ConfigMap, &body(b"v1", b"ConfigMap", &deep)), None);
    }
}
