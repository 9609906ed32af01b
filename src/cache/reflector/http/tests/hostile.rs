//! Bodies that a broken or hostile server may send: those of `hack/fuzz/corpus`, cut, changed at random, and without end.
//! The fuzz targets read the same corpus.

use std::fmt::Debug;
use std::sync::atomic::{AtomicUsize, Ordering};

use k8s_openapi::api::apps::v1::Deployment;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select};
use serde_json::Value;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::*;
use crate::cache::{InformerConfig, SharedInformer};
use crate::client::list_items::LENGTH_MAX;
use crate::controller::kinds::deployment::ObservedDeployment;
use crate::testing::{Media, list_body, watch_body};

/// Number of changed bodies, unless `WINDLASS_HOSTILE_BODIES` says otherwise.
const BODIES: u32 = 300;

pub(super) fn bodies() -> u32 {
    let Ok(text) = std::env::var("WINDLASS_HOSTILE_BODIES") else { return BODIES };
    text.parse().unwrap_or_else(|_| panic!("WINDLASS_HOSTILE_BODIES is not a number: {text}"))
}

pub(super) fn corpus(target: &str) -> Vec<Vec<u8>> {
    let folder = format!("{}/hack/fuzz/corpus/{target}", env!("CARGO_MANIFEST_DIR"));
    let files = std::fs::read_dir(&folder).unwrap_or_else(|error| panic!("{folder}: {error}"));
    let mut files: Vec<_> = files.map(|file| file.unwrap().path()).collect();
    files.sort();
    // Of protobuf, one for each kind.
    let least = if target.ends_with("-protobuf") { 4 } else { 5 };
    assert!(files.len() >= least, "{folder} has {} files", files.len());
    files.into_iter().map(|file| std::fs::read(file).unwrap()).collect()
}

/// Runs without the network, and without waiting for a timeout.
pub(super) fn block_on<T>(future: impl Future<Output = T>) -> T {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.enable_time().start_paused(true).build().unwrap().block_on(future)
}

/// Cuts a body into pieces of these sizes, over and over; without sizes, into one.
pub(super) fn cut(mut body: &[u8], sizes: &[usize]) -> Vec<Bytes> {
    let mut pieces = Vec::new();
    let mut sizes = sizes.iter().cycle();
    while !body.is_empty() {
        let size = sizes.next().map_or(body.len(), |size| *size.min(&body.len()));
        let (piece, rest) = body.split_at(size);
        pieces.push(Bytes::copy_from_slice(piece));
        body = rest;
    }
    pieces
}

/// Returns the events of a watch, and the error that ended it.
async fn watched<K: TypedObject + Debug>(body: &[u8], sizes: &[usize]) -> (Vec<String>, Option<String>) {
    let (events, error) = watch_body::<K>(Media::Json, cut(body, sizes)).await;
    let events = events.into_iter().map(|event| format!("{event:?}")).collect();
    (events, error.map(|error| format!("{error:?}")))
}

/// Returns each item of a page and its metadata.
async fn listed<K: TypedObject + Debug>(
    body: &[u8],
    sizes: &[usize],
) -> Result<(Vec<String>, String), String> {
    let page = list_body::<K>(Media::Json, cut(body, sizes)).await.map_err(|error| format!("{error:?}"))?;
    let items = page.items.iter().map(|item| format!("{item:?}")).collect();
    Ok((items, format!("{} {:?}", page.resource_version, page.continue_token)))
}

/// A change of some bytes.
#[derive(Clone, Debug)]
enum Change {
    Remove(Index, usize),
    Replace(Index, Vec<u8>),
    Insert(Index, Vec<u8>),
    Repeat(Index, usize, usize),
}

impl Change {
    fn apply(&self, body: &mut Vec<u8>) {
        let at = |index: &Index| index.index(body.len() + 1);
        let (start, end, new) = match self {
            Self::Remove(index, length) => (at(index), at(index) + length, Vec::new()),
            Self::Replace(index, new) => (at(index), at(index) + new.len(), new.clone()),
            Self::Insert(index, new) => (at(index), at(index), new.clone()),
            Self::Repeat(index, length, times) => {
                let end = (at(index) + length).min(body.len());
                (end, end, body[at(index)..end].repeat(*times))
            }
        };
        body.splice(start..end.min(body.len()), new);
    }
}

fn change() -> impl Strategy<Value = Change> {
    let snippets: Vec<&[u8]> = vec![
        b"\"",
        b"\\",
        b"{",
        b"}",
        b"[",
        b"]",
        b",",
        b":",
        b"\n",
        b"\r\n",
        b" ",
        b"\0",
        b"\x1b",
        b"0",
        b"-",
        b"1e999",
        b"null",
        b"\"items\":[",
        b"\"type\":",
        b"\\u0000",
        b"\\ud800",
        b"\xff\xfe",
        b"\xc3",
        b"\xed\xa0\x80",
    ];
    let bytes = || prop_oneof![select(snippets.clone()).prop_map(<[u8]>::to_vec), vec(any::<u8>(), 1..8)];
    prop_oneof![
        (any::<Index>(), 1..200_usize).prop_map(|(at, length)| Change::Remove(at, length)),
        (any::<Index>(), bytes()).prop_map(|(at, new)| Change::Replace(at, new)),
        (any::<Index>(), bytes()).prop_map(|(at, new)| Change::Insert(at, new)),
        (any::<Index>(), 1..200_usize, 1..300_usize).prop_map(|(at, n, times)| Change::Repeat(at, n, times)),
    ]
}

/// A body of the corpus after up to three changes.
pub(super) fn changed(target: &str) -> impl Strategy<Value = Vec<u8>> {
    (select(corpus(target)), vec(change(), 0..4)).prop_map(|(mut body, changes)| {
        changes.iter().for_each(|change| change.apply(&mut body));
        body
    })
}

/// Each line is an event, or the error that ends the watch.
async fn check_watch<K: TypedObject + Debug>(body: &[u8], sizes: &[usize]) -> Result<(), TestCaseError> {
    let (events, error) = watched::<K>(body, &[]).await;
    prop_assert_eq!(&watched::<K>(body, sizes).await, &(events.clone(), error.clone()));
    let complete = &body[..body.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1)];
    let lines = complete.split(|byte| *byte == b'\n').filter(|line| !line.trim_ascii().is_empty()).count();
    let answered = events.len() + usize::from(error.is_some());
    prop_assert!(answered == lines || error.is_some() && answered < lines, "{} of {} lines", answered, lines);
    Ok(())
}

/// A list has every item that another parser finds, too.
async fn check_list<K: TypedObject + Debug>(body: &[u8], sizes: &[usize]) -> Result<(), TestCaseError> {
    let page = listed::<K>(body, &[]).await;
    prop_assert_eq!(&listed::<K>(body, sizes).await, &page);
    // The cache reads over numbers and characters, in what it drops, that a JSON tree cannot have.
    if let (Ok((items, _)), Ok(tree)) = (page, serde_json::from_slice::<Value>(body)) {
        prop_assert_eq!(items.len(), tree["items"].as_array().map_or(0, Vec::len));
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(bodies()))]

    /// Changed bodies among them: none may panic, and each ends.
    #[test]
    fn pieces_do_not_change_the_result(
        (frames, page) in (changed("frames"), changed("pages")),
        sizes in vec(1..200_usize, 1..5),
    ) {
        block_on(async {
            check_watch::<Deployment>(&frames, &sizes).await?;
            check_watch::<ObservedDeployment>(&frames, &sizes).await?;
            check_list::<Deployment>(&page, &sizes).await?;
            check_list::<ObservedDeployment>(&page, &sizes).await
        })?;
    }
}

#[tokio::test]
async fn cut_watch_has_prefix_of_events() {
    for body in corpus("frames") {
        let (events, error) = watched::<ObservedDeployment>(&body, &[]).await;
        for end in 0..body.len() {
            let (before, ended_by) = watched::<ObservedDeployment>(&body[..end], &[]).await;
            assert!(events.starts_with(&before), "{end} bytes: {before:?}");
            assert!(
                ended_by.is_none() || (&before, &ended_by) == (&events, &error),
                "{end} bytes: {ended_by:?}"
            );
        }
    }
}

#[tokio::test]
async fn cut_list_is_never_complete() {
    let mut complete = 0;
    for body in corpus("pages") {
        complete += usize::from(listed::<ObservedDeployment>(&body, &[]).await.is_ok());
        for end in 0..body.trim_ascii_end().len() {
            let page = listed::<ObservedDeployment>(&body[..end], &[]).await;
            assert!(page.is_err(), "{end} bytes: {page:?}");
        }
    }
    assert!(complete >= 5, "{complete} complete lists");
}

/// A body that begins with `start` and repeats a piece of 64 KiB; and how many pieces were read.
fn endless(start: &str, repeated: &str) -> (impl Iterator<Item = Bytes> + Send + 'static, Arc<AtomicUsize>) {
    let piece = Bytes::from(repeated.repeat((64 << 10) / repeated.len()));
    let pulled = Arc::new(AtomicUsize::new(0));
    let seen = pulled.clone();
    let pieces = std::iter::repeat_with(move || {
        let before = seen.fetch_add(1, Ordering::Relaxed);
        assert!(before < 1000, "the body is read for ever");
        piece.clone()
    });
    (std::iter::once(Bytes::from(start.to_owned())).chain(pieces), pulled)
}

/// Number of pieces of [`endless`] that are longer than anything may be.
const PIECES_MAX: usize = LENGTH_MAX / (64 << 10) + 2;

#[tokio::test]
async fn endless_watch_ends_after_bounded_bytes() {
    let object = r#"{"type":"ADDED","object":{"metadata":{"name":""#;
    for (start, repeated) in
        [(object, "a"), (object, "\\u0041"), ("", "["), ("", " "), ("", "\n"), ("", " \r\n"), ("{", "\0")]
    {
        let (body, pulled) = endless(start, repeated);
        let (events, error) = watch_body::<Deployment>(Media::Json, body).await;
        assert!(events.is_empty() && matches!(error, Some(Error::TooLong { .. })), "{repeated:?}: {error:?}");
        assert!(pulled.load(Ordering::Relaxed) <= PIECES_MAX, "{repeated:?}: {pulled:?}");
    }
}

#[tokio::test]
async fn endless_list_ends_after_bounded_bytes() {
    let items = r#"{"metadata":{"resourceVersion":"1"},"items":["#;
    let item = format!(r#"{items}{{"metadata":{{"name":""#);
    for (start, repeated) in [
        (r#"{"metadata":{"resourceVersion":""#, "a"),
        (r#"{"metadata":{"resourceVersion":"1"},"more":["#, r#"{"items":[{}]},"#),
        (item.as_str(), "a"),
        (item.as_str(), "\\\""),
        (items, " "),
        (items, "0,"),
        (items, "["),
        (items, "{"),
        ("", "{"),
        ("", "]"),
        ("", " \n"),
        ("", "\0"),
    ] {
        let (body, pulled) = endless(start, repeated);
        let page = list_body::<Deployment>(Media::Json, body).await;
        assert!(matches!(page, Err(Error::TooLong { .. })), "{start}{repeated}: {page:?}");
        assert!(pulled.load(Ordering::Relaxed) <= PIECES_MAX, "{start}{repeated}: {pulled:?}");
    }
}

/// Adds the path of each value below this one.
fn paths(value: &Value, path: &str, into: &mut Vec<String>) {
    into.push(path.to_owned());
    let escaped = |key: &str| key.replace('~', "~0").replace('/', "~1");
    match value {
        Value::Object(map) => map.iter().for_each(|(k, v)| paths(v, &format!("{path}/{}", escaped(k)), into)),
        Value::Array(all) => all.iter().enumerate().for_each(|(i, v)| paths(v, &format!("{path}/{i}"), into)),
        _ => {}
    }
}

/// Returns copies of a JSON text in which one value is another, for all values and some others; none of malformed text.
fn with_secrets(json: &[u8]) -> Vec<String> {
    let Ok(tree) = serde_json::from_slice::<Value>(json) else { return Vec::new() };
    let mut all = Vec::new();
    paths(&tree, "", &mut all);
    let text = "s3cret: expected s3cret, expected s3cret";
    let secrets = [
        text.into(),
        vec![text].into(),
        serde_json::json!({"key": text}),
        271_828_182.into(),
        (-16_180_339.5).into(),
    ];
    let mut copies = Vec::new();
    for path in all {
        for secret in &secrets {
            let mut copy = tree.clone();
            *copy.pointer_mut(&path).unwrap() = secret.clone();
            copies.push(copy.to_string());
        }
    }
    copies
}

/// Returns the text of an error with its causes; nothing for one that quotes the server's words.
fn text_of(error: &Error) -> String {
    if error.status().is_some() {
        return String::new();
    }
    let causes = std::iter::successors(Some(error as &dyn std::error::Error), |error| error.source());
    let causes: Vec<String> = causes.map(ToString::to_string).collect();
    format!("{} {error:?}", causes.join(": "))
}

async fn errors_of_watch<K: TypedObject>(line: &str) -> Vec<String> {
    let (events, error) = watch_body::<K>(Media::Json, [Bytes::from(format!("{line}\n"))]).await;
    let unreadable = events.into_iter().filter_map(|event| match event {
        WatchEvent::Added(object) | WatchEvent::Modified(object) | WatchEvent::Deleted(object) => {
            object.err()
        }
        WatchEvent::Bookmark { .. } => None,
    });
    unreadable.map(|unreadable| unreadable.error).chain(error.as_ref().map(text_of)).collect()
}

async fn errors_of_list<K: TypedObject>(body: &str) -> Vec<String> {
    let unreadable = |item: Listed<K>| match item {
        Listed::Changed(Cached::Unreadable(unreadable)) => Some(unreadable.error.clone()),
        Listed::Changed(Cached::Readable(_)) | Listed::Unchanged(_) => None,
    };
    match list_body::<K>(Media::Json, [Bytes::from(body.to_owned())]).await {
        Ok(page) => page.items.into_iter().filter_map(unreadable).collect(),
        Err(error) => vec![text_of(&error)],
    }
}

/// I17: a value may be a secret.
#[tokio::test]
async fn errors_of_bodies_quote_no_value() {
    let mut errors = Vec::new();
    for line in corpus("frames").iter().flat_map(|body| body.split(|byte| *byte == b'\n')) {
        for secret in with_secrets(if line.trim_ascii().is_empty() { b"{}" } else { line }) {
            errors.extend(errors_of_watch::<Deployment>(&secret).await);
            errors.extend(errors_of_watch::<ObservedDeployment>(&secret).await);
        }
    }
    for body in corpus("pages") {
        for secret in with_secrets(&body) {
            errors.extend(errors_of_list::<Deployment>(&secret).await);
            errors.extend(errors_of_list::<ObservedDeployment>(&secret).await);
        }
    }
    assert!(errors.len() > 1000, "{} errors", errors.len());
    let is_quoting =
        |error: &&String| ["s3cret", "271828182", "16180339"].iter().any(|value| error.contains(value));
    assert_eq!(errors.iter().find(is_quoting), None);
    assert_eq!(errors.iter().find(|error| error.len() > 500), None);
}

/// Answers each list with an object that does not decode; the first watch with another and rubbish, the second with a
/// line that does not end, and the others with silence.
fn broken_server() -> ListWatch<ObservedDeployment> {
    let mut watches = 0;
    let service = tower::service_fn(move |request: Request<Body>| {
        let odd = |version| {
            let metadata = format!(r#"{{"name":"odd","uid":"u","resourceVersion":"{version}"}}"#);
            format!(r#"{{"metadata":{metadata},"spec":{{"replicas":"three"}}}}"#)
        };
        let is_watch = request.uri().query().unwrap().contains("watch=true");
        watches += usize::from(is_watch);
        let body = match (is_watch, watches) {
            (false, _) => format!(r#"{{"metadata":{{"resourceVersion":"20"}},"items":[{}]}}"#, odd(11)),
            (true, 1) => format!("{{\"type\":\"MODIFIED\",\"object\":{}}}\nrubbish\n", odd(21)),
            (true, 2) => " ".repeat(FRAME_MAX + 1),
            (true, _) => String::new(),
        };
        let silence = stream::pending().take(usize::from(watches > 2));
        let frames =
            stream::iter([Ok::<_, Infallible>(http_body::Frame::data(Bytes::from(body)))]).chain(silence);
        std::future::ready(Ok::<_, Infallible>(http::Response::new(StreamBody::new(frames))))
    });
    ListWatch::new(ApiClient::new(Client::new(service, "default")))
}

#[tokio::test(start_paused = true)]
async fn each_broken_answer_is_counted() {
    let informer = SharedInformer::new(broken_server(), InformerConfig::default());
    let (running, shutdown) = (informer.clone(), CancellationToken::new());
    let stop = shutdown.clone();
    let mut tasks = JoinSet::new();
    tasks.spawn(async move { running.run(stop).await });
    tokio::time::sleep(Duration::from_secs(60)).await;
    let state = informer.state();
    assert_eq!((state.is_synced, state.objects), (true, 1), "what is there stays");
    assert_eq!(state.progress.lists, 3);
    assert_eq!(
        state.progress.decode_errors, 5,
        "an item, an event, a line, a long line, and the item in its old version"
    );
    shutdown.cancel();
    tasks.join_next().await.unwrap().unwrap().unwrap();
}
