use std::time::Duration;

use serde_json::json;
use windlass::sim::{Action, Fault, When};

use crate::ch2::Delta;
use crate::ch7::Controller;
use crate::ch8::{Careful, FINALIZER, OwnWrites};
use crate::cluster::{Cluster, DEPLOYMENTS, FOOS, until};

async fn running(cluster: &Cluster) -> std::sync::Arc<Careful> {
    let careful = Careful::new(cluster.api("me"));
    let runs = careful.clone();
    drop(tokio::spawn(async move { runs.run(2).await }));
    careful
}

#[test]
fn write_is_expected_until_the_cache_has_got_that_far() {
    let own = OwnWrites::default();
    assert!(own.are_seen("default/a", 0), "nothing was written");
    own.wrote("default/a", "10");
    assert!(!own.are_seen("default/a", 9));
    assert!(own.are_seen("default/b", 9), "keys wait by themselves");
    assert!(own.are_seen("default/a", 10) && own.are_seen("default/a", 0), "once is enough");
}

/// The Deployments' watch is silent for a minute. What happens to the Foo meanwhile is decided on a cache that does not
/// show the Deployment that was just created.
async fn creates_during_a_silent_watch(start: impl AsyncFnOnce(&Cluster)) -> usize {
    let cluster = Cluster::start().await;
    start(&cluster).await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    cluster.sim.freeze_cache(0, "apps", "deployments", true);
    cluster.create_foo("web", 1).await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    cluster.scale_foo("web", 3).await;
    tokio::time::sleep(Duration::from_secs(55)).await;
    cluster.sim.freeze_cache(0, "apps", "deployments", false);
    until(async || cluster.replicas("web").await == Some(3)).await;
    let creates = |request: &&windlass::sim::LedgerEntry| request.verb == "create" && request.user == "me";
    cluster.sim.ledger().iter().filter(creates).count()
}

#[tokio::test(start_paused = true)]
async fn own_writes_are_not_repeated() {
    let naive = creates_during_a_silent_watch(async |cluster| {
        let controller = Controller::new(cluster.api("me"));
        drop(tokio::spawn(async move { controller.run(2).await }));
    });
    let careful = creates_during_a_silent_watch(async |cluster| drop(running(cluster).await));
    let (naive, careful) = (naive.await, careful.await);
    assert_eq!(careful, 1);
    assert!(naive > 5, "chapter 7 has tried {naive} times to create what it had created");
}

/// The Deployment is stored; the step after it fails.
#[tokio::test(start_paused = true)]
async fn write_counts_although_the_sync_failed() {
    let creates = creates_during_a_silent_watch(async |cluster| {
        let refusal = Action::refuse(503, "ServiceUnavailable");
        cluster.sim.fault(Fault::new(When::verb("update").resource("foos/status").times(20), refusal));
        running(cluster).await;
    });
    assert_eq!(creates.await, 1);
}

/// Sets up a Foo that is being deleted, and whose Deployment is on the server but not in the cache.
async fn deleted_behind_the_cache(cluster: &Cluster) -> std::sync::Arc<Careful> {
    let (api, path) = (cluster.api("user"), format!("{FOOS}/web"));
    cluster.create_foo("web", 1).await;
    let mut foo = api.get(&path).await.unwrap();
    foo["metadata"]["finalizers"] = json!([FINALIZER]);
    let foo = api.put(&path, &foo).await.unwrap();
    api.post(DEPLOYMENTS, &crate::ch1::new_deployment(&foo)).await.unwrap();
    cluster.delete_foo("web").await;
    let careful = Careful::new(cluster.api("me"));
    careful.inner.foos.apply(Delta::Added(api.get(&path).await.unwrap()));
    careful
}

#[tokio::test(start_paused = true)]
async fn server_is_asked_whether_the_deployment_is_gone() {
    let cluster = Cluster::start().await;
    let careful = deleted_behind_the_cache(&cluster).await;
    // It may fail, to be tried again, or wait for the event of the deletion.
    careful.sync("default/web").await.ok();
    assert_eq!(cluster.count("me", "delete"), 1);
    assert!(cluster.api("user").get(&format!("{FOOS}/web")).await.is_ok(), "it is not seen to be gone yet");
}

#[tokio::test(start_paused = true)]
async fn refused_read_does_not_mean_gone() {
    let cluster = Cluster::start().await;
    let careful = deleted_behind_the_cache(&cluster).await;
    cluster.sim.fault(Fault::new(When::verb("get").user("me"), Action::refuse(403, "Forbidden")));
    careful.sync("default/web").await.unwrap_err();
    assert!(cluster.api("user").get(&format!("{FOOS}/web")).await.is_ok(), "nobody knows whether it is gone");
}

#[tokio::test(start_paused = true)]
async fn foo_goes_after_its_deployment() {
    let cluster = Cluster::start().await;
    running(&cluster).await;
    cluster.create_foo("web", 1).await;
    until(async || cluster.replicas("web").await == Some(1)).await;
    let (api, path) = (cluster.api("user"), format!("{FOOS}/web"));
    let mut foo = api.get(&path).await.unwrap();
    assert_eq!(foo["metadata"]["finalizers"], json!([FINALIZER]));
    foo["metadata"]["finalizers"] = json!([FINALIZER, "example.com/another"]);
    api.put(&path, &foo).await.unwrap();
    // The deletion of the Deployment is refused for a while.
    let refusal =
        cluster.sim.fault(Fault::new(When::verb("delete").user("me"), Action::refuse(403, "Forbidden")));
    api.delete(&path, foo["metadata"]["uid"].as_str().unwrap()).await.unwrap();
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert!(api.get(&path).await.is_ok(), "the Foo waits for its Deployment");
    cluster.sim.heal(refusal);
    let others = json!(["example.com/another"]);
    until(async || api.get(&path).await.unwrap()["metadata"]["finalizers"] == others).await;
    assert_eq!(cluster.replicas("web").await, None);
}

#[tokio::test(start_paused = true)]
async fn deployment_of_somebody_else_is_not_deleted() {
    let cluster = Cluster::start().await;
    running(&cluster).await;
    let api = cluster.api("user");
    let of = json!({"metadata": {"name": "x", "uid": "u"}, "spec": {"deploymentName": "web-deployment", "replicas": 7}});
    let mut foreign = crate::ch1::new_deployment(&of);
    foreign["metadata"].as_object_mut().unwrap().remove("ownerReferences");
    api.post(DEPLOYMENTS, &foreign).await.unwrap();
    cluster.create_foo("web", 1).await;
    let path = format!("{FOOS}/web");
    until(async || api.get(&path).await.unwrap()["metadata"]["finalizers"] == json!([FINALIZER])).await;
    let foo = api.get(&path).await.unwrap();
    api.delete(&path, foo["metadata"]["uid"].as_str().unwrap()).await.unwrap();
    until(async || api.get(&path).await.is_err()).await;
    assert_eq!(cluster.replicas("web").await, Some(7));
}
