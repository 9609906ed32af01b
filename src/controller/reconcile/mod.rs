//! The part of a sync handler that all kinds share: from a key to an up-to-date status.
//!
//! Mirrors sample-controller `controller.go` (`syncHandler`).
//!
//! | module | what it does |
//! |---|---|
//! | [`reconciler`] | gets the object, calls the kind, writes the status, records the events |
//! | [`context`] | holds one pass over one object, and the operations a kind may use in it |
//! | [`status`] | writes a status that differs from the stored one |

pub mod context;
pub mod reconciler;
pub mod status;
