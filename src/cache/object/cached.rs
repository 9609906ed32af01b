//! An object in the cache: shared, immutable, and readable or not.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use super::Object;
use super::decode::{Decoded, Unreadable};
use super::object_name::ObjectName;
use super::owner::ControllerRef;

/// An object in the cache, shared and immutable.
pub enum Cached<K> {
    /// The object decoded.
    Readable(Arc<K>),
    /// The object did not decode.
    Unreadable(Arc<Unreadable>),
}

// === impl Cached ===

impl<K: Object> Cached<K> {
    /// Shares a decoded object.
    #[must_use]
    pub fn new(decoded: Decoded<K>) -> Self {
        match decoded {
            Ok(object) => Self::Readable(Arc::new(object)),
            Err(unreadable) => Self::Unreadable(Arc::new(unreadable)),
        }
    }

    /// Returns the namespace and name.
    #[must_use]
    pub fn object_name(&self) -> ObjectName {
        match self {
            Self::Readable(object) => object.object_name(),
            Self::Unreadable(object) => object.meta.object_name(),
        }
    }

    /// Returns the uid, which identifies one incarnation of the object.
    #[must_use]
    pub fn uid(&self) -> &str {
        match self {
            Self::Readable(object) => object.uid(),
            Self::Unreadable(object) => &object.meta.uid,
        }
    }

    /// Returns the resource version.
    #[must_use]
    pub fn resource_version(&self) -> &str {
        match self {
            Self::Readable(object) => object.resource_version(),
            Self::Unreadable(object) => &object.meta.resource_version,
        }
    }

    /// Whether both are the same version of the same incarnation.
    #[must_use]
    pub fn is_same_version(&self, other: &Self) -> bool {
        self.resource_version() == other.resource_version() && self.uid() == other.uid()
    }

    /// Returns the controlling owner, if any.
    #[must_use]
    pub fn controller(&self) -> Option<ControllerRef<'_>> {
        match self {
            Self::Readable(object) => object.controller(),
            Self::Unreadable(object) => object.meta.controller(),
        }
    }

    /// Returns the generation, which counts spec changes; 0 for kinds without one.
    #[must_use]
    pub fn generation(&self) -> i64 {
        match self {
            Self::Readable(object) => object.generation(),
            Self::Unreadable(object) => object.meta.generation,
        }
    }

    /// Returns whether the object is being deleted.
    #[must_use]
    pub fn is_deleting(&self) -> bool {
        match self {
            Self::Readable(object) => object.is_deleting(),
            Self::Unreadable(object) => object.meta.deletion_timestamp.is_some(),
        }
    }

    /// Returns a copy of the labels, for a selector.
    #[must_use]
    pub fn labels(&self) -> BTreeMap<String, String> {
        match self {
            Self::Readable(object) => object.labels(),
            Self::Unreadable(object) => object.meta.labels.to_map(),
        }
    }

    /// Returns the annotations, if any and if the object decoded.
    #[must_use]
    pub fn annotations(&self) -> Option<&BTreeMap<String, String>> {
        self.readable().and_then(|object| object.annotations())
    }

    /// Returns the object, if it decoded.
    #[must_use]
    pub fn readable(&self) -> Option<&Arc<K>> {
        match self {
            Self::Readable(object) => Some(object),
            Self::Unreadable(_) => None,
        }
    }
}

impl<K> Clone for Cached<K> {
    fn clone(&self) -> Self {
        match self {
            Self::Readable(object) => Self::Readable(object.clone()),
            Self::Unreadable(object) => Self::Unreadable(object.clone()),
        }
    }
}

/// Prints only name and version: the object may contain secrets.
impl<K: Object> fmt::Debug for Cached<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let readable = if self.readable().is_some() { "" } else { ", unreadable" };
        write!(f, "{}@{}{readable}", self.object_name(), self.resource_version())
    }
}
