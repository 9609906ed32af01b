//! The part of a sync handler that all kinds share: from a key to an up-to-date status.
//!
//! Mirrors sample-controller `controller.go` (`syncHandler`).
//!
//! | module | what it does |
//! |---|---|
//! | [`reconciler`] | gets the object, calls the kind, writes the status, records the events |
//! | [`context`] | holds one pass over one object, and the operations a kind may use in it |
//! | `common_status` | the macro for the part of a status that all kinds have |
//! | [`status`] | writes a status that differs from the stored one |

mod common_status;
pub(super) mod context;
pub(super) mod reconciler;
pub(super) mod status;
