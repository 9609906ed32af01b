//! The objects whose child has a new name, and whose former child may be left.
//!
//! A rename creates the new child, looks for the former one, also for one that lost its label, and deletes it. When a pass
//! fails in between, the next one finds the new child there and would not look; so a rename stays open until it has ended.
//! A process that dies in between is known by its successor's first pass over the object.
//!
//! # Guarantees
//! - A rename that failed in the middle is taken up again. (test: `a_rename_that_failed_looks_for_lost_labels_again`)

use std::collections::HashSet;

use parking_lot::Mutex;

use crate::cache::ObjectName;

/// Renames that have begun and not ended.
#[derive(Debug, Default)]
pub(super) struct Renames {
    open: Mutex<HashSet<ObjectName>>,
}

impl Renames {
    /// The child was created under its new name.
    pub(super) fn begun(&self, object: &ObjectName) {
        self.open.lock().insert(object.clone());
    }

    /// Whether a former child may be left.
    pub(super) fn is_under_way(&self, object: &ObjectName) -> bool {
        self.open.lock().contains(object)
    }

    /// No former child is left, or the object is gone.
    pub(super) fn ended(&self, object: &ObjectName) {
        self.open.lock().remove(object);
    }
}
