mod endpoint;
mod files;

use std::fs;

use futures_util::future::BoxFuture;
use serde_json::json;

use self::endpoint::{Act, Endpoint, say};
use super::super::tests::{UID, call};
use super::super::{Hook, run};
use super::*;
use crate::testing::capture_log;

/// A timeout that no test reaches.
const LONG: Duration = Duration::from_secs(20);
const CANARY: &str = "canary-0123456789";

fn task(spec: &HttpSpec) -> HttpTask {
    HttpTask::new("notify", LONG, spec, Clock::system()).unwrap()
}

fn spec_of(endpoint: &Endpoint) -> HttpSpec {
    HttpSpec::new(&endpoint.url()).unwrap()
}

async fn ended(spec: &HttpSpec) -> Result<(), HookError> {
    run(&task(spec), &call(Hook::Create)).await
}

/// Runs a hook against an endpoint that reacts with `act`, and returns how the hook ended.
async fn met_with(act: Act) -> Result<(), HookError> {
    let endpoint = Endpoint::new(move |_| act.clone()).await;
    ended(&spec_of(&endpoint)).await
}

#[track_caller]
fn assert_retry(ended: Result<(), HookError>, text: &str) {
    match ended {
        Err(HookError::Retry { message, after: None }) if message.contains(text) => {}
        other => panic!("{text:?}: {other:?}"),
    }
}

#[track_caller]
fn assert_permanent(ended: Result<(), HookError>, text: &str) {
    match ended {
        Err(HookError::Permanent { message }) if message.contains(text) => {}
        other => panic!("{text:?}: {other:?}"),
    }
}

#[tokio::test]
async fn hook_is_one_post_with_body_and_key() {
    let endpoint = Endpoint::new(|_| say(204, "", "")).await;
    let task = task(&spec_of(&endpoint));
    for hook in Hook::CREATION.into_iter().chain(Hook::DELETION) {
        let call = call(hook);
        assert_eq!(run(&task, &call).await, Ok(()));
        let seen = endpoint.seen().pop().unwrap();
        assert!(seen.head.starts_with("POST /hooks HTTP/1.1\r\n"), "{}", seen.head);
        assert_eq!(seen.header("idempotency-key"), Some(call.operation_id()));
        assert_eq!(seen.header("content-type"), Some("application/json"));
        assert_eq!(seen.header("user-agent"), Some(concat!("windlass/", env!("CARGO_PKG_VERSION"))));
        assert_eq!(seen.header("authorization"), None);
        let body = json!({"operationID": call.operation_id(), "task": "notify", "hook": hook.as_str(),
            "webapp": {"namespace": "default", "name": "shop", "uid": UID, "generation": 1,
                "spec": {"version": "1.2", "replicas": 2, "image": "nginx"}}});
        assert_eq!(seen.body, body);
    }
    assert_eq!(endpoint.seen().len(), 6);
}

#[test]
fn each_status_code_maps_to_its_outcome() {
    let judge = |code: u16, is_same| {
        let ended = hook_result(StatusCode::from_u16(code).unwrap(), Some(LONG), is_same);
        if let Err(error) = &ended {
            assert!(error.message().contains(&code.to_string()), "{error}");
        }
        match ended {
            Ok(()) => "done",
            Err(HookError::Retry { after, .. }) => {
                assert_eq!(after, Some(LONG), "{code}");
                "retry"
            }
            Err(HookError::Permanent { .. }) => "permanent",
            Err(HookError::NotYet { .. }) => "not yet",
        }
    };
    for code in 100..1000 {
        let expected = match code {
            200..=299 => "done",
            408 | 425 | 429 | 500..=999 => "retry",
            _ => "permanent",
        };
        assert_eq!(judge(code, false), expected, "{code}");
        if code != 409 {
            assert_eq!(judge(code, true), expected, "the body of a {code} does not count");
        }
    }
    assert_eq!(judge(409, true), "done");
}

#[tokio::test]
async fn a_conflict_is_judged_by_its_operation_id() {
    let id = call(Hook::Create).operation_id().to_owned();
    let other = call(Hook::Delete).operation_id().to_owned();
    let is_done = [
        format!(r#"{{"operationID": "{id}"}}"#),
        format!(r#"{{"message": "done before", "operationID": "{id}", "more": [1, {{}}]}}"#),
    ];
    for body in is_done {
        assert_eq!(met_with(say(409, "", &body)).await, Ok(()), "{body}");
    }
    let is_refused = [
        String::new(),
        id.clone(),
        format!(r#""{id}""#),
        format!(r#"{{"operationID": "{other}"}}"#),
        format!(r#"{{"operationid": "{id}"}}"#),
        format!(r#"{{"error": {{"operationID": "{id}"}}}}"#),
        format!(r#"[{{"operationID": "{id}"}}]"#),
        format!(r#"{{"operationID": ["{id}"]}}"#),
        format!(r#"{{"operationID": "{id}""#),
        format!("<html>{id}</html>"),
        "[".repeat(10_000),
    ];
    for body in is_refused {
        assert_permanent(met_with(say(409, "", &body)).await, "409 Conflict, without this operation's ID");
    }
    // A truncated body proves nothing.
    let cut = "HTTP/1.1 409 Conflict\r\nContent-Length: 100\r\n\r\n{".to_owned();
    assert_retry(met_with(Act::SayAndClose(cut)).await, "broke before the answer arrived");
}

#[tokio::test]
async fn broken_connection_is_retried() {
    assert_retry(met_with(Act::Close).await, "broke before the answer arrived");
    let half = "HTTP/1.1 200 OK\r\nContent-".to_owned();
    assert_retry(met_with(Act::SayAndClose(half)).await, "broke before the answer arrived");
    assert_retry(
        met_with(Act::SayAndClose("what?\r\n\r\n".to_owned())).await,
        "broke before the answer arrived",
    );
    let headers_without_end = Act::SayWithoutEnd("HTTP/1.1 200 OK\r\nX: ".to_owned());
    assert_retry(met_with(headers_without_end).await, "broke before the answer arrived");
    let nobody = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let spec = HttpSpec::new(&format!("http://{nobody}/")).unwrap();
    assert_retry(ended(&spec).await, "refused the connection");
}

#[tokio::test]
async fn reset_connection_is_retried() {
    let half = "HTTP/1.1 200 OK\r\nContent-".to_owned();
    for act in [Act::Close, Act::SayAndClose(half)] {
        let endpoint = Endpoint::that_resets(move |_| act.clone()).await;
        assert_retry(ended(&spec_of(&endpoint)).await, "broke before the answer arrived");
    }
}

#[tokio::test]
async fn slow_answer_within_the_timeout_counts() {
    let delay = Duration::from_millis(200);
    let late = |code: u16| Act::SayLater(delay, format!("HTTP/1.1 {code} X\r\nContent-Length: 0\r\n\r\n"));
    assert_eq!(met_with(late(200)).await, Ok(()));
    assert_permanent(met_with(late(404)).await, "404 Not Found");
}

#[tokio::test]
async fn hanging_endpoint_times_out() {
    let in_the_body = "HTTP/1.1 409 Conflict\r\nContent-Length: 100\r\n\r\n{".to_owned();
    for act in [Act::Hang, Act::Say("HTTP/1.1 200".to_owned()), Act::Say(in_the_body)] {
        let endpoint = Endpoint::new(move |_| act.clone()).await;
        let timeout = Duration::from_millis(300);
        let task = HttpTask::new("notify", timeout, &spec_of(&endpoint), Clock::system()).unwrap();
        assert_retry(run(&task, &call(Hook::Create)).await, "create timed out after 300ms");
        assert!(endpoint.seen().len() <= 1, "no request is repeated");
    }
}

#[tokio::test]
async fn redirects_are_not_followed() {
    let target = Endpoint::new(|_| say(200, "", "")).await;
    for code in [301, 302, 303, 307, 308] {
        let location = format!("Location: {}\r\n", target.url());
        assert_permanent(met_with(say(code, &location, "")).await, "redirects are not followed");
    }
    assert!(target.seen().is_empty());
}

#[tokio::test]
async fn an_endless_answer_is_judged_by_its_code() {
    let chunked = |code: u16| {
        Act::SayWithoutEnd(format!("HTTP/1.1 {code} X\r\nTransfer-Encoding: chunked\r\n\r\nfffffff\r\n"))
    };
    let long =
        |code: u16| Act::SayWithoutEnd(format!("HTTP/1.1 {code} X\r\nContent-Length: 99999999999\r\n\r\n"));
    let until_closed = |code: u16| Act::SayWithoutEnd(format!("HTTP/1.1 {code} X\r\n\r\n"));
    for act in [chunked, long, until_closed] {
        assert_eq!(met_with(act(200)).await, Ok(()));
        assert_retry(met_with(act(503)).await, "503 Service Unavailable");
        assert_permanent(met_with(act(400)).await, "400 Bad Request");
        assert_permanent(met_with(act(409)).await, "409 Conflict");
    }
    // Just inside the cap, and just outside.
    let call = call(Hook::Create);
    let body = json!({"operationID": call.operation_id()}).to_string();
    let endpoint = {
        let body = body.clone();
        Endpoint::new(move |_| say(409, "", &body)).await
    };
    let capped = |max| HttpSpec { max_response_bytes: max, ..spec_of(&endpoint) };
    assert_eq!(ended(&capped(body.len())).await, Ok(()));
    assert_permanent(ended(&capped(body.len() - 1)).await, "409 Conflict");
}

#[test]
fn retry_after_is_read_in_all_its_forms() {
    let now: Timestamp = "1994-11-06T08:49:07Z".parse().unwrap();
    let cases = [
        ("0", Some(0)),
        ("30", Some(30)),
        (" 30 ", Some(30)),
        ("600", Some(600)),
        ("601", Some(600)),
        ("99999999999999999999999999", Some(600)),
        ("Sun, 06 Nov 1994 08:49:37 GMT", Some(30)),
        ("Sunday, 06-Nov-94 08:49:37 GMT", Some(30)),
        ("Sun Nov  6 08:49:37 1994", Some(30)),
        ("Sun, 06 Nov 1994 08:49:07 GMT", Some(0)),
        ("Sun, 06 Nov 1994 08:00:00 GMT", Some(0)),
        ("Mon, 07 Nov 1994 08:49:37 GMT", Some(600)),
        ("", None),
        ("-1", None),
        ("1.5", None),
        ("soon", None),
        ("Sun, 06 Nov 1994 08:49:37", None),
    ];
    for (text, expected) in cases {
        let mut response = Response::new(());
        response.headers_mut().insert(RETRY_AFTER, HeaderValue::from_str(text).unwrap());
        assert_eq!(retry_after(&response, now), expected.map(Duration::from_secs), "{text:?}");
    }
    assert_eq!(retry_after(&Response::new(()), now), None);
}

#[tokio::test]
async fn retry_after_reaches_the_caller() {
    let now: Timestamp = "1994-11-06T08:49:07Z".parse().unwrap();
    let date = "Sun, 06 Nov 1994 08:51:07 GMT";
    for (code, text) in [(429, "120"), (429, date), (503, "120"), (503, date)] {
        let headers = format!("Retry-After: {text}\r\n");
        let endpoint = Endpoint::new(move |_| say(code, &headers, "")).await;
        let task = HttpTask::new("notify", LONG, &spec_of(&endpoint), Clock::starting_at(now)).unwrap();
        let Err(HookError::Retry { after: Some(after), .. }) = run(&task, &call(Hook::Create)).await else {
            panic!("{code}: a retry with a delay is expected");
        };
        // The clock runs while the request is under way.
        assert!((60..=120).contains(&after.as_secs()), "{code}: {after:?}");
    }
}

/// Whatever happens, the token, the endpoint's answer and its address stay hidden.
#[tokio::test]
async fn errors_and_logs_hold_no_secrets() {
    let dir = tempfile::tempdir().unwrap();
    let token = dir.path().join("token");
    let log = capture_log();
    let mut texts = Vec::new();
    let headers = format!("Location: http://{CANARY}.invalid/\r\nRetry-After: {CANARY}\r\nX: {CANARY}\r\n");
    let mut acts: Vec<Act> = [200, 302, 400, 401, 404, 409, 429, 500, 503]
        .into_iter()
        .map(|code| say(code, &headers, &format!(r#"{{"operationID": "{CANARY}"}}"#)))
        .collect();
    acts.push(Act::SayAndClose(format!("HTTP/1.1 200 {CANARY}\r\n{CANARY}\r\n\r\n")));
    acts.push(Act::SayAndClose(format!("{CANARY}\r\n\r\n")));
    acts.push(Act::SayAndClose(format!("HTTP/1.1 409 X\r\nContent-Length: 99\r\n\r\n{CANARY}")));
    acts.push(Act::SayAndClose(format!("HTTP/1.1 409 X\r\nTransfer-Encoding: chunked\r\n\r\n{CANARY}\r\n")));
    acts.push(Act::Close);
    for act in acts {
        fs::write(&token, CANARY).unwrap();
        let endpoint = Endpoint::new(move |_| act.clone()).await;
        let url = format!("{}/{CANARY}?token={CANARY}", endpoint.url());
        let spec = HttpSpec { token_file: Some(token.clone()), ..HttpSpec::new(&url).unwrap() };
        let task = task(&spec);
        texts.push(format!("{spec:?} {task:?} {:?}", call(Hook::Create)));
        // With all causes, as the log shows them.
        let request = task.request(&call(Hook::Create), Some(&bearer(CANARY.as_bytes()).unwrap()));
        texts.push(format!("{request:?}").replace(&url, ""));
        texts.push(format!("{:?}", task.transport.send(request, 1000).await.err()));
        let ended = run(&task, &call(Hook::Create)).await;
        texts.push(ended.map_or_else(|error| format!("{error} {error:?}"), |()| String::new()));
        assert!(endpoint.seen()[0].head.contains(CANARY), "the token was sent");
        fs::write(&token, format!("{CANARY} {CANARY}")).unwrap();
        texts.push(format!("{:?}", run(&task, &call(Hook::Create)).await));
    }
    for url in
        [format!("http://{CANARY}:{CANARY}@h/"), format!("{CANARY}://h/"), format!("http://h:{CANARY}/")]
    {
        texts.push(format!("{:?}", HttpSpec::new(&url).unwrap_err()));
    }
    texts.extend(log.lines());
    assert!(texts.iter().any(|text| text.contains("DEBUG Could not call")), "the log is captured");
    for text in texts {
        assert!(!text.contains(CANARY), "{text}");
    }
}

#[tokio::test]
async fn connections_are_reused() {
    let endpoint = Endpoint::new(|_| say(200, "", "{\"what\": \"ever\"}")).await;
    let task = task(&spec_of(&endpoint));
    for _ in 0..5 {
        assert_eq!(run(&task, &call(Hook::Create)).await, Ok(()));
    }
    let seen = endpoint.seen();
    assert!(seen.iter().all(|request| request.connection == 1), "{seen:?}");
}

/// Runs one of these tests in a process whose environment names a proxy that does not exist.
#[test]
fn environment_proxy_is_ignored() {
    let path = module_path!().split_once("::").unwrap().1;
    let mut child = std::process::Command::new(std::env::current_exe().unwrap());
    child.args(["--exact", &format!("{path}::hook_is_one_post_with_body_and_key")]);
    for name in ["HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"] {
        child.env(name, "http://127.0.0.1:1");
    }
    let output = child.env_remove("NO_PROXY").env_remove("no_proxy").output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success() && text.contains("1 passed"), "{text}");
}

#[test]
fn unsupported_urls_are_refused() {
    for url in ["http://h", "https://h:8443/a?b=c", "HTTPS://H/", "http://[::1]:80/", "http://127.0.0.1/"] {
        assert!(HttpSpec::new(url).is_ok(), "{url}");
    }
    let refused = [
        ("", "not a URL"),
        ("h/path", "not a URL"),
        ("/path", "not a URL"),
        ("http://", "not a URL"),
        ("http://h:port/", "not a URL"),
        ("ftp://h/", "must be http or https"),
        ("file:///etc/passwd", "must be http or https"),
        ("http://me@h/", "user info"),
        ("https://me:password@h/", "user info"),
        ("https://:password@h/", "user info"),
    ];
    for (url, why) in refused {
        let error = HttpSpec::new(url).unwrap_err().to_string();
        assert!(error.contains(why), "{url}: {error}");
    }
}

/// Answers without a socket.
struct Canned;

impl Transport for Canned {
    fn send(
        &self,
        request: Request<Bytes>,
        _: usize,
    ) -> BoxFuture<'_, Result<Response<Option<Bytes>>, SendError>> {
        let id = request.headers()[IDEMPOTENCY_KEY].to_str().unwrap();
        let body = json!({"operationID": id}).to_string();
        Box::pin(async move {
            tokio::time::sleep(Duration::from_secs(10)).await;
            Ok(Response::builder().status(409).body(Some(Bytes::from(body))).expect("the answer is valid"))
        })
    }
}

#[tokio::test(start_paused = true)]
async fn custom_transport_needs_no_sockets() {
    let spec = HttpSpec::new("https://endpoint.invalid/").unwrap();
    let task = |seconds| {
        let timeout = Duration::from_secs(seconds);
        HttpTask::with_transport("notify", timeout, &spec, Clock::system(), Arc::new(Canned))
    };
    assert_eq!(run(&task(11), &call(Hook::Create)).await, Ok(()));
    assert_retry(run(&task(9), &call(Hook::Create)).await, "create timed out after 9s");
}
