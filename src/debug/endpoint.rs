//! The paths of `/debug`, their parameters, and who may read them.
//!
//! A web page on another site can make a browser send requests to this address, also under a name that its own DNS
//! server resolves to a loopback address (DNS rebinding). So the Host must be an IP address or `localhost`, and an
//! Origin must be this server's own.
//!
//! # Guarantees
//! - The page requests nothing from elsewhere (test: `page_requests_nothing_from_elsewhere`)

use std::net::IpAddr;
use std::sync::Arc;

use http::{HeaderMap, HeaderValue, Method, Request, header};
use hyper::body::Incoming;
use serde::Serialize;

use super::process::Process;
use super::stream::Stream;
#[cfg(feature = "demo")]
use super::switches::Switchboard;
use crate::cache::ObjectName;
use crate::server::{Answer, Handler, Page};

/// How many keys or events an answer has if `limit` is absent, and at most.
const LIMIT: usize = 100;
const LIMIT_MAX: usize = 1000;

/// The files of the page, each with its path and media type.
const FILES: [(&str, &str, &str); 4] = [
    ("/", "text/html; charset=utf-8", include_str!("page/index.html")),
    ("/page.css", "text/css; charset=utf-8", include_str!("page/page.css")),
    ("/page.js", "text/javascript; charset=utf-8", include_str!("page/page.js")),
    ("/parts.js", "text/javascript; charset=utf-8", include_str!("page/parts.js")),
];
/// The page loads nothing from elsewhere, runs no script in its markup, and is shown in no other page.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; \
    base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// What the debug address serves.
pub(super) struct Site {
    pub(super) process: Arc<Process>,
    pub(super) stream: Arc<Stream>,
    /// Absent without switches.
    #[cfg(feature = "demo")]
    pub(super) switchboard: Option<Switchboard>,
}

/// The parameters of a request.
struct Parameters {
    key: Option<ObjectName>,
    /// The number of an event.
    since: u64,
    limit: usize,
}

/// Returns the handler of the debug address.
pub(super) fn handler(site: Site) -> Handler {
    let site = Arc::new(site);
    Arc::new(move |request: Request<Incoming>| {
        let site = site.clone();
        Box::pin(async move {
            let mut answer = site.answer(request).await.unwrap_or_else(Page::into_answer);
            let headers = answer.headers_mut();
            headers.insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY));
            headers.insert(header::REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
            answer
        })
    })
}

impl Site {
    async fn answer(&self, request: Request<Incoming>) -> Result<Answer, Page> {
        admitted(request.headers())?;
        #[cfg(feature = "demo")]
        if let Some(switchboard) = &self.switchboard
            && request.uri().path() == "/debug/switch"
        {
            return switchboard.answer(request).await.map(Page::into_answer);
        }
        if !matches!(*request.method(), Method::GET | Method::HEAD) {
            return Err(Page::text(405, "405 method not allowed: use GET or HEAD\n"));
        }
        let path = request.uri().path();
        if path == "/debug/stream" && *request.method() == Method::GET {
            return self.stream.open();
        }
        if let Some((_, media, text)) = FILES.into_iter().find(|(file, ..)| *file == path) {
            return Ok(Page { code: 200, media, body: text.to_owned() }.into_answer());
        }
        page(&self.process, &request).map(Page::into_answer)
    }
}

/// Refuses requests that another web page may have caused.
pub(super) fn admitted(headers: &HeaderMap) -> Result<(), Page> {
    let text = |name| headers.get(name).map(|value| value.to_str().unwrap_or_default());
    let host = text(header::HOST).unwrap_or_default();
    let name = host.strip_prefix('[').and_then(|rest| rest.split_once(']')).map(|(name, _)| name);
    let name = name.unwrap_or_else(|| host.rsplit_once(':').map_or(host, |(name, _)| name));
    if name != "localhost" && name.parse::<IpAddr>().is_err() {
        return Err(Page::text(421, "421: address this server by IP address or as localhost\n"));
    }
    let is_foreign = |origin: &str| origin != format!("http://{host}");
    if text(header::ORIGIN).is_some_and(is_foreign) {
        return Err(Page::text(403, "403: requests of other web pages are refused\n"));
    }
    Ok(())
}

fn page(process: &Process, request: &Request<Incoming>) -> Result<Page, Page> {
    let Parameters { key, since, limit } = parameters(request.uri().query().unwrap_or_default())?;
    match request.uri().path() {
        "/debug" | "/debug/" => json(&process.overview()),
        "/debug/queues" => json(&process.queues(key.as_ref(), limit)),
        "/debug/caches" => json(&process.caches()),
        "/debug/requests" => json(&process.requests(limit)),
        "/debug/events" => json(&process.events(since, limit)),
        "/debug/keys" => {
            let key = key.ok_or_else(|| Page::text(400, "400: give a key, ?key=NAMESPACE/NAME\n"))?;
            json(&process.life(&key, limit))
        }
        _ => Err(Page::text(404, "404 page not found; /debug lists the paths\n")),
    }
}

fn parameters(query: &str) -> Result<Parameters, Page> {
    let mut found = Parameters { key: None, since: 0, limit: LIMIT };
    for (name, value) in form_urlencoded::parse(query.as_bytes()) {
        match &*name {
            "key" => {
                let wrong = |_| Page::text(400, "400: write a key as NAMESPACE/NAME\n");
                found.key = Some(value.parse().map_err(wrong)?);
            }
            "limit" => {
                let limit = value.parse().ok().filter(|limit| (1..=LIMIT_MAX).contains(limit));
                let wrong = || Page::text(400, format!("400: limit must be 1 to {LIMIT_MAX}\n"));
                found.limit = limit.ok_or_else(wrong)?;
            }
            "since" => {
                let wrong = |_| Page::text(400, "400: since must be the number of an event\n");
                found.since = value.parse().map_err(wrong)?;
            }
            _ => return Err(Page::text(400, "400: unknown parameter; use key, since and limit\n")),
        }
    }
    Ok(found)
}

fn json(value: &impl Serialize) -> Result<Page, Page> {
    let body = serde_json::to_string(value);
    let body = body.map_err(|_| Page::text(500, "500: could not encode the answer\n"))?;
    Ok(Page { code: 200, media: "application/json", body: body + "\n" })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(host: &str, origin: Option<&str>) -> u16 {
        let mut headers = HeaderMap::new();
        headers.insert(header::HOST, host.parse().unwrap());
        if let Some(origin) = origin {
            headers.insert(header::ORIGIN, origin.parse().unwrap());
        }
        admitted(&headers).map_or_else(|refusal| refusal.code, |()| 200)
    }

    #[test]
    fn foreign_hosts_and_origins_are_refused() {
        for host in ["127.0.0.1:6060", "localhost:6060", "localhost", "[::1]:6060", "10.0.0.1"] {
            assert_eq!(code(host, None), 200, "{host}");
            assert_eq!(code(host, Some(&format!("http://{host}"))), 200, "{host}");
            for origin in ["http://evil.example", "null", "http://127.0.0.1:1", "https://localhost"] {
                assert_eq!(code(host, Some(origin)), 403, "{host} {origin}");
            }
        }
        for host in
            ["evil.example:6060", "evil.example", "localhost.evil.example", "", "127.0.0.1.evil.example"]
        {
            assert_eq!(code(host, None), 421, "{host}");
        }
        assert_eq!(admitted(&HeaderMap::new()).unwrap_err().code, 421);
    }

    #[test]
    fn page_requests_nothing_from_elsewhere() {
        for (path, _, text) in FILES {
            let text = text.replace("http://www.w3.org/2000/svg", "");
            assert!(!text.contains("://") && !text.contains("@import"), "{path}");
        }
        let (_, _, html) = FILES[0];
        for (path, ..) in &FILES[1..] {
            assert!(html.contains(&format!("=\"{path}\"")), "{path} is not used");
        }
        let attributes = html.split_whitespace().filter_map(|word| word.split_once('='));
        let mut code = attributes.filter(|(name, _)| *name == "style" || name.starts_with("on"));
        assert_eq!(code.next(), None, "the policy allows no code in the markup");
        assert!(POLICY.starts_with("default-src 'none';") && !POLICY.contains("unsafe"));
    }

    #[test]
    fn files_named_on_the_page_exist() {
        let (_, _, parts) = FILES[3];
        let files = parts.split('"').filter(|text| text.starts_with("src/") || text.starts_with("docs/"));
        let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
        let (found, lost): (Vec<_>, Vec<_>) = files.partition(|file| root.join(file).exists());
        assert!(found.len() > 10 && lost.is_empty(), "{lost:?}");
    }

    #[test]
    fn wrong_parameters_are_refused() {
        let Parameters { key, since, limit } = parameters("key=ns%2Fweb&limit=7&since=9").ok().unwrap();
        assert_eq!((key.unwrap().to_string(), since, limit), ("ns/web".to_owned(), 9, 7));
        assert_eq!(parameters("").ok().unwrap().limit, LIMIT);
        for query in ["limit=0", "limit=1001", "limit=x", "key=a/b/c", "key=", "limt=3", "since=-1"] {
            assert_eq!(parameters(query).err().unwrap().code, 400, "{query}");
        }
    }
}
