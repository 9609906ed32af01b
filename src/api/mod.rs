//! The custom resources and the words that all of them share: data, no I/O.
//!
//! Mirrors sample-controller `pkg/apis/**/types.go`. A folder for each group, a file for each version; what their
//! schemas share is in `schema.rs`.
//!
//! The CRDs in `crd/` are generated from these types by `hack/update-codegen.sh`; the doc comment of
//! a field is its `kubectl explain` text.
//!
//! # Guarantees
//! - The files in `crd/` are what these types say. (test: `crds_are_fresh`)
//! - The samples are of these types. (test: `each_sample_decodes_into_its_type`)
//! - Every schema is structural, each field explained. (test: `a_schema_is_structural_explained_and_bounded`)
//! - A condition's transition time moves only when its status does. (test: `transition_time_moves_only_with_the_status`)

pub mod annotations;
pub mod appservice;
pub mod conditions;
pub mod labels;
pub mod myapp;
pub mod redis;
mod resource;
pub mod samplecontroller;
mod schema;
pub mod webapp;

pub use resource::ApiResource;
