//! End to end: each test is named as the promise that it shows.
//!
//! A case runs on two beds, the embedded server and a real Kubernetes control plane; `support/runs.rs` says how.
//! On the real one cases share a control plane, a namespace each; those that break the server have one of their
//! own. `hack/test.sh e2e` runs them; see `CONTRIBUTING.md`.

#![expect(clippy::unwrap_used, reason = "a case that cannot go on has failed")]

mod appservice;
mod audits;
mod children;
mod control_plane;
mod crash;
mod demo;
mod endpoints;
mod every_kind;
mod faults;
mod fidelity;
mod fixed_point;
mod foo;
mod generated;
mod kubectl;
mod many;
mod myapp;
mod operations;
mod plans;
mod program;
mod redis;
mod requests;
mod schema;
mod support;
mod two_views;
mod usage;
mod webapp;
