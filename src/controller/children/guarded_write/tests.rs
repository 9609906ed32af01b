use std::sync::Arc;
use std::time::Duration;

use serde_json::json;

use super::*;
use crate::api::samplecontroller::v1alpha1::Foo;
use crate::controller::children::owner_evidence::EVIDENCE_AGE;
use crate::controller::run::consistency::{Consistency, Frozen};
use crate::testing::test_server::{TestServer, version_of};

const FOOS: &str = "/apis/samplecontroller.k8s.io/v1alpha1/namespaces/ns/foos";

async fn rig() -> (TestServer, Children, Owner) {
    let server = TestServer::start().await;
    let foos = ApiResource::of::<Foo>();
    let guard = Consistency::new().with(foos.clone(), Frozen);
    let children = Children::new(server.client(), Arc::new(guard));
    let owner = Owner::known_as(foos, ObjectName::new(Some("ns"), "one"), "u1", "1");
    (server, children, Owner { generation: 2, ..owner })
}

fn foo(more: &Value) -> Value {
    let mut foo = json!({"metadata": {"name": "one", "uid": "u1", "generation": 2}});
    for (key, value) in more.as_object().unwrap() {
        foo["metadata"][key] = value.clone();
    }
    foo
}

#[tokio::test(start_paused = true)]
async fn precondition_is_checked_against_the_live_owner() {
    use Precondition::{AsDecidedOn, DeletingWithChildren};
    let deleted = "2026-01-01T00:00:00Z";
    let table: [(Value, &[Precondition]); 7] = [
        (json!({}), &[AsDecidedOn]),
        (json!({"annotations": {"windlass.dev/paused": "false"}}), &[AsDecidedOn]),
        (json!({"annotations": {"windlass.dev/paused": "true"}}), &[]),
        (json!({"generation": 3}), &[]),
        (json!({"deletionTimestamp": deleted}), &[DeletingWithChildren]),
        (json!({"deletionTimestamp": deleted, "finalizers": ["orphan"]}), &[]),
        (json!({"uid": "another uid", "deletionTimestamp": deleted}), &[]),
    ];
    for (metadata, met) in table {
        for precondition in [AsDecidedOn, DeletingWithChildren] {
            let (server, children, owner) = rig().await;
            server.store(FOOS, foo(&metadata));
            let write = children.checked(&owner, precondition).await.unwrap();
            assert_eq!(write.is_some(), met.contains(&precondition), "{precondition:?} of {metadata}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn unreadable_owner_permits_no_write() {
    let (server, children, owner) = rig().await;
    assert!(children.checked(&owner, Precondition::AsDecidedOn).await.unwrap().is_none(), "no such owner");
    server.store(FOOS, foo(&json!({})));
    server.refuse("get", 500, "InternalError");
    assert!(children.checked(&owner, Precondition::AsDecidedOn).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn one_owner_read_serves_64_writes() {
    let (server, children, owner) = rig().await;
    server.store(FOOS, foo(&json!({})));
    let writes = async |count: usize| {
        let all = (0..count).map(|_| children.checked(&owner, Precondition::AsDecidedOn));
        let permitted = futures_util::future::join_all(all).await;
        assert!(permitted.into_iter().all(|write| write.unwrap().is_some()));
        server.requests().len()
    };
    assert_eq!(writes(64).await, 1, "concurrent writes share one read");
    assert_eq!(writes(1).await, 1, "the 65th write needs another read");
    assert_eq!(writes(63).await, 0);
    assert_eq!(writes(130).await, 3);
    tokio::time::advance(EVIDENCE_AGE + Duration::from_millis(1)).await;
    assert_eq!(writes(1).await, 1, "the read has expired");
}

#[tokio::test(start_paused = true)]
async fn changed_owner_holds_its_key() {
    for moved in [Some(json!({"generation": 3})), Some(json!({"uid": "another uid"})), None] {
        let (server, children, owner) = rig().await;
        if let Some(moved) = &moved {
            server.store(FOOS, foo(moved));
        }
        assert!(children.consistency.is_ready(&owner.name));
        children.checked(&owner, Precondition::AsDecidedOn).await.unwrap();
        assert!(!children.consistency.is_ready(&owner.name), "{moved:?}");
    }
}

/// R18: the store was restored from a backup.
#[tokio::test(start_paused = true)]
async fn r18_older_live_owner_relists_its_kind() {
    use std::sync::atomic::{AtomicUsize, Ordering};
    let (server, children, owner) = rig().await;
    let live: u64 = version_of(&server.store(FOOS, foo(&json!({})))).parse().unwrap();
    let asked = Arc::new(AtomicUsize::new(0));
    let counts = asked.clone();
    let children = children.relists_owners(move || {
        counts.fetch_add(1, Ordering::Relaxed);
    });
    for (version, is_permitted) in [(live, true), (live - 1, true), (live + 1, false)] {
        let owner = Owner { version: version.to_string(), evidence: Arc::default(), ..owner.clone() };
        let write = children.checked(&owner, Precondition::AsDecidedOn).await.unwrap();
        assert_eq!(
            (write.is_some(), asked.load(Ordering::Relaxed)),
            (is_permitted, usize::from(!is_permitted))
        );
    }
}
