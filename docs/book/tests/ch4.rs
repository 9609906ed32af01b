use std::sync::{Arc, mpsc};
use std::time::Duration;

use futures_util::FutureExt;
use parking_lot::Mutex;
use serde_json::json;

use crate::ch2::Delta;
use crate::ch4::{Informer, keys};
use crate::cluster::{Cluster, FOOS, until};

type Heard = Arc<Mutex<Vec<String>>>;

fn ear() -> (Heard, crate::ch4::Handler) {
    let heard = Heard::default();
    let to = heard.clone();
    (heard, keys(move |key| to.lock().push(key)))
}

#[tokio::test(start_paused = true)]
async fn informer_follows_the_server() {
    let cluster = Cluster::start().await;
    cluster.create_foo("a", 1).await;
    let informer = Informer::new(cluster.api("me"), FOOS);
    let (heard, handler) = ear();
    informer.add_handler(handler);
    let running = informer.clone();
    drop(tokio::spawn(async move { running.run().await }));
    informer.has_synced().await;
    assert_eq!(informer.get("default/a").unwrap()["spec"]["replicas"], 1);
    cluster.scale_foo("a", 3).await;
    until(async || informer.get("default/a").unwrap()["spec"]["replicas"] == 3).await;
    assert_eq!(*heard.lock(), ["default/a", "default/a"]);
    assert_eq!(
        (cluster.count("me", "list"), cluster.count("me", "get")),
        (1, 0),
        "one list serves all reads"
    );
}

fn added(name: &str) -> Delta {
    Delta::Added(json!({"metadata": {"namespace": "default", "name": name, "resourceVersion": "1"}}))
}

/// An informer that is not running.
async fn idle() -> (Cluster, Arc<Informer>) {
    let cluster = Cluster::start().await;
    let informer = Informer::new(cluster.api("me"), FOOS);
    (cluster, informer)
}

#[tokio::test]
async fn late_handler_hears_of_what_is_there() {
    let (_cluster, informer) = idle().await;
    informer.apply(added("a"));
    let (heard, handler) = ear();
    informer.add_handler(handler);
    informer.apply(added("b"));
    assert_eq!(*heard.lock(), ["default/a", "default/b"]);
}

/// While the new handler is told of what is there, something changes.
#[tokio::test]
async fn handler_that_is_being_added_misses_nothing() {
    let (_cluster, informer) = idle().await;
    informer.apply(added("a"));
    let (heard, to_all) = ear();
    let (told, is_told) = mpsc::channel();
    let (applied, is_applied) = mpsc::channel();
    let applies = informer.clone();
    let other = std::thread::spawn(move || {
        is_told.recv().unwrap();
        applies.apply(added("b"));
        applied.send(()).ok();
    });
    let is_applied = Mutex::new(is_applied);
    informer.add_handler(Box::new(move |change| {
        to_all(change);
        told.send(()).ok();
        // If it is applied already, without us, we shall never hear of it.
        is_applied.lock().recv_timeout(Duration::from_millis(200)).ok();
    }));
    other.join().unwrap();
    assert_eq!(*heard.lock(), ["default/a", "default/b"]);
}

#[tokio::test]
async fn only_a_list_makes_it_synced() {
    let (_cluster, informer) = idle().await;
    informer.apply(added("a"));
    assert!(informer.has_synced().now_or_never().is_none(), "there may be more");
    informer.apply(Delta::Replaced { objects: Vec::new(), version: "2".to_owned() });
    assert!(informer.has_synced().now_or_never().is_some());
    informer.apply(added("b"));
    assert!(informer.has_synced().now_or_never().is_some(), "and it remains so");
}

#[tokio::test]
async fn handler_that_looks_finds_the_change() {
    let (_cluster, informer) = idle().await;
    let found = Arc::new(Mutex::new(None));
    let (to, store) = (found.clone(), Arc::downgrade(&informer));
    informer.add_handler(Box::new(move |change| {
        let key = crate::ch3::key_of(change.last());
        *to.lock() = Some(store.upgrade().unwrap().get(&key).is_some());
    }));
    informer.apply(added("a"));
    assert_eq!(*found.lock(), Some(true));
}

#[tokio::test]
async fn resync_repeats_without_asking_the_server() {
    let (cluster, informer) = idle().await;
    informer.apply(added("a"));
    let (heard, handler) = ear();
    informer.add_handler(handler);
    let is_new = Arc::new(Mutex::new(Vec::new()));
    let to = is_new.clone();
    informer.add_handler(Box::new(move |change| to.lock().push(change.old.is_none())));
    informer.resync();
    assert_eq!(*heard.lock(), ["default/a", "default/a"]);
    assert_eq!(*is_new.lock(), [true, false], "what is repeated is no new object");
    assert_eq!(cluster.count("me", "list"), 0);
}
