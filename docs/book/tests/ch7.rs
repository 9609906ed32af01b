use std::time::Duration;

use serde_json::json;
use windlass::sim::{Action, Fault, When};

use crate::ch2::Delta;
use crate::ch7::Controller;
use crate::cluster::{Cluster, DEPLOYMENTS, FOOS, until};

async fn running(cluster: &Cluster) -> std::sync::Arc<Controller> {
    let controller = Controller::new(cluster.api("me"));
    let runs = controller.clone();
    drop(tokio::spawn(async move { runs.run(2).await }));
    controller
}

async fn available(cluster: &Cluster, name: &str) -> serde_json::Value {
    let foo = cluster.api("user").get(&format!("{FOOS}/{name}")).await.unwrap();
    foo["status"]["availableReplicas"].clone()
}

#[tokio::test(start_paused = true)]
async fn foo_gets_its_deployment_and_its_status() {
    let cluster = Cluster::start().await;
    cluster.create_foo("early", 1).await;
    running(&cluster).await;
    cluster.create_foo("late", 2).await;
    until(async || available(&cluster, "early").await == 1 && available(&cluster, "late").await == 2).await;
    cluster.scale_foo("late", 3).await;
    until(async || available(&cluster, "late").await == 3).await;
}

#[tokio::test(start_paused = true)]
async fn what_others_do_to_the_deployment_is_undone() {
    let cluster = Cluster::start().await;
    running(&cluster).await;
    cluster.create_foo("web", 2).await;
    until(async || available(&cluster, "web").await == 2).await;
    let (api, path) = (cluster.api("user"), format!("{DEPLOYMENTS}/web-deployment"));
    let mut deployment = api.get(&path).await.unwrap();
    deployment["spec"]["replicas"] = json!(9);
    api.put(&path, &deployment).await.unwrap();
    until(async || cluster.replicas("web").await == Some(2)).await;
    api.delete(&path, deployment["metadata"]["uid"].as_str().unwrap()).await.unwrap();
    until(async || cluster.replicas("web").await == Some(2)).await;
}

#[tokio::test(start_paused = true)]
async fn deployment_of_somebody_else_is_left_alone() {
    let cluster = Cluster::start().await;
    let controller = running(&cluster).await;
    let foo = json!({"metadata": {"name": "x", "uid": "u"}, "spec": {"deploymentName": "web-deployment", "replicas": 7}});
    let mut foreign = crate::ch1::new_deployment(&foo);
    foreign["metadata"].as_object_mut().unwrap().remove("ownerReferences");
    cluster.api("user").post(DEPLOYMENTS, &foreign).await.unwrap();
    cluster.create_foo("web", 1).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(cluster.replicas("web").await, Some(7));
    assert_eq!(controller.backoff.len(), 1, "it is tried again, later and later");
    let tries = controller.backoff.when(&"default/web".to_owned());
    assert!(tries > Duration::from_secs(10), "{tries:?}");
}

/// A Foo was deleted and created again under its name; the Deployment is that of the first.
#[tokio::test(start_paused = true)]
async fn deployment_of_an_earlier_foo_is_not_ours() {
    let cluster = Cluster::start().await;
    let controller = Controller::new(cluster.api("me"));
    let foo = |uid: &str| {
        let metadata = json!({"namespace": "default", "name": "web", "uid": uid, "resourceVersion": "7"});
        json!({"metadata": metadata, "spec": {"deploymentName": "web-deployment", "replicas": 7}})
    };
    controller.foos.apply(Delta::Added(foo("second")));
    let mut deployment = crate::ch1::new_deployment(&foo("first"));
    deployment["metadata"]["namespace"] = json!("default");
    controller.deployments.apply(Delta::Added(deployment));
    controller.sync("default/web", |_| panic!("nothing is to be stored")).await.unwrap_err();
    assert_eq!(cluster.sim.ledger().iter().filter(|request| request.user == "me").count(), 0);
}

/// The creation takes ten seconds, and the Foo changes meanwhile.
#[tokio::test(start_paused = true)]
async fn key_is_given_back_after_its_sync() {
    let cluster = Cluster::start().await;
    running(&cluster).await;
    let slow = Action::Delay(Duration::from_secs(10));
    cluster.sim.fault(Fault::new(When::verb("create").user("me").times(1), slow));
    cluster.create_foo("web", 1).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    cluster.scale_foo("web", 3).await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(cluster.replicas("web").await, None, "one worker has the key: no other has overtaken it");
    until(async || available(&cluster, "web").await == 3).await;
}

#[tokio::test(start_paused = true)]
async fn success_ends_the_backoff() {
    let cluster = Cluster::start().await;
    let controller = running(&cluster).await;
    cluster.sim.fault(Fault::new(
        When::verb("create").user("me").times(3),
        Action::refuse(503, "ServiceUnavailable"),
    ));
    cluster.create_foo("web", 1).await;
    until(async || available(&cluster, "web").await == 1).await;
    assert!(controller.backoff.is_empty());
}

#[tokio::test(start_paused = true)]
async fn nothing_is_written_at_rest() {
    let cluster = Cluster::start().await;
    let controller = running(&cluster).await;
    cluster.create_foo("web", 1).await;
    until(async || available(&cluster, "web").await == 1).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    let writes = || cluster.count("me", "create") + cluster.count("me", "update");
    let before = writes();
    controller.foos.resync();
    tokio::time::sleep(Duration::from_secs(3600)).await;
    assert_eq!(writes(), before);
}

#[tokio::test(start_paused = true)]
async fn controller_that_was_away_makes_up_for_it() {
    let cluster = Cluster::start().await;
    let controller = running(&cluster).await;
    cluster.create_foo("web", 1).await;
    until(async || available(&cluster, "web").await == 1).await;
    controller.queue.shut_down();
    tokio::time::sleep(Duration::from_secs(60)).await;
    for replicas in [4, 2, 5] {
        cluster.scale_foo("web", replicas).await;
    }
    running(&cluster).await;
    until(async || available(&cluster, "web").await == 5).await;
}
