//! Annotations with which users control the operators.
//!
//! # When a pause takes effect
//! A pause does not change the generation, so it is checked wherever the owner is read live before an effect: before
//! each write or deletion of a child, before a finalizer is stored, before a hook runs. Requests already sent are not
//! recalled, and a running hook continues to its end.

use std::collections::BTreeMap;

/// Any change of the value triggers a pass at once: it ends a backoff and retries permanent failures. A server's
/// Retry-After still holds.
pub const RECONCILE_AT: &str = "windlass.dev/reconcile-at";

/// `"true"` stops all writes to the object's children, and new steps. Its status is still updated, and its deletion
/// is not held up.
pub const PAUSED: &str = "windlass.dev/paused";

/// Whether these annotations ask for a pause.
pub(crate) fn ask_for_pause(annotations: &BTreeMap<String, String>) -> bool {
    annotations.get(PAUSED).is_some_and(|value| value == "true")
}
