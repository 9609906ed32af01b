//! Children that temporarily cannot be read or written.

use super::*;

const LASTS: Duration = Duration::from_secs(10);
const ERROR: (u16, &str) = (500, "InternalError");

/// Returns a Ready object whose child of this kind has just been deleted.
async fn without<O: TypedObject>() -> Fixture<PlainKind> {
    let mut f = with_service().await;
    f.create("web", spec(2)).await;
    f.converge("web").await;
    f.delete::<O>("web").await;
    f.catch_up().await;
    f.events();
    f
}

/// Changes the port of the Service by hand, and updates the caches.
async fn edit_port(f: &mut Fixture<PlainKind>) {
    f.edit::<Service>("web", |live| live["spec"]["ports"][0]["port"] = json!(9)).await;
    f.catch_up().await;
}

/// Returns a fault that refuses creates in this collection, and asks for a wait of a minute.
fn refused_for_a_minute(plural: &str) -> Fault {
    let (code, reason) = (503, "ServiceUnavailable".to_owned());
    let later = Action::Refuse { code, reason, message: String::new(), retry_after: Some(60) };
    Fault::new(When::verb("create").resource(plural), later)
}

/// Runs a sync that must fail. Returns its requests and the minimum delay before the next sync.
async fn failed<R: Reconcile<Resource = Foo>>(f: &mut Fixture<R>) -> (Vec<String>, Duration) {
    let (outcome, asked) = f.pass("web", &Reasons::default()).await;
    f.catch_up().await;
    (asked, outcome.unwrap_err().at_least())
}

#[tokio::test(start_paused = true)]
async fn failing_child_is_reported_and_blocks_no_other() {
    for (code, reason, words) in [
        (500, "InternalError", "the API server returned 500"),
        (503, "ServiceUnavailable", "the API server returned 503"),
        (429, "TooManyRequests", "the API server is throttling requests"),
        (409, "Conflict", "another client is writing it at the same time"),
    ] {
        let mut f = without::<Deployment>().await;
        let fault = f.sim.fault(refusal("create", "deployments", (code, reason)));
        edit_port(&mut f).await;
        let (asked, _) = failed(&mut f).await;
        let service = f.get::<Service>("web").await.unwrap();
        assert_eq!(service["spec"]["ports"][0]["port"], 80, "{code}: {asked:?}");
        assert_eq!(f.events(), ["ChildRepaired"], "{code}");
        assert!(f.ready("web").await.0, "{code}: the failure is still short");
        f.pass_time(LASTS).await;
        failed(&mut f).await;
        assert_eq!(f.ready("web").await, (false, "ChildFailing".to_owned()), "{code}");
        let expected = format!("Could not reconcile Deployment \"web\": {words}; retrying");
        assert_eq!(message(&f).await, expected);
        let (asked, _) = failed(&mut f).await;
        assert!(!asked.contains(&"update foos/web/status".to_owned()), "{code}: reported once: {asked:?}");
        f.sim.heal(fault);
        f.converge("web").await;
        assert!(f.ready("web").await.0, "{code}: the object recovers");
        assert_eq!(f.events(), ["ChildCreated", "Synced"], "{code}");
    }
}

#[tokio::test(start_paused = true)]
async fn short_failure_is_not_reported() {
    let mut f = without::<Service>().await;
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
    let mut f = without::<Service>().await;
    f.sim.fault(refused_for_a_minute("services"));
    assert_eq!(failed(&mut f).await.1, Duration::from_secs(60));
    assert_eq!(f.ready("web").await, (false, "ChildFailing".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn longest_retry_after_of_several_is_obeyed() {
    for (longer, shorter) in [("deployments", "services"), ("services", "deployments")] {
        let mut f = with_service().await;
        f.sim.fault(refused_for_a_minute(longer));
        f.sim.fault(refusal("create", shorter, ERROR));
        f.create("web", spec(2)).await;
        assert_eq!(failed(&mut f).await.1, Duration::from_secs(60), "{longer}");
    }
}

#[tokio::test(start_paused = true)]
async fn forbidden_read_of_a_child_is_reported() {
    let mut f = without::<Service>().await;
    f.converge("web").await;
    f.sim.fault(refusal("get", "services", (403, "Forbidden")));
    // A conflict is followed by a read.
    f.sim.fault(refusal("patch", "services", (409, "Conflict")));
    edit_port(&mut f).await;
    failed(&mut f).await;
    f.pass_time(LASTS).await;
    failed(&mut f).await;
    assert_eq!(f.ready("web").await, (false, "ChildFailing".to_owned()));
    assert!(message(&f).await.contains("the operator lacks permission"), "{}", message(&f).await);
}

/// With a broken connection, a status write would fail as well.
#[tokio::test(start_paused = true)]
async fn a_broken_connection_ends_the_pass() {
    let mut f = without::<Deployment>().await;
    f.sim.fault(Fault::new(When::verb("create").resource("deployments"), Action::DropBefore));
    edit_port(&mut f).await;
    f.pass_time(LASTS).await;
    let (asked, _) = failed(&mut f).await;
    assert!(!asked.iter().any(|asked| asked.contains("services")), "{asked:?}");
    assert!(f.ready("web").await.0);
}

#[tokio::test(start_paused = true)]
async fn lasting_delete_failure_of_a_child_is_reported() {
    let mut f = with_service().await;
    f.create("web", spec(2)).await;
    f.converge("web").await;
    let fault = f.sim.fault(refusal("delete", "services", ERROR));
    scale(&mut f, 1).await;
    for _ in 0..2 {
        failed(&mut f).await;
        f.pass_time(LASTS).await;
    }
    assert_eq!(f.ready("web").await, (false, "ChildFailing".to_owned()));
    assert!(message(&f).await.starts_with("Could not reconcile Service \"web\""), "{}", message(&f).await);
    f.sim.heal(fault);
    f.converge("web").await;
    assert!(f.ready("web").await.0);
    assert_eq!(f.names::<Service>().await, Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn lasting_create_failure_in_a_batch_is_reported() {
    let mut f = batch().await;
    f.create("web", spec(2)).await;
    f.converge("web").await;
    let fault = f.sim.fault(refusal("create", "deployments", ERROR));
    f.delete::<Deployment>("web-0").await;
    f.pass_time(Duration::from_secs(60)).await;
    for _ in 0..2 {
        failed(&mut f).await;
        f.pass_time(LASTS).await;
    }
    assert_eq!(f.ready("web").await, (false, "ChildFailing".to_owned()));
    f.sim.heal(fault);
    f.converge("web").await;
    assert!(f.ready("web").await.0);
}

/// In one batch, the first create is refused and the second fails with a `Retry-After`.
#[tokio::test(start_paused = true)]
async fn an_error_beside_a_refusal_is_not_lost() {
    let mut f = batch().await;
    let second = |mut fault: Fault| {
        (fault.when.skip, fault.when.times) = (1, 1);
        fault
    };
    f.sim.fault(second(refusal("create", "deployments", (403, "Forbidden"))));
    f.sim.fault(second(refused_for_a_minute("deployments")));
    f.create("web", spec(3)).await;
    assert_eq!(failed(&mut f).await.1, Duration::from_secs(60));
    assert_eq!(f.ready("web").await, (false, "ChildRefused".to_owned()), "the worst health counts");
}

#[tokio::test(start_paused = true)]
async fn partly_applied_spec_is_not_recorded_as_applied() {
    let mut f = Fixture::new(PlainKind::annotating).await;
    f.sim.fault(refusal("create", "services", ERROR));
    f.create("web", spec(2)).await;
    for _ in 0..3 {
        let (asked, _) = failed(&mut f).await;
        assert!(!asked.contains(&"patch foos/web".to_owned()), "{asked:?}");
        f.pass_time(LASTS).await;
    }
    assert_eq!(f.ready("web").await, (false, "ChildFailing".to_owned()));
}
