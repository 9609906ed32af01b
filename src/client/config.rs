//! Finds the cluster.

use std::path::{Path, PathBuf};

use kube_client::config::{KubeConfigOptions, Kubeconfig, KubeconfigError};

/// Where to look for the cluster.
#[derive(Clone, Debug, Default)]
pub struct ConfigSource {
    /// A kubeconfig file; when unset: in-cluster if there, else `KUBECONFIG`, else `~/.kube/config`.
    pub kubeconfig: Option<PathBuf>,
    /// A context of the kubeconfig; its current one when unset.
    pub context: Option<String>,
}

/// Where the API server is and who we are to it.
#[derive(Clone, Debug)]
pub struct Config {
    pub(crate) inner: kube_client::Config,
}

/// No usable configuration: a user's mistake, with its remedy in the message.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// A kubeconfig that is not there or cannot be used.
    #[error("kubeconfig {place}: {cause}")]
    Kubeconfig {
        /// The file, or where its name came from.
        place: String,
        /// What is wrong with it, in words.
        cause: String,
    },
    /// Nothing names a cluster.
    #[error(
        "no cluster is configured: not running in a Pod, KUBECONFIG is not set and ~/.kube/config is not there"
    )]
    NotConfigured,
    /// The pieces do not make a client: certificates, keys, an exec plugin.
    #[error("client for {url}: {cause}")]
    Client {
        /// The server.
        url: String,
        /// What is wrong, in words.
        cause: String,
    },
}

impl Config {
    /// Finds the cluster: the named kubeconfig, else in-cluster, else `KUBECONFIG`, else `~/.kube/config`.
    ///
    /// # Errors
    /// [`ConfigError`] when nothing is found or what is found cannot be used.
    pub async fn load(source: &ConfigSource) -> Result<Self, ConfigError> {
        let mut inner = Self::find(source).await?;
        // The built-in retry re-sends POSTs; whether to repeat is decided where the outcome is known.
        inner.default_retry = false;
        Ok(Self { inner })
    }

    /// Host and port of the API server.
    #[must_use]
    pub fn host(&self) -> String {
        self.inner.cluster_url.authority().map(ToString::to_string).unwrap_or_default()
    }

    /// Address of the API server.
    #[must_use]
    pub fn server(&self) -> String {
        self.inner.cluster_url.to_string()
    }

    async fn find(source: &ConfigSource) -> Result<kube_client::Config, ConfigError> {
        let options = KubeConfigOptions { context: source.context.clone(), ..KubeConfigOptions::default() };
        if let Some(path) = &source.kubeconfig {
            let kubeconfig = Kubeconfig::read_from(path).map_err(|e| broken(path.display(), &e))?;
            return kube_client::Config::from_custom_kubeconfig(kubeconfig, &options)
                .await
                .map_err(|e| broken(path.display(), &e));
        }
        if source.context.is_none()
            && let Ok(config) = kube_client::Config::incluster()
        {
            return Ok(config);
        }
        let place = place_by_environment()?;
        kube_client::Config::from_kubeconfig(&options).await.map_err(|e| broken(place, &e))
    }
}

/// Says which file kube's own rule will read, so that an error can name it.
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
        KubeconfigError::LoadContext(name) => format!("it has no context {name:?}"),
        KubeconfigError::CurrentContextNotSet => {
            "it has no current-context; name one with --context".to_owned()
        }
        KubeconfigError::Parse(e) => {
            format!("it is not a kubeconfig in YAML: {}", first_line(&e.to_string()))
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

    /// kube's retry repeats POSTs.
    #[tokio::test]
    async fn the_builtin_retry_is_off() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("kubeconfig");
        let kubeconfig = r#"{"current-context": "x",
            "clusters": [{"name": "c", "cluster": {"server": "https://127.0.0.1:1"}}],
            "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
            "users": [{"name": "u", "user": {}}]}"#;
        std::fs::write(&path, kubeconfig).unwrap();
        let config = Config::load(&ConfigSource { kubeconfig: Some(path), context: None }).await.unwrap();
        assert!(!config.inner.default_retry);
        assert_eq!(config.server(), "https://127.0.0.1:1/");
    }
}
