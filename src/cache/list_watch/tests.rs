use std::convert::Infallible;

use bytes::Bytes;
use futures_util::{StreamExt, stream};
use http_body_util::StreamBody;
use k8s_openapi::api::core::v1::ConfigMap;
use kube_client::Client;

use super::*;
use crate::cache::object;

const WATCH: WatchOptions =
    WatchOptions { resource_version: String::new(), timeout: Duration::from_secs(300) };

/// Returns a source whose server answers every request with these chunks, and then ends or stays silent.
fn source(pieces: &'static [&'static str], then_silent: bool) -> ListWatch<ConfigMap> {
    let service = tower::service_fn(move |_: Request<Body>| {
        let frames = stream::iter(pieces)
            .map(|piece| Ok::<_, Infallible>(http_body::Frame::data(Bytes::from_static(piece.as_bytes()))));
        let silence = stream::pending().take(usize::from(then_silent));
        let body = StreamBody::new(frames.chain(silence));
        std::future::ready(Ok::<_, Infallible>(http::Response::new(body)))
    });
    ListWatch::new(ApiClient::new(Client::new(service, "default")), None, None, None)
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
        Some(Ok(WatchEvent::Bookmark(version))) => format!("bookmark {version}"),
        Some(Err(error)) => format!("error {error}"),
    }
}

#[tokio::test]
async fn split_line_is_joined_and_truncated_line_dropped() {
    let pieces = &[
        "{\"type\":\"ADDED\",\"object\":{\"metadata\":{\"na",
        "me\":\"a\"}}}\n\n{\"type\":\"MODIFIED\",\"object\":{\"metadata\":{\"name\":\"a\"}}}\n{\"object\":",
        "{\"metadata\":{\"name\":\"b\"}}, \"type\": \"DELETED\"}\r\n",
        "{\"type\":\"BOOKMARK\",\"object\":{\"kind\":\"ConfigMap\",\"metadata\":{\"resourceVersion\":\"12\"}}}\n",
        "{\"type\":\"ADDED\",\"object\":{\"met",
    ];
    let mut watch = source(pieces, false).watch(&WATCH).await.unwrap();
    for expected in ["+a", "~a", "-b", "bookmark 12", "end"] {
        assert_eq!(short(watch.next().await), expected);
    }
}

#[tokio::test]
async fn error_event_returns_the_server_status() {
    let pieces =
        &["{\"type\":\"ERROR\",\"object\":{\"kind\":\"Status\",\"status\":\"Failure\",\"code\":410,\
        \"reason\":\"Expired\",\"message\":\"too old\"}}\n"];
    let mut watch = source(pieces, false).watch(&WATCH).await.unwrap();
    let error = watch.next().await.unwrap().unwrap_err();
    assert!(error.is_expired());
    assert_eq!(error.to_string(), "watch configmaps: 410 Expired: too old");
}

#[tokio::test]
async fn malformed_event_is_a_decode_error() {
    for line in ["{\"type\":\"TURNED\",\"object\":{}}\n", "{\"type\":\"ADDED\",\"object\":{]}\n", "rubbish\n"]
    {
        let pieces: &'static [&'static str] = Box::leak(Box::new([line]));
        let mut watch = source(pieces, false).watch(&WATCH).await.unwrap();
        let result = watch.next().await.unwrap();
        assert!(matches!(result, Err(Error::Decode { .. })), "{line}: {result:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn silent_stream_times_out() {
    let pieces = &["{\"type\":\"ADDED\",\"object\":{\"metadata\":{\"name\":\"a\"}}}\n"];
    let mut watch = source(pieces, true).watch(&WATCH).await.unwrap();
    assert_eq!(short(watch.next().await), "+a");
    let before = tokio::time::Instant::now();
    assert!(matches!(watch.next().await, Some(Err(Error::Timeout { after: IDLE_TIMEOUT, .. }))));
    assert_eq!(before.elapsed(), IDLE_TIMEOUT);
}

/// A resync repeatedly drops the wait for the next event; the deadline must not move.
#[tokio::test(start_paused = true)]
async fn dropped_wait_does_not_extend_idle_timeout() {
    let mut watch = source(&[], true).watch(&WATCH).await.unwrap();
    for _ in 0..2 {
        let again = tokio::time::timeout(Duration::from_secs(40), watch.next()).await;
        assert!(again.is_err(), "timed out before 90 s");
    }
    let ended = tokio::time::timeout(Duration::from_secs(11), watch.next()).await;
    assert!(matches!(ended, Ok(Some(Err(Error::Timeout { after: IDLE_TIMEOUT, .. })))));
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
    let source: ListWatch<ConfigMap> =
        ListWatch::new(ApiClient::new(Client::new(service, "default")), None, None, None);
    let mut watch = source.watch(&WATCH).await.unwrap();
    assert!(matches!(watch.next().await, Some(Err(Error::LineTooLong { .. }))));
}

#[test]
fn undecodable_item_does_not_affect_others() {
    let body = br#"{"kind":"ConfigMapList","metadata":{"resourceVersion":"9","continue":"t"},"items":[
        {"metadata":{"name":"a"}}, {"metadata":{"name":"b","uid":"u"},"data":[1]}, {"metadata":{"name":"c"}}]}"#;
    let page = decode_page::<ConfigMap>(body, Some(object::trim)).unwrap();
    assert_eq!((page.resource_version.as_str(), page.continue_token.as_deref()), ("9", Some("t")));
    assert_eq!(page.items.len(), 3);
    assert_eq!(page.items[1].as_ref().unwrap_err().meta.uid, "u");
    assert!(page.items[2].is_ok());
}

#[test]
fn non_list_response_is_an_error() {
    let null =
        decode_page::<ConfigMap>(br#"{"items":null,"metadata":{"resourceVersion":"9"}}"#, None).unwrap();
    assert!(null.items.is_empty() && null.continue_token.is_none());
    for broken in [
        r#"{"items":[]}"#,
        r#"{"metadata":{},"items":[]}"#,
        r#"{"metadata":{"resourceVersion":"9"}}"#,
        r#"{"kind":"Table","metadata":{"resourceVersion":"9"},"columnDefinitions":[],"rows":[]}"#,
        r#"{"kind":"Status","metadata":{},"status":"Success"}"#,
    ] {
        assert!(decode_page::<ConfigMap>(broken.as_bytes(), None).is_err(), "{broken}");
    }
    assert!(decode_page::<ConfigMap>(br#"{"metadata":{"resourceVersion":"9"},"items":["#, None).is_err());
}

#[tokio::test]
async fn list_request_carries_version_selector_and_limit() {
    let service = tower::service_fn(|request: Request<Body>| {
        let uri = request.uri().to_string();
        let body = format!(r#"{{"metadata":{{"resourceVersion":"1","continue":"{uri}"}},"items":[]}}"#);
        std::future::ready(Ok::<_, Infallible>(http::Response::new(Body::from(body.into_bytes()))))
    });
    let client = ApiClient::new(Client::new(service, "default"));
    let source: ListWatch<ConfigMap> =
        ListWatch::new(client, Some("ns".to_owned()), Some("a=b".to_owned()), None);
    let ask = async |version, limit, continue_token| {
        let page = source.list(&ListOptions { version, limit, continue_token }).await.unwrap();
        page.continue_token.unwrap()
    };
    let path = "/api/v1/namespaces/ns/configmaps?labelSelector=a%3Db";
    assert_eq!(ask(Version::Newest, Some(500), None).await, format!("{path}&limit=500"));
    assert_eq!(
        ask(Version::NotOlderThan("7".to_owned()), None, None).await,
        format!("{path}&resourceVersion=7&resourceVersionMatch=NotOlderThan"),
    );
    assert_eq!(
        ask(Version::NotOlderThan("7".to_owned()), Some(500), Some("t/1".to_owned())).await,
        format!("{path}&limit=500&continue=t%2F1"),
    );
}
