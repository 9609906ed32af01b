//! Events of transitions, and of changes to children.

use super::*;

#[tokio::test(start_paused = true)]
async fn events_come_on_transitions_only() {
    let mut f = plain().await;
    f.create("web", spec(2)).await;
    f.sync("web").await;
    f.pass_time(Duration::from_secs(60)).await;
    f.sync("web").await;
    assert_eq!(f.events(), ["ChildCreated", "Synced"]);
    f.sync("web").await;
    assert_eq!(f.events(), Vec::<&str>::new());
    f.restart(|caches, _| PlainKind::new(caches)).await;
    f.sync("web").await;
    assert_eq!(f.events(), Vec::<&str>::new(), "a restart repeats no event");
}

/// W13
#[tokio::test(start_paused = true)]
async fn child_altered_by_webhook_is_reported_as_created() {
    let mut f = plain().await;
    for verb in ["create", "patch"] {
        let writes = When::verb(verb).resource("deployments").user("operator");
        f.sim.fault(Fault::new(writes, Action::Edit(json!({"spec": {"replicas": 7}}))));
    }
    f.create("web", spec(2)).await;
    for _ in 0..3 {
        f.sync("web").await;
    }
    assert_eq!(f.ready("web").await.1, "StoredOtherwise");
    assert_eq!(f.events(), ["ChildCreated"]);
}

/// W12
#[tokio::test(start_paused = true)]
async fn spec_refused_at_first_is_no_repair() {
    let mut f = plain().await;
    f.create("web", spec(2)).await;
    f.sync("web").await;
    f.events();
    scale(&mut f, 3).await;
    let fault = f.sim.fault(refusal("patch", "deployments", (422, "Invalid")));
    f.sync("web").await;
    f.sim.heal(fault);
    f.pass_time(Duration::from_secs(120)).await;
    f.sync("web").await;
    assert_eq!(f.events(), ["ChildRefused"]);
}

/// The cached object is stale: nothing is repaired or reported for its old spec.
#[tokio::test(start_paused = true)]
async fn pass_over_an_outdated_spec_reports_nothing() {
    let mut f = plain().await;
    f.create("web", spec(2)).await;
    f.sync("web").await;
    f.events();
    scale_by_hand(&f, 9).await;
    f.catch_up().await;
    f.edit::<Foo>("web", |foo| foo["spec"]["replicas"] = json!(3)).await;
    assert_eq!(f.sync_without_catch_up("web").await, (Outcome::Done, vec!["get foos/web".to_owned()]));
    assert_eq!(f.events(), Vec::<&str>::new());
    assert_eq!(f.get::<Deployment>("web").await.unwrap()["spec"]["replicas"], 9);
}

#[tokio::test(start_paused = true)]
async fn repair_is_reported_while_another_child_is_blocked() {
    let mut f = with_service().await;
    f.put::<Service>(json!({"metadata": {"name": "web"}, "spec": {"ports": [{"port": 1}]}})).await;
    f.create("web", spec(2)).await;
    f.sync("web").await;
    assert_eq!(f.ready("web").await.1, "ResourceExists");
    f.events();
    scale_by_hand(&f, 9).await;
    f.catch_up().await;
    f.sync("web").await;
    let note = "Repaired Deployment \"web\": spec.replicas was 9, wanted 2".to_owned();
    assert_eq!(f.notes(), [("ChildRepaired", note)]);
}

/// A webhook overrides the replicas, and the image is edited by hand.
#[tokio::test(start_paused = true)]
async fn repaired_field_is_reported_beside_contended_field() {
    let mut f = plain().await;
    f.create("web", spec(2)).await;
    f.converge("web").await;
    f.events();
    f.sim.fault(Fault::new(
        When::verb("patch").resource("deployments").user("operator"),
        Action::Edit(json!({"spec": {"replicas": 7}})),
    ));
    let change = async |f: &mut Fixture<PlainKind>, image: &str| {
        f.edit::<Deployment>("web", |live| {
            live["spec"]["replicas"] = json!(7);
            live["spec"]["template"]["spec"]["containers"][0]["image"] = json!(image);
        })
        .await;
        f.catch_up().await;
    };
    change(&mut f, "evil:1").await;
    f.sync("web").await;
    assert_eq!(f.ready("web").await.1, "StoredOtherwise");
    let notes = f.notes();
    let [("ChildRepaired", note)] = &notes[..] else { panic!("{notes:?}") };
    assert!(note.contains("image was \"evil:1\"") && !note.contains("replicas"), "{note}");
    while f.ready("web").await.1 != "Contended" {
        f.sync("web").await;
    }
    f.events();
    change(&mut f, "evil:2").await;
    f.sync("web").await;
    assert_eq!(f.ready("web").await.1, "Contended");
    let notes = f.notes();
    let [("ChildRepaired", note)] = &notes[..] else { panic!("{notes:?}") };
    assert!(note.contains("image was \"evil:2\"") && !note.contains("replicas"), "{note}");
}
