//! A child of which the server does not let us know, or which it cannot write now.

use super::*;
use crate::workqueue::Reasons;

const LASTS: Duration = Duration::from_secs(10);

/// A Myapp that is Ready, and has lost its Service.
async fn without_service() -> Fixture<MyappSync> {
    let mut f = fixture().await;
    f.create("web", spec(&json!({"host": "a.example.com"}))).await;
    f.converge("web").await;
    f.delete::<Service>("web").await;
    f.catch_up().await;
    f.events();
    f
}

/// A pass that fails; what it asked for, and the least time until the next one.
async fn failed(f: &mut Fixture<MyappSync>) -> (Vec<String>, Duration) {
    let (outcome, asked) = f.pass("web", &Reasons::default()).await;
    f.catch_up().await;
    (asked, outcome.unwrap_err().at_least())
}

async fn message(f: &Fixture<MyappSync>) -> String {
    f.status("web").await["conditions"][0]["message"].as_str().unwrap().to_owned()
}

#[tokio::test(start_paused = true)]
async fn a_failing_child_holds_up_no_other_and_is_reported() {
    for (code, reason, words) in [
        (500, "InternalError", "the API server answers 500"),
        (503, "ServiceUnavailable", "the API server answers 503"),
        (429, "TooManyRequests", "the API server asks for less"),
        (409, "Conflict", "somebody else writes it at the same time"),
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
        assert!(f.ready("web").await.0, "{code}: it may be over in a moment");
        f.pass_time(LASTS).await;
        failed(&mut f).await;
        assert_eq!(f.ready("web").await, (false, "ChildFailing".to_owned()), "{code}");
        let told = format!("Service \"web\" could not be looked after: {words}; trying again");
        assert_eq!(message(&f).await, told);
        let (asked, _) = failed(&mut f).await;
        assert!(!asked.contains(&"patch myapps/web/status".to_owned()), "{code}: told once: {asked:?}");
        f.sim.heal(fault);
        f.converge("web").await;
        assert!(f.ready("web").await.0, "{code}: it heals");
        assert_eq!(f.events(), ["ChildCreated"], "{code}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_failure_that_is_over_soon_is_not_reported() {
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
async fn a_long_retry_after_is_reported_at_once_and_obeyed() {
    let mut f = without_service().await;
    let mut later = Action::refuse(503, "ServiceUnavailable");
    let Action::Refuse { retry_after, .. } = &mut later else { unreachable!() };
    *retry_after = Some(60);
    f.sim.fault(Fault::new(When::verb("create").resource("services"), later));
    assert_eq!(failed(&mut f).await.1, Duration::from_secs(60));
    assert_eq!(f.ready("web").await, (false, "ChildFailing".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn a_child_that_may_not_be_read_is_reported() {
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
    assert!(message(&f).await.contains("the operator may not"), "{}", message(&f).await);
}

/// Of a connection that breaks nothing is known, and no status would get through.
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
async fn a_child_that_cannot_be_deleted_now_is_reported_when_it_lasts() {
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
    assert!(message(&f).await.starts_with("Ingress \"web\" could not be"), "{}", message(&f).await);
    f.sim.heal(fault);
    f.converge("web").await;
    assert!(f.ready("web").await.0);
    assert_eq!(f.names::<Ingress>().await, Vec::<String>::new());
}
