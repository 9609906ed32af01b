//! A client of the embedded API server.

use crate::client::ApiClient;
use crate::sim::{InProcessTransport, Sim};

/// Returns a client of the embedded API server, whose requests are those of `user`.
#[must_use]
pub fn embedded_client(sim: &Sim, user: &str) -> ApiClient {
    ApiClient::new(kube_client::Client::new(InProcessTransport::new(sim, user), "default"))
}
