//! Lists and watches one kind until shutdown, and pushes every change to the FIFO.
//!
//! Mirrors client-go `tools/cache/reflector.go` (`Reflector`) and `tools/pager`; `docs/cache.md` lists the differences.
//! Flow: API server -> **reflector** -> fifo -> pump -> store, handlers
//! Chapter 2 of `docs/book` builds this from nothing.
//!
//! | how a list or watch ended | next |
//! |---|---|
//! | the stream ended (its timeout), was silent for 90 s, or broke; or it is compressed, and its list is complete | watch again at once from the last version; list after 5 broken streams in a row without an event |
//! | an event older than the last version | not queued; list with the version unset after a backoff |
//! | a stream ended within 1 s | watch again after a backoff |
//! | a relist was requested, or the process holds other shards | list at once with the version unset |
//! | opening: no connection, 429, 5xx | watch again from the same version after a backoff; list after 5 times 5xx |
//! | opening: 403, the permission to watch is missing | list after 20 to 40 s: the cache is late, but does not stand still |
//! | 410 at the start or in the stream | list, not older than the last version, after a backoff |
//! | the list: 410, a version from the future, or older than the last one | list at once with the version unset |
//! | 404 or 403: the kind or the permission is missing | list again after 10 to 30 s |
//! | 404 or 403 soon after a lost connection: the server is starting | the same request again after a backoff |
//! | no connection, and then another request of this process was served | the same request again within 1 s |
//! | anything else | list again after a backoff |
//!
//! # Guarantees
//! - The first list is a consistent read; later lists request the last version or a newer one. (test: `first_list_is_newest_and_relist_never_older`)
//! - A watch resumes from the last version after a dropped stream, without a list. (test: `resumes_after_dropped_stream`)
//! - An older event is not applied; a list of the newest state replaces the cache. (test: `older_event_causes_list_of_newest_state`)
//! - A 410 causes a relist, which finds deletions that the watch missed. (test: `gone_means_relist`)
//! - A partial list is never published. (test: `failed_page_publishes_nothing`, `partial_stream_publishes_nothing`)
//! - Lists are streamed only if the source does that; a server that cannot is asked for pages, and for a stream again later; a compressed one ends with its list. (test: `server_without_streaming_lists_is_asked_for_pages`, `compressed_stream_ends_with_its_list`)
//! - A change of the shards causes a list of the newest state; without a shard nothing is asked for. (test: `change_of_shards_causes_list_of_newest_state`, `objects_of_a_regained_shard_are_added_again`)
//! - A requested relist reads the newest state; requests made before it begins are merged. (test: `pending_relist_requests_are_merged`)

mod backoff;
pub(super) mod http;
pub mod list_watch;
mod streamed;
mod wire;

use std::cmp::Ordering;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use self::backoff::Backoff;
use self::list_watch::{
    ListOptions, Listed, ListerWatcher, Page, Version, WatchEvent, WatchOptions, WatchStart, WatchStream,
};
use self::streamed::Streamed;
use super::health::{Health, ListReason, ReflectorHealth, ReflectorPhase};
use super::object::Object;
use super::object::cached::Cached;
use super::object::decode::Decoded;
use super::object::object_name::ObjectName;
use super::object::version;
use super::store::Store;
use super::store::fifo::{Delta, Fifo};
use crate::api::shards::ShardSet;
use crate::client::Error;
use crate::client::shards::{CacheShards, Scope};

/// Objects per page, ten times client-go's: for each page, Kubernetes 1.37 collects all the remaining objects, so short pages
/// make a long list expensive. Much longer ones might not arrive within the minute that the server allows a request.
const PAGE_SIZE: u32 = 5_000;
/// A watch lasts one to two times this long, at random, so that watches do not all end at once.
const WATCH_TIMEOUT_MIN: Duration = Duration::from_secs(300);
/// A stream that ends sooner than this without an event counts as a failure.
const VERY_SHORT_WATCH: Duration = Duration::from_secs(1);
/// Broken streams in a row without an event before a list is tried: a proxy may be unable to deliver the
/// pending events.
const FRUITLESS_MAX: u32 = 5;
/// Range of the delay before a missing kind or permission is tried again.
const MISSING_MIN: Duration = Duration::from_secs(10);
const MISSING_MAX: Duration = Duration::from_secs(30);
/// How often a kind is listed that may be listed and not watched.
const DENIED_MIN: Duration = Duration::from_secs(20);
const DENIED_MAX: Duration = Duration::from_secs(40);
/// Openings of a watch in a row that the server may answer with 5xx before a list is tried: it may have lost
/// the version, but be able to list.
const REFUSED_MAX: u32 = 5;
/// How long a streaming list may send no further object before its end.
const INITIAL_EVENTS_SILENCE: Duration = Duration::from_secs(60);
/// How much time each further object earns the list, up to that: where the server never tells the end, the objects that
/// are created meanwhile look like those of the list.
const INITIAL_EVENTS_PACE: Duration = Duration::from_millis(100);
/// How long a restarted server may answer 403 or 404 because it has not loaded roles and kinds yet.
const STARTING: Duration = Duration::from_secs(15);
/// Over which time the reflectors of a process ask again when the server is back.
const BACK_SPREAD: Duration = Duration::from_secs(1);

/// Is called with failures of a list or watch.
///
/// Mirrors `WatchErrorHandler`.
#[derive(Clone)]
pub struct WatchErrorHandler(pub Arc<dyn Fn(&Error) + Send + Sync>);

impl fmt::Debug for WatchErrorHandler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WatchErrorHandler").finish_non_exhaustive()
    }
}

/// Feeds a FIFO from a source; see the module.
#[derive(Debug)]
pub struct Reflector<K: Object, L> {
    /// The kind, `plural.group`.
    kind: String,
    source: L,
    fifo: Arc<Fifo<K>>,
    /// What is known of the objects, to recognise unchanged ones in a list.
    store: Store<K>,
    /// Version of the last queued change; `None` before the first list.
    last_version: Option<String>,
    /// Whether the last version is unusable, so that the next list reads the newest state.
    last_version_unusable: bool,
    /// Whether the next list is read in pages.
    distrusts_streams: bool,
    /// Holds a permit while a relist is requested.
    relist: Arc<Notify>,
    /// When a request last got no answer, or a stream broke.
    lost: Option<Instant>,
    /// Whether the last request failed for want of a connection.
    is_unanswered: bool,
    /// When the last request was made.
    asked: Instant,
    /// Number of streams in a row that broke without an event.
    fruitless: u32,
    /// Number of openings in a row that were answered with 5xx.
    refused: u32,
    backoff: Backoff,
    /// The delays after requests without an answer, which an outage makes long; those after answers are not.
    reconnect: Backoff,
    random: fastrand::Rng,
    /// Why the next list is made.
    reason: ListReason,
    health: Health,
    on_watch_error: Option<WatchErrorHandler>,
    /// `None` to list and watch all objects.
    shards: Option<CacheShards>,
    /// What the last list asked for.
    scope: Option<Scope>,
}

/// The next step, and the delay before it.
enum Next<W> {
    List(Duration),
    Watch(Duration),
    /// Go on with the stream of a list.
    Follow(W),
    /// List when the process holds a shard.
    Idle,
}

/// How a streaming list failed.
enum StreamingFailure {
    /// Read pages instead.
    ReadPages,
    /// List again after this delay.
    Again(Duration),
}

// === impl Reflector ===

impl<K: Object, L: ListerWatcher<K>> Reflector<K, L> {
    /// Creates a reflector, which is idle until [`run`](Self::run). `store` is the one that the
    /// FIFO is applied to. `seed` makes delays and timeouts repeatable.
    #[must_use]
    pub fn new(source: L, fifo: Arc<Fifo<K>>, store: Store<K>, seed: u64) -> Self {
        let mut random = fastrand::Rng::with_seed(seed);
        let [backoff, reconnect] = [(); 2].map(|()| Backoff::new(random.fork()));
        let kind = source.resource().to_string();
        let health = Health::new(kind.clone(), ReflectorHealth::default());
        Self {
            kind,
            source,
            fifo,
            store,
            last_version: None,
            last_version_unusable: false,
            distrusts_streams: false,
            relist: Arc::default(),
            lost: None,
            is_unanswered: false,
            asked: Instant::now(),
            fruitless: 0,
            refused: 0,
            backoff,
            reconnect,
            random,
            reason: ListReason::First,
            health,
            on_watch_error: None,
            shards: None,
            scope: None,
        }
    }

    /// Keeps its state in `shared`, for readers.
    pub(crate) fn reporting(mut self, shared: ReflectorHealth) -> Self {
        self.health = Health::new(self.kind.clone(), shared);
        self
    }

    /// Lists the newest state each time `relist` is notified.
    pub(crate) fn relisting(mut self, relist: Arc<Notify>) -> Self {
        self.relist = relist;
        self
    }

    /// Lists and watches the objects of the shards that the process holds, and lists anew when these change.
    pub(crate) fn sharded(mut self, shards: Option<CacheShards>) -> Self {
        self.shards = shards;
        self
    }

    /// Tells `handler` of failures.
    pub(crate) fn telling(mut self, handler: Option<WatchErrorHandler>) -> Self {
        self.on_watch_error = handler;
        self
    }

    /// Lists and watches until `shutdown`; then returns at the next await and drops the open stream.
    pub async fn run(mut self, shutdown: CancellationToken) {
        tokio::select! {
            biased;
            () = shutdown.cancelled() => {}
            () = self.list_and_watch_forever() => {}
        }
    }

    async fn list_and_watch_forever(&mut self) {
        let mut next = Next::List(Duration::ZERO);
        loop {
            next = match next {
                Next::List(delay) => {
                    self.pause(delay).await;
                    self.list().await
                }
                Next::Watch(delay) => {
                    self.pause(delay).await;
                    self.watch().await
                }
                Next::Follow(stream) => self.follow(stream).await,
                Next::Idle => {
                    self.health.is(ReflectorPhase::Idle);
                    scope_changed(self.shards.as_ref(), self.scope.as_ref()).await;
                    Next::List(Duration::ZERO)
                }
            };
        }
    }

    /// Waits before the next request. A wait for a connection ends early when the server serves anybody again.
    async fn pause(&mut self, delay: Duration) {
        if delay.is_zero() {
            return;
        }
        let until = Instant::now() + delay;
        self.health.is(ReflectorPhase::BackingOff(until));
        tokio::select! {
            biased;
            () = tokio::time::sleep_until(until) => {}
            () = self.source.server_is_back(self.asked), if self.is_unanswered => {
                self.reconnect.start_over();
                let soon = Instant::now() + self.reconnect.spread(Duration::ZERO, BACK_SPREAD);
                tokio::time::sleep_until(until.min(soon)).await;
            }
        }
    }

    async fn list(&mut self) -> Next<L::Watch> {
        self.health.is(ReflectorPhase::Listing);
        self.asked = Instant::now();
        // This list serves a relist request made before it.
        if self.relist.notified().now_or_never().is_some() {
            self.requested_relist();
        }
        self.fifo.drained().await;
        self.begin_scope().await;
        if self.scope.as_ref().is_some_and(|scope| scope.set.is_empty()) {
            // Before the first shard, the cache is complete without any object.
            let resource_version = self.last_version.clone().unwrap_or_else(|| "0".to_owned());
            let objects = Vec::new();
            self.fifo.push(Delta::ReplacedAll { objects, resource_version, authoritative: true }).await;
            self.end_scope().await;
            return Next::Idle;
        }
        let version = match &self.last_version {
            Some(version) if !self.last_version_unusable => Version::NotOlderThan(version.clone()),
            _ => Version::Newest,
        };
        if !self.distrusts_streams && self.source.can_stream_lists() {
            match self.stream_list(version.clone()).await {
                Ok((stream, listed)) => {
                    let is_compressed = stream.is_compressed();
                    let next = if is_compressed { Next::Watch(Duration::ZERO) } else { Next::Follow(stream) };
                    self.publish(listed, version == Version::Newest).await;
                    return next;
                }
                Err(StreamingFailure::Again(delay)) => return Next::List(delay),
                Err(StreamingFailure::ReadPages) => {}
            }
        }
        let mut authoritative = version == Version::Newest;
        let mut outcome = self.list_all(version).await;
        let is_of_no_use = match &outcome {
            Err(error) => is_about_version(error),
            Ok((_, listed)) => self.is_older_than_last(listed),
        };
        if is_of_no_use && !authoritative {
            self.distrust_version();
            authoritative = true;
            outcome = self.list_all(Version::Newest).await;
        }
        match outcome {
            Ok(listed) => {
                self.publish(listed, authoritative).await;
                Next::Watch(Duration::ZERO)
            }
            Err(error) => Next::List(self.delay(&error)),
        }
    }

    /// Notes what the next list asks for. What another process has written in a shard that it held is only in a list of
    /// the newest state.
    async fn begin_scope(&mut self) {
        let scope = self.shards.as_ref().map(CacheShards::scope);
        if self.scope == scope {
            return;
        }
        self.because(ListReason::Shards);
        self.last_version_unusable = true;
        let earlier = std::mem::replace(&mut self.scope, scope);
        if let (Some(now), Some(earlier), Some(version)) = (&self.scope, earlier, &self.last_version) {
            let has_regained =
                |name: &ObjectName| now.has_regained(name.namespace().unwrap_or_default(), &earlier);
            let (gone, kept): (Vec<_>, Vec<_>) = self.store.names().into_iter().partition(has_regained);
            if !gone.is_empty() {
                // Keys of the shard were dropped meanwhile. The handlers hear of its objects again only as new ones.
                let objects = kept.into_iter().map(Listed::Unchanged).collect();
                let resource_version = version.clone();
                self.fifo.push(Delta::ReplacedAll { objects, resource_version, authoritative: true }).await;
                self.fifo.drained().await;
            }
        }
    }

    /// Reports that the store has what the last list asked for.
    async fn end_scope(&mut self) {
        if let (Some(shards), Some(scope)) = (&self.shards, &self.scope)
            && !shards.is_listed(scope)
        {
            self.fifo.drained().await;
            shards.has_listed(scope);
        }
    }

    /// Returns the shards that requests ask for.
    fn set(&self) -> Option<Arc<ShardSet>> {
        self.scope.as_ref().map(|scope| scope.set.clone())
    }

    /// Whoever asks for a relist has found that the watch lost an event: neither the last version nor another stream is
    /// to be trusted.
    fn requested_relist(&mut self) {
        self.because(ListReason::Requested);
        self.last_version_unusable = true;
        self.distrusts_streams = true;
    }

    /// Records why the next list is made; the first one needs no reason.
    fn because(&mut self, reason: ListReason) {
        if self.last_version.is_some() {
            self.reason = reason;
        }
    }

    /// Queues a complete list.
    async fn publish(&mut self, (objects, resource_version): (Vec<Listed<K>>, String), authoritative: bool) {
        tracing::debug!(kind = %self.kind, objects = objects.len(), resource_version, "Listed");
        self.last_version_unusable = false;
        self.distrusts_streams = false;
        self.was_answered();
        self.refused = 0;
        let is_unreadable = |listed: &&Listed<K>| matches!(listed, Listed::Changed(Cached::Unreadable(_)));
        self.health.undecodable(objects.iter().filter(is_unreadable).count());
        let delta = Delta::ReplacedAll { objects, resource_version: resource_version.clone(), authoritative };
        self.fifo.push(delta).await;
        self.last_version = Some(resource_version);
        self.health.listed(self.reason);
        self.end_scope().await;
    }

    fn is_older_than_last(&self, listed: &str) -> bool {
        self.last_version.as_ref().is_some_and(|last| version::is_older(listed, last))
    }

    fn distrust_version(&mut self) {
        tracing::debug!(
            kind = %self.kind,
            "Listing with the version unset, because the last version is unusable"
        );
        self.last_version_unusable = true;
    }

    /// Reads all objects as the beginning of a watch, and returns the open watch with them.
    async fn stream_list(
        &mut self,
        version: Version,
    ) -> Result<(L::Watch, (Vec<Listed<K>>, String)), StreamingFailure> {
        let is_newest = version == Version::Newest;
        let start = WatchStart::InitialEvents(version);
        let timeout = self.watch_timeout();
        let mut stream = match self.source.watch(&WatchOptions { start, timeout, shards: self.set() }).await {
            Ok(stream) => stream,
            Err(error) => return Err(self.stream_failed(&error, is_newest)),
        };
        let mut objects = Streamed::new();
        let first_deadline = Instant::now() + INITIAL_EVENTS_SILENCE;
        let mut deadline = first_deadline;
        loop {
            let event = match tokio::time::timeout_at(deadline, stream.next()).await {
                Ok(Some(Ok(event))) => event,
                Ok(Some(Err(error))) => return Err(self.stream_failed(&error, is_newest)),
                // A server that shuts down ends the stream, too.
                Ok(None) if Instant::now() < first_deadline => return Err(StreamingFailure::ReadPages),
                Ok(None) | Err(_) => {
                    self.source.cannot_stream_lists();
                    return Err(StreamingFailure::ReadPages);
                }
            };
            match event {
                WatchEvent::Added(object) | WatchEvent::Modified(object) => {
                    if objects.put(Listed::of(Cached::new(object), &self.store)) {
                        deadline =
                            (deadline + INITIAL_EVENTS_PACE).min(Instant::now() + INITIAL_EVENTS_SILENCE);
                    }
                }
                WatchEvent::Deleted(object) => {
                    objects.remove(&Cached::new(object).object_name());
                }
                WatchEvent::Bookmark { resource_version, ends_initial_events: true } => {
                    if !is_newest && self.is_older_than_last(&resource_version) {
                        self.distrust_version();
                        return Err(StreamingFailure::Again(Duration::ZERO));
                    }
                    self.health.works();
                    return Ok((stream, (objects.into_objects(), resource_version)));
                }
                // Bookmarks say nothing about the end.
                WatchEvent::Bookmark { .. } => {}
            }
        }
    }

    fn stream_failed(&mut self, error: &Error, is_newest: bool) -> StreamingFailure {
        if is_about_version(error) && !is_newest {
            self.distrust_version();
            return StreamingFailure::Again(Duration::ZERO);
        }
        if error.is_connection() || error.is_too_many_requests() || self.is_starting(error) {
            return StreamingFailure::Again(self.delay(error));
        }
        self.health.answered(error);
        tracing::debug!(
            kind = %self.kind,
            error = error as &dyn std::error::Error,
            "Could not stream the list; reading it in pages"
        );
        if error.status().is_some_and(|status| matches!(status.code, 400 | 405 | 422)) {
            self.source.cannot_stream_lists();
        }
        StreamingFailure::ReadPages
    }

    /// Reads all pages. Only a list of the newest state is paged: the server's watch cache serves other
    /// lists whole, and a page size would make the server read etcd.
    async fn list_all(&self, version: Version) -> Result<(Vec<Listed<K>>, String), Error> {
        let limit = (version == Version::Newest).then_some(PAGE_SIZE);
        let mut options = ListOptions { version, limit, continue_token: None, shards: self.set() };
        let first = self.source.list(&options, &self.store).await?;
        let Page { mut items, resource_version, mut continue_token } = first;
        while let Some(token) = continue_token.take() {
            options.continue_token = Some(token);
            let page = match self.source.list(&options, &self.store).await {
                Err(error) if error.is_expired() => {
                    drop(items);
                    options = ListOptions { limit: None, continue_token: None, ..options };
                    let whole = self.source.list(&options, &self.store).await?;
                    return Ok((whole.items, whole.resource_version));
                }
                page => page?,
            };
            items.extend(page.items);
            continue_token = page.continue_token;
        }
        Ok((items, resource_version))
    }

    fn watch_timeout(&mut self) -> Duration {
        WATCH_TIMEOUT_MIN.mul_f64(1.0 + self.random.f64())
    }

    async fn watch(&mut self) -> Next<L::Watch> {
        let Some(from) = self.last_version.clone() else { return Next::List(Duration::ZERO) };
        let timeout = self.watch_timeout();
        self.health.is(ReflectorPhase::Connecting);
        self.asked = Instant::now();
        let start = WatchStart::After(from);
        match self.source.watch(&WatchOptions { start, timeout, shards: self.set() }).await {
            Ok(stream) => Next::Follow(stream),
            Err(error) => self.watch_not_opened(&error),
        }
    }

    async fn follow(&mut self, mut stream: L::Watch) -> Next<L::Watch> {
        let started = Instant::now();
        self.was_answered();
        self.refused = 0;
        self.health.works();
        self.health.is(ReflectorPhase::Watching);
        let mut events = 0_u64;
        loop {
            let next = tokio::select! {
                biased;
                () = self.relist.notified() => {
                    tracing::debug!(kind = %self.kind, "Relisting on request");
                    self.requested_relist();
                    return Next::List(Duration::ZERO);
                }
                () = scope_changed(self.shards.as_ref(), self.scope.as_ref()) => {
                    return Next::List(Duration::ZERO);
                }
                event = stream.next() => event,
            };
            match next {
                Some(Ok(event)) => {
                    events += 1;
                    if !self.pass_on(event).await {
                        return Next::List(self.backoff.step());
                    }
                    self.fruitless = 0;
                }
                Some(Err(error)) if !error.is_connection() => return self.watch_ended(&error),
                ended => {
                    let broke = ended.and_then(Result::err);
                    return self.watch_closed(broke.as_ref(), events == 0, started.elapsed());
                }
            }
        }
    }

    /// Queues an event, then records its version. An event older than the last version is a replay, or the
    /// server was restored from a backup: the event is not queued, and `false` asks for a list of the newest
    /// state.
    async fn pass_on(&mut self, event: WatchEvent<K>) -> bool {
        self.health.received(matches!(event, WatchEvent::Bookmark { .. }));
        let (version, delta) = match event {
            WatchEvent::Bookmark { resource_version, .. } => {
                (resource_version.clone(), Delta::Bookmark(resource_version))
            }
            WatchEvent::Added(object) => versioned(object, Delta::Added),
            WatchEvent::Modified(object) => versioned(object, Delta::Updated),
            WatchEvent::Deleted(object) => versioned(object, Delta::Deleted),
        };
        match self.last_version.as_ref().and_then(|last| version::compare(&version, last)) {
            Some(Ordering::Less) => {
                tracing::warn!(
                    kind = %self.kind,
                    version,
                    "The server sent an event older than the last version; relisting"
                );
                self.last_version_unusable = true;
                self.because(ListReason::OlderEvent);
                return false;
            }
            // A bookmark may repeat the last version; any other event that does is a replay.
            Some(Ordering::Equal) if !matches!(delta, Delta::Bookmark(_)) => return true,
            Some(Ordering::Equal | Ordering::Greater) | None => {}
        }
        if let Delta::Added(object) | Delta::Updated(object) | Delta::Deleted(object) = &delta {
            self.health.undecodable(usize::from(object.readable().is_none()));
        }
        self.fifo.push(delta).await;
        self.last_version = Some(version);
        true
    }

    /// Handles a stream that ended, or broke with an error: the next stream resumes at the last version.
    fn watch_closed(&mut self, broke: Option<&Error>, was_empty: bool, lasted: Duration) -> Next<L::Watch> {
        if let Some(error) = broke {
            tracing::debug!(kind = %self.kind, error = error as &dyn std::error::Error, "Watch stream broke");
            self.lost = Some(Instant::now());
            // A quiet collection is silent, too, behind a proxy that drops bookmarks.
            self.fruitless += u32::from(was_empty && !matches!(error, Error::Timeout { .. }));
        }
        if self.fruitless >= FRUITLESS_MAX {
            self.fruitless = 0;
            self.because(ListReason::BrokenStreams);
            return Next::List(self.backoff.step());
        }
        Next::Watch(match lasted < VERY_SHORT_WATCH {
            true if was_empty => self.backoff.step(),
            true => self.backoff.spread(VERY_SHORT_WATCH, 2 * VERY_SHORT_WATCH),
            false => Duration::ZERO,
        })
    }

    fn watch_not_opened(&mut self, error: &Error) -> Next<L::Watch> {
        self.because(reason_of(error));
        if error.is_too_large_resource_version() {
            self.last_version_unusable = true;
            return Next::List(self.delay(error));
        }
        let delay = self.delay(error);
        if error.status().is_some_and(|status| status.code >= 500) {
            self.refused += 1;
            if self.refused >= REFUSED_MAX {
                self.refused = 0;
                self.because(ListReason::Refused);
                return Next::List(delay);
            }
            return Next::Watch(delay);
        }
        if error.is_forbidden() && !self.is_starting(error) {
            return Next::List(delay.max(self.backoff.spread(DENIED_MIN, DENIED_MAX)));
        }
        let same_again = error.is_connection() || error.is_too_many_requests() || self.is_starting(error);
        if same_again { Next::Watch(delay) } else { Next::List(delay) }
    }

    fn watch_ended(&mut self, error: &Error) -> Next<L::Watch> {
        self.because(reason_of(error));
        let delay = self.delay(error);
        if error.is_too_many_requests() { Next::Watch(delay) } else { Next::List(delay) }
    }

    /// Logs the error and returns the delay before the next request. An expired version is routine and
    /// logged only at debug level.
    fn delay(&mut self, error: &Error) -> Duration {
        self.health.answered(error);
        if let Some(WatchErrorHandler(handler)) = &self.on_watch_error {
            handler(error);
        }
        let is_starting = self.is_starting(error);
        self.was_answered();
        self.is_unanswered = error.is_connection();
        let delay = if self.is_unanswered {
            self.reconnect.step()
        } else if is_missing(error) && !is_starting {
            self.backoff.spread(MISSING_MIN, MISSING_MAX)
        } else {
            self.backoff.step().max(error.retry_after().unwrap_or_default())
        };
        if error.is_expired() || is_starting {
            tracing::debug!(
                kind = %self.kind,
                error = error as &dyn std::error::Error,
                delay = delay.as_secs_f32(),
                "List or watch failed; retrying"
            );
        } else {
            self.health.failed(error, delay);
        }
        delay
    }

    /// Records that a request was answered: the server, if it was lost, is back and may be starting.
    fn was_answered(&mut self) {
        if std::mem::take(&mut self.is_unanswered) {
            self.lost = Some(Instant::now());
        }
    }

    fn is_starting(&self, error: &Error) -> bool {
        let was_just_lost = self.lost.is_some_and(|lost| lost.elapsed() < STARTING);
        is_missing(error) && (self.is_unanswered || was_just_lost)
    }
}

/// Waits until the process holds other shards than the last list asked for.
async fn scope_changed(shards: Option<&CacheShards>, scope: Option<&Scope>) {
    match (shards, scope) {
        (Some(shards), Some(scope)) => shards.changed(scope).await,
        _ => std::future::pending().await,
    }
}

/// Returns whether the server cannot list at the requested version.
fn is_about_version(error: &Error) -> bool {
    error.is_expired() || error.is_too_large_resource_version()
}

fn reason_of(error: &Error) -> ListReason {
    if is_about_version(error) { ListReason::Expired } else { ListReason::Error }
}

/// Returns whether the kind or the permission is missing.
fn is_missing(error: &Error) -> bool {
    error.is_not_found() || error.is_forbidden()
}

fn versioned<K: Object>(object: Decoded<K>, delta: fn(Cached<K>) -> Delta<K>) -> (String, Delta<K>) {
    let object = Cached::new(object);
    (object.resource_version().to_owned(), delta(object))
}

#[cfg(test)]
mod tests;
