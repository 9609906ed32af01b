use serde_json::json;

use crate::ch1::{Action, after_a_change, compare, new_deployment, poll_once};
use crate::cluster::Cluster;

/// The Foo goes from 1 to 3 to 5, and we hear only of the last step.
#[test]
fn edge_that_is_missed_is_lost_for_good() {
    let deployment = after_a_change(1, 3, 5);
    assert_ne!(deployment, 5, "it has followed the change, and is wrong");
}

#[test]
fn nothing_is_done_when_all_is_well() {
    let foo = json!({"metadata": {"name": "a", "uid": "u"}, "spec": {"deploymentName": "a", "replicas": 2}});
    let deployment = new_deployment(&foo);
    assert_eq!(compare(&foo, None), Some(Action::Create(deployment.clone())));
    assert_eq!(compare(&foo, Some(&deployment)), None);
}

#[test]
fn what_is_not_ours_is_kept() {
    let foo = json!({"metadata": {"name": "a", "uid": "u"}, "spec": {"deploymentName": "a", "replicas": 2}});
    let mut found = new_deployment(&foo);
    found["metadata"]["annotations"] = json!({"by": "somebody"});
    found["metadata"]["resourceVersion"] = json!("7");
    found["spec"]["replicas"] = json!(9);
    let mut wanted = found.clone();
    wanted["spec"]["replicas"] = json!(2);
    assert_eq!(compare(&foo, Some(&found)), Some(Action::Replace(wanted)));
}

#[tokio::test(start_paused = true)]
async fn whatever_was_missed_one_look_is_enough() {
    let cluster = Cluster::start().await;
    let api = cluster.api("me");
    cluster.create_foo("web", 1).await;
    cluster.create_foo("db", 2).await;
    assert_eq!(poll_once(&api).await, Ok(2));
    assert_eq!((cluster.replicas("web").await, cluster.replicas("db").await), (Some(1), Some(2)));
    // Nobody looks for a while.
    for replicas in [3, 5, 4] {
        cluster.scale_foo("web", replicas).await;
    }
    assert_eq!(poll_once(&api).await, Ok(1));
    assert_eq!(cluster.replicas("web").await, Some(4));
    assert_eq!(poll_once(&api).await, Ok(0), "all is well, so nothing is written");
}
