//! A Kubernetes controller built from the parts that client-go provides in Go: a shared informer cache,
//! a rate-limited deduplicating work queue, a pool of workers, and listers that feed a sync handler,
//! which reconciles child resources.
//!
//! ```text
//! kube-apiserver ─list/watch─▶ Reflector ─▶ Fifo ─▶ Store (indexed) ─▶ Listers ─┐
//!                                             └───▶ Processor ─▶ handlers ─▶ WorkQueue ─▶ workers ─▶ sync handler ─writes─▶ kube-apiserver
//! ```
//!
//! # An operator
//! A manager runs controllers until its token is cancelled. The operators of this crate are five of them:
//!
//! ```no_run
//! use tokio_util::sync::CancellationToken;
//! use windlass::client::{ApiClient, Config, ConfigSource};
//! use windlass::controller::{Limits, Manager};
//! use windlass::operators::foo;
//!
//! # async fn run(stop: CancellationToken) -> Result<(), Box<dyn std::error::Error>> {
//! let client = ApiClient::connect(Config::load(&ConfigSource::default()).await?).await?;
//! let mut manager = Manager::new(client, Limits::default());
//! manager.add(foo::controller)?;
//! manager.run(stop).await?;
//! # Ok(())
//! # }
//! ```
//!
//! | to write your own | see |
//! |---|---|
//! | what a sync does | [`controller::Reconcile`], with a [`controller::Pass`]; children are [`controller::Wanted`] |
//! | its informers, handlers and queue | [`controller::Builder`], which builds a [`controller::Controller`] |
//! | the process around it | [`controller::Manager`]; [`client::ApiClient`] for the cluster |
//! | its tests | [`sim`], [`testing`] |
//!
//! `docs/adding-a-controller.md` is a walkthrough, `examples/04_controller.rs` a whole operator in one file.
//!
//! # The parts
//! | module | holds |
//! |---|---|
//! | [`api`] | the custom resources, conditions, labels: data only |
//! | [`client`] | access to the API server: configuration, requests, typed errors, the wall clock |
//! | [`cache`] | reflector, FIFO, store, informers, listers |
//! | [`workqueue`] | the queue, delays, rate limits; independent of Kubernetes |
//! | [`record`] | events about objects |
//! | [`leader_election`] | the election of one process that writes |
//! | [`metrics`] | the metrics of the process |
//! | [`traces`] | traces of syncs for OpenTelemetry (feature `otlp`) |
//! | [`health`] | the checks behind `/livez` and `/readyz` |
//! | `server` | HTTP for `/metrics`, `/livez`, `/readyz` (feature `cli`) |
//! | [`controller`] | workers, children, conditions: shared by the operators |
//! | [`prelude`] | what an operator names |
//! | [`operators`] | one folder for each kind of custom resource |
//! | [`sim`] | an embedded API server (feature `sim`) |
//! | [`testing`] | fakes for tests of controllers built on this crate |
//! | `cli` | the command line (feature `cli`) |
//!
//! Each part works alone. A queue and a worker, without a cluster:
//!
//! ```
//! use windlass::workqueue::Queue;
//!
//! # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
//! let queue = Queue::new();
//! queue.add("default/web");
//! queue.add("default/web"); // merged with the first add
//! let processing = queue.get().await.expect("the queue is not shut down");
//! assert_eq!(*processing.key(), "default/web");
//! queue.add("default/web"); // added while processing: one more pass, after this one
//! drop(processing);
//! assert_eq!(queue.len(), 1);
//! # });
//! # Ok::<(), std::io::Error>(())
//! ```

pub mod api;
pub mod cache;
#[cfg(feature = "cli")]
pub mod cli;
pub mod client;
pub mod controller;
#[cfg(feature = "cli")]
mod debug;
#[cfg(feature = "demo")]
mod demo;
#[cfg(feature = "cli")]
mod duration;
pub mod health;
pub mod leader_election;
pub mod metrics;
pub mod operators;
pub mod prelude;
pub mod record;
#[cfg(feature = "cli")]
pub mod server;
#[cfg(feature = "sim")]
pub mod sim;
pub mod testing;
pub mod traces;
#[cfg(feature = "tune")]
mod tune;
pub mod workqueue;

// For the macros, and for users, who then have the same versions.
pub use {k8s_openapi, kube_client, kube_core, kube_derive, schemars, serde, serde_json};

/// Compiles the program of `docs/adding-a-controller.md`.
#[cfg(all(doctest, feature = "cli"))]
#[doc = include_str!("../docs/adding-a-controller.md")]
struct Guide;

/// Compiles and runs the example of `docs/embedded-server.md`.
#[cfg(all(doctest, feature = "sim"))]
#[doc = include_str!("../docs/embedded-server.md")]
struct EmbeddedServerGuide;
