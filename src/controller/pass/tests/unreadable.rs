//! Objects that do not decode.

use super::*;

/// Stores a spec that does not decode, and updates the caches.
async fn break_spec<R: Reconcile<Resource = Foo>>(f: &mut Fixture<R>) {
    f.edit_behind::<Foo>("web", |foo| foo["spec"]["replicas"] = json!("three")).await;
    f.catch_up().await;
}

/// R16
#[tokio::test(start_paused = true)]
async fn an_unreadable_object_keeps_its_children() {
    let mut f = plain().await;
    f.create("web", spec(2)).await;
    f.sync("web").await;
    break_spec(&mut f).await;
    let asked = ["get foos/web", "update foos/web/status"].map(str::to_owned).to_vec();
    assert_eq!(f.sync("web").await, (Outcome::Done, asked));
    assert!(f.get::<Deployment>("web").await.is_some());
    assert_eq!(f.ready("web").await.1, "Unreadable");
    assert_eq!(f.sync("web").await.1, ["get foos/web"], "the status is written once");
}

/// The cache holds the broken object, which has been corrected on the server.
#[tokio::test(start_paused = true)]
async fn a_corrected_object_is_not_called_unreadable() {
    let mut f = plain().await;
    f.create("web", spec(2)).await;
    break_spec(&mut f).await;
    f.edit::<Foo>("web", |foo| foo["spec"]["replicas"] = json!(3)).await;
    assert_eq!(f.sync("web").await.1, ["get foos/web"]);
}

#[tokio::test(start_paused = true)]
async fn deleted_unreadable_object_is_released_when_orphaned() {
    let mut f = held().await;
    f.create("web", spec(2)).await;
    f.sync("web").await;
    break_spec(&mut f).await;
    f.orphan("web").await;
    assert_eq!(f.sync("web").await.1, ["get foos/web", "patch foos/web"]);
    f.pass_time(Duration::from_secs(60)).await;
    assert_eq!(f.get::<Foo>("web").await, None);
    assert!(f.get::<Deployment>("web").await.is_some());
}

#[tokio::test(start_paused = true)]
async fn deleted_unreadable_object_reports_how_to_release_it() {
    let mut f = held().await;
    f.create("web", spec(2)).await;
    f.sync("web").await;
    break_spec(&mut f).await;
    f.delete::<Foo>("web").await;
    f.catch_up().await;
    f.sync("web").await;
    assert_eq!(f.get::<Foo>("web").await.unwrap()["metadata"]["finalizers"], json!([FINALIZER]));
    assert_eq!(f.ready("web").await.1, "Unreadable");
    let text = message(&f).await;
    assert!(text.contains("remove the finalizer windlass.dev/test"), "{text}");
}

#[tokio::test(start_paused = true)]
async fn unreadable_object_held_by_others_names_no_finalizer() {
    let mut f = held().await;
    f.create("web", spec(2)).await;
    f.edit::<Foo>("web", |foo| foo["metadata"]["finalizers"] = json!(["example.com/other"])).await;
    break_spec(&mut f).await;
    f.orphan("web").await;
    assert_eq!(f.sync("web").await.1, ["get foos/web", "update foos/web/status"]);
    let text = message(&f).await;
    assert!(text.contains("its children are left unchanged"), "{text}");
}
