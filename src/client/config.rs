//! Finds the cluster's configuration: a kubeconfig, or that of the Pod.

use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};

use kube_client::config::{KubeConfigOptions, Kubeconfig, KubeconfigError};

use super::transport::proxy::{self, Environment, proxy_of};

/// Where to look for the cluster.
#[derive(Clone, Debug, Default)]
pub struct ConfigSource {
    /// A kubeconfig file; when unset: in-cluster if available, else `KUBECONFIG`, else `~/.kube/config`.
    pub kubeconfig: Option<PathBuf>,
    /// A context of the kubeconfig; its current one when unset.
    pub context: Option<String>,
    /// Whether a server may be used whose identity is not verified.
    pub allow_insecure_server: bool,
}

/// Address of the API server, and our credentials for it.
#[derive(Clone)]
pub struct Config {
    pub(crate) inner: kube_client::Config,
    source: ConfigSource,
    /// Hash of the credentials and of the files that they name.
    fingerprint: u64,
}

/// The user's configuration is missing or unusable.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The kubeconfig is missing or unusable.
    #[error("kubeconfig {place}: {cause}")]
    Kubeconfig {
        /// The file, or where its name came from.
        place: String,
        /// What is wrong with the kubeconfig.
        cause: String,
    },
    /// No configuration names a cluster.
    #[error(
        "no cluster is configured: not running in a Pod, KUBECONFIG is not set, and there is no ~/.kube/config"
    )]
    NotConfigured,
    /// A file of the configuration is missing, unreadable or empty.
    #[error("{}: {cause}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What is wrong with the file.
        cause: String,
    },
    /// A changed configuration names another server.
    #[error("the configuration now names {new} as server, not {old}; restart to use it")]
    OtherServer {
        /// The server in use.
        old: String,
        /// The other server.
        new: String,
    },
    /// The server's identity would not be verified, and that is not allowed.
    #[error("the server {url} is not verified: {cause}")]
    Insecure {
        /// The server.
        url: String,
        /// Why not.
        cause: &'static str,
    },
    /// The proxy on the way to the server cannot be used.
    #[error("proxy {proxy}: {cause}")]
    Proxy {
        /// The proxy, without credentials.
        proxy: String,
        /// What is wrong.
        cause: String,
    },
    /// No client can be built: certificates, keys or an exec plugin do not work.
    #[error("client for {url}: {cause}")]
    Client {
        /// The server.
        url: String,
        /// What is wrong.
        cause: String,
    },
}

impl fmt::Debug for Config {
    /// Shows no credentials: the proxy may have some, too.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Config").field("server", &self.server()).finish_non_exhaustive()
    }
}

impl Config {
    /// Finds the cluster: the named kubeconfig, else in-cluster (unless a context is named), else `KUBECONFIG`, else
    /// `~/.kube/config`.
    ///
    /// # Errors
    /// [`ConfigError`] if no configuration is found, or if it is unusable.
    pub async fn load(source: &ConfigSource) -> Result<Self, ConfigError> {
        let (mut inner, has_proxy) = Self::find(source).await?;
        if !source.allow_insecure_server
            && let Some(cause) = insecure(&inner)
        {
            return Err(ConfigError::Insecure { url: inner.cluster_url.to_string(), cause });
        }
        // The built-in retry resends POSTs; only the caller knows whether a request may be repeated.
        inner.default_retry = false;
        // kube-client's may be that of the environment, without regard to NO_PROXY.
        let configured = inner.proxy_url.take().filter(|_| has_proxy);
        let proxy = proxy_of(&inner.cluster_url, configured, &Environment::read());
        let unreadable = |cause: &str| ConfigError::Proxy {
            proxy: "of the environment".to_owned(),
            cause: cause.to_owned(),
        };
        inner.proxy_url = proxy.map_err(unreadable)?;
        if let Some(Err((proxy, cause))) = inner.proxy_url.as_ref().map(proxy::check) {
            return Err(ConfigError::Proxy { proxy, cause });
        }
        let fingerprint = read_files(&mut inner)?;
        Ok(Self { inner, source: source.clone(), fingerprint })
    }

    /// Loads the configuration of the same server again.
    ///
    /// # Errors
    /// [`ConfigError`].
    pub(super) async fn reload(&self) -> Result<Self, ConfigError> {
        let next = Self::load(&self.source).await?;
        match next.server() == self.server() {
            true => Ok(next),
            false => Err(ConfigError::OtherServer { old: self.server(), new: next.server() }),
        }
    }

    /// Whether both have the same credentials and authorities.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        self.fingerprint == other.fingerprint
    }

    /// Whether an exec plugin provides the credentials.
    pub(super) fn has_plugin(&self) -> bool {
        self.inner.auth_info.exec.is_some() || self.inner.auth_info.auth_provider.is_some()
    }

    /// Returns host and port of the API server.
    #[must_use]
    pub fn host(&self) -> String {
        self.inner.cluster_url.authority().map(ToString::to_string).unwrap_or_default()
    }

    /// Returns the URL of the API server.
    #[must_use]
    pub fn server(&self) -> String {
        self.inner.cluster_url.to_string()
    }

    /// Returns the configuration, and whether its kubeconfig names a proxy.
    async fn find(source: &ConfigSource) -> Result<(kube_client::Config, bool), ConfigError> {
        let options = KubeConfigOptions { context: source.context.clone(), ..KubeConfigOptions::default() };
        if let Some(path) = &source.kubeconfig {
            let kubeconfig = Kubeconfig::read_from(path).map_err(|e| broken(path.display(), &e))?;
            return Self::of_kubeconfig(kubeconfig, &options).await.map_err(|e| broken(path.display(), &e));
        }
        if source.context.is_none()
            && let Ok(config) = kube_client::Config::incluster()
        {
            return Ok((config, false));
        }
        let place = place_by_environment()?;
        let read = async { Self::of_kubeconfig(Kubeconfig::read()?, &options).await };
        read.await.map_err(|e| broken(place, &e))
    }

    async fn of_kubeconfig(
        kubeconfig: Kubeconfig,
        options: &KubeConfigOptions,
    ) -> Result<(kube_client::Config, bool), KubeconfigError> {
        let has_proxy = names_proxy(&kubeconfig, options.context.as_deref());
        Ok((kube_client::Config::from_custom_kubeconfig(kubeconfig, options).await?, has_proxy))
    }
}

/// Whether the cluster of this context, or of the current one, has a `proxy-url`.
fn names_proxy(kubeconfig: &Kubeconfig, context: Option<&str>) -> bool {
    let context = context.or(kubeconfig.current_context.as_deref());
    let of_context = kubeconfig.contexts.iter().find(|one| Some(&*one.name) == context);
    let cluster = of_context.and_then(|one| Some(&one.context.as_ref()?.cluster));
    let of_cluster = kubeconfig.clusters.iter().find(|one| Some(&one.name) == cluster);
    let proxy = of_cluster.and_then(|one| one.cluster.as_ref()?.proxy_url.as_deref());
    proxy.is_some_and(|proxy| !proxy.is_empty())
}

/// Reads the token file, in place of kube-client, which goes by the wall clock and accepts an empty file. Returns a hash
/// of everything that connections depend on.
fn read_files(config: &mut kube_client::Config) -> Result<u64, ConfigError> {
    config.root_cert_file = None;
    let user = &mut config.auth_info;
    if user.token.is_none()
        && let Some(path) = user.token_file.take()
    {
        let token = read(&path)?;
        let token = String::from_utf8_lossy(&token).trim().to_owned();
        if token.is_empty() {
            return Err(ConfigError::File { path: path.into(), cause: "the token file is empty".to_owned() });
        }
        user.token = Some(token.into());
    }
    let mut hasher = DefaultHasher::new();
    serde_json::to_string(&user).unwrap_or_default().hash(&mut hasher);
    for path in [&user.client_certificate, &user.client_key].into_iter().flatten() {
        read(path)?.hash(&mut hasher);
    }
    (&config.root_cert, config.accept_invalid_certs, &config.tls_server_name, &config.proxy_url)
        .hash(&mut hasher);
    Ok(hasher.finish())
}

fn read(path: &str) -> Result<Vec<u8>, ConfigError> {
    let broken = |error: std::io::Error| ConfigError::File { path: path.into(), cause: error.to_string() };
    std::fs::read(path).map_err(broken)
}

/// Returns why anybody on the way could read the token and change the answers, if so.
fn insecure(config: &kube_client::Config) -> Option<&'static str> {
    if config.cluster_url.scheme_str() != Some("https") {
        return Some("the connection is not encrypted");
    }
    config.accept_invalid_certs.then_some("the kubeconfig sets insecure-skip-tls-verify")
}

/// Returns the file that kube-client will read by its own rules, so that an error can name it.
fn place_by_environment() -> Result<String, ConfigError> {
    if let Some(files) = std::env::var_os("KUBECONFIG").filter(|value| !value.is_empty()) {
        return Ok(format!("{} (from KUBECONFIG)", Path::new(&files).display()));
    }
    let home = std::env::home_dir().map(|home| home.join(".kube/config"));
    match home {
        Some(path) if path.exists() => Ok(path.display().to_string()),
        _ => Err(ConfigError::NotConfigured),
    }
}

fn broken(place: impl std::fmt::Display, error: &KubeconfigError) -> ConfigError {
    let cause = match error {
        KubeconfigError::ReadConfig(io, _) => io.to_string(),
        KubeconfigError::LoadContext(name) => {
            format!("context {name:?} does not exist; choose another with --context")
        }
        KubeconfigError::CurrentContextNotSet => {
            "no current-context is set; choose a context with --context".to_owned()
        }
        KubeconfigError::Parse(e) => {
            format!("not a valid kubeconfig: {}", first_line(&e.to_string()))
        }
        other => first_line(&other.to_string()).to_owned(),
    };
    ConfigError::Kubeconfig { place: place.to_string(), cause }
}

fn first_line(text: &str) -> &str {
    text.lines().next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// kube-client's retry repeats POSTs.
    #[tokio::test]
    async fn the_builtin_retry_is_off() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("kubeconfig");
        let kubeconfig = r#"{"current-context": "x",
            "clusters": [{"name": "c", "cluster": {"server": "https://127.0.0.1:1"}}],
            "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
            "users": [{"name": "u", "user": {}}]}"#;
        std::fs::write(&path, kubeconfig).unwrap();
        let source = ConfigSource { kubeconfig: Some(path), ..ConfigSource::default() };
        let config = Config::load(&source).await.unwrap();
        assert!(!config.inner.default_retry);
        assert_eq!(config.server(), "https://127.0.0.1:1/");
    }

    /// Connections are renewed when this changes.
    #[tokio::test]
    async fn replaced_certificates_and_keys_change_the_fingerprint() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("kubeconfig");
        let kubeconfig = serde_json::json!({"current-context": "x",
            "clusters": [{"name": "c", "cluster": {"server": "https://127.0.0.1:1"}}],
            "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
            "users": [{"name": "u", "user": {"client-certificate": dir.path().join("crt"),
                "client-key": dir.path().join("key"), "tokenFile": dir.path().join("token")}}]});
        std::fs::write(&path, kubeconfig.to_string()).unwrap();
        let files = ["crt", "key", "token"];
        for file in files {
            std::fs::write(dir.path().join(file), "first").unwrap();
        }
        let source = ConfigSource { kubeconfig: Some(path), ..ConfigSource::default() };
        let mut before = Config::load(&source).await.unwrap();
        assert!(before.is_same(&Config::load(&source).await.unwrap()));
        for file in files {
            std::fs::write(dir.path().join(file), "second").unwrap();
            let after = before.reload().await.unwrap();
            assert!(!after.is_same(&before), "{file}");
            before = after;
        }
    }

    #[tokio::test]
    async fn insecure_server_is_refused_unless_allowed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("kubeconfig");
        for (cluster, cause) in [
            (r#""server": "http://127.0.0.1:1""#, "not encrypted"),
            (
                r#""server": "https://127.0.0.1:1", "insecure-skip-tls-verify": true"#,
                "insecure-skip-tls-verify",
            ),
        ] {
            let kubeconfig = format!(
                r#"{{"current-context": "x", "clusters": [{{"name": "c", "cluster": {{{cluster}}}}}],
                "contexts": [{{"name": "x", "context": {{"cluster": "c", "user": "u"}}}}],
                "users": [{{"name": "u", "user": {{}}}}]}}"#
            );
            std::fs::write(&path, kubeconfig).unwrap();
            let source = ConfigSource { kubeconfig: Some(path.clone()), ..ConfigSource::default() };
            let error = Config::load(&source).await.unwrap_err().to_string();
            assert!(error.contains(cause), "{error}");
            let source = ConfigSource { allow_insecure_server: true, ..source };
            assert!(Config::load(&source).await.is_ok());
        }
    }
}
