//! The custom resource as the owner of its children: whose a child is, and the reference that says so.
//!
//! Mirrors apimachinery's `metav1.NewControllerRef` and `IsControlledBy`.
//!
//! | the child's references | whose it is |
//! |---|---|
//! | our uid, as its controller | ours |
//! | our uid, and no controller, and our label | ours: somebody has changed that flag |
//! | another uid of our kind and name, as its controller | of a previous incarnation of ours |
//! | anything else | somebody else's: nothing is ever adopted |
//!
//! # Guarantees
//! - Our reference is put back as it was made, and those to others stay. (test: `our_owner_reference_is_put_back_and_others_stay`)
//! - A reference alone makes nothing ours. (test: `a_reference_alone_makes_nothing_ours`)

use std::sync::Arc;

use serde_json::{Value, json};

use super::guarded_write::OwnerEvidence;
use crate::api::labels::Labels;
use crate::api::{ApiResource, annotations, labels};
use crate::cache::{Cached, ControllerRef, Meta, Object, ObjectName};
use crate::controller::kinds::Wanted;
use crate::controller::kinds::difference::{Difference, differs, object_at};
use crate::controller::run::consistency::Consistency;

/// The custom resource that a child belongs to, in one state of one life.
#[derive(Clone, Debug)]
pub struct Owner {
    /// Its kind.
    pub resource: ApiResource,
    /// Namespace and name.
    pub name: ObjectName,
    /// Its one life.
    pub uid: String,
    /// The spec that decisions are based on.
    pub generation: i64,
    /// The value of the annotation by which a user asks for a try at once.
    pub reconcile_at: Option<String>,
    /// The version of the object that decisions are based on.
    pub(in crate::controller) version: String,
    /// Its finalizers in that version.
    pub(in crate::controller) finalizers: Vec<String>,
    /// The last live read of it in this pass.
    pub(in crate::controller) evidence: Arc<OwnerEvidence>,
}

/// Whose an object is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::controller) enum Ownership {
    Ours,
    PreviousIncarnation,
    Foreign,
}

// === impl Owner ===

impl Owner {
    /// The owner that this object is.
    #[must_use]
    pub fn of<K: kube_core::Resource<DynamicType = ()> + Object>(object: &K) -> Self {
        Self {
            resource: ApiResource::of::<K>(),
            name: object.object_name(),
            uid: Object::uid(object).to_owned(),
            generation: object.meta().generation.unwrap_or_default(),
            reconcile_at: Object::annotations(object)
                .and_then(|all| all.get(annotations::RECONCILE_AT))
                .cloned(),
            version: Object::resource_version(object).to_owned(),
            finalizers: object.meta().finalizers.clone().unwrap_or_default(),
            evidence: Arc::default(),
        }
    }

    /// An owner of which nothing is known but its identity.
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
            evidence: Arc::default(),
        }
    }

    /// A sync wrote the owner itself, and the server answered with this version of it.
    pub(in crate::controller) fn wrote(&self, consistency: &Consistency, version: &str) {
        consistency.wrote_state(&self.name, &self.resource, self.name.clone(), (&self.uid, version));
    }

    /// The controller reference that its children carry.
    #[must_use]
    pub fn reference(&self) -> Value {
        json!({
            "apiVersion": self.resource.api_version(),
            "kind": self.resource.kind,
            "name": self.name.name(),
            "uid": self.uid,
            "controller": true,
            "blockOwnerDeletion": true,
        })
    }

    pub(in crate::controller) fn ownership<O: Object>(&self, child: &O) -> Ownership {
        self.ownership_by(child.controller(), child.owner(&self.uid).is_some(), child.labels())
    }

    /// Whether a cached object is ours, whether it decodes or not.
    pub(in crate::controller) fn owns<O: Object>(&self, child: &Cached<O>) -> bool {
        let ownership = match child {
            Cached::Readable(child) => self.ownership(&**child),
            Cached::Unreadable(child) => self.ownership_of_meta(&child.meta),
        };
        ownership == Ownership::Ours
    }

    /// As [`ownership`](Self::ownership), of an object of which only the metadata is known.
    pub(in crate::controller) fn ownership_of_meta(&self, child: &Meta) -> Ownership {
        self.ownership_by(child.controller(), child.owner(&self.uid).is_some(), Some(&child.labels))
    }

    fn ownership_by(
        &self,
        controller: Option<ControllerRef<'_>>,
        is_owner: bool,
        labels: Option<&Labels>,
    ) -> Ownership {
        match controller {
            Some(owner) if owner.uid == self.uid => Ownership::Ours,
            None if is_owner && is_labelled(labels) => Ownership::Ours,
            Some(owner) if owner.is_a(&self.resource) && owner.name == self.name.name() => {
                Ownership::PreviousIncarnation
            }
            _ => Ownership::Foreign,
        }
    }

    /// What is not as wanted of a child that is ours.
    pub(in crate::controller) fn differences<W: Wanted>(
        &self,
        wanted: &W,
        observed: &W::Observed,
    ) -> Vec<Difference> {
        let mut found = wanted.differences(observed);
        self.reference_differs(observed, &mut found);
        found
    }

    /// What of our reference is not as [`reference`](Self::reference) has it.
    pub(crate) fn reference_differs<O: Object>(&self, child: &O, found: &mut Vec<Difference>) {
        let Some(live) = child.owner(&self.uid) else { return };
        let name = self.name.name();
        let mut differ = |field: &str, live: &str, wanted: &str| {
            if live != wanted {
                differs(found, format!("metadata.ownerReferences[{name}].{field}"), live, wanted);
            }
        };
        differ("apiVersion", live.api_version, &self.resource.api_version());
        differ("kind", live.kind, &self.resource.kind);
        differ("name", live.name, name);
        for (field, is_set) in
            [("controller", live.controller), ("blockOwnerDeletion", live.block_owner_deletion)]
        {
            if !is_set {
                differs(found, format!("metadata.ownerReferences[{name}].{field}"), &false, &true);
            }
        }
    }

    /// Writes our reference in its place; those to others stay.
    pub(in crate::controller) fn refer(&self, child: &mut Value) {
        let metadata = object_at(child, &["metadata"]);
        let mut references = match metadata.remove("ownerReferences") {
            Some(Value::Array(references)) => references,
            _ => Vec::new(),
        };
        let is_ours = |reference: &Value| reference["uid"] == *self.uid;
        let at = references.iter().position(is_ours).unwrap_or(references.len());
        references.retain(|reference| !is_ours(reference));
        references.insert(at, self.reference());
        metadata.insert("ownerReferences".to_owned(), Value::Array(references));
    }
}

fn is_labelled(labels: Option<&Labels>) -> bool {
    labels.and_then(|labels| labels.get(labels::MANAGED_BY)).is_some_and(|by| by == labels::MANAGER)
}
