mod events;

use std::time::Duration;

use k8s_openapi::api::core::v1::{Pod, ResourceQuota};
use serde_json::{Value, json};

use super::*;
use crate::operators::tests::Fixture;
use crate::sim::{Action, Fault, When};

async fn fixture() -> Fixture<RedisSync> {
    Fixture::new(|caches| RedisSync { pods: caches.lister() }).await
}

fn spec(replicas: i32) -> Value {
    json!({"replicas": replicas, "port": 6379, "image": "redis:7.4"})
}

async fn scale(f: &mut Fixture<RedisSync>, replicas: i32) {
    f.edit::<Redis>("x", |redis| redis["spec"]["replicas"] = json!(replicas)).await;
    f.catch_up().await;
}

#[tokio::test(start_paused = true)]
async fn the_finalizer_is_stored_before_the_first_pod() {
    let mut f = fixture().await;
    f.create("x", spec(2)).await;
    let (_, asked) = f.sync("x").await;
    assert_eq!(asked, ["get redis/x", "update redis/x"]);
    assert_eq!(f.get::<Redis>("x").await.unwrap()["metadata"]["finalizers"], json!([FINALIZER]));
    let (_, asked) = f.sync("x").await;
    assert_eq!(asked, ["get redis/x", "create pods", "get redis/x", "create pods", "patch redis/x/status"]);
    assert_eq!(f.names::<Pod>().await, ["x-0", "x-1"]);
    assert_eq!(f.notes(), [("ScaledUp", "Scaled up from 0 to 2: x-0, x-1".to_owned())]);
    assert_eq!(f.ready("x").await, (false, "Progressing".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn a_converged_redis_sends_nothing() {
    let mut f = fixture().await;
    f.create("x", spec(3)).await;
    f.converge("x").await;
    assert_eq!(f.ready("x").await, (true, "Available".to_owned()));
    let status = f.status("x").await;
    assert_eq!((&status["replicas"], &status["readyReplicas"]), (&json!(3), &json!(3)));
    assert_eq!(status["selector"], "app=x,app.kubernetes.io/instance=x,app.kubernetes.io/name=redis");
    for _ in 0..3 {
        assert_eq!(f.sync("x").await, (Outcome::Done, vec![]));
    }
}

#[tokio::test(start_paused = true)]
async fn a_scale_down_deletes_from_the_highest() {
    let mut f = fixture().await;
    f.create("x", spec(4)).await;
    f.converge("x").await;
    f.events();
    scale(&mut f, 1).await;
    let (_, asked) = f.sync("x").await;
    let deleted: Vec<&String> = asked.iter().filter(|asked| asked.starts_with("delete")).collect();
    assert_eq!(deleted, ["delete pods/x-3", "delete pods/x-2", "delete pods/x-1"]);
    assert_eq!(f.notes(), [("ScaledDown", "Scaled down from 4 to 1: x-3, x-2, x-1".to_owned())]);
    f.converge("x").await;
    assert_eq!(f.names::<Pod>().await, ["x-0"]);
    scale(&mut f, 0).await;
    f.converge("x").await;
    assert_eq!(f.names::<Pod>().await, Vec::<String>::new());
    assert_eq!(f.ready("x").await, (true, "Available".to_owned()), "none wanted and none there");
}

/// While the Redis was paused, or its operator was down.
#[tokio::test(start_paused = true)]
async fn a_scale_down_finds_a_pod_that_lost_our_label() {
    let mut f = fixture().await;
    f.create("x", spec(3)).await;
    f.converge("x").await;
    let paused = |redis: &mut Value, is_so: &str| {
        redis["metadata"]["annotations"] = json!({"windlass.dev/paused": is_so});
    };
    f.edit::<Redis>("x", |redis| paused(redis, "true")).await;
    f.catch_up().await;
    f.sync("x").await;
    f.edit::<Pod>("x-2", |pod| pod["metadata"]["labels"] = json!({})).await;
    scale(&mut f, 1).await;
    assert_eq!(
        f.sync("x").await.1,
        ["patch redis/x/status"],
        "the cache does not show it, and nothing is written"
    );
    f.edit::<Redis>("x", |redis| paused(redis, "false")).await;
    f.catch_up().await;
    f.events();
    let (_, asked) = f.sync("x").await;
    let deleted: Vec<&String> = asked.iter().filter(|asked| asked.starts_with("delete")).collect();
    assert_eq!(deleted, ["delete pods/x-2", "delete pods/x-1"]);
    assert_eq!(f.notes()[0], ("ScaledDown", "Scaled down from 3 to 1: x-2, x-1".to_owned()));
    f.converge("x").await;
    assert_eq!(f.names::<Pod>().await, ["x-0"]);
}

#[tokio::test(start_paused = true)]
async fn a_pod_too_many_that_does_not_go_does_not_hold_up_ready() {
    let mut f = fixture().await;
    f.create("x", spec(2)).await;
    f.converge("x").await;
    f.edit::<Pod>("x-1", |pod| pod["metadata"]["finalizers"] = json!(["windlass.dev/hold-for-the-test"]))
        .await;
    scale(&mut f, 1).await;
    f.converge("x").await;
    assert!(f.get::<Pod>("x-1").await.unwrap()["metadata"]["deletionTimestamp"].is_string());
    assert_eq!(f.ready("x").await, (true, "Available".to_owned()));
    assert_eq!(f.status("x").await["replicas"], 1);
}

/// The cache shows the Redis as it was before somebody scaled it up again.
#[tokio::test(start_paused = true)]
async fn an_old_spec_deletes_nothing() {
    let mut f = fixture().await;
    f.create("x", spec(3)).await;
    f.converge("x").await;
    scale(&mut f, 1).await;
    f.edit::<Redis>("x", |redis| redis["spec"]["replicas"] = json!(3)).await;
    let (_, asked) = f.sync_without_news("x").await;
    assert_eq!(asked, ["list pods", "get redis/x"]);
    f.catch_up().await;
    f.converge("x").await;
    assert_eq!(f.names::<Pod>().await, ["x-0", "x-1", "x-2"]);
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_went_or_ended_is_created_again() {
    let mut f = fixture().await;
    f.create("x", spec(2)).await;
    f.converge("x").await;
    f.events();
    f.delete::<Pod>("x-0").await;
    f.pass_time(Duration::from_secs(60)).await;
    f.converge("x").await;
    assert_eq!(f.events(), ["PodRecreated"]);
    f.sim.write_behind("", "pods", &{
        let mut evicted = f.get::<Pod>("x-1").await.unwrap();
        evicted["status"]["phase"] = json!("Failed");
        evicted["status"]["reason"] = json!("Evicted");
        evicted
    });
    f.catch_up().await;
    f.converge("x").await;
    assert_eq!(f.events(), ["ChildDeleted", "PodRecreated"]);
    assert_eq!(f.names::<Pod>().await, ["x-0", "x-1"]);
    assert!(f.ready("x").await.0);
}

#[tokio::test(start_paused = true)]
async fn a_new_image_replaces_every_pod_one_at_a_time() {
    let mut f = fixture().await;
    f.create("x", spec(3)).await;
    f.converge("x").await;
    f.edit::<Redis>("x", |redis| redis["spec"]["image"] = json!("redis:8.0")).await;
    f.catch_up().await;
    let mut deleted = Vec::new();
    for _ in 0..60 {
        let (_, asked) = f.sync("x").await;
        let now: Vec<String> = asked.into_iter().filter(|asked| asked.starts_with("delete")).collect();
        assert!(now.len() <= 1, "one at a time");
        deleted.extend(now);
        let ready = f.status("x").await["readyReplicas"].as_i64().unwrap();
        assert!(ready >= 2, "one down at most");
        f.pass_time(Duration::from_secs(2)).await;
    }
    assert_eq!(deleted, ["delete pods/x-2", "delete pods/x-1", "delete pods/x-0"]);
    for name in f.names::<Pod>().await {
        assert_eq!(f.get::<Pod>(&name).await.unwrap()["spec"]["containers"][0]["image"], "redis:8.0");
    }
    assert!(f.ready("x").await.0);
}

/// W13: an admission webhook that rewrites the image of every Pod.
#[tokio::test(start_paused = true)]
async fn a_pod_that_a_webhook_changes_is_not_replaced_for_ever() {
    let mut f = fixture().await;
    let theirs = json!({"spec": {"containers": [{"name": "x", "image": "mirror/redis:7.4"}]}});
    let webhook = f.sim.fault(Fault::new(When::verb("create").resource("pods"), Action::Edit(theirs)));
    f.create("x", spec(2)).await;
    let mut deleted = Vec::new();
    while f.get::<Redis>("x").await.unwrap()["status"].is_null() || f.ready("x").await.1 != "Contended" {
        assert!(deleted.len() < 6, "{deleted:?}");
        deleted.extend(f.sync("x").await.1.into_iter().filter(|asked| asked.starts_with("delete")));
        f.pass_time(Duration::from_secs(2)).await;
    }
    assert_eq!(deleted, ["delete pods/x-1"; 5]);
    let status = f.status("x").await;
    let stalled = status["conditions"].as_array().unwrap().iter().find(|c| c["type"] == "Stalled").unwrap();
    assert_eq!((&stalled["status"], &stalled["reason"]), (&json!("True"), &json!("Contended")));
    let message = stalled["message"].as_str().unwrap();
    assert!(message.contains("was \"mirror/redis:7.4\", wanted \"redis:7.4\""), "{message}");
    assert_eq!(f.events().iter().filter(|reason| **reason == "Contended").count(), 1);
    // It is tried again every two minutes, and stays contended meanwhile.
    f.pass_time(Duration::from_secs(120)).await;
    for _ in 0..10 {
        deleted.extend(f.sync("x").await.1.into_iter().filter(|asked| asked.starts_with("delete")));
        assert_eq!(f.ready("x").await, (false, "Contended".to_owned()));
        f.pass_time(Duration::from_secs(2)).await;
    }
    assert_eq!(deleted.len(), 6, "{deleted:?}");
    assert!(!f.events().contains(&"Contended"), "it was said before");
    f.sim.heal(webhook);
    f.pass_time(Duration::from_secs(120)).await;
    f.converge("x").await;
    for name in ["x-0", "x-1"] {
        assert_eq!(f.get::<Pod>(name).await.unwrap()["spec"]["containers"][0]["image"], "redis:7.4");
    }
    f.pass_time(Duration::from_secs(120)).await;
    f.converge("x").await;
    assert_eq!(f.ready("x").await, (true, "Available".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn a_label_changed_by_hand_is_put_back_and_an_event_names_it() {
    let mut f = fixture().await;
    f.create("x", spec(1)).await;
    f.converge("x").await;
    f.events();
    f.edit::<Pod>("x-0", |pod| pod["metadata"]["labels"]["app"] = json!("other")).await;
    f.catch_up().await;
    f.sync("x").await;
    let notes = f.notes();
    assert_eq!(notes.len(), 1, "{notes:?}");
    assert_eq!(notes[0].0, "ChildRepaired");
    assert!(notes[0].1.contains("metadata.labels[app]"), "{notes:?}");
}

#[tokio::test(start_paused = true)]
async fn a_refused_pod_stops_the_others_and_is_reported() {
    let mut f = fixture().await;
    f.put::<ResourceQuota>(json!({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "q"},
        "spec": {"hard": {"pods": "1"}}}))
        .await;
    f.pass_time(Duration::from_secs(10)).await;
    f.create("x", spec(20)).await;
    f.sync("x").await;
    let (outcome, asked) = f.sync("x").await;
    assert_eq!(outcome, Outcome::WaitForUser { look_again: Some(Duration::from_secs(120)) });
    let tried = asked.iter().filter(|asked| *asked == "create pods").count();
    assert_eq!(tried, 3, "one, then a batch of two: {asked:?}");
    assert_eq!(f.ready("x").await, (false, "ChildRefused".to_owned()));
    assert_eq!(f.events(), ["ScaledUp", "ChildRefused"]);
}

#[tokio::test(start_paused = true)]
async fn a_foreign_pod_is_left_alone_and_the_others_are_there() {
    let mut f = fixture().await;
    f.put::<Pod>(json!({"metadata": {"name": "x-0"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}))
        .await;
    f.create("x", spec(3)).await;
    f.sync("x").await;
    let (outcome, _) = f.sync("x").await;
    assert_eq!(outcome, Outcome::WaitForUser { look_again: Some(Duration::from_secs(30)) });
    assert_eq!(f.ready("x").await, (false, "ResourceExists".to_owned()));
    assert_eq!(f.get::<Pod>("x-0").await.unwrap()["metadata"]["ownerReferences"], Value::Null);
    assert_eq!(f.names::<Pod>().await, ["x-0", "x-1", "x-2"]);
}

#[tokio::test(start_paused = true)]
async fn a_deleted_redis_stays_until_its_pods_are_gone() {
    let mut f = fixture().await;
    f.create("x", spec(3)).await;
    f.converge("x").await;
    f.events();
    // One of them has lost our label, so that the cache does not show it.
    f.edit::<Pod>("x-1", |pod| pod["metadata"]["labels"] = json!({})).await;
    f.delete::<Redis>("x").await;
    f.catch_up().await;
    let (_, asked) = f.sync("x").await;
    let deleted: Vec<&String> = asked.iter().filter(|asked| asked.starts_with("delete")).collect();
    assert_eq!(deleted, ["delete pods/x-2", "delete pods/x-1", "delete pods/x-0"]);
    assert_eq!(f.events(), ["Deleting"]);
    assert_eq!(f.ready("x").await, (false, "Deleting".to_owned()));
    f.pass_time(Duration::from_secs(60)).await;
    f.sync("x").await;
    assert_eq!(f.get::<Redis>("x").await, None);
    assert_eq!(f.events(), Vec::<&str>::new());
}

#[tokio::test(start_paused = true)]
async fn an_orphaned_redis_leaves_its_pods() {
    let mut f = fixture().await;
    f.create("x", spec(2)).await;
    f.converge("x").await;
    f.orphan("x").await;
    let (_, asked) = f.sync("x").await;
    assert_eq!(asked, ["get redis/x", "update redis/x"]);
    f.pass_time(Duration::from_secs(60)).await;
    assert_eq!(f.names::<Pod>().await, ["x-0", "x-1"]);
}

#[tokio::test(start_paused = true)]
async fn a_paused_redis_has_no_pod_written() {
    let mut f = fixture().await;
    f.create("x", spec(2)).await;
    f.converge("x").await;
    f.edit::<Redis>("x", |redis| {
        redis["metadata"]["annotations"] = json!({"windlass.dev/paused": "true"});
        redis["spec"]["replicas"] = json!(5);
    })
    .await;
    f.catch_up().await;
    let (_, asked) = f.sync("x").await;
    assert_eq!(asked, ["patch redis/x/status"]);
    assert_eq!(f.status("x").await["observedGeneration"], 1);
    assert_eq!(f.ready("x").await, (true, "Available".to_owned()), "as the spec that was applied wants it");
    // The last one, whose absence leaves no gap.
    f.delete::<Pod>("x-1").await;
    f.pass_time(Duration::from_secs(60)).await;
    for _ in 0..3 {
        f.sync("x").await;
        assert_eq!(f.ready("x").await, (false, "Paused".to_owned()));
    }
    f.edit::<Redis>("x", |redis| redis["metadata"]["annotations"] = json!({})).await;
    f.catch_up().await;
    f.converge("x").await;
    assert_eq!(f.names::<Pod>().await.len(), 5);
}

#[tokio::test(start_paused = true)]
async fn a_spec_that_is_changed_in_the_midst_of_a_pause_does_not_hide_what_is_missing() {
    let mut f = fixture().await;
    f.create("x", spec(3)).await;
    f.converge("x").await;
    let pause = json!({"windlass.dev/paused": "true"});
    f.edit::<Redis>("x", |redis| redis["metadata"]["annotations"] = pause).await;
    f.delete::<Pod>("x-2").await;
    f.pass_time(Duration::from_secs(60)).await;
    f.sync("x").await;
    assert_eq!(f.ready("x").await, (false, "Paused".to_owned()));
    scale(&mut f, 2).await;
    f.sync("x").await;
    assert_eq!(f.ready("x").await, (false, "Paused".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn the_deletion_of_a_paused_redis_resumes_nothing() {
    let mut f = fixture().await;
    f.create("x", spec(2)).await;
    f.converge("x").await;
    let pause = json!({"windlass.dev/paused": "true"});
    f.edit::<Redis>("x", |redis| redis["metadata"]["annotations"] = pause).await;
    f.catch_up().await;
    f.sync("x").await;
    f.events();
    f.delete::<Redis>("x").await;
    f.catch_up().await;
    f.sync("x").await;
    assert_eq!(f.ready("x").await, (false, "Deleting".to_owned()));
    assert_eq!(f.events(), ["Deleting"]);
}

/// W10: the name is free for all that a refusal says.
#[tokio::test(start_paused = true)]
async fn w10_a_refusal_does_not_double_a_pod() {
    let mut f = fixture().await;
    f.create("x", spec(1)).await;
    f.sync("x").await;
    f.sim.fault(Fault::new(When::verb("create").resource("pods").times(1), Action::refuse(403, "Forbidden")));
    f.sync("x").await;
    f.pass_time(Duration::from_secs(120)).await;
    f.converge("x").await;
    assert_eq!(f.names::<Pod>().await, ["x-0"]);
}

/// R9: the watch has lost an event; the caches know nothing, the server does.
#[tokio::test(start_paused = true)]
async fn an_audit_finds_what_the_caches_have_missed() {
    let mut f = fixture().await;
    f.create("x", spec(2)).await;
    f.converge("x").await;
    f.delete::<Pod>("x-1").await;
    f.pass_time_unheard(Duration::from_secs(60)).await;
    assert_eq!(f.sync_without_news("x").await.1, Vec::<String>::new(), "a usual pass believes the cache");
    let (_, asked) = f.audit("x").await;
    assert!(asked.contains(&"create pods".to_owned()), "{asked:?}");
    assert_eq!(f.names::<Pod>().await, ["x-0", "x-1"]);
}
