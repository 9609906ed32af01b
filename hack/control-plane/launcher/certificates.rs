//! The instance's certificate authorities: one for its users and, until it is replaced, for the server.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    KeyUsagePurpose,
};
use serde_json::json;

/// Signs certificates and writes them to one directory.
pub(crate) struct Authority {
    dir: PathBuf,
    issuer: CertifiedIssuer<'static, KeyPair>,
    /// The certificate of the authority that kubeconfigs trust.
    trusted: String,
}

impl Authority {
    /// Creates the authority, the server's certificate and the service account key.
    pub(crate) fn create(dir: &Path) -> anyhow::Result<Self> {
        fs::create_dir_all(dir)?;
        let issuer = issuer()?;
        let mut authority = Self { dir: dir.to_owned(), trusted: String::new(), issuer };
        authority.write("ca.crt", &authority.issuer.pem())?;
        authority.serve_under(None)?;
        let service_accounts = KeyPair::generate()?;
        authority.write("service-accounts.key", &service_accounts.serialize_pem())?;
        authority.write("service-accounts.pub", &service_accounts.public_key_pem())?;
        Ok(authority)
    }

    /// Writes a certificate of a new authority for the server, and returns the file of that authority. Users keep the
    /// certificates of the old one.
    pub(crate) fn replace_for_server(&mut self) -> anyhow::Result<PathBuf> {
        self.serve_under(Some(&issuer()?))
    }

    /// Writes the server's certificate, issued by another authority or by this one, which kubeconfigs trust from now on.
    fn serve_under(&mut self, other: Option<&CertifiedIssuer<'static, KeyPair>>) -> anyhow::Result<PathBuf> {
        let issuer = other.unwrap_or(&self.issuer);
        let names = ["127.0.0.1", "localhost", "kubernetes.default.svc", "10.0.0.1"].map(str::to_owned);
        let mut server = CertificateParams::new(names)?;
        server.distinguished_name.push(DnType::CommonName, "kube-apiserver");
        server.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        let (certificate, key) = sign(issuer, &server)?;
        self.write("apiserver.crt", &certificate)?;
        self.write("apiserver.key", &key)?;
        let trusted = issuer.pem();
        let path = self.write("server-ca.crt", &trusted)?;
        self.trusted = trusted;
        Ok(path)
    }

    pub(crate) fn path(&self, file: &str) -> PathBuf {
        self.dir.join(file)
    }

    /// Issues a client certificate for a user and writes a kubeconfig that contains it.
    pub(crate) fn kubeconfig(&self, server: &str, user: &str, groups: &[String]) -> anyhow::Result<PathBuf> {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, user);
        for group in groups {
            params.distinguished_name.push(DnType::OrganizationName, group.as_str());
        }
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        let (certificate, key) = sign(&self.issuer, &params)?;
        let data = |pem: &str| BASE64_STANDARD.encode(pem);
        let kubeconfig = json!({
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "test",
            "clusters": [{"name": "test", "cluster": {
                "server": server, "certificate-authority-data": data(&self.trusted)}}],
            "users": [{"name": user, "user": {
                "client-certificate-data": data(&certificate), "client-key-data": data(&key)}}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": user}}],
        });
        let file = format!("{}.kubeconfig", user.replace([':', '/'], "-"));
        self.write(&file, &format!("{kubeconfig:#}\n"))
    }

    fn write(&self, file: &str, text: &str) -> anyhow::Result<PathBuf> {
        let path = self.dir.join(file);
        fs::write(&path, text).with_context(|| format!("write {}", path.display()))?;
        Ok(path)
    }
}

fn issuer() -> anyhow::Result<CertifiedIssuer<'static, KeyPair>> {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, "windlass-test-ca");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
    Ok(CertifiedIssuer::self_signed(params, KeyPair::generate()?)?)
}

/// Returns a certificate and its key.
fn sign(
    issuer: &CertifiedIssuer<'static, KeyPair>,
    params: &CertificateParams,
) -> anyhow::Result<(String, String)> {
    let key = KeyPair::generate()?;
    let certificate = params.signed_by(&key, issuer)?;
    Ok((certificate.pem(), key.serialize_pem()))
}
