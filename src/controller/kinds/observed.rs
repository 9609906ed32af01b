//! What the projections of all kinds of children have in common.
//!
//! A projection is what the cache keeps of a child: a struct with [`Meta`](crate::cache::Meta) and only those fields
//! that are compared or reported, decoded straight from the wire.

use serde::Deserialize;

/// A condition of a child.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct ObservedCondition {
    /// The type.
    #[serde(rename = "type")]
    pub type_: String,
    /// `True`, `False` or `Unknown`.
    pub status: String,
    /// The reason, in one word.
    pub reason: String,
    /// The message, for people.
    pub message: String,
}

/// Implements [`Object`](crate::cache::Object) for a projection through its `metadata` field.
macro_rules! object_by_metadata {
    ($projection:ty, $resource:expr) => {
        impl $crate::cache::Object for $projection {
            fn resource() -> $crate::api::ApiResource {
                $resource
            }

            fn object_name(&self) -> $crate::cache::ObjectName {
                self.metadata.object_name()
            }

            fn uid(&self) -> &str {
                &self.metadata.uid
            }

            fn resource_version(&self) -> &str {
                &self.metadata.resource_version
            }

            fn generation(&self) -> i64 {
                self.metadata.generation
            }

            fn is_deleting(&self) -> bool {
                self.metadata.deletion_timestamp.is_some()
            }

            fn labels(&self) -> Option<&$crate::api::labels::Labels> {
                Some(&self.metadata.labels)
            }

            fn controller(&self) -> Option<$crate::cache::ControllerRef<'_>> {
                self.metadata.controller()
            }

            fn owner(&self, uid: &str) -> Option<$crate::cache::ControllerRef<'_>> {
                self.metadata.owner(uid)
            }
        }
    };
}

pub(in crate::controller) use object_by_metadata;
