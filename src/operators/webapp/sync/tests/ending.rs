//! Deletion of a WebApp.

use super::*;

#[tokio::test(start_paused = true)]
async fn deletion_waits_for_the_running_hook_then_undoes() {
    let mut rig = rig().await;
    *rig.world.hangs.lock() = Some("first.create".to_owned());
    rig.create().await;
    rig.until(|status| status["steps"][0]["hook"] == "create").await;
    rig.pass().await;
    rig.f.delete::<WebApp>("web").await;
    rig.f.catch_up().await;
    rig.pass().await;
    assert_eq!(rig.seen(), ["first.pre_create", "first.create"]);
    rig.converge().await;
    assert_eq!(rig.seen(), Hook::DELETION.map(|hook| format!("first.{hook}")));
    assert_eq!(rig.f.get::<WebApp>("web").await, None);
}

#[tokio::test(start_paused = true)]
async fn deletion_undoes_tasks_in_reverse_order() {
    let mut rig = rig().await;
    rig.create().await;
    rig.converge().await;
    rig.seen();
    rig.f.delete::<WebApp>("web").await;
    rig.f.catch_up().await;
    rig.converge().await;
    let undo = |task: &str| Hook::DELETION.map(|hook| format!("{task}.{hook}"));
    assert_eq!(rig.seen(), [undo("last"), undo("first")].concat());
    assert_eq!(rig.f.get::<WebApp>("web").await, None);
    assert_eq!(rig.f.names::<Deployment>().await, Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn deletion_during_creation_undoes_only_started_tasks() {
    let mut rig = rig().await;
    rig.create().await;
    rig.answer("first.create", HookError::permanent("no"));
    rig.converge().await;
    rig.seen();
    rig.f.delete::<WebApp>("web").await;
    rig.f.catch_up().await;
    rig.converge().await;
    assert_eq!(rig.seen(), Hook::DELETION.map(|hook| format!("first.{hook}")));
    assert_eq!(rig.f.get::<WebApp>("web").await, None);
}

#[tokio::test(start_paused = true)]
async fn orphaned_webapp_is_released_without_undo() {
    let mut rig = rig().await;
    rig.create().await;
    rig.converge().await;
    rig.seen();
    rig.f.orphan("web").await;
    rig.converge().await;
    assert_eq!(rig.seen(), Vec::<String>::new());
    assert_eq!(rig.f.names::<Deployment>().await, ["web"]);
}

/// W6: a create by a process that has died since is stored only after the deletion has begun.
#[tokio::test(start_paused = true)]
async fn late_deployment_is_deleted_with_its_webapp() {
    let mut rig = rig().await;
    rig.create().await;
    rig.converge().await;
    let mut late = rig.f.get::<Deployment>("web").await.unwrap();
    rig.f.delete::<WebApp>("web").await;
    rig.f.catch_up().await;
    rig.until(|status| status["steps"][1]["hook"] == "post_delete").await;
    let meta = &late["metadata"];
    late["metadata"] =
        json!({"name": "late", "labels": meta["labels"], "ownerReferences": meta["ownerReferences"]});
    late["status"] = Value::Null;
    rig.f.put::<Deployment>(late).await;
    rig.f.catch_up().await;
    rig.converge().await;
    assert_eq!((rig.f.get::<WebApp>("web").await, rig.f.names::<Deployment>().await), (None, vec![]));
}
