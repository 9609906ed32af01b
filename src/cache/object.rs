//! The trait of types that the cache can hold.
//!
//! Mirrors apimachinery's `meta.Accessor`.
//!
//! # How it works
//! A cached type is a full type (any type that `kube_core` knows), a full type with a transform that
//! drops unused fields ([`trim`]), or a *projection*: a narrower serde type that is decoded straight
//! from the wire, with [`Meta`](super::Meta) for its metadata. Projections omit annotations, which
//! nothing compares.

use std::any::TypeId;
use std::collections::BTreeMap;

use kube_core::ClusterResourceScope;
use serde::de::DeserializeOwned;

use super::object_name::ObjectName;
use super::owner::{ControllerRef, the_owner};
use crate::api::ApiResource;

/// A type that the cache can hold.
///
/// Implemented for every type that `kube_core` knows; a projection implements it by hand.
pub trait Object: DeserializeOwned + Send + Sync + 'static {
    /// Returns the API resource of this type.
    fn resource() -> ApiResource;
    /// Returns whether objects of this type are in namespaces.
    #[must_use]
    fn is_namespaced() -> bool {
        true
    }
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
    /// Returns the controlling owner, if any.
    fn controller(&self) -> Option<ControllerRef<'_>>;
    /// Returns the reference to the owner with this uid, if any; if there are several, the controlling one.
    fn owner(&self, uid: &str) -> Option<ControllerRef<'_>> {
        self.controller().filter(|owner| owner.uid == uid)
    }
}

impl<T> Object for T
where
    T: kube_core::Resource<DynamicType = (), Scope: 'static> + DeserializeOwned + Send + Sync + 'static,
{
    fn resource() -> ApiResource {
        ApiResource::of::<T>()
    }

    fn is_namespaced() -> bool {
        TypeId::of::<T::Scope>() != TypeId::of::<ClusterResourceScope>()
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

    fn label(&self, key: &str) -> Option<&str> {
        self.meta().labels.as_ref()?.get(key).map(String::as_str)
    }

    fn labels(&self) -> BTreeMap<String, String> {
        self.meta().labels.clone().unwrap_or_default()
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

/// Drops `managedFields` and the last-applied annotation, which take two thirds of a typical object's
/// memory; a transform for full types.
pub fn trim<T: kube_core::Resource>(object: &mut T) {
    let meta = object.meta_mut();
    meta.managed_fields = None;
    if let Some(annotations) = &mut meta.annotations {
        annotations.remove("kubectl.kubernetes.io/last-applied-configuration");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::ConfigMap;

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
