//! The metadata of a projection.
//!
//! # Guarantees
//! - Annotations are not kept. (test: `projection_drops_annotations`)
//! - A malformed label or owner reference does not hide the identity. (test: `malformed_metadata_keeps_the_identity`)

use std::collections::BTreeMap;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};

use super::object_name::ObjectName;
use super::owner::{ControllerRef, OwnerRef, the_owner};

/// The metadata of a projection, without annotations.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Meta {
    /// Name.
    pub name: String,
    /// Namespace; `None` for cluster-scoped objects.
    pub namespace: Option<String>,
    /// Uid, which identifies one incarnation of the object.
    pub uid: String,
    /// Resource version.
    pub resource_version: String,
    /// Generation, which counts spec changes.
    pub generation: i64,
    /// When the deletion was requested; `None` if it was not.
    pub deletion_timestamp: Option<String>,
    /// Labels.
    pub labels: BTreeMap<String, String>,
    /// References to all owners.
    pub owner_references: Vec<OwnerRef>,
}

impl Meta {
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
            name: String,
            namespace: Option<String>,
            #[serde(default)]
            uid: String,
            resource_version: String,
        }
        let Identity { name, namespace, uid, resource_version } =
            Identity::deserialize(&Value::Object(metadata.clone()))?;
        Ok(Self {
            name,
            namespace,
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
        ObjectName::new(self.namespace.as_deref(), &self.name)
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
    use crate::cache::decode::decode;
    use k8s_openapi::api::core::v1::ConfigMap;

    /// R16: a malformed label or owner list.
    #[test]
    fn malformed_metadata_keeps_the_identity() {
        for odd in [r#""labels":{"a":1}"#, r#""ownerReferences":[{"name":7}]"#, r#""generation":"x""#] {
            let json = format!(r#"{{"metadata":{{"name":"a","uid":"u","resourceVersion":"7",{odd}}}}}"#);
            let unreadable = decode::<ConfigMap>(json.as_bytes()).unwrap().unwrap_err();
            assert_eq!((unreadable.meta.name.as_str(), unreadable.meta.uid.as_str()), ("a", "u"), "{odd}");
        }
    }

    #[test]
    fn projection_drops_annotations() {
        let json =
            r#"{"name": "a", "annotations": {"kubectl.kubernetes.io/last-applied-configuration": "{}"}}"#;
        let kept: Meta = serde_json::from_str(json).unwrap();
        assert_eq!(kept, Meta { name: "a".to_owned(), ..Meta::default() });
    }
}
