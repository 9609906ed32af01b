//! The trait of types that the cache can hold, and objects that do not decode into their type.
//!
//! Mirrors apimachinery's `meta.Accessor`; client-go has nothing for objects that do not decode
//! (they end the watch).
//!
//! # How it works
//! A cached type is a full type (any type that `kube_core` knows), a full type with a transform that
//! drops unused fields ([`trim`]), or a *projection*: a narrower serde type that is decoded straight
//! from the wire, with [`Meta`] for its metadata. Projections omit annotations, which nothing compares.
//!
//! # Guarantees
//! - An object that does not decode becomes [`Unreadable`] and keeps its identity; it is never treated
//!   as deleted and never affects other objects. (test: `undecodable_object_keeps_its_identity`)
//! - A malformed label or owner reference does not hide the object's identity. (test: `malformed_metadata_keeps_the_identity`)
//! - A projection does not keep annotations. (test: `projection_drops_annotations`)

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};

use super::object_name::ObjectName;
use crate::api::ApiResource;

/// A type that the cache can hold.
///
/// Implemented for every type that `kube_core` knows; a projection implements it by hand.
pub trait Object: DeserializeOwned + Send + Sync + 'static {
    /// Returns the API resource of this type.
    fn resource() -> ApiResource;
    /// Returns the namespace and name.
    fn object_name(&self) -> ObjectName;
    /// Returns the uid, which identifies one incarnation of the object.
    fn uid(&self) -> &str;
    /// Returns the resource version.
    fn resource_version(&self) -> &str;
    /// Returns the generation, which counts spec changes; 0 for kinds without one.
    fn generation(&self) -> i64;
    /// Returns whether the object is being deleted.
    fn is_deleting(&self) -> bool;
    /// Returns the labels, if any.
    fn labels(&self) -> Option<&BTreeMap<String, String>>;
    /// Returns the annotations, if any; always `None` for a projection that does not keep them.
    fn annotations(&self) -> Option<&BTreeMap<String, String>> {
        None
    }
    /// Returns the controlling owner, if any.
    fn controller(&self) -> Option<ControllerRef<'_>>;
    /// Returns the reference to the owner with this uid, if any; if there are several, the controlling one.
    fn owner(&self, uid: &str) -> Option<ControllerRef<'_>> {
        self.controller().filter(|owner| owner.uid == uid)
    }
}

/// An owner reference; usually the one with `controller: true`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ControllerRef<'a> {
    /// API version of the owner, `group/version`.
    pub api_version: &'a str,
    /// Kind of the owner.
    pub kind: &'a str,
    /// Name of the owner, in the object's own namespace.
    pub name: &'a str,
    /// Uid of the owner.
    pub uid: &'a str,
    /// Whether this owner controls the object.
    pub controller: bool,
    /// Whether a foreground deletion of the owner waits until this object is gone.
    pub block_owner_deletion: bool,
}

impl ControllerRef<'_> {
    /// Returns whether the owner is of this kind, in any version of its group.
    #[must_use]
    pub fn is_a(&self, resource: &ApiResource) -> bool {
        let group = self.api_version.rsplit_once('/').map_or("", |(group, _)| group);
        self.kind == resource.kind && group == resource.group
    }
}

impl<T> Object for T
where
    T: kube_core::Resource<DynamicType = ()> + DeserializeOwned + Send + Sync + 'static,
{
    fn resource() -> ApiResource {
        ApiResource::of::<T>()
    }

    fn object_name(&self) -> ObjectName {
        let meta = self.meta();
        ObjectName::new(meta.namespace.as_deref(), meta.name.as_deref().unwrap_or_default())
    }

    fn uid(&self) -> &str {
        self.meta().uid.as_deref().unwrap_or_default()
    }

    fn resource_version(&self) -> &str {
        self.meta().resource_version.as_deref().unwrap_or_default()
    }

    fn generation(&self) -> i64 {
        self.meta().generation.unwrap_or_default()
    }

    fn is_deleting(&self) -> bool {
        self.meta().deletion_timestamp.is_some()
    }

    fn labels(&self) -> Option<&BTreeMap<String, String>> {
        self.meta().labels.as_ref()
    }

    fn annotations(&self) -> Option<&BTreeMap<String, String>> {
        self.meta().annotations.as_ref()
    }

    fn controller(&self) -> Option<ControllerRef<'_>> {
        owners_of(self).find(|owner| owner.controller)
    }

    fn owner(&self, uid: &str) -> Option<ControllerRef<'_>> {
        the_owner(owners_of(self), uid)
    }
}

fn owners_of<T: kube_core::Resource>(object: &T) -> impl Iterator<Item = ControllerRef<'_>> {
    object.meta().owner_references.iter().flatten().map(|owner| ControllerRef {
        api_version: &owner.api_version,
        kind: &owner.kind,
        name: &owner.name,
        uid: &owner.uid,
        controller: owner.controller == Some(true),
        block_owner_deletion: owner.block_owner_deletion == Some(true),
    })
}

/// Returns the reference to the owner with this uid, preferably a controlling one.
fn the_owner<'a>(owners: impl Iterator<Item = ControllerRef<'a>>, uid: &str) -> Option<ControllerRef<'a>> {
    owners.filter(|owner| owner.uid == uid).max_by_key(|owner| owner.controller)
}

/// Drops `managedFields` and the last-applied annotation, which take two thirds of a typical object's
/// memory; a transform for full types.
pub fn trim<T: kube_core::Resource>(object: &mut T) {
    let meta = object.meta_mut();
    meta.managed_fields = None;
    if let Some(annotations) = &mut meta.annotations {
        annotations.remove("kubectl.kubernetes.io/last-applied-configuration");
    }
}

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

/// An owner reference of a projection.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct OwnerRef {
    /// `group/version`.
    pub api_version: String,
    /// Kind.
    pub kind: String,
    /// Name.
    pub name: String,
    /// Uid of the owner.
    pub uid: String,
    /// Whether this owner controls the object.
    pub controller: bool,
    /// Whether a foreground deletion of the owner waits until this object is gone.
    pub block_owner_deletion: bool,
}

impl Meta {
    /// Decodes the identity, and those other fields that decode; for use with `#[serde(deserialize_with)]`.
    ///
    /// # Errors
    /// If the identity does not decode.
    pub fn deserialize_leniently<'de, D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        Self::lenient(&Map::deserialize(from)?).map_err(serde::de::Error::custom)
    }

    /// Decodes the identity, and drops other fields that do not decode: a malformed label must not hide the object.
    fn lenient(metadata: &Map<String, Value>) -> Result<Self, serde_json::Error> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Identity {
            name: String,
            namespace: Option<String>,
            #[serde(default)]
            uid: String,
            #[serde(default)]
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

    /// Returns the reference to the owner with this uid; see [`Object::owner`].
    #[must_use]
    pub fn owner(&self, uid: &str) -> Option<ControllerRef<'_>> {
        the_owner(self.owners(), uid)
    }

    fn owners(&self) -> impl Iterator<Item = ControllerRef<'_>> {
        self.owner_references.iter().map(OwnerRef::as_reference)
    }
}

impl OwnerRef {
    /// Borrows the reference.
    #[must_use]
    pub fn as_reference(&self) -> ControllerRef<'_> {
        ControllerRef {
            api_version: &self.api_version,
            kind: &self.kind,
            name: &self.name,
            uid: &self.uid,
            controller: self.controller,
            block_owner_deletion: self.block_owner_deletion,
        }
    }
}

/// An object that does not decode into the caller's type: its metadata and the error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unreadable {
    /// Name, uid, version, owners.
    pub meta: Meta,
    /// The decoding error.
    pub error: String,
}

/// An object from the wire, decoded or unreadable.
pub type Decoded<K> = Result<K, Unreadable>;

/// Decodes an object, or only its metadata if the object does not match the type.
///
/// # Errors
/// If not even the object's identity decodes.
pub fn decode<K: DeserializeOwned>(json: &[u8]) -> Result<Decoded<K>, serde_json::Error> {
    #[derive(Deserialize)]
    struct Envelope {
        metadata: Map<String, Value>,
    }
    let error = match serde_json::from_slice::<K>(json) {
        Ok(object) => return Ok(Ok(object)),
        Err(error) => error.to_string(),
    };
    let Envelope { metadata } = serde_json::from_slice(json)?;
    Ok(Err(Unreadable { meta: Meta::lenient(&metadata)?, error }))
}

fn lenient<T: DeserializeOwned + Default>(metadata: &Map<String, Value>, field: &str) -> T {
    metadata.get(field).and_then(|value| T::deserialize(value).ok()).unwrap_or_default()
}

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

    /// Returns the labels, if any.
    #[must_use]
    pub fn labels(&self) -> Option<&BTreeMap<String, String>> {
        match self {
            Self::Readable(object) => object.labels(),
            Self::Unreadable(object) => Some(&object.meta.labels),
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

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::ConfigMap;

    #[test]
    fn undecodable_object_keeps_its_identity() {
        let json = br#"{"metadata":{"name":"a","namespace":"ns","uid":"u1","resourceVersion":"7",
            "ownerReferences":[{"apiVersion":"apps/v1","kind":"Deployment","name":"d","uid":"u0","controller":true}]},
            "data":{"key":1}}"#;
        let unreadable = decode::<ConfigMap>(json).unwrap().unwrap_err();
        assert!(unreadable.error.contains("invalid type: integer"), "{}", unreadable.error);
        let cached = Cached::<ConfigMap>::new(Err(unreadable));
        assert_eq!(cached.object_name().to_string(), "ns/a");
        assert_eq!((cached.uid(), cached.resource_version()), ("u1", "7"));
        assert_eq!(cached.controller().unwrap().uid, "u0");
        assert!(cached.readable().is_none());
    }

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

    #[test]
    fn owner_is_found_even_if_not_controlling() {
        let json = r#"{"ownerReferences": [{"uid": "a"}, {"uid": "b", "blockOwnerDeletion": true},
            {"uid": "b", "controller": true}]}"#;
        let meta: Meta = serde_json::from_str(json).unwrap();
        let owner = |uid| meta.owner(uid).map(|owner| (owner.controller, owner.block_owner_deletion));
        assert_eq!((owner("a"), owner("b"), owner("c")), (Some((false, false)), Some((true, false)), None));
    }

    #[test]
    fn object_without_metadata_is_an_error() {
        assert!(decode::<ConfigMap>(br#"{"data":{"key":1}}"#).is_err());
        assert!(decode::<ConfigMap>(b"not json").is_err());
    }

    #[test]
    fn owner_matches_group_and_kind_in_any_version() {
        let foo = ApiResource::new("samplecontroller.k8s.io", "v1alpha1", "Foo", "foos");
        let owner = |api_version, kind| ControllerRef {
            api_version,
            kind,
            name: "a",
            uid: "u",
            controller: true,
            block_owner_deletion: true,
        };
        assert!(owner("samplecontroller.k8s.io/v1beta1", "Foo").is_a(&foo));
        assert!(!owner("other.io/v1alpha1", "Foo").is_a(&foo));
        assert!(!owner("samplecontroller.k8s.io/v1alpha1", "Bar").is_a(&foo));
        assert!(owner("v1", "Pod").is_a(&ApiResource::new("", "v1", "Pod", "pods")));
    }

    #[test]
    fn trim_drops_managed_fields_and_last_applied() {
        let mut object: ConfigMap = serde_json::from_value(serde_json::json!({"metadata": {
            "name": "a",
            "annotations": {"kubectl.kubernetes.io/last-applied-configuration": "{}", "keep": "me"},
            "managedFields": [{"manager": "kubectl"}],
        }}))
        .unwrap();
        trim(&mut object);
        assert_eq!(object.metadata.managed_fields, None);
        let annotations = object.metadata.annotations.unwrap();
        assert_eq!(annotations.into_keys().collect::<Vec<_>>(), ["keep"]);
    }
}
