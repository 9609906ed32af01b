//! What the cache must know of a type, and the objects that do not decode into it.
//!
//! Mirrors apimachinery's `meta.Accessor`; client-go has nothing for objects that do not decode
//! (they end the watch).
//!
//! # How it works
//! A cached type is the whole type (anything that `kube_core` knows), the whole type with a transform
//! that drops what nobody reads ([`trim`]), or a *projection*: a narrower serde type that is decoded
//! straight from the wire, with [`Meta`] for its metadata, without annotations: nobody compares them.
//!
//! # Guarantees
//! - A body that does not decode becomes [`Unreadable`] with the object's identity, never a deletion
//!   and never the end of the others. (test: `a_body_that_does_not_decode_keeps_its_identity`)
//! - Neither does one label or owner that does not decode. (test: `odd_metadata_does_not_hide_who_it_is`)
//! - Annotations of a projection take no memory. (test: `annotations_are_not_kept`)

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
    /// Where the API server keeps objects of this type.
    fn resource() -> ApiResource;
    /// Namespace and name.
    fn object_name(&self) -> ObjectName;
    /// The object's one life.
    fn uid(&self) -> &str;
    /// The version of this state.
    fn resource_version(&self) -> &str;
    /// Counts the changes of the spec; 0 for kinds that do not count them.
    fn generation(&self) -> i64;
    /// Whether its deletion has been asked for.
    fn is_deleting(&self) -> bool;
    /// The labels, if any.
    fn labels(&self) -> Option<&BTreeMap<String, String>>;
    /// The annotations, if any; `None` also for a projection that does not keep them.
    fn annotations(&self) -> Option<&BTreeMap<String, String>> {
        None
    }
    /// The owner that controls this object, if any.
    fn controller(&self) -> Option<ControllerRef<'_>>;
    /// The reference to the owner of this uid, if there is one; the one that controls the object, if it has
    /// several.
    fn owner(&self, uid: &str) -> Option<ControllerRef<'_>> {
        self.controller().filter(|owner| owner.uid == uid)
    }
}

/// An owner reference: the one with `controller: true`, but where another is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ControllerRef<'a> {
    /// API version of the owner, `group/version`.
    pub api_version: &'a str,
    /// Kind of the owner.
    pub kind: &'a str,
    /// Name of the owner, in the object's own namespace.
    pub name: &'a str,
    /// The owner's one life.
    pub uid: &'a str,
    /// Whether it is the one that controls the object.
    pub controller: bool,
    /// Whether the owner stays, when it is deleted in the foreground, until the object is gone.
    pub block_owner_deletion: bool,
}

impl ControllerRef<'_> {
    /// Whether the owner is of this kind, in any version of its group.
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

/// The owner of this uid, as the one that controls if one of its references says so.
fn the_owner<'a>(owners: impl Iterator<Item = ControllerRef<'a>>, uid: &str) -> Option<ControllerRef<'a>> {
    owners.filter(|owner| owner.uid == uid).max_by_key(|owner| owner.controller)
}

/// A transform for whole types: drops `managedFields` and the last-applied annotation, half of the
/// wire and two thirds of the memory of a usual object.
pub fn trim<T: kube_core::Resource>(object: &mut T) {
    let meta = object.meta_mut();
    meta.managed_fields = None;
    if let Some(annotations) = &mut meta.annotations {
        annotations.remove("kubectl.kubernetes.io/last-applied-configuration");
    }
}

/// The metadata that a projection keeps: no annotations.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Meta {
    /// Name.
    pub name: String,
    /// Namespace; `None` for cluster-scoped objects.
    pub namespace: Option<String>,
    /// The object's one life.
    pub uid: String,
    /// The version of this state.
    pub resource_version: String,
    /// Counts the changes of the spec.
    pub generation: i64,
    /// When its deletion was asked for; `None` while it lives.
    pub deletion_timestamp: Option<String>,
    /// Labels.
    pub labels: BTreeMap<String, String>,
    /// All owners.
    pub owner_references: Vec<OwnerRef>,
}

/// An owner reference, as far as a projection keeps it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct OwnerRef {
    /// `group/version`.
    pub api_version: String,
    /// Kind.
    pub kind: String,
    /// Name.
    pub name: String,
    /// The owner's one life.
    pub uid: String,
    /// Whether it is the one that controls the object.
    pub controller: bool,
    /// Whether the owner stays, when it is deleted in the foreground, until the object is gone.
    pub block_owner_deletion: bool,
}

impl Meta {
    /// Decodes who the object is, and of the rest what decodes; for a field with `#[serde(deserialize_with)]`.
    ///
    /// # Errors
    /// When not even name and version can be told.
    pub fn deserialize_leniently<'de, D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        Self::lenient(&Map::deserialize(from)?).map_err(serde::de::Error::custom)
    }

    /// One label that is no string must not hide the object: what does not decode beside its identity is left out.
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

    /// The key of the object.
    #[must_use]
    pub fn object_name(&self) -> ObjectName {
        ObjectName::new(self.namespace.as_deref(), &self.name)
    }

    /// The owner that controls the object, if any.
    #[must_use]
    pub fn controller(&self) -> Option<ControllerRef<'_>> {
        self.owners().find(|owner| owner.controller)
    }

    /// The reference to the owner of this uid; see [`Object::owner`].
    #[must_use]
    pub fn owner(&self, uid: &str) -> Option<ControllerRef<'_>> {
        the_owner(self.owners(), uid)
    }

    fn owners(&self) -> impl Iterator<Item = ControllerRef<'_>> {
        self.owner_references.iter().map(OwnerRef::as_reference)
    }
}

impl OwnerRef {
    /// The same, borrowed.
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

/// An object whose body does not decode into the caller's type: its metadata and the reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unreadable {
    /// Name, uid, version, owners.
    pub meta: Meta,
    /// What does not fit, and where.
    pub error: String,
}

/// An object as it came off the wire.
pub type Decoded<K> = Result<K, Unreadable>;

/// Decodes an object; when it does not fit, its metadata alone, as far as that decodes.
///
/// # Errors
/// When not even name and version can be told: then it is no object.
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

/// An object in the cache: shared, so that nobody can change it.
pub enum Cached<K> {
    /// It decoded.
    Readable(Arc<K>),
    /// It did not.
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

    /// Namespace and name.
    #[must_use]
    pub fn object_name(&self) -> ObjectName {
        match self {
            Self::Readable(object) => object.object_name(),
            Self::Unreadable(object) => object.meta.object_name(),
        }
    }

    /// The object's one life.
    #[must_use]
    pub fn uid(&self) -> &str {
        match self {
            Self::Readable(object) => object.uid(),
            Self::Unreadable(object) => &object.meta.uid,
        }
    }

    /// The version of this state.
    #[must_use]
    pub fn resource_version(&self) -> &str {
        match self {
            Self::Readable(object) => object.resource_version(),
            Self::Unreadable(object) => &object.meta.resource_version,
        }
    }

    /// The owner that controls the object, if any.
    #[must_use]
    pub fn controller(&self) -> Option<ControllerRef<'_>> {
        match self {
            Self::Readable(object) => object.controller(),
            Self::Unreadable(object) => object.meta.controller(),
        }
    }

    /// Counts the changes of the spec; 0 for kinds that do not count them.
    #[must_use]
    pub fn generation(&self) -> i64 {
        match self {
            Self::Readable(object) => object.generation(),
            Self::Unreadable(object) => object.meta.generation,
        }
    }

    /// Whether its deletion has been asked for.
    #[must_use]
    pub fn is_deleting(&self) -> bool {
        match self {
            Self::Readable(object) => object.is_deleting(),
            Self::Unreadable(object) => object.meta.deletion_timestamp.is_some(),
        }
    }

    /// The labels, if any.
    #[must_use]
    pub fn labels(&self) -> Option<&BTreeMap<String, String>> {
        match self {
            Self::Readable(object) => object.labels(),
            Self::Unreadable(object) => Some(&object.meta.labels),
        }
    }

    /// The annotations, if any and if the object decoded.
    #[must_use]
    pub fn annotations(&self) -> Option<&BTreeMap<String, String>> {
        self.readable().and_then(|object| object.annotations())
    }

    /// The object itself, if it decoded.
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

/// Identity and version only: a whole object may hold secrets.
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
    fn a_body_that_does_not_decode_keeps_its_identity() {
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

    /// R16: a broken label or owner list.
    #[test]
    fn odd_metadata_does_not_hide_who_it_is() {
        for odd in [r#""labels":{"a":1}"#, r#""ownerReferences":[{"name":7}]"#, r#""generation":"x""#] {
            let json = format!(r#"{{"metadata":{{"name":"a","uid":"u","resourceVersion":"7",{odd}}}}}"#);
            let unreadable = decode::<ConfigMap>(json.as_bytes()).unwrap().unwrap_err();
            assert_eq!((unreadable.meta.name.as_str(), unreadable.meta.uid.as_str()), ("a", "u"), "{odd}");
        }
    }

    #[test]
    fn annotations_are_not_kept() {
        let json =
            r#"{"name": "a", "annotations": {"kubectl.kubernetes.io/last-applied-configuration": "{}"}}"#;
        let kept: Meta = serde_json::from_str(json).unwrap();
        assert_eq!(kept, Meta { name: "a".to_owned(), ..Meta::default() });
    }

    #[test]
    fn an_owner_is_found_whether_it_controls_or_not() {
        let json = r#"{"ownerReferences": [{"uid": "a"}, {"uid": "b", "blockOwnerDeletion": true},
            {"uid": "b", "controller": true}]}"#;
        let meta: Meta = serde_json::from_str(json).unwrap();
        let owner = |uid| meta.owner(uid).map(|owner| (owner.controller, owner.block_owner_deletion));
        assert_eq!((owner("a"), owner("b"), owner("c")), (Some((false, false)), Some((true, false)), None));
    }

    #[test]
    fn what_has_no_metadata_is_an_error() {
        assert!(decode::<ConfigMap>(br#"{"data":{"key":1}}"#).is_err());
        assert!(decode::<ConfigMap>(b"not json").is_err());
    }

    #[test]
    fn an_owner_is_reported_by_group_and_kind_in_any_version() {
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
