//! Keeps using valid credentials while tokens, client certificates and authorities are replaced.
//!
//! Mirrors client-go `transport/token_source.go`, `transport/cert_rotation.go` and the exec authenticator.
//!
//! # How it works
//! At the first request after each [`PERIOD`], the configuration is loaded again: kubeconfig, token file, certificates.
//! If anything differs, new connections with the new credentials replace the old ones; requests in flight and watches
//! end on the old connections. The server's 401 causes a reload at once, and reruns a kubeconfig's exec plugin.
//!
//! # Guarantees
//! - A replaced token or authority is used within a minute, whatever the wall clock does.
//!   (test: `replaced_token_and_authority_are_used_soon`)
//! - A configuration that is missing, empty or broken leaves the last good one in use. (test: `a_broken_configuration_keeps_the_last_good_one`)
//! - A request answered with 401 is repeated once with new credentials. (test: `an_unauthorized_request_is_repeated_with_new_token`, `an_expired_plugin_token_is_renewed`)
//! - A configuration that names another server is not followed. (test: `another_server_is_not_followed`)
//!
//! # Differences from client-go
//! kubeconfigs and their inline data are reloaded, too. client-go ends connections when a client certificate is
//! replaced; here they end by themselves.

use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::future::BoxFuture;
use http::{Request, StatusCode};
use kube_client::client::Body;
use parking_lot::Mutex;
use tokio::sync::Semaphore;
use tokio::time::Instant;
use tower::{BoxError, Service, ServiceExt};

use super::config::{Config, ConfigError};
use super::error::explain;
use super::transport::{self, Answer, Connections};

/// How often the configuration is loaded again, at most.
const PERIOD: Duration = Duration::from_secs(30);
/// The minimum time between reloads that are caused by a 401.
const REFUSED_PERIOD: Duration = Duration::from_secs(5);

/// Sends requests over connections with the newest credentials. Cheap to clone.
#[derive(Clone)]
pub(super) struct Rotation {
    shared: Arc<Credentials>,
}

struct Credentials {
    current: Mutex<Current>,
    /// One permit, held during a reload.
    reload: Semaphore,
    /// Bounds the connections of syncs, those with earlier credentials included.
    sockets: Arc<Semaphore>,
}

struct Current {
    config: Config,
    connections: Connections,
    /// Number of reloads that changed something.
    generation: u64,
    loaded: Instant,
    refused: Option<Instant>,
    /// The error of the last reload, so that the log shows each error once.
    error: Option<String>,
}

// === impl Rotation ===

impl Rotation {
    /// Connects with this configuration, without sending a request.
    ///
    /// # Errors
    /// kube-client's own, if certificates, keys or an exec plugin do not work.
    pub(super) async fn connect(config: Config) -> Result<Self, ConfigError> {
        let sockets = Arc::new(Semaphore::new(transport::sockets_max()));
        let connections = connect(config.clone(), sockets.clone()).await?;
        let current = Current {
            config,
            connections,
            generation: 0,
            loaded: Instant::now(),
            refused: None,
            error: None,
        };
        let (current, reload) = (Mutex::new(current), Semaphore::new(1));
        Ok(Self { shared: Arc::new(Credentials { current, reload, sockets }) })
    }

    async fn send(self, request: Request<Body>) -> Result<Answer, BoxError> {
        let copy = copy(&request);
        let (connections, generation) = self.fresh().await;
        let answer = connections.oneshot(request).await?;
        if answer.status() != StatusCode::UNAUTHORIZED {
            return Ok(answer);
        }
        match (copy, self.after_refusal_of(generation).await) {
            (Some(copy), Some(connections)) => connections.oneshot(copy).await,
            _ => Ok(answer),
        }
    }

    /// Returns the connections to use, and their generation, after a reload if one is due. While another request
    /// reloads, the old connections are used.
    async fn fresh(&self) -> (Connections, u64) {
        let is_due = self.shared.current.lock().loaded.elapsed() >= PERIOD;
        if is_due && let Ok(_reload) = self.shared.reload.try_acquire() {
            self.reload(false).await;
        }
        let current = self.shared.current.lock();
        (current.connections.clone(), current.generation)
    }

    /// Returns newer connections than those of `generation`, if there are any now.
    async fn after_refusal_of(&self, generation: u64) -> Option<Connections> {
        let _reload = self.shared.reload.acquire().await.ok()?;
        let is_allowed = {
            let mut current = self.shared.current.lock();
            let is_allowed = current.refused.is_none_or(|refused| refused.elapsed() >= REFUSED_PERIOD);
            let is_newest = current.generation == generation;
            if is_newest && is_allowed {
                current.refused = Some(Instant::now());
            }
            is_newest && is_allowed
        };
        if is_allowed {
            self.reload(true).await;
        }
        let current = self.shared.current.lock();
        (current.generation != generation).then(|| current.connections.clone())
    }

    /// Loads the configuration, and connects anew if it differs. `is_refused`: the server refuses the credentials, so
    /// an exec plugin has to provide others.
    async fn reload(&self, is_refused: bool) {
        let config = self.shared.current.lock().config.clone();
        let outcome = async {
            let next = config.reload().await?;
            if next.is_same(&config) && !(is_refused && next.has_plugin()) {
                return Ok(None);
            }
            let sockets = self.shared.sockets.clone();
            Ok(Some((connect(next.clone(), sockets).await?, next)))
        };
        let outcome: Result<_, ConfigError> = outcome.await;
        let mut current = self.shared.current.lock();
        current.loaded = Instant::now();
        match outcome {
            Ok(Some((connections, config))) => {
                tracing::info!(server = config.server(), "Using new credentials for the API server");
                (current.connections, current.config) = (connections, config);
                current.generation += 1;
                current.error = None;
            }
            Ok(None) => current.error = None,
            Err(error) => {
                let error = error.to_string();
                if current.error.as_ref() != Some(&error) {
                    tracing::warn!(
                        error,
                        "Cannot reload the credentials for the API server; keeping the old ones"
                    );
                    current.error = Some(error);
                }
            }
        }
    }
}

impl Service<Request<Body>> for Rotation {
    type Response = Answer;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Answer, BoxError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        Box::pin(self.clone().send(request))
    }
}

/// Builds connections. A kubeconfig's exec plugin runs here and blocks its thread.
async fn connect(config: Config, sockets: Arc<Semaphore>) -> Result<Connections, ConfigError> {
    let url = config.server();
    let built = tokio::task::spawn_blocking(move || transport::connect(&config.inner, &sockets)).await;
    let outcome = match built {
        Ok(outcome) => outcome.map_err(|error| explain(&error)),
        Err(panic) => Err(panic.to_string()),
    };
    outcome.map_err(|cause| ConfigError::Client { url, cause })
}

/// Copies a request; `None` if its body is a stream.
fn copy(request: &Request<Body>) -> Option<Request<Body>> {
    let mut copy = Request::new(request.body().try_clone()?);
    *copy.method_mut() = request.method().clone();
    *copy.uri_mut() = request.uri().clone();
    *copy.headers_mut() = request.headers().clone();
    *copy.extensions_mut() = request.extensions().clone();
    Some(copy)
}

#[cfg(test)]
#[cfg(feature = "sim")]
mod tests;
