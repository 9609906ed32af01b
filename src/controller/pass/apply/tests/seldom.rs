//! Refused writes and taken names are not retried in every sync.

use super::*;

/// This holds whatever triggers the sync.
#[tokio::test(start_paused = true)]
async fn refused_update_is_not_retried_on_every_pass() {
    let server = TestServer::start().await;
    with_owner(&server, "owner-uid", 1);
    let object = cached(&live(&server, "Foo", "one", "owner-uid"));
    let children = children_of(&server);
    let again = async |owner: &Owner, replicas| {
        server.refuse("patch", 422, "Invalid");
        let answer = children.apply(owner, &wanted(replicas), Some(&object), false).await.unwrap();
        let ApplyOutcome::Refused { observed: Some(_), status, requeue_after } = answer else {
            panic!("{answer:?}")
        };
        assert_eq!(status.reason, "Invalid");
        (
            requeue_after.as_secs(),
            server.requests().iter().filter(|request| request.starts_with("PATCH")).count(),
        )
    };
    assert_eq!(again(&owner(), 2).await, (120, 1));
    tokio::time::advance(Duration::from_secs(20)).await;
    assert_eq!(again(&owner(), 2).await, (100, 0));
    assert_eq!(server.requests(), Vec::<String>::new(), "nothing is sent");
    assert_eq!(again(&owner(), 3).await, (120, 1), "a new spec is tried at once");
    let asked = Owner { reconcile_at: Some("now".to_owned()), ..owner() };
    assert_eq!(again(&asked, 3).await, (120, 1), "a user's request is tried at once");
    tokio::time::advance(Duration::from_secs(120)).await;
    assert_eq!(again(&asked, 3).await, (120, 1));
}

/// The child is created by other means, and then deleted by hand.
#[tokio::test(start_paused = true)]
async fn hold_is_cleared_once_the_child_exists() {
    let server = TestServer::start().await;
    with_owner(&server, "owner-uid", 1);
    let children = children_of(&server);
    server.refuse("create", 403, "Forbidden");
    let answer = children.apply(&owner(), &wanted(1), None, false).await.unwrap();
    assert!(matches!(answer, ApplyOutcome::Refused { .. }), "{answer:?}");
    let object = live(&server, "Foo", "one", "owner-uid");
    children.apply(&owner(), &wanted(1), Some(&cached(&object)), false).await.unwrap();
    server.remove(WEB);
    let answer = children.apply(&owner(), &wanted(1), None, false).await.unwrap();
    assert!(matches!(answer, ApplyOutcome::Created(_)), "{answer:?}");
}

/// An object without our label is not in the cache. The deletion of a cached object is noticed at once.
#[tokio::test(start_paused = true)]
async fn taken_name_is_not_retried_on_every_pass() {
    let server = TestServer::start().await;
    with_owner(&server, "owner-uid", 1);
    let children = children_of(&server);
    let theirs = live(&server, "Bar", "one", "another");
    let again = async |cache: Option<&Value>| {
        let answer = children.apply(&owner(), &wanted(1), cache.map(cached).as_ref(), false).await.unwrap();
        let ApplyOutcome::ResourceExists { requeue_after } = answer else { panic!("{answer:?}") };
        (requeue_after.as_secs(), server.requests().len())
    };
    assert_eq!(again(None).await, (30, 2));
    tokio::time::advance(Duration::from_secs(20)).await;
    assert_eq!(again(None).await, (10, 0));
    tokio::time::advance(Duration::from_secs(10)).await;
    assert_eq!(again(None).await, (30, 2));
    assert_eq!(again(Some(&theirs)).await, (30, 0), "its deletion will be an event");
    server.remove(WEB);
    let answer = children.apply(&owner(), &wanted(1), None, false).await.unwrap();
    assert!(matches!(answer, ApplyOutcome::Created(_)), "{answer:?}");
}
