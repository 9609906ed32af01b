//! Finds the proxy on the way to the API server.
//!
//! Mirrors Go's `ProxyFromEnvironment` (`golang.org/x/net/http/httpproxy`), which client-go uses, and a kubeconfig's
//! `proxy-url`.
//! Flow: config -> **proxy** -> transport
//!
//! # Guarantees
//! - A kubeconfig's `proxy-url` is always used; otherwise `HTTPS_PROXY` is, also in a cluster, unless `NO_PROXY` covers
//!   the server, or the server is on this machine. (test: `kubeconfig_wins_over_the_environment`, `no_proxy_is_read_as_go_reads_it`)
//! - A proxy that cannot be used is refused at the start, by a message without its password.
//!   (test: `unusable_proxy_is_refused_without_its_password`)
//!
//! # Differences from client-go
//! Proxies speak HTTP CONNECT or SOCKS5; one that itself wants TLS (`https://`) is refused.

use std::net::IpAddr;

use http::uri::{Authority, Scheme};
use http::{HeaderValue, Uri};
use hyper_util::client::proxy::matcher::{Intercept, Matcher};

const NOT_A_URL: &str = "the value of HTTPS_PROXY is not a URL";

/// The environment variables that name proxies, as Go reads them. No `Debug`: they may hold a password.
pub(in crate::client) struct Environment {
    https_proxy: String,
    no_proxy: String,
}

/// A proxy with its credentials. No `Debug`: it may hold a password.
pub(super) enum Proxy {
    /// Is asked with `CONNECT`.
    Http { address: Uri, authorization: Option<HeaderValue> },
    /// Is asked by SOCKS5, and resolves the server's name.
    Socks { address: Uri, user: Option<(String, String)> },
}

// === impl Environment ===

impl Environment {
    pub(in crate::client) fn read() -> Self {
        let value = |names: [&str; 2]| {
            let values = names.into_iter().filter_map(|name| std::env::var(name).ok());
            values.map(|value| value.trim().to_owned()).find(|value| !value.is_empty()).unwrap_or_default()
        };
        Self { https_proxy: value(["HTTPS_PROXY", "https_proxy"]), no_proxy: value(["NO_PROXY", "no_proxy"]) }
    }

    fn proxy(&self) -> Option<Uri> {
        let has_scheme = self.https_proxy.contains("://");
        let url = if has_scheme { self.https_proxy.clone() } else { format!("http://{}", self.https_proxy) };
        url.parse().ok()
    }

    /// Whether `server` is to be reached without a proxy.
    fn spares(&self, server: &Uri) -> bool {
        let host = server.host().unwrap_or_default().to_ascii_lowercase();
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let port = server.port_u16().unwrap_or(443);
        let is_here =
            host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback());
        let no_proxy = self.no_proxy.to_ascii_lowercase();
        let entries = || no_proxy.split(',').filter_map(|entry| rule(entry.trim(), port));
        // Go excepts the domain itself from `.example.com`; the matcher does not.
        let rules: Vec<&str> = entries().filter(|rule| rule.strip_prefix('.') != Some(host)).collect();
        let matcher = Matcher::builder().all("http://proxy").no(rules.join(",")).build();
        is_here || rules.contains(&"*") || matcher.intercept(server).is_none()
    }
}

/// Returns an entry of `NO_PROXY` without its port and star, or `None` if it is for another port.
fn rule(entry: &str, port: u16) -> Option<&str> {
    let entry = if entry.starts_with("*.") { &entry[1..] } else { entry };
    let (host, of_port) = match entry.rsplit_once(':') {
        Some((host, port)) if !host.contains(':') || host.ends_with(']') => (host, port),
        _ => return Some(entry.trim_start_matches('[').trim_end_matches(']')),
    };
    (of_port.parse() == Ok(port)).then(|| host.trim_start_matches('[').trim_end_matches(']'))
}

/// Returns the proxy for `server`: the `configured` one of its kubeconfig, else that of the environment.
///
/// # Errors
/// What is wrong with `HTTPS_PROXY`, which is not quoted: it may have a password.
pub(in crate::client) fn proxy_of(
    server: &Uri,
    configured: Option<Uri>,
    environment: &Environment,
) -> Result<Option<Uri>, &'static str> {
    let is_https = server.scheme() == Some(&Scheme::HTTPS);
    match configured {
        Some(proxy) => Ok(Some(proxy)),
        None if !is_https || environment.https_proxy.is_empty() || environment.spares(server) => Ok(None),
        None => environment.proxy().map(Some).ok_or(NOT_A_URL),
    }
}

/// Checks that we can use a proxy.
///
/// # Errors
/// The proxy's address without credentials, and the reason.
pub(in crate::client) fn check(proxy: &Uri) -> Result<(), (String, String)> {
    Proxy::new(proxy).map(drop).map_err(|cause| {
        let scheme = proxy.scheme_str().map(|scheme| format!("{scheme}://")).unwrap_or_default();
        let host = proxy.host().unwrap_or_default();
        let port = proxy.port().map(|port| format!(":{port}")).unwrap_or_default();
        (format!("{scheme}{host}{port}"), cause)
    })
}

// === impl Proxy ===

impl Proxy {
    pub(super) fn new(url: &Uri) -> Result<Self, String> {
        let matcher = Matcher::builder().all(url.to_string()).build();
        let found: Option<Intercept> = matcher.intercept(&Uri::from_static("https://server"));
        let found = found.ok_or("the URL names no host")?;
        let address = |default| with_port(found.uri(), default).ok_or("the URL names no host");
        match found.uri().scheme_str() {
            Some("http") => {
                Ok(Self::Http { address: address(80)?, authorization: found.basic_auth().cloned() })
            }
            Some("socks5" | "socks5h") => {
                let owned = |(user, password): (&str, &str)| (user.to_owned(), password.to_owned());
                Ok(Self::Socks { address: address(1080)?, user: found.raw_auth().map(owned) })
            }
            scheme => Err(format!(
                "the scheme {:?} is not supported; use http:// or socks5://",
                scheme.unwrap_or_default()
            )),
        }
    }
}

/// Returns where to connect to: host and port, without the proxy's own scheme.
fn with_port(url: &Uri, default: u16) -> Option<Uri> {
    let authority = format!("{}:{}", url.host()?, url.port_u16().unwrap_or(default));
    let authority: Authority = authority.parse().ok()?;
    Uri::builder().scheme(Scheme::HTTP).authority(authority).path_and_query("/").build().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn url(text: &str) -> Uri {
        text.parse().unwrap()
    }

    fn environment(https_proxy: &str, no_proxy: &str) -> Environment {
        Environment { https_proxy: https_proxy.to_owned(), no_proxy: no_proxy.to_owned() }
    }

    #[test]
    fn kubeconfig_wins_over_the_environment() {
        let server = url("https://api.example.com:6443/");
        let proxy = "http://proxy:3128";
        let of = |configured: Option<&str>, environment| {
            proxy_of(&server, configured.map(url), &environment).unwrap().map(|proxy| proxy.to_string())
        };
        assert_eq!(of(None, environment("", "")), None);
        assert_eq!(of(None, environment(proxy, "")).unwrap(), "http://proxy:3128/", "in a cluster");
        assert_eq!(of(None, environment("proxy:3128", "")).unwrap(), "http://proxy:3128/");
        assert_eq!(of(None, environment(proxy, "api.example.com")), None);
        assert_eq!(
            of(Some(proxy), environment(proxy, "*")).unwrap(),
            "http://proxy:3128/",
            "the kubeconfig's"
        );
        let plain = proxy_of(&url("http://api.example.com"), None, &environment(proxy, ""));
        assert_eq!(plain, Ok(None), "HTTPS_PROXY is for https");
        let configured = Some("socks5://mine:1080");
        assert_eq!(of(configured, environment(proxy, "*")).unwrap(), "socks5://mine:1080/");
        let broken = proxy_of(&server, None, &environment("http://user:secret@ proxy", ""));
        assert_eq!(broken, Err("the value of HTTPS_PROXY is not a URL"), "the password is not quoted");
    }

    /// The rows are those of Go's documentation of `httpproxy.Config.NoProxy`.
    #[test]
    fn no_proxy_is_read_as_go_reads_it() {
        let name = "https://api.example.com:6443";
        let address = "https://10.1.2.3";
        let six = "https://[2001:db8::7]:6443";
        for (server, no_proxy, is_spared) in [
            (name, "", false),
            (name, "*", true),
            (name, "example.com", true),
            (name, "other.com, example.com ", true),
            (name, ".example.com", true),
            (name, "*.example.com", true),
            (name, "api.example.com", true),
            (name, ".api.example.com", false),
            (name, ".API.Example.com", false),
            (name, "Example.COM", true),
            (name, "i.example.com", false),
            (name, "example.com:6443", true),
            (name, "example.com:443", false),
            (address, "*", true),
            (address, "10.0.0.0/8", true),
            (address, "10.1.2.3", true),
            (address, "10.1.2.3:443", true),
            (address, "10.1.2.3:80", false),
            (address, "10.2.0.0/16", false),
            (six, "2001:db8::/32", true),
            (six, "[2001:db8::7]:6443", true),
            (six, "[2001:db8::7]:443", false),
            ("https://localhost:6443", "", true),
            ("https://127.0.0.1:6443", "", true),
            ("https://[::1]:6443", "", true),
        ] {
            let proxy = proxy_of(&url(server), None, &environment("http://proxy:3128", no_proxy));
            assert_eq!(proxy == Ok(None), is_spared, "{server} with NO_PROXY={no_proxy}");
        }
    }

    #[test]
    fn unusable_proxy_is_refused_without_its_password() {
        let (proxy, cause) = check(&url("https://user:secret@proxy:3128")).unwrap_err();
        assert_eq!(proxy, "https://proxy:3128");
        assert_eq!(cause, r#"the scheme "https" is not supported; use http:// or socks5://"#);
        for good in ["http://user:secret@proxy:3128", "http://proxy", "socks5://proxy", "socks5h://proxy:1"] {
            assert_eq!(check(&url(good)), Ok(()), "{good}");
        }
    }
}
