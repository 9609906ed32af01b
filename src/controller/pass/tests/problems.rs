//! Refused children and taken names: each problem is reported once, and not retried on every sync.

use super::*;

const FORBIDDEN: (u16, &str) = (403, "Forbidden");

/// Creates a Deployment and a Service of somebody else.
async fn put_foreign(f: &Fixture<PlainKind>) {
    f.put::<Deployment>(json!({"metadata": {"name": "web"}, "spec": {"replicas": 0,
        "selector": {"matchLabels": {"a": "b"}}, "template": {"metadata": {"labels": {"a": "b"}},
        "spec": {"containers": [{"name": "c", "image": "i"}]}}}}))
        .await;
    f.put::<Service>(json!({"metadata": {"name": "web"}, "spec": {"ports": [{"port": 1}]}})).await;
}

/// The children share one name, and the message for a taken name does not include the kind.
#[tokio::test(start_paused = true)]
async fn taken_name_of_a_second_child_is_reported() {
    let mut f = with_service().await;
    put_foreign(&f).await;
    f.create("web", spec(2)).await;
    f.sync("web").await;
    assert_eq!(f.events(), ["ErrResourceExists"]);
    f.pass_time(Duration::from_secs(30)).await;
    f.sync("web").await;
    assert_eq!(f.events(), Vec::<&str>::new(), "already reported");
    f.delete::<Deployment>("web").await;
    f.pass_time(Duration::from_secs(30)).await;
    f.sync("web").await;
    assert_eq!(f.events(), ["ChildCreated", "ErrResourceExists"], "the Service is blocked, too");
    f.pass_time(Duration::from_secs(30)).await;
    f.sync("web").await;
    assert_eq!(f.events(), Vec::<&str>::new(), "reported once");
}

#[tokio::test(start_paused = true)]
async fn restart_does_not_report_taken_name_again() {
    let mut f = with_service().await;
    put_foreign(&f).await;
    f.create("web", spec(2)).await;
    f.sync("web").await;
    assert_eq!(f.events(), ["ErrResourceExists"]);
    f.restart(|caches, _| PlainKind::with_service(caches)).await;
    f.sync("web").await;
    assert_eq!(f.events(), Vec::<&str>::new());
}

#[tokio::test(start_paused = true)]
async fn refusal_of_a_second_child_is_reported() {
    let mut f = with_service().await;
    let deployments = f.sim.fault(refusal("create", "deployments", FORBIDDEN));
    f.sim.fault(refusal("create", "services", FORBIDDEN));
    f.create("web", spec(2)).await;
    f.sync("web").await;
    assert_eq!(f.events(), ["ChildRefused"]);
    f.sim.heal(deployments);
    f.pass_time(Duration::from_secs(120)).await;
    f.sync("web").await;
    let notes = f.notes();
    let reasons: Vec<&str> = notes.iter().map(|(reason, _)| *reason).collect();
    assert_eq!(reasons, ["ChildCreated", "ChildRefused"]);
    assert!(notes[1].1.contains("Service \"web\""), "{notes:?}");
}

#[tokio::test(start_paused = true)]
async fn new_spec_refused_for_another_cause_is_reported() {
    let mut f = plain().await;
    f.create("web", spec(1)).await;
    for (replicas, cause, expected) in
        [(1, "no such class", 1), (2, "no such class", 0), (3, "no such account", 1)]
    {
        scale(&mut f, replicas).await;
        let (reason, message) = ("Forbidden".to_owned(), cause.to_owned());
        let refused = Action::Refuse { code: 403, reason, message, retry_after: None };
        f.sim.fault(Fault::new(When::verb("create").resource("deployments").times(1), refused));
        f.sync("web").await;
        assert_eq!(f.events(), vec!["ChildRefused"; expected], "{cause}");
    }
}

/// Each Pod changes the Deployment's status, which wakes the object.
#[tokio::test(start_paused = true)]
async fn refused_child_is_not_retried_on_every_pass() {
    let mut f = with_service().await;
    let fault = f.sim.fault(refusal("create", "services", FORBIDDEN));
    f.create("web", spec(2)).await;
    let posts = |asked: &[String]| asked.iter().filter(|asked| *asked == "create services").count();
    let (outcome, asked) = f.sync("web").await;
    assert_eq!((posts(&asked), f.ready("web").await.1.as_str()), (1, "ChildRefused"));
    assert_eq!(outcome, Outcome::WaitForUser { requeue_after: Some(Duration::from_secs(120)) });
    assert_eq!(f.events(), ["ChildCreated", "ChildRefused"]);
    let before = message(&f).await;
    for passed in 1..20 {
        f.pass_time(Duration::from_secs(5)).await;
        f.edit_status::<Deployment>("web", json!({"observedGeneration": 1, "collisionCount": passed})).await;
        f.catch_up().await;
        let (outcome, asked) = f.sync("web").await;
        assert!(asked.iter().all(|asked| asked == "update foos/web/status"), "{asked:?}");
        let left = Duration::from_secs(120 - 5 * passed);
        assert_eq!(outcome, Outcome::WaitForUser { requeue_after: Some(left) });
    }
    assert_eq!(message(&f).await, before);
    scale(&mut f, 3).await;
    assert_eq!(posts(&f.sync("web").await.1), 1, "a new spec is tried at once");
    assert_eq!(posts(&f.sync("web").await.1), 0);
    let now = json!({"windlass.dev/reconcile-at": "now"});
    edit(&mut f, |foo| foo["metadata"]["annotations"] = now).await;
    assert_eq!(posts(&f.sync("web").await.1), 1, "a user's request is tried at once");
    f.pass_time(Duration::from_secs(119)).await;
    assert_eq!(posts(&f.sync("web").await.1), 0);
    f.events();
    f.sim.heal(fault);
    f.pass_time(Duration::from_secs(1)).await;
    assert_eq!(posts(&f.sync("web").await.1), 1, "the same write is retried after two minutes");
    assert_eq!(f.events(), ["ChildCreated", "Synced"]);
}
