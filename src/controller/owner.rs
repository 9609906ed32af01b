//! The custom resource as the owner of its children: whose a child is, and the reference that says so.
//!
//! Mirrors apimachinery's `metav1.NewControllerRef` and `IsControlledBy`.
//!
//! | the child's references | whose it is |
//! |---|---|
//! | our uid, as its controller | ours |
//! | our uid, and no controller, and our label | ours: somebody has changed that flag |
//! | another uid of our kind and name, as its controller | of an earlier life of ours |
//! | anything else | somebody else's: nothing is ever adopted |
//!
//! # Guarantees
//! - Our reference is put back as it was made, and those to others stay. (test: `our_owner_reference_is_put_back_and_others_stay`)
//! - A reference alone makes nothing ours. (test: `a_reference_alone_makes_nothing_ours`)

use serde_json::{Value, json};

use super::children::Wanted;
use super::difference::{Difference, differs, object_at};
use crate::api::{ApiResource, annotations, labels};
use crate::cache::{Object, ObjectName};

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
}

/// Whose an object is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ownership {
    Ours,
    EarlierLife,
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
        }
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

    pub(super) fn ownership<O: Object>(&self, child: &O) -> Ownership {
        match child.controller() {
            Some(owner) if owner.uid == self.uid => Ownership::Ours,
            None if child.owner(&self.uid).is_some() && is_labelled(child) => Ownership::Ours,
            Some(owner) if owner.is_a(&self.resource) && owner.name == self.name.name() => {
                Ownership::EarlierLife
            }
            _ => Ownership::Foreign,
        }
    }

    /// What is not as wanted of a child that is ours.
    pub(super) fn differences<W: Wanted>(&self, wanted: &W, observed: &W::Observed) -> Vec<Difference> {
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
    pub(super) fn refer(&self, child: &mut Value) {
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

fn is_labelled<O: Object>(child: &O) -> bool {
    child.labels().and_then(|labels| labels.get(labels::MANAGED_BY)).is_some_and(|by| by == labels::MANAGER)
}
