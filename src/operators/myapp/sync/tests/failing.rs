//! Children that temporarily cannot be read or written.

use super::*;
use crate::workqueue::Reasons;

const LASTS: Duration = Duration::from_secs(10);

/// Returns a Ready Myapp whose Service has just been deleted.
async fn without_service() -> Fixture<MyappSync> {
    let mut f = fixture().await;
    f.create("web", spec(&json!({"host": "a.example.com"}))).await;
    f.converge("web").await;
    f.delete::<Service>("web").await;
    f.catch_up().await;
    f.events();
    f
}

/// Runs a pass that must fail. Returns its requests and the minimum delay before the next pass.
async fn failed(f: &mut Fixture<MyappSync>) -> (Vec<String>, Duration) {
    let (outcome, asked) = f.pass("web", &Reasons::default()).await;
    f.catch_up().await;
    (asked, outcome.unwrap_err().at_least())
}

async fn message(f: &Fixture<MyappSync>) -> String {
    f.status("web").await["conditions"][0]["message"].as_str().unwrap().to_owned()
}

#[tokio::test(start_paused = true)]
async fn failing_child_is_reported_and_blocks_no_other() {
    for (code, reason, words) in [
        (500, "InternalError", "the API server returned 500"),
        (503, "ServiceUnavailable", "the API server returned 503"),
        (429, "TooManyRequests", "the API server is throttling requests"),
        (409, "Conflict", "another client is writing it at the same time"),
    ] {
        let mut f = without_service().await;
        let creates = When::verb("create").resource("services");
        let fault = f.sim.fault(Fault::new(creates, Action::refuse(code, reason)));
        f.edit::<Ingress>("web", |live| live["spec"]["rules"][0]["host"] = json!("evil.example.com")).await;
        f.catch_up().await;
        let (asked, _) = failed(&mut f).await;
        let ingress = f.get::<Ingress>("web").await.unwrap();
        assert_eq!(ingress["spec"]["rules"][0]["host"], "a.example.com", "{code}: {asked:?}");
        assert_eq!(f.events(), ["ChildRepaired"], "{code}");
        assert!(f.ready("web").await.0, "{code}: the failure is still short");
        f.pass_time(LASTS).await;
        failed(&mut f).await;
        assert_eq!(f.ready("web").await, (false, "ChildFailing".to_owned()), "{code}");
        let expected = format!("Could not reconcile Service \"web\": {words}; retrying");
        assert_eq!(message(&f).await, expected);
        let (asked, _) = failed(&mut f).await;
        assert!(!asked.contains(&"patch myapps/web/status".to_owned()), "{code}: reported once: {asked:?}");
        f.sim.heal(fault);
        f.converge("web").await;
        assert!(f.ready("web").await.0, "{code}: the Myapp recovers");
        assert_eq!(f.events(), ["ChildCreated"], "{code}");
    }
}

#[tokio::test(start_paused = true)]
async fn short_failure_is_not_reported() {
    let mut f = without_service().await;
    for _ in 0..3 {
        let creates = When::verb("create").resource("services").times(1);
        f.sim.fault(Fault::new(creates, Action::refuse(500, "InternalError")));
        failed(&mut f).await;
        assert!(f.ready("web").await.0);
        f.sync("web").await;
        f.delete::<Service>("web").await;
        f.pass_time(LASTS).await;
    }
}

#[tokio::test(start_paused = true)]
async fn long_retry_after_is_reported_immediately_and_obeyed() {
    let mut f = without_service().await;
    let mut later = Action::refuse(503, "ServiceUnavailable");
    let Action::Refuse { retry_after, .. } = &mut later else { unreachable!() };
    *retry_after = Some(60);
    f.sim.fault(Fault::new(When::verb("create").resource("services"), later));
    assert_eq!(failed(&mut f).await.1, Duration::from_secs(60));
    assert_eq!(f.ready("web").await, (false, "ChildFailing".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn forbidden_read_of_a_child_is_reported() {
    let mut f = without_service().await;
    f.converge("web").await;
    f.sim.fault(Fault::new(
        When::verb("get").resource("services").user("operator"),
        Action::refuse(403, "Forbidden"),
    ));
    f.edit::<Service>("web", |live| live["spec"]["ports"][0]["port"] = json!(9)).await;
    f.catch_up().await;
    failed(&mut f).await;
    f.pass_time(LASTS).await;
    failed(&mut f).await;
    assert_eq!(f.ready("web").await, (false, "ChildFailing".to_owned()));
    assert!(message(&f).await.contains("the operator lacks permission"), "{}", message(&f).await);
}

/// With a broken connection, a status write would fail as well.
#[tokio::test(start_paused = true)]
async fn a_broken_connection_ends_the_pass() {
    let mut f = without_service().await;
    f.sim.fault(Fault::new(When::verb("create").resource("services"), Action::DropBefore));
    f.edit::<Ingress>("web", |live| live["spec"]["rules"][0]["host"] = json!("evil.example.com")).await;
    f.pass_time(LASTS).await;
    let (asked, _) = failed(&mut f).await;
    assert!(!asked.iter().any(|asked| asked.contains("ingresses")), "{asked:?}");
    assert!(f.ready("web").await.0);
}

#[tokio::test(start_paused = true)]
async fn lasting_delete_failure_of_a_child_is_reported() {
    let mut f = fixture().await;
    f.create("web", spec(&json!({"host": "a.example.com"}))).await;
    f.converge("web").await;
    let deletes = When::verb("delete").resource("ingresses");
    let fault = f.sim.fault(Fault::new(deletes, Action::refuse(500, "InternalError")));
    edit(&mut f, |myapp| {
        myapp["spec"].as_object_mut().unwrap().remove("host");
    })
    .await;
    for _ in 0..2 {
        failed(&mut f).await;
        f.pass_time(LASTS).await;
    }
    assert_eq!(f.ready("web").await, (false, "ChildFailing".to_owned()));
    assert!(message(&f).await.starts_with("Could not reconcile Ingress \"web\""), "{}", message(&f).await);
    f.sim.heal(fault);
    f.converge("web").await;
    assert!(f.ready("web").await.0);
    assert_eq!(f.names::<Ingress>().await, Vec::<String>::new());
}
