use http::{Request, Response};
use kube_client::Client;
use kube_client::client::Body;
use parking_lot::Mutex;

use super::*;

fn regarding() -> Regarding {
    Regarding {
        api_version: "samplecontroller.k8s.io/v1alpha1".to_owned(),
        kind: "Foo".to_owned(),
        namespace: Some("ns".to_owned()),
        name: "one".to_owned(),
        uid: "u".to_owned(),
        resource_version: "7".to_owned(),
    }
}

fn record(recorder: &EventRecorder, note: &str) {
    recorder.event(regarding(), EventType::Normal, "Synced", "Sync", note.to_owned());
}

type Written = Arc<Mutex<Vec<Value>>>;

/// A client that writes down what it is sent and answers with these codes in turn, then 201; code 0 is
/// a lost connection.
fn server(codes: &[u16]) -> (ApiClient, Written) {
    let written = Written::default();
    let codes = Arc::new(Mutex::new(codes.to_vec()));
    let log = written.clone();
    let service = tower::service_fn(move |request: Request<Body>| {
        let (log, codes) = (log.clone(), codes.clone());
        async move {
            let body = request.into_body().collect_bytes().await.expect("the body is whole");
            log.lock().push(serde_json::from_slice(&body).expect("an event is JSON"));
            let code = {
                let mut codes = codes.lock();
                if codes.is_empty() { 201 } else { codes.remove(0) }
            };
            if code == 0 {
                return Err(std::io::Error::other("connection reset"));
            }
            Ok(Response::builder().status(code).body(Body::from(b"{}".to_vec())).expect("an answer"))
        }
    });
    (ApiClient::new(Client::new(service, "default")), written)
}

fn rig(codes: &[u16]) -> (EventRecorder, EventSink, Written) {
    let (client, written) = server(codes);
    let clock = Clock::starting_at(Timestamp::from_second(1_000_000_000).unwrap());
    let (recorder, sink) = pair(client, clock, "host-1".to_owned());
    (recorder, sink, written)
}

#[tokio::test(start_paused = true)]
async fn an_event_says_who_what_why_and_when() {
    let (recorder, sink, written) = rig(&[]);
    record(&recorder, "Foo synced successfully");
    drop(recorder);
    sink.run(CancellationToken::new()).await;
    let event = &written.lock()[0];
    assert_eq!(event["regarding"]["name"], "one");
    assert_eq!(event["regarding"]["uid"], "u");
    assert_eq!((&event["reason"], &event["action"]), (&json!("Synced"), &json!("Sync")));
    assert_eq!(event["note"], "Foo synced successfully");
    assert_eq!(event["reportingController"], "windlass");
    assert_eq!(event["reportingInstance"], "host-1");
    assert_eq!(event["eventTime"], "2001-09-09T01:46:40.000000Z");
    assert!(event["metadata"]["name"].as_str().unwrap().starts_with("one."));
}

#[tokio::test(start_paused = true)]
async fn an_event_is_normal_or_a_warning() {
    let (recorder, sink, written) = rig(&[]);
    for event_type in [EventType::Normal, EventType::Warning] {
        recorder.event(regarding(), event_type, "Synced", "Sync", String::new());
    }
    drop(recorder);
    sink.run(CancellationToken::new()).await;
    let types: Vec<Value> = written.lock().iter().map(|event| event["type"].clone()).collect();
    assert_eq!(types, ["Normal", "Warning"]);
}

#[tokio::test(start_paused = true)]
async fn two_events_of_one_moment_have_two_names() {
    let (recorder, sink, written) = rig(&[]);
    record(&recorder, "first");
    record(&recorder, "second");
    drop(recorder);
    sink.run(CancellationToken::new()).await;
    let written = written.lock();
    assert_ne!(written[0]["metadata"]["name"], written[1]["metadata"]["name"]);
}

/// client-go: `TestWriteEventError`
#[tokio::test(start_paused = true)]
async fn a_lost_connection_is_tried_again_and_an_answer_is_final() {
    let (recorder, sink, written) = rig(&[0, 0, 201, 403]);
    record(&recorder, "third time lucky");
    record(&recorder, "refused");
    record(&recorder, "next");
    drop(recorder);
    let before = tokio::time::Instant::now();
    sink.run(CancellationToken::new()).await;
    let notes: Vec<Value> = written.lock().iter().map(|event| event["note"].clone()).collect();
    assert_eq!(notes, ["third time lucky", "third time lucky", "third time lucky", "refused", "next"]);
    assert_eq!(before.elapsed(), 2 * RETRY);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_stays_away_costs_twelve_tries() {
    let (recorder, sink, written) = rig(&[0; 20]);
    record(&recorder, "lost");
    drop(recorder);
    sink.run(CancellationToken::new()).await;
    assert_eq!(written.lock().len(), 12);
}

#[tokio::test(start_paused = true)]
async fn shutdown_writes_what_is_buffered() {
    let (recorder, sink, written) = rig(&[0]);
    for note in ["lost", "second", "third"] {
        record(&recorder, note);
    }
    let shutdown = CancellationToken::new();
    shutdown.cancel();
    sink.run(shutdown).await;
    assert_eq!(written.lock().len(), 3, "each is tried once");
    record(&recorder, "too late");
    assert_eq!(recorder.dropped(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_lost_answer_to_an_event_that_was_written_is_success() {
    let (recorder, sink, written) = rig(&[0, 409]);
    record(&recorder, "once");
    drop(recorder);
    sink.run(CancellationToken::new()).await;
    assert_eq!(written.lock().len(), 2);
}

#[test]
fn the_name_of_an_event_fits_whatever_the_name_of_the_object() {
    let name = format!("{}.{}", "a".repeat(235), "b".repeat(17));
    assert_eq!(shortened(&name), "a".repeat(235));
    assert_eq!(shortened("short"), "short");
}

#[tokio::test]
async fn a_full_buffer_drops_and_counts() {
    let (recorder, mut buffer) = EventRecorder::to_buffer(Clock::system(), 2);
    for note in ["a", "b", "c", "d"] {
        record(&recorder, note);
    }
    assert_eq!(recorder.dropped(), 2);
    assert_eq!(buffer.recv().await.unwrap().note, "a");
}

#[test]
fn a_long_note_is_cut_at_a_character() {
    let note = "é".repeat(NOTE_MAX);
    assert_eq!(cut(&note).len(), NOTE_MAX);
    assert_eq!(cut("short"), "short");
}
