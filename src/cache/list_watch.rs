//! The only way cached reads reach the API server: one page of a list, one watch.
//!
//! Mirrors client-go `tools/cache/listwatch.go`.
//! Flow: API server -> **list_watch** -> reflector -> fifo
//!
//! # How it works
//! [`ListerWatcher`] is the seam: [`ListWatch`] implements it over raw requests, the tests' `FakeSource`
//! without a server. A page is decoded item by item, a watch line once, straight into the caller's
//! type; the transform runs there, before the object is shared.
//!
//! # Guarantees
//! - A request asks for its version, selector and timeout. (test: `a_request_asks_for_its_version_selector_and_timeout`)
//! - A stream that goes silent ends after [`IDLE_TIMEOUT`]. (test: `a_silent_stream_ends`)
//! - A resync does not put the end of a silent stream off. (test: `a_dropped_wait_does_not_put_the_end_off`)
//! - A line has a limit. (test: `an_endless_line_is_an_error`)
//!
//! # Differences from client-go
//! Errors inside a stream end it as an `Err`, never as an object. The idle watchdog: a real server
//! sends a bookmark a minute, so a stream without a byte for 90 s is a dead peer (TCP keepalive does
//! not notice a stopped process).

use std::fmt;
use std::marker::PhantomData;
use std::time::Duration;

use http::{HeaderValue, Request, header};
use http_body_util::BodyExt;
use kube_client::client::Body;
use tokio::time::Instant;

use super::object::{Decoded, Object};
use super::wire::{EventError, Lines, decode_event, decode_page};
use crate::api::ApiResource;
use crate::client::{ApiClient, Error};

/// How long a watch may be silent: a server sends a bookmark a minute.
pub const IDLE_TIMEOUT: Duration = Duration::from_secs(90);
/// How long the answer to a list may be silent, at its start and between its pieces. A whole list of many
/// objects may take minutes; what it may not do is stop.
const LIST_IDLE_TIMEOUT: Duration = Duration::from_secs(60);
/// How long the head of a watch's answer may take.
const OPEN_TIMEOUT: Duration = Duration::from_secs(30);
/// The longest line of a watch: etcd takes 1.5 MiB an object, JSON and escapes included some more.
const LINE_MAX: usize = 16 << 20;

/// Which state a list asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Version {
    /// The newest: version unset, a consistent read.
    Newest,
    /// This or anything newer.
    NotOlderThan(String),
}

/// What to ask of one page of a list.
#[derive(Clone, Debug)]
pub struct ListOptions {
    /// The state asked for; pages after the first follow the token instead.
    pub version: Version,
    /// Page size; `None` for all in one.
    pub limit: Option<u32>,
    /// Token of the page before.
    pub continue_token: Option<String>,
}

/// One page of a list.
#[derive(Debug)]
pub struct Page<K> {
    /// The objects.
    pub items: Vec<Decoded<K>>,
    /// Version of the list.
    pub resource_version: String,
    /// Token of the next page, if there is one.
    pub continue_token: Option<String>,
}

/// What to ask of a watch.
#[derive(Clone, Debug)]
pub struct WatchOptions {
    /// Events after this version.
    pub resource_version: String,
    /// When the server ends it.
    pub timeout: Duration,
}

/// What a watch tells.
#[derive(Debug)]
pub enum WatchEvent<K> {
    /// It appeared.
    Added(Decoded<K>),
    /// It changed.
    Modified(Decoded<K>),
    /// It is gone; this is its last state.
    Deleted(Decoded<K>),
    /// Nothing changed up to this version.
    Bookmark(String),
}

/// An open watch.
pub trait WatchStream<K>: Send {
    /// The next event; `None` when the server ended the stream, an error when it broke.
    ///
    /// # Cancel safety
    /// Must be safe: a resync drops the future and asks again, and no event and no deadline may be lost.
    fn next(&mut self) -> impl Future<Output = Option<Result<WatchEvent<K>, Error>>> + Send;
}

/// Lists and watches one kind.
pub trait ListerWatcher<K>: Send + Sync + 'static {
    /// An open watch.
    type Watch: WatchStream<K>;

    /// Fetches one page.
    fn list(&self, options: &ListOptions) -> impl Future<Output = Result<Page<K>, Error>> + Send;

    /// Opens a watch.
    fn watch(&self, options: &WatchOptions) -> impl Future<Output = Result<Self::Watch, Error>> + Send;
}

/// Lists and watches over the network.
pub struct ListWatch<K> {
    client: ApiClient,
    resource: ApiResource,
    namespace: Option<String>,
    label_selector: Option<String>,
    transform: Option<fn(&mut K)>,
}

// === impl ListWatch ===

impl<K: Object> ListWatch<K> {
    /// All namespaces with `None`, all labels with no selector. The transform runs once an object,
    /// after decoding.
    #[must_use]
    pub fn new(
        client: ApiClient,
        namespace: Option<String>,
        label_selector: Option<String>,
        transform: Option<fn(&mut K)>,
    ) -> Self {
        Self { client, resource: K::resource(), namespace, label_selector, transform }
    }

    fn request(&self, verb: &str, query: &[(&str, &str)]) -> Result<(String, Request<Body>), Error> {
        let mut pairs = form_urlencoded::Serializer::new(String::new());
        if let Some(selector) = &self.label_selector {
            pairs.append_pair("labelSelector", selector);
        }
        pairs.extend_pairs(query);
        let name = format!("{verb} {}", self.resource);
        let uri = format!("{}?{}", self.resource.path(self.namespace.as_deref()), pairs.finish());
        let request = Request::get(uri)
            .header(header::ACCEPT, HeaderValue::from_static("application/json"))
            .body(Body::empty())
            .map_err(|e| Error::Transport { request: name.clone(), source: Box::new(e) })?;
        Ok((name, request))
    }
}

impl<K: Object> ListerWatcher<K> for ListWatch<K> {
    type Watch = WatchBody<K>;

    async fn list(&self, options: &ListOptions) -> Result<Page<K>, Error> {
        let limit = options.limit.map(|limit| limit.to_string());
        let mut query = Vec::new();
        if let Some(limit) = &limit {
            query.push(("limit", limit.as_str()));
        }
        match (&options.continue_token, &options.version) {
            (Some(token), _) => query.push(("continue", token)),
            (None, Version::NotOlderThan(version)) => {
                query.push(("resourceVersion", version));
                query.push(("resourceVersionMatch", "NotOlderThan"));
            }
            (None, Version::Newest) => {}
        }
        let (name, request) = self.request("list", &query)?;
        let body = self.client.download(&name, request, LIST_IDLE_TIMEOUT).await?;
        let page = decode_page(&body, self.transform);
        page.map_err(|source| Error::Decode { request: name, source })
    }

    async fn watch(&self, options: &WatchOptions) -> Result<WatchBody<K>, Error> {
        let timeout = options.timeout.as_secs().to_string();
        let query = [
            ("watch", "true"),
            ("allowWatchBookmarks", "true"),
            ("resourceVersion", &options.resource_version),
            ("timeoutSeconds", &timeout),
        ];
        let (name, mut request) = self.request("watch", &query)?;
        // Newer servers compress each event by itself, which a stream decompressor cuts short.
        request.headers_mut().insert(header::ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        let response = self.client.open(&name, request, OPEN_TIMEOUT).await?;
        Ok(WatchBody {
            request: name,
            body: response.into_body(),
            last_byte: Instant::now(),
            lines: Lines::default(),
            transform: self.transform,
            _kind: PhantomData,
        })
    }
}

impl<K> fmt::Debug for ListWatch<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ListWatch").field("resource", &self.resource).finish_non_exhaustive()
    }
}

/// An open watch over the network.
pub struct WatchBody<K> {
    request: String,
    body: Body,
    /// When the stream last said something: kept here, so that a dropped `next` does not start it anew.
    last_byte: Instant,
    lines: Lines,
    transform: Option<fn(&mut K)>,
    _kind: PhantomData<fn() -> K>,
}

// === impl WatchBody ===

impl<K: Object> WatchStream<K> for WatchBody<K> {
    async fn next(&mut self) -> Option<Result<WatchEvent<K>, Error>> {
        loop {
            if let Some(line) = self.lines.next() {
                return Some(self.event(&line));
            }
            if self.lines.pending() > LINE_MAX {
                return Some(Err(Error::LineTooLong { request: self.request.clone(), max: LINE_MAX }));
            }
            let frame = match tokio::time::timeout_at(self.last_byte + IDLE_TIMEOUT, self.body.frame()).await
            {
                Err(_) => {
                    return Some(Err(Error::Timeout { request: self.request.clone(), after: IDLE_TIMEOUT }));
                }
                Ok(None) => return None,
                Ok(Some(Err(e))) => {
                    let request = self.request.clone();
                    return Some(Err(Error::Transport { request, source: Box::new(e) }));
                }
                Ok(Some(Ok(frame))) => frame,
            };
            self.last_byte = Instant::now();
            if let Ok(data) = frame.into_data() {
                self.lines.push(&data);
            }
        }
    }
}

impl<K: Object> WatchBody<K> {
    fn event(&self, line: &[u8]) -> Result<WatchEvent<K>, Error> {
        let mut event = decode_event::<K>(line).map_err(|e| match e {
            EventError::Decode(source) => Error::Decode { request: self.request.clone(), source },
            EventError::Status(status) => Error::Status { request: self.request.clone(), status },
        })?;
        if let (
            Some(transform),
            WatchEvent::Added(Ok(o)) | WatchEvent::Modified(Ok(o)) | WatchEvent::Deleted(Ok(o)),
        ) = (self.transform, &mut event)
        {
            transform(o);
        }
        Ok(event)
    }
}

impl<K> fmt::Debug for WatchBody<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WatchBody").field("request", &self.request).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
