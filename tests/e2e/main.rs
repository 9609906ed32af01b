//! End-to-end tests. Each test is named after the behaviour it checks.
//!
//! A case runs on two beds: the embedded server and a real Kubernetes control plane (see `support/runs.rs`).
//! On the real bed cases share a control plane, with a namespace each; a case that breaks the server starts its
//! own. Run them with `hack/test.sh e2e`; see `CONTRIBUTING.md`.

#![expect(clippy::unwrap_used, reason = "a panic fails the test")]

mod applying;
mod appservice;
mod audits;
mod chart;
mod children;
mod coming_from;
mod control_plane;
mod crash;
mod day;
mod debug;
mod demo;
mod deploy;
mod dry_run;
mod endpoints;
mod every_kind;
mod faults;
mod fidelity;
mod fixed_point;
mod foo;
mod generated;
mod helm;
mod image;
mod informers;
mod kubectl;
mod leader_election;
mod log;
mod many;
mod monitoring;
mod myapp;
mod namespaces;
mod operations;
mod page;
mod plans;
mod program;
mod redis;
mod requests;
mod restore;
mod schema;
mod shards;
mod support;
mod traces;
mod tune;
mod two_views;
mod usage;
mod webapp;
