use std::convert::Infallible;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;
use crate::client::{Answer, HeldBack, explain, slow_calls};

const DEPLOYMENTS: ApiResource = ApiResource::new("apps", "v1", "Deployment", "deployments");

fn answering(answer: impl Fn(&Request<Body>) -> (u16, String) + Clone + Send + Sync + 'static) -> ApiClient {
    let service = tower::service_fn(move |request: Request<Body>| {
        let (code, body) = answer(&request);
        let response = Response::builder().status(code).body(Body::from(body.into_bytes())).unwrap();
        std::future::ready(Ok::<_, Infallible>(response))
    });
    ApiClient::new(Client::new(service, "default"))
}

#[tokio::test]
async fn every_request_has_a_user_agent() {
    let service = tower::service_fn(|request: Request<Body>| async move {
        let agent = request.headers()[header::USER_AGENT].to_str().unwrap().to_owned();
        let expected = format!("windlass/{} (", env!("CARGO_PKG_VERSION"));
        assert!(agent.starts_with(&expected), "{agent:?}");
        Ok::<_, Infallible>(Response::new(Body::from(b"{}".to_vec())))
    });
    let client = ApiClient::new(Client::new(service, "default"));
    let answer: Value = client.create(&DEPLOYMENTS, Some("ns"), &json!({})).await.unwrap();
    assert_eq!(answer, json!({}));
}

#[tokio::test]
async fn a_failed_post_is_not_sent_again() {
    let calls = Arc::new(AtomicUsize::new(0));
    let seen = calls.clone();
    let client = answering(move |_| {
        seen.fetch_add(1, Ordering::Relaxed);
        (503, String::new())
    });
    let result = client.create::<Value>(&DEPLOYMENTS, Some("default"), &json!({})).await;
    assert_eq!(result.unwrap_err().status().unwrap().code, 503);
    assert_eq!(calls.load(Ordering::Relaxed), 1);
}

/// A 429 from a server that serves nothing, without a Status, pauses all requests; a webhook's 429 concerns its request alone.
#[tokio::test(start_paused = true)]
async fn overloaded_server_pauses_all_requests() {
    let of_a_webhook = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 429, "reason": "TooManyRequests",
        "message": "admission webhook \"w\" denied the request: later"});
    for (body, seconds) in
        [("Too many requests, please try again later.".to_owned(), 5), (of_a_webhook.to_string(), 0)]
    {
        let service = tower::service_fn(move |request: Request<Body>| {
            let answer = if request.method() == Method::POST {
                let answer = Response::builder().status(429).header(header::RETRY_AFTER, "5");
                answer.body(Body::from(body.clone().into_bytes()))
            } else {
                Response::builder().body(Body::from(b"{}".to_vec()))
            };
            std::future::ready(Ok::<_, Infallible>(answer.unwrap()))
        });
        let client = ApiClient::new(Client::new(service, "default"));
        let refused = client.create::<Value>(&DEPLOYMENTS, Some("ns"), &json!({})).await.unwrap_err();
        assert!(refused.is_too_many_requests());
        let started = Instant::now();
        client.get::<Value>(&DEPLOYMENTS, Some("ns"), "another").await.unwrap();
        assert_eq!(started.elapsed().as_secs(), seconds, "{refused}");
        // The server serves some requests, so a refusal now holds back nothing else.
        client.create::<Value>(&DEPLOYMENTS, Some("ns"), &json!({})).await.unwrap_err();
        client.get::<Value>(&DEPLOYMENTS, Some("ns"), "another").await.unwrap();
        assert_eq!(started.elapsed().as_secs(), seconds, "{refused}");
        assert_eq!(client.gate().held_back(), HeldBack { refused: 2, delayed: 0 });
        assert_eq!(client.gate().answered(), 4);
    }
}

#[tokio::test]
async fn missing_object_is_none_but_missing_kind_fails() {
    let object =
        r#"{"status":"Failure","code":404,"reason":"NotFound","message":"deployments.apps \"x\" not found"}"#;
    let client = answering(move |_| (404, object.to_owned()));
    assert!(client.get::<Value>(&DEPLOYMENTS, Some("default"), "x").await.unwrap().is_none());

    let client = answering(|_| (404, "404 page not found".to_owned()));
    assert!(client.get::<Value>(&DEPLOYMENTS, Some("default"), "x").await.is_err());
}

#[tokio::test]
async fn a_delete_carries_uid_and_version() {
    let service = tower::service_fn(|request: Request<Body>| async move {
        assert_eq!(request.method(), Method::DELETE);
        assert_eq!(request.uri().path(), "/apis/apps/v1/namespaces/ns/deployments/x");
        let body = request.into_body().collect_bytes().await.unwrap();
        let options: Value = serde_json::from_slice(&body).unwrap();
        assert_eq!(options["preconditions"], json!({"uid": "u1", "resourceVersion": "7"}));
        Ok::<_, Infallible>(Response::new(Body::from(b"{}".to_vec())))
    });
    let client = ApiClient::new(Client::new(service, "default"));
    client.delete(&DEPLOYMENTS, Some("ns"), "x", "u1", "7").await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_silent_server_times_out() {
    let service =
        tower::service_fn(|_: Request<Body>| std::future::pending::<Result<Response<Body>, Infallible>>());
    let client = ApiClient::new(Client::new(service, "default"));
    let result = client.get::<Value>(&DEPLOYMENTS, Some("default"), "x").await;
    assert!(matches!(result, Err(Error::Timeout { after: READ_TIMEOUT, .. })), "{result:?}");
    let result = client.create::<Value>(&DEPLOYMENTS, Some("default"), &json!({})).await;
    assert!(matches!(result, Err(Error::Timeout { after: WRITE_TIMEOUT, .. })), "{result:?}");
}

#[tokio::test(start_paused = true)]
async fn wait_at_the_gate_is_no_slow_call() {
    let client = answering(|_| (200, json!({"metadata": {"name": "x"}}).to_string()));
    let gate = client.gate();
    gate.asked_to_wait(Duration::from_secs(10));
    let started = Instant::now();
    let pass = async { client.get::<Value>(&DEPLOYMENTS, Some("default"), "x").await.unwrap() };
    let on_slow = Box::new(|_| panic!("it waited at the gate"));
    let (_, was_slow) = slow_calls::noticing(Duration::from_secs(2), on_slow, pass).await;
    assert!(!was_slow && started.elapsed() == Duration::from_secs(10));
}

/// I17: kube-client's error for a failing plugin contains its command line and output.
#[tokio::test]
async fn errors_omit_credential_plugin_output() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("kubeconfig");
    let kubeconfig = r#"{"current-context": "x",
        "clusters": [{"name": "c", "cluster": {"server": "https://127.0.0.1:1"}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "users": [{"name": "u", "user": {"exec": {"apiVersion": "client.authentication.k8s.io/v1",
            "command": "sh", "args": ["-c", "echo canary-out; exit 1", "canary-arg"],
            "env": [{"name": "SECRET", "value": "canary-env"}], "interactiveMode": "Never"}}}]}"#;
    std::fs::write(&path, kubeconfig).unwrap();
    let source = crate::client::ConfigSource { kubeconfig: Some(path), ..Default::default() };
    let config = Config::load(&source).await.unwrap();
    let error = ApiClient::connect(config).await.unwrap_err().to_string();
    assert!(error.contains("credentials"), "{error}");
    assert!(!error.contains("canary"), "{error}");
}

#[derive(serde::Deserialize)]
struct Named {
    metadata: Value,
}

#[tokio::test]
async fn metadata_is_read_page_by_page() {
    let asked = Arc::new(parking_lot::Mutex::new(Vec::new()));
    let seen = asked.clone();
    let client = answering(move |request| {
        let accept = request.headers()[header::ACCEPT].to_str().unwrap();
        assert!(accept.starts_with("application/json;as=PartialObjectMetadataList;"), "{accept}");
        assert_eq!(request.headers()[header::ACCEPT_ENCODING], "identity");
        let query = request.uri().query().unwrap_or_default().to_owned();
        let (next, name) = if query.contains("continue") { ("", "two") } else { ("a+b", "one") };
        seen.lock().push(query);
        let page = json!({"metadata": {"continue": next, "resourceVersion": "7"},
            "items": [{"metadata": {"name": name}, "spec": {}}]});
        (200, page.to_string())
    });
    let mut names = Vec::new();
    let each = |object: Named| names.push(object.metadata["name"].clone());
    let version = client.each_metadata(&DEPLOYMENTS, Some("ns"), "a!=b", each).await.unwrap();
    assert_eq!((names, version.as_str()), (vec![json!("one"), json!("two")], "7"));
    let first = "limit=500&labelSelector=a%21%3Db";
    assert_eq!(*asked.lock(), [first.to_owned(), format!("{first}&continue=a%2Bb")]);
    let broken = answering(|_| (500, String::new()));
    let error = broken.each_metadata(&DEPLOYMENTS, None, "", |_: Named| {}).await;
    assert!(error.is_err(), "an error is never an empty list");
}

#[tokio::test]
async fn a_list_without_items_is_an_error() {
    let client = answering(|_| (200, json!({"metadata": {"resourceVersion": "7"}}).to_string()));
    let outcome = client.each_metadata(&DEPLOYMENTS, None, "", |_: Named| {}).await;
    assert!(matches!(outcome, Err(Error::Decode { .. })), "{outcome:?}");
    // Go encodes an empty list as null.
    let client =
        answering(|_| (200, json!({"metadata": {"resourceVersion": "7"}, "items": null}).to_string()));
    let outcome = client.each_metadata(&DEPLOYMENTS, None, "", |_: Named| unreachable!("empty list")).await;
    assert_eq!(outcome.unwrap(), "7");
}

/// I17: a value may be a secret.
#[tokio::test]
async fn errors_of_live_lists_quote_no_value() {
    let item = json!({"metadata": "s3cret"});
    let client =
        answering(move |_| (200, json!({"metadata": {"resourceVersion": "7"}, "items": [item]}).to_string()));
    let error = client.list::<k8s_openapi::api::apps::v1::Deployment>(&DEPLOYMENTS, None).await.unwrap_err();
    let text = explain(&error);
    assert!(text.contains("could not decode") && !text.contains("s3cret"), "{text}");
}

/// A proxy may compress what the API server does not.
#[tokio::test]
async fn status_in_a_compressed_failure_is_read() {
    let status = json!({"kind": "Status", "status": "Failure", "code": 410, "reason": "Expired", "message": "too old"});
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    std::io::Write::write_all(&mut encoder, status.to_string().as_bytes()).unwrap();
    let body = encoder.finish().unwrap();
    let service = tower::service_fn(move |_: Request<Body>| {
        let response = Response::builder().status(410).header(header::CONTENT_ENCODING, "gzip");
        std::future::ready(Ok::<_, Infallible>(response.body(Body::from(body.clone())).unwrap()))
    });
    let client = ApiClient::new(Client::new(service, "default"));
    let error = client.get::<Value>(&DEPLOYMENTS, Some("ns"), "web").await.unwrap_err();
    assert_eq!(error.status().unwrap().message, "too old");
}

#[tokio::test]
async fn metadata_of_one_object_is_read_live() {
    let client = answering(|request| {
        let accept = request.headers()[header::ACCEPT].to_str().unwrap();
        assert!(accept.starts_with("application/json;as=PartialObjectMetadata;"), "{accept}");
        (200, json!({"metadata": {"name": "x"}, "spec": {}}).to_string())
    });
    let read: Option<Named> = client.get_metadata(&DEPLOYMENTS, Some("ns"), "x").await.unwrap();
    assert_eq!(read.unwrap().metadata["name"], "x");
    for (code, answer, is_none) in [
        (404, r#"{"status":"Failure","code":404,"message":"deployments.apps \"x\" not found"}"#, true),
        (404, "404 page not found", false),
        (500, "", false),
    ] {
        let client = answering(move |_| (code, answer.to_owned()));
        let read = client.get_metadata::<Named>(&DEPLOYMENTS, Some("ns"), "x").await;
        assert_eq!(matches!(read, Ok(None)), is_none, "{code} {answer}");
        assert!(is_none || read.is_err(), "{code} {answer}");
    }
}

/// I15: a connection that opens slowly, or a process that is frozen meanwhile, holds a request behind the gate.
#[tokio::test(start_paused = true)]
async fn write_held_past_the_deadline_is_not_sent() {
    let sent = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let counted = sent.clone();
    let service = tower::service_fn(move |_: Request<Body>| {
        let sent = counted.clone();
        async move {
            tokio::time::sleep(Duration::from_secs(20)).await;
            sent.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            Ok::<_, std::convert::Infallible>(Response::new(Body::from(b"{}".to_vec())))
        }
    });
    let client = ApiClient::new(Client::new(service, "default"));
    let started = Instant::now();
    client.gate().open_until(client.gate().now() + Duration::from_secs(10));
    let maps = ApiResource::new("", "v1", "ConfigMap", "configmaps");
    let error = client.create::<Value>(&maps, Some("ns"), &json!({})).await.unwrap_err();
    assert!(matches!(error, Error::Timeout { .. }), "{error}");
    assert_eq!(started.elapsed(), Duration::from_secs(10));
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(sent.load(std::sync::atomic::Ordering::Relaxed), 0);
    let read = client.get::<Value>(&maps, Some("ns"), "a").await;
    assert!(read.is_ok(), "reads go on: {read:?}");

    client.gate().open_until(client.gate().now() + Duration::from_secs(10));
    let renews = async {
        tokio::time::sleep(Duration::from_secs(5)).await;
        client.gate().open_until(client.gate().now() + Duration::from_secs(60));
    };
    let body = json!({});
    let (created, ()) = tokio::join!(client.create::<Value>(&maps, Some("ns"), &body), renews);
    assert!(created.is_ok(), "a renewal lets it go on: {created:?}");
}

/// I5: the live read may have waited, too, so its age counts from before it began.
#[tokio::test(start_paused = true)]
async fn write_on_an_old_read_is_not_sent() {
    let sent = Arc::new(AtomicUsize::new(0));
    let counted = sent.clone();
    let client = answering(move |_| {
        counted.fetch_add(1, Ordering::Relaxed);
        (200, "{}".to_owned())
    });
    let client = client.with_limits(RequestLimits { qps: Some(1.0), burst: 1, ..RequestLimits::default() });
    let read_at = Instant::now();
    client.get::<Value>(&DEPLOYMENTS, Some("ns"), "owner").await.unwrap();
    let valid = Duration::from_millis(500);
    let dated = client.not_after(read_at + valid);
    let error = dated.delete(&DEPLOYMENTS, Some("ns"), "x", "u1", "7").await.unwrap_err();
    assert!(error.is_stale() && !error.is_connection() && !error.is_overload(), "{error}");
    assert!(!error.is_outcome_unknown() && error.status().is_none());
    assert_eq!((read_at.elapsed(), sent.load(Ordering::Relaxed)), (valid, 1));
    tokio::time::advance(Duration::from_secs(60)).await;
    let dated = client.not_after(Instant::now() + valid);
    dated.delete(&DEPLOYMENTS, Some("ns"), "x", "u1", "7").await.unwrap();
    assert_eq!(sent.load(Ordering::Relaxed), 2);
    client.delete(&DEPLOYMENTS, Some("ns"), "x", "u1", "7").await.unwrap();
}

/// Writes down what it is told.
#[derive(Debug, Default)]
struct Diary(parking_lot::Mutex<Vec<String>>);

impl RequestObserver for Diary {
    fn began(&self, method: &str, path: &str) -> u64 {
        let mut lines = self.0.lock();
        lines.push(format!("{method} {path}"));
        lines.len() as u64
    }

    fn sent(&self, id: u64) {
        self.0.lock().push(format!("{id} sent"));
    }

    fn ended(&self, id: u64, answer: Answer) {
        self.0.lock().push(format!("{id} {answer:?}"));
    }
}

#[tokio::test(start_paused = true)]
async fn observer_is_told_of_each_request() {
    let diary = Arc::new(Diary::default());
    let client = answering(|request| match *request.method() {
        Method::POST => (201, "{}".to_owned()),
        _ => (409, "{}".to_owned()),
    });
    let client = client.with_observer(diary.clone());
    let object = json!({});
    client.create::<Value>(&DEPLOYMENTS, Some("ns"), &object).await.unwrap();
    client.delete(&DEPLOYMENTS, Some("ns"), "x", "uid", "1").await.unwrap_err();
    client.gate().close();
    let held = async { client.create::<Value>(&DEPLOYMENTS, Some("ns"), &object).await };
    tokio::time::timeout(Duration::from_secs(1), held).await.unwrap_err();
    let path = "/apis/apps/v1/namespaces/ns/deployments";
    assert_eq!(
        *diary.0.lock(),
        [
            &format!("POST {path}"),
            "1 sent",
            "1 Success",
            &format!("DELETE {path}/x"),
            "4 sent",
            "4 Code(409)",
            &format!("POST {path}"),
            "7 None",
        ]
    );
}

#[tokio::test]
async fn endless_failure_is_cut() {
    let service = tower::service_fn(|_: Request<Body>| {
        let piece = Bytes::from(vec![b' '; 1 << 16]);
        let frame = move || Ok::<_, Infallible>(http_body::Frame::data(piece.clone()));
        let body = http_body_util::StreamBody::new(futures_util::stream::repeat_with(frame));
        std::future::ready(Ok::<_, Infallible>(Response::builder().status(500).body(body).unwrap()))
    });
    let client = ApiClient::new(Client::new(service, "default"));
    let error = client.get::<Value>(&DEPLOYMENTS, Some("ns"), "web").await.unwrap_err();
    assert_eq!(error.status().unwrap().message, "the answer 500 has no Status object");
}

/// Names of some kinds, such as roles, may hold what ends a path.
#[tokio::test]
async fn names_are_escaped_in_urls() {
    let seen = std::sync::Arc::<Mutex<Vec<String>>>::default();
    let of = seen.clone();
    let client = answering(move |request| {
        of.lock().push(request.uri().to_string());
        (200, json!({"metadata": {"resourceVersion": "1"}}).to_string())
    });
    let object = json!({"metadata": {"resourceVersion": "1"}});
    client.get::<Value>(&DEPLOYMENTS, Some("ns"), "a?b#c d%2F").await.unwrap();
    client.replace::<Value>(&DEPLOYMENTS, Some("ns"), "a?b#c d%2F", &object).await.unwrap();
    client.delete(&DEPLOYMENTS, Some("ns"), "a?b#c d%2F", "u", "1").await.unwrap();
    let seen = std::mem::take(&mut *seen.lock());
    let path = "/apis/apps/v1/namespaces/ns/deployments/a%3Fb%23c%20d%252F";
    assert_eq!(seen, [path.to_owned(), format!("{path}?fieldManager=windlass"), path.to_owned()]);
}

#[tokio::test]
async fn lists_are_streamed_only_on_request() {
    let client = answering(|_| (200, String::new()));
    let pods = ApiResource::new("", "v1", "Pod", "pods");
    assert!(!client.can_stream_lists(&pods));
    assert!(client.with_streamed_lists(true).can_stream_lists(&pods));
}

/// A server that is upgraded may learn it.
#[tokio::test(start_paused = true)]
async fn refused_streaming_list_is_forgotten_after_half_an_hour() {
    let client = answering(|_| (200, String::new())).with_streamed_lists(true);
    let clone = client.clone();
    let [pods, others] = ["pods", "others"].map(|plural| ApiResource::new("", "v1", "Pod", plural));
    assert!(client.can_stream_lists(&pods));
    clone.cannot_stream_lists(&pods);
    assert!(!client.can_stream_lists(&pods));
    assert!(client.can_stream_lists(&others), "an extension's server may refuse what others do");
    tokio::time::advance(ASK_AGAIN).await;
    assert!(client.can_stream_lists(&pods));
}

#[tokio::test(start_paused = true)]
async fn a_silent_list_times_out() {
    let service = tower::service_fn(|_: Request<Body>| {
        let start = Ok::<_, Infallible>(http_body::Frame::data(Bytes::from_static(b"{\"items\":[{}")));
        let silence = futures_util::StreamExt::chain(
            futures_util::stream::iter([start]),
            futures_util::stream::pending(),
        );
        let body = http_body_util::StreamBody::new(silence);
        std::future::ready(Ok::<_, Infallible>(Response::new(body)))
    });
    let client = ApiClient::new(Client::new(service, "default"));
    let request = Request::get("/api/v1/pods").body(Body::empty()).unwrap();
    let idle = Duration::from_secs(60);
    let mut list = client.open_list("list pods", request, idle).await.unwrap();
    assert_eq!(list.next().await.unwrap().unwrap(), "{}");
    assert!(matches!(list.next().await, Err(Error::Timeout { after, .. }) if after == idle));
}

/// A byte now and then, which is never the end.
#[tokio::test(start_paused = true)]
async fn dripping_list_times_out() {
    let service = tower::service_fn(|_: Request<Body>| {
        let drops = futures_util::stream::unfold((), |()| async {
            tokio::time::sleep(Duration::from_secs(50)).await;
            Some((Ok::<_, Infallible>(http_body::Frame::data(Bytes::from_static(b" "))), ()))
        });
        let body = http_body_util::StreamBody::new(Box::pin(drops));
        std::future::ready(Ok::<_, Infallible>(Response::new(body)))
    });
    let client = ApiClient::new(Client::new(service, "default"));
    let request = Request::get("/api/v1/pods").body(Body::empty()).unwrap();
    let mut list = client.open_list("list pods", request, Duration::from_secs(60)).await.unwrap();
    let began = Instant::now();
    let ended = tokio::time::timeout(Duration::from_secs(3600), list.next()).await.expect("it ends");
    assert!(matches!(ended, Err(Error::Timeout { .. })));
    assert_eq!(began.elapsed(), Duration::from_secs(60));
}

/// As slow as it may be: 4 KiB a second, for ten minutes.
#[tokio::test(start_paused = true)]
async fn a_slow_list_has_the_time_that_it_needs() {
    use futures_util::StreamExt;

    let service = tower::service_fn(|_: Request<Body>| {
        let item = format!(r#"{{"metadata":{{"name":"{}"}}}},"#, "x".repeat(4096));
        let pieces = (0..600).map(move |_| item.clone());
        let pieces = std::iter::once(r#"{"items":["#.to_owned()).chain(pieces);
        let end = r#"{"metadata":{"name":"last"}}],"metadata":{"resourceVersion":"7"}}"#.to_owned();
        let frames = futures_util::stream::iter(pieces.chain([end])).then(|piece| async {
            tokio::time::sleep(Duration::from_secs(1)).await;
            Ok::<_, Infallible>(http_body::Frame::data(Bytes::from(piece)))
        });
        let body = http_body_util::StreamBody::new(Box::pin(frames));
        std::future::ready(Ok::<_, Infallible>(Response::new(body)))
    });
    let client = ApiClient::new(Client::new(service, "default"));
    let request = Request::get("/api/v1/pods").body(Body::empty()).unwrap();
    let mut list = client.open_list("list pods", request, Duration::from_secs(60)).await.unwrap();
    let mut items = 0;
    while list.next().await.unwrap().is_some() {
        items += 1;
    }
    assert_eq!((items, list.finish().unwrap().resource_version.as_str()), (601, "7"));
}

#[tokio::test]
async fn kind_is_discovered_or_is_not_served() {
    let client = answering(|request| match request.uri().path() {
        "/apis/apps/v1" => {
            let served = json!({"kind": "APIResourceList", "groupVersion": "apps/v1", "resources": [
                {"name": "deployments/scale", "kind": "Scale", "namespaced": true},
                {"name": "deployments/status", "kind": "Deployment", "namespaced": true},
                {"name": "deployments", "kind": "Deployment", "namespaced": true},
            ]});
            (200, served.to_string())
        }
        "/api/v1" => {
            let served = json!({"resources": [{"name": "nodes", "kind": "Node", "namespaced": false}]});
            (200, served.to_string())
        }
        _ => (404, json!({"kind": "Status", "code": 404, "reason": "NotFound"}).to_string()),
    });
    let found = client.discover("apps", "v1", "Deployment").await.unwrap().unwrap();
    assert_eq!((found.resource, found.is_namespaced), (DEPLOYMENTS, true));
    let node = client.discover("", "v1", "Node").await.unwrap().unwrap();
    assert_eq!((node.resource.path(None).as_str(), node.is_namespaced), ("/api/v1/nodes", false));
    for (group, kind) in [("apps", "Scale"), ("apps", "Foo"), ("example.com", "Deployment")] {
        assert_eq!(client.discover(group, "v1", kind).await.unwrap(), None, "{group} {kind}");
    }
}

#[tokio::test]
async fn failed_discovery_is_an_error() {
    for (code, body) in [(503, ""), (403, ""), (200, "{}"), (200, "no JSON")] {
        let client = answering(move |_| (code, body.to_owned()));
        assert!(client.discover("apps", "v1", "Deployment").await.is_err(), "{code} {body}");
    }
}
