//! Fetches list pages and opens watches: the cache's only requests to the API server.
//!
//! Mirrors client-go `tools/cache/listwatch.go`.
//! Flow: API server -> **list_watch** -> reflector -> fifo
//!
//! # How it works
//! [`ListWatch`] implements [`ListerWatcher`] with raw requests, the tests' `FakeSource` without a
//! server. List items and watch lines are decoded straight into the caller's type; the transform runs
//! next, before the object is shared.
//!
//! # Guarantees
//! - A list request carries its version, selector and page limit. (test: `list_request_carries_version_selector_and_limit`)
//! - A silent stream ends after [`IDLE_TIMEOUT`]. (test: `silent_stream_times_out`)
//! - A resync does not extend the timeout of a silent stream. (test: `dropped_wait_does_not_extend_idle_timeout`)
//! - The length of a line is limited. (test: `overlong_line_is_an_error`)
//!
//! # Differences from client-go
//! An error inside a stream ends it as an `Err`, never as an object. There is an idle timeout: a server
//! sends a bookmark every minute, so after 90 s without a byte the peer is considered dead (TCP
//! keepalive does not notice a stopped process).

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

/// How long a watch may be silent: a server sends a bookmark every minute.
pub const IDLE_TIMEOUT: Duration = Duration::from_secs(90);
/// How long a list response may be silent, before its first byte and between chunks. The whole response
/// may take minutes.
const LIST_IDLE_TIMEOUT: Duration = Duration::from_secs(60);
/// How long the server may take to open a watch.
const OPEN_TIMEOUT: Duration = Duration::from_secs(30);
/// Maximum length of a watch line: etcd accepts 1.5 MiB per object, and JSON escapes take more.
const LINE_MAX: usize = 16 << 20;

/// The resource version that a list requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Version {
    /// The newest state: version unset, a consistent read.
    Newest,
    /// This version or a newer one.
    NotOlderThan(String),
}

/// Options of a request for one list page.
#[derive(Clone, Debug)]
pub struct ListOptions {
    /// The requested version; pages after the first follow the token instead.
    pub version: Version,
    /// Page size; `None` for all objects in one page.
    pub limit: Option<u32>,
    /// Token from the previous page.
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

/// Options of a watch request.
#[derive(Clone, Debug)]
pub struct WatchOptions {
    /// The version after which events start.
    pub resource_version: String,
    /// How long the server keeps the watch open.
    pub timeout: Duration,
}

/// An event from a watch.
#[derive(Debug)]
pub enum WatchEvent<K> {
    /// The object was added.
    Added(Decoded<K>),
    /// The object was modified.
    Modified(Decoded<K>),
    /// The object was deleted; this is its last state.
    Deleted(Decoded<K>),
    /// Nothing changed up to this version.
    Bookmark(String),
}

/// An open watch.
pub trait WatchStream<K>: Send {
    /// Returns the next event, `None` when the server ended the stream, or an error when it broke.
    ///
    /// # Cancel safety
    /// Must be safe: a resync drops the future and calls again, and must not lose an event or a deadline.
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

/// Lists and watches one kind over the network.
pub struct ListWatch<K> {
    client: ApiClient,
    resource: ApiResource,
    namespace: Option<String>,
    label_selector: Option<String>,
    transform: Option<fn(&mut K)>,
}

// === impl ListWatch ===

impl<K: Object> ListWatch<K> {
    /// Creates a source for one namespace, or for all with `None`. The transform runs once per object,
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
        // Newer servers compress each event separately, which a stream decompressor truncates.
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
    /// When data last arrived; kept here so that dropping `next` does not extend the timeout.
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
