//! The kinds of children: their wanted and observed state, and the differences between the two. Pure; sends nothing.
//!
//! | module | in one sentence |
//! |---|---|
//! | [`deployment`], [`service`], [`ingress`], [`pod`] | the wanted and the observed state of each kind |
//! | [`config_map`], [`secret`] | the wanted state of these kinds, which are observed as a whole |
//! | [`container`] | the same for a container, in a Pod or in a Pod template |
//! | [`observed`] | what the projections of all kinds have in common |
//! | [`diff`] | the difference of two states of a child: what a patch changes, and how it is told |
//! | [`difference`] | one field that differs |
//! | [`health`] | whether a child is ready, in progress or stuck, and why |

pub mod config_map;
pub mod container;
pub mod deployment;
pub mod diff;
pub mod difference;
pub mod health;
pub mod ingress;
pub mod observed;
pub mod pod;
mod protobuf;
pub mod secret;
pub mod service;

use std::marker::PhantomData;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube_core::{Resource, ResourceExt};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::api::ApiResource;
use crate::cache::{ControllerRef, TypedObject};
use health::ChildHealth;

/// A type of objects that can be children: their owner labels them and refers to itself in them.
///
/// Implemented for every type that `kube_core` knows; [`object_by_metadata!`](crate::object_by_metadata) implements it
/// for a projection.
pub trait Child: TypedObject {
    /// Sets a label, unless it has this value already.
    fn set_label(&mut self, key: &str, value: &str);
    /// Sets the reference to the owner with this uid, in place if there is one; references to other owners are kept.
    fn set_owner(&mut self, owner: ControllerRef<'_>);
}

/// A child as its owner wants it.
pub trait Wanted: Send + Sync {
    /// The child in the cache: a type of `k8s_openapi`, a custom resource, or a projection. Its JSON is that of the
    /// API, so that the difference of two of them is what a patch has to change.
    type Observed: Child + Clone + Default + PartialEq + Serialize;

    /// Returns the child's name, in the owner's namespace.
    fn name(&self) -> &str;

    /// Writes our fields into a child, and keeps everything else. The child differs if that changes it, so a value that
    /// means the same stays as it is: `1000m` for 1, a default of the server. A new child has no uid.
    ///
    /// The labels by which the owner finds its children and the reference to the owner are written for all kinds.
    fn write_into(&self, child: &mut Self::Observed);

    /// Whether writing into this child removes something that serves users: a replica, a port, a host.
    fn destroys(&self, _observed: &Self::Observed) -> bool {
        false
    }

    /// Whether only a lagging `observedGeneration` keeps the child from being ready.
    fn only_lags(&self, _observed: &Self::Observed) -> bool {
        false
    }

    /// Returns the health of a child that matches; a kind that reports nothing more is ready as soon as it exists.
    fn progress(&self, _observed: &Self::Observed) -> ChildHealth {
        ChildHealth::ready(format!(
            "{} {:?} is up to date",
            ApiResource::of::<Self::Observed>().kind,
            self.name()
        ))
    }
}

/// Returns a wanted child that this function writes, for kinds that need no more than [`Wanted::write_into`].
///
/// ```
/// use k8s_openapi::api::core::v1::ConfigMap;
/// use windlass::controller::kinds::{Wanted, wanted};
///
/// let page = wanted("page", |map: &mut ConfigMap| {
///     map.data.get_or_insert_default().insert("index.html".to_owned(), "<p>Hello</p>".to_owned());
/// });
/// let mut map = ConfigMap::default();
/// page.write_into(&mut map);
/// assert_eq!((page.name(), &*map.data.unwrap()["index.html"]), ("page", "<p>Hello</p>"));
/// ```
pub fn wanted<O, F>(name: &str, write: F) -> impl Wanted<Observed = O> + use<O, F>
where
    O: Child + Clone + Default + PartialEq + Serialize,
    F: Fn(&mut O) + Send + Sync,
{
    Written { name: name.to_owned(), write, child: PhantomData }
}

/// See [`wanted`].
struct Written<O, F> {
    name: String,
    write: F,
    child: PhantomData<fn(&mut O)>,
}

impl<O, F> Wanted for Written<O, F>
where
    O: Child + Clone + Default + PartialEq + Serialize,
    F: Fn(&mut O) + Send + Sync,
{
    type Observed = O;

    fn name(&self) -> &str {
        &self.name
    }

    fn write_into(&self, child: &mut O) {
        (self.write)(child);
    }
}

impl<T> Child for T
where
    T: Resource<DynamicType = (), Scope: 'static> + DeserializeOwned + Send + Sync + 'static,
{
    fn set_label(&mut self, key: &str, value: &str) {
        let labels = self.labels_mut();
        if labels.get(key).is_none_or(|known| known != value) {
            labels.insert(key.to_owned(), value.to_owned());
        }
    }

    fn set_owner(&mut self, owner: ControllerRef<'_>) {
        let owners = self.owner_references_mut();
        let at = owners.iter().position(|known| known.uid == owner.uid).unwrap_or(owners.len());
        let reference = OwnerReference {
            api_version: owner.api_version.to_owned(),
            kind: owner.kind.to_owned(),
            name: owner.name.to_owned(),
            uid: owner.uid.to_owned(),
            controller: owner.controller.then_some(true),
            block_owner_deletion: owner.block_owner_deletion.then_some(true),
        };
        owners.retain(|known| known.uid != owner.uid);
        owners.insert(at, reference);
    }
}

#[cfg(test)]
#[cfg(feature = "sim")]
mod tests;
