mod histories;

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::Instant;

use super::*;
use crate::api::shards::{Division, Sharding};
use crate::cache::health::{HandlerState, ListReason, Progress, ReflectorPhase};
use crate::cache::reflector::list_watch::WatchEvent;
use crate::cache::{Cached, Deleted, ObjectName};
use crate::client::Error;
use crate::client::shards::{Change, Phase, Shards};
use crate::testing::{FakeSource, config_map, status_error};

/// Records its notifications: `+a`, `+a initial`, `~a`, `-a`, `-a last known`.
struct Recording {
    heard: UnboundedSender<String>,
    store: Option<Store<ConfigMap>>,
}

fn recording() -> (Recording, UnboundedReceiver<String>) {
    let (heard, receiver) = unbounded_channel();
    (Recording { heard, store: None }, receiver)
}

impl Recording {
    fn hear(&self, text: String) {
        drop(self.heard.send(text));
    }
}

fn name(object: &Cached<ConfigMap>) -> String {
    object.object_name().name().to_owned()
}

impl EventHandler<ConfigMap> for Recording {
    fn on_add(&mut self, object: &Cached<ConfigMap>, is_in_initial_list: bool) {
        if let Some(store) = &self.store {
            assert!(store.get(&object.object_name()).is_some(), "{object:?} is not in the store");
        }
        self.hear(format!("+{}{}", name(object), if is_in_initial_list { " initial" } else { "" }));
    }

    fn on_update(&mut self, old: &Cached<ConfigMap>, new: &Cached<ConfigMap>) {
        assert_eq!(old.object_name(), new.object_name());
        self.hear(format!("~{}", name(new)));
    }

    fn on_delete(&mut self, object: &Deleted<ConfigMap>) {
        let how = match object {
            Deleted::Observed(_) => "",
            Deleted::FinalStateUnknown { .. } => " last known",
        };
        self.hear(format!("-{}{how}", name(object.last_known())));
    }
}

/// An informer over a fake source, and the task that runs it.
struct Rig {
    source: FakeSource<ConfigMap>,
    informer: SharedInformer<ConfigMap>,
    shutdown: CancellationToken,
    tasks: JoinSet<Result<(), AlreadyStarted>>,
}

impl Rig {
    fn new(names: &[&str]) -> Self {
        Self::with_config(names, InformerConfig::default())
    }

    fn with_config(names: &[&str], config: InformerConfig<ConfigMap>) -> Self {
        let source = FakeSource::new();
        for name in names {
            source.put(config_map("ns", name, 0));
        }
        let informer = SharedInformer::new(source.clone(), config);
        Self { source, informer, shutdown: CancellationToken::new(), tasks: JoinSet::new() }
    }

    async fn start(&mut self) {
        let (informer, shutdown) = (self.informer.clone(), self.shutdown.clone());
        self.tasks.spawn(async move { informer.run(shutdown).await });
        self.informer.synced().synced().await;
    }

    async fn stop(mut self) {
        self.shutdown.cancel();
        self.tasks.join_next().await.unwrap().unwrap().unwrap();
    }
}

/// Returns all notifications so far: under paused time, a sleep ends once every task is idle.
async fn heard(receiver: &mut UnboundedReceiver<String>) -> Vec<String> {
    tokio::time::sleep(Duration::from_millis(1)).await;
    std::iter::from_fn(|| receiver.try_recv().ok()).collect()
}

fn key(name: &str) -> ObjectName {
    ObjectName::new(Some("ns"), name)
}

#[tokio::test(start_paused = true)]
async fn informer_syncs_when_first_list_is_stored() {
    let mut rig = Rig::new(&["a", "b"]);
    assert!(!rig.informer.synced().is_synced());
    rig.start().await;
    assert_eq!(rig.informer.store().len(), 2);
    assert_eq!(&*rig.informer.store().resource_version(), "2");
    rig.stop().await;

    let mut empty = Rig::new(&[]);
    empty.start().await;
    empty.stop().await;
}

/// The keys of a shard are dropped while another process may hold it, and nobody else would add them again.
#[tokio::test(start_paused = true)]
async fn objects_of_a_regained_shard_are_added_again() {
    let sharding = Sharding { of: 8, by: Division::Hash };
    let shards = Shards::new(sharding);
    let ours = sharding.shard_of("ns");
    let (kept, other) = ((ours + 1) % 8, (ours + 2) % 8);
    let config = InformerConfig { shards: Some(shards.add_cache()), ..InformerConfig::default() };
    let mut rig = Rig::with_config(&["a"], config);
    let elsewhere = (0..).map(|n| format!("n{n}")).find(|name| sharding.shard_of(name) == kept).unwrap();
    rig.source.put(config_map(&elsewhere, "b", 0));
    let (handler, mut receiver) = recording();
    rig.informer.add_event_handler(handler).unwrap();
    shards.acquired(&[ours, kept]);
    rig.start().await;
    assert_eq!(heard(&mut receiver).await.len(), 2);
    shards.gone(&[ours], Change::Lost);
    shards.acquired(&[ours, other]);
    assert_eq!(heard(&mut receiver).await, ["-a last known", "+a"], "and of the shard that was kept nothing");
    assert_eq!(shards.phases()[&ours], Phase::Working);
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn the_store_decides_between_add_and_update() {
    let mut rig = Rig::new(&["a"]);
    let (handler, mut receiver) = recording();
    rig.informer.add_event_handler(handler).unwrap();
    rig.start().await;
    rig.source.send(|| WatchEvent::Added(Ok(config_map("ns", "a", 5))));
    rig.source.send(|| WatchEvent::Modified(Ok(config_map("ns", "b", 6))));
    rig.source.send(|| WatchEvent::Deleted(Ok(config_map("ns", "unknown", 7))));
    assert_eq!(heard(&mut receiver).await, ["+a initial", "~a", "+b"]);
    assert_eq!(&*rig.informer.store().resource_version(), "7");
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_handler_finds_the_object_in_the_store() {
    let mut rig = Rig::new(&["a", "b"]);
    let (mut handler, mut receiver) = recording();
    handler.store = Some(rig.informer.store());
    rig.informer.add_event_handler(handler).unwrap();
    rig.start().await;
    rig.source.put(config_map("ns", "c", 0));
    assert_eq!(heard(&mut receiver).await, ["+a initial", "+b initial", "+c"]);
    rig.stop().await;
}

/// client-go: `TestSharedInformerWatchDisruption`, `TestReplaceEvents`
#[tokio::test(start_paused = true)]
async fn relist_notifies_only_of_differences() {
    let mut rig = Rig::new(&["a", "b", "c"]);
    let (handler, mut receiver) = recording();
    rig.informer.add_event_handler(handler).unwrap();
    rig.start().await;
    heard(&mut receiver).await;
    rig.source.put_unseen(config_map("ns", "a", 0));
    rig.source.delete_unseen(&key("b"));
    rig.source.put_unseen(config_map("ns", "d", 0));
    rig.source.break_watches(|| status_error(410, "Expired"));
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(heard(&mut receiver).await, ["-b last known", "~a", "+d"]);
    rig.stop().await;
}

/// The handler is added in the middle of each of them: it must hear of each object exactly once.
#[tokio::test(start_paused = true)]
async fn other_tasks_run_while_a_relist_is_applied() {
    let names: Vec<String> = (0..2000).map(|n| format!("n{n:04}")).collect();
    let mut rig = Rig::new(&names.iter().map(String::as_str).collect::<Vec<_>>());
    let informer = rig.informer.clone();
    let late = async {
        while informer.store().is_empty() {
            tokio::task::yield_now().await;
        }
        assert!(informer.store().len() < names.len(), "the relist was applied at once");
        let (handler, receiver) = recording();
        informer.add_event_handler(handler).unwrap();
        receiver
    };
    let ((), mut receiver) = tokio::join!(rig.start(), late);
    let mut all = heard(&mut receiver).await;
    all.sort();
    assert_eq!(all, names.iter().map(|name| format!("+{name} initial")).collect::<Vec<_>>());
    rig.stop().await;
}

/// client-go: `TestRemoveEventHandler_SynchronousShutdown`, `TestShutDownEventHandler_Lifecycles`
#[tokio::test(start_paused = true)]
async fn shut_down_handler_is_not_called_again() {
    let mut rig = Rig::new(&["a"]);
    let (never_run, mut silent) = recording();
    let never_run = rig.informer.add_event_handler(never_run).unwrap();
    rig.informer.shut_down_event_handler(&never_run).await;
    let (handler, mut receiver) = recording();
    let registration = rig.informer.add_event_handler(handler).unwrap();
    rig.start().await;
    assert_eq!(heard(&mut receiver).await, ["+a initial"]);
    rig.source.put(config_map("ns", "b", 0));
    for _ in 0..2 {
        rig.informer.shut_down_event_handler(&registration).await;
    }
    assert!(receiver.is_closed(), "the handler is dropped");
    assert_eq!(heard(&mut silent).await, Vec::<String>::new());
    rig.stop().await;
}

/// client-go: `TestSharedInformerErrorHandling`
#[tokio::test(start_paused = true)]
async fn watch_error_handler_hears_of_each_failure() {
    let failures = Arc::new(Mutex::new(Vec::new()));
    let heard = failures.clone();
    let handler = WatchErrorHandler(Arc::new(move |error: &Error| heard.lock().push(error.to_string())));
    let config = InformerConfig { on_watch_error: Some(handler), ..InformerConfig::default() };
    let mut rig = Rig::with_config(&["a"], config);
    rig.source.script_lists([Some(status_error(500, "InternalError"))]);
    rig.start().await;
    assert_eq!(*failures.lock(), ["test: 500 InternalError: requested by the test"]);
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn unseen_recreation_is_a_deletion_and_an_addition() {
    let mut rig = Rig::new(&["a", "b"]);
    let (handler, mut receiver) = recording();
    rig.informer.add_event_handler(handler).unwrap();
    rig.start().await;
    heard(&mut receiver).await;
    let again = |name: &str| {
        let mut map = config_map("ns", name, 0);
        map.metadata.uid = Some("another".to_owned());
        map
    };
    rig.source.put(again("a"));
    assert_eq!(heard(&mut receiver).await, ["-a last known", "+a"], "by an event");
    rig.source.put_unseen(again("b"));
    rig.source.break_watches(|| status_error(410, "Expired"));
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(heard(&mut receiver).await, ["-b last known", "+b"], "by a relist");
    rig.source.recreate_unseen(&key("b"));
    rig.source.delete(&key("b"));
    assert_eq!(heard(&mut receiver).await, ["-b last known"], "by the deletion of an unknown incarnation");
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn an_older_event_is_ignored() {
    let mut rig = Rig::new(&["a"]);
    let (handler, mut receiver) = recording();
    rig.source.put(config_map("ns", "a", 0));
    rig.informer.add_event_handler(handler).unwrap();
    rig.start().await;
    heard(&mut receiver).await;
    let uid = rig.informer.store().get(&key("a")).unwrap().uid().to_owned();
    rig.source.send(|| {
        let mut older = config_map("ns", "a", 1);
        older.metadata.uid = Some(uid.clone());
        WatchEvent::Modified(Ok(older))
    });
    assert_eq!(heard(&mut receiver).await, Vec::<String>::new());
    rig.source.send(|| {
        let mut previous = config_map("ns", "a", 1);
        previous.metadata.uid = Some("earlier".to_owned());
        WatchEvent::Deleted(Ok(previous))
    });
    assert_eq!(heard(&mut receiver).await, Vec::<String>::new());
    assert_eq!(rig.informer.store().get(&key("a")).unwrap().resource_version(), "2");
    rig.stop().await;
}

/// client-go: `TestAddWhileActive`
#[tokio::test(start_paused = true)]
async fn late_handler_sees_each_change_once() {
    let mut rig = Rig::new(&["a", "b"]);
    rig.start().await;
    let (handler, mut receiver) = recording();
    let registration = rig.informer.add_event_handler(handler).unwrap();
    assert!(!registration.synced().is_synced());
    rig.source.put(config_map("ns", "c", 0));
    registration.synced().synced().await;
    assert_eq!(heard(&mut receiver).await, ["+a initial", "+b initial", "+c"]);
    rig.stop().await;
}

/// A handler that blocks until it is released, and counts its calls.
struct Stuck(std::sync::mpsc::Receiver<()>, Arc<std::sync::atomic::AtomicUsize>);

impl EventHandler<ConfigMap> for Stuck {
    fn on_add(&mut self, _: &Cached<ConfigMap>, _: bool) {
        self.1.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
        let _ended = self.0.recv();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn registration_syncs_after_its_handler_returns() {
    let mut rig = Rig::new(&["a", "b"]);
    let (go, stuck) = std::sync::mpsc::channel();
    let registration = rig.informer.add_event_handler(Stuck(stuck, Arc::default())).unwrap();
    rig.start().await;
    assert!(rig.informer.synced().is_synced() && !registration.synced().is_synced());
    assert!(registration.pending() >= 2);
    go.send(()).unwrap();
    go.send(()).unwrap();
    registration.synced().synced().await;
    rig.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn slow_handler_does_not_delay_others() {
    let mut rig = Rig::new(&["a"]);
    let (go, stuck) = std::sync::mpsc::channel();
    rig.informer.add_event_handler(Stuck(stuck, Arc::default())).unwrap();
    let (handler, mut receiver) = recording();
    rig.informer.add_event_handler(handler).unwrap();
    rig.start().await;
    for n in 0..50 {
        rig.source.put(config_map("ns", &format!("n{n:02}"), 0));
    }
    assert_eq!(receiver.recv().await.unwrap(), "+a initial");
    for n in 0..50 {
        assert_eq!(receiver.recv().await.unwrap(), format!("+n{n:02}"));
    }
    drop(go);
    rig.stop().await;
}

/// client-go: `TestRemoveWhileActive`. The buffer of a busy handler is dropped.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn removed_handler_is_not_called_again() {
    let mut rig = Rig::new(&["a", "b", "c"]);
    let (go, stuck) = std::sync::mpsc::channel();
    let calls = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let registration = rig.informer.add_event_handler(Stuck(stuck, calls.clone())).unwrap();
    rig.start().await;
    while calls.load(std::sync::atomic::Ordering::SeqCst) == 0 {
        tokio::task::yield_now().await;
    }
    rig.informer.remove_event_handler(&registration);
    rig.source.put(config_map("ns", "d", 0));
    for _ in 0..4 {
        // The removed handler may already be dropped, and its receiver with it.
        let _dropped = go.send(());
    }
    rig.stop().await;
    assert_eq!(calls.load(std::sync::atomic::Ordering::SeqCst), 1, "only the call in progress");
}

/// client-go: `TestSharedInformerRemoveForeignHandler`
#[tokio::test(start_paused = true)]
async fn removing_a_foreign_registration_does_nothing() {
    let (mut one, mut other) = (Rig::new(&["a"]), Rig::new(&["b"]));
    let (handler, mut heard_by_one) = recording();
    let registration = one.informer.add_event_handler(handler).unwrap();
    let (handler, mut heard_by_other) = recording();
    other.informer.add_event_handler(handler).unwrap();
    other.informer.remove_event_handler(&registration);
    one.start().await;
    other.start().await;
    assert_eq!(heard(&mut heard_by_one).await, ["+a initial"]);
    assert_eq!(heard(&mut heard_by_other).await, ["+b initial"]);
    one.stop().await;
    other.stop().await;
}

/// client-go: `TestAddOnStoppedSharedInformer`
#[tokio::test(start_paused = true)]
async fn ended_informer_rejects_handlers() {
    let mut rig = Rig::new(&["a"]);
    rig.start().await;
    let informer = rig.informer.clone();
    rig.stop().await;
    let (handler, _heard) = recording();
    assert_eq!(informer.add_event_handler(handler).err(), Some(Ended));
}

#[tokio::test(start_paused = true)]
async fn run_returns_after_all_its_tasks_end() {
    let mut rig = Rig::new(&["a"]);
    let (handler, receiver) = recording();
    rig.informer.add_event_handler(handler).unwrap();
    rig.start().await;
    let (source, informer) = (rig.source.clone(), rig.informer.clone());
    rig.stop().await;
    assert_eq!(source.open_watches(), 0);
    assert!(receiver.is_closed() || receiver.sender_strong_count() == 0, "the handler is dropped");
    assert_eq!(informer.store().len(), 1, "the store remains readable");
}

#[tokio::test(start_paused = true)]
async fn second_run_is_an_error() {
    let mut rig = Rig::new(&[]);
    rig.start().await;
    assert_eq!(rig.informer.run(CancellationToken::new()).await, Err(AlreadyStarted));
    rig.stop().await;
}

/// Returns the lines of the log above level debug.
#[cfg(feature = "cli")]
fn complaints(log: &crate::testing::CapturedLog) -> Vec<String> {
    log.lines().into_iter().filter(|line| !line.starts_with("DEBUG")).collect()
}

/// Panics at objects named `b`.
struct Panicking(Recording);

impl EventHandler<ConfigMap> for Panicking {
    fn on_add(&mut self, object: &Cached<ConfigMap>, is_in_initial_list: bool) {
        if name(object) == "b" {
            std::panic::resume_unwind(Box::new("the handler panicked"));
        }
        self.0.on_add(object, is_in_initial_list);
    }
}

/// client-go: `TestEventPanics`
#[tokio::test(start_paused = true)]
async fn panicking_handler_stops_no_other() {
    #[cfg(feature = "cli")]
    let log = crate::testing::capture_log();
    let mut rig = Rig::new(&["a", "b", "c"]);
    let (handler, mut heard_by_panicking) = recording();
    let panicking = rig.informer.add_event_handler(Panicking(handler)).unwrap();
    let (handler, mut heard_by_other) = recording();
    rig.informer.add_event_handler(handler).unwrap();
    rig.start().await;
    panicking.synced().synced().await;
    assert_eq!(heard(&mut heard_by_panicking).await, ["+a initial", "+c initial"]);
    assert_eq!(heard(&mut heard_by_other).await, ["+a initial", "+b initial", "+c initial"]);
    let handlers = rig.informer.state().handlers;
    assert_eq!(handlers.iter().map(|handler| handler.panics).collect::<Vec<_>>(), [1, 0]);
    #[cfg(feature = "cli")]
    {
        let text = "ERROR Event handler panicked; it is told the same again after a while \
            kind=configmaps handler=Panicking object=ns/b panic=the handler panicked";
        assert_eq!(complaints(&log), [text]);
    }
    rig.stop().await;
}

/// Panics when it is first told of a deletion.
struct PanickingOnce(Recording, bool);

impl EventHandler<ConfigMap> for PanickingOnce {
    fn on_delete(&mut self, deleted: &Deleted<ConfigMap>) {
        if std::mem::take(&mut self.1) {
            std::panic::resume_unwind(Box::new("the handler panicked"));
        }
        self.0.on_delete(deleted);
    }
}

#[tokio::test(start_paused = true)]
async fn handler_that_panicked_is_told_again() {
    let mut rig = Rig::new(&["a", "b"]);
    let (handler, mut heard_of) = recording();
    rig.informer.add_event_handler(PanickingOnce(handler, true)).unwrap();
    rig.start().await;
    rig.source.delete(&key("a"));
    assert_eq!(heard(&mut heard_of).await, [""; 0]);
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(heard(&mut heard_of).await, ["-a"]);
    tokio::time::sleep(Duration::from_secs(3600)).await;
    assert_eq!(heard(&mut heard_of).await, [""; 0], "once");
    rig.stop().await;
}

/// client-go: `TestPanicPropagated`
#[tokio::test(start_paused = true)]
async fn panicking_index_ends_run() {
    let panicking = |_: &Cached<ConfigMap>| std::panic::resume_unwind(Box::new("the index panicked"));
    let indexers = Indexers::default().with("panicking", panicking);
    let mut rig = Rig::with_config(&["a"], InformerConfig { indexers, ..InformerConfig::default() });
    let (informer, shutdown) = (rig.informer.clone(), rig.shutdown.clone());
    rig.tasks.spawn(async move { informer.run(shutdown).await });
    let failure = rig.tasks.join_next().await.unwrap().unwrap_err();
    assert!(failure.is_panic());
}

/// Takes 100 ms for each addition.
struct Slow(std::sync::mpsc::Receiver<()>);

impl EventHandler<ConfigMap> for Slow {
    fn on_add(&mut self, _: &Cached<ConfigMap>, _: bool) {
        let timeout = self.0.recv_timeout(Duration::from_millis(100));
        assert!(timeout.is_err(), "nothing is sent");
    }
}

/// The clock runs: the handler blocks its thread.
#[tokio::test]
async fn slow_handler_is_named_in_log_and_state() {
    #[cfg(feature = "cli")]
    let log = crate::testing::capture_log();
    let mut rig = Rig::new(&["a", "b"]);
    let (_nothing, silence) = std::sync::mpsc::channel();
    let options = HandlerOptions { name: Some("the slow one".to_owned()), ..HandlerOptions::default() };
    let slow = rig.informer.add_event_handler_with(Slow(silence), options).unwrap();
    rig.start().await;
    slow.synced().synced().await;
    let state = rig.informer.state().handlers.remove(0);
    assert_eq!((state.name.as_str(), state.pending, state.slow), ("the slow one", 0, 2));
    #[cfg(feature = "cli")]
    {
        let lines = complaints(&log);
        assert_eq!(lines.len(), 1, "one reminder a minute: {lines:?}");
        assert!(lines[0].starts_with("WARN Event handler was slow; it should only queue keys"), "{lines:?}");
        assert!(lines[0].contains("kind=configmaps handler=the slow one"), "{lines:?}");
    }
    rig.stop().await;
}

/// client-go: `TestListenerResyncPeriods`, `TestResyncCheckPeriod`, `TestReflectorResyncChan`
#[tokio::test(start_paused = true)]
async fn each_handler_resyncs_in_its_own_period() {
    let config = InformerConfig {
        resync_period: ResyncPeriod::new(Duration::from_secs(10)).ok(),
        ..InformerConfig::default()
    };
    let mut rig = Rig::with_config(&["a", "b"], config);
    let every = |seconds| HandlerResync::Every(ResyncPeriod::new(Duration::from_secs(seconds)).unwrap());
    let mut heard_by = Vec::new();
    for resync in [HandlerResync::OfInformer, HandlerResync::Never, every(4), every(7)] {
        let (handler, receiver) = recording();
        let options = HandlerOptions { resync, ..HandlerOptions::default() };
        let registration = rig.informer.add_event_handler_with(handler, options).unwrap();
        heard_by.push((receiver, registration));
    }
    rig.start().await;
    for (receiver, _) in &mut heard_by {
        heard(receiver).await;
    }
    tokio::time::sleep(Duration::from_secs(21)).await;
    let (requests, mut resyncs) = (rig.source.requests().len(), Vec::new());
    for (receiver, _) in &mut heard_by {
        let all = heard(receiver).await;
        assert!(all.chunks(2).all(|both| both == ["~a", "~b"]), "{all:?}");
        resyncs.push(all.len() / 2);
    }
    assert_eq!(resyncs, [2, 0, 5, 3]);
    assert_eq!(requests, 2, "a list and a watch: a resync asks the server for nothing");
    for (_, registration) in &heard_by {
        rig.informer.remove_event_handler(registration);
    }
    let (handler, mut late) = recording();
    let options = HandlerOptions { resync: every(1), ..HandlerOptions::default() };
    rig.informer.add_event_handler_with(handler, options).unwrap();
    tokio::time::sleep(Duration::from_millis(1500)).await;
    assert_eq!(
        heard(&mut late).await,
        ["+a initial", "+b initial", "~a", "~b"],
        "added to a running informer"
    );
    rig.stop().await;
}

/// R9: the watch lost events.
#[tokio::test(start_paused = true)]
async fn relist_recovers_lost_events() {
    let mut rig = Rig::new(&["changed", "gone", "same"]);
    rig.start().await;
    let (handler, mut receiver) = recording();
    rig.informer.add_event_handler(handler).unwrap();
    assert_eq!(heard(&mut receiver).await.len(), 3);
    rig.source.put_unseen(config_map("ns", "changed", 0));
    rig.source.put_unseen(config_map("ns", "new", 0));
    rig.source.delete_unseen(&key("gone"));
    assert_eq!(heard(&mut receiver).await, Vec::<String>::new());
    rig.informer.relist();
    rig.informer.relist();
    assert_eq!(heard(&mut receiver).await, ["-gone last known", "~changed", "+new"]);
    assert_eq!(rig.source.requests()[2..], ["list newest", "watch 6"]);
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn state_shows_reflector_progress_and_handlers() {
    let mut rig = Rig::new(&["a", "b"]);
    let (handler, mut receiver) = recording();
    let registration = rig.informer.add_event_handler(handler).unwrap();
    assert_eq!(rig.informer.state().progress, Progress::default());
    rig.source.script_lists([Some(status_error(503, "ServiceUnavailable"))]);
    let (informer, shutdown) = (rig.informer.clone(), rig.shutdown.clone());
    rig.tasks.spawn(async move { informer.run(shutdown).await });
    tokio::time::sleep(Duration::from_millis(1)).await;
    let phase = rig.informer.state().progress.phase;
    assert!(matches!(phase, ReflectorPhase::BackingOff(until) if until > Instant::now()), "{phase:?}");
    rig.informer.synced().synced().await;
    rig.source.put(config_map("ns", "a", 0));
    heard(&mut receiver).await;
    tokio::time::advance(Duration::from_secs(3)).await;
    let CacheState { progress, resource_version, objects, queued, handlers, .. } = rig.informer.state();
    assert_eq!((progress.phase, progress.lists, progress.events), (ReflectorPhase::Watching, 1, 1));
    assert_eq!(progress.last_event.unwrap().elapsed().as_secs(), 3);
    assert_eq!((&*resource_version, objects, queued), ("3", 2, 0));
    assert_eq!(handlers, [HandlerState { name: "Recording".to_owned(), ..HandlerState::default() }]);
    rig.informer.remove_event_handler(&registration);
    assert_eq!(rig.informer.state().handlers, []);
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn lists_are_counted_by_their_reason() {
    let mut rig = Rig::new(&["a"]);
    rig.start().await;
    let pass = || tokio::time::sleep(Duration::from_secs(120));
    rig.source.break_watches(|| status_error(410, "Expired"));
    pass().await;
    rig.source.fail_watches((0..5).map(|_| status_error(500, "InternalError")));
    rig.source.close_watches();
    pass().await;
    for _ in 0..5 {
        rig.source.break_watches(crate::testing::connection_error);
        pass().await;
    }
    rig.source.put(config_map("ns", "a", 0));
    pass().await;
    rig.source.send(|| WatchEvent::Added(Ok(config_map("ns", "ghost", 1))));
    pass().await;
    rig.informer.relist();
    pass().await;
    rig.source.break_watches(|| status_error(500, "InternalError"));
    pass().await;
    let progress = rig.informer.state().progress;
    let reasons = ListReason::ALL.map(ListReason::as_label).into_iter().zip(progress.lists_by_reason);
    let expected = ["first", "expired", "older_event", "broken_streams", "refused", "requested", "error"];
    let other = ("shards", 0);
    assert_eq!(reasons.collect::<Vec<_>>(), [&expected.map(|reason| (reason, 1))[..], &[other]].concat());
    assert_eq!(progress.lists, 7);
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn objects_and_answers_that_do_not_decode_are_counted() {
    let mut rig = Rig::new(&["a"]);
    let unreadable =
        |name: &str| serde_json::json!({"metadata": {"namespace": "ns", "name": name}, "data": 7});
    rig.source.put(unreadable("b"));
    rig.start().await;
    rig.source.put(unreadable("c"));
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(rig.informer.state().progress.decode_errors, 2, "in the list, and an event");
    rig.source.break_watches(|| Error::Decode {
        request: "test".to_owned(),
        source: serde::de::Error::custom("malformed"),
    });
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(rig.informer.state().progress.decode_errors, 3, "unchanged objects are not decoded again");
    rig.stop().await;
}

#[test]
fn handler_names_have_no_modules() {
    assert_eq!(short_name::<Vec<(std::time::Duration, u8)>>(), "Vec<(Duration, u8)>");
}
