//! Refused or failing writes of finalizers and Pods.

use super::*;
use crate::workqueue::Reasons;

/// Matches the operator's patches of the object itself, not of its status.
fn update() -> When {
    When::verb("patch").resource("redis/").user("operator")
}

fn updates(asked: &[String]) -> usize {
    asked.iter().filter(|asked| *asked == "patch redis/x").count()
}

#[tokio::test(start_paused = true)]
async fn refused_finalizer_sets_condition_and_backs_off() {
    let mut f = fixture().await;
    let fault = f.sim.fault(Fault::new(update(), Action::refuse(422, "Invalid")));
    f.create("x", spec(2)).await;
    let (outcome, asked) = f.sync("x").await;
    assert_eq!(updates(&asked), 1);
    assert_eq!(outcome, Outcome::WaitForUser { requeue_after: Some(Duration::from_secs(120)) });
    assert_eq!(f.ready("x").await, (false, "ChildRefused".to_owned()));
    let message = f.status("x").await["conditions"][0]["message"].to_string();
    assert!(message.contains("finalizer redis.myapp.tangx.in/pods"), "{message}");
    assert_eq!(f.events(), ["ChildRefused"]);
    assert_eq!(f.names::<Pod>().await, Vec::<String>::new());
    f.pass_time(Duration::from_secs(60)).await;
    let left = Outcome::WaitForUser { requeue_after: Some(Duration::from_secs(60)) };
    assert_eq!(f.sync("x").await, (left, vec![]));
    f.pass_time(Duration::from_secs(60)).await;
    assert_eq!(updates(&f.sync("x").await.1), 1);
    f.sim.heal(fault);
    scale(&mut f, 1).await;
    f.converge("x").await;
    assert!(f.ready("x").await.0, "a new spec is tried at once");
}

#[tokio::test(start_paused = true)]
async fn refused_finalizer_removal_sets_condition() {
    let mut f = fixture().await;
    f.create("x", spec(1)).await;
    f.converge("x").await;
    let fault = f.sim.fault(Fault::new(update(), Action::refuse(422, "Invalid")));
    f.events();
    f.delete::<Redis>("x").await;
    f.catch_up().await;
    for _ in 0..5 {
        f.sync("x").await;
        f.pass_time(Duration::from_secs(10)).await;
    }
    assert_eq!(f.names::<Pod>().await, Vec::<String>::new());
    assert_eq!(f.ready("x").await, (false, "ChildRefused".to_owned()));
    let message = f.status("x").await["conditions"][0]["message"].to_string();
    assert!(message.contains("to remove the finalizer redis.myapp.tangx.in/pods"), "{message}");
    assert_eq!(f.events().iter().filter(|reason| **reason == "ChildRefused").count(), 1);
    assert_eq!(updates(&f.sync("x").await.1), 0, "a recently refused write is held back");
    f.sim.heal(fault);
    f.pass_time(Duration::from_secs(120)).await;
    f.sync("x").await;
    assert_eq!(f.get::<Redis>("x").await, None);
}

/// In one batch, the first create is refused and the second fails with a `Retry-After`.
#[tokio::test(start_paused = true)]
async fn an_error_beside_a_refusal_is_not_lost() {
    let mut f = fixture().await;
    let creates = || When::verb("create").resource("pods").skip(1).times(1);
    let mut later = Action::refuse(503, "ServiceUnavailable");
    let Action::Refuse { retry_after, .. } = &mut later else { unreachable!() };
    *retry_after = Some(60);
    f.sim.fault(Fault::new(creates(), Action::refuse(403, "Forbidden")));
    f.sim.fault(Fault::new(creates(), later));
    f.create("x", spec(3)).await;
    let (outcome, _) = f.pass("x", &Reasons::default()).await;
    assert_eq!(outcome.unwrap_err().at_least(), Duration::from_secs(60));
    assert_eq!(f.ready("x").await, (false, "ChildRefused".to_owned()), "the worst health counts");
}

#[tokio::test(start_paused = true)]
async fn lasting_create_failure_of_a_pod_is_reported() {
    let mut f = fixture().await;
    f.create("x", spec(2)).await;
    f.converge("x").await;
    let creates = When::verb("create").resource("pods");
    let fault = f.sim.fault(Fault::new(creates, Action::refuse(500, "InternalError")));
    f.delete::<Pod>("x-0").await;
    f.pass_time(Duration::from_secs(60)).await;
    for _ in 0..2 {
        assert!(f.pass("x", &Reasons::default()).await.0.is_err());
        f.pass_time(Duration::from_secs(10)).await;
    }
    assert_eq!(f.ready("x").await, (false, "ChildFailing".to_owned()));
    f.sim.heal(fault);
    f.converge("x").await;
    assert!(f.ready("x").await.0);
}

#[tokio::test(start_paused = true)]
async fn foreign_finalizer_that_holds_a_deletion_is_named() {
    let mut f = fixture().await;
    f.create("x", spec(1)).await;
    f.converge("x").await;
    let hold = |redis: &mut Value| {
        redis["metadata"]["finalizers"].as_array_mut().unwrap().push(json!("example.com/hold"));
    };
    f.edit::<Redis>("x", hold).await;
    f.delete::<Redis>("x").await;
    f.catch_up().await;
    for _ in 0..4 {
        f.sync("x").await;
        f.pass_time(Duration::from_secs(60)).await;
    }
    assert_eq!(f.ready("x").await, (false, "Deleting".to_owned()));
    let message = f.status("x").await["conditions"][0]["message"].to_string();
    assert!(message.contains("these finalizers to be removed: example.com/hold"), "{message}");
    assert_eq!(f.sync("x").await, (Outcome::Done, vec![]), "reported once");
}
