//! Writes of finalizers and annotations that are refused or fail.

use super::*;

const INVALID: (u16, &str) = (422, "Invalid");
const WRITE: &str = "patch foos/web";

/// Returns a fault that refuses the operator's patches of the object itself, not of its status.
fn own_refusal(answer: (u16, &str)) -> Fault {
    refusal("patch", "foos/", answer)
}

fn writes(asked: &[String]) -> usize {
    asked.iter().filter(|asked| *asked == WRITE).count()
}

#[tokio::test(start_paused = true)]
async fn refused_finalizer_sets_condition_and_backs_off() {
    let mut f = held().await;
    let fault = f.sim.fault(own_refusal(INVALID));
    f.create("web", spec(2)).await;
    let (outcome, asked) = f.sync("web").await;
    assert_eq!(writes(&asked), 1);
    assert_eq!(outcome, Outcome::WaitForUser { requeue_after: Some(Duration::from_secs(120)) });
    assert_eq!(f.ready("web").await, (false, "ChildRefused".to_owned()));
    let text = message(&f).await;
    assert!(text.contains("finalizer windlass.dev/test"), "{text}");
    assert_eq!(f.events(), ["ChildRefused"]);
    assert_eq!(f.names::<Deployment>().await, Vec::<String>::new());
    f.pass_time(Duration::from_secs(60)).await;
    let left = Outcome::WaitForUser { requeue_after: Some(Duration::from_secs(60)) };
    assert_eq!(f.sync("web").await, (left, vec![]));
    f.pass_time(Duration::from_secs(60)).await;
    assert_eq!(writes(&f.sync("web").await.1), 1);
    f.sim.heal(fault);
    scale(&mut f, 1).await;
    f.converge("web").await;
    assert!(f.ready("web").await.0, "a new spec is tried at once");
}

#[tokio::test(start_paused = true)]
async fn refused_finalizer_removal_sets_condition() {
    let mut f = held().await;
    f.create("web", spec(1)).await;
    f.converge("web").await;
    let fault = f.sim.fault(own_refusal(INVALID));
    f.events();
    f.delete::<Foo>("web").await;
    f.catch_up().await;
    for _ in 0..5 {
        f.sync("web").await;
        f.pass_time(Duration::from_secs(10)).await;
    }
    assert_eq!(f.names::<Deployment>().await, Vec::<String>::new());
    assert_eq!(f.ready("web").await, (false, "ChildRefused".to_owned()));
    let text = message(&f).await;
    assert!(text.contains("to remove the finalizer windlass.dev/test"), "{text}");
    assert_eq!(f.events(), ["ChildRefused"]);
    assert_eq!(writes(&f.sync("web").await.1), 0, "a recently refused write is held back");
    f.sim.heal(fault);
    f.pass_time(Duration::from_secs(120)).await;
    f.sync("web").await;
    assert_eq!(f.get::<Foo>("web").await, None);
}

#[tokio::test(start_paused = true)]
async fn finalizer_is_kept_while_the_cleanup_is_refused_or_fails() {
    let mut f = Fixture::new(|caches| CleaningKind { deployments: caches.lister() }).await;
    f.create("web", spec(1)).await;
    f.converge("web").await;
    f.delete::<Foo>("web").await;
    f.catch_up().await;
    for answer in [INVALID, (500, "InternalError")] {
        let fault = f.sim.fault(refusal("delete", "deployments/", answer));
        drop(f.pass("web", &Reasons::default()).await);
        assert_eq!(f.get::<Foo>("web").await.unwrap()["metadata"]["finalizers"], json!([FINALIZER]));
        f.sim.heal(fault);
        f.pass_time(Duration::from_secs(120)).await;
    }
    f.sync("web").await;
    assert_eq!(f.get::<Deployment>("web").await, None);
    assert_eq!(f.get::<Foo>("web").await, None);
}

#[tokio::test(start_paused = true)]
async fn foreign_finalizer_that_holds_a_deletion_is_named() {
    let mut f = held().await;
    f.create("web", spec(1)).await;
    f.converge("web").await;
    let hold = |foo: &mut Value| {
        foo["metadata"]["finalizers"].as_array_mut().unwrap().push(json!("example.com/hold"));
    };
    f.edit::<Foo>("web", hold).await;
    f.delete::<Foo>("web").await;
    f.catch_up().await;
    for _ in 0..4 {
        f.sync("web").await;
        f.pass_time(Duration::from_secs(60)).await;
    }
    assert_eq!(f.ready("web").await, (false, "Deleting".to_owned()));
    let text = message(&f).await;
    assert!(text.contains("these finalizers to be removed: example.com/hold"), "{text}");
    assert_eq!(f.sync("web").await, (Outcome::Done, vec![]), "reported once");
}

/// The write is refused (a webhook, a missing permission, annotations too long in total), or always fails.
#[tokio::test(start_paused = true)]
async fn failing_annotation_write_does_not_block_ready() {
    for (code, reason) in [(403, "Forbidden"), (422, "Invalid"), (500, "InternalError")] {
        let mut f = Fixture::new(PlainKind::annotating).await;
        let fault = f.sim.fault(own_refusal((code, reason)));
        f.create("web", spec(2)).await;
        for _ in 0..5 {
            drop(f.pass("web", &Reasons::default()).await);
            f.pass_time(Duration::from_secs(120)).await;
        }
        assert_eq!(f.ready("web").await, (true, "Available".to_owned()), "{code}");
        let (outcome, asked) = f.pass("web", &Reasons::default()).await;
        assert_eq!(asked, [WRITE], "{code}");
        let is_refusal = code != 500;
        let again = Outcome::RequeueAfter(Duration::from_secs(120));
        assert_eq!(outcome.ok(), is_refusal.then_some(again), "{code}: a refusal does not fail the pass");
        f.pass_time(Duration::from_secs(119)).await;
        let again = f.pass("web", &Reasons::default()).await.1;
        assert_eq!(again.is_empty(), is_refusal, "{code}: a refusal is not retried on every pass: {again:?}");
        for (value, replicas) in [("a", 2), ("b", 3)] {
            edit(&mut f, |foo| {
                foo["metadata"]["annotations"] = json!({"windlass.dev/reconcile-at": value});
                foo["spec"]["replicas"] = json!(replicas);
            })
            .await;
            let asked = f.pass("web", &Reasons::default()).await.1;
            assert_eq!(writes(&asked), 1, "{code}: {asked:?}");
        }
        scale(&mut f, 2).await;
        f.sim.heal(fault);
        f.converge("web").await;
        let annotations = f.get::<Foo>("web").await.unwrap()["metadata"]["annotations"].clone();
        assert_eq!(annotations[ANNOTATION], spec(2).to_string(), "{code}");
    }
}
