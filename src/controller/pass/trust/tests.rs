use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering as Atomic};

use serde_json::{Value, json};

use super::*;
use crate::api::ApiResource;
use crate::api::samplecontroller::v1alpha1::Foo;
use crate::cache::ObjectName;
use crate::client::RequestLimits;
use crate::controller::key::KeyState;
use crate::controller::key::stores::Frozen;
use crate::controller::kinds::deployment::ObservedDeployment;
use crate::controller::pass::tests::one_step::OneStep;
use crate::controller::{ChildRef, Deletion, Relist};
use crate::sim::Action;
use crate::testing::test_server::{TestServer, version_of};

const FOOS: &str = "/apis/samplecontroller.k8s.io/v1alpha1/namespaces/ns/foos";
const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/ns/deployments";

async fn rig() -> (TestServer, OneStep, Owner) {
    let server = TestServer::start().await;
    let foos = ApiResource::of::<Foo>();
    let rig = OneStep::new(server.client());
    rig.stores.add(foos.clone(), None, Frozen);
    let owner = Owner::known_as(foos, ObjectName::new(Some("ns"), "one"), "u1", "1");
    (server, rig, Owner { generation: 2, ..owner })
}

fn foo(more: &Value) -> Value {
    let mut foo = json!({"metadata": {"name": "one", "uid": "u1", "generation": 2}});
    for (key, value) in more.as_object().unwrap() {
        foo["metadata"][key] = value.clone();
    }
    foo
}

/// Stores a child of the owner.
fn child_of(server: &TestServer, owner: &Owner, name: &str) -> ChildRef {
    let reference = json!({"apiVersion": owner.resource.api_version(), "kind": "Foo", "name": "one", "uid": "u1",
        "controller": true});
    let child = json!({"metadata": {"name": name, "namespace": "ns", "ownerReferences": [reference]}});
    let live = server.store(DEPLOYMENTS, child);
    ChildRef {
        name: name.to_owned(),
        uid: live["metadata"]["uid"].as_str().unwrap().to_owned(),
        version: version_of(&live).to_owned(),
        is_deleting: false,
        is_controlled: true,
    }
}

/// Checks the owner in a sync of its own.
async fn check(rig: &OneStep, owner: &Owner, precondition: Precondition) -> Result<Option<Checked>, Error> {
    let mut state = std::mem::take(&mut *rig.state.lock());
    let checked = rig.pass(owner, &mut state).check_owner(precondition).await;
    *rig.state.lock() = state;
    checked
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
            let (server, rig, owner) = rig().await;
            server.store(FOOS, foo(&metadata));
            let checked = check(&rig, &owner, precondition).await.unwrap();
            assert_eq!(checked.is_some(), met.contains(&precondition), "{precondition:?} of {metadata}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn unreadable_owner_permits_no_write() {
    let (server, rig, owner) = rig().await;
    assert!(check(&rig, &owner, Precondition::AsDecidedOn).await.unwrap().is_none(), "no such owner");
    server.store(FOOS, foo(&json!({})));
    server.refuse("get", 500, "InternalError");
    assert!(check(&rig, &owner, Precondition::AsDecidedOn).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn one_owner_read_serves_64_writes() {
    let (server, rig, owner) = rig().await;
    server.store(FOOS, foo(&json!({})));
    let mut state = KeyState::default();
    let pass = rig.pass(&owner, &mut state);
    let writes = async |count: usize| {
        let all = (0..count).map(|_| pass.check_owner(Precondition::AsDecidedOn));
        let permitted = futures_util::future::join_all(all).await;
        assert!(permitted.into_iter().all(|checked| checked.unwrap().is_some()));
        server.requests().len()
    };
    assert_eq!(writes(64).await, 1, "concurrent writes share one read");
    assert_eq!(writes(1).await, 1, "the 65th write needs another read");
    assert_eq!(writes(63).await, 0);
    assert_eq!(writes(130).await, 3);
    tokio::time::advance(READ_LASTS + Duration::from_millis(1)).await;
    assert_eq!(writes(1).await, 1, "the read has expired");
}

/// I5: the server read the owner right after the request was sent, and answers late.
#[tokio::test(start_paused = true)]
async fn slow_owner_read_serves_no_write() {
    let (server, rig, owner) = rig().await;
    server.store(FOOS, foo(&json!({})));
    let before = tokio::time::Instant::now();
    server.hit("get", Action::Delay(Duration::from_secs(20)));
    let mut state = KeyState::default();
    let pass = rig.pass(&owner, &mut state);
    let checked = tokio::select! {
        checked = pass.check_owner(Precondition::AsDecidedOn) => checked.unwrap().unwrap(),
        () = server.sim.run() => unreachable!("the server runs on"),
    };
    assert_eq!(before.elapsed(), Duration::from_secs(20));
    assert_eq!(checked.until, before + READ_LASTS, "the gate lets no write pass on it");
    server.requests();
    pass.check_owner(Precondition::AsDecidedOn).await.unwrap().unwrap();
    assert_eq!(server.requests(), [format!("GET {FOOS}/one")], "the owner is read again");
}

/// I5: a scale-down is undone while its DELETE, or the read before it, waits for the rate. No DELETE follows the change.
#[tokio::test(start_paused = true)]
async fn rate_limit_does_not_age_the_read_of_an_owner() {
    for (undone_after, is_deleted) in [(2, false), (7, true)] {
        let (server, mut rig, owner) = rig().await;
        server.store(FOOS, foo(&json!({})));
        let child = child_of(&server, &owner, "a");
        let limits = RequestLimits { qps: Some(0.2), burst: 1, ..RequestLimits::default() };
        rig.tools.client = server.client().with_limits(limits);
        let deployments = ApiResource::of::<ObservedDeployment>();
        // Takes the token of the burst: the next request has its turn after five seconds.
        let _: Option<Value> = rig.tools.client.get(&deployments, Some("ns"), "another").await.unwrap();
        server.requests();
        let deletion = rig.delete_surplus(&owner, &deployments, &child);
        let user = async {
            tokio::time::sleep(Duration::from_secs(undone_after)).await;
            server.store(FOOS, foo(&json!({"generation": 3})));
            server.requests()
        };
        let (deletion, before) = tokio::join!(deletion, user);
        let after = server.requests();
        let all = [format!("GET {FOOS}/one"), format!("DELETE {DEPLOYMENTS}/a")];
        if is_deleted {
            assert_eq!((deletion.unwrap(), &before[..], &after[..]), (Deletion::Deleted, &all[..], &[][..]));
        } else {
            assert_eq!((deletion.unwrap(), &before[..], &after[..]), (Deletion::NotNow, &[][..], &all[..1]));
        }
    }
}

/// I5: two DELETEs share a read of the owner, and the second one waits for the rate until the read is too old.
#[tokio::test(start_paused = true)]
async fn delete_that_waits_reads_the_owner_again() {
    for is_undone in [false, true] {
        let (server, mut rig, owner) = rig().await;
        server.store(FOOS, foo(&json!({})));
        let children = ["a", "b"].map(|name| child_of(&server, &owner, name));
        let limits = RequestLimits { qps: Some(0.2), burst: 1, ..RequestLimits::default() };
        rig.tools.client = server.client().with_limits(limits);
        let deployments = ApiResource::of::<ObservedDeployment>();
        let mut state = KeyState::default();
        let pass = rig.pass(&owner, &mut state);
        let user = async {
            tokio::time::sleep(Duration::from_secs(2)).await;
            let before = server.requests();
            if is_undone {
                server.store(FOOS, foo(&json!({"generation": 3})));
                server.requests();
            }
            before
        };
        let deletions = async {
            let mut done = Vec::new();
            for child in &children {
                done.push(pass.delete_surplus(&deployments, child).await.unwrap());
            }
            done
        };
        let (done, before) = tokio::join!(deletions, user);
        assert_eq!(before, [format!("GET {FOOS}/one"), format!("DELETE {DEPLOYMENTS}/a")]);
        let again = [format!("GET {FOOS}/one"), format!("DELETE {DEPLOYMENTS}/b")];
        let after = server.requests();
        if is_undone {
            assert_eq!((&done[..], &after[..]), (&[Deletion::Deleted, Deletion::NotNow][..], &again[..1]));
        } else {
            assert_eq!((&done[..], &after[..]), (&[Deletion::Deleted, Deletion::Deleted][..], &again[..]));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn changed_owner_holds_its_key() {
    for moved in [Some(json!({"generation": 3})), Some(json!({"uid": "another uid"})), None] {
        let (server, rig, owner) = rig().await;
        if let Some(moved) = &moved {
            server.store(FOOS, foo(moved));
        }
        assert!(rig.is_ready());
        assert!(check(&rig, &owner, Precondition::AsDecidedOn).await.unwrap().is_none());
        assert!(!rig.is_ready(), "{moved:?}");
    }
}

/// R18: the store was restored from a backup.
#[tokio::test(start_paused = true)]
async fn r18_older_live_owner_relists_its_kind() {
    let (server, mut rig, owner) = rig().await;
    let live: u64 = version_of(&server.store(FOOS, foo(&json!({})))).parse().unwrap();
    let asked = Arc::new(AtomicUsize::new(0));
    let counts = asked.clone();
    rig.tools.relist = Relist::by(move || {
        counts.fetch_add(1, Atomic::Relaxed);
    });
    for (version, is_permitted) in [(live, true), (live - 1, true), (live + 1, false)] {
        let owner = Owner { version: version.to_string(), ..owner.clone() };
        let checked = check(&rig, &owner, Precondition::AsDecidedOn).await.unwrap();
        let relists = usize::from(!is_permitted);
        assert_eq!((checked.is_some(), asked.load(Atomic::Relaxed)), (is_permitted, relists));
    }
}
