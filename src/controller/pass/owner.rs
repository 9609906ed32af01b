//! The custom resource as the owner of its children: who owns a child, and the owner reference that records it.
//!
//! Mirrors apimachinery's `metav1.NewControllerRef` and `IsControlledBy`.
//!
//! | the child's owner references | owner |
//! |---|---|
//! | our uid, as controller | us |
//! | our uid, no controller, and our label | released by another client: repaired while it is wanted, never deleted |
//! | another uid of our kind and name, as controller | a previous incarnation of us |
//! | anything else | someone else: nothing is ever adopted |
//!
//! # Guarantees
//! - Our owner reference is restored, and references to other owners are kept.
//!   (test: `owner_reference_is_restored_and_others_are_kept`)
//! - An owner reference alone does not make an object ours. (test: `owner_reference_alone_does_not_imply_ownership`)

use serde_json::Value;

use crate::api::labels::Labels;
use crate::api::{ApiResource, annotations, labels};
use crate::cache::{Cached, ControllerRef, Meta, Object, ObjectName, TypedObject};
use crate::controller::kinds::diff::{self, Changes};
use crate::controller::kinds::difference::Difference;
use crate::controller::kinds::{Child, Wanted};

/// The custom resource that owns a child, in one observed state.
#[derive(Clone, Debug)]
pub struct Owner {
    /// The resource of its kind.
    pub resource: ApiResource,
    /// Namespace and name.
    pub name: ObjectName,
    /// The uid, which identifies this incarnation.
    pub uid: String,
    /// The generation of the spec that decisions are based on.
    pub generation: i64,
    /// The value of the annotation by which a user requests an immediate retry.
    pub reconcile_at: Option<String>,
    /// The resource version that decisions are based on.
    pub(in crate::controller) version: String,
    /// The finalizers at that version.
    pub(in crate::controller) finalizers: Vec<String>,
    /// The name of the operator, used as a label of the children.
    pub(in crate::controller) manager: &'static str,
}

/// Whether an object is owned by us.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::controller) enum Ownership {
    Ours,
    /// Ours, but another client has cleared the controller flag.
    Released,
    PreviousIncarnation,
    Foreign,
}

// === impl Owner ===

impl Owner {
    /// Returns the owner that this object represents.
    #[must_use]
    pub fn of<K: TypedObject>(object: &K) -> Self {
        Self {
            resource: ApiResource::of::<K>(),
            name: object.object_name(),
            uid: Object::uid(object).to_owned(),
            generation: object.generation(),
            reconcile_at: Object::annotations(object)
                .and_then(|all| all.get(annotations::RECONCILE_AT))
                .cloned(),
            version: Object::resource_version(object).to_owned(),
            finalizers: object.finalizers().into_iter().map(str::to_owned).collect(),
            manager: labels::MANAGER,
        }
    }

    /// Returns an owner of which only the identity and version are known.
    pub(in crate::controller) fn known_as(
        resource: ApiResource,
        name: ObjectName,
        uid: &str,
        version: &str,
    ) -> Self {
        Self {
            resource,
            name,
            uid: uid.to_owned(),
            generation: 0,
            reconcile_at: None,
            version: version.to_owned(),
            finalizers: Vec::new(),
            manager: labels::MANAGER,
        }
    }

    /// Sets the name of the operator that manages the children.
    #[must_use]
    pub fn managed_by(mut self, manager: &'static str) -> Self {
        self.manager = manager;
        self
    }

    /// Returns the labels that the owner's children carry.
    #[must_use]
    pub fn child_labels(&self) -> Labels {
        labels::managed(self.manager, &self.resource.kind, self.name.name())
    }

    pub(in crate::controller) fn ownership<O: TypedObject>(&self, child: &O) -> Ownership {
        self.ownership_by(
            child.controller(),
            child.owner(&self.uid).is_some(),
            child.label(labels::MANAGED_BY),
        )
    }

    /// Whether a cached object is ours or released, even if it does not decode.
    pub(in crate::controller) fn owns<O: TypedObject>(&self, child: &Cached<O>) -> bool {
        let ownership = match child {
            Cached::Readable(child) => self.ownership(&**child),
            Cached::Unreadable(child) => self.ownership_of_meta(&child.meta),
        };
        matches!(ownership, Ownership::Ours | Ownership::Released)
    }

    /// Like [`ownership`](Self::ownership), for an object of which only the metadata is known.
    pub(in crate::controller) fn ownership_of_meta(&self, child: &Meta) -> Ownership {
        self.ownership_by(
            child.controller(),
            child.owner(&self.uid).is_some(),
            child.labels.get(labels::MANAGED_BY),
        )
    }

    fn ownership_by(
        &self,
        controller: Option<ControllerRef<'_>>,
        is_owner: bool,
        managed_by: Option<&str>,
    ) -> Ownership {
        match controller {
            Some(owner) if owner.uid == self.uid => Ownership::Ours,
            None if is_owner && managed_by == Some(self.manager) => Ownership::Released,
            Some(owner) if owner.is_a(&self.resource) && owner.name == self.name.name() => {
                Ownership::PreviousIncarnation
            }
            _ => Ownership::Foreign,
        }
    }

    /// Returns the child with all that is ours: what is wanted, the labels of [`child_labels`](Self::child_labels), and
    /// the reference to us, unless somebody has taken it away.
    pub(crate) fn desired<W: Wanted>(&self, wanted: &W, observed: &W::Observed) -> W::Observed {
        let mut child = observed.clone();
        wanted.write_into(&mut child);
        let (kind, name) = (self.resource.kind.to_ascii_lowercase(), self.name.name());
        for (key, value) in labels::of_child(self.manager, &kind, name) {
            child.set_label(key, value);
        }
        if child.uid().is_empty() || child.owner(&self.uid).is_some() {
            child.set_owner(ControllerRef {
                api_version: &self.resource.api_version(),
                kind: &self.resource.kind,
                name,
                uid: &self.uid,
                controller: true,
                block_owner_deletion: true,
            });
        }
        child
    }

    /// Returns the fields of ours that differ in a child.
    pub(crate) fn differences<W: Wanted>(&self, wanted: &W, observed: &W::Observed) -> Vec<Difference> {
        let desired = self.desired(wanted, observed);
        Changes::between(&ApiResource::of::<W::Observed>(), observed, &desired).differences
    }

    /// Returns the body of a child to create.
    pub(in crate::controller) fn body_of<W: Wanted>(&self, wanted: &W) -> Value {
        let child = self.desired(wanted, &W::Observed::default());
        diff::body_of(&child, self.name.namespace(), wanted.name())
    }
}
