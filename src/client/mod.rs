//! Talks to the API server: configuration, one client for all requests, typed errors, the wall clock.
//!
//! Mirrors client-go `rest/{config,client,request}.go` and `tools/clientcmd`.
//!
//! # How it works
//! [`Config::load`] finds the cluster (in-cluster, kubeconfig, `KUBECONFIG`), [`ApiClient::connect`] builds the one
//! client of the process, and every request goes through its layers, which `layers/mod.rs` explains one by one.
//!
//! # Guarantees
//! - The client resends no failed request but one refused with 401, once, with new credentials; the caller may
//!   repeat it, after a read. (test: `a_failed_post_is_not_sent_again`, `the_builtin_retry_is_off`, `an_unauthorized_request_is_repeated_with_new_token`)
//! - Errors never quote a credential plugin's command line or output. (test: `errors_omit_credential_plugin_output`)
//! - An error keeps the server's code, reason, causes and Retry-After. (test: `errors_keep_the_servers_status`)
//! - Every request has a timeout. (test: `a_silent_server_times_out`)
//! - A lost server is logged once for the process, then once a minute; its return is logged once.
//!   (test: `a_lost_server_is_reported_once`)
//!
//! # Differences from client-go
//! The client never retries (client-go repeats requests answered with Retry-After), and has no rate limit unless
//! one is configured: it relies on the server's priority and fairness. A Retry-After from an overloaded server
//! that serves no other request pauses all of them; see [`Gate`].

mod api_client;
mod clock;
mod config;
pub mod dry_run;
mod error;
pub(crate) mod fair_slots;
mod gate;
mod gzip;
pub(crate) mod json_error;
mod layers;
mod list_body;
pub(crate) mod list_items;
mod observer;
pub mod protobuf;
mod reachability;
mod rotation;
pub mod shards;
pub(crate) mod slow_calls;
mod transport;

pub use api_client::{ApiClient, ServedKind};
pub(crate) use api_client::{METADATA_OF_LIST, METADATA_OF_ONE};
pub use clock::Clock;
pub use config::{Config, ConfigError, ConfigSource};
pub(crate) use error::explain;
pub use error::{Cause, Error, ServerStatus};
pub use gate::{Gate, HeldBack, Moment, RequestLimits};
pub(crate) use gzip::Arrived;
pub(crate) use layers::AnswerBody;
pub use observer::{Answer, RequestObserver};
