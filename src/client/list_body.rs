//! The body of a list, read while it arrives; a client may ask for a compressed one.
//!
//! Flow: API server -> **list_body** -> items, one by one; then the metadata of the list
//!
//! # Guarantees
//! - A compressed list has the same items, and a truncated one is an error. (test: `compressed_list_has_the_same_items`)
//! - After a damaged one, lists are asked for uncompressed for a while. (test: `damaged_list_is_asked_for_uncompressed`)
//! - The limits of lengths hold for what a compressed body decodes to. (test: `compressed_bomb_ends_after_bounded_bytes`)
//! - `idle` limits the wait for the head and for each chunk. All waits together may take a second more for each 4 KiB.
//!   (test: `a_silent_list_times_out`, `dripping_list_times_out`, `a_slow_list_has_the_time_that_it_needs`)

use std::time::Duration;

use bytes::Bytes;
use http::Request;
use http_body_util::BodyExt;
use kube_client::client::Body;
use tokio::time::Instant;

use super::error::broken;
use super::gzip::Arrived;
use super::layers::AnswerBody;
use super::list_items::{LENGTH_MAX, ListItems, ListMeta};
use super::protobuf::envelope::is_protobuf;
use super::protobuf::items::ListMessages;
use super::{ApiClient, Error};

/// The slowest that a list may arrive, in bytes per second: a server that drips must not hold its kind for ever.
const RATE_MIN: usize = 4 << 10;

/// What cuts the body into items.
#[derive(Debug)]
enum Items {
    Json(ListItems),
    Protobuf(ListMessages),
}

/// An open list; see the module.
#[derive(Debug)]
pub(crate) struct ListBody {
    client: ApiClient,
    request: String,
    method: http::Method,
    body: AnswerBody,
    idle: Duration,
    items: Items,
    arrived: Arrived,
    has_ended: bool,
    received: usize,
    /// How long the server was waited for.
    waited: Duration,
}

impl ApiClient {
    /// Sends the request of a list.
    ///
    /// # Errors
    /// [`Error`]; an answer other than success is [`Error::Status`].
    pub(crate) async fn open_list(
        &self,
        name: &str,
        request: Request<Body>,
        idle: Duration,
    ) -> Result<ListBody, Error> {
        let mut request = request;
        self.accept_compressed(&mut request);
        let method = request.method().clone();
        let response = self.open(name, request, idle).await?;
        let arrived = Arrived::new(response.headers())
            .map_err(|source| Error::Decode { request: name.to_owned(), source })?;
        let items = match is_protobuf(response.headers()) {
            true => Items::Protobuf(ListMessages::default()),
            false => Items::Json(ListItems::default()),
        };
        let (client, request) = (self.clone(), name.to_owned());
        let body = response.into_body();
        Ok(ListBody {
            client,
            request,
            method,
            body,
            idle,
            items,
            arrived,
            has_ended: false,
            received: 0,
            waited: Duration::ZERO,
        })
    }
}

// === impl Items ===

impl Items {
    fn push(&mut self, data: &[u8]) {
        match self {
            Self::Json(items) => items.push(data),
            Self::Protobuf(items) => items.push(data),
        }
    }

    fn next(&mut self) -> Result<Option<Bytes>, serde_json::Error> {
        match self {
            Self::Json(items) => Ok(items.next()),
            Self::Protobuf(items) => items.next(),
        }
    }

    fn is_overlong(&self) -> bool {
        match self {
            Self::Json(items) => items.is_overlong(),
            Self::Protobuf(items) => items.is_overlong(),
        }
    }

    fn finish(self) -> Result<ListMeta, serde_json::Error> {
        match self {
            Self::Json(items) => items.finish(),
            Self::Protobuf(items) => items.finish(),
        }
    }
}

// === impl ListBody ===

impl ListBody {
    /// Returns whether the items are protobuf; otherwise they are JSON.
    pub(crate) fn is_protobuf(&self) -> bool {
        matches!(self.items, Items::Protobuf(_))
    }

    /// Returns the bytes of the next item, or `None` after the last one.
    ///
    /// # Errors
    /// [`Error`]: the connection broke or was silent for too long, or an item is too long.
    pub(crate) async fn next(&mut self) -> Result<Option<Bytes>, Error> {
        loop {
            let item = self.items.next();
            if let Some(item) =
                item.map_err(|source| Error::Decode { request: self.request.clone(), source })?
            {
                return Ok(Some(item));
            }
            if self.items.is_overlong() {
                return Err(Error::TooLong { request: self.request.clone(), max: LENGTH_MAX });
            }
            let is_compressed = self.arrived.is_compressed();
            if self.decode().map_err(|source| Error::Decode { request: self.request.clone(), source })? {
                if is_compressed {
                    // A piece may decode to megabytes.
                    tokio::task::yield_now().await;
                }
                continue;
            }
            if self.has_ended {
                return Ok(None);
            }
            // A chunk that has already arrived must not keep other tasks from running.
            tokio::task::coop::consume_budget().await;
            let (asked, left) = (Instant::now(), self.allowed().saturating_sub(self.waited));
            let frame = tokio::time::timeout(self.idle.min(left), self.body.frame()).await;
            self.waited += asked.elapsed();
            match frame {
                Err(_) => return Err(self.client.timed_out(&self.request, self.idle)),
                Ok(None) => self.has_ended = true,
                Ok(Some(Err(error))) => return Err(broken(&self.request, Box::new(error))),
                Ok(Some(Ok(frame))) => {
                    if let Ok(data) = frame.into_data() {
                        self.received += data.len();
                        self.arrived.push(data);
                    }
                }
            }
        }
    }

    /// How long all waits together may take: the more has arrived, the longer.
    fn allowed(&self) -> Duration {
        self.idle + Duration::from_secs((self.received / RATE_MIN) as u64)
    }

    /// Passes on a part of what has arrived; returns `false` if there is nothing more.
    fn decode(&mut self) -> Result<bool, serde_json::Error> {
        let decoded = self.arrived.next().inspect_err(|_| self.client.compressed_was_damaged())?;
        match &decoded {
            Some(piece) => self.items.push(piece),
            None if self.has_ended => {
                self.arrived.finish().inspect_err(|_| self.client.compressed_was_damaged())?;
            }
            None => {}
        }
        Ok(decoded.is_some())
    }

    /// Returns the number of bytes so far, as they came over the network.
    pub(crate) fn received(&self) -> usize {
        self.received
    }

    /// Returns the metadata, after the last item.
    ///
    /// # Errors
    /// [`Error::Decode`] if the answer is not a complete list.
    pub(crate) fn finish(self) -> Result<ListMeta, Error> {
        self.client.received(&self.method, self.received);
        let request = self.request;
        self.items.finish().map_err(|source| Error::Decode { request, source })
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use futures_util::stream;
    use http::{Response, header};
    use http_body_util::StreamBody;
    use kube_client::Client;

    use super::*;
    use crate::testing::gzipped;

    /// Reads a compressed body that arrives in pieces of this size: its items, and how it ended.
    async fn read(body: Vec<u8>, size: usize) -> (Vec<String>, Result<ListMeta, Error>) {
        let service = tower::service_fn(move |request: Request<Body>| {
            assert_eq!(request.headers()[header::ACCEPT_ENCODING], "gzip");
            let frame =
                |piece: &[u8]| Ok::<_, Infallible>(http_body::Frame::data(Bytes::copy_from_slice(piece)));
            let frames: Vec<_> = body.chunks(size).map(frame).collect();
            let response = Response::builder().header(header::CONTENT_ENCODING, "gzip");
            std::future::ready(Ok::<_, Infallible>(
                response.body(StreamBody::new(stream::iter(frames))).unwrap(),
            ))
        });
        let client = ApiClient::new(Client::new(service, "default")).with_compressed_lists(true);
        let request = Request::get("/api/v1/pods").body(Body::empty()).unwrap();
        let mut list = client.open_list("list pods", request, Duration::from_secs(60)).await.unwrap();
        let mut items = Vec::new();
        loop {
            match list.next().await {
                Ok(Some(item)) => items.push(String::from_utf8(item.to_vec()).unwrap()),
                Ok(None) => return (items, list.finish()),
                Err(error) => return (items, Err(error)),
            }
        }
    }

    #[tokio::test]
    async fn compressed_list_has_the_same_items() {
        let pods: Vec<String> =
            (0..500).map(|at| format!(r#"{{"metadata":{{"name":"pod-{at}"}}}}"#)).collect();
        let text = format!(r#"{{"items":[{}],"metadata":{{"resourceVersion":"7"}}}}"#, pods.join(","));
        let body = gzipped(text.as_bytes());
        assert!(body.len() * 5 < text.len(), "{} of {} bytes", body.len(), text.len());
        for size in [1, 7, 100, body.len()] {
            let (items, meta) = read(body.clone(), size).await;
            assert_eq!((items, meta.unwrap().resource_version), (pods.clone(), "7".to_owned()), "{size}");
        }
        for end in [0, 1, 9, body.len() / 2, body.len() - 9, body.len() - 1] {
            let (_, meta) = read(body[..end].to_vec(), 100).await;
            assert!(meta.is_err(), "{end} of {} bytes", body.len());
        }
        let (_, meta) = read([&body[..], b"more"].concat(), 100).await;
        assert!(meta.is_err(), "something follows");
    }

    #[tokio::test(start_paused = true)]
    async fn damaged_list_is_asked_for_uncompressed() {
        let service = tower::service_fn(|request: Request<Body>| {
            let is_compressed =
                request.headers().get(header::ACCEPT_ENCODING).is_some_and(|all| all == "gzip");
            let response = match is_compressed {
                true => Response::builder().header(header::CONTENT_ENCODING, "gzip"),
                false => Response::builder(),
            };
            let body = r#"{"items":[],"metadata":{"resourceVersion":"7"}}"#;
            std::future::ready(Ok::<_, Infallible>(
                response.body(Body::from(body.as_bytes().to_vec())).unwrap(),
            ))
        });
        let client = ApiClient::new(Client::new(service, "default")).with_compressed_lists(true);
        let list = async || {
            let request = Request::get("/api/v1/pods").body(Body::empty()).unwrap();
            let mut list = client.open_list("list pods", request, Duration::from_secs(60)).await?;
            while list.next().await?.is_some() {}
            list.finish()
        };
        assert!(matches!(list().await, Err(Error::Decode { .. })));
        assert_eq!(list().await.unwrap().resource_version, "7");
        tokio::time::advance(Duration::from_secs(30 * 60)).await;
        assert!(list().await.is_err(), "whatever damaged it may be gone, and is not");
    }

    #[tokio::test]
    async fn compressed_bomb_ends_after_bounded_bytes() {
        let start = r#"{"items":[{"metadata":{"name":""#;
        let bomb = gzipped([start.as_bytes(), &vec![b'a'; 10 * LENGTH_MAX]].concat());
        assert!(bomb.len() < LENGTH_MAX / 10);
        let (items, meta) = read(bomb, usize::MAX).await;
        assert!(items.is_empty() && matches!(meta, Err(Error::TooLong { .. })), "{meta:?}");
    }
}
