//! A custom resource as its operator's cache keeps it: a projection that exists for each kind with a spec and a status.
//!
//! Mirrors nothing in client-go, which caches whole objects; Cilium's slim types serve the same end.
//!
//! # How it works
//! A kind that `kube_derive` derives has the whole `ObjectMeta`, of which an operator reads half. [`Slim`] keeps that half
//! (with annotations and finalizers, unlike a child's [`Meta`]), the spec and the status, and shares its name with the store's
//! key. A Foo takes three quarters of the memory, and is decoded in less time.
//!
//! # Guarantees
//! - It has the identity, annotations and finalizers of the whole object. (test: `slim_object_has_the_same_identity`)
//! - The last applied configuration is not kept. (test: `last_applied_configuration_is_dropped`)
//! - An object that does not decode keeps its identity. (test: `slim_object_that_does_not_decode_keeps_its_identity`)

use std::collections::BTreeMap;
use std::fmt;

use kube_core::Resource;
use kube_core::object::{HasSpec, HasStatus};
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::meta::{Meta, OnTheWire};
use super::text::Text;
use super::{LAST_APPLIED, Object, TypedObject, is_namespaced};
use crate::api::{ApiResource, HasResource};

/// A custom resource with the metadata that its operator reads; see the module.
///
/// ```
/// use windlass::api::samplecontroller::v1alpha1::Foo;
/// use windlass::cache::{Object, Slim};
///
/// let foo: Slim<Foo> = serde_json::from_str(
///     r#"{"metadata": {"name": "one", "namespace": "ns"}, "spec": {"deploymentName": "web", "replicas": 2}}"#,
/// )?;
/// assert_eq!((foo.object_name().to_string().as_str(), foo.spec.replicas), ("ns/one", 2));
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Deserialize)]
#[serde(bound = "K::Spec: DeserializeOwned, K::Status: DeserializeOwned")]
pub struct Slim<K: HasSpec + HasStatus> {
    /// The metadata that is kept.
    pub metadata: SlimMeta,
    /// The spec.
    pub spec: K::Spec,
    /// The status, if there is one.
    pub status: Option<K::Status>,
}

/// The metadata of a [`Slim`] object.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(from = "OnTheWire<BTreeMap<String, String>, Box<[Text]>>")]
pub struct SlimMeta {
    /// What is kept of each projection.
    pub meta: Meta,
    /// Finalizers.
    pub finalizers: Box<[Text]>,
    /// Annotations, without the last applied configuration, which is the whole object once more.
    pub annotations: BTreeMap<String, String>,
}

// === impl Slim ===

/// Prints only name and version: the object may contain secrets.
impl<K: HasSpec + HasStatus> fmt::Debug for Slim<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.metadata.meta.name, self.metadata.meta.resource_version)
    }
}

impl<K> HasResource for Slim<K>
where
    K: Resource<DynamicType = ()> + HasSpec + HasStatus,
{
    fn resource() -> ApiResource {
        ApiResource::of::<K>()
    }
}

impl<K> TypedObject for Slim<K>
where
    K: Resource<DynamicType = (), Scope: 'static> + HasSpec + HasStatus + 'static,
    K::Spec: DeserializeOwned + Send + Sync,
    K::Status: DeserializeOwned + Send + Sync,
{
    fn is_namespaced() -> bool {
        is_namespaced::<K>()
    }
}

impl<K> Object for Slim<K>
where
    K: HasSpec + HasStatus + 'static,
    K::Spec: DeserializeOwned + Send + Sync,
    K::Status: DeserializeOwned + Send + Sync,
{
    crate::object_by_meta!(self, self.metadata.meta);

    fn annotations(&self) -> Option<&BTreeMap<String, String>> {
        Some(&self.metadata.annotations).filter(|annotations| !annotations.is_empty())
    }

    fn finalizers(&self) -> Vec<&str> {
        self.metadata.finalizers.iter().map(Text::as_str).collect()
    }
}

// === impl SlimMeta ===

impl From<OnTheWire<BTreeMap<String, String>, Box<[Text]>>> for SlimMeta {
    fn from(read: OnTheWire<BTreeMap<String, String>, Box<[Text]>>) -> Self {
        let (meta, mut annotations, finalizers) = read.into_parts();
        annotations.remove(LAST_APPLIED);
        Self { meta, finalizers, annotations }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::api::redis::v1::Redis;
    use crate::api::samplecontroller::v1alpha1::Foo;
    use crate::cache::Cached;
    use crate::cache::decode::decode;

    fn foo() -> Value {
        json!({"apiVersion": "samplecontroller.k8s.io/v1alpha1", "kind": "Foo", "metadata": {
            "name": "a", "namespace": "ns", "uid": "u", "resourceVersion": "7", "generation": 2,
            "creationTimestamp": "2020-01-01T00:00:00Z", "deletionTimestamp": "2020-01-02T00:00:00Z",
            "labels": {"app": "x"}, "annotations": {"keep": "me"}, "finalizers": ["orphan"],
            "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "o", "controller": true}],
        }, "spec": {"deploymentName": "web", "replicas": 2}, "status": {"replicas": 1}})
    }

    #[test]
    fn slim_object_has_the_same_identity() {
        fn identity<T: TypedObject>(json: &Value) -> String {
            let object = T::deserialize(json).unwrap();
            let names = (object.object_name(), object.uid(), object.resource_version(), object.generation());
            let owners = (object.controller().map(|owner| owner.uid), object.owner("o").is_some());
            let labels = (object.labels(), object.label("app"), object.annotations(), object.finalizers());
            let kind = (T::resource(), T::is_namespaced());
            format!("{names:?} {} {owners:?} {labels:?} {kind:?}", object.is_deleting())
        }
        let whole = identity::<Foo>(&foo());
        assert!(whole.contains(r#"Some({"keep": "me"}), ["orphan"]"#), "{whole}");
        assert_eq!(identity::<Slim<Foo>>(&foo()), whole);
        let slim = Slim::<Foo>::deserialize(&foo()).unwrap();
        assert_eq!((slim.spec.replicas, slim.status.unwrap().replicas), (2, 1));
    }

    #[test]
    fn last_applied_configuration_is_dropped() {
        let mut json = foo();
        json["metadata"]["annotations"][LAST_APPLIED] = json!("{}");
        let slim = Slim::<Foo>::deserialize(&json).unwrap();
        assert_eq!(slim.metadata.annotations.into_keys().collect::<Vec<_>>(), ["keep"]);
    }

    #[test]
    fn slim_object_that_does_not_decode_keeps_its_identity() {
        let mut json = foo();
        json["metadata"]["annotations"] = json!({"keep": 7});
        let unreadable = decode::<Slim<Foo>>(json.to_string().as_bytes()).unwrap().unwrap_err();
        assert_eq!(unreadable.error, "metadata.annotations.keep: expected a string");
        assert_eq!(Cached::<Slim<Foo>>::new(Err(unreadable)).object_name().to_string(), "ns/a");
        let without_spec = json!({"metadata": {"name": "a", "resourceVersion": "7"}});
        assert!(decode::<Slim<Redis>>(without_spec.to_string().as_bytes()).unwrap().is_err());
    }
}
