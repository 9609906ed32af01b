//! The instance's certificate authority, which issues the server's certificate and kubeconfigs for users.

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
}

impl Authority {
    /// Creates the authority, the server's certificate and the service account key.
    pub(crate) fn create(dir: &Path) -> anyhow::Result<Self> {
        fs::create_dir_all(dir)?;
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, "windlass-test-ca");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate()?)?;
        let authority = Self { dir: dir.to_owned(), issuer };
        authority.write("ca.crt", &authority.issuer.pem())?;
        let names = ["127.0.0.1", "localhost", "kubernetes.default.svc", "10.0.0.1"].map(str::to_owned);
        let mut server = CertificateParams::new(names)?;
        server.distinguished_name.push(DnType::CommonName, "kube-apiserver");
        server.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        let (certificate, key) = authority.sign(&server)?;
        authority.write("apiserver.crt", &certificate)?;
        authority.write("apiserver.key", &key)?;
        let service_accounts = KeyPair::generate()?;
        authority.write("service-accounts.key", &service_accounts.serialize_pem())?;
        authority.write("service-accounts.pub", &service_accounts.public_key_pem())?;
        Ok(authority)
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
        let (certificate, key) = self.sign(&params)?;
        let data = |pem: &str| BASE64_STANDARD.encode(pem);
        let kubeconfig = json!({
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "test",
            "clusters": [{"name": "test", "cluster": {
                "server": server, "certificate-authority-data": data(&self.issuer.pem())}}],
            "users": [{"name": user, "user": {
                "client-certificate-data": data(&certificate), "client-key-data": data(&key)}}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": user}}],
        });
        let file = format!("{}.kubeconfig", user.replace([':', '/'], "-"));
        self.write(&file, &format!("{kubeconfig:#}\n"))
    }

    fn sign(&self, params: &CertificateParams) -> anyhow::Result<(String, String)> {
        let key = KeyPair::generate()?;
        let certificate = params.signed_by(&key, &self.issuer)?;
        Ok((certificate.pem(), key.serialize_pem()))
    }

    fn write(&self, file: &str, text: &str) -> anyhow::Result<PathBuf> {
        let path = self.dir.join(file);
        fs::write(&path, text).with_context(|| format!("write {}", path.display()))?;
        Ok(path)
    }
}
