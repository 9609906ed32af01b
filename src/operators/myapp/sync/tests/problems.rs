//! Reports of successive problems, and of repairs beside a problem.

use super::*;
use crate::workqueue::Reasons;

async fn put_foreign(f: &Fixture<MyappSync>) {
    f.put::<Deployment>(json!({"metadata": {"name": "web"}, "spec": {"replicas": 0,
        "selector": {"matchLabels": {"a": "b"}}, "template": {"metadata": {"labels": {"a": "b"}},
        "spec": {"containers": [{"name": "c", "image": "i"}]}}}}))
        .await;
    f.put::<Service>(json!({"metadata": {"name": "web"}, "spec": {"ports": [{"port": 1}]}})).await;
}

/// All children of a Myapp share one name, and the message for a taken name does not include the kind.
#[tokio::test(start_paused = true)]
async fn taken_name_of_a_second_child_is_reported() {
    let mut f = fixture().await;
    put_foreign(&f).await;
    f.create("web", spec(&json!({}))).await;
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
    let mut f = fixture().await;
    put_foreign(&f).await;
    f.create("web", spec(&json!({}))).await;
    f.sync("web").await;
    f.restart(|caches, _| MyappSync {
        deployments: caches.lister(),
        services: caches.lister(),
        ingresses: caches.lister(),
    })
    .await;
    f.sync("web").await;
    assert_eq!(f.events(), Vec::<&str>::new());
}

#[tokio::test(start_paused = true)]
async fn refusal_of_a_second_child_is_reported() {
    let mut f = fixture().await;
    let refuse = |plural: &str| {
        f.sim.fault(Fault::new(When::verb("create").resource(plural), Action::refuse(403, "Forbidden")))
    };
    let (deployments, _) = (refuse("deployments"), refuse("services"));
    f.create("web", spec(&json!({}))).await;
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

/// A webhook overrides the replicas, and the image is edited by hand.
#[tokio::test(start_paused = true)]
async fn repaired_field_is_reported_beside_contended_field() {
    let mut f = fixture().await;
    f.create("web", spec(&json!({}))).await;
    f.converge("web").await;
    f.events();
    f.sim.fault(Fault::new(
        When::verb("patch").resource("deployments").user("operator"),
        Action::Edit(json!({"spec": {"replicas": 7}})),
    ));
    let change = async |f: &mut Fixture<MyappSync>, image: &str| {
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

#[tokio::test(start_paused = true)]
async fn status_stored_despite_lost_response_counts_as_written() {
    for (action, is_stored) in
        [(Action::FailAfter(504), true), (Action::DropAfter, true), (Action::DropBefore, false)]
    {
        let mut f = fixture().await;
        put_foreign(&f).await;
        let writes = When::verb("patch").resource("myapps/status").times(1);
        f.sim.fault(Fault::new(writes, action.clone()));
        f.create("web", spec(&json!({}))).await;
        let (outcome, _) = f.pass("web", &Reasons::default()).await;
        f.catch_up().await;
        assert_eq!(outcome.is_ok(), is_stored, "{action:?}: {outcome:?}");
        assert_eq!(f.events().len(), usize::from(is_stored), "{action:?}");
        f.sync("web").await;
        assert_eq!(f.events().len(), usize::from(!is_stored), "{action:?}: reported once");
    }
}
