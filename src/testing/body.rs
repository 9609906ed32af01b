//! Reads the body of an answer as the cache does, without a server: for tests and fuzzing of what a server may send.
//!
//! Flow: pieces of a body -> **body** -> [`ListWatch`] -> events, or a page
//!
//! # Guarantees
//! - The result does not depend on how the body is cut into pieces. (test: `pieces_do_not_change_the_result`)

use bytes::Bytes;
use futures_util::{StreamExt, stream};
use http::{Request, Response, header};
use http_body_util::{BodyExt, Full, StreamBody};
use kube_client::Client;
use kube_client::client::Body;

use crate::cache::list_watch::{
    ListOptions, ListerWatcher, Page, Version, WatchEvent, WatchOptions, WatchStart, WatchStream,
};
use crate::cache::{Indexers, ListWatch, TypedObject, store};
use crate::client::{ApiClient, Error};

/// How a body is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Media {
    /// JSON.
    Json,
    /// Kubernetes' protobuf, which only types with [`Object::protobuf`](crate::cache::Object::protobuf) are read from.
    Protobuf,
}

/// Reads the pieces as the answer to a watch. Returns its events, and the error that ended it; `None` if the body ended.
pub async fn watch_body<K: TypedObject>(
    media: Media,
    pieces: impl IntoIterator<Item = Bytes, IntoIter: Send + 'static>,
) -> (Vec<WatchEvent<K>>, Option<Error>) {
    let options = WatchOptions {
        start: WatchStart::After("1".to_owned()),
        timeout: std::time::Duration::from_secs(300),
        shards: None,
    };
    let mut events = Vec::new();
    let mut watch = match source::<K>(media, pieces).watch(&options).await {
        Ok(watch) => watch,
        Err(error) => return (events, Some(error)),
    };
    while let Some(event) = watch.next().await {
        match event {
            Ok(event) => events.push(event),
            Err(error) => return (events, Some(error)),
        }
    }
    (events, None)
}

/// Reads the pieces as the answer to a list, into an empty store.
///
/// # Errors
/// The error of the list: there is no part of a page.
pub async fn list_body<K: TypedObject>(
    media: Media,
    pieces: impl IntoIterator<Item = Bytes, IntoIter: Send + 'static>,
) -> Result<Page<K>, Error> {
    let options = ListOptions { version: Version::Newest, limit: None, continue_token: None, shards: None };
    source::<K>(media, pieces).list(&options, &store::pair(Indexers::default()).0).await
}

/// Returns a source whose server answers the first request with these pieces.
pub(crate) fn source<K: TypedObject>(
    media: Media,
    pieces: impl IntoIterator<Item = Bytes, IntoIter: Send + 'static>,
) -> ListWatch<K> {
    let media = match media {
        Media::Json => "application/json",
        Media::Protobuf => "application/vnd.kubernetes.protobuf",
    };
    let mut pieces = Some(pieces.into_iter());
    let service = tower::service_fn(move |_: Request<Body>| {
        let pieces = stream::iter(pieces.take().into_iter().flatten());
        let frames = pieces.filter_map(|piece| async { Full::new(piece).frame().await });
        let response = Response::builder().header(header::CONTENT_TYPE, media);
        std::future::ready(response.body(StreamBody::new(frames)))
    });
    ListWatch::new(ApiClient::new(Client::new(service, "default")))
}
