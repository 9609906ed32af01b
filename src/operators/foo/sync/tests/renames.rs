//! Foos whose `deploymentName` changes.

use super::*;

#[tokio::test(start_paused = true)]
async fn rename_creates_new_deployment_before_deleting_old() {
    let mut f = Fixture::new().await;
    f.foo("old", 1);
    f.sync().await;
    f.events();
    renamed(&mut f);
    let (_, requests) = f.sync().await;
    assert_eq!(
        requests,
        [
            "POST deployments",
            "GET deployments",
            "GET foos/one",
            "DELETE deployments/old",
            "PATCH foos/one/status",
        ]
    );
    assert_eq!(f.events(), ["ChildCreated", "ChildDeleted"]);
}

#[tokio::test(start_paused = true)]
async fn old_deployment_without_label_is_found_live() {
    let mut f = Fixture::new().await;
    f.foo("old", 1);
    f.sync().await;
    renamed(&mut f);
    take_label_off(&mut f);
    f.sync().await;
    assert!(f.server.get(&format!("{DEPLOYMENTS}/old")).is_none());
}

/// The list that finds unlabelled Deployments fails in the pass that creates the new one.
#[tokio::test(start_paused = true)]
async fn failed_rename_searches_for_unlabelled_deployment_again() {
    let mut f = Fixture::new().await;
    f.foo("old", 1);
    f.sync().await;
    renamed(&mut f);
    take_label_off(&mut f);
    f.server.refuse("list", 500, "InternalError");
    let key = ObjectName::new(Some("ns"), "one");
    assert!(f.sync.sync(&key, pass()).await.is_err());
    assert!(f.server.get(&format!("{DEPLOYMENTS}/new")).is_some());
    f.catch_up();
    take_label_off(&mut f);
    f.sync().await;
    assert!(f.server.get(&format!("{DEPLOYMENTS}/old")).is_none());
    assert_eq!(f.sync().await.1, Vec::<String>::new(), "the search ends");
}

/// A process ended after it created the new Deployment, before it deleted the old one.
#[tokio::test(start_paused = true)]
async fn restart_finds_unlabelled_deployment_left_by_rename() {
    let mut f = Fixture::new().await;
    f.foo("old", 1);
    f.sync().await;
    renamed(&mut f);
    take_label_off(&mut f);
    f.server.refuse("list", 500, "InternalError");
    let key = ObjectName::new(Some("ns"), "one");
    assert!(f.sync.sync(&key, pass()).await.is_err());
    let client = f.server.client();
    f.sync.tools().children = Children::new(client, Arc::default());
    f.catch_up();
    take_label_off(&mut f);
    let first = Reasons::from(Reason::Initial);
    f.sync.sync(&key, SyncRequest::new(&first)).await.unwrap();
    assert!(f.server.get(&format!("{DEPLOYMENTS}/old")).is_none());
}

/// Removes our label from the old Deployment, and so hides it from the cache.
fn take_label_off(f: &mut Fixture) {
    let mut old = f.server.get(&format!("{DEPLOYMENTS}/old")).unwrap();
    old["metadata"]["labels"] = json!({});
    f.server.store(DEPLOYMENTS, old);
    f.deployments.delete(&ObjectName::new(Some("ns"), "old"), "1");
}

#[tokio::test(start_paused = true)]
async fn old_deployment_counts_while_new_name_is_taken() {
    let mut f = Fixture::new().await;
    f.foo("old", 1);
    f.sync().await;
    f.roll_out("old");
    f.server.store(DEPLOYMENTS, json!({"metadata": {"name": "new", "namespace": "ns"}}));
    renamed(&mut f);
    f.sync().await;
    let counts = |f: &Fixture| {
        let status = f.server.get(FOO).unwrap()["status"].clone();
        (status["replicas"].clone(), status["availableReplicas"].clone())
    };
    assert_eq!((f.ready().1.as_str(), counts(&f)), ("ResourceExists", (json!(2), json!(2))));
    f.server.remove(&format!("{DEPLOYMENTS}/new"));
    f.catch_up();
    tokio::time::advance(Duration::from_secs(30)).await;
    f.sync().await;
    assert_eq!(counts(&f), (json!(0), json!(0)), "the new Deployment exists, but has no Pods yet");
}

#[tokio::test(start_paused = true)]
async fn second_taken_name_is_reported_too() {
    let mut f = Fixture::new().await;
    for name in ["web", "new"] {
        f.server.store(DEPLOYMENTS, json!({"metadata": {"name": name, "namespace": "ns"}}));
    }
    f.foo("web", 1);
    let note = |name: &str| format!("Resource {name:?} already exists and is not managed by Foo");
    f.sync().await;
    assert_eq!(f.notes(), [("ErrResourceExists", note("web"))]);
    renamed(&mut f);
    for notes in [vec![("ErrResourceExists", note("new"))], vec![]] {
        f.sync().await;
        assert_eq!(f.notes(), notes);
    }
}

#[tokio::test(start_paused = true)]
async fn old_deployment_stays_while_new_name_is_taken() {
    let mut f = Fixture::new().await;
    f.foo("old", 1);
    f.sync().await;
    f.server.store(DEPLOYMENTS, json!({"metadata": {"name": "new", "namespace": "ns"}}));
    renamed(&mut f);
    let (outcome, _) = f.sync().await;
    assert_eq!(outcome, Outcome::WaitForUser { requeue_after: Some(Duration::from_secs(30)) });
    assert!(f.server.get(&format!("{DEPLOYMENTS}/old")).is_some());
    assert_eq!(f.ready().1, "ResourceExists");
}

/// W9: the operator lacks permission to delete.
#[tokio::test(start_paused = true)]
async fn refused_delete_of_old_deployment_sets_condition() {
    let mut f = Fixture::new().await;
    f.foo("old", 1);
    f.sync().await;
    renamed(&mut f);
    f.server.refuse("delete", 403, "Forbidden");
    let (outcome, _) = f.sync().await;
    assert_eq!(outcome, Outcome::WaitForUser { requeue_after: Some(Duration::from_secs(120)) });
    assert_eq!(f.ready().1, "ChildRefused");
    f.sync().await;
    assert!(f.server.get(&format!("{DEPLOYMENTS}/old")).is_some(), "the delete is not retried at once");
    tokio::time::advance(Duration::from_secs(120)).await;
    f.sync().await;
    assert!(f.server.get(&format!("{DEPLOYMENTS}/old")).is_none(), "the delete succeeds once permitted");
}
