use std::time::Duration;

use futures_util::FutureExt;
use http::{Method, Request, Response};
use kube_client::Client;
use kube_client::client::Body;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::correlator::shortened;
use super::sink::{HELD_MAX, NOTE_MAX, RETRY, cut};
use super::*;
use crate::testing::capture_log;

mod series;

const SECOND: Duration = Duration::from_secs(1);

fn about(name: &str) -> Regarding {
    Regarding {
        api_version: "samplecontroller.k8s.io/v1alpha1".to_owned(),
        kind: "Foo".to_owned(),
        namespace: Some("ns".to_owned()),
        name: name.to_owned(),
        uid: format!("uid-of-{name}"),
        resource_version: "7".to_owned(),
    }
}

fn record(recorder: &EventRecorder, note: &str) {
    recorder.event(about("one"), EventType::Normal, "Synced", "Sync", note.to_owned());
}

fn warn(recorder: &EventRecorder, note: &str) {
    recorder.event(about("one"), EventType::Warning, "ChildRefused", "Update", note.to_owned());
}

/// Records an event about object number `at`.
fn record_of_many(recorder: &EventRecorder, at: usize) {
    recorder.event(about(&at.to_string()), EventType::Normal, "Synced", "Sync", format!("event {at}"));
}

/// A request that the server received: method, last part of the path, body, and time.
#[derive(Clone, Debug)]
struct Sent {
    method: Method,
    name: String,
    body: Value,
    at: Instant,
}

/// A server that answers with the given codes in turn, then with 201; code 0 is a lost connection, code 1 no
/// response.
struct Rig {
    recorder: EventRecorder,
    sent: Arc<Mutex<Vec<Sent>>>,
    shutdown: CancellationToken,
    tasks: JoinSet<()>,
    started: Instant,
}

fn rig(codes: &[u16]) -> Rig {
    rig_with(codes, |sink| sink)
}

fn rig_with(codes: &[u16], change: impl FnOnce(EventSink) -> EventSink) -> Rig {
    let sent = Arc::new(Mutex::new(Vec::new()));
    let codes = Arc::new(Mutex::new(codes.to_vec()));
    let log = sent.clone();
    let service = tower::service_fn(move |request: Request<Body>| {
        let (log, codes) = (log.clone(), codes.clone());
        async move {
            let method = request.method().clone();
            let name = request.uri().path().rsplit('/').next().unwrap_or_default().to_owned();
            let body = request.into_body().collect_bytes().await.expect("the body is complete");
            let body = serde_json::from_slice(&body).expect("an event is JSON");
            log.lock().push(Sent { method, name, body, at: Instant::now() });
            let code = {
                let mut codes = codes.lock();
                if codes.is_empty() { 201 } else { codes.remove(0) }
            };
            match code {
                0 => return Err(std::io::Error::other("connection reset")),
                1 => std::future::pending().await,
                _ => {}
            }
            let reason = if code == 409 { "AlreadyExists" } else { "" };
            let answer =
                json!({"kind": "Status", "status": "Failure", "code": code, "reason": reason}).to_string();
            Ok(Response::builder().status(code).body(Body::from(answer.into_bytes())).expect("a response"))
        }
    });
    let client = ApiClient::new(Client::new(service, "default"));
    let clock = Clock::starting_at(Timestamp::from_second(1_000_000_000).unwrap());
    let (recorder, sink) = pair(client, clock, "host-1".to_owned());
    let (shutdown, mut tasks) = (CancellationToken::new(), JoinSet::new());
    tasks.spawn(change(sink).run(shutdown.clone()));
    Rig { recorder, sent, shutdown, tasks, started: Instant::now() }
}

impl Rig {
    fn sent(&self) -> Vec<Sent> {
        self.sent.lock().clone()
    }

    fn notes(&self) -> Vec<String> {
        let note = |sent: &Sent| sent.body["note"].as_str().unwrap_or_default().to_owned();
        self.sent.lock().iter().map(note).collect()
    }

    /// Returns when requests came, in seconds.
    fn seconds(&self) -> Vec<u64> {
        self.sent.lock().iter().map(|sent| (sent.at - self.started).as_secs()).collect()
    }

    async fn stop(&mut self) {
        self.shutdown.cancel();
        self.tasks.join_next().await.unwrap().unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn an_event_says_who_what_why_and_when() {
    let mut rig = rig(&[]);
    record(&rig.recorder, "Foo synced successfully");
    rig.stop().await;
    let Sent { method, name, body: event, .. } = &rig.sent()[0];
    assert_eq!((method, name.as_str()), (&Method::POST, "events"));
    assert_eq!(event["regarding"]["name"], "one");
    assert_eq!(event["regarding"]["uid"], "uid-of-one");
    assert_eq!((&event["reason"], &event["action"]), (&json!("Synced"), &json!("Sync")));
    assert_eq!(event["note"], "Foo synced successfully");
    assert_eq!(event["reportingController"], "windlass");
    assert_eq!(event["reportingInstance"], "host-1");
    assert_eq!(event["eventTime"], "2001-09-09T01:46:40.000000Z");
    assert!(event["metadata"]["name"].as_str().unwrap().starts_with("one."));
}

#[tokio::test(start_paused = true)]
async fn warnings_are_written_first() {
    let mut rig = rig(&[]);
    for at in 0..20 {
        record_of_many(&rig.recorder, at);
    }
    warn(&rig.recorder, "refused");
    rig.stop().await;
    let types: Vec<Value> = rig.sent().iter().map(|sent| sent.body["type"].clone()).collect();
    assert_eq!((&types[0], &types[1], types.len()), (&json!("Warning"), &json!("Normal"), 21));
}

#[tokio::test(start_paused = true)]
async fn simultaneous_events_have_different_names() {
    let mut rig = rig(&[]);
    record(&rig.recorder, "first");
    record(&rig.recorder, "second");
    rig.stop().await;
    let names: Vec<Value> = rig.sent().iter().map(|sent| sent.body["metadata"]["name"].clone()).collect();
    assert_ne!(names[0], names[1]);
}

#[tokio::test(start_paused = true)]
async fn normal_events_wait_while_keys_are_queued() {
    let busy = Arc::new(std::sync::atomic::AtomicBool::new(true));
    let reads = busy.clone();
    let is_busy = move || reads.load(std::sync::atomic::Ordering::Relaxed);
    let mut rig = rig_with(&[], |sink| sink.waits_while(is_busy));
    record(&rig.recorder, "normal");
    tokio::time::sleep(SECOND).await;
    warn(&rig.recorder, "refused");
    tokio::time::sleep(SECOND).await;
    assert_eq!(rig.notes(), ["refused"], "a Warning does not wait");
    busy.store(false, std::sync::atomic::Ordering::Relaxed);
    tokio::time::sleep(SECOND).await;
    assert_eq!(rig.notes(), ["refused", "normal"]);

    busy.store(true, std::sync::atomic::Ordering::Relaxed);
    let before = Instant::now();
    record(&rig.recorder, "another");
    tokio::time::sleep(2 * HELD_MAX).await;
    let waited = rig.sent()[2].at - before;
    assert!(waited >= HELD_MAX && waited < HELD_MAX + SECOND, "{waited:?}");

    record(&rig.recorder, "last");
    rig.stop().await;
    assert_eq!(rig.notes().len(), 4, "shutdown does not wait for queues");
}

#[tokio::test(start_paused = true)]
async fn writes_stay_within_the_rate() {
    for (qps, burst) in [(EVENT_QPS, 100), (10, 20)] {
        let mut rig = rig_with(&[], |sink| sink.with_qps(qps));
        for at in 0..burst + 10 * qps as usize {
            record_of_many(&rig.recorder, at);
        }
        tokio::time::sleep(SECOND / 100).await;
        assert_eq!(rig.sent().len(), burst, "at once");
        for second in 1..=10 {
            tokio::time::sleep(SECOND).await;
            assert_eq!(rig.sent().len(), burst + second * qps as usize);
        }
        rig.stop().await;
        assert_eq!(rig.recorder.counts().dropped, 0);
    }
}

#[tokio::test(start_paused = true)]
async fn spam_filter_limits_events_per_object_and_type() {
    let mut rig = rig(&[]);
    for at in 0..90 {
        record(&rig.recorder, &at.to_string());
        tokio::time::sleep(10 * SECOND).await;
    }
    // 25 at once, and two more within almost 15 minutes.
    assert_eq!(rig.sent().len(), 27);
    assert_eq!(rig.recorder.counts().dropped, 90 - 27);
    warn(&rig.recorder, "refused");
    rig.recorder.event(about("two"), EventType::Normal, "Synced", "Sync", "of another".to_owned());
    rig.stop().await;
    assert_eq!(rig.notes()[27..], ["refused", "of another"], "Warnings and other objects have own buckets");
}

/// client-go: `TestWriteEventError`
#[tokio::test(start_paused = true)]
async fn lost_connection_is_retried_but_response_is_final() {
    let mut rig = rig(&[0, 403, 201, 0, 201]);
    record(&rig.recorder, "third time lucky");
    record(&rig.recorder, "refused");
    record(&rig.recorder, "next");
    tokio::time::sleep(3 * RETRY).await;
    let tries = |note: &str| rig.notes().iter().filter(|found| *found == note).count();
    assert_eq!([tries("third time lucky"), tries("refused"), tries("next")], [3, 1, 1]);
    assert_eq!(rig.seconds(), [0, 0, 0, 10, 20]);
    let EventCounts { written, failed, dropped } = rig.recorder.counts();
    assert_eq!((written, failed, dropped), (2, 1, 0));
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn unreachable_server_is_tried_twelve_times() {
    let mut rig = rig(&[0; 20]);
    record(&rig.recorder, "lost");
    tokio::time::sleep(20 * RETRY).await;
    assert_eq!((rig.sent().len(), rig.recorder.counts().failed), (12, 1));
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn hanging_write_does_not_block_others() {
    let mut rig = rig(&[1, 1, 1]);
    for at in 0..50 {
        record_of_many(&rig.recorder, at);
    }
    tokio::time::sleep(SECOND).await;
    assert_eq!(rig.recorder.counts().written, 47);
    tokio::time::sleep(60 * SECOND).await;
    assert_eq!(rig.recorder.counts().written, 50, "hanging writes are retried after the usual timeout");
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn shutdown_writes_the_buffered_events() {
    let mut rig = rig_with(&[0], |sink| sink.with_qps(1).waits_while(|| true));
    for at in 0..200 {
        record_of_many(&rig.recorder, at);
    }
    rig.stop().await;
    assert_eq!(rig.sent().len(), 200, "each is tried once, whatever the rate");
    assert_eq!(rig.started.elapsed(), Duration::ZERO);
    record(&rig.recorder, "too late");
    assert_eq!(rig.recorder.counts(), EventCounts { written: 199, failed: 1, dropped: 1 });
}

#[tokio::test(start_paused = true)]
async fn already_exists_after_a_lost_response_is_success() {
    let mut rig = rig(&[0, 409]);
    record(&rig.recorder, "once");
    tokio::time::sleep(2 * RETRY).await;
    assert_eq!((rig.sent().len(), rig.recorder.counts().written), (2, 1));
    rig.stop().await;
}

/// The sink does not run, so that the lane fills up.
#[tokio::test(start_paused = true)]
async fn a_full_lane_drops_its_oldest_normal_event() {
    let lane = Arc::new(Lane::new(4));
    let recorder =
        EventRecorder { outlet: Outlet::Lane(lane.clone()), clock: Clock::system(), counts: Arc::default() };
    for note in ["a", "b", "c"] {
        record(&recorder, note);
    }
    for note in ["v", "w", "x"] {
        warn(&recorder, note);
    }
    assert_eq!(recorder.counts().dropped, 2);
    warn(&recorder, "y");
    assert_eq!(recorder.counts().dropped, 3, "the last Normal event is dropped");
    warn(&recorder, "z");
    record(&recorder, "d");
    assert_eq!(recorder.counts().dropped, 5, "a lane full of Warnings keeps the first ones");
    let taken = std::iter::from_fn(|| match lane.take(|_| true) {
        lane::Taken::Event(event) => Some(event.note.clone()),
        lane::Taken::Held | lane::Taken::Empty => None,
    });
    assert_eq!(taken.collect::<Vec<_>>(), ["v", "w", "x", "y"]);
}

#[tokio::test(start_paused = true)]
async fn drops_are_logged_once_a_minute() {
    let log = capture_log();
    let counts = Counts::default();
    for _ in 0..300 {
        counts.dropped("too many");
        tokio::time::sleep(SECOND / 2).await;
    }
    let lines = || log.lines().into_iter().filter(|line| line.contains("Dropped events")).collect::<Vec<_>>();
    assert_eq!(lines().len(), 3, "{:?}", lines());
    assert!(lines()[1].contains("120"), "{:?}", lines());
    assert_eq!(counts.read().dropped, 300);
    let due = counts.log_due(false).expect("the last ones are not logged yet");
    tokio::time::sleep_until(due).await;
    assert_eq!((counts.log_due(false), lines().len()), (None, 4));
    counts.dropped("too many");
    assert_eq!((counts.log_due(true), lines().len()), (None, 5), "the process ends");
}

#[test]
fn long_object_name_is_shortened_in_event_name() {
    let name = format!("{}.{}", "a".repeat(235), "b".repeat(17));
    assert_eq!(shortened(&name), "a".repeat(235));
    assert_eq!(shortened("short"), "short");
    assert_eq!(
        shortened(&format!("a{}", "ä".repeat(200))),
        format!("a{}", "ä".repeat(117)),
        "never within a character"
    );
}

#[test]
fn long_note_is_cut_at_a_char_boundary() {
    let note = "é".repeat(NOTE_MAX);
    assert_eq!(cut(&note).len(), NOTE_MAX);
    assert_eq!(cut("short"), "short");
}

/// An idle sink waits only for the lane: nothing is due.
#[tokio::test(start_paused = true)]
async fn an_idle_sink_writes_nothing() {
    let mut rig = rig(&[]);
    tokio::time::sleep(24 * 3600 * SECOND).await;
    assert!(rig.sent().is_empty() && rig.tasks.join_next().now_or_never().is_none());
    rig.stop().await;
}
