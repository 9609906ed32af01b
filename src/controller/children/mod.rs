//! Children on the server: created and updated to match their wanted state, deleted when surplus, never adopted.
//!
//! Mirrors controller-runtime `controllerutil` and kubernetes `pkg/controller/controller_utils.go`.
//!
//! | module | in one sentence |
//! |---|---|
//! | [`apply`] | creates or patches a child, and sends nothing when the child already matches |
//! | [`apply_outcome`] | the result of applying a child, and the health derived from the result |
//! | `patch` | the strategic merge patch that updates the differing fields of a child |
//! | `guarded_write` | the only place that writes children and finalizers, behind a check of the owner |
//! | [`owner`] | who owns a child |
//! | [`deletions`] | the ways to delete a child |
//! | [`finalizers`] | holds an owner until its effects are undone |
//! | [`lost_labels`] | finds children that are missing from the cache |
//! | [`slow_start`] | starts many calls in growing batches |
//! | `object_state` | per-object state that is kept between passes |
//! | [`retry_holds`] | requests that the server refused, and when they are retried |
//! | [`contention`] | detects that another client keeps reverting a child |

pub(super) mod apply;
pub(super) mod apply_outcome;
pub(super) mod contention;
pub(super) mod deletions;
pub(super) mod finalizers;
pub(super) mod guarded_write;
pub(super) mod lost_labels;
pub(super) mod object_state;
pub(super) mod owner;
mod patch;
pub(super) mod retry_holds;
pub(super) mod slow_start;
