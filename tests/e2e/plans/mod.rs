//! Shared by the plans that disturb an operator on the embedded server: workloads, a cluster, calls, outcomes.
//!
//! | part | holds |
//! |---|---|
//! | `workloads` | the five kinds and the steps that a user takes |
//! | `cluster` | an embedded server with a namespace and a definition, and its administrator |
//! | `call` | one request of an operator, told from its others |
//! | `outcome` | the objects at the end, compared with those of an undisturbed run |

pub(crate) mod call;
pub(crate) mod cluster;
pub(crate) mod outcome;
pub(crate) mod workloads;
