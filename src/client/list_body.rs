//! The body of a list, read while it arrives.
//!
//! Flow: API server -> **list_body** -> items, one by one; then the metadata of the list
//!
//! # Guarantees
//! - `idle` limits the wait for the head and for each chunk, not the whole download. (test: `a_silent_list_times_out`)

use std::time::Duration;

use bytes::Bytes;
use http::Request;
use http_body_util::BodyExt;
use kube_client::client::Body;

use super::list_items::{LENGTH_MAX, ListItems, ListMeta};
use super::{ApiClient, Error};

/// An open list; see the module.
#[derive(Debug)]
pub(crate) struct ListBody {
    client: ApiClient,
    request: String,
    method: http::Method,
    body: Body,
    idle: Duration,
    items: ListItems,
    received: usize,
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
        let method = request.method().clone();
        let body = self.open(name, request, idle).await?.into_body();
        let (client, request, items) = (self.clone(), name.to_owned(), ListItems::default());
        Ok(ListBody { client, request, method, body, idle, items, received: 0 })
    }
}

// === impl ListBody ===

impl ListBody {
    /// Returns the JSON of the next item, or `None` after the last one.
    ///
    /// # Errors
    /// [`Error`]: the connection broke or was silent for too long, or an item is too long.
    pub(crate) async fn next(&mut self) -> Result<Option<Bytes>, Error> {
        loop {
            if let Some(item) = self.items.next() {
                return Ok(Some(item));
            }
            if self.items.is_overlong() {
                return Err(Error::TooLong { request: self.request.clone(), max: LENGTH_MAX });
            }
            // A chunk that has already arrived must not keep other tasks from running.
            tokio::task::coop::consume_budget().await;
            match tokio::time::timeout(self.idle, self.body.frame()).await {
                Err(_) => return Err(self.client.silent(&self.request, self.idle)),
                Ok(None) => return Ok(None),
                Ok(Some(Err(error))) => return Err(self.client.lost(&self.request, Box::new(error))),
                Ok(Some(Ok(frame))) => {
                    if let Ok(data) = frame.into_data() {
                        self.received += data.len();
                        self.items.push(&data);
                    }
                }
            }
        }
    }

    /// Returns the number of bytes so far.
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
