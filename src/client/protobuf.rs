//! Kubernetes' protobuf, read into the types that its JSON is read into.
//!
//! Mirrors apimachinery's `runtime/serializer/protobuf`, for reading only.
//! Flow: API server -> `protobuf/envelope` -> the bytes of one object -> **protobuf** -> serde -> a projection
//!
//! # How it works
//! A [`Message`] maps field numbers to JSON names, for the fields that a projection reads; all others are skipped. The
//! projection's serde type decodes from both encodings, and remains the only description of what is kept.
//!
//! Go omits an empty string or a zero from JSON if its tag is `omitempty`, but not from protobuf. So an empty [`scalar`]
//! counts as missing; an empty [`pointer()`] does not.
//!
//! A field that the message lacks would always decode as missing. Debug builds panic instead.
//!
//! Kubernetes encodes a list as protobuf in about half the time that JSON takes it.
//!
//! # Guarantees
//! - An object is the same from protobuf as from JSON. (test: `object_is_the_same_from_protobuf_as_from_json`,
//!   `what_a_real_server_writes_is_the_same_from_protobuf`)
//! - Fields that the message does not list are skipped. (test: `unknown_fields_are_skipped`)
//! - A message that is cut off or malformed is an error. (test: `malformed_message_is_an_error`)
//! - A field that comes twice is an error: Kubernetes writes each once, and the items of a list together.
//!   (test: `field_that_comes_twice_is_an_error`)
//! - A message has all fields of its type. (test: `message_without_a_field_of_its_type_panics`)
//! - A failure that the server reports as protobuf is read, too. (test: `status_is_read_from_protobuf`)

mod deserializer;
pub(crate) mod envelope;
pub(crate) mod items;

use self::deserializer::{Value, WireValue};

/// The fields of a message that are read. A kind's numbers are in the `generated.proto` of its API group. Since an empty
/// scalar counts as missing, its serde field needs a default.
///
/// ```
/// use serde::Deserialize;
/// use windlass::api::ApiResource;
/// use windlass::cache::{Meta, Object};
/// use windlass::client::protobuf::{Kind, METADATA, Message, message, pointer, scalar};
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
/// static SPEC: Message = Message::new(&[scalar(1, "schedule", Kind::String), pointer(4, "suspend", Kind::Bool)]);
/// static CRON_JOB: Message = Message::new(&[message(1, "metadata", &METADATA), message(2, "spec", &SPEC)]);
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
    shape: Shape,
}

/// What a field consists of.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Kind {
    /// `string`.
    String,
    /// `int32` or `int64`.
    Int,
    /// `bool`.
    Bool,
    /// `metav1.Time`, a string in JSON.
    Time,
    /// `resource.Quantity`, a string in JSON.
    Quantity,
    /// `intstr.IntOrString`, a number or a string in JSON.
    IntOrString,
    /// Another message.
    Message(&'static Message),
}

/// How often a field occurs, and what JSON does with an empty one.
#[derive(Clone, Copy, Debug)]
enum Shape {
    OmitEmpty,
    Pointer,
    Inline,
    Repeated,
    Map,
}

/// A field that JSON omits when it is empty: `omitempty` in Go, and not a pointer.
#[must_use]
pub const fn scalar(number: u32, name: &'static str, kind: Kind) -> Field {
    Field { number, name, kind, shape: Shape::OmitEmpty }
}

/// A field that JSON has even if it is empty: a pointer in Go, or without `omitempty`.
#[must_use]
pub const fn pointer(number: u32, name: &'static str, kind: Kind) -> Field {
    Field { number, name, kind, shape: Shape::Pointer }
}

/// A field that is a message.
#[must_use]
pub const fn message(number: u32, name: &'static str, message: &'static Message) -> Field {
    scalar(number, name, Kind::Message(message))
}

/// An embedded struct in Go: JSON has its fields in place of it. It must not embed another one.
#[must_use]
pub const fn inline(number: u32, message: &'static Message) -> Field {
    Field { number, name: "", kind: Kind::Message(message), shape: Shape::Inline }
}

/// A list.
#[must_use]
pub const fn repeated(number: u32, name: &'static str, kind: Kind) -> Field {
    Field { number, name, kind, shape: Shape::Repeated }
}

/// A map with string keys.
#[must_use]
pub const fn map(number: u32, name: &'static str, kind: Kind) -> Field {
    Field { number, name, kind, shape: Shape::Map }
}

static OWNER_REFERENCE: Message = Message::new(&[
    scalar(1, "kind", Kind::String),
    scalar(3, "name", Kind::String),
    scalar(4, "uid", Kind::String),
    scalar(5, "apiVersion", Kind::String),
    pointer(6, "controller", Kind::Bool),
    pointer(7, "blockOwnerDeletion", Kind::Bool),
]);

/// `metav1.ObjectMeta`, without what no projection keeps.
pub static METADATA: Message = Message::new(&[
    scalar(1, "name", Kind::String),
    scalar(3, "namespace", Kind::String),
    scalar(5, "uid", Kind::String),
    scalar(6, "resourceVersion", Kind::String),
    scalar(7, "generation", Kind::Int),
    pointer(9, "deletionTimestamp", Kind::Time),
    map(11, "labels", Kind::String),
    map(12, "annotations", Kind::String),
    repeated(13, "ownerReferences", Kind::Message(&OWNER_REFERENCE)),
    repeated(14, "finalizers", Kind::String),
]);

/// What identifies an object, whatever else of it is malformed.
pub(crate) static IDENTITY: Message = Message::new(&[message(1, "metadata", &NAMES)]);

static NAMES: Message = Message::new(&[
    scalar(1, "name", Kind::String),
    scalar(3, "namespace", Kind::String),
    scalar(5, "uid", Kind::String),
    scalar(6, "resourceVersion", Kind::String),
]);

/// An object of which only the metadata is read.
pub(crate) static ANY_OBJECT: Message = Message::new(&[message(1, "metadata", &METADATA)]);

static CAUSE: Message = Message::new(&[
    scalar(1, "reason", Kind::String),
    scalar(2, "message", Kind::String),
    scalar(3, "field", Kind::String),
]);

static DETAILS: Message = Message::new(&[
    scalar(1, "name", Kind::String),
    scalar(2, "group", Kind::String),
    scalar(3, "kind", Kind::String),
    repeated(4, "causes", Kind::Message(&CAUSE)),
    scalar(5, "retryAfterSeconds", Kind::Int),
    scalar(6, "uid", Kind::String),
]);

static SHARD_INFO: Message = Message::new(&[scalar(1, "selector", Kind::String)]);

/// `metav1.ListMeta`.
static LIST_METADATA: Message = Message::new(&[
    scalar(1, "selfLink", Kind::String),
    scalar(2, "resourceVersion", Kind::String),
    scalar(3, "continue", Kind::String),
    pointer(4, "remainingItemCount", Kind::Int),
    message(5, "shardInfo", &SHARD_INFO),
]);

/// `metav1.Status`.
pub(crate) static STATUS: Message = Message::new(&[
    message(1, "metadata", &LIST_METADATA),
    scalar(2, "status", Kind::String),
    scalar(3, "message", Kind::String),
    scalar(4, "reason", Kind::String),
    message(5, "details", &DETAILS),
    scalar(6, "code", Kind::Int),
]);

// === impl Message ===

impl Message {
    /// Creates a message of at most 64 fields with distinct numbers.
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

    /// Returns whether JSON has a field of this name.
    fn has(&self, name: &str) -> bool {
        self.0.iter().any(|field| match (field.shape, field.kind) {
            (Shape::Inline, Kind::Message(inner)) => inner.has(name),
            _ => field.name == name,
        })
    }

    /// Returns a deserializer of an encoded message.
    pub(crate) fn read<'de>(&'static self, bytes: &'de [u8]) -> Value<'de> {
        Value::one(Kind::Message(self), WireValue::Bytes(bytes))
    }
}

#[cfg(test)]
mod tests;
#[cfg(test)]
pub(crate) mod written;
