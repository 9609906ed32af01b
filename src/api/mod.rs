//! The custom resources and the words that all of them share: data, no I/O.
//!
//! Mirrors sample-controller `pkg/apis/**/types.go`.
//!
//! The CRDs in `crd/` are generated from these types by `hack/update-codegen.sh`; the doc comment of
//! a field is its `kubectl explain` text.
//!
//! # Guarantees
//! - The files in `crd/` are what these types say. (test: `crds_are_fresh`)
//! - A condition's transition time moves only when its status does. (test: `transition_time_moves_only_with_the_status`)

pub mod annotations;
pub mod conditions;
pub mod labels;
mod resource;
pub mod samplecontroller;
pub mod webapp;

pub use resource::ApiResource;
