//! What the reflector needs of the API server: list pages and watches.
//!
//! Mirrors client-go `tools/cache/listwatch.go` (`ListerWatcher`).
//! Flow: API server -> **list_watch** -> reflector -> fifo
//!
//! [`ListWatch`](crate::cache::ListWatch) implements [`ListerWatcher`] over the network, the tests' `FakeSource`
//! without a server.
//!
//! # Differences from client-go
//! An error inside a stream ends it as an `Err`, never as an object. A list does not deliver again what
//! the store has.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::api::ApiResource;
use crate::api::shards::ShardSet;
pub use crate::cache::health::Traffic;
use crate::cache::object::Object;
use crate::cache::object::decode::Decoded;
use crate::cache::store::Store;
pub use crate::cache::store::fifo::Listed;
use crate::client::Error;

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
    /// The shards of the objects; `None` for all. The source returns no other objects.
    pub shards: Option<Arc<ShardSet>>,
}

/// One page of a list.
#[derive(Debug)]
pub struct Page<K: Object> {
    /// The objects.
    pub items: Vec<Listed<K>>,
    /// Version of the list.
    pub resource_version: String,
    /// Token of the next page, if there is one.
    pub continue_token: Option<String>,
}

/// Where a watch begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WatchStart {
    /// After this version.
    After(String),
    /// With an [`Added`](WatchEvent::Added) for each object of the state that this version asks for, in no particular
    /// order, then a bookmark that ends them: a streaming list.
    InitialEvents(Version),
}

/// Options of a watch request.
#[derive(Clone, Debug)]
pub struct WatchOptions {
    /// Where it begins.
    pub start: WatchStart,
    /// How long the server keeps the watch open.
    pub timeout: Duration,
    /// The shards of the objects; `None` for all. The source sends no event of another object.
    pub shards: Option<Arc<ShardSet>>,
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
    Bookmark {
        /// The version.
        resource_version: String,
        /// Whether this bookmark ends the initial events of [`WatchStart::InitialEvents`].
        ends_initial_events: bool,
    },
}

/// An open watch.
pub trait WatchStream<K>: Send {
    /// Returns the next event, `None` when the server ended the stream, or an error when it broke.
    ///
    /// # Cancel safety
    /// Must be safe: a caller that drops the future and calls again must not lose an event or a deadline.
    fn next(&mut self) -> impl Future<Output = Option<Result<WatchEvent<K>, Error>>> + Send;

    /// Returns whether the response is compressed. The reflector does not follow such a stream beyond its list, because
    /// servers compress each later event separately, which costs both sides more than it saves.
    fn is_compressed(&self) -> bool {
        false
    }
}

/// The objects of a kind that a source lists and watches: all, by default.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selection {
    /// Namespace; `None` for all.
    pub namespace: Option<String>,
    /// Label selector, applied by the server.
    pub label_selector: Option<String>,
    /// Field selector, applied by the server.
    pub field_selector: Option<String>,
}

/// Lists and watches one kind.
pub trait ListerWatcher<K: Object>: Send + Sync + 'static {
    /// An open watch.
    type Watch: WatchStream<K>;

    /// Returns the kind.
    fn resource(&self) -> ApiResource;

    /// Returns which of its objects are listed and watched.
    fn selection(&self) -> Selection {
        Selection::default()
    }

    /// Fetches one page. Objects that `stored` has with the same uid and version may be returned as
    /// [`Listed::Unchanged`].
    fn list(
        &self,
        options: &ListOptions,
        stored: &Store<K>,
    ) -> impl Future<Output = Result<Page<K>, Error>> + Send;

    /// Whether lists are to be the beginning of a watch, [`WatchStart::InitialEvents`], instead of pages.
    fn can_stream_lists(&self) -> bool {
        false
    }

    /// Called when the server has refused [`WatchStart::InitialEvents`].
    fn cannot_stream_lists(&self) {}

    /// Returns the bytes received; a source that does not count them returns zeros.
    fn traffic(&self) -> Traffic {
        Traffic::default()
    }

    /// Waits until a server that did not answer for a while serves a request, of any kind; returns at once if it has
    /// since `asked`. A source that cannot tell waits for ever.
    fn server_is_back(&self, asked: Instant) -> impl Future<Output = ()> + Send {
        let _ = asked;
        std::future::pending()
    }

    /// Opens a watch.
    fn watch(&self, options: &WatchOptions) -> impl Future<Output = Result<Self::Watch, Error>> + Send;
}
