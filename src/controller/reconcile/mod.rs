//! The frame of every sync handler: from a key to a status that is true.
//!
//! Mirrors sample-controller `controller.go` (`syncHandler`).
//!
//! | module | in one sentence |
//! |---|---|
//! | [`reconciler`] | gets the object, calls the kind, writes the status, records the events |
//! | [`context`] | one pass over one object: what a kind's operator may do in it |
//! | [`status`] | writes a status when it differs |

pub mod context;
pub mod reconciler;
pub mod status;
