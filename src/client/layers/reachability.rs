//! Notices that the server is lost, or is back, and names what failed.
//!
//! # Guarantees
//! - A process without a free file has not lost the server, and its error says whose limit it is.
//!   (test: `error_for_want_of_files_names_the_limit`)
//! - Errors about credentials quote neither the plugin's command line nor its output.
//!   (test: `error_of_the_credentials_quotes_nothing`)

use std::sync::Arc;

use http::{Request, Response};
use kube_client::client::Body;
use tower::layer::layer_fn;
use tower::{BoxError, Layer, Service, ServiceExt, service_fn};

use super::{AnswerBody, Answers, Outgoing, unreachable};
use crate::client::error::{CREDENTIALS, Error, is_about_credentials};
use crate::client::reachability::Reachability;

/// In place of the system's words for it, which do not say whose limit it is.
const FILES: &str = "this process has reached its limit of open files; raise it (ulimit -n)";

pub(super) fn layer<S>(
    reachability: Arc<Reachability>,
) -> impl Layer<S, Service = impl Answers<Outgoing, Response<AnswerBody>>>
where
    S: Service<Request<Body>, Response = Response<AnswerBody>, Error = BoxError, Future: Send> + Clone + Send,
{
    layer_fn(move |inner: S| {
        let reachability = reachability.clone();
        service_fn(move |request| notice(reachability.clone(), inner.clone(), request))
    })
}

async fn notice<S>(
    reachability: Arc<Reachability>,
    inner: S,
    request: Outgoing,
) -> Result<Response<AnswerBody>, Error>
where
    S: Service<Request<Body>, Response = Response<AnswerBody>, Error = BoxError>,
{
    match inner.oneshot(request.http).await {
        Ok(answer) => {
            reachability.answered(answer.status().as_u16());
            Ok(answer)
        }
        Err(source) => Err(lost(&reachability, request.name, source)),
    }
}

fn lost(reachability: &Reachability, request: String, source: BoxError) -> Error {
    let source = if is_about_credentials(&*source) { CREDENTIALS.into() } else { source };
    let source = unreachable::why(&*source).map_or(source, BoxError::from);
    if is_about_files(&*source) {
        // The server is not lost: we could not ask it.
        return Error::Transport { request, source: FILES.into() };
    }
    reachability.failed(&*source);
    Error::Transport { request, source }
}

fn is_about_files(error: &(dyn std::error::Error + 'static)) -> bool {
    let limits = [rustix::io::Errno::MFILE, rustix::io::Errno::NFILE];
    std::iter::successors(Some(error), |error| error.source())
        .filter_map(|error| error.downcast_ref::<std::io::Error>()?.raw_os_error())
        .any(|code| limits.iter().any(|limit| limit.raw_os_error() == code))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::error::explain;

    /// I17
    #[tokio::test]
    async fn error_of_the_credentials_quotes_nothing() {
        let plugin = std::io::Error::other("canary");
        let source = kube_client::Error::Auth(kube_client::client::AuthError::AuthExecStart(plugin));
        let error = lost(&Reachability::default(), "GET /api".to_owned(), source.into());
        let text = format!("{} {error:?}", explain(&error));
        assert!(text.contains("credentials") && !text.contains("canary"), "{text}");
    }

    #[tokio::test]
    async fn error_for_want_of_files_names_the_limit() {
        let of = |error: std::io::Error| {
            explain(&lost(&Reachability::default(), "GET /api".to_owned(), error.into()))
        };
        let log = crate::testing::capture_log();
        let too_many = of(std::io::Error::from_raw_os_error(rustix::io::Errno::MFILE.raw_os_error()));
        assert!(too_many.contains("limit of open files"), "{too_many}");
        assert_eq!(log.lines(), Vec::<String>::new(), "the server is not lost");
        let refused = of(std::io::ErrorKind::ConnectionRefused.into());
        assert!(refused.contains("connection refused: nothing listens there"), "{refused}");
    }
}
