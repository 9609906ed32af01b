//! Records what the production code does, as the tables that the pages show step by step.

use std::fmt::Write as _;
use std::fs;
use std::sync::Arc;

use std::time::Duration;

use parking_lot::Mutex;

use k8s_openapi::api::core::v1::ConfigMap;
use tokio_util::sync::CancellationToken;
use windlass::cache::{HandlerFns, InformerConfig, ObjectName, SharedInformer};
use windlass::cli::InProcess;
use windlass::client::ApiClient;
use windlass::sim::InProcessTransport;
use windlass::testing::{FakeSource, config_map, status_error};
use windlass::workqueue::{ItemExponentialFailure, Processing, Queue, RateLimiter, Stage};

use crate::book::{WRITE, at, read};
use crate::cluster::{Cluster, DEPLOYMENTS};

/// Compares a recorded table with the one in a page, or writes it there.
#[track_caller]
fn assert_fresh(page: &str, name: &str, head: &str, rows: &[String]) {
    let mut table = format!("\n| {head} |\n|{}\n", "---|".repeat(head.split(" | ").count()));
    rows.iter().for_each(|row| writeln!(table, "| {row} |").unwrap());
    table.push('\n');
    let text = read(page);
    let start = format!("<!-- trace {name} -->\n");
    let (before, rest) = text.split_once(&start).unwrap_or_else(|| panic!("{page} has no {start}"));
    let (shown, after) = rest.split_once("<!-- /trace -->").unwrap();
    if std::env::var_os(WRITE).is_some() {
        fs::write(at(page), format!("{before}{start}{table}<!-- /trace -->{after}")).unwrap();
    } else {
        assert_eq!(shown, table, "{page}: hack/book.sh pages writes it");
    }
}

/// One key and another, two workers.
#[test]
fn trace_of_the_queue_is_fresh() {
    let queue: Queue<&str> = Queue::new();
    let mut taken: Vec<Processing<'_, &str>> = Vec::new();
    let mut rows = Vec::new();
    for step in [
        "a handler adds a",
        "a handler adds a again",
        "worker 1 takes a",
        "a handler adds a",
        "a handler adds b",
        "worker 2 takes b",
        "worker 2 is done with b",
        "a handler adds a",
        "worker 1 is done with a",
        "worker 2 takes a",
        "worker 2 is done with a",
    ] {
        let key = if step.contains(" b") { "b" } else { "a" };
        match step {
            _ if step.contains("adds") => queue.add(key),
            _ if step.contains("takes") => taken.push(queue.try_get().unwrap()),
            _ => taken.retain(|processing| *processing.key() != key),
        }
        let listed = queue.list(10);
        let keys = |is_wanted: &dyn Fn(&Stage) -> bool| {
            let mut keys: Vec<&str> =
                listed.iter().filter(|one| is_wanted(&one.stage)).map(|one| one.key).collect();
            keys.sort_unstable();
            keys.join(" ")
        };
        let (ready, dirty) = (keys(&|stage| matches!(stage, Stage::Queued { .. })), keys(&|_| true));
        let processing: Vec<&str> = taken.iter().map(|processing| *processing.key()).collect();
        rows.push(format!("{step} | {ready} | {dirty} | {}", processing.join(" ")));
    }
    assert_fresh("src/ch5-the-queue.md", "queue", "step | ready | dirty | processing", &rows);
}

/// A rollout changes a Foo's Deployment twelve times; nothing fails.
#[test]
fn trace_of_the_backoff_is_fresh() {
    let limiter = ItemExponentialFailure::new(Duration::from_millis(5), Duration::from_secs(1000));
    let mut rows = Vec::new();
    for change in 1..=12 {
        let wait: Duration = RateLimiter::when(&limiter, &"web");
        rows.push(format!("change {change} | at once | {wait:?}"));
    }
    assert_fresh("src/ch6-not-now.md", "backoff", "event | `Add` | `AddRateLimited`", &rows);
}

/// The watch breaks, things happen, and a list makes up for them.
#[tokio::test(start_paused = true)]
async fn trace_of_a_relist_is_fresh() {
    let source = FakeSource::<ConfigMap>::new();
    let informer = SharedInformer::new(source.clone(), InformerConfig::default());
    let heard = Arc::new(Mutex::new(Vec::new()));
    let [added, updated, deleted] = [0; 3].map(|_| heard.clone());
    let name = |name: &ObjectName| name.name().to_owned();
    let handler = HandlerFns::<ConfigMap>::default()
        .on_add(move |object, _| added.lock().push(format!("+{}", name(&object.object_name()))))
        .on_update(move |_, new| updated.lock().push(format!("={}", name(&new.object_name()))))
        .on_delete(move |object| {
            deleted.lock().push(format!("−{}", name(&object.last_known().object_name())));
        });
    informer.add_event_handler(handler).unwrap();
    let (running, shutdown) = (informer.clone(), CancellationToken::new());
    let stop = shutdown.clone();
    let task = tokio::spawn(async move { running.run(stop).await });
    informer.synced().synced().await;

    let map = |name: &str| config_map("default", name, 0);
    let mut rows = Vec::new();
    for step in [
        "a is created",
        "b is created",
        "b is changed",
        "*unseen:* a is deleted, b changed, c created",
        "the watch ends with 410; list",
    ] {
        match step {
            "a is created" => source.put(map("a")),
            "b is created" | "b is changed" => source.put(map("b")),
            "the watch ends with 410; list" => source.break_watches(|| status_error(410, "Expired")),
            _ => {
                source.delete_unseen(&ObjectName::new(Some("default"), "a"));
                source.put_unseen(map("b"));
                source.put_unseen(map("c"));
            }
        }
        tokio::time::sleep(Duration::from_secs(60)).await;
        let store = informer.store();
        let mut objects: Vec<String> = store
            .list()
            .iter()
            .map(|object| format!("{}@{}", object.object_name().name(), object.resource_version()))
            .collect();
        objects.sort();
        let version = store.resource_version();
        let told = std::mem::take(&mut *heard.lock()).join(" ");
        rows.push(format!("{step} | {} | {version} | {told}", objects.join(" ")));
    }
    shutdown.cancel();
    task.await.unwrap().unwrap();
    let head = "what happens | store | complete up to | handlers hear";
    assert_fresh("src/ch3-from-the-wire-to-memory.md", "relist", head, &rows);
}

/// The cache of Deployments stands still for a while. The Foo operator runs as `windlass run` does.
#[tokio::test(start_paused = true)]
async fn trace_of_an_own_write_is_fresh() {
    let cluster = Cluster::start().await;
    let client = kube_client::Client::new(InProcessTransport::new(&cluster.sim, "operator"), "default");
    let (_signals, received) = tokio::sync::mpsc::channel(1);
    let flags = [
        "--controllers=foo",
        "--leader-elect=false",
        "--metrics-bind-address=0",
        "--health-probe-bind-address=0",
    ];
    drop(tokio::spawn(async move {
        windlass::cli::run_over(ApiClient::new(client), &flags, InProcess::new(1), received).await
    }));
    tokio::time::sleep(Duration::from_secs(60)).await;
    let user = cluster.api("user");
    let mut rows = Vec::new();
    for step in [
        "the watch of Deployments falls silent",
        "a Foo is created that wants 1",
        "the Foo is scaled to 3",
        "ten seconds pass",
        "the watch goes on",
    ] {
        let before = cluster.sim.ledger().len();
        match step {
            "a Foo is created that wants 1" => cluster.create_foo("web", 1).await,
            "the Foo is scaled to 3" => cluster.scale_foo("web", 3).await,
            "ten seconds pass" => {}
            _ => cluster.sim.freeze_cache(0, "apps", "deployments", step.ends_with("silent")),
        }
        tokio::time::sleep(Duration::from_secs(10)).await;
        let writes = cluster.sim.ledger().into_iter().skip(before).filter(|request| {
            let is_write = ["create", "update", "patch"].contains(&request.verb.as_str());
            request.user == "operator" && is_write && request.resource != "events"
        });
        let sent: Vec<String> = writes
            .map(|request| match request.subresource.as_str() {
                "" => format!("{} Deployment", request.verb),
                part => format!("{} {part} of the Foo", request.verb),
            })
            .collect();
        let shown =
            |replicas: Option<u64>| replicas.map_or_else(|| "none".to_owned(), |count| count.to_string());
        let cached = user.get(&format!("{DEPLOYMENTS}?resourceVersion=0")).await.unwrap();
        let cached = shown(cached["items"][0]["spec"]["replicas"].as_u64());
        let stored = shown(cluster.replicas("web").await);
        rows.push(format!("{step} | {stored} | {cached} | {}", sent.join(", ")));
    }
    let head = "what happens | replicas on the server | in the cache | the operator sends";
    assert_fresh("src/ch8-the-cache-lies.md", "own-write", head, &rows);
}
