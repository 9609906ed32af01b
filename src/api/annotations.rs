//! The annotations by which users talk to the operators.

/// Changing its value asks for a pass at once, whatever the value is: it ends a backoff, and what had failed
/// for good is tried again. What a server asked for (Retry-After) holds all the same.
pub const RECONCILE_AT: &str = "windlass.dev/reconcile-at";

/// `"true"` stops all writes to the children of the object, and new steps; its status is kept, and its deletion is
/// not held up.
pub const PAUSED: &str = "windlass.dev/paused";
