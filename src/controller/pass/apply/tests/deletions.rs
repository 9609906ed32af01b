//! Deletions, and the reads that precede them.

use super::*;

#[tokio::test(start_paused = true)]
async fn delete_reads_replacement_and_owner_and_sets_preconditions() {
    let server = TestServer::start().await;
    with_owner(&server, "owner-uid", 1);
    with_replacement(&server);
    let object = live(&server, "Foo", "one", "owner-uid");
    assert_eq!(delete(&server, &object).await, Deletion::Deleted);
    let new = WEB.replace("web", "new");
    let asked = [format!("GET {new}"), format!("GET {FOOS}/one"), format!("DELETE {WEB}")];
    assert_eq!(server.requests(), asked);
    let preconditions = &server.last_body()["preconditions"];
    assert_eq!(preconditions["uid"], object["metadata"]["uid"]);
    assert_eq!(preconditions["resourceVersion"], object["metadata"]["resourceVersion"]);
}

/// The response to the POST proved that the replacement exists.
#[tokio::test(start_paused = true)]
async fn proven_replacement_is_not_read_again() {
    let server = TestServer::start().await;
    with_owner(&server, "owner-uid", 1);
    let object = live(&server, "Foo", "one", "owner-uid");
    let (children, replacement) = (children_of(&server), (&replacement(), true));
    let deletion = children.delete_replaced(&owner(), replacement, &child_ref(&object)).await.unwrap();
    assert_eq!(deletion, Deletion::Deleted);
    assert_eq!(server.requests(), [format!("GET {FOOS}/one"), format!("DELETE {WEB}")]);
}

#[tokio::test(start_paused = true)]
async fn conflicting_delete_is_retried_once() {
    let server = TestServer::start().await;
    with_owner(&server, "owner-uid", 1);
    let stale = live(&server, "Foo", "one", "owner-uid");
    server.store(DEPLOYMENTS, stale.clone());
    let (children, deployments) = (children_of(&server), ApiResource::of::<ObservedDeployment>());
    let deletion = children.delete_surplus(&owner(), &deployments, &child_ref(&stale)).await.unwrap();
    assert_eq!(deletion, Deletion::Deleted);
    let asked =
        [format!("GET {FOOS}/one"), format!("DELETE {WEB}"), format!("GET {WEB}"), format!("DELETE {WEB}")];
    assert_eq!(server.requests(), asked);
}

/// B3: by the second try the child was released, is being deleted, or was re-created.
#[tokio::test(start_paused = true)]
async fn delete_conflict_stops_on_released_or_replaced_child() {
    for change in ["released", "going", "another"] {
        let server = TestServer::start().await;
        with_owner(&server, "owner-uid", 1);
        let stale = live(&server, "Foo", "one", "owner-uid");
        let mut newer = stale.clone();
        let metadata = &mut newer["metadata"];
        match change {
            "released" => metadata["ownerReferences"] = json!([]),
            "going" => metadata["deletionTimestamp"] = json!("2026-01-01T00:00:00Z"),
            _ => metadata["uid"] = json!("another"),
        }
        server.store(DEPLOYMENTS, newer);
        let (children, deployments) = (children_of(&server), ApiResource::of::<ObservedDeployment>());
        let deletion = children.delete_surplus(&owner(), &deployments, &child_ref(&stale)).await.unwrap();
        assert_eq!(deletion, Deletion::NothingToDo, "{change}");
        assert!(server.get(WEB).is_some());
    }
}

/// B1, I5: the owner was re-created, has another spec, is being deleted, or is gone.
#[tokio::test(start_paused = true)]
async fn delete_is_skipped_when_owner_has_changed() {
    for (uid, generation) in [("another uid", 1), ("owner-uid", 2)] {
        let server = TestServer::start().await;
        with_owner(&server, uid, generation);
        with_replacement(&server);
        let web = live(&server, "Foo", "one", "owner-uid");
        assert_eq!(delete(&server, &web).await, Deletion::NotNow);
        assert!(server.get(WEB).is_some());
    }
    let server = TestServer::start().await;
    with_replacement(&server);
    let web = live(&server, "Foo", "one", "owner-uid");
    assert_eq!(delete(&server, &web).await, Deletion::NotNow, "the owner is gone");
    server.store(
        FOOS,
        json!({"metadata": {"name": "one", "uid": "owner-uid", "generation": 1,
        "deletionTimestamp": "2026-01-01T00:00:00Z"}}),
    );
    assert_eq!(delete(&server, &web).await, Deletion::NotNow, "the owner is being deleted");
    assert!(server.get(WEB).is_some());
}

#[tokio::test(start_paused = true)]
async fn delete_is_skipped_without_a_matching_replacement() {
    let server = TestServer::start().await;
    with_owner(&server, "owner-uid", 1);
    let web = live(&server, "Foo", "one", "owner-uid");
    assert_eq!(delete(&server, &web).await, Deletion::NotNow, "the replacement does not exist");
    let mut new = with_replacement(&server);
    new["spec"]["replicas"] = json!(9);
    server.store(DEPLOYMENTS, new.clone());
    assert_eq!(delete(&server, &web).await, Deletion::NotNow, "the replacement differs");
    new["spec"]["replicas"] = json!(1);
    new["metadata"]["ownerReferences"][0]["uid"] = json!("another");
    server.store(DEPLOYMENTS, new);
    assert_eq!(delete(&server, &web).await, Deletion::NotNow, "the replacement is not ours");
    assert!(server.get(WEB).is_some());
}

#[tokio::test(start_paused = true)]
async fn deleting_a_gone_or_terminating_child_does_nothing() {
    let server = TestServer::start().await;
    with_owner(&server, "owner-uid", 1);
    with_replacement(&server);
    let mut object = live(&server, "Foo", "one", "owner-uid");
    server.remove(WEB);
    assert_eq!(delete(&server, &object).await, Deletion::NothingToDo);
    server.requests();
    object["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    let (children, deployments) = (children_of(&server), ApiResource::of::<ObservedDeployment>());
    let deletion = children.delete_surplus(&owner(), &deployments, &child_ref(&object)).await.unwrap();
    assert_eq!(
        (deletion, server.requests().len()),
        (Deletion::NothingToDo, 0),
        "a finalizer of someone else holds it"
    );
}

/// B1, P6: the child that was decided on is gone, and a new one has its name.
#[tokio::test(start_paused = true)]
async fn recreated_child_with_same_name_is_not_deleted() {
    let server = TestServer::start().await;
    with_owner(&server, "owner-uid", 1);
    let web = live(&server, "Foo", "one", "owner-uid");
    let (children, owner, deployments) =
        (children_of(&server), owner(), ApiResource::of::<ObservedDeployment>());
    let now = child_ref(&web);
    let former = ChildRef { uid: "former uid".to_owned(), ..now.clone() };
    let surplus = children.delete_surplus(&owner, &deployments, &former).await.unwrap();
    assert_eq!(surplus, Deletion::NothingToDo);
    let outdated = children.delete_outdated(&owner, &deployments, &former).await.unwrap();
    assert_eq!(outdated, Deletion::NothingToDo);
    assert!(server.get(WEB).is_some());
    assert_eq!(children.delete_surplus(&owner, &deployments, &now).await.unwrap(), Deletion::Deleted);
}

/// I3: our label and a reference that is not the controller's do not make an object ours to delete.
#[tokio::test(start_paused = true)]
async fn child_without_controller_reference_is_not_deleted() {
    let server = TestServer::start().await;
    with_owner(&server, "owner-uid", 1);
    let mut web = live(&server, "Foo", "one", "owner-uid");
    web["metadata"]["ownerReferences"][0]["controller"] = json!(false);
    let web = server.store(DEPLOYMENTS, web);
    server.requests();
    let (children, owner, deployments) =
        (children_of(&server), owner(), ApiResource::of::<ObservedDeployment>());
    let deletion = children.delete_surplus(&owner, &deployments, &child_ref(&web)).await.unwrap();
    assert_eq!((deletion, server.requests().len()), (Deletion::NothingToDo, 0));
    assert_eq!(children.with_label(&owner, &deployments).await.unwrap(), []);
    assert_eq!(children.without_label(&owner, &deployments).await.unwrap(), []);
}

#[tokio::test(start_paused = true)]
async fn deleted_owner_deletes_children_unless_orphaned() {
    let deleted = "2026-01-01T00:00:00Z";
    for (metadata, expected) in [
        (json!({"name": "one", "uid": "owner-uid", "deletionTimestamp": deleted}), Deletion::Deleted),
        (json!({"name": "one", "uid": "owner-uid"}), Deletion::NotNow),
        (json!({"name": "one", "uid": "another uid", "deletionTimestamp": deleted}), Deletion::NotNow),
        (
            json!({"name": "one", "uid": "owner-uid", "deletionTimestamp": deleted, "finalizers": ["orphan"]}),
            Deletion::NotNow,
        ),
    ] {
        let server = TestServer::start().await;
        server.store(FOOS, json!({"metadata": metadata}));
        let web = child_ref(&live(&server, "Foo", "one", "owner-uid"));
        let (children, deployments) = (children_of(&server), ApiResource::of::<ObservedDeployment>());
        assert_eq!(children.delete_of_deleted(&owner(), &deployments, &web).await.unwrap(), expected);
        assert_eq!(server.get(WEB).is_some(), expected != Deletion::Deleted);
    }
}
