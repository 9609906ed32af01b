//! Explains why the server could not be reached, in one sentence that says what to check.
//!
//! Flow: transport's error -> **unreachable** -> reachability, which logs it; the request's error
//!
//! # Guarantees
//! - Each cause has a sentence of its own: nobody listens, an unknown host, no route, no answer, and each fault of the
//!   server's certificate. (test: `each_cause_has_its_own_sentence`, `a_real_server_that_is_not_trusted_is_named`,
//!   `a_connection_that_takes_too_long_is_explained`)

use std::error::Error;
use std::io;

use rustls::CertificateError as Certificate;
use tokio::time::error::Elapsed;

use crate::client::transport::UnknownHost;

/// Returns the sentence for a failed request; `None` if it is about something else.
pub(super) fn why(error: &(dyn Error + 'static)) -> Option<String> {
    causes(error).find_map(|cause| {
        if let Some(unknown) = cause.downcast_ref::<UnknownHost>() {
            return Some(unknown.to_string());
        }
        if let Some(rustls::Error::InvalidCertificate(fault)) = cause.downcast_ref() {
            return Some(of_certificate(fault));
        }
        if cause.is::<Elapsed>() {
            return of_connection(io::ErrorKind::TimedOut);
        }
        cause.downcast_ref::<io::Error>().and_then(|error| of_connection(error.kind()))
    })
}

fn of_connection(kind: io::ErrorKind) -> Option<String> {
    let sentence = match kind {
        io::ErrorKind::ConnectionRefused => {
            "connection refused: nothing listens there; check that the server runs, and its address"
        }
        io::ErrorKind::HostUnreachable | io::ErrorKind::NetworkUnreachable => {
            "there is no route to the server; check its address, and the network or VPN"
        }
        io::ErrorKind::TimedOut => {
            "nothing came back in time; check the server's address, and firewalls on the way"
        }
        _ => return None,
    };
    Some(sentence.to_owned())
}

fn of_certificate(fault: &Certificate) -> String {
    match fault {
        Certificate::UnknownIssuer => {
            "the server's certificate is not signed by the certificate authority of the kubeconfig or Pod; check \
             certificate-authority, and whether this is the right server"
        }
        Certificate::Expired | Certificate::ExpiredContext { .. } => {
            "the server's certificate has expired; renew it, or correct this machine's clock"
        }
        Certificate::NotValidYet | Certificate::NotValidYetContext { .. } => {
            "the server's certificate is not valid yet; check this machine's clock"
        }
        Certificate::NotValidForName | Certificate::NotValidForNameContext { .. } => {
            "the server's certificate is for another name; check the address, or set tls-server-name in the kubeconfig"
        }
        other => return format!("the server's certificate is not valid: {other}"),
    }
    .to_owned()
}

/// Returns an error and its causes. An I/O error that wraps another one is followed by that, which `source` leaves out.
fn causes<'a>(error: &'a (dyn Error + 'static)) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    std::iter::successors(Some(error), |&error| {
        let wrapped = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
        wrapped.map(|wrapped| wrapped as &(dyn Error + 'static)).or_else(|| error.source())
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::time::Duration;

    use http::Request;
    use kube_client::client::Body;
    use tokio::net::TcpListener;
    use tower::ServiceExt;

    use super::*;
    use crate::client::transport;

    #[test]
    fn each_cause_has_its_own_sentence() {
        let tls =
            |fault| io::Error::new(io::ErrorKind::InvalidData, rustls::Error::InvalidCertificate(fault));
        let all = [
            io::ErrorKind::ConnectionRefused.into(),
            io::ErrorKind::HostUnreachable.into(),
            io::ErrorKind::TimedOut.into(),
            tls(Certificate::UnknownIssuer),
            tls(Certificate::Expired),
            tls(Certificate::NotValidYet),
            tls(Certificate::NotValidForName),
            tls(Certificate::Revoked),
        ];
        let sentences: BTreeSet<String> = all.iter().map(|error| why(error).unwrap()).collect();
        assert_eq!(sentences.len(), all.len(), "{sentences:?}");
        assert_eq!(why(&io::Error::from(io::ErrorKind::ConnectionReset)), None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_that_takes_too_long_is_explained() {
        let elapsed = tokio::time::timeout(Duration::from_secs(1), std::future::pending::<()>()).await;
        assert_eq!(why(&elapsed.unwrap_err()), of_connection(io::ErrorKind::TimedOut));
    }

    /// Sends a request to this URL over the stack of layers that a client has.
    async fn tried(url: &str) -> Result<String, String> {
        let config = kube_client::Config::new(url.parse().unwrap());
        let permits = std::sync::Arc::new(tokio::sync::Semaphore::new(1));
        let connections = transport::connect(&config, &permits).unwrap();
        let request = Request::get("/version").body(Body::empty()).unwrap();
        let answer = tokio::time::timeout(Duration::from_secs(60), connections.oneshot(request));
        let error = answer.await.unwrap().unwrap_err();
        why(&*error).ok_or_else(|| format!("{error:?}"))
    }

    #[tokio::test]
    async fn a_real_server_that_is_not_trusted_is_named() {
        let key = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
        let (certificate, key) = (key.cert.der().clone(), key.signing_key.serialize_der());
        let tls = rustls::ServerConfig::builder()
            .with_no_client_auth()
            .with_single_cert(vec![certificate], rustls::pki_types::PrivateKeyDer::try_from(key).unwrap());
        let acceptor = tokio_rustls::TlsAcceptor::from(std::sync::Arc::new(tls.unwrap()));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("https://{}", listener.local_addr().unwrap());
        let server = async {
            let (stream, _) = listener.accept().await.unwrap();
            acceptor.accept(stream).await.unwrap_err();
        };
        let (of_tls, ()) = tokio::join!(tried(&url), server);
        assert!(of_tls.unwrap().starts_with("the server's certificate is not signed by"));
        drop(listener);
        assert!(tried(&url).await.unwrap().starts_with("connection refused"));
        // No name of a host has an empty label, so no resolver is asked.
        assert!(tried("http://a..b").await.unwrap().starts_with("the host a..b is unknown"));
    }
}
