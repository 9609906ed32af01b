//! The types that the projections of all kinds of children share.
//!
//! A projection is the part of a child that the cache keeps: a struct with [`Meta`](crate::cache::Meta) and only those
//! fields that are compared or reported, decoded straight from the wire.

use std::ops::Deref;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::cache::Text;

/// A part of a projection that its clones share; a write replaces it as a whole.
#[derive(Debug)]
pub struct Part<T: ?Sized>(Arc<T>);

// === impl Part ===

impl<T: ?Sized> Deref for Part<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T: ?Sized> Clone for Part<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<T: ?Sized + PartialEq> PartialEq for Part<T> {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0) || self.0 == other.0
    }
}

impl<T> Default for Part<[T]> {
    fn default() -> Self {
        Self(Arc::default())
    }
}

impl<T: Default> Default for Part<T> {
    fn default() -> Self {
        Self(Arc::default())
    }
}

impl<T> From<Vec<T>> for Part<[T]> {
    fn from(items: Vec<T>) -> Self {
        Self(items.into())
    }
}

impl<T> From<T> for Part<T> {
    fn from(part: T) -> Self {
        Self(part.into())
    }
}

impl<T: ?Sized + Serialize> Serialize for Part<T> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        self.0.as_ref().serialize(to)
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Part<[T]> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        Vec::deserialize(from).map(Self::from)
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Part<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        T::deserialize(from).map(Self::from)
    }
}

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

/// Implements [`Object`](crate::cache::Object), [`TypedObject`](crate::cache::TypedObject) and
/// [`Child`](crate::controller::kinds::Child) for a projection through its field `metadata`, a
/// [`Meta`](crate::cache::Meta). A third argument says how the kind is read from
/// [protobuf](crate::client::protobuf), which only built-in kinds have; without it, the cache asks for JSON.
///
/// ```
/// use serde::Deserialize;
/// use windlass::api::ApiResource;
/// use windlass::cache::{Meta, Object};
///
/// #[derive(Deserialize)]
/// struct ObservedSecret {
///     metadata: Meta,
/// }
///
/// windlass::object_by_metadata!(ObservedSecret, ApiResource::new("", "v1", "Secret", "secrets"));
///
/// let secret: ObservedSecret = serde_json::from_str(r#"{"metadata": {"name": "a", "uid": "u"}}"#)?;
/// assert_eq!((secret.uid(), ApiResource::of::<ObservedSecret>().plural.as_ref()), ("u", "secrets"));
/// # Ok::<(), serde_json::Error>(())
/// ```
#[macro_export]
macro_rules! object_by_metadata {
    ($projection:ty, $resource:expr $(, $protobuf:expr)?) => {
        impl $crate::cache::TypedObject for $projection {}

        impl $crate::api::HasResource for $projection {
            fn resource() -> $crate::api::ApiResource {
                $resource
            }
        }

        impl $crate::controller::kinds::Child for $projection {
            fn set_label(&mut self, key: &str, value: &str) {
                self.metadata.labels.set(key, value);
            }

            fn set_owner(&mut self, owner: $crate::cache::ControllerRef<'_>) {
                self.metadata.set_owner(owner);
            }
        }

        impl $crate::cache::Object for $projection {
            $crate::object_by_meta!(self, self.metadata);
            $(
                fn protobuf() -> Option<&'static $crate::client::protobuf::Message> {
                    Some(&$protobuf)
                }
            )?
        }
    };
}
