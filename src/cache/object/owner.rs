//! Owner references: which object an object belongs to.
//!
//! Mirrors apimachinery's `metav1.OwnerReference` and `metav1.GetControllerOf`.
//!
//! # Guarantees
//! - An owner is found even if it does not control the object. (test: `owner_is_found_even_if_not_controlling`)
//! - A kind matches in any version of its group. (test: `owner_matches_group_and_kind_in_any_version`)

use serde::{Deserialize, Serialize};

use super::text::Text;
use crate::api::ApiResource;

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

/// An owner reference of a projection.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct OwnerRef {
    /// `group/version`.
    pub api_version: Text,
    /// Kind.
    pub kind: Text,
    /// Name.
    pub name: Text,
    /// Uid of the owner.
    pub uid: Box<str>,
    /// Whether this owner controls the object.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub controller: bool,
    /// Whether a foreground deletion of the owner waits until this object is gone.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub block_owner_deletion: bool,
}

impl From<ControllerRef<'_>> for OwnerRef {
    fn from(owner: ControllerRef<'_>) -> Self {
        Self {
            api_version: owner.api_version.into(),
            kind: owner.kind.into(),
            name: owner.name.into(),
            uid: owner.uid.into(),
            controller: owner.controller,
            block_owner_deletion: owner.block_owner_deletion,
        }
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

/// Returns the reference to the owner with this uid, preferably a controlling one.
pub(in crate::cache) fn the_owner<'a>(
    owners: impl Iterator<Item = ControllerRef<'a>>,
    uid: &str,
) -> Option<ControllerRef<'a>> {
    owners.filter(|owner| owner.uid == uid).max_by_key(|owner| owner.controller)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::Meta;

    #[test]
    fn owner_is_found_even_if_not_controlling() {
        let json = r#"{"ownerReferences": [{"uid": "a"}, {"uid": "b", "blockOwnerDeletion": true},
            {"uid": "b", "controller": true}]}"#;
        let meta: Meta = serde_json::from_str(json).unwrap();
        let owner = |uid| meta.owner(uid).map(|owner| (owner.controller, owner.block_owner_deletion));
        assert_eq!((owner("a"), owner("b"), owner("c")), (Some((false, false)), Some((true, false)), None));
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
}
