//! The annotations by which users talk to the operators.
//!
//! # How soon a pause holds
//! It changes no generation, so it is looked for wherever the owner is read live before an effect: before each write
//! or deletion of a child, before a finalizer is stored, before a hook is run. What was sent before is not called back,
//! and a hook that runs goes on to its end.

use std::collections::BTreeMap;

/// Changing its value asks for a pass at once, whatever the value is: it ends a backoff, and what had failed
/// for good is tried again. What a server asked for (Retry-After) holds all the same.
pub const RECONCILE_AT: &str = "windlass.dev/reconcile-at";

/// `"true"` stops all writes to the children of the object, and new steps; its status is kept, and its deletion is
/// not held up.
pub const PAUSED: &str = "windlass.dev/paused";

/// Whether these annotations ask for a pause.
pub(crate) fn ask_for_pause(annotations: &BTreeMap<String, String>) -> bool {
    annotations.get(PAUSED).is_some_and(|value| value == "true")
}
