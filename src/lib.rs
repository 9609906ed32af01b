//! A Kubernetes controller built from the parts that client-go provides in Go: a shared informer cache,
//! a rate-limited deduplicating work queue, a pool of workers, and listers that feed a sync handler,
//! which reconciles child resources.
//!
//! ```text
//! kube-apiserver ─list/watch─▶ Reflector ─▶ Fifo ─▶ Store (indexed) ─▶ Listers ─┐
//!                                             └───▶ Processor ─▶ handlers ─▶ WorkQueue ─▶ workers ─▶ sync handler ─writes─▶ kube-apiserver
//! ```
//!
//! # Quick start
//! See one at work, without a cluster: `windlass demo` (or `cargo run -- demo`) starts an embedded API server, five
//! operators and a live page that shows their insides.
//!
//! A whole operator, which keeps a ConfigMap with the text of each `Greeting`:
//!
//! ```no_run
//! use windlass::prelude::*;
//!
//! custom_resource! {
//!     #[kube(group = "example.com", version = "v1", kind = "Greeting", namespaced, status = "BasicStatus")]
//!     struct GreetingSpec {
//!         text: String,
//!     }
//! }
//!
//! struct GreetingSync {
//!     maps: Lister<ConfigMap>,
//! }
//!
//! impl Reconcile for GreetingSync {
//!     type Resource = Greeting;
//!
//!     async fn reconcile(&self, pass: &mut Pass<'_, Greeting>) -> Result<BasicStatus, StopReason> {
//!         let text = pass.object().spec.text.clone();
//!         let wanted = wanted(pass.name(), |map: &mut ConfigMap| {
//!             map.data.get_or_insert_default().insert("text".to_owned(), text.clone());
//!         });
//!         pass.apply(&wanted, &self.maps).await?;
//!         Ok(pass.stored_status())
//!     }
//! }
//!
//! fn controller(context: &ControllerContext<'_>) -> Result<Controller<Reconciler<GreetingSync>>, BuildError> {
//!     let mut greetings = Builder::new(context, "greetings", own_name)?;
//!     let maps = greetings.owns()?;
//!     Ok(greetings.build(GreetingSync { maps }))
//! }
//!
//! #[tokio::main]
//! async fn main() -> Result<(), Box<dyn std::error::Error>> {
//!     let mut manager = Manager::new(ApiClient::try_default().await?, Limits::default());
//!     manager.add(controller)?;
//!     Ok(manager.run_until_signal().await?)
//! }
//! ```
//!
//! Depend on it without its default features, which are the program's, but with one of `k8s-v1-37` and `k8s-v1-36`,
//! unless another crate chooses the version of k8s-openapi. With the feature `sim` the tests of an operator have an API
//! server in their process. `docs/adding-a-controller.md` goes on from here, `examples/04_controller.rs` runs.
//!
//! | to write your own | see |
//! |---|---|
//! | what a sync does | [`controller::Reconcile`], with a [`controller::Pass`]; children are [`controller::Wanted`] |
//! | its informers, handlers and queue | [`controller::Builder`], which builds a [`controller::Controller`] |
//! | the process around it | [`controller::Manager`]; [`client::ApiClient`] for the cluster |
//! | its tests | [`sim`], [`testing`] |
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
//! | `tune` | tries settings of an operator in virtual time (feature `tune`) |
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

#![cfg_attr(docsrs, feature(doc_cfg))]

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
pub mod tune;
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
