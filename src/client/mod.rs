//! The way to the API server: configuration, one client, typed errors, the wall clock.
//!
//! Mirrors client-go `rest/{config,client,request}.go` and `tools/clientcmd`.
//!
//! # How it works
//! [`Config::load`] finds the cluster (in-cluster, kubeconfig, `KUBECONFIG`), [`ApiClient::connect`]
//! makes one `kube_client::Client` of it, and every request of the process, reads and writes, goes
//! through that client.
//!
//! # Guarantees
//! - Nothing is sent twice: a request that failed is the caller's to repeat, after a read.
//!   (test: `a_failed_post_is_not_sent_again`, `the_builtin_retry_is_off`)
//! - What a credential plugin says or is told shows up nowhere. (test: `a_credential_plugin_is_not_quoted`)
//! - An error keeps the server's code, reason, causes and Retry-After. (test: `errors_keep_what_the_server_said`)
//! - No request waits for ever: each has its own timeout. (test: `a_silent_server_times_out`)
//! - Losing the server is one line in the log, not one per request; so is its return.
//!   (test: `a_lost_server_is_reported_once`)
//!
//! # Differences from client-go
//! No retry inside the client (client-go repeats what carries a Retry-After), no rate limit unless one is
//! asked for (the server's priority and fairness rules). What a server asks of one request holds for all;
//! see [`Gate`].

mod api_client;
mod clock;
mod config;
mod error;
mod gate;
mod reachability;
mod transport;

pub use api_client::ApiClient;
pub use clock::Clock;
pub use config::{Config, ConfigError, ConfigSource};
pub use error::{Cause, Error, ServerStatus};
pub use gate::{Gate, RequestLimits};
