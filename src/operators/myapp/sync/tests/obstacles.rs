//! What is told of one obstacle after another, and of what is put back beside one.

use super::*;
use crate::workqueue::Reasons;

async fn put_foreign(f: &Fixture<MyappSync>) {
    f.put::<Deployment>(json!({"metadata": {"name": "web"}, "spec": {"replicas": 0,
        "selector": {"matchLabels": {"a": "b"}}, "template": {"metadata": {"labels": {"a": "b"}},
        "spec": {"containers": [{"name": "c", "image": "i"}]}}}}))
        .await;
    f.put::<Service>(json!({"metadata": {"name": "web"}, "spec": {"ports": [{"port": 1}]}})).await;
}

/// Children of a Myapp have one name, and the text of a taken name tells no kind.
#[tokio::test(start_paused = true)]
async fn a_taken_name_of_another_child_is_reported_as_well() {
    let mut f = fixture().await;
    put_foreign(&f).await;
    f.create("web", spec(&json!({}))).await;
    f.sync("web").await;
    assert_eq!(f.events(), ["ErrResourceExists"]);
    f.pass_time(Duration::from_secs(30)).await;
    f.sync("web").await;
    assert_eq!(f.events(), Vec::<&str>::new(), "it was told");
    f.delete::<Deployment>("web").await;
    f.pass_time(Duration::from_secs(30)).await;
    f.sync("web").await;
    assert_eq!(f.events(), ["ChildCreated", "ErrResourceExists"], "the Service's");
    f.pass_time(Duration::from_secs(30)).await;
    f.sync("web").await;
    assert_eq!(f.events(), Vec::<&str>::new(), "once");
}

#[tokio::test(start_paused = true)]
async fn a_new_process_does_not_repeat_a_taken_name() {
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
async fn a_refusal_of_another_child_is_reported_as_well() {
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
    let told: Vec<&str> = notes.iter().map(|(reason, _)| *reason).collect();
    assert_eq!(told, ["ChildCreated", "ChildRefused"]);
    assert!(notes[1].1.contains("Service \"web\""), "{notes:?}");
}

/// A webhook sets the replicas that we write; by hand the labels are changed.
#[tokio::test(start_paused = true)]
async fn what_is_put_back_beside_what_is_not_is_reported() {
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
async fn a_status_stored_behind_a_lost_answer_is_reported() {
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
        assert_eq!(f.events().len(), usize::from(!is_stored), "{action:?}: once");
    }
}
