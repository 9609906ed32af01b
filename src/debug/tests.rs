use std::convert::Infallible;
use std::time::Duration;

use http::{Method, Response};
use kube_client::client::Body;
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::process::Process;
use super::recorder::{EVENTS_MAX, OfController, Recorder};
use super::report::{Event, Key, KeyState, Pipeline};
use super::*;
use crate::api::ApiResource;
use crate::cache::ObjectName;
use crate::controller::{Controller, Outcome, SyncError, SyncHandler, SyncRequest};
use crate::workqueue::{AddOptions, Ageing, ItemExponentialFailure, QueueOptions, RateLimitingQueue, Reason};

const DEPLOYMENTS: ApiResource = ApiResource::new("apps", "v1", "Deployment", "deployments");
const SECOND: Duration = Duration::from_secs(1);

/// The server's words about an object, which nobody must see.
const CONTENT: &str = "hunter2";

/// Reads a Deployment, which takes ten seconds, or creates one, which is refused.
struct Handler(ApiClient);

impl SyncHandler for Handler {
    async fn sync(&self, key: &ObjectName, _: SyncRequest<'_>) -> Result<Outcome, SyncError> {
        if key.name() == "refused" {
            self.0.create::<Value>(&DEPLOYMENTS, key.namespace(), &json!({"spec": CONTENT})).await?;
        } else {
            self.0.get::<Value>(&DEPLOYMENTS, key.namespace(), key.name()).await?;
        }
        Ok(Outcome::RequeueAfter(60 * SECOND))
    }
}

/// A running controller with one worker, and what is shown of it.
struct Rig {
    process: Process,
    queue: RateLimitingQueue<ObjectName>,
    _tasks: JoinSet<()>,
}

impl Rig {
    fn start() -> Self {
        let service = tower::service_fn(|request: http::Request<Body>| async move {
            if request.method() == Method::GET {
                tokio::time::sleep(10 * SECOND).await;
                return Ok::<_, Infallible>(Response::new(Body::from(b"{}".to_vec())));
            }
            let message = format!("spec.password: Invalid value: {CONTENT}");
            let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 422, "reason": "Invalid", "message": message});
            let body = Body::from(status.to_string().into_bytes());
            Ok(Response::builder().status(422).body(body).unwrap())
        });
        let clock = Clock::system();
        let recorder = Arc::new(Recorder::new(clock));
        let client = ApiClient::new(kube_client::Client::new(service, "default"));
        let handler = Handler(client.with_observer(recorder.clone()));
        let options = QueueOptions { ageing: Some(Ageing::default()), ..QueueOptions::default() };
        let queue = RateLimitingQueue::with(ItemExponentialFailure::new(8 * SECOND, 8 * SECOND), options);
        let controller = Controller::new("foo", queue.clone(), handler);
        let view = controller.view();
        view.workers.observe(Arc::new(OfController::new(recorder.clone(), view.clone())));
        let mut tasks = JoinSet::new();
        tasks.spawn(controller.run(CancellationToken::new()));
        let process = Process {
            controllers: vec![view],
            caches: Box::new(Vec::new),
            recorder,
            leadership: None,
            shards: None,
            clock,
            started: Instant::now(),
            switches: None,
        };
        Self { process, queue, _tasks: tasks }
    }

    async fn add(&self, name: &str) {
        self.queue.add_with(key(name), AddOptions::because(Reason::Manual));
        tokio::time::sleep(SECOND).await;
    }

    fn keys(&self) -> Vec<Key> {
        self.process.queues(None, 100).remove(0).keys
    }
}

fn key(name: &str) -> ObjectName {
    ObjectName::new(Some("ns"), name)
}

#[tokio::test(start_paused = true)]
async fn each_key_is_shown_where_it_is() {
    let rig = Rig::start();
    for name in ["refused", "slow", "slow"] {
        rig.add(name).await;
    }
    // Nobody stands in for the worker that waits for a slow answer.
    rig.process.controllers[0].workers.set(0);
    rig.add("next").await;
    rig.queue.add_after(key("later"), 30 * SECOND);
    tokio::time::sleep(SECOND).await;
    let shown: Vec<_> =
        rig.keys().into_iter().map(|key| (key.key, key.state, key.age_seconds.round())).collect();
    let of = |name: &str, state, age| (format!("ns/{name}"), state, age);
    let expected = [
        of("slow", KeyState::Processing, 4.0),
        of("slow", KeyState::AddedWhileProcessing, 3.0),
        of("next", KeyState::Waiting, 2.0),
        of("refused", KeyState::BackingOff, 5.0),
        of("later", KeyState::Delayed, 1.0),
    ];
    assert_eq!(shown, expected);
    let keys = rig.keys();
    let request = &keys[0].requests[0];
    assert_eq!(
        (&*request.method, &*request.path, request.is_held),
        ("GET", "/apis/apps/v1/namespaces/ns/deployments/slow", false)
    );
    let left = |key: &Key| key.until.unwrap().duration_since(rig.process.clock.now()).as_secs_f64().round();
    assert_eq!((left(&keys[3]), keys[3].failures), (3.0, 1));
    assert_eq!(left(&keys[4]), 29.0);
    assert_eq!(rig.process.queues(Some(&key("next")), 100)[0].keys.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn request_is_shown_with_its_pass() {
    let rig = Rig::start();
    rig.add("slow").await;
    let [(_, request)] = &rig.process.recorder.requests()[..] else { panic!("one request is in flight") };
    assert_eq!((request.controller.as_deref(), request.key.as_deref()), (Some("foo"), Some("ns/slow")));
    tokio::time::sleep(10 * SECOND).await;
    assert!(rig.process.recorder.requests().is_empty());
    let life = rig.process.life(&key("slow"), 100);
    let [began, request, ended] = &life.events[..] else { panic!("{life:?}") };
    assert!(
        matches!(&began.event, Event::Began { worker: 0, reasons, .. } if reasons == "manual"),
        "{began:?}"
    );
    assert!(matches!(&request.event, Event::Request { answer, .. } if answer == "ok"), "{request:?}");
    let Event::Ended { result, next_seconds: Some(next), .. } = &ended.event else { panic!("{ended:?}") };
    assert_eq!((&**result, next.round()), ("RequeueAfter", 60.0));
    assert_eq!(life.controllers[0].states[0].state, KeyState::Delayed);
    let snapshot = rig.process.snapshot(100);
    let Pipeline { passes, lanes, .. } = &snapshot.queues[0];
    assert_eq!((passes.begun, passes.count, passes.failed, passes.took_seconds.round()), (1, 1, 0, 10.0));
    assert_eq!((&*lanes[0].key, &*lanes[0].result), ("ns/slow", "RequeueAfter"));
    let answered = &snapshot.requests[0];
    assert_eq!((&*answered.method, &*answered.answer, answered.count), ("GET", "ok", 1));
}

#[tokio::test(start_paused = true)]
async fn answers_have_no_object_content() {
    let rig = Rig::start();
    rig.add("refused").await;
    let life = rig.process.life(&key("refused"), 100);
    assert!(matches!(&life.events[1].event, Event::Request { answer, .. } if answer == "422"), "{life:?}");
    let snapshot = rig.process.snapshot(100);
    let text = serde_json::to_string(&(life, rig.process.overview(), rig.keys(), snapshot)).unwrap();
    assert!(text.contains("422 Invalid") && !text.contains(CONTENT), "{text}");
}

#[tokio::test(start_paused = true)]
async fn answers_are_bounded() {
    let rig = Rig::start();
    for name in ["a", "b", "c", "d"] {
        rig.queue.add(key(name));
        rig.queue.add_after(key(name), SECOND);
    }
    tokio::time::sleep(SECOND / 2).await;
    for limit in [1, 3, 8] {
        let queue = rig.process.queues(None, limit).remove(0);
        assert_eq!((queue.keys.len(), queue.waiting, queue.delayed), (limit, 3, 4));
    }
    assert!(rig.process.life(&key("a"), 1).events.len() <= 1);
    assert_eq!(rig.process.requests(1).len(), 1);
}

#[tokio::test(start_paused = true)]
async fn recorder_keeps_the_newest_events() {
    let rig = Rig::start();
    let observer = OfController::new(rig.process.recorder.clone(), rig.process.controllers[0].clone());
    for _ in 0..=EVENTS_MAX {
        crate::controller::PassObserver::held(&observer, &key("a"));
    }
    let events = rig.process.recorder.life("ns/a", 2 * EVENTS_MAX);
    assert_eq!(events.len(), EVENTS_MAX);
    assert_eq!((events[0].number, events[EVENTS_MAX - 1].number), (1, EVENTS_MAX as u64));
    let numbers = |since, limit| -> Vec<u64> {
        rig.process.events(since, limit).iter().map(|entry| entry.number).collect()
    };
    assert_eq!((numbers(0, 2), numbers(5, 3)), (vec![1, 2], vec![5, 6, 7]));
    assert_eq!(numbers(EVENTS_MAX as u64, 3), [EVENTS_MAX as u64]);
    assert!(numbers(EVENTS_MAX as u64 + 1, 3).is_empty());
}
