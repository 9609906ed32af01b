//! A Kubernetes controller from the raw parts.
pub mod api;
pub mod cache;
pub mod client;
pub mod testing;
pub mod workqueue;
