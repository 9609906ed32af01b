mod events;
mod rolls;

use std::time::Duration;

use k8s_openapi::api::core::v1::{Pod, ResourceQuota};
use serde_json::{Value, json};

use super::*;
use crate::controller::Fixture;
use crate::controller::Outcome;
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
    assert_eq!(asked, ["patch redis/x", "create pods", "create pods", "update redis/x/status"]);
    assert_eq!(f.get::<Redis>("x").await.unwrap()["metadata"]["finalizers"], json!([FINALIZER]));
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
async fn scale_down_deletes_highest_ordinals_first() {
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
    assert_eq!(f.ready("x").await, (true, "Available".to_owned()), "no Pod is wanted");
}

/// The label was lost while the Redis was paused.
#[tokio::test(start_paused = true)]
async fn audit_deletes_surplus_pod_that_lost_our_label() {
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
    assert_eq!(f.sync("x").await.1, ["update redis/x/status"], "a paused Redis deletes no Pod");
    f.edit::<Redis>("x", |redis| paused(redis, "false")).await;
    f.catch_up().await;
    f.events();
    let (_, asked) = f.sync("x").await;
    let deleted: Vec<&String> = asked.iter().filter(|asked| asked.starts_with("delete")).collect();
    assert_eq!(deleted, ["delete pods/x-1"]);
    let (_, asked) = f.audit("x").await;
    let deleted: Vec<&String> = asked.iter().filter(|asked| asked.starts_with("delete")).collect();
    assert_eq!(deleted, ["delete pods/x-2"]);
    f.converge("x").await;
    assert_eq!(f.names::<Pod>().await, ["x-0"]);
}

#[tokio::test(start_paused = true)]
async fn stuck_surplus_pod_does_not_delay_ready() {
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

/// The cached Redis predates a scale-up.
#[tokio::test(start_paused = true)]
async fn stale_spec_deletes_nothing() {
    let mut f = fixture().await;
    f.create("x", spec(3)).await;
    f.converge("x").await;
    scale(&mut f, 1).await;
    f.edit::<Redis>("x", |redis| redis["spec"]["replicas"] = json!(3)).await;
    let (_, asked) = f.sync_without_catch_up("x").await;
    assert_eq!(asked, ["get redis/x"]);
    f.catch_up().await;
    f.converge("x").await;
    assert_eq!(f.names::<Pod>().await, ["x-0", "x-1", "x-2"]);
}

#[tokio::test(start_paused = true)]
async fn deleted_or_failed_pod_is_recreated() {
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
async fn hand_edited_label_is_repaired_with_an_event() {
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
async fn refused_pod_stops_the_batch_and_is_reported() {
    let mut f = fixture().await;
    f.put::<ResourceQuota>(json!({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "q"},
        "spec": {"hard": {"pods": "1"}}}))
        .await;
    f.pass_time(Duration::from_secs(10)).await;
    f.create("x", spec(20)).await;
    let (outcome, asked) = f.sync("x").await;
    assert_eq!(outcome, Outcome::WaitForUser { requeue_after: Some(Duration::from_secs(120)) });
    let tried = asked.iter().filter(|asked| *asked == "create pods").count();
    assert_eq!(tried, 3, "a batch of one, then a batch of two: {asked:?}");
    assert_eq!(f.ready("x").await, (false, "ChildRefused".to_owned()));
    assert_eq!(f.events(), ["ScaledUp", "ChildRefused"]);
}

#[tokio::test(start_paused = true)]
async fn foreign_pod_is_untouched_and_others_are_created() {
    let mut f = fixture().await;
    f.put::<Pod>(json!({"metadata": {"name": "x-0"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}))
        .await;
    f.create("x", spec(3)).await;
    let (outcome, _) = f.sync("x").await;
    assert_eq!(outcome, Outcome::WaitForUser { requeue_after: Some(Duration::from_secs(30)) });
    assert_eq!(f.ready("x").await, (false, "ResourceExists".to_owned()));
    assert_eq!(f.get::<Pod>("x-0").await.unwrap()["metadata"]["ownerReferences"], Value::Null);
    assert_eq!(f.names::<Pod>().await, ["x-0", "x-1", "x-2"]);
}

/// A policy forbids the deletion of one Pod; another Pod has failed.
#[tokio::test(start_paused = true)]
async fn refused_scale_down_does_not_block_failed_pods() {
    let mut f = fixture().await;
    f.create("x", spec(3)).await;
    f.converge("x").await;
    let kept = When::verb("delete").resource("pods").name("x-2");
    f.sim.fault(Fault::new(kept, Action::refuse(403, "Forbidden")));
    f.sim.write_behind("", "pods", &{
        let mut failed = f.get::<Pod>("x-0").await.unwrap();
        failed["status"]["phase"] = json!("Failed");
        failed
    });
    scale(&mut f, 1).await;
    let (_, asked) = f.sync("x").await;
    let deleted: Vec<&String> = asked.iter().filter(|asked| asked.starts_with("delete")).collect();
    assert_eq!(deleted, ["delete pods/x-2", "delete pods/x-0"], "x-1 waits for x-2");
}

#[tokio::test(start_paused = true)]
async fn refused_delete_is_not_retried_on_every_pass() {
    let mut f = fixture().await;
    f.create("x", spec(2)).await;
    f.converge("x").await;
    f.events();
    let fault =
        f.sim.fault(Fault::new(When::verb("delete").resource("pods"), Action::refuse(403, "Forbidden")));
    scale(&mut f, 1).await;
    let tries = |asked: &[String]| asked.iter().filter(|asked| *asked == "delete pods/x-1").count();
    for (seconds, expected) in [(1, 1), (60, 0), (60, 0), (0, 1), (1, 0)] {
        let (outcome, asked) = f.sync("x").await;
        assert_eq!(tries(&asked), expected, "{asked:?}");
        let Outcome::WaitForUser { requeue_after: Some(time) } = outcome else { panic!("{outcome:?}") };
        assert!(
            (Duration::from_secs(59)..=Duration::from_secs(120)).contains(&time) || expected == 0,
            "{time:?}"
        );
        f.pass_time(Duration::from_secs(seconds)).await;
    }
    assert_eq!(f.ready("x").await, (false, "ChildRefused".to_owned()));
    assert_eq!(f.events(), ["ChildRefused"], "reported once");
    // `reconcile-at` retries at once; so does a deletion, which is reported once.
    f.edit::<Redis>("x", |redis| {
        redis["metadata"]["annotations"] = json!({"windlass.dev/reconcile-at": "1"})
    })
    .await;
    f.catch_up().await;
    assert_eq!(tries(&f.sync("x").await.1), 1);
    f.delete::<Redis>("x").await;
    f.catch_up().await;
    assert_eq!(tries(&f.sync("x").await.1), 1);
    assert_eq!(tries(&f.sync("x").await.1), 0);
    assert_eq!(f.ready("x").await, (false, "ChildRefused".to_owned()));
    assert_eq!(f.events(), ["Deleting"]);
    f.sim.heal(fault);
    f.pass_time(Duration::from_secs(120)).await;
    f.sync("x").await;
    f.pass_time(Duration::from_secs(60)).await;
    f.sync("x").await;
    assert_eq!(f.get::<Redis>("x").await, None);
}

#[tokio::test(start_paused = true)]
async fn a_deleted_redis_waits_for_its_pods() {
    let mut f = fixture().await;
    f.create("x", spec(3)).await;
    f.converge("x").await;
    f.events();
    // One Pod has lost our label, so the cache does not show it.
    f.edit::<Pod>("x-1", |pod| pod["metadata"]["labels"] = json!({})).await;
    f.delete::<Redis>("x").await;
    f.catch_up().await;
    let (_, asked) = f.sync("x").await;
    let deleted: Vec<&String> = asked.iter().filter(|asked| asked.starts_with("delete")).collect();
    assert_eq!(deleted, ["delete pods/x-2", "delete pods/x-0"]);
    assert_eq!(f.events(), ["Deleting"]);
    assert_eq!(f.ready("x").await, (false, "Deleting".to_owned()));
    f.pass_time(Duration::from_secs(60)).await;
    let (_, asked) = f.sync("x").await;
    let expected = ["list pods", "list pods", "get redis/x", "delete pods/x-1"];
    assert_eq!(asked[..4], expected, "the finalizer is removed last");
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
    assert_eq!(asked, ["patch redis/x"]);
    f.pass_time(Duration::from_secs(60)).await;
    assert_eq!(f.names::<Pod>().await, ["x-0", "x-1"]);
}

#[tokio::test(start_paused = true)]
async fn paused_redis_writes_no_pod() {
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
    assert_eq!(asked, ["update redis/x/status"]);
    assert_eq!(f.status("x").await["observedGeneration"], 1);
    assert_eq!(f.ready("x").await, (true, "Available".to_owned()), "as the applied spec wants");
    // The highest ordinal, so that no gap shows that a Pod is missing.
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
async fn spec_change_during_pause_hides_no_missing_pod() {
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

/// W10: a refusal does not tell whether the name is taken.
#[tokio::test(start_paused = true)]
async fn w10_refused_create_does_not_duplicate_a_pod() {
    let mut f = fixture().await;
    f.create("x", spec(1)).await;
    f.sync("x").await;
    f.sim.fault(Fault::new(When::verb("create").resource("pods").times(1), Action::refuse(403, "Forbidden")));
    f.sync("x").await;
    f.pass_time(Duration::from_secs(120)).await;
    f.converge("x").await;
    assert_eq!(f.names::<Pod>().await, ["x-0"]);
}

/// R9: the watch has lost an event, so the caches are stale.
#[tokio::test(start_paused = true)]
async fn audit_recreates_pod_the_caches_missed() {
    let mut f = fixture().await;
    f.create("x", spec(2)).await;
    f.converge("x").await;
    f.delete::<Pod>("x-1").await;
    f.pass_time_without_catch_up(Duration::from_secs(60)).await;
    assert_eq!(f.sync_without_catch_up("x").await.1, Vec::<String>::new(), "a normal pass trusts the cache");
    let (_, asked) = f.audit("x").await;
    assert!(asked.contains(&"create pods".to_owned()), "{asked:?}");
    assert_eq!(f.names::<Pod>().await, ["x-0", "x-1"]);
}
