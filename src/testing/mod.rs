//! Fakes that ship with the crate, for tests of controllers built on it.
//!
//! Mirrors client-go `tools/cache/testing` and `tools/record/fake.go`.

mod body;
mod fake_source;
#[cfg(all(test, feature = "cli"))]
mod log;
#[cfg(test)]
#[cfg(feature = "sim")]
pub(crate) mod test_server;

#[cfg(all(test, feature = "cli"))]
pub(crate) use log::{CapturedLog, capture_json, capture_log};

#[cfg(test)]
pub(crate) use body::source;
pub use body::{Media, list_body, watch_body};
pub use fake_source::{FakeSource, FakeWatch};

use k8s_openapi::api::core::v1::ConfigMap;
use kube_core::ObjectMeta;

use crate::client::{Error, ServerStatus};
#[cfg(feature = "sim")]
use crate::{
    client::ApiClient,
    sim::{InProcessTransport, Sim},
};

/// Returns a client of the embedded API server, whose requests are those of `user`.
#[cfg(feature = "sim")]
#[must_use]
pub fn embedded_client(sim: &Sim, user: &str) -> ApiClient {
    ApiClient::new(kube_client::Client::new(InProcessTransport::new(sim, user), "default"))
}

/// Returns a config map with this version and a uid derived from its name.
#[must_use]
pub fn config_map(namespace: &str, name: &str, version: u64) -> ConfigMap {
    let metadata = ObjectMeta {
        namespace: Some(namespace.to_owned()),
        name: Some(name.to_owned()),
        uid: Some(format!("uid-of-{namespace}-{name}")),
        resource_version: Some(version.to_string()),
        ..ObjectMeta::default()
    };
    ConfigMap { metadata, ..ConfigMap::default() }
}

/// Returns this text as one gzip member.
#[cfg(test)]
pub(crate) fn gzipped(text: impl AsRef<[u8]>) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    std::io::Write::write_all(&mut encoder, text.as_ref()).expect("memory takes all");
    encoder.finish().expect("memory takes all")
}

/// Returns the error of an error status from the server.
#[must_use]
pub fn status_error(code: u16, reason: &str) -> Error {
    let status = ServerStatus {
        code,
        reason: reason.to_owned(),
        message: "requested by the test".to_owned(),
        ..ServerStatus::default()
    };
    Error::Status { request: "test".to_owned(), status: Box::new(status) }
}

/// Returns the error of a refused connection.
#[must_use]
pub fn connection_error() -> Error {
    Error::Transport { request: "test".to_owned(), source: "connection refused".into() }
}
