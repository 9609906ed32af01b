use std::convert::Infallible;

use bytes::Bytes;
use futures_util::{StreamExt, stream};
use http_body_util::StreamBody;
use k8s_openapi::api::core::v1::ConfigMap;
use kube_client::Client;

use super::*;
use crate::api::shards::{Division, Sharding};
use crate::cache::object::decode::Decoded;
use crate::cache::store::{self, StoreWriter};
use crate::cache::{Indexers, object};
use crate::testing::{config_map, gzipped};

mod hostile;
mod protobuf;

fn options() -> WatchOptions {
    WatchOptions { start: WatchStart::After("1".to_owned()), timeout: Duration::from_secs(300), shards: None }
}

/// Returns a source whose server answers every request with these chunks, and then ends or stays silent.
fn source(pieces: &'static [&'static str], then_silent: bool) -> ListWatch<ConfigMap> {
    let service = tower::service_fn(move |_: Request<Body>| {
        let frames = stream::iter(pieces)
            .map(|piece| Ok::<_, Infallible>(http_body::Frame::data(Bytes::from_static(piece.as_bytes()))));
        let silence = stream::pending().take(usize::from(then_silent));
        let body = StreamBody::new(frames.chain(silence));
        std::future::ready(Ok::<_, Infallible>(http::Response::new(body)))
    });
    ListWatch::new(ApiClient::new(Client::new(service, "default")))
}

fn short(event: Option<Result<WatchEvent<ConfigMap>, Error>>) -> String {
    let name = |object: &Decoded<ConfigMap>| match object {
        Ok(map) => map.object_name().to_string(),
        Err(unreadable) => format!("{} unreadable", unreadable.meta.object_name()),
    };
    match event {
        None => "end".to_owned(),
        Some(Ok(WatchEvent::Added(object))) => format!("+{}", name(&object)),
        Some(Ok(WatchEvent::Modified(object))) => format!("~{}", name(&object)),
        Some(Ok(WatchEvent::Deleted(object))) => format!("-{}", name(&object)),
        Some(Ok(WatchEvent::Bookmark { resource_version, ends_initial_events })) => {
            format!("bookmark {resource_version}{}", if ends_initial_events { " end" } else { "" })
        }
        Some(Err(error)) => format!("error {error}"),
    }
}

#[tokio::test]
async fn split_line_is_joined_and_truncated_line_dropped() {
    let pieces = &[
        "{\"type\":\"ADDED\",\"object\":{\"metadata\":{\"resourceVersion\":\"1\",\"na",
        "me\":\"a\"}}}\n\n{\"type\":\"MODIFIED\",\"object\":{\"metadata\":{\"name\":\"a\",\"resourceVersion\":\"2\"}}}\n",
        "{\"object\":{\"metadata\":{\"name\":\"b\",\"resourceVersion\":\"3\"}}, \"type\": \"DELETED\"}\r\n",
        "{\"type\":\"BOOKMARK\",\"object\":{\"kind\":\"ConfigMap\",\"metadata\":{\"resourceVersion\":\"12\"}}}\n",
        "{\"type\":\"ADDED\",\"object\":{\"met",
    ];
    let mut watch = source(pieces, false).watch(&options()).await.unwrap();
    for expected in ["+a", "~a", "-b", "bookmark 12", "end"] {
        assert_eq!(short(watch.next().await), expected);
    }
}

/// The sources of a client tell each other of the server.
#[tokio::test(start_paused = true)]
async fn a_server_served_to_one_source_is_back_for_all() {
    let is_away = Arc::new(std::sync::atomic::AtomicBool::new(true));
    let away = is_away.clone();
    let service = tower::service_fn(move |_: Request<Body>| {
        std::future::ready(match away.load(std::sync::atomic::Ordering::Relaxed) {
            true => Err(std::io::Error::from(std::io::ErrorKind::ConnectionRefused)),
            false => Ok(http::Response::new(Body::empty())),
        })
    });
    let client = ApiClient::new(Client::new(service, "default"));
    let sources = [(); 2].map(|()| ListWatch::<ConfigMap>::new(client.clone()));
    let asked = Instant::now();
    assert!(sources[0].watch(&options()).await.unwrap_err().is_connection());
    tokio::time::sleep(Duration::from_secs(60)).await;
    let mut waits = Box::pin(sources[0].server_is_back(asked));
    assert_eq!(futures_util::poll!(&mut waits), std::task::Poll::Pending);
    is_away.store(false, std::sync::atomic::Ordering::Relaxed);
    sources[1].watch(&options()).await.unwrap();
    waits.await;
}

#[tokio::test]
async fn metadata_type_asks_for_metadata_only() {
    async fn accepted<K: TypedObject>() -> Vec<String> {
        let asked = std::sync::Arc::new(parking_lot::Mutex::new(Vec::new()));
        let seen = asked.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            seen.lock().push(request.headers()[header::ACCEPT].to_str().unwrap().to_owned());
            let page = r#"{"metadata":{"resourceVersion":"7"},"items":null}"#;
            std::future::ready(Ok::<_, Infallible>(http::Response::new(Body::from(page.as_bytes().to_vec()))))
        });
        let source = ListWatch::<K>::new(ApiClient::new(Client::new(service, "default")));
        let list = ListOptions { version: Version::Newest, limit: None, continue_token: None, shards: None };
        source.list(&list, &store::pair(Indexers::default()).0).await.unwrap();
        source.watch(&options()).await.unwrap();
        assert_eq!(source.traffic().of_lists(), 49, "the bytes are counted");
        std::mem::take(&mut *asked.lock())
    }
    assert_eq!(accepted::<ConfigMap>().await, ["application/json"; 2]);
    let [list, watch] = &accepted::<kube_core::PartialObjectMeta<ConfigMap>>().await[..] else {
        panic!("two requests")
    };
    assert!(list.starts_with("application/json;as=PartialObjectMetadataList;"), "{list}");
    assert!(watch.starts_with("application/json;as=PartialObjectMetadata;"), "{watch}");
}

#[tokio::test]
async fn error_event_returns_the_server_status() {
    let pieces =
        &["{\"type\":\"ERROR\",\"object\":{\"kind\":\"Status\",\"status\":\"Failure\",\"code\":410,\
        \"reason\":\"Expired\",\"message\":\"too old\"}}\n"];
    let mut watch = source(pieces, false).watch(&options()).await.unwrap();
    let error = watch.next().await.unwrap().unwrap_err();
    assert!(error.is_expired());
    assert_eq!(error.to_string(), "watch configmaps: 410 Expired: too old");
}

#[tokio::test]
async fn malformed_event_is_a_decode_error() {
    for line in [
        "{\"type\":\"TURNED\",\"object\":{}}\n",
        "{\"type\":\"ADDED\",\"object\":{]}\n",
        "{\"type\":\"ADDED\",\"object\":{\"metadata\":{\"name\":\"a\"}}}\n",
        "{\"type\":\"BOOKMARK\",\"object\":{\"metadata\":{}}}\n",
        "{\"type\":\"BOOKMARK\",\"object\":{\"metadata\":{\"resourceVersion\":\"\"}}}\n",
        "rubbish\n",
    ] {
        let pieces: &'static [&'static str] = Box::leak(Box::new([line]));
        let mut watch = source(pieces, false).watch(&options()).await.unwrap();
        let result = watch.next().await.unwrap();
        assert!(matches!(result, Err(Error::Decode { .. })), "{line}: {result:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn silent_stream_times_out() {
    let pieces =
        &["{\"type\":\"ADDED\",\"object\":{\"metadata\":{\"name\":\"a\",\"resourceVersion\":\"1\"}}}\n"];
    let mut watch = source(pieces, true).watch(&options()).await.unwrap();
    assert_eq!(short(watch.next().await), "+a");
    let before = tokio::time::Instant::now();
    assert!(matches!(watch.next().await, Some(Err(Error::Timeout { after: IDLE_TIMEOUT, .. }))));
    assert_eq!(before.elapsed(), IDLE_TIMEOUT);
}

/// The wait for the next event is dropped repeatedly; the deadline must not move.
#[tokio::test(start_paused = true)]
async fn dropped_wait_does_not_extend_idle_timeout() {
    let mut watch = source(&[], true).watch(&options()).await.unwrap();
    for _ in 0..2 {
        let again = tokio::time::timeout(Duration::from_secs(40), watch.next()).await;
        assert!(again.is_err(), "timed out before 90 s");
    }
    let ended = tokio::time::timeout(Duration::from_secs(11), watch.next()).await;
    assert!(matches!(ended, Ok(Some(Err(Error::Timeout { after: IDLE_TIMEOUT, .. })))));
}

fn with_a_list() -> WatchOptions {
    WatchOptions { start: WatchStart::InitialEvents(Version::Newest), ..options() }
}

/// Returns the events of a compressed list that arrives in pieces of this size, up to the end or the first error.
async fn compressed(body: Vec<u8>, size: usize) -> Vec<String> {
    let service = tower::service_fn(move |request: Request<Body>| {
        assert_eq!(request.headers()[header::ACCEPT_ENCODING], "gzip");
        let frame = |piece: &[u8]| Ok::<_, Infallible>(http_body::Frame::data(Bytes::copy_from_slice(piece)));
        let frames: Vec<_> = body.chunks(size).map(frame).collect();
        let response = http::Response::builder().header(header::CONTENT_ENCODING, "gzip");
        std::future::ready(Ok::<_, Infallible>(response.body(StreamBody::new(stream::iter(frames))).unwrap()))
    });
    let client = ApiClient::new(Client::new(service, "default")).with_compressed_lists(true);
    let source: ListWatch<ConfigMap> = ListWatch::new(client);
    let mut watch = source.watch(&with_a_list()).await.unwrap();
    let mut events = Vec::new();
    loop {
        events.push(short(watch.next().await));
        if events.last().is_some_and(|last| last == "end" || last.starts_with("error")) {
            return events;
        }
    }
}

#[tokio::test]
async fn compressed_stream_has_the_same_events() {
    let added = |name| {
        format!(r#"{{"type":"ADDED","object":{{"metadata":{{"name":"{name}","resourceVersion":"1"}}}}}}"#)
            + "\n"
    };
    let bookmark = "{\"type\":\"BOOKMARK\",\"object\":{\"metadata\":{\"resourceVersion\":\"12\",\
        \"annotations\":{\"k8s.io/initial-events-end\":\"true\"}}}}\n";
    // The server ends a member whenever it has nothing more to send.
    let members =
        [gzipped(added("a") + &added("b")), gzipped(added("c")), gzipped(bookmark), gzipped(added("d"))];
    let (body, all) = (members.concat(), ["+a", "+b", "+c", "bookmark 12 end", "+d", "end"]);
    for size in [1, 7, 100, body.len()] {
        assert_eq!(compressed(body.clone(), size).await, all, "{size}");
    }
    for rest in [&members[1][..9], &members[1][..members[1].len() - 1], b"something else"] {
        let events = compressed([&members[0], rest].concat(), 1).await;
        assert_eq!(events[..2], all[..2]);
        let last = events.last().unwrap();
        assert_eq!(last, "error watch configmaps: could not decode the answer");
    }
    assert_eq!(compressed(Vec::new(), 1).await, ["end"]);
}

#[tokio::test(start_paused = true)]
async fn damaged_stream_is_asked_for_uncompressed() {
    let asked = Arc::new(parking_lot::Mutex::new(Vec::new()));
    let seen = asked.clone();
    let service = tower::service_fn(move |request: Request<Body>| {
        let encoding = request.headers()[header::ACCEPT_ENCODING].to_str().unwrap().to_owned();
        let response = match encoding.as_str() {
            "gzip" => http::Response::builder().header(header::CONTENT_ENCODING, "gzip"),
            _ => http::Response::builder(),
        };
        seen.lock().push(encoding);
        std::future::ready(Ok::<_, Infallible>(response.body(Body::from(b"rubbish".to_vec())).unwrap()))
    });
    let client = ApiClient::new(Client::new(service, "default")).with_compressed_lists(true);
    let source: ListWatch<ConfigMap> = ListWatch::new(client);
    // Only a watch that begins with a list is compressed.
    source.watch(&options()).await.unwrap();
    let mut watch = source.watch(&with_a_list()).await.unwrap();
    assert!(matches!(watch.next().await, Some(Err(Error::Decode { .. }))));
    source.watch(&with_a_list()).await.unwrap();
    assert_eq!(*asked.lock(), ["identity", "gzip", "identity"]);
}

#[tokio::test]
async fn overlong_line_is_an_error() {
    let service = tower::service_fn(|_: Request<Body>| {
        let piece = Bytes::from(vec![b' '; 1 << 20]);
        let body = StreamBody::new(stream::repeat_with(move || {
            Ok::<_, Infallible>(http_body::Frame::data(piece.clone()))
        }));
        std::future::ready(Ok::<_, Infallible>(http::Response::new(body)))
    });
    let source: ListWatch<ConfigMap> = ListWatch::new(ApiClient::new(Client::new(service, "default")));
    let mut watch = source.watch(&options()).await.unwrap();
    assert!(matches!(watch.next().await, Some(Err(Error::TooLong { .. }))));
}

/// Lists once, with these objects in the store.
async fn list(
    pieces: &'static [&'static str],
    fill: impl FnOnce(&mut StoreWriter<ConfigMap>),
) -> Result<Page<ConfigMap>, Error> {
    let (store, mut writer) = store::pair(Indexers::default());
    fill(&mut writer);
    let options = ListOptions { version: Version::Newest, limit: None, continue_token: None, shards: None };
    let source = source(pieces, false).with_transform(Some(Transform::new(object::trim)));
    source.list(&options, &store).await
}

#[tokio::test]
async fn undecodable_item_does_not_affect_others() {
    let pieces = &[
        r#"{"kind":"ConfigMapList","metadata":{"resourceVersion":"9","continue":"t"},"items":["#,
        r#"{"metadata":{"name":"a","resourceVersion":"1","managedFields":[{"manager":"x"}]}},"#,
        r#"{"metadata":{"name":"b","uid":"u","resourceVersion":"2"},"data":[1]}]}"#,
    ];
    let page = list(pieces, |_| ()).await.unwrap();
    assert_eq!((page.resource_version.as_str(), page.continue_token.as_deref()), ("9", Some("t")));
    let [Listed::Changed(a), Listed::Changed(b)] = &page.items[..] else { panic!("{:?}", page.items) };
    assert_eq!(a.readable().unwrap().metadata.managed_fields, None, "the transform has run");
    assert!(b.readable().is_none() && b.uid() == "u");
}

/// The second item would not decode, but the store has it in this version.
#[tokio::test]
async fn unchanged_item_is_not_decoded_again() {
    let pieces = &[
        r#"{"metadata":{"resourceVersion":"9"},"items":["#,
        r#"{"metadata":{"name":"a","namespace":"ns","uid":"uid-of-ns-a","resourceVersion":"2"}},"#,
        r#"{"data":7,"metadata":{"name":"b","namespace":"ns","uid":"uid-of-ns-b","resourceVersion":"1"}},"#,
        r#"{"metadata":{"name":"c","namespace":"ns","uid":"another","resourceVersion":"1"}}]}"#,
    ];
    let fill = |writer: &mut StoreWriter<ConfigMap>| {
        for name in ["a", "b", "c"] {
            writer.upsert(Cached::new(Ok(config_map("ns", name, 1))));
        }
    };
    let page = list(pieces, fill).await.unwrap();
    let items: Vec<String> = page.items.iter().map(|item| format!("{item:?}")).collect();
    assert_eq!(items, ["Changed(ns/a@2)", "Unchanged(ns/b)", "Changed(ns/c@1)"]);
}

/// A server without sharded lists and watches sends everything.
#[tokio::test]
async fn objects_of_other_shards_are_skipped() {
    let sharding = Sharding { of: 16, by: Division::Range };
    let shard = sharding.shard_of("ours");
    assert_ne!(sharding.shard_of("theirs"), shard);
    let shards = Some(Arc::new(sharding.set([shard])));
    let pieces = &[
        r#"{"metadata":{"resourceVersion":"9"},"items":["#,
        r#"{"metadata":{"name":"a","namespace":"theirs","uid":"1","resourceVersion":"1"},"data":[7]},"#,
        r#"{"metadata":{"name":"b","namespace":"ours","uid":"2","resourceVersion":"2"}}]}"#,
    ];
    let (lists, (store, _)) = (source(pieces, false), store::pair(Indexers::default()));
    let options =
        ListOptions { version: Version::Newest, limit: None, continue_token: None, shards: shards.clone() };
    let page = lists.list(&options, &store).await.unwrap();
    assert_eq!(format!("{:?}", page.items), "[Changed(ours/b@2)]");
    assert_eq!(lists.traffic().skipped_objects(), 1);
    let pieces = &[
        "{\"type\":\"ADDED\",\"object\":{\"metadata\":{\"name\":\"a\",\"namespace\":\"theirs\",\"uid\":\"1\",\"resourceVersion\":\"10\"}}}\n",
        "{\"type\":\"DELETED\",\"object\":{\"metadata\":{\"name\":\"b\",\"namespace\":\"ours\",\"uid\":\"2\",\"resourceVersion\":\"11\"}}}\n",
        "{\"type\":\"BOOKMARK\",\"object\":{\"kind\":\"ConfigMap\",\"metadata\":{\"resourceVersion\":\"12\"}}}\n",
    ];
    let watches = source(pieces, false);
    let mut watch = watches.watch(&WatchOptions { shards, ..self::options() }).await.unwrap();
    for expected in ["-ours/b", "bookmark 12", "end"] {
        assert_eq!(short(watch.next().await), expected);
    }
    assert_eq!(watches.traffic().skipped_objects(), 1);
}

/// The body is endless; a list that waited for its end would not time out here but hang.
#[tokio::test(start_paused = true)]
async fn list_is_decoded_while_it_arrives() {
    let decoded = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let service = tower::service_fn(|_: Request<Body>| {
        let item = r#"{"metadata":{"name":"a","resourceVersion":"1"}},"#;
        let frame = |text: &'static str| {
            Ok::<_, Infallible>(http_body::Frame::data(Bytes::from_static(text.as_bytes())))
        };
        let start = stream::iter([frame(r#"{"metadata":{"resourceVersion":"9"},"items":["#)]);
        let body = StreamBody::new(start.chain(stream::repeat_with(move || frame(item))));
        std::future::ready(Ok::<_, Infallible>(http::Response::new(body)))
    });
    let seen = decoded.clone();
    let count = Transform::new(move |_: &mut ConfigMap| {
        seen.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    });
    let source = ListWatch::new(ApiClient::new(Client::new(service, "default"))).with_transform(Some(count));
    let (store, _) = store::pair(Indexers::default());
    let options = ListOptions { version: Version::Newest, limit: None, continue_token: None, shards: None };
    let other_task = async {
        while decoded.load(std::sync::atomic::Ordering::Relaxed) < 1000 {
            tokio::task::yield_now().await;
        }
    };
    tokio::select! {
        _ = source.list(&options, &store) => unreachable!("the list does not end"),
        () = other_task => {}
    }
}

#[tokio::test]
async fn watch_begins_where_it_is_told_to() {
    let service = tower::service_fn(|request: Request<Body>| {
        let query = request.uri().query().unwrap().replace('&', " ");
        let line = format!(
            r#"{{"type":"BOOKMARK","object":{{"metadata":{{"resourceVersion":"{query}","annotations":{{"k8s.io/initial-events-end":"true"}}}}}}}}"#
        );
        std::future::ready(Ok::<_, Infallible>(http::Response::new(Body::from((line + "\n").into_bytes()))))
    });
    let source = ListWatch::<ConfigMap>::new(ApiClient::new(Client::new(service, "default")));
    for (start, query) in [
        (WatchStart::After("7".to_owned()), " resourceVersion=7"),
        (
            WatchStart::InitialEvents(Version::Newest),
            " sendInitialEvents=true resourceVersionMatch=NotOlderThan",
        ),
        (
            WatchStart::InitialEvents(Version::NotOlderThan("7".to_owned())),
            " sendInitialEvents=true resourceVersionMatch=NotOlderThan resourceVersion=7",
        ),
    ] {
        let options = WatchOptions { start, timeout: Duration::from_secs(300), shards: None };
        let bookmark = short(source.watch(&options).await.unwrap().next().await);
        let expected = format!("bookmark watch=true allowWatchBookmarks=true timeoutSeconds=300{query} end");
        assert_eq!(bookmark, expected);
    }
}

#[tokio::test]
async fn list_request_carries_version_selector_and_limit() {
    let service = tower::service_fn(|request: Request<Body>| {
        let uri = request.uri().to_string();
        let body = format!(r#"{{"metadata":{{"resourceVersion":"1","continue":"{uri}"}},"items":[]}}"#);
        std::future::ready(Ok::<_, Infallible>(http::Response::new(Body::from(body.into_bytes()))))
    });
    let client = ApiClient::new(Client::new(service, "default"));
    let source = ListWatch::<ConfigMap>::new(client).with_selection(Selection {
        namespace: Some("ns".to_owned()),
        label_selector: Some("a=b".to_owned()),
        field_selector: Some("metadata.name=c".to_owned()),
    });
    let (store, _) = store::pair(Indexers::default());
    let ask = async |version, limit, continue_token| {
        let page =
            source.list(&ListOptions { version, limit, continue_token, shards: None }, &store).await.unwrap();
        page.continue_token.unwrap()
    };
    let path = "/api/v1/namespaces/ns/configmaps?labelSelector=a%3Db&fieldSelector=metadata.name%3Dc";
    assert_eq!(ask(Version::Newest, Some(5_000), None).await, format!("{path}&limit=5000"));
    assert_eq!(
        ask(Version::NotOlderThan("7".to_owned()), None, None).await,
        format!("{path}&resourceVersion=7&resourceVersionMatch=NotOlderThan"),
    );
    assert_eq!(
        ask(Version::NotOlderThan("7".to_owned()), Some(500), Some("t/1".to_owned())).await,
        format!("{path}&limit=500&continue=t%2F1"),
    );
}
