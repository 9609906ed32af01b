//! Support for the tests that disturb an operator on the embedded server (`crash`, `two_views`).
//!
//! | part | holds |
//! |---|---|
//! | `workloads` | the five kinds and the user's steps for each |
//! | `cluster` | an embedded server with a namespace and a CRD, and its administrator |
//! | `call` | the identity of one request of an operator |
//! | `outcome` | the final state, and its comparison with an undisturbed run |
//! | `share` | how many of the disturbances are tried |

pub(crate) mod call;
pub(crate) mod cluster;
pub(crate) mod outcome;
pub(crate) mod share;
pub(crate) mod workloads;
