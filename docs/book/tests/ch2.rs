use std::panic::AssertUnwindSafe;
use std::time::Duration;

use futures_util::FutureExt;
use tokio::time::Instant;
use windlass::sim::{Action, Fault, When};

use crate::ch2::{Delta, Ended, Reflector, SILENCE, version_of};
use crate::cluster::{Cluster, FOOS, until};

/// Short for what is handed on.
fn short(delta: &Delta) -> String {
    let name =
        |object: &serde_json::Value| object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    match delta {
        Delta::Replaced { objects, .. } => {
            format!("replaced {}", objects.iter().map(name).collect::<Vec<_>>().join(","))
        }
        Delta::Added(object) => format!("added {}", name(object)),
        Delta::Updated(object) => format!("updated {}", name(object)),
        Delta::Deleted(object) => format!("deleted {}", name(object)),
    }
}

#[tokio::test(start_paused = true)]
async fn list_and_watch_miss_nothing_in_between() {
    let cluster = Cluster::start().await;
    cluster.create_foo("a", 1).await;
    let mut heard = Vec::new();
    let mut reflector = Reflector::new(cluster.api("me"), FOOS);
    let mut hear = |delta: Delta| heard.push(short(&delta));
    reflector.list(&mut hear).await.unwrap();
    // Between the list and the watch.
    cluster.create_foo("b", 1).await;
    cluster.scale_foo("a", 2).await;
    cluster.delete_foo("b").await;
    let watch = reflector.watch(&mut hear);
    tokio::time::timeout(Duration::from_secs(1), watch).await.unwrap_err();
    assert_eq!(heard, ["replaced a", "added b", "updated a", "deleted b"]);
}

/// The newest change is a deletion: no object that is left has its version.
#[tokio::test(start_paused = true)]
async fn list_has_a_version_of_its_own() {
    let cluster = Cluster::start().await;
    for name in ["a", "b"] {
        cluster.create_foo(name, 1).await;
    }
    cluster.delete_foo("b").await;
    let mut reflector = Reflector::new(cluster.api("me"), FOOS);
    let mut heard = Vec::new();
    let mut hear = |delta: Delta| heard.push(short(&delta));
    reflector.list(&mut hear).await.unwrap();
    let watch = reflector.watch(&mut hear);
    tokio::time::timeout(Duration::from_secs(1), watch).await.unwrap_err();
    assert_eq!(heard, ["replaced a"], "what was before the list is not told again");
}

/// Whoever receives the event fails.
#[tokio::test(start_paused = true)]
async fn event_that_was_not_handed_on_comes_again() {
    let cluster = Cluster::start().await;
    let mut reflector = Reflector::new(cluster.api("me"), FOOS);
    reflector.list(&mut |_| {}).await.unwrap();
    cluster.create_foo("a", 1).await;
    let mut failing = |_| panic!("on purpose");
    AssertUnwindSafe(reflector.watch(&mut failing)).catch_unwind().await.unwrap_err();
    let mut heard = Vec::new();
    let mut hear = |delta: Delta| heard.push(short(&delta));
    let watch = reflector.watch(&mut hear);
    tokio::time::timeout(Duration::from_secs(1), watch).await.unwrap_err();
    assert_eq!(heard, ["added a"]);
}

#[tokio::test(start_paused = true)]
async fn refused_watch_ends_by_its_code() {
    let cluster = Cluster::start().await;
    let mut reflector = Reflector::new(cluster.api("me"), FOOS);
    reflector.list(&mut |_| {}).await.unwrap();
    for (code, reason, expected) in
        [(410, "Expired", Ended::Expired), (503, "ServiceUnavailable", Ended::GoOn)]
    {
        cluster
            .sim
            .fault(Fault::new(When::verb("watch").resource("foos").times(1), Action::refuse(code, reason)));
        assert_eq!(reflector.watch(&mut |_| {}).await, expected, "{code}");
    }
}

#[tokio::test(start_paused = true)]
async fn broken_watch_goes_on_where_it_was() {
    let cluster = Cluster::start().await;
    let mut heard = Vec::new();
    let mut reflector = Reflector::new(cluster.api("me"), FOOS);
    let mut hear = |delta: Delta| heard.push(short(&delta));
    reflector.list(&mut hear).await.unwrap();
    cluster.sim.fault(Fault::new(When::verb("watch").resource("foos").times(1), Action::CutAfter(1)));
    cluster.create_foo("a", 1).await;
    cluster.create_foo("b", 1).await;
    let ended = reflector.watch(&mut hear).await;
    assert_eq!(ended, Ended::GoOn);
    let watch = reflector.watch(&mut hear);
    tokio::time::timeout(Duration::from_secs(1), watch).await.unwrap_err();
    assert_eq!(heard, ["replaced ", "added a", "added b"]);
    assert_eq!(cluster.count("me", "list"), 1, "it need not list again");
}

#[tokio::test(start_paused = true)]
async fn quiet_kind_stays_current_by_bookmarks() {
    let cluster = Cluster::start().await;
    let mut reflector = Reflector::new(cluster.api("me"), FOOS);
    reflector.list(&mut |_| {}).await.unwrap();
    let before: u64 = reflector.version().parse().unwrap();
    // Other kinds change, and versions are counted together.
    let lease = serde_json::json!({"metadata": {"name": "x"}, "spec": {"holderIdentity": "y"}});
    cluster.api("user").post(crate::cluster::LEASES, &lease).await.unwrap();
    let mut hear = |delta: Delta| panic!("no Foo has changed: {delta:?}");
    let watch = reflector.watch(&mut hear);
    tokio::time::timeout(Duration::from_secs(150), watch).await.unwrap_err();
    assert!(reflector.version().parse::<u64>().unwrap() > before);
}

#[tokio::test(start_paused = true)]
async fn forgotten_version_makes_it_list_again() {
    let cluster = Cluster::with_history(5).await;
    let heard = std::sync::Arc::new(parking_lot::Mutex::new(Vec::new()));
    let reflector = Reflector::new(cluster.api("me"), FOOS);
    cluster.create_foo("a", 1).await;
    let to = heard.clone();
    drop(tokio::spawn(reflector.run(move |delta| to.lock().push(short(&delta)))));
    until(async || !heard.lock().is_empty()).await;
    // The server goes away, and its memory with it; more happens than it remembers.
    cluster.sim.stop(0);
    tokio::time::sleep(Duration::from_secs(5)).await;
    cluster.sim.start(0);
    for replicas in 2..9 {
        cluster.scale_foo("a", replicas).await;
    }
    until(async || heard.lock().iter().filter(|one| one.starts_with("replaced")).count() == 2).await;
}

#[tokio::test(start_paused = true)]
async fn dead_connection_is_given_up() {
    let cluster = Cluster::start().await;
    let mut reflector = Reflector::new(cluster.api("me"), FOOS);
    reflector.list(&mut |_| {}).await.unwrap();
    cluster.sim.fault(Fault::new(When::verb("watch").resource("foos").times(1), Action::Freeze));
    let started = Instant::now();
    assert_eq!(reflector.watch(&mut |_| {}).await, Ended::GoOn);
    assert_eq!(started.elapsed(), SILENCE);
    assert_eq!(version_of(&serde_json::json!({"metadata": {"resourceVersion": "7"}})), "7");
}
