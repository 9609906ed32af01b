//! Tests of the log lines, metrics and listing of syncs.

use super::*;
use crate::cache::{Indexers, store};
use crate::controller::run::observer::PassObserver;
use crate::testing::capture_json;

/// In the JSON log, each line has the fields of its span.
#[tokio::test(start_paused = true)]
async fn log_lines_of_a_pass_have_its_reasons() {
    let log = capture_json();
    let mut rig = start(1, Duration::ZERO, |_, attempt| match attempt {
        1 => error(500, "InternalError", None),
        _ => Ok(Outcome::Done),
    });
    rig.caches.set();
    rig.queue.add_with(ObjectName::new(Some("ns"), "a"), AddOptions::because(Reason::Created));
    tokio::time::sleep(Duration::from_secs(1)).await;
    rig.stop().await;
    let lines = log.lines();
    let in_passes = lines.iter().filter(|line| line["span"]["name"] == "sync").map(|line| {
        ["/message", "/span/controller", "/span/object", "/span/why"]
            .map(|field| line.pointer(field).and_then(|value| value.as_str()).unwrap_or_default().to_owned())
    });
    assert_eq!(
        in_passes.collect::<Vec<_>>(),
        [
            ["Sync failed; retrying with backoff", "test", "ns/a", "created"],
            ["Synced", "test", "ns/a", "created, retry 1"]
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn passes_are_counted_by_effect_and_reasons() {
    let queue = RateLimitingQueue::new(ItemExponentialFailure::new(10 * MS, 1000 * MS));
    let script = |request: &mut SyncRequest<'_>, key: &ObjectName, attempt| match (key.name(), attempt) {
        ("changes", 1) => {
            request.wrote(&config_map("ns", "a", 1));
            Ok(Outcome::Done)
        }
        ("fails", 1) => {
            request.wrote(&config_map("ns", "a", 2));
            error(500, "InternalError", None)
        }
        _ => Ok(Outcome::Done),
    };
    let mut rig = start_with(Arc::default(), queue, 1, Duration::ZERO, script);
    rig.caches.set();
    let counted = |rig: &Rig| {
        let text = rig.metrics.encode();
        ["changed", "nothing", "error"].map(|effect| {
            let series = format!("windlass_passes_total{{controller=\"test\",effect=\"{effect}\"}} ");
            text.lines().find_map(|line| line.strip_prefix(&series)?.parse::<u32>().ok())
        })
    };
    for name in ["changes", "idle", "fails"] {
        rig.add(name);
    }
    tokio::time::sleep(MS).await;
    assert_eq!(counted(&rig), [Some(1); 3]);
    // Writes of a sync do not count for the next sync of its key.
    let mut both = Reasons::from(Reason::Resync);
    both.add(Reason::Audit);
    rig.queue.add_with(
        ObjectName::new(Some("ns"), "changes"),
        AddOptions { reasons: both, ..AddOptions::default() },
    );
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(counted(&rig), [Some(1), Some(3), Some(1)]);
    let text = rig.metrics.encode();
    let reasons =
        text.lines().filter_map(|line| line.strip_prefix("windlass_reasons_total{controller=\"test\","));
    let mut counted: Vec<&str> = reasons.filter(|line| !line.ends_with(" 0")).collect();
    counted.sort_unstable();
    assert_eq!(
        counted,
        [
            "reason=\"audit\",effect=\"nothing\"} 1",
            "reason=\"resync\",effect=\"nothing\"} 1",
            "reason=\"retry\",effect=\"nothing\"} 1",
        ]
    );
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn passes_in_progress_are_listed() {
    let mut rig = start(2, Duration::from_secs(5), |key, _| match key.name() {
        "panics" => std::panic::resume_unwind(Box::new("no such thing")),
        _ => Ok(Outcome::Done),
    });
    rig.caches.set();
    assert!(rig.workers.passes().is_empty());
    rig.queue.add_with(ObjectName::new(Some("ns"), "panics"), AddOptions::because(Reason::Manual));
    tokio::time::sleep(Duration::from_secs(2)).await;
    rig.queue.add_with(ObjectName::new(Some("ns"), "calm"), AddOptions::because(Reason::Audit));
    tokio::time::sleep(Duration::from_secs(1)).await;
    let listed = |rig: &Rig| -> Vec<String> {
        let passes = rig.workers.passes();
        let mut passes: Vec<_> = passes
            .iter()
            .map(|pass| format!("{}: {} for {:?}", pass.key, pass.reasons, pass.since.elapsed()))
            .collect();
        passes.sort();
        passes
    };
    assert_eq!(listed(&rig), ["ns/calm: audit for 1s", "ns/panics: manual for 3s"]);
    tokio::time::sleep(Duration::from_millis(2005)).await;
    assert_eq!(listed(&rig)[0], "ns/calm: audit for 3.005s", "the panic has ended the other pass");
    assert!(!listed(&rig).iter().any(|pass| pass.contains("panics: manual for 5")), "{:?}", listed(&rig));
    rig.stop().await;
    assert!(rig.workers.passes().is_empty());
}

#[tokio::test(start_paused = true)]
async fn time_of_syncs_is_summed_up() {
    let second = Duration::from_secs(1);
    let mut rig = start(2, 5 * second, |_, _| Ok(Outcome::Done));
    rig.caches.set();
    assert_eq!(rig.workers.busy(), Duration::ZERO);
    rig.add("a");
    tokio::time::sleep(2 * second).await;
    rig.add("b");
    tokio::time::sleep(second).await;
    assert_eq!(rig.workers.busy(), 4 * second, "two in progress");
    tokio::time::sleep(10 * second).await;
    assert_eq!(rig.workers.busy(), 10 * second, "two that have ended");
    rig.stop().await;
}

/// Writes down what it is told, one line each.
#[derive(Debug, Default)]
struct Diary(Mutex<Vec<String>>);

impl PassObserver for Diary {
    fn began(&self, worker: usize, key: &ObjectName, reasons: &Reasons, priority: i32, waited: Duration) {
        let line = format!("{key} began by {worker} for {reasons} at {priority} after {waited:?}");
        self.0.lock().push(line);
    }

    fn held(&self, key: &ObjectName) {
        self.0.lock().push(format!("{key} held"));
    }

    fn ended(&self, _worker: usize, key: &ObjectName, end: PassEnd) {
        let PassEnd { took, result, writes } = end;
        self.0.lock().push(format!("{key} ended after {took:?} with {result:?}, {} writes", writes.len()));
    }
}

#[tokio::test(start_paused = true)]
async fn observer_is_told_the_life_of_a_key() {
    let (reader, mut writer) = store::pair(Indexers::default());
    writer.upsert(Cached::new(Ok(config_map("ns", "child", 10))));
    let resource = crate::api::ApiResource::of::<k8s_openapi::api::core::v1::ConfigMap>();
    let keys = Arc::new(Keys::new().with(resource.clone(), reader));
    let options = QueueOptions { ageing: Some(Ageing::default()), ..QueueOptions::default() };
    let queue = RateLimitingQueue::with(ItemExponentialFailure::new(10 * MS, 1000 * MS), options);
    let mut rig = start_with(keys.clone(), queue, 1, 3 * MS, |_, _, pass| match pass {
        1 => Err(SyncError::new("a message that quotes a secret")),
        _ => Ok(Outcome::Done),
    });
    let diary = Arc::new(Diary::default());
    rig.workers.observe(diary.clone());
    let key = ObjectName::new(Some("ns"), "a");
    let (child, state) = (ObjectName::new(Some("ns"), "child"), ("uid-of-ns-child", "11"));
    keys.at(&key, |record| record.own_writes.awaits(&resource, &child, state));
    rig.queue.add_with(key, AddOptions { priority: 7, ..AddOptions::because(Reason::Manual) });
    tokio::time::sleep(5 * MS).await;
    rig.caches.set();
    tokio::time::sleep(500 * MS).await;
    writer.upsert(Cached::new(Ok(config_map("ns", "child", 11))));
    tokio::time::sleep(Duration::from_secs(1)).await;
    let failure = "Err(PassFailure { retry: Error, status: None })";
    assert_eq!(
        *diary.0.lock(),
        [
            "ns/a held".to_owned(),
            "ns/a began by 0 for manual at 7 after 0ns".to_owned(),
            format!("ns/a ended after 3ms with {failure}, 0 writes"),
            "ns/a began by 0 for manual, retry 1 at 7 after 0ns".to_owned(),
            "ns/a ended after 3ms with Ok(Done), 0 writes".to_owned(),
        ]
    );
    rig.stop().await;
}
