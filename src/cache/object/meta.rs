//! The metadata of a projection.
//!
//! # Guarantees
//! - Annotations are not kept. (test: `projection_drops_annotations`)
//! - A malformed label or owner reference does not hide the identity. (test: `malformed_metadata_keeps_the_identity`)

use serde::de::{DeserializeOwned, IgnoredAny};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value};

use super::object_name::ObjectName;
use super::owner::{ControllerRef, OwnerRef, the_owner};
use super::text::{Text, TextMap};

/// The metadata of a projection, without annotations. Its lists are boxed slices: a `Vec` that is read from JSON has
/// room for four elements, and most lists here have one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(from = "OnTheWire", into = "OnTheWire")]
pub struct Meta {
    /// Namespace and name, shared with the store, its indexes and the queues.
    pub name: ObjectName,
    /// Uid, which identifies one incarnation of the object.
    pub uid: Box<str>,
    /// Resource version.
    pub resource_version: Box<str>,
    /// Generation, which counts spec changes.
    pub generation: i64,
    /// When the deletion was requested; `None` if it was not.
    pub deletion_timestamp: Option<Box<str>>,
    /// Labels.
    pub labels: TextMap,
    /// References to all owners.
    pub owner_references: Box<[OwnerRef]>,
}

/// The metadata as a server sends it; `A` and `F` are what is read of annotations and finalizers.
#[derive(Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct OnTheWire<A: Default = IgnoredAny, F: Default = IgnoredAny> {
    #[serde(skip_serializing_if = "str::is_empty")]
    name: Text,
    #[serde(skip_serializing_if = "Option::is_none")]
    namespace: Option<Text>,
    #[serde(skip_serializing_if = "str::is_empty")]
    uid: Box<str>,
    #[serde(skip_serializing_if = "str::is_empty")]
    resource_version: Box<str>,
    #[serde(skip_serializing)]
    generation: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    deletion_timestamp: Option<Box<str>>,
    #[serde(skip_serializing_if = "TextMap::is_empty")]
    labels: TextMap,
    #[serde(skip_serializing_if = "<[OwnerRef]>::is_empty")]
    owner_references: Box<[OwnerRef]>,
    #[serde(skip_serializing)]
    annotations: A,
    #[serde(skip_serializing)]
    finalizers: F,
}

impl From<Meta> for OnTheWire {
    fn from(kept: Meta) -> Self {
        Self {
            name: kept.name.name().into(),
            namespace: kept.name.namespace().map(Text::from),
            uid: kept.uid,
            resource_version: kept.resource_version,
            generation: kept.generation,
            deletion_timestamp: kept.deletion_timestamp,
            labels: kept.labels,
            owner_references: kept.owner_references,
            annotations: IgnoredAny,
            finalizers: IgnoredAny,
        }
    }
}

impl<A: Default, F: Default> OnTheWire<A, F> {
    /// Returns what each projection keeps, annotations and finalizers.
    pub(super) fn into_parts(self) -> (Meta, A, F) {
        let meta = Meta {
            name: ObjectName::new(self.namespace.as_deref(), &self.name),
            uid: self.uid,
            resource_version: self.resource_version,
            generation: self.generation,
            deletion_timestamp: self.deletion_timestamp,
            labels: self.labels,
            owner_references: self.owner_references,
        };
        (meta, self.annotations, self.finalizers)
    }
}

impl From<OnTheWire> for Meta {
    fn from(read: OnTheWire) -> Self {
        read.into_parts().0
    }
}

impl Meta {
    /// Sets the reference to the owner with this uid, in place if there is one; references to other owners are kept.
    pub fn set_owner(&mut self, owner: ControllerRef<'_>) {
        let is_this = |known: &OwnerRef| *known.uid == *owner.uid;
        let mut known = self.owner_references.iter().filter(|known| is_this(known));
        if known.next().is_some_and(|known| known.as_reference() == owner) && known.next().is_none() {
            return;
        }
        let mut owners = std::mem::take(&mut self.owner_references).into_vec();
        let at = owners.iter().position(is_this).unwrap_or(owners.len());
        owners.retain(|known| !is_this(known));
        owners.insert(at, owner.into());
        self.owner_references = owners.into_boxed_slice();
    }

    /// Decodes the identity, and those other fields that decode; for use with `#[serde(deserialize_with)]`.
    ///
    /// # Errors
    /// If the identity does not decode.
    pub fn deserialize_leniently<'de, D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        Self::deserialize_identity(&Map::deserialize(from)?).map_err(serde::de::Error::custom)
    }

    /// Decodes the identity, and drops other fields that do not decode: a malformed label must not hide the object.
    pub(super) fn deserialize_identity(metadata: &Map<String, Value>) -> Result<Self, serde_json::Error> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Identity {
            name: Text,
            namespace: Option<Text>,
            #[serde(default)]
            uid: Box<str>,
            resource_version: Box<str>,
        }
        let Identity { name, namespace, uid, resource_version } =
            Identity::deserialize(&Value::Object(metadata.clone()))?;
        Ok(Self {
            name: ObjectName::new(namespace.as_deref(), &name),
            uid,
            resource_version,
            generation: lenient(metadata, "generation"),
            deletion_timestamp: lenient(metadata, "deletionTimestamp"),
            labels: lenient(metadata, "labels"),
            owner_references: lenient(metadata, "ownerReferences"),
        })
    }

    /// Returns the key of the object.
    #[must_use]
    pub fn object_name(&self) -> ObjectName {
        self.name.clone()
    }

    /// Returns the controlling owner, if any.
    #[must_use]
    pub fn controller(&self) -> Option<ControllerRef<'_>> {
        self.owners().find(|owner| owner.controller)
    }

    /// Returns the reference to the owner with this uid; see [`Object::owner`](super::Object::owner).
    #[must_use]
    pub fn owner(&self, uid: &str) -> Option<ControllerRef<'_>> {
        the_owner(self.owners(), uid)
    }

    fn owners(&self) -> impl Iterator<Item = ControllerRef<'_>> {
        self.owner_references.iter().map(OwnerRef::as_reference)
    }
}

fn lenient<T: DeserializeOwned + Default>(metadata: &Map<String, Value>, field: &str) -> T {
    metadata.get(field).and_then(|value| T::deserialize(value).ok()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::object::decode::decode;
    use k8s_openapi::api::core::v1::ConfigMap;

    /// R16: a malformed label or owner list.
    #[test]
    fn malformed_metadata_keeps_the_identity() {
        for odd in [r#""labels":{"a":1}"#, r#""ownerReferences":[{"name":7}]"#, r#""generation":"x""#] {
            let json = format!(r#"{{"metadata":{{"name":"a","uid":"u","resourceVersion":"7",{odd}}}}}"#);
            let unreadable = decode::<ConfigMap>(json.as_bytes()).unwrap().unwrap_err();
            assert_eq!((unreadable.meta.name.name(), &*unreadable.meta.uid), ("a", "u"), "{odd}");
        }
    }

    #[test]
    fn projection_drops_annotations() {
        let json =
            r#"{"name": "a", "annotations": {"kubectl.kubernetes.io/last-applied-configuration": "{}"}}"#;
        let kept: Meta = serde_json::from_str(json).unwrap();
        assert_eq!(kept, Meta { name: ObjectName::new(None, "a"), ..Meta::default() });
    }
}
