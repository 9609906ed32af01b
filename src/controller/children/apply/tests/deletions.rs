//! What is deleted, and after which reads.

use super::*;

#[tokio::test]
async fn a_delete_reads_replacement_and_owner_and_names_its_state() {
    let server = ObjectServer::default();
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

/// The answer to the POST was the live replacement.
#[tokio::test]
async fn a_replacement_that_was_just_created_is_not_read() {
    let server = ObjectServer::default();
    with_owner(&server, "owner-uid", 1);
    let object = live(&server, "Foo", "one", "owner-uid");
    let (children, replacement) = (children_of(&server), (&replacement(), true));
    let deletion = children.delete_replaced(&owner(), replacement, &child_ref(&object)).await.unwrap();
    assert_eq!(deletion, Deletion::Deleted);
    assert_eq!(server.requests(), [format!("GET {FOOS}/one"), format!("DELETE {WEB}")]);
}

#[tokio::test]
async fn a_delete_that_meets_a_conflict_is_tried_once_more() {
    let server = ObjectServer::default();
    with_owner(&server, "owner-uid", 1);
    let stale = live(&server, "Foo", "one", "owner-uid");
    let mut newer = stale.clone();
    newer["metadata"]["resourceVersion"] = json!("77");
    server.store(DEPLOYMENTS, newer);
    let (children, deployments) = (children_of(&server), ObservedDeployment::resource());
    let deletion = children.delete_surplus(&owner(), &deployments, &child_ref(&stale)).await.unwrap();
    assert_eq!(deletion, Deletion::Deleted);
    let asked =
        [format!("GET {FOOS}/one"), format!("DELETE {WEB}"), format!("GET {WEB}"), format!("DELETE {WEB}")];
    assert_eq!(server.requests(), asked);
}

/// B3: a child that was released, or is on its way out, by the time of the second try.
#[tokio::test]
async fn a_conflict_that_shows_a_released_child_ends_the_delete() {
    for change in ["released", "going", "another"] {
        let server = ObjectServer::default();
        with_owner(&server, "owner-uid", 1);
        let stale = live(&server, "Foo", "one", "owner-uid");
        let mut newer = stale.clone();
        let metadata = &mut newer["metadata"];
        metadata["resourceVersion"] = json!("77");
        match change {
            "released" => metadata["ownerReferences"] = json!([]),
            "going" => metadata["deletionTimestamp"] = json!("2026-01-01T00:00:00Z"),
            _ => metadata["uid"] = json!("another"),
        }
        server.store(DEPLOYMENTS, newer);
        let (children, deployments) = (children_of(&server), ObservedDeployment::resource());
        let deletion = children.delete_surplus(&owner(), &deployments, &child_ref(&stale)).await.unwrap();
        assert_eq!(deletion, Deletion::NothingToDo, "{change}");
        assert!(server.get(WEB).is_some());
    }
}

/// B1, B7: another life, another spec, a deletion under way, no owner at all.
#[tokio::test]
async fn a_delete_is_given_up_when_the_owner_has_moved_on() {
    for (uid, generation) in [("another life", 1), ("owner-uid", 2)] {
        let server = ObjectServer::default();
        with_owner(&server, uid, generation);
        with_replacement(&server);
        let web = live(&server, "Foo", "one", "owner-uid");
        assert_eq!(delete(&server, &web).await, Deletion::NotNow);
        assert!(server.get(WEB).is_some());
    }
    let server = ObjectServer::default();
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

#[tokio::test]
async fn a_delete_is_given_up_when_the_replacement_is_not_there() {
    let server = ObjectServer::default();
    with_owner(&server, "owner-uid", 1);
    let web = live(&server, "Foo", "one", "owner-uid");
    assert_eq!(delete(&server, &web).await, Deletion::NotNow, "the cache may have shown it; it is not there");
    let mut new = with_replacement(&server);
    new["spec"]["replicas"] = json!(9);
    server.store(DEPLOYMENTS, new.clone());
    assert_eq!(delete(&server, &web).await, Deletion::NotNow, "it is not as wanted");
    new["spec"]["replicas"] = json!(1);
    new["metadata"]["ownerReferences"][0]["uid"] = json!("another");
    server.store(DEPLOYMENTS, new);
    assert_eq!(delete(&server, &web).await, Deletion::NotNow, "it is not ours");
    assert!(server.get(WEB).is_some());
}

#[tokio::test]
async fn a_delete_of_what_is_gone_or_going_does_nothing() {
    let server = ObjectServer::default();
    with_owner(&server, "owner-uid", 1);
    with_replacement(&server);
    let mut object = live(&server, "Foo", "one", "owner-uid");
    server.remove(WEB);
    assert_eq!(delete(&server, &object).await, Deletion::NothingToDo);
    server.requests();
    object["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    let (children, deployments) = (children_of(&server), ObservedDeployment::resource());
    let deletion = children.delete_surplus(&owner(), &deployments, &child_ref(&object)).await.unwrap();
    assert_eq!(
        (deletion, server.requests().len()),
        (Deletion::NothingToDo, 0),
        "held by somebody's finalizer"
    );
}

/// B1, P6: the one that was judged is gone, and a new one has its name.
#[tokio::test]
async fn another_life_of_the_name_is_not_deleted_for_the_former_one() {
    let server = ObjectServer::default();
    with_owner(&server, "owner-uid", 1);
    let web = live(&server, "Foo", "one", "owner-uid");
    let (children, owner, deployments) = (children_of(&server), owner(), ObservedDeployment::resource());
    let now = child_ref(&web);
    let former = ChildRef { uid: "the former life".to_owned(), ..now.clone() };
    let surplus = children.delete_surplus(&owner, &deployments, &former).await.unwrap();
    assert_eq!(surplus, Deletion::NothingToDo);
    let (outdated, _) = children.delete_outdated(&owner, &deployments, &former, &[]).await.unwrap();
    assert_eq!(outdated, Deletion::NothingToDo);
    assert!(server.get(WEB).is_some());
    assert_eq!(children.delete_surplus(&owner, &deployments, &now).await.unwrap(), Deletion::Deleted);
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
        let web = child_ref(&live(&server, "Foo", "one", "owner-uid"));
        let (children, deployments) = (children_of(&server), ObservedDeployment::resource());
        assert_eq!(children.delete_of_deleted(&owner(), &deployments, &web).await.unwrap(), expected);
        assert_eq!(server.get(WEB).is_some(), expected != Deletion::Deleted);
    }
}
