//! The part of a sync handler that all kinds share: from a key to an up-to-date status.
//!
//! Mirrors sample-controller `controller.go` (`syncHandler`).
//!
//! | module | what it does |
//! |---|---|
//! | [`reconciler`] | gets the object, calls the kind, writes the status, records the events |
//! | [`context`] | holds one pass over one object, and the operations a kind may use in it |
//! | `custom_resource` | the custom resource, and the part of its status that all kinds have |
//! | `tools` | the clients, caches and recorders that a sync handler works with |
//! | [`status`] | writes a status that differs from the stored one |

pub(super) mod context;
pub(super) mod custom_resource;
pub(super) mod reconciler;
pub(super) mod status;
pub(super) mod tools;

#[cfg(test)]
#[cfg(feature = "sim")]
pub(super) mod tests;
