//! Paused objects.

use super::*;
use crate::api::conditions::RECONCILING;

/// Returns a condition of the object.
async fn condition(f: &Fixture<PlainKind>, type_: &str) -> Value {
    let status = f.status("web").await;
    let all = status["conditions"].as_array().unwrap();
    all.iter().find(|condition| condition["type"] == type_).unwrap().clone()
}

#[tokio::test(start_paused = true)]
async fn a_paused_object_is_watched_and_left_alone() {
    let mut f = plain().await;
    f.create("web", spec(2)).await;
    f.converge("web").await;
    f.events();
    pause(&mut f, true).await;
    assert_eq!(f.sync("web").await, (Outcome::Done, vec!["update foos/web/status".to_owned()]));
    assert_eq!(f.events(), ["Paused"]);
    assert_eq!(f.ready("web").await, (true, "Available".to_owned()));
    assert_eq!(condition(&f, RECONCILING).await["reason"], "Paused");

    // A new spec is held back, and `observedGeneration` stays.
    scale(&mut f, 3).await;
    f.sync("web").await;
    assert_eq!(f.get::<Deployment>("web").await.unwrap()["spec"]["replicas"], 2);
    assert_eq!(f.status("web").await["observedGeneration"], 1);
    let ready = condition(&f, "Ready").await;
    assert_eq!(
        (&ready["status"], &ready["message"]),
        (&json!("True"), &json!("2 of 2 replicas are available"))
    );

    pause(&mut f, false).await;
    f.sync("web").await;
    assert_eq!(f.events(), ["Resumed"]);
    assert_eq!(f.get::<Deployment>("web").await.unwrap()["spec"]["replicas"], 3);
    assert_eq!(f.status("web").await["observedGeneration"], 2);
}

#[tokio::test(start_paused = true)]
async fn hand_edit_during_pause_is_reported_not_repaired() {
    let mut f = plain().await;
    f.create("web", spec(2)).await;
    f.sync("web").await;
    f.pass_time(Duration::from_secs(60)).await;
    pause(&mut f, true).await;
    scale_by_hand(&f, 9).await;
    f.catch_up().await;
    assert_eq!(f.sync("web").await.1, ["update foos/web/status"]);
    assert_eq!(f.ready("web").await, (false, "Paused".to_owned()));
    f.events();
    pause(&mut f, false).await;
    f.sync("web").await;
    assert_eq!(f.events(), ["ChildRepaired", "Resumed"]);
    f.pass_time(Duration::from_secs(60)).await;
    f.sync("web").await;
    assert_eq!(f.events(), ["Synced"]);
}

/// The Deployment under the former name is the applied one.
#[tokio::test(start_paused = true)]
async fn rename_waits_until_the_pause_ends() {
    let mut f = plain().await;
    f.create("web", json!({"deploymentName": "old", "replicas": 2})).await;
    f.converge("web").await;
    pause(&mut f, true).await;
    f.sync("web").await;
    edit(&mut f, |foo| foo["spec"]["deploymentName"] = json!("new")).await;
    f.sync("web").await;
    assert_eq!(f.ready("web").await, (true, "Available".to_owned()));
    let status = f.status("web").await;
    assert_eq!((&status["observedGeneration"], &status["replicas"]), (&json!(1), &json!(2)));
    f.delete::<Deployment>("old").await;
    f.catch_up().await;
    f.sync("web").await;
    assert_eq!(f.ready("web").await, (false, "Paused".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn deleting_a_paused_object_records_no_resumed_event() {
    let mut f = held().await;
    f.create("web", spec(2)).await;
    f.converge("web").await;
    pause(&mut f, true).await;
    f.sync("web").await;
    f.events();
    f.delete::<Foo>("web").await;
    f.catch_up().await;
    let (_, asked) = f.sync("web").await;
    assert_eq!(f.ready("web").await, (false, "Deleting".to_owned()));
    assert!(asked.contains(&"delete deployments/web".to_owned()), "{asked:?}");
    assert_eq!(f.events(), Vec::<&str>::new());
}
