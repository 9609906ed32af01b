use std::convert::Infallible;

use ::http::{Request, Response, header};
use futures_util::{StreamExt, stream};
use http_body_util::StreamBody;
use k8s_openapi::api::core::v1::ConfigMap;
use kube_client::client::Body;
use parking_lot::Mutex;

use super::*;
use crate::api::shards::{Division, Sharding};
use crate::cache::Indexers;
use crate::cache::ListWatch;
use crate::cache::store;
use crate::client::ApiClient;
use crate::client::shards::{Change, Phase, Shards};
use crate::testing::{FakeSource, config_map, connection_error, gzipped, status_error};

/// A reflector over a source, and the FIFO that it fills.
struct Rig<S = FakeSource<ConfigMap>> {
    source: S,
    fifo: Arc<Fifo<ConfigMap>>,
    running: std::pin::Pin<Box<dyn Future<Output = ()> + Send>>,
}

impl Rig {
    fn new(source: FakeSource<ConfigMap>) -> Self {
        let fifo = Arc::new(Fifo::new("config maps"));
        let (store, _) = store::pair(Indexers::default());
        let reflector = Reflector::new(source.clone(), fifo.clone(), store, 7);
        Self { source, fifo, running: Box::pin(reflector.run(CancellationToken::new())) }
    }
}

impl<S> Rig<S> {
    /// Runs the reflector for `time` and returns the queued changes.
    async fn pass(&mut self, time: Duration) -> Vec<String> {
        let mut queued = Vec::new();
        let until = Instant::now() + time;
        loop {
            tokio::select! {
                biased;
                () = &mut self.running => unreachable!("the reflector is not shut down"),
                batch = self.fifo.pop_batch() => {
                    let batch = batch.unwrap();
                    self.fifo.processed(batch.is_initial_list);
                    queued.extend(batch.deltas.iter().map(short));
                }
                () = tokio::time::sleep_until(until) => return queued,
            }
        }
    }

    async fn settle(&mut self) -> Vec<String> {
        self.pass(Duration::from_millis(1)).await
    }
}

fn short(delta: &Delta<ConfigMap>) -> String {
    let name = |object: &Cached<ConfigMap>| object.object_name().name().to_owned();
    match delta {
        Delta::Added(object) => format!("+{}", name(object)),
        Delta::Updated(object) => format!("~{}", name(object)),
        Delta::Deleted(object) => format!("-{}", name(object)),
        Delta::ReplacedAll { objects, authoritative, .. } => {
            let names: Vec<String> =
                objects.iter().map(|object| object.object_name().name().to_owned()).collect();
            format!("all [{}]{}", names.join(" "), if *authoritative { "" } else { " not older" })
        }
        Delta::Bookmark(version) => format!("bookmark {version}"),
    }
}

fn bookmark(version: &str) -> WatchEvent<ConfigMap> {
    WatchEvent::Bookmark { resource_version: version.to_owned(), ends_initial_events: false }
}

fn with(names: &[&str]) -> FakeSource<ConfigMap> {
    let source = FakeSource::new();
    for name in names {
        source.put(config_map("ns", name, 0));
    }
    source
}

/// client-go: `TestReflectorListAndWatch`, `TestReflectorResyncWithResourceVersion`
#[tokio::test(start_paused = true)]
async fn first_list_is_newest_and_relist_never_older() {
    let mut rig = Rig::new(with(&["a"]));
    assert_eq!(rig.settle().await, ["all [a]"]);
    rig.source.put(config_map("ns", "b", 0));
    assert_eq!(rig.settle().await, ["+b"]);
    rig.source.break_watches(|| status_error(410, "Expired"));
    assert_eq!(rig.pass(Duration::from_secs(2)).await, ["all [a b] not older"]);
    assert_eq!(rig.source.requests(), ["list newest", "watch 1", "list >=2", "watch 2"]);
}

#[tokio::test(start_paused = true)]
async fn change_of_shards_causes_list_of_newest_state() {
    let (shards, source, fifo) = (
        Shards::new(Sharding { of: 2, by: Division::Hash }),
        with(&["a"]),
        Arc::new(Fifo::new("config maps")),
    );
    let (store, _) = store::pair(Indexers::default());
    let reflector = Reflector::new(source.clone(), fifo.clone(), store, 7).sharded(Some(shards.add_cache()));
    let mut rig = Rig { source, fifo, running: Box::pin(reflector.run(CancellationToken::new())) };
    assert_eq!(rig.pass(Duration::from_secs(600)).await, ["all []"]);
    assert!(rig.source.requests().is_empty(), "there is nothing to ask for");
    shards.acquired(&[0]);
    assert_eq!(rig.settle().await, ["all [a]"]);
    assert_eq!(shards.phases()[&0], Phase::Working);
    // It is lost and taken again at once: the cache may have missed the writes of another process.
    shards.gone(&[0], Change::Lost);
    shards.acquired(&[0]);
    assert_eq!(shards.phases()[&0], Phase::Listing);
    assert_eq!(rig.settle().await, ["all [a]"]);
    assert_eq!(shards.phases()[&0], Phase::Working);
    shards.gone(&[0], Change::Released);
    assert_eq!(rig.settle().await, ["all []"]);
    assert_eq!(rig.source.requests(), ["list newest", "watch 1", "list newest", "watch 1"]);
}

/// client-go: `TestReflectorListAndWatchWithErrors`
#[tokio::test(start_paused = true)]
async fn resumes_after_dropped_stream() {
    let mut rig = Rig::new(with(&["a"]));
    rig.settle().await;
    rig.pass(Duration::from_secs(5)).await;
    rig.source.close_watches();
    rig.source.put(config_map("ns", "b", 0));
    assert_eq!(rig.settle().await, ["+b"]);
    rig.pass(Duration::from_secs(5)).await;
    rig.source.break_watches(connection_error);
    rig.source.delete(&"ns/a".parse().unwrap());
    assert_eq!(rig.settle().await, ["-a"]);
    assert_eq!(rig.source.requests(), ["list newest", "watch 1", "watch 1", "watch 2"]);
}

/// client-go: `TestResetWatch`
#[tokio::test(start_paused = true)]
async fn gone_means_relist() {
    let mut rig = Rig::new(with(&["a", "b"]));
    rig.settle().await;
    rig.pass(Duration::from_secs(5)).await;
    rig.source.delete_unseen(&"ns/a".parse().unwrap());
    rig.source.compact();
    rig.source.close_watches();
    assert_eq!(rig.pass(Duration::from_secs(2)).await, ["all [b] not older"]);
    assert_eq!(rig.source.requests(), ["list newest", "watch 2", "watch 2", "list >=2", "watch 3"]);
}

/// A rig whose watch has ended, and whose server then answers nothing six times and after that fails with `errors`.
async fn after_an_outage(errors: impl IntoIterator<Item = Error>) -> Rig {
    let mut rig = Rig::new(with(&["a"]));
    rig.settle().await;
    rig.pass(Duration::from_secs(5)).await;
    let outage = std::iter::repeat_with(connection_error).take(6);
    rig.source.fail_watches(outage.chain(errors));
    rig.source.close_watches();
    rig
}

/// The store of a server that has just started is not read yet, and then the version is compacted.
#[tokio::test(start_paused = true)]
async fn answers_back_off_apart_from_connections() {
    let mut rig = after_an_outage([status_error(429, "TooManyRequests"), status_error(410, "Expired")]).await;
    while rig.source.requests().len() < 9 {
        assert_eq!(rig.pass(Duration::from_millis(100)).await, Vec::<String>::new());
    }
    let (first, second) = (Duration::from_millis(1600), Duration::from_millis(3200));
    assert_eq!(rig.pass(first + second).await, ["all [a] not older"]);
}

/// One backend of a load balancer is dead, the other is overloaded.
#[tokio::test(start_paused = true)]
async fn alternating_failures_back_off_to_the_cap() {
    let source = with(&["a"]);
    let error = |at: usize| if at.is_multiple_of(2) { connection_error() } else { status_error(429, "") };
    source.fail_watches((0..100).map(error));
    let mut rig = Rig::new(source);
    rig.pass(Duration::from_secs(300)).await;
    let before = rig.source.requests().len();
    rig.pass(Duration::from_secs(300)).await;
    let more = rig.source.requests().len() - before;
    assert!((5..=10).contains(&more), "{more} requests in 300 s, each 30 to 60 s after the one before");
}

#[tokio::test(start_paused = true)]
async fn waits_end_when_the_server_is_back() {
    let mut rig = after_an_outage([]).await;
    while rig.source.requests().len() < 8 {
        rig.pass(Duration::from_millis(100)).await;
    }
    rig.pass(BACK_SPREAD).await;
    assert_eq!(rig.source.open_watches(), 0, "the sixth wait takes 25.6 to 51.2 s");
    rig.source.put(config_map("ns", "b", 0));
    rig.source.come_back();
    assert_eq!(rig.pass(BACK_SPREAD).await, ["+b"]);
}

/// The wait after an answer has a reason of its own, also if the server was lost before.
#[tokio::test(start_paused = true)]
async fn the_return_of_the_server_ends_no_other_wait() {
    let mut rig = after_an_outage([]).await;
    while rig.source.open_watches() == 0 {
        rig.pass(Duration::from_secs(1)).await;
    }
    rig.pass(STARTING).await;
    let before = rig.source.requests().len();
    rig.source.fail_watches([status_error(403, "Forbidden")]);
    rig.source.close_watches();
    rig.settle().await;
    rig.source.come_back();
    rig.pass(Duration::from_secs(9)).await;
    assert_eq!(rig.source.requests().len(), before + 1, "a missing permission waits 20 to 40 s");
}

/// client-go: `TestReflectorExpiredExactResourceVersion`, `TestReflectorFullListIfTooLarge`
#[tokio::test(start_paused = true)]
async fn unusable_version_is_dropped_at_once() {
    let mut rig = Rig::new(with(&["a"]));
    rig.settle().await;
    rig.source.break_watches(|| status_error(410, "Expired"));
    rig.source.script_lists([Some(status_error(410, "Expired"))]);
    assert_eq!(rig.pass(Duration::from_secs(2)).await, ["all [a]"]);
    assert_eq!(rig.source.requests(), ["list newest", "watch 1", "list >=1", "list newest", "watch 1"]);
}

#[tokio::test(start_paused = true)]
async fn failed_page_publishes_nothing() {
    let source = with(&["a", "b", "c"]);
    source.page_size(2);
    source.script_lists([None, Some(connection_error())]);
    let mut rig = Rig::new(source);
    assert_eq!(rig.settle().await, Vec::<String>::new());
    assert_eq!(rig.pass(Duration::from_secs(2)).await, ["all [a b c]"]);
}

/// client-go: `TestReflectorFullListIfExpired`
#[tokio::test(start_paused = true)]
async fn expired_page_falls_back_to_full_list() {
    let source = with(&["a", "b", "c"]);
    source.page_size(2);
    source.script_lists([None, Some(status_error(410, "Expired"))]);
    let mut rig = Rig::new(source);
    assert_eq!(rig.settle().await, ["all [a b c]"]);
    assert_eq!(rig.source.requests(), ["list newest", "list next", "list newest", "watch 3"]);
}

/// client-go: `TestNoRelistOnTooManyRequests`, `TestReflectorListAndWatchInitConnBackoff`
#[tokio::test(start_paused = true)]
async fn too_many_requests_backs_off_without_a_relist() {
    let source = with(&["a"]);
    source.fail_watches([status_error(429, "TooManyRequests"), connection_error(), status_error(503, "")]);
    let mut rig = Rig::new(source);
    rig.pass(Duration::from_millis(799)).await;
    assert_eq!(rig.source.requests(), ["list newest", "watch 1"]);
    rig.pass(Duration::from_secs(20)).await;
    assert_eq!(rig.source.requests(), ["list newest", "watch 1", "watch 1", "watch 1", "watch 1"]);
}

#[tokio::test(start_paused = true)]
async fn retry_after_is_obeyed() {
    let source = with(&["a"]);
    let mut error = status_error(429, "TooManyRequests");
    if let Error::Status { status, .. } = &mut error {
        status.retry_after = Some(Duration::from_secs(40));
    }
    source.script_lists([Some(error)]);
    let mut rig = Rig::new(source);
    rig.pass(Duration::from_secs(39)).await;
    assert_eq!(rig.source.requests(), ["list newest"]);
    assert_eq!(rig.pass(Duration::from_secs(2)).await, ["all [a]"]);
}

#[tokio::test(start_paused = true)]
async fn missing_kind_retries_every_10_to_30_seconds() {
    let source = with(&["a"]);
    let missing = [404, 403, 404].map(|code| Some(status_error(code, "")));
    source.script_lists(missing);
    let mut rig = Rig::new(source);
    rig.pass(Duration::from_secs(9)).await;
    assert_eq!(rig.source.requests().len(), 1, "tried again before 10 s");
    rig.pass(Duration::from_secs(81)).await;
    assert_eq!(rig.source.requests().len(), 5, "three failures last 90 s at most; then list and watch");
}

#[tokio::test(start_paused = true)]
async fn denials_of_a_starting_server_cause_no_relist() {
    let source = with(&["a"]);
    source.fail_watches([connection_error(), status_error(403, "Forbidden"), status_error(404, "")]);
    let mut rig = Rig::new(source);
    rig.pass(Duration::from_secs(9)).await;
    assert_eq!(rig.source.requests(), ["list newest", "watch 1", "watch 1", "watch 1", "watch 1"]);
    assert_eq!(rig.source.open_watches(), 1);
}

/// The server is away for a minute, and answers 404 for a custom resource until it has read the definition.
#[tokio::test(start_paused = true)]
async fn kind_is_asked_for_again_at_once_when_the_server_is_back() {
    let source = with(&["a"]);
    let away = (0..7).map(|_| connection_error());
    source.fail_watches(away.chain([status_error(404, ""), status_error(404, "")]));
    let mut rig = Rig::new(source);
    while rig.source.requests().len() < 9 {
        rig.pass(Duration::from_secs(1)).await;
    }
    rig.pass(Duration::from_secs(6)).await;
    assert_eq!(rig.source.open_watches(), 1, "{:?}", rig.source.requests());
}

/// The server has lost the version, but can list.
#[tokio::test(start_paused = true)]
async fn watch_refused_with_5xx_leads_to_a_list() {
    let source = with(&["a"]);
    source.fail_watches((0..5).map(|_| status_error(500, "InternalError")));
    let mut rig = Rig::new(source);
    rig.pass(Duration::from_secs(120)).await;
    let mut expected = vec!["list newest"];
    expected.extend(["watch 1"; 5]);
    expected.extend(["list >=1", "watch 1"]);
    assert_eq!(rig.source.requests(), expected);
}

/// The permission was taken away, or never given.
#[tokio::test(start_paused = true)]
async fn kind_that_may_not_be_watched_is_listed_each_minute() {
    let source = with(&["a"]);
    source.fail_watches((0..4).map(|_| status_error(403, "Forbidden")));
    let mut rig = Rig::new(source);
    assert_eq!(rig.settle().await, ["all [a]"]);
    rig.source.put(config_map("ns", "b", 0));
    let lists = rig.pass(Duration::from_secs(60)).await;
    assert!((1..=3).contains(&lists.len()), "every 20 to 40 s: {lists:?}");
    assert_eq!(lists[0], "all [a b] not older");
    rig.pass(Duration::from_secs(240)).await;
    rig.source.put(config_map("ns", "c", 0));
    assert_eq!(rig.settle().await, ["+c"], "the permission was granted");
}

/// A proxy drops bookmarks, and nothing happens: each stream is silent until it times out.
#[tokio::test(start_paused = true)]
async fn silent_streams_cause_no_list() {
    let mut rig = Rig::new(with(&["a"]));
    rig.settle().await;
    for _ in 0..10 {
        rig.pass(Duration::from_secs(90)).await;
        let timeout = || Error::Timeout { request: "watch".to_owned(), after: Duration::from_secs(90) };
        rig.source.break_watches(timeout);
    }
    rig.settle().await;
    let requests = rig.source.requests();
    assert_eq!(requests.len(), 12);
    assert!(requests[1..].iter().all(|request| request == "watch 1"), "{requests:?}");
}

#[tokio::test(start_paused = true)]
async fn stream_of_one_event_is_reopened_after_a_pause() {
    let mut rig = Rig::new(with(&["a"]));
    rig.settle().await;
    for _ in 0..30 {
        rig.source.put(config_map("ns", "a", 0));
        rig.source.close_watches();
        rig.pass(Duration::from_secs(1)).await;
    }
    let watches = rig.source.requests().len() - 1;
    assert!((10..=30).contains(&watches), "{watches} watches in 30 s");
}

/// client-go: `TestReflectorHandleWatchResultChanClosedBefore`
#[tokio::test(start_paused = true)]
async fn a_very_short_watch_backs_off() {
    let mut rig = Rig::new(with(&["a"]));
    rig.settle().await;
    for _ in 0..5 {
        rig.source.close_watches();
        rig.settle().await;
    }
    assert_eq!(rig.source.requests(), ["list newest", "watch 1"]);
    rig.pass(Duration::from_secs(2)).await;
    assert_eq!(rig.source.requests(), ["list newest", "watch 1", "watch 1"]);
}

/// client-go: `TestReflectorResourceVersionUpdate`
#[tokio::test(start_paused = true)]
async fn bookmarks_advance_the_version() {
    let mut rig = Rig::new(with(&["a"]));
    rig.settle().await;
    rig.source.send(|| bookmark("40"));
    assert_eq!(rig.settle().await, ["bookmark 40"]);
    rig.source.send(|| bookmark("40"));
    assert_eq!(rig.pass(Duration::from_secs(2)).await, ["bookmark 40"], "nothing new is no replay");
    rig.source.close_watches();
    rig.pass(Duration::from_secs(2)).await;
    assert_eq!(rig.source.requests().last().unwrap(), "watch 40");
}

/// I11, R8, R18: a replay, or a store restored from a backup.
#[tokio::test(start_paused = true)]
async fn older_event_causes_list_of_newest_state() {
    let mut rig = Rig::new(with(&["a", "b", "c"]));
    rig.settle().await;
    rig.source.send(|| WatchEvent::Modified(Ok(config_map("ns", "c", 3))));
    assert_eq!(rig.settle().await, Vec::<String>::new(), "a repeated event");
    rig.source.send(|| WatchEvent::Added(Ok(config_map("ns", "ghost", 2))));
    assert_eq!(rig.pass(Duration::from_secs(2)).await, ["all [a b c]"]);
    rig.source.send(|| bookmark("1"));
    assert_eq!(rig.pass(Duration::from_secs(4)).await, ["all [a b c]"]);
    let lists = ["list newest", "watch 3", "list newest", "watch 3", "list newest", "watch 3"];
    assert_eq!(rig.source.requests(), lists);
}

#[tokio::test(start_paused = true)]
async fn repeatedly_broken_streams_cause_a_relist() {
    let mut rig = Rig::new(with(&["a"]));
    rig.settle().await;
    for _ in 0..5 {
        rig.pass(Duration::from_secs(60)).await;
        rig.source.break_watches(connection_error);
    }
    assert_eq!(rig.pass(Duration::from_secs(60)).await, ["all [a] not older"]);
}

/// client-go: `TestRunUntil`
#[tokio::test(start_paused = true)]
async fn shutdown_closes_the_watch() {
    let source = with(&["a"]);
    let fifo = Arc::new(Fifo::new("config maps"));
    let shutdown = CancellationToken::new();
    let mut running = Box::pin(
        Reflector::new(source.clone(), fifo, store::pair(Indexers::default()).0, 7).run(shutdown.clone()),
    );
    tokio::select! {
        biased;
        () = &mut running => unreachable!("the reflector is not shut down yet"),
        () = tokio::time::sleep(Duration::from_secs(1)) => {}
    }
    assert_eq!(source.open_watches(), 1);
    shutdown.cancel();
    running.await;
    assert_eq!(source.open_watches(), 0);
}

#[tokio::test(start_paused = true)]
async fn pending_relist_requests_are_merged() {
    let relist = Arc::new(Notify::new());
    let (source, fifo) = (with(&["a"]), Arc::new(Fifo::new("config maps")));
    let (store, _) = store::pair(Indexers::default());
    let reflector = Reflector::new(source.clone(), fifo.clone(), store, 7).relisting(relist.clone());
    let mut rig = Rig { source, fifo, running: Box::pin(reflector.run(CancellationToken::new())) };
    relist.notify_one();
    assert_eq!(rig.settle().await, ["all [a]"]);
    assert_eq!(rig.source.requests(), ["list newest", "watch 1"], "the first list serves the request");
    rig.source.put_unseen(config_map("ns", "b", 0));
    relist.notify_one();
    relist.notify_one();
    assert_eq!(rig.settle().await, ["all [a b]"]);
    assert_eq!(rig.source.requests()[2..], ["list newest", "watch 2"]);
    // A failed list is retried with the version unset.
    rig.source.script_lists([Some(connection_error())]);
    relist.notify_one();
    assert_eq!(rig.pass(Duration::from_secs(5)).await, ["all [a b]"]);
    assert_eq!(rig.source.requests()[4..], ["list newest", "list newest", "watch 2"]);
    assert_eq!(rig.source.open_watches(), 1);
}

fn streaming(names: &[&str]) -> FakeSource<ConfigMap> {
    let source = with(names);
    source.stream_lists();
    source
}

fn end_of_list(version: &str) -> WatchEvent<ConfigMap> {
    WatchEvent::Bookmark { resource_version: version.to_owned(), ends_initial_events: true }
}

/// client-go: `TestWatchList`, `TestWatchListResourceVersion`
#[tokio::test(start_paused = true)]
async fn list_is_the_beginning_of_a_watch() {
    let mut rig = Rig::new(streaming(&["b", "a"]));
    assert_eq!(rig.settle().await, ["all [a b]"]);
    rig.source.put(config_map("ns", "c", 0));
    assert_eq!(rig.settle().await, ["+c"]);
    assert_eq!(rig.source.requests(), ["stream newest"], "the stream goes on");
    rig.source.break_watches(|| status_error(410, "Expired"));
    assert_eq!(rig.pass(Duration::from_secs(2)).await, ["all [a b c] not older"]);
    assert_eq!(rig.source.requests()[1..], ["stream >=3"]);
}

/// A server compresses each later event by itself.
#[tokio::test(start_paused = true)]
async fn compressed_stream_ends_with_its_list() {
    const LISTED: &str = concat!(
        r#"{"type":"ADDED","object":{"metadata":{"name":"a","resourceVersion":"1"}}}"#,
        "\n",
        r#"{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"12","#,
        r#""annotations":{"k8s.io/initial-events-end":"true"}}}}"#,
        "\n"
    );
    const LATER: &str = r#"{"type":"ADDED","object":{"metadata":{"name":"b","resourceVersion":"13"}}}"#;
    let asked = Arc::new(Mutex::new(Vec::new()));
    let seen = asked.clone();
    let service = tower::service_fn(move |request: Request<Body>| {
        let encoding = request.headers()[header::ACCEPT_ENCODING].to_str().unwrap();
        let query = request.uri().query().unwrap();
        let version = query.split('&').find(|pair| pair.starts_with("resourceVersion="));
        seen.lock().push(format!("{encoding} {}", version.unwrap_or("list")));
        let response = Response::builder();
        let (response, body) = match encoding {
            "gzip" => (response.header(header::CONTENT_ENCODING, "gzip"), gzipped(LISTED)),
            _ => (response, [LATER.as_bytes(), b"\n"].concat()),
        };
        let frame = Ok::<_, Infallible>(http_body::Frame::data(bytes::Bytes::from(body)));
        let body = StreamBody::new(stream::iter([frame]).chain(stream::pending()));
        std::future::ready(Ok::<_, Infallible>(response.body(body).unwrap()))
    });
    let client = ApiClient::new(kube_client::Client::new(service, "default"))
        .with_streamed_lists(true)
        .with_compressed_lists(true);
    let (source, fifo) = (ListWatch::<ConfigMap>::new(client), Arc::new(Fifo::new("config maps")));
    let (store, _) = store::pair(Indexers::default());
    let reflector = Reflector::new(source, fifo.clone(), store, 7);
    let running = Box::pin(reflector.run(CancellationToken::new()));
    let mut rig = Rig { source: (), fifo, running };
    assert_eq!(rig.settle().await, ["all [a]", "+b"]);
    assert_eq!(*asked.lock(), ["gzip list", "identity resourceVersion=12"]);
}

#[tokio::test(start_paused = true)]
async fn changes_within_a_streaming_list_belong_to_it() {
    let source = streaming(&["a", "b"]);
    source.hold_initial_events();
    let mut rig = Rig::new(source);
    assert_eq!(rig.settle().await, Vec::<String>::new());
    rig.source.delete(&"ns/a".parse().unwrap());
    rig.source.put(config_map("ns", "c", 0));
    rig.source.send(|| bookmark("4"));
    assert_eq!(rig.settle().await, Vec::<String>::new());
    rig.source.send(|| end_of_list("4"));
    assert_eq!(rig.settle().await, ["all [b c]"]);
}

#[tokio::test(start_paused = true)]
async fn partial_stream_publishes_nothing() {
    let source = streaming(&["a", "b"]);
    source.hold_initial_events();
    let mut rig = Rig::new(source);
    assert_eq!(rig.settle().await, Vec::<String>::new());
    rig.source.break_watches(connection_error);
    assert_eq!(rig.pass(Duration::from_secs(5)).await, Vec::<String>::new());
    assert_eq!(rig.source.requests(), ["stream newest", "stream newest"]);
    rig.source.close_watches();
    assert_eq!(rig.settle().await, ["all [a b]"], "it ended without a bookmark: pages");
    assert_eq!(rig.source.requests()[2..], ["list newest", "watch 2"]);
}

/// Bookmarks show that the connection is alive, not that the end will come.
#[tokio::test(start_paused = true)]
async fn streaming_list_without_an_end_is_read_in_pages() {
    let source = streaming(&["a"]);
    source.hold_initial_events();
    let mut rig = Rig::new(source);
    for _ in 0..5 {
        assert_eq!(rig.pass(Duration::from_secs(11)).await, Vec::<String>::new());
        rig.source.send(|| bookmark("1"));
    }
    assert_eq!(rig.pass(Duration::from_secs(6)).await, ["all [a]"]);
    assert_eq!(rig.source.requests(), ["stream newest", "list newest", "watch 1"]);
}

fn streams(rig: &Rig) -> usize {
    rig.source.requests().into_iter().filter(|request| request.starts_with("stream")).count()
}

/// The server never tells the end, and the kind is large and busy (kubernetes/kubernetes#140890).
#[tokio::test(start_paused = true)]
async fn events_do_not_prolong_a_streaming_list_without_an_end() {
    let source = streaming(&["a"]);
    for at in 0..6000 {
        source.put(config_map("ns", &at.to_string(), 0));
    }
    source.hold_initial_events();
    let mut rig = Rig::new(source);
    let mut is_read = false;
    for at in 0..75 {
        for change in 0..20 {
            rig.source.put(config_map("ns", "a", 20 * at + change));
        }
        // Some objects are new.
        rig.source.put(config_map("ns", &format!("new-{at}"), 0));
        is_read |= rig.pass(Duration::from_secs(1)).await.iter().any(|seen| seen.starts_with("all "));
    }
    assert!(is_read, "{:?}", rig.source.requests());
    rig.source.break_watches(|| status_error(410, "Expired"));
    rig.pass(Duration::from_secs(2)).await;
    assert_eq!(streams(&rig), 1, "no stream the next time");
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_closes_late_without_an_end_is_remembered() {
    for (at, remembered) in [(59, false), (61, true)] {
        let source = streaming(&["a"]);
        source.hold_initial_events();
        let mut rig = Rig::new(source);
        for object in 0..at {
            // Ten further objects a second earn the list its time.
            (0..10).for_each(|new| rig.source.put(config_map("ns", &format!("{object}-{new}"), 0)));
            rig.pass(Duration::from_secs(1)).await;
        }
        assert_eq!(rig.source.requests(), ["stream newest"]);
        rig.source.close_watches();
        rig.pass(Duration::from_secs(2)).await;
        rig.source.break_watches(|| status_error(410, "Expired"));
        rig.pass(Duration::from_secs(2)).await;
        assert_eq!(streams(&rig), if remembered { 1 } else { 2 }, "{at} s");
    }
}

#[tokio::test(start_paused = true)]
async fn server_without_streaming_lists_is_asked_for_pages() {
    let source = streaming(&["a"]);
    source.fail_watches([status_error(422, "Invalid")]);
    let mut rig = Rig::new(source);
    assert_eq!(rig.settle().await, ["all [a]"]);
    rig.source.break_watches(|| status_error(410, "Expired"));
    rig.pass(Duration::from_secs(2)).await;
    let requests = ["stream newest", "list newest", "watch 1", "list >=1", "watch 1"];
    assert_eq!(rig.source.requests(), requests, "it is not asked for a stream each time");
}

/// An audit has found that the watch lost an event.
#[tokio::test(start_paused = true)]
async fn requested_relist_is_read_in_pages() {
    let relist = Arc::new(Notify::new());
    let (source, fifo) = (streaming(&["a"]), Arc::new(Fifo::new("config maps")));
    let (store, _) = store::pair(Indexers::default());
    let reflector = Reflector::new(source.clone(), fifo.clone(), store, 7).relisting(relist.clone());
    let mut rig = Rig { source, fifo, running: Box::pin(reflector.run(CancellationToken::new())) };
    rig.settle().await;
    relist.notify_one();
    assert_eq!(rig.settle().await, ["all [a]"]);
    assert_eq!(rig.source.requests(), ["stream newest", "list newest", "watch 1"]);
}

#[tokio::test(start_paused = true)]
async fn expired_version_streams_the_newest_state_at_once() {
    let mut rig = Rig::new(streaming(&["a"]));
    rig.settle().await;
    rig.source.fail_watches([status_error(410, "Expired")]);
    rig.source.break_watches(|| status_error(410, "Expired"));
    assert_eq!(rig.pass(Duration::from_secs(2)).await, ["all [a]"]);
    assert_eq!(rig.source.requests(), ["stream newest", "stream >=1", "stream newest"]);
}
