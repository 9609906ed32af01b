//! Rollouts of a new spec.

use super::*;
use crate::testing::capture_log;

#[tokio::test(start_paused = true)]
async fn new_image_replaces_pods_one_at_a_time() {
    let mut f = fixture().await;
    f.create("x", spec(3)).await;
    f.converge("x").await;
    f.edit::<Redis>("x", |redis| redis["spec"]["image"] = json!("redis:8.0")).await;
    f.catch_up().await;
    let mut deleted = Vec::new();
    for _ in 0..60 {
        let (_, asked) = f.sync("x").await;
        let now: Vec<String> = asked.into_iter().filter(|asked| asked.starts_with("delete")).collect();
        assert!(now.len() <= 1, "at most one delete per pass");
        deleted.extend(now);
        let ready = f.status("x").await["readyReplicas"].as_i64().unwrap();
        assert!(ready >= 2, "at most one Pod is down");
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
async fn pod_altered_by_webhook_is_not_replaced_forever() {
    let mut f = fixture().await;
    let (metrics, log) = (f.metrics(), capture_log());
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
    // The Pod is replaced again every two minutes, and stays contended meanwhile.
    f.pass_time(Duration::from_secs(120)).await;
    for _ in 0..10 {
        deleted.extend(f.sync("x").await.1.into_iter().filter(|asked| asked.starts_with("delete")));
        assert_eq!(f.ready("x").await, (false, "Contended".to_owned()));
        f.pass_time(Duration::from_secs(2)).await;
    }
    assert_eq!(deleted.len(), 6, "{deleted:?}");
    assert!(!f.events().contains(&"Contended"), "already reported");
    assert!(metrics.encode().contains("windlass_contended_total{controller=\"test\"} 1\n"));
    assert_eq!(log.lines().iter().filter(|line| line.starts_with("WARN Contended")).count(), 1);
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
async fn stuck_rollout_proceeds_past_a_foreign_pod() {
    let mut f = fixture().await;
    let foreign = json!({"metadata": {"name": "x-1"}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    f.put::<Pod>(foreign).await;
    f.create("x", json!({"replicas": 3, "port": 6379, "image": "redis:7.4"})).await;
    f.converge("x").await;
    // x-2 stays Ready; x-0 does not.
    let not_ready = json!({"conditions": [{"type": "Ready", "status": "False"}]});
    f.edit_status::<Pod>("x-0", not_ready).await;
    f.edit::<Redis>("x", |redis| redis["spec"]["image"] = json!("redis:8.0")).await;
    f.catch_up().await;
    let (_, asked) = f.sync("x").await;
    let deleted: Vec<&String> = asked.iter().filter(|asked| asked.starts_with("delete")).collect();
    assert_eq!(deleted, ["delete pods/x-0"]);
    f.converge("x").await;
    let image = async |f: &Fixture<RedisSync>, name| {
        f.get::<Pod>(name).await.unwrap()["spec"]["containers"][0]["image"].as_str().unwrap().to_owned()
    };
    assert_eq!(image(&f, "x-0").await, "redis:8.0");
    assert_eq!(image(&f, "x-2").await, "redis:7.4", "a Ready Pod is kept while another is missing");
    assert_eq!(f.ready("x").await, (false, "ResourceExists".to_owned()));
    f.delete::<Pod>("x-1").await;
    f.pass_time(Duration::from_secs(60)).await;
    f.converge("x").await;
    assert_eq!(image(&f, "x-2").await, "redis:8.0");
    assert!(f.ready("x").await.0);
}

/// The server would refuse the next Pod, too, so the existing Pods are kept.
#[tokio::test(start_paused = true)]
async fn refused_create_blocks_rollout_of_unready_pods() {
    let mut f = fixture().await;
    f.create("x", spec(2)).await;
    f.converge("x").await;
    f.sim.fault(Fault::new(When::verb("create").resource("pods"), Action::refuse(403, "Forbidden")));
    f.delete::<Pod>("x-1").await;
    f.edit::<Redis>("x", |redis| redis["spec"]["image"] = json!("redis:8.0")).await;
    for _ in 0..5 {
        f.pass_time(Duration::from_secs(60)).await;
        f.edit_status::<Pod>("x-0", json!({"conditions": [{"type": "Ready", "status": "False"}]})).await;
        f.catch_up().await;
        let (_, asked) = f.sync("x").await;
        assert!(!asked.contains(&"delete pods/x-0".to_owned()), "{asked:?}");
        assert_eq!(f.ready("x").await, (false, "ChildRefused".to_owned()));
        assert_eq!(f.status("x").await["readyReplicas"], 0);
    }
}
