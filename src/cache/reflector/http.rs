//! Lists and watches one kind over the network: the cache's only requests to the API server.
//!
//! Mirrors client-go `tools/cache/listwatch.go` (`ListWatch`) and `rest/watch`.
//! Flow: API server -> **http** -> reflector -> fifo
//!
//! # How it works
//! The body of a list is decoded while it arrives, item by item; an item that the store already has is
//! recognised by its uid and version and not decoded again. List items and frames of a watch are decoded
//! straight into the caller's type; the transform runs next, before the object is shared. A type that can be
//! read from [protobuf](crate::client::protobuf) is asked for as such, and read as what the server answers.
//!
//! # Guarantees
//! - A list request carries its version, selectors and page limit. (test: `list_request_carries_version_selector_and_limit`)
//! - A list is decoded while it arrives, and other tasks run meanwhile. (test: `list_is_decoded_while_it_arrives`)
//! - An unchanged item is not decoded again. (test: `unchanged_item_is_not_decoded_again`)
//! - An item that does not decode does not affect the others. (test: `undecodable_item_does_not_affect_others`)
//! - A silent stream ends after 90 s. (test: `silent_stream_times_out`)
//! - A dropped wait does not extend the timeout of a silent stream. (test: `dropped_wait_does_not_extend_idle_timeout`)
//! - Of several shards, only the objects of those that are asked for are returned, also by a server that does not know
//!   shards. (test: `objects_of_other_shards_are_skipped`)
//! - The length of a frame is limited. (test: `overlong_line_is_an_error`, `endless_protobuf_ends_after_bounded_bytes`)
//! - A compressed stream has the same events, however many members and pieces it comes in; after a damaged one, lists
//!   are asked for uncompressed for a while. (test: `compressed_stream_has_the_same_events`, `damaged_stream_is_asked_for_uncompressed`)
//! - A server is asked for metadata only if the type has nothing else, and for protobuf if the type is read from it.
//!   (test: `metadata_type_asks_for_metadata_only`, `only_kinds_with_protobuf_are_asked_for_it`)
//!
//! # Differences from client-go
//! There is an idle timeout: a server sends a bookmark every minute, so after 90 s without a byte the
//! peer is considered dead (TCP keepalive does not notice a stopped process).

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderValue, Request, header};
use http_body_util::BodyExt;
use kube_client::client::Body;
use tokio::time::Instant;

use super::list_watch::{
    ListOptions, Listed, ListerWatcher, Page, Selection, Traffic, Version, WatchEvent, WatchOptions,
    WatchStart, WatchStream,
};
use super::wire::{EventError, Frames, decode_event, object_of_event};
use crate::api::ApiResource;
use crate::api::shards::ShardSet;
use crate::cache::object::cached::Cached;
use crate::cache::object::decode;
use crate::cache::object::function_id::FunctionId;
use crate::cache::object::{Object, TypedObject};
use crate::cache::store::Store;
use crate::client::list_items::ListMeta;
use crate::client::protobuf::Message;
use crate::client::protobuf::envelope::{self, Encoding};
use crate::client::{AnswerBody, ApiClient, Arrived, Error, METADATA_OF_LIST, METADATA_OF_ONE};

/// How long a watch may be silent: a server sends a bookmark every minute.
pub(super) const IDLE_TIMEOUT: Duration = Duration::from_secs(90);
/// How long a list response may be silent, before its first byte and between chunks. The whole response
/// may take minutes.
const LIST_IDLE_TIMEOUT: Duration = Duration::from_secs(60);
/// How long the server may take to open a watch.
const OPEN_TIMEOUT: Duration = Duration::from_secs(30);
/// Maximum length of a frame of a watch: etcd accepts 1.5 MiB per object, and JSON escapes take more.
const FRAME_MAX: usize = 16 << 20;

/// Changes an object after decoding, before it is shared: usually to drop unused fields. It runs once per
/// object, must be quick and must keep the metadata.
pub struct Transform<K> {
    function: Arc<dyn Fn(&mut K) + Send + Sync>,
    id: FunctionId,
}

// === impl Transform ===

impl<K> Transform<K> {
    /// Wraps a function or closure.
    #[must_use]
    pub fn new<F: Fn(&mut K) + Send + Sync + 'static>(function: F) -> Self {
        Self { id: FunctionId::of(&function), function: Arc::new(function) }
    }

    /// Returns the identity of the function, by which two requests for the same transform are recognised.
    pub(in crate::cache) fn id(&self) -> FunctionId {
        self.id
    }

    fn apply(&self, object: &mut K) {
        (self.function)(object);
    }
}

impl<K> Clone for Transform<K> {
    fn clone(&self) -> Self {
        Self { function: self.function.clone(), id: self.id }
    }
}

impl<K> fmt::Debug for Transform<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Transform").finish_non_exhaustive()
    }
}

/// Lists and watches one kind over the network, in all namespaces unless told otherwise.
pub struct ListWatch<K> {
    client: ApiClient,
    resource: ApiResource,
    selection: Selection,
    transform: Option<Transform<K>>,
    traffic: Traffic,
}

// === impl ListWatch ===

impl<K: Object> ListWatch<K> {
    /// Creates a source for all objects of the type's kind.
    #[must_use]
    pub fn new(client: ApiClient) -> Self
    where
        K: TypedObject,
    {
        Self::of(client, ApiResource::of::<K>())
    }

    /// Creates a source for all objects of a kind that is known at run time.
    #[must_use]
    pub fn of(client: ApiClient, resource: ApiResource) -> Self {
        Self {
            client,
            resource,
            selection: Selection::default(),
            transform: None,
            traffic: Traffic::default(),
        }
    }

    /// Limits the source to these objects.
    #[must_use]
    pub fn with_selection(mut self, selection: Selection) -> Self {
        self.selection = selection;
        self
    }

    /// Sets what is done with each object after decoding.
    #[must_use]
    pub fn with_transform(mut self, transform: Option<Transform<K>>) -> Self {
        self.transform = transform;
        self
    }

    fn request(
        &self,
        verb: &str,
        query: &[(&str, &str)],
        shards: Option<&ShardSet>,
    ) -> Result<(String, Request<Body>), Error> {
        let accept = match (K::is_metadata_only(), verb) {
            (false, _) if self.protobuf().is_some() => envelope::ACCEPT,
            (false, _) => "application/json",
            (true, "list") => METADATA_OF_LIST,
            (true, _) => METADATA_OF_ONE,
        };
        let mut pairs = form_urlencoded::Serializer::new(String::new());
        for (name, selector) in [
            ("labelSelector", &self.selection.label_selector),
            ("fieldSelector", &self.selection.field_selector),
        ] {
            if let Some(selector) = selector {
                pairs.append_pair(name, selector);
            }
        }
        if let Some(selector) = shards.and_then(ShardSet::selector) {
            pairs.append_pair("shardSelector", &selector);
        }
        pairs.extend_pairs(query);
        let name = format!("{verb} {}", self.resource);
        let uri = format!("{}?{}", self.resource.path(self.selection.namespace.as_deref()), pairs.finish());
        let request = Request::get(uri)
            .header(header::ACCEPT, HeaderValue::from_static(accept))
            // A client may ask for compressed lists.
            .header(header::ACCEPT_ENCODING, HeaderValue::from_static("identity"))
            .body(Body::empty())
            .map_err(|e| Error::Transport { request: name.clone(), source: Box::new(e) })?;
        Ok((name, request))
    }

    /// Returns the message to decode from, if protobuf is asked for.
    fn protobuf(&self) -> Option<&'static Message> {
        K::protobuf().filter(|_| self.client.reads_protobuf())
    }

    /// Returns how the objects of an answer are encoded.
    fn encoding(&self, is_protobuf: bool) -> Encoding {
        self.protobuf().filter(|_| is_protobuf).map_or(Encoding::Json, Encoding::Protobuf)
    }

    /// Decodes an item; `None` if it is in none of the shards.
    fn listed(
        &self,
        encoding: Encoding,
        item: &[u8],
        stored: Option<&Store<K>>,
        shards: Option<&ShardSet>,
    ) -> Result<Option<Listed<K>>, serde_json::Error> {
        if (stored.is_some() || shards.is_some())
            && let Some(identity) = decode::identity(encoding, item)
        {
            if shards.is_some_and(|shards| {
                !shards.has_namespace(identity.namespace.as_deref().unwrap_or_default())
            }) {
                self.traffic.skipped();
                return Ok(None);
            }
            if let Some(name) = stored.and_then(|stored| stored.has_version(&identity)) {
                return Ok(Some(Listed::Unchanged(name)));
            }
        }
        let mut decoded = decode::decode_from::<K>(encoding, item)?;
        if let (Some(transform), Ok(object)) = (&self.transform, &mut decoded) {
            transform.apply(object);
        }
        Ok(Some(Listed::Changed(Cached::new(decoded))))
    }
}

impl<K: Object> ListerWatcher<K> for ListWatch<K> {
    type Watch = WatchBody<K>;

    fn resource(&self) -> ApiResource {
        self.resource.clone()
    }

    fn selection(&self) -> Selection {
        self.selection.clone()
    }

    async fn list(&self, options: &ListOptions, stored: &Store<K>) -> Result<Page<K>, Error> {
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
        let shards = options.shards.as_deref().filter(|shards| !shards.is_all());
        let (name, request) = self.request("list", &query, shards)?;
        let mut list = self.client.open_list(&name, request, LIST_IDLE_TIMEOUT).await?;
        let encoding = self.encoding(list.is_protobuf());
        // The first list finds an empty store.
        let stored = Some(stored).filter(|stored| !stored.is_empty());
        let mut items = Vec::new();
        while let Some(item) = list.next().await? {
            let listed = self.listed(encoding, &item, stored, shards);
            items.extend(listed.map_err(|source| Error::Decode { request: name.clone(), source })?);
        }
        self.traffic.listed(list.received());
        let ListMeta { resource_version, continue_token } = list.finish()?;
        Ok(Page { items, resource_version, continue_token })
    }

    fn can_stream_lists(&self) -> bool {
        self.client.can_stream_lists(&self.resource)
    }

    fn cannot_stream_lists(&self) {
        self.client.cannot_stream_lists(&self.resource);
    }

    async fn server_is_back(&self, asked: Instant) {
        self.client.is_back(asked).await;
    }

    fn traffic(&self) -> Traffic {
        self.traffic.clone()
    }

    async fn watch(&self, options: &WatchOptions) -> Result<WatchBody<K>, Error> {
        let timeout = options.timeout.as_secs().to_string();
        let mut query =
            vec![("watch", "true"), ("allowWatchBookmarks", "true"), ("timeoutSeconds", timeout.as_str())];
        match &options.start {
            WatchStart::After(version) => query.push(("resourceVersion", version)),
            WatchStart::InitialEvents(version) => {
                query.push(("sendInitialEvents", "true"));
                query.push(("resourceVersionMatch", "NotOlderThan"));
                if let Version::NotOlderThan(version) = version {
                    query.push(("resourceVersion", version));
                }
            }
        }
        let shards = options.shards.clone().filter(|shards| !shards.is_all());
        let (name, mut request) = self.request("watch", &query, shards.as_deref())?;
        if matches!(options.start, WatchStart::InitialEvents(_)) {
            self.client.accept_compressed(&mut request);
        }
        let response = self.client.open(&name, request, OPEN_TIMEOUT).await?;
        let arrived = Arrived::new(response.headers())
            .map_err(|source| Error::Decode { request: name.clone(), source })?;
        let encoding = self.encoding(envelope::is_protobuf(response.headers()));
        Ok(WatchBody {
            client: self.client.clone(),
            request: name,
            body: response.into_body(),
            arrived,
            last_byte: Instant::now(),
            encoding,
            frames: Frames::of(encoding),
            transform: self.transform.clone(),
            shards,
            traffic: self.traffic.clone(),
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
    client: ApiClient,
    request: String,
    body: AnswerBody,
    arrived: Arrived,
    /// When data last arrived; kept here so that dropping `next` does not extend the timeout.
    last_byte: Instant,
    encoding: Encoding,
    frames: Frames,
    transform: Option<Transform<K>>,
    /// The shards of the objects; `None` for all.
    shards: Option<Arc<ShardSet>>,
    traffic: Traffic,
    _kind: PhantomData<fn() -> K>,
}

// === impl WatchBody ===

impl<K: Object> WatchStream<K> for WatchBody<K> {
    async fn next(&mut self) -> Option<Result<WatchEvent<K>, Error>> {
        loop {
            if let Some(frame) = self.frames.next() {
                if self.is_of_others(&frame) {
                    self.traffic.skipped();
                    continue;
                }
                return Some(self.event(&frame));
            }
            if self.frames.pending() > FRAME_MAX {
                return Some(Err(Error::TooLong { request: self.request.clone(), max: FRAME_MAX }));
            }
            match self.arrived.next() {
                Ok(None) => {}
                Ok(Some(piece)) => {
                    self.frames.push(&piece);
                    continue;
                }
                Err(source) => return Some(Err(self.damaged(source))),
            }
            let frame = match tokio::time::timeout_at(self.last_byte + IDLE_TIMEOUT, self.body.frame()).await
            {
                Err(_) => {
                    return Some(Err(Error::Timeout { request: self.request.clone(), after: IDLE_TIMEOUT }));
                }
                Ok(None) => return self.arrived.finish().err().map(|source| Err(self.damaged(source))),
                Ok(Some(Err(e))) => {
                    let request = self.request.clone();
                    return Some(Err(Error::Transport { request, source: Box::new(e) }));
                }
                Ok(Some(Ok(frame))) => frame,
            };
            self.last_byte = Instant::now();
            if let Ok(data) = frame.into_data() {
                self.traffic.watched(data.len());
                self.arrived.push(data);
            }
        }
    }

    fn is_compressed(&self) -> bool {
        self.arrived.is_compressed()
    }
}

impl<K: Object> WatchBody<K> {
    fn damaged(&self, source: serde_json::Error) -> Error {
        self.client.compressed_was_damaged();
        Error::Decode { request: self.request.clone(), source }
    }

    /// Whether the event is about an object in none of the shards.
    fn is_of_others(&self, frame: &[u8]) -> bool {
        let Some(shards) = &self.shards else { return false };
        object_of_event(self.encoding, frame)
            .and_then(|object| decode::identity(self.encoding, object))
            .is_some_and(|identity| !shards.has_namespace(identity.namespace.as_deref().unwrap_or_default()))
    }

    fn event(&self, frame: &[u8]) -> Result<WatchEvent<K>, Error> {
        let mut event = decode_event::<K>(self.encoding, frame).map_err(|e| match e {
            EventError::Decode(source) => Error::Decode { request: self.request.clone(), source },
            EventError::Status(status) => Error::Status { request: self.request.clone(), status },
        })?;
        if let (
            Some(transform),
            WatchEvent::Added(Ok(o)) | WatchEvent::Modified(Ok(o)) | WatchEvent::Deleted(Ok(o)),
        ) = (&self.transform, &mut event)
        {
            transform.apply(o);
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
