//! Built-in kinds as protobuf: what a real API server wrote, and bodies that a broken one may send.
//!
//! Kubernetes 1.37.2 wrote the objects of `tests/data/every-field.json`, asked by `Accept` for protobuf (`hack/fuzz/corpus`)
//! and for JSON (`tests/data/wire`).

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;

use parking_lot::Mutex;
use proptest::collection::vec;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::hostile::{block_on, bodies, changed, corpus, cut};
use super::*;
use crate::api::samplecontroller::v1alpha1::Foo;
use crate::cache::Slim;
use crate::client::list_items::LENGTH_MAX;
use crate::client::protobuf::{METADATA, written};
use crate::controller::kinds::deployment::ObservedDeployment;
use crate::controller::kinds::ingress::ObservedIngress;
use crate::controller::kinds::pod::ObservedPod;
use crate::controller::kinds::service::ObservedService;
use crate::testing::{Media, list_body, source as body_source, watch_body};

/// Returns the protobuf and the JSON that a real API server wrote for this kind.
fn real(plural: &str, folder: &str, suffix: &str) -> (Bytes, Bytes) {
    let root = env!("CARGO_MANIFEST_DIR");
    let read = |path: String| Bytes::from(std::fs::read(&path).unwrap_or_else(|e| panic!("{path}: {e}")));
    (
        read(format!("{root}/hack/fuzz/corpus/{folder}-protobuf/{plural}")),
        read(format!("{root}/tests/data/wire/{plural}{suffix}.json")),
    )
}

async fn check_real<K: TypedObject + Debug + PartialEq>(found: &mut BTreeMap<String, bool>) {
    let plural = K::resource().plural;
    let listed = async |media, body| {
        let page = list_body::<K>(media, [body]).await.unwrap();
        let object = |item| match item {
            Listed::Changed(Cached::Readable(object)) => object,
            other => panic!("{other:?}"),
        };
        (page.resource_version, page.items.into_iter().map(object).collect::<Vec<_>>())
    };
    let (protobuf, json) = real(&plural, "pages", "");
    for item in serde_json::from_slice::<Value>(&json).unwrap()["items"].as_array().unwrap() {
        written::note_fields(K::protobuf().unwrap(), item, found);
    }
    let (from_protobuf, from_json) =
        (listed(Media::Protobuf, protobuf).await, listed(Media::Json, json).await);
    assert!(!from_json.1.is_empty(), "{plural}");
    assert_eq!(format!("{from_protobuf:#?}"), format!("{from_json:#?}"));
    assert_eq!(from_protobuf, from_json);

    let (protobuf, json) = real(&plural, "frames", "-watch");
    // A server sends the objects that there are in any order, and at the end a bookmark with its newest version.
    let watched = async |media, body| {
        let (mut events, error) = watch_body::<K>(media, [body]).await;
        let last = events.pop();
        assert!(error.is_none() && matches!(last, Some(WatchEvent::Bookmark { .. })), "{plural}: {error:?}");
        assert!(!events.is_empty(), "{plural}");
        events.iter().map(|event| format!("{event:#?}")).collect::<BTreeSet<_>>()
    };
    assert_eq!(watched(Media::Protobuf, protobuf).await, watched(Media::Json, json).await);
}

#[tokio::test]
async fn what_a_real_server_writes_is_the_same_from_protobuf() {
    let mut found = BTreeMap::new();
    check_real::<ObservedDeployment>(&mut found).await;
    check_real::<ObservedService>(&mut found).await;
    check_real::<ObservedPod>(&mut found).await;
    check_real::<ObservedIngress>(&mut found).await;
    let missing: Vec<&String> = found.iter().filter(|(_, found)| !**found).map(|(field, _)| field).collect();
    assert_eq!(missing, Vec::<&String>::new(), "no object has them");
}

#[tokio::test]
async fn only_kinds_with_protobuf_are_asked_for_it() {
    async fn accepted<K: TypedObject>(asks: bool) -> Vec<String> {
        let asked = Arc::new(Mutex::new(Vec::new()));
        let seen = asked.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            seen.lock().push(request.headers()[header::ACCEPT].to_str().unwrap().to_owned());
            let page = r#"{"metadata":{"resourceVersion":"7"},"items":[{"metadata":{"name":"a","resourceVersion":"1"}}]}"#;
            std::future::ready(Ok::<_, Infallible>(http::Response::new(Body::from(page.as_bytes().to_vec()))))
        });
        let client = ApiClient::new(Client::new(service, "default")).with_protobuf(asks);
        let source = ListWatch::<K>::new(client);
        let list = ListOptions { version: Version::Newest, limit: None, continue_token: None, shards: None };
        let page = source.list(&list, &store::pair(Indexers::default()).0).await.unwrap();
        assert_eq!(page.items.len(), 1, "an answer in JSON is read, too");
        source.watch(&options()).await.unwrap();
        std::mem::take(&mut *asked.lock())
    }
    let either = "application/vnd.kubernetes.protobuf, application/json";
    assert_eq!(accepted::<ObservedDeployment>(true).await, [either; 2]);
    assert_eq!(accepted::<ObservedDeployment>(false).await, ["application/json"; 2]);
    assert_eq!(accepted::<Slim<Foo>>(true).await, ["application/json"; 2]);
    assert_eq!(accepted::<ConfigMap>(true).await, ["application/json"; 2]);
}

fn deployment(name: &str, namespace: &str, version: &str, replicas: i64) -> Value {
    json!({"metadata": {"name": name, "namespace": namespace, "uid": format!("uid-of-{namespace}-{name}"),
        "resourceVersion": version}, "spec": {"replicas": replicas}})
}

/// Too many for 32 bits.
const UNREADABLE: i64 = 1 << 40;

fn page_of(items: &[Value]) -> Bytes {
    written::list("Deployment", ObservedDeployment::protobuf().unwrap(), items, "t").into()
}

fn frame_of(event: &str, object: &Value) -> Vec<u8> {
    written::frame(event, "Deployment", ObservedDeployment::protobuf().unwrap(), object)
}

#[tokio::test]
async fn undecodable_item_of_protobuf_does_not_affect_others() {
    let items = [deployment("a", "ns", "1", 2), deployment("b", "ns", "2", UNREADABLE)];
    let page = list_body::<ObservedDeployment>(Media::Protobuf, [page_of(&items)]).await.unwrap();
    assert_eq!((page.resource_version.as_str(), page.continue_token.as_deref()), ("9", Some("t")));
    let [Listed::Changed(a), Listed::Changed(Cached::Unreadable(b))] = &page.items[..] else {
        panic!("{:?}", page.items)
    };
    assert_eq!(a.readable().unwrap().spec.replicas, Some(2));
    assert_eq!((&*b.meta.uid, b.error.as_str()), ("uid-of-ns-b", "spec.replicas: expected i32"));
}

/// Neither what comes twice nor malformed metadata hides the identity.
#[tokio::test]
async fn malformed_object_of_protobuf_keeps_its_identity() {
    let whole = written::message(ObservedDeployment::protobuf().unwrap(), &deployment("a", "ns", "1", 2));
    let metadata = written::message(&METADATA, &deployment("b", "ns", "2", 2)["metadata"]);
    let (mut twice, mut malformed, mut list) = (whole, Vec::new(), Vec::new());
    written::bytes(&mut twice, 2, b"");
    // The generation once more, as a text.
    written::bytes(&mut malformed, 1, &[&metadata[..], b"\x3a\x01x"].concat());
    written::bytes(&mut list, 1, b"\x12\x019");
    written::bytes(&mut list, 2, &twice);
    written::bytes(&mut list, 2, &malformed);
    let body = written::body("DeploymentList", &list).into();
    let page = list_body::<ObservedDeployment>(Media::Protobuf, [body]).await.unwrap();
    let unreadable = page.items.iter().map(|item| match item {
        Listed::Changed(Cached::Unreadable(item)) => format!("{} {}", item.meta.object_name(), item.error),
        other => panic!("{other:?}"),
    });
    let expected = ["ns/a ?: duplicate field `spec`", "ns/b metadata.?: duplicate field `generation`"];
    assert_eq!(unreadable.collect::<Vec<_>>(), expected);
}

/// The second item would not decode, but the store has it in this version.
#[tokio::test]
async fn unchanged_item_of_protobuf_is_not_decoded_again() {
    let (store, mut writer) = store::pair::<ObservedDeployment>(Indexers::default());
    for name in ["a", "b"] {
        let kept: ObservedDeployment = serde_json::from_value(deployment(name, "ns", "1", 1)).unwrap();
        writer.upsert(Cached::new(Ok(kept)));
    }
    let items = [deployment("a", "ns", "2", 1), deployment("b", "ns", "1", UNREADABLE)];
    let options = ListOptions { version: Version::Newest, limit: None, continue_token: None, shards: None };
    let source = body_source::<ObservedDeployment>(Media::Protobuf, [page_of(&items)]);
    let page = source.list(&options, &store).await.unwrap();
    assert_eq!(format!("{:?}", page.items), "[Changed(ns/a@2), Unchanged(ns/b)]");
}

#[tokio::test]
async fn objects_of_other_shards_are_skipped_in_protobuf() {
    let sharding = Sharding { of: 16, by: Division::Range };
    let shards = Some(Arc::new(sharding.set([sharding.shard_of("ours")])));
    let items = [deployment("a", "theirs", "1", UNREADABLE), deployment("b", "ours", "2", 1)];
    let options =
        ListOptions { version: Version::Newest, limit: None, continue_token: None, shards: shards.clone() };
    let lists = body_source::<ObservedDeployment>(Media::Protobuf, [page_of(&items)]);
    let page = lists.list(&options, &store::pair(Indexers::default()).0).await.unwrap();
    assert_eq!(format!("{:?}", page.items), "[Changed(ours/b@2)]");
    assert_eq!(lists.traffic().skipped_objects(), 1);
    let frames = items.iter().map(|item| Bytes::from(frame_of("ADDED", item))).collect::<Vec<_>>();
    let watches = body_source::<ObservedDeployment>(Media::Protobuf, frames);
    let mut watch = watches.watch(&WatchOptions { shards, ..self::options() }).await.unwrap();
    let WatchEvent::Added(Ok(added)) = watch.next().await.unwrap().unwrap() else { panic!("not added") };
    assert_eq!(added.object_name().to_string(), "ours/b");
    assert!(watch.next().await.is_none());
    assert_eq!(watches.traffic().skipped_objects(), 1);
}

#[tokio::test]
async fn bookmark_and_error_of_a_protobuf_watch_are_read() {
    let bookmark = json!({"metadata": {"resourceVersion": "12",
        "annotations": {"k8s.io/initial-events-end": "true"}}});
    let status = json!({"status": "Failure", "code": 410, "reason": "Expired", "message": "too old"});
    let error = written::frame("ERROR", "Status", &crate::client::protobuf::STATUS, &status);
    let body = [frame_of("BOOKMARK", &bookmark), error].concat();
    let (events, error) = watch_body::<ObservedDeployment>(Media::Protobuf, [body.into()]).await;
    assert!(matches!(&events[..], [WatchEvent::Bookmark { resource_version, ends_initial_events: true }]
        if resource_version == "12"));
    assert!(error.unwrap().is_expired());
}

#[tokio::test]
async fn malformed_frame_of_protobuf_is_a_decode_error() {
    let without_version = json!({"metadata": {"name": "a"}});
    let framed = |body: &[u8]| [&u32::try_from(body.len()).unwrap().to_be_bytes()[..], body].concat();
    for frame in [
        frame_of("TURNED", &deployment("a", "ns", "1", 1)),
        frame_of("ADDED", &without_version),
        frame_of("BOOKMARK", &json!({"metadata": {}})),
        framed(b""),
        framed(b"rubbish"),
        framed(b"\x0a\x05ADDED\x12\x06\x0a\x04k8s\0"),
        framed(b"\x0a\x05ADDED\x12\x02\x0a\x00"),
    ] {
        let (events, error) = watch_body::<ObservedDeployment>(Media::Protobuf, [frame.clone().into()]).await;
        assert!(events.is_empty() && matches!(error, Some(Error::Decode { .. })), "{frame:?}: {error:?}");
    }
}

async fn watched(body: &[u8], sizes: &[usize]) -> (String, Option<String>) {
    let (events, error) = watch_body::<ObservedDeployment>(Media::Protobuf, cut(body, sizes)).await;
    (format!("{events:?}"), error.map(|error| format!("{error:?}")))
}

async fn listed(body: &[u8], sizes: &[usize]) -> Result<String, String> {
    let page = list_body::<ObservedDeployment>(Media::Protobuf, cut(body, sizes)).await;
    page.map(|page| format!("{page:?}")).map_err(|error| format!("{error:?}"))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(bodies()))]

    /// Changed bodies among them: none may panic, and each ends.
    #[test]
    fn pieces_of_protobuf_do_not_change_the_result(
        (frames, page) in (changed("frames-protobuf"), changed("pages-protobuf")),
        sizes in vec(1..200_usize, 1..5),
    ) {
        block_on(async {
            prop_assert_eq!(watched(&frames, &sizes).await, watched(&frames, &[]).await);
            prop_assert_eq!(listed(&page, &sizes).await, listed(&page, &[]).await);
            Ok(())
        })?;
    }
}

#[tokio::test]
async fn cut_protobuf_is_never_complete() {
    for body in corpus("pages-protobuf") {
        assert!(listed(&body, &[]).await.is_ok());
        // The envelope ends with two fields that are empty.
        for end in (0..body.len() - 4).step_by(7) {
            assert!(listed(&body[..end], &[]).await.is_err(), "{end} bytes");
        }
    }
    for body in corpus("frames-protobuf") {
        let all = watched(&body, &[]).await.0;
        for end in (0..body.len()).step_by(7) {
            let (events, error) = watched(&body[..end], &[]).await;
            assert!(
                all.starts_with(events.trim_end_matches(']')) && error.is_none(),
                "{end} bytes: {error:?}"
            );
        }
    }
}

#[tokio::test]
async fn endless_protobuf_ends_after_bounded_bytes() {
    let endless_of = |start: Vec<u8>, repeated: &[u8]| {
        let piece = Bytes::from(repeated.repeat((1 << 20) / repeated.len()));
        let mut pulled = 0;
        std::iter::once(Bytes::from(start)).chain(std::iter::repeat_with(move || {
            pulled += piece.len();
            assert!(pulled <= LENGTH_MAX + (2 << 20), "the body is read for ever");
            piece.clone()
        }))
    };
    let endless = |start: Vec<u8>| endless_of(start, &[0x12]);
    let (events, error) = watch_body::<ObservedDeployment>(Media::Protobuf, endless(vec![0xff; 4])).await;
    assert!(events.is_empty() && matches!(error, Some(Error::TooLong { .. })), "{error:?}");
    // A list, and in it an item, of many gigabytes; and a type of the envelope as long.
    let length = [0xf0, 0xff, 0xff, 0xff, 0x7f];
    for field in [0x12, 0x0a] {
        let start = [b"k8s\0", &[field][..], &length, &[0x12, 0xf0, 0xff, 0xff, 0x7f]].concat();
        let page = list_body::<ObservedDeployment>(Media::Protobuf, endless(start)).await;
        assert!(matches!(page, Err(Error::TooLong { .. })), "{page:?}");
    }
    // Fields that are not known, in a list and around it.
    for start in [[b"k8s\0\x12", &length[..]].concat(), b"k8s\0".to_vec()] {
        let page = list_body::<ObservedDeployment>(Media::Protobuf, endless_of(start, &[0x1a, 0])).await;
        assert!(matches!(page, Err(Error::TooLong { .. })), "{page:?}");
    }
    // What follows something malformed is not read.
    for start in [&b"{"[..], b"k8s\0\x08"] {
        let page = list_body::<ObservedDeployment>(Media::Protobuf, endless(start.to_vec())).await;
        assert!(matches!(page, Err(Error::Decode { .. })), "{page:?}");
    }
}
