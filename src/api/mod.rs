//! Defines the custom resources and their shared labels, annotations and conditions: data, no I/O.
//!
//! Mirrors sample-controller `pkg/apis/**/types.go`. Each group has a folder and each version a file; `schema.rs`
//! holds the parts that several schemas share.
//!
//! The CRDs in `crd/` are generated from these types by `hack/update-codegen.sh`; the doc comment of
//! a field is its `kubectl explain` text.
//!
//! # Guarantees
//! - The files in `crd/` match these types. (test: `crds_are_fresh`)
//! - The samples are of these types. (test: `samples_decode_without_loss`)
//! - Every schema is structural, each field explained. (test: `schemas_are_structural_documented_and_bounded`)
//! - A condition's transition time moves only when its status does. (test: `transition_time_moves_only_with_the_status`)

pub mod annotations;
pub mod appservice;
pub mod conditions;
pub mod labels;
pub mod myapp;
pub mod quantity;
pub mod redis;
mod resource;
pub mod samplecontroller;
mod schema;
pub mod shards;
pub mod webapp;

pub use resource::{ApiResource, HasResource};
