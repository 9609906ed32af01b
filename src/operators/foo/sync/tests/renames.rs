//! Foos whose `deploymentName` changes.

use super::*;
use crate::workqueue::{Reason, Reasons};

/// Returns the fixture with a Foo whose Deployment `old` exists.
async fn with_old() -> Fixture<FooSync> {
    let mut f = fixture().await;
    f.create("one", spec("old")).await;
    f.sync("one").await;
    f.events();
    f
}

/// Changes `spec.deploymentName` to `new`.
async fn rename(f: &mut Fixture<FooSync>) {
    f.edit::<Foo>("one", |foo| foo["spec"]["deploymentName"] = json!("new")).await;
    f.catch_up().await;
}

/// Removes our label from the old Deployment, and so hides it from the cache.
async fn take_label_off(f: &mut Fixture<FooSync>) {
    f.edit::<Deployment>("old", |old| old["metadata"]["labels"] = json!({})).await;
    f.catch_up().await;
}

/// Runs a sync whose list of Deployments fails, and updates the caches.
async fn fails_to_list(f: &mut Fixture<FooSync>) {
    let lists = When::verb("list").resource("deployments").user("operator").times(1);
    f.sim.fault(Fault::new(lists, Action::refuse(500, "InternalError")));
    assert!(f.pass("one", &Reasons::default()).await.0.is_err());
    f.catch_up().await;
}

#[tokio::test(start_paused = true)]
async fn rename_creates_new_deployment_before_deleting_old() {
    let mut f = with_old().await;
    rename(&mut f).await;
    let (_, asked) = f.sync("one").await;
    assert_eq!(
        asked,
        [
            "create deployments",
            "list deployments",
            "get foos/one",
            "delete deployments/old",
            "update foos/one/status",
        ]
    );
    assert_eq!(f.events(), ["ChildCreated", "ChildDeleted"]);
}

#[tokio::test(start_paused = true)]
async fn old_deployment_without_label_is_found_live() {
    let mut f = with_old().await;
    rename(&mut f).await;
    take_label_off(&mut f).await;
    f.sync("one").await;
    assert_eq!(f.names::<Deployment>().await, ["new"]);
}

/// The list that finds unlabelled Deployments fails in the sync that creates the new one.
#[tokio::test(start_paused = true)]
async fn failed_rename_searches_for_unlabelled_deployment_again() {
    let mut f = with_old().await;
    rename(&mut f).await;
    take_label_off(&mut f).await;
    fails_to_list(&mut f).await;
    assert_eq!(f.names::<Deployment>().await, ["new", "old"]);
    f.sync("one").await;
    assert_eq!(f.names::<Deployment>().await, ["new"]);
    assert_eq!(f.sync("one").await.1, Vec::<String>::new(), "the search ends");
}

/// A process ended after it created the new Deployment, before it deleted the old one.
#[tokio::test(start_paused = true)]
async fn audit_finds_unlabelled_deployment_left_by_rename() {
    let mut f = with_old().await;
    rename(&mut f).await;
    take_label_off(&mut f).await;
    fails_to_list(&mut f).await;
    f.restart(|caches, _| FooSync { deployments: caches.lister() }).await;
    let (_, asked) = f.pass("one", &Reason::Initial.into()).await;
    assert!(
        !asked.iter().any(|request| request.starts_with("list")),
        "a start costs no list per object: {asked:?}"
    );
    assert_eq!(f.names::<Deployment>().await, ["new", "old"]);
    f.audit("one").await;
    assert_eq!(f.names::<Deployment>().await, ["new"]);
}

#[tokio::test(start_paused = true)]
async fn old_deployment_counts_while_new_name_is_taken() {
    let mut f = with_old().await;
    f.pass_time(Duration::from_secs(60)).await;
    put_foreign(&f, "new").await;
    rename(&mut f).await;
    f.sync("one").await;
    let counts = async |f: &Fixture<FooSync>| {
        let status = f.status("one").await;
        (status["replicas"].clone(), status["availableReplicas"].clone())
    };
    assert_eq!(f.ready("one").await.1, "ResourceExists");
    assert_eq!(counts(&f).await, (json!(2), json!(2)));
    f.delete::<Deployment>("new").await;
    f.pass_time(Duration::from_secs(30)).await;
    f.sync("one").await;
    assert_eq!(counts(&f).await, (json!(0), json!(0)), "the new Deployment exists, but has no Pods yet");
}

#[tokio::test(start_paused = true)]
async fn second_taken_name_is_reported_too() {
    let mut f = fixture().await;
    for name in ["web", "new"] {
        put_foreign(&f, name).await;
    }
    f.create("one", spec("web")).await;
    let note = |name: &str| format!("Resource {name:?} already exists and is not managed by Foo");
    f.sync("one").await;
    assert_eq!(f.notes(), [("ErrResourceExists", note("web"))]);
    rename(&mut f).await;
    for notes in [vec![("ErrResourceExists", note("new"))], vec![]] {
        f.sync("one").await;
        assert_eq!(f.notes(), notes);
    }
}

#[tokio::test(start_paused = true)]
async fn old_deployment_stays_while_new_name_is_taken() {
    let mut f = with_old().await;
    put_foreign(&f, "new").await;
    rename(&mut f).await;
    let (outcome, _) = f.sync("one").await;
    assert_eq!(outcome, Outcome::WaitForUser { requeue_after: Some(Duration::from_secs(30)) });
    assert_eq!(f.names::<Deployment>().await, ["new", "old"]);
    assert_eq!(f.ready("one").await.1, "ResourceExists");
}

/// W9: the operator lacks permission to delete.
#[tokio::test(start_paused = true)]
async fn refused_delete_of_old_deployment_sets_condition() {
    let mut f = with_old().await;
    rename(&mut f).await;
    let deletes = When::verb("delete").resource("deployments").user("operator").times(1);
    f.sim.fault(Fault::new(deletes, Action::refuse(403, "Forbidden")));
    let (outcome, _) = f.sync("one").await;
    assert_eq!(outcome, Outcome::WaitForUser { requeue_after: Some(Duration::from_secs(120)) });
    assert_eq!(f.ready("one").await.1, "ChildRefused");
    f.sync("one").await;
    assert_eq!(f.names::<Deployment>().await, ["new", "old"], "the delete is not retried at once");
    f.pass_time(Duration::from_secs(120)).await;
    f.sync("one").await;
    assert_eq!(f.names::<Deployment>().await, ["new"], "the delete succeeds once permitted");
}
