//! Events of a Redis: each change is recorded once, with the Pod names.

use super::*;
use crate::cache::ObjectName;
use crate::workqueue::Reasons;

/// Runs a sync that must fail, and updates the caches.
async fn fails(f: &mut Fixture<RedisSync>) {
    let (outcome, asked) = f.pass("x", &Reasons::default()).await;
    assert!(outcome.is_err(), "{asked:?}");
    f.catch_up().await;
}

fn failure(verb: &str) -> Fault {
    Fault::new(When::verb(verb).resource("pods").skip(1).times(1), Action::refuse(500, "InternalError"))
}

#[tokio::test(start_paused = true)]
async fn large_scale_up_is_split_across_passes() {
    let mut f = fixture().await;
    f.create("x", spec(200)).await;
    for _ in 0..3 {
        f.sync("x").await;
    }
    let notes = f.notes();
    let reasons: Vec<&str> = notes.iter().map(|(reason, _)| *reason).collect();
    assert_eq!(reasons, ["ScaledUp", "ScaledUp"], "{notes:?}");
    assert!(notes[0].1.starts_with("Scaled up from 0 to 128: x-0, "), "{notes:?}");
    assert!(notes[1].1.starts_with("Scaled up from 128 to 200: x-128, "), "{notes:?}");
}

/// Runs a sync while the server's time goes on, and returns the number of its requests with this verb.
async fn timed(f: &mut Fixture<RedisSync>, verb: &str) -> (usize, Outcome) {
    let sim = f.sim.clone();
    let (outcome, asked) = tokio::select! {
        pass = f.sync("x") => pass,
        () = sim.run() => unreachable!("it ends with the test"),
    };
    (asked.iter().filter(|asked| asked.starts_with(verb)).count(), outcome)
}

#[tokio::test(start_paused = true)]
async fn large_scale_leaves_turns_to_waiting_keys() {
    let mut f = fixture().await;
    for verb in ["create", "delete"] {
        f.sim.fault(Fault::new(When::verb(verb).resource("pods"), Action::Delay(Duration::from_millis(300))));
    }
    let other = || ObjectName::new(Some("ns"), "other");
    f.others.add(other());
    f.create("x", spec(60)).await;
    // Batches of 1, 2, 4 and 8, until a second has passed.
    assert_eq!(timed(&mut f, "create").await, (15, Outcome::RequeueAfter(CUT_RETRY)));
    drop(f.others.get().await);
    assert_eq!(timed(&mut f, "create").await.0, 45, "no other key waits");
    f.converge("x").await;

    f.others.add(other());
    scale(&mut f, 30).await;
    assert_eq!(timed(&mut f, "delete").await, (15, Outcome::RequeueAfter(CUT_RETRY)));
    assert_eq!(f.ready("x").await, (false, "Progressing".to_owned()));
    f.delete::<Redis>("x").await;
    f.catch_up().await;
    let deleted = timed(&mut f, "delete").await;
    assert_eq!(deleted, (15, Outcome::RequeueAfter(CUT_RETRY)), "a deletion, too");
}

/// The first Pod's name is taken, and the server takes more than a second to say so.
#[tokio::test(start_paused = true)]
async fn turn_that_ends_before_a_pod_was_created_is_continued_soon() {
    let mut f = fixture().await;
    f.put::<Pod>(json!({"metadata": {"name": "x-0"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}))
        .await;
    let slow = When::verb("create").resource("pods").times(1);
    f.sim.fault(Fault::new(slow, Action::Delay(Duration::from_millis(1200))));
    f.others.add(ObjectName::new(Some("ns"), "other"));
    f.create("x", spec(3)).await;
    let outcome = Outcome::WaitForUser { requeue_after: Some(CUT_RETRY) };
    assert_eq!(timed(&mut f, "create").await, (1, outcome));
    drop(f.others.get().await);
    timed(&mut f, "create").await;
    assert_eq!(f.names::<Pod>().await, ["x-0", "x-1", "x-2"]);
}

#[tokio::test(start_paused = true)]
async fn many_taken_names_do_not_block_the_rest() {
    let mut f = fixture().await;
    for ordinal in 0..WRITES_MAX {
        let spec = json!({"containers": [{"name": "c", "image": "i"}]});
        f.put::<Pod>(json!({"metadata": {"name": format!("x-{ordinal}")}, "spec": spec})).await;
    }
    f.create("x", spec(130)).await;
    f.sync("x").await;
    assert_eq!(f.notes()[0], ("ScaledUp", "Scaled up from 0 to 2: x-128, x-129".to_owned()));
    assert_eq!(f.ready("x").await, (false, "ResourceExists".to_owned()));
    f.pass_time(Duration::from_secs(1)).await;
    let (outcome, asked) = f.sync("x").await;
    let Outcome::WaitForUser { requeue_after: Some(time) } = outcome else { panic!("{outcome:?}") };
    assert!(time > Duration::from_secs(20), "{time:?}");
    assert!(asked.iter().all(|asked| asked == "update redis/x/status"), "{asked:?}");
}

#[tokio::test(start_paused = true)]
async fn freed_name_counts_as_scale_up() {
    let mut f = fixture().await;
    f.put::<Pod>(json!({"metadata": {"name": "x-1"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}))
        .await;
    f.create("x", spec(3)).await;
    f.sync("x").await;
    f.sync("x").await;
    assert_eq!(f.notes()[0], ("ScaledUp", "Scaled up from 0 to 2: x-0, x-2".to_owned()));
    // A recreated Pod is recognized even while another Pod is missing.
    f.delete::<Pod>("x-0").await;
    f.pass_time(Duration::from_secs(60)).await;
    f.sync("x").await;
    assert_eq!(f.notes(), [("PodRecreated", "Recreated x-0".to_owned())]);
    f.delete::<Pod>("x-1").await;
    f.pass_time(Duration::from_secs(60)).await;
    // A restarted operator recognizes the Pod as well.
    f.restart(|caches, _| RedisSync { pods: caches.lister() }).await;
    f.sync("x").await;
    assert_eq!(f.notes(), [("ScaledUp", "Scaled up from 2 to 3: x-1".to_owned())]);
    f.converge("x").await;
    f.delete::<Pod>("x-1").await;
    f.pass_time(Duration::from_secs(60)).await;
    f.restart(|caches, _| RedisSync { pods: caches.lister() }).await;
    f.sync("x").await;
    assert_eq!(f.notes(), [("PodRecreated", "Recreated x-1".to_owned())]);
}

#[tokio::test(start_paused = true)]
async fn pod_recreated_after_scale_down_is_scale_up() {
    let mut f = fixture().await;
    f.create("x", spec(3)).await;
    f.converge("x").await;
    let held = |pod: &mut Value, by: Value| pod["metadata"]["finalizers"] = by;
    f.edit::<Pod>("x-2", |pod| held(pod, json!(["windlass.dev/hold-for-the-test"]))).await;
    scale(&mut f, 1).await;
    f.sync("x").await;
    f.pass_time(Duration::from_secs(60)).await;
    scale(&mut f, 3).await;
    f.sync("x").await;
    assert_eq!(f.ready("x").await.1, "WaitingForDeletion");
    f.events();
    f.edit::<Pod>("x-2", |pod| held(pod, Value::Null)).await;
    f.pass_time(Duration::from_secs(60)).await;
    f.converge("x").await;
    assert_eq!(f.notes(), [("ScaledUp", "Scaled up from 2 to 3: x-2".to_owned())]);
}

#[tokio::test(start_paused = true)]
async fn one_pass_reports_recreated_and_new_pods_separately() {
    let mut f = fixture().await;
    f.create("x", spec(2)).await;
    f.converge("x").await;
    f.events();
    f.delete::<Pod>("x-0").await;
    f.pass_time(Duration::from_secs(60)).await;
    scale(&mut f, 3).await;
    f.sync("x").await;
    let again = ("PodRecreated", "Recreated x-0".to_owned());
    assert_eq!(f.notes(), [again, ("ScaledUp", "Scaled up from 2 to 3: x-2".to_owned())]);
}

#[tokio::test(start_paused = true)]
async fn interrupted_scale_down_reports_deleted_pods() {
    let mut f = fixture().await;
    f.create("x", spec(4)).await;
    f.converge("x").await;
    f.events();
    scale(&mut f, 1).await;
    f.sim.fault(failure("delete"));
    fails(&mut f).await;
    assert_eq!(f.notes(), [("ScaledDown", "Scaled down from 4 to 2: x-3, x-1".to_owned())]);
    f.sync("x").await;
    assert_eq!(f.notes(), [("ScaledDown", "Scaled down from 2 to 1: x-2".to_owned())]);
    f.converge("x").await;
    assert_eq!(f.names::<Pod>().await, ["x-0"]);
}

#[tokio::test(start_paused = true)]
async fn interrupted_scale_up_reports_created_pods() {
    let mut f = fixture().await;
    f.create("x", spec(3)).await;
    f.sim.fault(failure("create"));
    fails(&mut f).await;
    assert_eq!(f.notes(), [("ScaledUp", "Scaled up from 0 to 2: x-0, x-2".to_owned())]);
    f.sync("x").await;
    assert_eq!(f.notes(), [("ScaledUp", "Scaled up from 2 to 3: x-1".to_owned())]);
    f.converge("x").await;
    assert_eq!(f.events(), Vec::<&str>::new());
}

#[tokio::test(start_paused = true)]
async fn deleting_event_is_recorded_once_despite_failures() {
    let mut f = fixture().await;
    f.create("x", spec(3)).await;
    f.converge("x").await;
    f.events();
    f.delete::<Redis>("x").await;
    f.catch_up().await;
    f.sim.fault(failure("delete"));
    fails(&mut f).await;
    assert_eq!(f.ready("x").await, (false, "Deleting".to_owned()));
    f.sync("x").await;
    assert_eq!(f.notes(), [("Deleting", "Deleting 3 Pods before this Redis is removed".to_owned())]);
    f.pass_time(Duration::from_secs(60)).await;
    f.sync("x").await;
    assert_eq!(f.get::<Redis>("x").await, None);
}
