//! The trait of types that the cache can hold.
//!
//! Mirrors apimachinery's `meta.Accessor`.
//!
//! # How it works
//! A cached type is a full type (any type that `kube_core` knows), a full type with a transform that
//! drops unused fields ([`trim`]), or a *projection*: a narrower serde type that is decoded straight
//! from the wire, with [`Meta`](super::Meta) for its metadata. Projections of children omit annotations, which
//! nothing compares; [`Slim`](slim::Slim) is the projection of custom resources.
//!
//! Most types are of one kind ([`TypedObject`]), `kube_core`'s `PartialObjectMeta<K>` among them, which has the metadata
//! of that kind only. A [`DynamicObject`] is of any kind: [`ApiClient::discover`](crate::client::ApiClient::discover) finds a kind at
//! run time.
//!
//! # Guarantees
//! - An object of a kind found at run time has the same identity and owners. (test: `dynamic_object_has_the_same_identity`)

pub mod cached;
pub mod decode;
pub(crate) mod function_id;
pub mod meta;
pub mod object_name;
pub mod owner;
pub mod slim;
pub mod text;
pub(super) mod version;

use std::any::TypeId;
use std::collections::BTreeMap;
use std::ops::Deref;

use kube_core::{ClusterResourceScope, ObjectMeta, Resource};
use serde::Deserialize;
use serde::de::DeserializeOwned;

use self::object_name::ObjectName;
use self::owner::{ControllerRef, the_owner};
use crate::api::HasResource;
use crate::client::protobuf::Message;

/// A type that the cache can hold.
///
/// Implemented for every type that `kube_core` knows; [`object_by_metadata!`](crate::object_by_metadata) implements it for
/// a projection.
pub trait Object: DeserializeOwned + Send + Sync + 'static {
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
    /// Returns the value of a label.
    fn label(&self, key: &str) -> Option<&str>;
    /// Returns a copy of all labels, for a selector.
    fn labels(&self) -> BTreeMap<String, String>;
    /// Returns the annotations, if any; always `None` for a projection that does not keep them.
    fn annotations(&self) -> Option<&BTreeMap<String, String>> {
        None
    }
    /// Returns the finalizers; always none for a projection that does not keep them.
    fn finalizers(&self) -> Vec<&str> {
        Vec::new()
    }
    /// Returns the controlling owner, if any.
    fn controller(&self) -> Option<ControllerRef<'_>>;
    /// Whether only the metadata is wanted, so that servers are asked for nothing else.
    #[must_use]
    fn is_metadata_only() -> bool {
        false
    }
    /// Returns the message that the type decodes from, or `None` if it decodes from JSON only, as custom resources do.
    #[must_use]
    fn protobuf() -> Option<&'static Message> {
        None
    }
    /// Returns the reference to the owner with this uid, if any; if there are several, the controlling one.
    fn owner(&self, uid: &str) -> Option<ControllerRef<'_>> {
        self.controller().filter(|owner| owner.uid == uid)
    }
}

/// A type whose objects are all of one kind.
pub trait TypedObject: Object + HasResource {
    /// Returns whether objects of this type are in namespaces.
    #[must_use]
    fn is_namespaced() -> bool {
        true
    }
}

/// The methods of [`Object`] that read an `ObjectMeta`.
macro_rules! by_object_meta {
    ($self:ident, $meta:expr) => {
        fn object_name(&$self) -> ObjectName {
            ObjectName::new($meta.namespace.as_deref(), $meta.name.as_deref().unwrap_or_default())
        }

        fn uid(&$self) -> &str {
            $meta.uid.as_deref().unwrap_or_default()
        }

        fn resource_version(&$self) -> &str {
            $meta.resource_version.as_deref().unwrap_or_default()
        }

        fn generation(&$self) -> i64 {
            $meta.generation.unwrap_or_default()
        }

        fn is_deleting(&$self) -> bool {
            $meta.deletion_timestamp.is_some()
        }

        fn label(&$self, key: &str) -> Option<&str> {
            $meta.labels.as_ref()?.get(key).map(String::as_str)
        }

        fn labels(&$self) -> BTreeMap<String, String> {
            $meta.labels.clone().unwrap_or_default()
        }

        fn annotations(&$self) -> Option<&BTreeMap<String, String>> {
            $meta.annotations.as_ref()
        }

        fn finalizers(&$self) -> Vec<&str> {
            $meta.finalizers.iter().flatten().map(String::as_str).collect()
        }

        fn controller(&$self) -> Option<ControllerRef<'_>> {
            owners_in($meta).find(|owner| owner.controller)
        }

        fn owner(&$self, uid: &str) -> Option<ControllerRef<'_>> {
            the_owner(owners_in($meta), uid)
        }
    };
}

/// The methods of [`Object`](crate::cache::Object) that read a [`Meta`](crate::cache::Meta).
#[doc(hidden)]
#[macro_export]
macro_rules! object_by_meta {
    ($self:ident, $meta:expr) => {
        fn object_name(&$self) -> $crate::cache::ObjectName {
            $meta.object_name()
        }

        fn uid(&$self) -> &str {
            &$meta.uid
        }

        fn resource_version(&$self) -> &str {
            &$meta.resource_version
        }

        fn generation(&$self) -> i64 {
            $meta.generation
        }

        fn is_deleting(&$self) -> bool {
            $meta.deletion_timestamp.is_some()
        }

        fn label(&$self, key: &str) -> Option<&str> {
            $meta.labels.get(key)
        }

        fn labels(&$self) -> $crate::api::labels::Labels {
            $meta.labels.to_map()
        }

        fn controller(&$self) -> Option<$crate::cache::ControllerRef<'_>> {
            $meta.controller()
        }

        fn owner(&$self, uid: &str) -> Option<$crate::cache::ControllerRef<'_>> {
            $meta.owner(uid)
        }
    };
}

impl<T> Object for T
where
    T: Resource<DynamicType = (), Scope: 'static> + DeserializeOwned + Send + Sync + 'static,
{
    by_object_meta!(self, self.meta());

    fn is_metadata_only() -> bool {
        T::metadata_api()
    }
}

impl<T> TypedObject for T
where
    T: Resource<DynamicType = (), Scope: 'static> + DeserializeOwned + Send + Sync + 'static,
{
    fn is_namespaced() -> bool {
        is_namespaced::<T>()
    }
}

/// Whether objects of a type that `kube_core` knows are in namespaces.
fn is_namespaced<T: Resource<Scope: 'static>>() -> bool {
    TypeId::of::<T::Scope>() != TypeId::of::<ClusterResourceScope>()
}

/// An object of any kind, as JSON: `kube_core`'s type, which the cache can hold in this form.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(transparent)]
pub struct DynamicObject(pub kube_core::DynamicObject);

impl Deref for DynamicObject {
    type Target = kube_core::DynamicObject;

    fn deref(&self) -> &kube_core::DynamicObject {
        &self.0
    }
}

impl Object for DynamicObject {
    by_object_meta!(self, &self.0.metadata);
}

fn owners_in(meta: &ObjectMeta) -> impl Iterator<Item = ControllerRef<'_>> {
    meta.owner_references.iter().flatten().map(|owner| ControllerRef {
        api_version: &owner.api_version,
        kind: &owner.kind,
        name: &owner.name,
        uid: &owner.uid,
        controller: owner.controller == Some(true),
        block_owner_deletion: owner.block_owner_deletion == Some(true),
    })
}

/// The annotation in which `kubectl apply` keeps the whole object.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// Drops `managedFields` and the last-applied annotation, which take two thirds of a typical object's
/// memory; a transform for full types.
pub fn trim<T: Resource>(object: &mut T) {
    let meta = object.meta_mut();
    meta.managed_fields = None;
    if let Some(annotations) = &mut meta.annotations {
        annotations.remove(LAST_APPLIED);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::ApiResource;
    use k8s_openapi::api::core::v1::ConfigMap;
    use kube_core::PartialObjectMeta;

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

    #[test]
    fn dynamic_object_has_the_same_identity() {
        let json = serde_json::json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"key": "value"}, "metadata": {
            "name": "a", "namespace": "ns", "uid": "u", "resourceVersion": "7", "generation": 2, "labels": {"app": "x"},
            "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "o", "controller": true}],
        }});
        fn identity<T: Object>(json: &serde_json::Value) -> String {
            let object = T::deserialize(json).unwrap();
            let owner = object.controller().map(|owner| owner.uid.to_owned());
            let parts = (object.uid(), object.resource_version(), object.generation(), object.is_deleting());
            format!("{} {parts:?} {owner:?} {:?}", object.object_name(), object.labels())
        }
        let typed = identity::<ConfigMap>(&json);
        assert_eq!(typed, r#"ns/a ("u", "7", 2, false) Some("o") {"app": "x"}"#);
        assert_eq!(identity::<DynamicObject>(&json), typed);
        assert_eq!(identity::<PartialObjectMeta<ConfigMap>>(&json), typed);
        assert_eq!(ApiResource::of::<PartialObjectMeta<ConfigMap>>(), ApiResource::of::<ConfigMap>());
    }
}
