//! The types that the projections of all kinds of children share.
//!
//! A projection is the part of a child that the cache keeps: a struct with [`Meta`](crate::cache::Meta) and only those
//! fields that are compared or reported, decoded straight from the wire.

use serde::Deserialize;

use crate::cache::Text;

/// A condition of a child.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct ObservedCondition {
    /// The type.
    #[serde(rename = "type")]
    pub type_: Text,
    /// `True`, `False` or `Unknown`.
    pub status: Text,
    /// The reason, in one word.
    pub reason: Text,
    /// The message, for people.
    pub message: Text,
}

/// Implements [`Object`](crate::cache::Object) and [`TypedObject`](crate::cache::TypedObject) for a projection through its
/// field `metadata`, a [`Meta`](crate::cache::Meta).
///
/// ```
/// use serde::Deserialize;
/// use windlass::api::ApiResource;
/// use windlass::cache::{Meta, Object, TypedObject};
///
/// #[derive(Deserialize)]
/// struct ObservedSecret {
///     metadata: Meta,
/// }
///
/// windlass::object_by_metadata!(ObservedSecret, ApiResource::new("", "v1", "Secret", "secrets"));
///
/// let secret: ObservedSecret = serde_json::from_str(r#"{"metadata": {"name": "a", "uid": "u"}}"#)?;
/// assert_eq!((secret.uid(), ObservedSecret::resource().plural.as_ref()), ("u", "secrets"));
/// # Ok::<(), serde_json::Error>(())
/// ```
#[macro_export]
macro_rules! object_by_metadata {
    ($projection:ty, $resource:expr) => {
        impl $crate::cache::TypedObject for $projection {
            fn resource() -> $crate::api::ApiResource {
                $resource
            }
        }

        impl $crate::cache::Object for $projection {
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

            fn label(&self, key: &str) -> Option<&str> {
                self.metadata.labels.get(key)
            }

            fn labels(&self) -> $crate::api::labels::Labels {
                self.metadata.labels.to_map()
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
