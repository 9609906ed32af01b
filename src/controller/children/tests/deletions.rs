//! What is deleted, and after which reads.

use super::*;

#[tokio::test]
async fn a_delete_reads_replacement_child_and_owner_live_first() {
    let server = ObjectServer::default();
    with_owner(&server, "owner-uid", 1);
    with_replacement(&server);
    let object = live(&server, "Foo", "one", "owner-uid");
    assert_eq!(delete(&server).await, Deletion::Deleted);
    let new = WEB.replace("web", "new");
    let asked =
        [format!("GET {new}"), format!("GET {WEB}"), format!("GET {FOOS}/one"), format!("DELETE {WEB}")];
    assert_eq!(server.requests(), asked);
    let preconditions = &server.last_body()["preconditions"];
    assert_eq!(preconditions["uid"], object["metadata"]["uid"]);
    assert_eq!(preconditions["resourceVersion"], object["metadata"]["resourceVersion"]);
}

/// B1, B7: another life, another spec, a deletion under way, no owner at all.
#[tokio::test]
async fn a_delete_is_given_up_when_the_owner_has_moved_on() {
    for (uid, generation) in [("another life", 1), ("owner-uid", 2)] {
        let server = ObjectServer::default();
        with_owner(&server, uid, generation);
        with_replacement(&server);
        live(&server, "Foo", "one", "owner-uid");
        assert_eq!(delete(&server).await, Deletion::NotNow);
        assert!(server.get(WEB).is_some());
    }
    let server = ObjectServer::default();
    with_replacement(&server);
    live(&server, "Foo", "one", "owner-uid");
    assert_eq!(delete(&server).await, Deletion::NotNow, "the owner is gone");
    server.store(
        FOOS,
        json!({"metadata": {"name": "one", "uid": "owner-uid", "generation": 1,
        "deletionTimestamp": "2026-01-01T00:00:00Z"}}),
    );
    assert_eq!(delete(&server).await, Deletion::NotNow, "the owner is being deleted");
    assert!(server.get(WEB).is_some());
}

#[tokio::test]
async fn a_delete_is_given_up_when_the_replacement_is_not_there() {
    let server = ObjectServer::default();
    with_owner(&server, "owner-uid", 1);
    live(&server, "Foo", "one", "owner-uid");
    assert_eq!(delete(&server).await, Deletion::NotNow, "the cache may have shown it; it is not there");
    let mut new = with_replacement(&server);
    new["spec"]["replicas"] = json!(9);
    server.store(DEPLOYMENTS, new.clone());
    assert_eq!(delete(&server).await, Deletion::NotNow, "it is not as wanted");
    new["spec"]["replicas"] = json!(1);
    new["metadata"]["ownerReferences"][0]["uid"] = json!("another");
    server.store(DEPLOYMENTS, new);
    assert_eq!(delete(&server).await, Deletion::NotNow, "it is not ours");
    assert!(server.get(WEB).is_some());
}

#[tokio::test]
async fn a_delete_of_what_is_not_ours_or_gone_does_nothing() {
    let server = ObjectServer::default();
    with_owner(&server, "owner-uid", 1);
    with_replacement(&server);
    live(&server, "Foo", "two", "another");
    assert_eq!(delete(&server).await, Deletion::NothingToDo);
    server.remove(WEB);
    assert_eq!(delete(&server).await, Deletion::NothingToDo);
    let mut held = live(&server, "Foo", "one", "owner-uid");
    held["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    server.store(DEPLOYMENTS, held);
    assert_eq!(
        delete(&server).await,
        Deletion::NothingToDo,
        "it is on its way out, held by somebody's finalizer"
    );
}

/// B1, P6: the one that was judged is gone, and a new one has its name.
#[tokio::test]
async fn another_life_of_the_name_is_not_deleted_for_the_former_one() {
    let server = ObjectServer::default();
    with_owner(&server, "owner-uid", 1);
    let web = live(&server, "Foo", "one", "owner-uid");
    let (children, owner) = (children_of(&server), owner());
    let delete = async |life| children.delete_surplus::<ObservedDeployment>(&owner, "web", Some(life)).await;
    assert_eq!(delete("the former life").await.unwrap(), Deletion::NothingToDo);
    let (outdated, _) = children
        .delete_outdated::<ObservedDeployment>(&owner, ("web", Some("the former life")), &[])
        .await
        .unwrap();
    assert_eq!(outdated, Deletion::NothingToDo);
    assert!(server.get(WEB).is_some());
    assert_eq!(delete(web["metadata"]["uid"].as_str().unwrap()).await.unwrap(), Deletion::Deleted);
}

#[tokio::test]
async fn a_child_goes_with_its_owner_unless_it_is_orphaned() {
    let deleted = "2026-01-01T00:00:00Z";
    for (metadata, expected) in [
        (json!({"name": "one", "uid": "owner-uid", "deletionTimestamp": deleted}), Deletion::Deleted),
        (json!({"name": "one", "uid": "owner-uid"}), Deletion::NotNow),
        (json!({"name": "one", "uid": "another life", "deletionTimestamp": deleted}), Deletion::NotNow),
        (
            json!({"name": "one", "uid": "owner-uid", "deletionTimestamp": deleted, "finalizers": ["orphan"]}),
            Deletion::NotNow,
        ),
    ] {
        let server = ObjectServer::default();
        server.store(FOOS, json!({"metadata": metadata}));
        live(&server, "Foo", "one", "owner-uid");
        let deletion = children_of(&server).delete_of_deleted::<ObservedDeployment>(&owner(), "web").await;
        assert_eq!(deletion.unwrap(), expected);
        assert_eq!(server.get(WEB).is_some(), expected != Deletion::Deleted);
    }
}
