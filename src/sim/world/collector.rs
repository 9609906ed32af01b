//! The garbage collector.
//!
//! An object whose owners are all gone is deleted. An owner is there when an object with its uid is, of the
//! kind and name that the reference says, in the same namespace or in none.

use serde_json::{Value, json};

use super::super::core::Core;
use super::super::delete::{FOREGROUND, ORPHAN, set_finalizers};
use super::super::kinds::Resource;
use super::super::request::{items, member, text};
use super::super::store::Key;
use super::is_deleting;

impl Core {
    /// Whether the object that a reference names is there, and whether it waits for its dependents to go.
    fn owner_of(&self, reference: &Value, namespace: &str) -> Option<bool> {
        let (resource, key) = self.world.alive.get(text(reference, "/uid"))?;
        let kind = self.kind_of(resource)?;
        let is_same = kind.kind == text(reference, "/kind") && key.1 == text(reference, "/name");
        let is_near = key.0.is_empty() || key.0 == namespace;
        let owner = self.store.get(resource, &key.0, &key.1).filter(|_| is_same && is_near)?;
        let waits = is_deleting(owner) && has_finalizer(owner, FOREGROUND);
        Some(waits)
    }

    /// Deletes an object whose owners are gone, or whose last owner waits for that.
    pub(super) fn collect(&mut self, resource: &Resource, key: &Key) {
        let Some(kind) = self.kind_of(resource) else { return };
        let Some(object) = self.store.get(resource, &key.0, &key.1).cloned() else { return };
        let references = items(&object, "/metadata/ownerReferences");
        if references.is_empty() || is_deleting(&object) {
            return;
        }
        let owners: Vec<Option<bool>> =
            references.iter().map(|reference| self.owner_of(reference, &key.0)).collect();
        let solid = owners.contains(&Some(false));
        let waiting = owners.contains(&Some(true));
        if !solid {
            let has_dependents = !self.dependents_of(text(&object, "/metadata/uid")).is_empty();
            let policy = if waiting && has_dependents { "Foreground" } else { "Background" };
            self.start_deletion(&kind, &object, policy, None, false);
            return;
        }
        if owners.iter().any(|owner| *owner != Some(false)) {
            // Another owner keeps it; references to what is gone go.
            let kept: Vec<Value> = references
                .iter()
                .zip(&owners)
                .filter(|(_, owner)| **owner == Some(false))
                .map(|(reference, _)| reference.clone())
                .collect();
            let mut changed = Value::clone(&object);
            member(&mut changed, "metadata")["ownerReferences"] = json!(kept);
            self.amend(&kind, changed, &object);
        }
    }

    /// An object that is being deleted: its dependents go first, or lose their reference to it.
    pub(super) fn let_go(&mut self, resource: &Resource, key: &Key) {
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
                // The last dependent's removal comes back here.
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
