//! The garbage collector.
//!
//! Deletes objects whose owners are all gone. An owner exists if the referenced kind and name has its uid, in
//! the same namespace or cluster-scoped. An object whose owner cannot be looked up is kept
//! (test: `unresolvable_owner_keeps_its_dependents`).

use std::sync::Arc;

use serde_json::{Value, json};

use super::super::core::Core;
use super::super::delete::{FOREGROUND, ORPHAN, set_finalizers};
use super::super::kinds::{Kind, Resource};
use super::super::request::{items, member, text};
use super::super::store::Key;
use super::is_deleting;

/// The state of an owner.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Owner {
    There,
    /// Waiting for its dependents to be deleted.
    Waiting,
    Gone,
}

impl Core {
    /// Returns the state of a referenced owner. `None` if its kind is not served, or if it is namespaced and its
    /// dependent is not.
    fn owner_of(&self, reference: &Value, namespace: &str) -> Option<Owner> {
        let uid = text(reference, "/uid");
        if self.world.gone.iter().any(|(at, gone)| gone == uid && (at.is_empty() || at == namespace)) {
            return Some(Owner::Gone);
        }
        let (version, kind) = (text(reference, "/apiVersion"), text(reference, "/kind"));
        let is_meant = |found: &&Arc<Kind>| {
            found.kind == kind && found.versions.iter().any(|v| found.api_version(v) == version)
        };
        let kind = self.catalogue.iter().find(is_meant)?;
        let at = if kind.is_namespaced { namespace } else { "" };
        if kind.is_namespaced && at.is_empty() {
            return None;
        }
        let owner = self.store.get(&kind.resource, at, text(reference, "/name"));
        Some(match owner.filter(|owner| text(owner, "/metadata/uid") == uid) {
            None => Owner::Gone,
            Some(owner) if is_deleting(owner) && has_finalizer(owner, FOREGROUND) => Owner::Waiting,
            Some(_) => Owner::There,
        })
    }

    /// Deletes an object without remaining owners, counting those that wait for its deletion as gone; otherwise
    /// removes its references to missing owners.
    pub(super) fn collect(&mut self, resource: &Resource, key: &Key) {
        let Some(kind) = self.kind_of(resource) else { return };
        let Some(object) = self.store.get(resource, &key.0, &key.1).cloned() else { return };
        let references = items(&object, "/metadata/ownerReferences");
        if references.is_empty() || is_deleting(&object) {
            return;
        }
        let owners: Option<Vec<Owner>> =
            references.iter().map(|reference| self.owner_of(reference, &key.0)).collect();
        let Some(owners) = owners else { return };
        let waiting = owners.contains(&Owner::Waiting);
        if !owners.contains(&Owner::There) {
            let has_dependents = !self.dependents_of(text(&object, "/metadata/uid")).is_empty();
            let policy = if waiting && has_dependents { "Foreground" } else { "Background" };
            self.start_deletion(&kind, &object, policy, None, false);
            return;
        }
        if owners.iter().any(|owner| *owner != Owner::There) {
            // Another owner remains: only the stale references are removed.
            let kept: Vec<Value> = references
                .iter()
                .zip(&owners)
                .filter(|(_, owner)| **owner == Owner::There)
                .map(|(reference, _)| reference.clone())
                .collect();
            let mut changed = Value::clone(&object);
            member(&mut changed, "metadata")["ownerReferences"] = json!(kept);
            self.amend(&kind, changed, &object);
        }
    }

    /// Advances foreground or orphan deletion: dependents are deleted first, or lose their owner reference.
    pub(super) fn advance_deletion(&mut self, resource: &Resource, key: &Key) {
        let Some(kind) = self.kind_of(resource) else { return };
        let Some(object) = self.store.get(resource, &key.0, &key.1).cloned() else { return };
        if !is_deleting(&object) {
            return;
        }
        let uid = text(&object, "/metadata/uid").to_owned();
        let dependents = self.dependents_of(&uid);
        let finished = if has_finalizer(&object, ORPHAN) {
            for (resource, key) in dependents {
                self.orphan(&resource, &key, &uid);
            }
            ORPHAN
        } else if has_finalizer(&object, FOREGROUND) {
            let mut is_blocked = false;
            for (resource, key) in dependents {
                let Some(dependent) = self.store.get(&resource, &key.0, &key.1).cloned() else { continue };
                let references = items(&dependent, "/metadata/ownerReferences");
                is_blocked |=
                    references.iter().any(|r| text(r, "/uid") == uid && r["blockOwnerDeletion"] == true);
                self.collect(&resource, &key);
            }
            if is_blocked {
                // The removal of the last dependent triggers this again.
                return;
            }
            FOREGROUND
        } else {
            return;
        };
        let Some(object) = self.store.get(resource, &key.0, &key.1).cloned() else { return };
        let kept = items(&object, "/metadata/finalizers").iter().filter(|f| *f != finished).cloned();
        let mut changed = Value::clone(&object);
        set_finalizers(&mut changed, kept.collect());
        self.amend(&kind, changed, &object);
    }

    fn orphan(&mut self, resource: &Resource, key: &Key, uid: &str) {
        let Some(kind) = self.kind_of(resource) else { return };
        let Some(object) = self.store.get(resource, &key.0, &key.1).cloned() else { return };
        let kept: Vec<Value> = items(&object, "/metadata/ownerReferences")
            .iter()
            .filter(|reference| text(reference, "/uid") != uid)
            .cloned()
            .collect();
        let mut changed = Value::clone(&object);
        let meta = member(&mut changed, "metadata");
        if kept.is_empty() {
            meta.as_object_mut().map(|meta| meta.remove("ownerReferences"));
        } else {
            meta["ownerReferences"] = json!(kept);
        }
        self.amend(&kind, changed, &object);
    }
}

fn has_finalizer(object: &Value, finalizer: &str) -> bool {
    items(object, "/metadata/finalizers").iter().any(|found| found == finalizer)
}
