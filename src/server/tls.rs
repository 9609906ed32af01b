//! The certificate of an endpoint: from a directory, where it may be replaced, or generated when the process starts.
//!
//! Mirrors controller-runtime `pkg/certwatcher`.
//!
//! # Guarantees
//! - A replaced certificate is used for new connections; a broken one is not. (test: `replaced_certificate_is_used_and_broken_one_ignored`)

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use tokio_rustls::TlsAcceptor;

/// Files of the directory, as a Secret of type `kubernetes.io/tls` has them.
const FILES: [&str; 2] = ["tls.crt", "tls.key"];

/// The certificate and key of an endpoint; see the module.
pub struct Certificates {
    directory: Option<PathBuf>,
    loaded: Mutex<Loaded>,
}

struct Loaded {
    pem: [Vec<u8>; 2],
    acceptor: TlsAcceptor,
}

/// A certificate or key cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("{what}: {cause}")]
pub struct CertificateError {
    /// The file, directory or certificate.
    what: String,
    cause: String,
}

// === impl Certificates ===

impl Certificates {
    /// Generates a certificate that is signed by itself, for clients that do not verify it.
    ///
    /// # Errors
    /// [`CertificateError`] if the system provides no randomness.
    pub fn self_signed() -> Result<Self, CertificateError> {
        let broken = |cause: String| CertificateError { what: "self-signed certificate".to_owned(), cause };
        let own = rcgen::generate_simple_self_signed(["localhost".to_owned()]);
        let own = own.map_err(|error| broken(error.to_string()))?;
        let key = PrivatePkcs8KeyDer::from(own.signing_key.serialize_der());
        let acceptor = acceptor(vec![own.cert.der().clone()], key.into()).map_err(broken)?;
        Ok(Self { directory: None, loaded: Mutex::new(Loaded { pem: Default::default(), acceptor }) })
    }

    /// Loads `tls.crt` and `tls.key` from a directory.
    ///
    /// # Errors
    /// [`CertificateError`] if one of them is missing or unusable.
    pub fn of_directory(directory: PathBuf) -> Result<Self, CertificateError> {
        let pem = read(&directory)?;
        let acceptor = parse(&directory, &pem)?;
        Ok(Self { directory: Some(directory), loaded: Mutex::new(Loaded { pem, acceptor }) })
    }

    /// Returns the acceptor for a new connection. Reads the files, which are small, again each time.
    pub(super) fn acceptor(&self) -> TlsAcceptor {
        let mut loaded = self.loaded.lock();
        if let Some(directory) = &self.directory
            && let Ok(pem) = read(directory)
            && pem != loaded.pem
        {
            match parse(directory, &pem) {
                Ok(acceptor) => {
                    tracing::info!(directory = %directory.display(), "Using a new certificate");
                    loaded.acceptor = acceptor;
                }
                // The two files may be replaced one after the other.
                Err(error) => tracing::warn!(%error, "Cannot use a new certificate; keeping the old one"),
            }
            loaded.pem = pem;
        }
        loaded.acceptor.clone()
    }
}

impl fmt::Debug for Certificates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Certificates").field("directory", &self.directory).finish_non_exhaustive()
    }
}

fn read(directory: &Path) -> Result<[Vec<u8>; 2], CertificateError> {
    let read = |file: &str| {
        let path = directory.join(file);
        let broken = |error: std::io::Error| (path.display().to_string(), error.to_string());
        std::fs::read(&path).map_err(broken).map_err(|(what, cause)| CertificateError { what, cause })
    };
    Ok([read(FILES[0])?, read(FILES[1])?])
}

fn parse(directory: &Path, [certificates, key]: &[Vec<u8>; 2]) -> Result<TlsAcceptor, CertificateError> {
    let broken = |cause: String| CertificateError { what: directory.display().to_string(), cause };
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(certificates).collect();
    let chain = chain.map_err(|error| broken(format!("{}: {error}", FILES[0])))?;
    let key = PrivateKeyDer::from_pem_slice(key).map_err(|error| broken(format!("{}: {error}", FILES[1])))?;
    acceptor(chain, key).map_err(broken)
}

fn acceptor(chain: Vec<CertificateDer<'static>>, key: PrivateKeyDer<'static>) -> Result<TlsAcceptor, String> {
    let provider = rustls::crypto::aws_lc_rs::default_provider();
    let config = ServerConfig::builder_with_provider(provider.into())
        .with_safe_default_protocol_versions()
        .and_then(|config| config.with_no_client_auth().with_single_cert(chain, key));
    Ok(TlsAcceptor::from(Arc::new(config.map_err(|error| error.to_string())?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Writes a new certificate and key.
    fn write(directory: &Path) {
        let own = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        std::fs::write(directory.join("tls.crt"), own.cert.pem()).unwrap();
        std::fs::write(directory.join("tls.key"), own.signing_key.serialize_pem()).unwrap();
    }

    #[test]
    fn replaced_certificate_is_used_and_broken_one_ignored() {
        let directory = tempfile::tempdir().unwrap();
        let error = Certificates::of_directory(directory.path().to_owned()).unwrap_err().to_string();
        assert!(error.contains("tls.crt"), "{error}");
        write(directory.path());
        let certificates = Certificates::of_directory(directory.path().to_owned()).unwrap();
        let config = || Arc::as_ptr(certificates.acceptor().config());
        let first = config();
        assert_eq!(config(), first);
        std::fs::write(directory.path().join("tls.key"), "no key").unwrap();
        assert_eq!(config(), first, "the old one stays");
        write(directory.path());
        assert_ne!(config(), first);
    }
}
